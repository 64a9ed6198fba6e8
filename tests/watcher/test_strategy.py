# SPDX-License-Identifier: Apache-2.0

from watcher.common import exception
from watcher.common import utils

from tests.watcher import base
from vswitch_aware_scheduler.cmd import watcher


class StrategyTestCase(base.WatcherTestCase):

    def test_a_host_in_debt_is_relieved_by_one_action(self):
        solution = self.solution()
        found, = solution.actions
        self.assertEqual('vswitch_migrate', found['action_type'])
        given = found['input_parameters']
        self.assertEqual(('host1', 'host2', -600.0), (
            given['move']['source'], given['move']['destination'],
            given['move']['budget_before']))
        one = watcher.RebalanceMigration(utils.Struct())
        one.input_parameters = given
        self.assertTrue(one.validate_parameters())
        self.assertEqual([], self.fleet.cloud.asked)
        self.assertEqual([], self.store.plans())

    def test_the_solution_has_the_indicators_of_the_goal(self):
        solution = self.solution()
        values = {one['name']: one['value']
                  for one in solution.efficacy_indicators}
        # Both instances at once need 1200 of 1000 for a tenth of the time.
        self.assertEqual(
            {'hosts_in_debt': 1, 'hosts_relieved': 1,
             'instance_migrations_count': 1},
            {name: value for name, value in values.items()
             if not name.startswith(('overload', 'vm'))})
        before = values['overload_seconds_before']
        self.assertAlmostEqual(.1 * 7 * 86400, before, delta=3000)
        # A day was measured, in which both suffered.
        gain = 28 * 300.0
        self.assertAlmostEqual(before - gain,
                               values['overload_seconds_after'])
        self.assertEqual(2 * gain, values['vm_overload_seconds_avoided'])
        efficacy, = solution.global_efficacy
        self.assertEqual('overload_avoided', efficacy['name'])
        self.assertAlmostEqual(100 * gain / before, efficacy['value'])

    def test_without_debt_there_is_nothing_to_do(self):
        self.fleet.balance['host1'] = 0.0
        self.configure('rebalance_network = separate')
        solution = self.solution()
        self.assertEqual([], solution.actions)
        self.assertEqual(0, solution.global_efficacy[0]['value'])

    def test_debt_that_no_move_pays_is_explained(self):
        for server in self.fleet.cloud.servers.values():
            server['locked'] = True
        found, = self.solution().actions
        self.assertEqual('nop', found['action_type'])
        self.assertIn('may not move now', found['input_parameters']['message'])

    def test_an_audit_may_ask_for_more_checks(self):
        # The budget is a month old: the host was in debt at every check.
        self.assertEqual(1, len(self.solution(checks=3).actions))

    def test_an_audit_without_data_fails_with_the_reason(self):
        self.fleet.balance.clear()
        self.fleet.write(self.store)
        with self.assertRaisesRegex(exception.WatcherException,
                                    'error budgets in the store .*: none'):
            self.solution()

    def test_the_scope_of_an_audit_is_refused(self):
        with self.assertRaisesRegex(exception.WatcherException,
                                    'scope of the audit'):
            self.solution(scope=[{'compute': []}])
