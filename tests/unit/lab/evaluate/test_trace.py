# SPDX-License-Identifier: Apache-2.0

import dataclasses
import unittest

import numpy as np

from tests.unit.lab.evaluate import traces
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.evaluate import trace
from vswitch_aware_scheduler.traffic import series

NAN = float('nan')


class TraceTestCase(unittest.TestCase):

    def test_rates_are_both_directions_and_gaps_are_nan(self):
        binned = traces.make_trace([[4, NAN, 8], [NAN, 1, 2]])
        np.testing.assert_array_equal([[4, NAN, 8], [NAN, 1, 2]], binned.rates)
        np.testing.assert_array_equal(
            traces.START + np.array([0, 300, 600]), binned.times)
        self.assertEqual(('0', '1'), binned.uuids)

    def test_samples_become_those_of_bins(self):
        # Beside two instances with samples of the bins.
        for why, period, times, egress, expected in (
                ('the bin in which it starts', 300.0, [200, 500], [1, 3],
                 [1, 3, NAN, NAN, NAN]),
                ('the mean of a bin', 150.0, [0, 150, 300], [1, 4, 7],
                 [2.5, 7, NAN, NAN, NAN]),
                ('all bins that it lasts for', 600.0, [0, 900], [1, 3],
                 [1, 1, NAN, 3, 3])):
            with self.subTest(why):
                binned = trace.Trace.from_series([
                    *traces.make_series(np.ones((2, 5)), start=0.0),
                    series.RateSeries('c', period, times,
                                      [[rate, 0, 0] for rate in egress])])
                np.testing.assert_array_equal(
                    [[1] * 5, [1] * 5, expected], binned.rates)

    def test_a_trace_without_samples_is_refused(self):
        with self.assertRaisesRegex(exceptions.InvalidInput, 'no sample'):
            trace.Trace.from_series([])

    def test_the_past_is_matched_by_uuid(self):
        judged = traces.make_trace([[1, 2], [3, 4], [5, 6]])
        past = trace.Trace.from_series([
            dataclasses.replace(series, instance_uuid=uuid)
            for series, uuid in zip(
                traces.make_series([[10, 11, 12], [20, 21, 22]],
                                   traces.START - 86400), ['2', '0'])])
        joined, begin = judged.after(past)
        self.assertEqual(3, begin)
        np.testing.assert_array_equal(
            [[20, 21, 22, 1, 2], [NAN, NAN, NAN, 3, 4],
             [10, 11, 12, 5, 6]], joined.rates)
        self.assertEqual(traces.START - 86400, joined.times[0])
        self.assertEqual(traces.START, joined.times[3])

    def test_a_past_that_is_later_moves_by_whole_weeks_to_before(self):
        judged = traces.make_trace(np.ones((1, 4)))
        past = traces.make_trace(np.ones((1, 5)), traces.START + 30 * 86400)
        joined, begin = judged.after(past)
        moved = past.times[0] - joined.times[0]
        self.assertEqual(0, moved % (7 * 86400))
        self.assertLessEqual(joined.times[begin - 1] + 300, traces.START)
        self.assertLess(traces.START - joined.times[begin - 1],
                        7 * 86400 + 600)

    def test_a_past_in_other_bins_is_refused(self):
        hourly = trace.Trace.from_series(
            traces.make_series([[1, 2]], period=60.0))
        with self.assertRaisesRegex(exceptions.InvalidInput, '60 s'):
            traces.make_trace([[1, 2]]).after(hourly)


class HistoryTestCase(unittest.TestCase):

    def _counts(self, days, half_life_days):
        binned = traces.make_trace(np.ones((1, 288 * days)))
        history = trace.History(binned, 0, [0], None, half_life_days)
        for day in range(1, days + 1):
            counts = history.until(288 * day).counts[0]
        return counts.total_samples

    def test_a_sample_of_a_half_life_ago_counts_half(self):
        self.assertEqual(288 * 4, self._counts(4, 0))
        self.assertAlmostEqual(288 * (1 + .5 + .25 + .125),
                               self._counts(4, 1.0))

    def test_an_instance_that_left_is_measured_no_more(self):
        history = trace.History(traces.make_trace(np.ones((2, 10))), 2,
                                [4, 2], [8, 10])
        known = history.until(10)
        np.testing.assert_array_equal(
            [0, 1, 4, 5, 6, 7], np.flatnonzero(known.present[0]))
        self.assertEqual([6, 10], [counts.total_samples
                                   for counts in known.counts])

    def test_what_is_known_are_the_past_and_the_bins_since_the_arrival(self):
        for rows, begin, arrivals, until, known in (
                # Only samples before the moment.
                ([[1, 2, 9]], 0, [0], 2, [[1, 2]]),
                ([[1, 2, 9]], 0, [0], 3, [[1, 2, 9]]),
                ([[1.0]], 0, [0], 0, [[]]),
                ([[9, 1, 2], [9, 9, 3]], 0, [1, 5], 3,
                 [[NAN, 1, 2], [NAN, NAN, NAN]]),
                ([[1, 2, 3, 4]], 2, [3], 4, [[1, 2, NAN, 4]])):
            past = trace.History(traces.make_trace(rows), begin,
                                 arrivals).until(until)
            np.testing.assert_array_equal(known, past.rates)
            for row, rates in enumerate(known):
                samples = [rate for rate in rates if rate == rate] or [0]
                for name, value in (
                        ('peak', max(samples)), ('mean', np.mean(samples)),
                        ('variance', np.var(samples))):
                    self.assertEqual(value, getattr(past, name)[row], name)
                number = int(np.isfinite(rates).sum())
                self.assertEqual(number, past.samples[row])
                self.assertEqual(number == 0, past.counts[row] is None)

    def test_counting_day_by_day_is_counting_at_once(self):
        generator = np.random.default_rng(5)
        rates = generator.lognormal(3, 2, (4, 200))
        rates[generator.random(rates.shape) < 0.1] = NAN
        binned = traces.make_trace(rates)
        history = trace.History(binned, 0, np.zeros(4, dtype=int))
        for end in (0, 50, 51, 120, 200):
            piecewise = history.until(end).counts
        at_once = trace.History(
            binned, 0, np.zeros(4, dtype=int)).until(200).counts
        for daily, whole_run in zip(piecewise, at_once):
            np.testing.assert_array_equal(daily.bins, whole_run.bins)
            np.testing.assert_array_equal(daily.samples, whole_run.samples)
            np.testing.assert_array_equal(daily.moves, whole_run.moves)
            np.testing.assert_allclose(daily.totals, whole_run.totals,
                                       rtol=1e-12)

    def test_time_does_not_run_backwards(self):
        history = trace.History(traces.make_trace([[1, 2, 3]]), 0, [0])
        self.assertEqual(3, history.until(3).counts[0].total_samples)
        with self.assertRaisesRegex(exceptions.InvalidInput, 'increasing'):
            self.assertIsNone(history.until(2).counts)

    def test_p99_is_the_sample_that_99_percent_do_not_exceed(self):
        rows = np.full((3, 200), NAN)
        rows[0] = np.arange(200)
        rows[1, 7:17] = np.arange(10)[::-1]
        past = traces.known_of(rows)
        # The 198th of 200, the last of 10, none of none.
        np.testing.assert_array_equal([197, 9, 0], past.p99)
