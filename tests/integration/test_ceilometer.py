# SPDX-License-Identifier: Apache-2.0
"""The contract of a driver, with a real Ceilometer and its real client."""

import importlib.util
import unittest

import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.integration import base
from tests.integration import feeds
from tests.integration import servers


@unittest.skipUnless(importlib.util.find_spec('ceilometerclient'),
                     'python-ceilometerclient is not installed')
class CeilometerTest(base.WithServer, telemetry_services.CeilometerContract,
                     testtools.TestCase):

    @classmethod
    def make_server(cls):
        return servers.Ceilometer()

    @classmethod
    def feed(cls, server):
        interfaces = telemetry_counters.interfaces(
            telemetry_driver.sample_traffic())
        for one in interfaces:
            if one.number == telemetry_driver.WITHOUT_SAMPLE:
                # Known, by what it sent once; what it received is not.
                one.rates[0, 0] = 1.0
        feeds.ceilometer_feed(server, interfaces)

    def driver(self, traffic):
        return self.make(self.server.url, traffic)
