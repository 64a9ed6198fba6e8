# SPDX-License-Identifier: Apache-2.0
"""Counters that step, on a real Prometheus and a real Gnocchi.

Half a day of a steady instance is brought into the server, read in passes of
an hour and compared with the true volume and the true peak.
"""

import dataclasses

import numpy as np

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_services
from tests.contract import telemetry_simulator as simulator
from tests.fakes import clock as fake_clock
from tests.faults import registry
from tests.integration import base
from tests.integration import feeds
from tests.integration import servers
from vswitch_aware_scheduler.telemetry import gnocchi
from vswitch_aware_scheduler.telemetry import prometheus

check = registry.check

SECONDS = 43200
STEADY = simulator.Traffic(1e6)

#: Each is one instance of one Prometheus, and a few faults.
SOURCES = (
    simulator.Source(update_seconds=300, jitter_seconds=2, outages=(
        (15000, 15400),)),
    simulator.Source(update_seconds=300, drift_seconds=.75,
                     scrape_seconds=120, stalls=((20000, 20700),)),
    simulator.Source(update_seconds=60, jitter_seconds=2, scrape_seconds=60),
    simulator.Source(update_seconds=120, jitter_seconds=2,
                     scrape_seconds=120))


def _check(driver, set_clock):
    """Read in passes, and compare volume and peak."""
    times, rates, start = [], [], simulator.T0
    for end in range(7200, SECONDS + 1, 3600):
        set_clock(simulator.T0 + end)
        for series in driver.series(start=start):
            times.extend(series.times)
            rates.extend(series.rates[:, 0])
            if len(series):
                start = np.nextafter(series.times[-1], np.inf)
    check.assertGreater(len(times), SECONDS / 300 - 40)
    check.assertAlmostEqual(1.0, np.mean(rates) / 1e6, delta=0.01)
    check.assertAlmostEqual(1.0, np.max(rates) / 1e6, delta=0.05)


@registry.fault('stepping counter on a real server')
def real_prometheus():
    for source in SOURCES:
        server = base.started(servers.Prometheus(feeds.open_metrics(
            simulator.prometheus_series(1, STEADY, source, SECONDS,
                                        np.random.default_rng(1)))))
        try:
            clock = fake_clock.Clock(simulator.T0)
            _check(prometheus.PrometheusDriver(
                telemetry_services.access(server.url), clock=clock),
                lambda now, clock=clock: setattr(clock, 'now', now))
        finally:
            server.cleanUp()
    return len(SOURCES)


@registry.fault('stepping counter on a real server')
def real_gnocchi():
    random = np.random.default_rng(3)
    polled = simulator.T0 + np.arange(0, SECONDS, 300.0)
    polled = np.sort(polled + random.uniform(-2, 2, polled.size))
    polled = np.round(polled, 3)
    counters = STEADY.volume(polled)[:, None] * np.array(
        [1, .5, .001, .0005])
    interface = telemetry_counters.interfaces(
        telemetry_driver.sample_traffic())[-1]
    interface = dataclasses.replace(interface, times=polled, counters=counters)
    server = base.started(servers.Gnocchi())
    try:
        feeds.GnocchiFeed(server, gnocchi.AGGREGATIONS).publish([interface])
        for aggregation in gnocchi.AGGREGATIONS:
            clock = fake_clock.Clock(simulator.T0)
            access = telemetry_services.access(None, auth={
                'auth_type': 'gnocchi-basic', 'user': 'admin',
                'endpoint': server.url})
            access.pop('url')
            _check(gnocchi.GnocchiDriver(
                access, clock=clock, aggregation=aggregation),
                lambda now, clock=clock: setattr(clock, 'now', now))
    finally:
        server.cleanUp()
    return len(gnocchi.AGGREGATIONS)
