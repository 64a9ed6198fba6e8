# SPDX-License-Identifier: Apache-2.0
"""A real Ceilometer, asked through its real client.

On SQLite that server makes a query for each period, so that the contract as
a whole would take it a quarter of an hour. The stand-in, which passes the
contract, is compared with it instead.
"""

import importlib.util
import unittest

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
from vswitch_aware_scheduler.telemetry import ceilometer

PERIODS = 24


def _traffic():
    traffic = telemetry_driver.sample_traffic()
    for name in ('egress_kbps', 'ingress_kbps', 'kpps'):
        setattr(traffic, name, getattr(traffic, name)[:, :PERIODS])
        getattr(traffic, name)[telemetry_driver.WITH_GAP - 1, 8:12] = np.nan
    return traffic


@unittest.skipUnless(importlib.util.find_spec('ceilometerclient'),
                     'python-ceilometerclient is not installed')
class CeilometerTest(base.WithServer, testtools.TestCase):

    @classmethod
    def make_server(cls):
        return servers.Ceilometer()

    @classmethod
    def feed(cls, server):
        cls.traffic = _traffic()
        cls.interfaces = telemetry_counters.interfaces(cls.traffic)
        feeds.ceilometer_feed(server, cls.interfaces)

    def driver(self, url, **options):
        return ceilometer.CeilometerDriver(
            telemetry_services.access(url), clock=fake_clock.Clock(
                float(self.traffic.times[-1]) + 7200),
            **{'period_seconds': 300, **options})

    def test_every_usable_sample_is_delivered_and_no_other(self):
        delivered = {series.instance_uuid: series
                     for series in self.driver(self.server.url).series()}
        # One has no sample at all, and is not known.
        self.assertEqual(4, len(delivered))
        for number in self.traffic.numbers:
            if number == telemetry_driver.WITHOUT_SAMPLE:
                continue
            times, rates = self.traffic.expected(number, True)
            series = delivered[telemetry_counters.instance_uuid(number)]
            np.testing.assert_array_equal(times, series.times)
            np.testing.assert_allclose(series.rates, rates, rtol=1e-12)

    def test_the_stand_in_answers_as_the_server_does(self):
        stand_in = self.useFixture(
            telemetry_stand_ins.Ceilometer(self.interfaces))
        times = self.traffic.times.tolist()
        for wanted in ({}, {'start': times[3]}, {'end': times[9] + 1},
                       {'start': times[5] + 1, 'end': times[15]},
                       {'start': times[-1] + 1}):
            for options in ({}, {'period_seconds': 600}):
                for real, other in zip(
                        self.driver(self.server.url,
                                    **options).series(**wanted),
                        self.driver(stand_in.url,
                                    **options).series(**wanted),
                        strict=True):
                    self.assertEqual(real.instance_uuid, other.instance_uuid)
                    self.assertEqual(real.refused, other.refused)
                    np.testing.assert_array_equal(real.times, other.times)
                    np.testing.assert_allclose(real.rates, other.rates,
                                               rtol=1e-12)

    def test_names_are_those_of_domains(self):
        self.assertIn('instance-00000001', {
            instance.name
            for instance in self.driver(self.server.url).instances()})
