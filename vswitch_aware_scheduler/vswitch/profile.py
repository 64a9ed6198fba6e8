# SPDX-License-Identifier: Apache-2.0
"""Profiles of virtual switches: built-in ones and those of the operator.

A profile states the limits of a switch, their units and their sources. This
module also reads profiles from files and applies overrides. It uses no host,
no instance and no configuration, and keeps no state.
"""

from __future__ import annotations

from collections import abc
import contextlib
import dataclasses
import functools
from importlib import resources
import math
import re
import typing

import numpy as np
import yaml

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.traffic import model

__all__ = ['DEFAULT_PACKET_BYTES', 'ENCAPSULATIONS', 'Limit', 'MaxInstances',
           'OVERRIDABLE_KEYS', 'SATURATION_DIMENSIONS', 'SwitchProfile',
           'TUNNEL_UNITS', 'catalogue', 'load_profiles', 'most_cautious',
           'named', 'override_number', 'profiles', 'read_yaml',
           'smallest', 'with_numbers']

ENCAPSULATIONS = ('none', 'vlan', 'vxlan', 'gre', 'geneve', 'stt')

#: Units of ``max_tunnels``: VMs, their interfaces, distinct networks (VNIs) or
#: remote VTEPs that the host has tunnels to.
TUNNEL_UNITS = ('instances', 'interfaces', 'networks', 'vteps')

#: Dimensions whose limit is a bandwidth, not a packet rate.
SATURATION_DIMENSIONS = tuple(sorted(
    name for name, weights in model.DIMENSIONS.items() if not weights[2]))

#: Largest packet of Ethernet with the standard MTU. Switches are usually
#: measured at about this size, so that packet rates derived from bandwidth
#: agree with the measured bandwidth.
DEFAULT_PACKET_BYTES = 1500.0

#: Largest packets that offloads produce.
_LARGEST_BYTES = 65536.0

_RATES = {'saturation_kbps': 'kbit/s',
          'packet_rate_kpps': 'kilo-packets/s',
          'line_rate_kbps': 'kbit/s',
          'vm_peak_kbps': 'kbit/s',
          'typical_packet_bytes': 'bytes'}
_SHARE = 'same_host_share'
_SAME_HOST = (_SHARE, 'same_host_saturation_kbps')
_COUNTS = ('max_tunnels', 'max_virtual_functions')
#: Limits for which 0 closes a switch to all VMs with traffic.
_CLOSING = ('saturation_kbps', 'packet_rate_kpps', 'line_rate_kbps',
            'vm_peak_kbps')
_CPU = {'cpu_idle_mhz': 'MHz', 'cpu_mhz_per_kpps': 'MHz for a kilo-packet/s',
        'cpu_mhz_per_mbps': 'MHz for a Mbit/s'}
_COSTS = {'packet_cost_us': 'microseconds a packet',
          'byte_cost_ns': 'nanoseconds a byte'}
_AT_LEAST_ZERO = {**_CPU, **_COSTS}
_TABLE = 'saturation_by_packet_bytes'
#: The same table as packet rates; only in files, which it is converted from.
_PACKET_TABLE = 'packet_rate_by_packet_bytes'
_CORES = 'cores'
#: The three forms of the saturation.
_FORMS = ('saturation_kbps', _TABLE, *_COSTS)
#: Numbers that are proportional to the cores of the data plane.
_PER_CORE = (*_FORMS, 'packet_rate_kpps', 'same_host_saturation_kbps')

#: Keys of aggregate metadata (after ``vswitch:``) that override a number. For
#: each of them, a smaller number is more cautious.
OVERRIDABLE_KEYS = tuple(_RATES) + _COUNTS
_CHOICES = {'encapsulation': checks.one_of(ENCAPSULATIONS),
            'saturation_dimension': checks.one_of(SATURATION_DIMENSIONS),
            'tunnel_unit': checks.one_of(TUNNEL_UNITS)}
_OVERRIDABLE = checks.one_of(OVERRIDABLE_KEYS)

#: Name of a profile that only has configured numbers.
NUMBERS_ONLY = 'numbers-only'

#: Largest number of values of a document, with all aliases expanded.
_MOST_VALUES = 100_000

#: Reads the catalogue faster, if PyYAML has libyaml. The messages for files of
#: operators are those of the other loader, which names the line of the cause.
_FAST_LOADER = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)

_WORD = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.-]*')
_WORDS = 'text of letters, digits, "_", "." and "-"'


def _rate(number):
    return model.LEAST_CAPACITY <= number <= 1e15


def _closing_rate(number):
    return number == 0 or _rate(number)


def _rules():
    """Yield the key and the kind of each number.

    The bounds keep every quotient of two numbers finite and exclude NaN.
    """
    for key in _COUNTS:
        yield key, checks.whole(0, 1e15)
    for key, unit in _AT_LEAST_ZERO.items():
        yield key, checks.number_of(
            f'0 or a number of 1e-9 to 1e15, {unit}', lambda number:
            number == 0 or 1e-9 <= number <= 1e15)
    yield _SHARE, checks.number_of('a number 0 <= share < 1',
                                   lambda number: 0 <= number < 1)
    for key in (*_RATES, 'same_host_saturation_kbps', _TABLE, _CORES):
        closes = key in _CLOSING
        unit = _CORES if key == _CORES else _RATES.get(key, 'kbit/s')
        yield key, checks.number_of(
            f'a number > 0 (1e-6 to 1e15), {unit}'
            + (', or 0 to close the switch' if closes else ''),
            _closing_rate if closes else _rate)


_NUMBERS = dict(_rules())


def _number(owner: str, key: str, value: typing.Any,
            thing: str | None = None) -> float:
    """Return the value of a key as a number of the type that it requires."""
    kind = _NUMBERS[key]
    if isinstance(value, str) and re.fullmatch(r'[0-9.]+[eE][0-9]+', value):
        kind = kind._replace(expected=f'{kind.expected}; YAML reads {value} '
                             'as text, but 1.0e+6 and 1000000 as numbers')
    return checks.check(f'{owner}: {thing or key}', value, kind)


def _open(rate: float | None) -> float | None:
    """Return a rate, at least the smallest capacity that models accept."""
    return None if rate is None else max(rate, model.LEAST_CAPACITY)


def override_number(key: str, value: typing.Any, where: str) -> float:
    """Return the number of a value in aggregate metadata.

    :param where: what states the value, for messages, for example ``aggregate
        'rack 7'``
    :raises InvalidInput: if the value is invalid
    """
    checks.check(f'{where}: a key', key, _OVERRIDABLE)
    number, kind = value, _NUMBERS[key]
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            number = int(value) if key in _COUNTS else float(value)
    checks.check(f'{where}: {key}', value, kind._replace(
        is_valid=lambda value: kind.is_valid(number)))
    return kind.form(number)


def most_cautious(key: str, values: abc.Iterable[typing.Any],
                  where: str) -> float:
    """Return the smallest of several values for one key.

    :raises InvalidInput: if a value is invalid or there is none
    """
    override_numbers = [override_number(key, value, where) for value in values]
    if not override_numbers:
        raise exceptions.InvalidInput(thing=f'{where}: {key}', value=None,
                                      expected='one value or more')
    return min(override_numbers)


def _is_word(value: object) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def _owner(name):
    return f'profile {plain_text.brief(name)}'


def _invalid(name: object, value_name: str, value: object,
             expected: object) -> typing.NoReturn:
    raise exceptions.InvalidInput(thing=f'{_owner(name)}: {value_name}',
                                  value=value, expected=expected)


@dataclasses.dataclass(frozen=True)
class Limit:
    """One linear limit: the sum of weights times rates is <= capacity.

    :param weights: weights of 1 kbit/s of egress, 1 kbit/s of ingress and 1
        kilo-packet/s
    :param capacity: in the unit of the weighted sum
    """

    name: str
    weights: tuple[float, ...]
    capacity: float


class MaxInstances(typing.NamedTuple):
    """The maximum number of instances of a switch."""

    count: int  # type: ignore[assignment]
    key: str


@dataclasses.dataclass(frozen=True)
class SwitchProfile:
    """The limits of one kind of switch. Only stated limits apply.

    Keys and units: configuration/profiles.rst.

    :param saturation_kbps: for all packet sizes, in ``saturation_dimension``.
        0 closes the switch to all VMs with traffic, as does 0 in
        ``packet_rate_kpps``, ``line_rate_kbps`` and ``vm_peak_kbps``
    :param packet_cost_us: time in microseconds that a packet takes
    :param byte_cost_ns: nanoseconds that each byte takes in addition, both
        directions
    :param packet_rate_kpps: both directions together
    :param same_host_share: smallest share of the VMs' traffic that stays on
        the host, 0 <= share < 1. This traffic does not use the line
    :param same_host_saturation_kbps: of traffic that stays on the host;
        without it, this traffic has the same cost as other traffic
    :param typical_packet_bytes: assumed if the packet rate is unknown
    :param saturation_by_packet_bytes: {bytes: kbps}, instead of
        ``saturation_kbps``; stored in increasing order
    :param cores: cores or queues of the data plane that the numbers hold for
    :param sources: {key of a stated number: its source}; the text of an
        estimate starts with 'estimate:'
    :param provenance: {word: text or number}: machine, versions and method of
        the measurement; for information
    :raises InvalidInput: if a value is invalid
    """

    name: str
    switch: str = 'unspecified'
    description: str = ''
    encapsulation: str = 'none'
    saturation_kbps: float | None = None
    saturation_dimension: str = 'bandwidth'
    packet_rate_kpps: float | None = None
    line_rate_kbps: float | None = None
    vm_peak_kbps: float | None = None
    max_tunnels: int | None = None
    tunnel_unit: str = TUNNEL_UNITS[0]
    max_virtual_functions: int | None = None
    same_host_share: float | None = None
    same_host_saturation_kbps: float | None = None
    typical_packet_bytes: float = DEFAULT_PACKET_BYTES
    saturation_by_packet_bytes: dict[float, float] | None = dataclasses.field(
        default=None, hash=False)
    packet_cost_us: float | None = None
    byte_cost_ns: float | None = None
    cores: float | None = None
    cpu_idle_mhz: float | None = None
    cpu_mhz_per_kpps: float | None = None
    cpu_mhz_per_mbps: float | None = None
    sources: dict[str, str] = dataclasses.field(
        default_factory=dict, hash=False)
    provenance: dict[str, typing.Any] = dataclasses.field(
        default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for key in ('name', 'switch'):
            if not _is_word(getattr(self, key)):
                self._refuse(key, _WORDS + ' that starts with a letter or '
                             'digit')
        for key, kind, expected in (
                ('description', str, 'text'),
                ('sources', dict, 'a mapping of keys to text'),
                ('provenance', dict, 'a mapping of words to text or numbers')):
            if not isinstance(getattr(self, key), kind):
                self._refuse(key, expected)
        owner = _owner(self.name)
        checks.fields(owner, self, _CHOICES)
        for key in (*OVERRIDABLE_KEYS, *_AT_LEAST_ZERO, *_SAME_HOST, _CORES):
            value = getattr(self, key)
            if value is not None or key == 'typical_packet_bytes':
                object.__setattr__(self, key, _number(owner, key, value))
        if self.saturation_by_packet_bytes is not None:
            object.__setattr__(self, _TABLE, self._checked_table(owner))
            if self.saturation_kbps is not None:
                self._refuse('saturation_kbps', f'nothing beside {_TABLE}: '
                             'state one of the two')
        limits = (*OVERRIDABLE_KEYS, _TABLE, *_COSTS)
        stated = [key for key in limits if getattr(self, key) is not None]
        if stated == ['typical_packet_bytes']:
            _invalid(self.name, 'the list of its limits', [],
                     'at least one of ' + ', '.join(
                         key for key in limits if key not in stated))
        if set(_COSTS) & set(stated) and not (
                self.packet_cost_us or self.byte_cost_ns):
            self._refuse('packet_cost_us', 'a number > 0, or byte_cost_ns '
                         'to be one: packets that cost nothing are no limit')
        stated.extend(key for key in (*_CPU, *_SAME_HOST, _CORES)
                      if getattr(self, key) is not None)
        for key, text in self.sources.items():
            if key not in stated:
                _invalid(self.name, 'a key of sources', key, 'a number that '
                         'the profile states, '
                         + plain_text.one_of(key, stated))
            if not isinstance(text, str) or not text.strip():
                _invalid(self.name, f'sources: {key}', text, 'text')
        for key, value in self.provenance.items():
            if not _is_word(key):
                _invalid(self.name, 'a key of provenance', key, _WORDS)
            if not isinstance(value, (str, int, float)) or value != value:
                _invalid(self.name, f'provenance: {key}', value,
                         'text or a number')
        for key in ('sources', 'provenance'):
            object.__setattr__(self, key, dict(getattr(self, key)))

    def _refuse(self, key: str, expected: object) -> typing.NoReturn:
        _invalid(self.name, key, getattr(self, key), expected)

    def _checked_table(self, owner: str) -> dict[float, float]:
        table = self.saturation_by_packet_bytes
        if not isinstance(table, dict) or not table:
            self._refuse(_TABLE, 'a mapping of packet sizes in bytes to '
                         'kbit/s with one size or more')
        checked = {}
        for size, rate in table.items():
            # Keys of a JSON object are strings.
            number = size
            with contextlib.suppress(ValueError):
                number = float(size) if isinstance(size, str) else size
            thing = f'a packet size of {_TABLE}'
            number = _number(owner, 'typical_packet_bytes', number, thing)
            if number in checked:
                _invalid(self.name, thing, size, 'each size once')
            checked[number] = _number(owner, _TABLE, rate, f'{_TABLE}: {size}')
        return dict(sorted(checked.items()))

    def _size(self, packet_bytes: float | None) -> float:
        if packet_bytes is None:
            return self.typical_packet_bytes
        return _number(_owner(self.name), 'typical_packet_bytes',
                       packet_bytes, 'packet_bytes')

    def saturation_kbps_at(self,
                           packet_bytes: float | None = None) -> float | None:
        """Return the saturation bandwidth in packets of one size.

        Between two sizes of the table, the time for a packet is linear in its
        bytes. Below the smallest size, a packet takes the time of the smallest
        size. Above the largest size, the rate of the largest size applies.
        Both are safe for every switch with a cost of a + b*bytes, a and b >=
        0. The table never exceeds the capacity of the line: twice
        ``line_rate_kbps`` if both directions count.

        Costs of packets and bytes permit :math:`1 / (a + b x)` packets per
        second. If a profile states both, the smaller value applies.
        Derivation: configuration/profiles.rst, "Capacity by packet size".

        :returns: kbit/s in ``saturation_dimension``, or None if the profile
            states neither saturation nor costs
        :raises InvalidInput: if ``packet_bytes`` is not a number > 0
        """
        size = self._size(packet_bytes)
        rates = [rate for rate in (self._saturation(size), self._cost(size))
                 if rate is not None]
        return min(rates, default=None)

    @property
    def most_kbps(self) -> float | None:
        """The largest rate in which one instance can send or receive, or None.

        This is the line rate plus the capacity of the switch between instances
        of one host, at the packet size with the largest capacity: 64 KiB,
        which offloads produce, or the largest measured size. None if the
        profile does not state both, or if one of them is 0, which closes the
        switch.
        """
        carried = max((rate for rate in (
            self.saturation_kbps_at(), self.saturation_kbps_at(_LARGEST_BYTES),
            self.same_host_saturation_kbps) if rate is not None),
            default=None)
        if carried is None or self.line_rate_kbps is None \
                or min(carried, self.line_rate_kbps) < 1:
            return None
        return self.line_rate_kbps + carried

    def _cost(self, size: float) -> float | None:
        """Return the rate in kbit/s that packet costs permit, or None."""
        if self.packet_cost_us is None and self.byte_cost_ns is None:
            return None
        return 8e3 * size / ((self.packet_cost_us or 0.0)
                             + (self.byte_cost_ns or 0.0) * size / 1e3)

    def _saturation(self, size: float) -> float | None:
        if self.saturation_by_packet_bytes is None:
            return _open(self.saturation_kbps)
        sizes = np.array(list(self.saturation_by_packet_bytes))
        rates = np.array(list(self.saturation_by_packet_bytes.values()))
        # Bits divided by kbit/s are milliseconds; np.interp keeps its end
        # values.
        packet_ms = np.interp(size, sizes, 8.0 * sizes / rates)
        line_kbps = math.inf
        if self.line_rate_kbps is not None:
            line_kbps = max(self.line_rate_kbps, model.LEAST_CAPACITY) * sum(
                model.DIMENSIONS[self.saturation_dimension])
        return float(min(8.0 * min(size, sizes[-1]) / packet_ms, line_kbps))

    def _capacities(self, packet_bytes):
        # (name of the limit, its dimension, its capacity), None left out.
        line = self._shared(_open(self.line_rate_kbps), math.inf)
        return [entry for entry in (
            ('saturation', self.saturation_dimension,
             self._shared(self._saturation(self._size(packet_bytes)),
                          self.same_host_saturation_kbps)),
            ('line_rate_egress', 'egress', line),
            ('line_rate_ingress', 'ingress', line),
            ('packet_rate', 'packets', _open(self.packet_rate_kpps)),
        ) if entry[2] is not None]

    def _shared(self, rate, same_host):
        """Return the limit of a rate for all traffic of the host's VMs.

        A kbit/s to other hosts uses the share 1 / rate of the limit. A kbit/s
        that stays on the host uses the share 1 / same_host.
        """
        share = self.same_host_share
        if rate is None or not share:
            return rate
        return 1.0 / ((1.0 - share) / rate + share / (same_host or rate))

    def limits(self) -> tuple[Limit, ...]:
        """Return the limits on the rates of all VMs together.

        For a profile with a table, the saturation is the one at
        ``typical_packet_bytes``. Limits on one VM (``vm_peak_kbps``) and on
        the number of VMs (:attr:`max_instances`) are not included.
        """
        limits = [Limit(name, model.DIMENSIONS[dimension], capacity)
                  for name, dimension, capacity in self._capacities(None)]
        if self._cost(1.0) is not None:
            # Share of the switch's time that 1 kbit/s (125 bytes/s) and 1
            # kilo-packet/s use.
            kbit = (self.byte_cost_ns or 0.0) * 125e-9
            packets = (self.packet_cost_us or 0.0) * 1e-3
            limits.append(Limit('switching', (kbit, kbit, packets), 1.0))
        return tuple(limits)

    def bandwidth_kbps(self, packet_bytes: float | None = None) -> float:
        """Return the largest sum of egress and ingress that all limits permit.

        This number allows a comparison of all kinds of switches.

        :returns: kbit/s, infinite if only numbers of VMs are limited
        :raises InvalidInput: if ``packet_bytes`` is not a number > 0
        """
        size = self._size(packet_bytes)
        capacities = dict.fromkeys(model.DIMENSIONS, math.inf)
        for _, dimension, capacity in self._capacities(size):
            capacities[dimension] = min(capacities[dimension], capacity)
        costs = self._cost(size)
        return min(capacities['bandwidth'],
                   capacities['egress'] + capacities['ingress'],
                   capacities['packets'] * 8.0 * size,
                   math.inf if costs is None else costs)

    def cpu_mhz(self, rate_kbps: float,
                packet_bytes: float | None = None) -> float | None:
        """Return the processor use of switching at a rate.

        Derivation: reference/capacity.rst, "CPU".

        :param rate_kbps: sum of egress and ingress of all VMs
        :returns: MHz, or None if the profile does not state it
        :raises InvalidInput: if ``packet_bytes`` is not a number > 0
        """
        size = self._size(packet_bytes)
        if self.cpu_mhz_per_kpps is None and self.cpu_mhz_per_mbps is None:
            return None
        return ((self.cpu_idle_mhz or 0.0)
                + (self.cpu_mhz_per_kpps or 0.0) * rate_kbps / (8.0 * size)
                + (self.cpu_mhz_per_mbps or 0.0) * rate_kbps / 1e3)

    @property
    def is_measured_elsewhere(self) -> bool:
        """Whether the built-in profile with this name was not replaced.

        Built-in profiles were measured on other machines. A profile that
        ``vswitch-calibrate`` wrote states its tool.
        """
        return self.name in _built_in() and 'tool' not in self.provenance

    @property
    def calibration_command(self) -> str:
        """The command that measures a switch of this kind between VMs."""
        return ('vswitch-calibrate remote --sender root@VM1 --receiver '
                f'root@VM2=ADDRESS --switch {self.switch} --encapsulation '
                f'{self.encapsulation} --output {self.name}.yaml')

    @property
    def counts(self) -> dict[str, int]:
        """{one of :data:`.COUNTED`: maximum} of the limited counts."""
        return {unit: maximum for unit, maximum in (
            (self.tunnel_unit, self.max_tunnels),
            ('virtual_functions', self.max_virtual_functions))
            if maximum is not None}

    @property
    def max_instances(self) -> MaxInstances | None:
        """The smallest limit on the number of VMs and its key, or None.

        Tunnels only limit the number of VMs if each VM has at least one
        tunnel. Networks and VTEPs are shared, see :mod:`.attachments`.
        """
        counts = [MaxInstances(getattr(self, key), key) for key in _COUNTS
                  if getattr(self, key) is not None
                  and (key != 'max_tunnels' or self.tunnel_unit
                       in ('instances', 'interfaces'))]
        return min(counts, default=None)

    def overridden(self, mapping: abc.Mapping[str, typing.Any], where: str,
                   **other_keys: typing.Any) -> SwitchProfile:
        """Return this profile with numbers of aggregate metadata.

        ``saturation_kbps`` also replaces a table by packet size. The source of
        an overridden number becomes ``override: <where>``.

        :param mapping: {key: value}, keys of :data:`OVERRIDABLE_KEYS`; a value
            is a number, text with a number, or a set, list or tuple of these,
            of which the smallest applies
        :raises InvalidInput: if a value is invalid
        """
        changes = {
            key: most_cautious(
                key, values if isinstance(values, (set, frozenset, list,
                                                   tuple)) else [values],
                where)
            for key, values in mapping.items()}
        return self._changed(
            {**changes, **other_keys},
            {key: f'override: {where}' for key in changes})

    def _changed(self, changes, sources):
        # A new value in one form of the saturation removes the other forms. A
        # changed value no longer has its previous source.
        changes = dict(changes)
        if any(changes.get(form) is not None for form in _FORMS):
            for form in _FORMS:
                changes.setdefault(form, None)
        kept_sources = {key: text for key, text in self.sources.items()
                        if key not in changes}
        return dataclasses.replace(self, **changes,
                                   sources={**kept_sources, **sources})

    def _of_cores(self, name: str,
                  stated: dict[str, typing.Any]) -> SwitchProfile:
        """Return this profile for a number of cores, for a profile of a file.

        :param stated: {key: value} of this profile, with the cores
        """
        own_form = any(stated.get(form) is not None for form in _FORMS)
        if self.cores is None:
            if own_form or stated.get('packet_rate_kpps') is not None:
                return self
            _invalid(name, _CORES, stated[_CORES], 'none: the base '
                     f'{self.name} does not state the cores that its numbers '
                     f'hold for')
        factor = _number(_owner(name), _CORES, stated[_CORES]) / self.cores
        changes = {}
        for key in _PER_CORE:
            value = getattr(self, key)
            if isinstance(value, dict):
                changes[key] = {size: rate * factor
                                for size, rate in value.items()}
            elif value is not None:
                changes[key] = (value / factor if key in _COSTS
                                else value * factor)
        return self._changed(changes, {
            key: f'{self.sources[key]}; of {self.cores:g} cores, times '
                 f'{factor:g}' for key in changes if key in self.sources})

    def to_dict(self) -> dict[str, typing.Any]:
        """Return the stated values of the profile, for JSON or YAML."""
        return {key: dict(value) if isinstance(value, dict) else value
                for key in _KEYS
                if (value := getattr(self, key)) not in (None, {}, '')
                and (key, value) != ('tunnel_unit', TUNNEL_UNITS[0])}

    @classmethod
    def from_dict(cls, data: typing.Any) -> SwitchProfile:
        """Return the profile of a dictionary that :meth:`to_dict` returned.

        :raises InvalidInput: if a value or a key is invalid
        """
        if not isinstance(data, dict) or 'name' not in data:
            _invalid(None, 'its dictionary', data, 'a mapping with a name')
        return _from_entry(data['name'], {
            key: value for key, value in data.items() if key != 'name'}, None)


Profiles: typing.TypeAlias = dict[str, SwitchProfile]

_KEYS = tuple(field.name for field in dataclasses.fields(SwitchProfile))


def _from_entry(name, entry, bases):
    """Return the profile of one entry: a mapping of all keys but the name.

    :param bases: {name: SwitchProfile} that ``base`` may name, or None if
        ``base`` is not permitted
    """
    if not isinstance(entry, dict):
        _invalid(name, 'its entry', entry, 'a mapping of keys to values')
    allowed = _KEYS[1:] if bases is None else (
        'base', *_KEYS[1:], _PACKET_TABLE)
    for key in entry:
        if key not in allowed:
            _invalid(name, 'a key', key, plain_text.one_of(key, allowed))
    stated = _without_packet_table(name, entry)
    # A key without a value means the default, or no limit.
    for field in dataclasses.fields(SwitchProfile)[1:]:
        if field.name in stated and stated[field.name] is None:
            stated[field.name] = (
                field.default if field.default is not dataclasses.MISSING
                else {})
    if 'base' not in stated:
        return SwitchProfile(name=name, **stated)
    base = stated.pop('base')
    if not isinstance(base, str) or base not in bases:
        _invalid(name, 'base', base, 'a built-in profile or an earlier one of '
                 'the same file, ' + plain_text.one_of(base, bases))
    sources = stated.pop('sources', {})
    if not isinstance(sources, dict):
        _invalid(name, 'sources', sources, 'a mapping of keys to text')
    base = bases[base]
    if stated.get(_CORES) is not None:
        base = base._of_cores(name, stated)
    return base._changed({'name': name, **stated}, sources)


def _without_packet_table(name, entry):
    """Return an entry whose table of packet rates became one of kbit/s."""
    stated = dict(entry)
    rates = stated.pop(_PACKET_TABLE, None)
    if rates is None:
        return stated
    if stated.get(_TABLE) is not None:
        _invalid(name, _PACKET_TABLE, rates, f'nothing beside {_TABLE}: state '
                 f'one of the two')
    try:
        stated[_TABLE] = {size: 8.0 * size * rate
                          for size, rate in rates.items()}
    except (AttributeError, TypeError):
        _invalid(name, _PACKET_TABLE, rates, 'a mapping of packet sizes in '
                 'bytes to kilo-packets/s')
    if isinstance(stated.get('sources'), dict):
        stated['sources'] = {_TABLE if key == _PACKET_TABLE else key: text
                             for key, text in stated['sources'].items()}
    return stated


def _check_nodes(loader, node, sizes):
    """Raise if a mapping has a key twice, of which PyYAML keeps the last.

    Raise also if aliases form a circle, or expand to too many values: PyYAML
    copies merged mappings, so that a few nested ones take for ever.

    :param sizes: {id of a visited node: number of values with all aliases
        expanded; None while its parts are visited}
    """
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in sizes:
        if sizes[id(node)] is None:
            raise yaml.constructor.ConstructorError(
                problem='an alias is part of what it stands for; expected no '
                'circle', problem_mark=node.start_mark)
        return sizes[id(node)]
    sizes[id(node)] = None
    children, keys_seen = node.value, set()
    if isinstance(node, yaml.MappingNode):
        children = [value_node for _, value_node in node.value]
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag in (
                    'tag:yaml.org,2002:merge', 'tag:yaml.org,2002:value'):
                continue
            key = loader.construct_object(key_node)
            if key in keys_seen:
                value = (plain_text.brief(value_node.value)
                         if isinstance(value_node, yaml.ScalarNode)
                         else f'a {value_node.id}')
                raise yaml.constructor.ConstructorError(
                    problem=f'key {plain_text.brief(key)} comes a second time '
                    f'(value {value}); expected each key once',
                    problem_mark=key_node.start_mark)
            keys_seen.add(key)
    size = 1 + sum(_check_nodes(loader, child, sizes) for child in children)
    if size > _MOST_VALUES:
        raise yaml.constructor.ConstructorError(
            problem=f'aliases stand for more than {_MOST_VALUES} values; '
            f'expected fewer', problem_mark=node.start_mark)
    sizes[id(node)] = size
    return size


def named(name: str, profiles_by_name: Profiles) -> SwitchProfile:
    """Return the profile with a name.

    :raises InvalidInput: if there is no such profile
    """
    return profiles_by_name[
        checks.check('profile', name, checks.one_of(profiles_by_name))]


def smallest(candidates: abc.Iterable[SwitchProfile]) -> SwitchProfile | None:
    """Return the profile with the lowest capacity, or None without any."""
    return min(candidates, key=lambda profile: profile.bandwidth_kbps(),
               default=None)


def with_numbers(base: SwitchProfile | None,
                 numbers: abc.Mapping[str, typing.Any], where: str,
                 **other_keys: typing.Any) -> SwitchProfile | None:
    """Return a profile with other numbers, or one that has only these."""
    if not numbers and (base is None or not other_keys):
        return base
    if base is None:
        limits = [key for key in numbers if key != 'typical_packet_bytes']
        if not limits:
            return None
        key = min(limits)
        base = SwitchProfile(NUMBERS_ONLY, **{  # type: ignore[arg-type]
            key: most_cautious(key, numbers[key], where)})
    return base.overridden(numbers, where, **other_keys)


def read_yaml(content: str | bytes, place: str, owner: str | None = None,
              loader_class: typing.Any = yaml.SafeLoader) -> typing.Any:
    """Return the plain values of a YAML document without duplicate keys.

    :param owner: what a top-level key names, for messages
    :raises InvalidInput: if the document is invalid
    """
    top = None
    try:
        loader = loader_class(content)
        top = loader.get_single_node()
        if top is None:
            return None
        _check_nodes(loader, top, {})
        return loader.construct_document(top)
    # PyYAML may raise any exception for tags such as !!float and !!timestamp.
    except Exception as error:
        mark = getattr(error, 'problem_mark', None)
        if mark is not None:
            place += f', line {mark.line + 1}'
            if owner is not None and isinstance(top, yaml.MappingNode):
                keys = [key.value for key, value in top.value
                        if key.start_mark.line <= mark.line]
                place += f': {owner} {plain_text.brief(keys[-1])}'
        problem = ' '.join(str(getattr(error, 'problem', 0) or error).split())
        if '; expected' not in problem:
            problem += '; expected valid YAML'
        raise exceptions.InvalidInput(f'{place}: {problem}') from None


def _parse(content, place, bases, loader_class=yaml.SafeLoader):
    """Return the profiles of a YAML document."""
    data = read_yaml(content, place, 'profile', loader_class)
    if not isinstance(data, dict) or not data:
        raise exceptions.InvalidInput(
            thing=f'{place}: content', value=data,
            expected='a mapping of profile names to profiles')
    parsed: Profiles = {}
    for name, entry in data.items():
        try:
            parsed[name] = _from_entry(name, entry, {**bases, **parsed})
        except exceptions.InvalidInput as error:
            raise exceptions.InvalidInput(f'{place}: {error}') from None
    return parsed


def load_profiles(path: str, bases: Profiles | None = None) -> Profiles:
    """Return the operator's profiles.

    :param bases: {name: SwitchProfile} that ``base`` may name in addition to
        earlier profiles of the file; None uses the catalogue
    :returns: {name: SwitchProfile} in the order of the file
    :raises InvalidInput: if the file is invalid
    """
    bases = catalogue() if bases is None else bases
    try:
        with open(path, 'rb') as file:
            content = file.read()
    except (OSError, ValueError) as error:
        raise exceptions.InvalidInput(
            thing=f'profile file {path}', seen='cannot be read ('
            f'{getattr(error, "strerror", None) or error})',
            expected='a YAML file of profiles') from error
    return _parse(content, f'profile file {path}', bases)


def catalogue() -> Profiles:
    """Return the built-in profiles, a new {name: SwitchProfile}."""
    return dict(_built_in())


@functools.cache
def _built_in() -> Profiles:
    content = resources.files(__package__).joinpath(
        'catalogue.yaml').read_bytes()
    return _parse(content, 'built-in catalogue', {}, _FAST_LOADER)


def profiles(path: str | None = None) -> Profiles:
    """Return the built-in profiles together with those of a file.

    A profile of the file replaces the built-in profile with the same name.

    :raises InvalidInput: as :func:`load_profiles`
    """
    by_name = catalogue()
    if path:
        by_name |= load_profiles(path, by_name)
    return by_name
