# SPDX-License-Identifier: Apache-2.0
"""The suite that every telemetry driver passes.

A test case of a driver is :class:`DriverContract` beside a TestCase. It says
how to bring :class:`Traffic` into a source and what driver reads it; what has
to come out is computed here, from the traffic alone.
"""

import dataclasses
import itertools
import math
import pickle

import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import base
from vswitch_aware_scheduler.traffic import series as rate_series


@dataclasses.dataclass
class Traffic:
    """Synthetic traffic: rows are VMs 1..n, columns sampling periods.

    Rates are multiples of 1/16 KB/s below 2**20, which every format carries
    exactly; NaN: the source has no value for that sample.
    """

    t0: int
    period_seconds: int
    egress_kbps: np.ndarray
    ingress_kbps: np.ndarray
    kpps: np.ndarray

    @property
    def numbers(self):
        return list(range(1, len(self.egress_kbps) + 1))

    @property
    def times(self):
        return self.t0 + self.period_seconds * np.arange(
            self.egress_kbps.shape[1])

    def expected(self, number, counts_packets):
        """Return times and rates of the usable samples of a VM."""
        rates = np.stack([self.egress_kbps[number - 1],
                          self.ingress_kbps[number - 1],
                          self.kpps[number - 1] * counts_packets], axis=1)
        with np.errstate(invalid='ignore'):
            usable = (rates >= 0).all(axis=1)
            usable &= (rates <= rate_series.MAX_RATE_KBPS).all(axis=1)
        return self.times[usable], rates[usable]


#: VMs of :func:`sample_traffic` that are worth a name.
BUSY, SILENT, WITHOUT_SAMPLE, WITH_GAP, WITH_NONSENSE = 1, 2, 3, 4, 5


def sample_traffic():
    """Return two days of five VMs, each with its peculiarity."""
    random = np.random.default_rng(20130801)
    shape = (5, 576)
    # 1/2 kbit/s is 1/16 KB/s.
    egress, ingress = random.integers(0, 2 ** 20, size=(2, *shape)) / 2
    kpps = random.integers(0, 2 ** 16, size=shape) / 16
    for rates in (egress, ingress, kpps):
        rates[SILENT - 1] = 0
        rates[WITHOUT_SAMPLE - 1] = np.nan
        rates[WITH_GAP - 1, 100:140] = np.nan
    egress[WITH_NONSENSE - 1, 7] = -8
    # Above any port, and not so large that the sum of a counter loses the
    # last of its digits.
    egress[WITH_NONSENSE - 1, 9] = 2.0 ** 34
    ingress[WITH_NONSENSE - 1, 11] = -8
    return Traffic(1375308000, 300, egress, ingress, kpps)


class DriverContract:
    """Mixed into a TestCase, which provides what raises here."""

    #: Whether the source holds packet rates.
    counts_packets = False

    #: Whether the source tells of a sample that it has no value for it.
    tells_missing = True

    #: Sampling period of a driver before it has asked its source.
    period_before = None

    #: What a stretch without samples between others counts as, if at all.
    gap_reason = 'missing'

    #: What a rate below zero counts as: of a counter, that it was reset.
    negative_reason = 'negative'

    def driver(self, traffic):
        """Bring the traffic into a source, return a new driver on it."""
        raise NotImplementedError

    def driver_without_source(self):
        """Return a driver whose source is not there."""
        raise NotImplementedError

    def uuid(self, number):
        """Return the uuid that the driver gives to a VM."""
        raise NotImplementedError

    def setUp(self):
        super().setUp()
        self.traffic = sample_traffic()

    def _all(self, **arguments):
        return list(self.driver(self.traffic).series(**arguments))

    def _one(self, number, **arguments):
        series, = self._all(instances=[self.uuid(number)], **arguments)
        return series

    def test_every_usable_sample_is_delivered_and_no_other(self):
        delivered = {series.instance_uuid: series for series in self._all()}
        self.assertEqual({self.uuid(n) for n in self.traffic.numbers},
                         set(delivered))
        for number in self.traffic.numbers:
            times, rates = self.traffic.expected(number, self.counts_packets)
            # Without lower bounds: what one direction alone says.
            series = delivered[self.uuid(number)].at_least()
            np.testing.assert_array_equal(times, series.times)
            np.testing.assert_allclose(series.rates, rates, rtol=1e-12)
            self.assertEqual(300.0, series.period_seconds)

    def test_samples_without_a_value_are_counted(self):
        if self.tells_missing:
            self.assertEqual(576, self._one(WITHOUT_SAMPLE).refused.missing)

    def test_missing_samples_are_a_gap_not_silence(self):
        series = self._one(WITH_GAP)
        self.assertEqual(1, (~series.follows[1:]).sum())
        if self.gap_reason:
            self.assertEqual(40, getattr(series.refused, self.gap_reason))
            self.assertEqual(40, series.refused.total)

    def test_nonsense_is_refused_by_reason(self):
        refused = self._one(WITH_NONSENSE).refused
        self.assertEqual(3, refused.total)
        self.assertEqual((2, 1), (getattr(refused, self.negative_reason),
                                  refused.absurd))

    def test_start_is_included_and_end_is_not(self):
        times = self.traffic.times
        series = self._one(BUSY, start=times[10], end=times[20])
        np.testing.assert_array_equal(times[10:20], series.times)

    def test_refused_samples_outside_the_time_wanted_are_not_counted(self):
        times = self.traffic.times
        series = self._one(WITH_NONSENSE, start=times[8], end=times[11])
        self.assertEqual(rate_series.Refused(absurd=1), series.refused)

    def test_a_time_without_samples_gives_empty_series(self):
        after = float(self.traffic.times[-1]) + 300
        for arguments in ({'start': after}, {'end': self.traffic.t0},
                          {'start': after, 'end': self.traffic.t0},
                          {'start': math.inf}, {'end': -math.inf}):
            series = self._all(**arguments)
            self.assertEqual(5, len(series))
            self.assertEqual([0] * 5, [len(rates) for rates in series])
            self.assertEqual([0] * 5,
                             [rates.refused.total for rates in series])

    def test_resuming_after_the_last_sample_gives_the_rest(self):
        for whole in self._all():
            if not len(whole):
                continue
            cut = float(whole.times[len(whole) // 3])
            after = math.nextafter(cut, math.inf)
            uuids = [whole.instance_uuid]
            first, = self._all(end=after, instances=uuids)
            second, = self._all(start=after, instances=uuids)
            self.assertEqual(cut, first.times[-1])
            np.testing.assert_array_equal(
                whole.times, np.concatenate([first.times, second.times]))
            np.testing.assert_array_equal(
                whole.rates, np.concatenate([first.rates, second.rates]))
            self.assertEqual(whole.refused, first.refused + second.refused)
            self.assertEqual(whole.period_seconds, second.period_seconds)

    def test_instances_are_those_of_the_series_in_their_order(self):
        driver = self.driver(self.traffic)
        instances = driver.instances()
        self.assertEqual([series.instance_uuid for series in driver.series()],
                         [instance.uuid for instance in instances])
        self.assertEqual(len(instances),
                         len({instance.uuid for instance in instances}))
        for instance in instances:
            self.assertIsInstance(instance, base.Instance)
            self.assertTrue(instance.name)
            self.assertTrue(instance.name.isprintable())
        self.assertEqual({}, dict(driver.ignored))

    def test_only_the_instances_wanted_are_delivered(self):
        uuids = {self.uuid(SILENT), self.uuid(BUSY)}
        for collection in (uuids, list(uuids),
                           [uuid.upper() for uuid in uuids],
                           [uuid.replace('-', '') for uuid in uuids]):
            self.assertEqual(
                uuids, {series.instance_uuid for series
                        in self._all(instances=collection)})

    def test_unknown_and_no_instances_have_no_series(self):
        unknown = '11111111-2222-4333-8444-555555555555'
        for instances in ([], [unknown]):
            self.assertEqual([], self._all(instances=instances))
        self.assertEqual(1, len(self._all(
            instances=[unknown, self.uuid(BUSY)])))

    def test_the_series_are_an_iterator_that_can_be_left(self):
        driver = self.driver(self.traffic)
        iterator = driver.series()
        self.assertIs(iterator, iter(iterator))
        first = next(iterator)
        iterator.close()
        self.assertEqual(first.instance_uuid,
                         next(driver.series()).instance_uuid)

    def test_two_readings_do_not_disturb_each_other(self):
        driver = self.driver(self.traffic)
        for first, second in itertools.zip_longest(driver.series(),
                                                   driver.series()):
            self.assertEqual(first.instance_uuid, second.instance_uuid)
            np.testing.assert_array_equal(first.rates, second.rates)

    def test_progress_goes_from_nothing_to_all(self):
        for instances in (None, [self.uuid(BUSY)], []):
            reports = []
            self._all(instances=instances,
                      progress=lambda *report: reports.append(report))
            done = [report[0] for report in reports]
            total = {report[1] for report in reports}
            self.assertEqual(1, len(total))
            self.assertEqual(0, done[0])
            self.assertEqual(sorted(done), done)
            self.assertEqual(total.pop(), done[-1])

    def test_unusable_arguments_are_refused_at_once(self):
        driver = self.driver(self.traffic)
        for arguments in ({'start': math.nan}, {'end': 'tomorrow'},
                          {'instances': self.uuid(BUSY)},
                          {'instances': ['web-1']}, {'instances': [None]}):
            self.assertRaises(exceptions.InvalidInput, driver.series,
                              **arguments)

    def test_any_time_is_what_infinity_means(self):
        series = self._all(start=-math.inf, end=math.inf)
        self.assertEqual([len(rates) for rates in self._all()],
                         [len(rates) for rates in series])

    def test_a_driver_opens_nothing_before_it_is_asked(self):
        driver = self.driver_without_source()
        self.assertTrue(driver.source)
        self.assertEqual(self.period_before, driver.period_seconds)
        iterator = driver.series()
        for ask in (lambda: next(iterator), driver.instances):
            error = self.assertRaises(exceptions.TelemetryError, ask)
            self.assertIn(driver.source, str(error))
            self.assertIn('expected', str(error))

    def test_a_driver_can_be_pickled(self):
        driver = pickle.loads(pickle.dumps(self.driver(self.traffic)))
        self.assertEqual(5, len(list(driver.series())))

    # What a hostile or broken source does to others

    def test_absurd_values_of_an_instance_change_no_other_one(self):
        for value in (1e300, -1e300):
            traffic = sample_traffic()
            traffic.egress_kbps[WITH_NONSENSE - 1, 20:40:2] = value
            traffic.ingress_kbps[WITH_NONSENSE - 1, 30:50:3] = -value
            delivered = {series.instance_uuid: series
                         for series in self.driver(traffic).series()}
            for number in (BUSY, SILENT, WITH_GAP):
                times, rates = traffic.expected(number, self.counts_packets)
                series = delivered[self.uuid(number)]
                np.testing.assert_array_equal(times, series.times)
                np.testing.assert_allclose(series.rates, rates, rtol=1e-12)
            rates = delivered[self.uuid(WITH_NONSENSE)].rates
            self.assertLessEqual(rates.max(initial=0),
                                 rate_series.MAX_RATE_KBPS)
