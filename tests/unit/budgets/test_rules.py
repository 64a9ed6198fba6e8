# SPDX-License-Identifier: Apache-2.0

import unittest

import numpy as np

from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.common import exceptions

DAY = rules.DAY_SECONDS


class TermsTestCase(unittest.TestCase):

    def setUp(self):
        self.terms = rules.Terms(.01)

    def test_a_host_begins_with_what_one_day_earns(self):
        # .6 x .01 x 86400 s
        self.assertAlmostEqual(518.4, self.terms.first)
        self.assertAlmostEqual(518.4, self.terms.day)
        self.assertAlmostEqual(30 * 518.4, self.terms.most)

    def test_a_period_earns_and_overload_spends(self):
        # Four hosts for a period of 900 s: 5.4 s are earned.
        np.testing.assert_allclose(
            [105.4, -194.6, 100.0, 30 * 518.4 - 900],
            self.terms.after(
                np.array([100.0, 100.0, 100.0, 30 * 518.4]),
                np.array([900.0, 900.0, 0.0, 900.0]),
                np.array([0.0, 300.0, 0.0, 900.0])))

    def test_many_periods_agree_with_the_closed_form(self):
        for days in (1, 12, 29, 50):
            balance = self.terms.first
            for _ in range(days * 96):
                balance = self.terms.after(balance, 900.0, 0.0)
            self.assertAlmostEqual(
                .006 * DAY * min(1 + days, 30), float(balance), 6)

    def test_invalid_terms_are_rejected(self):
        for terms in ({'overload_probability': 0},
                      {'overload_probability': 1},
                      {'overload_probability': float('nan')},
                      {'earned_share': 0}, {'earned_share': 1.1},
                      {'first_days': -1}, {'first_days': 31},
                      {'most_days': float('inf')}):
            with self.subTest(terms), self.assertRaisesRegex(
                    exceptions.InvalidInput, 'expected'):
                rules.Terms(**{'overload_probability': .01, **terms})


class BurnRateTestCase(unittest.TestCase):

    def test_burn_rate_one_is_exactly_the_limit(self):
        np.testing.assert_allclose(
            [1.0, 10.0, 0.0, 0.0],
            rules.burn_rate(np.array([36.0, 360.0, 0.0, 0.0]),
                            np.array([3600.0, 3600.0, 3600.0, 0.0]), .01))


class ChargesTestCase(unittest.TestCase):

    def test_load_above_the_fair_share_is_charged(self):
        for loads, charged in (
                # 45 is the level of the second: 90 - 45 is the excess.
                ([90, 45, 10], [1, 0, 0]), ([60, 60], [.5, .5]),
                ([150, 5, 5], [1, 0, 0]), ([80, 50, 10], [35, 5, 0]),
                ([101], [1]), ([0, 0, 70, 70, 70], [0, 0, 1, 1, 1])):
            charged = np.array(charged) / sum(charged)
            np.testing.assert_allclose(charged, rules.charges(
                np.array(loads, dtype=float), 100.0))

    def test_the_charges_sum_to_the_excess(self):
        generator = np.random.default_rng(5)
        for _ in range(200):
            loads = generator.exponential(30.0, generator.integers(1, 20))
            capacity = loads.sum() * generator.uniform(.2, .999)
            shares = rules.charges(loads, capacity)
            excess = loads.sum() - capacity
            # Each keeps what max-min fairness gives it.
            kept = loads - shares * excess
            self.assertAlmostEqual(capacity, kept.sum())
            level = kept.max()
            np.testing.assert_allclose(kept, np.minimum(loads, level),
                                       atol=1e-9)


def avoidable(sums, peaks, capacities):
    return rules.overloaded(sums, rules.exceeds(peaks, capacities), capacities)


class AvoidableTestCase(unittest.TestCase):

    def test_overload_by_a_single_instance_is_not_avoidable(self):
        sums = np.array([[[10.0, 11.0, 25.0]]])
        peaks = np.array([[[6.0, 6.0, 20.0]]])
        self.assertEqual([[False, True, False]], avoidable(
            sums, peaks, np.array([[10.0]])).tolist())

    def test_each_limit_counts_except_an_infinite_one(self):
        sums = np.array([[[9.0, 9.0]], [[1.0, 5.0]], [[1e9, 1e9]]])
        peaks = np.array([[[5.0, 5.0]], [[1.0, 3.0]], [[1e9, 1e9]]])
        self.assertEqual([[False, True]], avoidable(
            sums, peaks, np.array([[10.0], [4.0], [np.inf]])).tolist())
