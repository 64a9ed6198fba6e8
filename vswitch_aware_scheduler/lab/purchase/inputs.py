# SPDX-License-Identifier: Apache-2.0
"""Reads server types and mixes of VMs from YAML files, and validates them."""

import dataclasses

import numpy as np

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.lab import stated
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['Flavor', 'Mix', 'ServerType', 'Vm', 'load_flavors',
           'load_server_types', 'mix_of_flavors']

#: Keys of a flavor's traffic in a file: rates, and times of an on/off source.
TRAFFIC_KEYS = ('egress_kbps', 'ingress_kbps', 'kpps', 'on_seconds',
                'off_seconds')


@dataclasses.dataclass(frozen=True)
class ServerType:
    """One kind of server that could be bought.

    :ivar price: price of one server, or None
    :ivar uplink_kbps: capacity of the rack's uplink in each direction, or None
    :ivar hosts_per_uplink: number of servers that share the uplink
    :ivar cores: cores for VMs: those of the server minus reserved ones, times
        the allocation ratio; the same for the memory
    """

    name: str
    cores: float
    memory_mb: float
    profiles: tuple
    price: float | None = None
    uplink_kbps: float | None = None
    hosts_per_uplink: int = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Vm:
    """One VM of a mix.

    :ivar model: TrafficModel, or None where only the law is known
    :ivar is_prior: whether the law is cut to what one instance may have
    """

    flavor: str
    cores: float
    memory_mb: float
    law: rate_law.RateLaw
    model: traffic_model.TrafficModel | None = None
    is_prior: bool = False
    count: int = 1

    def grown(self, factor: float):
        """Return the VM with all its rates multiplied by a factor."""
        if factor == 1:
            return self
        law = self.law
        return dataclasses.replace(
            self, law=rate_law.RateLaw.from_arrays(
                law.probabilities, law.rates * factor, law.at_instants),
            model=None if self.model is None else dataclasses.replace(
                self.model, rates=self.model.rates * factor))


@dataclasses.dataclass(frozen=True, eq=False)
class Flavor:
    """The data of a flavor in a file.

    :ivar model: TrafficModel, or None if no traffic is stated
    """

    name: str
    cores: float
    memory_mb: float
    count: int | None = None
    model: traffic_model.TrafficModel | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Mix:
    """VMs in the order in which servers are filled.

    :ivar repeats: whether ``vms`` is an endless pattern whose every prefix has
        the shares of the flavors; otherwise it has all VMs once
    :ivar kinds: the different Vm; a rare one may be missing in the pattern
    """

    vms: tuple
    total: int
    repeats: bool
    kinds: tuple

    def grown(self, factor: float):
        """Return the mix with all rates multiplied by a factor."""
        grown = {id(vm): vm.grown(factor) for vm in self.kinds}
        return dataclasses.replace(
            self, vms=tuple(grown[id(vm)] for vm in self.vms),
            kinds=tuple(grown.values()))


def mix_of_flavors(vms: list, length: int) -> Mix:
    """Return the Mix of VMs with different flavors.

    The Mix repeats a pattern in which each Vm has the share of its ``count``.
    """
    counts = np.array([vm.count for vm in vms], dtype=float)
    shares = counts / counts.sum()
    taken = np.zeros(len(counts))
    order = []
    for number in range(1, length + 1):
        # The flavor with the largest deficit, the first one of several.
        behind = shares * number - taken
        chosen = int(np.argmax(behind > behind.max() - 1e-9))
        taken[chosen] += 1
        order.append(vms[chosen])
    return Mix(tuple(order), sum(vm.count for vm in vms), True,
               tuple(vms))


# Files

_ABOVE_0 = checks.number(above=True)
_SERVER = {
    'cores': _ABOVE_0, 'memory_mb': _ABOVE_0,
    'nic_kbps': checks.number(above=True, default=None),
    'switch_profiles': stated.ANY, 'price': checks.number(default=None),
    'reserved_cores': checks.number(default=0.0),
    'reserved_memory_mb': checks.number(default=0.0),
    'cpu_allocation_ratio': checks.number(above=True, default=1.0),
    'ram_allocation_ratio': checks.number(above=True, default=1.0),
    'uplink_kbps': checks.number(above=True, default=None),
    'hosts_per_uplink': checks.whole(default=None)}
_FLAVOR = {
    'count': checks.whole(default=None), 'cores': _ABOVE_0,
    'memory_mb': _ABOVE_0,
    **dict.fromkeys(TRAFFIC_KEYS, checks.number(default=None))}


def load_server_types(path, known_profiles, profile_names=()):
    """Return (currency, list of ServerType) of a YAML file.

    :raises InvalidInput: if the file is invalid
    """
    place = f'server types {path}'
    data = stated.mapping(place, stated.read_yaml(path, place),
                          ('currency', 'servers'))
    currency = checks.check(f'{place}: currency', data.get('currency', ''),
                            checks.TEXT)
    return currency, [
        _server_type(where, name, entry, known_profiles, list(profile_names))
        for where, name, entry in _entries(place, data, 'servers',
                                           'server type')]


def _entries(place, data, key, kind):
    """Return [(place, name, entry)] of a mapping of names."""
    entries = data.get(key)
    if not isinstance(entries, dict) or not entries:
        stated.refuse(f'{place}: {key}', entries,
                      f'a mapping of names to {kind}s')
    return [(f'{place}: {kind} {name!r}', name, entry) for name, entry
            in stated.named(f'{place}: {key}', entries).items()]


def _server_type(place, name, entry, known_profiles, profile_names):
    number = stated.values(place, entry, _SERVER)
    keys = ('uplink_kbps', 'hosts_per_uplink')
    absent = [key for key in keys if number[key] is None]
    if len(absent) == 1:
        present, = set(keys) - set(absent)
        stated.refuse(f'{place}: {absent[0]}', None,
                      f'a number above 0, for {present} is stated')
    usable = []
    for key, ratio in (('cores', 'cpu'), ('memory_mb', 'ram')):
        reserved = number[f'reserved_{key}']
        if reserved >= number[key]:
            stated.refuse(f'{place}: reserved_{key}', reserved,
                          f'less than {key}, which is {number[key]:g}')
        usable.append((number[key] - reserved)
                      * number[f'{ratio}_allocation_ratio'])
    return ServerType(
        name, *usable, _profiles(
            place, profile_names or number['switch_profiles'], known_profiles,
            number['nic_kbps']),
        number['price'], number['uplink_kbps'],
        number['hosts_per_uplink'] or 1)


def _profiles(place, names, known_profiles, nic_kbps):
    place = f'{place}: switch_profiles'
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list) or not names:
        stated.refuse(place, names,
                      'the name of a switch profile, or a list of names')
    profiles = {}
    for name in names:
        if not isinstance(name, str) or name not in known_profiles:
            stated.refuse(place, name, plain_text.one_of(
                name, sorted(known_profiles)))
        if name in profiles:
            stated.refuse(place, name, 'each profile once')
        profiles[name] = known_profiles[name]
        if nic_kbps is not None:
            profiles[name] = profiles[name].overridden(
                {'line_rate_kbps': nic_kbps}, 'the server type')
    return tuple(profiles.values())


def load_flavors(path: str) -> dict:
    """Return {name: Flavor} of a YAML file.

    :raises InvalidInput: as :func:`load_server_types`
    """
    place = f'mix {path}'
    data = stated.mapping(place, stated.read_yaml(path, place), ('flavors',))
    flavors = {}
    for where, name, entry in _entries(place, data, 'flavors', 'flavor'):
        number = stated.values(where, entry, _FLAVOR)
        traffic = {key: number[key] for key in TRAFFIC_KEYS
                   if number[key] is not None}
        flavors[name] = Flavor(
            name, number['cores'], number['memory_mb'], number['count'],
            traffic_of(where, traffic) if traffic else None)
    return flavors


def traffic_of(place: str, traffic: dict) -> traffic_model.TrafficModel:
    """Return the TrafficModel of stated numbers.

    :param traffic: {one of :data:`TRAFFIC_KEYS`: number >= 0}, not empty
    :raises InvalidInput: if the times contradict each other
    """
    rates = {key: traffic.get(key, 0.0) for key in TRAFFIC_KEYS[:3]}
    on_seconds = traffic.get('on_seconds')
    if on_seconds == 0 or on_seconds is None and traffic.get('off_seconds'):
        stated.refuse(f'{place}: on_seconds', on_seconds, 'a number above 0, '
                      'the mean time for which the instance stays on')
    if not traffic.get('off_seconds'):
        return traffic_model.TrafficModel.constant(**rates)
    return traffic_model.TrafficModel.on_off(
        **rates, on_seconds=on_seconds, off_seconds=traffic['off_seconds'])
