# SPDX-License-Identifier: Apache-2.0

import math
import unittest

import hypothesis
from hypothesis import strategies as st
import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import effective


def one(rates, masses, exponent):
    return effective.effective_bandwidth(rates, masses, exponent)


class TestEffectiveBandwidth(unittest.TestCase):

    def test_on_off_is_the_closed_form(self):
        for share in (.001, .1, .5, .99):
            for exponent in (1e-6, .001, .1, 3.0):
                with self.subTest(share=share, exponent=exponent):
                    # ln(1 - p + p e^(theta r)) / theta
                    self.assertAlmostEqual(
                        math.log1p(share * math.expm1(exponent * 40))
                        / exponent,
                        one([0, 40], [1 - share, share], exponent), 9)

    def test_a_constant_rate_is_booked_as_it_is(self):
        for exponent in (0, 1e-9, 1, 1e9, math.inf):
            self.assertEqual(17.0, one([17], [1], exponent))

    def test_the_ends_are_the_mean_and_the_peak_that_occurs(self):
        rates, masses = [1, 5, 100, 9], [.5, .3, 0, .2]
        self.assertAlmostEqual(3.8, one(rates, masses, 0), 12)
        self.assertAlmostEqual(3.8, one(rates, masses, 1e-13), 9)
        self.assertEqual(9.0, one(rates, masses, math.inf))
        # ln(.2) / theta below the peak.
        self.assertAlmostEqual(9 + math.log(.2) / 1e6,
                               one(rates, masses, 1e6), 12)

    def test_a_rare_peak_is_not_lost_in_rounding(self):
        # Of probability 1e-200, and decisive for a large exponent.
        self.assertAlmostEqual(
            100 + math.log(1e-200) / 10, one([0, 100], [1, 1e-200], 10), 9)

    def test_small_exponents_do_not_cancel(self):
        # Up to the second order: mean + theta * variance / 2.
        rates, masses, exponent = [0, 1], [.75, .25], 1e-7
        self.assertAlmostEqual(.25 + exponent * .1875 / 2,
                               one(rates, masses, exponent), 14)

    @hypothesis.given(st.lists(st.tuples(
        st.floats(0, 1e6), st.integers(1, 50)), min_size=1, max_size=6),
        st.floats(1e-8, 1e3), st.floats(1, 1e3))
    def test_it_lies_between_mean_and_peak_and_grows_with_the_exponent(
            self, states, exponent, factor):
        rates = np.array([rate for rate, _ in states])
        masses = np.array([float(weight) for _, weight in states])
        masses /= masses.sum()
        mean, peak = one(rates, masses, 0), one(rates, masses, math.inf)
        low = one(rates, masses, exponent)
        high = one(rates, masses, exponent * factor)
        slack = 1e-9 * (1 + peak)
        self.assertLessEqual(mean, low + slack)
        self.assertLessEqual(low, high + slack)
        self.assertLessEqual(high, peak + slack)

    def test_independent_sources_add_up(self):
        # All sums of two, as a law of its own.
        a, p = np.array([0, 3, 7]), np.array([.5, .3, .2])
        b, q = np.array([1, 4]), np.array([.9, .1])
        for exponent in (0, .01, .5, 20):
            self.assertAlmostEqual(
                one(a, p, exponent) + one(b, q, exponent),
                one(np.add.outer(a, b).ravel(),
                    np.multiply.outer(p, q).ravel(), exponent), 12)

    def test_an_exponent_below_zero_is_refused(self):
        for exponent in (-1e-9, float('nan')):
            with self.assertRaisesRegex(exceptions.InvalidModel,
                                        'expected a number >= 0'):
                one([1], [1], exponent)
