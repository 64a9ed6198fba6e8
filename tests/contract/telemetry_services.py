# SPDX-License-Identifier: Apache-2.0
"""What the contract tests of the drivers that ask services share."""

from tests.contract import hostile_servers
from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.fakes import clock as fake_clock
from vswitch_aware_scheduler.telemetry import ceilometer
from vswitch_aware_scheduler.telemetry import gnocchi
from vswitch_aware_scheduler.telemetry import prometheus


#: What is said of an answer that does not come to its end. On a busy machine
#: the wait for the next byte may be the longer one.
GIVEN_UP = 'not complete after|[Tt]imed out|Timeout'


def access(url, **options):
    return {'url': url, 'retries': 0, 'requests_per_second': 10000.0,
            'timeout_seconds': 20.0, **options}


class ServiceContract(telemetry_driver.DriverContract):

    counts_packets = True
    period_before = 300.0
    #: No stretch of nothing is told of an instance never seen again.
    tells_missing = False

    def uuid(self, number):
        return telemetry_counters.instance_uuid(number)

    def driver_without_source(self):
        return self.make('http://127.0.0.1:1', self.traffic)

    def clock(self, traffic):
        # A day after the end.
        return fake_clock.Clock(float(traffic.times[-1]) + 86400)

    def test_an_answer_that_is_nested_too_deeply_makes_no_sense(self):
        body = b'[' * 100000
        server = self.useFixture(hostile_servers.DrippingServer(
            lambda: iter([b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n'
                          % len(body), body])))
        driver = self.make(server.url, self.traffic)
        error = self.assertRaises(telemetry_driver.exceptions.TelemetryError,
                                  driver.instances)
        self.assertIn('an invalid response', str(error))


class GnocchiContract(ServiceContract):

    gap_reason = 'gap'
    negative_reason = 'reset'

    def make(self, url, traffic, **options):
        return gnocchi.GnocchiDriver(
            access(url), clock=self.clock(traffic), **options)


class PrometheusContract(ServiceContract):

    gap_reason = 'gap'
    negative_reason = 'reset'

    def make(self, url, traffic, auth=None, **options):
        return prometheus.PrometheusDriver(
            access(url, auth=auth), clock=self.clock(traffic), **options)


class CeilometerContract(ServiceContract):

    #: Periods without samples are not in the answer.
    gap_reason = None

    def make(self, url, traffic, **options):
        return ceilometer.CeilometerDriver(
            access(url), period_seconds=300, clock=self.clock(traffic),
            **options)
