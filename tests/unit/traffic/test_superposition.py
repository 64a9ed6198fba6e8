# SPDX-License-Identifier: Apache-2.0

import fractions
import math
import unittest

import hypothesis
from hypothesis import strategies as st
import numpy as np

from tests.unit.traffic import exact
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


def _enumerated(sources):
    """Return (sums, probabilities) of the egress of sources."""
    return exact.enumerated((
        np.array(source.values(EGRESS), dtype=float),
        np.array(source.law, dtype=float)) for source in sources)


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

    def test_sources_of_many_states_agree_in_every_dimension(self):
        sources = _sources(2, 7, states=(1, 3, 4, 5))
        models = _models(sources)
        for dimension, weights in [
                *model.DIMENSIONS.items(),
                *((weights, weights) for weights in (
                    (1, 2, 3), (.5, .25, 8), (0, 1, 1)))]:
            for share in (F(1, 3), F(1, 2), F(3, 4)):
                most = sum(max(source.values(weights)) for source in sources)
                capacity = float(math.floor(share * most))
                with self.subTest(dimension=dimension, capacity=capacity):
                    self.assertFigures(
                        sources, capacity, weights,
                        Overlay(models, capacity, dimension))

    def test_rates_on_a_grid_are_exact_when_sums_are_too_many_to_list(self):
        # Neither 3 ** 9 nor 2 ** 13 joint states fit a list of 4096 sums.
        for sources, unit, numbers in (
                (_sources(4, 9, states=(3,), largest=400), 1, (2000,)),
                (_sources(5, 13, states=(2,), largest=90, unit=F(1, 10)),
                 F(1, 10), (100, 333, 400, 513))):
            for number in numbers:
                capacity = number * unit
                overlay = Overlay(_models(sources), float(capacity), 'egress')
                self.assertTrue(overlay.exact)
                with self.subTest(capacity=capacity):
                    self.assertFigures(sources, capacity, EGRESS, overlay)

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

    def test_like_sources_are_binomial_in_the_far_tail(self):
        for count, share, fit, rtol in (
                (50, F(1, 16), 2, 1e-9), (50, F(1, 16), 32, 1e-9),
                (200, F(1, 16), 75, 1e-9), (1000, F(1, 16), 62, 1e-9),
                (1000, F(1, 16), 200, 1e-9), (30, F(1, 1024), 29, 1e-12),
                # Between 1e-32 and 1e-24.
                (40, F(1, 128), 16, 1e-12)):
            overlay = Overlay(_on_offs(count, 8.0, share), 8.0 * fit)
            excess = sum((math.comb(count, k) * share ** k
                          * (1 - share) ** (count - k) * (k - fit)
                          for k in range(fit + 1, count + 1)), F(0))
            with self.subTest(count=count, fit=fit):
                self.assertRelative(exact.binomial_tail(count, share, fit),
                                    overlay.overload_probability(), rtol)
                self.assertRelative(excess / (count * share),
                                    overlay.loss_fraction(), rtol)

    def test_constants_alone_overload_for_ever_or_never(self):
        models = [model.TrafficModel.constant(3.0)] * 10
        self.assertEqual(0.0, Overlay(
            iter(models), 30.0).overload_probability())
        over = Overlay(models, 25.0)
        self.assertEqual(1.0, over.overload_probability())
        self.assertRelative(F(1, 6), over.loss_fraction(), 1e-14)


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
            sums, masses = _enumerated(sources)
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

    def test_off_the_grid_it_is_an_upper_bound_of_the_truth(self):
        sources = _off_grid(31, 17)
        candidate = _off_grid(32, 1)[0]
        sums, masses = _enumerated([*sources, candidate])
        for capacity in (200.0, 400.0):
            truth = masses[sums > capacity].sum()
            bound = Overlay(_models(sources), capacity
                            ).overload_probability_with(candidate.model)
            self.assertGreaterEqual(bound, truth * (1 - 1e-12))
            self.assertLess(bound, truth * 1.05)

    def test_a_candidate_that_just_fits_an_empty_host_is_no_overload(self):
        for capacity in (.3, 1e6, 7.7):
            self.assertEqual(0.0, Overlay([], capacity)
                             .overload_probability_with(
                                 _on_offs(1, capacity, F(1, 2))[0]))

    def test_without_one_is_the_overlay_of_the_others(self):
        sources = _sources(23, 7, states=(2, 3))
        overlay = Overlay(_models(sources), 70)
        for i in range(7):
            remaining = sources[:i] + sources[i + 1:]
            self.assertFigures(remaining, 70, (1, 1, 0), overlay.without(i))

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

    def test_rate_and_length_agree_with_the_joint_generator(self):
        for dimension, seed, count, states in (
                ('bandwidth', 41, 3, (2, 3)), ('egress', 42, 4, (2, 3, 4)),
                ('ingress', 43, 2, (5,)), ('packets', 44, 6, (2,)),
                ('bandwidth', 45, 1, (2, 4))):
            weights = model.DIMENSIONS[dimension]
            sources = _sources(seed, count, states)
            least, most = (
                sum(function(source.values(weights)) for source in sources)
                for function in (min, max))
            for share in (F(0), F(1, 4), F(1, 2), F(3, 4)):
                capacity = math.floor(least + (most - least) * share)
                overlay = Overlay(_models(sources), capacity, dimension)
                with self.subTest(seed=seed, capacity=capacity):
                    np.testing.assert_allclose(
                        (overlay.episodes_per_second(),
                         overlay.mean_episode_seconds()),
                        exact.episodes(sources, capacity, weights), rtol=1e-9)

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


class TestValidation(OverlayTestCase):

    def assertInvalid(self, parts, call, *args, **kwargs):
        with self.assertRaises(exceptions.InvalidModel) as caught:
            call(*args, **kwargs)
        for part in (*parts, 'expected'):
            self.assertIn(part, str(caught.exception))

    def test_invalid_arguments_are_refused(self):
        for name, values, parts in (
                ('capacity', (0, -1, NAN, INF, -INF, None, 'fast', [1, 2],
                              10 ** 400), ('capacity', 'above 0')),
                ('dimension', ('bytes', (1, 2), (1, 2, -1), (1, 2, NAN), 5,
                               (1, INF, 0), None, ('a', 'b', 'c'),
                               [[1, 2, 3]], (10 ** 400, 0, 0)),
                 ('dimension', 'bandwidth')),
                ('cells', (-1, 0, 2.5, NAN, 'many'), ('cells',))):
            for value in values:
                with self.subTest(name=name, value=value):
                    self.assertInvalid(parts, Overlay, [], **{
                        'capacity': 5, name: value})

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
