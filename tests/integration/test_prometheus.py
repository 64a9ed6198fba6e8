# SPDX-License-Identifier: Apache-2.0
"""The contract of a driver, with a real Prometheus."""

import dataclasses

import numpy as np
import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins
from tests.fakes import clock as fake_clock
from tests.integration import base
from tests.integration import feeds
from tests.integration import servers
from vswitch_aware_scheduler.telemetry import check
from vswitch_aware_scheduler.telemetry import exporters
from vswitch_aware_scheduler.telemetry import prometheus


class PrometheusTest(base.WithServer, telemetry_services.PrometheusContract,
                     testtools.TestCase):

    arguments = ()

    @classmethod
    def make_server(cls):
        return servers.Prometheus(feeds.open_metrics(
            telemetry_stand_ins.ceilometer_series(
                telemetry_counters.interfaces(
                    telemetry_driver.sample_traffic()))), cls.arguments)

    def driver(self, traffic):
        return self.make(self.server.url, traffic)


class LimitedPrometheusTest(PrometheusTest):
    """A server that refuses what we think is a reasonable request."""

    arguments = ('--query.max-samples=700',)


class ExportersTest(base.WithServer, testtools.TestCase):
    """The series of every known exporter, each below a label of its own."""

    @classmethod
    def make_server(cls):
        traffic = telemetry_driver.sample_traffic()
        cls.traffic = traffic
        interface = telemetry_counters.interfaces(traffic)[0]
        cls.interfaces = [dataclasses.replace(
            interface, number=number,
            times=float(traffic.t0) + 300. * np.arange(100),
            counters=np.tile(37500. * np.arange(100)[:, None], (1, 4)))
            for number in range(1, 6)]
        return servers.Prometheus(feeds.open_metrics(sorted(
            ((name, {**labels, 'served': exporter}, *data)
             for exporter, shape in telemetry_stand_ins.SHAPES.items()
             for name, labels, *data in shape(cls.interfaces)),
            key=lambda series: series[0])))

    def test_each_exporter_is_found_and_read(self):
        now = float(self.traffic.t0) + 300 * 100
        for exporter in telemetry_stand_ins.SHAPES:
            names = exporters.EXPORTERS[exporter]
            driver = self.make(exporter, {
                name: f'{getattr(names, name)}{{served="{exporter}"}}'
                for name in ('egress_query', 'ingress_query',
                             'egress_packets_query', 'ingress_packets_query',
                             'identity_query') if getattr(names, name)})
            findings = check.examine(driver, now)
            self.assertEqual([], findings.problems)
            self.assertEqual(5, findings.instances)
            self.assertIn('Prometheus 2', findings.facts['server'])
            self.assertIn('query.max-samples', findings.facts['limits'])
            for series in driver.series():
                np.testing.assert_allclose(series.rates[:, 0], 1.0)

    def test_what_cannot_be_used_is_named(self):
        for exporter, shape in telemetry_stand_ins.UNUSABLE_SHAPES.items():
            server = base.started(servers.Prometheus(feeds.open_metrics(
                sorted(shape(self.interfaces), key=lambda row: row[0]))))
            self.addCleanup(server.cleanUp)
            findings = check.examine(prometheus.PrometheusDriver(
                telemetry_services.access(server.url), exporter=None,
                clock=fake_clock.Clock(float(self.traffic.t0) + 30000)),
                float(self.traffic.t0) + 30000)
            self.assertEqual([exporter], list(findings.facts['unusable']))

    def make(self, exporter, names):
        return prometheus.PrometheusDriver(
            telemetry_services.access(self.server.url), exporter=exporter,
            names=names, clock=fake_clock.Clock(
                float(self.traffic.t0) + 300 * 100))
