# SPDX-License-Identifier: Apache-2.0

import unittest

import numpy as np

from tests.unit.lab.evaluate import scripts
from tests.unit.lab.evaluate import traces
from vswitch_aware_scheduler.lab.evaluate import measures

Script = scripts.Script
replay = scripts.replay
judged = scripts.judged

HOUR = 12


class ReplayTestCase(unittest.TestCase):

    def test_without_moves_it_is_what_a_packing_comes_to(self):
        generator = np.random.default_rng(1)
        rates = generator.exponential(2.0, (9, 100))
        arrivals = generator.integers(0, 90, 9)
        expected = measures.judge(
            [[row, 0, first, 100] for row, first in enumerate(arrivals)],
            rates, 10.0, 300.0)
        self.assertEqual(expected.figures(.01), judged(
            replay(rates, arrivals, Script())).figures(.01))

    def test_a_move_counts_from_the_next_bin_on(self):
        # 12 on one host is too much; apart it is not.
        strategy = Script({6: [(1, 1)]})
        replayed = replay(np.full((2, 12), 6.0), [0, 0], strategy)
        judgement = judged(replayed)
        self.assertEqual([6, 0], judgement.avoidable.tolist())
        self.assertEqual([12, 6], judgement.bins.tolist())
        figures = judgement.figures(.01)
        self.assertEqual(2, figures['hosts'])
        self.assertAlmostEqual(1.5, figures['hosts_mean'])
        self.assertAlmostEqual(100 * 6 / 18,
                               figures['overload_over_limit_weighted'])
        # One move in two times an hour of an instance.
        self.assertAlmostEqual(84.0, figures['moves_per_instance_week'])
        # 8 GiB beside 12 kbit/s for an hour.
        size = 8192 * 8 * 1.024 ** 2 * 1e3
        self.assertAlmostEqual(size / (size + 12 * 3600),
                               judgement.migration_share)

    def test_a_host_that_is_empty_does_not_count_and_is_used_again(self):
        strategy = Script({3: [(0, 1)], 6: [(0, 0)]})
        judgement = judged(replay(np.ones((1, 12)), [0], strategy))
        self.assertEqual([9, 3], judgement.bins.tolist())
        self.assertEqual(1, judgement.peak_hosts)

    def test_decisions_come_once_a_period(self):
        for seconds, ends in ((900.0, [3, 6, 9, 10]), (300.0, range(1, 11)),
                              (60.0, range(1, 11)), (1e6, [10])):
            strategy = Script()
            replay(np.ones((1, 10)), [0], strategy, period_seconds=seconds)
            self.assertEqual(list(ends), [end for end, _, _ in strategy.seen])

    def test_late_telemetry_is_not_known_yet(self):
        # Overload in the first hour.
        rates = np.where(np.arange(24) < HOUR, 6.0, 1.0) * np.ones((2, 1))
        for delay, bins in ((0.0, 12), (60.0, 11), (300.0, 11), (900.0, 9),
                            (3600.0, 0)):
            strategy = Script()
            replay(rates, [0, 0], strategy, delay_seconds=delay)
            at_noon = strategy.seen[3]
            self.assertEqual((bins, bins, bins), at_noon)

    def test_what_telemetry_lost_is_judged_but_not_seen(self):
        rates = np.full((2, 12), 6.0)
        reported = rates.copy()
        reported[0, :6] = 0.0
        strategy = Script()
        judgement = judged(replay(rates, [0, 0], strategy, reported))
        self.assertEqual([12], judgement.avoidable.tolist())
        self.assertEqual(6, strategy.seen[-1][2])

    def test_the_past_comes_before_the_judged_time(self):
        strategy = Script()
        replay(np.ones((1, 6)), [0], strategy, np.ones((1, 106)))
        self.assertEqual([(103, 3), (106, 6)],
                         [call[:2] for call in strategy.seen])

    def test_a_migration_that_fails_leaves_the_instance_where_it_is(self):
        strategy = Script({at: [(0, 1)] for at in range(3, 3000, 3)})
        replayed = replay(np.ones((1, 6)), [0], strategy, failing_share=1.0)
        self.assertEqual([False, False], strategy.done)
        self.assertEqual(0, replayed.loads.hosts[0])
        judgement = judged(replayed)
        self.assertEqual([6], judgement.bins.tolist())
        self.assertEqual(0, judgement.moves)
        self.assertGreater(judgement.migration_share, 0)

    def test_as_many_migrations_fail_as_the_share_says(self):
        strategy = Script({at: [(0, at % 2)] for at in range(1, 2001)})
        replay(np.ones((1, 2000)), [0], strategy, period_seconds=300.0,
               failing_share=.1)
        # Five standard deviations.
        self.assertAlmostEqual(.1, 1 - np.mean(strategy.done), delta=.034)

    def test_a_migration_on_the_same_switch_loads_both_hosts(self):
        # 1 MiB = 8388.608 kbit by 2 kbit/s: 4194 s, 13.98 bins from bin 3 on.
        strategy = Script({3: [(1, 1)]})
        replayed = replay(np.full((2, 36), 4.5), [0, 0], strategy,
                          memory_mib=1.0, switch_share=.2)
        judgement = judged(replayed)
        # 9 + 2 is too much on the source; the destination has 2 alone and is
        # in use when the instance runs there.
        self.assertEqual([14, 0], judgement.avoidable.tolist())
        self.assertEqual([0, 1], replayed.loads.hosts.tolist())
        self.assertAlmostEqual(
            8388.608 / (8388.608 + (2 * 4.5 * 36 + 14 * 2 + 14 * 2 * 0) * 300
                        ), judgement.migration_share, delta=.02)

    def test_both_hosts_of_a_running_migration_are_busy(self):
        states = []

        class Watch(Script):
            def decide(self, fleet):
                states.append((fleet.busy().tolist(), fleet.free().tolist(),
                               fleet.constraints().closed.tolist(),
                               fleet.empty_hosts()))
                super().decide(fleet)

        replay(np.full((2, 9), 1.0), [0, 0], Watch({3: [(1, 1)]}),
               memory_mib=100.0, switch_share=.1)
        self.assertEqual(([False], [True, True], [False] * 4, [1, 2, 3]),
                         states[0])
        self.assertEqual(([True, True], [True, False],
                          [True, True, False, False], [2, 3]), states[1])

    def test_an_instance_that_leaves_frees_its_host_after_the_period(self):
        strategy = Script({6: [(1, 1)]})
        replayed = replay(np.full((2, 12), 6.0), [0, 0], strategy,
                          departures=[7, 20])
        judgement = judged(replayed)
        # Both are on host 0 up to bin 6; one is there for one more bin.
        self.assertEqual([7, 6], judgement.bins.tolist())
        self.assertEqual([6, 0], judgement.avoidable.tolist())
        self.assertEqual([7, 12], judgement.vm_bins.tolist())
        self.assertEqual([-1, 1], replayed.loads.hosts.tolist())

    def test_one_that_leaves_during_its_migration_stays_where_it_was(self):
        replayed = replay(np.ones((2, 24)), [0, 0], Script({3: [(1, 1)]}),
                          departures=[20, 8], memory_mib=1e3, switch_share=.1)
        self.assertEqual([[0, 0, 0, 20], [1, 0, 0, 8]], replayed.packer.stays)
        self.assertEqual([False, False], replayed.busy().tolist())


class DeliveredTestCase(unittest.TestCase):

    def test_a_missing_sample_is_the_one_before_for_some_time(self):
        nan = float('nan')
        history = traces.trace.History(traces.make_trace(
            [[nan, 1, nan, nan, nan, 5], [2] * 6]), 0, [0, 3])
        self.assertEqual([[0, 1, 1, 1, 0, 5], [0, 0, 0, 2, 2, 2]],
                         history.delivered(600.0).tolist())
        self.assertEqual([[0, 1, 0, 0, 0, 5], [0, 0, 0, 2, 2, 2]],
                         history.delivered(0.0).tolist())

    def test_a_share_of_the_samples_is_left_out(self):
        full = traces.make_trace(np.ones((5, 4000)))
        thin = full.thinned(.1, np.random.default_rng(1))
        missing = np.isnan(thin.rates)
        # Five standard deviations.
        self.assertAlmostEqual(.1, missing.mean(), delta=.011)
        self.assertEqual([int((~row).sum()) for row in missing],
                         [len(series) for series in thin.series])
        np.testing.assert_array_equal(
            np.flatnonzero(~missing[2]), thin.columns[2])
        self.assertFalse(np.isnan(full.rates).any())
