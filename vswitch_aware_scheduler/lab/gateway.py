# SPDX-License-Identifier: Apache-2.0
"""Plans the mapping of VLANs in silos to VXLANs on gateways.

A silo uses ordinary VLANs. A VXLAN gateway at its edge maps them to VNIs,
which connect networks between silos. Interfaces of one or several gateways
form an interface group. Each group has one VLAN domain, that is one space of
VLAN ids. :func:`plan` assigns numbers to the networks of tenants and counts
the entries in each gateway's mapping table.

Pure except for :func:`load`, which reads a file. No connection to a gateway.
Derivation: reference/gateways.rst. Source: Kinoshita et al., "Implementation
and Evaluation of VXLAN Gateway-based Data Center Network Virtualization".
"""

import dataclasses
import itertools

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.lab import stated

__all__ = ['Gateway', 'GatewayPlan', 'GatewaySite', 'InterfaceGroup',
           'Network', 'entries', 'load', 'plan', 'site_from_dict']

#: VLAN ids and VNIs that a site may use.
VLANS = range(1, 4095)
VNIS = range(1, 1 << 24)
# The first ids that are assigned; lower ids are assigned last. VLAN 1 is the
# default VLAN of most switches, which carries untagged traffic, and VNIs up to
# 4095 are often those of VLANs.
_FIRST_VLAN = 2
_FIRST_VNI = 4096

_COUNT = checks.whole()
_VLAN = checks.whole(VLANS[0], VLANS[-1], default=None)
_GATEWAY = {
    'interfaces': _COUNT, 'mapping_entries': checks.whole(0),
    'switch_back': checks.Kind('true or false', lambda value: isinstance(
        value, bool), default=False)}
_NETWORK = {'silos': stated.ANY, 'vlans': stated.ANY,
            'vni': checks.whole(VNIS[0], VNIS[-1], default=None)}


def entries(vlans, interfaces: int, switch_back: bool) -> int:
    """Return how many entries of a mapping table some VLANs need.

    Each VLAN needs one entry on each interface. With switch-back, which leads
    the traffic of all interfaces through one link before it is mapped, each
    VLAN needs one entry.
    """
    return vlans if switch_back else vlans * interfaces


@dataclasses.dataclass(frozen=True)
class Gateway:
    """A VXLAN gateway."""

    name: str
    interfaces: int
    mapping_entries: int
    switch_back: bool = False


@dataclasses.dataclass(frozen=True)
class InterfaceGroup:
    """Interfaces that share a VLAN domain.

    :ivar interfaces: {name of a gateway: tuple of its interfaces, from 1}
    """

    name: str
    silo: str
    interfaces: dict


@dataclasses.dataclass(frozen=True)
class Network:
    """A network of a tenant in one or several silos.

    :ivar vlans: {name of an interface group: VLAN id, or None for any}
    :ivar vni: VNI, or None for any
    """

    tenant: str
    name: str
    vlans: dict
    vni: int | None = None

    def __str__(self):
        return f'{self.tenant}/{self.name}'


@dataclasses.dataclass(frozen=True)
class GatewaySite:
    """The input of a plan of mapping tables: gateways, groups and networks.

    :ivar networks: list of Network, in the order of planning
    :raises InvalidInput: if a value is invalid
    """

    gateways: dict
    groups: dict
    networks: list

    def __post_init__(self):
        owner = {}
        for group in self.groups.values():
            for name, interfaces in group.interfaces.items():
                gateway = self.gateways.get(name)
                where = f'interface group {group.name}'
                if gateway is None:
                    stated.refuse(
                        f'{where}: a gateway', name,
                        plain_text.one_of(name, sorted(self.gateways)))
                for number in interfaces:
                    if not 1 <= number <= gateway.interfaces:
                        stated.refuse(
                            f'{where}: an interface of gateway {name}',
                            number, f'1 to {gateway.interfaces}')
                    other = owner.setdefault((name, number), group.name)
                    if other != group.name:
                        stated.refuse(
                            f'{where}: an interface of gateway {name}',
                            number, f'one that is not in interface group '
                            f'{other}: an interface has one VLAN domain')


@dataclasses.dataclass(frozen=True)
class GatewayPlan:
    """The mapping of VLANs to VNIs.

    :ivar networks: list of (Network, VNI, {interface group: VLAN id})
    """

    networks: list
    site: GatewaySite

    def mappings(self, gateway: str) -> list:
        """Return [(network, VNI, interface group, VLAN id)] of a gateway."""
        return [(network, vni, group, vlan)
                for network, vni, vlans in self.networks
                for group, vlan in vlans.items()
                if gateway in self.site.groups[group].interfaces]

    def entries(self, gateway: str) -> int:
        """Return how many entries the mapping table of a gateway needs."""
        switch_back = self.site.gateways[gateway].switch_back
        return sum(entries(1, len(self.site.groups[group].interfaces[gateway]),
                           switch_back)
                   for _, _, group, _ in self.mappings(gateway))

    def to_dict(self) -> dict:
        """Return the plan as plain values, for JSON."""
        return {
            'networks': [
                {'tenant': network.tenant, 'network': network.name,
                 'vni': vni, 'vlans': vlans}
                for network, vni, vlans in self.networks],
            'gateways': {name: {
                'entries': self.entries(name),
                'mapping_entries': gateway.mapping_entries,
                'switch_back': gateway.switch_back,
                'mappings': [
                    {'tenant': network.tenant, 'network': network.name,
                     'vni': vni, 'interface_group': group, 'vlan': vlan,
                     'interfaces': list(
                         self.site.groups[group].interfaces[name])}
                    for network, vni, group, vlan in self.mappings(name)]}
                for name, gateway in self.site.gateways.items()}}


def plan(site):
    """Return the Plan of a site, with the lowest free numbers.

    A number that a network requests is reserved for it, regardless of its
    position in the order.

    :raises InvalidInput: if two networks request a number, or if no number is
        free
    :raises MappingTableFull: if a mapping table is too small
    """
    vnis = {}                    # VNI -> network
    vlans = {name: {} for name in site.groups}  # VLAN id -> network
    for network in site.networks:
        if network.vni is not None:
            _take(vnis, network.vni, network, 'VNI')
        for group, vlan in network.vlans.items():
            if vlan is not None:
                _take(vlans[group], vlan, network,
                      f'VLAN of interface group {group}')
    free = {name: _free(taken, _from(VLANS, _FIRST_VLAN))
            for name, taken in vlans.items()}
    free_vnis = _free(vnis, _from(VNIS, _FIRST_VNI))
    planned = []
    for network in site.networks:
        network_vlans = {
            group: _next(free[group], network, f'VLAN of interface group '
                         f'{group}') if vlan is None else vlan
            for group, vlan in network.vlans.items()}
        vni = _next(free_vnis, network, 'VNI') \
            if network.vni is None else network.vni
        planned.append((network, vni, network_vlans))
    result = GatewayPlan(planned, site)
    for name, gateway in site.gateways.items():
        needed, count = result.entries(name), len(result.mappings(name))
        if needed > gateway.mapping_entries:
            advice = '' if gateway.switch_back else (
                f'; with switch-back they would need {count}')
            raise exceptions.MappingTableFull(
                f'gateway {name}: {count} mappings need {needed} entries; '
                f'expected at most {gateway.mapping_entries}, which its table '
                f'holds{advice}')
    return result


def _take(taken, number, network, number_name):
    owner = taken.setdefault(number, network)
    if owner is not network:
        raise exceptions.InvalidInput(
            f'network {network}: {number_name}: {number}; expected a '
            f'{number_name} that network {owner} does not have')


def _from(ids, first):
    """Return the ids in the order in which they are assigned."""
    return itertools.chain(range(first, ids.stop), range(ids.start, first))


def _free(taken, numbers):
    return (number for number in numbers if number not in taken)


def _next(free, network, number_name):
    try:
        return next(free)
    except StopIteration:
        raise exceptions.InvalidInput(
            f'network {network}: no free {number_name}; expected at least '
            f'one') from None


def load(path: str) -> GatewaySite:
    """Return the GatewaySite that a YAML file describes.

    :raises InvalidInput: if the file is invalid
    """
    where = f'gateway file {path}'
    data = stated.read_yaml(path, where)
    try:
        return site_from_dict(data)
    except exceptions.InvalidInput as error:
        raise exceptions.InvalidInput(f'{where}: {error}') from None


def site_from_dict(data: dict) -> GatewaySite:
    """Return the GatewaySite that plain values describe.

    :raises InvalidInput: if a value is invalid
    """
    top = stated.mapping('the file', data, ('gateways', 'silos', 'tenants'))
    gateways = {
        name: Gateway(name, **stated.values(f'gateway {name}', entry,
                                            _GATEWAY))
        for name, entry in _names('gateways', top)}
    groups = {}
    for silo, entry in _names('silos', top):
        stated.mapping(f'silo {silo}', entry, ('interface_groups',))
        for name, interfaces in _names('interface_groups', entry):
            where = f'interface group {name}'
            if name in groups:
                stated.refuse(f'{where}: its silo', silo,
                              f'{groups[name].silo} alone: it is there '
                              f'already')
            groups[name] = InterfaceGroup(name, silo, {
                gateway: _interfaces(where, gateway, numbers)
                for gateway, numbers
                in stated.mapping(where, interfaces).items()})
    networks = []
    for tenant, entry in _names('tenants', top):
        stated.mapping(f'tenant {tenant}', entry, ('networks',))
        networks.extend(
            _network(tenant, name, network, groups)
            for name, network in _names('networks', entry))
    return GatewaySite(gateways, groups, networks)


def _network(tenant, name, data, groups):
    where = f'network {tenant}/{name}'
    network = stated.values(where, data, _NETWORK)
    silos = network['silos'] or []
    silo_names = {group.silo for group in groups.values()}
    if not isinstance(silos, list):
        stated.refuse(f'{where}: silos', silos, 'a list of names')
    for silo in silos:
        if silo not in silo_names:
            stated.refuse(f'{where}: a silo', silo,
                          plain_text.one_of(silo, sorted(silo_names)))
    vlans = {group.name: None for group in groups.values()
             if group.silo in silos}
    for group, vlan in stated.mapping(where, network['vlans'] or {},
                                      groups).items():
        vlans[group] = checks.check(
            f'{where}: VLAN of interface group {group}', vlan, _VLAN)
    if not vlans:
        stated.refuse(f'{where}: where it is', data, 'silos, or vlans by '
                      'interface group')
    return Network(tenant, name, vlans, network['vni'])


def _interfaces(where, gateway, numbers):
    """Return a tuple of interfaces: the given ones, or a number from 1 on."""
    subject = f'{where}: interfaces of gateway {gateway}'
    if not isinstance(numbers, list):
        return tuple(range(1, 1 + checks.check(subject, numbers, _COUNT)))
    numbers = [checks.check(subject, number, _COUNT) for number in numbers]
    if not numbers or len(set(numbers)) < len(numbers):
        stated.refuse(subject, numbers, 'each once, and one or more')
    return tuple(numbers)


def _names(key, data):
    return stated.named(key, data.get(key) or {}).items()
