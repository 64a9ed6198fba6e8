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
        self.assertEqual((0.0, 1.0), (realised.wilson(0, 10)[0],
                                      realised.wilson(10, 10)[1]))
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


class OverloadTestCase(unittest.TestCase):

    def series_of(self, uuid, rates, first=0, period=PERIOD):
        rates = np.array(rates, dtype=float)
        times = START + period * (first + np.arange(rates.size))
        return series.RateSeries.from_samples(
            uuid, period, times, rates, np.zeros(rates.size))

    def test_measured_slots_and_those_with_overload_are_counted(self):
        for why, rates, expected, options in (
                ('above the capacity of 100',
                 [([60, 60, 60, 100],), ([40, 41, 0, 0],)], (4, 1), {}),
                ('not before the decision', [([101, 101, 1, 1], -2)], (2, 0),
                 {}),
                ('one of two is not measured at first',
                 [([101, 101, 1, 1],), ([1, 1], 1)], (2, 1), {}),
                ('one of two is never measured', [([101] * 4,)], (0, 0),
                 {'instances': 2}),
                ('one of ten may be missing', [([11] * 4,)] * 9, (4, 0),
                 {'instances': 10}),
                # 90 and 130 on average 110; 90 and 30 on average 60.
                ('the longest period', [([90, 130, 90, 30], 0, 150.0),
                                        ([0, 0],)], (2, 1), {'slots': 2}),
                ('each limit', [([50, 51, 0],)], (3, 1),
                 {'slots': 3, 'line_rate_kbps': 50.0}),
                ('no traffic', [], (0, 0), {'instances': 1}),
                ('no slot', [([1],)], (0, 0), {'slots': 0})):
            with self.subTest(why):
                end = START + options.pop('slots', 4) * PERIOD
                number = options.pop('instances', len(rates))
                policy = admission.HostPolicy(profile.SwitchProfile(
                    name='own', saturation_kbps=100.0, **options))
                self.assertEqual(expected, realised.overload(
                    policy, {uuid: self.series_of(uuid, *of_one)
                             for uuid, of_one in enumerate(rates)},
                    list(range(number)), START, end))


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
        group = realised.group_of([])
        self.assertEqual((0, None, None), (group.hosts, group.share,
                                           group.realised))
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
