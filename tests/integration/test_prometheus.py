# SPDX-License-Identifier: Apache-2.0
"""The contract of a driver, with a real Prometheus."""

import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins
from tests.integration import base
from tests.integration import feeds
from tests.integration import servers


class PrometheusTest(base.WithServer, telemetry_services.PrometheusContract,
                     testtools.TestCase):

    options = {}
    arguments = ()

    @classmethod
    def make_server(cls):
        return servers.Prometheus(feeds.open_metrics(cls.series(
            telemetry_counters.interfaces(
                telemetry_driver.sample_traffic()))), cls.arguments)

    @classmethod
    def series(cls, interfaces):
        return telemetry_stand_ins.ceilometer_series(interfaces)

    def driver(self, traffic):
        return self.make(self.server.url, traffic, **self.options)


class LimitedPrometheusTest(PrometheusTest):
    """A server that refuses what we think is a reasonable request."""

    arguments = ('--query.max-samples=700',)


class LibvirtTest(PrometheusTest):

    options = {'exporter': 'libvirt-inovex'}

    @classmethod
    def series(cls, interfaces):
        return telemetry_stand_ins.libvirt_series(interfaces)
