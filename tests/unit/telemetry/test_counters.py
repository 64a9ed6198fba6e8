# SPDX-License-Identifier: Apache-2.0

import tracemalloc
import unittest

import numpy as np

from tests.contract import telemetry_simulator as simulator
from vswitch_aware_scheduler.telemetry import counters
from vswitch_aware_scheduler.telemetry import update_interval
from vswitch_aware_scheduler.traffic import series as rate_series

UUID = '6f6d3a4e-32d8-4c27-9a0e-1d2c3b4a5f60'
NAN = np.nan


def readings(counts, first=0, period=10.0, columns=2):
    """Return readings of counters in consecutive periods, NaN: none."""
    counts = np.asarray(counts, float)
    present = np.flatnonzero(~np.isnan(counts))
    return counters.Readings(
        np.tile(((present + first) * period)[:, None], columns),
        np.tile(counts[present][:, None], columns))


def from_counters(hosts, **options):
    return counters.from_counters(hosts, 10, **options)


def series_of(parts, start=-np.inf, end=np.inf, **options):
    return counters.instance_series(UUID, 10, start, end, parts, **options)


def rising(counts, **more):
    """Return a part whose counter rises by 10 in each period."""
    return from_counters([readings(np.arange(counts) * 10., **more)])


class CountersTestCase(unittest.TestCase):

    def assert_series(self, part, times, **refused):
        """Check the times of rates, and how many periods have none and why."""
        series = series_of([part])
        self.assertEqual(times, series.times.tolist())
        self.assertEqual(rate_series.Refused(**refused), series.refused)
        return series


class ReadingsTest(unittest.TestCase):

    def test_counters_read_at_the_same_times_keep_all_readings(self):
        times = np.array([1., 2, 3])
        readings = counters.together([(times, times), (times, times * 2)], 10)
        self.assertEqual([[1, 1], [2, 2], [3, 3]], readings.times.tolist())
        self.assertEqual([[1, 2], [2, 4], [3, 6]], readings.counters.tolist())

    def test_a_period_needs_a_reading_of_every_counter(self):
        readings = counters.together([
            (np.array([0, 7, 10, 20]), np.array([0, 1, 2, 3])),
            (np.array([4, 24]), np.array([5, 6]))], 10)
        self.assertEqual([[7, 4], [20, 24]], readings.times.tolist())
        self.assertEqual([[1, 5], [3, 6]], readings.counters.tolist())


class CountersTest(CountersTestCase):

    def test_read_once_a_period_a_rate_is_that_between_readings(self):
        # Counters of one interface are read a moment after each other.
        hosts = [counters.Readings(
            np.array([[2., 2, 3, 3], [12, 12, 13, 13], [22, 22, 23, 23]]),
            np.array([[0., 0, 0, 0], [1000, 2500, 30, 50],
                      [1000, 2500, 30, 50]]))]
        series = series_of([from_counters(hosts)])
        # 1000 B and 2500 B in 10 s; 30 + 50 packets in 10 s. Then nothing.
        np.testing.assert_allclose(series.rates, [[.8, 2.0, 0.008], [0, 0, 0]])
        self.assertEqual([0.0, 10.0], series.times.tolist())

    def test_read_more_often_a_rate_is_that_from_start_to_end(self):
        # 1 B/s until 13 s, 11 B/s after; read every 3 s from 1 s on.
        times = np.arange(1., 40, 3)
        counts = np.where(times <= 13, times, 13 + 11 * (times - 13))
        series = series_of([from_counters([counters.Readings(
            np.stack([times] * 2, axis=1), np.stack([counts] * 2, axis=1))])])
        self.assertEqual([10.0, 20.0], series.times.tolist())
        # 3 s of 1 B/s and 7 s of 11 B/s.
        np.testing.assert_allclose(series.rates[:, 0], [.064, .088])

    def test_what_cannot_be_a_rate_is_refused_by_reason(self):
        top = 2.0 ** 32
        for counts, times, refused in (
                # Periods without a reading.
                ([0, 10, NAN, NAN, 50, 60], [0, 40], {'gap': 3}),
                # A counter that goes back was reset, or it wraps.
                ([100, 200, 7, 17], [0, 20], {'reset': 1}),
                ([top - 20, top - 10, 0, 10], [0, 20], {'reset': 1}),
                ([0, 1e15, 1e15], [10], {'absurd': 1}),
                # Nothing can be told of no reading or one.
                ([], [], {}), ([5], [], {})):
            with self.subTest(counts):
                series = self.assert_series(from_counters([readings(counts)]),
                                            times, **refused)
                self.assertTrue((series.rates >= 0).all())

    def test_counters_of_two_hosts_are_never_subtracted(self):
        # The new counter is larger than the old one ever was.
        series = self.assert_series(from_counters([
            readings([0, 10, 20]), readings([1000, 1010, 1020], first=3)]),
            [0, 10, 30, 40], migration=1)
        np.testing.assert_allclose(series.rates[:, 0], .008)

    def test_a_host_that_was_left_and_repeats_itself_says_nothing(self):
        # The old host tells its last state on and on.
        source = readings([0, 10, 20, 20, 20, 20, 20])
        target = readings([0, 30, 60], first=4)
        for hosts in ([source, target], [target, source]):
            series = self.assert_series(from_counters(hosts),
                                        [0, 10, 20, 40, 50], migration=1)
            self.assertEqual(
                [.024, .024], series.rates[3:, 0].round(9).tolist())

    def test_a_pause_of_the_host_that_was_left_changes_nothing(self):
        source = readings([0, 10, 20, 20, NAN, NAN, 20, 20, 20])
        target = readings([0, 30, 60, 90, 120, 150], first=3)
        series = series_of([from_counters([source, target])])
        self.assertEqual([0, 10, 30, 40, 50, 60, 70], series.times.tolist())

    def test_an_instance_that_returns_is_followed_back(self):
        source = readings([0, 10, 20, 20, 20, 5, 15, 25])
        target = readings([0, 30], first=3)
        series = series_of([from_counters([source, target])])
        self.assertEqual([0, 10, 30, 50, 60], series.times.tolist())
        self.assertEqual(2, series.refused.migration)

    def test_of_two_exporters_the_other_counts_when_one_stops(self):
        longer, shorter = (readings(np.arange(count) * 10.0, first=first)
                           for count, first in ((30, 0), (10, 1)))
        for hosts in ([longer, shorter], [shorter, longer]):
            joined = series_of([from_counters(hosts)])
            self.assertEqual(280, joined.times[-1])
            self.assertLessEqual(27, len(joined))
            np.testing.assert_allclose(joined.rates[:, 0], .008)


class UpdatesTest(unittest.TestCase):
    """A day of counters that are updated at intervals, beside the truth."""

    STEADY = simulator.Traffic(1e6)

    #: On for 15 minutes of each three hours.
    BURSTS = simulator.Traffic(1e6, 900.0, 10800.0,
                               simulator.T0 + 4137.0 - 864000.0)

    def rates(self, traffic, update_known=None, seed=1, **source):
        """Return the rates that are found, and the true volume, relative."""
        day = 86400.0
        hosts = simulator.Source(**source).readings(
            traffic, day, np.random.default_rng(seed))
        update = update_known
        if update_known is None:
            update = update_interval.update_seconds([
                (times, values) for _, times, values in hosts])
        part = counters.from_counters(
            [counters.Readings(np.stack([times] * 2, axis=1),
                               np.stack([values, values / 2], axis=1))
             for _, times, values in hosts],
            300.0, update, simulator.T0 + day)
        times = part.periods * 300.0
        true = np.array([traffic.mean_kbps(begin, begin + 300)
                         for begin in times])
        return part.rates[:, 0] / traffic.kbps, true / traffic.kbps

    def check(self, peak, bursts=0.15, **source):
        for traffic, delta in ((self.STEADY, peak), (self.BURSTS, bursts)):
            # What a lone instance of bursts says is not enough to find the
            # interval.
            update = None if traffic is self.STEADY \
                else source['update_seconds']
            with self.subTest(traffic=traffic, **source):
                measured, true = self.rates(traffic, update, **source)
                self.assertGreater(measured.size, 240)
                self.assertAlmostEqual(1.0, measured.sum() / true.sum(),
                                       delta=0.01)
                self.assertAlmostEqual(1.0, measured.max(), delta=delta)

    def test_updates_as_often_as_readings(self):
        for seconds in (15, 30, 60, 120):
            peak = 0.05 if seconds <= 30 else 0.1
            intervals = {'update_seconds': seconds, 'scrape_seconds': seconds}
            self.check(peak, jitter_seconds=2, **intervals)
            self.check(peak, drift_seconds=seconds / 400, **intervals)
            self.check(peak, drift_seconds=-seconds / 400, **intervals)
            self.check(peak, phase_seconds=.6 * seconds, outages=(
                (20000, 20300), (50000, 50420)), **intervals)

    def test_updates_more_often_than_readings_or_a_bit_less_often(self):
        for update, scrape in ((20, 30), (45, 60), (30, 120), (60, 120),
                               (90, 120), (35, 30), (50, 30), (70, 60),
                               (150, 120)):
            away = 1 if update > scrape else -1
            for changes in ({'jitter_seconds': 2},
                            {'drift_seconds': away * update / 400},
                            {'phase_seconds': .3 * update}):
                self.check(0.05 if scrape <= 30 else 0.1,
                           update_seconds=update, scrape_seconds=scrape,
                           **changes)

    def test_an_outage_of_an_unknown_number_of_updates(self):
        for update, scrape in ((77, 30), (77, 15), (45, 15)):
            self.check(0.05, update_seconds=update, scrape_seconds=scrape,
                       phase_seconds=.6 * update, outages=(
                           (20000, 20300), (35000, 35310), (50000, 50420)))

    def lone_counter(self, update, **source):
        """Return times and values of a steady counter of three hours."""
        _, times, values = simulator.Source(
            update_seconds=update, **source).readings(
                self.STEADY, 10800.0, np.random.default_rng(1))[0]
        return times, values

    def assert_interval_is_found(self, update, **source):
        self.assertAlmostEqual(1.0, update_interval.update_seconds([
            self.lone_counter(update, jitter_seconds=2, **source)]) / update,
            delta=0.02)

    def steady_peak(self, **source):
        measured, _ = self.rates(self.STEADY, source['update_seconds'],
                                 **source)
        self.assertGreater(measured.size, 240)
        return measured.max()

    def test_updates_that_are_left_out_soon_after_each_other(self):
        # One update is between them.
        self.assertAlmostEqual(1.0, self.steady_peak(
            update_seconds=290, scrape_seconds=30, phase_seconds=79,
            stalls=((10587, 10935), (11232, 11580))), delta=0.05)

    def test_updates_that_are_left_out_between_rare_readings(self):
        for update, scrape in ((270, 120), (77, 60), (300, 120)):
            self.assertAlmostEqual(1.0, self.steady_peak(
                update_seconds=update, scrape_seconds=scrape,
                phase_seconds=.2 * update, jitter_seconds=1, stalls=(
                    (20511, 20511 + 2.5 * update),
                    (54492, 54492 + 1.2 * update))), delta=0.1)

    def test_a_few_readings_do_not_show_that_counters_are_continuous(self):
        times, values = self.lone_counter(100, scrape_seconds=120)
        for count, enough in ((10, False), (60, True)):
            series = [(times[:count], values[:count])]
            # Where one reading of each period is all, it is enough.
            self.assertAlmostEqual(
                100.0 if enough else 0.0,
                update_interval.update_seconds(series), delta=2)
            self.assertEqual(enough, update_interval.update_seconds(
                series, period_seconds=300.0) is not None)

    def test_the_interval_is_found_beside_resets_and_jitter(self):
        for update in (45, 77):
            self.assert_interval_is_found(update, scrape_seconds=120,
                                          resets=(5000, 9000))
        # Updates at each third reading may be early or late.
        self.assert_interval_is_found(45, scrape_seconds=15)

    def test_updates_that_are_much_too_early_or_late(self):
        for scrape in (15, 30, 60, 120):
            self.check(0.05, update_seconds=300, scrape_seconds=scrape,
                       jitter_seconds=15)

    def test_bursts_after_an_outage_of_seldom_readings(self):
        self.check(0.1, update_seconds=300, scrape_seconds=120, outages=(
            (20000, 20300), (35000, 35310), (50000, 50420), (65000, 67000)),
            phase_seconds=180)

    def test_a_poller_that_stands_still(self):
        for update, scrape in ((300, 30), (300, 120), (60, 15), (60, 30)):
            for polls in (1.2, 3.2, 5.2, 12.2):
                self.check(0.05, update_seconds=update, scrape_seconds=scrape,
                           phase_seconds=.3 * update, stalls=(
                               (20000, 20000 + polls * update),
                               (50000, 50000 + polls * update)))

    def test_long_intervals(self):
        for update in (900, 1800, 3600):
            for changes in ({'jitter_seconds': 30},
                            {'drift_seconds': update / 400}):
                measured, _ = self.rates(self.STEADY, update_seconds=update,
                                         scrape_seconds=60, **changes)
                self.assertGreater(measured.size, 180)
                self.assertAlmostEqual(1e6, measured.mean() * 1e6, delta=1e4)
                self.assertAlmostEqual(1.0, measured.max(), delta=0.05)

    def test_continuous_counters_are_not_taken_for_updated_ones(self):
        random = np.random.default_rng(5)
        times = np.arange(0, 86400, 30.0)
        for rises in (np.full(times.size, 7.0),
                      random.lognormal(0, 1, times.size),
                      1 + .05 * random.standard_normal(times.size),
                      np.repeat(random.choice([1.0, 2.0], 720), 4)[
                          :times.size]):
            self.assertEqual(0.0, update_interval.update_seconds(
                [(times, np.cumsum(rises))]))


class IncrementsTest(CountersTestCase):

    def test_an_increment_belongs_to_the_period_before_its_reading(self):
        series = series_of([counters.from_increments(
            np.array([5, 6, 7]), np.array([[1., 1], [1250, 2500], [0, 0]]),
            10)])
        self.assertEqual([50, 60], series.times.tolist())
        np.testing.assert_allclose(series.rates[:, :2], [[1, 2], [0, 0]])

    def test_what_cannot_be_a_rate_is_refused_by_reason(self):
        for periods, values, times, refused in (
                # Over a gap: divided by one period it would be four times
                # what it was.
                ([1, 2, 6, 7], [100] * 4, [10, 60], {'gap': 4}),
                # Of two intervals: a reading was left out.
                ([0, 1, 2, 4, 5], [50, 50, 50, 100, 50], [0, 10, 40],
                 {'gap': 2}),
                ([1, 2, 3, 4], [1, 1, -9, 1], [10, 30], {'reset': 1})):
            with self.subTest(values):
                self.assert_series(counters.from_increments(
                    np.array(periods), np.outer(values, [1.0, 1.0]), 10),
                    times, **refused)

    def test_an_increment_of_one_interval_after_an_empty_period_is_kept(self):
        # Two readings were in period 2, none in 3: 2 has the mean of both.
        series = self.assert_series(counters.from_increments(
            np.array([0, 1, 2, 4, 5]),
            np.outer([90, 90, 50, 10, 10], [1.0, 1.0]), 10),
            [0, 10, 20, 30, 40])
        np.testing.assert_allclose(series.rates[:, 0] / .0008,
                                   [90, 50, 50, 10, 10])

    def test_the_time_between_measures_is_what_it_is_divided_by(self):
        series = series_of([counters.from_increments(
            np.array([1, 2]), np.full((2, 2), 250.), 2)])
        np.testing.assert_allclose(series.rates[:, :2], 1.0)


class SumTest(unittest.TestCase):

    def test_interfaces_are_summed(self):
        parts = [from_counters([readings(counts)])
                 for counts in ([0, 1250, 2500], [0, 2500, 2500])]
        np.testing.assert_allclose(series_of(parts).rates[:, 0], [3.0, 1.0])

    def test_without_an_expected_interface_the_sum_is_not_known(self):
        # The second one is silent from the third period on, and counts as
        # detached when it has been for two.
        series = series_of([rising(8), rising(3)])
        self.assertEqual([0, 10, 40, 50, 60], series.times.tolist())
        self.assertEqual(rate_series.Refused(missing=2), series.refused)
        np.testing.assert_allclose(series.rates[:, 0],
                                   [.016, .016, .008, .008, .008])

    def test_a_gap_of_one_interface_is_a_gap_of_the_sum(self):
        series = series_of([rising(6), from_counters(
            [readings([0, 10, NAN, 30, 40, 50])])])
        self.assertEqual([0, 30, 40], series.times.tolist())
        self.assertEqual(rate_series.Refused(gap=2), series.refused)

    def test_an_interface_that_comes_later_does_not_spoil_what_was(self):
        self.assertEqual(5, len(series_of([rising(6), rising(2, first=4)])))

    def test_after_the_end_of_all_nothing_is_refused(self):
        self.assertEqual(0, series_of([rising(3)] * 2).refused.total)

    def test_without_an_answer_for_an_interface_the_sum_is_a_lower_bound(
            self):
        series = series_of([rising(6)], complete=False)
        self.assertEqual((5, True), (len(series), series.partial.all()))
        self.assertEqual((0, 5), (len(series.at_least()),
                                  series.at_least().refused.missing))
        self.assertEqual(0, len(series_of([], complete=False)))

    def test_what_is_too_old_is_refused_as_such(self):
        series = series_of([from_counters(
            [readings([0, 10, 5, 15, 25, 35])])], oldest=25.0)
        self.assertEqual([30, 40], series.times.tolist())
        self.assertEqual(rate_series.Refused(too_old=3), series.refused)

    def test_only_the_requested_time_is_returned_and_counted(self):
        part = from_counters([readings(
            [0, 10, NAN, 30, 40, 2, 12, 22])])
        series = series_of([part], start=20, end=50)
        self.assertEqual([30], series.times.tolist())
        self.assertEqual(rate_series.Refused(gap=1, reset=1), series.refused)

    def test_a_negative_rate_of_an_interface_spoils_its_period_only(self):
        rates = np.ones((5, 3))
        rates[2, 1] = -1
        parts = [counters.from_rates(np.arange(5), rates),
                 counters.from_rates(np.arange(5), np.ones((5, 3)))]
        series = series_of(parts)
        self.assertEqual([0, 10, 30, 40], series.times.tolist())
        np.testing.assert_array_equal(series.rates, 2)
        self.assertEqual(rate_series.Refused(negative=1), series.refused)

    def test_rates_with_a_missing_column_are_missing(self):
        series = series_of([counters.from_rates(
            np.array([0, 1]), [[1, 1, 0], [1, NAN, 0]])])
        self.assertEqual([0], series.times.tolist())
        self.assertEqual(rate_series.Refused(missing=1), series.refused)


class BrokenInterfaceTest(unittest.TestCase):
    """What an interface that cannot be used does to the others."""

    BUSY = 2e6

    def setUp(self):
        super().setUp()
        self.busy = self.of_rate(self.BUSY)

    def assert_busy(self, broken, count=40):
        series = series_of([self.busy, broken])
        self.assertGreaterEqual(len(series), count)
        self.assertTrue((series.rates[:, 0] >= self.BUSY).all())
        self.assertLessEqual(series.rates[:, 0].max(), 1.1 * self.BUSY)
        return series

    def of_rate(self, rate):
        return counters.from_rates(np.arange(40), np.full((40, 3), rate))

    def test_an_interface_that_counts_down_hides_nothing(self):
        series = self.assert_busy(from_counters(
            [readings(1e9 - np.arange(41) * 10.)]))
        self.assertTrue(series.partial[:39].all())

    def test_an_interface_of_absurd_rates_hides_and_raises_nothing(self):
        for rate in (1e308, np.inf, 9e9, -.9999 * self.BUSY):
            self.assert_busy(self.of_rate(rate))

    def test_an_interface_that_comes_and_goes_hides_nothing(self):
        for every in (2, 3, 4, 7):
            self.assert_busy(from_counters([readings(
                [NAN if at % every else 10. * at for at in range(41)])]))

    def test_one_without_a_direction_counts_with_the_other(self):
        rates = np.full((40, 3), self.BUSY / 20)
        rates[:, 1:] = np.nan
        series = self.assert_busy(counters.from_rates(np.arange(40), rates))
        np.testing.assert_allclose(series.rates[:, 0], 1.05 * self.BUSY)
        np.testing.assert_allclose(series.rates[:, 1], self.BUSY)
        self.assertTrue(series.partial.all())

    def test_a_busy_one_that_is_silent_is_never_taken_as_nothing(self):
        silent = np.array([4, 5, 11, 20, 30])
        low = self.of_rate(1.0)
        broken = counters.from_rates(np.setdiff1d(np.arange(40), silent),
                                     np.full((35, 3), self.BUSY))
        series = series_of([low, broken])
        self.assertFalse(np.isin(series.times, 10. * silent).any())
        self.assertEqual((35, 5), (len(series), series.refused.missing))

    def test_its_cost_is_that_of_its_samples(self):
        odd = from_counters([counters.Readings(
            np.array([0, 1, 5_900_000, 5_900_001.])[:, None] * [10., 10.],
            np.array([0, 1, 2, 3.])[:, None] * [1., 1.])])
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for _ in range(3):
            series_of([self.busy, odd])
        _, peak = tracemalloc.get_traced_memory()
        # An array of all periods in between takes 47 MB.
        self.assertLess(peak, 5e6)


class PiecesTest(unittest.TestCase):

    def test_reading_in_pieces_gives_what_one_reading_gives(self):
        random = np.random.default_rng(4)
        for _ in range(50):
            links = []
            for _ in range(int(random.integers(1, 4))):
                counts = np.cumsum(random.integers(0, 100, 40)).astype(float)
                counts[random.random(40) < .15] = NAN
                reset = int(random.integers(1, 40))
                counts[reset:] -= counts[reset] - random.integers(0, 5)
                links.append(counts)
            at_once = series_of([from_counters([readings(counts)])
                                 for counts in links])
            if not len(at_once):
                continue
            cut_at = at_once.times[len(at_once) // 2]
            period = int(cut_at // 10)
            # What a driver reads: back to the grace, and one to close.
            begin = max(0, period + 1 - counters.GRACE_PERIODS)

            def between(low, high, **expected):
                return series_of([from_counters([readings(
                    counts[low:high], first=low)]) for counts in links],
                    **expected)

            first = between(0, period + 2, end=cut_at + 1)
            second = between(begin, 40, start=np.nextafter(cut_at, np.inf))
            np.testing.assert_array_equal(
                at_once.times, np.concatenate([first.times, second.times]))
            np.testing.assert_array_equal(
                at_once.rates, np.concatenate([first.rates, second.rates]))
