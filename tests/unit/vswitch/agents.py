# SPDX-License-Identifier: Apache-2.0
"""Agents as a real Neutron was seen to tell of them.

Neutron 29 in ``GET /v2.0/agents``: rows of its database for the agents that
report to it, chassis of the OVN southbound database for ML2/OVN, which tells
no more of them than this. It has no Linux bridge any more since its release
2025.1; older ones told of it in the same form.
"""

_DEFAULTS = {'allocation_ratio': 1.0, 'min_unit': 1, 'step_size': 1,
             'reserved': 0}


def agent(kind, host, alive=True, **configurations):
    return {
        'id': f'{kind} {host}', 'agent_type': kind, 'binary': 'agent',
        'topic': 'N/A', 'host': host, 'admin_state_up': True,
        'created_at': '2026-02-03 04:05:06', 'description': None,
        'started_at': '2026-02-03 04:05:06', 'resources_synced': None,
        'heartbeat_timestamp': '2026-02-03 04:05:06',
        'availability_zone': None, 'alive': alive,
        'configurations': configurations}


def open_vswitch(host, tunnel_types=(), datapath_type='system', alive=True,
                 iface_types=(), **configurations):
    return agent('Open vSwitch agent', host, alive, **{
        'bridge_mappings': {'physnet': 'br-ex'}, 'devices': 3,
        'datapath_type': datapath_type, 'integration_bridge': 'br-int',
        'ovs_capabilities': {
            'datapath_types': ['netdev', 'system'],
            'iface_types': ['geneve', 'gre', 'vxlan', *iface_types]},
        'resource_provider_bandwidths': {},
        'resource_provider_inventory_defaults': _DEFAULTS,
        'resource_provider_packet_processing_without_direction': {
            host: {'any': 0}},
        'resource_provider_packet_processing_with_direction': {},
        'resource_provider_packet_processing_inventory_defaults': _DEFAULTS,
        'tunnel_types': list(tunnel_types), 'tunneling_ip': '192.0.2.1',
        **configurations})


def linux_bridge(host, tunnel_types=('vxlan',)):
    return agent('Linux bridge agent', host, bridge_mappings={}, devices=0,
                 interface_mappings={'physnet': 'eth1'},
                 tunnel_types=list(tunnel_types), tunneling_ip='192.0.2.1')


def nic_switch(host, alive=True, devices=('ens1f0',), **bandwidths):
    return agent('NIC Switch agent', host, alive, devices=0, extensions=[],
                 device_mappings={'physnet': list(devices)},
                 resource_provider_bandwidths={
                     device: {'egress': rates[0], 'ingress': rates[1]}
                     for device, rates in bandwidths.items()},
                 resource_provider_hypervisors={},
                 resource_provider_inventory_defaults={})


def ovn(host, kind='OVN Controller agent', chassis='c1'):
    ovn_agent = agent(kind, host, **{'chassis_name': chassis,
                                     'bridge-mappings': 'physnet:br-ex'})
    for key in ('created_at', 'started_at', 'resources_synced'):
        del ovn_agent[key]
    return {**ovn_agent, 'id': f'{kind} {chassis}'}
