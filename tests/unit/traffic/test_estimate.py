# SPDX-License-Identifier: Apache-2.0

import dataclasses
import functools
import math
import tracemalloc
import unittest
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import series
from vswitch_aware_scheduler.traffic import slots

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


def _piece(all_rates, part):
    return series.RateSeries(all_rates.instance_uuid, all_rates.period_seconds,
                             all_rates.times[part], all_rates.rates[part])


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

    def test_bin_zero_is_below_one_and_ten_bins_are_a_decade(self):
        self.assertEqual(
            [0, 0, 0, 1, 1, 2, 10, 11, 21, 31],
            estimate.rate_bin([0, .5, .999, 1, 1.25, 1.26, 9.99, 10, 100,
                               1000]).tolist())

    def test_bins_grow_with_the_rate_by_26_percent_each(self):
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

    def test_a_step_across_a_gap_is_no_transition(self):
        counts = _counted([5, 500, 5], times=[0, PERIOD, 3 * PERIOD])
        self.assertEqual([[0, 1], [0, 0]], counts.moves.tolist())

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

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=120)
    @hypothesis.given(_rows(2), st.lists(st.integers(1, 59), max_size=4))
    def test_in_pieces_it_is_what_it_is_as_a_whole(self, rows, cuts):
        all_rates = _series_of(rows)
        edges = sorted({0, len(all_rates), *(
            cut for cut in cuts if cut < len(all_rates))})
        pieces = [estimate.count_transitions(_piece(all_rates, slice(a, b)))
                  for a, b in zip(edges, edges[1:])]
        merged = pieces[0]
        for piece in pieces[1:]:
            merged = merged.merged(piece)
        self.assertSameCounts(estimate.count_transitions(all_rates), merged)
        # In another grouping, too: the later ones first.
        merged = pieces[-1]
        for piece in pieces[-2::-1]:
            merged = piece.merged(merged)
        self.assertSameCounts(estimate.count_transitions(all_rates), merged)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=60)
    @hypothesis.given(_rows())
    def test_moves_are_as_many_as_samples_that_follow(self, rows):
        rates = _series_of(rows)
        counts = estimate.count_transitions(rates)
        self.assertEqual(rates.follows.sum(), counts.moves.sum())
        self.assertEqual(len(rates), counts.total_samples)
        np.testing.assert_allclose(counts.totals.sum(axis=0),
                                   rates.rates.sum(axis=0), rtol=1e-12)


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
                           ('60.0 s', '300.0 s'), _counted([1]).merged,
                           later)

    def test_a_gap_between_the_two_is_no_transition(self):
        early = _counted([5, 5], times=[0, PERIOD])
        for start, moves in ((2.5, 1), (2.51, 0), (9, 0)):
            merged = early.merged(_counted([500],
                                           times=[start * PERIOD]))
            self.assertEqual(moves, merged.moves[0, 1], start)

    def test_a_gap_between_the_two_is_a_step_across_a_gap(self):
        early = _counted([5, 5], times=[0, PERIOD])
        for start, steps in ((2, []), (2.51, [[7, 27, 2, 1]]),
                             (13, [[7, 27, 12, 1]]), (14, [])):
            merged = early.merged(_counted([500],
                                           times=[start * PERIOD]))
            self.assertEqual(steps, merged.gap_moves.tolist(), start)

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

    def test_what_is_newer_weighs_more(self):
        earlier = _counted([5] * 50)
        later = _counted([500] * 50, times=15000 + PERIOD * np.arange(50))
        share = estimate.fit_model(earlier.aged(.5).merged(later)).stationary
        np.testing.assert_allclose(share, [1 / 3, 2 / 3], rtol=1e-12)

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
                               ('factor', str(factor), '<= 1'),
                               _counted([1]).aged, factor)

    def test_lack_of_history_is_what_a_fit_would_raise(self):
        for counts in (_counted([5] * 23), _counted([0] * 99)):
            try:
                estimate.fit_model(counts)
            except exceptions.NotEnoughSamples as error:
                self.assertEqual(str(error),
                                 str(estimate.lack_of_history(counts)))
            else:
                self.fail('no lack of history')
        self.assertIsNone(estimate.lack_of_history(_counted([5] * 24)))

    def test_a_history_aged_away_is_too_short(self):
        self.assertRefused(
            exceptions.NotEnoughSamples, ('12.5', '24'),
            estimate.fit_model, _counted([5] * 50).aged(.25))


class TestBytes(EstimateTestCase):

    def test_the_header_tells_period_and_last_time(self):
        data = _counted([5, 7, 9]).to_bytes()
        head = data[:estimate.HEADER_BYTES]
        self.assertEqual((PERIOD, 2 * PERIOD),
                         estimate.period_and_last_time(head))
        for damaged in (b'', head[:-1], b'\x01' + head[1:]):
            self.assertEqual((None, None),
                             estimate.period_and_last_time(damaged))

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=60)
    @hypothesis.given(_rows(), st.sampled_from([1.0, .7, 1e-3]))
    def test_counts_survive_packing_with_every_bit(self, rows, factor):
        counts = estimate.count_transitions(_series_of(rows)).aged(factor)
        unpacked = estimate.TransitionCounts.from_bytes(counts.to_bytes())
        for field in dataclasses.fields(counts):
            np.testing.assert_array_equal(getattr(unpacked, field.name),
                                          getattr(counts, field.name))
        self.assertEqual(counts.to_bytes(), unpacked.to_bytes())

    def test_what_was_unpacked_can_be_merged_and_fitted(self):
        rng = np.random.default_rng(3)
        early = _counted(rng.lognormal(3, 1, 50))
        late = _counted(rng.lognormal(3, 1, 50),
                        times=15000 + PERIOD * np.arange(50))
        merged = early.merged(late)
        unpacked = estimate.TransitionCounts.from_bytes(
            early.to_bytes()).merged(
                estimate.TransitionCounts.from_bytes(late.to_bytes()))
        self.assertSameCounts(merged, unpacked)
        self.assertEqual(estimate.fit_model(merged),
                         estimate.fit_model(unpacked))

    def test_bytes_of_another_kind_are_refused(self):
        data = _counted([5, 50, 5]).to_bytes()
        for bad in (b'', b'x', b'\x01' + data[1:], data[:-1], data + b'0',
                    data[:20]):
            with self.subTest(size=len(bad)):
                self.assertRefused(
                    exceptions.InvalidSeries, ('packed',),
                    estimate.TransitionCounts.from_bytes, bad)

    def test_bytes_with_steps_across_gaps_are_checked(self):
        counts = _counted([5, 50, 5], times=[0, PERIOD, 3 * PERIOD])
        data = counts.to_bytes()
        self.assertEqual((PERIOD, 3 * PERIOD),
                         estimate.period_and_last_time(data))
        for bad in (data[:-1], data + b'0', b'\x02' + data[1:]):
            self.assertRefused(exceptions.InvalidSeries, ('packed',),
                               estimate.TransitionCounts.from_bytes, bad)
        for row, value in (([17, 8, 2, 1], 'bin'), ([17, 7, 1, 1], '1')):
            self.assertRefused(
                exceptions.InvalidSeries, ('packed', value),
                estimate.TransitionCounts.from_bytes, dataclasses.replace(
                    counts, gap_moves=np.array([row], float)).to_bytes())

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
                ('slot_edges', counts.slot_edges - math.nan),
                ('gap_moves', counts.gap_moves * [1, 1, 30000, 1]),
                ('gap_moves', counts.gap_moves * [1, 1, 1, math.nan])):
            with self.subTest(name=name, value=value):
                data = dataclasses.replace(counts, **{name: value}).to_bytes()
                self.assertRefused(
                    exceptions.InvalidSeries, ('packed', 'expected'),
                    estimate.TransitionCounts.from_bytes, data)
                if name == 'last_time':
                    self.assertEqual((None, None),
                                     estimate.period_and_last_time(data))

    def test_bytes_that_point_outside_are_refused(self):
        data = bytearray(_counted([5, 50, 5]).to_bytes())
        # Behind the header and two bins: the row of the first move.
        at = estimate._HEADER.size + 2 * 2
        self.assertEqual(0, int.from_bytes(data[at:at + 2], 'little'))
        data[at:at + 2] = (77).to_bytes(2, 'little')
        self.assertRefused(exceptions.InvalidSeries, ('packed', '77'),
                           estimate.TransitionCounts.from_bytes,
                           bytes(data))


class TestFit(EstimateTestCase):

    def test_too_short_a_history_is_refused_with_both_numbers(self):
        self.assertRefused(exceptions.NotEnoughSamples, ('23', '24'),
                           estimate.fit_model, _counted([5] * 23))
        self.assertEqual(1, estimate.fit_model(
            _counted([5] * 24)).stationary.size)
        self.assertRefused(exceptions.NotEnoughSamples, ('50', '51'),
                           estimate.fit_model, _counted([5] * 50),
                           min_samples=51)

    def test_a_history_without_traffic_is_refused(self):
        for fit in (estimate.fit_model, estimate.fit_on_off):
            self.assertRefused(exceptions.NotEnoughSamples,
                               ('no traffic', '50'), fit,
                               _counted([0.0] * 50))

    def test_a_steady_rate_is_a_constant(self):
        fitted = estimate.fit_model(_counted([5] * 30, [7] * 30, [2] * 30))
        np.testing.assert_allclose(fitted.rates, [[5, 7, 2]], rtol=1e-14)
        self.assertEqual([[0]], fitted.jump.tolist())

    def test_quantiles_have_to_increase_to_one(self):
        for bad in ((), (.5,), (.5, .5, 1), (.9, .5, 1), (0, 1), (-1, 1),
                    (.5, 1.5), [[1.0]]):
            for quantiles in ((bad, (1.0,)), ((1.0,), bad)):
                with self.subTest(quantiles=quantiles):
                    self.assertRefused(
                        exceptions.InvalidModel, ('quantiles',),
                        estimate.fit_model, _counted([5] * 50),
                        quantiles=quantiles)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=150)
    @hypothesis.given(_rows(1))
    def test_states_have_the_means_of_their_samples_the_last_the_peak(
            self, rows):
        history = _series_of(rows)
        hypothesis.assume(history.rates[:, :2].any())
        counts = estimate.count_transitions(history)
        fitted = estimate.fit_model(counts, min_samples=1)
        bandwidth = history.rates[:, :2].sum(axis=1)
        order = np.argsort(bandwidth, kind='stable')
        rates = fitted.rates[:, :2].sum(axis=1)
        self.assertTrue((np.diff(rates) > 0).all())
        self.assertLessEqual(len(rates), 8)
        # Each state has its share of the samples, from the smallest on.
        ends = np.rint(np.cumsum(fitted.stationary) * len(history)).astype(int)
        self.assertEqual(len(history), ends[-1])
        np.testing.assert_allclose(
            np.diff(ends, prepend=0) / len(history), fitted.stationary,
            rtol=1e-9)
        for state, part in enumerate(
                np.split(history.rates[order], ends[:-1])):
            if state < len(rates) - 1:
                np.testing.assert_allclose(
                    part.mean(axis=0), fitted.rates[state], rtol=1e-9)
                continue
            np.testing.assert_allclose(
                [part[:, :2].sum(axis=1).max(), part[:, 2].max()],
                [rates[state], fitted.rates[state, 2]], rtol=1e-9)
            # Directions keep the ratio of their means.
            np.testing.assert_allclose(
                part[:, 0].mean() * fitted.rates[state, 1],
                part[:, 1].mean() * fitted.rates[state, 0], rtol=1e-9,
                atol=1e-9)
        self.assertGreaterEqual(fitted.mean[:2].sum() * (1 + 1e-9),
                                bandwidth.mean())

    def test_states_are_parts_of_a_low_and_a_high_class(self):
        # Samples in bins of their own: the parts of each class.
        low, high = [10, 13, 17, 22], [10_000, 13_000, 17_000, 22_000]
        counts = np.array([500, 400, 90, 10, 50, 30, 15, 5])
        bandwidth = np.random.default_rng(2).permutation(
            np.repeat(low + high, counts))
        fitted = estimate.fit_model(_counted(bandwidth))
        np.testing.assert_allclose(fitted.rates[:, 0], low + high,
                                   rtol=1e-12)
        np.testing.assert_allclose(fitted.stationary, counts / 1100,
                                   rtol=1e-12)
        self.assertEqual(4, fitted.low_states)

    def test_the_classes_have_the_least_variance_within(self):
        generator = np.random.default_rng(8)
        several = [_counted(generator.lognormal(3, 2, n))
                   for n in (2, 30, 100, 500)]
        for counts, low in zip(several, estimate.classes(several).tolist()):
            roots = np.sqrt(counts.totals[:, 0] / counts.samples)

            def within(bins, counts=counts, roots=roots):
                total = 0.0
                for part in (slice(bins), slice(bins, None)):
                    weights = counts.samples[part]
                    mean = weights @ roots[part] / weights.sum()
                    total += weights @ (roots[part] - mean) ** 2
                return total

            self.assertAlmostEqual(
                min(map(within, range(1, roots.size))), within(low))

    def test_a_few_spikes_are_no_class(self):
        # On for a tenth of the time, and three spikes of twenty times that.
        rates = np.where(np.arange(4000) % 40 < 4, 1000.0, 10.0)
        rates[[504, 1704, 2904]] = 20_000.0
        fitted = estimate.fit_model(_counted(rates))
        self.assertAlmostEqual(
            .1 + 3 / 4000, fitted.stationary[fitted.low_states:].sum(),
            delta=1e-9)

    def test_one_rate_is_no_class(self):
        fitted = estimate.fit_model(_counted([5] * 50))
        self.assertIsNone(fitted.high)
        self.assertIsNone(fitted.low_states)

    def test_a_step_up_that_is_never_taken_back_is_connected(self):
        # The record ends in a state it was never in before.
        fitted = estimate.fit_model(_counted([5.0] * 60 + [500.0] * 40))
        np.testing.assert_allclose(fitted.stationary, [.6, .4], rtol=1e-12)
        self.assertEqual([[0, 1], [1, 0]], fitted.jump.tolist())

    def test_states_that_only_gaps_separate_are_connected(self):
        times = np.concatenate([PERIOD * np.arange(40),
                                1e6 + PERIOD * np.arange(40),
                                2e6 + PERIOD * np.arange(20)])
        rates = [5.0] * 40 + [500.0] * 40 + [50_000.0] * 20
        counts = _counted(rates, times=times)
        self.assertEqual(0, counts.moves.sum() - np.trace(counts.moves))
        fitted = estimate.fit_model(counts)
        np.testing.assert_allclose(fitted.stationary, [.4, .4, .2],
                                   rtol=1e-12)
        self.assertTrue((fitted.jump + np.eye(3) > 0).all())

    def test_no_step_at_all_still_gives_the_observed_law(self):
        times = 1e6 * np.arange(60)
        fitted = estimate.fit_model(
            _counted([5.0, 5.0, 500.0] * 20, times=times))
        np.testing.assert_allclose(fitted.stationary, [2 / 3, 1 / 3],
                                   rtol=1e-12)

    def test_jumps_are_the_shares_of_the_steps_that_leave(self):
        # Around and around: 5, 50, 5, 500; from 5 half go each way. Back at
        # the start in the end, so that every state is left as it is entered.
        fitted = estimate.fit_model(
            _counted([5.0, 50.0, 5.0, 500.0] * 20 + [5.0]))
        np.testing.assert_allclose(
            fitted.jump, [[0, .5, .5], [1, 0, 0], [1, 0, 0]], rtol=1e-12)

    def test_sojourn_times_are_the_mean_runs_of_a_closed_record(self):
        # A record that returns to its start: runs of 3 and of 1 periods.
        # Its first and last samples belong to one run, as in a ring.
        cycle = [5.0] * 3 + [500.0]
        fitted = estimate.fit_model(_counted(cycle * 30 + [5.0]))
        # 120 steps, 60 of which leave: a visit takes two steps on average,
        # shared as the law (91, 30 of 121).
        np.testing.assert_allclose(fitted.stationary, [91 / 121, 30 / 121])
        np.testing.assert_allclose(
            fitted.sojourn_seconds,
            [2 * 2 * PERIOD * 91 / 121, 2 * 2 * PERIOD * 30 / 121],
            rtol=1e-12)


class TestRecovery(EstimateTestCase):

    RATES = np.array([5.0, 80.0, 900.0, 20_000.0])
    JUMP = np.array([[0, .7, .2, .1],
                     [.5, 0, .4, .1],
                     [.3, .3, 0, .4],
                     [.6, .2, .2, 0]])
    #: Mean run of each state, in periods, geometric.
    RUNS = np.array([20.0, 6.0, 4.0, 3.0])

    def _path(self, visits, seed):
        rng = np.random.default_rng(seed)
        cumulated = self.JUMP.cumsum(axis=1)
        states = np.zeros(visits, dtype=int)
        for k, draw in enumerate(rng.random(visits - 1)):
            states[k + 1] = np.searchsorted(cumulated[states[k]], draw)
        return states, rng.geometric(1 / self.RUNS[states])

    def _fit(self, states, runs):
        samples = np.repeat(self.RATES[states], runs)
        share = np.bincount(np.repeat(states, runs), minlength=4
                            ) / len(samples)
        return self._fitted(_counted(samples), share)

    @staticmethod
    def _fitted(counts, share):
        # A state for each rate; the largest one alone is high.
        low = np.cumsum(share[:3])[:2] / share[:3].sum() - 1e-9
        return estimate.fit_model(
            counts, quantiles=(np.append(low, 1.0), (1.0,)))

    def test_a_simulated_chain_is_found_again(self):
        visits = 40_000
        states, runs = self._path(visits, 71)
        fitted = self._fit(states, runs)
        np.testing.assert_allclose(fitted.rates[:, 0], self.RATES)
        often = np.bincount(states, minlength=4)
        # Binomial intervals of each jump, normal ones of each mean run. The
        # sojourn times share one scale, so each varies with all of them:
        # the relative errors add.
        error = np.sqrt(self.JUMP * (1 - self.JUMP) / often[:, None])
        self.assertTrue((abs(fitted.jump - self.JUMP)
                         <= SIGMAS * error + 1e-12).all())
        relative = np.sqrt((1 - 1 / self.RUNS) / often)
        self.assertTrue((abs(fitted.sojourn_seconds / PERIOD / self.RUNS - 1)
                         <= SIGMAS * relative * 1.5).all(),
                        fitted.sojourn_seconds / PERIOD)
        truth = model.TrafficModel(fitted.rates, self.JUMP,
                                   self.RUNS * PERIOD).stationary
        np.testing.assert_allclose(fitted.stationary, truth, rtol=.06)

    def test_gaps_do_not_distort_the_jumps(self):
        states, runs = self._path(20_000, 72)
        samples = np.repeat(self.RATES[states], runs)
        keep = np.random.default_rng(73).random(len(samples)) > .1
        counts = _counted(samples[keep],
                          times=PERIOD * np.flatnonzero(keep))
        fitted = self._fitted(counts, counts.samples / counts.total_samples)
        # 81 % of the steps are still seen, all alike.
        often = .81 * np.bincount(states, minlength=4)
        error = np.sqrt(self.JUMP * (1 - self.JUMP) / often[:, None])
        self.assertTrue((abs(fitted.jump - self.JUMP)
                         <= SIGMAS * error + 1e-12).all())

    #: On for 1,250 s, off for 5,000 s, seen every 300 s: P(off -> on) and
    #: P(on -> off) of a period are the entries of exp(generator * 300 s).
    ON, OFF = 1250.0, 5000.0
    _MOVED = -math.expm1(-PERIOD * (1 / ON + 1 / OFF))
    RISES, FALLS = _MOVED * ON / (ON + OFF), _MOVED * OFF / (ON + OFF)

    @classmethod
    @functools.cache
    def _on_off_samples(cls, count, seed):
        rng = np.random.default_rng(seed)
        on = [False]
        for draw in rng.random(count - 1):
            on.append(draw >= cls.FALLS if on[-1] else draw < cls.RISES)
        return np.where(on, 700.0, 1.0)

    def _sojourns(self, keep, seed=75):
        samples = self._on_off_samples(keep.size, seed)
        times = PERIOD * np.flatnonzero(keep)
        fitted = estimate.fit_on_off(_counted(samples[keep], times=times))
        return fitted.sojourn_seconds

    def test_sojourn_times_do_not_depend_on_missing_samples(self):
        count = 120_000
        truth = PERIOD / np.array([self.RISES, self.FALLS])
        number = np.arange(count)
        random = np.random.default_rng(76).random(count)
        patterns = {
            'none missing': number >= 0, 'every second': number % 2 == 0,
            'every third': number % 3 != 0, 'two of three': number % 3 == 0,
            'three of four': number % 4 == 0, 'half at random': random < .5,
            'four of five at random': random < .2,
            'every second, an outage of a day each week': (
                (number % 2 == 0) & (number % 2016 > 288)),
            'every second for the first tenth': (
                (number % 2 == 0) | (number > count / 10))}
        for name, keep in patterns.items():
            with self.subTest(name):
                # A sample of a chain with correlation c gives the rate of
                # leaving with a relative variance of 1 over the exits seen,
                # times at most (1 + c^-L) where L periods are between sights.
                gaps = np.diff(np.flatnonzero(keep))
                apart = np.bincount(gaps).argmax()
                steps = np.count_nonzero(gaps == apart)
                memory = (1 - self.RISES - self.FALLS) ** apart
                exits = steps * 2 * .2 * .8 * (1 - memory) / 2
                error = math.sqrt((1 + 1 / memory) / exits)
                self.assertLess(
                    abs(self._sojourns(keep) / truth - 1).max(),
                    SIGMAS * error)

    def test_a_chain_seen_seldom_is_the_root_of_what_was_seen(self):
        # As many steps of each kind as are expected, so without chance.
        chain = np.array([[.95, .05], [.2, .8]])
        for periods in (2, 3, 5):
            with self.subTest(periods=periods):
                steps = np.array([[.8], [.2]]) * np.linalg.matrix_power(
                    chain, periods) * 1000
                counts = dataclasses.replace(
                    _counted([5.0, 500.0]), bins=np.array([7, 27]),
                    samples=np.array([800.0, 200.0]),
                    moves=np.zeros((2, 2)), gap_moves=np.array(
                        [[before, after, periods, steps[i, j]]
                         for i, before in enumerate((7, 27))
                         for j, after in enumerate((7, 27))]))
                fitted = estimate.fit_model(counts)
                np.testing.assert_allclose(
                    fitted.sojourn_seconds, PERIOD / np.array([.05, .2]),
                    rtol=1e-3)

    def test_an_on_off_source_is_found_again(self):
        rng = np.random.default_rng(74)
        visits, on, off = 20_000, 4.0, 12.0
        runs = np.stack([rng.geometric(1 / off, visits),
                         rng.geometric(1 / on, visits)], axis=1)
        samples = np.repeat(np.tile([0.0, 700.0], visits), runs.ravel())
        fitted = estimate.fit_on_off(_counted(samples))
        np.testing.assert_allclose(fitted.rates[:, 0], [0, 700.0])
        for sojourn, mean in zip(fitted.sojourn_seconds / PERIOD, (off, on)):
            error = math.sqrt((1 - 1 / mean) / visits)
            self.assertLess(abs(sojourn / mean - 1), SIGMAS * error * 1.5)


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

    def test_its_mean_is_that_of_the_samples_that_are_on(self):
        rng = np.random.default_rng(4)
        rates = np.where(rng.random(500) < .3, rng.uniform(50, 100, 500), 0)
        fitted = estimate.fit_on_off(_counted(rates))
        np.testing.assert_allclose(fitted.mean[0], rates.mean(), rtol=1e-12)

    def test_a_threshold_is_a_share(self):
        for threshold in (-.1, 1.1, float('nan')):
            self.assertRefused(exceptions.InvalidModel,
                               ('threshold', str(threshold)),
                               estimate.fit_on_off, _counted([5.0] * 50),
                               threshold)

    def test_too_short_a_history_is_refused(self):
        self.assertRefused(exceptions.NotEnoughSamples, ('23', '24'),
                           estimate.fit_on_off, _counted([5] * 23))


class TestSlots(EstimateTestCase):
    """What is kept of the sampled slots."""

    #: Longer than the ring.
    SECONDS = 15.3 * 86400

    def _samples(self, period, seed, jitter=0.0):
        generator = np.random.default_rng(seed)
        times = np.arange(5e8 + 117, 5e8 + 117 + self.SECONDS, period)
        times += generator.uniform(-jitter, jitter, times.size)
        rates = generator.gamma(.5, 1000, times.size)
        present = generator.random(times.size) > .1
        return times[present], rates[present]

    def _one(self, period, times, rates):
        return estimate.count_transitions(series.RateSeries.from_samples(
            'a1b2', period, times, rates, 0 * rates))

    def _expected_bins(self, period, times, rates):
        """Return the bins slot by slot, one after the other."""
        if period > slots.SLOT_SECONDS:
            latest = math.ceil((times[-1] + period) / 300 - .5) - 1
        else:
            latest = math.floor((times[-1] + period / 2) / 300)
        expected = np.full(slots.SLOTS, estimate.NO_SLOT)
        for number in slots.latest_slots(latest).tolist():
            middle = 300 * number + 150
            if period > slots.SLOT_SECONDS:
                inside = (times <= middle) & (middle < times + period)
            else:
                inside = np.floor((times + period / 2) / 300) == number
            if inside.any():
                expected[slots.ring_index(number)] = estimate.rate_bin(
                    rates[inside].mean())
        return expected

    def test_a_slot_has_the_mean_of_the_samples_in_it(self):
        for period in (60, 300, 400, 900, 3600):
            with self.subTest(period=period):
                times, rates = self._samples(period, 11)
                counts = self._one(period, times, rates)
                np.testing.assert_array_equal(
                    self._expected_bins(period, times, rates),
                    counts.slot_bins)
                self.assertTrue((counts.slot_bins
                                 == estimate.NO_SLOT).any() or period < 300)

    def test_in_pieces_they_are_what_they_are_as_a_whole(self):
        generator = np.random.default_rng(12)
        for period, jitter in ((60, 3), (300, 4), (400, 0),
                               (900, 0)):
            with self.subTest(period=period):
                times, rates = self._samples(period, 13, jitter)
                at_once = self._one(period, times, rates)
                cuts = np.sort(generator.choice(
                    np.arange(1, times.size), 100, replace=False))
                edges = [0, *cuts.tolist(), times.size]
                pieces = [self._one(period, times[a:b], rates[a:b])
                          for a, b in zip(edges, edges[1:])]
                merged = pieces[0]
                for piece in pieces[1:]:
                    merged = estimate.TransitionCounts.from_bytes(
                        merged.to_bytes()).aged(.999).merged(piece)
                np.testing.assert_array_equal(
                    at_once.slot_bins, merged.slot_bins)

    def test_what_is_older_than_the_ring_is_missing(self):
        early = self._one(300, 300.0 * np.arange(4032), np.full(4032, 5.0))
        self.assertFalse((early.slot_bins == estimate.NO_SLOT).any())
        # Ten days of silence, of which 4 days of the ring are from before.
        late = self._one(300, 300.0 * np.arange(6912, 6930),
                         np.full(18, 5.0))
        merged = early.merged(late)
        latest = slots.latest_slots(6929)
        np.testing.assert_array_equal(
            (latest < 4032) | (latest >= 6912),
            merged.slot_bins != estimate.NO_SLOT)
        much_later = self._one(300, 1e8 + 300.0 * np.arange(18),
                               np.full(18, 5.0))
        np.testing.assert_array_equal(much_later.slot_bins,
                                      early.merged(much_later).slot_bins)

    def test_a_period_of_decades_takes_no_more_memory_than_the_ring(self):
        # Two samples of a clock that began in 1970.
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        counts = self._one(1.7e9, np.array([0.0, 1.7e9]),
                           np.array([5.0, 500.0]))
        self.assertLess(tracemalloc.get_traced_memory()[1], 2e6)
        self.assertEqual({int(estimate.rate_bin(500.0))},
                         set(counts.slot_bins.tolist()))

    def test_samples_late_repeated_or_out_of_order_change_nothing(self):
        times, rates = self._samples(300, 14)
        expected = self._one(300, times, rates).slot_bins
        order = np.random.default_rng(15).permutation(times.size)
        repeated = np.concatenate([order, order[:100]])
        np.testing.assert_array_equal(expected, self._one(
            300, times[repeated], rates[repeated]).slot_bins)

    def test_high_slots_are_those_above_the_threshold(self):
        times = 300.0 * np.arange(4032)
        on = np.random.default_rng(16).random(times.size) < .3
        counts = self._one(300, times, np.where(on, 900.0, 9.0))
        fitted = estimate.fit_model(counts)
        np.testing.assert_array_equal(
            on[slots.latest_slots(4031)], fitted.high)
        self.assertEqual(1, fitted.low_states)
        # With all bins known, no bit is drawn.
        self.assertEqual(fitted, estimate.fit_model(counts, key='other'))

    def test_slots_without_samples_are_as_on_other_days(self):
        # The variance of the mean of 14 values that repeat n independent ones
        # is that of 14 ** 2 / sum(repeats ** 2) values.
        for days in range(1, 14):
            with self.subTest(days=days):
                rows, sampled = self._high_of_days(days)
                repeats = np.zeros(days)
                for row in rows:
                    [index] = np.flatnonzero((sampled == row).all(axis=1))
                    repeats[index] += 1
                self.assertEqual(14, repeats.sum())
                self.assertGreater(14 ** 2 / (repeats @ repeats), .84 * days)
                if days >= 7:
                    np.testing.assert_array_equal(
                        rows[days - 7:7], rows[days:])

    def _high_of_days(self, days):
        """Return the slots of a history by day.

        :returns: (14, 36) high slots of the model, (days, 36) of the history
        """
        times = 300.0 * np.arange(28 * 288, (28 + days) * 288)
        on = np.random.default_rng(17).random(times.size) < .3
        high = estimate.fit_model(self._one(
            300, times, np.where(on, 900.0, 9.0))).high.reshape(14, 36)
        number = np.arange(28 * 36, (28 + days) * 36)
        sampled = np.arange(28 * 288, (28 + days) * 288)
        sampled = sampled[slots.sampled(sampled)]
        np.testing.assert_array_equal(number, sampled // slots.EACH)
        of_days = on[sampled - 28 * 288].reshape(days, 36)
        np.testing.assert_array_equal(of_days, high[:days])
        return high, of_days

    def test_where_no_day_has_a_sample_the_bit_is_drawn(self):
        # Never measured from 12 to 24 h.
        times = 300.0 * np.arange(4032)
        times = times[times % 86400 < 43200]
        on = np.random.default_rng(17).random(times.size) < .3
        counts = self._one(300, times, np.where(on, 900.0, 9.0))
        drawn = np.array([estimate.fit_model(counts, key=f'vm-{n}').high
                          for n in range(200)]).reshape(200, 14, 36)
        np.testing.assert_array_equal(drawn[0, :, :18], drawn[1, :, :18])
        np.testing.assert_array_equal(
            drawn[5].ravel(), estimate.fit_model(counts, key='vm-5').high)
        free = drawn[:, :, 18:]
        share = on.mean()
        self.assertAlmostEqual(share, free.mean(), delta=SIGMAS * math.sqrt(
            share * (1 - share) / free.size))
        # Those of two instances are independent.
        centred = free - share
        together = (centred[::2] * centred[1::2]).mean()
        self.assertLess(abs(together), SIGMAS * share * (
            1 - share) / math.sqrt(free.size / 2))

    def test_counts_of_the_versions_before_have_no_slots(self):
        for gaps, version in (([], 2), ([[7, 27, 2, 1.0]], 3)):
            counts = dataclasses.replace(
                _counted([5, 500, 5]), gap_moves=np.array(
                    gaps, float).reshape(-1, 4))
            data = counts.to_bytes()
            tail = len(gaps) * 14
            end = len(data) - tail
            # In the place of the slots: samples in two regimes, behind the
            # peaks of two bins and before the moves.
            moves = end - 504 - 32 - 8 * np.count_nonzero(counts.moves)
            packed = bytes([version]) + data[1:moves] + bytes(
                16 * 2) + data[moves:end - 504 - 32] + data[end:]
            unpacked = estimate.TransitionCounts.from_bytes(packed)
            self.assertTrue((unpacked.slot_bins == estimate.NO_SLOT).all())
            for name in ('samples', 'totals', 'moves', 'gap_moves'):
                np.testing.assert_array_equal(
                    getattr(counts, name), getattr(unpacked, name))
            merged = unpacked.merged(_counted([5, 500], times=[900, 1200]))
            self.assertEqual(5, merged.total_samples)
            self.assertEqual(
                (PERIOD, 600.0),
                estimate.period_and_last_time(packed))

    def test_they_take_536_bytes_of_the_counts(self):
        counts = _counted([5, 50, 5])
        self.assertEqual(estimate.HEADER_BYTES + 2 * 2 + 4 * 2
                         + 8 * (6 * 2 + 2) + 536, len(counts.to_bytes()))


class TestTogether(EstimateTestCase):
    """Many at once are what each would be by itself."""

    def _all(self, generator, count=60):
        histories = []
        for i in range(count):
            n = int(generator.choice([0, 5, 30, 60, 300]))
            times = PERIOD * np.cumsum(generator.choice([1, 1, 1, 4], n))
            histories.append(series.RateSeries(
                f'vm-{i}', PERIOD, times,
                generator.lognormal(3, 2, (n, 3)).round(
                    int(generator.integers(-2, 3))) * (i % 7 != 3)))
        return histories

    def test_counts_are(self):
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
                np.testing.assert_array_equal(expected.high, chain.high)
                self.assertEqual(expected.low_states, chain.low_states)
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

    def test_quantiles_on_the_edge_of_a_bin_do_not_depend_on_others(self):
        # The quantile .5 is the edge of two bins; the weights are no whole
        # numbers, so that sums with those of others would be rounded.
        edge = _counted(np.tile([10, 20, 1000, 2000], 12))
        generator = np.random.default_rng(1)
        several = [_counted(generator.lognormal(4, 2, 2000)), *[edge] * 300]
        several = [counts.aged(generator.uniform(.3, 1))
                   for counts in several]
        for single, fitted in zip(several, estimate.fit_models(several, 2)):
            np.testing.assert_array_equal(
                estimate.fit_model(single, 2).rates, fitted.rates)

    def test_none_is_none(self):
        self.assertEqual([], estimate.count_all([]))
        self.assertEqual([], estimate.fit_models([]))
