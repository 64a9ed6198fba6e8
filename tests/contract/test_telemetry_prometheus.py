# SPDX-License-Identifier: Apache-2.0

import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins


class CeilometerExporterTest(telemetry_services.PrometheusContract,
                             testtools.TestCase):

    options = {}
    series = staticmethod(telemetry_stand_ins.ceilometer_series)

    def driver(self, traffic):
        server = self.useFixture(telemetry_stand_ins.Prometheus(
            self.series(telemetry_counters.interfaces(traffic))))
        return self.make(server.url, traffic, **self.options)


class SmallRequestsTest(CeilometerExporterTest):

    options = {'samples_per_request': 3000, 'max_age_seconds': 4 * 86400}


class WithoutPacketsTest(CeilometerExporterTest):

    counts_packets = False
    options = {'names': {'egress_packets_query': '',
                         'ingress_packets_query': ''}}


class LibvirtInovexTest(CeilometerExporterTest):

    options = {'exporter': 'libvirt-inovex'}
    series = staticmethod(telemetry_stand_ins.libvirt_series)


class LibvirtTinkoffTest(CeilometerExporterTest):

    options = {'exporter': 'libvirt-tinkoff'}
    series = staticmethod(telemetry_stand_ins.SHAPES['libvirt-tinkoff'])
