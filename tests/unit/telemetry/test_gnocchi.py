# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import sys
from unittest import mock

import ddt
import fixtures
import numpy as np
import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_simulator as simulator
from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import clock as fake_clock
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import gnocchi
from vswitch_aware_scheduler.traffic import series as rate_series

TRAFFIC = telemetry_driver.sample_traffic()
INTERFACES = telemetry_counters.interfaces(TRAFFIC)
BUSY = telemetry_counters.instance_uuid(telemetry_driver.BUSY)
T0 = float(TRAFFIC.t0)


class GnocchiTestCase(testtools.TestCase):

    def make(self, interfaces=INTERFACES, methods=('mean', 'rate:mean'),
             now=float(TRAFFIC.times[-1]) + 7200, granularity=300,
             **options):
        self.server = self.useFixture(stand_ins.Gnocchi(
            interfaces, methods, granularity=granularity))
        return gnocchi.GnocchiDriver(
            telemetry_services.access(self.server.url),
            clock=fake_clock.Clock(now), **options)

    def paths(self):
        return [path for _, path, _, _ in self.server.requests]

    def resource(self, number=telemetry_driver.BUSY, device=0):
        """Return the id of an interface."""
        return next(
            resource for resource, interface in self.server.interfaces.items()
            if (interface.number, interface.device) == (number, device))


def rates(driver, **wanted):
    """Return {uuid: rates} of what a driver delivers."""
    return {series.instance_uuid: series.rates.tolist()
            for series in driver.series(**wanted)}


class ReadingTest(GnocchiTestCase):

    def test_rate_mean_is_divided_by_the_time_between_measures(self):
        # Polled every 60 s, kept every 300 s.
        times = 1375308000. + 60 * np.arange(50)
        counters = np.tile((1250. * 60 * np.arange(50))[:, None], (1, 4))
        interface = dataclasses.replace(INTERFACES[0], times=times,
                                        counters=counters)
        for options, factor in (({'interval_seconds': 60}, 1),
                                ({'aggregation': 'last'}, 1), ({}, .2)):
            with self.subTest(options):
                driver = self.make([interface], ('last', 'mean', 'rate:mean'),
                                   **options)
                series, = driver.series()
                np.testing.assert_allclose(series.rates[1:, 0], 10 * factor)

    def test_an_instance_has_ended_with_the_last_of_its_interfaces(self):
        driver = self.make()
        mine = [resource
                for resource, interface in self.server.interfaces.items()
                if interface.number == telemetry_driver.BUSY]
        self.assertGreater(len(mine), 1)

        def ended():
            return {interface.uuid: interface.metadata['ended_at']
                    for interface in driver.instances()
                    if 'ended_at' in interface.metadata}

        self.assertEqual({}, ended())
        self.server.ended[mine[0]] = '2013-08-01T12:00:00.5+00:00'
        self.assertEqual({}, ended())
        for resource in mine[1:]:
            self.server.ended[resource] = '2013-08-01T10:00:00'
        self.assertEqual({BUSY: 1375358400.5}, ended())
        for value in ('soon', 5, ''):
            self.server.ended[mine[0]] = value
            self.assertEqual({}, ended())

    def test_packets_count_where_both_directions_are_counted(self):
        driver = self.make(methods=('last',))
        for removed in ('network.incoming.packets',
                        'network.outgoing.packets'):
            for metrics in self.server.metrics.values():
                del metrics[removed]
            series, = driver.series(instances=[BUSY])
            self.assertEqual(576, len(series))
            self.assertFalse(series.rates[:, 2].any())
            self.assertTrue(series.rates[:, 1].any())

    def test_an_interface_without_an_answer_gives_a_lower_bound(self):
        driver = self.make(methods=('last',))
        resource = self.resource(device=1)

        def without(answer):
            for group in answer:
                group['measures']['measures'].pop(resource, None)
            return answer

        def unanswered():
            list(driver.series(instances=[BUSY]))
            queries = len(self.server.requests) - 1
            self.server.faults[:] = [None] * queries + [
                stand_ins.changed(without)]

        def without_one_direction():
            del self.server.metrics[resource]['network.incoming.bytes']

        _, all_rates = TRAFFIC.expected(telemetry_driver.BUSY, True)
        # Of two interfaces one is known, or its egress alone.
        for change, share in ((unanswered, [.5, .5, .5]),
                              (without_one_direction, [1, .5, .5])):
            with self.subTest(change.__name__):
                change()
                series, = driver.series(instances=[BUSY])
                self.assertEqual((576, True),
                                 (len(series), series.partial.all()))
                np.testing.assert_allclose(series.rates, all_rates * share)
                self.assertEqual(rate_series.Refused(missing=576),
                                 series.at_least().refused)

    def test_an_interface_that_was_never_measured_changes_nothing(self):
        driver = self.make(methods=('last',))
        good, = driver.series(instances=[BUSY])
        interface = dataclasses.replace(INTERFACES[0], device=7)
        self.server.interfaces[
            '11111111-1111-1111-1111-111111111111'] = interface
        for listed in (self.server.metrics, self.server.methods):
            listed['11111111-1111-1111-1111-111111111111'] = {}
        series, = driver.series(instances=[BUSY])
        np.testing.assert_array_equal(good.rates, series.rates)

    def test_interfaces_of_other_policies_are_read_their_own_way(self):
        driver = self.make(methods=('last',))
        good = rates(driver)
        for number, resource in enumerate(sorted(self.server.methods)):
            self.server.methods[resource] = [
                ['mean'], ['max', 'count'], ['last']][number % 3]
        self.assertEqual(good, rates(driver))

    def test_what_no_policy_has_is_reported(self):
        for options, parts in (
                ({'period_seconds': 60},
                 ('at granularity 60 s', 'policy has 300')),
                ({'aggregation': 'max'},
                 ('no max aggregation', 'mean, rate:mean'))):
            driver = self.make(**options)
            error = self.assertRaises(exceptions.TelemetryError,
                                      lambda: list(driver.series()))
            for part in parts:
                self.assertIn(part, str(error))

    def test_one_interface_of_another_policy_is_a_warning(self):
        log = self.useFixture(fixtures.FakeLogger())
        driver = self.make()
        resource = sorted(self.server.methods)[0]
        self.server.methods[resource] = ['count']
        self.assertEqual(5, len(rates(driver)))
        self.assertIn('1 of 6 interfaces', log.output)

    def test_points_that_make_no_sense_cost_themselves(self):
        driver = self.make()
        good = rates(driver)
        queries = len(self.server.requests) - 1
        resource = self.resource(telemetry_driver.SILENT)

        def spoilt(change):
            def spoil(answer):
                for group in answer:
                    metrics = group['measures']['measures'].get(resource)
                    if metrics is not None:
                        change(metrics['network.incoming.bytes']['rate:mean'])
                return answer
            return stand_ins.changed(spoil)

        def last_one(at, value):
            def change(points):
                points[-1][at] = value
            return spoilt(change)

        # Of the other points nothing is lost.
        silent = good.pop(INTERFACES[2].instance_uuid)
        for fault, lost in (
                (last_one(0, 'noon'), 1),
                (last_one(0, '2013-08-01T00:00:00+02:00'), 1),
                (last_one(0, '9013-08-01T00:00:00+00:00'), 1),
                (last_one(0, None), 1), (last_one(1, 60.0), 1),
                (last_one(2, 'much'), 1), (last_one(2, {}), 1),
                (spoilt(lambda points: points.reverse()), 0),
                (spoilt(lambda points: points.append([1, 2])), 0),
                (spoilt(lambda points: points.append(None)), 0)):
            # Of two requests for measures one has the interface.
            self.server.faults[:] = [None] * (queries - 1) + [fault] * 2
            read = rates(driver)
            self.assertEqual([], self.server.faults)
            self.assertEqual(
                len(silent) - lost,
                len(read.pop(INTERFACES[2].instance_uuid)))
            self.assertEqual(good, read)

    def test_a_page_that_comes_again_is_reported(self):
        driver = self.make()
        self.server._page = lambda parameters, items: items
        error = self.assertRaises(exceptions.TelemetryError,
                                  driver.instances)
        self.assertIn('the same page', str(error))

    def test_resources_that_have_gone_meanwhile_have_no_samples(self):
        driver = self.make()
        iterator = driver.series(instances=[BUSY])
        real = self.server.answer

        def answer(method, path, parameters, body):
            if path == '/v1/aggregates':
                self.server.interfaces.clear()
            return real(method, path, parameters, body)

        self.server.answer = answer
        series, = iterator
        self.assertEqual(0, len(series))

    def test_what_is_too_old_is_reported(self):
        now = float(TRAFFIC.times[-1]) + 7200
        driver = self.make(methods=('last',), max_age_seconds=now
                           - float(TRAFFIC.times[100]))
        series, = driver.series(instances=[BUSY])
        self.assertEqual(rate_series.Refused(too_old=100), series.refused)

    def test_what_may_still_change_is_not_read(self):
        # The reading that closes period 10 is in period 11.
        end = float(TRAFFIC.times[12])
        for now, count in ((end + 119, 10), (end + 120, 11)):
            driver = self.make(methods=('last',), now=now)
            series, = driver.series(instances=[BUSY])
            self.assertEqual(count, len(series))

    def test_a_clock_that_is_behind_reads_nothing_and_does_not_fail(self):
        driver = self.make(now=1000.0)
        for series in driver.series():
            self.assertEqual((0, 0), (len(series), series.refused.total))


class ReplacedPortsTest(GnocchiTestCase):
    """An instance with an idle port, and ports that are replaced."""

    POLLS = np.arange(0, 36000, 300.0) + 60

    def _interfaces(self, polls_of_port):
        """Return the idle interface, and the others, one after the other.

        The ports are replaced half a period before a poll.
        """
        def interface(device, times, per_second):
            return telemetry_counters.Interface(
                0, device, times, np.outer(
                    (times - times[0] + 150) * per_second, np.ones(4)),
                times[:0], np.empty((0, 4)))

        return [interface(0, self.POLLS, 0.0)] + [
            interface(number + 1, times, 2.5e8)
            for number, times in enumerate(np.split(
                self.POLLS[10:], range(
                    polls_of_port, self.POLLS.size - 10, polls_of_port)))]

    def drivers(self, polls):
        """Yield a driver of each method for ports of so many polls."""
        for methods in (('mean', 'rate:mean'), ('last',)):
            yield self.make(self._interfaces(polls), methods,
                            now=float(self.POLLS[-1]) + 7200)

    def test_they_hide_no_traffic(self):
        for polls in (1, 2, 3, 4, 6):
            for driver in self.drivers(polls):
                series, = driver.series()
                kbps = series.rates[:, 0]
                replacing = (series.times >= 3300) & (
                    series.times < self.POLLS[-1] - 900)
                self.assertTrue(replacing.any())
                self.assertTrue((kbps[replacing & series.whole]
                                 > 1.9e6).all(), (polls, kbps))
                # Until the first one, the idle port is the whole traffic.
                self.assertFalse(kbps[series.times < 2700].any())
                self.assertTrue(series.whole[series.times < 2700].all())
                # A lower bound below a prior does not count.
                learned = series.at_least(1e5)
                self.assertTrue((learned.rates[learned.times >= 3300, 0]
                                 > 1e6).all())
                self.assertGreater(learned.refused.missing, 0)

    def test_without_another_port_the_traffic_is_unknown(self):
        for driver in self.drivers(1):
            idle = next(iter(self.server.interfaces.values()))
            idle.times, idle.counters = idle.times[:10], idle.counters[:10]
            series, = driver.series(2400)
            self.assertFalse(series.whole[series.times >= 3300].any())
            self.assertGreater(series.at_least(1e5).refused.missing, 100)

    def test_read_in_pieces_they_hide_no_traffic_either(self):
        for driver in self.drivers(2):
            for start in np.arange(3300, 33000, 300.0):
                series, = driver.series(start, start + 1500)
                self.assertTrue((series.rates[series.whole, 0]
                                 > 1.9e6).all(), start)


class CreatorsTest(GnocchiTestCase):
    """Every user of a cloud may create resources by Gnocchi's defaults."""

    def setUp(self):
        super().setUp()
        fake = dataclasses.replace(INTERFACES[0], device=8)
        invented = [dataclasses.replace(INTERFACES[2], number=number)
                    for number in range(100, 125)]
        self.driver = self.make([*INTERFACES, fake, *invented],
                                methods=('last',))
        for resource, interface in self.server.interfaces.items():
            if interface.number >= 100 or interface.device == 8:
                self.server.creators[resource] = 'mallory:tenant'
        self.access = self.driver._access

    def trusting(self, auth=None, **options):
        return gnocchi.GnocchiDriver(
            dataclasses.replace(self.access, auth=auth),
            clock=self.driver._clock, **options)

    def assert_protected(self, driver):
        uuids = {instance.uuid for instance in driver.instances()}
        self.assertEqual({instance.instance_uuid for instance in INTERFACES},
                         uuids)
        self.assertEqual({'creator: mallory:tenant': 26}, driver.ignored)
        good = rates(self.make(methods=('last',)))
        for selection in (None,
                          uuids | {telemetry_counters.instance_uuid(110)}):
            self.assertEqual(good, rates(driver, instances=selection))

    def test_resources_of_others_are_ignored_and_counted(self):
        fakes = {resource for resource, creator
                 in self.server.creators.items()
                 if creator == 'mallory:tenant'}
        server = self.server
        for trusted in ('service', 'ceilometer', 'ceilometer:service'):
            self.assert_protected(self.trusting(trusted_creators=[trusted]))
        # No sample of the others is asked for.
        asked = [set(json.loads(body)['search']['in']['id'])
                 for _, path, _, body in server.requests
                 if path == '/v1/aggregates']
        self.assertTrue(asked)
        self.assertFalse(fakes & set.union(*asked))

    def test_the_default_is_the_user_of_basic_authentication(self):
        for resource, creator in self.server.creators.items():
            if creator == 'ceilometer:service':
                self.server.creators[resource] = 'admin'
        self.server.creators.default_factory = lambda: 'admin'
        self.assert_protected(self.trusting(auth={
            'auth_type': 'gnocchi-basic', 'user': 'admin',
            'endpoint': self.access.url}))

    def test_the_default_is_the_project_of_keystone(self):
        self.useFixture(fixtures.MonkeyPatch(
            'keystoneauth1.token_endpoint.Token.get_project_id',
            lambda *_, **__: 'service'))
        self.assert_protected(self.trusting(auth={
            'auth_type': 'admin_token', 'token': 'abc',
            'endpoint': self.access.url}))

    def test_without_authentication_everybody_counts(self):
        self.assertEqual(30, len(self.driver.instances()))
        self.assertEqual({}, self.driver.ignored)

    def test_many_metrics_of_a_resource_cost_no_other_one(self):
        good = rates(self.driver)
        for metrics in list(self.server.metrics.values())[:4]:
            metrics.update({f'metric {number}': '0' * 36
                            for number in range(3000)})
        driver = self.trusting()
        driver._access = dataclasses.replace(self.access,
                                             max_answer_mib=.3)
        self.assertEqual(good, rates(driver))


class PollsTest(GnocchiTestCase):
    """What passes of a modeler read of polls that change their place."""

    def read(self, traffic, method, polled, **options):
        """Return the times and the rates that are read in a day."""
        counters = traffic.volume(polled)[:, None] * np.array(
            [1, .5, .001, .0005])
        interface = dataclasses.replace(INTERFACES[0], times=polled,
                                        counters=counters)
        driver = self.make([interface], (method,), **options)
        times, rates, start = [], [], simulator.T0
        for hours in (5, 11, 24):
            driver._clock = fake_clock.Clock(
                simulator.T0 + hours * 3600.0)
            series, = driver.series(start=start)
            times.extend(series.times)
            rates.extend(series.rates[:, 0])
            if len(series):
                start = np.nextafter(series.times[-1], np.inf)
        return np.array(times), np.array(rates)

    def polls(self, every=300.0, jitter=0.0, phase=0.0, left_out=()):
        polled = simulator.T0 + np.arange(phase, 86400, every)
        polled = polled + np.random.default_rng(3).uniform(
            -jitter, jitter, polled.size)
        return np.delete(np.sort(polled), left_out)

    def check(self, method, polled, peak=0.05, **options):
        steady = simulator.Traffic(1e6)
        times, rates = self.read(steady, method, polled, **options)
        self.assertGreater(times.size, 230)
        self.assertAlmostEqual(1.0, rates.mean() / 1e6, delta=0.01)
        self.assertAlmostEqual(1.0, rates.max() / 1e6, delta=peak)

    def test_a_steady_rate_is_that_rate_whenever_it_is_polled(self):
        for polls, methods, options in (
                # In one period in twos.
                ({'jitter': 2}, gnocchi.AGGREGATIONS, {}),
                # Late now and then.
                ({'jitter': 2, 'phase': 1.8}, gnocchi.AGGREGATIONS, {}),
                ({'phase': 90, 'left_out': [40, 170]},
                 gnocchi.AGGREGATIONS, {}),
                ({'every': 60, 'jitter': 2}, gnocchi.AGGREGATIONS,
                 {'interval_seconds': 60}),
                # They drift.
                *(({'every': every, 'phase': 150},
                   ('rate:mean', 'last', 'mean', 'min'), {})
                  for every in (299.25, 300.75))):
            for method in methods:
                with self.subTest(method, **polls):
                    self.check(method, self.polls(**polls), **options)

    def test_the_volume_of_bursts_is_kept(self):
        # On for 15 minutes of each three hours.
        bursts = simulator.Traffic(1e6, 900.0, 10800.0,
                                   simulator.T0 + 4137.0 - 864000.0)
        for method in ('last', 'max', 'mean', 'min'):
            with self.subTest(method):
                times, rates = self.read(bursts, method,
                                         self.polls(jitter=2))
                true = sum(bursts.mean_kbps(begin, begin + 300)
                           for begin in times)
                self.assertAlmostEqual(1.0, rates.sum() / true, delta=0.01)
                self.assertLess(0.6e6, rates.max())
                self.assertLess(rates.max(), 1.05e6)


class RequestsTest(GnocchiTestCase):

    def test_many_interfaces_are_asked_for_in_one_request(self):
        driver = self.make()
        list(driver.series(start=float(TRAFFIC.times[-5])))
        # Two more compare the interval of polls in ten interfaces.
        self.assertEqual(3, self.paths().count('/v1/aggregates'))

    def test_only_what_is_new_is_asked_for(self):
        driver = self.make()
        start = np.nextafter(TRAFFIC.times[-4], np.inf)
        series, = driver.series(start=start, instances=[BUSY])
        np.testing.assert_array_equal(TRAFFIC.times[-3:], series.times)
        parameters = self.server.requests[-1][2]
        start_asked = stand_ins._seconds(parameters['start'][0])
        self.assertEqual(TRAFFIC.times[-3] - 900, start_asked)

    def test_few_instances_are_asked_for_by_name(self):
        driver = self.make()
        list(driver.series(instances=[BUSY]))
        self.assertEqual({'in': {'instance_id': [BUSY]}},
                         json.loads(self.server.requests[0][3]))

    def test_of_many_instances_the_metrics_are_listed(self):
        uuids = [telemetry_counters.instance_uuid(number)
                 for number in TRAFFIC.numbers]
        # Whether all are wanted, however few there are, or many.
        for selection, most in ((None, 200), (uuids, 3)):
            self.useFixture(fixtures.MonkeyPatch(
                'vswitch_aware_scheduler.telemetry.gnocchi._FEW', most))
            driver = self.make()
            self.assertEqual(5, len(list(driver.series(instances=selection))))
            self.assertIn('/v1/metric', self.paths())
            self.assertFalse([path for path in self.paths()
                              if path.startswith('/v1/resource/')])

    def test_a_long_time_is_read_in_pieces(self):
        driver = self.make(methods=('last',))
        at_once = [series.rates for series in driver.series(
            start=float(TRAFFIC.times[0]))]
        self.useFixture(fixtures.MonkeyPatch(
            'vswitch_aware_scheduler.telemetry.gnocchi'
            '._MAX_POINTS_OF_METRIC', 100))
        driver = self.make(methods=('last',))
        # Also where no start is given, and the policy bounds the time.
        for start in (float(TRAFFIC.times[0]), None):
            pieces = [series.rates for series in driver.series(start=start)]
            for series, piece in zip(at_once, pieces, strict=True):
                np.testing.assert_array_equal(series, piece)
        self.assertLess(6, self.paths().count('/v1/aggregates'))


class OptionsTest(testtools.TestCase):

    def test_unusable_options_are_refused(self):
        for wrong in ({'interval_seconds': 0}, {'interval_seconds': -1},
                      {'aggregation': 'sum'}, {'points_per_request': 0},
                      {'points_per_request': 1.5},
                      {'trusted_creators': 'admin'}):
            error = self.assertRaises(
                exceptions.InvalidInput, gnocchi.GnocchiDriver,
                {'url': 'http://a'}, **wrong)
            self.assertRegex(str(error), 'expected')

    def test_a_missing_client_library_names_the_extra(self):
        driver = gnocchi.GnocchiDriver({'url': 'http://a'})
        with mock.patch.dict(sys.modules, {'gnocchiclient': None}):
            error = self.assertRaises(exceptions.TelemetryError,
                                      driver.instances)
        self.assertIn('extra "gnocchi"', str(error))


@ddt.ddt
class IntervalTest(GnocchiTestCase):
    """Polls whose interval is not the granularity of the archive policy."""

    @ddt.data((600, 300), (900, 300), (60, 300), (30, 300), (300, 300),
              (300, 3600))
    @ddt.unpack
    def test_rates_are_right_at_any_interval_of_polls(self, polls, period):
        times = T0 + polls * np.arange(60 * max(period, polls) // polls)
        count = np.outer(times - T0, [1000., 2000.] * 2)
        interfaces = [dataclasses.replace(
            INTERFACES[0], number=number, times=times, counters=count)
            for number in range(3)]
        for options in ({}, {'interval_seconds': polls}):
            driver = self.make(interfaces, ('mean', 'rate:mean'),
                               float(times[-1]) + 7200, period,
                               period_seconds=period, **options)
            for series in driver.series():
                # Except at the ends, every period has its rate.
                self.assertGreater(len(series), 45)
                np.testing.assert_allclose(
                    series.rates[:, :2],
                    np.tile([8.0, 16.0], (len(series), 1)), rtol=.01)
            self.assertEqual(polls, driver.facts()['update_seconds'])
