# SPDX-License-Identifier: Apache-2.0

import dataclasses
import itertools
import math
import tracemalloc
import unittest
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import instants
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import packed_counts
from vswitch_aware_scheduler.traffic import series

PERIOD = 300.0

#: Two-sided normal quantile of the confidence intervals: one comparison in
#: about 16,000 fails by chance; the seeds are fixed.
SIGMAS = 4.0


def _series(egress, ingress=None, kpps=None, times=None):
    if times is None:
        times = PERIOD * np.arange(len(egress))
    if ingress is None:
        ingress = np.zeros(len(egress))
    return series.RateSeries.from_samples('a1b2', PERIOD, times, egress,
                                          ingress, kpps)


def _counted(*args, **kwargs):
    return estimate.count_transitions(_series(*args, **kwargs))


def _rows(least=1):
    """Return a strategy of samples: (periods later, three rates)."""
    rate = st.one_of(st.just(0.0), st.floats(1e-6, 1e9),
                     st.sampled_from([.5, 1.0, 10.0, 1e5]))
    return st.lists(st.tuples(
        st.sampled_from([1, 1, 1, 1, 2, 5]), rate, rate,
        st.floats(0, 1e7)), min_size=least, max_size=60)


def _series_of(rows):
    table = np.array(rows, dtype=float).reshape(-1, 4)
    return _series(*table[:, 1:].T, times=PERIOD * np.cumsum(table[:, 0]))


class EstimateTestCase(unittest.TestCase):

    def assertSameCounts(self, expected, actual):
        for field in dataclasses.fields(expected):
            np.testing.assert_allclose(
                getattr(actual, field.name), getattr(expected, field.name),
                rtol=1e-12, err_msg=field.name)

    def assertRefused(self, error, parts, call, *args, **kwargs):
        with self.assertRaises(error) as caught:
            call(*args, **kwargs)
        for part in (*parts, 'expected'):
            self.assertIn(part, str(caught.exception))


class TestBins(EstimateTestCase):

    def test_bins_grow_with_the_rate_by_26_percent_each(self):
        self.assertEqual([0, 0, 0, 1, 2, 11], estimate.rate_bin(
            [0, .5, .999, 1, 1.26, 10]).tolist())
        rates = np.geomspace(1.0001, 1e9, 20_000)
        bins = estimate.rate_bin(rates)
        self.assertTrue((np.diff(bins) >= 0).all())
        lowest = 10 ** ((bins - 1) / 10)
        self.assertTrue((lowest <= rates * (1 + 1e-9)).all())
        self.assertTrue((rates < lowest * 10 ** .1 * (1 + 1e-9)).all())


class TestCounting(EstimateTestCase):

    def test_samples_totals_peaks_and_moves_are_what_was_seen(self):
        counts = _counted([0, 10, 11, 0, 200], [0, 1, 0, 0, 50],
                          [0, 3, 2, 0, 9])
        self.assertEqual([0, 11, 24], counts.bins.tolist())
        self.assertEqual([2, 2, 1], counts.samples.tolist())
        self.assertEqual([[0, 0, 0], [21, 1, 5], [200, 50, 9]],
                         counts.totals.tolist())
        self.assertEqual([[0, 0], [11, 3], [250, 9]],
                         counts.peaks.tolist())
        self.assertEqual([[0, 1, 1], [1, 1, 0], [0, 0, 0]],
                         counts.moves.tolist())
        self.assertEqual((0, 24), (counts.first_bin, counts.last_bin))
        self.assertEqual((0.0, 4 * PERIOD),
                         (counts.first_time, counts.last_time))
        self.assertEqual(5.0, counts.total_samples)

    def test_a_step_across_a_gap_is_counted_with_its_length(self):
        # Samples of bins 27 and 7; the last gap is no step of any length.
        counts = _counted([5, 500, 5, 500, 5, 500, 5],
                          times=PERIOD * np.cumsum([0, 1, 2, 12, 2, 12, 13]))
        self.assertEqual([[7, 27, 12, 2], [27, 7, 2, 2]],
                         counts.gap_moves.tolist())
        self.assertEqual(1, counts.moves.sum())

    def test_an_empty_series_is_refused_with_what_was_refused(self):
        self.assertRefused(
            exceptions.NotEnoughSamples, ('a1b2', '2 refused', 'one'),
            _counted, [float('nan'), -1])


class TestMerging(EstimateTestCase):

    def test_samples_are_not_counted_twice(self):
        early = _counted([1, 2], times=[0, PERIOD])
        for times in ([0, PERIOD], [PERIOD, 2 * PERIOD],
                      [-PERIOD, 5 * PERIOD]):
            self.assertRefused(
                exceptions.InvalidSeries, (str(times[0]), '300.0'),
                early.merged, _counted([1, 2], times=times))

    def test_another_period_is_refused(self):
        later = dataclasses.replace(_counted([1], times=[900]),
                                    period_seconds=60.0)
        self.assertRefused(exceptions.InvalidSeries,
                           ('60.0', '300.0'), _counted([1]).merged,
                           later)

    def test_a_gap_between_the_two_is_a_step_across_a_gap(self):
        early = _counted([5, 5], times=[0, PERIOD])
        for start, steps in ((2.5, []), (2.51, [[7, 27, 2, 1]]),
                             (13, [[7, 27, 12, 1]]), (14, [])):
            merged = early.merged(_counted([500],
                                           times=[start * PERIOD]))
            self.assertEqual(steps, merged.gap_moves.tolist(), start)
            self.assertEqual(start == 2.5, merged.moves[0, 1])

    def test_neither_of_the_two_is_changed(self):
        early, late = _counted([5, 7]), _counted([5, 900],
                                                 times=[600, 900])
        packed = early.to_bytes(), late.to_bytes()
        early.merged(late)
        self.assertEqual(packed, (early.to_bytes(), late.to_bytes()))


class TestAgeing(EstimateTestCase):

    def test_weights_shrink_and_peaks_stay(self):
        counts = _counted([0, 10, 200, 10], kpps=[0, 1, 2, 1])
        aged = counts.aged(.25)
        for name in ('samples', 'totals', 'moves'):
            np.testing.assert_allclose(getattr(aged, name),
                                       .25 * getattr(counts, name))
        np.testing.assert_array_equal(counts.peaks, aged.peaks)
        self.assertEqual(1.0, aged.total_samples)
        self.assertSameCounts(counts, counts.aged(1))

    def test_a_bin_of_no_weight_goes_with_its_steps(self):
        counts = _counted([5, 900, 5, 5, 70])
        survivors = counts.aged(estimate.FORGOTTEN_SAMPLES)
        self.assertSameCounts(dataclasses.replace(
            counts, samples=survivors.samples, totals=survivors.totals,
            moves=survivors.moves, recent_peaks=np.zeros_like(counts.peaks)),
                              survivors)
        aged = counts.aged(estimate.FORGOTTEN_SAMPLES / 2)
        # Three samples of 5 weigh enough; the last one has to stay.
        self.assertEqual(estimate.rate_bin([5, 70]).tolist(),
                         aged.bins.tolist())
        self.assertEqual([5, 70], aged.peaks[:, 0].tolist())
        np.testing.assert_allclose(
            aged.moves / (estimate.FORGOTTEN_SAMPLES / 2), [[1, 1], [0, 0]])
        merged = aged.merged(_counted([900], times=[5 * PERIOD]))
        self.assertEqual(1, merged.moves[1, 2])

    def test_a_peak_of_a_bin_that_stays_goes_after_three_half_lives(self):
        # 100 and 125 kbit/s are of one bin; packets may differ by any factor.
        counts = _counted([100] * 9 + [125], kpps=[1] * 9 + [90])
        counts = counts.merged(_counted([100], [1], times=[10 * PERIOD]))
        peaks = []
        for number in range(1, 13):
            counts = counts.aged(.5 ** .25).merged(_counted(
                [100], [1], times=[(10 + number) * PERIOD]))
            peaks.append(counts.peaks[0].tolist())
        # Up to 1.5 half-lives as they were, then no longer than three.
        self.assertEqual([[125.0, 90.0]] * 6, peaks[:6])
        unpacked = estimate.TransitionCounts.from_bytes(counts.to_bytes())
        self.assertSameCounts(counts, unpacked)
        self.assertLess(unpacked.peaks[0, 0], 103)
        self.assertLess(unpacked.peaks[0, 1], 10)

    def test_a_factor_is_above_zero_and_at_most_one(self):
        for factor in (0, -1, 1.001, float('nan'), float('inf')):
            self.assertRefused(exceptions.InvalidSeries,
                               ('factor', str(factor), 'above 0 to 1'),
                               _counted([1]).aged, factor)


class TestBytes(EstimateTestCase):

    def test_the_header_tells_period_and_last_time(self):
        data = _counted([5, 7, 9]).to_bytes()
        head = data[:packed_counts.HEADER_BYTES]
        self.assertEqual((PERIOD, 2 * PERIOD),
                         packed_counts.period_and_last_time(head))
        for damaged in (b'', head[:-1], b'\x01' + head[1:]):
            self.assertEqual((None, None),
                             packed_counts.period_and_last_time(damaged))

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=60)
    @hypothesis.given(_rows(), st.sampled_from([1.0, .7, 1e-3]))
    def test_counts_survive_packing_with_every_bit(self, rows, factor):
        counts = estimate.count_transitions(_series_of(rows)).aged(factor)
        unpacked = estimate.TransitionCounts.from_bytes(counts.to_bytes())
        for field in dataclasses.fields(counts):
            np.testing.assert_array_equal(getattr(unpacked, field.name),
                                          getattr(counts, field.name))
        self.assertEqual(counts.to_bytes(), unpacked.to_bytes())

    def test_bytes_of_another_kind_are_refused(self):
        counts = _counted([5, 50, 5], times=[0, PERIOD, 3 * PERIOD])
        data = counts.to_bytes()
        # The row of the first move is behind the header, two bins and days.
        at = packed_counts.HEADER_BYTES + 2 * (2 + 2 * 4)
        self.assertEqual(bytes(2), data[at:at + 2])
        for bad, part in (
                (b'', 'format'), (b'x', 'format'),
                (b'\x01' + data[1:], 'format'),
                (b'\x02' + data[1:], 'format'), (data[:-1], 'bytes'),
                (data + b'0', 'bytes'), (data[:20], ''),
                (data[:at] + b'M\0' + data[at + 2:], '77')):
            with self.subTest(size=len(bad), part=part):
                self.assertRefused(
                    exceptions.InvalidSeries, ('packed', part),
                    estimate.TransitionCounts.from_bytes, bad)

    def test_impossible_numbers_are_refused(self):
        counts = _counted([5, 50, 5], times=[0, PERIOD, 3 * PERIOD])
        for name, value in (
                ('period_seconds', 0.0), ('period_seconds', math.nan),
                ('last_time', math.nan), ('last_time', math.inf),
                ('last_time', -1.0), ('last_bin', 9),
                ('bins', counts.bins[::-1]), ('samples', counts.samples * 0),
                ('samples', counts.samples * 1e200),
                ('totals', counts.totals * math.nan),
                ('totals', counts.totals - 1), ('peaks', counts.peaks - 1),
                ('moves', counts.moves * math.inf),
                ('gap_moves', np.array([[17.0, 8, 2, 1]])),
                ('gap_moves', np.array([[17.0, 7, 1, 1]])),
                ('gap_moves', counts.gap_moves * [1, 1, 30000, 1]),
                ('gap_moves', counts.gap_moves * [1, 1, 1, math.nan])):
            with self.subTest(name=name, value=value):
                data = dataclasses.replace(counts, **{name: value}).to_bytes()
                self.assertRefused(
                    exceptions.InvalidSeries, ('packed', 'expected'),
                    estimate.TransitionCounts.from_bytes, data)
                if name == 'last_time':
                    self.assertEqual((None, None),
                                     packed_counts.period_and_last_time(data))


class TestSeldom(EstimateTestCase):

    def _fitted(self, *large, days=10, usual=100.0):
        rates = np.full(days * 288, usual)
        for at, rate in large:
            rates[at] = rate
        counts = _counted(rates)
        return counts, estimate.fit_model(counts, key='vm')

    def test_an_hour_of_one_day_does_not_decide(self):
        day = 3 * 288
        for large, peak in (
                ([(slice(day, day + 12), 900.0)], 100.0),
                ([(slice(day, day + 13), 900.0)], 900.0),
                # A backup of 15 minutes, also of two nights only.
                ([(slice(day, day + 3), 900.0),
                  (slice(day + 288, day + 291), 900.0)], 900.0),
                # An hour in sum, of different rates and days.
                ([(day + 288 * n, 900.0 * 2 ** n) for n in range(5)], 100.0),
                ([(slice(day, day + 12), 900.0), (day + 288, 9e6)], 900.0)):
            self.assertEqual(peak, self._fitted(*large)[1].peak[0])
        once = (100, 900.0)
        for kept in ({'days': 6}, {'usual': 0.0}):
            self.assertEqual(900.0, self._fitted(once, **kept)[1].peak[0])

    def test_an_instant_with_such_a_rate_is_drawn(self):
        counts, fitted = self._fitted((slice(864, 876), 900.0))
        of_bin = counts.at_instants == estimate.rate_bin(900.0)
        self.assertTrue(of_bin.any())
        np.testing.assert_array_equal(
            of_bin | (counts.at_instants == estimate.NO_BIN),
            fitted.at_instants >= instants.DRAWN)


class TestFit(EstimateTestCase):

    def test_a_history_that_is_too_short_or_silent_is_refused(self):
        for history, parts in (
                (_counted([5] * 23), ('23', '24')),
                (_counted([5] * 50).aged(.25), ('12.5', '24')),
                (_counted([0.0] * 50), ('traffic: none', '50'))):
            for fit in (estimate.fit_model, estimate.fit_on_off):
                self.assertRefused(exceptions.NotEnoughSamples, parts, fit,
                                   history)
            self.assertRefused(
                exceptions.NotEnoughSamples,
                [str(estimate.lack_of_history(history))],
                estimate.fit_model, history)
        enough = _counted([5] * 24)
        self.assertIsNone(estimate.lack_of_history(enough))
        self.assertEqual(1, estimate.fit_model(enough).stationary.size)
        self.assertRefused(exceptions.NotEnoughSamples, ('24', '25'),
                           estimate.fit_model, enough, min_samples=25)

    def _unsplit(self, fitted, history):
        """Return the rows of which a model was made, and the samples of each.

        :returns: (law, rates, list of indexes of the samples), the samples in
            the order of their bandwidth
        """
        order = np.argsort(history.rates[:, :2].sum(axis=1), kind='stable')
        law, rates = fitted.stationary, fitted.rates
        ends = np.rint(np.cumsum(law) * len(history)).astype(int)
        last = history.rates[order[ends[-2] if len(law) > 1 else 0:]]
        bins = estimate.rate_bin(rates[:, :2].sum(axis=1))
        if not len(last) or bins[-1] == bins[-2:][0] and len(bins) > 1 \
                or not np.allclose(last.mean(axis=0), rates[-1],
                                   rtol=1e-12, atol=0):
            # The rest and the peak of one row.
            rates = np.append(rates[:-2], [law[-2:] @ rates[-2:]
                                           / law[-2:].sum()], axis=0)
            law = np.append(law[:-2], law[-2:].sum())
            ends = np.delete(ends, -2)
        return law, rates, np.split(order, ends[:-1])

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=150)
    @hypothesis.given(_rows(1))
    def test_states_have_the_means_of_their_samples_the_last_the_peak(
            self, rows):
        history = _series_of(rows)
        bandwidth = history.rates[:, :2].sum(axis=1)
        hypothesis.assume(bandwidth.any())
        fitted = estimate.fit_model(estimate.count_transitions(history), 1)
        largest, most_packets = bandwidth.max(), history.rates[:, 2].max()
        np.testing.assert_allclose(
            [*fitted.rates[-1, :2], fitted.rates[-1, 2]],
            [*fitted.rates[-1, :2] * largest / fitted.rates[-1, :2].sum(),
             most_packets], rtol=1e-12)
        self.assertEqual(most_packets, fitted.peak[2])
        self.assertAlmostEqual(1, fitted.law.values([1, 1, 0]).max() / largest)
        law, rates, samples = self._unsplit(fitted, history)
        self.assertLessEqual(len(law), 7)
        # Without packets in the last state, the peak adds a sample of them.
        kept = 3 if fitted.rates[-2:, 2].all() or not most_packets else 2
        for share, rate, part in zip(law, rates, samples):
            self.assertAlmostEqual(len(part) / len(history), share)
            np.testing.assert_allclose(
                rate[:kept], history.rates[part, :kept].mean(axis=0),
                rtol=1e-9, atol=1e-12 * most_packets)
        mean = history.rates.mean(axis=0)
        np.testing.assert_allclose(fitted.mean[:kept], mean[:kept], rtol=1e-9,
                                   atol=1e-12 * most_packets)
        self.assertLessEqual(fitted.mean[2], (
            mean[2] + most_packets / len(history)) * (1 + 1e-9))
        # Directions keep the ratio of their means in the last row.
        np.testing.assert_allclose(
            rates[-1, 0] * fitted.rates[-1, 1],
            rates[-1, 1] * fitted.rates[-1, 0], rtol=1e-9)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=150)
    @hypothesis.given(_rows(2), st.sampled_from([5.0, PERIOD, 3600.0]))
    def test_the_chain_has_the_law_and_leaves_states_as_often_as_observed(
            self, rows, period):
        history = _series(*np.array(rows, dtype=float)[:, 1:].T)
        hypothesis.assume(history.rates[:, :2].any())
        fitted = estimate.fit_model(dataclasses.replace(
            estimate.count_transitions(history), period_seconds=period), 1)
        np.testing.assert_allclose(
            model.TrafficModel.from_dict(fitted.to_dict()).stationary,
            fitted.stationary, rtol=1e-9)
        law, _, samples = self._unsplit(fitted, history)
        row = np.empty(len(history))
        for number, part in enumerate(samples):
            row[part] = number
        # Jumps per second between rows, not those to the peak and back.
        flow = (fitted.stationary / fitted.sojourn_seconds)[:, None] \
            * fitted.jump
        np.testing.assert_allclose(
            flow[:law.size, :law.size].sum(),
            np.count_nonzero(np.diff(row)) / (period * (row.size - 1)),
            rtol=1e-9)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=60)
    @hypothesis.given(st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=8,
        max_size=11, unique_by=lambda drawn: drawn[0]))
    def test_rows_have_the_least_variance_of_all_divisions(self, drawn):
        bins, samples = np.array(sorted(drawn)).T
        rates = 10 ** ((bins - .5) / 10)
        history = _series(np.repeat(rates, samples))
        law, means, _ = self._unsplit(estimate.fit_model(
            estimate.count_transitions(history), 1), history)
        self.assertEqual(7, law.size)
        most = max(
            sum(weights @ values * (weights @ values) / weights.sum()
                for weights, values in zip(np.split(samples, edges),
                                           np.split(rates, edges)))
            for edges in map(list, itertools.combinations(
                range(1, bins.size), 6)))
        # The rest of the sum of squares is the variance within rows.
        np.testing.assert_allclose(law @ means[:, 0] ** 2 * samples.sum(),
                                   most, rtol=1e-9)

    def test_equal_rates_stay_equal(self):
        # Their means are rounded: a tenth is no binary fraction.
        for egress, ingress in ((.1, 0), (1.1, 2.2), (7.7, .3)):
            for kpps in ([.7] * 30, [.7] * 29 + [.9]):
                fitted = estimate.fit_model(_counted(
                    [egress] * 30, [ingress] * 30, kpps))
                self.assertEqual(len(set(kpps)), len(fitted.rates))
                self.assertEqual(1, len(fitted.levels([1, 1, 0])[0]))
                np.testing.assert_allclose(fitted.mean, [
                    egress, ingress, np.mean(kpps)], rtol=1e-14)

    def test_a_peak_of_packets_in_another_state_is_kept(self):
        # Packets were counted only while the instance was off.
        fitted = estimate.fit_model(_counted(
            [1.0] * 30 + [100.0] * 30 + [120.0], kpps=[3.0] * 30 + [0] * 31))
        self.assertEqual([120, 0, 3], fitted.peak.tolist())
        self.assertEqual([120, 0, 3], fitted.rates[-1].tolist())
        self.assertAlmostEqual(1 / 61, fitted.stationary[-1])
        self.assertTrue((fitted.sojourn_seconds > 0).all())

    def test_states_that_no_step_connects_are_connected(self):
        hours = np.arange(100) // 40 * 1e6 + PERIOD * np.arange(100)
        for rates, times, law in (
                # The record ends in a state it was never in before.
                ([5.0] * 60 + [500.0] * 40, None, [.6, .4]),
                # Only gaps are between the states.
                ([5.0] * 40 + [500.0] * 40 + [50_000.0] * 20, hours,
                 [.4, .4, .2]),
                ([5.0, 5.0, 500.0] * 20, 1e6 * np.arange(60),
                 [2 / 3, 1 / 3])):
            fitted = estimate.fit_model(_counted(rates, times=times))
            np.testing.assert_allclose(fitted.stationary, law, rtol=1e-12)
            self.assertTrue((fitted.jump + np.eye(len(law)) > 0).all())

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=60)
    @hypothesis.given(st.lists(st.integers(0, 3), min_size=4, max_size=200))
    def test_jumps_are_the_shares_of_the_steps_that_leave(self, states):
        # Each state as often as it is left: the record ends as it begins.
        states = np.array([*range(4), *states, 0])
        rates = 10.0 ** np.arange(1, 5)
        fitted = estimate.fit_model(_counted(rates[states]), 1)
        steps = np.zeros((4, 4))
        np.add.at(steps, (states[:-1], states[1:]), 1)
        steps *= 1 - np.eye(4)
        np.testing.assert_allclose(
            fitted.jump, steps / steps.sum(axis=1, keepdims=True),
            rtol=1e-12)


class TestRecovery(EstimateTestCase):

    def test_a_chain_seen_seldom_is_the_root_of_what_was_seen(self):
        # As many steps of each kind as are expected, so without chance. A few
        # direct steps, and steps across other gaps, say nothing.
        chain = np.array([[.95, .05], [.2, .8]])
        for periods in (2, 3, 5):
            for few in (0.0, 90.0):
                steps = np.array([[.8], [.2]]) * np.linalg.matrix_power(
                    chain, periods) * 1000
                counts = dataclasses.replace(
                    _counted([5.0, 500.0]), bins=np.array([7, 27]),
                    samples=np.array([800.0, 200.0]),
                    totals=np.outer([4000.0, 1e5], [1, 0, 0]),
                    moves=few * np.ones((2, 2)), gap_moves=np.array(
                        [[before, after, gap, number]
                         for i, before in enumerate((7, 27))
                         for j, after in enumerate((7, 27))
                         for gap, number in ((periods, steps[i, j]),
                                             (periods + 1, few))]))
                fitted = estimate.fit_model(counts)
                with self.subTest(periods=periods, few=few):
                    np.testing.assert_allclose(
                        fitted.sojourn_seconds, PERIOD / np.array([.05, .2]),
                        rtol=1e-3)


class TestFitOnOff(EstimateTestCase):

    def test_on_carries_the_mean_of_its_samples_and_off_nothing(self):
        for samples, rates, shares in (
                ([1.0] * 50 + [100.0, 200.0] * 25, [0, 150], [.5, .5]),
                # Always on.
                ([90.0, 110.0] * 20, [100], [1.0]),
                # On for less than a hundredth of the time.
                ([0.0] * 999 + [7.0], [0, 7.0], [.999, .001])):
            fitted = estimate.fit_on_off(_counted(samples))
            np.testing.assert_allclose(fitted.rates,
                                       np.outer(rates, [1, 0, 0]))
            np.testing.assert_allclose(fitted.stationary, shares)

    def test_on_is_a_share_of_the_99th_percentile(self):
        # One sample of a million in 200 is above the 99th percentile: the
        # threshold is a tenth of 1000.
        rates = [50.0] * 50 + [150.0] * 50 + [1000.0] * 99 + [1e6]
        fitted = estimate.fit_on_off(_counted(rates))
        np.testing.assert_allclose(fitted.stationary, [.25, .75])
        fitted = estimate.fit_on_off(_counted(rates), threshold=.2)
        np.testing.assert_allclose(fitted.stationary, [.5, .5])
        fitted = estimate.fit_on_off(_counted(rates), threshold=.01)
        np.testing.assert_allclose(fitted.stationary, [1.0])

    def test_a_threshold_is_a_share(self):
        for threshold in (-.1, 1.1, float('nan')):
            self.assertRefused(exceptions.InvalidModel,
                               ('threshold', str(threshold)),
                               estimate.fit_on_off, _counted([5.0] * 50),
                               threshold)


def _at_instants(period, seed, jitter=.3):
    """Return a series with gaps, with samples at many instants of a secret.

    :returns: RateSeries of up to 20 days, :class:`.Instants`
    """
    generator = np.random.default_rng(seed)
    secret = instants.Instants(str(seed).encode())
    begin = secret.times(700_000 + np.sort(generator.choice(
        720, 60, replace=False))) + generator.uniform(-9, 1, 60) * period
    all_times = np.sort((begin[:, None] + period * np.arange(10)).ravel())
    all_times += generator.uniform(0, jitter, all_times.size) * period
    times = [all_times[0]]
    for time in all_times:
        if time > times[-1] + (1 - jitter) * period:
            times.append(time)
    size = len(times)
    return series.RateSeries('a1b2', period, times, generator.lognormal(
        3, 2, (size, 3)) * (generator.random((size, 1)) < .9)), secret


class TestInstants(EstimateTestCase):

    PERIODS = st.sampled_from([5, 10, 60, 300, 400, 900, 2400, 3600, 7200])

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=60)
    @hypothesis.given(PERIODS, st.integers(0, 10 ** 6))
    def test_an_instant_has_the_sample_whose_period_covers_it(
            self, period, seed):
        history, secret = _at_instants(period, seed)
        expected = np.full(504, estimate.NO_BIN)
        end = history.times[-1] + period
        newest = next(number for number in range(720_000, 0, -1)
                      if number * 2400 < end)
        for number in range(newest - 503, newest + 1):
            [time] = secret.times(np.array([number]))
            covering = np.flatnonzero((history.times <= time)
                                      & (time < history.times + period))
            if covering.size:
                expected[number % 504] = estimate.rate_bin(
                    history.rates[covering[-1], :2].sum())
        self.assertGreater(np.count_nonzero(expected != estimate.NO_BIN), 9)
        np.testing.assert_array_equal(expected, estimate.count_transitions(
            history, secret).at_instants)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=120)
    @hypothesis.given(PERIODS, st.integers(0, 10 ** 6), st.lists(
        st.integers(1, 599), max_size=9))
    def test_in_pieces_it_is_what_it_is_as_a_whole(self, period, seed, cuts):
        history, secret = _at_instants(period, seed)
        edges = [0, *sorted({cut for cut in cuts if cut < len(history)}),
                 len(history)]
        pieces = [estimate.count_transitions(series.RateSeries(
            'a1b2', period, history.times[a:b], history.rates[a:b]), secret)
            for a, b in zip(edges, edges[1:])]
        expected = estimate.count_transitions(history, secret)
        merged = pieces[0]
        for piece in pieces[1:]:
            merged = estimate.TransitionCounts.from_bytes(
                merged.to_bytes()).merged(piece)
        self.assertSameCounts(expected, merged)
        # In another grouping, too: the later ones first.
        merged = pieces[-1]
        for piece in pieces[-2::-1]:
            merged = piece.merged(merged)
        self.assertSameCounts(expected, merged)

    def test_a_period_of_decades_takes_no_more_memory_than_the_ring(self):
        # Two samples of a clock that began in 1970.
        history = series.RateSeries.from_samples(
            'a1b2', 1.7e9, [0.0, 1.7e9], [5.0, 500.0], [0, 0])
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        counts = estimate.count_transitions(history)
        self.assertLess(tracemalloc.get_traced_memory()[1], 2e6)
        # The newest instant may be later than the last sample.
        self.assertGreaterEqual(np.count_nonzero(
            counts.at_instants == estimate.rate_bin(500.0)), 503)

    def _on_off(self, hours=24, days=14):
        """Return (on at the instants, counts) of a part of each day."""
        times = PERIOD * np.arange(288 * days)
        on = np.random.default_rng(16).random(times.size) < .3
        measured = times % 86400 < 3600 * hours
        at = instants.PUBLIC.times(np.arange(504)) // PERIOD
        return on[at.astype(int) % on.size], _counted(
            np.where(on, 900.0, 9.0)[measured], times=times[measured])

    def test_each_instant_has_the_state_of_its_sample(self):
        on, counts = self._on_off()
        fitted = estimate.fit_model(counts)
        np.testing.assert_array_equal(on, fitted.at_instants)
        # Where all are sampled, none is drawn.
        self.assertEqual(fitted, estimate.fit_model(counts, key='other'))

    def test_where_no_sample_is_the_state_is_drawn_from_the_law(self):
        on, counts = self._on_off(hours=12)
        keys = [f'vm-{number}' for number in range(200)]
        fitted = estimate.fit_models([counts] * 200, keys=keys)
        rows = np.array([single.at_instants for single in fitted])
        drawn = rows[0] >= instants.DRAWN
        self.assertEqual(504 - drawn.sum(), fitted[0].sampled_instants)
        np.testing.assert_array_equal(
            instants.PUBLIC.times(np.arange(504)) % 86400 >= 43200, drawn)
        np.testing.assert_array_equal(
            np.broadcast_to(on[~drawn], (200, 504 - drawn.sum())),
            rows[:, ~drawn])
        self.assertEqual(fitted[5], estimate.fit_model(counts, key='vm-5'))
        self.assertEqual(estimate.fit_model(counts),
                         estimate.fit_model(counts))
        states = rows[:, drawn] - float(instants.DRAWN)
        [off, share] = fitted[0].stationary
        self.assertAlmostEqual(share, states.mean(), delta=SIGMAS * math.sqrt(
            off * share / states.size))
        # Those of two instances are independent.
        centred = states - share
        self.assertLess(
            abs((centred[::2] * centred[1::2]).mean()),
            SIGMAS * off * share / math.sqrt(states.size / 2))

    def test_with_less_than_a_day_of_instants_it_is_independent(self):
        _, counts = self._on_off(days=1)
        self.assertEqual(36, estimate.fit_model(counts).sampled_instants)
        bins = counts.at_instants.copy()
        bins[7] = estimate.NO_BIN
        fitted = estimate.fit_model(dataclasses.replace(
            counts, at_instants=bins))
        self.assertIsNone(fitted.at_instants)
        self.assertFalse(fitted.law.is_sampled)

    def test_a_sample_whose_bin_was_forgotten_counts_as_the_next_higher(self):
        rates = np.full(4032, 9.0)
        number = instants.PUBLIC.times(np.arange(504)) // PERIOD
        at = number.astype(int)[[100, 200]]
        rates[at] = 90.0, 9000.0
        rates[1::2] = np.where(rates[1::2] == 9, 900.0, rates[1::2])
        fitted = estimate.fit_model(_counted(rates).aged(.1))
        self.assertEqual([9, 900], fitted.rates[:, 0].tolist())
        self.assertEqual([1, 1], fitted.at_instants[[100, 200]].tolist())


class TestTogether(EstimateTestCase):
    """Many at once are what each would be by itself."""

    def _all(self, generator, count=60):
        histories, end = [], 0
        for i in range(count):
            n = int(generator.choice([0, 5, 30, 60, 300]))
            # Each begins where the one before ends.
            times = end + PERIOD * np.cumsum(generator.choice([1, 1, 1, 4], n))
            end = times.max(initial=end)
            histories.append(series.RateSeries(
                f'vm-{i}', PERIOD, times,
                generator.lognormal(3, 2, (n, 3)).round(
                    int(generator.integers(-2, 3))) * (i % 7 != 3)))
        return histories

    def test_counts_are(self):
        self.assertEqual([], estimate.count_all([]))
        for together in (1, 500, 10 ** 6):
            generator = np.random.default_rng(5)
            histories = self._all(generator)
            with mock.patch.object(estimate, '_COUNT_TOGETHER', together):
                counted = estimate.count_all(histories)
            for history, counts in zip(histories, counted):
                if not len(history):
                    self.assertIsInstance(counts,
                                          exceptions.NotEnoughSamples)
                    self.assertIn(history.instance_uuid, str(counts))
                    continue
                self.assertEqual(
                    estimate.count_transitions(history).to_bytes(),
                    counts.to_bytes())

    def test_models_are(self):
        self.assertEqual([], estimate.fit_models([]))
        generator = np.random.default_rng(6)
        histories = self._all(generator)
        counts = [single for single in estimate.count_all(histories)
                  if hasattr(single, 'bins')]
        for together in (1, 7, 1000):
            with mock.patch.object(estimate, '_FIT_TOGETHER', together):
                fitted = estimate.fit_models(counts)
            states = set()
            for single, chain in zip(counts, fitted):
                try:
                    expected = estimate.fit_model(single)
                except exceptions.NotEnoughSamples as error:
                    self.assertEqual(str(error), str(chain))
                    continue
                states.add(len(chain.rates))
                np.testing.assert_array_equal(expected.rates, chain.rates)
                np.testing.assert_array_equal(expected.at_instants,
                                              chain.at_instants)
                np.testing.assert_allclose(expected.jump, chain.jump,
                                           rtol=1e-12)
                np.testing.assert_allclose(
                    expected.sojourn_seconds, chain.sojourn_seconds,
                    rtol=1e-12)
                # And what was not checked on the way is as it must be.
                checked = model.TrafficModel.from_dict(chain.to_dict())
                np.testing.assert_allclose(
                    checked.stationary, chain.stationary, rtol=1e-9)
            self.assertGreater(len(states), 2)
