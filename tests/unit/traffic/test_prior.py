# SPDX-License-Identifier: Apache-2.0

import math
import unittest

import numpy as np

from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior


def constant(kbps):
    return model.TrafficModel.constant(egress_kbps=kbps).law


def on_off(kbps, share):
    return model.TrafficModel.on_off(
        kbps, kbps / 2, kbps / 100, on_seconds=share,
        off_seconds=1 - share).law


def random_law(generator):
    """Return a law of 1 to 5 states that differs by regime."""
    n = generator.integers(1, 6)
    return model.RateLaw.from_arrays(
        generator.dirichlet(np.ones(n), 2), generator.lognormal(3, 2, (n, 3)))


class PoolTestCase(unittest.TestCase):

    def test_it_is_the_law_of_one_picked_at_random(self):
        generator = np.random.default_rng(1)
        laws = [random_law(generator) for _ in range(30)]
        law = prior.Pool.of_laws(laws).law
        np.testing.assert_allclose(
            np.mean([one.mean for one in laws], axis=0), law.mean)
        np.testing.assert_allclose(1.0, law.by_regime.sum(axis=1))
        # Rates are gathered in bins that are 26 % wide; between these, the
        # tail is the mean of the tails, in each regime.
        for edge in 10.0 ** np.arange(0, 5, 0.1):
            def tail(one):
                above = one.rates[:, :2].sum(axis=1) >= edge * (1 - 1e-9)
                return one.by_regime[:, above].sum(axis=1)

            np.testing.assert_allclose(
                np.mean([tail(one) for one in laws], axis=0), tail(law),
                atol=1e-12)

    def test_a_mixture_has_the_mean_of_both(self):
        generator = np.random.default_rng(2)
        one, other = (prior.Pool.of_laws([random_law(generator)
                                          for _ in range(n)])
                      for n in (3, 9))
        shrunk = one.shrunk(other, 6.0)
        self.assertEqual(3, shrunk.members)
        np.testing.assert_allclose(
            one.law.mean / 3 + other.law.mean * 2 / 3, shrunk.law.mean)
        np.testing.assert_allclose(1.0, shrunk.law.by_regime.sum(axis=1))
        self.assertEqual(one.law, one.shrunk(other, 0.0).law)
        np.testing.assert_allclose(
            other.law.mean, one.shrunk(other, math.inf).law.mean)


class ConstantTestCase(unittest.TestCase):

    def _drawn(self, within, between, groups, size, seed, parents=1):
        """Return (values, groups, parents) of groups of one size."""
        generator = np.random.default_rng(seed)
        of_parent = generator.normal(0, 10, parents)
        parent = np.repeat(np.arange(groups) % parents, size)
        means = generator.normal(0, math.sqrt(between), groups)
        number = np.repeat(np.arange(groups), size)
        values = (of_parent[parent] + means[number] + generator.normal(
            0, math.sqrt(within), number.size))
        return values, number, parent

    def test_it_is_the_ratio_of_the_variances(self):
        # With 2000 groups the estimated variance between them is off by 3.2 %
        # (one standard deviation), the one within by 1 %: 14 % are four of
        # both together.
        for parents in (1, 20):
            found = prior.credibility_constant(
                *self._drawn(4.0, 1.0, 2000, 50, 3, parents))
            self.assertAlmostEqual(4.0, found, delta=0.14 * 4)

    def test_it_is_that_of_buhlmann_and_straub_worked_by_hand(self):
        # Groups (0, 2), (10, 12), (20): means 1, 11, 20 of 2, 2, 1, of all
        # 8.8; within 2 + 2 over 5 - 3. Around the mean of all:
        # 2 * 7.8^2 + 2 * 2.2^2 + 11.2^2 = 256.8, of which 2 times 2 are the
        # variance within; over 5 - (4 + 4 + 1) / 5 = 3.2.
        found = prior.credibility_constant(
            np.array([0., 2., 10., 12., 20.]), np.array([0, 0, 1, 1, 2]),
            np.zeros(5, dtype=np.int64))
        # 2 / ((256.8 - 4) / 3.2) = .025, and at least 1.
        self.assertEqual(1.0, found)
        found = prior.credibility_constant(
            np.array([0., 8., 10., 2., 9.]), np.array([0, 0, 1, 1, 2]),
            np.zeros(5, dtype=np.int64))
        # Means 4, 6, 9, of all 5.8; within (32 + 32) / 2; around it
        # 2 * 1.8^2 + 2 * .2^2 + 3.2^2 = 16.8 < 64: groups do not differ.
        self.assertEqual(math.inf, found)
        found = prior.credibility_constant(
            np.array([0., 8., 20., 12., 9.]), np.array([0, 0, 1, 1, 2]),
            np.zeros(5, dtype=np.int64))
        # Means 4, 16, 9, of all 9.8; around it 2 * 5.8^2 + 2 * 6.2^2 + .64
        # = 144.8; 32 / ((144.8 - 64) / 3.2).
        self.assertAlmostEqual(32 / 25.25, found)

    def test_without_a_difference_groups_weigh_nothing(self):
        # Two of a group each, so it cannot be told but by many.
        infinite = sum(math.isinf(prior.credibility_constant(
            *self._drawn(1.0, 0.0, 40, 5, seed))) for seed in range(200))
        # The estimate is below 0 in about half of the cases: within four
        # standard deviations of the binomial, and more to the left of it.
        self.assertGreater(infinite, 100 - 4 * math.sqrt(50))
        self.assertEqual(math.inf, prior.credibility_constant(
            np.arange(3.0), np.arange(3), np.zeros(3, dtype=np.int64)))
        self.assertEqual(math.inf, prior.credibility_constant(
            np.arange(3.0), np.zeros(3, dtype=np.int64),
            np.zeros(3, dtype=np.int64)))
        self.assertEqual(math.inf, prior.credibility_constant(
            np.zeros(0), np.zeros(0, dtype=np.int64),
            np.zeros(0, dtype=np.int64)))


class GroupsTestCase(unittest.TestCase):

    def test_levels_go_from_narrow_to_wide(self):
        self.assertEqual(
            [('f', 'p'), ('f', None), (None, 'p'), (None, None)],
            prior.levels_of('f', 'p'))
        self.assertEqual([(None, 'p'), prior.FLEET],
                         prior.levels_of(None, 'p'))
        self.assertEqual([prior.FLEET], prior.levels_of(None, None))

    def test_too_few_instances_give_no_prior(self):
        laws = [constant(1.0)] * (prior.MIN_PEERS - 1)
        self.assertEqual({}, prior.group_pools(
            ['f'] * len(laws), ['p'] * len(laws), laws))
        laws.append(constant(1.0))
        self.assertEqual([prior.FLEET], list(prior.group_pools(
            [None] * len(laws), [None] * len(laws), laws)))

    def test_groups_are_shrunk_towards_what_they_are_part_of(self):
        generator = np.random.default_rng(4)
        flavors, projects, laws = [], [], []
        for flavor, scale in (('s', 10.0), ('m', 100.0), ('l', 1000.0)):
            for project, factor in (('p', 1.0), ('q', 9.0)):
                for _ in range(12):
                    flavors.append(flavor)
                    projects.append(project)
                    laws.append(constant(
                        scale * factor * generator.uniform(.5, 1.5)))
        flavors.append(None)
        projects.append(None)
        laws.append(constant(1.0))
        pools = prior.group_pools(flavors, projects, laws)
        means = np.array([law.mean[0] for law in laws])
        load = np.sqrt(means)
        flavor_of = np.array([str(one) for one in flavors])
        project_of = np.array([str(one) for one in projects])
        known = flavor_of != 'None'
        numbers = np.unique(flavor_of[known], return_inverse=True)[1]
        pairs = np.unique(np.char.add(flavor_of, project_of)[known],
                          return_inverse=True)[1]
        constants = [
            prior.credibility_constant(load[known], numbers,
                                       np.zeros_like(numbers)),
            prior.credibility_constant(load[known], pairs, numbers)]
        self.assertTrue(np.isfinite(constants).all())
        fleet = means.mean()
        weight = 24 / (24 + constants[0])
        flavor = weight * means[flavor_of == 'm'].mean() + (
            1 - weight) * fleet
        self.assertAlmostEqual(flavor, pools['m', None].law.mean[0])
        weight = 12 / (12 + constants[1])
        both = weight * means[(flavor_of == 'm') & (project_of == 'q')
                              ].mean() + (1 - weight) * flavor
        self.assertAlmostEqual(both, pools['m', 'q'].law.mean[0])
        self.assertEqual(12, pools['m', 'q'].members)
        self.assertAlmostEqual(fleet, pools[prior.FLEET].law.mean[0])

    def test_a_level_that_tells_nothing_is_left_out(self):
        laws = [constant(float(1 + n // 4 % 2)) for n in range(40)]
        projects = [str(n // 4 % 2) for n in range(40)]
        # Each flavor has as many of each kind.
        flavors = [str(n % 4) for n in range(40)]
        pools = prior.group_pools(flavors, projects, laws)
        self.assertNotIn(('0', None), pools)
        self.assertIn((None, '0'), pools)
        self.assertIn(('0', '0'), pools)
        self.assertLess(pools['0', '0'].law.mean[0],
                        pools['0', '1'].law.mean[0])


class CutTestCase(unittest.TestCase):

    BANDWIDTH = (1.0, 1.0, 0.0)

    def test_only_states_above_the_most_are_cut(self):
        law = model.RateLaw.from_arrays(
            [0.5, 0.5], [[10.0, 20.0, 1.0], [60.0, 40.0, 9.0]])
        cut = prior.cut(law, [(self.BANDWIDTH, None, 50.0)])
        np.testing.assert_allclose([[10, 20, 1], [30, 20, 4.5]], cut.rates)
        np.testing.assert_array_equal(law.by_regime, cut.by_regime)
        self.assertIs(law, prior.cut(law, [(self.BANDWIDTH, None, 100.0),
                                           (self.BANDWIDTH, None, math.inf)]))

    def test_it_is_within_every_limit(self):
        generator = np.random.default_rng(5)
        limits = [(self.BANDWIDTH, 500, 30.0), ((0.0, 0.0, 1.0), 500, 2.0),
                  ((1.0, 0.0, 0.0), 500, 10.0)]
        for packets in (True, False):
            for _ in range(50):
                law = random_law(generator)
                if not packets:
                    law = model.RateLaw.from_arrays(
                        law.by_regime, law.rates * [1, 1, 0])
                cut = prior.cut(law, limits)
                for weights, packet_bytes, most in limits:
                    self.assertLessEqual(
                        cut.values(weights, packet_bytes).max(),
                        most * (1 + 1e-12))
