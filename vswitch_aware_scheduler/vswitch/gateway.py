# SPDX-License-Identifier: Apache-2.0
"""Which VLANs of silos are mapped to which VXLANs, on which gateways.

A silo has ordinary VLANs; a VXLAN gateway at its edge maps them to VNIs, by
which networks reach from silo to silo. Interfaces of gateways, of one or of
several, make up an interface group; each group has one VLAN domain, that is
one space of VLAN ids. :func:`plan` numbers the networks of tenants and counts
the entries that each gateway's mapping table needs.

Pure but for :func:`load`, which reads a file; talks to no gateway.

Derivation: reference/gateways.rst. Source: Kinoshita et al., "Implementation
and Evaluation of VXLAN Gateway-based Data Center Network Virtualization".
"""

import dataclasses
import reprlib

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.vswitch import profile

__all__ = ['Gateway', 'InterfaceGroup', 'Network', 'Plan', 'Site', 'entries',
           'load', 'most_networks', 'plan', 'site_from_dict']

#: VLAN ids and VNIs that can be given out.
VLANS = range(1, 4095)
VNIS = range(1, 1 << 24)

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80
_BRIEF.maxlevel = 3


def entries(vlans, interfaces, switch_back):
    """Return how many entries some VLANs take in a mapping table.

    One for each VLAN on each interface; with switch-back, which leads the
    traffic of all interfaces through one link before it is mapped, one for
    each VLAN.

    :param vlans: number of VLANs of one VLAN domain that are mapped
    :param interfaces: number of the gateway's interfaces in that domain
    """
    return vlans if switch_back else vlans * interfaces


def most_networks(table, interfaces=1):
    """Return how many networks a mapping table has room for.

    :param table: entries that it holds
    :param interfaces: of the gateway that each network is mapped on; 1 with
        switch-back
    """
    return table // interfaces


@dataclasses.dataclass(frozen=True)
class Gateway:
    """A VXLAN gateway.

    :ivar name: text
    :ivar interfaces: how many it has towards silos
    :ivar mapping_entries: what its table holds
    :ivar switch_back: whether it has one link to lead traffic back by
    """

    name: str
    interfaces: int
    mapping_entries: int
    switch_back: bool = False


@dataclasses.dataclass(frozen=True)
class InterfaceGroup:
    """Interfaces that share a VLAN domain.

    :ivar name: text
    :ivar silo: name of the silo that they belong to
    :ivar interfaces: {name of a gateway: tuple of its interfaces, from 1}
    """

    name: str
    silo: str
    interfaces: dict


@dataclasses.dataclass(frozen=True)
class Network:
    """A network of a tenant that reaches from silo to silo.

    :ivar tenant: text
    :ivar name: text
    :ivar vlans: {name of an interface group: VLAN id, None: any}
    :ivar vni: None: any
    """

    tenant: str
    name: str
    vlans: dict
    vni: int | None = None

    def __str__(self):
        return f'{self.tenant}/{self.name}'


@dataclasses.dataclass(frozen=True)
class Site:
    """All that a plan is made of.

    :ivar gateways: {name: Gateway}
    :ivar groups: {name: InterfaceGroup}
    :ivar networks: list of Network, in the order in which they are planned
    :raises InvalidInput: naming the thing, the value and what was wanted
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
                    _refuse(where, 'a gateway', name, 'one of '
                            + ', '.join(sorted(self.gateways)))
                for number in interfaces:
                    if not 1 <= number <= gateway.interfaces:
                        _refuse(where, f'an interface of gateway {name}',
                                number, f'1 to {gateway.interfaces}')
                    other = owner.setdefault((name, number), group.name)
                    if other != group.name:
                        _refuse(where, f'an interface of gateway {name}',
                                number, f'one that is not in interface group '
                                f'{other}: an interface has one VLAN domain')


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is mapped to what.

    :ivar networks: list of (Network, VNI, {interface group: VLAN id})
    :ivar site: the Site it is for
    """

    networks: list
    site: Site

    def mappings(self, gateway):
        """Return [(network, VNI, interface group, VLAN id)] of a gateway."""
        return [(network, vni, group, vlan)
                for network, vni, vlans in self.networks
                for group, vlan in vlans.items()
                if gateway in self.site.groups[group].interfaces]

    def entries(self, gateway):
        """Return how many entries the table of a gateway needs."""
        switch_back = self.site.gateways[gateway].switch_back
        return sum(entries(1, len(self.site.groups[group].interfaces[gateway]),
                           switch_back)
                   for _, _, group, _ in self.mappings(gateway))

    def to_dict(self):
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
    """Return the Plan of a site: the lowest numbers that are free.

    What a network asks for by number is kept for it, wherever in the order it
    stands.

    :raises InvalidInput: when a number is asked for twice, or none is left
    :raises MappingTableFull: naming the gateway, the entries that are needed
        and those that there are
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
    free = {name: _free(taken, VLANS) for name, taken in vlans.items()}
    free_vnis = _free(vnis, VNIS)
    found = []
    for network in site.networks:
        given = {group: _next(free[group], network, f'VLAN of interface '
                              f'group {group}') if vlan is None else vlan
                 for group, vlan in network.vlans.items()}
        found.append((network, _next(free_vnis, network, 'VNI')
                      if network.vni is None else network.vni, given))
    result = Plan(found, site)
    for name, gateway in site.gateways.items():
        needed, count = result.entries(name), len(result.mappings(name))
        if needed > gateway.mapping_entries:
            advice = '' if gateway.switch_back else (
                f'; with switch-back they would need {count}')
            raise exceptions.MappingTableFull(
                f'gateway {name}: {count} mappings need {needed} entries, '
                f'wanted at most {gateway.mapping_entries}, which its table '
                f'holds{advice}')
    return result


def _take(taken, number, network, what):
    other = taken.setdefault(number, network)
    if other is not network:
        raise exceptions.InvalidInput(
            f'network {network}: its {what} is {number}, wanted one that '
            f'network {other} does not have')


def _free(taken, numbers):
    return (number for number in numbers if number not in taken)


def _next(free, network, what):
    try:
        return next(free)
    except StopIteration:
        raise exceptions.InvalidInput(
            f'network {network}: there is no {what} left, wanted '
            f'one') from None


def load(path):
    """Return the Site that a YAML file describes.

    :raises InvalidInput: naming the file, the thing, the value and what was
        wanted
    """
    where = f'gateway file {path}'
    try:
        with open(path, 'rb') as file:
            content = file.read()
    except OSError as error:
        raise exceptions.InvalidInput(
            f'{where}: it cannot be read ({error.strerror}), wanted a YAML '
            f'file of gateways, silos and tenants') from error
    data = profile.read_yaml(content, where)
    try:
        return site_from_dict(data)
    except exceptions.InvalidInput as error:
        raise exceptions.InvalidInput(f'{where}: {error}') from None


def site_from_dict(data):
    """Return the Site that plain values describe.

    :raises InvalidInput: naming the thing, the value and what was wanted
    """
    top = _mapping('the file', data, ('gateways', 'silos', 'tenants'))
    gateways = {}
    for name, one in _named('gateways', top).items():
        where = f'gateway {name}'
        one = _mapping(where, one, ('interfaces', 'mapping_entries',
                                    'switch_back'))
        switch_back = one.get('switch_back', False)
        if not isinstance(switch_back, bool):
            _refuse(where, 'switch_back', switch_back, 'true or false')
        gateways[name] = Gateway(
            name, _whole(where, 'interfaces', one.get('interfaces'), 1),
            _whole(where, 'mapping_entries', one.get('mapping_entries'), 0),
            switch_back)
    groups = {}
    for silo, one in _named('silos', top).items():
        one = _mapping(f'silo {silo}', one, ('interface_groups',))
        for name, interfaces in _named('interface_groups', one).items():
            where = f'interface group {name}'
            if name in groups:
                _refuse(where, 'its silo', silo,
                        f'{groups[name].silo} alone: it is there already')
            groups[name] = InterfaceGroup(name, silo, {
                gateway: _interfaces(where, gateway, numbers)
                for gateway, numbers
                in _mapping(where, interfaces, None).items()})
    networks = []
    for tenant, one in _named('tenants', top).items():
        one = _mapping(f'tenant {tenant}', one, ('networks',))
        networks.extend(
            _network(tenant, name, network, groups)
            for name, network in _named('networks', one).items())
    return Site(gateways, groups, networks)


def _network(tenant, name, data, groups):
    where = f'network {tenant}/{name}'
    data = _mapping(where, data, ('silos', 'vlans', 'vni'))
    silos = data.get('silos') or []
    known = {group.silo for group in groups.values()}
    if not isinstance(silos, list):
        _refuse(where, 'silos', silos, 'a list of names')
    for silo in silos:
        if silo not in known:
            _refuse(where, 'a silo', silo, 'one of '
                    + ', '.join(sorted(known)))
    vlans = {group.name: None for group in groups.values()
             if group.silo in silos}
    for group, vlan in _mapping(where, data.get('vlans') or {},
                                tuple(groups)).items():
        vlans[group] = vlan if vlan is None else _whole(
            where, f'VLAN of interface group {group}', vlan, VLANS[0],
            VLANS[-1])
    if not vlans:
        _refuse(where, 'where it is', data, 'silos, or vlans by interface '
                'group')
    vni = data.get('vni')
    return Network(tenant, name, vlans, vni if vni is None else _whole(
        where, 'vni', vni, VNIS[0], VNIS[-1]))


def _interfaces(where, gateway, numbers):
    """Return a tuple of interfaces: those given, or so many from 1."""
    what = f'interfaces of gateway {gateway}'
    if not isinstance(numbers, list):
        return tuple(range(1, 1 + _whole(where, what, numbers, 1)))
    numbers = [_whole(where, what, one, 1) for one in numbers]
    if not numbers or len(set(numbers)) < len(numbers):
        _refuse(where, what, numbers, 'each once, and one or more')
    return tuple(numbers)


def _named(key, data):
    """Return the mapping of names to things that is behind a key."""
    found = _mapping(key, data.get(key) or {}, None)
    for name in found:
        if not isinstance(name, str) or not name:
            _refuse(key, 'a name', name, 'text')
    return found


def _mapping(where, data, keys):
    if not isinstance(data, dict):
        _refuse(where, 'its content', data, 'a mapping')
    for key in data:
        if keys is not None and key not in keys:
            _refuse(where, 'a key', key, 'one of ' + ', '.join(keys))
    return data


def _whole(where, what, value, least, most=None):
    if isinstance(value, bool) or not isinstance(value, int) \
            or value < least or most is not None and value > most:
        _refuse(where, what, value, f'a whole number >= {least}' + (
            '' if most is None else f' and <= {most}'))
    return value


def _refuse(where, what, seen, wanted):
    raise exceptions.InvalidInput(
        f'{where}: {what} is {_BRIEF.repr(seen)}, wanted {wanted}')
