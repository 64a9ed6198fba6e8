# SPDX-License-Identifier: Apache-2.0

import itertools
import math
import statistics
import unittest

import numpy as np

from vswitch_aware_scheduler.budgets import deviation
from vswitch_aware_scheduler import store

HOUR = 3600.0


def deviations_of(share, measured, blocks):
    return np.array([deviation.deviations(share, float(value), blocks)
                     for value in measured])


class DeviationsTestCase(unittest.TestCase):

    def test_no_overload_has_the_probability_of_the_closed_form(self):
        for share, blocks in ((.216, 30), (.01, 700), (.5, 2.5)):
            deviations = deviation.deviations(share, 0.0, blocks)
            self.assertLess(deviations, 0)
            self.assertAlmostEqual(
                (1 - share) ** blocks,
                statistics.NormalDist().cdf(deviations))

    def test_the_predicted_share_does_not_deviate(self):
        for share, blocks in itertools.product((0.0, .003, .5, 1.0), (0, 1e4)):
            self.assertEqual(0.0, deviation.deviations(share, share, blocks))
        self.assertEqual(0.0, deviation.deviations(.9, 0.0, 0))

    def test_an_impossible_result_is_finite(self):
        for share, measured in ((0.0, 1.0), (1.0, 0.0)):
            deviations = deviation.deviations(share, measured, 1e6)
            self.assertTrue(30 < abs(deviations) < 40)
            self.assertEqual(measured > share, deviations > 0)

    def test_false_alarms_are_rare_if_whole_hours_are_overloaded(self):
        # The samples of an hour are all equal: the exact binomial law.
        for share, blocks in itertools.product(
                (.0005, .003, .01, .1, .5, .97), (1, 5, 24, 168, 400)):
            overloaded = np.arange(blocks + 1)
            probabilities = [math.comb(blocks, k) * share ** k
                             * (1 - share) ** (blocks - k)
                             for k in overloaded.tolist()]
            alarms = np.abs(deviations_of(
                share, overloaded / blocks, blocks)) >= store.CONTRADICTED
            self.assertLessEqual(np.dot(probabilities, alarms), .0027,
                                 (share, blocks))

    def test_a_very_wrong_prediction_is_contradicted(self):
        # Minutes that are independent: in 99 of 100 cases.
        generator = np.random.default_rng(3)
        for share, true, days in ((.962, .032, .25), (.33, .0139, 1.5),
                                  (.01, .1, 7), (.216, 1e-4, 1.5),
                                  (8e-6, .05, 2)):
            minutes = int(1440 * days)
            measured = generator.binomial(minutes, true, 500) / minutes
            deviations = deviations_of(share, measured, 24 * days)
            self.assertGreater(np.mean(
                np.sign(true - share) * deviations >= store.CONTRADICTED),
                .99, (share, true))


class AfterTestCase(unittest.TestCase):

    def after(self, prediction, changed, measured=None, overloaded=None,
              begin=0.0):
        size = len(changed)
        return deviation.after(
            prediction, begin + 60.0 * np.arange(size), 60.0,
            np.array(changed, dtype=bool),
            np.ones(size, bool) if measured is None else np.array(measured),
            np.zeros(size, bool) if overloaded is None
            else np.array(overloaded))

    def test_measured_periods_count_from_the_prediction_on(self):
        result = self.after(
            store.Prediction(.25, 60.0), [0, 0, 0, 0],
            [True, True, False, True], [True, True, True, False])
        self.assertEqual((.25, 60.0), (result.share, result.since))
        self.assertEqual((120.0, 30.0, 60.0), (
            result.seconds, result.expected_seconds, result.overload_seconds))
        self.assertEqual(
            deviation.deviations(.25, .5, 120 / HOUR), result.deviations)
        self.assertEqual(120 / HOUR, result.blocks)

    def test_other_instances_end_a_prediction(self):
        result = self.after(store.Prediction(.25, 0.0), [0, 0, 1, 0])
        self.assertEqual((None, 120.0), (result.share, result.seconds))
        self.assertEqual(result, self.after(result, [0, 0]))

    def test_a_week_halves_the_weight(self):
        minutes = 7 * 1440
        result = self.after(store.Prediction(.5, 0.0, 4e5, 3e5, 2e5),
                            [0] * minutes, [False] * minutes)
        self.assertEqual((2e5, 1.5e5, 1e5), (
            result.seconds, result.expected_seconds, result.overload_seconds))
