# SPDX-License-Identifier: Apache-2.0
"""Computes the rates of an instance from counters of its interfaces.

Readings of counters become rates, period by period. The module also determines
when the sum over the interfaces of an instance is known. Pure: no clock, no
I/O. Time is divided into *periods* of equal length, numbered by ``floor(time /
period_seconds)``, the same for all interfaces. A reading in pieces therefore
gives the same result as one reading.

The rules, which configuration/telemetry_services.rst explains:

- A counter is a curve of volume over time. The rate of a period follows from
  the rise of the curve from the start to the end of the period. Periods do not
  overlap, so that no volume counts twice or is lost.
- The curve of a continuous counter passes through each reading. Some sources
  update their counters at intervals, for example an exporter that repeats the
  last poll. Their reading shows the volume of an earlier *update*, see
  :func:`update_seconds`. The curve is the straightest one that agrees with all
  readings.
- Readings more than one and a half periods apart leave a gap, because it is
  unknown in which part of the gap the counter rose.
- A counter that decreases was reset.
- The counters of two hosts are unrelated. The host whose counter started later
  has the interface, until that counter ends and the other counter continues to
  rise.
- An interface that had an answer at most :data:`GRACE_PERIODS` periods ago is
  expected to have one: without an answer, the sum is unknown. After that, the
  interface counts as detached.
- If an interface appears while others are measured, the sum is unknown from
  the period before its first reading until its first rate. Interfaces that are
  replaced all the time therefore hide no traffic.
- If the sum is unknown, the sum over the other interfaces is a *lower bound*.
  It is returned as such, unless it is lower than the sum of at most
  :data:`GRACE_PERIODS` periods ago including the missing interfaces. A broken
  interface therefore neither hides the traffic of the others, nor makes their
  sum look complete.

Derivation: reference/counters.rst.
"""

import bisect
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from vswitch_aware_scheduler.telemetry import curves
from vswitch_aware_scheduler.telemetry import update_interval
from vswitch_aware_scheduler.traffic import series as rate_series

__all__ = ['AggregatedReadings', 'GRACE_PERIODS', 'KBPS_PER_BYTE',
           'KPPS_PER_PACKET', 'Part', 'Readings', 'from_counters',
           'from_increments', 'from_rates', 'instance_series', 'together']

#: Number of periods without an answer before an interface counts as detached
#: from its instance.
GRACE_PERIODS = 2

# Why a period has no rate. If several reasons apply, the last one counts.
_REASONS = ('missing', 'negative', 'absurd', 'gap', 'reset', 'migration')
_MISSING, _NEGATIVE, _ABSURD, _GAP, _RESET, _MIGRATION = range(1, 7)

_LIMITS = np.array([rate_series.MAX_RATE_KBPS, rate_series.MAX_RATE_KBPS,
                    rate_series.MAX_RATE_KPPS])

#: Maximum number of periods of a gap that are counted.
_LONGEST_GAP = 10000

#: kbit/s in 1 byte/s, and kilo-packets/s in 1 packet/s.
KBPS_PER_BYTE = 0.008
KPPS_PER_PACKET = 0.001

#: An interval that differs from the period by at most this share is treated
#: as equal.
_SAME_AS_PERIOD = 0.01

#: If updates cannot be separated, the readings bound the curve if an update
#: may be this late, in periods.
_LATENESS_PERIODS = 0.03


@dataclasses.dataclass(frozen=True, eq=False)
class Readings:
    """Readings of the counters of an interface on one host.

    :ivar counters: (n, c) bytes sent and received and, with c = 4, packets
        sent and received; finite
    :ivar times: (n, c) time of each reading of each counter, seconds UTC,
        increasing
    """

    times: np.ndarray
    counters: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class AggregatedReadings(Readings):
    """A counter of which one value for each period is stored.

    The value is the volume at an unknown moment of the period. A time is the
    start of the period.
    """


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """The rates of one interface of an instance.

    :ivar periods: (n,) int64, increasing, without duplicates
    :ivar rates: (n, 3) egress_kbps, ingress_kbps, kpps; NaN if the source has
        no value
    :ivar lost: {period: index + 1 into the reasons} of the periods in which
        the interface should have a rate but has none
    :ivar began: period of the first reading of a counter, or None; in the
        period before, the interface may have existed already
    """

    periods: np.ndarray
    rates: np.ndarray
    lost: dict[int, int]
    began: int | None = None


def together(columns: Sequence[tuple[np.ndarray, np.ndarray]],
             period_seconds: float) -> Readings:
    """Return :class:`Readings` of the counters of an interface.

    Counters with the same times are combined unchanged. Of counters with
    different times, the last reading of each period is used, for the periods
    in which every counter has a reading.

    :param columns: for each counter (times, values) as
        :func:`.joining.usable` returns them
    :param period_seconds: length of a period in seconds
    """
    first = columns[0][0]
    if all(np.array_equal(first, times) for times, _ in columns[1:]):
        return Readings(np.stack([times for times, _ in columns], axis=1),
                        np.stack([values for _, values in columns], axis=1))
    last = [_last_of_periods(times, values, period_seconds)
            for times, values in columns]
    periods = functools.reduce(np.intersect1d, (each[0] for each in last))
    at = [np.searchsorted(each[0], periods) for each in last]
    return Readings(*(
        np.stack([each[column][i] for each, i in zip(last, at)], axis=1)
        for column in (1, 2)))


def _last_of_periods(times, values, period_seconds):
    periods = np.floor(times / period_seconds).astype(np.int64)
    last = np.ones(periods.size, dtype=bool)
    last[:-1] = periods[1:] != periods[:-1]
    return periods[last], times[last], values[last]


@dataclasses.dataclass
class _Run:
    """Readings without a gap or a reset between them, as rates."""

    host: int
    first: int
    last: int
    rates: np.ndarray
    after_reset: bool

    def order(self):
        return self.first, self.last


def _runs(host, readings, newest, period_seconds, update):
    """Return the runs of the readings of one host, in order."""
    times, counters = readings.times, readings.counters
    if not len(times):
        return []
    reset = (np.diff(counters, axis=0) < 0).any(axis=1)
    gap = curves.GAP_PERIODS * period_seconds
    aggregated = isinstance(readings, AggregatedReadings)
    if aggregated and len(times) > 1:
        # One period may be empty because a poll was late, in addition to the
        # periods without a poll.
        gap += min(float(np.median(np.diff(times[:, 0]))),
                   2 * curves.AGGREGATES_AROUND * period_seconds)
    apart = (np.diff(times, axis=0) > gap).any(axis=1)
    cuts = np.flatnonzero(reset | apart) + 1
    runs = []
    for begin, end in zip([0, *cuts], [*cuts, len(times)]):
        is_over = end < len(times) or newest - times[end - 1].max() > gap
        sides = [bool(0 < at < len(times) and times[at].max()
                      - times[at - 1].max() < 2 * curves.AGGREGATES_AROUND
                      * period_seconds and apart[at - 1])
                 for at in (begin, end)] if aggregated else None
        first, rates = _rates(times[begin:end], counters[begin:end],
                              is_over, period_seconds, update, sides)
        runs.append(_Run(host, first, first + len(rates), rates,
                         bool(begin and reset[begin - 1])))
    return runs


def _rates(times, counters, is_over, period_seconds, update, sides=None):
    """Return the rates of a run of readings.

    :param times: (n, c)
    :param counters: (n, c), not decreasing
    :param is_over: whether it is certain that no reading follows
    :param update: interval of updates in seconds; 0: continuous counters
    :param sides: for :class:`AggregatedReadings`, whether several periods are
        empty before and after them, else None
    :returns: first period, (m, 3) rates of it and of the following periods
    """
    between = float(np.median(np.diff(times[:, 0]))) if len(times) > 1 \
        else 0.0
    if sides is not None:
        curve, interval = curves.aggregated_curve(
            times, counters, is_over, period_seconds, update, sides)
    elif min(update, between) > _LATENESS_PERIODS * period_seconds \
            or update >= update_interval.STEPPED * between and update:
        curve = curves.updated_curve(times, counters, is_over, between,
                                     period_seconds, update)
        interval = 0.0
    else:
        curve = curves.Curve(times, counters, float(times[-1].min()))
        interval = between
    begin = float(curve.times[0].max())
    first = math.ceil(begin / period_seconds)
    # Start of the first period that is not complete.
    last = math.floor(min(float(curve.times[-1].min()), curve.end)
                      / period_seconds)
    joins_readings = abs(interval - period_seconds) \
        <= _SAME_AS_PERIOD * period_seconds
    if joins_readings:
        # Start with the period to which the first reading is nearest.
        first = math.floor(begin / period_seconds - 0.5) + 1
        if is_over:
            last = math.floor((float(curve.times[-1].min())
                               + period_seconds / 2) / period_seconds)
    if last <= first:
        return math.floor(begin / period_seconds), np.zeros((0, 3))
    bounds = np.arange(first, last + 1) * float(period_seconds)
    per_second = np.stack([
        _rises(curve.times[:, column], curve.volumes[:, column], bounds,
               joins_readings)
        for column in range(counters.shape[1])], axis=1)
    with_rate = np.flatnonzero(np.isfinite(per_second).all(axis=1))
    if not with_rate.size:
        return math.floor(begin / period_seconds), np.zeros((0, 3))
    # Only periods at the ends can be without a rate.
    first += int(with_rate[0])
    per_second = per_second[with_rate[0]:with_rate[-1] + 1]
    rates = np.zeros((len(per_second), 3))
    rates[:, :2] = per_second[:, :2] * KBPS_PER_BYTE
    if per_second.shape[1] == 4:
        rates[:, 2] = per_second[:, 2:].sum(axis=1) * KPPS_PER_PACKET
    return first, rates


def _rises(times, volumes, bounds, joins_readings):
    """Return the (m,) rises per second between (m + 1,) bounds."""
    if not joins_readings or times.size < 2:
        return np.diff(np.interp(bounds, times, volumes)) / np.diff(bounds)
    # The counter is read, or updated, once a period. Rates from one reading to
    # the next are then more precise than rates between bounds.
    after = np.clip(np.searchsorted(times, bounds), 1, times.size - 1)
    nearest = after - (bounds - times[after - 1] <= times[after] - bounds)
    seconds = np.diff(times[nearest])
    # Used where one reading is the nearest to two bounds.
    plain = np.diff(np.interp(bounds, times, volumes, np.nan, np.nan)
                    ) / np.diff(bounds)
    return np.divide(np.diff(volumes[nearest]), seconds, out=plain,
                     where=seconds > 0)


def from_counters(hosts: Sequence[Readings], period_seconds: float,
                  update: float = 0.0, until: float = -math.inf) -> Part:
    """Return the :class:`Part` of an interface, from its counters.

    :param hosts: one for each host that reports the interface
    :param update: interval at which the source updates its counters in
        seconds, 0: continuous counters
    :param until: end of the time that was read, seconds UTC
    """
    hosts = [host for host in hosts if len(host.times)]
    newest = max([until, *(host.times[-1].max() for host in hosts)])
    runs = sorted((run for number, readings in enumerate(hosts)
                   for run in _runs(number, readings, newest, period_seconds,
                                    update)), key=_Run.order)
    kept_runs, lost, hosts_seen = [], {}, set()
    while runs:
        run = runs.pop(0)
        began_here = run.after_reset or run.host not in hosts_seen
        hosts_seen.add(run.host)
        if kept_runs:
            before = kept_runs[-1]
            if run.host == before.host:
                reason = _RESET if run.after_reset else _GAP
                first = before.last
            elif run.first <= before.last and not began_here:
                # The instance has left this host, which repeats the last state
                # of a counter after a pause.
                continue
            else:
                reason = _MIGRATION
                first = min(before.last, run.first - 1)
                _return_after(run, before, runs)
                before.rates = before.rates[:max(0, first - before.first)]
            lost.update(dict.fromkeys(
                range(max(first, run.first - _LONGEST_GAP), run.first),
                reason))
        kept_runs.append(run)
    periods = [np.arange(run.first, run.first + len(run.rates))
               for run in kept_runs]
    return Part(np.concatenate(periods or [np.empty(0, np.int64)]),
                np.concatenate([run.rates for run in kept_runs]
                               or [np.empty((0, 3))]), lost,
                min((math.floor(host.times[0].min() / period_seconds)
                     for host in hosts), default=None))


def _return_after(run, before, runs):
    """Insert the earlier host of an interface again after another host.

    The interface has returned, or two exporters report it, if the counter
    continues to rise. The counter of a host that the interface has left does
    not rise.

    :param runs: list of the following runs in order; a run may be added
    """
    rates = before.rates[max(0, run.last - before.first):]
    if len(rates) > GRACE_PERIODS and rates.any():
        bisect.insort(runs, _Run(before.host, run.last, before.last, rates,
                                 True), key=_Run.order)


def from_rates(periods: np.ndarray, rates: np.ndarray) -> Part:
    """Return the :class:`Part` of an interface whose source reports rates.

    :param periods: (n,) int64, increasing
    :param rates: (n, 3); NaN if the source has no value
    """
    return Part(periods, np.asarray(rates, float), {})


def from_increments(periods: np.ndarray, increments: np.ndarray,
                    seconds: float) -> Part:
    """Return the :class:`Part` of an interface from increments of counters.

    An increment belongs to the period at whose end the counter was read. It
    belongs only to that period if the counter was also read in the previous
    period. The time of the first increment is unknown.

    If one period is empty, its reading is missing, or it came slightly early
    or late into a period with another reading. In the first case the next
    increment is twice as large. In the second case it is not larger than its
    neighbours, and the mean of two increments is that of two periods.

    :param periods: (n,) int64, increasing, periods of the readings
    :param increments: (n, 2) bytes or (n, 4) bytes and packets, mean rise
        between two readings
    :param seconds: time between two readings in seconds
    """
    per_second = np.asarray(increments, float) / seconds
    rates = np.zeros((periods.size, 3))
    rates[:, :2] = per_second[:, :2] * KBPS_PER_BYTE
    if per_second.shape[1] == 4:
        rates[:, 2] = per_second[:, 2:].sum(axis=1) * KPPS_PER_PACKET
    steps = np.diff(periods)
    follows = np.zeros(periods.size, dtype=bool)
    follows[1:] = steps == 1
    reset = np.any(per_second < 0, axis=1)
    # For the increment before an empty period and the one after the next.
    largest = per_second.copy()
    largest[1:] = per_second[:-1]
    at = np.flatnonzero(follows[2:]) + 1
    largest[at] = np.maximum(largest[at], per_second[at + 1])
    moved = np.zeros(periods.size, dtype=bool)
    moved[1:] = (steps == 2) & np.all(
        per_second[1:] <= (1 + curves.JITTER) * largest[1:], axis=1)
    # The time of the very first increment is unknown.
    moved[1:2] = False
    keep = (follows | moved) & ~reset
    lost = {}
    for gap in np.flatnonzero(~keep[1:]).tolist():
        first, closing = int(periods[gap]), int(periods[gap + 1])
        reason = _RESET if follows[gap + 1] or moved[gap + 1] else _GAP
        lost.update(dict.fromkeys(
            range(max(first, closing - _LONGEST_GAP), closing), reason))
    twice = np.flatnonzero(moved & keep & np.append(False, keep[:-1]))
    for period in periods[moved & keep & ~np.append(False, keep[:-1])]:
        lost[int(period) - 2] = _GAP
    labels = np.concatenate([periods[keep] - 1, periods[twice] - 2])
    order = np.argsort(labels)
    return Part(labels[order], np.concatenate(
        [rates[keep], rates[twice - 1]])[order], lost,
        int(periods[0]) - 1 if periods.size else None)


def instance_series(instance_uuid: str, period_seconds: float, start: float,
                    end: float, parts: Sequence[Part],
                    oldest: float = -math.inf, complete: bool = True
                    ) -> rate_series.RateSeries:
    """Return the RateSeries of an instance: the sum over its interfaces.

    :param start: time of the first sample, may be -inf
    :param end: end of the samples, exclusive, may be inf
    :param parts: one for each interface, from :data:`GRACE_PERIODS` periods
        before ``start`` on, if the source has them
    :param oldest: samples from before this time are rejected as too old
    :param complete: False if the source did not answer for an interface, so
        that the sum is unknown
    :returns: a time is the start of a period; lower bounds are marked
        ``partial``
    """
    measured_from = min((part.periods[0] for part in parts
                         if part.periods.size), default=math.inf)
    period_arrays = [periods for part in parts for periods in (
        part.periods, np.fromiter(part.lost, np.int64, len(part.lost)),
        np.arange(*_first_periods(part, measured_from)))]
    periods = np.unique(
        np.concatenate([np.empty(0, np.int64), *period_arrays]))
    total = np.zeros((periods.size, 3))
    answered = np.zeros(periods.size, dtype=bool)
    trouble = np.full(periods.size, 0 if complete else _MISSING,
                      dtype=np.int8)
    reports = [_usable(part, periods) for part in parts]
    for rates, reason in reports:
        total += rates
        answered |= (reason == 0) | (rates > 0).any(axis=1)
    recent = np.zeros(periods.size)
    for part, (_, reason) in zip(parts, reports):
        begun, rated = _first_periods(part, measured_from)
        reason[(periods >= begun) & (periods < rated) & (reason < 0)] = \
            _MISSING
        expected = _lately(periods, periods[reason >= 0])
        problem = np.where(expected & (reason < 0), _MISSING,
                           np.maximum(reason, 0))
        trouble = np.maximum(trouble, problem)
        recent = np.maximum(recent, np.where(
            problem, _recent_bandwidth(periods, total, reason == 0), 0))
    times = periods * float(period_seconds)
    requested = (times >= start) & (times < end)
    too_old = requested & (times < oldest)
    requested &= ~too_old
    whole = answered & (trouble == 0)
    partial = answered & (trouble > 0) \
        & (total[:, :2].sum(axis=1) >= recent)
    usable = requested & (whole | partial)
    series = rate_series.RateSeries.from_samples(
        instance_uuid, period_seconds, times[usable], *total[usable].T)
    counts = {name: int((requested & ~usable & (trouble == code)).sum())
              for code, name in enumerate(_REASONS, 1)}
    return dataclasses.replace(
        series, partial=np.isin(series.times, times[partial]),
        refused=series.refused + rate_series.Refused(
            too_old=int(too_old.sum()), **counts))


def _usable(part, periods):
    """Return the usable rates of a part, and why the others are not usable.

    :param periods: (n,) increasing, including all periods of the part
    :returns: rates (n, 3), 0 where there is none, and (n,) reasons: 0 for
        usable rates, -1 where the part has nothing
    """
    rates = np.zeros((periods.size, 3))
    reason = np.full(periods.size, -1, dtype=np.int8)
    for period, code in part.lost.items():
        reason[np.searchsorted(periods, period)] = code
    at = np.searchsorted(periods, part.periods)
    with np.errstate(invalid='ignore'):
        negative, absurd = part.rates < 0, part.rates > _LIMITS
    unusable = negative | absurd | np.isnan(part.rates)
    rates[at] = np.where(unusable, 0, part.rates)
    reason[at] = np.select(
        [absurd.any(axis=1), negative.any(axis=1), unusable.any(axis=1)],
        [_ABSURD, _NEGATIVE, _MISSING], 0)
    return rates, reason


def _first_periods(part, measured_from):
    """Return the periods in which a new interface may have unknown traffic.

    :param measured_from: first period with a rate of any interface of the
        instance, or infinity; before it, nothing is known anyway
    :returns: first period, and end
    """
    if part.began is None or part.began <= measured_from:
        return 0, 0
    end = int(part.periods[0]) if part.periods.size \
        else part.began + GRACE_PERIODS + 1
    return max(part.began - 1, end - _LONGEST_GAP), end


def _lately(periods, alive):
    """Return which periods are shortly after one with an answer."""
    if not alive.size:
        return np.zeros(periods.size, dtype=bool)
    before = np.searchsorted(alive, periods, side='right') - 1
    return (before >= 0) & (
        periods - alive[np.maximum(before, 0)] <= GRACE_PERIODS)


def _recent_bandwidth(periods, total, considered):
    """Return the largest sum shortly before each period.

    :param considered: (n,) bool, the periods to consider
    """
    largest = np.zeros(periods.size)
    bandwidth = np.where(considered, total[:, :2].sum(axis=1), 0)
    for ago in range(1, GRACE_PERIODS + 1):
        at = np.minimum(np.searchsorted(periods, periods - ago),
                        max(periods.size - 1, 0))
        largest = np.maximum(largest, np.where(
            periods[at] == periods - ago, bandwidth[at], 0))
    return largest
