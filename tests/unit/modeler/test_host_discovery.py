# SPDX-License-Identifier: Apache-2.0

from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import neutron_api
from tests.unit.store import base
from tests.unit.vswitch import agents
from vswitch_aware_scheduler.clients import neutron
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.modeler import host_discovery
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import attachments
from vswitch_aware_scheduler.vswitch import discovery

Neutron = neutron_api.NeutronApi
Attachments = attachments.Attachments
UUIDS = [f'00000000-0000-4000-8000-{number:012}' for number in range(4)]


class ReadTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.neutron = self.enterContext(Neutron())

    def read(self):
        return neutron.read_agents(self.neutron.access())

    def test_agents_are_returned_as_neutron_lists_them(self):
        self.neutron.agents = [agents.open_vswitch('a'),
                               agents.nic_switch('b')]
        self.neutron.chassis = [agents.ovn('c')]
        self.assertEqual(self.neutron.agents + self.neutron.chassis,
                         self.read())
        self.assertEqual([{}], self.neutron.asked('/v2.0/agents'))

    def test_all_pages_are_read_and_endless_ones_end(self):
        self.neutron.most = 2
        for kind, listed, requests in (
                ('agents', [], 1),
                ('agents', [agents.open_vswitch(f'h{n}') for n in range(5)],
                 3),
                # All chassis are on each page.
                ('chassis', [agents.ovn(f'h{n}', chassis=f'c{n}')
                             for n in range(3)], 2)):
            self.neutron.agents, self.neutron.chassis = [], []
            setattr(self.neutron, kind, listed)
            before = len(self.neutron.asked('/v2.0/agents'))
            self.assertEqual(listed, self.read())
            self.assertEqual(requests, len(
                self.neutron.asked('/v2.0/agents')) - before)

    def test_each_failure_of_neutron_is_an_error_in_words(self):
        self.neutron.agents = [agents.open_vswitch('a')]

        def without(key, value=None):
            return stand_ins.changed(lambda answer: {'agents': [
                {**agent, key: value} for agent in answer['agents']]})

        for faults, message in (
                ([stand_ins.status(503)] * 2, '503'),
                ([stand_ins.status(403)], '403'),
                ([stand_ins.closed] * 2, 'agents'),
                ([stand_ins.body(b'{}')] * 2, 'an invalid response'),
                ([without('host')] * 2, 'host of an agent: None'),
                ([without('alive', 'yes')] * 2, "alive of an agent: yes"),
                ([without('configurations', [])] * 2, 'expected dict')):
            with self.subTest(message):
                self.neutron.faults[:] = faults
                with self.assertRaises(exceptions.TelemetryError) as caught:
                    self.read()
                self.assertIn(message, str(caught.exception))
                self.assertIn(f'neutron {self.neutron.url}',
                              str(caught.exception))


class ApplyTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.proposals = [
            discovery.ProposedProfile('a', 'ovs-flat', 'why'),
            discovery.ProposedProfile(
                'b', 'ovs-vxlan', 'why', {'line_rate_kbps': 5}),
            discovery.ProposedProfile('c', None, 'why not')]

    def actions(self, steps):
        return {step.host: step.action for step in steps}

    def stored(self):
        return {switch.host: (switch.profile, switch.overrides, switch.source)
                for switch in self.store.host_profiles()}

    def test_proposals_are_written_once(self):
        expected = {'a': ('ovs-flat', {}, discovery.SOURCE),
                    'b': ('ovs-vxlan', {'line_rate_kbps': 5},
                          discovery.SOURCE)}
        self.assertEqual(
            {'a': 'new', 'b': 'new', 'c': 'none'},
            self.actions(host_discovery.apply(self.store, self.proposals)))
        self.assertEqual(expected, self.stored())
        generation = self.store.generation()
        self.assertEqual(
            {'a': 'same', 'b': 'same', 'c': 'none'},
            self.actions(host_discovery.apply(self.store, self.proposals)))
        self.assertEqual(expected, self.stored())
        self.assertEqual(generation, self.store.generation())

    def test_virtual_functions_are_those_of_instances_on_the_host(self):
        self.store.write(placements=[
            store.InstanceRecord(UUIDS[0], 'a', attachments=Attachments(
                ('n',), virtual_functions=2)),
            store.InstanceRecord(UUIDS[1], 'a', attachments=Attachments(
                ('n',), virtual_functions=1)),
            store.InstanceRecord(UUIDS[2], 'b', attachments=Attachments(
                ('n',))),
            store.InstanceRecord(UUIDS[3], 'b')])
        counts = host_discovery.virtual_functions(self.store)
        self.assertEqual((3, 0), (counts['a'], counts['b']))

    def test_discovered_profiles_are_replaced(self):
        self.store.write(host_profiles=[
            store.HostProfile('a', 'ovs-gre', {}, discovery.SOURCE),
            store.HostProfile('b', 'ovs-vxlan', {}, discovery.SOURCE),
            store.HostProfile('c', 'ovs-gre', {}, discovery.SOURCE)])
        steps = host_discovery.apply(self.store, self.proposals)
        self.assertEqual({'a': 'changed', 'b': 'changed', 'c': 'none'},
                         self.actions(steps))
        self.assertEqual('ovs-gre', steps[0].before.profile)
        self.assertEqual(('ovs-flat', {}, discovery.SOURCE),
                         self.stored()['a'])
        self.assertEqual({'line_rate_kbps': 5}, self.stored()['b'][1])
        # No proposal is no reason to forget.
        self.assertEqual(('ovs-gre', {}, discovery.SOURCE),
                         self.stored()['c'])

    def test_other_profiles_are_replaced_only_by_force(self):
        for source in ('operator', 'calibrated', 'unknown'):
            with self.subTest(source):
                foreign = store.HostProfile('a', 'ovs-gre', {}, source)
                self.store.write(host_profiles=[foreign])
                self.assertEqual('kept', self.actions(
                    host_discovery.apply(self.store, self.proposals))['a'])
                self.assertEqual(('ovs-gre', {}, source), self.stored()['a'])
                self.assertEqual('changed', self.actions(host_discovery.apply(
                    self.store, self.proposals, force=True))['a'])
                self.assertEqual(('ovs-flat', {}, discovery.SOURCE),
                                 self.stored()['a'])

    def test_equal_profiles_keep_their_source(self):
        self.store.write(host_profiles=[
            store.HostProfile('a', 'ovs-flat', {}, 'operator')])
        for force in (False, True):
            self.assertEqual('same', self.actions(host_discovery.apply(
                self.store, self.proposals, force))['a'])
            self.assertEqual('operator', self.stored()['a'][2])
