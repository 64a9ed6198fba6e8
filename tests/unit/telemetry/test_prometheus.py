# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import os

import fixtures
import numpy as np
import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import clock as fake_clock
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import prometheus
from vswitch_aware_scheduler.traffic import series as rate_series

TRAFFIC = telemetry_driver.sample_traffic()
INTERFACES = telemetry_counters.interfaces(TRAFFIC)
BUSY = telemetry_counters.instance_uuid(telemetry_driver.BUSY)
T0 = float(TRAFFIC.t0)


def with_counts(counts, first=0, step=300.0, **more):
    """Return an interface whose counters are equal; NaN: no reading.

    :param first: number of the period of the first reading
    """
    counts = np.asarray(counts, float)
    present = ~np.isnan(counts)
    times = T0 + step * np.arange(first, first + len(counts))
    return dataclasses.replace(
        INTERFACES[0], times=times[present],
        counters=np.tile(counts[present][:, None], (1, 4)), **more)


def moved():
    """Return an instance before and after it moved."""
    return [with_counts(begin + 37500. * np.arange(10), first)
            for first, begin in ((0, 0), (10, 5e9))]


def labelled(*interfaces, **changed):
    """Return series of interfaces with other labels."""
    return [(name, {**labels, **changed}, *data) for name, labels, *data
            in stand_ins.ceilometer_series(interfaces)]


def rates(driver):
    """Return {uuid: rates} of what a driver delivers."""
    return {series.instance_uuid: series.rates.tolist()
            for series in driver.series(start=T0)}


class PrometheusTestCase(testtools.TestCase):

    def make(self, series=None, now=float(TRAFFIC.times[-1]) + 7200,
             server=None, **options):
        self.server = self.useFixture(stand_ins.Prometheus(
            stand_ins.ceilometer_series(INTERFACES)
            if series is None else series, **(server or {})))
        return prometheus.PrometheusDriver(
            telemetry_services.access(self.server.url),
            clock=fake_clock.Clock(now), **options)

    def one(self, counts, step=300.0, **options):
        """Return the series of an instance with equal counters."""
        series, = self.make(stand_ins.ceilometer_series(
            [with_counts(counts, step=step)]), **options).series()
        return series

    def again(self, **access):
        """Return a new driver of the same server."""
        return prometheus.PrometheusDriver(
            telemetry_services.access(self.server.url, **access),
            clock=fake_clock.Clock(float(TRAFFIC.times[-1]) + 7200),
            sleep=lambda seconds: None)

    def requests_before_the_last(self, driver):
        """Read once; return how many requests precede that for samples."""
        self.server.requests.clear()
        list(driver.series(start=T0))
        return len(self.server.requests) - 1


class ReadingTest(PrometheusTestCase):

    def test_recent_instances_are_those_with_series_since(self):
        ended, running = (
            with_counts(np.zeros(10), first, number=number)
            for number, first in ((telemetry_driver.BUSY, 0), (77, 100)))
        foreign = telemetry_counters.instance_uuid(77)
        driver = self.make(stand_ins.ceilometer_series([ended, running]))
        self.assertEqual({BUSY, foreign},
                         {interface.uuid for interface in driver.instances()})
        for since, expected in ((0, {BUSY, foreign}), (2700, {BUSY, foreign}),
                                (2701, {foreign}), (32700, {foreign}),
                                (32701, set()), (1e9, set())):
            self.assertEqual(expected, driver.recent(T0 + since))

    def test_a_scrape_that_failed_is_a_gap_and_not_silence(self):
        series = self.one([0, 37500, np.nan, 112500, 150000])
        self.assertEqual([0, 900], (series.times - T0).tolist())
        np.testing.assert_allclose(series.rates[:, 0], 1.0)
        self.assertEqual(rate_series.Refused(gap=2), series.refused)

    def test_frequent_scrapes_of_rare_polls_give_the_rates_of_polls(self):
        # Scraped every 15 s, polled every 300 s: a staircase.
        true = np.tile([1, 0, 2, 1, 0], 5)
        steps = np.repeat(np.cumsum([0, *(37500 * true)]), 20)
        series = self.one(steps, step=15.0)
        self.assertGreater(len(series), 18)
        # Each poll may have come up to a scrape before its step, so that both
        # ends of a rate of up to 2 are up to a twentieth early or late.
        at = np.round((series.times - T0) / 300).astype(int)
        np.testing.assert_allclose(series.rates[:, 0], true[at], atol=.2)

    def test_frequent_scrapes_of_frequent_counters_keep_the_sum(self):
        counts = np.cumsum(np.random.default_rng(3).integers(0, 1000, 400))
        series = self.one(counts, step=15.0)
        self.assertEqual(19, len(series))
        self.assertAlmostEqual(
            (counts[19 * 20] - counts[0]) / 125,
            (series.rates[:, 0] * 300).sum())

    def test_an_instance_that_moved_is_followed(self):
        source, target = moved()
        joined, = self.make(labelled(source) + labelled(
            target, vm_instance='host-2', instance='compute-2:9101')).series()
        self.assertEqual(rate_series.Refused(migration=1), joined.refused)
        np.testing.assert_allclose(joined.rates[:, 0], 1.0)
        self.assertEqual(18, len(joined))

    def test_a_label_that_says_nothing_of_the_host_changes_nothing(self):
        series = []
        for first, name in ((0, 'web'), (10, 'mail')):
            series += labelled(with_counts(
                37500. * np.arange(first, first + 10), first),
                resource_name=name)
        joined, = self.make(series).series()
        self.assertEqual((19, 0), (len(joined), joined.refused.total))

    def test_interfaces_with_the_uuid_as_resource_are_all_counted(self):
        interface = with_counts(37500. * np.arange(20))
        read, = self.make([
            series for device in ('tap1', 'tap2') for series in labelled(
                interface, resource=interface.instance_uuid,
                device=device)]).series()
        np.testing.assert_allclose(read.rates[:, 0], 2.0)

    def test_an_interface_without_one_counter_gives_a_lower_bound(self):
        series = [row for row in stand_ins.ceilometer_series(INTERFACES)
                  if not (row[0].endswith('incoming_bytes') and
                          row[1]['resource'] == INTERFACES[1].resource)]
        bound, = self.make(series).series(instances=[BUSY])
        self.assertEqual((576, True), (len(bound), bound.partial.all()))
        times, rates = TRAFFIC.expected(telemetry_driver.BUSY, True)
        np.testing.assert_allclose(bound.rates, rates * [1, .5, .5])
        self.assertEqual(rate_series.Refused(missing=576),
                         bound.at_least().refused)

    def test_names_of_domains_that_come_again_are_distinguished_by_host(self):
        # Two cells may count their instances from one on each.
        series = stand_ins.libvirt_series(INTERFACES[:1])
        namesake = dataclasses.replace(INTERFACES[0], number=99)
        series += [(name, {**labels, 'domain': INTERFACES[0].domain,
                           'instance': 'other-cell:9177'}, times,
                    values if name.endswith('info') else values * 2)
                   for name, labels, times, values
                   in stand_ins.libvirt_series([namesake])]
        by_uuid = {read.instance_uuid: read for read in self.make(
            series, exporter='libvirt-inovex').series()}
        np.testing.assert_allclose(
            by_uuid[namesake.instance_uuid].rates, 2 * by_uuid[BUSY].rates)

    def test_answers_of_a_part_only_are_refused(self):
        driver = self.make()
        good = rates(driver)
        for mark in ({'warnings': ['remote read failed']},
                     {'isPartial': True}):
            self.server.marks = mark
            for ask in (driver.instances, lambda: list(driver.series())):
                error = self.assertRaises(exceptions.TelemetryError, ask)
                self.assertIn(str(mark[list(mark)[0]]), str(error))
        # Nothing of it counts as read.
        self.server.marks = {'isPartial': False}
        self.assertEqual(good, rates(driver))

    def test_answers_that_make_no_sense_are_refused(self):
        driver = self.make()
        queries = self.requests_before_the_last(driver)

        def with_data(change):
            def changed(answer):
                change(answer['data'])
                return answer
            return stand_ins.changed(changed)

        for fault in (
                with_data(lambda data: data.update(resultType='vector')),
                with_data(lambda data: data.pop('result')),
                stand_ins.changed(lambda answer: {**answer,
                                                  'status': 'error'})):
            self.server.faults[:] = [None] * queries + [fault] * 2
            error = self.assertRaises(exceptions.TelemetryError,
                                      lambda: list(driver.series(start=T0)))
            self.assertIn('an invalid response', str(error))

    def test_a_sample_that_makes_no_sense_is_no_sample(self):
        driver = self.make()
        good = [(read.times.tolist(), read.rates.tolist(), read.refused)
                for read in driver.series(start=T0)]
        queries = self.requests_before_the_last(driver)
        for sample in ([T0 + 1, 'much'], [T0 + 1, None], [0, '1'],
                       [1e12, '1'], ['noon', '1'], [None, '1'], [T0 + 1],
                       [T0 + 1, '1', '2'], [T0 + 1, ['1']], [T0 + 1, {}],
                       'x', None, {'value': 1}):
            def changed(answer):
                for series in answer['data']['result']:
                    series['values'].insert(1, sample)
                return answer

            self.server.faults[:] = [None] * queries + [
                stand_ins.changed(changed)]
            with self.subTest(sample):
                self.assertEqual(good, [
                    (read.times.tolist(), read.rates.tolist(), read.refused)
                    for read in driver.series(start=T0)])
                self.assertEqual([], self.server.faults)

    def test_a_native_histogram_costs_no_other_series(self):
        driver = self.make()
        good = rates(driver)
        queries = self.requests_before_the_last(driver)

        def changed(answer):
            answer['data']['result'].append({
                'metric': {'resource': INTERFACES[3].resource,
                           'job': 'histogram'},
                'histograms': [[T0, {'count': '1', 'sum': '2',
                                     'buckets': []}]]})
            return answer

        self.server.faults[:] = [None] * queries + [stand_ins.changed(changed)]
        self.assertEqual(good, rates(driver))

    def test_an_answer_too_large_for_us_is_asked_in_parts(self):
        good = rates(self.make())
        driver = self.make()
        sizes = []
        real = self.server.answer

        def answer(method, path, parameters, body):
            reply = real(method, path, parameters, body)
            if path.endswith('/query'):
                sizes.append(len(json.dumps(reply[1])))
            return reply

        self.server.answer = answer
        driver._access = dataclasses.replace(driver._access,
                                             max_answer_mib=20000 / 2 ** 20)
        self.assertEqual(good, rates(driver))
        self.assertLess(20000, max(sizes))

    def test_a_series_that_is_too_large_alone_costs_itself(self):
        log = self.useFixture(fixtures.FakeLogger())
        large = dataclasses.replace(INTERFACES[0], number=77)
        series = [(name, {**labels, 'note': 'x' * 50000}
                   if labels['resource'] == large.resource else labels,
                   *data) for name, labels, *data
                  in stand_ins.ceilometer_series([*INTERFACES, large])]
        good = rates(self.make(series))
        driver = self.make(series)
        # The list of series fits; answers of samples need not.
        self.server.answer = _without_notes(self.server.answer)
        driver._access = dataclasses.replace(driver._access,
                                             max_answer_mib=40000 / 2 ** 20)
        self.server.requests.clear()
        read = rates(driver)
        self.assertEqual([], read.pop(large.instance_uuid))
        good.pop(large.instance_uuid)
        self.assertEqual(good, read)
        self.assertIn('max_answer_mib', log.output)
        # It is found by halves, once, and not in each of 576 periods.
        self.assertLess(len(self.server.requests), 60)

    def test_what_is_too_old_is_not_asked_for(self):
        now = float(TRAFFIC.times[-1]) + 7200
        driver = self.make(max_age_seconds=now - float(TRAFFIC.times[100]))
        series, = driver.series(instances=[BUSY])
        self.assertEqual(TRAFFIC.times[100], series.times[0])

    def test_a_clock_that_is_behind_finds_nothing_and_does_not_fail(self):
        self.assertEqual([], list(self.make(now=1000.0).series()))


def _without_notes(real):
    """Leave the label "note" out of lists of series."""
    def answer(method, path, parameters, body):
        status, answer_body = real(method, path, parameters, body)
        if path.endswith('/series'):
            for labels in answer_body['data']:
                labels.pop('note', None)
        return status, answer_body
    return answer


class HostsTest(PrometheusTestCase):
    """A host speaks for the instances that Nova has on it."""

    def _with_attack(self, host='compute-2:9101', step=-5):
        """Return series of a host that tells of instances of compute-1."""
        lies = [dataclasses.replace(interface, counters=1e12 + step * (
            np.arange(interface.counters.size, dtype=float).reshape(
                interface.counters.shape))) for interface in INTERFACES]
        return labelled(*INTERFACES) + labelled(*lies, instance=host,
                                                vm_instance='host-1')

    def _read(self, driver, hosts):
        driver.hosts = {interface.instance_uuid: hosts
                        for interface in INTERFACES}
        driver.hosts['other'] = 'compute-2.cloud.example'
        return rates(driver)

    def test_what_another_host_reports_changes_nothing(self):
        good = self._read(self.make(), 'compute-1')
        for home in ('compute-1', 'compute-1.cloud.example'):
            for step in (-5, 0, 1e9):
                driver = self.make(self._with_attack(step=step))
                self.assertEqual(good, self._read(driver, home))
                self.assertEqual(['host: compute-2:9101'],
                                 list(driver.ignored))

    def test_hosts_that_are_scraped_by_address_can_be_named(self):
        good = self._read(self.make(), 'compute-1')
        series = [(name, {**labels, 'instance': labels['instance'].replace(
            'compute-1', '10.0.0.1').replace('compute-2', '10.0.0.2')}, *data)
            for name, labels, *data in self._with_attack()]
        self.assertEqual(good, self._read(self.make(series, host_names={
            '10.0.0.1': 'compute-1'}), 'compute-1'))
        # Nobody knows: as without an inventory.
        self.assertNotEqual(good, self._read(self.make(series), 'compute-1'))

    def test_a_host_alone_does_not_speak_for_an_instance_of_another(self):
        driver = self.make(stand_ins.ceilometer_series(INTERFACES))
        driver.hosts = {BUSY: 'compute-2', 'other': 'compute-1'}
        samples = {interface.instance_uuid: len(interface)
                   for interface in driver.series(start=T0)}
        self.assertEqual(0, samples.pop(BUSY))
        self.assertTrue(all(samples[interface.instance_uuid]
                            for interface in INTERFACES[5:]))

    def test_the_time_before_it_moved_counts(self):
        series, expected = self._moved()
        driver, joined = self._read_moved(series)
        self.assertEqual(expected, joined)
        self.assertEqual({}, driver.ignored)

    def test_a_host_that_never_stops_is_not_where_an_instance_was(self):
        series, expected = self._moved()
        for step in (-5, 0, 3e4, 1e9):
            lie = with_counts(7e9 + step * np.arange(20))
            driver, joined = self._read_moved(
                series + labelled(lie, instance='compute-3:9101'))
            self.assertEqual(expected, joined, step)
            self.assertEqual(['host: compute-3:9101'], list(driver.ignored))

    def _moved(self):
        """Return (series, rates) of an instance that moved to compute-2."""
        source, target = moved()
        series = labelled(source, instance='compute-1:9101') + labelled(
            target, instance='compute-2:9101')
        expected, = self.make(series).series()
        return series, expected.rates.tolist()

    def _read_moved(self, series):
        driver = self.make(series)
        driver.hosts = {BUSY: 'compute-2', 'other': 'compute-1',
                        'third': 'compute-3'}
        joined, = driver.series()
        return driver, joined.rates.tolist()

    def test_uuids_that_nova_lacks_choose_no_exporter(self):
        driver = self.make(stand_ins.ceilometer_series(INTERFACES) + [
            ('libvirtd_domain_net_tx_bytes', {
                'uuid': telemetry_counters.instance_uuid(1000 + number),
                'interface': 'tap', 'instance': 'compute-2:9000'},
             TRAFFIC.times, TRAFFIC.times) for number in range(50)],
            exporter=None)
        driver.hosts = {interface.instance_uuid: 'compute-1'
                        for interface in INTERFACES}
        self.assertTrue(driver.instances())
        self.assertEqual('ceilometer', driver.variant)


class RequestsTest(PrometheusTestCase):

    #: What a server limits, and what it answers then.
    LIMITS = (
        ('length', lambda selector, found: len(selector) > 250),
        ('series', lambda selector, found: len(found) > 2),
        ('samples', lambda selector, found: sum(
            len(times) for _, times, _ in found) > 100),
        ('samples of a series', lambda selector, found: any(
            len(times) > 5 for _, times, _ in found)))
    REFUSALS = (
        (400, 'the query exceeds the maximum'), (413, 'too large'),
        (422, 'too long query; got 16857 bytes'), (500, 'expanding series'),
        (502, 'bad gateway'), (503, 'query timed out'), (504, 'timeout'))

    def test_whatever_a_server_limits_it_is_asked_for_less(self):
        good = rates(self.make())
        for (name, limit), (code, text) in [
                *((limit, self.REFUSALS[0]) for limit in self.LIMITS),
                *((self.LIMITS[1], refusal) for refusal in self.REFUSALS)]:
            driver = self.make()
            # Lists have no samples to count.
            self.server.limit = lambda selector, found, limit=limit: \
                limit(selector, found if name == 'series'
                      or 'resource=~"instance' in selector else [])
            self.server.refusal = code, {'status': 'error', 'error': text}
            self.assertEqual(good, rates(driver), (name, code))

    def test_a_limit_that_is_known_is_not_exceeded_again(self):
        interfaces = [with_counts(1e5 * np.arange(20), number=number)
                      for number in range(100)]
        driver = self.make(stand_ins.ceilometer_series(interfaces))
        self.server.limit = lambda selector, found: len(found) > 30
        list(driver.series(start=T0))
        # Four counters of 100 interfaces in parts of at most 30.
        self.assertLess(len(self.server.requests), 60)

    def test_a_refusal_that_is_no_matter_of_size_is_reported_at_once(self):
        driver = self.make()
        instances = len(driver.instances())
        for code, most in ((400, 2), (401, 1), (403, 1), (404, 1), (422, 2),
                           (500, 2), (503, 2)):
            self.server.limit = lambda selector, found: True
            self.server.refusal = code, {'error': 'not for you'}
            self.server.requests.clear()
            error = self.assertRaises(exceptions.TelemetryError,
                                      driver.instances)
            self.assertIn('not for you', str(error))
            self.assertEqual(most, len(self.server.requests), code)
        # A pause that a server asks for is no matter of size either.
        self.server.limit = None
        for code in (429, 503):
            driver = self.again(retries=1)
            self.server.requests.clear()
            self.server.faults.append(stand_ins.status(
                code, headers=[('Retry-After', '1')]))
            self.assertEqual(instances, len(driver.instances()))
            self.assertEqual(2, len(self.server.requests))

    def test_one_series_and_period_is_as_small_as_it_gets(self):
        driver = self.make(server={'max_samples': 0})
        error = self.assertRaises(exceptions.TelemetryError,
                                  lambda: list(driver.series(start=T0)))
        self.assertIn('too many samples', str(error))

    def test_no_query_asks_for_more_samples_than_allowed(self):
        driver = self.make(samples_per_request=500)
        list(driver.series(start=T0))
        for _, path, parameters, _ in self.server.requests:
            if path.endswith('/query'):
                _, answer = self.server.answer('GET', path, parameters, None)
                self.assertLessEqual(
                    sum(len(result['values'])
                        for result in answer['data']['result']), 600)

    def test_only_what_is_new_is_asked_for(self):
        driver = self.make()
        start = np.nextafter(TRAFFIC.times[-4], np.inf)
        series, = driver.series(start=start, instances=[BUSY])
        np.testing.assert_array_equal(TRAFFIC.times[-3:], series.times)
        for _, path, parameters, _ in self.server.requests:
            if path.endswith('/query'):
                seconds = int(parameters['query'][0].rpartition('[')[2]
                              .rstrip('ms]')) / 1000
                self.assertLessEqual(seconds, 40 * 300)

    def test_aetos_is_asked_by_get_and_with_a_token(self):
        self.useFixture(fixtures.MonkeyPatch(
            'vswitch_aware_scheduler.telemetry.prometheus_api._GET_CHARACTERS',
            300))
        driver = self.make()
        good = rates(driver)
        tokens = []
        real = self.server._handle

        def handle(handler):
            tokens.append(handler.headers.get('X-Auth-Token'))
            real(handler)

        self.server._handle = handle
        self.server.requests.clear()
        driver = prometheus.PrometheusDriver(
            telemetry_services.access(None, auth={
                'auth_type': 'admin_token', 'token': 'abc',
                'endpoint': self.server.url}),
            clock=fake_clock.Clock(float(TRAFFIC.times[-1]) + 7200))
        self.assertEqual(good, rates(driver))
        self.assertEqual({'GET'},
                         {request[0] for request in self.server.requests})
        self.assertEqual({'abc'}, set(tokens))
        for _, _, parameters, _ in self.server.requests:
            self.assertLess(len(parameters.get('query', [''])[0]), 600)


class CredentialsTest(PrometheusTestCase):

    def test_what_a_server_asks_for_is_sent_with_each_request(self):
        folder = self.useFixture(fixtures.TempDir()).path
        path = os.path.join(folder, 'token')
        driver = self.make()
        good = rates(driver)
        for access, expected in (
                ({'headers': {'X-Scope-OrgID': 'cloud'}},
                 {'X-Scope-OrgID': 'cloud'}),
                ({'headers': {'Authorization': 'Bearer abc'}},
                 {'Authorization': 'Bearer abc'}),
                ({'token_file': path}, {'Authorization': 'Bearer first'}),
                ({'token_file': path, 'headers': {'THANOS-TENANT': 't'}},
                 {'Authorization': 'Bearer second', 'THANOS-TENANT': 't'}),
                ({'auth': {'auth_type': 'http_basic', 'username': 'u',
                           'password': 'p', 'endpoint': 'http://unused'}},
                 {'Authorization': 'Basic dTpw'}),
                ({'auth': {'auth_type': 'http_basic', 'username': 'u',
                           'password': 'p'}},
                 {'Authorization': 'Basic dTpw'})):
            with open(path, 'w') as stream:
                stream.write('second\n' if len(expected) > 1 else 'first\n')
            seen = []
            real = self.server._handle

            def handle(handler, seen=seen, real=real):
                seen.append((handler.command, dict(handler.headers)))
                real(handler)

            self.server._handle = handle
            driver = self.again(**access)
            self.assertEqual(good, rates(driver))
            self.assertNotIn('Bearer', repr(driver._access))
            for method, headers in seen:
                # Only Aetos needs GET.
                self.assertEqual('POST', method)
                self.assertEqual(expected, {
                    name: headers[name] for name in expected
                    if name in headers})
            self.server._handle = real

    def test_a_token_that_cannot_be_read_is_an_error(self):
        self.make()
        driver = self.again(token_file='/nowhere')
        self.assertIn('token_file: seen /nowhere', str(self.assertRaises(
            exceptions.TelemetryError, driver.instances)))


class SelectorTest(testtools.TestCase):

    def test_values_stand_for_themselves(self):
        with_values = prometheus._with_values
        self.assertEqual(r'm{a=~"x\\.y|z\\\\\"\\|"}',
                         with_values('m', 'a', ['x.y', 'z\\"|']))
        self.assertEqual('m{b="c",a=~"x"}',
                         with_values('m{b="c",}', 'a', ['x']))
        self.assertEqual('{__name__="m",a=~"x"}',
                         with_values('{__name__="m"}', 'a', ['x']))

    def test_unusable_options_are_refused(self):
        for wrong in (
                *({'names': names} for names in (
                    {'egress_query': ''}, {'egress_query': 'rate(x[5m])'},
                    {'egress_query': 'x[5m]'}, {'ingress_query': None},
                    {'egress_packets_query': ''}, {'instance_label': 'a-b'},
                    {'instance_label': None}, {'host_labels': 'a;b'},
                    {'host_labels': ''},
                    {'identity_query': 'x', 'identity_labels': ()},
                    {'colour': 'red'})),
                {'exporter': 'other'}, {'samples_per_request': 0},
                {'max_age_seconds': None}):
            error = self.assertRaises(
                exceptions.InvalidInput, prometheus.PrometheusDriver,
                {'url': 'http://a'}, **wrong)
            self.assertIn('expected', str(error))
