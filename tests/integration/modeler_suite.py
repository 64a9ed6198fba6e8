# SPDX-License-Identifier: Apache-2.0
"""Several modelers that are killed while they write to one database."""

import os
import time

import numpy as np

from tests.integration import modeler_processes
from tests.unit.modeler import base
from tests.unit.modeler import samples
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import membership
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store

#: So often a modeler is killed.
KILLS = 50

INSTANCES = 60


class KilledModelersTestCase(base.SharingTestCase):
    """Two modelers at a time, and one of them killed at a random point."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(4)
        for number in range(INSTANCES):
            self.driver.put(
                number, samples.grid(KILLS * 4),
                samples.whole_rates(self.rng, KILLS * 4))
        self.clock = modeler_processes.Clock(base.BEGIN + 30 * base.PERIOD)
        self.log = os.path.join(self.directory, 'log')
        # Loads what a start would have to load each time.
        self._set_up().group.count('nobody')
        self.modelers = [self._modeler() for _ in range(2)]

    def _modeler(self):
        modeler = modeler_processes.Modeler(self._set_up, self.clock,
                                            self.log)
        modeler.start()
        self.addCleanup(lambda: modeler.kill())
        return modeler

    def _set_up(self):
        return wiring.SetUp(
            store.Store(self.url), self.driver,
            learning.LearningSettings('memory'),
            0.02, membership.ModelerGroup(f'file://{self.directory}/group'))

    def _caught_up(self):
        points = self.store.resume_points()
        last = self.clock() - base.PERIOD
        return len(points) == INSTANCES and all(
            point.last_time >= last for point in points.values())

    def test_fifty_kills_lose_nothing_and_count_nothing_twice(self):
        modelled = 0
        began = time.monotonic()
        for number in range(KILLS):
            self.clock.set(self.clock() + 3 * base.PERIOD)
            time.sleep(self.rng.exponential(.6))
            victim = self.modelers[number % 2]
            victim.kill()
            points = self.store.resume_points()
            now = sum(point.modelled for point in points.values())
            self.assertGreaterEqual(now, modelled)
            modelled = now
            self.assertLess(max((point.last_time for point
                                 in points.values()), default=0),
                            self.clock() + base.PERIOD)
            victim.start()
        generation = self.store.generation().number
        # The remaining modeler receives all instances.
        self.modelers[0].kill()
        modeler_processes.wait_for(self._caught_up, 'all is learned')
        self.assertEqual(0, self.modelers[1].end())
        self.run_pass(self.scratch, now=self.clock())
        self.assert_learned_once()
        self.assertEqual(INSTANCES, len(self.store.models()))
        # They did not wait for the end.
        self.assertGreater(generation, KILLS // 5)
        print(f'{KILLS} kills, {generation} generations, '
              f'{time.monotonic() - began:.0f} s')
        self.assertEqual([], modeler_processes.lines(self.log, 'ERROR'))
