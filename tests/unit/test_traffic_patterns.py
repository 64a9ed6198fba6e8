# SPDX-License-Identifier: Apache-2.0

import math
import unittest

import numpy as np

from tests.fakes import traffic_patterns

#: Two-sided normal quantile: one comparison in about 16,000 fails by chance;
#: the seeds are fixed.
SIGMAS = 4.0

DAY = 288


class PatternsTestCase(unittest.TestCase):

    def _on(self, name, days, instances, seed):
        """Return (instances, periods) bool: who is on when."""
        rng = np.random.default_rng(seed)
        pattern = traffic_patterns.PATTERNS[name]
        levels = pattern.levels(rng, instances)
        rates = pattern.rates(rng, days, levels)
        # On and off are a factor of 50 apart, the samples of one state
        # vary by .3 in the logarithm: six times that on either side.
        return rates > levels[:, None] * math.sqrt(.02)

    def assertShare(self, wanted, on):
        # A source decides again after 4 samples on average, so that samples
        # count for about 1 in 7: (1 + 3/4) / (1 - 3/4).
        error = math.sqrt(7 * wanted * (1 - wanted) / on.size)
        self.assertLessEqual(abs(on.mean() - wanted), SIGMAS * error + 1e-12)

    def test_instances_are_on_as_often_as_their_group_says(self):
        for number, (name, pattern) in enumerate(
                traffic_patterns.PATTERNS.items()):
            if not pattern.hours:
                continue
            on = self._on(name, 20, 12, 50 + number)
            hour = np.arange(on.shape[1]) % DAY / 12
            for group, (begin, end) in enumerate(pattern.hours):
                mine = on[group::len(pattern.hours)]
                busy = (hour >= begin) & (hour < end)
                with self.subTest(name, group=group):
                    self.assertShare(pattern.busy, mine[:, busy])
                    self.assertShare(pattern.calm, mine[:, ~busy])

    def test_windows_at_random_times_take_the_share_of_time_they_should(self):
        pattern = traffic_patterns.PATTERNS['busy 10 %']
        days = 2000
        [busy] = pattern.busy_periods(np.random.default_rng(60), days * DAY)
        windows = np.count_nonzero(np.diff(busy.astype(int)) == 1)
        length = pattern.window_periods
        # A renewal process: windows and pauses have geometric lengths.
        pause = length * (1 - pattern.share) / pattern.share
        expected = days * DAY / (length + pause)
        self.assertLess(abs(windows / expected - 1),
                        SIGMAS / math.sqrt(expected))
        self.assertLess(abs(busy.mean() / pattern.share - 1),
                        SIGMAS * math.sqrt(2 / expected))

    def test_what_nobody_shares_is_independent(self):
        on = self._on('independent', 200, 4, 61)
        self.assertShare(.15, on)
        correlation = np.corrcoef(on)[np.triu_indices(4, 1)]
        self.assertLess(abs(correlation).max(),
                        SIGMAS * math.sqrt(7 / on.shape[1]))

    def test_a_sample_depends_on_the_one_before_by_three_quarters(self):
        on = self._on('independent', 200, 4, 62).astype(float)
        for row in on:
            self.assertLess(
                abs(np.corrcoef(row[:-1], row[1:])[0, 1] - .75),
                SIGMAS * math.sqrt(7 / row.size))

    def test_the_same_generator_makes_the_same_rates(self):
        pattern = traffic_patterns.PATTERNS['three tenants']
        rates, same_rates = (pattern.rates(np.random.default_rng(63), 2,
                                           np.array([1000.0, 2000.0]))
                             for _ in range(2))
        np.testing.assert_array_equal(rates, same_rates)
