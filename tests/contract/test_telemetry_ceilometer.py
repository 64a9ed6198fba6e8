# SPDX-License-Identifier: Apache-2.0

import importlib.util
import unittest

import numpy as np
import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins


@unittest.skipUnless(importlib.util.find_spec('ceilometerclient'),
                     'python-ceilometerclient is not installed')
class CeilometerTest(telemetry_services.CeilometerContract,
                     testtools.TestCase):

    def driver(self, traffic):
        interfaces = telemetry_counters.interfaces(traffic)
        for one in interfaces:
            if one.number == telemetry_driver.WITHOUT_SAMPLE:
                # Known, by what it sent once; what it received is not.
                one.rates[0, 0] = 1.0
                assert np.isnan(one.rates[0, 1])
        server = self.useFixture(telemetry_stand_ins.Ceilometer(interfaces))
        return self.make(server.url, traffic)
