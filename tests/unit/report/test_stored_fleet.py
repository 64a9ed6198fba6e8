# SPDX-License-Identifier: Apache-2.0

import dataclasses

from tests.fakes import store as fake_store
from tests.unit.report import fleets
from tests.unit.store import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.report import stored_fleet
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile


def _policies(hosts, *uplinks):
    return policy_in_force.Policies(
        hosts, {uplink.name: uplink for uplink in uplinks}, {}, {})


class StoredFleetTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.store = self.make_store()
        fleets.fill(self.store, base.NOW)

    def fleet(self, found, *uplinks, **more):
        return stored_fleet.StoredFleet(
            self.store, lambda hosts: _policies(found, *uplinks), **more)

    def test_the_finder_is_asked_for_hosts_with_instances_or_a_profile(self):
        self.store.write(remove_hosts=['h2'], now=base.NOW)
        hosts_asked = []
        stored_fleet.StoredFleet(self.store, lambda hosts: hosts_asked.append(
            set(hosts)) or _policies({}))
        self.assertEqual([{'h1', 'h2', fleets.HOSTILE}], hosts_asked)

    def test_a_host_without_a_policy_is_not_judged(self):
        fleet = self.fleet({'h1': fleets.POLICY, 'empty': fleets.POLICY})
        self.assertEqual({'h1', 'h2', 'empty', fleets.HOSTILE},
                         fleet.policies.keys())
        self.assertTrue(fleet.policies['h1'].judged)
        self.assertFalse(fleet.policies['h2'].judged)

    def test_demands_come_with_the_rule_that_gave_them(self):
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

    def test_a_host_is_judged_without_its_uplink_which_carries_all(self):
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
        fleet = self.fleet({'h1': policy, 'h2': policy}, uplink,
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
        self.assertEqual({'h1', 'h2'}, set(fleet.hosts_behind()['tor']))

    def test_debts_refuse_only_where_they_are_to(self):
        self.store.settle_budgets(store.BudgetState(300.0, base.NOW), [
            (None, fake_store.budget('h1', balance=-1.0, until=base.NOW))])
        self.store.write(now=base.NOW)
        for refuse in (False, True):
            fleet = self.fleet({}, uses_budgets=refuse)
            self.assertEqual([('host', 'h1')] * refuse, list(fleet.debts))
