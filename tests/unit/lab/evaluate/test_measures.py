# SPDX-License-Identifier: Apache-2.0

import itertools
import unittest

import numpy as np

from vswitch_aware_scheduler.lab.evaluate import measures

HOUR = 3600.0
LONG = np.iinfo(np.int64).max


def by_definition(stays, rates, capacity, begin=0):
    """Return the counts of the definitions, bin by bin.

    :returns: ({host: [bins, overload, avoidable]}, {vm: [bins, overload]})
    """
    hosts, vms = {}, {}
    for t in range(begin, len(rates[0])):
        at = {}
        for row, host, first, last in stays:
            if first <= t < last:
                at.setdefault(host, []).append(row)
        for host, rows in at.items():
            above = sum(rates[row][t] for row in rows) > capacity
            alone = max(rates[row][t] for row in rows) > capacity
            counts = hosts.setdefault(host, [0, 0, 0])
            for place, number in enumerate((1, above, above and not alone)):
                counts[place] += number
            for row in rows:
                counts = vms.setdefault(row, [0, 0])
                counts[0] += 1
                counts[1] += above and rates[row][t] <= capacity
    return hosts, vms


def random_stays(generator, count, bins, hosts=3):
    """Return stays of instances that come, move and leave at random."""
    stays = []
    for row in range(count):
        times = np.unique(generator.integers(0, bins + 1, 4)).tolist()
        for first, last in zip(times, times[1:]):
            stays.append([row, int(generator.integers(hosts)), first, last])
    return stays


class JudgeTestCase(unittest.TestCase):

    def test_overload_by_hand(self):
        rates = np.array([[6.0, 6, 12, 0], [4, 5, 1, 0], [20, 1, 1, 1]])
        judged = measures.judge(
            [[0, 0, 0, LONG], [1, 0, 0, LONG], [2, 1, 0, LONG]], rates, 10.0,
            HOUR)
        # Host 0 carries 10, 11, 13, 0; in the third bin instance 0 alone is
        # above. Host 1 is above in the first bin, alone.
        self.assertEqual([2, 1], judged.overload.tolist())
        self.assertEqual([1, 0], judged.avoidable.tolist())
        # Others overload 0 and 1 in the second bin, and 1 in the third.
        self.assertEqual([1, 2, 0], judged.vm_overload.tolist())
        self.assertAlmostEqual((1 + 3 + 10) / (34 + 23), judged.loss)
        figures = judged.figures(.25)
        self.assertEqual({
            'hosts': 2, 'hosts_mean': 2.0, 'host_hours': 8.0,
            'overload_mean': 3 / 8, 'overload_avoidable_mean': 1 / 8,
            'overload_worst': 1 / 2, 'hosts_above': 1 / 2,
            'overload_over_limit': 1 / 2,
            'overload_over_limit_weighted': 1 / 2,
            'overload_all_over_limit_weighted': 3 / 2,
            'overload_over_limit_worst': 1.0, 'week_hosts': 0,
            'week_over_limit_worst': None, 'week_hosts_above': None,
            'vm_over_limit': 1.0, 'vm_over_limit_p99': 2.0,
            'vms_above': 1 / 3, 'loss': judged.loss,
            'moves_per_instance_week': 0.0, 'migration_share': 0.0}, figures)

    def test_counts_are_those_of_the_definitions(self):
        generator = np.random.default_rng(2)
        for trial in range(60):
            bins = int(generator.integers(1, 12))
            rates = generator.integers(0, 8, (5, bins)).astype(float)
            stays = random_stays(generator, 5, bins)
            begin = int(generator.integers(bins))
            hosts, vms = by_definition(stays, rates, 7.0, begin)
            judged = measures.judge(stays, rates, 7.0, HOUR, begin)
            self.assertEqual(hosts, {
                host: list(counts) for host, *counts in zip(
                    judged.hosts.tolist(), judged.bins, judged.overload,
                    judged.avoidable)})
            self.assertEqual([vms[row] for row in sorted(vms)],
                             np.column_stack([judged.vm_bins,
                                              judged.vm_overload]).tolist())

    def test_a_sum_equal_to_the_capacity_is_no_overload(self):
        rates = np.array([[0.1], [0.2], [0.3]])
        judged = measures.judge([[row, 0, 0, 1] for row in range(3)], rates,
                                0.6, HOUR)
        self.assertEqual(0, judged.overload[0])

    def test_host_hours_and_hosts_of_a_week_are_apart(self):
        # Hours: host 0 is overloaded for 2 of 200, host 1 for 1 of 10.
        rates = np.full((3, 200), 4.0)
        rates[0, [3, 180]] = 7.0
        rates[2, 5] = 8.0
        judged = measures.judge(
            [[0, 0, 0, 200], [1, 0, 0, 200], [2, 1, 0, 10], [3, 1, 0, 10]],
            np.vstack([rates, np.full(200, 3.0)]), 10.0, HOUR)
        figures = judged.figures(.01)
        for name, expected in (
                ('overload_over_limit', 100 * (2 / 200 + 1 / 10) / 2),
                ('overload_over_limit_weighted', 100 * 3 / 210),
                ('overload_over_limit_worst', 10.0), ('week_hosts', 1),
                ('week_over_limit_worst', 1.0), ('week_hosts_above', 0.0),
                ('hosts_above', .5)):
            self.assertAlmostEqual(expected, figures[name], msg=name)
        self.assertEqual(1.0, judged.figures(.009)['week_hosts_above'])

    def test_the_last_bins_can_be_apart(self):
        rates = np.full((2, 20), 4.0)
        stays = [[0, 0, 0, 20], [1, 0, 0, 12], [1, 1, 12, 20]]
        for begin, moves in ((10, 1), (13, 0)):
            apart = measures.judge(stays, rates, 10.0, HOUR, begin)
            self.assertEqual((20 - begin, moves), (apart.length, apart.moves))

    def test_migrations_load_hosts_and_count_as_traffic(self):
        load = np.zeros((2, 4))
        load[0, 1] = 3.0
        judged = measures.judge(
            [[0, 0, 0, 2], [0, 1, 2, 4]], np.full((1, 4), 8.0), 10.0, HOUR,
            migrations=measures.Migrations([1, 2], 18000.0, load))
        self.assertEqual([1, 0], judged.avoidable.tolist())
        # Two times 5 kbit/s for an hour, beside 35.
        self.assertAlmostEqual(10 / 45, judged.migration_share)
        self.assertAlmostEqual(1 / 35, judged.loss)
        self.assertAlmostEqual(7 * 24 / 4, judged.figures(
            .1)['moves_per_instance_week'])

    def test_nothing_to_judge_loses_nothing(self):
        figures = measures.judge([], np.zeros((1, 2)), 1.0, HOUR).figures(.1)
        self.assertEqual((0, 0.0, 0.0, None), (
            figures['hosts'], figures['loss'],
            figures['overload_over_limit_weighted'],
            figures['vm_over_limit_p99']))


class FluidBoundTestCase(unittest.TestCase):

    def _fewest(self, rates, presence, capacity, limit, allowed=None):
        """Return the fewest host-bins of all placements, bin by bin.

        :param allowed: callable(avoidable, affected): whether a bin may be
            so; None: overload within the limit of all host-bins
        """
        count, bins = rates.shape
        choices = []
        for t in range(bins):
            rows = [row for row in range(count) if presence[row][t]]
            outcomes = set()
            for where in itertools.product(range(len(rows)),
                                           repeat=len(rows)):
                stays = [[row, host, 0, 1] for row, host in zip(rows, where)]
                hosts, vms = by_definition(stays, rates[:, t:t + 1], capacity)
                outcomes.add((len(hosts),
                              sum(counts[2] for counts in hosts.values()),
                              sum(counts[1] for counts in vms.values())))
            choices.append(outcomes)
        if allowed is not None:
            return sum(min(hosts for hosts, *overload in outcomes
                           if allowed(*overload)) for outcomes in choices)
        sums = {(0, 0)}
        for outcomes in choices:
            sums = {(hosts + more, overload + new) for hosts, overload in sums
                    for more, new, _ in outcomes}
        return min(hosts for hosts, overload in sums
                   if overload <= limit * hosts * (1 + 1e-9))

    def test_no_placement_has_fewer_host_hours(self):
        generator = np.random.default_rng(6)
        reached = 0
        for trial in range(150):
            count, bins = generator.integers(1, (5, 5))
            rates = generator.integers(0, 9, (count, bins)).astype(float)
            limit = (.05, .2, .34, .5)[trial % 4]
            stays = random_stays(generator, count, int(bins))
            presence = np.zeros((count, bins), dtype=bool)
            for row, _, first, last in stays:
                presence[row, first:last] = True
            bound = measures.fluid_bound(stays, rates, 7.0, HOUR, limit)
            fewest = self._fewest(rates, presence, 7.0, limit)
            self.assertLessEqual(bound.within_limit, fewest)
            reached += bound.within_limit == fewest
            self.assertLessEqual(bound.without_overload, self._fewest(
                rates, presence, 7.0, limit,
                lambda avoidable, affected: not affected))
        self.assertGreater(reached, 75)

    def test_bounds_that_follow_from_counting(self):
        for why, stays, rates, capacity, limit, options, expected in (
                # Sixty instances of 1 kbit/s fill six hosts. A tenth of the
                # host-bins may be overloaded: k of 30 bins with one host save
                # 5 k host-bins, and k <= .1 (180 - 5 k) allows 12, of 120.
                ('small instances', [[row, 0, 0, 30] for row in range(60)],
                 np.ones((60, 30)), 10.0, .1, {}, (120.0, 180.0)),
                # A limit of .01 permits two bins of overload in 200 host-bins:
                # 202 without overload, else 102 and 100.
                ('a host more', [[row, 0, 0, 2] for row in range(101)],
                 np.ones((101, 2)), 1.0, .01, {}, (102.0, 202.0)),
                ('cores and memory', [[row, 0, 0, 10] for row in range(7)],
                 np.zeros((7, 10)), 1.0, .01,
                 {'needs': np.full((7, 2), [1.0, 4.0]),
                  'room': np.array([3.0, 8.0])}, (40.0, 40.0)),
                # Two instances in two of these bins, one in the others.
                ('the last bins', [[0, 0, 0, 12], [1, 4, 5, LONG]],
                 np.full((2, 20), 6.0), 10.0, 1e-6, {'begin': 10},
                 (12.0, 12.0))):
            with self.subTest(why):
                bound = measures.fluid_bound(stays, rates, capacity, HOUR,
                                             limit, **options)
                self.assertEqual(expected, (bound.within_limit,
                                            bound.without_overload))
