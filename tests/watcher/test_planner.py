# SPDX-License-Identifier: Apache-2.0

from watcher.decision_engine.loading import default as loading

from tests.watcher import base


class PlannerTestCase(base.WatcherTestCase):

    def test_the_planner_knows_each_action_of_the_strategy(self):
        planner = loading.DefaultPlannerLoader().load('vswitch_rebalance')
        for name in ('vswitch_migrate', 'nop'):
            self.assertIn(name, planner.config.weights)
        weights = list(planner.config.weights.values())
        self.assertEqual(len(weights), len(set(weights)))
        self.assertEqual('1', str(
            planner.config.parallelization['vswitch_migrate']))
