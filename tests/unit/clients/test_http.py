# SPDX-License-Identifier: Apache-2.0
"""Faults of a service, seen through each of the drivers that ask one."""

import gzip
import itertools
import logging
import os
import pickle
import ssl
import subprocess
import time
import unittest
from unittest import mock

import ddt
import fixtures
import testtools

from tests.contract import hostile_servers
from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import clock as fake_clock
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import openstack
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import ceilometer
from vswitch_aware_scheduler.telemetry import gnocchi
from vswitch_aware_scheduler.telemetry import prometheus

TRAFFIC = telemetry_driver.sample_traffic()
INTERFACES = telemetry_counters.interfaces(TRAFFIC)
NOW = float(TRAFFIC.times[-1]) + 7200


class Sleeps(list):
    """What was slept, in place of sleeping."""

    def __call__(self, seconds):
        self.append(seconds)


def kinds():
    return [
        ('gnocchi', lambda: stand_ins.Gnocchi(INTERFACES),
         gnocchi.GnocchiDriver),
        ('prometheus', lambda: stand_ins.Prometheus(
            stand_ins.ceilometer_series(INTERFACES)),
         prometheus.PrometheusDriver),
        ('ceilometer', lambda: stand_ins.Ceilometer(INTERFACES),
         ceilometer.CeilometerDriver)]


class ServiceTestCase(testtools.TestCase):

    def make(self, kind, sleep=None, **access):
        _, server, factory = kind
        self.server = self.useFixture(server())
        self.sleeps = Sleeps() if sleep is None else sleep
        access = {'url': self.server.url, 'retries': 2, 'backoff_seconds': 3,
                  'requests_per_second': 1e6, 'timeout_seconds': 20.0,
                  **access}
        return factory(access, period_seconds=300,
                       clock=fake_clock.Clock(NOW),
                       sleep=self.sleeps)


@ddt.ddt
class FaultsTest(ServiceTestCase):

    def error_of(self, call):
        """Return the message of the TelemetryError that a call raises."""
        return str(self.assertRaises(exceptions.TelemetryError, call))

    def _read(self, driver):
        # A tenth of the time: it is read some fifty times.
        start = float(TRAFFIC.times[-TRAFFIC.times.size // 10])
        return [(rates.instance_uuid, rates.times.tolist(),
                 rates.rates.tolist())
                for rates in driver.series(start=start)]

    @ddt.idata(kinds())
    def test_a_fault_that_passes_changes_nothing(self, kind):
        driver = self.make(kind)
        good = self._read(driver)
        self.assertTrue(any(times for _, times, _ in good))
        count = len(self.server.requests)
        faults = [stand_ins.status(503), stand_ins.status(500),
                  stand_ins.status(502), stand_ins.status(504),
                  stand_ins.status(429), stand_ins.closed, stand_ins.cut,
                  stand_ins.body(b'<html>Please log in</html>'),
                  stand_ins.body(b''), stand_ins.body(b'[{"a": '),
                  stand_ins.body(b'\xff\xfe\x00')]
        for number, fault in enumerate(faults):
            # In the first request, and in the last one, by turns.
            at = number % 2 * (count - 1)
            self.server.faults[:] = [None] * at + [fault]
            self.assertEqual(good, self._read(driver))
            self.assertEqual([], self.server.faults)

    @ddt.idata(kinds())
    def test_an_answer_has_the_clock_of_the_service(self, kind):
        driver = self.make(kind)
        self.assertIsNone(driver.server_time())
        driver.instances()
        self.assertLess(abs(driver.server_time() - time.time()), 60)
        served = driver.server_time()
        for headers in ({}, {'Date': 'yesterday'}, {'Date': '5' * 5000}):
            driver._note_time(headers)
            self.assertLess(abs(driver.server_time() - served), 60)
        driver._note_time({'Date': 'Thu, 08 Jan 2026 00:00:00 GMT'})
        self.assertLess(abs(driver.server_time() - 1767830400.0), 60)

    @ddt.idata(kinds())
    def test_a_fault_that_stays_ends_in_an_error_that_tells_it(self, kind):
        driver = self.make(kind)
        for fault, message in (
                (stand_ins.status(503, b'out of order'),
                 'HTTP 503: out of order'),
                (stand_ins.closed, 'onnect'),
                (stand_ins.body(b'<html>Please log in</html>'),
                 'an invalid response .*Please log in')):
            self.sleeps.clear()
            self.server.requests.clear()
            self.server.faults[:] = [fault] * 4
            error = self.error_of(lambda: list(driver.series()))
            self.assertRegex(error, message)
            for word in (driver.source, 'seen', 'expected', '3 attempts'):
                self.assertIn(word, error)
            # A request that can be divided is first made smaller, once.
            self.assertEqual(
                3 + (kind[0] == 'prometheus' and fault != stand_ins.closed),
                len(self.server.requests))
            self.assertEqual([3, 6], self.sleeps)

    @ddt.idata(kinds())
    def test_a_missing_connection_has_retries_of_its_own(self, kind):
        driver = self.make(kind, retries=0, connect_retries=1)
        for fault, attempts in ((stand_ins.closed, 2),
                                (stand_ins.status(429), 1)):
            self.server.faults[:] = [fault] * 3
            self.assertIn(f'{attempts} attempts',
                          self.error_of(driver.instances))

    @ddt.idata(kinds())
    def test_a_fault_in_the_middle_ends_the_iterator_with_an_error(self,
                                                                   kind):
        driver = self.make(kind, retries=0)
        list(driver.series())
        queries = len(self.server.requests) - 1
        self.server.faults[:] = [None] * queries + [stand_ins.status(503)] * 2
        self.assertRaises(exceptions.TelemetryError,
                          lambda: list(driver.series()))

    @ddt.idata(kinds())
    def test_what_is_refused_is_not_asked_again(self, kind):
        driver = self.make(kind)
        for code in (400, 401, 403):
            self.server.requests.clear()
            self.server.faults[:] = [
                stand_ins.status(code, b'"go away"')] * 2
            error = self.error_of(driver.instances)
            self.assertIn(str(code), error)
            self.assertIn('expected', error)
            # Only where less can be asked for, and may be accepted.
            self.assertEqual(1 + (kind[0] == 'prometheus' and code == 400),
                             len(self.server.requests))

    @ddt.idata(kinds())
    def test_answers_of_another_shape_are_refused(self, kind):
        driver = self.make(kind, retries=0)
        for content in (b'null', b'7', b'"text"', b'{}', b'[[1, 2]]',
                        b'[{"id": 7}]', b'{"status": "success"}',
                        b'{"status": "success", "data": [7]}',
                        b'[{"groupby": {"resource_id": 7}}]'):
            self.server.faults[:] = [stand_ins.body(content)] * 2
            error = self.error_of(lambda: list(driver.series()))
            self.assertIn('expected', error)

    @ddt.idata(kinds())
    def test_a_silent_server_is_given_up(self, kind):
        driver = self.make(kind, timeout_seconds=.2, retries=1)
        self.server.faults[:] = [stand_ins.silent(60)] * 2
        began = time.monotonic()
        error = self.error_of(driver.instances)
        self.assertLess(time.monotonic() - began, 60)
        self.assertIn('2 attempts', error)

    @ddt.idata(kinds())
    def test_an_answer_without_end_is_given_up(self, kind):
        for name in ('body', 'header', '100 Continue'):
            server = self.useFixture(hostile_servers.DrippingServer(name))
            driver = self.make(kind, url=server.url, timeout_seconds=.2,
                               retries=1)
            error = self.error_of(driver.instances)
            self.assertRegex(error, telemetry_services.GIVEN_UP)
            # An attempt may be over before the server has accepted it.
            self.assertEqual(2, server.connections_of(2))

    @ddt.idata(kinds())
    def test_a_keystone_without_end_is_given_up(self, kind):
        server = self.useFixture(hostile_servers.DrippingServer('chunk size'))
        driver = self.make(
            kind, url=None, timeout_seconds=.2, retries=1, auth={
                'auth_type': 'v3password', 'auth_url': server.url + '/v3',
                'username': 'vswitch', 'password': 'open sesame',
                'user_domain_name': 'Default'})
        error = self.error_of(driver.instances)
        self.assertRegex(error, telemetry_services.GIVEN_UP)

    @ddt.idata(kinds()[:1])
    def test_an_older_urllib3_reads_the_same(self, kind):
        driver = self.make(kind, retries=0)
        good = self._read(driver)
        self.useFixture(fixtures.MonkeyPatch(
            'urllib3.response.HTTPResponse.read1', None))
        self.assertEqual(good, self._read(driver))
        self.server.faults[:] = [stand_ins.cut]
        self.assertIn('ends early', self.error_of(driver.instances))

    @ddt.idata(kinds())
    def test_an_answer_that_is_too_large_is_not_read(self, kind):
        driver = self.make(kind, max_answer_mib=100 / 2 ** 20)
        error = self.error_of(driver.instances)
        self.assertIn('more than 100 bytes', error)
        self.assertIn('max_answer_mib', error)
        # It would be as large when asked for again. Gnocchi's pages of
        # resources are asked for in halves first, 1000, 500 and so on, and
        # lists of series by the last characters of a label.
        self.assertIn(len(self.server.requests), range(
            1, 200 if kind[0] == 'prometheus' else 12))

    @ddt.idata(kinds())
    def test_a_compressed_answer_counts_as_what_it_is_made_of(self, kind):
        driver = self.make(kind, max_answer_mib=.25)
        large = gzip.compress(b'[' + b' ' * 2 ** 20 + b']')
        self.assertLess(len(large), 2 ** 14)

        def fault(handler, _status, _answer):
            stand_ins.send(handler, 200, large,
                           [('Content-Encoding', 'gzip')])

        # Gnocchi is asked for smaller pages first.
        self.server.faults[:] = [fault] * 12
        error = self.error_of(driver.instances)
        self.assertIn('more than 262144 bytes', error)

    @ddt.idata(kinds())
    def test_of_a_large_error_the_beginning_is_read(self, kind):
        driver = self.make(kind, retries=0)
        self.server.faults[:] = [stand_ins.status(
            503, b'out of order' + b'!' * 2 ** 22)] * 2
        error = self.error_of(driver.instances)
        self.assertIn('HTTP 503: out of order', error)
        self.assertLess(len(error), 1000)

    @ddt.idata(kinds())
    def test_control_characters_of_an_answer_are_escaped(self, kind):
        driver = self.make(kind, retries=0)
        text = '\x1b[2J\x9b1mowned\u202e\x00'.encode()
        for fault in (stand_ins.status(503, text),
                      stand_ins.status(400, text), stand_ins.body(text)):
            self.server.faults[:] = [fault] * 2
            error = self.error_of(driver.instances)
            self.assertIn(r'\x1b[2J\x9b1mowned\u202e\x00', error)
            self.assertTrue(error.isprintable(), error)

    @ddt.idata(kinds())
    def test_requests_are_paced(self, kind):
        driver = self.make(kind, requests_per_second=.05)
        list(driver.series())
        self.assertEqual(len(self.server.requests) - 1, len(self.sleeps))
        # Next to no time passes while it sleeps: each is to wait for all
        # before it.
        for number, pause in enumerate(self.sleeps, 1):
            self.assertTrue(20 * number - 20 < pause <= 20 * number, pause)

    @ddt.idata(kinds())
    def test_a_clock_that_is_set_back_delays_nothing(self, kind):
        driver, sleeps, now = self.make(kind), Sleeps(), itertools.count(
            NOW, -3600)
        with mock.patch.object(time, 'time', lambda: next(now)), \
                mock.patch.object(time, 'sleep', sleeps):
            driver.instances()
            list(driver.series())
        self.assertEqual([], [pause for pause in sleeps if pause > 60])

    @ddt.idata(kinds())
    def test_a_pause_that_is_asked_for_is_kept(self, kind):
        driver = self.make(kind)
        for retry_after, seconds in (('17', 17), ('100000', 60), ('soon', 3),
                                     ('-5', 3)):
            self.sleeps.clear()
            self.server.faults[:] = [stand_ins.status(
                503, headers=[('Retry-After', retry_after)])]
            driver.instances()
            self.assertEqual([seconds], self.sleeps)

    @ddt.idata(kinds())
    def test_nothing_secret_is_shown(self, kind):
        log = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        driver = self.make(kind, url=None, auth={
            'auth_type': 'v3password', 'auth_url': 'http://127.0.0.1:1/v3',
            'username': 'vswitch', 'password': 'open sesame',
            'user_domain_name': 'Default'})
        error = self.error_of(driver.instances)
        for text in (error, repr(driver._access), driver.source,
                     log.output):
            self.assertNotIn('sesame', text)
        copy = pickle.loads(pickle.dumps(driver))
        self.assertEqual('open sesame', copy._access.auth['password'])

    @ddt.idata(kinds())
    def test_auth_that_is_none_is_reported_at_once(self, kind):
        driver = self.make(kind, auth={'auth_type': 'magic', 'password': 'x'})
        self.assertIn("'magic'", self.error_of(driver.instances))
        self.assertEqual([], self.server.requests)


class OpenStackTest(testtools.TestCase):
    """The services that are asked through openstacksdk."""

    def test_an_answer_without_end_is_given_up(self):
        for kind in ('compute', 'network', 'placement'):
            for name in ('body', 'chunk size'):
                server = self.useFixture(hostile_servers.DrippingServer(name))
                access = http.Access(
                    url=server.url, timeout_seconds=.2, retries=1,
                    backoff_seconds=0, requests_per_second=1e6,
                    auth={'auth_type': 'none', 'endpoint': server.url})

                def read():
                    with openstack.SdkClient(access, kind, kind) as client:
                        list(openstack.pages(client, 'servers', '/servers',
                                             dict))

                error = self.assertRaises(exceptions.TelemetryError, read)
                self.assertRegex(str(error), telemetry_services.GIVEN_UP)


class TlsTest(testtools.TestCase):
    """A server with a certificate of its own."""

    def setUp(self):
        super().setUp()
        folder = self.useFixture(fixtures.TempDir()).path
        self.certificate = os.path.join(folder, 'cert')
        key = os.path.join(folder, 'key')
        try:
            subprocess.run(
                ['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes',
                 '-keyout', key, '-out', self.certificate, '-days', '2',
                 '-subj', '/CN=127.0.0.1', '-addext',
                 'subjectAltName=IP:127.0.0.1'], check=True,
                capture_output=True, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            self.skipTest('openssl is not installed')
        self.server = self.useFixture(stand_ins.Prometheus(
            stand_ins.ceilometer_series(INTERFACES)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.server._server.socket = context.wrap_socket(
            self.server._server.socket, server_side=True)

    def _driver(self, **access):
        return prometheus.PrometheusDriver(
            {'url': f'https://127.0.0.1:{self.server.port}', 'retries': 3,
             'requests_per_second': 1e6, **access},
            clock=fake_clock.Clock(NOW), sleep=Sleeps())

    def test_only_a_known_certificate_is_accepted(self):
        error = self.assertRaises(exceptions.TelemetryError,
                                  self._driver().instances)
        self.assertIn('certificate verify failed', str(error))
        self.assertIn('1 attempts', str(error))
        self.assertEqual([], self.server.requests)
        driver = self._driver(cafile=self.certificate)
        self.assertEqual(5, len(driver.instances()))


class AccessTest(unittest.TestCase):

    def test_unusable_values_are_refused(self):
        for wrong, message in (
                ({}, 'a URL'), ({'url': 'metrics:9090'}, "'metrics:9090'"),
                ({'url': 'ftp://metrics'}, 'ftp'),
                ({'url': 'http://me:secret@metrics'},
                 'expected a URL without user'),
                ({'auth': {'password': 'secret'}}, 'auth_type'),
                ({'url': 'http://a', 'timeout_seconds': 0}, 'timeout'),
                ({'url': 'http://a', 'max_answer_mib': 0}, 'max_answer_mib'),
                ({'url': 'http://a', 'retries': -1}, 'retries'),
                ({'url': 'http://a', 'backoff_seconds': float('nan')},
                 'backoff'),
                ({'url': 'http://a', 'requests_per_second': '5'},
                 'requests_per_second')):
            with self.subTest(wrong):
                with self.assertRaises(exceptions.InvalidInput) as caught:
                    http.Access(**wrong)
                self.assertIn(message, str(caught.exception))
                self.assertNotIn('secret', str(caught.exception))

    def test_unusable_options_of_drivers_are_refused(self):
        access = {'url': 'http://a'}
        for _, _, factory in kinds():
            for wrong in ({'period_seconds': None}, {'period_seconds': 0},
                          {'settle_seconds': -1}, {'colour': 'red'},
                          {'max_age_seconds': 'long'}):
                with self.subTest(factory=factory.NAME, wrong=wrong):
                    with self.assertRaises(exceptions.InvalidInput):
                        factory(access, **wrong)
            with self.assertRaisesRegex(exceptions.InvalidInput, 'proxy'):
                factory({'url': 'http://a', 'proxy': 'b'})
