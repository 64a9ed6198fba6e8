# SPDX-License-Identifier: Apache-2.0
"""Real servers that stop, stand still and come back while they are read."""

import os
import signal

import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins
from tests.fakes import clock as fake_clock
from tests.integration import base
from tests.integration import feeds
from tests.integration import servers
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import gnocchi
from vswitch_aware_scheduler.telemetry import prometheus

TRAFFIC = telemetry_driver.sample_traffic()
INTERFACES = telemetry_counters.interfaces(TRAFFIC)


class FaultsOfServer(base.WithServer):

    def driver(self, **access):
        raise NotImplementedError

    def stop(self):
        raise NotImplementedError

    def start(self):
        raise NotImplementedError

    def read(self, driver):
        return [(one.instance_uuid, one.times.tolist(), one.rates.tolist())
                for one in driver.series()]

    def test_a_server_that_ends_in_the_middle_ends_the_reading(self):
        good = self.read(self.driver())
        iterator = self.driver(retries=1, backoff_seconds=.1).series()
        first = next(iterator)
        self.stop()
        try:
            error = self.assertRaises(exceptions.TelemetryError, list,
                                      iterator)
        finally:
            self.start()
        self.assertIn('2 attempts', str(error))
        self.assertEqual(good[0][1], first.times.tolist())
        self.assertEqual(good, self.read(self.driver()))

    def test_a_server_that_comes_back_in_time_is_not_noticed(self):
        good = self.read(self.driver())
        paused = []

        def sleep(seconds):
            # In place of waiting: what happens meanwhile.
            paused.append(seconds)
            self.start()

        driver = self.driver(retries=3)
        driver._sleep = sleep
        iterator = driver.series()
        found = [next(iterator)]
        self.stop()
        found.extend(iterator)
        self.assertEqual([1.0], paused)
        self.assertEqual(good, [
            (one.instance_uuid, one.times.tolist(), one.rates.tolist())
            for one in found])

    def test_a_server_that_stands_still_is_given_up(self):
        driver = self.driver(timeout_seconds=1.0)
        os.kill(self.server.process.pid, signal.SIGSTOP)
        try:
            error = self.assertRaises(exceptions.TelemetryError,
                                      driver.instances)
        finally:
            os.kill(self.server.process.pid, signal.SIGCONT)
        self.assertRegex(str(error), telemetry_services.GIVEN_UP)
        self.assertEqual(5, len(self.driver().instances()))


class PrometheusFaultsTest(FaultsOfServer, testtools.TestCase):

    @classmethod
    def make_server(cls):
        return servers.Prometheus(feeds.open_metrics(
            telemetry_stand_ins.ceilometer_series(INTERFACES)))

    def driver(self, **access):
        return prometheus.PrometheusDriver(
            telemetry_services.access(self.server.url, **access),
            samples_per_request=2000, max_age_seconds=4 * 86400,
            clock=fake_clock.Clock(float(TRAFFIC.times[-1]) + 86400))

    def stop(self):
        self.server.stop_server()

    def start(self):
        self.server.start_server()


class GnocchiFaultsTest(FaultsOfServer, testtools.TestCase):

    @classmethod
    def make_server(cls):
        return servers.Gnocchi()

    @classmethod
    def feed(cls, server):
        feeds.GnocchiFeed(server).publish(INTERFACES)

    def driver(self, **access):
        return gnocchi.GnocchiDriver(
            telemetry_services.access(None, auth={
                'auth_type': 'gnocchi-basic', 'user': 'admin',
                'endpoint': self.server.url}, **access),
            points_per_request=1,
            clock=fake_clock.Clock(float(TRAFFIC.times[-1]) + 86400))

    def stop(self):
        self.server.stop_api()

    def start(self):
        self.server.start_api()
