# SPDX-License-Identifier: Apache-2.0

import math
import unittest

import numpy as np

from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import instants
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import series


def constant(kbps):
    return model.TrafficModel.constant(egress_kbps=kbps).law


def on_off(kbps, share):
    return model.TrafficModel.on_off(
        kbps, kbps / 2, kbps / 100, on_seconds=share,
        off_seconds=1 - share).law


def random_law(generator):
    """Return a law of 1 to 5 states, of a sampled instance or not."""
    n = generator.integers(1, 6)
    rates = generator.lognormal(3, 2, (n, 3))
    return rate_law.RateLaw.from_arrays(
        generator.dirichlet(np.ones(n)),
        rates[rates[:, :2].sum(axis=1).argsort()],
        generator.integers(0, n, instants.INSTANTS)
        if generator.random() < .5 else None)


def tails(law, edges):
    """Return (e,): how likely a rate is at least an edge."""
    kbps = law.rates[:, :2].sum(axis=1)
    return law.probabilities @ (kbps[:, None] >= edges * (1 - 1e-9))


def pool_of(laws):
    """Return the pool of instances of one unknown group."""
    unknown = [None] * len(laws)
    return prior.group_pools(unknown, unknown, laws)[prior.FLEET]


class PoolTestCase(unittest.TestCase):

    def test_it_is_the_law_of_one_picked_at_random(self):
        generator = np.random.default_rng(1)
        laws = [random_law(generator) for _ in range(30)]
        law = pool_of(laws).law
        np.testing.assert_allclose(
            np.mean([law.mean for law in laws], axis=0), law.mean)
        np.testing.assert_allclose(1.0, law.probabilities.sum())
        self.assertFalse(law.is_sampled)
        # Rates are gathered in bins that are 26 % wide; between these, the
        # tail is the mean of the tails.
        edges = 10.0 ** np.arange(0, 5, 0.1)
        np.testing.assert_allclose(
            np.mean([tails(law, edges) for law in laws], axis=0),
            tails(law, edges), atol=1e-12)

    def test_a_mixture_has_the_mean_of_both(self):
        generator = np.random.default_rng(2)
        pool, wider = (pool_of([random_law(generator) for _ in range(n)])
                       for n in (30, 90))
        shrunk = pool.shrunk(wider, 60.0)
        self.assertEqual(30, shrunk.members)
        np.testing.assert_allclose(
            pool.law.mean / 3 + wider.law.mean * 2 / 3, shrunk.law.mean)
        np.testing.assert_allclose(1.0, shrunk.law.probabilities.sum())
        self.assertEqual(pool.law, pool.shrunk(wider, 0.0).law)
        np.testing.assert_allclose(
            wider.law.mean, pool.shrunk(wider, math.inf).law.mean)

    def test_counts_and_laws_give_the_same_pool(self):
        generator = np.random.default_rng(3)
        times = 300.0 * np.arange(4032)
        counts = estimate.count_all([series.RateSeries.from_samples(
            str(n), 300, times, np.where(
                generator.random(4032) < .3, 900.0, 9.0), 0 * times)
            for n in range(prior.MIN_PEERS)])
        laws = [of_counts.law for of_counts in estimate.fit_models(counts)]
        of_counts, of_laws = prior.Pool.of_counts(counts), pool_of(laws)
        self.assertEqual(of_counts.bins.tolist(), of_laws.bins.tolist())
        np.testing.assert_allclose(of_counts.shares, of_laws.shares)


class ConstantTestCase(unittest.TestCase):

    def test_it_is_that_of_buhlmann_and_straub_worked_by_hand(self):
        # Groups of 2, 2 and 1 members, a draw of which is worth 5 -
        # (4 + 4 + 1) / 5 = 3.2; the variance within is over 5 - 3.
        for values, constant in (
                # Means 1, 11, 20, of all 8.8; within (2 + 2) / 2. Around the
                # mean of all 2 * 7.8^2 + 2 * 2.2^2 + 11.2^2 = 256.8:
                # 2 / ((256.8 - 4) / 3.2) = .025, and at least 1.
                ([0, 2, 10, 12, 20], 1.0),
                # Means 4, 6, 9, of all 5.8; within (32 + 32) / 2; around it
                # 2 * 1.8^2 + 2 * .2^2 + 3.2^2 = 16.8 < 64: groups do not
                # differ.
                ([0, 8, 10, 2, 9], math.inf),
                # Means 4, 16, 9, of all 9.8; around it 2 * 5.8^2 +
                # 2 * 6.2^2 + .64 = 144.8; 32 / ((144.8 - 64) / 3.2).
                ([0, 8, 20, 12, 9], 32 / 25.25)):
            self.assertAlmostEqual(constant, prior.credibility_constant(
                np.array(values, dtype=float), np.array([0, 0, 1, 1, 2])))

    def test_groups_that_cannot_be_compared_weigh_nothing(self):
        for values, groups in (([0., 1., 2.], [0, 1, 2]),
                               ([0., 1., 2.], [0, 0, 0]), ([], [])):
            self.assertEqual(math.inf, prior.credibility_constant(
                np.array(values), np.array(groups, dtype=np.int64)))


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

    def test_flavors_are_shrunk_towards_the_fleet(self):
        generator = np.random.default_rng(4)
        flavors, laws = [], []
        for flavor, scale in (('s', 10.0), ('m', 100.0), ('l', 1000.0)):
            for _ in range(24):
                flavors.append(flavor)
                laws.append(constant(scale * generator.uniform(.5, 1.5)))
        flavors.append(None)
        laws.append(constant(1.0))
        means = np.array([law.mean[0] for law in laws])
        numbers = np.repeat(np.arange(3), 24)
        constant_of = prior.credibility_constant(
            np.sqrt(means[:-1]), numbers)
        self.assertTrue(math.isfinite(constant_of))
        weight = 24 / (24 + constant_of)
        for projects in ([None] * 73, ['p'] * 72 + [None]):
            pools = prior.group_pools(flavors, projects, laws)
            self.assertEqual({(name, None) for name in 'sml'}
                             | {prior.FLEET}, set(pools))
            self.assertAlmostEqual(means.mean(),
                                   pools[prior.FLEET].law.mean[0])
            self.assertAlmostEqual(
                weight * means[24:48].mean() + (1 - weight) * means.mean(),
                pools['m', None].law.mean[0])
            self.assertEqual(24, pools['m', None].members)

    def test_flavors_that_tell_nothing_are_left_out(self):
        laws = [constant(float(1 + n // 4 % 2)) for n in range(40)]
        # Each flavor has as many of each kind.
        pools = prior.group_pools([str(n % 4) for n in range(40)],
                                  ['p'] * 40, laws)
        self.assertEqual([prior.FLEET], list(pools))

    def test_instances_that_fade_count_less(self):
        laws = [constant(10.0)] * 30 + [constant(100.0)] * 30
        pool = prior.group_pools([None] * 60, [None] * 60, laws,
                                 [1.0] * 30 + [.25] * 30)[prior.FLEET]
        self.assertAlmostEqual((10 + .25 * 100) / 1.25, pool.law.mean[0])
        self.assertAlmostEqual(37.5, pool.members)


class ProjectsTestCase(unittest.TestCase):
    """How much one project changes the expected traffic of others."""

    #: Between the levels of all laws, which are in bins of their own.
    EDGES = 10.0 ** np.arange(-.5, 7)

    def _fleet(self, generator, projects):
        """Return [(flavor, project, law)] of some projects."""
        instances = []
        for number in range(projects):
            flavors = generator.choice(list('abcd'), generator.integers(1, 5))
            level = generator.integers(0, 7)
            for _ in range(generator.integers(7, 40)):
                instances.append((str(generator.choice(flavors)), f'p{number}',
                                  constant(10.0 ** level)))
        return instances

    def _attacks(self, generator):
        """Yield [(flavor, project, law)] that one project may have."""
        for count in (1, 30, 1000):
            for law in (constant(0.0), constant(1e6), on_off(1e5, .1)):
                for flavors in ('a', 'b', 'abcd', 'z'):
                    yield [(flavors[n % len(flavors)], 'attacker', law)
                           for n in range(count)]

    def _priors(self, members):
        pools = prior.group_pools(*zip(*members))
        return {key: tails(pool.law, self.EDGES)
                for key, pool in pools.items() if key[1] != 'attacker'}

    def _tails_by_project(self, members):
        """Return {project: tails} of the mean law of each project."""
        by_project = {}
        for _, project, law in members:
            by_project.setdefault(project, []).append(tails(law, self.EDGES))
        return {project: np.mean(its_tails, axis=0)
                for project, its_tails in by_project.items()}

    def test_one_project_adds_no_more_than_the_most_demanding_other(self):
        generator = np.random.default_rng(6)
        for _ in range(8):
            projects = int(generator.integers(2, 9))
            fleet = self._fleet(generator, projects)
            by_project = self._tails_by_project(fleet)
            of_each = np.sort(list(by_project.values()), axis=0)
            most, second = of_each[-1], of_each[-2]
            for attack in self._attacks(generator):
                pools = self._priors(fleet + attack)
                np.testing.assert_array_less(
                    pools[prior.FLEET], (of_each.sum(axis=0) + most)
                    / (projects + 1) + 1e-9)
                np.testing.assert_array_less(
                    (of_each.sum(axis=0) - most + second) / (projects + 1)
                    - 1e-9, pools[prior.FLEET])
                for (flavor, project), attacked in pools.items():
                    if None not in (flavor, project):
                        continue
                    # Of a flavor, never above what another project has.
                    using = self._tails_by_project([
                        member for member in fleet
                        if flavor in (None, member[0])])
                    np.testing.assert_array_less(attacked, np.max([
                        *using.values(), *of_each], axis=0) + 1e-9)

    def test_no_rate_of_one_project_is_above_that_of_all_others(self):
        generator = np.random.default_rng(8)
        honest = [(None, f'p{n % 12}', random_law(generator))
                  for n in range(60)]
        most = np.max([law.peak for _, _, law in honest], axis=0)
        # No packet of an instance is smaller than its smallest packets.
        for rates in ((1e7, 0, 0), (0, 1e7, 0), (1e4, 1e4, 1e7),
                      (1e7, 1e7, 1e7)):
            law = prior.group_pools(*zip(*honest, (
                None, 'attacker', model.TrafficModel.constant(*rates).law)))[
                    prior.FLEET].law
            self.assertTrue((law.peak <= most * 1.26).all(), law.peak)

    def test_unknown_packet_rates_lower_no_other_rate(self):
        members = [(None, f'p{n % 4}', model.TrafficModel.constant(
            1000.0, 0, 1.0 if n % 4 < 1 else 0.0).law)
            for n in range(40)]
        law = prior.group_pools(*zip(*members))[prior.FLEET].law
        self.assertAlmostEqual(1000.0, law.mean[0])
        self.assertAlmostEqual(.25, law.mean[2])

    def test_a_flavor_of_one_project_counts_for_that_project_only(self):
        members = [('a' if n < 20 else 'b', f'p{n // 20}',
                    constant(10.0 + n // 20)) for n in range(60)]
        keys = set(prior.group_pools(*zip(*members)))
        self.assertNotIn(('a', None), keys)
        self.assertIn(('a', 'p0'), keys)
        self.assertIn(('b', None), keys)

    def test_any_number_of_instances_counts_as_one_project(self):
        honest = [('a', f'p{n % 10}', constant(325.0)) for n in range(200)]
        for count in (200, 1000, 10000):
            pools = prior.group_pools(*zip(*honest, *[
                ('a', 'attacker', constant(0.0))] * count))
            for key in (prior.FLEET, ('a', None)):
                self.assertAlmostEqual(325 * 10 / 11,
                                       pools[key].law.mean[0])
            # Of its own project 20 weigh as much as all others.
            self.assertAlmostEqual(
                (20 * 325 + 20 * 325 * 10 / 11) / 40,
                pools['a', 'p3'].law.mean[0])

    def test_projects_whose_instances_are_deleted_fade(self):
        honest = [(None, f'p{n % 10}', constant(442.0)) for n in range(200)]
        deleted = [(None, 'attacker', constant(0.0))] * 2400
        pool = prior.group_pools(
            *zip(*honest, *deleted), [1.0] * 200 + [.5] * 2400)[prior.FLEET]
        self.assertAlmostEqual(442 * 10 / 10.5, pool.law.mean[0])

    def test_a_flavor_counts_by_the_projects_that_use_it(self):
        members = [('a' if n < 60 else 'b', f'p{n // 20}', constant(
            10.0 if n < 60 else 1000.0)) for n in range(120)]
        pools = prior.group_pools(*zip(*members))
        # Three of six projects: half, and half of the fleet.
        self.assertAlmostEqual(.5 * 10 + .5 * 505,
                               pools['a', None].law.mean[0])
        self.assertAlmostEqual(.5 * 1000 + .5 * 505,
                               pools['b', None].law.mean[0])

    def test_instances_of_no_known_project_are_at_most_one_more(self):
        members = [(None, f'p{n // 20}', on_off(90.0, .25 + n // 20 / 4))
                   for n in range(60)]
        for count, share in ((5, .25), (1000, 1.0)):
            pool = prior.group_pools(*zip(*members, *[
                (None, None, on_off(90.0, .5))] * count))[prior.FLEET]
            # Three projects are busy for 25, 50 and 75 % of the time; the
            # last one counts like the second.
            self.assertAlmostEqual(
                90 * (.25 + .5 + .5 + share * .5) / (3 + share),
                pool.law.mean[0])


class CutTestCase(unittest.TestCase):

    BANDWIDTH = (1.0, 1.0, 0.0)

    def _cut(self, law, kbps, *group):
        limits = [(self.BANDWIDTH, None, kbps)]
        return prior.cut(law, limits, limits, *group)

    def test_what_a_host_cannot_carry_is_left_out(self):
        law = rate_law.RateLaw.from_arrays(
            [.7, .2, .1],
            [[10.0, 20.0, 1.0], [30.0, 20.0, 4.0], [60.0, 40.0, 9.0]])
        cut = self._cut(law, 50.0)
        np.testing.assert_allclose(law.rates[:2], cut.rates)
        np.testing.assert_allclose([7 / 9, 2 / 9], cut.probabilities)
        self.assertIs(law, self._cut(law, 100.0))
        self.assertAlmostEqual(.1, prior.share_above(
            law, [(self.BANDWIDTH, None, 50.0)]))

    def test_what_the_policy_alone_refuses_is_scaled_down(self):
        law = rate_law.RateLaw.from_arrays(
            [.9, .1], [[10.0, 20.0, 1.0], [60.0, 40.0, 9.0]],
            np.arange(instants.INSTANTS) % 2)
        cut = prior.cut(law, [(self.BANDWIDTH, None, 50.0)],
                        [(self.BANDWIDTH, None, 200.0)])
        np.testing.assert_allclose([[10, 20, 1], [30, 20, 4.5]], cut.rates)
        np.testing.assert_array_equal(law.probabilities, cut.probabilities)
        np.testing.assert_array_equal(law.at_instants, cut.at_instants)

    def test_more_than_half_is_no_exception(self):
        for share in (.4, .5):
            law = rate_law.RateLaw.from_arrays(
                [share, 1 - share], [[10.0, 0.0, 0.0], [90.0, 0.0, 0.0]])
            cut = self._cut(law, 50.0)
            if share < .5:
                np.testing.assert_allclose([.4, .6], cut.probabilities)
                np.testing.assert_allclose([10, 50], cut.rates[:, 0])
            else:
                np.testing.assert_allclose([1], cut.probabilities)
                np.testing.assert_allclose([10], cut.rates[:, 0])

    def test_of_what_an_instance_has_shown_nothing_is_left_out(self):
        own = [.25, .75]
        group = rate_law.RateLaw.from_arrays(
            [.98, .02], [[10.0, 0.0, 0.0], [90.0, 0.0, 0.0]])
        law = rate_law.RateLaw.from_arrays(own, group.rates)
        probabilities = self._cut(law, 50.0, group).probabilities
        self.assertAlmostEqual(.73 / .98, probabilities[1])
        # All of it is from the group: 1 % at half weight.
        law = rate_law.RateLaw.from_arrays([.99, .01], group.rates)
        self.assertEqual([1.0],
                         self._cut(law, 50.0, group).probabilities.tolist())

    def test_it_is_within_every_limit(self):
        generator = np.random.default_rng(5)
        limits = [(self.BANDWIDTH, 500, 30.0), ((0.0, 0.0, 1.0), 500, 2.0),
                  ((1.0, 0.0, 0.0), 500, 10.0)]
        for packets in (True, False):
            for _ in range(50):
                law = random_law(generator)
                if not packets:
                    law = rate_law.RateLaw.from_arrays(
                        law.probabilities, law.rates * [1, 1, 0])
                cut = prior.cut(law, limits, limits)
                for weights, packet_bytes, most in limits:
                    self.assertLessEqual(
                        cut.values(weights, packet_bytes).max(),
                        most * (1 + 1e-12))
