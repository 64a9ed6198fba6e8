# SPDX-License-Identifier: Apache-2.0

import math
import os
import tempfile
from unittest import mock
import urllib.error

from nova import objects

from tests.fakes import prometheus as fake_prometheus
from tests.unit.scheduler import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.scheduler import metrics


class MetricsTestCase(base.FilterTestCase):

    def setUp(self):
        super().setUp()
        self.port = fake_prometheus.free_ports(3)

    def make_exporter(self, **options):
        self.make_filter(scheduler_metrics_port=self.port, **options)

    def numbers(self):
        return fake_prometheus.scraped(self.port)

    def assert_unharmed(self, words):
        """Check that the only problem, of metrics, changes no decision."""
        self.assertEqual(2, len(self.judge()))
        text, = self.warnings
        self.assertIn('metrics', text)
        self.assertIn(words, text)

    def judge(self, hosts=None):
        return self.filter.filter_all(self.hosts if hosts is None else hosts,
                                      base.request(7, egress_kbps=30))


class TestNumbers(MetricsTestCase):

    def test_what_the_filter_does_is_counted(self):
        self.make_exporter()
        self.judge()
        self.judge(self.hosts[:1])
        numbers = self.numbers()
        for name, value in (
                ('requests_judged_total', 2), ('hosts_judged_total', 4),
                ('requests_without_host_total', 1),
                ('hosts_observed_total', 0),
                ('decision_seconds_count', 2), ('degraded', 0),
                ('hosts', 3), ('claims', 0), ('claims_of_others', 0),
                ('generation', 1), ('record_age_seconds', 7.5)):
            self.assertEqual(value, numbers[name,], name)
        # Each check is there from the beginning.
        for check, value in (('overload probability', 2), ('peak', 0)):
            self.assertEqual(value, numbers['hosts_refused_total', check])
        self.assertEqual(0, numbers['requests_unjudged_total', 'error'])
        self.assertEqual(2, sum(
            value for key, value in numbers.items()
            if key[0] == 'hosts_refused_total'))
        self.state.host_consumed(self.hosts[1],
                                 base.request(7, egress_kbps=30))
        self.assertEqual(1, self.numbers()['claims',])

    def test_the_predicted_risk_is_there_by_profile(self):
        self.make_exporter()
        self.state._ensure_ready()
        self.assertEqual([], [key for key in self.numbers()
                              if key[0].startswith('profile_')])
        # 10 of 100 kbit/s never overload a switch, 80 of 50 always do.
        slow = base.aggregate(profile='ovs-vxlan', saturation_kbps='50',
                              overload_probability='0.5')
        fast = base.aggregate(profile='ovs-flat', saturation_kbps='100')
        self.judge([
            base.host_state('over', [2], [slow]),
            base.host_state('empty', [], [slow]),
            base.host_state('within', [1], [fast]),
            base.host_state('unknown', [3])])
        self.assertEqual({
            (f'profile_{name}', profile): value
            for profile, values in (('ovs-vxlan', (2, 1, .5, 1)),
                                    ('ovs-flat', (1, 0, 0, 0)))
            for name, value in zip(
                ('hosts', 'hosts_above_limit', 'overload_probability_mean',
                 'overload_probability_highest'), values)},
            {key: round(value, 9) for key, value in self.numbers().items()
             if key[0].startswith('profile_')})

    def test_the_number_of_profiles_is_bounded(self):
        values = dict.fromkeys(metrics._GAUGES, 1.0)
        risks = {f'p{number}': metrics.Risk(1, .1, number / 1000, 0)
                 for number in range(200)}
        family, = [
            family for family in metrics._Gauges(lambda: {
                **values, 'risks': risks,
                'counts': dict.fromkeys(metrics._CLAIMS, 0)}).collect()
            if family.name.endswith('profile_hosts')]
        self.assertEqual({f'p{number}' for number in range(150, 200)},
                         {one.labels['profile'] for one in family.samples})

    def test_requests_that_name_their_host_raise_no_alert(self):
        self.make_exporter()
        for name, value in (
                ('force_hosts', ['full']), ('force_nodes', ['full']),
                ('requested_destination', objects.Destination(host='full'))):
            request = base.request(7, egress_kbps=30)
            setattr(request, name, value)
            self.assertEqual([], self.filter.filter_all(self.hosts[:1],
                                                        request))
        numbers = self.numbers()
        self.assertEqual(3, numbers['requests_judged_total',])
        self.assertEqual(0, numbers['requests_without_host_total',])

    def test_hosts_that_are_only_observed_are_counted_as_such(self):
        self.make_exporter(enforcement='observe')
        self.judge()
        numbers = self.numbers()
        self.assertEqual(1, numbers['hosts_observed_total',])
        self.assertEqual(0, numbers['requests_without_host_total',])

    def test_what_passes_unjudged_is_counted_by_why(self):
        self.make_exporter()
        self.judge()
        for outcome in ({'side_effect': KeyError('what')},
                        {'return_value': None}):
            with mock.patch.object(self.state, 'assess', autospec=True,
                                   **outcome):
                self.judge()
        numbers = self.numbers()
        self.assertEqual([1, 1], [numbers['requests_unjudged_total', why]
                                  for why in ('error', 'store')])
        self.assertEqual(1, numbers['requests_judged_total',])

    def test_a_store_that_is_gone_shows_as_degraded(self):
        self.store.answers = [exceptions.StoreError('gone')]
        self.make_exporter()
        self.judge()
        numbers = self.numbers()
        self.assertEqual(1, numbers['degraded',])
        self.assertTrue(math.isnan(numbers['generation',]))


class TestPorts(MetricsTestCase):

    def test_each_worker_takes_the_first_free_port(self):
        for number in range(3):
            self.make_exporter(scheduler_metrics_ports=3)
            self.judge()
            self.assertEqual(('127.0.0.1', self.port + number),
                             self.state.metrics.served_at)
        # The fourth one finds none, says so and judges all the same.
        self.make_exporter(scheduler_metrics_ports=3)
        self.assert_unharmed(f'{self.port} to {self.port + 2}')
        self.assertIsNone(self.state.metrics.served_at)

    def test_an_exporter_that_cannot_start_changes_no_decision(self):
        self.make_exporter(scheduler_metrics_address='a..b')
        self.assert_unharmed('metrics: no port of a..b')
        self.log.clear()
        with mock.patch.object(metrics, 'prometheus_client', None):
            self.make_exporter()
            self.assert_unharmed('prometheus_client is not installed')

    def test_nothing_listens_before_the_first_request_nor_by_default(self):
        self.make_exporter()
        with self.assertRaises(urllib.error.URLError):
            self.numbers()
        self.judge()
        self.assertTrue(self.numbers())
        self.state.stop()
        with self.assertRaises(urllib.error.URLError):
            self.numbers()
        self.make_filter()
        self.judge()
        self.assertIsNone(self.state.metrics.served_at)


class TestFile(MetricsTestCase):

    def setUp(self):
        super().setUp()
        self.let_no_thread_start()
        self.directory = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(
            self.directory, f'vswitch_scheduler_{os.getpid()}.prom')

    def test_a_file_has_the_numbers_and_goes_with_the_worker(self):
        self.make_filter(scheduler_metrics_directory=self.directory)
        self.judge()
        self.state.metrics.step()
        with open(self.path) as file:
            self.assertEqual(1, fake_prometheus.parsed(file.read())[
                'requests_judged_total',])
        self.state.stop()
        self.assertEqual([], os.listdir(self.directory))

    def test_files_of_dead_workers_are_removed_and_no_others(self):
        names = ('vswitch_scheduler_1.prom', 'vswitch_scheduler_2.prom',
                 'other.prom')
        for name in names:
            with open(os.path.join(self.directory, name), 'w'):
                pass
        for name in names[::2]:
            os.utime(os.path.join(self.directory, name), (0, 0))
        self.make_filter(scheduler_metrics_directory=self.directory)
        self.judge()
        self.state.metrics.step()
        self.assertEqual({*names[1:], os.path.basename(self.path)},
                         {*os.listdir(self.directory)})

    def test_a_directory_that_cannot_be_written_is_named(self):
        self.make_filter(scheduler_metrics_directory=os.path.join(
            self.directory, 'none'))
        self.judge()
        self.state.metrics.step()
        self.assert_unharmed('scheduling goes on')
        self.assertIn('metrics file', self.warnings[0])
