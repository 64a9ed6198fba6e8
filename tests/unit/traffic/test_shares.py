# SPDX-License-Identifier: Apache-2.0

import unittest

import numpy as np

from vswitch_aware_scheduler.traffic import shares


class LimitedTestCase(unittest.TestCase):

    def test_large_ones_are_reduced_to_a_quarter_of_what_is_left(self):
        for amounts, expected in (
                ([100, 1, 1, 1], [1, 1, 1, 1]),
                ([100, 50, 10, 1], [1, 1, 1, 1]),
                # 20 of 80, 25 % together with three others of 20.
                ([60, 20, 20, 20], [20, 20, 20, 20]),
                ([1000] + [10] * 6, [20] + [10] * 6),
                ([1000, 900] + [10] * 6, [30, 30] + [10] * 6),
                ([20] + [10] * 6, [20] + [10] * 6),
                ([0, 0, 0, 0], [0, 0, 0, 0])):
            np.testing.assert_allclose(expected, shares.limited(amounts))

    def test_none_is_above_its_share_and_small_ones_stay(self):
        generator = np.random.default_rng(1)
        for _ in range(500):
            amounts = generator.lognormal(3, 2, generator.integers(4, 40))
            limited = shares.limited(amounts)
            self.assertLessEqual(
                limited.max(), shares.MOST_SHARE * limited.sum() * (1 + 1e-9))
            reduced = limited < amounts
            np.testing.assert_array_equal(amounts[~reduced], limited[~reduced])
            if reduced.any():
                # As little as can be.
                self.assertAlmostEqual(
                    shares.MOST_SHARE, limited.max() / limited.sum())
                np.testing.assert_allclose(limited.max(), limited[reduced])

    def test_of_few_projects_none_is_reduced(self):
        for amounts in ([], [5], [60, 20], [60, 20, 1]):
            np.testing.assert_array_equal(amounts, shares.limited(amounts))
