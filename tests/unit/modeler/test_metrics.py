# SPDX-License-Identifier: Apache-2.0

import contextlib
import os
import socket
import threading
import time
import unittest
from unittest import mock
import urllib.error
import urllib.request


from tests.fakes import green_threads
from tests.fakes import prometheus as fake_prometheus
from tests.fakes import store as fake_store
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import metrics_server
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import metrics
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import series

scraped = fake_prometheus.scraped
free_port = fake_prometheus.free_ports


def outcome(number, refused=()):
    return learning.Outcome(
        store.Generation('s', number, 7.0), True, 40, 300, 30, 4, ('a',),
        tuple(learning.RefusedInstance(str(i), None, reason, '')
              for i, reason in enumerate(refused)),
        series.Refused(gap=2, reset=1), 99.0, 0, 2.5)


class MetricsTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.metrics = metrics.ModelerMetrics()
        self.addCleanup(self.metrics.close)
        self.port = free_port()

    def budgeted(self, name, budgets, vm_times=()):
        """Return the metrics of some budgets whose names begin so."""
        self.metrics.serve('127.0.0.1', self.port)
        self.metrics.budgeted(budgets, vm_times)
        return {key: value for key, value in scraped(self.port).items()
                if key[0].startswith(name)}

    def test_contradicted_predictions_are_counted(self):
        self.assertEqual({
            ('host_predictions', 'as_predicted'): 1.0,
            ('host_predictions', 'more'): 1.0,
            ('host_predictions', 'less'): 2.0
        }, self.budgeted('host_predictions', [
            fake_store.budget(name, prediction=store.Prediction(
                seconds=seconds, deviations=deviations))
            for name, seconds, deviations in (
                ('a', 60.0, 3.0), ('b', 60.0, -5.0), ('c', 60.0, -3.1),
                ('d', 60.0, 2.9), ('e', 0.0, 0.0))]))

    def test_budgets_are_reported_by_kind_alone(self):
        self.assertEqual({
            ('error_budgets', 'host'): 2.0,
            ('error_budgets_in_debt', 'host'): 1.0,
            ('error_budget_left_seconds', 'host', 'least'): -30.0,
            ('error_budget_left_seconds', 'host', 'mean'): -10.0,
            ('error_budget_burn_rate', 'host', 'most', '1h'): 4.0,
            ('error_budget_burn_rate', 'host', 'mean', '1h'): 3.0,
            ('error_budget_burn_rate', 'host', 'most', '6h'): 1.0,
            ('error_budget_burn_rate', 'host', 'mean', '6h'): .5,
            ('error_budget_burn_rate', 'host', 'most', '72h'): 0.0,
            ('error_budget_burn_rate', 'host', 'mean', '72h'): 0.0,
            ('error_budget_overspent_seconds', 'host'): 30.0,
            ('error_budget_unknown_ratio', 'host'): .25
        }, self.budgeted('error_budget', [
            fake_store.budget('a', balance=10.0, unknown_seconds=100.0,
                              measured_seconds=200.0,
                              burn={'3600': 2.0, '21600': 1.0}),
            fake_store.budget('b', balance=-30.0, measured_seconds=100.0,
                              burn={'3600': 4.0})]))

    def test_the_time_of_instances_in_overload_is_reported(self):
        self.assertEqual({
            ('vm_overload_ratio', 'host', 'most'): .04,
            ('vm_overload_ratio', 'project', 'most'): .03,
            ('vm_overload_ratio', 'project', 'mean'): .02
        }, self.budgeted('vm_overload_ratio', [
            fake_store.budget(name, vm_seconds=1000.0,
                              vm_overload_seconds=seconds)
            for name, seconds in (('a', 20.0), ('b', 40.0))], [
                store.VMTime(project, day, 1000.0, seconds)
                for project, day, seconds in (
                    ('p', 1, 10.0), ('p', 2, 50.0), ('q', 2, 0.0))]))

    def test_a_scrape_reports_the_results_of_passes(self):
        self.metrics.serve('127.0.0.1', self.port)
        self.metrics.succeeded(outcome(8, ['short', 'short', 'silent']), 1,
                               900.0)
        self.metrics.failed('telemetry')
        self.metrics.failed('telemetry')
        self.metrics.failed('store')
        self.metrics.succeeded(outcome(9, ['short']), 3, 1000.0)
        scrape = scraped(self.port)
        expected = {
            ('pass_seconds_count',): 2, ('pass_seconds_sum',): 5.0,
            ('last_success_timestamp_seconds',): 1000.0,
            ('failures_total', 'telemetry'): 2,
            ('failures_total', 'store'): 1, ('samples_total',): 600,
            ('refused_samples_total', 'gap'): 4,
            ('refused_samples_total', 'reset'): 2,
            ('models_fitted_total',): 60,
            ('instances_forgotten_total',): 2,
            ('instances_refused', 'short'): 1, ('instances',): 40,
            ('instances_waiting',): 4, ('generation',): 9, ('members',): 3}
        self.assertEqual(expected, {key: scrape.get(key) for key in expected})
        # What held for the pass before is gone.
        self.assertEqual(set(expected), {
            key for key, value in scrape.items()
            if value or key[0] not in ('refused_samples_total', 'waiting')})

    def test_a_scrape_reports_why_the_modeler_waits(self):
        self.metrics.serve('127.0.0.1', self.port)
        waits = dict.fromkeys(metrics.WAITS, 0.0)
        for reason in (None, 'store', 'unexpected', None):
            self.metrics.waits(reason)
            self.assertEqual(
                {**waits, **({reason: 1.0} if reason else {})},
                {key[1]: value for key, value in scraped(self.port).items()
                 if key[0] == 'waiting'})

    def test_another_port_replaces_the_first(self):
        port = free_port()
        self.metrics.serve('127.0.0.1', self.port)
        self.metrics.serve('127.0.0.1', self.port)
        self.metrics.failed('store')
        self.metrics.serve('127.0.0.1', port)
        self.assertEqual(1, scraped(port)['failures_total', 'store'])
        with self.assertRaises(urllib.error.URLError):
            scraped(self.port)
        self.metrics.close()
        self.metrics.close()
        with self.assertRaises(urllib.error.URLError):
            scraped(port)

    def test_idle_connections_are_limited_and_do_not_block(self):
        self.metrics.serve('127.0.0.1', self.port)
        files = len(os.listdir('/proc/self/fd'))
        threads = threading.active_count()
        idle = []
        self.addCleanup(lambda: [connection.close() for connection in idle])
        for number in range(200):
            connection = socket.create_connection(('127.0.0.1', self.port), 10)
            idle.append(connection)
            if number % 2:
                with contextlib.suppress(OSError):
                    connection.sendall(b'GET /metrics HTTP/1.1\r\nA: ')
        self.metrics.failed('store')
        self.assertEqual(1, scraped(self.port)['failures_total', 'store'])
        # Beside the ends of the 200 that are here.
        self.assertLess(len(os.listdir('/proc/self/fd')) - files - 200,
                        3 * metrics_server.MAX_CONNECTIONS)
        self.assertLess(threading.active_count() - threads,
                        5 * metrics_server.MAX_CONNECTIONS)
        # The first ones were closed to make room.
        idle[0].settimeout(10)
        self.assertEqual(b'', idle[0].recv(1))

    def test_an_endless_request_is_closed(self):
        for name, drips in (('CONNECTION_SECONDS', True),
                            ('_Handler.timeout', False)):
            port = free_port()
            with mock.patch('vswitch_aware_scheduler.common.metrics_server.'
                            f'{name}', .2):
                self.metrics.serve('127.0.0.1', port)
                connection = self.enterContext(
                    socket.create_connection(('127.0.0.1', port), 60))
                connection.settimeout(.05)
                limit = time.monotonic() + 120
                closed = False
                while not closed and time.monotonic() < limit:
                    with contextlib.suppress(TimeoutError):
                        try:
                            if drips:
                                connection.sendall(b'G')
                            closed = connection.recv(1) == b''
                        except ConnectionError:
                            closed = True
                self.assertTrue(closed)
                self.metrics.failed('store')
                self.assertTrue(scraped(port)['failures_total', 'store'])

    def test_green_threads_run_beside_the_server(self):
        # One process is the server, its client and a thread that closes it.
        self.assertEqual("b'ok' closed\n", green_threads.run('''
            import sys, urllib.request
            from vswitch_aware_scheduler.common import metrics_server

            def application(environment, start):
                start('200 OK', [('Content-Type', 'text/plain')])
                return [b'ok']

            port = int(sys.argv[1])
            listener = metrics_server.Listener('127.0.0.1', port, application)
            answer = urllib.request.urlopen(f'http://127.0.0.1:{port}/',
                                            timeout=60)
            listener.close()
            print(answer.read(), 'closed')
            ''', self.port))

    def test_metrics_are_served_by_version_6_as_well(self):
        try:
            with socket.create_server(('::1', 0), family=socket.AF_INET6):
                pass
        except OSError:
            self.skipTest('no IPv6 here')
        self.metrics.serve('::1', self.port)
        with socket.create_connection(('::1', self.port), 10) as connection:
            connection.sendall(b'GET /metrics HTTP/1.0\r\n\r\n')
            self.assertIn(b'200 OK', connection.recv(1000))

    def test_without_the_library_the_error_names_the_package(self):
        with mock.patch.object(metrics, 'prometheus_client', None), \
                self.assertRaisesRegex(exceptions.InvalidInput,
                                       'needs prometheus_client'):
            metrics.ModelerMetrics()
