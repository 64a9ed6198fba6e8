# SPDX-License-Identifier: Apache-2.0

import math
import unittest

import numpy as np

from vswitch_aware_scheduler.budgets import cost
from vswitch_aware_scheduler.common import exceptions


class MigrationTestCase(unittest.TestCase):

    def test_memory_that_does_not_change_is_copied_once(self):
        # 8 GiB over a fifth of 22 Mbit/s: 4 h 20 min.
        estimated = cost.migration(8192, 0.0, 4400.0)
        self.assertAlmostEqual(8 * 2**33 / 4.4e6, estimated.seconds)
        self.assertAlmostEqual(8 * 2**33 / 1e3, estimated.transferred_kbit)
        self.assertEqual(0.0, estimated.downtime_seconds)
        self.assertTrue(estimated.ends)

    def test_rounds_are_a_geometric_series(self):
        # A link of 1 Gbit/s, a tenth of it written again: rounds of 8.59 s,
        # .859, .0859.
        estimated = cost.migration(1024, 1e5, 1e6)
        first_round = 2**30 * 8 / 1e9
        self.assertAlmostEqual(first_round * (1 + .1 + .01), estimated.seconds)
        self.assertAlmostEqual(first_round * .01, estimated.downtime_seconds)
        self.assertAlmostEqual(1e6 * estimated.seconds,
                               estimated.transferred_kbit)

    def test_a_migration_that_writes_faster_than_it_copies_never_ends(self):
        for dirty in (1e6, 2e6):
            estimated = cost.migration(1024, dirty, 1e6)
            self.assertFalse(estimated.ends)
            self.assertEqual(math.inf, estimated.seconds)

    def test_a_longer_downtime_ends_sooner(self):
        short, long = (cost.migration(4096, 5e5, 1e6, seconds)
                       for seconds in (.1, 5.0))
        self.assertGreater(short.seconds, long.seconds)
        self.assertLessEqual(long.downtime_seconds, 5.0)

    def test_invalid_numbers_are_rejected(self):
        for numbers in ((-1, 0, 1), (1, -1, 1), (1, 0, 0), (1, 0, math.inf),
                        (math.nan, 0, 1), (1, 0, 1, -1)):
            with self.subTest(numbers), self.assertRaisesRegex(
                    exceptions.InvalidInput, 'expected'):
                cost.migration(*numbers)


class AddedOverloadTestCase(unittest.TestCase):

    def test_added_overload_is_the_share_of_recent_slots_above(self):
        sums = np.array([5.0, 7.0, 9.0, 11.0, 9.0])
        alone = np.array([False, False, False, False, True])
        # With 2 more the slot of 9 comes above 10; 11 is above anyway, and
        # the last one has an instance that is above by itself.
        np.testing.assert_allclose(
            [20.0, 0.0], cost.added_overload(sums, alone, 10.0, 2.0,
                                             [100.0, 0.0]))

    def test_without_samples_no_overload_is_added(self):
        self.assertEqual([0.0], cost.added_overload(
            np.zeros(0), np.zeros(0, bool), 1.0, 1.0, [9.0]).tolist())
