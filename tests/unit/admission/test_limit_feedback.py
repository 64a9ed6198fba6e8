# SPDX-License-Identifier: Apache-2.0

import math
import unittest
from unittest import mock

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import limit_feedback
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile

FACTORS = np.array(limit_feedback.FACTORS)
SLOT = 1 / 288


def _policy(limit=.01, **stated):
    stated = stated or {'saturation_kbps': 20.0}
    return admission.HostPolicy(
        profile.SwitchProfile(name='own', **stated),
        overload_probability=limit)


def _on_off(kbps, share):
    return model.TrafficModel.on_off(
        kbps, 0.0, on_seconds=share, off_seconds=1 - share).law


def _tail(count, share, most):
    """Return P(more than ``most`` of ``count`` are on)."""
    return sum(math.comb(count, k) * share ** k * (1 - share) ** (count - k)
               for k in range(most + 1, count + 1))


def _egress(rows):
    """Return {row: (t, 3) rates}."""
    return {row: np.outer(rates, [1.0, 0.0, 0.0])
            for row, rates in enumerate(rows)}


def _outcome(shares, host_days):
    return limit_feedback.Outcome(
        np.asarray(shares) * host_days, np.full(FACTORS.size, float(host_days))
    )


class FactorTestCase(unittest.TestCase):

    def test_nothing_that_came_of_trials_is_no_reason_to_change(self):
        self.assertAlmostEqual(
            1.0, limit_feedback.factor(limit_feedback.NOTHING, 0.01), places=12
        )

    def test_overload_in_proportion_is_divided_out_as_far_as_it_weighs(self):
        # (c D + K) f E / (D + K) = E, with the weight K of the belief.
        belief = limit_feedback.PRIOR_HOST_DAYS
        for limit in .01, .003:
            for ratio in .2, .5, 1.0, 1.9:
                for days in 1.0, 100.0, 1e6:
                    with self.subTest((limit, ratio, days)):
                        self.assertAlmostEqual(
                            (days + belief) / (ratio * days + belief),
                            limit_feedback.factor(_outcome(
                                ratio * limit * FACTORS, days), limit),
                            places=9)

    def test_it_stays_within_what_was_tried(self):
        calm = _outcome(np.zeros(FACTORS.size), 1e9)
        self.assertAlmostEqual(FACTORS[-1], limit_feedback.factor(calm, .01))
        wild = _outcome(np.ones(FACTORS.size), 1e9)
        self.assertAlmostEqual(FACTORS[0], limit_feedback.factor(wild, .01))

    def test_more_room_with_less_overload_is_chance(self):
        shares = .01 * np.array([.5, 2.0, .1, .1, .1])
        found = limit_feedback.factor(_outcome(shares, 1e9), .01)
        # Halfway between x 0.5 and x 1, where half and twice the limit are.
        self.assertAlmostEqual(math.sqrt(.5), found, places=6)

    def test_a_limit_of_nothing_stays(self):
        self.assertEqual(1.0, limit_feedback.factor(_outcome(
            np.ones(FACTORS.size), 9.0), 0.0))

    def test_outcomes_add_up(self):
        one = _outcome(.01 * FACTORS, 3.0) + _outcome(.03 * FACTORS, 1.0)
        np.testing.assert_allclose(.06 * FACTORS, one.overload_days)
        np.testing.assert_allclose(4.0, one.host_days)


class TrialTestCase(unittest.TestCase):

    def test_hosts_are_filled_up_to_each_multiple_of_the_limit(self):
        # Two of n may be on at once.
        laws = {f'vm-{i}': _on_off(10.0, .1) for i in range(40)}
        trial = limit_feedback.Trial.of(laws, _policy())
        self.assertEqual(tuple(laws), trial.instances)
        for times, hosts in zip(FACTORS, trial.hosts):
            most = max(n for n in range(1, 41)
                       if _tail(n, .1, 2) <= .01 * times)
            self.assertEqual([i // most for i in range(40)], hosts.tolist())

    def test_who_no_longer_fits_goes_to_the_first_host_that_has_room(self):
        laws = {name: model.TrafficModel.constant(kbps).law for name, kbps in (
            ('a', 15.0), ('b', 10.0), ('c', 5.0), ('d', 10.0), ('e', 1.0))}
        trial = limit_feedback.Trial.of(laws, _policy())
        self.assertEqual([[0, 1, 0, 1, 2]] * FACTORS.size,
                         trial.hosts.tolist())

    def test_no_multiple_is_above_one(self):
        laws = {i: _on_off(15.0, .9) for i in range(3)}
        trial = limit_feedback.Trial.of(laws, _policy(limit=.5))
        self.assertEqual([0, 1, 2], trial.hosts[1].tolist())
        self.assertEqual([0, 0, 0], trial.hosts[-1].tolist())

    def test_overload_is_that_of_the_binomial_of_the_true_shares(self):
        # Laws say 10 %, 4 % is true: independent slots, within 4 sigma.
        generator = np.random.default_rng(3)
        slots = 20000
        trial = limit_feedback.Trial.of(
            {i: _on_off(10.0, .1) for i in range(40)}, _policy())
        follow = limit_feedback.Feedback(_policy())
        follow.add(0.0, trial)
        follow.count(1.0, _egress(
            10.0 * (generator.random((40, slots)) < .04)), SLOT)
        for number, hosts in enumerate(trial.hosts):
            chances = np.array([_tail(n, .04, 2)
                                for n in np.bincount(hosts)])
            found = follow.outcome.overload_days[number] / SLOT
            deviation = math.sqrt(slots * (chances * (1 - chances)).sum())
            self.assertLess(abs(found - slots * chances.sum()),
                            4 * deviation)
            self.assertAlmostEqual(slots * chances.size * SLOT,
                                   follow.outcome.host_days[number])


class OutcomeTestCase(unittest.TestCase):

    def _by_hand(self, policy, trial, rates):
        """Return slots of overload for each multiple, one by one."""
        slots = len(next(iter(rates.values())))
        found = []
        for hosts in trial.hosts.tolist():
            count = 0
            for host in set(hosts):
                on = [rates[one] for one, where in zip(
                    trial.instances, hosts) if where == host and one in rates]
                for slot in range(slots):
                    sizes = [(sum(float(np.dot(weights, one[slot]))
                                  for one in on), capacity,
                              [float(np.dot(weights, one[slot]))
                               for one in on])
                             for weights, capacity, _ in policy.limits]
                    count += any(
                        total > capacity and max(alone) <= capacity
                        for total, capacity, alone in sizes)
            found.append(count)
        return found

    def test_every_limit_counts_unless_one_instance_alone_is_above_it(self):
        generator = np.random.default_rng(5)
        policy = _policy(saturation_kbps=100.0, line_rate_kbps=60.0,
                         packet_rate_kpps=9.0)
        rates = {i: generator.exponential([20.0, 20.0, 2.0], (50, 3))
                 for i in range(12)}
        trial = limit_feedback.Trial(tuple(range(12)), generator.integers(
            0, 4, (FACTORS.size, 12)))
        follow = limit_feedback.Feedback(policy)
        follow.add(0.0, trial)
        follow.count(1.0, rates, SLOT)
        wanted = self._by_hand(policy, trial, rates)
        self.assertGreater(min(wanted), 0)
        np.testing.assert_allclose(
            np.array(wanted) * SLOT, follow.outcome.overload_days)

    def test_a_sum_that_equals_the_capacity_is_not_above_it(self):
        follow = limit_feedback.Feedback(_policy(saturation_kbps=.3))
        follow.add(0.0, limit_feedback.Trial((0, 1), np.zeros((5, 2), int)))
        follow.count(1.0, _egress([[.1, .1], [.2, .2000001]]), SLOT)
        np.testing.assert_allclose(SLOT, follow.outcome.overload_days)

    def test_packets_that_are_not_known_are_of_the_typical_size(self):
        # 80 kbit/s of 100 bytes are .1 kilo-packets/s.
        follow = limit_feedback.Feedback(_policy(
            packet_rate_kpps=.15, typical_packet_bytes=100.0))
        follow.add(0.0, limit_feedback.Trial((0, 1), np.zeros((5, 2), int)))
        follow.count(1.0, _egress([[80.0, 80.0], [30.0, 50.0]]), SLOT)
        np.testing.assert_allclose(SLOT, follow.outcome.overload_days)

    def test_who_was_not_measured_has_no_traffic(self):
        follow = limit_feedback.Feedback(_policy())
        follow.add(
            0.0, limit_feedback.Trial(('a', 'gone'), np.zeros((5, 2), int))
        )
        follow.count(1.0, {'a': np.full((3, 3), 9.0)}, SLOT)
        np.testing.assert_allclose(0.0, follow.outcome.overload_days)
        np.testing.assert_allclose(3 * SLOT, follow.outcome.host_days)

    def test_a_host_without_limits_is_never_overloaded(self):
        policy = admission.HostPolicy(None)
        follow = limit_feedback.Feedback(policy)
        follow.add(0.0, limit_feedback.Trial.of({0: _on_off(9.0, .5)}, policy))
        follow.count(1.0, _egress([[9e9]]), SLOT)
        np.testing.assert_allclose(0.0, follow.outcome.overload_days)

    def test_nobody_measured_is_no_evidence(self):
        follow = limit_feedback.Feedback(_policy())
        follow.add(0.0, limit_feedback.Trial((0,), np.zeros((5, 1), int)))
        follow.count(1.0, {}, SLOT)
        self.assertAlmostEqual(
            .01, follow.policy().overload_probability)


class FeedbackTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.trial = limit_feedback.Trial((0, 1), np.zeros((5, 2), int))
        self.follow = limit_feedback.Feedback(_policy())

    def _day(self, day, overloaded):
        rate = 11.0 if overloaded else 1.0
        self.follow.count(day, _egress(np.full((2, 288), rate)), SLOT)

    def test_a_trial_counts_from_the_moment_on_at_which_it_was_made(self):
        self._day(1.0, True)
        self.assertEqual(1.0, self.follow.policy().overload_probability / .01)
        self.follow.add(1.0, self.trial)
        self._day(2.0, True)
        np.testing.assert_allclose(1.0, self.follow.outcome.overload_days)

    def test_a_trial_is_followed_for_its_days(self):
        self.follow.add(0.0, self.trial)
        days = limit_feedback.TRIAL_DAYS
        for day in np.arange(1.0, days + 1):
            self._day(day, True)
        np.testing.assert_allclose(days, self.follow.outcome.host_days)
        # What came on the first day is forgotten, none is added.
        self._day(days + 1, True)
        np.testing.assert_allclose(days - 1, self.follow.outcome.host_days)

    def test_what_came_of_trials_is_forgotten_after_their_days(self):
        self.follow.add(0.0, self.trial)
        self._day(1.0, True)
        self.assertLess(self.follow.policy().overload_probability, .01)
        self._day(1.0 + limit_feedback.TRIAL_DAYS, True)
        np.testing.assert_allclose(1.0, self.follow.outcome.host_days)
        self.follow.count(1.0 + 2 * limit_feedback.TRIAL_DAYS, {}, SLOT)
        np.testing.assert_allclose(0.0, self.follow.outcome.host_days)
        self.assertAlmostEqual(.01, self.follow.policy().overload_probability)

    def test_the_corrected_policy_differs_in_its_limit_only(self):
        self.follow.add(0.0, self.trial)
        for day in 1.0, 2.0, 3.0:
            self._day(day, False)
        found = self.follow.policy()
        # Three host-days of none beside the belief's ten.
        self.assertAlmostEqual(.01 * 13 / 10, found.overload_probability)
        self.assertEqual('own', found.profile.name)
        self.assertEqual(admission.PROBABILITY, found.policy)


class KindTestCase(unittest.TestCase):

    def test_it_tells_what_decides_and_nothing_else(self):
        names = [limit_feedback.kind_of(policy) for policy in (
            _policy(), _policy(limit=.003), _policy(saturation_kbps=30.0),
            _policy(saturation_kbps=20.0, line_rate_kbps=15.0),
            _policy(saturation_kbps=20.0, packet_rate_kpps=1.0),
            _policy(saturation_kbps=20.0, packet_rate_kpps=1.0,
                    typical_packet_bytes=100.0))]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual('0.01: 1 1 0 <= 20', names[0])
        self.assertEqual([.01, .003], list(map(
            limit_feedback.limit_of, names[:2])))
        same = admission.HostPolicy(profile.SwitchProfile(
            name='other', saturation_kbps=20.0, vm_peak_kbps=5.0),
            pass_unknown=False,
            uplinks=(admission.Uplink('u', _policy()),))
        self.assertEqual(names[0], limit_feedback.kind_of(same))

    def test_where_no_probability_is_limited_there_is_none(self):
        for policy in (
                admission.HostPolicy(None), _policy(0), _policy(1),
                admission.HostPolicy(_policy().profile, admission.AVERAGE),
                _policy(vm_peak_kbps=5.0)):
            self.assertIsNone(limit_feedback.kind_of(policy))

    def test_a_long_one_is_a_digest(self):
        limit = .01 + 1 / 3e9
        with mock.patch.object(limit_feedback, '_LONGEST', 20):
            found = limit_feedback.kind_of(_policy(limit))
            other = limit_feedback.kind_of(
                _policy(limit, saturation_kbps=21.0)
            )
        self.assertNotEqual(found, other)
        self.assertEqual(limit, limit_feedback.limit_of(found))
        self.assertLessEqual(len(found), 255)


NOW = 1e9


def _told(shares, host_days, until=NOW, kind='0.01: 1 1 0 <= 20'):
    """Return a TrialOutcome in the store, shares as of `_outcome`."""
    return store.TrialOutcome(kind, until, tuple(
        (percent, share * host_days, host_days)
        for percent, share in zip(limit_feedback.PERCENT, shares)))


class MultipleTestCase(unittest.TestCase):

    def test_it_is_the_factor_in_steps(self):
        for ratio in (.13, .2, .5, .9, 1.0, 1.3, 3.0):
            shares = ratio * .01 * FACTORS
            exact = limit_feedback.factor(_outcome(shares, 500.0), .01)
            found = limit_feedback.multiple(_told(shares, 500.0), NOW)
            steps = math.log(found) / math.log(limit_feedback.STEP)
            self.assertAlmostEqual(round(steps), steps)
            self.assertLess(abs(math.log(found / exact)),
                            .5 * math.log(limit_feedback.STEP) + 1e-9)
        self.assertEqual(1.0, limit_feedback.multiple(
            _told(.01 * FACTORS, 1.0), NOW))

    def test_it_is_bounded(self):
        calm = _told(0 * FACTORS, 1e9)
        self.assertEqual(8.0, limit_feedback.multiple(calm, NOW))
        self.assertEqual(2.5, limit_feedback.multiple(calm, NOW, 2.5))
        wild = limit_feedback.multiple(_told(1 + 0 * FACTORS, 1e9), NOW)
        self.assertTrue(.5 <= wild < .5 * limit_feedback.STEP)

    def test_what_is_old_or_of_the_future_corrects_nothing(self):
        day = 86400.0
        for age, wanted in ((0, 8.0), (2.9, 8.0), (-.9, 8.0), (3.1, 1.0),
                            (-1.1, 1.0)):
            self.assertEqual(wanted, limit_feedback.multiple(_told(
                0 * FACTORS, 1e9, NOW - age * day), NOW))

    def test_multiples_that_are_not_tried_any_more_do_not_count(self):
        told = _told(0 * FACTORS, 1e9)
        more = store.TrialOutcome(told.kind, NOW, told.days + (
            (300, 5.0, 5.0),))
        self.assertEqual(8.0, limit_feedback.multiple(more, NOW))


class CorrectionsTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.now = NOW
        self.problems = {}
        self.corrections = self._corrections(8.0)

    def _corrections(self, most):
        def report(topic, problem):
            self.problems[topic] = problem

        return limit_feedback.Corrections(most, lambda: self.now, report)

    def test_a_policy_has_the_same_correction_each_time(self):
        policy = _policy()
        kind = limit_feedback.kind_of(policy)
        calm = {kind: _told(0 * FACTORS, 90.0)}
        wild = {kind: _told(.05 * FACTORS, 90.0)}
        found = self.corrections.of(policy, calm)
        less = self.corrections.of(policy, wild)
        self.assertGreater(found.overload_probability, .05)
        self.assertLess(less.overload_probability, .006)
        self.assertEqual([.01, .01], [one.asked_probability
                                      for one in (found, less)])
        self.assertIs(policy.profile, found.profile)
        self.assertIs(found, self.corrections.of(policy, dict(calm)))
        self.assertIs(less, self.corrections.of(policy, wild))
        for nothing in ({}, {'0.01: other': calm[kind]}):
            self.assertIs(policy, self.corrections.of(policy, nothing))
        self.now += 4 * 86400
        self.assertIs(policy, self.corrections.of(policy, calm))

    def test_small_changes_are_none(self):
        policy = _policy()
        kind = limit_feedback.kind_of(policy)
        self.assertIs(*(self.corrections.of(policy, {kind: _told(
            .2 * .01 * FACTORS, days)}) for days in (200.0, 201.0)))

    def test_numbers_that_cannot_be_are_told_and_correct_nothing(self):
        policy = _policy()
        kind = limit_feedback.kind_of(policy)
        for wrong in ((-1.0, 2.0), (3.0, 2.0), (math.nan, 2.0),
                      (1.0, math.nan), (1.0, math.inf), (-1.0, -1.0)):
            bad = {kind: store.TrialOutcome(kind, NOW, ((100, *wrong),))}
            self.assertIs(policy, self.corrections.of(policy, bad))
            [problem] = self.problems.values()
            self.assertIn(f'hosts {kind}: outcomes of trials: ((100',
                          problem)
        self.assertIs(policy, self.corrections.of(
            policy, {kind: _told(.01 * FACTORS, 9.0)}))
        self.assertEqual([None], list(self.problems.values()))

    def test_a_name_without_a_limit_is_told_and_corrects_nothing(self):
        bad = _told(0 * FACTORS, 1e9, kind='racks: 1 1 0 <= 20')
        self.assertEqual({bad.kind: 1.0},
                         self.corrections.multiples({bad.kind: bad}))
        [problem] = self.problems.values()
        self.assertIn("limit: 'racks'; expected a number", problem)

    def test_the_largest_multiple_may_be_none(self):
        calm = {'0.01: 1 1 0 <= 20': _told(0 * FACTORS, 1e9)}
        self.assertEqual(8.0, *self.corrections.multiples(calm).values())
        for most, wanted in ((0.0, .01), (1.0, .01), (2.0, .02)):
            self.assertAlmostEqual(wanted, self._corrections(most).of(
                _policy(), calm).overload_probability)
        self.assertEqual([1.0], [*self._corrections(0.0).multiples(
            calm).values()])

    def test_no_limit_is_above_one(self):
        policy = _policy(limit=.5)
        kind = limit_feedback.kind_of(policy)
        self.assertEqual(1.0, self.corrections.of(policy, {
            kind: _told(0 * FACTORS, 1e9)}).overload_probability)

    def test_other_policies_stay(self):
        policy = admission.HostPolicy(None)
        self.assertIs(policy, self.corrections.of(
            policy, {'0.01: 1 1 0 <= 20': _told(0 * FACTORS, 1e9)}))
