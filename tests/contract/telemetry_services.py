# SPDX-License-Identifier: Apache-2.0
"""What the contract tests of the drivers that ask services share."""

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from vswitch_aware_scheduler.telemetry import ceilometer
from vswitch_aware_scheduler.telemetry import gnocchi
from vswitch_aware_scheduler.telemetry import prometheus


class Clock:
    """A clock that stands still, and can be pickled."""

    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


def access(url, **options):
    return {'url': url, 'retries': 0, 'requests_per_second': 10000.0,
            'timeout_seconds': 20.0, **options}


class ServiceContract(telemetry_driver.DriverContract):

    counts_packets = True
    #: No stretch of nothing is told of an instance never seen again.
    tells_missing = False

    def uuid(self, number):
        return telemetry_counters.instance_uuid(number)

    def clock(self, traffic):
        # A day after the end.
        return Clock(float(traffic.times[-1]) + 86400)

    def test_a_driver_opens_nothing_before_it_is_asked(self):
        driver = self.driver_without_source()
        self.assertTrue(driver.source)
        self.assertEqual(300.0, driver.period_seconds)
        iterator = driver.series()
        for ask in (lambda: next(iterator), driver.instances):
            error = self.assertRaises(telemetry_driver.exceptions
                                      .TelemetryError, ask)
            self.assertIn(driver.source, str(error))
            self.assertIn('wanted', str(error))


class GnocchiContract(ServiceContract):

    gap_reason = 'gap'
    negative_reason = 'reset'

    def make(self, url, traffic, **options):
        return gnocchi.GnocchiDriver(
            access(url), clock=self.clock(traffic), **options)

    def driver_without_source(self):
        return self.make('http://127.0.0.1:1', self.traffic)


class PrometheusContract(ServiceContract):

    gap_reason = 'gap'
    negative_reason = 'reset'

    def make(self, url, traffic, auth=None, **options):
        return prometheus.PrometheusDriver(
            access(url, auth=auth), clock=self.clock(traffic), **options)

    def driver_without_source(self):
        return self.make('http://127.0.0.1:1', self.traffic)


class CeilometerContract(ServiceContract):

    #: Periods without samples are not in the answer.
    gap_reason = None

    def make(self, url, traffic, **options):
        return ceilometer.CeilometerDriver(
            access(url), period_seconds=300, clock=self.clock(traffic),
            **options)

    def driver_without_source(self):
        return self.make('http://127.0.0.1:1', self.traffic)
