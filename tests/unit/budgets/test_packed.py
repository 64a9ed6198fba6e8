# SPDX-License-Identifier: Apache-2.0

import math
import unittest

import numpy as np

from tests.unit.store import base
from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store


class PackedTestCase(unittest.TestCase):

    def test_sums_are_known_to_half_a_step(self):
        generator = np.random.default_rng(1)
        sums = generator.exponential(9.0, 2016)
        alone = generator.random(2016) < .1
        unpacked, flags = packed.unpack(packed.pack(sums, alone, 10.0), 2016,
                                        10.0)
        np.testing.assert_allclose(np.minimum(sums, 39.9), np.minimum(
            unpacked, 39.9), atol=10 / 2 ** 14)
        np.testing.assert_array_equal(alone, flags)

    def test_no_sum_changes_its_side_of_the_capacity(self):
        sums = 7.0 * np.array([0, 1 - 1e-6, 1, 1 + 1e-12, 1 + 1e-6, 2, 100])
        unpacked, _ = packed.unpack(packed.pack(sums, np.zeros(7), 7.0),
                                    7, 7.0)
        self.assertEqual([False] * 4 + [True] * 3, (unpacked > 7.0).tolist())

    def test_unknown_slots_stay_unknown(self):
        unpacked, _ = packed.unpack(packed.pack(
            [1.0, np.nan, 1e9], [False] * 3, 1.0), 3, 1.0)
        self.assertEqual([False, True, False], np.isnan(unpacked).tolist())

    def test_slots_are_measured_or_overloaded_or_unknown(self):
        sums = packed.Sums('h1', 300.0, 10, ((0, 0, 10.0),), np.array([
            [20, 1, np.nan, 20, 20, np.nan, 2, np.nan]]), np.array([
                [False, False, False, True, False, False, False, False]]))
        self.assertEqual((5, 3, 2), sums.measured(0, math.inf))
        self.assertEqual((2, 1, 1), sums.measured(11 * 300, 14 * 300))
        self.assertEqual((0, 0, 0), sums.measured(17 * 300, math.inf))
        self.assertEqual((0, 0, 0), sums.measured(0, 1))

    def test_invalid_sums_are_rejected(self):
        for call in (lambda: packed.pack([1.0], [False], 0.0),
                     lambda: packed.pack([1.0], [False], np.inf),
                     lambda: packed.pack([-1.0], [False], 1.0),
                     lambda: packed.unpack(b'123', 2, 1.0)):
            with self.assertRaisesRegex(exceptions.InvalidInput, 'expected'):
                call()


class HistoryTestCase(base.StoreTestCase):

    EGRESS = (1.0, 0.0, 0.0), 800.0, 10.0
    PACKETS = (0.0, 0.0, 1.0), 800.0, 4.0

    def stored(self, day, sums, limits, period=21600.0):
        """Return the record of a day."""
        sums = np.array(sums, dtype=float)
        return store.StoredSums(
            store.HOST, 'h', day, period, limits, packed.pack_day(
                sums, sums > 9.5, [limit[2] for limit in limits]))

    def history(self, days, *stored):
        target = self.make_store()
        target.settle_budgets(store.BudgetState(21600.0, 0.0), sums=stored)
        return packed.history(target, store.HOST, 12.5 * 86400, days=days)

    def test_days_are_joined_and_other_slots_are_unknown(self):
        history = self.history(
            2.0, self.stored(9, [[1, 1, 1, 1]], [self.EGRESS]),
            self.stored(10, [[1, 2, 3, 4]], [self.EGRESS]),
            self.stored(12, [[5, 10, 7, 8]], [self.EGRESS]))['h']
        self.assertEqual(42, history.first)
        self.assertEqual((self.EGRESS,), history.limits)
        np.testing.assert_allclose(
            history.sums, [[3, 4] + [np.nan] * 4 + [5, 10]], atol=1e-3)
        self.assertEqual([7], np.flatnonzero(history.alone[0]).tolist())

    def test_sums_of_former_limits_are_omitted(self):
        bigger = *self.EGRESS[:2], 20.0
        history = self.history(
            1.0, self.stored(11, [[1, 2, 3, 4], [1] * 4],
                             [self.EGRESS, self.PACKETS]),
            self.stored(12, [[5, 6, 7, 8]], [bigger]))['h']
        self.assertEqual((bigger,), history.limits)
        np.testing.assert_allclose(history.sums, [[3, 4, 5, 6]], atol=2e-3)

    def test_damaged_days_are_unknown(self):
        damaged = store.StoredSums(store.HOST, 'h', 11, 21600.0,
                                   (self.EGRESS,), b'1')
        history = self.history(2.5, damaged, self.stored(
            12, [[5, 6, 7, 8]], [self.EGRESS]))['h']
        np.testing.assert_allclose(history.sums, [[np.nan] * 8 + [5, 6]],
                                   atol=1e-3)

    def test_sums_of_other_periods_are_those_in_the_middle_of_slots(self):
        finer = self.stored(10, [[1] * 36 + [2] * 60 + [np.nan] * 192],
                            [self.EGRESS], 300.0)
        coarser = self.stored(11, [[3, 10]], [self.EGRESS], 43200.0)
        # On the day of a change, each time is known with one period.
        history = self.history(
            2.5, finer, coarser,
            self.stored(10, [[np.nan] * 2 + [7, 8]], [self.EGRESS]),
            self.stored(12, [[5, 6, np.nan, np.nan]], [self.EGRESS]))['h']
        np.testing.assert_allclose(
            history.sums, [[2, np.nan, 7, 8, 3, 3, 10, 10, 5, 6]], atol=1e-3)
        self.assertEqual([6, 7], np.flatnonzero(history.alone[0]).tolist())

    def test_without_budgets_there_is_no_history(self):
        self.assertEqual({}, packed.history(self.make_store(), store.HOST,
                                            0.0))
