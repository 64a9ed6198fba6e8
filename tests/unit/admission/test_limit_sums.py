# SPDX-License-Identifier: Apache-2.0

import math
from unittest import mock

import numpy as np

from tests.unit.admission import base
from tests.unit.traffic import exact
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.traffic import exact_sum
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile

F = base.F
_profile = base.switch_profile
_policy = base.policy
_on_off = base.on_off
_constant = base.constant
_egress = base.egress
_named = base.named
_judged = base.judged
_random_models = base.random_models
_random_laws = base.random_laws


class TestProbability(base.AdmissionTestCase):

    def test_loss_of_like_instances_is_the_binomial_excess(self):
        n, fit, p = 20, 4, F(1, 10)
        assessment = self.judge(_policy(saturation_kbps=4000.0),
                                [_on_off(1000)] * (n - 1), _on_off(1000))
        excess = sum(math.comb(n, k) * p ** k * (1 - p) ** (n - k)
                     * (k - fit) for k in range(fit + 1, n + 1))
        self.assertAlmostEqual(float(excess / (n * p)),
                               assessment.loss_fraction[0], delta=1e-12)

    def test_a_probability_equal_to_the_limit_is_admitted(self):
        # Three at once: a tenth to the third.
        for limit, admitted in ((.001, True), (.001 * (1 - 1e-6), False),
                                (.1 ** 3, True), (.1 * .1 * .1, True)):
            self.assertAdmitted(
                admitted, _policy(limit=limit, saturation_kbps=2500.0),
                [_on_off(1000)] * 2, _on_off(1000), msg=limit)

    def test_constants_above_the_capacity_overload_for_ever(self):
        assessment = self.judge(
            _policy(), [model.TrafficModel.constant(600)] * 3,
            model.TrafficModel.constant(200))
        self.assertEqual(1.0, assessment.overload_probability[0])
        self.assertAlmostEqual(.5, assessment.loss_fraction[0], 12)
        self.assertAlmostEqual(2.0, assessment.utilisation[0], 12)

    def test_a_limit_is_decided_as_if_the_capacity_were_near(self):
        rng = np.random.default_rng(101)
        counts = rng.integers(13, 60, 60).tolist()
        self.assertDecided(((
            self._laws(rng, count, min(.7, 8 / count), 9, 1),
            lambda tail, _: [10 ** rng.uniform(
                max(math.log10(tail) - 1, -9), 0)]) for count in counts), 10)

    def test_few_have_a_probability_of_a_capacity_that_is_near(self):
        # To a hundredth of the capacity, for any limit.
        rng = np.random.default_rng(7)
        compared = 0
        for number in range(150):
            laws = self._laws(rng, int(rng.integers(2, 11)), .7, 9, 1, .3)
            sums, shares = exact.enumerated(
                (law.rates[:, 0], law.probabilities) for law in laws)
            below, above = (shares[sums > by].sum() for by in (990, 1010))
            judged = _judged(_policy(), laws[1:], laws[0])
            overload = judged.overload_probability[0]
            self.assertLessEqual(overload, below * (1 + 1e-5) + 1e-12, number)
            self.assertGreaterEqual(overload, above * (1 - 1e-5) - 1e-12,
                                    number)
            compared += above > 1e-9
            # If a sum moves by d, its excess changes by at most d times the
            # probability that the sum is above the nearer capacity.
            self.assertAlmostEqual(
                shares @ np.maximum(sums - 1000, 0),
                judged.loss_fraction[0] * (shares @ sums),
                delta=10 * below + 1e-9, msg=number)
        self.assertGreater(compared, 75)

    def test_silent_instances_do_not_hide_the_steps_of_two_large_ones(self):
        # Two large ones fill the capacity to within two per cent, now and then
        # together with a third one.
        rng = np.random.default_rng(106)

        def laws():
            sizes = np.array([.4, .6]) * rng.uniform(.98, 1.0) * 1000.0
            shares = [*rng.uniform(.1, .9, 2), 10 ** rng.uniform(-6, -2)]
            return [_egress([1 - share, share], [0.0, kbps]) for share, kbps
                    in zip(shares, [*sizes, rng.uniform(50, 400)])] + [
                _egress(rng.dirichlet([9, 1]), [0.0, rng.uniform(.001, .1)])
                for _ in range(rng.integers(22, 40))]

        self.assertDecided(((laws(), lambda lower, upper: [
            lower * 1.02, upper * .98, 10 ** rng.uniform(-9, -1)])
            for _ in range(60)), 20)

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

    @staticmethod
    def _laws(rng, count, largest, *chances):
        """Return random laws of egress, some of them with much always on.

        :param largest: share of the capacity of 1000 kbit/s
        :param chances: parameters of the law of the states
        """
        laws = []
        for _ in range(count):
            rates = np.sort(rng.uniform(
                0, 1000.0 * largest * rng.random(), len(chances)))
            if rng.random() < .7:
                rates[0] = 0.0
            laws.append(_egress(rng.dirichlet(chances), rates))
        return laws

    def assertDecided(self, cases, least):
        """Check decisions, as if the capacity were a hundredth more or less.

        :param cases: iterable of (laws, function that returns limits of
            P(sum > capacity) of the smaller and of the larger capacity)
        :param least: so many hosts at least admit and refuse
        """
        decisions = []
        for laws, limits in cases:
            tails = [self._lattice_tail(laws, by) for by in (.99, 1.01)]
            for limit in limits(*tails) if tails[0] >= 1e-9 else ():
                if not 1e-9 <= limit < 1:
                    continue
                fits = bool(_judged(_policy(limit=limit), laws[1:],
                                    laws[0]).admitted[0])
                self.assertFalse(fits and tails[1] > limit)
                self.assertFalse(not fits and tails[0] <= limit)
                decisions.append(fits)
        self.assertGreater(sum(decisions), least)
        self.assertLess(sum(decisions), len(decisions) - least)

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
                (1e6 / 3, 1e6, 3), (.1, .3, 3), (2500.0, 1e6, 400),
                (1000.0, 1000.0, 1), (1e9 / 3, 1e9 / 3, 1)):
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


class TestSeveralLimits(base.AdmissionTestCase):

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

    def test_a_sum_above_one_is_one(self):
        constant = model.TrafficModel.constant(900, 900)
        assessment = self.judge(
            _policy(saturation_kbps=1000.0, line_rate_kbps=950.0,
                    ), [constant] * 2, constant)
        self.assertEqual(1.0, assessment.overload_probability[0])
        self.assertLessEqual(assessment.loss_fraction[0], 1.0)

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


class TestInstants(base.AdmissionTestCase):
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
