# SPDX-License-Identifier: Apache-2.0

import logging

import numpy as np

from tests.unit.rebalance import fleet
from tests.unit.store import base
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.modeler import rebalancing
from vswitch_aware_scheduler.rebalance import executor
from vswitch_aware_scheduler.rebalance import settings
from vswitch_aware_scheduler.store import rebalance_records as records

BUSY = np.arange(fleet.SLOTS) % 10 == 9


class RebalancerTestCase(base.StoreTestCase):
    """host1 is in debt, host2 has room for one of its instances."""

    def setUp(self):
        super().setUp()
        self.fleet = fleet.Fleet('host1', 'host2')
        self.fleet.cloud.setUp()
        self.addCleanup(self.fleet.cloud.cleanUp)
        for name in ('vm1', 'vm2'):
            self.fleet.boot(name, 'host1', np.where(BUSY, 600, 100))
        for number in range(2):
            self.fleet.boot(f'idle{number}', 'host2', 0)
        self.fleet.balance['host1'] = -600.0
        self.store = self.make_store()
        self.clock = fleet.Clock()

    def make(self, mode):
        return rebalancing.Rebalancer(
            self.fleet.cloud.client(), settings.Settings(
                mode, network=settings.SEPARATE))

    def plan(self, one):
        self.fleet.write(self.store)
        return one.plan(self.store, self.fleet.driver, self.clock,
                        self.clock)

    def states(self):
        return [one.state for one in self.store.moves()]

    def test_advice_is_logged_once_and_changes_nothing(self):
        one = self.make(settings.ADVISE)
        with self.assertLogs('vswitch_aware_scheduler',
                             logging.INFO) as logs:
            for _ in range(3):
                self.assertIsNone(self.plan(one))
                self.clock.now += 900.0
        text, = logs.output
        self.assertIn('1 hosts are in debt: vm', text)
        self.assertIn('from host1 to host2', text)
        self.assertEqual([], self.fleet.cloud.asked)
        self.assertEqual([], self.store.plans())

    def test_a_plan_is_made_every_15_minutes(self):
        one = self.make(settings.ADVISE)
        self.plan(one)
        count = len(self.fleet.cloud.requests)
        self.clock.now += 899.0
        self.plan(one)
        self.assertEqual(count, len(self.fleet.cloud.requests))
        self.clock.now += 1.0
        self.plan(one)
        self.assertGreater(len(self.fleet.cloud.requests), count)

    def test_a_plan_is_carried_out_between_passes(self):
        one = self.make(settings.EXECUTE)
        self.assertIsNone(self.plan(one))
        self.assertEqual([], self.fleet.cloud.asked)
        self.assertIsNone(one.step(self.clock))
        self.assertEqual(1, len(self.fleet.cloud.asked))
        # Not yet again.
        self.clock.now += executor.POLL_SECONDS - 1
        one.step(self.clock)
        self.assertEqual(['begun'], self.states())
        for _ in range(3):
            self.clock.now += executor.POLL_SECONDS
            self.assertIsNone(one.step(self.clock))
        self.assertEqual(['done'], self.states())
        # The lock is free.
        self.assertIsNone(self.store.change_rebalancing(
            records.take_lock, 'other', 'token', 60.0))

    def test_the_lock_of_the_command_is_respected(self):
        self.store.change_rebalancing(records.take_lock, 'the command', 't',
                                      60.0)
        with self.assertRaisesRegex(exceptions.StoreError, 'the command'):
            self.plan(self.make(settings.EXECUTE))
        self.assertEqual([], self.fleet.cloud.asked)

    def test_a_modeler_that_was_killed_is_followed_by_the_next(self):
        first = self.make(settings.EXECUTE)
        self.plan(first)
        first.step(self.clock)
        self.execute('UPDATE rebalance_lock SET expires_at = 1')
        second = self.make(settings.EXECUTE)
        self.plan(second)
        for _ in range(3):
            second.step(self.clock)
            self.clock.now += executor.POLL_SECONDS
        self.assertEqual(['done'], self.states())
        self.assertEqual(1, len(self.fleet.cloud.asked))
        # The first one, should it live, says so and does no more.
        self.assertIn('lock', first.step(self.clock))
        self.assertIsNone(first.step(self.clock))

    def test_a_surprise_is_reported(self):
        self.fleet.cloud.on_migrate = lambda server, host: \
            self.fleet.cloud.complete(server, host, 'error')
        one = self.make(settings.EXECUTE)
        self.plan(one)
        problems = []
        for _ in range(3):
            problems.append(one.step(self.clock))
            self.clock.now += executor.POLL_SECONDS
        self.assertEqual(1, len(list(filter(None, problems))))
        self.assertEqual(['failed'], self.states())

    def test_an_end_releases_the_lock(self):
        one = self.make(settings.EXECUTE)
        self.plan(one)
        one.end()
        one.end()
        self.assertIsNone(self.store.change_rebalancing(
            records.take_lock, 'other', 'token', 60.0))
        self.assertEqual('running', self.store.plans()[0].state)
