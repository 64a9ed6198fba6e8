# SPDX-License-Identifier: Apache-2.0

import csv
import dataclasses
import os
import tempfile
import unittest

import numpy as np

from tests.unit.evaluate import traces
from vswitch_aware_scheduler.evaluate import trace
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import series

NAN = float('nan')


class TraceTestCase(unittest.TestCase):

    def test_rates_are_both_directions_and_gaps_are_nan(self):
        made = traces.make_trace([[4, NAN, 8], [NAN, 1, 2]])
        np.testing.assert_array_equal([[4, NAN, 8], [NAN, 1, 2]], made.rates)
        np.testing.assert_array_equal(
            traces.START + np.array([0, 300, 600]), made.times)
        self.assertEqual(('0', '1'), made.uuids)

    def test_a_sample_belongs_to_the_bin_that_it_starts_in(self):
        one = series.RateSeries('a', 300.0, [0, 300, 600], np.ones((3, 3)))
        late = series.RateSeries('b', 300.0, [200.0, 500.0],
                                 [[1, 0, 0], [3, 0, 0]])
        made = trace.Trace.from_series([one, late])
        np.testing.assert_array_equal([[2, 2, 2], [1, 3, NAN]], made.rates)

    def test_samples_of_one_bin_are_averaged(self):
        slow = [series.RateSeries(name, 300.0, [0, 300], np.ones((2, 3)))
                for name in 'ab']
        fast = series.RateSeries('c', 150.0, [0, 150, 300],
                                 [[1, 0, 0], [4, 0, 0], [7, 0, 0]])
        made = trace.Trace.from_series([*slow, fast])
        np.testing.assert_array_equal([2.5, 7], made.rates[2])

    def test_a_long_sample_fills_the_bins_it_lasts_for(self):
        short = [series.RateSeries(name, 300.0, 300.0 * np.arange(5),
                                   np.ones((5, 3))) for name in 'ab']
        long = series.RateSeries('c', 600.0, [0.0, 900.0],
                                 [[1, 0, 0], [3, 0, 0]])
        made = trace.Trace.from_series([*short, long])
        np.testing.assert_array_equal([1, 1, NAN, 3, 3], made.rates[2])

    def test_a_trace_without_samples_is_refused(self):
        with self.assertRaisesRegex(exceptions.InvalidInput, 'no sample'):
            trace.Trace.from_series([])

    def test_the_past_is_matched_by_uuid(self):
        now = traces.make_trace([[1, 2], [3, 4], [5, 6]])
        past = trace.Trace.from_series([
            dataclasses.replace(one, instance_uuid=uuid) for one, uuid in zip(
                traces.make_series([[10, 11, 12], [20, 21, 22]],
                                   traces.START - 86400),
                ['2', '0'])])
        whole, begin = now.after(past)
        self.assertEqual(3, begin)
        np.testing.assert_array_equal(
            [[20, 21, 22, 1, 2], [NAN, NAN, NAN, 3, 4],
             [10, 11, 12, 5, 6]], whole.rates)
        self.assertEqual(traces.START - 86400, whole.times[0])
        self.assertEqual(traces.START, whole.times[3])

    def test_a_past_that_is_later_moves_by_whole_weeks_to_before(self):
        now = traces.make_trace(np.ones((1, 4)))
        past = traces.make_trace(np.ones((1, 5)), traces.START + 30 * 86400)
        whole, begin = now.after(past)
        moved = past.times[0] - whole.times[0]
        self.assertEqual(0, moved % (7 * 86400))
        self.assertLessEqual(whole.times[begin - 1] + 300, traces.START)
        self.assertLess(traces.START - whole.times[begin - 1],
                        7 * 86400 + 600)

    def test_a_past_in_other_bins_is_refused(self):
        other = trace.Trace.from_series(
            traces.make_series([[1, 2]], period=60.0))
        with self.assertRaisesRegex(exceptions.InvalidInput, '60 s'):
            traces.make_trace([[1, 2]]).after(other)

    def test_a_file_is_read_by_the_telemetry_driver(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, 'trace.csv')
            with open(path, 'w', newline='') as stream:
                rows = csv.writer(stream)
                rows.writerow(['instance', 'time', 'egress_kbps',
                               'ingress_kbps'])
                rows.writerows([['a', 0, 1, 2], ['a', 300, 3, 4]])
            made = trace.load(path)
        np.testing.assert_array_equal([[3, 7]], made.rates)


class HistoryTestCase(unittest.TestCase):

    def test_only_samples_before_the_moment_are_known(self):
        history = trace.History(traces.make_trace([[1, 2, 9]]), 0, [0])
        known = history.until(2)
        self.assertEqual((2, 2.0, 1.5),
                         (known.samples[0], known.peak[0], known.mean[0]))
        self.assertEqual(9.0, history.until(3).peak[0])

    def test_an_instance_is_known_from_its_own_bin_on(self):
        history = trace.History(traces.make_trace([[9, 1, 2], [9, 9, 3]]),
                                0, [1, 5])
        known = history.until(3)
        np.testing.assert_array_equal([2, 0], known.samples)
        np.testing.assert_array_equal([2, 0], known.peak)
        np.testing.assert_array_equal([0.25, 0], known.variance)
        self.assertIsNone(known.counts[1])

    def test_bins_of_the_past_are_known_of_all(self):
        history = trace.History(traces.make_trace([[1, 2, 3, 4]]), 2, [3])
        np.testing.assert_array_equal([[1, 2, NAN, 4]],
                                      history.until(4).rates)

    def test_counting_day_by_day_is_counting_at_once(self):
        generator = np.random.default_rng(5)
        rates = generator.lognormal(3, 2, (4, 200))
        rates[generator.random(rates.shape) < 0.1] = NAN
        made = traces.make_trace(rates)
        history = trace.History(made, 0, np.zeros(4, dtype=int))
        for end in (0, 50, 51, 120, 200):
            piecewise = history.until(end).counts
        at_once = trace.History(
            made, 0, np.zeros(4, dtype=int)).until(200).counts
        for one, other in zip(piecewise, at_once):
            np.testing.assert_array_equal(one.bins, other.bins)
            np.testing.assert_array_equal(one.samples, other.samples)
            np.testing.assert_array_equal(one.moves, other.moves)
            np.testing.assert_allclose(one.totals, other.totals, rtol=1e-12)

    def test_time_does_not_run_backwards(self):
        history = trace.History(traces.make_trace([[1, 2, 3]]), 0, [0])
        self.assertEqual(3, history.until(3).counts[0].total_samples)
        with self.assertRaisesRegex(exceptions.InvalidInput, 'increasing'):
            self.assertIsNone(history.until(2).counts)

    def test_p99_is_the_sample_that_99_percent_do_not_exceed(self):
        rows = np.full((3, 200), NAN)
        rows[0] = np.arange(200)
        rows[1, 7:17] = np.arange(10)[::-1]
        known = traces.known_of(rows)
        # The 198th of 200, the last of 10, none of none.
        np.testing.assert_array_equal([197, 9, 0], known.p99)

    def test_nothing_is_known_before_the_first_bin(self):
        known = trace.History(traces.make_trace([[1.0]]), 0, [0]).until(0)
        for name in ('samples', 'peak', 'mean', 'variance', 'p99'):
            np.testing.assert_array_equal([0], getattr(known, name))
