# SPDX-License-Identifier: Apache-2.0
"""Simulates a source of counters: traffic, updates, scrapes, and faults.

True traffic raises a counter; the source reads the counter at its updates and
repeats it in between; Prometheus scrapes what the source reports. The true
volume is known for any time, so that what was learned can be compared with
it. Everything random comes from a numpy Generator.
"""

import dataclasses
import math

import numpy as np

from tests.contract import telemetry_counters
from tests.contract import telemetry_services
from tests.contract import telemetry_stand_ins
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.telemetry import prometheus

#: Beginning of all simulations, a multiple of a day.
T0 = 1700006400.0

BYTES_PER_KBIT = 125.0


@dataclasses.dataclass(frozen=True)
class Traffic:
    """A VM that sends at one rate, for ``on_seconds`` of ``every_seconds``.

    :ivar on_seconds: equal to ``every_seconds``: without a pause
    """

    kbps: float
    on_seconds: float = 1.0
    every_seconds: float = 1.0
    begin: float = T0 - 864000.0

    def volume(self, times):
        """Return the bytes sent until each time."""
        elapsed = np.asarray(times, float) - self.begin
        cycles = np.floor(elapsed / self.every_seconds)
        rest = np.minimum(elapsed - cycles * self.every_seconds,
                          self.on_seconds)
        return self.kbps * BYTES_PER_KBIT * (
            cycles * self.on_seconds + rest)

    def mean_kbps(self, begin, end):
        return float(np.diff(self.volume([begin, end]))[0]
                     ) / BYTES_PER_KBIT / (end - begin)


@dataclasses.dataclass(frozen=True)
class Source:
    """When a source updates its counters and when it is scraped.

    :ivar update_seconds: interval of updates, 0: counters are continuous
    :ivar jitter_seconds: an update comes up to so much earlier or later
    :ivar drift_seconds: the true interval is so much longer
    :ivar phase_seconds: first update after the beginning
    :ivar scrape_seconds: interval of scrapes
    :ivar scrape_phase_seconds: first scrape after the beginning
    :ivar outages: (begin, end) in seconds since the beginning: no scrapes
    :ivar stalls: (begin, end): no updates
    :ivar resets: the counter begins with 0, in seconds since the beginning
    :ivar migrations: the counter is that of another host from then on
    """

    update_seconds: float = 0.0
    jitter_seconds: float = 0.0
    drift_seconds: float = 0.0
    phase_seconds: float = 0.0
    scrape_seconds: float = 30.0
    scrape_phase_seconds: float = 0.0
    outages: tuple = ()
    stalls: tuple = ()
    resets: tuple = ()
    migrations: tuple = ()

    def readings(self, traffic, seconds, random):
        """Return [(number of the host, times, values)] of one counter."""
        scrapes = T0 + np.arange(self.scrape_phase_seconds, seconds,
                                 self.scrape_seconds)
        read_at = scrapes
        if self.update_seconds:
            interval = self.update_seconds + self.drift_seconds
            updates = T0 + np.arange(
                self.phase_seconds - 2 * interval, seconds, interval)
            updates = np.sort(updates + random.uniform(
                -self.jitter_seconds, self.jitter_seconds, updates.size))
            updates = updates[_outside(updates, self.stalls)]
            last = np.searchsorted(updates, scrapes, side='right') - 1
            read_at = updates[np.maximum(last, 0)]
        values = traffic.volume(read_at)
        began = np.full(scrapes.shape, -math.inf)
        for moment in (*self.resets, *self.migrations):
            began[read_at >= T0 + moment] = max(T0 + moment, T0)
        values -= np.where(np.isfinite(began), traffic.volume(
            np.maximum(began, T0)), 0.0)
        host = np.zeros(scrapes.shape, int)
        for moment in self.migrations:
            host[scrapes >= T0 + moment] += 1
        read = _outside(scrapes, self.outages)
        # A new host reports nothing before its first update there.
        read &= (host == 0) | (read_at >= began)
        for moment in self.migrations:
            read &= ~((scrapes >= T0 + moment) & (read_at < T0 + moment))
        return [(number, scrapes[read & (host == number)],
                 values[read & (host == number)])
                for number in range(len(self.migrations) + 1)]


def _outside(times, stretches):
    outside = np.ones(times.shape, dtype=bool)
    for begin, end in stretches:
        outside &= ~((times >= T0 + begin) & (times < T0 + end))
    return outside


def prometheus_series(number, traffic, source, seconds, random):
    """Return [(name, labels, times, values)] of an instance that sends.

    Ceilometer's exporter; half as much is received.
    """
    every_series = []
    for host, times, values in source.readings(traffic, seconds, random):
        if not times.size:
            continue
        resource = (f'instance-{number:08x}-'
                    f'{telemetry_counters.instance_uuid(number)}-tap0')
        for metric, factor in zip(telemetry_counters.METRICS,
                                  (1.0, .5, .001, .0005)):
            every_series.append((
                'ceilometer_' + metric.replace('.', '_'),
                {'resource': resource, 'vm_instance': f'vm-{number}',
                 'instance': f'compute-{host}:9101', 'job': 'ceilometer'},
                times, values * factor))
    return every_series


class Server(telemetry_stand_ins.Prometheus):
    """A Prometheus that has scraped until now.

    :ivar now: seconds UTC
    """

    now = T0

    def _found(self, selector, start, end):
        return super()._found(selector, start, min(end, self.now))


@dataclasses.dataclass(frozen=True)
class Learned:
    """What a modeler has learned of an instance, beside the truth.

    :ivar mean: learned mean rate by the true one of the same time
    :ivar peak: learned peak by the rate at which the instance sends
    :ivar samples: number of samples
    """

    mean: float
    peak: float
    samples: float


def learned(store, server, number, traffic, source, seconds, clock=None,
            interval=1800.0, seed=1, **options):
    """Run the passes of a modeler and return what it :class:`Learned`.

    :param store: empty :class:`~vswitch_aware_scheduler.store.Store`
    :param server: :class:`Server`
    :param clock: returns what the modeler's clock shows at a time, both in
        seconds since the beginning; None: the time
    :param interval: seconds from a pass to the next
    """
    server.series = prometheus_series(
        number, traffic, source, seconds, np.random.default_rng(seed))
    shown = T0

    def now():
        return shown

    driver = prometheus.PrometheusDriver(
        telemetry_services.access(server.url), clock=now, **options)
    settings = learning.LearningSettings('prometheus')
    for elapsed in np.arange(interval, seconds + 1, interval).tolist():
        server.now = T0 + elapsed
        shown = T0 + (elapsed if clock is None else clock(elapsed))
        learning.run(store, driver, now, settings)
    uuid = telemetry_counters.instance_uuid(number)
    counts = store.learned([uuid])[uuid].counts
    true = traffic.mean_kbps(counts.first_time, counts.last_time
                             + counts.period_seconds)
    sent = counts.totals[:, 0].sum() / counts.total_samples
    # Half as much is received as is sent.
    return Learned(sent / true, counts.peaks[:, 0].max() / 1.5 / traffic.kbps,
                   counts.total_samples)
