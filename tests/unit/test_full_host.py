# SPDX-License-Identifier: Apache-2.0
"""What instances that are busy together make of the limit of a host."""

import unittest

import numpy as np

from tests.fakes import full_host
from tests.fakes import traffic_patterns

LIMITS = (.01, .003)
SEEDS = 3


class PatternsTestCase(unittest.TestCase):

    def outcomes(self, pattern, **more):
        """Return {limit: (mean overload over the limit, mean waste)}."""
        results = np.array([
            [(host.overload, host.wasted) for host in full_host.fill(
                pattern, LIMITS, np.random.default_rng([seed, 7]), **more)]
            for seed in range(SEEDS)]).mean(axis=0)
        return dict(zip(LIMITS, results.tolist()))

    def test_a_host_keeps_its_limit_whatever_its_instances_share(self):
        for name, pattern in traffic_patterns.PATTERNS.items():
            with self.subTest(name):
                for overload, _ in self.outcomes(pattern).values():
                    self.assertLessEqual(overload, 1.2)

    def test_independent_instances_lose_little(self):
        for _, wasted in self.outcomes(
                traffic_patterns.PATTERNS['independent']).values():
            self.assertLessEqual(wasted, .05)

    def test_without_any_class_nothing_in_common_is_seen(self):
        # What the slots are for: the same laws without their bits.
        pattern = traffic_patterns.PATTERNS['backup 5 %']
        rng = np.random.default_rng(3)
        levels = pattern.levels(rng, 25)
        laws = full_host.learned(pattern.rates(rng, 14, levels))
        alone = {number: type(law).from_arrays(law.probabilities, law.rates)
                 for number, law in laws.items()}
        together, apart = (full_host.capacity_at(residents, .01)
                           for residents in (laws, alone))
        future = pattern.rates(rng, 100, levels).sum(axis=0)
        self.assertLessEqual((future > together).mean(), .012)
        self.assertGreater((future > apart).mean(), .03)


class CapacityTestCase(unittest.TestCase):

    def test_the_capacity_is_where_the_prediction_is_the_limit(self):
        pattern = traffic_patterns.PATTERNS['three tenants']
        rng = np.random.default_rng(4)
        laws = full_host.learned(pattern.rates(
            rng, 14, pattern.levels(rng, 25)))
        for limit in LIMITS:
            capacity = full_host.capacity_at(laws, limit)
            self.assertLessEqual(
                full_host.overload_probability(laws, capacity), limit)
            self.assertGreater(
                full_host.overload_probability(laws, .999 * capacity), limit)
