# SPDX-License-Identifier: Apache-2.0
"""The contract of the driver prometheus, with a real VictoriaMetrics."""

import dataclasses

import numpy as np
import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins
from tests.integration import base
from tests.integration import servers


class VictoriaMetricsTest(base.WithServer,
                          telemetry_services.PrometheusContract,
                          testtools.TestCase):

    arguments = ()

    @classmethod
    def make_server(cls):
        return servers.VictoriaMetrics(
            telemetry_stand_ins.ceilometer_series(
                telemetry_counters.interfaces(
                    telemetry_driver.sample_traffic())), cls.arguments)

    def driver(self, traffic):
        return self.make(self.server.url, traffic)


class LimitsTest(base.WithServer, testtools.TestCase):
    """Each limit of the server, below what a request would be."""

    @classmethod
    def make_server(cls):
        traffic = telemetry_driver.sample_traffic()
        interface = telemetry_counters.interfaces(traffic)[0]
        cls.start = float(traffic.t0)
        return servers.VictoriaMetrics(telemetry_stand_ins.ceilometer_series([
            dataclasses.replace(
                interface, number=number,
                times=cls.start + 300. * np.arange(12),
                counters=np.tile(37500. * np.arange(12)[:, None], (1, 4)))
            for number in range(1, cls.instances + 1)]), cls.arguments)

    #: With the default options, 300 interfaces are too long a query.
    arguments = ()
    instances = 300

    def test_all_instances_are_read(self):
        traffic = telemetry_driver.sample_traffic()
        driver = telemetry_services.PrometheusContract.make(
            _Clock(), self.server.url, traffic)
        series = list(driver.series(start=self.start))
        self.assertEqual(self.instances, len(series))
        for one in series:
            self.assertEqual(11, len(one))
            np.testing.assert_allclose(one.rates[:, 0], 1.0)


class _Clock:
    clock = telemetry_services.ServiceContract.clock


class SeriesLimitTest(LimitsTest):
    arguments = ('-search.maxSeries=30', '-search.maxUniqueTimeseries=20')
    instances = 60


class SamplesLimitTest(LimitsTest):
    arguments = ('-search.maxSamplesPerQuery=500',)
    instances = 60


class SamplesPerSeriesLimitTest(LimitsTest):
    arguments = ('-search.maxSamplesPerSeries=7',)
    instances = 10
