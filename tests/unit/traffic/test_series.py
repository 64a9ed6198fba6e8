# SPDX-License-Identifier: Apache-2.0

import dataclasses
import unittest

import hypothesis
from hypothesis import strategies as st
import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import series

NAN = float('nan')
INF = float('inf')
UUID = 'a1b2'


def _samples(times, egress, ingress=None, kpps=None, period=300.0):
    if ingress is None:
        ingress = np.zeros(len(times))
    return series.RateSeries.from_samples(UUID, period, times, egress,
                                          ingress, kpps)


class SeriesTestCase(unittest.TestCase):

    def assertInvalid(self, parts, call, *args, **kwargs):
        with self.assertRaises(exceptions.InvalidSeries) as caught:
            call(*args, **kwargs)
        for part in (UUID, *parts):
            self.assertIn(part, str(caught.exception))


class TestValidation(SeriesTestCase):

    def test_each_message_names_instance_value_and_what_was_wanted(self):
        rates = [[1, 2, 3]]
        for parts, args in (
                (('period_seconds', '0', '> 0'), (0, [0], rates)),
                (('period_seconds', '-1', '> 0'), (-1, [0], rates)),
                (('period_seconds', 'nan', '> 0'), (NAN, [0], rates)),
                (('period_seconds', 'inf', '> 0'), (INF, [0], rates)),
                (('shape of times', '(1, 1)', '(n,)'), (1, [[0]], rates)),
                (('shape of rates', '(1, 2)', '(1, 3)'),
                 (1, [0], [[1, 2]])),
                (('shape of rates', '(1, 3)', '(2, 3)'),
                 (1, [0, 1], rates)),
                (('times', 'strictly increasing'),
                 (1, [0, 0], rates * 2)),
                (('times', 'strictly increasing'),
                 (1, [1, 0], rates * 2)),
                (('times', 'finite'), (1, [NAN], rates)),
                (('times', 'finite'), (1, [INF], rates)),
                (('rates', '>= 0'), (1, [0], [[1, -1, 0]])),
                (('rates', 'finite'), (1, [0], [[1, NAN, 0]])),
                (('rates', 'finite'), (1, [0], [[1, INF, 0]]))):
            with self.subTest(args=args):
                self.assertInvalid(parts, series.RateSeries, UUID, *args)

    def test_arrays_cannot_be_changed_afterwards(self):
        times, rates = np.arange(3.0), np.ones((3, 3))
        frozen = series.RateSeries(UUID, 1.0, times, rates)
        times[0] = -5
        rates[0] = -5
        self.assertEqual(0.0, frozen.times[0])
        self.assertEqual(1.0, frozen.rates[0, 0])
        with self.assertRaises(ValueError):
            frozen.times[0] = 7
        with self.assertRaises(ValueError):
            frozen.rates[0, 0] = 7
        with self.assertRaises(dataclasses.FrozenInstanceError):
            frozen.times = times


class TestFromSamples(SeriesTestCase):

    def test_samples_in_any_order_come_out_ordered_with_their_rates(self):
        rates = _samples([600, 0, 300], [3, 1, 2], [30, 10, 20],
                         [300, 100, 200])
        self.assertEqual([0, 300, 600], rates.times.tolist())
        self.assertEqual([[1, 10, 100], [2, 20, 200], [3, 30, 300]],
                         rates.rates.tolist())
        self.assertEqual(series.Refused(), rates.refused)

    def test_a_missing_or_negative_rate_in_any_column_is_no_sample(self):
        for column in range(3):
            for at, value, reason in ((1, NAN, 'missing'),
                                      (0, -1e-9, 'negative'),
                                      (0, -INF, 'negative')):
                with self.subTest(column=column, value=value):
                    columns = np.ones((3, 2))
                    columns[column, at] = value
                    rates = _samples([0, 300], *columns)
                    self.assertEqual([300 - 300 * at], rates.times.tolist())
                    self.assertEqual(series.Refused(**{reason: 1}),
                                     rates.refused)

    def test_rates_no_port_can_have_are_absurd_and_the_limit_is_not(self):
        limits = (series.MAX_RATE_KBPS, series.MAX_RATE_KBPS,
                  series.MAX_RATE_KPPS)
        for column, limit in enumerate(limits):
            for value, count in ((limit, 1), (np.nextafter(limit, INF), 0),
                                 (INF, 0)):
                with self.subTest(column=column, value=value):
                    columns = np.ones((3, 1))
                    columns[column] = value
                    rates = _samples([0], *columns)
                    self.assertEqual(count, len(rates))
                    self.assertEqual(series.Refused(absurd=1 - count),
                                     rates.refused)

    def test_of_samples_for_one_time_the_first_usable_one_counts(self):
        rates = _samples([300, 0, 300, 300], [NAN, 1, 7, 8])
        self.assertEqual([0, 300], rates.times.tolist())
        self.assertEqual([1, 7], rates.rates[:, 0].tolist())
        self.assertEqual(series.Refused(missing=1, duplicate=1),
                         rates.refused)

    def test_a_sample_is_counted_once_under_its_first_reason(self):
        rates = _samples([0, 1, 2], [NAN, -1, INF], [-1, INF, 1])
        self.assertEqual(series.Refused(missing=1, negative=1, absurd=1),
                         rates.refused)
        self.assertEqual(3, rates.refused.total)

    def test_no_sample_at_all_is_an_empty_series(self):
        self.assertEqual(0, len(_samples([], [])))
        self.assertEqual([], _samples([], []).follows.tolist())

    def test_lengths_that_differ_are_refused_by_name(self):
        for name, columns in (
                ('egress_kbps', ([1], [1, 2], [1, 2])),
                ('ingress_kbps', ([1, 2], [1], [1, 2])),
                ('kpps', ([1, 2], [1, 2], [[1, 2]]))):
            with self.subTest(name):
                self.assertInvalid((name, '(2,)'), _samples, [0, 1],
                                   *columns)

    def test_times_that_are_not_finite_are_refused(self):
        for value in (NAN, INF, -INF):
            self.assertInvalid(('time', 'seconds UTC'), _samples,
                               [0, value], [1, 2])

    def test_a_sample_follows_across_at_most_one_and_a_half_periods(self):
        rates = _samples([0, 300, 750, 1200.5], [1, 1, 1, 1])
        self.assertEqual([False, True, True, False], rates.follows.tolist())

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=150)
    @hypothesis.given(st.lists(st.tuples(
        st.integers(0, 30), st.floats(), st.floats(), st.floats())))
    def test_every_sample_is_kept_or_counted_as_refused(self, rows):
        table = np.array(rows, dtype=float).reshape(-1, 4)
        rates = _samples(*table.T)
        self.assertEqual(len(rows), len(rates) + rates.refused.total)
        self.assertTrue((np.diff(rates.times) > 0).all())
        self.assertTrue(np.isfinite(rates.rates).all())
        self.assertTrue((rates.rates >= 0).all())
        usable = {row[0] for row in rows if all(
            0 <= x <= limit for x, limit in zip(row[1:], (
                series.MAX_RATE_KBPS, series.MAX_RATE_KBPS,
                series.MAX_RATE_KPPS)))}
        self.assertEqual(usable, set(rates.times.tolist()))


class TestRefused(unittest.TestCase):

    def test_rates_that_the_host_cannot_carry_are_no_samples(self):
        rates = series.RateSeries.from_samples(
            'a', 300, [0, 300, 600, 900], [5, 10, 11, 1], [1, 10, 1, 11])
        bounded = rates.within(10.0)
        self.assertEqual([0, 300], bounded.times.tolist())
        self.assertEqual(series.Refused(absurd=2), bounded.refused)
        self.assertIs(rates, rates.within(11.0))

    def test_counts_add_up_by_reason(self):
        refused = series.Refused(*range(1, 9))
        self.assertEqual(series.Refused(*range(2, 18, 2)), refused + refused)
        self.assertEqual(36, refused.total)
        self.assertEqual(refused, series.Refused(**refused.to_dict()))
