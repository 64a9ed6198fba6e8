# SPDX-License-Identifier: Apache-2.0
"""The contract of a driver, with a real Aetos and a real keystone."""

import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins
from tests.integration import base
from tests.integration import feeds
from tests.integration import servers
from vswitch_aware_scheduler.common import exceptions


class AetosTest(base.WithServer, telemetry_services.PrometheusContract,
                testtools.TestCase):

    @classmethod
    def make_server(cls):
        behind = base.started(servers.Prometheus(feeds.open_metrics(
            telemetry_stand_ins.ceilometer_series(
                telemetry_counters.interfaces(
                    telemetry_driver.sample_traffic())))))
        cls.addClassCleanup(behind.cleanUp)
        cls.keystone = base.started(servers.Keystone())
        cls.addClassCleanup(cls.keystone.cleanUp)
        return servers.Aetos(behind, cls.keystone)

    @classmethod
    def feed(cls, server):
        cls.keystone.register('metric-storage', server.url)

    def driver(self, traffic):
        # Where it is only the catalog says.
        return self.make(None, traffic, auth=self.keystone.auth)

    def test_a_wrong_password_is_refused(self):
        driver = self.make(self.server.url, self.traffic, auth={
            **self.keystone.auth, 'password': 'what nobody knows'})
        error = self.assertRaises(exceptions.TelemetryError, driver.instances)
        self.assertIn('401', str(error))
        self.assertNotIn('what nobody knows', str(error))

    def test_a_request_without_credentials_is_refused(self):
        driver = self.make(self.server.url, self.traffic)
        error = self.assertRaises(exceptions.TelemetryError, driver.instances)
        self.assertIn('401', str(error))
