# SPDX-License-Identifier: Apache-2.0
"""From what a source tells of interfaces to the rates of an instance.

Knows how readings of counters become rates, period by period, what may not
be concluded from them, and when the sum over the interfaces of an instance
is known. Pure: no clock, no I/O. Time is cut into *periods* of equal length,
numbered by ``floor(time / period_seconds)``, the same for all interfaces, so
that a reading in pieces gives what one reading gives.

The rules, which the manual tells in configuration/telemetry_services.rst:

* the rate of a period is the difference between the last reading in it and
  the last reading in the next one, by the time between the two;
* a period without a reading leaves a gap: what the counter rose by
  meanwhile is spread over nobody knows which part of it;
* a counter that goes backwards was reset;
* the counters of two hosts have nothing to do with each other. The host
  whose counter began later has the interface now;
* an interface that had an answer at most :data:`GRACE_PERIODS` periods ago
  is expected to have one: without it the sum is not known. After that it
  counts as detached.
"""

import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler.traffic import series as rate_series

__all__ = ['GRACE_PERIODS', 'Part', 'Readings', 'from_counters',
           'from_increments', 'from_rates', 'instance_series',
           'last_readings', 'together']

#: For how many periods an interface may be silent before it counts as
#: detached from its instance.
GRACE_PERIODS = 2

# Why a period has no rate, weakest first: of several the last one is told.
_REASONS = ('missing', 'gap', 'reset', 'migration')
_MISSING, _GAP, _RESET, _MIGRATION = range(1, 5)

#: kbit/s in 1 byte/s, and kilo-packets/s in 1 packet/s.
KBPS_PER_BYTE = 0.008
KPPS_PER_PACKET = 0.001


@dataclasses.dataclass(frozen=True, eq=False)
class Readings:
    """Readings of the counters of an interface on one host.

    :ivar periods: (n,) int64, increasing, each once
    :ivar times: (n, c) seconds UTC, when each counter was read
    :ivar counters: (n, c) bytes sent and received and, with c = 4, packets
        sent and received; finite
    """

    periods: np.ndarray
    times: np.ndarray
    counters: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """What one interface says of its instance.

    :ivar periods: (n,) int64, increasing, each once
    :ivar rates: (n, 3) egress_kbps, ingress_kbps, kpps
    :ivar lost: {period: index + 1 into the reasons} of periods of which the
        interface should have a rate and has none
    """

    periods: np.ndarray
    rates: np.ndarray
    lost: dict


def last_readings(times, values, period_seconds):
    """Return the last reading of each period: periods, times, values.

    :param times: (n,) seconds UTC, in any order
    :param values: (n,); what is not finite is no reading
    """
    times, values = np.asarray(times, float), np.asarray(values, float)
    usable = np.isfinite(times) & np.isfinite(values)
    times, values = times[usable], values[usable]
    order = np.argsort(times, kind='stable')
    times, values = times[order], values[order]
    periods = np.floor(times / period_seconds).astype(np.int64)
    last = np.ones(periods.size, dtype=bool)
    last[:-1] = periods[1:] != periods[:-1]
    return periods[last], times[last], values[last]


def together(columns):
    """Return :class:`Readings` of the periods in which every counter has one.

    :param columns: for each counter what :func:`last_readings` returns
    """
    periods = columns[0][0]
    for column in columns[1:]:
        periods = np.intersect1d(periods, column[0], assume_unique=True)
    at = [np.searchsorted(column[0], periods) for column in columns]
    return Readings(
        periods,
        np.stack([column[1][i] for column, i in zip(columns, at)], axis=1),
        np.stack([column[2][i] for column, i in zip(columns, at)], axis=1))


@dataclasses.dataclass
class _Run:
    """Readings in consecutive periods without a reset: rates but one."""

    host: int
    first: int
    last: int
    rates: np.ndarray
    after_reset: bool


def _runs(host, readings):
    """Return the runs of one host's readings, in order."""
    periods, found = readings.periods, []
    if not periods.size:
        return found
    steps = np.diff(readings.counters, axis=0)
    reset = (steps < 0).any(axis=1)
    apart = np.diff(periods) != 1
    with np.errstate(divide='ignore', invalid='ignore'):
        # Two readings at one moment are not finite, and so refused below.
        per_second = steps / np.diff(readings.times, axis=0)
    rates = np.zeros((len(steps), 3))
    rates[:, :2] = per_second[:, :2] * KBPS_PER_BYTE
    if per_second.shape[1] == 4:
        rates[:, 2] = per_second[:, 2:].sum(axis=1) * KPPS_PER_PACKET
    cuts = np.flatnonzero(reset | apart) + 1
    for begin, end in zip([0, *cuts], [*cuts, periods.size]):
        found.append(_Run(
            host, int(periods[begin]), int(periods[end - 1]),
            rates[begin:end - 1], bool(begin and reset[begin - 1])))
    return found


def from_counters(hosts):
    """Return the :class:`Part` of an interface, from its counters.

    :param hosts: list of :class:`Readings`, one for each host that told of
        the interface
    """
    runs = sorted((run for host, readings in enumerate(hosts)
                   for run in _runs(host, readings)),
                  key=lambda run: (run.first, run.last))
    kept, lost, seen = [], {}, set()
    for run in runs:
        began_here = run.after_reset or run.host not in seen
        seen.add(run.host)
        if kept:
            before = kept[-1]
            if run.host == before.host:
                reason = _RESET if run.after_reset \
                    and run.first == before.last + 1 else _GAP
                first = before.last
            elif run.first <= before.last and not began_here:
                # A host that the instance has left and that still tells the
                # last state of a counter, after a pause.
                continue
            else:
                reason = _MIGRATION
                first = min(before.last, run.first - 1)
                before.rates = before.rates[:max(0, first - before.first)]
            lost.update(dict.fromkeys(range(first, run.first), reason))
        kept.append(run)
    periods = [np.arange(run.first, run.first + len(run.rates))
               for run in kept]
    return Part(np.concatenate(periods or [np.empty(0, np.int64)]),
                np.concatenate([run.rates for run in kept]
                               or [np.empty((0, 3))]), lost)


def from_rates(periods, rates):
    """Return the :class:`Part` of an interface whose source tells rates.

    :param periods: (n,) int64, increasing
    :param rates: (n, 3); a sample with NaN is missing
    """
    rates = np.asarray(rates, float)
    told = ~np.isnan(rates).any(axis=1)
    return Part(periods[told], rates[told],
                dict.fromkeys(periods[~told].tolist(), _MISSING))


def from_increments(periods, increments, seconds):
    """Return the :class:`Part` of an interface of increments of counters.

    An increment is told for the period at whose end the counter was read.
    It belongs to that period and no other only if the counter was read in
    the period before as well. Of the first one nobody knows.

    :param periods: (n,) int64, increasing, of the readings
    :param increments: (n, 2) bytes or (n, 4) bytes and packets, mean rise
        between two readings
    :param seconds: time between two readings
    """
    per_second = np.asarray(increments, float) / seconds
    rates = np.zeros((periods.size, 3))
    rates[:, :2] = per_second[:, :2] * KBPS_PER_BYTE
    if per_second.shape[1] == 4:
        rates[:, 2] = per_second[:, 2:].sum(axis=1) * KPPS_PER_PACKET
    follows = np.zeros(periods.size, dtype=bool)
    follows[1:] = np.diff(periods) == 1
    reset = (per_second < 0).any(axis=1)
    keep = follows & ~reset
    lost = {}
    for at in np.flatnonzero(~keep[1:]).tolist():
        first, closing = int(periods[at]), int(periods[at + 1])
        reason = _RESET if follows[at + 1] else _GAP
        lost.update(dict.fromkeys(range(first, closing), reason))
    return Part(periods[keep] - 1, rates[keep], lost)


def instance_series(instance_uuid, period_seconds, start, end, parts,
                    oldest=-math.inf, complete=True):
    """Return the RateSeries of an instance: the sum over its interfaces.

    :param start: first time wanted, may be -inf
    :param end: first time no longer wanted, may be inf
    :param parts: list of :class:`Part`, one for each interface. They reach
        back to :data:`GRACE_PERIODS` periods before ``start``, where the
        source does.
    :param oldest: what is from before that time is refused as too old
    :param complete: False if the source did not answer for some interface:
        the sum is then not known, and every sample is refused as missing
    :returns: :class:`.series.RateSeries`; a time is the start of a period
    """
    known = [np.concatenate([part.periods,
                             np.fromiter(part.lost, np.int64, len(part.lost))])
             for part in parts]
    known = [periods for periods in known if periods.size]
    if not known:
        nothing = np.empty(0)
        return rate_series.RateSeries.from_samples(
            instance_uuid, period_seconds, nothing, nothing, nothing)
    low = int(min(periods.min() for periods in known))
    count = int(max(periods.max() for periods in known)) - low + 1
    total = np.zeros((count, 3))
    answered = np.zeros(count, dtype=bool)
    trouble = np.full(count, 0 if complete else _MISSING, dtype=np.int8)
    for part in parts:
        told = np.zeros(count, dtype=bool)
        told[part.periods - low] = True
        total[part.periods - low] += part.rates
        reason = np.zeros(count, dtype=np.int8)
        for period, why in part.lost.items():
            reason[period - low] = why
        alive = told | (reason > 0)
        expected = alive.copy()
        for ago in range(1, GRACE_PERIODS + 1):
            expected[ago:] |= alive[:-ago]
        answered |= told
        trouble = np.maximum(trouble, reason)
        trouble = np.maximum(trouble, (expected & ~alive) * np.int8(_MISSING))
    # After the end of all interfaces nothing is known, and nothing refused.
    alive_somewhere = np.zeros(count, dtype=bool)
    for periods in known:
        alive_somewhere[periods - low] = True
    times = (low + np.arange(count)) * float(period_seconds)
    wanted = (times >= start) & (times < end) & alive_somewhere
    old = wanted & (times < oldest)
    wanted &= ~old
    good = wanted & answered & (trouble == 0)
    series = rate_series.RateSeries.from_samples(
        instance_uuid, period_seconds, times[good], *total[good].T)
    counts = {name: int((wanted & (trouble == code)).sum())
              for code, name in enumerate(_REASONS, 1)}
    return dataclasses.replace(series, refused=series.refused
                               + rate_series.Refused(too_old=int(old.sum()),
                                                     **counts))
