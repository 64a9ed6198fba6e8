# SPDX-License-Identifier: Apache-2.0
"""Reads the uplinks that hosts share from host aggregates.

``vswitch:uplink`` names the link or gateway that carries all traffic of the
aggregate's hosts, for example a ToR's uplink. Aggregates that name the same
uplink describe it together. If several values apply, the most cautious is
used. An invalid value is reported and ignored.
"""

from collections import abc
import typing

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import aggregate_metadata
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['UplinkPolicies', 'is_in', 'name_in']

PREFIX = aggregate_metadata.UPLINK
ENTRIES = 'vswitch:uplink_mapping_entries'
INTERFACES = 'vswitch:uplink_mapping_interfaces'
SHARE = 'vswitch:uplink_same_host_share'

#: The largest count that a profile can state.
_MOST_ENTRIES = 10 ** 15

_NUMBERS = ('saturation_kbps', 'packet_rate_kpps', 'line_rate_kbps',
            'typical_packet_bytes')

#: Keys that state the capacity of an uplink.
_CAPACITIES = (f'{PREFIX}_profile', ENTRIES,
               *(f'{PREFIX}_{name}' for name in _NUMBERS))

#: Saturation of traffic that stays on a host and does not use the uplink:
#: practically unlimited.
_NOTHING_TAKEN_KBPS = 1e15


def is_in(metadata: abc.Mapping[str, str]) -> bool:
    """Return whether an aggregate's metadata has any key of an uplink."""
    return any(key.startswith(PREFIX) for key in metadata)


def name_in(metadata: abc.Mapping[str, str]) -> str | None:
    """Return the name of the uplink that an aggregate states, or None."""
    return metadata.get(PREFIX, '').strip() or None


class UplinkPolicies:
    """Reads uplinks from metadata; an unchanged one stays the object."""

    def __init__(self, profiles: aggregate_metadata.Profiles, policy: str,
                 overload_probability: float,
                 report: aggregate_metadata.Report,
                 prediction_margin: float = 1.0) -> None:
        self._profiles = profiles
        self._report = report
        self._keys = aggregate_metadata.Keys(
            f'{PREFIX}_', profiles, policy, overload_probability,
            prediction_margin, _NUMBERS, report, {
                'mapping_entries': aggregate_metadata.kind_of(
                    f'a whole number, 0 <= number <= {_MOST_ENTRIES}',
                    lambda text: 0 <= int(text) <= _MOST_ENTRIES),
                'mapping_interfaces': aggregate_metadata.kind_of(
                    f'a whole number, 1 <= number <= {_MOST_ENTRIES}',
                    lambda text: 1 <= int(text) <= _MOST_ENTRIES),
                'same_host_share': aggregate_metadata.kind_of(
                    'a number 0 <= share < 1',
                    lambda text: 0 <= float(text) < 1)})
        self._known = {}         # name -> (what decides, Uplink or None)

    def find(
            self, metadata: aggregate_metadata.Metadata
    ) -> dict[str, admission.Uplink]:
        """Return the uplinks that some aggregates describe."""
        items = {}               # name -> {(aggregate, key, value)}
        for where, data in metadata:
            stated = {key: value for key, value in data.items()
                      if key.startswith(PREFIX)}
            name = name_in(stated)
            if stated:
                self._report(f'aggregate {where} {PREFIX}', None if name else (
                    f'aggregate {where}: {PREFIX}: '
                    f'{stated.get(PREFIX)!r}; expected the name of an uplink; '
                    f'the keys {", ".join(sorted(stated))} are ignored'))
            if name:
                items.setdefault(name, set()).update(
                    (where, key, value) for key, value in stated.items())
        for name in self._known.keys() - items.keys():
            self._report(f'uplink {name}', None)
        self._known = {
            name: entry if (entry := self._known.get(name)) is not None
            and entry[0] == stated else (stated, self._make(name, stated))
            for name, stated in items.items()}
        return {name: uplink for name, (_, uplink) in self._known.items()
                if uplink is not None}

    def _make(self, name, items):
        try:
            return self._uplink(name, items)
        except Exception as error:
            # An error in one uplink does not affect the others.
            self._report(f'uplink {name}', (
                f'uplink {name}: {type(error).__name__}: {error}; the uplink '
                f'is ignored'))
            return None

    def _uplink(self, name, items):
        settings = self._keys.read(sorted(
            item for item in items if item[1] != PREFIX))
        profile = self._profile(name, settings)
        self._report(f'uplink {name}', None if profile is not None else (
            f'uplink {name}: no capacity in any aggregate; expected one of '
            f'{", ".join(_CAPACITIES)}; the uplink is ignored'))
        return profile and admission.Uplink(name, admission.HostPolicy(
            profile, settings.policy, settings.limit,
            tunnel_key='the room of the mapping table',
            prediction_margin=settings.margin))

    def _profile(self, name, settings):
        """Return the SwitchProfile of an uplink, or None without a limit."""
        values, numbers = settings.values, dict(settings.numbers)
        sharing: dict[str, typing.Any] = {}
        if ENTRIES in values:
            sharing['tunnel_unit'] = 'networks'
            # A network has an entry for each interface that it uses.
            numbers['max_tunnels'] = [
                min(map(int, values[ENTRIES]))
                // max(map(int, values.get(INTERFACES, ['1'])))]
        if SHARE in values:
            sharing.update(same_host_share=min(map(float, values[SHARE])),
                           same_host_saturation_kbps=_NOTHING_TAKEN_KBPS)
        return aggregate_metadata.usable_profile(
            vswitch_profile.smallest(
                self._profiles[profile] for profile in settings.profiles),
            numbers, f'uplink {name}', self._report, **sharing)
