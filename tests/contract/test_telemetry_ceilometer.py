# SPDX-License-Identifier: Apache-2.0

import importlib.util
import unittest

import numpy as np
import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_simulator as simulator
from tests.contract import telemetry_stand_ins
from vswitch_aware_scheduler.telemetry import ceilometer


@unittest.skipUnless(importlib.util.find_spec('ceilometerclient'),
                     'python-ceilometerclient is not installed')
class CeilometerTest(telemetry_services.CeilometerContract,
                     testtools.TestCase):

    def driver(self, traffic):
        interfaces = telemetry_counters.interfaces(traffic)
        for interface in interfaces:
            if interface.number == telemetry_driver.WITHOUT_SAMPLE:
                # Known, by what it sent once; what it received is not.
                interface.rates[0, 0] = 1.0
                assert np.isnan(interface.rates[0, 1])
        server = self.useFixture(telemetry_stand_ins.Ceilometer(interfaces))
        return self.make(server.url, traffic)


@unittest.skipUnless(importlib.util.find_spec('ceilometerclient'),
                     'python-ceilometerclient is not installed')
class PollsTest(testtools.TestCase):
    """A day of rates that Ceilometer worked out of two polls each."""

    STEADY = simulator.Traffic(1e6)
    #: On for 15 minutes of each three hours.
    BURSTS = simulator.Traffic(1e6, 900.0, 10800.0,
                               simulator.T0 + 4137.0 - 864000.0)

    def rates(self, traffic, polls, period=300):
        """Return what is delivered of a day, and the truth, relative."""
        # A rate has the time of the later poll.
        volume = traffic.volume(polls)
        rates = (np.diff(volume) / np.diff(polls))[:, None] * [
            1, .5, .001, .0005]
        interface = telemetry_counters.Interface(
            1, 0, polls, volume, polls[1:], rates)
        server = self.useFixture(telemetry_stand_ins.Ceilometer([interface]))
        [rates_read] = ceilometer.CeilometerDriver(
            telemetry_services.access(server.url), period_seconds=period,
            clock=lambda: simulator.T0 + 90000).series()
        true = np.array([traffic.mean_kbps(begin, begin + period)
                         for begin in rates_read.times])
        return rates_read.rates[:, 0] / traffic.kbps, true / traffic.kbps

    def polls(self, interval=300.0, jitter=2.0, left_out=(), drift=0.0,
              phase=0.0):
        times = simulator.T0 + np.arange(phase, 86400.0, interval + drift)
        times += np.random.default_rng(1).uniform(-jitter, jitter, times.size)
        return np.delete(times, left_out)

    def test_a_steady_rate_is_that_rate_whenever_it_is_polled(self):
        # At the ends of periods, where a poll is in one period or the next.
        for polls in (self.polls(), self.polls(drift=-1.0),
                      self.polls(left_out=[50, 51, 120]),
                      self.polls(interval=60.0, left_out=[500])):
            shares, _ = self.rates(self.STEADY, polls)
            self.assertGreater(shares.size, 190)
            np.testing.assert_allclose(shares, 1.0, rtol=1e-9)

    def test_bursts_of_three_polls_keep_their_peak_and_volume(self):
        for polls in (self.polls(phase=140), self.polls(drift=-1.0),
                      self.polls(phase=140, left_out=[50, 51])):
            shares, true = self.rates(self.BURSTS, polls)
            self.assertAlmostEqual(1.0, shares.max(), delta=1e-9)
            self.assertAlmostEqual(true.mean(), shares.mean(),
                                   delta=.05 * true.mean())
