# SPDX-License-Identifier: Apache-2.0
"""Proposes the switch profile of a host from the reports of Neutron's agents.

Pure: agents in the format of Neutron's API as input, proposals as output. If a
necessary value is missing, no profile is proposed, and the reason names the
missing value. No store, no configuration and no client.
"""

from collections import abc
import dataclasses
import operator
import typing

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.vswitch import export
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['SOURCE', 'SWITCHES', 'ProposedProfile', 'parse_mapping', 'propose']

#: Source of the stored profiles that were discovered.
SOURCE = 'discovered'

_Profiles: typing.TypeAlias = dict[str, switch_profile.SwitchProfile]
_Agent: typing.TypeAlias = dict[str, typing.Any]

_OVS = 'Open vSwitch agent'
_NIC = 'NIC Switch agent'
_GATEWAY = 'OVN Controller Gateway agent'

#: Agents of a switch that uses the host's CPU for the traffic of VMs.
_SOFTWARE = (_OVS, 'Linux bridge agent', 'Macvtap agent',
             'OVN Controller agent', _GATEWAY)

#: Agents without a switch of their own.
_WITHOUT_SWITCH = frozenset([
    'BGP dynamic routing agent', 'DHCP agent', 'L3 agent', 'Metadata agent',
    'Metering agent', 'OVN Metadata agent', 'OVN Neutron agent'])

#: Kinds of switches, for mappings of switches to profiles.
SWITCHES = ('eswitch', 'linuxbridge', 'macvtap', 'ovn', 'ovs-dpdk',
            'ovs-netdev', 'ovs-offload', 'ovs-system')

_OF_TYPE = {'Linux bridge agent': 'linuxbridge', 'Macvtap agent': 'macvtap',
            'OVN Controller agent': 'ovn', _GATEWAY: 'ovn', _NIC: 'eswitch'}

# For a switch without encapsulation, or if Neutron does not report it: the
# switch alone.
_CATALOGUE = {'ovs-system:none': 'ovs-flat', 'ovs-system:vxlan': 'ovs-vxlan',
              'ovs-system:gre': 'ovs-gre', 'ovs-system:geneve': 'ovs-geneve',
              'ovn': 'ovs-geneve', 'ovs-netdev:none': 'ovs-netdev-tap',
              'ovs-dpdk:none': 'dpdk-vswitch',
              'ovs-dpdk:vxlan': 'ovs-dpdk-vxlan',
              'ovs-dpdk:geneve': 'ovs-dpdk-geneve',
              'ovs-offload': 'connectx-6dx-eswitch',
              'linuxbridge:none': 'linux-bridge', 'macvtap': 'macvtap',
              'eswitch': 'mellanox-eswitch'}

# Neutron's option for a switch that is offloaded to hardware: "used in case
# the OVS backend has hardware offload capabilities".
_OFFLOADED_PACKETS = 'resource_provider_packet_processing_with_direction'

#: Kind of a switch that hardware executes.
_OFFLOAD = 'ovs-offload'

# Host name that ML2/OVN reports for a deleted chassis.
_DELETED = '("Chassis" register deleted)'

_BANDWIDTHS = 'resource_provider_bandwidths'
_PACKETS = ('resource_provider_packet_processing_without_direction',
            _OFFLOADED_PACKETS)

# Keys of an agent's configurations that are shown with a proposal.
_SHOWN_KEYS = (
    'datapath_type', 'tunnel_types', 'tunneling_ip', 'bridge_mappings',
    'bridge-mappings', 'interface_mappings', 'device_mappings', 'chassis_name',
    _BANDWIDTHS, *_PACKETS, 'resource_provider_inventory_defaults')


@dataclasses.dataclass(frozen=True)
class ProposedProfile:
    """The proposed profile of a host.

    :ivar host: name of the host in Neutron, the same as in Nova
    :ivar overrides: {key: number of the profile that the operator configured
        in Neutron}
    """

    host: str
    profile: str | None
    reason: str
    overrides: dict[str, int] = dataclasses.field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    agents: tuple[_Agent, ...] = ()


class _MissingValue(Exception):
    """A value that is needed for a proposal is missing."""


def parse_mapping(texts: abc.Iterable[str],
                  profiles: _Profiles) -> dict[str, str]:
    """Return {switch or switch:encapsulation: name of a profile}.

    :raises InvalidInput: if a text is invalid
    """
    mapping = {}
    for text in texts:
        key, _, name = text.partition('=')
        switch, colon, encapsulation = key.partition(':')
        for thing, value, names in (
                ('switch', switch, SWITCHES),
                ('encapsulation', encapsulation if colon else 'none',
                 switch_profile.ENCAPSULATIONS), ('profile', name, profiles)):
            checks.check(f'mapping {text!r}: {thing}', value,
                         checks.one_of(names))
        mapping[key] = name
    return mapping


def propose(agents: abc.Iterable[_Agent], profiles: _Profiles,
            mapping: dict[str, str] | None = None,
            virtual_functions: dict[str, int] | None = None
            ) -> list[ProposedProfile]:
    """Return the proposed profile of each host.

    :param agents: dictionaries with the keys ``host``, ``agent_type``,
        ``alive``, ``heartbeat_timestamp`` and ``configurations``, as in an
        answer of Neutron
    :param mapping: result of :func:`parse_mapping`, which has precedence over
        the built-in one
    :param virtual_functions: {host: number of interfaces of its instances that
        use a virtual function}
    """
    by_host = {}
    agents = [agent for agent in agents if agent['host'] != _DELETED]
    agents.sort(key=operator.itemgetter('host', 'agent_type'))
    for agent in agents:
        by_host.setdefault(agent['host'], []).append(agent)
    return [_of_host(host, agents_of_host, profiles, mapping or {},
                     (virtual_functions or {}).get(host, 0))
            for host, agents_of_host in by_host.items()]


def _of_host(host, agents, profiles, mapping, virtual_functions):
    remarks = []
    shown_agents = tuple({
        'agent_type': agent['agent_type'], 'alive': agent['alive'],
        **{key: value for key in _SHOWN_KEYS if (value := agent[
            'configurations'].get(key)) not in (None, '', [], {})}}
        for agent in agents)
    try:
        agent = _switch_agent(agents, remarks)
        # Without an agent of the NIC, only this switch can have bound them.
        offloaded = virtual_functions if agent['agent_type'] != _NIC and all(
            each['agent_type'] != _NIC for each in agents) else 0
        profile, reason = _profile_of(agent, profiles, mapping, offloaded)
        if offloaded:
            remarks.append(
                f'hardware forwards the traffic of {offloaded} interfaces '
                f'with virtual functions' + (
                    '' if _maps(mapping, _OFFLOAD) else
                    f', which {profile} does not describe; if all interfaces '
                    f'of the host are offloaded, map --map '
                    f'{_OFFLOAD}=PROFILE'))
        overrides = _configured_numbers(agent, profiles[profile], remarks)
    except _MissingValue as missing:
        return ProposedProfile(
            host, None, str(missing), {}, tuple(remarks), shown_agents)
    return ProposedProfile(host, profile, reason, overrides, tuple(remarks),
                           shown_agents)


def _switch_agent(agents: list[_Agent], remarks: list[str]) -> _Agent:
    """Return the agent of the switch that the host's instances use.

    :raises _MissingValue: if there is no agent, if it is down, or if there are
        several
    """
    down, alive, devices = [], [], []
    for agent in agents:
        kind = agent['agent_type']
        if kind in _WITHOUT_SWITCH:
            continue
        if kind not in _SOFTWARE and kind != _NIC:
            remarks.append(f'{kind} is an unknown type of agent')
        elif not agent['alive']:
            down.append(agent)
        elif kind == _NIC:
            devices.append(agent)
        else:
            alive.append(agent)
    for agent in down:
        remarks.append(f'{agent["agent_type"]} is down, its last heartbeat '
                       f'was at {agent.get("heartbeat_timestamp")}')
    if len({_OF_TYPE.get(agent['agent_type'], _OVS)
            for agent in alive}) > 1 or len(alive) > 1 and any(
                agent['configurations'] != alive[0]['configurations']
                for agent in alive):
        raise _MissingValue(
            'agents that are up disagree on the switch: '
            + ', '.join(agent['agent_type'] for agent in alive))
    if not alive and any(agent['agent_type'] != _NIC for agent in down):
        raise _MissingValue('the agent of its switch is down')
    if alive and devices:
        remarks.append('virtual functions go past this switch: there is a '
                       f'{_NIC} as well')
    if not alive and not devices:
        raise _MissingValue(f'the {_NIC} is down' if down
                            else 'no agent of a supported switch')
    return (alive or devices)[0]


def _maps(mapping, switch):
    return any(key.partition(':')[0] == switch for key in mapping)


def _profile_of(agent, profiles, mapping, offloaded):
    """Return (name of the profile, reason in words)."""
    switch, encapsulations, description = _switch_of(agent)
    if offloaded and _maps(mapping, _OFFLOAD):
        switch = _OFFLOAD
        description += ', offloaded to hardware as virtual functions show'
    keys = {}    # by name of the profile
    if encapsulations is None:
        # Neutron does not report the encapsulation: any may be in use.
        keys = next(filter(None, (
            {name: key for key, name in table.items()
             if key.partition(':')[0] == switch}
            for table in (mapping, _CATALOGUE))), {})
        if not keys:
            raise _MissingValue(
                f'{description}; there is no profile for {switch}')
    table = {**_CATALOGUE, **mapping}
    for encapsulation in encapsulations or ():
        key = f'{switch}:{encapsulation}'
        name = table.get(key, table.get(switch))
        if name is None:
            raise _MissingValue(
                f'{description}; there is no profile for {key}')
        keys[name] = key
    # Of several profiles, use the one with the lowest capacity.
    name = min(keys, key=lambda name: profiles[name].bandwidth_kbps())
    remark = f', which has the lowest capacity of {", ".join(keys)}' \
        if len(keys) > 1 else ''
    return name, f'{description}: {name} is for {keys[name]}{remark}'


def _switch_of(agent):
    """Return (switch, list of encapsulations or None, description of both).

    :raises _MissingValue: if the agent does not report a necessary value
    """
    kind, configurations = agent['agent_type'], agent['configurations']
    if kind in (_NIC, 'Macvtap agent'):
        return _OF_TYPE[kind], None, kind
    if kind != _OVS and _OF_TYPE[kind] == 'ovn':
        return 'ovn', None, (f'{kind}, which reports neither datapath nor '
                             f'encapsulation')
    switch, description = _OF_TYPE.get(kind), kind
    if kind == _OVS:
        datapath = configurations.get('datapath_type')
        description += f' with datapath_type {datapath}'
        if datapath not in ('system', 'netdev'):
            raise _MissingValue(f'{description}; expected system or netdev')
        switch = f'ovs-{datapath}'
        kinds = _mapping(configurations, 'ovs_capabilities').get('iface_types')
        if datapath == 'netdev' and isinstance(kinds, list) \
                and 'dpdk' in kinds:
            switch = 'ovs-dpdk'
            description += ' and interfaces of DPDK'
        if any(_packet_rate(entry) for entry in _mapping(
                configurations, _OFFLOADED_PACKETS).values()):
            switch = _OFFLOAD
            description += ', offloaded to hardware as its packet rates by ' \
                'direction state'
    tunnels = configurations.get('tunnel_types')
    if not isinstance(tunnels, list):
        raise _MissingValue(
            f'{description}; tunnel_types: {tunnels!r}; expected a list')
    for tunnel_type in tunnels:
        if tunnel_type not in switch_profile.ENCAPSULATIONS:
            raise _MissingValue(
                f'{description}; tunnel_types contains {tunnel_type!r}, which '
                f'is not supported')
    return switch, tunnels or ['none'], description + (
        f', tunnels {", ".join(tunnels)}' if tunnels else ', no tunnels')


def _mapping(configurations: _Agent, key: str) -> _Agent:
    value = configurations.get(key)
    return value if isinstance(value, dict) else {}


def _rate(rates: object, direction: str) -> int | None:
    """Return a configured rate, or None if it is missing or 0."""
    value = rates.get(direction) if isinstance(rates, dict) else None
    return value if isinstance(value, int) and not isinstance(
        value, bool) and value > 0 else None


def _configured_numbers(agent, profile, remarks):
    """Return the numbers that the operator configured in Neutron.

    Numbers that were exported from the same profile are not new: a limit of
    both directions together was halved for Placement.
    """
    configurations, overrides = agent['configurations'], {}
    exported = export.inventory(profile)
    rates = _mapping(configurations, _BANDWIDTHS)
    if rates:
        missing = _without_rate(configurations, rates)
        if missing:
            remarks.append(
                f'{_BANDWIDTHS} are not used as the line rate: they do not '
                f'state both directions of {", ".join(missing)}')
        else:
            sums = [sum(_rate(line, direction) or 0 for line in rates.values())
                    for direction in ('egress', 'ingress')]
            # Each device has a rounded share.
            if all(rate is not None and 0 <= rate - total < len(rates)
                   for rate, total in zip(
                       (exported.egress_kbps, exported.ingress_kbps), sums)):
                remarks.append(f'{_BANDWIDTHS} are those of an export of '
                               f'{profile.name}')
            else:
                overrides['line_rate_kbps'] = min(sums)
    for key in _PACKETS:
        packets = [
            packet_rate for entry in _mapping(configurations, key).values()
            if (packet_rate := _packet_rate(entry)) is not None]
        if packets and not (exported.packets_kpps is not None and
                            0 <= exported.packets_kpps - sum(packets) <= 1):
            overrides['packet_rate_kpps'] = sum(packets)
    for key, value in overrides.items():
        remarks.append(f'{key} is {value}, as the operator stated it to '
                       f'Neutron')
    changed = profile.overridden(overrides, 'Neutron')
    line_kbps = overrides.get('line_rate_kbps', 0)
    if changed.bandwidth_kbps() < line_kbps:
        remarks.append(
            f'{profile.name} carries {changed.bandwidth_kbps():.0f} kbit/s of '
            f'the {line_kbps} kbit/s that the operator stated to Neutron; if '
            f'hardware forwards the traffic, choose another profile with '
            f'--map')
    return overrides


def _packet_rate(rates: object) -> int | None:
    """Return the packet rate of both directions together, or None."""
    both = _rate(rates, 'any')
    egress, ingress = _rate(rates, 'egress'), _rate(rates, 'ingress')
    return both if both is not None or egress is None or ingress is None \
        else egress + ingress


def _without_rate(configurations: _Agent, rates: _Agent) -> list[str]:
    """Return the bridges and devices without a rate for each direction."""
    devices = set(map(str, _mapping(
        configurations, 'bridge_mappings').values()))
    for several in _mapping(configurations, 'device_mappings').values():
        devices.update(map(str, several))
    if configurations.get('tunnel_types') and not rates.keys() - devices:
        # An option can change this name; this is its default.
        devices.add(export.TUNNELLED)
    return sorted(line for line in devices | rates.keys() if None in (
        _rate(rates.get(line), 'egress'), _rate(rates.get(line), 'ingress')))
