# SPDX-License-Identifier: Apache-2.0

import dataclasses
import fractions
import json
import unittest

import hypothesis
from hypothesis import strategies as st
import numpy as np

from tests.unit.traffic import exact
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import rate_law

F = fractions.Fraction
NAN = float('nan')
INF = float('inf')


def _rates(n):
    return [[i, 2 * i, 3 * i] for i in range(n)]


def _ring(n):
    return np.roll(np.eye(n), 1, axis=1)


def _wholes(n):
    """Return a strategy of (n, n) jump weights that connect all states."""
    return st.lists(st.lists(st.integers(0, 20), min_size=n, max_size=n),
                    min_size=n, max_size=n)


class ModelTestCase(unittest.TestCase):

    def assertInvalid(self, parts, call, *args, **kwargs):
        with self.assertRaises(exceptions.InvalidModel) as caught:
            call(*args, **kwargs)
        for part in (*parts, 'expected'):
            self.assertIn(part, str(caught.exception))


class TestValidation(ModelTestCase):

    def test_each_message_names_argument_value_and_what_was_wanted(self):
        rates, swap = _rates(2), [[0, 1], [1, 0]]
        for parts, args in (
                (('rates', "'fast'", 'numbers'), ('fast', [[0]], [1])),
                (('rates', 'numbers'), ([[1, 2, 3], [4]], swap, [1, 1])),
                (('rates', 'numbers'), ([[10 ** 400, 0, 0]], [[0]], [1])),
                (('rates', 'not finite'), ([[None, 1, 2]], [[0]], [1])),
                (('jump', "'x'", 'numbers'), (rates, 'x', [1, 1])),
                (('sojourn_seconds', "['a']", 'numbers'),
                 (rates, swap, ['a'])),
                (('rates', 'not finite'), ([[NAN, 0, 0]], [[0]], [1])),
                (('rates', 'not finite'), ([[INF, 0, 0]], [[0]], [1])),
                (('jump', 'not finite'), (rates, [[0, NAN], [1, 0]], [1, 1])),
                (('sojourn_seconds', 'not finite'), (rates, swap, [1, INF])),
                (('shape of rates', '(2,)', '(n, 3)'), ([1, 2], [[0]], [1])),
                (('shape of rates', '(1, 2)', '(n, 3)'),
                 ([[1, 2]], [[0]], [1])),
                (('shape of rates', '(0, 3)', 'n >= 1'),
                 (np.zeros((0, 3)), np.zeros((0, 0)), [])),
                (('shape of jump', '(1, 2)', '(2, 2)'),
                 (rates, [[0, 1]], [1, 1])),
                (('shape of sojourn_seconds', '(1,)', '(2,)'),
                 (rates, swap, [1])),
                (('smallest of rates', '-0.5', '>= 0'),
                 ([[1, -0.5, 0]], [[0]], [1])),
                (('smallest of sojourn_seconds', '0.0', '> 0'),
                 (rates, swap, [1, 0])),
                (('smallest of sojourn_seconds', '-3.0', '> 0'),
                 (rates, swap, [1, -3])),
                (('smallest of jump', '-0.25', '>= 0'),
                 (_rates(3), [[0, 1.25, -.25], [1, 0, 0], [1, 0, 0]],
                  [1, 1, 1])),
                (('diagonal of jump', '0.5', 'zero'),
                 (rates, [[0.5, 0.5], [1, 0]], [1, 1])),
                (('diagonal of jump', '1.0', 'zero'),
                 (_rates(1), [[1]], [1])),
                (('sum of row 1 of jump', '0.9', '1 within 1e-9'),
                 (rates, [[0, 1], [0.9, 0]], [1, 1])),
                (('sum of row 0 of jump', '0.0', '1 within 1e-9'),
                 (rates, [[0, 0], [1, 0]], [1, 1])),
                (('jump', 'several closed classes', 'unique'),
                 (_rates(4), np.kron(np.eye(2), swap), [1] * 4))):
            with self.subTest(parts=parts):
                self.assertInvalid(parts, model.TrafficModel, *args)

    def test_a_row_sum_is_compared_with_a_tolerance_of_1e_9(self):
        for off, good in ((0.9e-9, True), (-0.9e-9, True), (1.1e-9, False)):
            jump = [[0, 1 + off], [1, 0]]
            with self.subTest(off=off):
                if good:
                    model.TrafficModel(_rates(2), jump, [1, 1])
                else:
                    self.assertInvalid(('row 0',), model.TrafficModel,
                                       _rates(2), jump, [1, 1])

    def test_arrays_are_copied_and_cannot_be_written(self):
        rates = np.array(_rates(2), dtype=float)
        chain = model.TrafficModel(rates, _ring(2), [1, 1])
        rates[:] = 77
        self.assertEqual(1.0, chain.rates[1, 0])
        for name in ('rates', 'jump', 'sojourn_seconds', 'stationary'):
            with self.subTest(name), self.assertRaises(ValueError):
                getattr(chain, name)[0] = 5
        with self.assertRaises(dataclasses.FrozenInstanceError):
            chain.rates = rates

    def test_an_unknown_dimension_is_refused_with_the_known_ones(self):
        for dimension in ('bytes', None, ['egress'], 5):
            self.assertInvalid(('dimension', 'bandwidth',
                                'egress', 'ingress', 'packets'),
                               model.dimension_weights, dimension)


class TestStationaryLaw(ModelTestCase):

    def assertLaw(self, shares, law, rtol=1e-12):
        # Every entry on its own: a rare state is as exact as a common one.
        self.assertEqual(len(shares), len(law))
        for want, actual in zip(shares, law.tolist()):
            if want == 0:
                self.assertEqual(0.0, actual)
            else:
                self.assertLess(abs(F(actual) / want - 1), rtol)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=150)
    @hypothesis.given(st.integers(2, 7).flatmap(lambda n: st.tuples(
        _wholes(n), st.lists(st.integers(1, 1000), min_size=n,
                             max_size=n))))
    def test_it_solves_the_balance_equations_exactly(self, drawn):
        weights, sojourn = drawn
        n = len(sojourn)
        # A ring beside the drawn weights connects all states.
        weights = [[0 if i == j else x + ((i + 1) % n == j)
                    for j, x in enumerate(row)]
                   for i, row in enumerate(weights)]
        jump = np.array(weights, dtype=float)
        jump /= jump.sum(axis=1, keepdims=True)
        chain = model.TrafficModel(_rates(n), jump, sojourn)
        self.assertLaw(exact.stationary(weights, sojourn), chain.stationary)
        self.assertAlmostEqual(1.0, chain.stationary.sum(), delta=1e-15 * n)

    def test_rare_states_keep_their_relative_accuracy(self):
        e = 1e-12
        # A birth and death chain: each level is visited 1e-5 times as often
        # as the one below, the last one 1e-40 times in all.
        n, up = 9, 1e-5
        climb = np.diag([1.0] + [up] * (n - 2), 1) \
            + np.diag([1 - up] * (n - 2) + [1.0], -1)
        for jump, sojourn in (
                (np.array([[0, 1 - e, e, 0], [1 - e, 0, 0, e],
                           [e, 0, 0, 1 - e], [0, e, 1 - e, 0]]),
                 [1e-6, 1e6, 1.0, 3.0]), (climb, [1.0] * n)):
            shares = exact.stationary(
                [[F(x) for x in row] for row in jump.tolist()], sojourn)
            self.assertLess(min(shares), F(1, 10 ** 12))
            self.assertLaw(shares, model.TrafficModel(
                _rates(len(sojourn)), jump, sojourn).stationary)

    def test_a_state_that_is_left_for_good_has_probability_zero(self):
        jump = [[0, .5, .5, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
        chain = model.TrafficModel(_rates(4), jump, [1e9, 1e9, 1, 3])
        self.assertEqual([0.0, 0.0], chain.stationary[:2].tolist())
        self.assertLaw([0, 0, F(1, 4), F(3, 4)], chain.stationary)


class TestFigures(ModelTestCase):

    def test_on_off_has_a_silent_state_and_the_given_rates(self):
        chain = model.TrafficModel.on_off(5, 7, 11, on_seconds=1,
                                          off_seconds=3)
        self.assertEqual([[0, 0, 0], [5, 7, 11]], chain.rates.tolist())
        self.assertEqual([[0, 1], [1, 0]], chain.jump.tolist())
        self.assertEqual([3, 1], chain.sojourn_seconds.tolist())
        self.assertEqual([1.25, 1.75, 2.75], chain.mean.tolist())
        self.assertEqual([5, 7, 11], chain.peak.tolist())

    def test_a_constant_is_its_own_mean_and_peak(self):
        chain = model.TrafficModel.constant(5, 7, 11)
        self.assertEqual([5, 7, 11], chain.mean.tolist())
        self.assertEqual([5, 7, 11], chain.peak.tolist())
        self.assertEqual([0, 0, 0],
                         model.TrafficModel.constant().peak.tolist())

    def test_mean_weighs_the_states_by_their_share_of_time(self):
        source = exact.Source.random(np.random.default_rng(3), 4)
        mean = [sum(p * row[k] for p, row in zip(source.law, source.rates))
                for k in range(3)]
        np.testing.assert_allclose(source.model.mean,
                                   [float(x) for x in mean], rtol=1e-13)

    def test_peak_leaves_out_states_that_are_never_visited_again(self):
        chain = model.TrafficModel([[99, 99, 99], [1, 5, 2], [4, 0, 3]],
                                   [[0, 1, 0], [0, 0, 1], [0, 1, 0]],
                                   [1, 1, 1])
        self.assertEqual([4, 5, 3], chain.peak.tolist())
        self.assertEqual(2, len(chain.law.probabilities))

    def test_levels_are_distinct_increasing_and_carry_the_law(self):
        chain = model.TrafficModel(
            [[3, 0, 0], [1, 2, 5], [9, 1, 1], [0, 0, 0]], _ring(4),
            [1, 2, 3, 4])
        values, masses = chain.levels(model.dimension_weights('bandwidth'))
        self.assertEqual([0, 3, 10], values.tolist())
        np.testing.assert_allclose(masses, [.4, .3, .3], rtol=1e-15)


class TestInstants(ModelTestCase):

    #: Three states, and each fifth instant drawn.
    ROWS = np.arange(504) % 3 + 128 * (np.arange(504) % 5 == 0)

    def _model(self, at_instants=ROWS):
        return model.TrafficModel(
            [[0, 0, 0], [10, 5, 1], [90, 5, 3]],
            [[0, .5, .5], [.5, 0, .5], [.5, .5, 0]], [640, 255, 105],
            at_instants)

    def test_the_law_keeps_the_states_at_the_instants(self):
        law = self._model().law
        np.testing.assert_array_equal(self.ROWS, law.at_instants)
        self.assertEqual(504 - 101, self._model().sampled_instants)
        # 3 states of 4 numbers, and a byte for each instant.
        self.assertEqual(3 * 32 + 504, len(law))
        for name, value in (('probabilities', [.64, .255, .105]),
                            ('mean', [12, 1.8, .57]), ('peak', [90, 5, 3])):
            np.testing.assert_allclose(getattr(law, name), value, rtol=1e-12)
        self.assertEqual(self._model(None).law, law.independent())
        self.assertIsNone(law.independent().at_instants)
        self.assertEqual(0, self._model(None).sampled_instants)

    def test_the_length_says_how_many_states_there_are(self):
        for states in (1, 2, 16, 32, 400):
            shape = np.full(states, 1 / states), np.ones((states, 3))
            for at_instants in (None, self.ROWS):
                law = rate_law.RateLaw.from_arrays(*shape, at_instants)
                self.assertEqual(states, law.states)
                self.assertEqual((states, 3), law.rates.shape)
                self.assertEqual(at_instants is not None, law.is_sampled)

    def test_laws_that_stand_one_after_the_other_are_split(self):
        laws = [self._model().law, model.TrafficModel.constant(3).law,
                self._model(self.ROWS[::-1]).law]
        self.assertEqual(laws, rate_law.split_laws(
            b''.join(laws), list(map(len, laws))))

    def test_it_is_kept_in_a_dictionary_and_with_packets(self):
        chain = self._model()
        restored = model.TrafficModel.from_dict(json.loads(json.dumps(
            chain.to_dict())))
        self.assertEqual(chain, restored)
        self.assertEqual(chain.law, restored.law)
        for other in (None, self.ROWS[::-1]):
            self.assertNotEqual(chain, self._model(other))
        self.assertNotIn('at_instants', self._model(None).to_dict())
        silent = model.TrafficModel.constant(8)
        silent = dataclasses.replace(silent, at_instants=[0] * 504)
        self.assertEqual([0] * 504,
                         silent.with_packets(100).at_instants.tolist())

    def test_what_is_no_state_is_refused(self):
        for value in (3, 127, 128 + 3, 256, -1):
            rows = self.ROWS.copy()
            rows[77] = value
            self.assertInvalid(('at_instants', '504', '0..2'), self._model,
                               rows)
        for rows in (self.ROWS[1:], self.ROWS / 1, 'x', [[1], [1, 2]]):
            self.assertInvalid(('at_instants', '504'), self._model, rows)
        for most, n in ((31, 32), (31, 33)):
            call = (model.TrafficModel, _rates(n), _ring(n), np.ones(n),
                    np.full(504, most))
            if n == 32:
                self.assertEqual(32, call[0](*call[1:]).law.states)
            else:
                self.assertInvalid(('at_instants', '32 states'), *call)
        for text in ('zz', 7, 'ff'):
            self.assertInvalid(
                ('at_instants',), model.TrafficModel.from_dict,
                {**self._model().to_dict(), 'at_instants': text})

    def test_states_that_are_left_for_good_are_not_counted(self):
        chain = model.TrafficModel(
            [[9, 0, 0], [1, 0, 0], [2, 0, 0]],
            [[0, 1, 0], [0, 0, 1], [0, 1, 0]], [1, 1, 1],
            self.ROWS % 128 % 2 + 1 + (self.ROWS & 128))
        law = chain.law
        self.assertEqual(2, law.states)
        np.testing.assert_array_equal(
            chain.rates[chain.at_instants % 128],
            law.rates[law.at_instants % 128])
        np.testing.assert_array_equal(self.ROWS >= 128,
                                      law.at_instants >= 128)


class TestPackets(ModelTestCase):

    def test_bandwidth_without_packets_means_that_they_are_not_known(self):
        for rates, packets_known in (((5, 0, 0), False), ((0, 5, 0), False),
                                     ((5, 0, 1), True), ((0, 0, 0), True),
                                     ((0, 0, 1), True)):
            chain = model.TrafficModel.on_off(
                *rates, on_seconds=1, off_seconds=1)
            self.assertEqual(packets_known, chain.packets_known, rates)
            self.assertEqual(packets_known, chain.law.packets_known, rates)
        # A state that is never visited again says nothing.
        self.assertFalse(model.TrafficModel(
            [[0, 0, 7], [5, 0, 0], [6, 0, 0]],
            [[0, 1, 0], [0, 0, 1], [0, 1, 0]], [1, 1, 1]).packets_known)

    def test_packets_filled_in_are_bits_over_bits_of_a_packet(self):
        chain = model.TrafficModel.on_off(8000, 4000, on_seconds=1,
                                          off_seconds=1)
        # 12 Mbit/s in packets of 1500 bytes are a thousand a second.
        filled = chain.with_packets(1500)
        self.assertEqual([[0, 0, 0], [8000, 4000, 1.0]],
                         filled.rates.tolist())
        self.assertTrue(filled.packets_known)
        self.assertFalse(chain.packets_known)
        self.assertIs(filled, filled.with_packets(1))
        for size in (0, -1, NAN):
            self.assertInvalid(('packet_bytes', str(size), '> 0'),
                               chain.with_packets, size)


class TestRateLaw(ModelTestCase):

    def test_packing_keeps_every_bit(self):
        probabilities = np.array([1 / 3, 2 / 3])
        rates = np.array([[.1, .2, .3], [4e8, 5e-324, 0]])
        law = rate_law.RateLaw.from_arrays(probabilities, rates)
        self.assertEqual(64, len(law))
        unpacked = rate_law.RateLaw(bytes(law))
        np.testing.assert_array_equal(probabilities, unpacked.probabilities)
        np.testing.assert_array_equal(rates, unpacked.rates)
        with self.assertRaises(ValueError):
            unpacked.rates[0, 0] = 1

    def test_values_count_unknown_packets_at_the_packet_size(self):
        unknown, known = (model.TrafficModel.on_off(
            8000, 4000, kpps, on_seconds=1, off_seconds=1).law
            for kpps in (0, 7))
        for law, value, *arguments in (
                (known, 8000 + 40_000 + 700, (1, 10, 100)),
                (known, 7, (0, 0, 1), 1500), (unknown, 0, (0, 0, 1)),
                (unknown, 1, (0, 0, 1), 1500),
                # A weight on packets beside bandwidth: both count.
                (unknown, 8000 + 2, (1, 0, 2), 1500),
                (unknown, 8000, (1, 0, 0), 1500)):
            self.assertEqual([0, value], law.values(*arguments).tolist())


class TestDictionary(ModelTestCase):

    def test_a_model_survives_json_with_every_bit(self):
        rng = np.random.default_rng(2)
        jump = rng.random((4, 4)) * (1 - np.eye(4))
        chain = model.TrafficModel(
            rng.lognormal(3, 9, (4, 3)),
            jump / jump.sum(axis=1, keepdims=True), rng.random(4))
        restored = model.TrafficModel.from_dict(
            json.loads(json.dumps(chain.to_dict())))
        self.assertEqual(chain, restored)
        np.testing.assert_array_equal(chain.stationary, restored.stationary)

    def test_another_version_and_missing_keys_are_refused(self):
        good = model.TrafficModel.constant(5).to_dict()
        self.assertInvalid(('format_version', '1', '2'),
                           model.TrafficModel.from_dict,
                           {**good, 'format_version': 1})
        for key in good:
            self.assertInvalid(
                (key,), model.TrafficModel.from_dict,
                {name: value for name, value in good.items()
                 if name != key})
        self.assertInvalid(('dictionary',), model.TrafficModel.from_dict,
                           None)
        self.assertInvalid(('rates', '-1.0'), model.TrafficModel.from_dict,
                           {**good, 'rates': [[-1, 0, 0]]})

    def test_models_are_equal_when_their_arrays_are(self):
        base = _rates(3), _ring(3), [1, 2, 3]
        chain = model.TrafficModel(*base)
        self.assertEqual(chain, model.TrafficModel(*base))
        self.assertNotEqual(chain, 5)
        for place, other in enumerate((_rates(3)[::-1], _ring(3).T,
                                       [1, 3, 3])):
            arguments = list(base)
            arguments[place] = other
            self.assertNotEqual(chain, model.TrafficModel(*arguments))
