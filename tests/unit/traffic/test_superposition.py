# SPDX-License-Identifier: Apache-2.0

import bisect
import dataclasses
import fractions
import math
import unittest

import hypothesis
from hypothesis import strategies as st
import numpy as np

from tests.unit.traffic import exact
from tests.unit.traffic import fluid
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import superposition

F = fractions.Fraction
NAN = float('nan')
INF = float('inf')
EGRESS = (1, 0, 0)

Overlay = superposition.Superposition


def _sources(seed, count, states=(2, 3), largest=20, unit=1):
    rng = np.random.default_rng(seed)
    return [exact.Source.random(rng, int(rng.choice(states)), largest, unit)
            for _ in range(count)]


def _models(sources):
    return [source.model for source in sources]


def _on_offs(count, kbps, share):
    """Return like on/off models that are on a share of the time."""
    return [model.TrafficModel.on_off(
        kbps, on_seconds=float(share), off_seconds=float(1 - F(share)))
    ] * count


def _off_grid(seed, count):
    """Return on/off sources with rates that have no common divisor."""
    rng = np.random.default_rng(seed)
    return [exact.Source.on_off(F(float(rng.uniform(1, 100))),
                                F(float(rng.uniform(1, 5))),
                                F(float(rng.uniform(5, 50))))
            for _ in range(count)]


class OverlayTestCase(unittest.TestCase):

    def assertRelative(self, expected, actual, rtol):
        """Want two numbers to agree, and 0 to be 0."""
        if expected == 0:
            self.assertEqual(0.0, actual)
        else:
            self.assertLess(abs(F(actual) / F(expected) - 1), rtol,
                            f'expected {float(expected)!r}, got {actual!r}')

    def assertFigures(self, sources, capacity, weights, overlay, rtol=1e-12):
        above, excess, mean = exact.overload(sources, capacity, weights)
        self.assertRelative(above, overlay.overload_probability(), rtol)
        self.assertRelative(above, overlay.bounds()[0], rtol)
        self.assertRelative(above, overlay.bounds()[1], rtol)
        self.assertRelative(mean, overlay.mean, rtol)
        self.assertRelative(excess / mean if mean else 0,
                            overlay.loss_fraction(), rtol)


class TestAgainstEnumeration(OverlayTestCase):

    def test_twelve_on_off_sources_agree_to_1e_12_at_any_capacity(self):
        sources = _sources(1, 12, states=(2,))
        models = _models(sources)
        for capacity in (1, 25, 60, 90, 115, 130, 300):
            with self.subTest(capacity=capacity):
                self.assertFigures(sources, capacity, EGRESS,
                                   Overlay(models, capacity, 'egress'))

    def test_sources_of_many_states_agree_in_every_dimension(self):
        sources = _sources(2, 7, states=(1, 3, 4, 5))
        models = _models(sources)
        for dimension, weights in model.DIMENSIONS.items():
            for share in (F(1, 3), F(1, 2), F(3, 4)):
                most = sum(max(source.values(weights)) for source in sources)
                capacity = float(math.floor(share * most))
                with self.subTest(dimension=dimension, capacity=capacity):
                    self.assertFigures(
                        sources, capacity, weights,
                        Overlay(models, capacity, dimension))

    def test_any_weights_of_the_three_rates_agree(self):
        sources = _sources(3, 6, states=(2, 3))
        for weights in ((1, 2, 3), (F(1, 2), F(1, 4), 8), (0, 1, 1)):
            with self.subTest(weights=weights):
                self.assertFigures(
                    sources, 70, weights,
                    Overlay(_models(sources), 70,
                            [float(w) for w in weights]))

    def test_rates_on_a_grid_are_exact_when_sums_are_too_many_to_list(self):
        # 3 ** 9 joint states do not fit a list of 4096 sums.
        sources = _sources(4, 9, states=(3,), largest=400)
        overlay = Overlay(_models(sources), 2000, 'egress')
        self.assertTrue(overlay.exact)
        self.assertFigures(sources, 2000, EGRESS, overlay)

    def test_rates_of_a_tenth_of_a_kbit_are_on_a_grid_too(self):
        sources = _sources(5, 13, states=(2,), largest=90, unit=F(1, 10))
        for tenths in (100, 333, 400, 513):
            overlay = Overlay(_models(sources), tenths / 10, 'egress')
            self.assertTrue(overlay.exact)
            with self.subTest(tenths=tenths):
                self.assertFigures(sources, F(tenths, 10), EGRESS, overlay)

    def test_a_lowest_level_above_zero_counts_in_full(self):
        # Every source always has something; one is constant.
        sources = [exact.Source([(F(1, 3) + i, 0, 0), (7 + 3 * i, 0, 0)],
                                [[0, 1], [1, 0]], [5, 2 + i])
                   for i in range(6)]
        sources.append(exact.Source([(11, 0, 0)], [[0]], [1]))
        for capacity in (20, 40, 60):
            self.assertFigures(sources, capacity, EGRESS,
                               Overlay(_models(sources), capacity, 'egress'))

    def test_no_source_and_silent_sources_never_overload(self):
        for models in ((), [model.TrafficModel.constant()] * 3):
            overlay = Overlay(models, 5)
            self.assertEqual(0.0, overlay.overload_probability())
            self.assertEqual((0.0, 0.0), overlay.bounds())
            self.assertEqual(0.0, overlay.loss_fraction())
            self.assertEqual(0.0, overlay.mean)
            self.assertEqual(0.0, overlay.episodes_per_second())
            self.assertEqual(0.0, overlay.mean_episode_seconds())

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=60)
    @hypothesis.given(
        st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9),
                           st.integers(1, 9)), min_size=1, max_size=6),
        st.integers(1, 100), st.sampled_from([1, 7, F(1, 10), F(1, 1000)]))
    def test_any_few_sources_agree(self, rows, capacity, unit):
        sources = [exact.Source.on_off(kbps * F(unit), on, off)
                   for kbps, on, off in rows]
        overlay = Overlay(_models(sources), float(capacity * F(unit)),
                          'egress')
        self.assertFigures(sources, capacity * F(unit), EGRESS, overlay)


class TestClosedForms(OverlayTestCase):

    def test_three_of_a_thousand_on_a_tenth_of_the_time_is_a_thousandth(self):
        # The example of reference/model.rst.
        overlay = Overlay([model.TrafficModel.on_off(
            1000, on_seconds=1, off_seconds=9)] * 3, 2500)
        self.assertRelative(F(1, 1000), overlay.overload_probability(),
                            1e-14)
        self.assertRelative(F(500, 1000) / 300, overlay.loss_fraction(),
                            1e-13)

    def test_like_sources_are_binomial_to_1e_9_in_the_far_tail(self):
        share = F(1, 16)
        for count, fit in ((50, 2), (50, 10), (50, 32), (200, 75),
                           (1000, 62), (1000, 200)):
            tail = exact.binomial_tail(count, share, fit)
            overlay = Overlay(_on_offs(count, 8.0, share), 8.0 * fit)
            with self.subTest(count=count, fit=fit, wanted=float(tail)):
                self.assertRelative(tail, overlay.overload_probability(),
                                    1e-9)

    def test_a_tail_of_1e_minus_30_keeps_its_relative_accuracy(self):
        tail = exact.binomial_tail(40, F(1, 128), 16)
        self.assertTrue(F(1, 10 ** 30) / 100 < tail < F(1, 10 ** 24))
        overlay = Overlay(_on_offs(40, 100.0, F(1, 128)), 1600.0)
        self.assertRelative(tail, overlay.overload_probability(), 1e-12)
        excess = sum((math.comb(40, k) * F(1, 128) ** k * F(127, 128)
                      ** (40 - k) * (k - 16) for k in range(17, 41)), F(0))
        self.assertRelative(excess / (40 * F(1, 128)),
                            overlay.loss_fraction(), 1e-12)

    def test_all_on_at_once_is_the_product_of_the_shares(self):
        overlay = Overlay(_on_offs(30, 7.0, F(1, 1024)), 7.0 * 29.5)
        self.assertRelative(F(1, 1024) ** 30, overlay.overload_probability(),
                            1e-12)

    def test_like_rates_with_other_shares_are_poisson_binomial(self):
        rng = np.random.default_rng(6)
        for count in (12, 60, 300):
            on = rng.integers(1, 40, count).tolist()
            models = [model.TrafficModel.on_off(
                50.0, on_seconds=t, off_seconds=100) for t in on]
            law = exact.poisson_binomial(F(t, 100 + t) for t in on)
            for fit in (0, count // 6, count // 3, count // 2):
                tail = sum(law[fit + 1:])
                overlay = Overlay(models, 50.0 * max(fit, 0.5))
                with self.subTest(count=count, fit=fit):
                    self.assertRelative(
                        tail, overlay.overload_probability(), 1e-9)

    def test_loss_of_like_sources_is_the_binomial_excess(self):
        for count, fit, p in ((20, 3, F(1, 8)), (500, 80, F(1, 8))):
            excess = sum((math.comb(count, k) * p ** k
                          * (1 - p) ** (count - k) * (k - fit)
                          for k in range(fit + 1, count + 1)), F(0))
            overlay = Overlay(_on_offs(count, 3.0, p), 3.0 * fit)
            self.assertRelative(excess / (count * p),
                                overlay.loss_fraction(), 1e-9)

    def test_constants_alone_overload_for_ever_or_never(self):
        models = [model.TrafficModel.constant(3.0)] * 10
        self.assertEqual(0.0, Overlay(models, 30.0).overload_probability())
        over = Overlay(models, 25.0)
        self.assertEqual(1.0, over.overload_probability())
        self.assertRelative(F(1, 6), over.loss_fraction(), 1e-14)

    def test_one_source_above_the_capacity_overloads_while_it_is_on(self):
        models = _on_offs(1, 1e6, F(1, 4)) + _on_offs(20, 1.0, F(1, 2))
        self.assertRelative(F(1, 4), Overlay(
            models, 100.0).overload_probability(), 1e-13)


class TestEquality(OverlayTestCase):

    def test_a_sum_equal_to_the_capacity_is_no_overload(self):
        # In float64 0.1 + 0.1 + 0.1 and 0.1 + 0.2 are above 0.3.
        for rates, capacity in (((.1, .1, .1), .3), ((.1, .2), .3),
                                ((.7, .1), .8), ((1.1, 2.2), 3.3),
                                ((.1,) * 10, 1.0), ((1e9 / 3,) * 3, 1e9)):
            overlay = Overlay(
                [source for rate in rates for source in _on_offs(1, rate, .5)],
                capacity)
            with self.subTest(rates=rates):
                self.assertEqual(0.0, overlay.overload_probability())
                self.assertEqual(0.0, overlay.loss_fraction())
                self.assertEqual(0.0, overlay.episodes_per_second())

    def test_many_rates_that_add_up_to_the_capacity_are_no_overload(self):
        for kbps in (.1, .3, .7, 1.1):
            for count in (20, 100, 640):
                overlay = Overlay(_on_offs(count, kbps, F(1, 2)),
                                  round(kbps * count, 6))
                self.assertTrue(overlay.exact)
                with self.subTest(kbps=kbps, count=count):
                    self.assertEqual(0.0, overlay.overload_probability())

    def test_a_base_of_many_tenths_leaves_exactly_the_room_there_is(self):
        # 600 times 0.1 always, and 0.001 more while on.
        chain = model.TrafficModel([[.1, 0, 0], [.101, 0, 0]],
                                   [[0, 1], [1, 0]], [9, 1])
        for fit in (40, 60, 90):
            overlay = Overlay([chain] * 600, round(60 + fit * .001, 6))
            self.assertTrue(overlay.exact)
            self.assertRelative(
                exact.binomial_tail(600, F(1, 10), fit),
                overlay.overload_probability(), 1e-9)

    def test_a_sum_a_millionth_above_the_capacity_is_overload(self):
        overlay = Overlay(_on_offs(3, 1 + 1e-6, F(1, 2)), 3.0)
        self.assertRelative(F(1, 8), overlay.overload_probability(), 1e-14)


class TestBracket(OverlayTestCase):

    def test_it_contains_the_truth_for_rates_off_the_grid(self):
        # 16 sources: 65536 sums, more than are listed, few enough to check.
        for seed in range(4):
            sources = _off_grid(seed, 16)
            sums = np.zeros(1)
            masses = np.ones(1)
            for source in sources:
                sums = np.add.outer(sums, [0.0, float(source.rates[1][0])])
                masses = np.multiply.outer(
                    masses, [float(p) for p in source.law]).ravel()
                sums = sums.ravel()
            for capacity in (150.0, 300.0, 450.0):
                overlay = Overlay(_models(sources), capacity)
                self.assertFalse(overlay.exact)
                low, high = overlay.bounds()
                truth = masses[sums > capacity].sum()
                with self.subTest(seed=seed, capacity=capacity):
                    self.assertLessEqual(low, truth * (1 + 1e-12))
                    self.assertGreaterEqual(high, truth * (1 - 1e-12))
                    self.assertEqual(high, overlay.overload_probability())
                    self.assertLess(high - low, .05 * truth)
                    lost = (masses @ np.maximum(sums - capacity, 0)
                            / (masses @ sums))
                    self.assertGreaterEqual(overlay.loss_fraction(),
                                            lost * (1 - 1e-12))
                    self.assertLess(overlay.loss_fraction(), 1.05 * lost)

    def test_it_contains_the_finer_one_with_hundreds_of_sources(self):
        models = _models(_off_grid(9, 300))
        mean = Overlay(models, 1e9).mean
        for factor in (1.1, 1.3, 1.6):
            capacity = factor * mean
            finest = Overlay(models, capacity, cells=200_000).bounds()
            previous = (0.0, 1.0)
            for cells in (2000, 20_000, None):
                low, high = Overlay(models, capacity, cells=cells).bounds()
                with self.subTest(factor=factor, cells=cells):
                    self.assertLessEqual(low, finest[0])
                    self.assertGreaterEqual(high, finest[1])
                    self.assertLess(low, high)
                    if cells:
                        self.assertLess(previous[0], low)
                        self.assertGreater(previous[1], high)
                previous = low, high

    def test_rates_near_a_grid_are_bracketed_by_exact_neighbours(self):
        # Rates of 10 + d lie between those of 10 and of 11, whose laws are
        # binomial.
        rng = np.random.default_rng(12)
        models = [source for d in rng.random(400).tolist()
                  for source in _on_offs(1, 10.0 + d, F(1, 10))]
        low, high = Overlay(models, 605.0).bounds()
        self.assertLessEqual(
            exact.binomial_tail(400, F(1, 10), 60), F(high))
        self.assertGreaterEqual(
            exact.binomial_tail(400, F(1, 10), 55), F(low))

    def test_rates_near_a_thousandth_are_not_rounded_up_by_a_thousandth(self):
        # All thirteen exceed the capacity, not seven of them.
        for kbps in (.001, .077, 7.7):
            overlay = Overlay(_on_offs(13, kbps + 9e-11, F(1, 2)),
                              13 * kbps * (1 - 1e-6))
            low, high = overlay.bounds()
            self.assertLessEqual(low, 2.0 ** -13)
            self.assertAlmostEqual(2.0 ** -13, high, 12)

    def test_the_ends_of_a_narrow_bracket_are_in_order(self):
        rng = np.random.default_rng(13)
        for _ in range(30):
            models = [model.TrafficModel.on_off(
                kbps, on_seconds=seconds, off_seconds=1.0) for kbps, seconds
                in zip(rng.uniform(1, 2, 30), rng.uniform(.2, 9, 30))]
            low, high = Overlay(models, 4.0, cells=512).bounds()
            self.assertLessEqual(low, high)

    def test_the_bracket_of_an_exact_overlay_is_the_probability(self):
        overlay = Overlay(_on_offs(20, 5.0, F(1, 3)), 50.0)
        self.assertTrue(overlay.exact)
        self.assertEqual((overlay.overload_probability(),) * 2,
                         overlay.bounds())

    def test_a_coarse_grid_still_gives_a_loss_within_0_and_1(self):
        models = [model.TrafficModel.on_off(
            float(x), on_seconds=1e9, off_seconds=1)
            for x in np.random.default_rng(4).uniform(1, 2, 60)]
        overlay = Overlay(models, 5.0, cells=4)
        self.assertFalse(overlay.exact)
        self.assertLessEqual(overlay.loss_fraction(), 1.0)
        self.assertGreater(overlay.loss_fraction(), .9)


class TestWhatIf(OverlayTestCase):

    def test_one_model_more_equals_the_overlay_built_anew(self):
        sources = _sources(21, 8, states=(2, 3))
        models = _models(sources)
        for candidate in _sources(22, 6, states=(1, 2, 4), largest=60):
            for capacity in (30, 60, 100):
                overlay = Overlay(models, capacity)
                above = exact.overload(sources + [candidate], capacity,
                                       (1, 1, 0))[0]
                self.assertRelative(
                    above, overlay.overload_probability_with(
                        candidate.model), 1e-12)
                self.assertRelative(
                    above, overlay.with_model(
                        candidate.model).overload_probability(), 1e-12)

    def test_one_more_of_like_sources_stays_binomial(self):
        overlay = Overlay(_on_offs(199, 8.0, F(1, 16)), 8.0 * 40)
        candidate = _on_offs(1, 8.0, F(1, 16))[0]
        self.assertRelative(
            exact.binomial_tail(200, F(1, 16), 40),
            overlay.overload_probability_with(candidate), 1e-9)

    def test_off_the_grid_it_is_an_upper_bound_of_the_truth(self):
        sources = _off_grid(31, 17)
        candidate = _off_grid(32, 1)[0]
        sums, masses = np.zeros(1), np.ones(1)
        for source in sources + [candidate]:
            sums = np.add.outer(
                sums, [0.0, float(source.rates[1][0])]).ravel()
            masses = np.multiply.outer(
                masses, [float(p) for p in source.law]).ravel()
        for capacity in (200.0, 400.0):
            truth = masses[sums > capacity].sum()
            bound = Overlay(_models(sources), capacity
                            ).overload_probability_with(candidate.model)
            self.assertGreaterEqual(bound, truth * (1 - 1e-12))
            self.assertLess(bound, truth * 1.05)

    def test_a_candidate_beyond_the_capacity_overloads_by_itself(self):
        overlay = Overlay(_on_offs(5, 1.0, F(1, 2)), 10.0)
        self.assertRelative(F(1, 4), overlay.overload_probability_with(
            _on_offs(1, 10.5, F(1, 4))[0]), 1e-14)

    def test_a_candidate_that_just_fits_an_empty_host_is_no_overload(self):
        for capacity in (.3, 1e6, 7.7):
            self.assertEqual(0.0, Overlay([], capacity)
                             .overload_probability_with(
                                 _on_offs(1, capacity, F(1, 2))[0]))

    def test_it_leaves_the_overlay_as_it_was(self):
        overlay = Overlay(_on_offs(5, 1.0, F(1, 2)), 3.0)
        probability = overlay.overload_probability()
        overlay.overload_probability_with(_on_offs(1, 2.0, F(1, 2))[0])
        overlay.with_model(_on_offs(1, 2.0, F(1, 2))[0])
        self.assertEqual(probability, overlay.overload_probability())
        self.assertEqual(5, len(overlay.models))

    def test_without_one_is_the_overlay_of_the_others(self):
        sources = _sources(23, 7, states=(2, 3))
        overlay = Overlay(_models(sources), 70)
        for i in range(7):
            remaining = sources[:i] + sources[i + 1:]
            self.assertFigures(remaining, 70, (1, 1, 0), overlay.without(i))

    def test_in_and_out_again_gives_the_figures_of_before(self):
        overlay = Overlay(_models(_sources(24, 9, states=(2,))), 90)
        restored = overlay.with_model(_on_offs(1, 9.0, F(9, 10))[0]).without(9)
        self.assertEqual(overlay.models, restored.models)
        self.assertEqual(overlay.overload_probability(),
                         restored.overload_probability())

    def test_dimension_and_grid_are_handed_on(self):
        models = _models(_off_grid(33, 20))
        overlay = Overlay(models, 300.0, 'egress', cells=500)
        expected = Overlay(models[:-1], 300.0, 'egress', cells=500)
        for derived in (overlay.without(19),
                        overlay.without(19).with_model(models[19])
                        .without(19)):
            self.assertEqual('egress', derived.dimension)
            self.assertEqual(expected.bounds(), derived.bounds())


class TestEpisodes(OverlayTestCase):

    def assertEpisodes(self, sources, capacity, weights, overlay):
        rate, length = exact.episodes(sources, capacity, weights)
        np.testing.assert_allclose(overlay.episodes_per_second(), rate,
                                   rtol=1e-9)
        np.testing.assert_allclose(overlay.mean_episode_seconds(), length,
                                   rtol=1e-9)

    def test_rate_and_length_agree_with_the_joint_generator(self):
        for seed, count, states in ((41, 3, (2, 3)), (42, 4, (2, 3, 4)),
                                    (43, 2, (5,)), (44, 6, (2,))):
            sources = _sources(seed, count, states)
            least, most = (
                sum(function(source.values((1, 1, 0))) for source in sources)
                for function in (min, max))
            for share in (F(0), F(1, 4), F(1, 2), F(3, 4)):
                capacity = math.floor(least + (most - least) * share)
                with self.subTest(seed=seed, capacity=capacity):
                    self.assertEpisodes(
                        sources, capacity, (1, 1, 0),
                        Overlay(_models(sources), capacity))

    def test_every_dimension_counts_its_own_crossings(self):
        sources = _sources(45, 4, (3,))
        for dimension, weights in model.DIMENSIONS.items():
            capacity = 2 + sum(
                min(source.values(weights)) for source in sources)
            with self.subTest(dimension=dimension):
                self.assertEpisodes(
                    sources, capacity, weights, Overlay(
                        _models(sources), float(capacity), dimension))

    def test_of_one_source_they_are_its_turns(self):
        # It is on 2 s of 10: an episode each 10 s, of 2 s.
        overlay = Overlay([model.TrafficModel.on_off(
            5.0, on_seconds=2, off_seconds=8)], 4.0)
        self.assertAlmostEqual(0.1, overlay.episodes_per_second(), 15)
        self.assertAlmostEqual(2.0, overlay.mean_episode_seconds(), 13)

    def test_of_like_sources_it_is_the_flow_of_a_birth_death_chain(self):
        # From `fit` to fit + 1 on: (n - fit) sources may turn on.
        n, fit, on, off = 300, 40, 20.0, 180.0
        p = F(1, 10)
        flow = (math.comb(n, fit) * p ** fit * (1 - p) ** (n - fit)
                * (n - fit) / F(off))
        overlay = Overlay([model.TrafficModel.on_off(
            6.0, on_seconds=on, off_seconds=off)] * n, 6.0 * fit)
        self.assertRelative(flow, overlay.episodes_per_second(), 1e-9)
        self.assertRelative(exact.binomial_tail(n, p, fit) / flow,
                            overlay.mean_episode_seconds(), 1e-9)

    def test_a_jump_between_states_above_the_capacity_is_no_new_one(self):
        chain = model.TrafficModel([[0, 0, 0], [6, 0, 0], [9, 0, 0]],
                                   np.roll(np.eye(3), 1, axis=1), [1, 2, 3])
        overlay = Overlay([chain], 5.0)
        self.assertAlmostEqual(1 / 6, overlay.episodes_per_second(), 15)
        self.assertAlmostEqual(5.0, overlay.mean_episode_seconds(), 13)

    def test_overload_for_ever_has_no_length(self):
        models = [model.TrafficModel([[6, 0, 0], [9, 0, 0]],
                                     [[0, 1], [1, 0]], [1, 1])] * 2
        overlay = Overlay(models, 10.0)
        self.assertEqual(1.0, overlay.overload_probability())
        self.assertEqual(0.0, overlay.episodes_per_second())
        with self.assertRaises(exceptions.InvalidModel) as caught:
            overlay.mean_episode_seconds()
        for part in ('2 models', '10', 'expected'):
            self.assertIn(part, str(caught.exception))

    def test_what_only_rounding_calls_overload_has_its_episodes_too(self):
        # A grid of 8192 cells of 1. Each of 13 sources has a tenth of a cell
        # more than a multiple of it, so all at once, with what is always
        # there, fit well but not when rounded up: all of them have to be on,
        # and whichever comes on last, its own rounding decides.
        models = [model.TrafficModel.on_off(
            630 + .1 + 1e-5 * math.sqrt(i), on_seconds=1, off_seconds=3)
            for i in range(12)]
        models.append(model.TrafficModel(
            [[.5, 0, 0], [619.6 + 1e-5 * math.pi, 0, 0]], [[0, 1], [1, 0]],
            [3, 1]))
        overlay = Overlay(models, 8192.0, cells=8192)
        self.assertFalse(overlay.exact)
        low, high = overlay.bounds()
        self.assertEqual(0.0, low)
        self.assertRelative(F(1, 4) ** 13, high, 1e-12)
        # Each of 13 comes on last as often: P(12 others on, one off) / 3.
        rate = 13 * F(1, 4) ** 12 * F(3, 4) / 3
        self.assertRelative(rate, overlay.episodes_per_second(), 1e-12)
        self.assertRelative(F(1, 13), overlay.mean_episode_seconds(), 1e-12)

    def test_overload_begins_as_often_as_it_ends(self):
        # The reverse of a chain falls where the chain rises: its jump from t
        # to s is as frequent as that of the chain from s to t.
        rng = np.random.default_rng(46)
        models, reverse = [], []
        for states in (2, 3, 4, 3):
            jump = rng.random((states, states)) * (1 - np.eye(states))
            jump /= jump.sum(axis=1, keepdims=True)
            law = rng.dirichlet(np.ones(states))
            chain = model.TrafficModel(
                np.rint(rng.random((states, 3)) * [20, 20, 0]), jump,
                law / model.visits(jump[None])[0])
            flow = (chain.stationary / chain.sojourn_seconds)[:, None] * jump
            models.append(chain)
            reverse.append(dataclasses.replace(
                chain, jump=flow.T / flow.sum(axis=0)[:, None]))
        least, most = (
            sum(function(chain.rates[:, :2].sum(axis=1)) for chain in models)
            for function in (min, max))
        for share in (.2, .4, .6, .8):
            capacity = least + share * (most - least)
            rises = Overlay(models, capacity).episodes_per_second()
            falls = Overlay(reverse, capacity).episodes_per_second()
            self.assertGreater(rises, 0)
            self.assertRelative(rises, falls, 1e-12)


class TestAgainstSimulation(OverlayTestCase):

    #: Two-sided normal quantile: each comparison fails by chance once in
    #: about 16,000 seeds; the seed is fixed.
    SIGMAS = 4.0

    def _simulate(self, models, capacity, seconds, rng, shape):
        """Return (share of time above, entries a second) of one run.

        Sojourn times are gamma distributed with the mean of the state and
        the given shape: 1 is exponential.
        """
        times, steps, level = [], [], 0.0
        for chain in models:
            rates = chain.rates[:, 0] + chain.rates[:, 1]
            total = chain.sojourn_seconds @ chain.stationary
            jumps = int(3 * seconds / total) + 50
            state = int(rng.choice(len(rates), p=chain.stationary))
            path = np.empty(jumps, dtype=int)
            cumulated = chain.jump.cumsum(axis=1).tolist()
            for k, draw in enumerate(rng.random(jumps).tolist()):
                path[k] = state
                state = bisect.bisect_left(cumulated[state], draw)
            sojourns = rng.gamma(shape, chain.sojourn_seconds[path] / shape)
            ends = np.cumsum(sojourns)
            self.assertGreater(ends[-1], seconds)
            level += rates[path[0]]
            times.append(ends[:-1])
            steps.append(np.diff(rates[path]))
        times, steps = np.concatenate(times), np.concatenate(steps)
        order = np.argsort(times, kind='stable')
        times = np.append(times[order], seconds)
        levels = level + np.append(0.0, np.cumsum(steps[order]))
        keep = np.append(0.0, times[:-1]) < seconds
        starts = np.append(0.0, times[:-1])[keep]
        ends = np.minimum(times[keep], seconds)
        above = levels[keep] > capacity + 1e-6
        entries = (above[1:] & ~above[:-1]).sum()
        return ((ends - starts) @ above) / seconds, entries / seconds

    def _compare(self, models, capacity, seconds, runs, shape, seed):
        rng = np.random.default_rng(seed)
        overlay = Overlay(models, capacity)
        results = np.array([
            self._simulate(models, capacity, seconds, rng, shape)
            for _ in range(runs)])
        figures = np.array([overlay.overload_probability(),
                            overlay.episodes_per_second()])
        error = results.std(axis=0, ddof=1) / math.sqrt(runs)
        # The simulation has to be able to tell: 12 % off would show.
        self.assertTrue((self.SIGMAS * error < .12 * figures).all(),
                        (error, figures))
        self.assertTrue((abs(results.mean(axis=0) - figures)
                         <= self.SIGMAS * error).all(),
                        (results.mean(axis=0), figures, error))

    def test_on_off_sources_overload_as_often_as_simulated(self):
        rng = np.random.default_rng(61)
        models = [model.TrafficModel.on_off(
            float(kbps), on_seconds=float(on), off_seconds=float(off))
            for kbps, on, off in zip(rng.integers(1, 9, 12),
                                     rng.uniform(5, 20, 12),
                                     rng.uniform(10, 60, 12))]
        self._compare(models, 20.0, 40_000.0, 20, 1.0, 62)

    def test_chains_of_many_states_overload_as_often_as_simulated(self):
        models = _models(_sources(63, 6, states=(3, 4)))
        self._compare(models, 130.0, 60_000.0, 20, 1.0, 64)

    def test_only_the_means_of_the_sojourn_times_count(self):
        # Nearly constant sojourn times instead of exponential ones.
        models = _models(_sources(65, 6, states=(3, 4)))
        self._compare(models, 130.0, 60_000.0, 20, 9.0, 66)


class TestValidation(OverlayTestCase):

    def assertInvalid(self, parts, call, *args, **kwargs):
        with self.assertRaises(exceptions.InvalidModel) as caught:
            call(*args, **kwargs)
        for part in (*parts, 'expected'):
            self.assertIn(part, str(caught.exception))

    def test_a_capacity_is_a_finite_number_above_zero(self):
        for capacity in (0, -1, NAN, INF, -INF, None, 'fast', [1, 2],
                         10 ** 400):
            with self.subTest(capacity=capacity):
                self.assertInvalid(('capacity', 'above 0'), Overlay, [],
                                   capacity)

    def test_a_dimension_is_a_known_name_or_three_weights(self):
        for dimension in ('bytes', (1, 2), (1, 2, -1), (1, 2, NAN), 5,
                          (1, INF, 0), None, ('a', 'b', 'c'),
                          [[1, 2, 3]], (10 ** 400, 0, 0)):
            with self.subTest(dimension=dimension):
                self.assertInvalid(('dimension', 'expected', 'bandwidth'),
                                   Overlay, [], 5, dimension)

    def test_a_grid_has_a_whole_number_of_cells(self):
        for cells in (-1, 0, 2.5, NAN, 'many'):
            with self.subTest(cells=cells):
                self.assertInvalid(('cells',), Overlay, [], 5, cells=cells)

    def test_only_traffic_models_are_overlaid(self):
        chain = model.TrafficModel.constant(1)
        for value in (None, 5, chain.law, {'rates': []}):
            with self.subTest(thing=value):
                self.assertInvalid(
                    ('model 1', type(value).__name__, 'TrafficModel'),
                    Overlay, [chain, value], 5)
                self.assertInvalid(
                    ('to add', type(value).__name__, 'TrafficModel'),
                    Overlay([chain], 5).overload_probability_with, value)
                self.assertInvalid(
                    (type(value).__name__, 'TrafficModel'),
                    Overlay([chain], 5).with_model, value)

    def test_packets_have_to_be_known_where_they_count(self):
        with_packets = model.TrafficModel.constant(1, 1, 1)
        unknown = model.TrafficModel.constant(1)
        self.assertInvalid(('model 1', 'packet', 'with_packets'), Overlay,
                           [with_packets, unknown], 5, 'packets')
        self.assertInvalid(('model 0', 'packet'), Overlay, [unknown], 5,
                           (1, 1, .5))
        self.assertInvalid(
            ('to add', 'packet'), Overlay([with_packets], 5, 'packets')
            .overload_probability_with, unknown)
        self.assertEqual(1.0, Overlay(
            [unknown.with_packets(1)], .1, 'packets').overload_probability())

    def test_models_may_come_from_an_iterator(self):
        overlay = Overlay(iter(_on_offs(3, 1.0, F(1, 2))), 2.0)
        self.assertRelative(F(1, 8), overlay.overload_probability(), 1e-14)


class TestFinite(OverlayTestCase):

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(
        st.lists(st.tuples(
            st.floats(0, 1e300), st.floats(0, 1e300),
            st.floats(1e-9, 1e9), st.floats(1e-9, 1e9)), max_size=14),
        st.floats(1e-300, 1e300))
    def test_a_figure_is_finite_and_within_its_range_or_an_error(
            self, rows, capacity):
        overlay = Overlay([model.TrafficModel(
            [[low, 0, 0], [high, 0, 0]], [[0, 1], [1, 0]], [off, on])
            for low, high, off, on in rows], capacity)
        for figure, most in (
                (overlay.overload_probability, 1.0),
                (lambda: overlay.bounds()[0], 1.0),
                (overlay.loss_fraction, 1.0),
                (overlay.episodes_per_second, 1e300),
                (overlay.mean_episode_seconds, 1e300),
                (lambda: overlay.overload_probability_with(
                    model.TrafficModel.constant(capacity / 2)), 1.0)):
            try:
                value = figure()
            except exceptions.InvalidModel:
                continue
            self.assertTrue(0.0 <= value <= most, value)
            self.assertIsInstance(value, float)
        low, high = overlay.bounds()
        self.assertLessEqual(low, high * (1 + 1e-12))


class TestAgainstTheFluidQueue(OverlayTestCase):
    """Anick, Mitra and Sondhi's queue, whose limit is no buffer at all."""

    CASES = ((5, 30.0, 300.0, 1.5), (10, 4.0, 6.0, 6.5),
             (20, 10.0, 90.0, 5.25), (40, 1.0, 3.0, 15.5))

    def _ours(self, count, on, off, capacity):
        return Overlay([model.TrafficModel.on_off(
            1.0, on_seconds=on, off_seconds=off)] * count, capacity)

    def test_the_loss_without_a_buffer_is_the_limit(self):
        for case in self.CASES:
            with self.subTest(case=case):
                limit = self._ours(*case).loss_fraction()
                away = [fluid.loss_fraction(*case, buffer) / limit - 1
                        for buffer in (1e-4, 1e-5, 1e-6)]
                # Linear in the buffer, so ten times nearer with a tenth.
                for larger, smaller in zip(away, away[1:]):
                    self.assertAlmostEqual(10, larger / smaller, delta=.2)
                self.assertLess(abs(away[-1]), 1e-4)

    def test_a_buffer_loses_less_and_the_larger_the_less(self):
        for case in self.CASES:
            losses = [self._ours(*case).loss_fraction()] + [
                fluid.loss_fraction(*case, buffer)
                for buffer in (.01, .1, 1.0, 5.0)]
            self.assertEqual(sorted(losses, reverse=True), losses)
