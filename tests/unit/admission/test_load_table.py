# SPDX-License-Identifier: Apache-2.0

import dataclasses
import fractions
import itertools
import math
import unittest
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import numpy as np

from tests.unit.traffic import exact
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import sources
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import exact_sum
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments
from vswitch_aware_scheduler.vswitch import profile

F = fractions.Fraction


def _profile(saturation_kbps=1000.0, **stated):
    return profile.SwitchProfile(name='own', saturation_kbps=saturation_kbps,
                                 **stated)


def _policy(policy=admission.PROBABILITY, limit=.01, pass_unknown=True,
            **stated):
    return admission.HostPolicy(_profile(**stated), policy, limit,
                                pass_unknown)


def _on_off(kbps, share=F(1, 10), ingress=0.0, kpps=0.0):
    return model.TrafficModel.on_off(
        kbps, ingress, kpps, on_seconds=float(share),
        off_seconds=float(1 - F(share)))


def _constant(*rates):
    return model.TrafficModel.constant(*rates).law


def _egress(shares, kbps, *at_instants):
    """Return a law of egress only."""
    return rate_law.RateLaw.from_arrays(
        shares, np.outer(kbps, [1.0, 0, 0]), *at_instants)


def _named(laws):
    return {f'vm-{i}': law for i, law in enumerate(laws)}


def _judged(policy, residents, law=_constant(), exclude=None, **table):
    """Return the Assessment of a host described anew."""
    table = admission.LoadTable(**table)
    if not isinstance(residents, dict):
        residents = _named(residents)
    return table.assess([table.describe('host', policy, residents)], law,
                        exclude)


def _random_models(rng, count, largest=200.0):
    """Return models of any rates, in both directions and packets."""
    models = []
    for _ in range(count):
        n = int(rng.integers(1, 5))
        rates = rng.uniform(0, largest, (n, 3))
        rates[:, 2] *= .05
        jump = rng.random((n, n)) * (1 - np.eye(n))
        if n > 1:
            jump /= jump.sum(axis=1, keepdims=True)
        models.append(model.TrafficModel(rates, jump, rng.uniform(1, 9, n)))
    return models


def _random_laws(*arguments):
    return [source.law for source in _random_models(*arguments)]


class AdmissionTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.table = admission.LoadTable()

    def judge(self, policy, residents=(), candidate=None, exclude=None):
        """Return the Assessment of one host."""
        if not isinstance(residents, dict):
            residents = _named(resident.law for resident in residents)
        row = self.table.describe('host', policy, residents)
        candidate = candidate or model.TrafficModel.constant()
        return self.table.assess([row], candidate.law, exclude)

    def assertAdmitted(self, admitted, *case, msg=None):
        """Want judge() to admit or to refuse, and return its answer."""
        assessment = self.judge(*case)
        self.assertEqual([admitted], assessment.admitted.tolist(), msg)
        return assessment

    def assertAlike(self, expected, actual, atol=1e-14, rtol=1e-9,
                    at=slice(None)):
        """Want two Assessments to agree but for rounding.

        :param at: number of the host of ``seen`` that ``wanted`` is of
        """
        for name in ('overload_probability', 'loss_fraction', 'utilisation',
                     'reason'):
            np.testing.assert_allclose(
                np.ravel(getattr(actual, name)[at]), getattr(expected, name),
                rtol=rtol, atol=atol, err_msg=name)


class TestHostPolicy(unittest.TestCase):

    def test_what_is_not_a_policy_or_a_probability_is_refused(self):
        for parts, kwargs in (
                (("'sometimes'", 'average', 'probability'),
                 {'policy': 'sometimes'}),
                (('-0.1', '0..1'), {'overload_probability': -.1}),
                (('1.1', '0..1'), {'overload_probability': 1.1}),
                (('nan', '0..1'), {'overload_probability': float('nan')}),
                (('0.0', 'above 0'), {'prediction_margin': 0.0}),
                (('inf', 'above 0'), {'prediction_margin': float('inf')}),
                (('nan', 'above 0'), {'prediction_margin': float('nan')})):
            with self.assertRaises(exceptions.InvalidOverride) as caught:
                admission.HostPolicy(None, **kwargs)
            for part in (*parts, 'expected'):
                self.assertIn(part, str(caught.exception))


class TestKnownLaws(unittest.TestCase):

    def test_each_law_has_its_value_however_many_are_kept(self):
        laws = [_on_off(number).law for number in range(300)]
        peaks_of_laws, computed = sources.KnownLaws(200), []

        def peaks(law_group):
            largest = law_group.values((2.0, 1.0, 0.0), None).max(axis=0)
            computed.extend(largest.tolist())
            return largest

        for numbers in (range(100), range(99, -1, -1), range(100, 200),
                        range(200, 300), range(50, 150)):
            self.assertEqual([2.0 * i for i in numbers], peaks_of_laws.of(
                [laws[i] for i in numbers], 'key', peaks).tolist())
            self.assertLessEqual(len(peaks_of_laws), 200)
        # The first ones only once, although they were asked for twice.
        self.assertEqual(list(range(0, 600, 2)), computed[:300])

    def test_another_key_is_another_value(self):
        values, law = sources.KnownLaws(9), _on_off(100).law
        for key in (1, 2, 1):
            self.assertEqual([key], values.of(
                [law], key, lambda law_group, key=key: np.array([key])))


class TestParts(AdmissionTestCase):

    def test_many_residents_are_summed_in_parts(self):
        rng = np.random.default_rng(111)
        busy = rng.random((600, 504)) < .02
        for count, capacity, sampled in (
                (129, 1900.0, False), (600, 7500.0, False),
                (600, 7500.0, True)):
            laws = [_egress(rng.dirichlet([9, 2, 1]),
                            [0, *rng.uniform(5, 80, 2)],
                            *([2 * busy[i]] if sampled else ()))
                    for i in range(count)]
            policy = _policy(saturation_kbps=capacity, limit=.5)
            with self.subTest(count=count, sampled=sampled):
                with mock.patch.object(sources, 'MOST_IN_PART', 1000):
                    whole = _judged(policy, laws, laws[0])
                self.assertTrue(1e-6 < whole.overload_probability[0] < 1)
                self.assertAlike(whole, _judged(policy, laws, laws[0]))

    def test_a_change_of_one_of_many_computes_one_part(self):
        rng = np.random.default_rng(112)
        laws = _random_laws(rng, 601)
        policy = _policy(saturation_kbps=9000.0)
        row = self.table.describe('host', policy, _named(laws[:600]))
        self.table.assess([row], laws[0])
        with mock.patch.object(
                sources.HostPart, '__init__', autospec=True,
                side_effect=sources.HostPart.__init__) as part:
            for change in (({'new': laws[600]}, ()), ({}, ['new', 'vm-7'])):
                self.table.change({'host': change})
                self.table.assess([row], laws[0])
        # The part of 'new', and that of 'vm-7'; the part without 'new' is
        # known.
        self.assertEqual(2, part.call_count)
        del laws[600], laws[7]
        self.assertAlike(_judged(policy, laws, laws[0]),
                         self.table.assess([row], laws[0]))


class TestProbability(AdmissionTestCase):

    def assertBound(self, exact_probability, bound, slack=.1):
        """Want an upper bound that is near."""
        self.assertGreaterEqual(bound, exact_probability * (1 - 1e-9))
        self.assertLessEqual(bound, exact_probability * (1 + slack) + 1e-15)

    def test_like_instances_are_binomial(self):
        for count, capacity in ((3, 2500.0), (20, 6000.0), (50, 12_000.0)):
            assessment = self.judge(
                _policy(saturation_kbps=capacity),
                [_on_off(1000)] * (count - 1), _on_off(1000))
            tail = float(exact.binomial_tail(
                count, F(1, 10), math.floor(capacity / 1000)))
            self.assertBound(tail, assessment.overload_probability[0],
                             1e-9)

    def test_loss_of_like_instances_is_the_binomial_excess(self):
        n, fit, p = 20, 4, F(1, 10)
        assessment = self.judge(_policy(saturation_kbps=4000.0),
                                [_on_off(1000)] * (n - 1), _on_off(1000))
        excess = sum(math.comb(n, k) * p ** k * (1 - p) ** (n - k)
                     * (k - fit) for k in range(fit + 1, n + 1))
        self.assertAlmostEqual(float(excess / (n * p)),
                               assessment.loss_fraction[0], delta=1e-12)

    def test_where_all_peaks_fit_there_is_no_overload(self):
        on_off = _on_off(.1, F(1, 2))
        assessment = self.assertAdmitted(
            True, _policy(saturation_kbps=.3), [on_off] * 2, on_off)
        self.assertEqual(0.0, assessment.overload_probability[0])
        self.assertEqual(0.0, assessment.loss_fraction[0])

    def test_a_limit_of_zero_books_the_peak_of_everyone(self):
        for count, admitted in ((9, True), (10, False)):
            self.assertAdmitted(admitted, _policy(limit=0.0),
                                [_on_off(100)] * count, _on_off(100))

    def test_a_limit_of_one_admits_whatever_is_not_too_large(self):
        assessment = self.assertAdmitted(
            True, _policy(limit=1.0), [_on_off(900, F(9, 10))] * 30,
            _on_off(900))
        self.assertEqual(1.0, round(assessment.overload_probability[0], 6))

    def test_a_probability_equal_to_the_limit_is_admitted(self):
        # Three at once: a tenth to the third.
        for limit, admitted in ((.001, True), (.001 * (1 - 1e-6), False),
                                (.1 ** 3, True), (.1 * .1 * .1, True)):
            self.assertAdmitted(
                admitted, _policy(limit=limit, saturation_kbps=2500.0),
                [_on_off(1000)] * 2, _on_off(1000), msg=limit)

    def test_an_instance_as_large_as_the_capacity_fits_an_empty_host(self):
        for capacity in (.3, 1000.0, 1e9 / 3):
            candidate = _on_off(capacity, F(1, 2))
            self.assertAdmitted(True, _policy(saturation_kbps=capacity), (),
                                candidate)
            # And beside one that is silent most of the time.
            assessment = self.assertAdmitted(
                True, _policy(saturation_kbps=capacity, limit=.06),
                [_on_off(capacity / 4)], candidate)
            self.assertAlmostEqual(.05, assessment.overload_probability[0])

    def test_constants_above_the_capacity_overload_for_ever(self):
        assessment = self.judge(
            _policy(), [model.TrafficModel.constant(600)] * 3,
            model.TrafficModel.constant(200))
        self.assertEqual(1.0, assessment.overload_probability[0])
        self.assertAlmostEqual(.5, assessment.loss_fraction[0], 12)
        self.assertAlmostEqual(2.0, assessment.utilisation[0], 12)

    def test_a_limit_is_decided_as_if_the_capacity_were_near(self):
        # To a hundredth of the capacity, for any limit, few and many.
        rng = np.random.default_rng(101)
        admitted = []
        for number in range(120):
            count = int(rng.integers(2, 13) if number % 2
                        else rng.integers(13, 60))
            sources = self._sources(rng, count, .7 if number % 2 else
                                    min(.7, 8 / count))
            exact_tails = [self._tail(sources, by) for by in (.99, 1.01)]
            if exact_tails[0] < 1e-9:
                continue
            limit = float(10 ** rng.uniform(
                max(math.log10(exact_tails[0]) - 1, -9), 0))
            laws = [_egress(shares, 1000.0 * values)
                    for values, shares in sources]
            fits = bool(_judged(_policy(limit=limit), laws[1:],
                                laws[0]).admitted[0])
            admitted.append(fits)
            self.assertFalse(fits and exact_tails[1] > limit, number)
            self.assertFalse(not fits and exact_tails[0] <= limit, number)
        self.assertGreater(sum(admitted), 10)
        self.assertLess(sum(admitted), len(admitted) - 10)

    def test_few_have_a_probability_of_a_capacity_that_is_near(self):
        # To a hundredth of the capacity, for any limit.
        rng = np.random.default_rng(7)
        compared = 0
        for number in range(150):
            sources = []
            for _ in range(int(rng.integers(2, 11))):
                rates = np.sort(rng.uniform(0, .7 * rng.random(), 3))
                if rng.random() < .7:
                    rates[0] = 0.0
                sources.append((rates, rng.dirichlet([9, 1, .3])))
            below, above = (self._tail(sources, by) for by in (.99, 1.01))
            laws = [_egress(shares, 1000.0 * rates)
                    for rates, shares in sources]
            judged = _judged(_policy(), laws[1:], laws[0])
            overload = judged.overload_probability[0]
            self.assertLessEqual(overload, below * (1 + 1e-5) + 1e-12, number)
            self.assertGreaterEqual(overload, above * (1 - 1e-5) - 1e-12,
                                    number)
            compared += above > 1e-9
            # If a sum moves by d, its excess changes by at most d times the
            # probability that the sum is above the nearer capacity.
            excess, mean = self._excess(sources)
            self.assertAlmostEqual(
                excess, judged.loss_fraction[0] * mean,
                delta=.01 * below + 1e-12, msg=number)
        self.assertGreater(compared, 75)

    def test_few_that_dominate_are_decided_as_if_the_capacity_were_near(self):
        # One to three large ones beside many small ones.
        rng = np.random.default_rng(103)
        admitted = []
        for number in range(60):
            laws = []
            for size in ([.6] * int(rng.integers(1, 4))
                         + [.05] * int(rng.integers(5, 50))):
                rates = np.append(0, rng.uniform(0, size, 2)) * 1000.0
                laws.append(rate_law.RateLaw.from_arrays(
                    rng.dirichlet([9, 1, .1]), np.outer(rates, [.5, .5, 0])))
            exact_tails = [self._lattice_tail(laws, by) for by in (.99, 1.01)]
            if exact_tails[0] < 1e-9:
                continue
            limit = float(exact_tails[0] * 10 ** rng.uniform(-.3, .3))
            if limit >= 1:
                continue
            table = admission.LoadTable()
            row = table.describe('host', _policy(limit=limit), {})
            # Each after a question, as requests place them.
            for i, law in enumerate(laws[1:]):
                table.change({'host': ({str(i): law}, ())})
                fits = bool(table.assess([row], laws[0]).admitted[0])
            admitted.append(fits)
            self.assertFalse(fits and exact_tails[1] > limit, number)
            self.assertFalse(not fits and exact_tails[0] <= limit, number)
        self.assertGreater(sum(admitted), 5)
        self.assertLess(sum(admitted), len(admitted) - 5)

    def test_silent_instances_do_not_hide_the_steps_of_two_large_ones(self):
        # Two large ones fill the capacity to within two per cent, now and then
        # together with a third one.
        rng = np.random.default_rng(106)
        admitted = []
        for number in range(60):
            sizes = np.array([.4, .6]) * rng.uniform(.98, 1.0) * 1000.0
            shares = [*rng.uniform(.1, .9, 2), 10 ** rng.uniform(-6, -2)]
            laws = [_egress([1 - share, share], [0.0, kbps]) for share, kbps
                    in zip(shares, [*sizes, rng.uniform(50, 400)])]
            laws += [_egress(rng.dirichlet([9, 1]),
                             [0.0, rng.uniform(.001, .1)])
                     for _ in range(rng.integers(22, 40))]
            exact_tails = [self._lattice_tail(laws, by) for by in (.99, 1.01)]
            for limit in (exact_tails[0] * 1.02, exact_tails[1] * .98,
                          10 ** rng.uniform(-9, -1)):
                if not 1e-9 <= limit <= 1:
                    continue
                fits = bool(_judged(
                    _policy(limit=limit), laws[:-1],
                    laws[-1]).admitted[0])
                admitted.append(fits)
                self.assertFalse(fits and exact_tails[1] > limit, number)
                self.assertFalse(not fits and exact_tails[0] <= limit, number)
        self.assertGreater(sum(admitted), 20)
        self.assertLess(sum(admitted), len(admitted) - 20)

    def test_steps_make_no_waves_where_limits_are_low(self):
        # A large one fills most of the capacity nearly all the time, and once
        # in a thousand million times another one is on as well.
        silent = [_egress([.9, .1], [0.0, 1e-6 * i]) for i in range(1, 31)]
        for kbps in (700.0, 800.0, 900.0, 975.0, 981.0, 985.0, 988.0, 989.9):
            for share in (.5, .9, .999):
                laws = [_egress([1 - share, share], [0.0, kbps]),
                        _egress([1 - 3e-9, 3e-9], [0.0, 325.0]), *silent]
                self.assertAlmostEqual(1, _judged(
                    _policy(), laws).overload_probability[0] / (3e-9 * share),
                    delta=1e-3, msg=f'{kbps} {share}')

    def test_a_tail_with_steps_comes_and_goes(self):
        # The host described anew, and back.
        silent = {str(i): _egress([.9, .1], [0.0, .01 + i / 999])
                  for i in range(30)}
        small = {f'small-{i}': _egress([.7, .3], [0.0, 20.0 + i / 7])
                 for i in range(30)}
        large = {str(kbps): _egress([.5, .5], [0.0, kbps])
                 for kbps in (395.3, 601.7, 111.1)}
        policy, table, residents = _policy(), admission.LoadTable(), {}
        row = table.describe('host', policy, residents)
        for came, went in ((silent, {}), (large, {}), (small, {}),
                           ({}, large), (large, {}), ({}, small)):
            table.change({'host': (came, list(went))})
            residents = {uuid: law for uuid, law in {
                **residents, **came}.items() if uuid not in went}
            self.assertAlike(_judged(policy, residents, _constant(1.0)),
                             table.assess([row], _constant(1.0)))

    @staticmethod
    def _lattice_tail(laws, share):
        """Return P(sum > share * 1000 kbit/s), rates put on a lattice."""
        total = exact_sum.LatticeSum(1000.0 * share, share / 20)
        for law in laws:
            total = total.plus(total.step * np.rint(law.values(
                model.DIMENSIONS['bandwidth']) / total.step),
                law.probabilities)
        return total.overflow

    def test_a_full_host_is_full_to_a_thousandth_of_its_limit(self):
        # No instance is refused for the error of the tail, a silent one
        # least of all; what exceeds the limit by more is refused.
        rng = np.random.default_rng(105)
        laws = [_egress(rng.dirichlet([9, 1, 1]),
                        [0, *rng.uniform(5, 80, 2)]) for _ in range(60)]
        tail = self._lattice_tail(laws, 1.0)
        self.assertTrue(1e-6 < tail < .5)
        for excess, admitted in ((-1e-3, True), (3e-4, True), (5e-3, False)):
            table = admission.LoadTable()
            row = table.describe('host', _policy(
                limit=tail / (1 + excess)), _named(laws[1:]))
            self.assertEqual(admitted, bool(
                table.assess([row], laws[0]).admitted[0]), excess)
            table.change({'host': ({'last': laws[0]}, ())})
            full = table.assess([row], _constant())
            self.assertEqual(admitted, bool(full.admitted[0]), excess)
            # A host that is filled to its limit is not above it.
            self.assertEqual(admitted, not full.above[0], excess)

    def test_few_large_instances_among_many_small_ones_are_judged_as_well(
            self):
        # The tail has steps where large ones are high: right for a capacity
        # within a thousandth.
        rng = np.random.default_rng(3)
        for _ in range(30):
            laws = [_egress(rng.dirichlet([200, 4, 1]),
                            [0, *rng.uniform(.2, 1, 2) * largest])
                    for largest in [900] * 6 + [20] * 34]
            for share, excess, admitted in ((.999, -2e-3, True),
                                            (1.001, 5e-3, False)):
                tail = self._lattice_tail(laws, share)
                self.assertEqual(admitted, bool(_judged(
                    _policy(limit=tail / (1 + excess)), laws[1:],
                    laws[0]).admitted[0]), tail)

    @staticmethod
    def _sources(rng, count, largest):
        """Return [(rates, shares)], some of them with much always on."""
        sources = []
        for _ in range(count):
            rates = np.sort(rng.uniform(0, largest * rng.random(), 2))
            if rng.random() < .7:
                rates[0] = 0.0
            sources.append((rates, rng.dirichlet([9, 1])))
        return sources

    @staticmethod
    def _tail(sources, capacity):
        """Return P(sum > capacity), of few sums by going through them all."""
        if len(sources) <= 12:
            sums, shares = np.zeros(1), np.ones(1)
            for values, masses in sources:
                sums = np.add.outer(sums, values).ravel()
                shares = np.multiply.outer(shares, masses).ravel()
            return shares[sums > capacity].sum()
        total = exact_sum.LatticeSum(capacity, capacity / 20_000)
        for values, masses in sources:
            total = total.plus(np.array([values[0], values[0] + np.rint(
                (values[1] - values[0]) / total.step) * total.step]), masses)
        return total.overflow

    @staticmethod
    def _excess(sources):
        """Return E[(sum - 1)+] and E[sum] of few sums."""
        sums, shares = np.zeros(1), np.ones(1)
        for values, masses in sources:
            sums = np.add.outer(sums, values).ravel()
            shares = np.multiply.outer(shares, masses).ravel()
        return shares @ np.maximum(sums - 1, 0), shares @ sums

    def test_after_a_change_no_larger_instance_waits_for_its_table(self):
        # What asks first after a change makes the table for both.
        small, large = _constant(1.0), _constant(990.0)
        laws = {str(i): _constant(float(i)) for i in range(3, 8)}
        table = admission.LoadTable()
        row = table.describe('host', _policy(), laws)
        table.assess([row], large)
        for change in (({}, ['3']), ({'8': laws['7']}, ())):
            table.change({'host': change})
            table.assess([row], small)
            with mock.patch.object(
                    fourier_sum.Grid, 'table', autospec=True,
                    side_effect=fourier_sum.Grid.table) as table_made:
                table.assess([row], large)
            table_made.assert_not_called()

    def test_equal_rates_that_hit_the_capacity_fit(self):
        # As many at once as there is room for, and not one more.
        for rate, capacity, fit in (
                (100_000.0, 1e6, 10), (333_000.0, 1e6, 3), (8000.0, 1e6, 125),
                (1e6 / 3, 1e6, 3), (.1, .3, 3), (2500.0, 1e6, 400)):
            on_off, policy = _on_off(rate, F(1, 2)), _policy(
                saturation_kbps=capacity, limit=0.0)
            for count, admitted in ((fit - 1, True), (fit, False)):
                self.assertAdmitted(admitted, policy, [on_off] * count, on_off)
            for count in (fit + 1, fit + 5, 2 * fit):
                assessment = self.judge(_policy(saturation_kbps=capacity),
                                        [on_off] * (count - 1), on_off)
                self.assertAlmostEqual(
                    float(exact.binomial_tail(count, F(1, 2), fit)),
                    assessment.overload_probability[0], delta=1e-12)

    def test_thousands_and_a_few_large_ones_are_binomial(self):
        # The small ones vary by little: the large ones overload.
        small, large = _on_off(1.037, F(1, 2)), _on_off(510_000.0)
        policy = _policy(saturation_kbps=1e6)
        laws = {**{f'small-{i}': small.law for i in range(3000)},
                **{f'large-{i}': large.law for i in range(4)}}
        tail = float(exact.binomial_tail(5, F(1, 10), 1))
        self.assertAlmostEqual(1, self.judge(
            policy, laws, large).overload_probability[0] / tail, 2)


class TestSeveralLimits(AdmissionTestCase):

    STATED = {'saturation_kbps': 900.0, 'line_rate_kbps': 500.0,
              'packet_rate_kpps': 45.0}

    def _joint(self, models, capacities):
        """Return P(any limit is exceeded), by enumeration."""
        masses = np.ones(1)
        sums = np.zeros((1, 3))
        for source in models:
            masses = np.multiply.outer(masses, source.stationary).ravel()
            sums = (sums[:, None, :] + source.rates[None]).reshape(-1, 3)
        above = np.zeros(len(sums), dtype=bool)
        for weights, capacity in capacities:
            above |= sums @ np.array(weights) > capacity
        return masses[above].sum()

    def test_the_sum_of_all_is_a_bound_of_the_joint_risk(self):
        rng = np.random.default_rng(83)
        policy = admission.HostPolicy(profile.SwitchProfile(
            name='many', **self.STATED))
        stated = [(limit.weights, limit.capacity)
                  for limit in policy.profile.limits()]
        self.assertEqual(4, len(stated))
        for _ in range(20):
            models = _random_models(rng, 7, 130.0)
            assessment = self.judge(policy, models[1:], models[0])
            # The capacity may be off by a hundredth, and tables of sums that
            # are not on the grid have six digits.
            capacities = [(weights, 1.01 * capacity)
                          for weights, capacity in stated]
            joint = self._joint(models, capacities)
            single = [self._joint(models, [limit]) for limit in capacities]
            self.assertGreaterEqual(assessment.overload_probability[0],
                                    min(joint, 1.0) * (1 - 1e-6))
            self.assertGreaterEqual(
                assessment.overload_probability[0],
                min(sum(single), 1.0) * (1 - 1e-6))
            self.assertLessEqual(assessment.overload_probability[0], 1.0)

    def test_it_is_the_sum_of_the_single_ones(self):
        # Bandwidth 3 at once of 3, egress likewise: 0.001 each.
        on_off = _on_off(1000)
        assessment = self.judge(
            _policy(saturation_kbps=2500.0, line_rate_kbps=2600.0),
            [on_off] * 2, on_off)
        self.assertAlmostEqual(.002, assessment.overload_probability[0], 12)

    def test_a_sum_above_one_is_one(self):
        constant = model.TrafficModel.constant(900, 900)
        assessment = self.judge(
            _policy(saturation_kbps=1000.0, line_rate_kbps=950.0,
                    ), [constant] * 2, constant)
        self.assertEqual(1.0, assessment.overload_probability[0])
        self.assertLessEqual(assessment.loss_fraction[0], 1.0)

    def test_every_limit_has_its_own_direction(self):
        policy = admission.HostPolicy(profile.SwitchProfile(
            name='line', line_rate_kbps=1500.0))
        for rates, admitted in (((1000, 0), False), ((0, 1000), True)):
            self.assertAdmitted(admitted, policy, [_on_off(1000, F(1, 2))],
                                _on_off(rates[0], F(1, 2), rates[1]))

    def test_unknown_packets_count_at_the_typical_size(self):
        # 3 Mbit/s in packets of 500 bytes are 0.75 kpps.
        policy = admission.HostPolicy(profile.SwitchProfile(
            name='packets', packet_rate_kpps=2.0,
            typical_packet_bytes=500.0), overload_probability=0.0)
        unknown, known = _on_off(3000), _on_off(3000, kpps=.5)
        for residents, candidate, admitted in (
                ([unknown], unknown, True), ([unknown] * 2, unknown, False),
                ([known] * 3, known, True), ([known] * 4, known, False),
                ([known] * 2, unknown, True), ([known] * 3, unknown, False)):
            self.assertAdmitted(admitted, policy, residents, candidate)

    def test_hosts_with_other_packet_sizes_count_apart(self):
        laws = _named([_on_off(3000).law])
        rows = [self.table.describe(f'host-{size}', admission.HostPolicy(
            profile.SwitchProfile(name='p', packet_rate_kpps=1.0,
                                  typical_packet_bytes=size),
            overload_probability=0.0), laws) for size in (500.0, 1500.0)]
        # 0.75 kpps each of two do not fit, 0.25 kpps do.
        self.assertEqual([False, True], self.table.assess(
            rows, _on_off(3000).law).admitted.tolist())


class TestAverage(AdmissionTestCase):

    def test_averages_fill_a_host_up_to_saturation(self):
        # Figure 9: ten of a mean of 100 on 1000, whatever their peaks.
        for count, admitted in ((9, True), (10, False)):
            self.assertAdmitted(
                admitted, _policy(admission.AVERAGE, limit=0.0),
                [_on_off(1000)] * count, _on_off(1000))

    def test_a_sum_of_averages_equal_to_saturation_is_admitted(self):
        for kbps, capacity in ((.1, .3), (.7, 2.1), (1e9 / 3, 1e9)):
            constant = model.TrafficModel.constant(kbps)
            policy = _policy(admission.AVERAGE, saturation_kbps=capacity)
            for count, admitted in ((2, True), (3, False)):
                self.assertAdmitted(admitted, policy, [constant] * count,
                                    constant)

    def test_every_limit_has_to_hold_the_averages(self):
        policy = _policy(admission.AVERAGE, saturation_kbps=1000.0,
                         line_rate_kbps=100.0)
        for egress, ingress, admitted in ((60, 0, False), (0, 60, True)):
            self.assertAdmitted(
                admitted, policy, [model.TrafficModel.constant(60, 10)],
                model.TrafficModel.constant(egress, ingress))

    def test_the_probability_is_told_but_does_not_decide(self):
        assessment = self.assertAdmitted(
            True, _policy(admission.AVERAGE, limit=0.0), [_on_off(1000)],
            _on_off(1000))
        self.assertAlmostEqual(.01, assessment.overload_probability[0])

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(
        st.lists(st.tuples(st.integers(1, 400), st.integers(1, 9)),
                 max_size=12), st.tuples(st.integers(1, 400),
                                         st.integers(1, 9)),
        st.integers(1, 2000), st.one_of(st.none(), st.integers(1, 500)),
        st.one_of(st.none(), st.integers(0, 12)))
    def test_it_is_figure_9_line_by_line(self, rows, row, saturation, peak,
                                         tunnels):
        policy = _policy(admission.AVERAGE, saturation_kbps=saturation,
                         vm_peak_kbps=peak, max_tunnels=tunnels)
        models = [_on_off(kbps, F(tenths, 10)) for kbps, tenths in rows]
        assessment = _judged(policy, [source.law for source in models],
                             _on_off(row[0], F(row[1], 10)).law)
        peak_fits = row[0] <= min(saturation, peak or saturation)
        tunnel_left = tunnels is None or len(rows) + 1 <= tunnels
        total = sum(F(kbps * tenths, 10) for kbps, tenths in rows + [row])
        self.assertEqual([peak_fits and tunnel_left and total <= saturation],
                         assessment.admitted.tolist())


class TestHardLimits(AdmissionTestCase):

    def test_the_peak_of_one_instance_is_checked_under_both_policies(self):
        for policy in (admission.AVERAGE, admission.PROBABILITY):
            for kbps, reason in ((400, admission.ADMITTED),
                                 (401, admission.PEAK)):
                assessment = self.judge(
                    _policy(policy, limit=1.0, vm_peak_kbps=400.0), (),
                    _on_off(kbps, F(1, 1000)))
                self.assertEqual([reason], assessment.reason.tolist())

    def test_no_peak_is_above_what_all_together_may_have(self):
        for kbps, admitted in ((1000, True), (1001, False)):
            assessment = self.assertAdmitted(
                admitted, _policy(limit=1.0), (),
                _on_off(kbps, F(1, 10 ** 6)))
        self.assertEqual([admission.PEAK], assessment.reason.tolist())

    def test_a_peak_alone_is_a_limit_without_saturation(self):
        policy = admission.HostPolicy(profile.SwitchProfile(
            name='peak', vm_peak_kbps=400.0))
        for kbps, admitted in ((400, True), (401, False)):
            assessment = self.assertAdmitted(
                admitted, policy, [_on_off(1e6)] * 5, _on_off(kbps))
            self.assertEqual(0.0, assessment.overload_probability[0])
            self.assertEqual(0.0, assessment.utilisation[0])

    def test_instances_are_counted_with_the_new_one(self):
        for stated in ({'max_tunnels': 3}, {'max_virtual_functions': 3},
                       {'max_tunnels': 9, 'max_virtual_functions': 3}):
            for count, admitted in ((2, True), (3, False)):
                self.assertAdmitted(admitted, _policy(**stated),
                                    [_on_off(1)] * count, _on_off(1))

    def test_the_first_check_that_fails_is_the_reason(self):
        # Too many, too large, too much: in this order.
        stated = {'max_tunnels': 1, 'vm_peak_kbps': 500.0}
        full = [_on_off(400, F(9, 10))] * 4
        for residents, kbps, reason in (
                (full, 600, admission.TOO_MANY),
                (full[:1], 600, admission.TOO_MANY),
                ((), 600, admission.PEAK), ((), 500, admission.ADMITTED)):
            self.assertEqual([reason], self.judge(
                _policy(**stated), residents, _on_off(kbps)).reason.tolist())
        for policy, reason in ((admission.AVERAGE, admission.MEAN),
                               (admission.PROBABILITY, admission.OVERLOAD)):
            self.assertEqual([reason], self.judge(
                _policy(policy), full, _on_off(400)).reason.tolist())


class TestUnknownHosts(AdmissionTestCase):

    def test_they_pass_or_are_refused_as_the_operator_wants(self):
        for pass_unknown in (True, False):
            assessment = self.assertAdmitted(
                pass_unknown,
                admission.HostPolicy(None, pass_unknown=pass_unknown),
                [_on_off(5)], _on_off(1e9))
            self.assertEqual([False], assessment.known.tolist())
            for name in ('overload_probability', 'loss_fraction',
                         'utilisation'):
                self.assertEqual([0.0], getattr(assessment, name).tolist())

    def test_beside_known_hosts_each_is_judged_by_its_own(self):
        rows = [self.table.describe(name, policy, {})
                for name, policy in (
                     ('known', _policy(saturation_kbps=10.0)),
                     ('unknown', admission.HostPolicy(None)),
                     ('refused', admission.HostPolicy(
                         None, pass_unknown=False)))]
        assessment = self.table.assess(rows, _on_off(50).law)
        self.assertEqual([False, True, False], assessment.admitted.tolist())
        self.assertEqual([True, False, False], assessment.known.tolist())

    def test_a_switch_that_becomes_known_is_judged(self):
        for policy, admitted in (
                (admission.HostPolicy(None), True),
                (_policy(saturation_kbps=10.0), False),
                (admission.HostPolicy(None), True)):
            self.assertAdmitted(admitted, policy, [_on_off(5)], _on_off(50))


class TestTable(AdmissionTestCase):

    def test_no_host_at_all_is_an_empty_answer(self):
        for described in (False, True):
            if described:
                self.table.describe('host', _policy(), {})
            assessment = self.table.assess([], _on_off(5).law)
            self.assertEqual([], assessment.admitted.tolist())

    def test_hosts_are_known_by_name_and_keep_their_slot(self):
        rows = {name: self.table.describe(name, _policy(), {})
                for name in 'abc'}
        self.assertEqual(3, len(set(rows.values())))
        self.assertEqual(3, len(self.table))
        self.assertIsNone(self.table.row('d'))
        for name, row in rows.items():
            self.assertEqual(row, self.table.row(name))
            self.assertEqual(row, self.table.describe(
                name, _policy(saturation_kbps=5.0),
                _named([_on_off(1).law])))

    def test_a_host_is_judged_alike_whichever_hosts_are_asked_with_it(self):
        rng = np.random.default_rng(33)
        pool = [assessment.law for assessment in _random_models(rng, 30)]
        policies = [
            _policy(saturation_kbps=600.0),
            _policy(saturation_kbps=500.0, line_rate_kbps=400.0),
            _policy(admission.AVERAGE, saturation_kbps=400.0),
            _policy(vm_peak_kbps=90.0), _policy(max_tunnels=5),
            admission.HostPolicy(None, pass_unknown=False)]
        hosts = {f'host{i}': (policies[i % len(policies)], _named(
            [pool[k] for k in rng.integers(30, size=i % 8)]))
            for i in range(24)}
        rows = np.array([self.table.describe(host, *of)
                         for host, of in hosts.items()])
        laws = [_on_off(100).law, _on_off(50, F(1, 2)).law]
        alone = {}
        for row, (host, of) in zip(rows.tolist(), hosts.items()):
            for law in laws:
                table = admission.LoadTable()
                alone[row, law] = table.assess(
                    [table.describe(host, *of)], law)
        self.assertEqual(
            {admission.ADMITTED, admission.NO_PROFILE, admission.TOO_MANY,
             admission.PEAK, admission.MEAN, admission.OVERLOAD},
            {int(assessment.reason[0]) for assessment in alone.values()})
        for asked in (rows, rng.permutation(rows),
                      rng.permutation(rows)[:-3], rows[1:-1],
                      np.append(rows[::-1], rows[:5]), rows[::7]):
            of_slots = [laws[k] for k in rng.integers(2, size=asked.size)]
            for judged, law_of in (
                    (self.table.assess(asked, laws[0]), laws[:1] * asked.size),
                    (self.table.assess_each(asked, of_slots), of_slots)):
                for i, pair in enumerate(zip(asked.tolist(), law_of)):
                    expected = alone[pair]
                    for name in ('reason', 'overload_probability', 'known',
                                 'loss_fraction', 'utilisation', 'enforced'):
                        np.testing.assert_allclose(
                            getattr(judged, name)[i],
                            getattr(expected, name)[0],
                            rtol=1e-9, err_msg=name)
                    for name in ('loads', 'explain', 'decisive', 'host'):
                        self.assertEqual(getattr(expected, name)(0),
                                         getattr(judged, name)(i))
                    self.assertEqual(
                        expected.multiples(np.array([0])).tolist(),
                        judged.multiples(np.array([i])).tolist())

    def test_a_host_that_is_not_asked_for_is_not_computed(self):
        rows = [self.table.describe(i, _policy(), _named(
            [_on_off(150).law] * 10)) for i in range(20)]
        unchanged = rows[:4] + rows[5:]
        self.table.assess(rows, _on_off(100).law)
        self.table.change({4: ({}, [next(iter(self.table.residents(4)))])})
        with mock.patch.object(fourier_sum, 'product') as product:
            self.table.assess(unchanged, _on_off(100).law)
            product.assert_not_called()
            product.side_effect = ZeroDivisionError
            self.assertRaises(ZeroDivisionError, self.table.assess, rows,
                              _on_off(100).law)

    def test_one_instance_more_is_the_host_described_anew(self):
        rng = np.random.default_rng(85)
        models = _named(_random_laws(rng, 25))
        candidate = _random_models(rng, 1)[0]
        policy = _policy(saturation_kbps=2500.0, line_rate_kbps=1600.0,
                         packet_rate_kpps=120.0)
        residents = {}
        for uuid, law in models.items():
            residents = {**residents, uuid: law}
            self.assertAlike(_judged(policy, residents, candidate.law),
                             self.judge(policy, residents, candidate))

    def test_rates_in_other_units_are_the_host_described_anew(self):
        # Each makes the sums lie on a finer lattice than before.
        policy = _policy(saturation_kbps=2600.0)
        residents = {}
        for i, kbps in enumerate((900, 900, 800, 650, 333, 127.3, 900)):
            residents = {**residents, f'vm-{i}': _on_off(kbps).law}
            self.assertAlike(_judged(policy, residents, _on_off(500).law),
                             self.judge(policy, residents, _on_off(500)),
                             rtol=1e-12)

    def test_one_more_and_another_changed_is_the_host_described_anew(self):
        policy = _policy(saturation_kbps=1000.0)
        self.judge(policy, {'vm-0': _on_off(200).law}, _on_off(900))
        assessment = self.judge(policy, {
            'vm-0': _on_off(600).law, 'vm-1': _on_off(200).law}, _on_off(500))
        # The new one fits beside the candidate, the changed one does not.
        self.assertAlmostEqual(.01, assessment.overload_probability[0], 12)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=40,
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(st.lists(st.tuples(
        st.integers(0, 2), st.integers(0, 9), st.integers(0, 3)),
        max_size=25))
    def test_whatever_comes_and_goes_it_is_the_host_described_anew(
            self, steps):
        rng = np.random.default_rng(86)
        laws = [either.law for either in _random_models(rng, 10)]
        policies = [_policy(saturation_kbps=700.0), _policy(
            saturation_kbps=700.0, line_rate_kbps=400.0),
            admission.HostPolicy(None), _policy(max_tunnels=2)]
        table = admission.LoadTable(cells=64)
        hosts = [(policies[0], {}) for _ in range(3)]
        for host, vm, policy in steps:
            residents = dict(hosts[host][1])
            if residents.pop(f'vm-{vm}', None) is None:
                residents[f'vm-{vm}'] = laws[(vm + policy) % 10]
            hosts[host] = (policies[policy], residents)
            table.describe(str(host), *hosts[host])
            table.assess([table.row(str(host))], laws[0])
        fresh = admission.LoadTable(cells=64)
        for table_of in (table, fresh):
            for i, (policy, residents) in enumerate(hosts):
                table_of.describe(str(i), policy, residents)
        actual, expected = (
            either.assess([either.row(str(i)) for i in range(3)], laws[3])
            for either in (table, fresh))
        self.assertAlike(expected, actual)

    def test_the_version_counts_changes_only(self):
        policy, laws = _policy(), _named([_on_off(5).law])
        self.assertEqual(0, self.table.version)
        self.table.describe('host', policy, laws)
        self.assertEqual(1, self.table.version)
        # The same again, in an equal mapping of equal laws.
        self.table.describe('host', policy, _named([_on_off(5).law]))
        self.table.assess([0], _on_off(5).law)
        self.assertEqual(1, self.table.version)
        for change in ((policy, {}), (policy, laws), (_policy(), laws),
                       (policy, _named([_on_off(6).law])),
                       (policy, {'other': _on_off(6).law})):
            version = self.table.version
            self.table.describe('host', *change)
            self.assertEqual(version + 1, self.table.version)

    def test_a_law_that_changes_counts_from_then_on(self):
        policy = _policy(saturation_kbps=1000.0)
        for kbps, overload in ((600, .01), (400, 0.0), (900, .01)):
            assessment = self.judge(policy, {'vm': _on_off(kbps).law},
                                    _on_off(500))
            self.assertAlmostEqual(
                overload, assessment.overload_probability[0], 12)

    def test_it_does_not_watch_the_mapping_it_was_given(self):
        residents = _named([_on_off(900).law])
        policy = _policy()
        self.judge(policy, residents)
        residents['other'] = _on_off(900).law
        assessment = self.judge(policy, residents, _on_off(900))
        self.assertAlmostEqual(.028, assessment.overload_probability[0], 12)

    def test_hundreds_of_hosts_with_many_limits_fit(self):
        # Grows over rows, limits and rows of look-up tables.
        candidate = _on_off(600).law
        rows = []
        for i in range(200):
            stated = {'line_rate_kbps': 1000.0} if i % 2 else {}
            rows.append(self.table.describe(
                f'host-{i}', _policy(saturation_kbps=1000.0, **stated),
                _named([_on_off(600).law] * (i % 3))))
        assessment = self.table.assess(rows, candidate)
        for i in range(200):
            on = 1 + i % 3
            single = float(exact.binomial_tail(on, F(1, 10), 1))
            self.assertAlmostEqual(single * (1 + i % 2),
                                   assessment.overload_probability[i], 12)


class TestExclude(AdmissionTestCase):

    def test_an_instance_that_moves_is_not_counted_twice(self):
        policy = _policy(saturation_kbps=2500.0, max_tunnels=3)
        models = _named([_on_off(1000).law] * 3)
        rows = [self.table.describe('own', policy, models),
                self.table.describe('other', policy, {
                     f'x{uuid}': law for uuid, law in models.items()}),
                self.table.describe('free', policy, {})]
        assessment = self.table.assess(rows, _on_off(1000).law, 'vm-1')
        self.assertEqual(
            [admission.ADMITTED, admission.TOO_MANY, admission.ADMITTED],
            assessment.reason.tolist())
        self.assertAlmostEqual(.001, assessment.overload_probability[0], 12)
        # The host itself is as it was.
        self.assertEqual([admission.TOO_MANY], self.table.assess(
            rows[:1], _on_off(1000).law).reason.tolist())

    def test_one_that_is_nowhere_changes_nothing(self):
        policy = _policy(saturation_kbps=2500.0)
        models = [_on_off(1000)] * 2
        np.testing.assert_array_equal(
            self.judge(policy, models, _on_off(1000)).overload_probability,
            self.judge(policy, models, _on_off(1000),
                       'uuid-of-no-resident').overload_probability)

    def test_it_is_the_host_without_it_on_every_limit(self):
        rng = np.random.default_rng(88)
        policy = _policy(saturation_kbps=900.0, line_rate_kbps=600.0,
                         packet_rate_kpps=40.0)
        models = _named(_random_laws(rng, 8))
        candidate = _random_models(rng, 1)[0]
        for uuid in models:
            self.assertAlike(
                _judged(policy, {key: law for key, law in models.items()
                                 if key != uuid}, candidate.law),
                self.judge(policy, models, candidate, uuid), atol=0)


class TestEach(AdmissionTestCase):

    def test_hosts_may_see_different_laws_of_one_instance(self):
        rng = np.random.default_rng(8)
        laws = _random_laws(rng, 40)
        rows = [self.table.describe(
            f'h{i}', _policy(saturation_kbps=300.0 + 50 * (i % 3)),
            _named(laws[3 * i:3 * i + 3])) for i in range(9)]
        of_host = [laws[30 + i % 4] for i in range(9)]
        together = self.table.assess_each(rows, of_host, 'vm-1')
        for i, (row, law) in enumerate(zip(rows, of_host)):
            alone = self.table.assess([row], law, 'vm-1')
            for name in ('rows', 'reason', 'overload_probability',
                         'loss_fraction', 'utilisation', 'known'):
                self.assertEqual(getattr(alone, name)[0],
                                 getattr(together, name)[i], name)
            self.assertEqual(alone.explain(0), together.explain(i))

    def test_no_host_is_no_answer(self):
        self.assertEqual(0, self.table.assess_each([], []).admitted.size)

    def test_what_is_cut_to_what_one_may_have_fits_an_empty_host(self):
        for stated in (dict(saturation_kbps=100.0),
                       dict(saturation_kbps=100.0, vm_peak_kbps=30.0),
                       dict(saturation_kbps=None, vm_peak_kbps=30.0),
                       dict(saturation_kbps=100.0, line_rate_kbps=40.0),
                       dict(saturation_kbps=None, packet_rate_kpps=4.0)):
            with self.subTest(**stated):
                policy = _policy(limit=0.0, **stated)
                limits = policy.limits_on_one
                row = self.table.describe('h', policy, {})
                for rates in ([900., 500., 9.], [90., 900., 0.], [0, 0, 99.]):
                    law = rate_law.RateLaw.from_arrays(
                        [.5, .5], [rates, [1., 1., 0.]])
                    cut = prior.scaled(law, limits)
                    self.assertTrue(
                        self.table.assess([row], cut).admitted[0])
                    if cut is law:
                        continue
                    self.assertEqual(admission.PEAK, self.table.assess(
                        [row], law).reason[0])
                    above = rate_law.RateLaw.from_arrays(
                        cut.probabilities, cut.rates * 1.001)
                    self.assertEqual(admission.PEAK, self.table.assess(
                        [row], above).reason[0])


class TestCounts(AdmissionTestCase):
    """Tunnels and virtual functions, by what instances are attached to."""

    def setUp(self):
        super().setUp()
        self.attached = {}
        self.table = admission.LoadTable(attachments=self.attached.get)

    def ask(self, hosts, *networks, exclude=None, **kinds):
        """Return the reasons, and their words, of some hosts."""
        self.found = self.table.assess(
            self.table.rows_of(hosts), _on_off(1).law, exclude,
            attachments.Attachments(networks, **kinds))
        return self.found.reason.tolist()

    def describe(self, host, policy, **attached):
        """Put instances on a host, by uuid, with their networks."""
        self.attached.update({
            uuid: attachments.Attachments(networks)
            for uuid, networks in attached.items() if networks is not None})
        self.table.describe(host, policy, dict.fromkeys(
            attached, _on_off(1).law))

    def test_a_network_that_is_served_opens_no_tunnel(self):
        policy = _policy(max_tunnels=2, tunnel_unit='networks')
        self.describe('full', policy, a=['red'], b=['blue', 'red'])
        self.describe('room', policy, c=['red'])
        self.describe('other', _policy(), d=['red'])
        hosts = ['full', 'room', 'other']
        full, fine = admission.TOO_MANY, admission.ADMITTED
        for networks, reasons in ((['red'], [fine] * 3),
                                  (['red', 'blue'], [fine] * 3),
                                  (['green'], [full, fine, fine]),
                                  (['green', 'grey'], [full, full, fine]),
                                  # Who knows what it may get.
                                  ([], [full, fine, fine])):
            self.assertEqual(reasons, self.ask(hosts, *networks), networks)
        self.ask(hosts, 'green', 'grey')
        for words in ('it has 1 networks, the instance adds 2', 'and '
                      'max_tunnels of profile own is 2'):
            self.assertIn(words, self.found.explain(1))

    def test_a_host_that_has_too_many_takes_who_opens_none(self):
        self.describe('host', _policy(max_tunnels=1, tunnel_unit='networks'),
                      a=['red'], b=['blue'])
        self.assertEqual([admission.ADMITTED], self.ask(['host'], 'blue'))
        self.assertEqual([admission.TOO_MANY], self.ask(['host'], 'green'))

    def test_who_comes_and_goes_is_followed(self):
        policy = _policy(max_tunnels=2, tunnel_unit='networks')
        self.describe('host', policy, a=['red'], b=['blue'])
        self.assertEqual([admission.TOO_MANY], self.ask(['host'], 'green'))
        self.assertEqual([], self.table.change({'host': ({}, ['b'])}))
        self.assertEqual([admission.ADMITTED], self.ask(['host'], 'green'))
        self.attached['c'] = attachments.Attachments(['grey'])
        self.table.change({'host': ({'c': _on_off(1).law}, [])})
        self.assertEqual([admission.TOO_MANY], self.ask(['host'], 'green'))
        # What it is attached to is known only later.
        self.attached['c'] = attachments.Attachments(['red'])
        self.table.describe('host', policy, self.table.residents('host'))
        self.assertEqual([admission.ADMITTED], self.ask(['host'], 'green'))
        # Another policy of the host.
        self.table.describe('host', _policy(), self.table.residents('host'))
        self.assertEqual([admission.ADMITTED], self.ask(['host'], 'x', 'y'))

    def test_nobody_knows_counts_as_one(self):
        for unit in profile.TUNNEL_UNITS:
            for most, reason in ((3, admission.ADMITTED),
                                 (2, admission.TOO_MANY)):
                self.describe('host', _policy(
                    max_tunnels=most, tunnel_unit=unit), a=None, b=None)
                assessment = self.table.assess(
                    self.table.rows_of(['host']), _on_off(1).law)
                self.assertEqual(reason, assessment.reason[0], unit)

    def test_remote_vteps_are_the_hosts_on_the_same_networks(self):
        plain = _policy()
        self.describe('h1', plain, a=['red'])
        self.describe('h2', plain, b=['red', 'blue'])
        self.describe('h3', plain, c=['grey'])
        # Known only now that they have to be counted.
        self.describe('h4', _policy(max_tunnels=2, tunnel_unit='vteps'))
        hosts = ['h1', 'h2', 'h3', 'h4']
        self.assertEqual([admission.ADMITTED] * 4, self.ask(hosts, 'red'))
        self.describe('h3', plain, c=['grey'], d=['red'])
        self.assertEqual([0, 0, 0, admission.TOO_MANY],
                         self.ask(hosts, 'red'))
        self.assertIn('it has 0 remote VTEPs, the instance adds 3',
                      self.found.explain(3))
        self.assertEqual([0] * 4, self.ask(hosts, 'blue', 'grey'))
        self.describe('h4', _policy(max_tunnels=2, tunnel_unit='vteps'),
                      e=['blue', 'grey'])
        # It would have to know h1 as well, whatever h1 has room for.
        self.assertEqual([admission.TOO_MANY, 0, 0, 0],
                         self.ask(hosts, 'grey'))
        self.assertIn('a host that its networks are on has no room',
                      self.found.explain(0))

    def test_one_that_moves_counts_once(self):
        policy = _policy(max_tunnels=2, tunnel_unit='networks')
        self.describe('own', policy, a=['red'], b=['blue'])
        self.describe('else', policy, c=['blue'], d=['grey'])
        self.assertEqual([0, admission.TOO_MANY], self.ask(
            ['own', 'else'], 'green', exclude='a'))
        self.assertEqual([admission.TOO_MANY, 0], self.ask(
            ['own', 'else'], 'green', 'blue', 'red', exclude='a')[:1]
            + self.ask(['else'], 'grey', exclude='a'))
        self.ask(['own'], 'green', 'grey', exclude='a')
        self.assertIn('it has 1 networks, the instance adds 2',
                      self.found.explain(0))

    def test_virtual_functions_are_counted_by_the_interface(self):
        self.attached['a'] = attachments.Attachments((), (), 2)
        self.attached['b'] = attachments.Attachments(('red',))
        self.table.describe('host', _policy(max_virtual_functions=3),
                            dict.fromkeys('ab', _on_off(1).law))
        for added, reason in ((0, 0), (1, 0), (2, admission.TOO_MANY)):
            self.assertEqual([reason], self.ask(
                ['host'], 'red', virtual_functions=added))
        self.assertIn('it has 2 virtual functions in use, the instance adds '
                      '2, and max_virtual_functions of profile own is 3',
                      self.found.explain(0))


class TestUplinks(AdmissionTestCase):
    """Hosts that share uplinks, against each uplink by itself."""

    def uplink(self, name, capacity, limit=.01, **stated):
        return admission.Uplink(name, _policy(
            saturation_kbps=capacity, limit=limit, **stated))

    def of_all(self, laws, capacity):
        """Return P(sum > capacity), by going through all states at once."""
        total = 0.0
        for states in itertools.product(*(
                zip(law.probabilities.tolist(), law.rates[:, 0].tolist())
                for law in laws)):
            if sum(rate for _, rate in states) > capacity:
                total += math.prod(share for share, _ in states)
        return total

    def test_all_behind_it_count_together(self):
        tor, wan = self.uplink('tor', 1500.0, .2), self.uplink('wan', 2500.0)
        own = _policy(saturation_kbps=5000.0)
        policies = {'a': (tor,), 'b': (tor, wan), 'c': (wan,), 'd': ()}
        rng = np.random.default_rng(4)
        law = {}
        for host, uplinks in policies.items():
            law[host] = {f'{host}{i}': _on_off(
                100 * int(rng.integers(1, 9)), F(int(rng.integers(1, 6)), 10)
            ).law for i in range(3)}
            self.table.describe(host, dataclasses.replace(
                own, uplinks=uplinks), law[host])
        candidate = _on_off(700, F(3, 10)).law
        assessment = self.table.assess(self.table.rows_of('abcd'), candidate)
        behind = {'tor': 'ab', 'wan': 'bc'}
        at = {name: self.of_all([candidate, *(
            uplink for host in hosts for uplink in law[host].values())],
            1500.0 if name == 'tor' else 2500.0)
            for name, hosts in behind.items()}
        for i, (host, uplinks) in enumerate(policies.items()):
            of_host = self.of_all([candidate, *law[host].values()], 5000.0)
            overload = max([of_host, *(at[uplink.name] for uplink in uplinks)])
            self.assertAlmostEqual(overload,
                                   assessment.overload_probability[i], 12)
            fits = of_host <= .01 and all(
                at[uplink.name] <= (.2 if uplink is tor else .01)
                for uplink in uplinks)
            self.assertEqual(fits, assessment.admitted[i])
        self.assertEqual(2, len({*assessment.reason.tolist()}))

    def test_it_is_what_each_uplink_says_by_itself(self):
        rng = np.random.default_rng(12)
        laws = _random_laws(rng, 30)
        refused = set()
        for _ in range(12):
            table = admission.LoadTable()
            uplinks = [self.uplink(f'u{i}', float(rng.integers(500, 4000)),
                                   limit=.05) for i in range(4)]
            own = [_policy(saturation_kbps=float(rng.integers(300, 2000)),
                           limit=.05) for _ in range(3)]
            policies = {f'h{i}': dataclasses.replace(
                own[i % 3], uplinks=tuple(
                    uplinks[j] for j in rng.permutation(4)[:i % 4]))
                for i in range(8)}
            residents = {host: {} for host in policies}
            for host, policy in policies.items():
                table.describe(host, policy, {})
            for step in range(60):
                self._disturb(rng, table, policies, residents, laws, step)
                if step % 6 == 0:
                    refused |= self._check(table, policies, residents,
                                           laws[step % 30])
        self.assertEqual({admission.ADMITTED, admission.OVERLOAD,
                          admission.UPLINK}, refused)

    def _disturb(self, rng, table, policies, residents, laws, step):
        host, target = rng.permutation(list(policies))[:2]
        laws_there = residents[host]
        action = rng.random()
        law = laws[int(rng.integers(30))]
        if action < .5 or not laws_there:
            laws_there[f'i{step}'] = law
            table.change({host: ({f'i{step}': law}, ())})
            return
        uuid = next(iter(laws_there))
        if action < .6:
            table.change({host: ({}, [uuid])})
            del laws_there[uuid]
        elif action < .7:
            # It has learned something about one, and another is new.
            laws_there[uuid], laws_there[f'i{step}'] = law, law
            table.describe(host, policies[host], laws_there)
        elif action < .95:
            # It moves; either of the two hosts may be told first.
            residents[target][uuid] = laws_there.pop(uuid)
            for moved in rng.permutation([host, target]):
                table.describe(moved, policies[moved], residents[moved])
                if step % 2:
                    # Somebody asks while both have it, or none.
                    table.assess(table.rows_of([moved]), law)
        else:
            policies[host] = dataclasses.replace(
                policies[host], uplinks=policies[target].uplinks)
            table.describe(host, policies[host], laws_there)

    def _check(self, table, policies, residents, law):
        actual = table.assess(table.rows_of(policies), law)
        alone = admission.LoadTable()
        for i, (host, policy) in enumerate(policies.items()):
            rows = [alone.describe(host, dataclasses.replace(
                policy, uplinks=()), residents[host])]
            for uplink in policy.uplinks:
                everyone = {}
                for neighbour, its_policy in policies.items():
                    if uplink in its_policy.uplinks:
                        everyone |= residents[neighbour]
                rows.append(alone.describe(uplink.name, uplink.policy,
                                           everyone))
            expected = alone.assess(rows, law)
            self.assertEqual(expected.admitted.all(), actual.admitted[i])
            if expected.admitted[0] and not actual.admitted[i]:
                self.assertEqual(admission.UPLINK, actual.reason[i])
            for name in ('overload_probability', 'loss_fraction',
                         'utilisation'):
                np.testing.assert_allclose(
                    getattr(actual, name)[i], getattr(expected, name).max(),
                    rtol=1e-9, atol=1e-12)
        return {*actual.reason.tolist()}

    def test_a_move_behind_an_uplink_changes_nothing_there(self):
        tor = self.uplink('tor', 1000.0, limit=0.0)
        policy = dataclasses.replace(_policy(saturation_kbps=4000.0),
                                     uplinks=(tor,))
        law = _constant(400)
        rows = [self.table.describe('a', policy, {'x': law, 'y': law}),
                self.table.describe('b', policy, {}),
                self.table.describe('c', _policy(saturation_kbps=1000.0), {})]
        self.assertEqual([admission.UPLINK] * 2 + [admission.ADMITTED],
                         self.table.assess(rows, law).reason.tolist())
        assessment = self.table.assess(rows, law, 'x')
        self.assertEqual([.8, .8, .4], assessment.utilisation.tolist())
        self.assertTrue(assessment.admitted.all())
        # It may not come back with more.
        self.assertEqual(
            [admission.UPLINK, admission.UPLINK, admission.ADMITTED],
            self.table.assess(rows, _constant(601), 'x').reason.tolist())

    def test_one_on_two_hosts_behind_it_counts_until_it_has_left_both(self):
        policy = dataclasses.replace(
            _policy(saturation_kbps=4000.0),
            uplinks=(self.uplink('tor', 1000.0),))
        small, large = _constant(400), _constant(600)
        for step, (on_a, on_b, utilisation) in enumerate((
                (small, None, .4),
                # A resize to the other host, which is reverted.
                (small, large, .6), (small, None, .4),
                # A live migration.
                (small, small, .4), (None, small, .4),
                # It is told of in the other order, and deleted.
                (None, None, 0), (small, None, .4), (None, None, 0))):
            for host, law in (('a', on_a), ('b', on_b)):
                row = self.table.describe(
                    host, policy, {} if law is None else {'x': law})
            self.assertAlmostEqual(utilisation, self.table.assess(
                [row], _constant()).utilisation[0], msg=step)

    def test_other_numbers_of_an_uplink_hold_at_once(self):
        law = _constant(400)
        for capacity, fits in ((1300.0, True), (1100.0, False),
                               (1200.0, True)):
            policy = dataclasses.replace(
                _policy(saturation_kbps=4000.0),
                uplinks=(self.uplink('tor', capacity),))
            rows = [self.table.describe(host, policy, {host: law})
                    for host in 'ab']
            self.assertEqual([fits] * 2, self.table.assess(
                rows, law).admitted.tolist())
        self.table.describe('b', _policy(), {'b': law})
        self.assertEqual([800 / 1200, .8], self.table.assess(
            rows, law).utilisation.tolist())

    def test_its_mapping_table_counts_the_networks_of_all_hosts(self):
        attached = {'x': attachments.Attachments(('red',), ('grey',)),
                    'y': attachments.Attachments((), ('grey', 'blue'))}
        table = admission.LoadTable(attachments=attached.get)
        gateway = admission.Uplink('gw', admission.HostPolicy(
            profile.SwitchProfile('gw', max_tunnels=3,
                                  tunnel_unit='networks'),
            tunnel_key='the room of the mapping table'))
        policy = dataclasses.replace(_policy(), uplinks=(gateway,))
        law = _on_off(1).law
        rows = [table.describe('a', policy, {'x': law}),
                table.describe('b', policy, {'y': law}),
                table.describe('c', _policy(), {})]

        def ask(*networks, **kinds):
            assessment = table.assess(
                rows, law, None, attachments.Attachments(networks, **kinds))
            self.words = assessment.explain(0)
            return assessment.admitted.tolist()

        self.assertEqual([True] * 3, ask('red', others=('grey', 'blue')))
        self.assertEqual([False, False, True], ask(others=('green',)))
        self.assertEqual(
            'its uplink gw: it has 3 networks, the instance adds 1, and the '
            'room of the mapping table of profile gw is 3', self.words)
        # One goes, and another turns out to be on other networks.
        table.change({'b': ({}, ['y'])})
        self.assertEqual([True] * 3, ask('green'))
        attached['x'] = attachments.Attachments(('red', 'green', 'pink'))
        table.describe('a', policy, {'x': law})
        self.assertEqual([False, False, True], ask('grey'))

    def test_what_an_uplink_says_is_explained(self):
        policy = dataclasses.replace(
            _policy(), uplinks=(self.uplink('tor', 500.0),
                                self.uplink('wan', 2000.0)))
        rows = [self.table.describe(host, policy, {
            host: _on_off(200).law}) for host in 'ab']
        self.table.describe('a', policy, dict.fromkeys(
            'wxyz', _on_off(200).law))
        for law, words in (
                (_on_off(501).law, "its uplink tor: the instance's peak of "
                 '501 kbit/s is above the 500'),
                (_on_off(200).law, 'its uplink tor: with it the overload '
                 'probability would be 0.0')):
            assessment = self.table.assess_each(rows, [_constant(1), law])
            self.assertTrue(assessment.admitted[0])
            self.assertIn(words, assessment.explain(1))
            self.assertIn(words, self.table.assess(rows, law).explain(0))
        self.assertIn('within the limit', self.table.assess(
            rows, _on_off(1).law).explain(0))

    def test_a_prior_is_cut_to_what_one_may_send_through_it(self):
        policy = dataclasses.replace(admission.HostPolicy(None), uplinks=(
            self.uplink('tor', 500.0),))
        row = self.table.describe('a', policy, {})
        law = _on_off(900, F(1, 200)).law
        self.assertFalse(self.table.assess([row], law).admitted[0])
        cut = prior.scaled(law, policy.limits_on_one)
        self.assertTrue(self.table.assess([row], cut).admitted[0])


class TestUtilisation(AdmissionTestCase):

    def test_it_is_that_of_the_tightest_limit_with_the_instance(self):
        assessment = self.judge(
            _policy(saturation_kbps=1000.0, line_rate_kbps=400.0),
            [model.TrafficModel.constant(100, 50)],
            model.TrafficModel.constant(60, 10))
        self.assertAlmostEqual(160 / 400, assessment.utilisation[0], 12)

    def test_it_grows_with_every_instance(self):
        policy = _policy()
        utilisations = [self.judge(policy, [_on_off(300)] * count,
                                   _on_off(300)).utilisation[0]
                        for count in range(9)]
        np.testing.assert_allclose(utilisations, .03 * np.arange(1, 10),
                                   rtol=1e-12)


class TestExplain(AdmissionTestCase):

    def assertWords(self, words, assessment):
        text = assessment.explain(0)
        for word in words:
            self.assertIn(word, text)

    def test_the_numbers_that_decided_are_named(self):
        for words, policy, residents, candidate in (
                (('5 instances', 'max_tunnels', 'own', '5'),
                 _policy(max_tunnels=5), [_on_off(1)] * 5, _on_off(1)),
                (('peak of 600', '500', 'kbit/s', 'own'),
                 _policy(vm_peak_kbps=500.0), (), _on_off(600)),
                (('peak of 600', '500', 'kbit/s of ingress'),
                 _policy(line_rate_kbps=500.0), (),
                 _on_off(0, ingress=600)),
                (('peak of 7', '5', 'kilo-packets/s'),
                 _policy(packet_rate_kpps=5.0), (), _on_off(1, kpps=7)),
                (('average', '1200', '1000', 'own'),
                 _policy(admission.AVERAGE),
                 [model.TrafficModel.constant(400)] * 2,
                 model.TrafficModel.constant(400)),
                (('average', '700', '600', 'of egress'),
                 _policy(admission.AVERAGE, line_rate_kbps=600.0),
                 [model.TrafficModel.constant(400)],
                 model.TrafficModel.constant(300)),
                (('probability', '0.028', 'above', '0.01', '2 instances'),
                 _policy(), [_on_off(600)] * 2, _on_off(600)),
                (('probability', '0.001', 'within', '0.01'),
                 _policy(saturation_kbps=2500.0), [_on_off(1000)] * 2,
                 _on_off(1000))):
            with self.subTest(words=words):
                self.assertWords(
                    words, self.judge(policy, residents, candidate))

    def test_without_a_profile_it_says_so(self):
        for pass_unknown, word in ((True, 'pass'), (False, 'refused')):
            self.assertWords(('no switch profile', word), self.judge(
                admission.HostPolicy(None, pass_unknown=pass_unknown)))

    def test_numbers_of_a_host_it_moves_on_are_those_without_it(self):
        assessment = self.judge(
            _policy(admission.AVERAGE),
            [model.TrafficModel.constant(400)] * 3,
            model.TrafficModel.constant(400), 'vm-1')
        self.assertWords(('1200', '1000'), assessment)


class TestInstants(AdmissionTestCase):
    """What instances do together at the instants."""

    BUSY = np.arange(504) % 50 == 0          # 11 instants
    RNG = 41

    @staticmethod
    def sampled(kbps, states):
        """Return a law with so much egress in states.

        :param kbps: (n,) rates of the states
        :param states: (504,) state at each instant
        """
        states = np.asarray(states, dtype=int)
        counts = np.bincount(states % 128, minlength=len(kbps)) + 1e-3
        return _egress(counts / counts.sum(), kbps, states)

    def fleet(self, rng, count, together, share=.08):
        """Return laws that are busy at the same instants.

        :param together: how likely an instance is busy just then
        """
        busy = rng.random(504) < share
        return [self.sampled(
            100 * rng.lognormal(0, .4) * np.array([.02, .05, .7, 1.2]),
            2 * np.where(rng.random(504) < together, busy, rng.random(504)
                         < share) + rng.integers(0, 2, 504))
                for _ in range(count)]

    def overload(self, laws, capacity, candidate=_constant()):
        """Return P(overload) of a host."""
        with np.errstate(all='raise', under='ignore'):
            return float(_judged(_policy(saturation_kbps=capacity), laws,
                                 candidate).overload_probability[0])

    def assertLikePlain(self, laws, plain, capacity, more=()):
        """Want both to have the same P, also if the first one is new."""
        self.assertEqual(*(self.overload([*each, *more], capacity)
                           for each in (laws, plain)))
        new = [self.overload([*each[1:], *more], capacity, each[0])
               for each in (laws, plain)]
        self.assertAlmostEqual(1, new[0] / new[1], 12)

    def test_instances_that_are_busy_together_overload_so_often(self):
        # Above any capacity below the sum of all, as a newcomer as well.
        law = self.sampled([0, 100], self.BUSY)
        for capacity in (1950.0, 1500.0, 1000.0):
            for laws, candidate in (([law] * 20, _constant()),
                                    ([law] * 19, law)):
                self.assertAlmostEqual(
                    11 / 504, self.overload(laws, capacity, candidate),
                    delta=1 / 504)
        # Beside others that are independent of them: 2 % of .3.
        laws = [law] * 19 + [_on_off(100, F(3, 10)).law]
        self.assertAlmostEqual(
            11 / 504 * .3, self.overload(laws, 1950.0), delta=1 / 504)
        self.assertAlmostEqual(11 / 504 * .3, self.overload(
            laws[:19], 1950.0, laws[19]), delta=1 / 504)

    def test_exactly_independent_ones_are_those_without_instants(self):
        # All eight combinations of three, 63 times each.
        number = np.arange(504)
        laws = [self.sampled([0, kbps], number >> bit & 1)
                for bit, kbps in enumerate((100.0, 110.0, 125.0))]
        plain = [law.independent() for law in laws]
        rng = np.random.default_rng(self.RNG)
        for more in ([], [_on_off(50, F(1, 3)).law], _random_laws(rng, 30)):
            mean = sum(law.mean[:2].sum() for law in more)
            for capacity in (mean + 180.0, mean + 240.0):
                self.assertLikePlain(laws, plain, capacity, more)

    def test_instances_at_other_instants_are_not_added_up(self):
        # The same law, with the others, or at other instants.
        alike, shifted = (self.sampled([2, 100], busy) for busy in (
            self.BUSY, np.roll(self.BUSY, 7)))
        # More than 20 are busy, less than 21.
        with_them, without = (self.overload([alike] * 20, 2050.0, candidate)
                              for candidate in (alike, shifted))
        self.assertAlmostEqual(11 / 504, with_them, delta=1 / 504)
        self.assertLess(without, 1 / 504)

    def test_instants_without_a_sample_count_for_nobody(self):
        drawn = self.BUSY + np.full(504, 128)
        laws = [self.sampled([0, 100], drawn)] * 20
        plain = [law.independent() for law in laws]
        for capacity in (500.0, 1950.0):
            self.assertLikePlain(laws, plain, capacity)
        # Drawn for half of the instants, at the others busy together.
        half = self.BUSY + 128 * (np.arange(504) < 252)
        self.assertAlmostEqual(5 / 252, self.overload(
            [self.sampled([0, 100], half)] * 20, 1950.0), delta=1 / 252)

    def test_a_newcomer_is_judged_as_the_host_with_it(self):
        rng = np.random.default_rng(self.RNG)
        ratios = []
        for together in (0.0, .3, .6, 1.0) * 6:
            laws = self.fleet(rng, int(rng.integers(4, 30)), together)
            peaks = sum(law.peak[0] for law in laws)
            for share in (.2, .3, .5, .7):
                after = self.overload(laws, share * peaks)
                if after > 1 / 504:
                    ratios.append(self.overload(
                        laws[1:], share * peaks, laws[0]) / after)
        self.assertGreater(len(ratios), 40)
        self.assertAlmostEqual(1, np.median(ratios), 2)
        self.assertTrue(.4 < min(ratios) and max(ratios) < 2.5, ratios)

    def test_more_capacity_or_less_traffic_never_overloads_more(self):
        rng = np.random.default_rng(self.RNG)
        for together in (0.0, .5, 1.0):
            laws = self.fleet(rng, 12, together)
            peaks = sum(law.peak[0] for law in laws)
            overload = [self.overload(laws, capacity)
                        for capacity in np.linspace(.2, 1, 12) * peaks]
            # The tables have 256 cells.
            self.assertLess(np.diff(np.log(overload[:-1])).max(), .05)
            self.assertEqual(0.0, overload[-1])
            overload = [self.overload([rate_law.RateLaw.from_arrays(
                law.probabilities, law.rates * factor, law.at_instants)
                for law in laws], .4 * peaks)
                for factor in (.8, .9, 1.0, 1.1, 1.2)]
            self.assertGreater(np.diff(np.log(overload)).min(), -.05)

    def test_exact_sums_that_hit_the_capacity_fit(self):
        # Ten with a tenth each, all busy at once, and one that is not on.
        law = self.sampled([0, 100], self.BUSY)
        never = self.sampled([0, 100], 0 * self.BUSY)
        overload = self.overload([law] * 10 + [never], 1000.0)
        self.assertLess(overload, 1 / 504)
        for count, admitted in ((9, True), (10, False)):
            self.assertEqual([admitted], _judged(
                _policy(limit=0.0), [law] * count, law).admitted.tolist())
        self.assertAlmostEqual(
            11 / 504, self.overload([law] * 11, 1000.0), delta=1 / 504)

    def test_when_the_last_one_with_instants_goes_they_go(self):
        rng = np.random.default_rng(45)
        laws = _random_laws(rng, 40)
        policy = _policy(saturation_kbps=2500.0)
        row = self.table.describe('host', policy, _named(laws))
        without = self.table.assess([row], laws[0])
        more = dict(enumerate(self.fleet(rng, 3, 1.0)))
        self.table.change({'host': (more, ())})
        self.table.assess([row], laws[0])
        self.table.change({'host': ({}, list(more))})
        self.assertAlike(without, self.table.assess([row], laws[0]))

    def test_the_loss_is_that_of_the_instants(self):
        # 100 of 2000 above the capacity.
        law = self.sampled([0, 100], self.BUSY)
        for laws, candidate in (([law] * 20, _constant()), ([law] * 19, law)):
            self.assertAlmostEqual(100 / 2000, _judged(
                _policy(saturation_kbps=1900.0), laws,
                candidate).loss_fraction[0], delta=.012)

    def test_absurd_rates_and_capacities_give_no_nan(self):
        rng = np.random.default_rng(48)
        fleet = self.fleet(rng, 30, 1.0)
        for rate in (0.0, 1e-300, 1e9, 1e150, 1e300, 8e307):
            laws = [self.sampled([0, rate], rng.random(504) < .1)
                    for _ in range(4)]
            plain = [law.independent() for law in laws]
            for residents in (plain, laws, laws[:1], laws + fleet):
                for capacity in (0.0, 1e-6, 1000.0):
                    for candidate in (laws[0], plain[0]):
                        with np.errstate(all='raise', under='ignore'):
                            assessment = _judged(_policy(
                                limit=1.0, saturation_kbps=capacity),
                                residents, candidate)
                        for name in ('overload_probability', 'loss_fraction'):
                            value = float(getattr(assessment, name)[0])
                            self.assertTrue(0 <= value <= 1,
                                            (name, rate, capacity, value))
                        self.assertFalse(math.isnan(
                            assessment.utilisation[0]))
                        self.assertEqual(
                            rate <= max(capacity, model.LEAST_CAPACITY),
                            assessment.admitted[0])

    def test_uplinks_count_their_instants(self):
        law = self.sampled([0, 100], self.BUSY)
        uplink = admission.Uplink('tor', _policy(saturation_kbps=1900.0))
        policy = admission.HostPolicy(_profile(1e6), uplinks=(uplink,))
        hosts = [self.table.describe(host, policy, {
            f'{host}-{i}': law for i in range(10)}) for host in 'ab']
        assessment = self.table.assess(hosts, _constant())
        np.testing.assert_allclose(
            assessment.overload_probability, 11 / 504, atol=1 / 504)
        self.assertEqual([admission.UPLINK] * 2, assessment.reason.tolist())


class TestChange(AdmissionTestCase):
    """Who comes and goes leads where describing the host anew leads."""

    def assertAnew(self, policy, residents, candidate, host='host'):
        """Want the answers of the host described anew."""
        self.assertAlike(
            _judged(policy, residents, candidate.law),
            self.table.assess([self.table.row(host)], candidate.law),
            atol=1e-12)

    def walk(self, steps, hosts, seed):
        """Yield (policy, residents by host, candidate, unlike) of a walk."""
        rng = np.random.default_rng(seed)
        # Half were sampled, and are busy at the same instants.
        at_once, pool = rng.random(504), _random_models(rng, 60)
        for i, source in enumerate(pool[:30]):
            order = np.argsort(source.rates[:, 0])
            pool[2 * i] = dataclasses.replace(
                source, at_instants=order[np.searchsorted(
                    np.cumsum(source.stationary[order[:-1]]), at_once)])
        policy = _policy(saturation_kbps=4600.0, line_rate_kbps=2500.0,
                         packet_rate_kpps=140.0)
        residents = {host: _named(source.law for source in pool[:20])
                     for host in hosts}
        for host in hosts:
            self.table.describe(host, policy, residents[host])
        for step in range(steps):
            changes = {}
            for host in hosts:
                before = residents[host]
                added = {f'new-{step}-{i}': pool[int(rng.integers(60))].law
                         for i in range(int(rng.integers(3)))}
                removed = rng.choice(sorted(before), int(rng.integers(2)),
                                     replace=False).tolist()
                if added or removed:
                    changes[host] = added, removed
                residents[host] = {
                    uuid: law for uuid, law in before.items()
                    if uuid not in removed} | added
            unlike = self.table.change(changes)
            yield policy, residents, pool[step], unlike

    def test_a_random_walk_decides_as_the_host_described_anew(self):
        for policy, residents, candidate, unlike in self.walk(
                60, ['host'], 95):
            self.assertEqual([], unlike)
            self.assertAnew(policy, residents['host'], candidate)

    def test_changes_before_a_question_add_up(self):
        rng = np.random.default_rng(98)
        pool = _random_laws(rng, 80)
        policy = _policy(saturation_kbps=4000.0)
        residents = _named(pool[:50])
        self.table.describe('host', policy, residents)
        self.table.describe('other', policy, residents)
        rows = self.table.rows_of(['host', 'other'])
        self.table.assess(rows, pool[0])
        # The same one comes, goes and comes again; one changes its law.
        self.table.change({'host': ({'new': pool[60]}, ())})
        self.table.change({'host': ({}, ['new', 'vm-3'])})
        self.table.change({'host': ({'new': pool[61]}, ())})
        residents = residents | {'new': pool[61], 'vm-7': pool[62]}
        del residents['vm-3']
        self.table.describe('host', policy, residents)
        # What is not asked about is followed as well.
        self.table.change({'other': ({'new': pool[63]}, ())})
        self.assertAnew(policy, residents, _on_off(500))
        self.assertAnew(policy, _named(pool[:50]) | {'new': pool[63]},
                        _on_off(500), 'other')

    def test_many_hosts_are_followed_at_once(self):
        hosts = [f'host-{i}' for i in range(7)]
        for policy, residents, candidate, _ in self.walk(20, hosts, 97):
            pass
        at_once = self.table.assess(self.table.rows_of(hosts), candidate.law)
        for i, host in enumerate(hosts):
            self.assertAlike(_judged(policy, residents[host], candidate.law),
                             at_once, atol=1e-13, at=i)

    def test_who_comes_counts_at_once(self):
        policy = _policy(saturation_kbps=1000.0)
        law = _on_off(500).law
        self.table.describe('host', policy, _named([law] * 2))
        self.table.assess([0], law)
        self.assertEqual([], self.table.change({'host': (
            {'more': law, 'most': law}, [])}))
        # More than two of five are on.
        tail = sum(math.comb(5, k) * .1 ** k * .9 ** (5 - k)
                   for k in (3, 4, 5))
        overload = self.table.assess([0], law).overload_probability[0]
        self.assertAlmostEqual(tail, overload, 12)

    def test_who_has_gone_refuses_nobody(self):
        # Six of these are too much at 1 %, four are not.
        policy = _policy(saturation_kbps=1000.0)
        law = _on_off(500).law
        self.table.describe('host', policy, _named([law] * 5))
        admitted = [_judged(policy, [law] * n, law).admitted[0]
                    for n in (5, 3)]
        self.assertNotEqual(*admitted)
        self.assertEqual(admitted[0], self.table.assess([0], law).admitted[0])
        self.table.change({'host': ({}, ['vm-0', 'vm-1'])})
        self.assertEqual(admitted[1], self.table.assess([0], law).admitted[0])

    def test_a_walk_over_a_group_of_instances_decides_alike(self):
        # Up to 64 are added up one by one, more are not.
        for count, seed in ((3, 1), (40, 2), (63, 3), (66, 4)):
            rng = np.random.default_rng(seed)
            pool = _random_models(rng, 80)
            residents = _named(source.law for source in pool[:count])
            policy = _policy(limit=.02, saturation_kbps=1.25 * sum(
                law.mean[:2].sum() for law in residents.values()))
            self.table = admission.LoadTable()
            self.table.describe('host', policy, residents)
            for step in range(30):
                removed = rng.choice(sorted(residents), min(
                    int(rng.integers(3)), len(residents) - 1),
                    replace=False).tolist()
                added = {f'new-{step}': pool[step].law} \
                    if len(residents) - len(removed) < count else {}
                residents = {uuid: law for uuid, law in residents.items()
                             if uuid not in removed} | added
                for host in self.table.change({'host': (added, removed)}):
                    self.table.describe(host, policy, residents)
                self.assertAnew(policy, residents, pool[-step])

    def test_a_host_may_be_full_for_one_and_not_for_another(self):
        # Two of three at once are too much, two of two are not.
        policy = _policy(saturation_kbps=1000.0, limit=.012)
        large, small = _on_off(501.3), _on_off(.7)
        residents = _named([large.law] * 3)
        self.table.describe('host', policy, residents)
        self.assertFalse(self.table.assess([0], small.law).admitted[0])
        self.table.change({'host': ({}, ['vm-2'])})
        del residents['vm-2']
        for candidate in (large, small, large):
            self.assertAnew(policy, residents, candidate)
        self.assertTrue(self.table.assess([0], small.law).admitted[0])

    def test_whoever_goes_next_may_make_room(self):
        policy = _policy(saturation_kbps=1000.0, limit=.012)
        large, small = _on_off(501.3), _on_off(.7)
        residents = _named([small.law] + [large.law] * 4)
        self.table.describe('host', policy, residents)
        self.assertFalse(self.table.assess([0], large.law).admitted[0])
        for uuid in ('vm-1', 'vm-2', 'vm-3', 'vm-0'):
            self.table.change({'host': ({}, [uuid])})
            del residents[uuid]
            self.assertAnew(policy, residents, large)
        self.assertTrue(self.table.assess([0], large.law).admitted[0])

    def test_a_finer_lattice_comes_and_goes(self):
        # Three of 853 fit 2560 and nothing more; nine in round numbers.
        for kbps, count, capacity, odd in (
                (853, 3, 2560.0, .3), (1000, 9, 6000.0, 333.3),
                (1000, 9, 6000.0, 500)):
            with self.subTest(odd=odd):
                even, uneven = _on_off(kbps), _on_off(odd)
                policy = _policy(saturation_kbps=capacity, limit=.001)
                residents = _named([even.law] * count)
                self.table.describe('host', policy, residents)
                for added, removed in (({'odd': uneven.law}, []),
                                       ({}, ['odd'])):
                    self.table.assess([0], even.law)
                    self.assertEqual([], self.table.change(
                        {'host': (added, removed)}))
                    for candidate in (even, uneven):
                        self.assertAnew(policy, residents | added, candidate)
                self.assertTrue(
                    self.table.assess([0], even.law).admitted[0])

    def test_who_leaves_others_on_a_lattice_leaves_an_exact_sum(self):
        # Equal rates with other shares, whose sums hit the capacity.
        odd = _egress([.2, .3, .5], [0.0, 171.3, 77.7])
        for kbps, count in ((10.0, 200), (8.0, 300)):
            share = 800 / kbps / count
            residents = {str(i): _egress([1 - part, part], [0.0, kbps])
                         for i, part in enumerate(np.linspace(
                             .9 * share, 1.1 * share, count))}
            self.table.describe('host', _policy(), residents | {'odd': odd})
            self.table.assess([0], odd)
            self.table.change({'host': ({}, ['odd'])})
            self.assertAnew(_policy(), residents, _on_off(kbps))

    def test_who_had_more_than_any_switch_carries_leaves_no_error(self):
        rng = np.random.default_rng(107)
        laws = _named([_egress(rng.dirichlet([5, 1]),
                               [1.0, rng.uniform(20, 90)])
                       for _ in range(30)])
        policy, candidate = _policy(), _constant(1.0)
        expected = _judged(policy, laws, candidate)
        for law in (_constant(1e22), _egress([.9, .1], [0.0, 1e160])):
            table = admission.LoadTable()
            row = table.describe('host', policy, laws)
            for change in (({'huge': law}, ()), ({}, ['huge'])):
                table.change({'host': change})
                assessment = table.assess([row], candidate)
            self.assertAlike(expected, assessment)

    def test_many_at_once_are_another_host(self):
        residents = _named(_random_laws(np.random.default_rng(98), 9))
        self.table.describe('host', _policy(), {
            uuid: residents[uuid] for uuid in ('vm-0', 'vm-1')})
        self.assertEqual([], self.table.change({'host': (
            {uuid: law for uuid, law in residents.items()
             if uuid not in ('vm-0', 'vm-1')}, ['vm-0'])}))
        del residents['vm-0']
        self.assertAnew(_policy(), residents, _on_off(900))

    def test_nobody_left_is_an_empty_host(self):
        law = _on_off(127.7).law
        self.table.describe('host', _policy(), {'a': law, 'b': law})
        self.assertEqual([], self.table.change({'host': ({}, ['a', 'b'])}))
        self.assertAnew(_policy(), {}, _on_off(900))

    def test_hosts_without_a_profile_are_followed(self):
        law = _on_off(127.7).law
        self.table.describe('host', admission.HostPolicy(None), {'a': law})
        self.table.describe('other', _policy(), {'a': law})
        self.assertEqual([], self.table.change({
            host: ({'b': law}, []) for host in ('host', 'other')}))
        self.assertAnew(admission.HostPolicy(None), {'a': law, 'b': law},
                        _on_off(900))

    def test_what_does_not_fit_what_is_known_is_not_followed(self):
        law = _on_off(127.7).law
        self.assertEqual(['host'], self.table.change(
            {'host': ({'a': law}, [])}))
        self.table.describe('host', _policy(), {'a': law, 'b': law})
        version = self.table.version
        for added, removed in (({'a': law}, []), ({}, ['c']),
                               ({'c': law}, ['d'])):
            self.assertEqual(['host'], self.table.change(
                {'host': (added, removed)}))
        self.assertEqual(version, self.table.version)
        self.assertAnew(_policy(), {'a': law, 'b': law}, _on_off(900))


class TestErrorBudgets(AdmissionTestCase):
    """Host a is in debt, and project spender spends; b and c are not."""

    SMALL = _constant(10.0)
    DEBT = store.Debt(.25, frozenset(['spender']))

    def assess(self, law=SMALL, debts=None, exclude=None, uplinks=(),
               residents=(), hosts='abc', project='spender', **policy):
        table = admission.LoadTable(
            debts={('host', 'a'): self.DEBT} if debts is None else debts)
        rows = [table.describe(
            host, dataclasses.replace(
                _policy(), uplinks=uplinks, **policy),
            {uuid: self.SMALL for uuid in residents}) for host in hosts]
        return table.assess(rows, law, exclude, project=project)

    def test_a_host_in_debt_refuses_who_spends_and_says_so(self):
        assessment = self.assess()
        self.assertEqual([False, True, True], assessment.admitted.tolist())
        self.assertEqual('error budget', assessment.check(0))
        self.assertIsNone(assessment.decisive(0))
        self.assertIn('its error budget is overspent by the amount that '
                      '0.25 days in use earn', assessment.explain(0))
        # A quarter of a day above nothing.
        np.testing.assert_allclose([1.25], assessment.multiples(np.array([0])))

    def test_it_accepts_others_and_comes_last(self):
        for project in ('other', None):
            assessment = self.assess(project=project)
            self.assertTrue(assessment.admitted.all())
            self.assertEqual([True, False, False], assessment.last.tolist())
            self.assertFalse(assessment.only_last)

    def test_a_bolder_margin_does_not_apply_to_a_host_in_debt(self):
        # Overloaded for a tenth of the time with the new instance.
        for margin, admitted in ((.05, [False, True, True]),
                                 (2.0, [False] * 3)):
            assessment = self.assess(
                _on_off(995.0).law, residents=['x'], project='other',
                overload_probability=.01, prediction_margin=margin)
            self.assertEqual(admitted, assessment.admitted.tolist(), margin)
        # Within the limit, the margin does not matter.
        self.assertTrue(self.assess(
            _on_off(995.0).law, residents=['x'], project='other',
            overload_probability=.11, prediction_margin=.05).admitted[0])

    def test_debt_leaves_no_request_without_a_host(self):
        debts = {('host', host): self.DEBT for host in 'abc'}
        assessment = self.assess(debts=debts)
        self.assertTrue(assessment.admitted.all())
        self.assertTrue(assessment.only_last)
        # The other host does not pass for another reason.
        del debts['host', 'c']
        table = admission.LoadTable(debts=debts)
        rows = [table.describe(host, _policy(), {
            'full': _constant(999.0 if host == 'c' else 0.0)})
            for host in 'abc']
        assessment = table.assess(rows, self.SMALL, project='spender')
        self.assertEqual([True, True, False], assessment.admitted.tolist())
        self.assertTrue(assessment.only_last)

    def test_all_hosts_are_judged_together_whatever_their_laws(self):
        table = admission.LoadTable(debts={('host', 'a'): self.DEBT})
        rows = [table.describe(host, _policy(), {}) for host in 'ab']
        self.assertEqual([False, True], table.assess_each(
            rows, [_constant(1.0), _constant(2.0)],
            project='spender').admitted.tolist())

    def test_debts_can_change(self):
        table = admission.LoadTable()
        rows = [table.describe(host, _policy(), {}) for host in 'ab']
        for debts, admitted in (({('host', 'a'): self.DEBT}, [False, True]),
                                ({}, [True, True])):
            version = table.version
            table.set_debts(debts)
            self.assertNotEqual(version, table.version)
            self.assertEqual(admitted, table.assess(
                rows, self.SMALL, project='spender').admitted.tolist())

    def test_what_load_refuses_is_said_before_debt(self):
        assessment = self.assess(_constant(2000.0))
        self.assertEqual(['peak'] * 3, [assessment.check(i) for i in range(3)])
        self.assertFalse(assessment.only_last)

    def test_hosts_without_a_limit_refuse_nothing_for_debt(self):
        self.assertTrue(self.assess(
            policy=admission.AVERAGE).admitted.all())

    def test_an_instance_that_is_there_is_not_new(self):
        self.assertTrue(self.assess(exclude='x',
                                    residents=['x']).admitted[0])
        self.assertFalse(self.assess(exclude='x').admitted[0])

    def test_an_uplink_in_debt_refuses_hosts_behind_it(self):
        uplink = admission.Uplink('a', _policy())
        table = admission.LoadTable(debts={('uplink', 'a'): self.DEBT})
        rows = [table.describe(host, dataclasses.replace(
            _policy(), uplinks=(uplink,) if host != 'c' else ()), {})
            for host in 'abc']
        assessment = table.assess(rows, self.SMALL, project='spender')
        self.assertEqual(['uplink', 'uplink', 'admitted'],
                         [assessment.check(i) for i in range(3)])
        self.assertEqual([True, True, False], assessment.last.tolist())
        self.assertIn('its uplink a: its error budget is overspent',
                      assessment.explain(1))
        self.assertIsNone(assessment.decisive(1))
        # If all hosts are behind it, they pass.
        self.assertTrue(self.assess(
            uplinks=(uplink,), debts={('uplink', 'a'): self.DEBT}
        ).admitted.all())
        # A host of the same name is another thing.
        assessment = self.assess(uplinks=(uplink,))
        self.assertEqual([False, True, True], assessment.admitted.tolist())


class TestGiants(AdmissionTestCase):
    """Host a has an instance that exceeds the capacity of 1000 alone."""

    #: In a thousandth of the time.
    GIANT = _on_off(1500.0, F(1, 1000)).law
    SMALL = _constant(1.0)

    def assess(self, giants='a', hosts='ab', exclude=None, law=SMALL,
               **policy):
        table = admission.LoadTable()
        rows = [table.describe(host, _policy(**policy), {
                f'on {host}': self.GIANT if host in giants else self.SMALL})
                for host in hosts]
        return table.assess(rows, law, exclude)

    def test_no_instance_is_placed_beside_it_while_another_host_passes(self):
        assessment = self.assess()
        self.assertEqual([False, True], assessment.admitted.tolist())
        self.assertEqual('large neighbour', assessment.check(0))
        self.assertIn('one of its 1 instances exceeds the capacity of profile',
                      assessment.explain(0))
        self.assertIsNone(assessment.decisive(0))

    def test_if_there_is_no_other_host_it_passes_and_comes_last(self):
        assessment = self.assess('ab')
        self.assertEqual([True, True], assessment.admitted.tolist())
        self.assertTrue(assessment.only_last)
        self.assertEqual([True, True], assessment.last.tolist())

    def test_an_instance_on_its_host_may_stay(self):
        for uuid in ('on a', 'on b'):
            self.assertEqual(uuid == 'on a',
                             self.assess(exclude=uuid).admitted[0])

    def test_averages_have_no_giants(self):
        self.assertTrue(self.assess(policy=admission.AVERAGE).admitted.all())

    def test_a_giant_that_leaves_is_forgotten(self):
        table = admission.LoadTable()
        rows = [table.describe(host, _policy(), {
            'x': self.SMALL}) for host in 'ab']
        for change, admitted in ((({'g': self.GIANT}, []), False),
                                 (({}, ['g']), True)):
            table.change({'a': change})
            self.assertEqual([admitted, True], table.assess(
                rows, self.SMALL).admitted.tolist())


class TestPredictionMargin(AdmissionTestCase):

    CAPACITY = 2.5
    LAW = _on_off(1.0).law
    #: Instances on the host, with the new one, each on in a tenth of the time.
    COUNT = 8
    #: P(more than two of them are on).
    OVERLOAD = 1 - .9 ** 8 - 8 * .1 * .9 ** 7 - 28 * .1 ** 2 * .9 ** 6

    def assess(self, limit, margin, exclude=None, uplinks=(), **policy):
        table = admission.LoadTable()
        row = table.describe('a', admission.HostPolicy(
            profile.SwitchProfile(
                'p', saturation_kbps=1e6 if uplinks else self.CAPACITY),
            overload_probability=limit, prediction_margin=margin,
            uplinks=uplinks, **policy), {
                f'a{n}': self.LAW
                for n in range(self.COUNT - (exclude is None))})
        return table.assess([row], self.LAW, exclude)

    def test_the_prediction_times_the_margin_may_equal_the_limit(self):
        for margin in (2.0, .5, 1 / 3):
            # Also for an instance that moves.
            for exclude in (None, 'a0'):
                for share, admitted in ((1.0, True), (.999, False)):
                    assessment = self.assess(
                        share * margin * self.OVERLOAD, margin, exclude)
                    self.assertEqual(admitted, assessment.admitted[0])
                    self.assertEqual(admitted, not assessment.above[0])
                    self.assertAlmostEqual(share * self.OVERLOAD,
                                           assessment.limit(0))
            self.assertAlmostEqual(.999 * self.OVERLOAD,
                                   assessment.decisive(0)[1])

    def test_the_message_has_prediction_margin_and_limit(self):
        text = self.assess(.05, 2.0).explain(0)
        self.assertIn(f'would be {self.OVERLOAD:.3g}, above the limit of '
                      f'0.025, 0.05 divided by the prediction margin 2 (',
                      text)
        self.assertNotIn('margin', self.assess(.05, 1.0).explain(0))

    def test_a_limit_of_nothing_stays_nothing(self):
        for margin in (.001, 2.0):
            assessment = self.assess(0.0, margin)
            self.assertEqual(0.0, assessment.limit(0))
            self.assertFalse(assessment.admitted[0])

    def test_an_uplink_has_the_margin_of_its_own_policy(self):
        for exclude in (None, 'a0'):
            for margin, admitted in ((1.9, True), (2.1, False)):
                assessment = self.assess(
                    2 * self.OVERLOAD, 4.0, exclude, (admission.Uplink(
                        'a', admission.HostPolicy(
                            profile.SwitchProfile(
                                'u', saturation_kbps=self.CAPACITY),
                            overload_probability=2 * self.OVERLOAD,
                            prediction_margin=margin)),))
                self.assertEqual(admitted, assessment.admitted[0])
        self.assertIn('divided by the prediction margin 2.1',
                      assessment.explain(0))
