# SPDX-License-Identifier: Apache-2.0

import itertools
import unittest

import numpy as np

from vswitch_aware_scheduler.evaluate import packing


def avoidable(rates, rows, from_bin, capacity):
    """Count bins with avoidable overload by definition; (count, bins)."""
    opened = min(from_bin[row] for row in rows)
    bins = range(opened, len(rates[0]))
    count = 0
    for t in bins:
        present = [rates[row][t] for row in rows if from_bin[row] <= t]
        count += sum(present) > capacity and max(present) <= capacity
    return count, len(bins)


class JudgeTestCase(unittest.TestCase):

    def test_overload_by_hand(self):
        rates = np.array([[6.0, 6, 12, 0], [4, 5, 1, 0], [20, 1, 1, 1]])
        judged = packing.judge([[0, 1], [2]], rates, np.zeros(3, int), 10.0)
        # Host 0 carries 10, 11, 13, 0; in the third bin instance 0 alone is
        # above. Host 1 is above in the first bin, alone.
        np.testing.assert_allclose([0.5, 0.25], judged.overload)
        np.testing.assert_allclose([0.25, 0.0], judged.avoidable)
        self.assertAlmostEqual((1 + 3 + 10) / (34 + 23), judged.loss)

    def test_a_sum_equal_to_the_capacity_is_no_overload(self):
        rates = np.array([[0.1], [0.2], [0.3]])
        judged = packing.judge([[0, 1, 2]], rates, np.zeros(3, int), 0.6)
        self.assertEqual(0.0, judged.overload[0])

    def test_a_host_counts_from_its_first_instance_on(self):
        rates = np.array([[9.0, 9, 9, 9], [9, 9, 9, 9]])
        judged = packing.judge([[0, 1]], rates, np.array([1, 3]), 10.0)
        np.testing.assert_allclose([1 / 3], judged.overload)
        self.assertAlmostEqual(8 / 36, judged.loss)

    def test_nothing_to_judge_loses_nothing(self):
        judged = packing.judge([], np.zeros((1, 2)), np.zeros(1, int), 1.0)
        self.assertEqual((0, 0.0), (judged.overload.size, judged.loss))


class _All(packing.FirstFit):

    def learn(self, known):
        pass

    def admitted(self, instance):
        return np.ones(len(self.residents), dtype=bool)

    def predicted(self):
        return np.zeros(len(self.residents))


class ResourcesTestCase(unittest.TestCase):

    def test_first_fit_by_two_resources_is_that_of_the_definition(self):
        generator = np.random.default_rng(4)
        needs = generator.integers(1, 5, (40, 2)) * [.1, 1024]
        packer = _All()
        packer.limit_resources(needs, (.7, 8192.0))
        expected = []
        for row in range(40):
            packer.place(row)
            for rows in expected:
                # Tenths, in whole numbers.
                if (np.rint(needs[rows + [row]] * [10, 1]).sum(axis=0)
                        <= (7, 8192)).all():
                    rows.append(row)
                    break
            else:
                expected.append([row])
        self.assertEqual(expected, packer.residents)

    def test_the_clairvoyant_looks_on_behind_a_host_without_room(self):
        # Seventeen hosts, without a core left but for the last.
        packer = packing.Clairvoyant(np.zeros((18, 2)), np.zeros(18, int),
                                     1.0, 0.5)
        needs = np.full((18, 1), 2.0)
        needs[16:] = 1.0
        packer.limit_resources(needs, [2.0])
        for row in range(18):
            packer.place(row)
        self.assertEqual([[row] for row in range(16)] + [[16, 17]],
                         packer.residents)


class ClairvoyantTestCase(unittest.TestCase):

    def _packed(self, rates, from_bin, capacity, limit, order):
        packer = packing.Clairvoyant(rates, from_bin, capacity, limit)
        for row in order:
            packer.place(row)
        return packer

    def test_clairvoyant_packing_is_first_fit_on_future_rates(self):
        generator = np.random.default_rng(3)
        for trial in range(40):
            rates = generator.integers(0, 12, (9, 10)).astype(float)
            from_bin = np.sort(generator.integers(0, 8, 9))
            limit = (0.0, 0.1, 0.3)[trial % 3]
            expected = []
            for row in range(9):
                for host in expected:
                    count, bins = avoidable(rates, host + [row], from_bin,
                                            10.0)
                    if count <= limit * bins + 1e-12:
                        host.append(row)
                        break
                else:
                    expected.append([row])
            packer = self._packed(rates, from_bin, 10.0, limit, range(9))
            self.assertEqual(expected, packer.residents)

    def test_with_all_orders_it_finds_the_fewest_hosts(self):
        # First-fit is optimal for at least one order, so the best of all
        # orders is the optimum of all partitions.
        generator = np.random.default_rng(4)
        for _ in range(5):
            rates = generator.integers(1, 7, (5, 4)).astype(float)
            start = np.zeros(5, int)
            fewest = min(
                len(self._packed(rates, start, 10.0, 0.0, order).residents)
                for order in itertools.permutations(range(5)))
            optimum = min(
                len(set(where))
                for where in itertools.product(range(5), repeat=5)
                if all(avoidable(rates, [row for row in range(5)
                                         if where[row] == host],
                                 start, 10.0)[0] == 0
                       for host in set(where)))
            self.assertEqual(optimum, fewest)

    def test_clairvoyant_packing_predicts_what_happens(self):
        generator = np.random.default_rng(8)
        rates = generator.exponential(2.0, (40, 300))
        from_bin = np.sort(generator.integers(0, 200, 40))
        packer = self._packed(rates, from_bin, 10.0, 0.05, range(40))
        judged = packing.judge(packer.residents, rates, from_bin, 10.0)
        np.testing.assert_allclose(judged.avoidable, packer.predicted())
        self.assertGreater(len(packer.residents), 8)
        self.assertGreater(judged.avoidable.max(), 0.0)
        # With all there to the end, a later instance only adds.
        self.assertLessEqual(judged.avoidable.max(), 0.05 + 1e-12)


class FirstFitTestCase(unittest.TestCase):

    def test_the_first_host_that_admits_gets_it_else_a_new_one(self):
        class Even(packing.FirstFit):
            def learn(self, known):
                pass

            def admitted(self, instance):
                return np.array([(sum(rows) + instance) % 2 == 0
                                 for rows in self.residents])

            def predicted(self):
                return np.zeros(len(self.residents))

        packer = Even()
        self.assertEqual([0, 0, 1, 1, 0],
                         [packer.place(row) for row in (2, 4, 3, 5, 6)])
        self.assertEqual([[2, 4, 6], [3, 5]], packer.residents)
