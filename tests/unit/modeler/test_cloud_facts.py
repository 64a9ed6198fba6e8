# SPDX-License-Identifier: Apache-2.0

import time
import types
from unittest import mock

from oslo_config import cfg

from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import host_metadata
from tests.fakes import neutron_api
from tests.fakes import nova_hosts
from tests.fakes import passes
from tests.unit.store import base
from tests.unit.vswitch import agents
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import host_policies
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.admission import uplink_policies
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler.modeler import cloud_facts
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import profile


def make_policies():
    ignore = host_metadata.ignore
    return (host_policies.HostPolicies(host_metadata.PROFILES, None,
                                       admission.PROBABILITY, 0.01, True,
                                       ignore),
            uplink_policies.UplinkPolicies(host_metadata.PROFILES,
                                           admission.PROBABILITY, 0.01,
                                           ignore))


class CloudFactsTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.enterContext(nova_hosts.NovaHosts())
        self.now = base.NOW

    def facts(self, asks=True, options=None):
        return cloud_facts.CloudFacts(
            self.cloud.access() if asks else None, make_policies, options,
            sleep=lambda seconds: None)

    def update(self, asks=True):
        return self.facts(asks).update(self.store, self.now)

    def update_without(self, path):
        """Update, five minutes later, while Nova forbids a request."""
        self.now += 300
        answer = self.cloud.answer
        with mock.patch.object(
                self.cloud, 'answer', lambda method, its_path, *more: (
                    (403, {}) if its_path.startswith('/v2.1/' + path)
                    else answer(method, its_path, *more))):
            return self.update()

    def stored(self, kind='host'):
        return self.store.fleet(kind)

    def test_the_store_has_aggregates_flavors_and_policies(self):
        self.cloud.host('a', profile='slow', uplink='tor',
                        uplink_saturation_kbps='5e6')
        self.cloud.host('b')
        self.cloud.flavors = {'small': {'vswitch:egress_kbps': '7',
                                        'hw:secret': '1'}, 'other': {}}
        self.update()
        self.assertEqual(
            [('of a', ['a'], {
                'availability_zone', 'vswitch:profile', 'vswitch:uplink',
                'vswitch:uplink_saturation_kbps'}),
             ('of b', ['b'], {'availability_zone'})],
            [(aggregate['name'], aggregate['hosts'],
              aggregate['metadata'].keys())
             for aggregate in self.stored('aggregate').facts.values()])
        self.assertEqual({'small': {'vswitch:egress_kbps': '7'},
                          'other': {}}, self.stored('flavor').facts)
        hosts = self.stored()
        self.assertEqual((base.NOW, {'a', 'b'}),
                         (hosts.read_at, hosts.facts.keys()))
        policies, shared, problems = policy_in_force.unpack(
            hosts.facts, self.stored('uplink').facts)
        self.assertEqual({}, problems)
        self.assertEqual('slow', policies['a'].profile.name)
        self.assertEqual((shared['tor'],), policies['a'].uplinks)
        self.assertIsNone(policies['b'].profile)
        self.assertEqual('aggregate of a',
                         hosts.facts['a']['origins']['profile'])

    def test_hosts_are_collected_from_all_sources(self):
        self.cloud.host('a')
        self.store.write(
            host_profiles=[store.HostProfile('b', 'slow')],
            placements=[
                store.InstanceRecord(base.instance_uuid(1), 'c', None, None),
                store.InstanceRecord(base.instance_uuid(2), None, None, None)])
        self.update()
        self.assertEqual({'a', 'b', 'c'}, self.stored().facts.keys())
        self.cloud.hosts.clear()
        self.cloud.aggregates.clear()
        self.now += 300
        self.update()
        self.assertEqual({'b', 'c'}, self.stored().facts.keys())
        self.assertEqual(base.NOW + 300, self.stored('aggregate').read_at)

    def test_without_access_to_nova_the_store_and_options_are_used(self):
        self.store.write(host_profiles=[store.HostProfile('b', 'slow')])
        self.update(asks=False)
        self.assertEqual(base.NOW, self.stored().read_at)
        self.assertIsNone(self.stored('aggregate').read_at)
        self.assertEqual('slow', self.stored().facts['b']['profile']['name'])

    def test_facts_that_may_not_be_read_stay_in_force(self):
        self.cloud.host('a', profile='slow')
        self.update()
        self.update_without('os-aggregates')
        self.assertEqual(base.NOW, self.stored('aggregate').read_at)
        self.assertEqual(base.NOW + 300, self.stored().read_at)
        self.assertEqual('slow', self.stored().facts['a']['profile']['name'])

    def test_nothing_is_written_when_nova_does_not_answer(self):
        self.cloud.host('a')
        self.update()
        self.cloud.faults[:] = [stand_ins.status(500)] * 9
        self.now += 300
        with self.assertRaises(exceptions.TelemetryError):
            self.update()
        self.assertEqual(base.NOW, self.stored().read_at)

    def not_in_nova(self):
        return facts.hosts_not_in_nova(self.store, self.store.host_profiles())

    def test_hosts_that_nova_does_not_have_are_named(self):
        self.cloud.host('compute7')
        self.store.write(host_profiles=[
            store.HostProfile('compute7', 'slow', {}, 'operator'),
            store.HostProfile('compute07', 'slow', {}, 'operator'),
            store.HostProfile('x', 'slow', {}, 'operator'),
            # Neutron has agents on hosts without instances.
            store.HostProfile('network1', 'slow', {}, 'discovered')])
        self.update()
        self.assertEqual({'compute7': True, 'compute07': False, 'x': False,
                          'network1': False}, {
            host: row['in_nova']
            for host, row in self.stored().facts.items()})
        self.assertIn('Nova has no host of the name: compute07 (nearest '
                      'name: compute7), x;', self.not_in_nova())
        self.store.write(remove_hosts=['compute07', 'x'])
        self.assertIsNone(self.not_in_nova())

    def test_many_unknown_hosts_are_reported_in_one_line(self):
        self.cloud.host('h')
        self.store.write(host_profiles=[
            store.HostProfile(f'h{number}', 'slow') for number in range(9)])
        self.update()
        self.assertIn('h4 (nearest name: h) and 4 more;', self.not_in_nova())

    def test_no_host_is_reported_if_nova_s_hosts_are_unknown(self):
        self.store.write(host_profiles=[store.HostProfile('b', 'slow')])
        self.assertIsNone(self.not_in_nova())
        self.update(asks=False)
        self.assertIsNone(self.not_in_nova())
        self.cloud.host('a')
        self.update_without('os-hypervisors')
        self.assertEqual({'a', 'b'}, self.stored().facts.keys())
        self.assertIsNone(self.not_in_nova())
        self.update()
        self.assertIsNotNone(self.not_in_nova())

    def test_bare_metal_is_not_judged(self):
        self.cloud.host('a', overload_probability='.1')
        self.cloud.types['a'] = 'ironic'
        self.cloud.host('b')
        self.assertFalse(self.update().hosts['a'].judged)
        self.assertEqual({'a': [True], 'b': [False]}, {
            host: list(row['nodes'].values())
            for host, row in self.stored().facts.items()})
        # The same without a question to Nova, and without the permission.
        self.assertFalse(self.update(asks=False).hosts['a'].judged)
        self.assertFalse(
            self.update_without('os-hypervisors').hosts['a'].judged)
        self.assertEqual(base.NOW, self.stored('node').read_at)
        self.assertTrue(self.stored().facts['b']['in_nova'])
        self.cloud.types.clear()
        self.assertTrue(self.update().hosts['a'].judged)

    def test_the_largest_rate_of_an_instance_follows_from_its_host(self):
        self.assertEqual({}, facts.most_kbps(self.store))
        uuids = [base.instance_uuid(number) for number in range(4)]
        self.cloud.host('rack', line_rate_kbps='12')
        self.store.write(
            placements=[store.InstanceRecord(uuid, host) for uuid, host in zip(
                uuids, ('known', 'unknown', None, 'rack'))],
            host_profiles=[
                store.HostProfile('known', None, {
                    'saturation_kbps': 20.0, 'line_rate_kbps': 10.0}),
                store.HostProfile('rack', None, {'saturation_kbps': 20.0})])
        # No modeler has read the fleet yet.
        self.assertEqual({}, facts.most_kbps(self.store))
        self.update()
        expected = {uuids[0]: 30.0, uuids[3]: 32.0}
        self.assertEqual(expected, facts.most_kbps(self.store))
        # What was read last stays in force if Nova does not answer.
        self.cloud.faults[:] = [stand_ins.status(500)] * 9
        with self.assertRaises(exceptions.TelemetryError):
            self.update()
        self.assertEqual(expected, facts.most_kbps(self.store))
        # Physical machines are not limited by a virtual switch.
        self.cloud.faults.clear()
        self.cloud.types['rack'] = 'ironic'
        self.update()
        self.assertEqual({uuids[0]: 30.0}, facts.most_kbps(self.store))

    def run_step(self, name, set_up):
        return passes.run_step(name, set_up, lambda: self.now)

    def test_the_step_reports_a_problem_and_the_pass_continues(self):
        self.cloud.host('a', profile='slow')
        set_up = types.SimpleNamespace(store=self.store, fleet=None)
        self.assertIsNone(self.run_step('fleet', set_up))
        set_up.fleet = self.facts()
        self.assertIsNone(self.run_step('fleet', set_up))
        self.assertEqual({'a'}, self.stored().facts.keys())
        self.cloud.faults[:] = [stand_ins.status(500)] * 9
        self.assertIn('stay as they are', self.run_step('fleet', set_up))

    def test_other_options_of_a_running_process_are_a_problem(self):
        set_up = types.SimpleNamespace(store=self.store, fleet=self.facts(
            False, {'enforcement': 'enforce'}))
        self.run_step('fleet', set_up)

        def assert_problem(where):
            problem = self.run_step('schedulers', set_up)
            if where is None:
                self.assertIsNone(problem)
            else:
                self.assertIn("enforcement is 'enforce' here and 'observe' "
                              f'in {where}', problem)

        def worker(name, enforcement, began=self.now, ago=0):
            host = name.partition(':')[0]
            self.store.report_worker(store.Worker(
                name, host, began, self.now - ago,
                {'options': {'enforcement': enforcement}}))

        assert_problem(None)
        worker('ctl1:7', 'observe')
        assert_problem('nova.conf of ctl1')
        # The scheduler was restarted with the same options.
        self.now += 10
        worker('ctl1:8', 'enforce', self.now)
        assert_problem(None)
        # Another host.
        worker('ctl2:7', 'observe', self.now - 20, ago=5)
        assert_problem('nova.conf of ctl2')
        # One that ended long ago says nothing.
        self.now += 301
        assert_problem(None)
        for host, value in (('ctl1', 'enforce'), ('ctl2', 'observe')):
            self.store.report_modeler(store.Modeler(
                host, host, self.now, self.now, interval_seconds=300.0,
                options={'enforcement': value}))
        assert_problem('vswitch.conf of vswitch-modeler on ctl2')
        # A silent modeler may run no more.
        self.now += 901
        assert_problem(None)


class DiscoveryTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.neutron = self.enterContext(neutron_api.NeutronApi())
        self.neutron.agents = [agents.open_vswitch('a', ['vxlan']),
                               agents.linux_bridge('b')]
        self.set_up = types.SimpleNamespace(
            store=self.store, discovery=wiring.Discovery(
                self.neutron.access(), profile.profiles,
                ['linuxbridge=ovs-gre']))

    def stored(self):
        return {switch.host: (switch.profile, switch.source)
                for switch in self.store.host_profiles()}

    def run_step(self):
        return passes.run_step('discovery', self.set_up, time.time)

    def test_a_new_host_gets_its_profile(self):
        self.assertIsNone(self.run_step())
        self.assertEqual({'a': ('ovs-vxlan', 'discovered'),
                          'b': ('ovs-gre', 'discovered')}, self.stored())
        generation = self.store.generation()
        self.neutron.agents.append(agents.open_vswitch('c', ['gre']))
        self.run_step()
        self.assertEqual(('ovs-gre', 'discovered'), self.stored()['c'])
        self.assertEqual(generation.number + 1, self.store.generation().number)
        # Nothing new is no generation.
        self.run_step()
        self.assertEqual(generation.number + 1, self.store.generation().number)

    def test_profiles_set_by_an_operator_stay(self):
        self.store.write(host_profiles=[store.HostProfile(
            'a', 'ovs-flat', {}, 'operator')])
        self.run_step()
        self.assertEqual(('ovs-flat', 'operator'), self.stored()['a'])

    def test_profiles_stay_if_neutron_does_not_answer(self):
        self.run_step()
        self.neutron.faults[:] = [stand_ins.status(500)] * 9
        self.assertIn('profiles of hosts stay as they are',
                      self.run_step())
        self.assertEqual(2, len(self.stored()))

    def test_without_the_option_neutron_is_not_queried(self):
        self.set_up.discovery = None
        self.assertIsNone(self.run_step())
        self.assertEqual({}, self.stored())

    def test_the_options_enable_discovery(self):
        conf = cfg.ConfigOpts()
        options.register_opts(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        self.assertIsNone(wiring._discovery(conf))
        conf.set_override('discover_hosts', True, 'vswitch_inventory')
        with self.assertRaisesRegex(exceptions.InvalidInput, 'auth_type'):
            wiring._discovery(conf)
        conf.set_override('auth_type', 'none', 'vswitch_inventory')
        wiring._discovery(conf)
        conf.set_override('discover_profiles', ['nonsense=ovs-gre'],
                          'vswitch_inventory')
        with self.assertRaisesRegex(exceptions.InvalidInput, 'nonsense'):
            wiring._discovery(conf)
