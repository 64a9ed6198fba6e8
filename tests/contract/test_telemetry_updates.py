# SPDX-License-Identifier: Apache-2.0
"""What the modeler learns from counters that an exporter updates seldom.

The cases of each kind are few and short; ``tests/faults`` has the rest.
"""

import ddt

from tests.contract import telemetry_simulator as simulator
from tests.unit.store import base

HOUR = 3600.0

STEADY = simulator.Traffic(1e6)

#: On for 15 minutes of each hour, beginning in the middle of a period.
BURSTS = simulator.Traffic(1e6, 900.0, 3600.0,
                           simulator.T0 + 430.0 - 240 * HOUR)


@ddt.ddt
class UpdatesTest(base.StoreTestCase):

    def learned(self, traffic, seconds=6 * HOUR, clock=None, options=None,
                update_seconds=300, **source):
        server = self.enterContext(simulator.Server([]))
        return simulator.learned(
            self.store, server, 1, traffic,
            simulator.Source(update_seconds, **source), seconds, clock,
            **(options or {}))

    def check(self, learned, mean=0.01, peak=0.05, samples=48):
        self.assertLessEqual(samples, learned.samples)
        self.assertAlmostEqual(1.0, learned.mean, delta=mean)
        self.assertAlmostEqual(1.0, learned.peak, delta=peak)

    @ddt.named_data(
        ('jitter', {'jitter_seconds': 2}),
        ('outage of Prometheus', {
            'phase_seconds': 183, 'outages': ((7200, 7500), (12010, 12330))}),
        ('standing poller', {'phase_seconds': 100,
                             'stalls': ((7000, 8600),)}),
        *((f'clock {ahead} s ahead', {
            'phase_seconds': 100, 'clock': lambda elapsed, ahead=ahead:
            elapsed + ahead * (9000 < elapsed < 13000)})
          for ahead in (600, 86400, -86400)))
    def test_a_steady_rate_gets_no_peak_and_loses_nothing(self, source):
        self.check(self.learned(STEADY, **source))

    def test_a_poller_that_stands_still_for_long_makes_no_peak(self):
        # What was read of it meanwhile looks like no traffic.
        self.check(self.learned(STEADY, 10 * HOUR, phase_seconds=100,
                                stalls=((9000, 19000),)), mean=1.0)

    def test_an_interval_that_is_stated_needs_not_be_found(self):
        # Read at each second update: nothing in the counters shows it.
        self.check(self.learned(
            STEADY, update_seconds=60, jitter_seconds=2, scrape_seconds=120,
            options={'update_interval_seconds': 60}), peak=0.1)

    def test_bursts_of_three_periods_keep_their_peak(self):
        # The volume of what was learned may cut one burst.
        self.check(self.learned(BURSTS, 8 * HOUR, jitter_seconds=2),
                   mean=0.1, peak=0.15)

    def test_continuous_counters_lose_nothing(self):
        # All of the bursts of five hours, but for what ends the sixth.
        learned = self.learned(BURSTS, update_seconds=0)
        self.check(learned, peak=1e-9, mean=0.1, samples=69)
        self.assertEqual(70, learned.samples)
