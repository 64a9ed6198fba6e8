# SPDX-License-Identifier: Apache-2.0

import argparse
import dataclasses

from tests.fakes import store as fake_store
from tests.unit.cmd import fleet_case
from tests.unit.report import fleets
from tests.unit.store import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.fleet import view
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import superposition
from vswitch_aware_scheduler.vswitch import profile


class FleetViewTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.store = self.make_store()
        fleets.fill(self.store, base.NOW)

    def fleet(self, policies, **more):
        fleets.write_policies(self.store, policies)
        return view.FleetView(self.store, **more)

    def test_hosts_are_those_with_facts_instances_or_a_profile(self):
        self.store.write(remove_hosts=['h2'], now=base.NOW)
        policies = self.fleet(dict.fromkeys(('empty', 'h1'),
                                            fleets.POLICY)).policies
        # A host without a policy is not judged.
        self.assertEqual({'empty': True, 'h1': True, 'h2': False,
                          fleets.HOSTILE: False}, {
            host: policy.judged for host, policy in policies.items()})

    def test_demands_name_their_rule(self):
        policies = {'h1': fleets.POLICY, 'h2': fleets.POLICY}
        unknown = base.instance_uuid(11)
        for default, mean in ((fleets.DEFAULT, 5.0), (None, 0.0)):
            fleet = self.fleet(policies, default_law=default)
            law, rule = fleet.demands('h2')[unknown]
            self.assertEqual(('default', mean), (rule, law.mean[0]))
        self.assertEqual({'model'}, {
            rule for _, rule in fleet.demands('h1').values()})
        self.assertNotIn(unknown, fleet.demands('h1'))
        self.assertEqual(('small', 'p1'), fleet.instances('h2')[unknown])

    def test_a_host_is_judged_without_its_uplink(self):
        # Steady instances: ten of 100 kbit/s and one of 5.
        steady = model.TrafficModel.constant(100.0)
        self.store.write([
            store.StoredModel(base.instance_uuid(number), steady)
            for number in range(1, 11)], now=base.NOW)
        uplink = admission.Uplink('tor', admission.HostPolicy(
            profile.SwitchProfile('up', line_rate_kbps=2010.0)))
        policy = dataclasses.replace(
            fleets.POLICY, profile=profile.SwitchProfile(
                'own', saturation_kbps=4000.0), uplinks=(uplink,))
        fleet = self.fleet({'h1': policy, 'h2': policy},
                           default_law=fleets.DEFAULT)
        reports = []
        loads = fleet.loads(['h2', 'h1'],
                            lambda done, total: reports.append((done, total)))
        self.assertEqual([(0, 2)], reports)
        for load, mean in zip(loads, (5.0, 1000.0)):
            self.assertAlmostEqual(mean / 4000, load.utilisation)
            self.assertEqual(0.0, load.overload_probability)
        [load] = fleet.uplink_loads(['tor'])
        self.assertAlmostEqual(1005 / 2010, load.utilisation)
        self.assertEqual({'h1', 'h2'}, set(fleet.hosts_behind['tor']))

    def test_debts_refuse_only_if_budgets_are_used(self):
        self.store.settle_budgets(store.BudgetState(300.0, base.NOW), [
            (None, fake_store.budget('h1', balance=-1.0, until=base.NOW))])
        self.store.write(now=base.NOW)
        for refuse in (False, True):
            fleet = self.fleet({}, uses_budgets=refuse)
            self.assertEqual([('host', 'h1')] * refuse, list(fleet.debts))

    def test_predictions_equal_the_scheduler_s_assessment(self):
        vm = model.TrafficModel.on_off(60.0, 0.0, on_seconds=100,
                                       off_seconds=900)
        self.store.write(
            [store.StoredModel(base.instance_uuid(21), vm)],
            placements=[store.InstanceRecord(base.instance_uuid(20 + number),
                                             host)
                        for number, host in ((1, 'a'), (2, 'a'), (3, 'b'))])
        policy = admission.HostPolicy(profile.SwitchProfile(
            's', saturation_kbps=100.0))
        shares = self.fleet(dict.fromkeys('abc', policy), default_law=vm.law
                            ).overload_probabilities()
        self.assertLess({'a', 'b', 'c'}, shares.keys())
        self.assertAlmostEqual(superposition.Superposition(
            [vm, vm], 100.0, 'bandwidth').overload_probability(), shares['a'])
        self.assertAlmostEqual(.01, shares['a'])
        self.assertEqual((0.0, 0.0), (shares['b'], shares['c']))
        silent = view.FleetView(
            self.store, vm.law, ignores_unknown=True
        ).overload_probabilities()
        self.assertEqual(0.0, silent['a'])


class ReadTestCase(fleet_case.FleetTestCase):

    def read(self):
        conf = context.configuration(argparse.Namespace(
            config_file=[self.config], store=None))
        return wiring.read_fleet(self.store, conf[options.GROUP])

    def test_stored_policies_precede_the_options(self):
        self._configure('default_switch_profile = ovs-vxlan')
        self.put({'h1': (1,), 'h2': (2,)}, host_profiles=[
            store.HostProfile('h3', 'ovs-flat', {}, 'operator')])
        self.modeled(h1=fleet_case.carrying(250.0))
        fleet = self.read()
        self.assertEqual(
            {'h1': 'p', 'h2': 'ovs-vxlan', 'h3': 'ovs-flat'},
            {host: policy.profile.name
             for host, policy in fleet.policies.items()})
        self.assertEqual(
            {'h1': 'aggregate rack', 'h3': 'store (operator)'},
            {host: fleet.origins[host]['profile'] for host in ('h1', 'h3')})

    def test_a_stored_policy_that_cannot_be_used_is_a_problem_of_its_host(
            self):
        self.put({'h1': (1,), 'h2': (2,)})
        self.modeled(h1={}, h2=fleet_case.carrying(250.0))
        fleet = self.read()
        self.assertEqual(['h1'], list(fleet.problems))
        self.assertEqual([False, True], [
            fleet.policies[host].judged for host in ('h1', 'h2')])

    def test_an_option_determines_the_demand_of_unknown_instances(self):
        self.put({'h1': (1,)})
        default = 'default_egress_kbps = 7', 'default_ingress_kbps = 0'
        for lines, peak in (((), 7.0),
                            (('unknown_instance_policy = ignore',), 0.0)):
            self._configure(*default, *lines)
            fleet = self.read()
            [law] = fleet.laws('h1').values()
            self.assertEqual(peak, law.peak[0])
            # The one that is asked for counts in any case.
            self.assertEqual(7.0, fleet.demand(None, 'small', 'p').law.peak[0])
