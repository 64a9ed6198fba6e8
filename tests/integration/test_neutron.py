# SPDX-License-Identifier: Apache-2.0
"""Agents of a real Neutron, and the options that its agents read."""

import json
import time
import urllib.request

import testtools

from tests.fakes import nova_api
from tests.integration import base
from tests.integration import servers
from tests.unit.vswitch import agents
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import neutron
from vswitch_aware_scheduler.modeler import instance_sync
from vswitch_aware_scheduler.vswitch import attachments
from vswitch_aware_scheduler.vswitch import discovery
from vswitch_aware_scheduler.vswitch import export
from vswitch_aware_scheduler.vswitch import profile

WITHOUT = 'resource_provider_packet_processing_without_direction'
WITH = 'resource_provider_packet_processing_with_direction'


def state(agent):
    """Return what an agent reports, of which the API makes that."""
    return {key: agent[key] for key in (
        'agent_type', 'binary', 'host', 'topic', 'configurations')} | {
            'start_flag': True}


def read(server):
    return neutron.read_agents(http.Access(
        url=server.url, retries=0, auth={
            'auth_type': 'none', 'endpoint': server.url}))


class NeutronTest(base.WithServer, testtools.TestCase):

    @classmethod
    def make_server(cls):
        return servers.Neutron(down_seconds=20)

    @classmethod
    def feed(cls, server):
        server.serve()

    def parsed(self, form, devices, **more):
        """Return {group: options} as the agents of Neutron read a profile."""
        switch = profile.SwitchProfile(
            'a', saturation_kbps=1000, packet_rate_kpps=71, vm_peak_kbps=300)
        path = self.server.write('agent.conf', export.render(
            switch, form, devices, **more))
        return json.loads(self.server.ask('parse', path, 'here'))

    def test_a_profile_is_proposed_until_the_agent_is_down(self):
        reported = [
            agents.open_vswitch('h1', ['vxlan']),
            agents.open_vswitch('h2', (), 'netdev', iface_types=['dpdk'],
                                **{WITHOUT: {'h2': {'any': 400}}}),
            agents.nic_switch('h3', ens1f0=(70, 80)),
            agents.linux_bridge('h4'), agents.agent('DHCP agent', 'h5')]
        self.server.report([state(agent) for agent in reported])

        answered = {agent['host']: agent for agent in read(self.server)}
        for agent in reported:
            # The stand-in of the unit tests has what Neutron has.
            self.assertEqual(agent.keys(), answered[agent['host']].keys())
            self.assertEqual(agent['configurations'],
                             answered[agent['host']]['configurations'])
            self.assertIs(True, answered[agent['host']]['alive'])
        self.assertEqual(
            [('h1', 'ovs-vxlan', {}),
             ('h2', 'dpdk-vswitch', {'packet_rate_kpps': 400}),
             ('h3', 'mellanox-eswitch', {'line_rate_kbps': 70}),
             ('h4', None, {}), ('h5', None, {})],
            [(proposed.host, proposed.profile, proposed.overrides)
             for proposed in discovery.propose(answered.values(),
                                               profile.catalogue())])

        limit = time.monotonic() + 60
        while any(agent['alive'] for agent in read(self.server)):
            self.assertLess(time.monotonic(), limit)
            time.sleep(1)
        for proposed in discovery.propose(read(self.server),
                                          profile.catalogue()):
            self.assertIsNone(proposed.profile)

    def post(self, kind, path=None, method='POST', **values):
        """Make a network or a port, say; return it."""
        with urllib.request.urlopen(urllib.request.Request(
                f'{self.server.url}/v2.0/{path or kind + "s"}', json.dumps(
                    {kind: values}).encode(),
                {'Content-Type': 'application/json'},
                method=method)) as answer:
            return json.load(answer)[kind]

    def source(self, cloud):
        return instance_sync.make_source(
            access={'url': cloud.url + '/v2.1', 'retries': 0,
                    'auth': {'auth_type': 'none', 'endpoint': cloud.url}},
            network_url=self.server.url, read_networks=True)

    def test_guarantees_and_sub_ports_count_for_their_instance(self):
        cloud = nova_api.NovaApi()
        self.useFixture(cloud)
        uuid = cloud.put(7, host='h7', project='c' * 32)
        red, blue = (self.post('network', admin_state_up=True, **{
            'provider:network_type': 'flat',
            'provider:physical_network': name})['id']
            for name in ('red', 'blue'))
        policy = self.post('policy', 'qos/policies', name='gold')['id']
        for direction, kbps in (('egress', 700), ('ingress', 50)):
            self.post('minimum_bandwidth_rule',
                      f'qos/policies/{policy}/minimum_bandwidth_rules',
                      min_kbps=kbps, direction=direction)
        self.post('minimum_packet_rate_rule',
                  f'qos/policies/{policy}/minimum_packet_rate_rules',
                  min_kpps=3, direction='any')

        def port(network, **values):
            return self.post('port', network_id=network,
                             project_id='c' * 32, **values)['id']

        parent = port(red, qos_policy_id=policy)
        self.post('trunk', port_id=parent, project_id='c' * 32, sub_ports=[
            {'port_id': port(blue), 'segmentation_type': 'vlan',
             'segmentation_id': 7}])
        bound = {'binding:host_id': 'h7', 'device_id': uuid,
                 'device_owner': 'compute:nova'}
        self.post('port', f'ports/{parent}', 'PUT', **bound)
        source = self.source(cloud)
        reading = source.read()
        self.assertEqual(
            (attachments.Attachments((), tuple(sorted((red, blue)))),
             (700.0, 50.0, 3.0)),
            (reading.placements[uuid].attachments,
             reading.placements[uuid].guaranteed))
        # One more is attached, and Nova reports no change.
        source.settle(reading, 0.0)
        port(blue, qos_policy_id=policy, **bound)
        reading = source.read(nova_api.NOW + 1, reading.placements)
        self.assertEqual(
            (attachments.Attachments((), tuple(sorted((red, blue, blue)))),
             (1400.0, 100.0, 6.0)),
            (reading.placements[uuid].attachments,
             reading.placements[uuid].guaranteed))

    def test_ports_count_where_nova_bound_them_whatever_they_name(self):
        cloud = nova_api.NovaApi()
        self.useFixture(cloud)
        uuid = cloud.put(0, host='h1', project='a' * 32)
        network = self.post('network', admin_state_up=True, **{
            'provider:network_type': 'flat',
            'provider:physical_network': 'one'})['id']

        def port(device, host, project, vnic='normal', **values):
            return self.post(
                'port', network_id=network, device_id=device,
                device_owner='compute:nova', project_id=project * 32,
                **{'binding:host_id': host, 'binding:vnic_type': vnic,
                   **values})

        port(uuid, 'h1', 'a')
        port(uuid, 'h1', 'b', 'direct')
        port(uuid, 'h2', 'a', 'direct')
        port(uuid, '', 'a', 'direct')
        mine = port('nobody', 'h1', 'a', 'macvtap')
        cloud.servers[uuid]['addresses'] = {'one': [
            {'OS-EXT-IPS-MAC:mac_addr': mine['mac_address']}]}
        for since in (None, nova_api.NOW - 1):
            placement = self.source(cloud).read(since, {}).placements[uuid]
            self.assertEqual(
                attachments.Attachments((), (network,) * 2, 1),
                placement.attachments)

    def test_the_agent_of_open_vswitch_reads_what_is_exported(self):
        section = self.parsed('neutron-ovs', ['br-ex', 'br-b'])['OVS']
        self.assertEqual(
            {name: {'egress': 250, 'ingress': 250}
             for name in ('br-ex', 'br-b')},
            section['resource_provider_bandwidths'])
        self.assertEqual(
            {'allocation_ratio': 1.0, 'min_unit': 1, 'max_unit': 250,
             'step_size': 1, 'reserved': 0},
            section['resource_provider_inventory_defaults'])
        self.assertEqual({'here': {'any': 71}}, section[WITHOUT])
        self.assertEqual({}, section[WITH])

    def test_packets_in_each_direction_are_read(self):
        section = self.parsed('neutron-ovs', ['br-ex'], directions=True,
                              hypervisor='there')['OVS']
        self.assertEqual({'there': {'egress': 35, 'ingress': 35}},
                         section[WITH])

    def test_the_agent_of_sr_iov_reads_what_is_exported(self):
        section = self.parsed('neutron-sriov', ['ens1f0'])['SRIOV_NIC']
        self.assertEqual({'ens1f0': {'egress': 500, 'ingress': 500}},
                         section['resource_provider_bandwidths'])
        self.assertEqual(300, section['resource_provider_inventory_defaults'][
            'max_unit'])


class OvnTest(base.WithServer, testtools.TestCase):

    @classmethod
    def make_server(cls):
        return servers.Neutron('ovn,sriovnicswitch')

    @classmethod
    def feed(cls, server):
        for number in range(3):
            server.register_chassis(f'c{number}', f'h{number}',
                                    f'192.0.2.{number + 1}')
        server.report([state(agents.nic_switch('h0')),
                       state(agents.nic_switch('h9', ens1f0=(70, 80)))])
        server.serve()

    def test_chassis_are_told_of_as_agents(self):
        answered = {(agent['host'], agent['agent_type']): agent
                    for agent in read(self.server)}
        expected = {(f'h{number}', f'OVN {kind} agent')
                    for number in range(3)
                    for kind in ('Controller', 'Metadata')} | {
            ('h0', 'NIC Switch agent'), ('h9', 'NIC Switch agent')}
        self.assertEqual(expected, answered.keys())
        # The stand-in of the unit tests has what Neutron has.
        stand_in = agents.ovn('h1', chassis='c1')
        controller = answered['h1', 'OVN Controller agent']
        self.assertEqual(set(), stand_in.keys() - controller.keys())
        self.assertEqual(stand_in['configurations'],
                         controller['configurations'])

    def test_placement_would_get_what_is_exported(self):
        tunnel = profile.catalogue()['ovs-geneve']
        for devices, each in (((), 4000000),
                              (['br-ex', 'rp_tunnelled'], 2000000)):
            path = self.server.write('options', export.render(
                tunnel, 'neutron-ovn', devices, 'h1'))
            stated = json.loads(self.server.ask('chassis', path, 'h1'))
            names = devices or ['rp_tunnelled']
            self.assertEqual(
                {name: {'egress': each, 'ingress': each} for name in names},
                stated['bandwidths'])
            self.assertEqual(dict.fromkeys(names, 'h1'),
                             stated['hypervisors'])
            self.assertEqual(each, stated['inventory_defaults']['max_unit'])

    def test_the_encapsulation_of_ovn_can_be_named(self):
        profiles = profile.catalogue()
        for mapping, expected in (([], 'ovs-geneve'),
                                  (['ovn=ovs-gre'], 'ovs-gre'),
                                  (['ovn:geneve=ovs-vxlan'], 'ovs-vxlan')):
            proposals = discovery.propose(
                read(self.server), profiles,
                discovery.parse_mapping(mapping, profiles))
            self.assertEqual(
                [(f'h{number}', expected) for number in range(3)]
                + [('h9', 'mellanox-eswitch')],
                [(proposed.host, proposed.profile) for proposed in proposals])

    def test_each_page_has_all_chassis_and_a_link_to_a_next_one(self):
        # Why agents are asked for at once, and reading ends by itself.
        with urllib.request.urlopen(
                f'{self.server.url}/v2.0/agents?limit=2&marker=c2') as answer:
            page = json.load(answer)
        self.assertGreaterEqual(len(page['agents']), 6)
        self.assertIn('next', [link['rel'] for link in page['agents_links']])
