# SPDX-License-Identifier: Apache-2.0

import unittest

import numpy as np

from tests.unit.lab.evaluate import scripts
from vswitch_aware_scheduler.lab.evaluate import measures
from vswitch_aware_scheduler.lab.evaluate import packing


def avoidable(rates, rows, from_bin, capacity):
    """Count bins with avoidable overload by definition; (count, bins)."""
    opened = min(from_bin[row] for row in rows)
    bins = range(opened, len(rates[0]))
    count = 0
    for t in bins:
        present = [rates[row][t] for row in rows if from_bin[row] <= t]
        count += sum(present) > capacity and max(present) <= capacity
    return count, len(bins)


class ResourcesTestCase(unittest.TestCase):

    def test_first_fit_by_two_resources_is_that_of_the_definition(self):
        generator = np.random.default_rng(4)
        needs = generator.integers(1, 5, (40, 2)) * [.1, 1024]
        packer = scripts.First()
        packer.limit_resources(needs, (.7, 8192.0))
        for row in range(40):
            packer.place(row)
        # Tenths, in whole numbers.
        self.assertEqual(scripts.first_fit(40, lambda rows: (
            np.rint(needs[rows] * [10, 1]).sum(axis=0) <= (7, 8192)).all()),
            packer.residents)

    def test_the_clairvoyant_looks_on_behind_a_host_without_room(self):
        # Seventeen hosts, without a core left but for the last.
        packer = packing.Clairvoyant(np.zeros((18, 2)), np.zeros(18, int),
                                     np.full(18, 2), 1.0, 0.5)
        needs = np.full((18, 1), 2.0)
        needs[16:] = 1.0
        packer.limit_resources(needs, [2.0])
        for row in range(18):
            packer.place(row)
        self.assertEqual([[row] for row in range(16)] + [[16, 17]],
                         packer.residents)


class ClairvoyantTestCase(unittest.TestCase):

    def _packed(self, rates, from_bin, capacity, limit, until=None):
        until = np.full(len(rates), rates.shape[1]) if until is None else until
        packer = packing.Clairvoyant(rates, from_bin, until, capacity, limit)
        for row in range(len(rates)):
            packer.end_stays(from_bin[row])
            packer.place(row, int(from_bin[row]), int(until[row]))
        return packer

    def test_clairvoyant_packing_is_first_fit_on_future_rates(self):
        generator = np.random.default_rng(3)
        for trial in range(40):
            rates = generator.integers(0, 12, (9, 10)).astype(float)
            from_bin = np.sort(generator.integers(0, 8, 9))
            limit = (0.0, 0.1, 0.3)[trial % 3]

            def fits(rows, rates=rates, from_bin=from_bin, limit=limit):
                count, bins = avoidable(rates, rows, from_bin, 10.0)
                return count <= limit * bins + 1e-12

            packer = self._packed(rates, from_bin, 10.0, limit)
            self.assertEqual(scripts.first_fit(9, fits), packer.residents)

    def test_clairvoyant_packing_predicts_what_happens(self):
        generator = np.random.default_rng(8)
        rates = generator.exponential(3.0, (60, 300))
        from_bin = np.sort(generator.integers(0, 250, 60))
        host_bins = []
        for until in (None, from_bin + generator.integers(1, 80, 60)):
            packer = self._packed(rates, from_bin, 10.0, 0.05, until)
            judged = measures.judge(packer.stays, rates, 10.0, 300.0)
            np.testing.assert_allclose(judged.avoidable_shares,
                                       packer.predicted())
            self.assertGreater(len(packer.residents), 4)
            self.assertGreater(judged.avoidable.max(), 0)
            if until is None:
                # With all there to the end, a later instance only adds.
                self.assertLessEqual(judged.avoidable_shares.max(),
                                     0.05 + 1e-12)
            host_bins.append(judged.bins.sum())
        self.assertLess(host_bins[1], host_bins[0])


class FirstFitTestCase(unittest.TestCase):

    def test_the_first_host_that_admits_gets_it_else_a_new_one(self):
        class Even(scripts.First):
            def admitted(self, instance):
                return np.array([(sum(rows) + instance) % 2 == 0
                                 for rows in self.residents])

        packer = Even()
        self.assertEqual([0, 0, 1, 1, 0],
                         [packer.place(row) for row in (2, 4, 3, 5, 6)])
        self.assertEqual([[2, 4, 6], [3, 5]], packer.residents)

    def test_one_that_leaves_makes_room_and_its_host_is_used_again(self):
        packer = scripts.First()
        packer.limit_resources(np.full((4, 1), 2.0), [3.0])
        hosts = []
        for row, first, end in ((0, 0, 5), (1, 0, packing.STAYS), (2, 5, 7),
                                (3, 6, packing.STAYS)):
            packer.end_stays(first)
            hosts.append(packer.place(row, first, end))
        self.assertEqual([0, 1, 0, 2], hosts)
        self.assertEqual([2], packer.end_stays(packing.STAYS - 1))
        self.assertEqual([[], [1], [3]], packer.residents)
        self.assertEqual([[0, 0, 0, 5], [2, 0, 5, 7]],
                         [stay for stay in packer.stays if stay[1] == 0])
        packer.move(1, 0, 9)
        self.assertEqual([0, -1], [packer.host_of(1), packer.host_of(0)])
        self.assertEqual([[1, 1, 0, 9], [1, 0, 9, packing.STAYS]],
                         [stay for stay in packer.stays if stay[0] == 1])
