# SPDX-License-Identifier: Apache-2.0

import dataclasses
import itertools
import math
import statistics
import unittest

import numpy as np

from tests.unit.lab.evaluate import scripts
from tests.unit.lab.evaluate import traces
from vswitch_aware_scheduler.lab.evaluate import methods
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import superposition

BINS = 100

COUNTS = methods.CountsEstimator(estimate.fit_model, traces.DEFAULT_LAW)


def on_off(on, rate, bins=BINS, off=0.0):
    """Return a row that is ``on`` times at a rate, spread over the bins."""
    row = np.full(bins, float(off))
    row[np.linspace(0, bins - 1, on).round().astype(int)] = rate
    return row


def by_chance(count, bins=4000):
    """Return rows that are on at 10 kbit/s for a tenth of the bins."""
    generator = np.random.default_rng(3)
    return [generator.permutation(on_off(bins // 10, 10.0, bins))
            for _ in range(count)]


def above(most, count, share):
    """Return how likely more than so many of ``count`` are on."""
    return 1 - sum(math.comb(count, k) * share ** k * (1 - share) ** (
        count - k) for k in range(most + 1))


class MethodTestCase(unittest.TestCase):

    def setUp(self):
        self.methods = {
            method.name: method for method in methods.make_methods(
                traces.SETTINGS)}

    def pack(self, name, rows, capacity, limit=0.01, known=None):
        """Return the FirstFit after all rows were placed in order."""
        packer = self.methods[name].start(capacity, limit)
        packer.learn(known or traces.known_of(rows))
        for row in range(len(rows)):
            packer.place(row)
        return packer

    def sizes(self, *arguments, **keywords):
        return [len(rows) for rows
                in self.pack(*arguments, **keywords).residents]


class NamesTestCase(MethodTestCase):

    def test_what_is_predicted_is_a_probability_after_every_refit(self):
        generator = np.random.default_rng(2)
        rows = generator.lognormal(3, 1.5, (12, BINS))
        rows[3] = 0.0
        rows[4] = np.nan
        for name in self.methods:
            with self.subTest(name):
                packer = self.pack(name, rows, 1000.0, 0.05)
                probabilities = packer.predicted()
                self.assertEqual((len(packer.residents),), probabilities.shape)
                self.assertTrue(
                    ((probabilities >= 0) & (probabilities <= 1)).all())
                packer.learn(traces.known_of(rows))
                np.testing.assert_allclose(probabilities, packer.predicted(),
                                           rtol=1e-6, atol=1e-12)


class OursTestCase(MethodTestCase):

    def test_on_off_rates_in_round_numbers_give_the_binomial(self):
        # Capacity for 2 of n at once, each on 10 % of the time.
        packer = self.pack('onoff', [on_off(10, 10.0)] * 19, 20.0)
        n = len(packer.residents[0])
        self.assertLessEqual(above(2, n, .1), 0.01)
        self.assertGreater(above(2, n + 1, .1), 0.01)
        self.assertAlmostEqual(above(2, n, .1), packer.predicted()[0],
                               places=12)

    def test_independent_instances_give_the_binomial(self):
        # As above; what they do at the instants is chance.
        packer = self.pack('ours', by_chance(19), 25.0)
        n = len(packer.residents[0])
        self.assertLessEqual(above(2, n, .1), 0.01)
        self.assertGreater(above(2, n + 2, .1), 0.01)
        self.assertGreaterEqual(packer.predicted()[0] * (1 + 1e-6),
                                above(2, n, .1))

    def test_instances_that_burst_together_are_kept_apart(self):
        rows = [on_off(400, 10.0, 4000)] * 20
        self.assertEqual([2] * 10, self.sizes('ours', rows, 25.0))
        together = self.pack('ours', rows[:4], 25.0, 0.15)
        self.assertEqual(1, len(together.residents))
        # As often as the instants are at which all are on: a tenth, by four
        # standard deviations of 500.
        self.assertAlmostEqual(.1, together.predicted()[0],
                               delta=4 * math.sqrt(.09 / 500))

    def test_the_method_ours_decides_as_the_exact_overlay_does(self):
        generator = np.random.default_rng(7)
        rows = generator.lognormal(2, 1, (30, 400))
        known = traces.known_of(rows)
        models = [estimate.fit_model(counts) for counts in known.counts]
        packer = self.pack('ours', rows, 400.0, 0.02, known)
        self.assertGreater(len(packer.residents), 1)
        for rows, predicted in zip(packer.residents, packer.predicted()):
            exact = superposition.Superposition(
                [models[row] for row in rows], 400.0,
                'bandwidth').overload_probability()
            self.assertLessEqual(predicted, 0.02 * (1 + 1e-9))
            # The table has 256 cells.
            self.assertGreaterEqual(predicted, .98 * exact)

    def test_the_limit_and_the_table_of_an_estimator_are_used(self):
        class Strict(methods.CountsEstimator):
            def limit(self, overload_probability):
                return overload_probability / 100

        self.methods['strict'] = methods.Admission('strict', Strict(
            estimate.fit_model, traces.DEFAULT_LAW))
        rows = by_chance(19)
        known = traces.known_of(rows)
        self.assertLess(self.sizes('strict', rows, 25.0, known=known)[0],
                        self.sizes('ours', rows, 25.0, known=known)[0])


class MarginTestCase(MethodTestCase):

    def test_the_margin_is_for_every_host(self):
        # On in a tenth of the time: two fit at .01, three at .028.
        for margin, hosts in ((1.0, 2), (.25, 1)):
            self.methods['margin'] = methods.make_placing(dataclasses.replace(
                traces.SETTINGS, prediction_margin=margin))
            self.assertEqual(hosts, len(self.sizes(
                'margin', by_chance(6)[:3], 15.0)))


class PriorTestCase(MethodTestCase):

    def test_a_method_gives_the_unknown_the_prior_of_their_flavor(self):
        rows = [on_off(10, 100.0)] * 30 + [on_off(50, 1000.0)] * 30
        rows = np.vstack([rows, np.full((3, BINS), np.nan)])
        known = traces.known_of(rows)
        groups = {str(row): ('small' if row < 30 or row == 60 else 'large',
                             None) for row in range(62)}
        estimator = methods.PriorEstimator(
            estimate.fit_model, traces.DEFAULT_LAW, groups=groups)
        laws = estimator.fit(known, 1e6)
        small, large, fleet = laws[60:]

        def mean(law):
            return law.mean[:2].sum()

        of_small, of_large = mean(laws[0]), mean(laws[30])
        middle = (of_small + of_large) / 2
        # Flavors are all there is between instances: no shrinkage to speak
        # of, for the least constant is 1.
        self.assertAlmostEqual((30 * of_small + middle) / 31, mean(small))
        self.assertAlmostEqual((30 * of_large + middle) / 31, mean(large))
        self.assertAlmostEqual(middle, mean(fleet))
        limits = [((1.0, 1.0, 0.0), None, 400.0)]
        cut = estimator.fit(known, 400.0)[61]
        self.assertNotEqual(large, cut)
        self.assertEqual(prior.cut(large, limits, limits), cut)

    def test_the_default_is_for_all_of_which_nothing_is_learned(self):
        rows = np.vstack([[on_off(10, 100.0)] * 30, np.full((1, BINS),
                                                            np.nan)])
        known = traces.known_of(rows)
        # It learns nothing, or has too few to learn from.
        for options in ({'learns': False}, {'min_samples': 101}):
            estimator = methods.PriorEstimator(
                estimate.fit_model, traces.DEFAULT_LAW, **options)
            self.assertEqual(traces.DEFAULT_LAW, estimator.fit(known, 1e6)[-1])

    def test_instances_above_the_capacity_are_no_peers(self):
        rows = np.vstack([on_off(10, 100.0), on_off(90, 1e6),
                          np.full(BINS, np.nan)])
        laws = COUNTS.fit(traces.known_of(rows), 1000.0)
        self.assertAlmostEqual(10.0, laws[2].mean[:2].sum())

    def test_with_no_peer_the_default_is_cut_at_the_capacity(self):
        known = traces.known_of([[np.nan, 1.0]])
        self.assertAlmostEqual(
            5.0, COUNTS.fit(known, 50.0)[0].mean[:2].sum())
        self.assertEqual([traces.DEFAULT_LAW], COUNTS.fit(known, 500.0))

    def test_figures_of_the_unknown_are_those_of_a_random_peer(self):
        rows = np.vstack([on_off(50, 10.0), on_off(50, 30.0),
                          np.full(BINS, np.nan)])
        packer = self.pack('sbp', rows, 1000.0)
        # Means 5 and 15, variances 25 and 225: total variance.
        np.testing.assert_allclose([10, 125 + 25], packer._figures[2])
        packer = self.pack('chernoff', rows, 1000.0)
        mixed = np.logaddexp(*packer._figures[:2]) - math.log(2)
        np.testing.assert_allclose(mixed, packer._figures[2])


class PublishedTestCase(MethodTestCase):

    def test_each_method_fills_hosts_by_its_rule(self):
        silent = [on_off(50, 10.0), np.zeros(BINS), np.zeros(BINS)]
        halves = [on_off(50, 100.0)] * 5
        # Mean 50 and variance 2500 each; z of 2.5 % is 1.96.
        quantile = 200 + 100 * statistics.NormalDist().inv_cdf(.975)
        spikes = [on_off(50, 100.0), on_off(50, 10.0)]
        # P(more than 2 of n are on) <= 5 % holds up to n = 8.
        self.assertLess(above(2, 8, .1), .05)
        self.assertGreater(above(2, 9, .1), .05)
        shares = [.1, .3, .5, .2]
        more_than_two = sum(
            math.prod(p if on else 1 - p for p, on in zip(shares, state))
            for state in itertools.product([0, 1], repeat=4)
            if sum(state) > 2)
        for name, rule, rows, capacity, limit, sizes, predicted in (
                ('ours', 'silent instances cost nothing', silent, 10.0, .01,
                 [3], None),
                ('peak', 'peaks add up',
                 [on_off(1, rate) for rate in (60, 30, 10, 1)], 100.0, .01,
                 [3, 1], None),
                ('average', '3 or 4 of 4 are on', halves, 200.0, .01, [4, 1],
                 5 / 16),
                ('p99', 'the last percent is free',
                 [on_off(1, 1000.0, off=10.0)] * 11, 100.0, .01, [10, 1],
                 1 - .99 ** 10),
                ('sbp', 'the normal quantile of the sum', halves,
                 quantile + 1e-6, .025, [4, 1], .025),
                ('sbp', 'and not less', halves, quantile - 1e-3, .025,
                 [3, 2], None),
                ('queue', 'two blocks of 100 for all',
                 [on_off(10, 110.0, off=10.0)] * 12, 8 * 10.0 + 2 * 100.0,
                 .05, [8, 4], None),
                *(('queue', 'blocks are as large as the largest spike', order,
                   capacity, .01, sizes, None)
                  for order in (spikes, spikes[::-1])
                  for capacity, sizes in ((150.0, [1, 1]), (200.0, [2]))),
                ('queue', 'different chains count exactly',
                 [on_off(int(100 * share), 10.0) for share in shares], 25.0,
                 .5, [4], more_than_two)):
            with self.subTest(name, rule=rule):
                packer = self.pack(name, rows, capacity, limit)
                self.assertEqual(sizes, list(map(len, packer.residents)))
                if predicted is not None:
                    self.assertAlmostEqual(predicted, packer.predicted()[0], 6)

    def test_n_sigma_is_mean_and_five_deviations_of_the_hosts_sum(self):
        generator = np.random.default_rng(6)
        rows = generator.exponential(10.0, (12, 300))
        rows[1] += rows[0]
        known = traces.known_of(rows)
        packer = self.pack('nsigma', rows, 300.0, known=known)

        def fits(residents):
            total = rows[residents].sum(axis=0)
            return total.mean() + 5 * total.std() <= 300.0

        self.assertEqual(scripts.first_fit(12, fits), packer.residents)
        self.assertGreater(len(packer.residents), 1)

    def test_chernoff_is_the_closed_form_of_a_binomial(self):
        # n chains on 10 % of the time: exp(-n KL(k/n, p)) bounds P(>= k).
        def bound(n, a):
            return math.exp(-n * (a * math.log(a / .1)
                                  + (1 - a) * math.log((1 - a) / .9)))
        packer = self.pack('chernoff', [on_off(10, 10.0)] * 40, 100.0, 0.01)
        n = len(packer.residents[0])
        self.assertAlmostEqual(bound(n, 10 / n), packer.predicted()[0],
                               delta=0.02 * bound(n, 10 / n))
        self.assertLessEqual(bound(n, 10 / n), 0.01)
        self.assertGreater(bound(n + 1, 10 / (n + 1)), 0.01 * 0.99)

    def test_chernoff_is_never_below_the_exact_probability(self):
        generator = np.random.default_rng(9)
        rows = generator.choice([0.0, 10.0, 40.0], p=[.8, .15, .05],
                                size=(12, 200))
        known = traces.known_of(rows)
        models = [estimate.fit_model(counts) for counts in known.counts]
        packer = self.pack('chernoff', rows, 120.0, 0.05, known)
        for members, predicted in zip(packer.residents, packer.predicted()):
            exact = superposition.Superposition(
                [models[row] for row in members], 120.0,
                'bandwidth').overload_probability()
            self.assertGreaterEqual(predicted, exact * (1 - 1e-9))
