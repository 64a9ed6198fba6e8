# SPDX-License-Identifier: Apache-2.0

import dataclasses
import itertools
import math
import statistics
import unittest

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.fleet import realised
from vswitch_aware_scheduler.traffic import series
from vswitch_aware_scheduler.vswitch import profile

START, PERIOD = 3000.0, 300.0


def host_of(overloaded, slots=100, predicted=.01, limit=.01):
    return realised.Realised(predicted, limit, slots, overloaded)


class WilsonTestCase(unittest.TestCase):

    def test_both_limits_are_as_far_from_the_share_as_the_score_test_says(
            self):
        # They solve (p - k / n)^2 = z^2 p (1 - p) / n.
        for successes, number, confidence in ((3, 10, .95), (1, 40, .9),
                                              (250, 300, .99)):
            z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
            low, high = realised.wilson(successes, number, confidence)
            share = successes / number
            self.assertLess(low, share)
            self.assertGreater(high, share)
            for limit in (low, high):
                self.assertAlmostEqual(
                    (limit - share) ** 2,
                    z * z * limit * (1 - limit) / number, 12)

    def test_the_interval_covers_the_true_share_as_often_as_it_says(self):
        # Over all outcomes of 30 hosts, weighed by the binomial law.
        for share in (.05, .2, .5):
            covered = sum(
                math.comb(30, k) * share ** k * (1 - share) ** (30 - k)
                for k in range(31)
                if realised.wilson(k, 30)[0] <= share
                <= realised.wilson(k, 30)[1])
            self.assertGreater(covered, .92)

    def test_none_and_all_have_an_end_at_0_and_at_1(self):
        self.assertEqual(0.0, realised.wilson(0, 10)[0])
        self.assertEqual(1.0, realised.wilson(10, 10)[1])


class OverloadTestCase(unittest.TestCase):

    policy = admission.HostPolicy(profile.SwitchProfile(
        name='own', saturation_kbps=100.0))

    def series_of(self, uuid, rates, first=0, period=PERIOD):
        rates = np.array(rates, dtype=float)
        times = START + period * (first + np.arange(rates.size))
        return series.RateSeries.from_samples(
            uuid, period, times, rates, np.zeros(rates.size))

    def overload(self, *many, instances=None, slots=4):
        by_uuid = {rates_of.instance_uuid: rates_of for rates_of in many}
        return realised.overload(self.policy, by_uuid,
                                 instances or list(by_uuid), START,
                                 START + slots * PERIOD)

    def test_slots_above_the_capacity_are_overload(self):
        self.assertEqual((4, 1), self.overload(
            self.series_of('a', [60, 60, 60, 100]),
            self.series_of('b', [40, 41, 0, 0])))

    def test_what_was_before_the_decision_does_not_count(self):
        self.assertEqual((2, 0), self.overload(
            self.series_of('a', [101, 101, 1, 1], first=-2)))

    def test_slots_in_which_too_few_were_measured_do_not_count(self):
        self.assertEqual((2, 1), self.overload(
            self.series_of('a', [101, 101, 1, 1]),
            self.series_of('b', [1, 1], first=1)))
        self.assertEqual((0, 0), self.overload(
            self.series_of('a', [101] * 4), instances=['a', 'b']))
        # One of ten may be missing.
        all_rates = [self.series_of(f'vm{i}', [11] * 4) for i in range(10)]
        self.assertEqual((4, 0), self.overload(
            *all_rates[1:], instances=[f'vm{i}' for i in range(10)]))

    def test_instances_with_other_periods_share_the_longest(self):
        # 90 and 130 on average 110; 90 and 30 on average 60.
        self.assertEqual((2, 1), self.overload(
            self.series_of('a', [90, 130, 90, 30], period=150.0),
            self.series_of('b', [0, 0]), slots=2))

    def test_each_limit_counts(self):
        self.policy = admission.HostPolicy(profile.SwitchProfile(
            name='own', line_rate_kbps=50.0, saturation_kbps=100.0))
        self.assertEqual((3, 1), self.overload(
            self.series_of('a', [50, 51, 0]), slots=3))

    def test_without_traffic_nothing_is_measured(self):
        self.assertEqual((0, 0), realised.overload(
            self.policy, {}, ['a'], START, START + 1e4))
        self.assertEqual((0, 0), self.overload(
            self.series_of('a', [1]), slots=0))


class GroupTestCase(unittest.TestCase):

    def test_a_host_is_overloaded_when_its_share_exceeds_its_limit(self):
        self.assertFalse(host_of(1).is_overloaded)
        self.assertTrue(host_of(2).is_overloaded)
        self.assertTrue(host_of(1, limit=0.0).is_overloaded)

    def test_so_many_slots_that_one_alone_is_within_the_limit(self):
        for limit, slots in ((.01, 100), (.001, 1000), (.5, 20), (0.0, 20)):
            self.assertEqual(slots, realised.slots_wanted(limit))
            self.assertTrue(host_of(0, slots, limit=limit).is_measured)
            self.assertFalse(host_of(0, slots - 1, limit=limit).is_measured)

    def test_unknown_time_makes_no_host_overloaded_and_none_fine(self):
        # (overloaded slots of 200, further unknown slots): what is certain.
        for overloaded, unknown, expected in (
                (2, 0, False), (2, 800, False), (12, 800, True),
                (8, 800, None), (8, 0, True)):
            host = dataclasses.replace(host_of(overloaded, 200),
                                       unknown=unknown)
            self.assertEqual(overloaded / (200 + unknown), host.share)
            self.assertEqual(
                expected, host.is_overloaded if host.is_measured else None)

    def test_a_group_is_the_shares_of_its_hosts(self):
        group = realised.group_of(
            [host_of(10, predicted=.2)] * 3 + [host_of(0, predicted=.1)] * 9
            + [host_of(99, slots=99)])
        self.assertEqual((12, 3), (group.hosts, group.overloaded_hosts))
        self.assertEqual(.25, group.share)
        self.assertEqual(realised.wilson(3, 12),
                         (group.share_low, group.share_high))
        self.assertAlmostEqual(.125, group.predicted)
        self.assertAlmostEqual(.025, group.realised)
        # Twelve draws of .1 with a share of 1/4.
        self.assertAlmostEqual(0.0, group.realised_low, 2)
        self.assertAlmostEqual(.05, group.realised_high, 2)

    def test_the_confidence_is_that_of_all_ways_to_draw_the_hosts(self):
        for one, other in itertools.product(
                ((0, 3), (2, 3), (3, 3), (1, 5)), repeat=2):
            hosts = [True] * (one[0] + other[0])
            hosts += [False] * (one[1] + other[1] - len(hosts))
            as_many = [sum(drawn) >= one[0] for drawn in
                       itertools.combinations(hosts, one[1])]
            self.assertAlmostEqual(
                1 - sum(as_many) / len(as_many),
                realised.confidence_of_more(*(realised.group_of(
                    [host_of(99)] * bad + [host_of(0)] * (total - bad))
                    for bad, total in (one, other))))

    def test_no_host_has_no_share(self):
        group = realised.group_of([])
        self.assertEqual((0, None, None), (group.hosts, group.share,
                                           group.realised))
