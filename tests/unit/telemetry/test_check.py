# SPDX-License-Identifier: Apache-2.0

import dataclasses

import ddt
import numpy as np
import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import clock as fake_clock
from vswitch_aware_scheduler.telemetry import check
from vswitch_aware_scheduler.telemetry import exporters
from vswitch_aware_scheduler.telemetry import prometheus

TRAFFIC = telemetry_driver.sample_traffic()
NOW = float(TRAFFIC.times[-1])
INTERFACES = telemetry_counters.steady_interfaces(NOW)
UUIDS = [interface.instance_uuid for interface in INTERFACES]


#: What others serve, without traffic of instances.
FOREIGN = [('node_network_receive_bytes_total',
            {'device': 'eth0', 'instance': 'compute-1:9100'},
            INTERFACES[0].times, INTERFACES[0].counters[:, 0])]


def stepped(updates):
    """Return interfaces that are read each minute, and updated seldom."""
    counts = np.repeat(75000. * np.arange(updates), 500 // updates)
    return [dataclasses.replace(
        interface, times=NOW - 60. * np.arange(500)[::-1],
        counters=np.tile(counts[:, None], (1, 4)))
        for interface in INTERFACES]


@ddt.ddt
class ExamineTest(testtools.TestCase):

    def make(self, series, exporter=None, **options):
        self.server = self.useFixture(stand_ins.Prometheus(series))
        return prometheus.PrometheusDriver(
            telemetry_services.access(self.server.url), exporter=exporter,
            clock=fake_clock.Clock(NOW + 60), **options)

    def examine(self, driver, in_nova=None):
        findings = check.examine(driver, NOW + 60, in_nova)
        self.assertEqual(findings.problems,
                         findings.lines()[:len(findings.problems)])
        return findings

    @ddt.data(*stand_ins.SHAPES)
    def test_the_exporter_is_detected(self, name):
        driver = self.make(stand_ins.SHAPES[name](INTERFACES) + FOREIGN)
        findings = self.examine(driver, dict.fromkeys(UUIDS, 'compute-1'))
        self.assertEqual([], findings.problems)
        self.assertEqual({name: 5}, findings.facts['exporters'])
        self.assertEqual((5, 5, 0), (findings.instances, findings.in_nova,
                                     findings.nova_only))
        self.assertEqual(3, len(findings.examples))
        for example in findings.examples:
            self.assertAlmostEqual(1.0, example.egress_kbps)
            self.assertAlmostEqual(1.0, example.ingress_kbps)
        series = list(driver.series())
        self.assertEqual(5, len(series))
        for one in series:
            self.assertEqual(98, len(one))
            np.testing.assert_allclose(one.rates[:, 0], 1.0)
            np.testing.assert_allclose(one.rates[:, 2], .25)

    @ddt.data(*exporters.EXPORTERS)
    def test_a_wrong_exporter_is_named_with_the_right_one(self, wrong):
        right = 'libvirt-inovex' if wrong == 'ceilometer' else 'ceilometer'
        findings = self.examine(
            self.make(stand_ins.SHAPES[right](INTERFACES), wrong))
        self.assertEqual(0, findings.instances)
        self.assertIn(f'no instance of exporter {wrong}',
                      findings.problems[0])
        self.assertIn(f'exporter = {right}', findings.problems[1])

    def test_every_exporter_has_a_tested_shape(self):
        self.assertEqual(set(stand_ins.SHAPES), set(exporters.EXPORTERS))
        self.assertEqual(set(stand_ins.UNUSABLE_SHAPES),
                         set(exporters.UNUSABLE))

    @ddt.data(*stand_ins.UNUSABLE_SHAPES)
    def test_an_exporter_that_cannot_be_used_is_named_with_the_reason(
            self, name):
        driver = self.make(
            stand_ins.UNUSABLE_SHAPES[name](INTERFACES) + FOREIGN)
        findings = self.examine(driver, dict.fromkeys(UUIDS, 'compute-1'))
        self.assertEqual([name], list(findings.facts['unusable']))
        self.assertIn(name, findings.problems[1])
        self.assertIn(exporters.UNUSABLE[name][1], findings.problems[1])

    def test_series_interfaces_and_the_configured_times_are_printed(self):
        lines = self.examine(self.make(
            stand_ins.SHAPES['ceilometer'](INTERFACES))).lines()
        self.assertIn('series: 20 of 5 interfaces', lines)
        self.assertIn('update interval of the counters: each reading, '
                      'period_seconds = 300.0, update_interval_seconds = '
                      'not set', lines)

    def test_what_is_not_learned_is_a_problem_with_the_option(self):
        series = stand_ins.SHAPES['libvirt-inovex'](INTERFACES)
        twin = [(name, {**labels, 'instance_id': UUIDS[1]}, *data)
                for name, labels, *data in series
                if labels.get('instance_id') == UUIDS[0]]
        problem, = self.examine(self.make(series + twin)).problems
        self.assertIn('identity_labels', problem)
        halves = [
            (name, {**labels, 'replica': str(replica)}, times,
             values * np.where(times > np.median(times), 1 + replica, 1))
            for replica in range(2) for name, labels, times, values
            in stand_ins.SHAPES['ceilometer'](INTERFACES)]
        problems = self.examine(self.make(halves)).problems
        self.assertIn('interface_labels', problems[-1])

    def test_a_configured_interval_that_is_wrong_is_reported(self):
        for seconds, count in ((60., 1), (1200., 1), (300., 0), (None, 0)):
            findings = self.examine(self.make(
                stand_ins.SHAPES['ceilometer'](stepped(100)),
                update_interval_seconds=seconds))
            self.assertEqual(300., findings.facts['update_seconds'])
            self.assertEqual(count, len(findings.problems))
            self.assertEqual(count * ['update_interval_seconds'], [
                'update_interval_seconds' for problem in findings.problems
                if f'is {seconds:g}: remove' in problem])

    def test_the_exporter_of_today_is_preferred(self):
        old = [dataclasses.replace(interface, times=interface.times - 1e6)
               for interface in INTERFACES]
        driver = self.make(stand_ins.SHAPES['libvirt-inovex'](old)
                           + stand_ins.SHAPES['ceilometer'](INTERFACES[:1]))
        self.assertEqual([UUIDS[0]],
                         [found.uuid for found in driver.instances()])

    def test_the_exporter_that_was_learned_from_is_kept(self):
        series = stand_ins.SHAPES['libvirt-inovex'](INTERFACES[:3]) \
            + stand_ins.SHAPES['ceilometer'](INTERFACES)
        for before, expected in (
                ('', 'ceilometer'), ('libvirt-inovex', 'libvirt-inovex'),
                ('libvirt-kumina', 'ceilometer'),
                ('ceilometer 12345678', 'ceilometer')):
            driver = self.make(series)
            driver.variant_before = before
            driver.instances()
            self.assertEqual(expected, driver.variant)
        # Names of their own make other samples.
        self.assertNotEqual(*(
            prometheus.PrometheusDriver(
                {'url': 'http://a'}, names={'egress_query': query}).variant
            for query in ('one', 'other')))

    def test_a_server_without_instances_is_no_success(self):
        for series in ([], FOREIGN):
            findings = self.examine(self.make(series))
            self.assertIn('no instance', findings.problems[0])
            self.assertIn('egress_query', findings.problems[1])
            # Where Nova has none either, there is nothing to mend.
            self.assertEqual([], self.examine(
                self.make(series), {}).problems)

    def test_instances_without_telemetry_are_named_with_their_hosts(self):
        unmeasured = telemetry_counters.instance_uuid(9)
        measured = dict.fromkeys(UUIDS, 'compute-1')
        for in_nova, words in (
                ({**measured, unmeasured: 'compute-9'},
                 ('1 of 6 instances of Nova', 'no instance of their hosts',
                  'compute-9')),
                ({**measured, unmeasured: 'compute-1'},
                 ('other instances of their hosts have some',)),
                ({unmeasured: 'compute-9'}, ('Nova has none of the 5',))):
            problem, = self.examine(
                self.make(stand_ins.SHAPES['ceilometer'](INTERFACES)),
                in_nova).problems
            for part in words:
                self.assertIn(part, problem)

    def test_a_period_below_the_interval_of_updates_is_reported(self):
        findings = self.examine(
            self.make(stand_ins.SHAPES['ceilometer'](stepped(50))))
        self.assertEqual(600.0, findings.facts['update_seconds'])
        self.assertIn('set period_seconds = 600', findings.problems[-1])

    def test_a_hundred_thousand_series_take_few_requests(self):
        # Two readings of each suffice for a list of instances.
        driver = self.make(stand_ins.SHAPES['ceilometer']([
            dataclasses.replace(INTERFACES[0], number=number,
                                times=INTERFACES[0].times[-2:],
                                counters=INTERFACES[0].counters[-2:])
            for number in range(25000)]))
        findings = check.examine(driver, NOW + 60)
        self.assertEqual((25000, 100000), (
            findings.instances, findings.facts['series']))
        self.assertLess(len(self.server.requests), 40)
