# SPDX-License-Identifier: Apache-2.0

import unittest

import numpy as np

from vswitch_aware_scheduler.admission import joint
from vswitch_aware_scheduler.traffic import instants

#: Cells up to the capacity, and of a table.
CAPACITY, CELLS = 40, 64

N = instants.INSTANTS
EQUAL = np.ones((1, N))


def binomial(count, share, rate):
    """Return the law of a sum in cells: (n,) probabilities of 0, 1, ..."""
    law = np.ones(1)
    for _ in range(count):
        law = np.append(law * (1 - share), np.zeros(rate)) + np.append(
            np.zeros(rate), law * share)
    return law


def table_of(law):
    """Return the (1, CELLS) look-up table of a law of whole cells."""
    values = np.arange(law.size)
    return np.array([[law[values > cell].sum() + 1j * (
        law @ np.maximum(values - cell, 0)) for cell in range(CELLS)]])


def adapted(law, sums, weights=EQUAL, on_grid=True, capacity=CAPACITY):
    """Return the (s, CELLS) tables of a law adapted to (s, 504) sums."""
    sums = np.asarray(sums, dtype=float).reshape(-1, N)
    tables = np.repeat(table_of(law), len(sums), axis=0)
    joint.adapt(tables, sums, weights * np.ones_like(sums), np.repeat(
        joint.LADDER[None] * capacity, len(sums), axis=0),
        np.full(len(sums), law.size - 1.0), on_grid)
    return tables


def at_capacity(law, sums, weights=EQUAL, capacity=CAPACITY):
    """Return (s,) what joint.at_capacity says of the same: P, and trust."""
    sums = np.asarray(sums, dtype='<f4').reshape(-1, N)
    at = np.floor(joint.LADDER * capacity).astype(int)
    return joint.at_capacity(
        sums / capacity, weights.astype('<f4') * np.ones_like(sums),
        np.repeat(table_of(law).real.T[at], len(sums), axis=1))


def both(*arguments):
    """Return P(sum > CAPACITY) of one host, in both ways."""
    return (adapted(*arguments)[0, CAPACITY].real,
            at_capacity(*arguments)[0][0])


class TestEffectiveNumber(unittest.TestCase):

    def test_it_is_the_number_of_equal_weights_that_are_not_0(self):
        for count in (0, 1, 36, N):
            for weight in (1e-9, .5, 1.0):
                weights = weight * (np.arange(N) < count)
                self.assertAlmostEqual(
                    count, float(joint.effective_number(weights)))
        # Unequal weights: (3 + 1) ** 2 / (3 ** 2 + 1).
        self.assertAlmostEqual(
            1.6, float(joint.effective_number(np.array([3.0, 1.0, 0.0]))))


class TestDependence(unittest.TestCase):
    """Two instances that send 30 cells for half of the time, or nothing."""

    LAW = binomial(2, .5, 30)

    def sums(self, together):
        """Return sums of two rows, of which so many are on together."""
        alone = N - 2 * together
        return np.repeat([60.0, 30.0, 0.0], [together, alone, together])

    def test_what_is_within_chance_changes_nothing(self):
        # 126 of 504 are expected, with a standard deviation of 11.
        for together in (126, 126 - 20, 126 + 20):
            sums = self.sums(together)
            np.testing.assert_array_equal(table_of(self.LAW),
                                          adapted(self.LAW, sums))
            self.assertEqual([[.25], [0]], np.array(
                at_capacity(self.LAW, sums)).tolist())

    def test_beyond_chance_the_sums_decide(self):
        for together in (252, 200, 60):
            for probability in both(self.LAW, self.sums(together)):
                self.assertGreaterEqual(probability, together / (N + 1))
                self.assertLessEqual(probability, (together + 1) / (N + 1))

    def test_between_both_the_probability_rises(self):
        probabilities = np.array([both(self.LAW, self.sums(together))
                                  for together in range(126, 200)])
        self.assertGreaterEqual(np.diff(probabilities, axis=0).min(), 0)

    def test_instances_that_are_never_on_together(self):
        # 504 sums do not show that something is rarer than 1 / 505.
        for law, sums in ((self.LAW, self.sums(0)),
                          (binomial(2, .12, 30), [30] * 120 + [0] * 384)):
            for probability in both(law, sums):
                self.assertTrue(0 < probability <= 1 / (N + 1), probability)

    def test_instants_of_weight_0_say_nothing(self):
        sums = self.sums(252)
        np.testing.assert_array_equal(
            table_of(self.LAW), adapted(self.LAW, sums, 0 * EQUAL))
        self.assertEqual([[.25], [0]], np.array(
            at_capacity(self.LAW, sums, 0 * EQUAL)).tolist())
        # Half of the instants, in all of which both are on.
        for probability in both(self.LAW, sums, .7 * (sums == 60)):
            self.assertTrue(252 / 253 <= probability <= 1)

    def test_how_far_sums_count_has_a_lower_bound(self):
        ladder = np.where(joint.LADDER * CAPACITY < 30, .75, .25)[:, None]
        sums = self.sums(140)[None] / CAPACITY
        probabilities = [float(joint.at_capacity(
            sums, EQUAL, ladder, np.array([least]))[0][0])
            for least in (0.0, .5, 1.0)]
        self.assertEqual(.25, probabilities[0])
        self.assertAlmostEqual(.25, probabilities[1] ** 2 / probabilities[2])
        self.assertAlmostEqual(140 / N, probabilities[2], delta=1 / N)


class TestTail(unittest.TestCase):

    def test_of_independent_terms_the_mean_is_exact(self):
        # Within 15 %, by simulation of 600 hosts; one standard error is at
        # most 3.5 % of the exact probability.
        rng = np.random.default_rng(31)
        for count, share, rate, most in (
                (25, .1, 5, .02), (25, .1, 5, .003), (25, .4, 3, .01),
                (10, .05, 10, .0011), (60, .02, 7, .0013), (6, .4, 10, .01)):
            law = binomial(count, share, rate)
            exact = table_of(law)[0].real
            capacity = int(np.argmax(exact <= most))
            sums = rate * rng.binomial(count, share, (600, N))
            for probabilities in (
                    adapted(law, sums, capacity=capacity)[:, capacity].real,
                    at_capacity(law, sums, capacity=capacity)[0]):
                of_exact = probabilities / exact[capacity]
                self.assertAlmostEqual(1, of_exact.mean(), delta=.15)
                self.assertLess(of_exact.std() / 600 ** .5, .035)
                unchanged = (np.abs(of_exact - 1) < 1e-12).mean()
                # Seven thresholds at two standard deviations.
                self.assertGreater(unchanged, .75)

    def test_above_the_largest_sum_it_has_the_shape_of_the_overlay(self):
        # Exponential with a mean of 4 cells for the overlay, of 7 for the
        # sums. The largest of 504 sums varies, which raises the mean of what
        # is ten times rarer.
        rng = np.random.default_rng(32)
        cells = np.arange(CELLS)
        overlay = np.exp(-cells / 4.0)
        tables = np.repeat((overlay * (1 + 4j))[None], 200, axis=0)
        sums = rng.exponential(7.0, (200, N))
        trust = joint.adapt(tables, sums, np.ones_like(sums), np.repeat(
            joint.LADDER[None] * 60, 200, axis=0), np.full(200, 1e9), False)
        self.assertGreater(trust.min(), .99)
        for cell, most in ((10, 1.1), (30, 1.1), (43, 2), (60, 5)):
            ratio = tables[:, cell].real.mean() / np.exp(-cell / 7.0)
            self.assertTrue(.9 < ratio < most, (cell, ratio))

    def test_it_falls_and_its_integral_is_the_excess(self):
        rng = np.random.default_rng(33)
        for seed in range(40):
            count = int(rng.integers(1, 12))
            law = binomial(count, rng.uniform(.02, .5), int(
                rng.integers(1, 9)))
            sums = rng.choice(law.size, N, p=law) * rng.integers(0, 4, N)
            weights = rng.integers(0, 3, N) / 2
            for on_grid in (True, False):
                [table] = adapted(law, sums, weights, on_grid)
                self.assertLessEqual(np.diff(table.real).max(), 1e-15)
                self.assertTrue(0 <= table.real[-1] <= table.real[0] <= 1)
                if not np.array_equal(table, table_of(law)[0]):
                    steps = table.real[:-1] if on_grid else (
                        table.real[:-1] + table.real[1:]) / 2
                    np.testing.assert_allclose(-np.diff(table.imag), steps,
                                               atol=1e-12)

    def test_it_falls_where_the_largest_sum_has_a_small_weight(self):
        rng = np.random.default_rng(35)
        cells = np.arange(CELLS)
        tables = np.repeat((np.exp(-cells / 3.0) * (1 + 3j))[None], 50, axis=0)
        joint.adapt(tables, rng.exponential(6.0, (50, N)), rng.choice(
            [.02, 1.0], (50, N)), np.repeat(joint.LADDER[None] * 60, 50, 0),
            np.full(50, 1e9), False)
        self.assertLessEqual(np.diff(tables.real, axis=1).max(), 1e-15)

    def test_nothing_is_above_the_sum_of_all_peaks(self):
        # Ten of 4 cells, all on at ten instants: exactly the capacity.
        law = binomial(10, 10 / N, 4)
        [table] = adapted(law, np.repeat([40.0, 0.0], [10, 494]))
        self.assertAlmostEqual(10 / N, table[39].real, delta=1 / N)
        self.assertLess(table[40].real, 1e-100)

    def test_a_sum_that_is_nearly_the_capacity_is_not_forgotten(self):
        # Twenty that are on at one instant, 95 % of the capacity; alone each
        # is on for a thousandth of the time.
        probability, trust = at_capacity(
            binomial(21, .001, 2), [38.0] + [0.0] * 503)
        self.assertEqual(1, trust[0])
        self.assertTrue(3e-4 < probability[0] <= 1 / (N + 1), probability)

    def test_absurd_numbers_give_probabilities(self):
        rng = np.random.default_rng(34)
        law = binomial(9, .1, 8)
        for sums in (np.zeros(N), np.full(N, 1e30), np.full(N, 1e-300),
                     1e30 * (rng.random(N) < .1),
                     np.append(1e30, np.zeros(N - 1))):
            for weights in (EQUAL, 1e-30 * EQUAL, 0 * EQUAL,
                            np.append(1.0, np.zeros(N - 1))):
                with np.errstate(all='raise', under='ignore'):
                    table = adapted(law, sums, weights)
                    probability, trust = at_capacity(law, sums, weights)
                self.assertTrue(np.isfinite(table).all())
                self.assertTrue(0 <= table.real.min() <= 1)
                self.assertTrue(0 <= probability[0] <= 1, probability)
                self.assertTrue(0 <= trust[0] <= 1)
