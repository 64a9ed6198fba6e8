# SPDX-License-Identifier: Apache-2.0

import unittest

from tests.unit.vswitch import agents
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.vswitch import discovery
from vswitch_aware_scheduler.vswitch import export
from vswitch_aware_scheduler.vswitch import profile

BANDWIDTHS = 'resource_provider_bandwidths'
PACKETS = 'resource_provider_packet_processing_'


class DiscoveryTestCase(unittest.TestCase):

    def one(self, *found, mapping=()):
        """Return the proposal for the only host of some agents."""
        profiles = profile.catalogue()
        [proposal] = discovery.propose(
            found, profiles, discovery.parse_mapping(mapping, profiles))
        return proposal


class ChoiceTestCase(DiscoveryTestCase):

    def test_each_kind_of_switch_has_its_profile(self):
        dpdk = {'datapath_type': 'netdev', 'iface_types': ['dpdk']}
        for agent, expected in (
                *((agents.open_vswitch('h', tunnels, **more), expected)
                  for tunnels, more, expected in (
                      ([], {}, 'ovs-flat'), (['vxlan'], {}, 'ovs-vxlan'),
                      (['gre'], {}, 'ovs-gre'),
                      (['geneve'], {}, 'ovs-geneve'),
                      ([], {'datapath_type': 'netdev'}, 'ovs-netdev-tap'),
                      ([], {'datapath_type': 'netdev',
                            'ovs_capabilities': None}, 'ovs-netdev-tap'),
                      (['geneve'], dpdk, 'ovs-dpdk-geneve'),
                      (['vxlan'], dpdk, 'ovs-dpdk-vxlan'),
                      ([], dpdk, 'dpdk-vswitch'))),
                (agents.ovn('h'), 'ovs-geneve'),
                (agents.ovn('h', 'OVN Controller Gateway agent'),
                 'ovs-geneve'),
                (agents.linux_bridge('h', []), 'linux-bridge'),
                (agents.agent('Macvtap agent', 'h'), 'macvtap'),
                (agents.nic_switch('h'), 'mellanox-eswitch')):
            with self.subTest(expected):
                proposal = self.one(agent)
                self.assertEqual(expected, proposal.profile)
                self.assertIn(expected, proposal.reason)
                self.assertIn(agent['agent_type'], proposal.reason)
                self.assertEqual({}, proposal.overrides)

    def test_of_several_encapsulations_the_one_that_carries_least_counts(
            self):
        catalogue = profile.catalogue()
        self.assertLess(catalogue['ovs-vxlan'].bandwidth_kbps(),
                        catalogue['ovs-gre'].bandwidth_kbps())
        for tunnels in (['vxlan', 'gre'], ['gre', 'vxlan']):
            proposal = self.one(agents.open_vswitch('h', tunnels))
            self.assertEqual('ovs-vxlan', proposal.profile)
            self.assertIn('lowest capacity', proposal.reason)

    def test_what_is_missing_is_not_guessed(self):
        without_tunnels = agents.open_vswitch('h')
        del without_tunnels['configurations']['tunnel_types']
        for reason, *found in (
                ('ovs-netdev:vxlan',
                 agents.open_vswitch('h', ['vxlan'], 'netdev')),
                ('ovs-dpdk:gre',
                 agents.open_vswitch('h', ['vxlan', 'gre'], 'netdev',
                                     iface_types=['dpdk'])),
                ('linuxbridge:vxlan', agents.linux_bridge('h', ['vxlan'])),
                ('datapath_type None',
                 agents.open_vswitch('h', datapath_type=None)),
                ('expected system or netdev',
                 agents.open_vswitch('h', datapath_type='windows')),
                ("'x', which is not supported",
                 agents.open_vswitch('h', tunnel_types=['x'])),
                ('tunnel_types: None', without_tunnels),
                ('its switch is down', agents.nic_switch('h'),
                 agents.open_vswitch('h', alive=False)),
                ('its switch is down', agents.open_vswitch('h', alive=False)),
                ('NIC Switch agent is down',
                 agents.nic_switch('h', alive=False)),
                ('disagree', agents.open_vswitch('h'), agents.ovn('h')),
                ('disagree', agents.open_vswitch('h'),
                 agents.linux_bridge('h')),
                ('disagree', agents.ovn('h'), agents.ovn('h', chassis='c2'))):
            with self.subTest(reason):
                proposal = self.one(*found, mapping=[
                    'ovn=ovs-gre', 'linuxbridge:none=ovs-gre'])
                self.assertIsNone(proposal.profile)
                self.assertEqual({}, proposal.overrides)
                self.assertIn(reason, proposal.reason)
                if 'is down' in reason:
                    self.assertIn('2026-02-03 04:05:06', proposal.remarks[0])

    def test_a_mapping_counts_before_the_catalogue(self):
        mapping = ['ovs-system:geneve=ovs-gre', 'ovn=ovs-vxlan',
                   'linuxbridge=ietf-e5-2430', 'ovs-system:vxlan=ovs-gre',
                   'ovs-dpdk=lagopus-dpdk']
        for agent, expected in (
                (agents.open_vswitch('h', ['geneve']), 'ovs-gre'),
                (agents.open_vswitch('h', ['vxlan']), 'ovs-gre'),
                (agents.ovn('h'), 'ovs-vxlan'),
                (agents.linux_bridge('h', ['vxlan']), 'ietf-e5-2430'),
                # What names the encapsulation counts first.
                (agents.open_vswitch('h', [], 'netdev',
                                     iface_types=['dpdk']), 'dpdk-vswitch'),
                (agents.open_vswitch('h', ['gre'], 'netdev',
                                     iface_types=['dpdk']), 'lagopus-dpdk')):
            self.assertEqual(expected,
                             self.one(agent, mapping=mapping).profile)

    def test_a_mapping_with_an_encapsulation_counts_if_none_is_reported(self):
        for agent, text in (
                (agents.ovn('h'), 'ovn:geneve=ovs-gre'),
                (agents.ovn('h'), 'ovn:vxlan=ovs-gre'),
                (agents.nic_switch('h'), 'eswitch:vxlan=ovs-gre'),
                (agents.agent('Macvtap agent', 'h'), 'macvtap:none=ovs-gre')):
            with self.subTest(text):
                self.assertEqual('ovs-gre',
                                 self.one(agent, mapping=[text]).profile)
        # Any of them may be in use: the lowest capacity counts.
        proposal = self.one(agents.ovn('h'), mapping=[
            'ovn:geneve=ovs-gre', 'ovn:none=ovs-flat', 'ovn:vxlan=ovs-vxlan'])
        self.assertEqual('ovs-vxlan', proposal.profile)
        self.assertIn('lowest capacity', proposal.reason)

    def test_a_mapping_that_makes_no_sense_is_refused(self):
        for text, shown_text in (('ovs=ovs-flat', "'ovs'"),
                                 ('ovs-system:x=ovs-flat', 'ovs-system:x'),
                                 ('ovn:=ovs-flat', "'ovn:="), ('ovn', "''"),
                                 ('ovn=gone', "'gone'")):
            with self.subTest(text), self.assertRaisesRegex(
                    exceptions.InvalidInput, f'{shown_text}.*expected one of'):
                discovery.parse_mapping([text], profile.catalogue())


class AgentsTestCase(DiscoveryTestCase):

    def test_hosts_come_in_order_and_each_once(self):
        proposals = discovery.propose(
            [agents.open_vswitch('b'), agents.agent('DHCP agent', 'a'),
             agents.agent('L3 agent', 'b'),
             agents.ovn('("Chassis" register deleted)')],
            profile.catalogue())
        self.assertEqual([('a', None), ('b', 'ovs-flat')],
                         [(proposal.host, proposal.profile)
                          for proposal in proposals])
        self.assertIn('no agent of a supported switch', proposals[0].reason)
        self.assertEqual((), proposals[1].remarks)
        self.assertEqual([], discovery.propose([], profile.catalogue()))

    def test_what_agents_tell_is_shown(self):
        [agent_shown] = self.one(agents.open_vswitch('h', ['vxlan'])).agents
        self.assertEqual(
            ('Open vSwitch agent', True, 'system', ['vxlan'],
             {'physnet': 'br-ex'}),
            tuple(agent_shown[key] for key in (
                'agent_type', 'alive', 'datapath_type', 'tunnel_types',
                'bridge_mappings')))
        # What has no value is left out.
        self.assertNotIn(BANDWIDTHS, agent_shown)

    def test_other_agents_of_the_host_are_remarks_at_most(self):
        unknown = agents.agent('Quantum switch agent', 'h')
        remark_on_unknown = 'Quantum switch agent is an unknown type of agent'
        for found, expected, remark in (
                ([agents.open_vswitch('h', alive=False), agents.ovn('h')],
                 'ovs-gre', 'Open vSwitch agent is down'),
                ([agents.nic_switch('h', ens1f0=(5, 5)),
                  agents.open_vswitch('h')],
                 'ovs-flat', 'virtual functions go past'),
                ([agents.open_vswitch('h'), unknown], 'ovs-flat',
                 remark_on_unknown),
                ([unknown], None, remark_on_unknown),
                # They state the same.
                ([agents.ovn('h'),
                  agents.ovn('h', 'OVN Controller Gateway agent'),
                  agents.ovn('h', 'OVN Metadata agent')], 'ovs-gre', None)):
            with self.subTest(remark):
                proposal = self.one(*found, mapping=['ovn=ovs-gre'])
                self.assertEqual((expected, {}),
                                 (proposal.profile, proposal.overrides))
                self.assertEqual(int(remark is not None),
                                 len(proposal.remarks))
                self.assertIn(remark or '', ''.join(proposal.remarks))


class StatedNumbersTestCase(DiscoveryTestCase):

    def test_the_line_rate_is_that_of_all_lines_in_the_lesser_direction(self):
        bridge = {'br-ex': {'egress': 8, 'ingress': 7}}
        tunnel = {'egress': 11, 'ingress': 12}

        def tunnelled(**lines):
            return agents.open_vswitch('h', ['vxlan'], **{
                BANDWIDTHS: {**bridge, **lines}})

        for agent, rate, missing in (
                (agents.nic_switch('h', devices=['a', 'b'], a=(30, 50),
                                   b=(20, 10)), 50, None),
                (agents.open_vswitch('h', **{BANDWIDTHS: bridge}), 7, None),
                # Tunnels have a line of their own, whatever its name.
                (tunnelled(rp_tunnelled=tunnel), 19, None),
                (tunnelled(underlay=tunnel), 19, None),
                # Both directions of each line are needed.
                (tunnelled(), None, 'rp_tunnelled'),
                (agents.nic_switch('h', devices=['a', 'b'], a=(3, 5)), None,
                 'b'),
                (agents.nic_switch('h', devices=['a'], a=(None, 5)), None,
                 'a'),
                (agents.nic_switch('h', devices=['a'], a=(0, 5)), None, 'a')):
            with self.subTest(rate=rate, missing=missing):
                proposal = self.one(agent)
                self.assertIsNotNone(proposal.profile)
                self.assertEqual({'line_rate_kbps': rate} if rate else {},
                                 proposal.overrides)
                if missing:
                    self.assertRegex(proposal.remarks[0],
                                     f'both directions of {missing}$')

    def test_the_packet_rate_is_that_of_both_directions(self):
        for stated, expected in (
                ({'h': {'any': 300}}, 300),
                ({'h': {'any': 300}, 'i': {'any': 30}}, 330),
                # What is no rate.
                *((stated, None) for stated in (
                    {'h': {'any': None}}, {'h': {'any': 0}}, [], None,
                    {'h': 'x'}, {'h': {'any': True}},
                    {'h': {'egress': 5, 'ingress': None}}))):
            proposal = self.one(agents.open_vswitch('h', **{
                PACKETS + 'without_direction': stated}))
            self.assertEqual(
                {'packet_rate_kpps': expected} if expected else {},
                proposal.overrides)
            if expected:
                self.assertIn(f'packet_rate_kpps is {expected}',
                              proposal.remarks[0])

    def test_packets_by_direction_are_those_of_hardware(self):
        agent = agents.open_vswitch('h', ['vxlan'], **{
            PACKETS + 'with_direction': {
                'h': {'egress': 60000, 'ingress': 60000}},
            BANDWIDTHS: {name: {'egress': 100000000, 'ingress': 100000000}
                         for name in ('br-ex', 'rp_tunnelled')}})
        proposal = self.one(agent)
        self.assertEqual('connectx-6dx-eswitch', proposal.profile)
        self.assertEqual({'line_rate_kbps': 200000000,
                          'packet_rate_kpps': 120000}, proposal.overrides)
        self.assertIn('offloaded to hardware', proposal.reason)
        catalogue = profile.catalogue()
        self.assertEqual(400000000, catalogue[proposal.profile].overridden(
            proposal.overrides, 'x').bandwidth_kbps())

    def test_virtual_functions_show_an_offload_that_no_agent_reports(self):
        catalogue = profile.catalogue()

        def propose(found, mapping=()):
            [proposal] = discovery.propose(
                found, catalogue, discovery.parse_mapping(mapping, catalogue),
                {'h': 3, 'i': 4})
            return proposal

        for agent in (agents.ovn('h'), agents.open_vswitch('h', ['geneve'])):
            proposal = propose([agent])
            # Other interfaces may use the software.
            self.assertEqual('ovs-geneve', proposal.profile)
            self.assertIn('3 interfaces with virtual functions, which '
                          'ovs-geneve does not describe', proposal.remarks[0])
            proposal = propose([agent], ['ovs-offload=connectx-7-eswitch'])
            self.assertEqual('connectx-7-eswitch', proposal.profile)
            self.assertIn('offloaded to hardware', proposal.reason)
            self.assertEqual('hardware forwards the traffic of 3 interfaces '
                             'with virtual functions', proposal.remarks[0])
        # They belong to the agent of the NIC.
        proposal = propose([agents.ovn('h'), agents.nic_switch('h')],
                           ['ovs-offload=connectx-7-eswitch'])
        self.assertEqual('ovs-geneve', proposal.profile)
        self.assertIn('virtual functions go past', proposal.remarks[0])

    def test_a_switch_that_carries_less_than_stated_is_a_remark(self):
        proposal = self.one(agents.open_vswitch('h', **{
            BANDWIDTHS: {'br-ex': {'egress': 200000000,
                                   'ingress': 200000000}},
            PACKETS + 'without_direction': {'h': {'any': 120000}}}))
        self.assertEqual('ovs-flat', proposal.profile)
        self.assertIn('ovs-flat carries 11289000 kbit/s of the 200000000 '
                      'kbit/s that', proposal.remarks[-1])

    def test_what_was_exported_is_not_read_as_something_else(self):
        """Export each profile, and discover the host again."""
        for name, switch in profile.catalogue().items():
            for devices in (['br-ex'], ['br-ex', 'rp_tunnelled']):
                rates = {}
                options = export.neutron_options(switch, devices, 'h')
                for text in options['resource_provider_bandwidths'].split(
                        ','):
                    device, egress, ingress = text.split(':')
                    rates[device] = {'egress': int(egress or 0),
                                     'ingress': int(ingress or 0)}
                packets = {}
                key = PACKETS + 'without_direction'
                if key in options:
                    host, rate = options[key].split(':')
                    packets = {host: {'any': int(rate)}}
                agent = agents.open_vswitch('h', **{
                    BANDWIDTHS: rates, key: packets})
                proposal = self.one(agent, mapping=[f'ovs-system:none={name}'])
                self.assertEqual((name, {}),
                                 (proposal.profile, proposal.overrides))
