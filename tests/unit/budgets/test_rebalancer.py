# SPDX-License-Identifier: Apache-2.0

import logging
import os
import signal

from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import clock
from tests.unit.budgets import fleet
from tests.unit.store import base
from vswitch_aware_scheduler.budgets import executor
from vswitch_aware_scheduler.budgets import rebalance_settings as settings
from vswitch_aware_scheduler.budgets import rebalancer as rebalancing
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import service
from vswitch_aware_scheduler.modeler import systemd
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler.store import plans as records


class WithFleet(base.StoreTestCase):
    """host1 is in debt, host2 has room for one of its instances."""

    def setUp(self):
        super().setUp()
        self.fleet = fleet.start_hot(self)
        self.store = self.make_store()
        self.clock = clock.Clock(fleet.NOW)

    def make(self, mode):
        return rebalancing.Rebalancer(
            self.fleet.cloud.client(), settings.RebalanceSettings(
                mode, network=settings.SEPARATE), fleet.read_fleet)

    def states(self):
        return [move.state for move in self.store.moves()]


class RebalancerTestCase(WithFleet):

    def plan(self, rebalancing):
        self.fleet.write(self.store)
        return rebalancing.plan(self.store, self.fleet.driver, self.clock,
                                self.clock)

    def test_advice_is_logged_once_and_changes_nothing(self):
        rebalancer = self.make(settings.ADVISE)
        with self.assertLogs('vswitch_aware_scheduler',
                             logging.INFO) as logs:
            for _ in range(3):
                self.assertIsNone(self.plan(rebalancer))
                self.clock.now += 900.0
        text, = logs.output
        self.assertIn('1 host is in debt: vm', text)
        self.assertIn('from host1 to host2', text)
        self.assertEqual([], self.fleet.cloud.asked)
        self.assertEqual([], self.store.plans())

    def test_a_plan_is_made_every_15_minutes(self):
        rebalancer = self.make(settings.ADVISE)
        self.plan(rebalancer)
        count = len(self.fleet.cloud.requests)
        self.clock.now += 899.0
        self.plan(rebalancer)
        self.assertEqual(count, len(self.fleet.cloud.requests))
        self.clock.now += 1.0
        self.plan(rebalancer)
        self.assertGreater(len(self.fleet.cloud.requests), count)

    def test_a_plan_is_executed_between_passes(self):
        rebalancer = self.make(settings.EXECUTE)
        self.assertIsNone(self.plan(rebalancer))
        self.assertEqual([], self.fleet.cloud.asked)
        self.assertIsNone(rebalancer.step(self.clock))
        self.assertEqual(1, len(self.fleet.cloud.asked))
        # Not yet again.
        self.clock.now += executor.POLL_SECONDS - 1
        rebalancer.step(self.clock)
        self.assertEqual(['begun'], self.states())
        for _ in range(3):
            self.clock.now += executor.POLL_SECONDS
            self.assertIsNone(rebalancer.step(self.clock))
        self.assertEqual(['done'], self.states())
        # The lock is free.
        self.assertIsNone(records.take_lock(
            self.store, 'other', 'token', 60.0))

    def test_a_plan_waits_for_the_lock_of_another_process(self):
        rebalancer = self.make(settings.EXECUTE)
        records.take_lock(self.store, 'the command', 't', 60.0)
        with self.assertRaisesRegex(exceptions.StoreError, 'the command'):
            self.plan(rebalancer)
        self.assertEqual([], self.store.plans())
        records.release_lock(self.store, 't')
        self.plan(rebalancer)
        self.assertEqual(1, len(self.store.plans()))

    def test_the_next_modeler_continues_the_plan_of_a_killed_one(self):
        killed = self.make(settings.EXECUTE)
        self.plan(killed)
        killed.step(self.clock)
        self.execute('UPDATE rebalance_lock SET expires_at = 1')
        successor = self.make(settings.EXECUTE)
        self.plan(successor)
        for _ in range(3):
            successor.step(self.clock)
            self.clock.now += executor.POLL_SECONDS
        self.assertEqual(['done'], self.states())
        self.assertEqual(1, len(self.fleet.cloud.asked))
        # The first one, should it live, says so and does no more.
        self.assertIn('lock', killed.step(self.clock))
        self.assertIsNone(killed.step(self.clock))

    def test_an_unexpected_result_is_reported(self):
        self.fleet.cloud.on_migrate = lambda server, host: \
            self.fleet.cloud.complete(server, host, 'error')
        rebalancer = self.make(settings.EXECUTE)
        self.plan(rebalancer)
        problems = []
        for _ in range(6):
            problems.append(rebalancer.step(self.clock))
            self.clock.now += executor.POLL_SECONDS
        self.assertEqual(1, len(list(filter(None, problems))))
        self.assertEqual(['failed'], self.states())

    def test_the_end_of_the_service_releases_the_lock(self):
        rebalancer = self.make(settings.EXECUTE)
        self.plan(rebalancer)
        rebalancer.end()
        rebalancer.end()
        self.assertIsNone(records.take_lock(
            self.store, 'other', 'token', 60.0))
        self.assertEqual('running', self.store.plans()[0].state)


class ServiceTestCase(WithFleet):
    """vswitch-modeler with a rebalancer, pass after pass."""

    def setUp(self):
        super().setUp()
        self.fleet.write(self.store)
        self.rebalancer = self.make(settings.EXECUTE)
        self.time = 0.0
        self.at = {}

    def sleep(self, seconds):
        self.time += seconds
        for time in sorted(self.at):
            if time <= self.time:
                self.at.pop(time)()

    def serve(self):
        """Return what is logged until the end of a service run."""
        running = service.Service(
            lambda: wiring.SetUp(
                self.store, self.fleet.driver,
                learning.LearningSettings('memory'),
                300.0, rebalancer=self.rebalancer),
            systemd.Notifier({}), self.clock, lambda: self.time, self.sleep)
        with self.assertLogs('vswitch_aware_scheduler', 'INFO') as logs:
            running.run()
        return [record.getMessage() for record in logs.records]

    def end_at(self, time):
        self.at[time] = lambda: os.kill(os.getpid(), signal.SIGTERM)

    def test_a_plan_is_executed_while_the_service_waits(self):
        self.end_at(60)
        lines = self.serve()
        self.assertEqual(['done'], self.states())
        self.assertEqual('done', self.store.plans()[0].state)
        self.assertTrue(any('1 migrations were made' in line
                            for line in lines), lines)

    def test_learning_continues_while_nova_does_not_answer(self):
        self.fleet.cloud.faults = [stand_ins.status(503)] * 100
        self.end_at(10)
        lines = self.serve()
        self.assertEqual(1, sum('no plan of migrations' in line
                                for line in lines), lines)
        self.assertTrue(self.store.has_models())
