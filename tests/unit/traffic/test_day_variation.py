# SPDX-License-Identifier: Apache-2.0
"""Changes of the level between days."""

import unittest

import numpy as np

from vswitch_aware_scheduler.traffic import day_variation
from vswitch_aware_scheduler.traffic import slots

DAYS, A_DAY = slots.DAYS, slots.SAMPLED_A_DAY


def on_off(rng, sources, share=0.15, stay=0.9):
    """Return (sources, 504) of a two-state chain, 1 while on."""
    state = rng.random(sources) < share
    states = []
    for _ in range(slots.SLOTS):
        drawn = rng.random(sources) < share
        state = np.where(rng.random(sources) < stay, state, drawn)
        states.append(state)
    return np.array(states).T.astype(float)


class VariationsTestCase(unittest.TestCase):

    def test_known_levels_of_days_give_their_standard_deviation(self):
        levels = np.linspace(.5, 1.5, DAYS)
        rates = 1000 * np.repeat(levels, A_DAY)[None]
        np.testing.assert_allclose(
            day_variation.variations(rates), levels.std(ddof=1), rtol=1e-12)

    def test_the_unit_of_the_rates_has_no_effect(self):
        rates = np.random.default_rng(1).lognormal(sigma=2, size=(50, 504))
        rates *= np.repeat(np.arange(1, DAYS + 1), A_DAY)
        found = day_variation.variations(rates)
        self.assertTrue(found.any())
        np.testing.assert_allclose(
            day_variation.variations(7 * rates), found, rtol=1e-9)

    def test_a_constant_rate_and_silence_do_not_vary(self):
        rates = np.array([np.full(504, 3.0), np.zeros(504)])
        self.assertEqual(day_variation.variations(rates).tolist(), [0.0, 0.0])

    def test_the_same_hours_each_day_do_not_vary(self):
        hours = np.tile(np.arange(A_DAY) < 12, DAYS)[None] * 1000.0
        self.assertEqual(day_variation.variations(hours).tolist(), [0.0])

    def test_stationary_sources_hardly_vary(self):
        # The variance of 14 daily means has a chi-square distribution with 13
        # degrees of freedom. Its probability beyond three standard deviations
        # above its mean is .8 %.
        rates = on_off(np.random.default_rng(2), 2000, stay=0.0)
        found = day_variation.variations(rates)
        self.assertLess((found > 0).mean(), .02)
        self.assertLess(found.mean(), .01)

    def test_correlation_is_allowed_for(self):
        # A chain that keeps its state with probability .5 has daily means with
        # 3 times the variance of independent samples.
        rates = on_off(np.random.default_rng(3), 2000, stay=0.5)
        found = day_variation.variations(rates)
        self.assertLess((found > 0).mean(), .15)
        self.assertLess(found.mean(), .06)

    def test_a_change_is_found_behind_the_noise(self):
        rng = np.random.default_rng(4)
        levels = rng.permuted(np.tile(np.repeat([.5, 1.5], DAYS // 2),
                                      (500, 1)), axis=1)
        rates = np.repeat(levels, A_DAY, axis=1) * rng.exponential(
            size=(500, 504))
        # The deviation of the levels is .52, the noise of a day .17.
        self.assertAlmostEqual(
            np.median(day_variation.variations(rates)), .52, delta=.02)

    def test_the_result_is_bounded(self):
        rates = np.zeros((1, 504))
        rates[0, :A_DAY] = 1.0
        self.assertEqual(day_variation.variations(rates).tolist(),
                         [day_variation.MOST_VARIATION])

    def test_a_short_history_shows_nothing(self):
        rates = np.full((2, 504), np.nan)
        levels = np.repeat([1.0, 2.0, 3.0], A_DAY)
        rates[0, -2 * A_DAY:] = levels[:2 * A_DAY]
        rates[1, -3 * A_DAY:] = levels
        np.testing.assert_allclose(
            day_variation.variations(rates), [0.0, .5], rtol=1e-12)

    def test_days_with_few_samples_do_not_count(self):
        rates = np.repeat(np.arange(1.0, DAYS + 1), A_DAY)[None]
        more = np.insert(rates.reshape(DAYS, A_DAY)[1:].copy(), 0, np.nan,
                         axis=0)
        few = more.copy()
        few[0, :day_variation.LEAST_SAMPLES - 1] = 1e6
        np.testing.assert_allclose(
            day_variation.variations(few.reshape(1, 504)),
            day_variation.variations(more.reshape(1, 504)), rtol=1e-12)
        self.assertTrue(day_variation.variations(more.reshape(1, 504)).all())

    def test_missing_samples_and_arguments_are_left_alone(self):
        rng = np.random.default_rng(5)
        rates = np.where(rng.random((20, 504)) < .5, np.nan,
                         rng.lognormal(size=(20, 504)))
        before = rates.copy()
        found = day_variation.variations(rates)
        self.assertTrue(((found >= 0) & np.isfinite(found)).all())
        np.testing.assert_array_equal(rates, before)
        nothing = day_variation.variations(np.full((3, 504), np.nan))
        self.assertEqual(nothing.tolist(), [0.0] * 3)
