# SPDX-License-Identifier: Apache-2.0

import math
import os
import tempfile
from unittest import mock
import urllib.error
import urllib.request

from nova import objects

from tests.fakes import prometheus as fake_prometheus
from tests.unit.scheduler import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.scheduler import metrics

free_ports = fake_prometheus.free_ports
parsed = fake_prometheus.parsed
scraped = fake_prometheus.scraped


class MetricsTestCase(base.FilterTestCase):

    def setUp(self):
        super().setUp()
        self.port = free_ports(3)

    def judge(self, hosts=None):
        return self.filter.filter_all(self.hosts if hosts is None else hosts,
                                      base.request(7, egress_kbps=30))


class TestNumbers(MetricsTestCase):

    def test_what_the_filter_does_is_counted(self):
        self.make_filter(scheduler_metrics_port=self.port)
        self.judge()
        self.judge(self.hosts[:1])
        found = scraped(self.port)
        for name, value in (
                ('requests_judged_total', 2), ('hosts_judged_total', 4),
                ('requests_without_host_total', 1),
                ('hosts_observed_total', 0),
                ('decision_seconds_count', 2), ('degraded', 0),
                ('hosts', 3), ('claims', 0), ('claims_of_others', 0),
                ('generation', 1)):
            self.assertEqual(value, found[name,], name)
        self.assertEqual(2, found['hosts_refused_total',
                                  'overload probability'])
        # Each check is there from the beginning.
        self.assertEqual(0, found['hosts_refused_total', 'peak'])
        self.assertEqual(0, found['requests_unjudged_total', 'error'])
        self.assertEqual(found['hosts_judged_total',], sum(
            value for key, value in found.items()
            if key[0] == 'hosts_refused_total') + 2)
        self.assertEqual(7.5, found['record_age_seconds',])

    def test_the_predicted_risk_is_there_by_profile(self):
        self.make_filter(scheduler_metrics_port=self.port)
        # 10 of 100 kbit/s never overload a switch, 80 of 50 always do.
        slow = base.aggregate(profile='ovs-vxlan', saturation_kbps='50',
                              overload_probability='0.5')
        fast = base.aggregate(profile='ovs-flat', saturation_kbps='100')
        self.judge([
            base.host_state('over', [2], [slow]),
            base.host_state('empty', [], [slow]),
            base.host_state('within', [1], [fast]),
            base.host_state('unknown', [3])])
        found = scraped(self.port)
        for profile, hosts, above, mean, highest in (
                ('ovs-vxlan', 2, 1, .5, 1), ('ovs-flat', 1, 0, 0, 0)):
            for name, value in (
                    ('hosts', hosts), ('hosts_above_limit', above),
                    ('overload_probability_mean', mean),
                    ('overload_probability_highest', highest)):
                self.assertAlmostEqual(
                    value, found[f'profile_{name}', profile], 9)
        self.assertEqual(8, sum(
            key[0].startswith('profile_') for key in found))

    def test_without_a_host_there_is_no_risk(self):
        self.make_filter(scheduler_metrics_port=self.port)
        self.state._ensure_ready()
        self.assertEqual([], [key for key in scraped(self.port)
                              if key[0].startswith('profile_')])

    def test_the_number_of_profiles_is_bounded(self):
        values = dict.fromkeys(metrics._GAUGES, 1.0)
        risks = {f'p{number}': metrics.Risk(1, .1, number / 1000, 0)
                 for number in range(200)}
        gauges = metrics._Gauges(lambda: {
            **values, 'risks': risks,
            'counts': dict.fromkeys(metrics._CLAIMS, 0)})
        for family in gauges.collect():
            if family.name.endswith('profile_hosts'):
                self.assertEqual(
                    {f'p{number}' for number in range(150, 200)},
                    {one.labels['profile'] for one in family.samples})
                break
        else:
            self.fail('no family')

    def test_requests_that_name_their_host_raise_no_alert(self):
        self.make_filter(scheduler_metrics_port=self.port)
        request = base.request(7, egress_kbps=30)
        request.requested_destination = objects.Destination(
            host=self.hosts[0].host)
        self.assertEqual([], self.filter.filter_all(self.hosts[:1], request))
        for name in ('force_hosts', 'force_nodes'):
            request = base.request(7, egress_kbps=30)
            setattr(request, name, [self.hosts[0].host])
            self.assertEqual([], self.filter.filter_all(self.hosts[:1],
                                                        request))
        found = scraped(self.port)
        self.assertEqual(3, found['requests_judged_total',])
        self.assertEqual(0, found['requests_without_host_total',])

    def test_hosts_that_are_only_observed_are_counted_as_such(self):
        self.make_filter(scheduler_metrics_port=self.port,
                         enforcement='observe')
        self.judge()
        found = scraped(self.port)
        self.assertEqual(1, found['hosts_observed_total',])
        self.assertEqual(0, found['requests_without_host_total',])

    def test_what_passes_unjudged_is_counted_by_why(self):
        self.make_filter(scheduler_metrics_port=self.port)
        self.judge()
        with mock.patch.object(self.state, 'assess', autospec=True,
                               side_effect=KeyError('what')):
            self.judge()
        with mock.patch.object(self.state, 'assess', autospec=True,
                               return_value=None):
            self.judge()
        found = scraped(self.port)
        self.assertEqual([1, 1], [found['requests_unjudged_total', why]
                                  for why in ('error', 'store')])
        self.assertEqual(1, found['requests_judged_total',])

    def test_a_store_that_is_gone_shows_as_degraded(self):
        self.store.answers = [exceptions.StoreError('gone')]
        self.make_filter(scheduler_metrics_port=self.port)
        self.judge()
        found = scraped(self.port)
        self.assertEqual(1, found['degraded',])
        self.assertTrue(math.isnan(found['generation',]))

    def test_claims_are_counted_until_the_record_has_them(self):
        self.make_filter(scheduler_metrics_port=self.port)
        self.judge()
        self.state.host_consumed(self.hosts[1],
                                 base.request(7, egress_kbps=30))
        self.assertEqual(1, scraped(self.port)['claims',])


class TestPorts(MetricsTestCase):

    def test_each_worker_takes_the_first_free_port(self):
        for number in range(3):
            self.make_filter(scheduler_metrics_port=self.port,
                             scheduler_metrics_ports=3)
            self.judge()
            self.assertEqual(('127.0.0.1', self.port + number),
                             self.state.metrics.served_at)
        # The fourth one finds none, says so and judges all the same.
        self.make_filter(scheduler_metrics_port=self.port,
                         scheduler_metrics_ports=3)
        self.assertEqual(2, len(self.judge()))
        told, = [text for text in self.warnings if 'metrics' in text]
        self.assertIn(f'{self.port} to {self.port + 2}', told)
        self.assertIsNone(self.state.metrics.served_at)

    def test_an_address_that_no_host_can_have_changes_no_decision(self):
        self.make_filter(scheduler_metrics_port=self.port,
                         scheduler_metrics_address='a..b')
        self.assertEqual(2, len(self.judge()))
        warning, = self.warnings
        self.assertIn('metrics: no port of a..b', warning)

    def test_nothing_listens_before_the_first_request_nor_by_default(self):
        self.make_filter(scheduler_metrics_port=self.port)
        with self.assertRaises(urllib.error.URLError):
            scraped(self.port)
        self.judge()
        self.assertTrue(scraped(self.port))
        self.state.stop()
        with self.assertRaises(urllib.error.URLError):
            scraped(self.port)
        self.make_filter()
        self.judge()
        self.assertIsNone(self.state.metrics.served_at)

    def test_without_the_library_it_says_so(self):
        with mock.patch.object(metrics, 'prometheus_client', None):
            self.make_filter(scheduler_metrics_port=self.port)
            self.assertEqual(2, len(self.judge()))
        told, = [text for text in self.warnings if 'metrics' in text]
        self.assertIn('prometheus_client is not installed', told)


class TestFile(MetricsTestCase):

    def setUp(self):
        super().setUp()
        self.let_no_thread_start()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.path = os.path.join(
            self.directory, f'vswitch_scheduler_{os.getpid()}.prom')

    def test_a_file_has_the_numbers_and_goes_with_the_worker(self):
        self.make_filter(scheduler_metrics_directory=self.directory)
        self.judge()
        self.state.metrics.step()
        with open(self.path) as file:
            self.assertEqual(1, parsed(file.read())['requests_judged_total',])
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
        self.assertEqual(2, len(self.judge()))
        self.state.metrics.step()
        told, = [text for text in self.warnings if 'metrics file' in text]
        self.assertIn('scheduling goes on', told)
