# SPDX-License-Identifier: Apache-2.0
"""Series that labels do not tell apart, read by the driver."""

import dataclasses

import ddt
import numpy as np
import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_services
from tests.contract import telemetry_simulator as simulator
from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import clock as fake_clock
from vswitch_aware_scheduler.telemetry import joining
from vswitch_aware_scheduler.telemetry import prometheus
from vswitch_aware_scheduler.traffic import series as rate_series

T0 = 1375308000.0
POLLS = 300
#: Bytes per second of each period, without a pause.
RATES = 125e3 * np.random.default_rng(7).integers(1, 9, POLLS)
INTERFACE = telemetry_counters.steady_interfaces(T0)[0]
UUIDS = [telemetry_counters.instance_uuid(number) for number in range(1, 9)]


def volume(times, rates=RATES):
    """Return the volume of a counter at any times."""
    return np.interp(times, T0 + 300. * np.arange(POLLS + 1),
                     np.append(0, np.cumsum(rates * 300.)))


def series_of(times, values=None, number=1, **labels):
    """Return the series of an instance, with further labels."""
    times = np.asarray(times, float)
    values = volume(times) if values is None else values
    return [(name, {**own, **labels}, *data) for name, own, *data
            in stand_ins.ceilometer_series([dataclasses.replace(
                INTERFACE, number=number, times=times,
                counters=np.tile(np.asarray(values, float)[:, None],
                                 (1, 4)))])]


POLLED = T0 + 300. * np.arange(POLLS)


class UsableTest(testtools.TestCase):

    def test_what_is_not_finite_is_no_reading(self):
        times, values = joining.usable(
            [12, 2, 11, np.nan], [1, np.inf, np.nan, 5])
        self.assertEqual(([12], [1]), (times.tolist(), values.tolist()))

    def test_readings_are_put_in_order_and_the_last_of_a_time_counts(self):
        times, values = joining.usable([25, 1, 9, 21, 9], [4, 1, 2, 3, 5])
        self.assertEqual([1, 9, 21, 25], times.tolist())
        self.assertEqual([1, 5, 3, 4], values.tolist())


class SeriesTestCase(testtools.TestCase):

    def make(self, series, now=POLLED[-1] + 7200, hosts=None, **options):
        self.server = self.useFixture(stand_ins.Prometheus(series))
        driver = prometheus.PrometheusDriver(
            telemetry_services.access(self.server.url),
            clock=fake_clock.Clock(now), **options)
        driver.hosts = hosts or {}
        return driver

    def assert_true_rates(self, series, factor=1.0, missing=3, atol=.02):
        """Check that one instance has its true rates, and nearly all."""
        driver = self.make(series)
        read, = driver.series()
        self.assertEqual(rate_series.Refused(), read.refused)
        self.assertIsNone(read.partial)
        self.assertGreaterEqual(len(read), POLLS - missing)
        at = np.round((read.times - T0) / 300).astype(int)
        true = factor * RATES[at] / 125
        np.testing.assert_allclose(read.rates[:, 0], true, rtol=atol)
        return driver


@ddt.ddt
class SameCounterTest(SeriesTestCase):

    @ddt.data(2, 3, 7, POLLS)
    def test_a_label_that_changes_with_each_poll_changes_nothing(
            self, agents):
        self.assert_true_rates([
            series for agent in range(agents) for series in series_of(
                POLLED[agent::agents], publisher=f'agent-{agent}')])

    @ddt.data(1, 2, 3)
    def test_agents_that_repeat_their_own_polls_are_one_counter(self, agents):
        # Each polls in turn, and repeats its last poll at each scrape.
        scrapes = T0 + 60. * np.arange(5 * POLLS)
        series = []
        for agent in range(agents):
            polls = POLLED[agent::agents]
            at = np.searchsorted(polls, scrapes, side='right') - 1
            series += series_of(scrapes[at >= 0],
                                volume(polls[at[at >= 0]]),
                                publisher=f'agent-{agent}')
        read, = self.make(series).series()
        at = np.round((read.times - T0) / 300).astype(int)
        self.assertGreater(len(read), POLLS - 15)
        # When a poll was is known to a scrape.
        np.testing.assert_allclose(
            read.rates[:, 0], RATES[at] / 125, atol=1700)
        self.assertAlmostEqual(1.0, read.rates[:, 0].mean()
                               / RATES[at].mean() * 125, delta=.01)

    @ddt.data(0.5, 1.0, 20.0)
    def test_a_replica_has_what_the_other_one_misses(self, skew):
        inside = np.arange(POLLS)
        for out in (slice(0, 0), slice(100, 136), slice(0, 40),
                    slice(260, 300)):
            one = np.delete(inside, inside[out])
            self.assert_true_rates(
                series_of(POLLED[one], replica='a')
                + series_of(POLLED + skew, volume(POLLED), replica='b'),
                atol=.02 + 8 * skew / 300)

    @ddt.data(0.5, 1.0, 2.0)
    def test_clocks_that_differ_within_a_series_cost_nothing(self, skew):
        times = np.sort(np.append(POLLED, POLLED + skew / 2))
        values = np.repeat(volume(POLLED), 2)
        # What the other one has read before.
        values[1::2] = volume(POLLED - skew)
        self.assert_true_rates(series_of(times, values), atol=.05)

    def test_a_pair_that_changes_over_costs_nothing(self):
        # Thanos or Mimir show one of two replicas at a time, whose clock is
        # behind.
        first = np.arange(POLLS) // 20 % 2 == 0
        late = ~first | np.append(~first[1:], False)
        times = np.concatenate([POLLED[first], POLLED[late] + 1])
        values = np.concatenate([volume(POLLED[first]),
                                 volume(POLLED[late] - 1)])
        order = np.argsort(times, kind='stable')
        self.assert_true_rates(series_of(times[order], values[order]),
                               atol=.07)

    @ddt.data('10.0.{}.1:9101', 'exporter-{}:9101')
    def test_a_pod_that_restarts_is_no_migration(self, name):
        self.assert_true_rates([
            series for number, part in enumerate(np.split(POLLED, 6))
            for series in series_of(part, instance=name.format(number))])

    def test_two_exporters_of_a_host_are_one(self):
        self.assert_true_rates(
            series_of(POLLED, instance='pod-1:9101')
            + series_of(POLLED + 30, volume(POLLED), instance='pod-2:9101'),
            atol=1)


@ddt.ddt
class OtherCounterTest(SeriesTestCase):

    @ddt.data(2, 3)
    def test_interfaces_without_a_label_of_their_own_are_summed(self, count):
        for offset in (0., 5e5, 1e12):
            series = [row for device in range(count) for row in series_of(
                POLLED + device % 2, volume(POLLED) * (1 + device)
                + offset * device, mac=f'fa:16:3e:00:00:0{device}')]
            self.assert_true_rates(series, sum(range(1, count + 1)))

    def test_interfaces_whose_labels_change_stay_apart(self):
        self.assert_true_rates([
            row for device in range(2) for agent in range(3)
            for row in series_of(
                POLLED[agent::3], volume(POLLED)[agent::3] * (1 + device)
                + 1e12 * device, mac=str(device), publisher=str(agent))], 3)

    def test_what_cannot_be_decided_is_named_and_not_learned(self):
        other = volume(POLLED).copy()
        other[POLLS // 2:] *= 3
        driver = self.make(series_of(POLLED, replica='a')
                           + series_of(POLLED, other, replica='b'))
        read, = driver.series()
        self.assertEqual(0, len(read.at_least()))
        reason, = driver.ignored
        self.assertIn(UUIDS[0], reason)

    def test_another_host_is_still_a_migration(self):
        before, after = POLLED[:150], POLLED[150:]
        for offset in (0., 5e12):
            read, = self.make(
                series_of(before) + series_of(
                    after, volume(after) - volume(after[0]) + offset,
                    instance='compute-2:9101')).series()
            self.assertGreater(read.refused.migration, 0)
            self.assertLessEqual(read.rates[:, 0].max(), RATES.max() / 125)


@ddt.ddt
class OutageTest(SeriesTestCase):
    """A gateway repeats the last poll."""

    def series(self, count, until=172, jumps=True, end=POLLS):
        """Return counters that stand still from poll 100 on."""
        series = []
        for number in range(1, count + 1):
            values = volume(POLLED)[:end] * number
            lost = values[until - 1] - values[100] if until <= end else 0
            values[100:until] = values[100]
            if not jumps:
                values[until:] -= lost
            series += series_of(POLLED[:end], values, number)
        return series

    def assert_outage(self, driver):
        for series in driver.series():
            self.assertGreater(series.refused.gap, 60)
            self.assertGreater(len(series), POLLS - 90)
            self.assertGreater(series.rates[:, 0].min(), 0)
            number = UUIDS.index(series.instance_uuid) + 1
            self.assertLess(series.rates[:, 0].max(),
                            1.01 * number * RATES.max() / 125)

    def test_a_source_that_stands_still_is_no_silence(self):
        self.assert_outage(self.make(self.series(5)))

    def assert_silence(self, series):
        for read in self.make(series).series():
            self.assertEqual(rate_series.Refused(), read.refused)
            self.assertEqual(71, (read.rates[:, 0] == 0).sum())

    def assert_nothing_after_the_last_poll(self, series):
        for read in self.make(series).series():
            self.assertGreater(read.rates[:, 0].min(), 0)
            self.assertLessEqual(read.times[-1], POLLED[100])

    def assert_outage_in_passes(self, series, *every):
        for seconds in every:
            for rates in self.read_in_passes(series, seconds).values():
                self.assertGreater(min(rates.values()), 0)
                self.assertGreater(len(rates), POLLS - 95)
                self.assertLess(max(rates.values()),
                                5 * 1.01 * RATES.max() / 125)

    def test_nothing_is_delivered_while_it_stands_still(self):
        self.assert_nothing_after_the_last_poll(self.series(5, POLLS))

    def read_in_passes(self, series, every=3600):
        """Return {uuid: rates by period} as a modeler reads them."""
        server = self.useFixture(simulator.Server(series))
        clock = fake_clock.Clock(0)
        driver = prometheus.PrometheusDriver(
            telemetry_services.access(server.url), clock=clock)
        rates, start = {}, None
        for now in np.arange(POLLED[0] + every, POLLED[-1] + 7200, every):
            clock.now = server.now = now
            newest = start
            for series in driver.series(start):
                known = rates.setdefault(series.instance_uuid, {})
                self.assertFalse(known.keys() & set(series.times))
                known.update(zip(series.times.tolist(),
                                 series.rates[:, 0].tolist()))
                if len(series):
                    newest = np.nextafter(series.times[-1], np.inf)
            start = newest
        return rates

    def test_passes_see_the_outage_as_one_reading_does(self):
        for every in (900, 1500, 5100):
            self.assert_outage_in_passes(self.series(5), every)
            # And the silence.
            for rates in self.read_in_passes(
                    self.series(5, jumps=False), every).values():
                self.assertLessEqual(70, sum(
                    rate == 0 for rate in rates.values()))

    def test_silence_of_all_is_silence_once_they_send_again(self):
        self.assert_silence(self.series(5, jumps=False))

    def small(self, count, hosts=1, **options):
        """Return the counters of :meth:`series`, on hosts of a few each."""
        return [(name, {**labels, 'instance':
                        f'compute-{at // 4 % hosts}:9101'},
                 *data) for at, (name, labels, *data) in enumerate(
            self.series(count, **options))]

    def stamps(self, until, host=0, names=('push_time_seconds',)):
        """Return the times of polls, which stand still from poll 100 on."""
        times = POLLED.copy()
        times[100:until] = times[100]
        return [(name, {'instance': f'compute-{host}:9101'}, POLLED, times)
                for name in names]

    @ddt.data(1, 2)
    def test_a_small_host_that_stands_still_is_no_silence(self, count):
        self.assert_outage(self.make(self.small(count)))
        # Another volume than that of the time before is a burst.
        self.assert_silence(self.small(count, jumps=False))

    def test_small_hosts_that_stand_still_together_are_no_silence(self):
        self.assert_nothing_after_the_last_poll(
            self.small(3, hosts=3, until=POLLS))
        self.assert_outage_in_passes(self.small(3, hosts=3), 1500)

    @ddt.data('push_time_seconds', 'node_textfile_mtime_seconds')
    def test_the_time_of_the_last_poll_tells_an_outage(self, name):
        for every in (900, 5100):
            # The counters stand still, and so does the time of the polls.
            rates, = self.read_in_passes(
                self.small(1) + self.stamps(172, names=[name]), every
            ).values()
            self.assertGreater(min(rates.values()), 0)
            self.assertGreater(len(rates), POLLS - 95)
            self.assertLess(max(rates.values()), 1.01 * RATES.max() / 125)
            # The polls go on: the instance was silent.
            rates, = self.read_in_passes(
                self.small(1, until=POLLS) + self.stamps(0) + [
                    (name, {**labels, 'job': 'of each hour'}, times,
                     values // 3600)
                    for name, labels, times, values in self.stamps(0)],
                every).values()
            self.assertGreater(
                sum(rate == 0 for rate in rates.values()), 180)

    def test_one_that_stands_still_while_others_do_not_is_silent(self):
        quiet = self.series(1, POLLS)
        others = [row for number in (2, 3, 4)
                  for row in series_of(POLLED, number=number)]
        by_uuid = {series.instance_uuid: series
                   for series in self.make(quiet + others).series()}
        self.assertGreater((by_uuid[UUIDS[0]].rates[:, 0] == 0).sum(), 190)


class NamesTest(SeriesTestCase):
    """Two instances have the same name of a domain."""

    def libvirt(self, *parts, host='proxy:9177'):
        """Return series of one domain, whose uuids change.

        :param parts: (number of the instance, times of its identity)
        """
        tap = dataclasses.replace(
            INTERFACE, times=POLLED, counters=np.tile(
                volume(POLLED)[:, None], (1, 4)))
        series = [row for row in stand_ins.libvirt_series([tap])
                  if not row[0].endswith('info')]
        for number, times in parts:
            series += [
                (name, {**labels, 'domain': tap.domain}, *data)
                for name, labels, *data in stand_ins.libvirt_series(
                    [dataclasses.replace(tap, number=number, times=times)])
                if name.endswith('info')]
        return [(name, {**labels, 'instance': host}, *data)
                for name, labels, *data in series]

    def read(self, series, hosts=None):
        self.driver = self.make(series, exporter='libvirt-inovex',
                                hosts=hosts)
        return {one.instance_uuid: one for one in self.driver.series()}

    def test_the_time_tells_a_domain_from_its_predecessor(self):
        for exchanged in (1, 100, 298):
            read = self.read(self.libvirt(
                (1, POLLED[:exchanged]), (2, POLLED[exchanged:])))
            self.assertLessEqual(
                read[UUIDS[0]].times.max(initial=0), POLLED[exchanged])
            self.assertGreaterEqual(
                read[UUIDS[1]].times.min(initial=np.inf),
                POLLED[exchanged] - 300)
            self.assertGreaterEqual(
                sum(map(len, read.values())), POLLS - 4)
            self.assertEqual({}, self.driver.ignored)

    def test_two_at_the_same_time_are_named_and_not_learned(self):
        for hosts in ({}, {UUIDS[0]: 'proxy', UUIDS[1]: 'proxy'},
                      {UUIDS[0]: 'other', UUIDS[1]: 'another'}):
            read = self.read(self.libvirt((1, POLLED), (2, POLLED)), hosts)
            self.assertEqual([0, 0], [len(one) for one in read.values()])
            reason, = self.driver.ignored
            for part in (INTERFACE.domain, *UUIDS[:2]):
                self.assertIn(part, reason)

    def test_the_host_in_nova_decides_between_two(self):
        read = self.read(self.libvirt((1, POLLED), (2, POLLED)), {
            UUIDS[0]: 'elsewhere', UUIDS[1]: 'proxy'})
        self.assertEqual(0, len(read[UUIDS[0]]))
        self.assertGreaterEqual(len(read[UUIDS[1]]), POLLS - 3)
        self.assertEqual({}, self.driver.ignored)
