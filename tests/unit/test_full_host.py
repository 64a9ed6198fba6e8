# SPDX-License-Identifier: Apache-2.0
"""What instances that are busy together make of the limit of a host."""

import unittest

import numpy as np

from tests.fakes import full_host
from tests.fakes import traffic_patterns
from vswitch_aware_scheduler.traffic import instants

LIMITS = (.01, .003)
SEEDS = 8

#: Three standard errors: one comparison in about 700 fails by chance; the
#: seeds are fixed.
SIGMAS = 3.0


class PatternsTestCase(unittest.TestCase):

    def test_a_host_keeps_its_limit_whatever_its_instances_share(self):
        far_above, hosts = 0, 0
        for name, pattern in traffic_patterns.PATTERNS.items():
            outcomes = np.array([
                [(host.overload, host.wasted) for host in full_host.fill(
                    pattern, LIMITS, np.random.default_rng([seed, 7]),
                    judged_days=120)] for seed in range(SEEDS)])
            mean = outcomes.mean(axis=0)
            error = outcomes.std(axis=0, ddof=1) / SEEDS ** .5
            far_above += np.count_nonzero(outcomes[..., 0] > 3)
            hosts += outcomes[..., 0].size
            # A fortnight has 17 of the windows in which all are busy.
            most = 1.5 if pattern.share else 1.1
            with self.subTest(name):
                self.assertLessEqual(
                    (mean - SIGMAS * error)[:, 0].max(), most)
                self.assertGreaterEqual(
                    (mean + SIGMAS * error)[:, 0].min(), .5)
                self.assertLessEqual(mean[:, 1].max(), .05)
        self.assertLessEqual(far_above, .05 * hosts)

    def test_the_first_fortnight(self):
        # Before a day is known, the overlay decides alone, which is exact for
        # independent instances. Then the prediction goes to the truth.
        days = .3, .9, 1.1, 2, 4, 7, 14
        for name, begins in (('independent', 0), ('office hours', 2),
                             ('backup 5 %', 2)):
            pattern = traffic_patterns.PATTERNS[name]
            predicted = []
            for seed in range(6):
                rng = np.random.default_rng([seed, 9])
                rates = pattern.rates(rng, 60, pattern.levels(rng, 25))
                capacity = np.quantile(rates[:, 14 * 288:].sum(axis=0), .99)
                predicted.append([full_host.overload_probability(
                    full_host.learned(rates[:, :round(288 * day)]), capacity)
                    for day in days])
            typical = np.median(predicted, axis=0)
            with self.subTest(name):
                self.assertGreater(typical[begins:].min(), .01 / 3)
                self.assertLess(typical.max(), .01 * 3)

    def test_without_instants_nothing_in_common_is_seen(self):
        pattern = traffic_patterns.PATTERNS['backup 5 %']
        rng = np.random.default_rng(3)
        levels = pattern.levels(rng, 25)
        laws = full_host.learned(pattern.rates(rng, 14, levels))
        together, apart = (
            full_host.capacity_at(residents, .01) for residents in (
                laws, {number: law.independent()
                       for number, law in laws.items()}))
        future = pattern.rates(rng, 100, levels).sum(axis=0)
        self.assertLessEqual((future > together).mean(), .02)
        self.assertGreater((future > apart).mean(), .03)

    def test_bursts_are_seen_whenever_they_are(self):
        # Together for 4 of 40 minutes, at any offset, of any secret.
        time = 60 * np.arange(14 * 1440)
        for number in range(10):
            on = (time - 240 * number) % 2400 < 240
            laws = full_host.learned(
                np.tile(np.where(on, 300.0, 3.0), (12, 1)), 60,
                instants.Instants(str(number).encode()))
            predicted = full_host.overload_probability(laws, 3000.0)
            self.assertGreater(predicted, .1 / 1.5)
            self.assertLess(predicted, .1 * 1.5)


class PeriodsTestCase(unittest.TestCase):
    """Six instances, on for 40 % of the time in states of 30 s and 45 s."""

    CAPACITY = 1241e3

    def _rates(self, seed, days):
        """Return (6, n) kbit/s, sampled each 10 s."""
        rng = np.random.default_rng([seed, 3])
        time = 10.0 * np.arange(8640 * days)
        states = time.size // 3
        return np.array([np.where(np.searchsorted(
            rng.exponential(np.tile([45.0, 30.0], states)).cumsum(), time,
            side='right') % 2, 300e3, 3e3) for _ in range(6)])

    def _independent_sum(self, rates):
        """Return P(sum > capacity) of the samples, on a grid of 1 Mbit/s."""
        transform = np.prod([np.fft.rfft(np.bincount(
            np.rint(row / 1e3).astype(int)) / row.size, 2048)
            for row in rates], axis=0)
        return np.fft.irfft(transform, 2048)[int(self.CAPACITY / 1e3) + 1:
                                             ].sum()

    def _predictions(self, seeds, days, period):
        """Return (seeds, 2): the prediction, and the independent sum."""
        results = []
        for seed in range(seeds):
            rates = self._rates(seed, days).reshape(
                6, -1, period // 10).mean(axis=2)
            results.append((full_host.overload_probability(
                full_host.learned(rates, period), self.CAPACITY),
                self._independent_sum(rates)))
        return np.array(results)

    def test_a_day_is_enough_at_any_sampling_period(self):
        for period, least, most in ((10, .02, .065), (60, .003, .03),
                                    (300, 0, .005)):
            predicted = self._predictions(5, 1, period)[:, 0]
            self.assertGreaterEqual(predicted.min(), least)
            self.assertLessEqual(predicted.max(), most)

    def test_it_is_the_sum_of_the_observed_laws(self):
        # Five or six of six are on.
        exact = 6 * .4 ** 5 * .6 + .4 ** 6
        for period in (10, 60):
            predicted, of_samples = self._predictions(5, 14, period).mean(
                axis=0)
            self.assertLess(abs(predicted / of_samples - 1), .15)
            if period == 10:
                self.assertLess(abs(predicted / exact - 1), .15)
