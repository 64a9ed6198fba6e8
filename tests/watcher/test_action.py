# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from watcher.applier.loading import default
from watcher.common import exception

from tests.unit.budgets import fleet
from tests.watcher import base
from vswitch_aware_scheduler.store import plans as records


class ActionTestCase(base.WatcherTestCase):

    def setUp(self):
        super().setUp()
        self.given = self.solution().actions[0]['input_parameters']

    def make(self, **changes):
        made = default.DefaultActionLoader().load('vswitch_migrate',
                                                  osc=mock.sentinel.unused)
        made.config.config_files = [self.config]
        made.input_parameters = {**self.given, **changes}
        return made

    def test_the_action_migrates_with_a_record_and_releases_the_lock(self):
        made = self.make()
        made.pre_condition()
        self.assertTrue(made.execute())
        made.post_condition()
        self.assertEqual(['done'], self.states())
        self.assertEqual(1, len(self.fleet.cloud.asked))
        plan, = self.store.plans()
        self.assertIn(self.given['plan'], plan.made_by)
        self.assertIsNone(records.take_lock(
            self.store, 'other', 't', 60.0))

    def test_the_action_never_migrates_an_instance_that_has_moved(self):
        made = self.make()
        self.fleet.cloud.servers[made.resource_id][
            'OS-EXT-SRV-ATTR:host'] = 'host2'
        with self.assertRaisesRegex(exception.WatcherException,
                                    'the instance is on host2'):
            made.execute()
        self.assertEqual([], self.fleet.cloud.asked)
        self.assertTrue(made.revert())

    def test_after_a_failure_only_what_is_useless_without_it_is_skipped(self):
        self.fleet.cloud.on_migrate = lambda server, host: \
            self.fleet.cloud.complete(server, host, 'error')
        with self.assertRaisesRegex(exception.WatcherException,
                                    'No valid host'):
            self.make().execute()
        with self.assertRaisesRegex(exception.ActionSkipped,
                                    'No valid host'):
            self.make().pre_condition()
        self.make(move={**self.given['move'], 'group': 9}).pre_condition()
        self.make(plan='another').pre_condition()

    def test_the_lock_of_another_process_is_respected(self):
        records.take_lock(self.store, 'vswitch-modeler',
                                      't', 60.0)
        with self.assertRaisesRegex(exception.WatcherException,
                                    'held by vswitch-modeler'):
            self.make().execute()
        self.assertEqual([], self.fleet.cloud.asked)

    def test_a_plan_that_was_interrupted_is_finished_first(self):
        other = next(uuid for uuid in map(fleet.uuid_of, ('vm1', 'vm2'))
                     if uuid != self.given['resource_id'])
        records.write_plan(
            self.store, records.PlanRecord('p', fleet.NOW, 'killed'),
            [records.MoveRecord('p', 0, other, 'host1', 'host2')])
        self.make().execute()
        self.assertEqual(['done', 'done'], self.states())
        self.assertEqual(['p'], [
            move.plan_id for move in self.store.moves()
            if move.instance_uuid == other])
