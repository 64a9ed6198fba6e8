# SPDX-License-Identifier: Apache-2.0
"""Reads server types and mixes of VMs from YAML files, and validates them."""

import dataclasses

import numpy as np

from vswitch_aware_scheduler.lab import stated
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['Flavor', 'Mix', 'ServerType', 'Vm', 'load_flavors',
           'load_server_types', 'mix_of_flavors']

#: Keys of a flavor's traffic in a file: rates, and times of an on/off source.
TRAFFIC_KEYS = ('egress_kbps', 'ingress_kbps', 'kpps', 'on_seconds',
                'off_seconds')

_MOST = 1e15


@dataclasses.dataclass(frozen=True)
class ServerType:
    """One kind of server that could be bought.

    :ivar price: price of one server, or None
    :ivar uplink_kbps: capacity of the rack's uplink in each direction, or None
    :ivar hosts_per_uplink: number of servers that share the uplink
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
    """

    flavor: str
    cores: float
    memory_mb: float
    law: rate_law.RateLaw
    model: traffic_model.TrafficModel | None = None
    is_prior: bool = False
    count: int = 1

    def grown(self, factor):
        """Return the VM with all its rates multiplied by a factor.

        :param factor: number > 0
        """
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
    """VMs in the order in which servers are filled."""

    vms: tuple
    total: int
    repeats: bool
    kinds: tuple

    def grown(self, factor):
        """Return the mix with all rates multiplied by a factor.

        :param factor: number > 0
        """
        grown = {id(vm): vm.grown(factor) for vm in self.kinds}
        return dataclasses.replace(
            self, vms=tuple(grown[id(vm)] for vm in self.vms),
            kinds=tuple(grown.values()))


def mix_of_flavors(vms, length):
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

def load_server_types(path, known_profiles, profile_names=()):
    """Return (currency, list of ServerType) of a YAML file.

    :raises InvalidInput: if the file is invalid; the message names the file,
        the server type, the key, the value and the expected value
    """
    place = f'server types {path}'
    data = stated.mapping(place, stated.read_yaml(path, place),
                          ('currency', 'servers'))
    currency = data.get('currency', '')
    if not isinstance(currency, str):
        stated.refuse(f'{place}: currency', currency, 'text, such as EUR')
    servers = _named_mappings(place, data, 'servers', 'server type')
    return currency, [
        _server_type(f'{place}: server type {name!r}', name, entry,
                     known_profiles, list(profile_names))
        for name, entry in servers.items()]


def _server_type(place, name, entry, known_profiles, profile_names):
    stated.mapping(place, entry, (
        'cores', 'memory_mb', 'nic_kbps', 'switch_profiles', 'price',
        'reserved_cores', 'reserved_memory_mb', 'cpu_allocation_ratio',
        'ram_allocation_ratio', 'uplink_kbps', 'hosts_per_uplink'))
    nic_kbps = _number(place, entry, 'nic_kbps', above=True, default=None)
    uplink_kbps = _number(place, entry, 'uplink_kbps', above=True,
                          default=None)
    hosts = _whole_or_none(place, entry, 'hosts_per_uplink')
    if (uplink_kbps is None) != (hosts is None):
        stated_key, missing_key = (('uplink_kbps', 'hosts_per_uplink')
                                   if hosts is None else
                                   ('hosts_per_uplink', 'uplink_kbps'))
        stated.refuse(f'{place}: {missing_key}', None,
                      f'a number above 0, for {stated_key} is stated')
    return ServerType(
        name,
        _for_vms(place, entry, 'cores', 'reserved_cores',
                 'cpu_allocation_ratio'),
        _for_vms(place, entry, 'memory_mb', 'reserved_memory_mb',
                 'ram_allocation_ratio'),
        _profiles(place, profile_names or entry.get('switch_profiles'),
                  known_profiles, nic_kbps),
        _number(place, entry, 'price', default=None), uplink_kbps,
        hosts or 1)


def _for_vms(place, entry, key, reserved_key, ratio_key):
    """Return the cores or the memory that VMs can use."""
    amount = _number(place, entry, key, above=True)
    reserved = _number(place, entry, reserved_key, default=0.0)
    if reserved >= amount:
        stated.refuse(f'{place}: {reserved_key}', reserved,
                      f'less than {key}, which is {amount:g}')
    return (amount - reserved) * _number(place, entry, ratio_key, above=True,
                                         default=1.0)


def _profiles(place, names, known_profiles, nic_kbps):
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list) or not names:
        stated.refuse(f'{place}: switch_profiles', names,
                      'the name of a switch profile, or a list of names')
    profiles = []
    for name in names:
        if not isinstance(name, str) or name not in known_profiles:
            stated.refuse(f'{place}: switch_profiles', name,
                          stated.one_of(name, sorted(known_profiles)))
        if name in [profile.name for profile in profiles]:
            stated.refuse(f'{place}: switch_profiles', name,
                          'each profile once')
        profiles.append(_with_nic(known_profiles[name], nic_kbps))
    return tuple(profiles)


def _with_nic(profile, nic_kbps):
    """Return a profile with the line rate of a NIC, if it is known."""
    if nic_kbps is None:
        return profile
    return profile.overridden({'line_rate_kbps': nic_kbps}, 'the server type')


def load_flavors(path):
    """Return {name: Flavor} of a YAML file.

    :raises InvalidInput: as :func:`load_server_types`
    """
    place = f'mix {path}'
    data = stated.mapping(place, stated.read_yaml(path, place), ('flavors',))
    return {name: _flavor(f'{place}: flavor {name!r}', name, entry)
            for name, entry in _named_mappings(
                place, data, 'flavors', 'flavor').items()}


def _flavor(place, name, entry):
    stated.mapping(place, entry, ('count', 'cores', 'memory_mb',
                                  *TRAFFIC_KEYS))
    traffic = {key: value for key in TRAFFIC_KEYS if (
        value := _number(place, entry, key, default=None)) is not None}
    return Flavor(
        name, _number(place, entry, 'cores', above=True),
        _number(place, entry, 'memory_mb', above=True),
        _whole_or_none(place, entry, 'count'),
        traffic_of(place, traffic) if traffic else None)


def traffic_of(place, traffic):
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


def _named_mappings(place, data, key, kind):
    entries = data.get(key)
    if not isinstance(entries, dict) or not entries:
        stated.refuse(f'{place}: {key}', entries,
                      f'a mapping of names to {kind}s')
    for name, entry in stated.named(f'{place}: {key}', entries).items():
        stated.mapping(f'{place}: {kind} {name!r}', entry)
    return entries


def _number(place, entry, key, above=False, default=...):
    return stated.number(f'{place}: {key}', entry.get(key), above, default)


def _whole_or_none(place, entry, key):
    value = entry.get(key)
    return None if value is None else stated.whole(f'{place}: {key}', value)
