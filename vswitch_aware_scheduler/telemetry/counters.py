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
import dataclasses
import math
import operator

import numpy as np

from vswitch_aware_scheduler.telemetry import taut_string
from vswitch_aware_scheduler.traffic import series as rate_series

__all__ = ['AGGREGATES_AROUND', 'GRACE_PERIODS', 'Aggregates', 'Part',
           'Readings', 'configured_seconds', 'from_counters',
           'from_increments', 'from_rates', 'guessed_update_seconds',
           'instance_series', 'margin_seconds', 'together', 'update_seconds']

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

#: Readings that are further apart, in periods, leave a gap.
_GAP_PERIODS = 1.5

#: Updates and readings of a counter have different intervals if that of the
#: updates is at least this multiple of that of the readings.
_STEPPED = 1.25

#: Below this multiple of the interval of the readings, several updates may
#: come between two readings.
_VISIBLE = 1.9

#: Below this multiple of the interval of the readings, updates cannot be
#: separated well.
_SHARP = 2.2

#: Longer intervals are caused by the traffic, in seconds.
_LONGEST = 4000.0

#: Intervals that are commonly configured, in seconds.
_USUAL_SECONDS = (10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0,
                  240.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0)

#: Counters that do not change for this time, in seconds, belong to idle
#: instances.
_WAIT_SECONDS = 10000.0

#: A reading is missing if two are further apart than this, in intervals of the
#: readings.
_MISSED = 1.6

#: Number of updates before and after an update that narrow its time window.
_NEIGHBOURS = 3

#: Readings up to this number of periods later may change a curve.
_NEIGHBOUR_PERIODS = 2

#: After this number of intervals without a change, later readings of a counter
#: of steady traffic are needed before its rates are returned, because the
#: poller may stand still.
_LATE = 3
_LATEST = 12

#: Number of changes before and after among which two are steady.
_AROUND = 4

#: Largest relative difference between the rate over missed updates and the
#: rates before and after.
_LATE_TOLERANCE = 0.25

#: Minimum number of changes of a counter to determine its update interval.
_MIN_CHANGES = 4

#: An interval that differs from the period by at most this share is treated
#: as equal.
_SAME_AS_PERIOD = 0.01

#: If updates cannot be separated, the readings bound the curve if an update
#: may be this late, in periods.
_LATENESS_PERIODS = 0.03

#: Number of values around an empty period that are from an unknown moment.
AGGREGATES_AROUND = 5

#: Places of the first and the last value that are tried, in units of their
#: bounds.
_PLACES = (0.0, -0.5, 0.5, -1.0, 1.0)

#: A rise of aggregates that is this multiple of all earlier rises may belong
#: to two polls.
_LARGER = 1.3

#: An update may be early or late by this share of the interval, plus
#: _JITTER_SECONDS.
_JITTER = 0.05
_JITTER_SECONDS = 2.0

#: Maximum number of updates between two readings of a steady counter at which
#: the updates can be detected.
_MOST_UPDATES = 10

#: Number of updates at each end of a run of bounded readings that are not
#: used.
_UNSURE_UPDATES = 2

#: Permitted difference of such a rise from a whole number of updates, in
#: addition to the jitter; and its maximum.
_EXACTLY_WHOLE = 0.05
_WHOLE = 0.3


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
class Aggregates(Readings):
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
    lost: dict
    began: int | None = None


def together(columns, period_seconds):
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
    columns = [_last_of_periods(*column, period_seconds)
               for column in columns]
    periods = columns[0][0]
    for column in columns[1:]:
        periods = np.intersect1d(periods, column[0], assume_unique=True)
    at = [np.searchsorted(column[0], periods) for column in columns]
    return Readings(
        np.stack([column[1][i] for column, i in zip(columns, at)], axis=1),
        np.stack([column[2][i] for column, i in zip(columns, at)], axis=1))


def _last_of_periods(times, values, period_seconds):
    periods = np.floor(times / period_seconds).astype(np.int64)
    last = np.ones(periods.size, dtype=bool)
    last[:-1] = periods[1:] != periods[:-1]
    return periods[last], times[last], values[last]


# When a source updates its counters

def update_seconds(series, min_changes=_MIN_CHANGES, period_seconds=None):
    """Return the interval at which a source updates its counters.

    A counter of traffic without pauses changes at each update. The interval of
    a series is its usual time between two changes. The interval of the source
    is that of its busiest series, excluding a tenth of them, so that one
    unusual series does not determine the result.

    An interval that is shorter than that of the readings is only visible in
    steady traffic: such a counter rises by a varying whole number of updates.

    :param series: list of (times, values) of counters, as
        :func:`.joining.usable` returns them
    :param min_changes: minimum number of changes of a series that counts
    :param period_seconds: if there are several readings in a period, a dozen
        changes are needed to treat counters as continuous; None: fewer changes
        are sufficient
    :returns: seconds; 0.0 if the counters are continuous as far as their
        readings show; None if too few of them change
    """
    candidates = []
    for times, values in series:
        if times.size > 2:
            between = float(np.median(np.diff(times)))
            apart = _usual_intervals(times, values, between, min_changes)
            if apart.size and apart.mean() <= _LONGEST:
                candidates.append((float(apart.mean()), between, apart.size,
                                   values))
    if not candidates:
        return None
    candidates.sort(key=operator.itemgetter(0))
    interval, between, count, _ = candidates[len(candidates) // 10]
    if interval < _VISIBLE * between:
        numbers = [_updates_of_reading(values, between)
                   for *_, values in candidates]
        hidden = list(filter(None, numbers))
        if hidden:
            return between / float(np.median(hidden))
        if period_seconds is not None and between < period_seconds / 2 \
                and all(number is None for number in numbers):
            return None
    if interval < _STEPPED * between:
        return 0.0
    # The first and the last change were each between two readings.
    return configured_seconds(interval, between / count)


def guessed_update_seconds(series, period_seconds, until):
    """Return the assumed interval if it cannot be determined.

    :param series: as in :func:`update_seconds`
    :param period_seconds: length of a period in seconds
    :param until: end of the time that was read, seconds UTC
    :returns: seconds, or None if later readings may still show it
    """
    update = update_seconds(series, 3, period_seconds)
    if update is not None:
        return update
    if any(times.size and until - times[-1] < _WAIT_SECONDS
           and times[-1] - times[0] < _WAIT_SECONDS
           and np.median(np.diff(times)) < period_seconds / 2
           for times, _ in series if times.size > 1):
        return None
    # Rates over less than a period would not be useful.
    update = update_seconds(series, 2)
    if update is not None:
        return update
    return float(period_seconds) if any(times.size > 1 and np.median(
        np.diff(times)) < period_seconds / 2 for times, _ in series) else 0.0


def configured_seconds(seconds, uncertain):
    """Return the usual interval that a measured one is close to, or itself.

    :param seconds: measured interval
    :param uncertain: possible error of the interval
    """
    nearest = min(_USUAL_SECONDS, key=lambda usual: abs(usual - seconds))
    tolerance = max(0.005 * seconds, uncertain)
    return nearest if abs(nearest - seconds) <= tolerance else seconds


def _usual_intervals(times, values, between, min_changes):
    """Return the times between changes of a counter without pauses."""
    changed = np.flatnonzero(np.diff(values) != 0)
    nothing = np.empty(0)
    if changed.size < min_changes:
        return nothing
    # A change is between two readings. If a reading is missing in between, the
    # time of the change is uncertain.
    low, high = times[changed], times[changed + 1]
    is_certain = (high - low) <= _MISSED * between
    apart = np.diff((low + high) / 2)[is_certain[:-1] & is_certain[1:]]
    if not apart.size:
        return nothing
    # Changes follow each other at the interval, with an error of the interval
    # of the readings, and further apart if there was no traffic.
    shortest = np.quantile(apart, 0.1)
    near = apart < max(1.7 * shortest, shortest + 2.05 * between)
    return apart[near] if near.sum() >= max(1, min_changes - 2) else nothing


def _updates_of_reading(values, between):
    """Return the mean number of updates from a reading to the next.

    If the traffic is steady, each rise contains a whole number of updates. The
    number is almost always the same, and never differs twice in succession.

    :returns: 0.0 if nothing indicates updates, None if there are too few rises
    """
    rises = np.diff(values)
    # A negative rise is a reset.
    rises = rises[rises >= 0]
    if rises.size < 3 * _MIN_CHANGES:
        return None
    # A pause has several readings; its neighbours are partial rises.
    pause = np.convolve(rises <= 0, [1, 1], 'full') > 1
    pause = pause[:-1] | pause[1:]
    beside = np.concatenate([[True], pause, [True]])
    rises = rises[~(beside[:-2] | beside[1:-1] | beside[2:])]
    if rises.size < 3 * _MIN_CHANGES:
        return None
    # Half of the rises may include one more update.
    usual = np.quantile(rises, 0.4, method='nearest')
    if usual <= 0:
        return 0.0
    for number in range(1, _MOST_UPDATES + 1):
        unit = usual / number
        for _ in range(2):
            whole = np.round(rises / unit)
            unit = rises.sum() / whole.sum()
        updates = rises / unit
        unusual = np.flatnonzero(whole != number)
        if not unusual.size:
            continue
        # Each end of a rise may be early or late by the jitter.
        exactly = 2 * _JITTER_SECONDS * number / between + _EXACTLY_WHOLE
        off = abs(updates - whole) > (
            min(exactly, _WHOLE) if unusual.size > 1 else _EXACTLY_WHOLE)
        together = np.append(
            (np.diff(whole[unusual]) == 0) & (np.diff(unusual) == 1), False)
        if max(off.mean(), off[unusual].mean()) <= 0.05 \
                and together.mean() <= 0.5:
            return float(whole.sum() / whole.size)
    return 0.0


def margin_seconds(period_seconds, update):
    """Return how much time to read before and after a period.

    :param period_seconds: length of a period in seconds
    :param update: seconds as returned by :func:`update_seconds`
    """
    return _delay(period_seconds, update) + update \
        + _GAP_PERIODS * period_seconds


def _neighbours(period_seconds, update):
    return max(_NEIGHBOURS, math.ceil(_NEIGHBOUR_PERIODS * period_seconds
                                      / update))


def _delay(period_seconds, update):
    """Return for how long later readings affect the rates of earlier ones."""
    if not update:
        return 0.0
    return (max(_neighbours(period_seconds, update), _LATE + 1) + 1) * update


# From counters to rates

@dataclasses.dataclass(frozen=True, eq=False)
class _Curve:
    """The volume of an interface over time, as points of a curve.

    :ivar times: (k, c) seconds, increasing
    :ivar volumes: (k, c) values of the counters at these times
    :ivar end: later readings do not change points before this time
    """

    times: np.ndarray
    volumes: np.ndarray
    end: float


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
    gap = _GAP_PERIODS * period_seconds
    aggregated = isinstance(readings, Aggregates)
    if aggregated and len(times) > 1:
        # One period may be empty because a poll was late, in addition to the
        # periods without a poll.
        gap += min(float(np.median(np.diff(times[:, 0]))),
                   2 * AGGREGATES_AROUND * period_seconds)
    apart = (np.diff(times, axis=0) > gap).any(axis=1)
    cuts = np.flatnonzero(reset | apart) + 1
    runs = []
    for begin, end in zip([0, *cuts], [*cuts, len(times)]):
        is_over = end < len(times) or newest - times[end - 1].max() > gap
        sides = [bool(0 < at < len(times) and times[at].max()
                      - times[at - 1].max() < 2 * AGGREGATES_AROUND
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
    :param sides: for :class:`Aggregates`, whether several periods are empty
        before and after them, else None
    :returns: first period, (m, 3) rates of it and of the following periods
    """
    between = float(np.median(np.diff(times[:, 0]))) if len(times) > 1 \
        else 0.0
    if sides is not None:
        curve, interval = _aggregated_curve(
            times, counters, is_over, period_seconds, update, sides)
    elif min(update, between) > _LATENESS_PERIODS * period_seconds \
            or update >= _STEPPED * between and update:
        curve = _updated_curve(times, counters, is_over, between,
                               period_seconds, update)
        interval = 0.0
    else:
        curve = _Curve(times, counters, float(times[-1].min()))
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


def _updated_curve(times, counters, is_over, between, period_seconds, update):
    """Return the :class:`_Curve` of counters that are updated at intervals.

    A reading shows the volume of the last update before it. If the counter
    changed, that update came after the previous reading, at most an interval
    ago. The curve is the straightest that agrees with this. Derivation:
    reference/counters.rst.
    """
    clock = times[:, 0]
    volume = counters[:, :2].sum(axis=1)
    changed = np.flatnonzero((np.diff(counters, axis=0) > 0).any(axis=1)) + 1
    if _began_late(clock, counters, changed, update):
        return _updated_curve(times[changed[0]:], counters[changed[0]:],
                              is_over, between, period_seconds, update)
    # Rows with the first and with the last reading of each volume.
    first = np.concatenate([[0], changed])
    last = np.concatenate([changed - 1, [len(clock) - 1]])
    # Largest age of the update that a volume belongs to. If several updates
    # come between two readings, a missing one is not visible.
    longest = (1 + (update < _SHARP * between) + _JITTER) * update \
        + _JITTER_SECONDS
    after, before = _windows(clock, changed, between, update, longest)
    still = clock[last] - longest
    still[:-1][_are_late((after + before) / 2, volume[changed], between,
                         update)] = -math.inf
    low_times = np.concatenate([clock[:1], before])
    high_times = np.maximum(still, np.concatenate([[-math.inf], after]))
    high_times = np.maximum.accumulate(high_times)
    age = min(update, between) / 2
    strings = [taut_string.taut_string(
        low_times, column[first], high_times, column[first],
        (clock[0] - age, column[0]), (clock[-1] - age, column[-1]))
        for column in counters.T]
    # The age of the first and of the last volume is unknown, so that rates
    # that depend on them are not used.
    unsure = _UNSURE_UPDATES * update + between
    when = np.unique(np.concatenate([
        [clock[0] + unsure], *(points for points, _ in strings)]))
    when = when[when >= clock[0] + unsure]
    end = float(clock[-1]) - (unsure if is_over else _delay(
        period_seconds, update) + 2 * between)
    if not is_over:
        end = min(end, _steady_until(clock, changed, between, update))
    return _Curve(
        # The counters of one interface are read shortly after each other.
        when[:, None] + (times[:1] - times[:1, :1]),
        np.stack([np.interp(when, *string) for string in strings], axis=1),
        end)


def _aggregated_curve(times, counters, is_over, period_seconds, update,
                      sides):
    """Return the :class:`_Curve` of aggregates, and their interval.

    If the polls keep their place in the periods, a value is that of the start
    of its period, or of another moment that is the same in all periods. A late
    poll may leave a period empty and fall into the next period together with
    the next poll. Values around an empty period are therefore from an unknown
    moment of their periods, and the curve is the straightest that agrees with
    this.

    :param update: interval of the polls in seconds if their place was seen to
        change, else 0
    :param sides: whether several periods are empty before and after the run
    :returns: the curve, and the period, or 0 if polls may have changed their
        place
    """
    clock = times[:, 0]
    around = AGGREGATES_AROUND * period_seconds
    near = (clock <= clock[0] + around) & sides[0]
    near |= (clock >= clock[-1] - around) & sides[1]
    for at in np.flatnonzero(np.diff(clock) > _GAP_PERIODS * period_seconds):
        near |= (clock >= clock[at] - around) & (
            clock <= clock[at + 1] + around)
    if near.mean() > 0.5:
        # There is no usual place: use the middle.
        slack = np.full(clock.size, period_seconds / 2)
    else:
        slack = np.where(near, period_seconds, 0.0)
    if update:
        slack = np.maximum(slack, update / 2 + _JITTER_SECONDS)
    end = math.inf if is_over else min(
        _sure_until(clock, counters), float(clock[-1]) - around * near.any())
    if not slack.any():
        return _Curve(times, counters, min(
            end, float(times[-1].min()))), period_seconds

    def string(column, offsets):
        return taut_string.taut_string(
            clock + slack, column, clock - slack, column,
            (clock[0] + offsets[0], column[0]),
            (clock[-1] + offsets[1], column[-1]))

    def bend(offsets):
        at, volumes = string(counters[:, :2].sum(axis=1), offsets)
        return abs(np.diff(np.diff(volumes) / np.diff(at))).sum()

    # Choose the ends at which the curve bends least.
    offsets = (0.0, 0.0)
    for end_of in (0, 1):
        choices = [list(offsets) for _ in _PLACES]
        for choice, place in zip(choices, _PLACES):
            choice[end_of] = place * slack[-end_of]
        offsets = min(choices, key=bend)
    strings = [string(column, offsets) for column in counters.T]
    # The moments of the first and of the last value are unknown, so that rates
    # that depend on them are not used.
    begin = clock[0] + 2 * period_seconds * bool(slack[0])
    end = min(end, clock[-1] - 2 * period_seconds * bool(slack[-1]))
    when = np.unique(np.concatenate([
        [begin], *(points for points, _ in strings)]))
    when = when[when >= begin]
    return _Curve(
        when[:, None] + (times[:1] - times[:1, :1]),
        np.stack([np.interp(when, *string) for string in strings], axis=1),
        end), 0.0


def _sure_until(clock, counters):
    """Return the time until which aggregates will not change.

    A rise that is larger than all earlier ones may belong to two polls. The
    next periods show whether one period is empty instead.
    """
    rises = np.diff(counters[:, :2].sum(axis=1))
    for at in range(max(1, rises.size - AGGREGATES_AROUND), rises.size):
        before = rises[max(0, at - AGGREGATES_AROUND):at]
        if rises[at] > _LARGER * before.max():
            return float(clock[at])
    return math.inf


def _windows(clock, changed, between, update, longest):
    """Return the time windows of the updates that changed a counter.

    Each window is between two readings. Updates follow each other at the
    interval, so that adjacent updates narrow the windows.

    :returns: (k,) start and (k,) end of the windows
    """
    before = clock[changed]
    after = np.maximum(clock[changed - 1], before - longest)
    if update < _SHARP * between:
        return after, before
    steps = np.round(np.diff((after + before) / 2) / update)
    # If readings are missing, the number of updates is unknown.
    wide = before - after
    steps[wide[1:] + wide[:-1] > update] += 2 * _NEIGHBOURS
    number = np.concatenate([[0], np.cumsum(np.maximum(steps, 1))])
    jitter = _JITTER * update + _JITTER_SECONDS
    low, high = after.copy(), before.copy()
    for away in range(1, _NEIGHBOURS + 1):
        for ours, theirs in ((slice(away, None), slice(None, -away)),
                             (slice(None, -away), slice(away, None))):
            near = abs(number[ours] - number[theirs]) <= _NEIGHBOURS
            moved = (number[ours] - number[theirs]) * update
            low[ours] = np.where(near, np.maximum(
                low[ours], after[theirs] + moved - jitter), low[ours])
            high[ours] = np.where(near, np.minimum(
                high[ours], before[theirs] + moved + jitter), high[ours])
    agree = low < high
    return np.where(agree, low, after), np.where(agree, high, before)


def _steady_until(clock, changed, between, update):
    """Return the time until which a counter of steady traffic is reliable.

    If the counter then stands still, the next updates show whether the poller
    stood still.
    """
    at = np.append(clock[changed], clock[-1])
    steady = _is_steady(np.diff(at), between, update)
    for still in range(max(2, steady.size - 3), steady.size):
        if steady[max(0, still - _AROUND):still].sum() >= 2 \
                and not steady[still] \
                and at[still + 1] - at[still] < _LATEST * update:
            return float(at[still])
    return math.inf


def _began_late(clock, counters, changed, update):
    """Whether the first change includes traffic from before all readings.

    This is the case if the counter stood still until then, rises steadily
    after it, and rose by more than it does in an interval.
    """
    apart = np.diff(clock[changed[:3]])
    if apart.size < 2 or (apart > 1.5 * update).any() \
            or clock[changed[0] - 1] - clock[0] < 0.5 * update:
        return False
    volume = counters[:, :2].sum(axis=1)
    rise = np.diff(volume[np.append(0, changed[:3])])
    return bool(abs(rise[2] - rise[1]) <= _LATE_TOLERANCE * rise[1]
                and rise[0] > (1 + _LATE_TOLERANCE) * rise[1] > 0)


def _are_late(moments, volume, between, update):
    """Return before which changes updates were missing.

    If a poller misses updates, the next rise includes all of them. A rise is
    interpreted in this way if the traffic is steady: the changes around it,
    with two before and two after that follow each other at the interval, have
    the same rate as the whole time.

    :param moments: (k,) times of the changes
    :param volume: (k,) volume after each of them
    :returns: (k,) bool
    """
    late = np.zeros(moments.size, dtype=bool)
    rises, apart = np.diff(volume), np.diff(moments)
    steady = _is_steady(apart, between, update)
    tolerance = max(_LATE_TOLERANCE, between / (2 * update))
    for at in np.flatnonzero(~steady).tolist():
        rate = rises[at] / apart[at]
        # Nothing is known about the time before the first change.
        sides = _around(steady, range(at - 1, -1, -1)), _around(
            steady, range(at + 1, steady.size))
        late[at + 1] = steady[sides[1]].sum() == 2 and all(
            steady[side].sum() == min(2, len(side)) and abs(
                rises[side].sum() / max(apart[side].sum(), len(side) * update)
                - rate) <= tolerance * rate for side in sides if side)
    return late


def _is_steady(apart, between, update):
    """Return which changes follow the previous ones at the interval."""
    return apart < max(1.5 * update, update + between)


def _around(steady, numbers):
    """Return the first of the numbers, up to the second steady change."""
    positions = []
    for number in numbers[:_AROUND]:
        positions.append(number)
        if steady[positions].sum() == 2:
            break
    return positions


def from_counters(hosts, period_seconds, update=0.0, until=-math.inf):
    """Return the :class:`Part` of an interface, from its counters.

    :param hosts: list of :class:`Readings`, one for each host that reports
        the interface
    :param period_seconds: length of a period in seconds
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


def from_rates(periods, rates):
    """Return the :class:`Part` of an interface whose source reports rates.

    :param periods: (n,) int64, increasing
    :param rates: (n, 3); NaN if the source has no value
    """
    return Part(periods, np.asarray(rates, float), {})


def from_increments(periods, increments, seconds):
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
    reset = (per_second < 0).any(axis=1)
    # For the increment before an empty period and the one after the next.
    largest = per_second.copy()
    largest[1:] = per_second[:-1]
    at = np.flatnonzero(follows[2:]) + 1
    largest[at] = np.maximum(largest[at], per_second[at + 1])
    moved = np.zeros(periods.size, dtype=bool)
    moved[1:] = (steps == 2) & (
        per_second <= (1 + _JITTER) * largest).all(axis=1)[1:]
    # The time of the very first increment is unknown.
    moved[1:2] = False
    keep = (follows | moved) & ~reset
    lost = {}
    for at in np.flatnonzero(~keep[1:]).tolist():
        first, closing = int(periods[at]), int(periods[at + 1])
        reason = _RESET if follows[at + 1] or moved[at + 1] else _GAP
        lost.update(dict.fromkeys(
            range(max(first, closing - _LONGEST_GAP), closing), reason))
    twice = np.flatnonzero(moved & keep & np.append(False, keep[:-1]))
    for at in np.flatnonzero(moved & keep & ~np.append(False, keep[:-1])):
        lost[int(periods[at]) - 2] = _GAP
    labels = np.concatenate([periods[keep] - 1, periods[twice] - 2])
    order = np.argsort(labels)
    return Part(labels[order], np.concatenate(
        [rates[keep], rates[twice - 1]])[order], lost,
        int(periods[0]) - 1 if periods.size else None)


def instance_series(instance_uuid, period_seconds, start, end, parts,
                    oldest=-math.inf, complete=True):
    """Return the RateSeries of an instance: the sum over its interfaces.

    :param instance_uuid: uuid of the instance
    :param period_seconds: length of a period in seconds
    :param start: time of the first sample, may be -inf
    :param end: end of the samples, exclusive, may be inf
    :param parts: list of :class:`Part`, one for each interface, from
        :data:`GRACE_PERIODS` periods before ``start`` on, if the source has
        them
    :param oldest: samples from before this time are rejected as too old
    :param complete: False if the source did not answer for an interface, so
        that the sum is unknown
    :returns: :class:`.series.RateSeries`; a time is the start of a period.
        Lower bounds are marked ``partial``.
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
