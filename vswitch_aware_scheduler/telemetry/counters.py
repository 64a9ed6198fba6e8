# SPDX-License-Identifier: Apache-2.0
"""From what a source tells of interfaces to the rates of an instance.

Knows how readings of counters become rates, period by period, what may not
be concluded from them, and when the sum over the interfaces of an instance
is known. Pure: no clock, no I/O. Time is cut into *periods* of equal length,
numbered by ``floor(time / period_seconds)``, the same for all interfaces, so
that a reading in pieces gives what one reading gives.

The rules, which configuration/telemetry_services.rst explains:

* a counter is a curve of volume over time. The rate of a period is what the
  curve rises by from the start of the period to its end. The periods join
  without overlap, so that no volume counts twice and none is lost;
* a counter that is continuous lies on the curve at each reading. A counter
  of a source that updates at intervals, as an exporter that repeats the last
  poll, shows the volume of an *update* before the reading, see
  :func:`update_seconds`. The curve is the straightest that agrees with that;
* readings more than one and a half periods apart leave a gap: in which part
  of the gap the counter rose is unknown;
* a counter that goes backwards was reset;
* the counters of two hosts have nothing to do with each other. The host
  whose counter began later has the interface, until that counter ends and
  the other one goes on rising;
* an interface that had an answer at most :data:`GRACE_PERIODS` periods ago
  is expected to have one: without it the sum is not known. After that it
  counts as detached;
* where the sum is not known, the sum over the other interfaces is a *lower
  bound* of it. It is delivered as such, unless it is lower than the sum of at
  most :data:`GRACE_PERIODS` periods ago with what is missing now. A broken
  interface thus neither hides what the others carry, nor makes their sum look
  like all there is.

Derivation: reference/counters.rst.
"""

import bisect
import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler.telemetry import taut_string
from vswitch_aware_scheduler.traffic import series as rate_series

__all__ = ['AGGREGATES_AROUND', 'GRACE_PERIODS', 'Aggregates', 'Part',
           'Readings', 'finite', 'from_counters', 'from_increments',
           'from_rates', 'guessed_update_seconds', 'instance_series', 'joined',
           'margin_seconds', 'together', 'update_seconds']

#: For how many periods an interface may be silent before it counts as
#: detached from its instance.
GRACE_PERIODS = 2

# Why a period has no rate. If several reasons hold, the last one counts.
_REASONS = ('missing', 'negative', 'absurd', 'gap', 'reset', 'migration')
_MISSING, _NEGATIVE, _ABSURD, _GAP, _RESET, _MIGRATION = range(1, 7)

_LIMITS = np.array([rate_series.MAX_RATE_KBPS, rate_series.MAX_RATE_KBPS,
                    rate_series.MAX_RATE_KPPS])

#: Periods of a longer gap are not counted one by one.
_LONGEST_GAP = 10000

#: kbit/s in 1 byte/s, and kilo-packets/s in 1 packet/s.
KBPS_PER_BYTE = 0.008
KPPS_PER_PACKET = 0.001

#: Readings further apart than this leave a gap, in periods.
_GAP_PERIODS = 1.5

#: A source updates at intervals if its interval is at least so many times
#: that of the readings.
_STEPPED = 1.25

#: Below so many intervals of the readings, several updates may come between
#: two readings.
_VISIBLE = 1.9

#: Below so many intervals of the readings, updates cannot be told apart well.
_SHARP = 2.2

#: Longer intervals are those of the traffic, seconds.
_LONGEST = 4000.0

#: Intervals that are configured somewhere, seconds.
_USUAL_SECONDS = (10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0,
                  240.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0)

#: Counters that stand still for so long are those of idle instances, seconds.
_WAIT_SECONDS = 10000.0

#: A reading is missing where two are further apart than this, in intervals of
#: the readings.
_MISSED = 1.6

#: Between which times an update came is found from so many updates before and
#: after it as well.
_NEIGHBOURS = 3

#: A curve may change by readings of so many periods later.
_NEIGHBOUR_PERIODS = 2

#: After so many intervals without a change, a counter of steady traffic is
#: read on before what it shows is delivered: the poller may stand still.
_LATE = 3
_LATEST = 12

#: Among so many changes before and after, two are steady.
_AROUND = 4

#: How far the rate over missed updates may differ from the rates before and
#: after them.
_LATE_TOLERANCE = 0.25

#: Changes of a counter that its update interval is found from, at least.
_MIN_CHANGES = 4

#: An interval within this share of the period counts as the period itself.
_SAME_AS_PERIOD = 0.01

#: Where updates cannot be told apart, the curve is bounded by the readings if
#: an update may be so late, in periods.
_LATENESS_PERIODS = 0.03

#: Around an empty period the values of so many periods are of any moment.
AGGREGATES_AROUND = 5

#: Places of the first and the last value that are tried, in bounds.
_PLACES = (0.0, -0.5, 0.5, -1.0, 1.0)

#: A rise of aggregates that is so many times as large as all before it may be
#: one of two polls.
_LARGER = 1.3

#: An update is early or late by up to this share of the interval, and so many
#: seconds.
_JITTER = 0.05
_JITTER_SECONDS = 2.0

#: A steady counter rises by up to so many updates between two readings, for
#: the updates to show.
_MOST_UPDATES = 10

#: So many updates at each end of a run of bounded readings are not used.
_UNSURE_UPDATES = 2

#: How far such a rise may be from a whole number of updates, beside what the
#: updates are early or late; at most.
_EXACTLY_WHOLE = 0.05
_WHOLE = 0.3


@dataclasses.dataclass(frozen=True, eq=False)
class Readings:
    """Readings of the counters of an interface on one host.

    :ivar times: (n, c) seconds UTC, when each counter was read, increasing
    :ivar counters: (n, c) bytes sent and received and, with c = 4, packets
        sent and received; finite
    """

    times: np.ndarray
    counters: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Aggregates(Readings):
    """A counter by what one value of each period is left of it.

    The value is the volume at some moment of the period. A time is the begin
    of the period.
    """


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """What one interface says of its instance.

    :ivar periods: (n,) int64, increasing, each once
    :ivar rates: (n, 3) egress_kbps, ingress_kbps, kpps; NaN where a source
        has no answer for a column
    :ivar lost: {period: index + 1 into the reasons} of periods of which the
        interface should have a rate and has none
    """

    periods: np.ndarray
    rates: np.ndarray
    lost: dict


def finite(times, values):
    """Return the readings that are numbers, in the order of their times.

    :param times: (n,) seconds UTC, in any order
    :param values: (n,)
    :returns: times, values; of several at one time the last one
    """
    times, values = np.asarray(times, float), np.asarray(values, float)
    usable = np.isfinite(times) & np.isfinite(values)
    times, values = times[usable], values[usable]
    order = np.argsort(times, kind='stable')
    times, values = times[order], values[order]
    last = np.ones(times.size, dtype=bool)
    last[:-1] = times[1:] != times[:-1]
    return times[last], values[last]


def joined(series):
    """Return the readings of several series of one counter as one series.

    Where two overlap, the one that began later replaces the other.

    :param series: list of (times, values) as :func:`finite` returns them
    """
    series = sorted((one for one in series if one[0].size),
                    key=lambda one: one[0][0])
    if not series:
        return np.empty(0), np.empty(0)
    times, values = series[0]
    for later_times, later_values in series[1:]:
        low = np.searchsorted(times, later_times[0])
        high = np.searchsorted(times, later_times[-1], side='right')
        times, values = (
            np.concatenate([ours[:low], theirs, ours[high:]])
            for ours, theirs in ((times, later_times),
                                 (values, later_values)))
    return times, values


def together(columns, period_seconds):
    """Return :class:`Readings` of the counters of an interface.

    Counters that are read at the same times are taken as they are. Of
    counters that are read at different times the last reading of each period
    is taken, of the periods in which every counter has one.

    :param columns: for each counter (times, values) as :func:`finite`
        returns them
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
    """Return the interval in which a source updates its counters.

    A counter of traffic that does not pause changes at each update. The
    interval of a series is its usual time between two changes; that of the
    source is the interval of its busiest series, but for a tenth of them: one
    odd series does not decide for the others.

    An interval shorter than that of the readings shows in steady traffic
    only: such a counter rises by one update now, and by two then.

    :param series: list of (times, values) of counters, as :func:`finite`
        returns them
    :param min_changes: series with fewer changes do not count
    :param period_seconds: where there are several readings in a period, those
        of a dozen changes are needed to call counters continuous; None: fewer
        are enough
    :returns: seconds, 0.0 if the counters are continuous as far as their
        readings show, None if too few of them change to tell
    """
    found = []
    for times, values in series:
        if times.size > 2:
            between = float(np.median(np.diff(times)))
            apart = _usual_intervals(times, values, between, min_changes)
            if apart.size and apart.mean() <= _LONGEST:
                found.append((float(apart.mean()), between, apart.size,
                              values))
    if not found:
        return None
    found.sort(key=lambda one: one[0])
    interval, between, count, _ = found[len(found) // 10]
    if interval < _VISIBLE * between:
        numbers = [_updates_of_reading(one[-1], between) for one in found]
        hidden = list(filter(None, numbers))
        if hidden:
            return between / float(np.median(hidden))
        if period_seconds is not None and between < period_seconds / 2 \
                and all(number is None for number in numbers):
            return None
    if interval < _STEPPED * between:
        return 0.0
    # The first and the last change were between two readings.
    return _configured(interval, between / count)


def guessed_update_seconds(series, period_seconds, until):
    """Return what to take for the interval if it cannot be found.

    :param series: as :func:`update_seconds` takes it
    :param until: time up to which was read
    :returns: seconds, or None: what will be read may still show it
    """
    known = update_seconds(series, 3, period_seconds)
    if known is not None:
        return known
    if any(times.size and until - times[-1] < _WAIT_SECONDS
           and times[-1] - times[0] < _WAIT_SECONDS
           and np.median(np.diff(times)) < period_seconds / 2
           for times, _ in series if times.size > 1):
        return None
    # Rates over less than a period would be of no use.
    known = update_seconds(series, 2)
    if known is not None:
        return known
    return float(period_seconds) if any(times.size > 1 and np.median(
        np.diff(times)) < period_seconds / 2 for times, _ in series) else 0.0


def _configured(seconds, uncertain):
    """Return an interval as somebody would have configured it.

    :param uncertain: by how much it may be wrong
    """
    nearest = min(_USUAL_SECONDS, key=lambda usual: abs(usual - seconds))
    tolerance = max(0.005 * seconds, uncertain)
    return nearest if abs(nearest - seconds) <= tolerance else seconds


def _usual_intervals(times, values, between, min_changes):
    """Return the times between changes of a counter without a pause."""
    changed = np.flatnonzero(np.diff(values) != 0)
    nothing = np.empty(0)
    if changed.size < min_changes:
        return nothing
    # A change is between two readings. Where one is missing in between, this
    # says little.
    low, high = times[changed], times[changed + 1]
    told = (high - low) <= _MISSED * between
    apart = np.diff((low + high) / 2)[told[:-1] & told[1:]]
    if not apart.size:
        return nothing
    # Changes follow each other at the interval, give or take that of the
    # readings, and further apart where there was no traffic.
    least = np.quantile(apart, 0.1)
    near = apart < max(1.7 * least, least + 2.05 * between)
    return apart[near] if near.sum() >= max(1, min_changes - 2) else nothing


def _updates_of_reading(values, between):
    """Return how many updates come from a reading to the next, on average.

    If the traffic is steady, each rise is that of a whole number of updates.
    Now and then the number is another one, without a second of that kind
    beside it.

    :returns: 0.0 where nothing shows that there are updates, None where there
        are too few rises to find one
    """
    rises = np.diff(values)
    # One that is negative is a reset.
    rises = rises[rises >= 0]
    if rises.size < 3 * _MIN_CHANGES:
        return None
    # A pause is several readings long; what is beside it is a part of a rise.
    pause = np.convolve(rises <= 0, [1, 1], 'full') > 1
    pause = pause[:-1] | pause[1:]
    beside = np.concatenate([[True], pause, [True]])
    rises = rises[~(beside[:-2] | beside[1:-1] | beside[2:])]
    if rises.size < 3 * _MIN_CHANGES:
        return None
    # Half of the rises may be those of one update more.
    usual = np.quantile(rises, 0.4, method='nearest')
    if usual <= 0:
        return 0.0
    for number in range(1, _MOST_UPDATES + 1):
        unit = usual / number
        for _ in range(2):
            whole = np.round(rises / unit)
            unit = rises.sum() / whole.sum()
        updates = rises / unit
        others = np.flatnonzero(whole != number)
        if not others.size:
            continue
        # Each end of a rise is that much early or late.
        exactly = 2 * _JITTER_SECONDS * number / between + _EXACTLY_WHOLE
        off = abs(updates - whole) > (
            min(exactly, _WHOLE) if others.size > 1 else _EXACTLY_WHOLE)
        together = np.append(
            (np.diff(whole[others]) == 0) & (np.diff(others) == 1), False)
        if max(off.mean(), off[others].mean()) <= 0.05 \
                and together.mean() <= 0.5:
            return float(whole.sum() / whole.size)
    return 0.0


def margin_seconds(period_seconds, update):
    """Return how much more than a period to read, before and after it.

    :param update: seconds as :func:`update_seconds` returns them
    """
    return _delay(period_seconds, update) + update \
        + _GAP_PERIODS * period_seconds


def _neighbours(period_seconds, update):
    return max(_NEIGHBOURS, math.ceil(_NEIGHBOUR_PERIODS * period_seconds
                                      / update))


def _delay(period_seconds, update):
    """Return for how long later readings change what earlier ones say."""
    if not update:
        return 0.0
    return (max(_neighbours(period_seconds, update), _LATE + 1) + 1) * update


# From counters to rates

@dataclasses.dataclass(frozen=True, eq=False)
class _Curve:
    """The volume that an interface has carried, by points of a curve.

    :ivar times: (k, c) seconds, increasing
    :ivar volumes: (k, c) values of the counters at these times
    :ivar end: no point before this time changes by later readings
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
    """Return the runs of one host's readings, in order."""
    times, counters = readings.times, readings.counters
    if not len(times):
        return []
    reset = (np.diff(counters, axis=0) < 0).any(axis=1)
    gap = _GAP_PERIODS * period_seconds
    aggregated = isinstance(readings, Aggregates)
    if aggregated and len(times) > 1:
        # One period may be empty, beside those without a poll, because the
        # poll was late.
        gap += min(float(np.median(np.diff(times[:, 0]))),
                   2 * AGGREGATES_AROUND * period_seconds)
    apart = (np.diff(times, axis=0) > gap).any(axis=1)
    cuts = np.flatnonzero(reset | apart) + 1
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(times)]):
        is_over = end < len(times) or newest - times[end - 1].max() > gap
        sides = [bool(0 < at < len(times) and times[at].max()
                      - times[at - 1].max() < 2 * AGGREGATES_AROUND
                      * period_seconds and apart[at - 1])
                 for at in (begin, end)] if aggregated else None
        first, rates = _rates(times[begin:end], counters[begin:end],
                              is_over, period_seconds, update, sides)
        found.append(_Run(host, first, first + len(rates), rates,
                          bool(begin and reset[begin - 1])))
    return found


def _rates(times, counters, is_over, period_seconds, update, sides=None):
    """Return the rates of a run of readings.

    :param times: (n, c)
    :param counters: (n, c), not decreasing
    :param is_over: whether it is known that no reading follows
    :param update: seconds, 0: the counters are continuous
    :param sides: of :class:`Aggregates`, whether several periods are empty
        before and after them, else None
    :returns: first period, (m, 3) rates of it and those that follow
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
    # The start of the first period that is not complete any more.
    last = math.floor(min(float(curve.times[-1].min()), curve.end)
                      / period_seconds)
    joins_readings = abs(interval - period_seconds) \
        <= _SAME_AS_PERIOD * period_seconds
    if joins_readings:
        # What the first reading is nearest to begins there.
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
    told = np.flatnonzero(np.isfinite(per_second).all(axis=1))
    if not told.size:
        return math.floor(begin / period_seconds), np.zeros((0, 3))
    # Only at the ends there can be a period without a rate.
    first += int(told[0])
    per_second = per_second[told[0]:told[-1] + 1]
    rates = np.zeros((len(per_second), 3))
    rates[:, :2] = per_second[:, :2] * KBPS_PER_BYTE
    if per_second.shape[1] == 4:
        rates[:, 2] = per_second[:, 2:].sum(axis=1) * KPPS_PER_PACKET
    return first, rates


def _rises(times, volumes, bounds, joins_readings):
    """Return (m,) rises per second between (m + 1,) bounds."""
    if not joins_readings or times.size < 2:
        return np.diff(np.interp(bounds, times, volumes)) / np.diff(bounds)
    # The counter is read, or updated, once a period. Rates from one reading
    # to the next are sharper than those from bound to bound.
    after = np.clip(np.searchsorted(times, bounds), 1, times.size - 1)
    nearest = after - (bounds - times[after - 1] <= times[after] - bounds)
    seconds = np.diff(times[nearest])
    # Where one reading is the nearest to two bounds.
    plain = np.diff(np.interp(bounds, times, volumes, np.nan, np.nan)
                    ) / np.diff(bounds)
    return np.divide(np.diff(volumes[nearest]), seconds, out=plain,
                     where=seconds > 0)


def _updated_curve(times, counters, is_over, between, period_seconds, update):
    """Return the :class:`_Curve` of counters that are updated at intervals.

    A reading shows the volume of the last update before the reading. That
    update came after the reading before if the counter changed, and at most
    an interval ago. The curve is the straightest of all that agree with this.

    Derivation: reference/counters.rst.
    """
    clock = times[:, 0]
    volume = counters[:, :2].sum(axis=1)
    changed = np.flatnonzero((np.diff(counters, axis=0) > 0).any(axis=1)) + 1
    if _began_late(clock, counters, changed, update):
        return _updated_curve(times[changed[0]:], counters[changed[0]:],
                              is_over, between, period_seconds, update)
    # The rows with the first and with the last reading of each volume.
    first = np.concatenate([[0], changed])
    last = np.concatenate([changed - 1, [len(clock) - 1]])
    # The update that a volume is of was at most so long ago. Where several
    # updates come between two readings, a missing one does not show.
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
    # How old the first and the last volume are is not known: what follows
    # from them is not used.
    unsure = _UNSURE_UPDATES * update + between
    when = np.unique(np.concatenate([
        [clock[0] + unsure], *(points for points, _ in strings)]))
    when = when[when >= clock[0] + unsure]
    end = float(clock[-1]) - (unsure if is_over else _delay(
        period_seconds, update) + 2 * between)
    if not is_over:
        end = min(end, _steady_until(clock, changed, between, update))
    return _Curve(
        # Counters of one interface are read a moment after each other.
        when[:, None] + (times[:1] - times[:1, :1]),
        np.stack([np.interp(when, *string) for string in strings], axis=1),
        end)


def _aggregated_curve(times, counters, is_over, period_seconds, update,
                      sides):
    """Return the :class:`_Curve` of aggregates, and their interval.

    If the polls keep their place in the periods, a value is that of the begin
    of its period, or of another moment that is the same in all periods. A
    poll that is late may leave a period empty and come into the next one
    together with the next poll. So the values around an empty period are of
    any moment of theirs, and the curve is the straightest that agrees with
    this.

    :param update: interval of the polls in seconds if polls were seen to
        change their place, else 0
    :param sides: whether several periods are empty before and after
    :returns: the curve; the period, or 0 if polls may have changed their
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
        # No place is the usual one: the middle is as good as any.
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

    # The ends are where the curve bends least.
    offsets = (0.0, 0.0)
    for end_of in (0, 1):
        choices = [list(offsets) for _ in _PLACES]
        for choice, place in zip(choices, _PLACES):
            choice[end_of] = place * slack[-end_of]
        offsets = min(choices, key=bend)
    strings = [string(column, offsets) for column in counters.T]
    # Which moment the first and the last value are of is not known: what
    # follows from them is not used.
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
    """Return until when aggregates show what they show for good.

    A rise that is larger than all before it may be one of two polls. Whether
    a period is empty instead shows in the next ones.
    """
    rises = np.diff(counters[:, :2].sum(axis=1))
    for at in range(max(1, rises.size - AGGREGATES_AROUND), rises.size):
        before = rises[max(0, at - AGGREGATES_AROUND):at]
        if rises[at] > _LARGER * before.max():
            return float(clock[at])
    return math.inf


def _windows(clock, changed, between, update, longest):
    """Return between which times each update came that changed a counter.

    That is between two readings. Updates follow each other at the interval,
    so what the updates around it leave open is less.

    :returns: (k,) and (k,)
    """
    before = clock[changed]
    after = np.maximum(clock[changed - 1], before - longest)
    if update < _SHARP * between:
        return after, before
    steps = np.round(np.diff((after + before) / 2) / update)
    # Where readings are missing, the number of updates is not known.
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
    """Return until when a counter of steady traffic shows what came.

    If it stands still after that, the next updates say whether the poller
    did.
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
    """Whether the first change is that of a time before all readings.

    So it is if the counter stood still until then, rises steadily after it,
    and rose by more than it does in an interval.
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
    """Return before which changes updates were missing, rather than traffic.

    If a poller misses updates, the rise after them is the rise of all of them.
    It is taken for that where the traffic is as steady as this: the changes
    around it, with two before and two after that follow each other at the
    interval, have the rate that the whole time has.

    :param moments: (k,) of the changes
    :param volume: (k,) after each of them
    :returns: (k,) bool
    """
    late = np.zeros(moments.size, dtype=bool)
    rises, apart = np.diff(volume), np.diff(moments)
    steady = _is_steady(apart, between, update)
    tolerance = max(_LATE_TOLERANCE, between / (2 * update))
    for at in np.flatnonzero(~steady).tolist():
        rate = rises[at] / apart[at]
        # Before the first change that was read nothing is known.
        sides = _around(steady, range(at - 1, -1, -1)), _around(
            steady, range(at + 1, steady.size))
        late[at + 1] = steady[sides[1]].sum() == 2 and all(
            steady[side].sum() == min(2, len(side)) and abs(
                rises[side].sum() / max(apart[side].sum(), len(side) * update)
                - rate) <= tolerance * rate for side in sides if side)
    return late


def _is_steady(apart, between, update):
    """Return which changes follow those before them at the interval."""
    return apart < max(1.5 * update, update + between)


def _around(steady, numbers):
    """Return the first of some changes, up to the second steady one."""
    found = []
    for number in numbers[:_AROUND]:
        found.append(number)
        if steady[found].sum() == 2:
            break
    return found


def from_counters(hosts, period_seconds, update=0.0, until=-math.inf):
    """Return the :class:`Part` of an interface, from its counters.

    :param hosts: list of :class:`Readings`, one for each host that reports
        the interface
    :param update: interval in which the source updates its counters in
        seconds, 0: counters are continuous
    :param until: time up to which the counters were read
    """
    hosts = [host for host in hosts if len(host.times)]
    newest = max([until, *(host.times[-1].max() for host in hosts)])
    runs = sorted((run for number, readings in enumerate(hosts)
                   for run in _runs(number, readings, newest, period_seconds,
                                    update)), key=_Run.order)
    kept, lost, seen = [], {}, set()
    while runs:
        run = runs.pop(0)
        began_here = run.after_reset or run.host not in seen
        seen.add(run.host)
        if kept:
            before = kept[-1]
            if run.host == before.host:
                reason = _RESET if run.after_reset else _GAP
                first = before.last
            elif run.first <= before.last and not began_here:
                # A host that the instance has left and that still repeats
                # the last state of a counter, after a pause.
                continue
            else:
                reason = _MIGRATION
                first = min(before.last, run.first - 1)
                _return_after(run, before, runs)
                before.rates = before.rates[:max(0, first - before.first)]
            lost.update(dict.fromkeys(
                range(max(first, run.first - _LONGEST_GAP), run.first),
                reason))
        kept.append(run)
    periods = [np.arange(run.first, run.first + len(run.rates))
               for run in kept]
    return Part(np.concatenate(periods or [np.empty(0, np.int64)]),
                np.concatenate([run.rates for run in kept]
                               or [np.empty((0, 3))]), lost)


def _return_after(run, before, runs):
    """Let the host of one run follow a run of another host that ends earlier.

    The interface is there again, or two exporters report it, if the counter
    goes on rising. That of a host that the interface has left does not.

    :param runs: list of those that follow, in order; added to
    """
    rates = before.rates[max(0, run.last - before.first):]
    if len(rates) > GRACE_PERIODS and rates.any():
        bisect.insort(runs, _Run(before.host, run.last, before.last, rates,
                                 True), key=_Run.order)


def from_rates(periods, rates):
    """Return the :class:`Part` of an interface whose source reports rates.

    :param periods: (n,) int64, increasing
    :param rates: (n, 3); NaN where the source has no answer
    """
    return Part(periods, np.asarray(rates, float), {})


def from_increments(periods, increments, seconds):
    """Return the :class:`Part` of an interface of increments of counters.

    An increment is the one of the period at whose end the counter was read.
    It belongs to that period and no other only if the counter was read in
    the period before as well. Of the first one nobody knows.

    If one period is empty, its reading was left out, or came a moment earlier
    or later into a period with another one. The increment after it is twice
    as large in the former case. In the latter it is no larger than the ones
    beside it; the mean of two increments is then the one of two periods.

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
    steps = np.diff(periods)
    follows = np.zeros(periods.size, dtype=bool)
    follows[1:] = steps == 1
    reset = (per_second < 0).any(axis=1)
    # Of the increment before an empty period and the one after the next.
    largest = per_second.copy()
    largest[1:] = per_second[:-1]
    at = np.flatnonzero(follows[2:]) + 1
    largest[at] = np.maximum(largest[at], per_second[at + 1])
    moved = np.zeros(periods.size, dtype=bool)
    moved[1:] = (steps == 2) & (
        per_second <= (1 + _JITTER) * largest).all(axis=1)[1:]
    # The first increment of all is the one of an unknown time.
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
        [rates[keep], rates[twice - 1]])[order], lost)


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
        the sum is then not known
    :returns: :class:`.series.RateSeries`; a time is the start of a period.
        What is a lower bound is marked ``partial``.
    """
    known = [periods for part in parts for periods in (
        part.periods, np.fromiter(part.lost, np.int64, len(part.lost)))]
    periods = np.unique(np.concatenate([np.empty(0, np.int64), *known]))
    total = np.zeros((periods.size, 3))
    answered = np.zeros(periods.size, dtype=bool)
    trouble = np.full(periods.size, 0 if complete else _MISSING,
                      dtype=np.int8)
    reports = [_usable(part, periods) for part in parts]
    for rates, reason in reports:
        total += rates
        answered |= (reason == 0) | (rates > 0).any(axis=1)
    recent = np.zeros(periods.size)
    for _, reason in reports:
        expected = _lately(periods, periods[reason >= 0])
        why = np.where(expected & (reason < 0), _MISSING,
                       np.maximum(reason, 0))
        trouble = np.maximum(trouble, why)
        recent = np.maximum(recent, np.where(
            why, _recent_bandwidth(periods, total, reason == 0), 0))
    times = periods * float(period_seconds)
    wanted = (times >= start) & (times < end)
    old = wanted & (times < oldest)
    wanted &= ~old
    whole = answered & (trouble == 0)
    partial = answered & (trouble > 0) \
        & (total[:, :2].sum(axis=1) >= recent)
    good = wanted & (whole | partial)
    series = rate_series.RateSeries.from_samples(
        instance_uuid, period_seconds, times[good], *total[good].T)
    counts = {name: int((wanted & ~good & (trouble == code)).sum())
              for code, name in enumerate(_REASONS, 1)}
    return dataclasses.replace(
        series, partial=np.isin(series.times, times[partial]),
        refused=series.refused + rate_series.Refused(
            too_old=int(old.sum()), **counts))


def _usable(part, periods):
    """Return what can be used of a part, and why the rest cannot.

    :param periods: (n,) increasing, with all those of the part
    :returns: rates (n, 3), 0 where there is none, and (n,) reasons: 0 where
        the rates are whole, -1 where the part says nothing
    """
    rates = np.zeros((periods.size, 3))
    reason = np.full(periods.size, -1, dtype=np.int8)
    for period, why in part.lost.items():
        reason[np.searchsorted(periods, period)] = why
    at = np.searchsorted(periods, part.periods)
    with np.errstate(invalid='ignore'):
        negative, absurd = part.rates < 0, part.rates > _LIMITS
    unusable = negative | absurd | np.isnan(part.rates)
    rates[at] = np.where(unusable, 0, part.rates)
    reason[at] = np.select(
        [absurd.any(axis=1), negative.any(axis=1), unusable.any(axis=1)],
        [_ABSURD, _NEGATIVE, _MISSING], 0)
    return rates, reason


def _lately(periods, alive):
    """Return which periods are at most so many after one that was alive."""
    if not alive.size:
        return np.zeros(periods.size, dtype=bool)
    before = np.searchsorted(alive, periods, side='right') - 1
    return (before >= 0) & (
        periods - alive[np.maximum(before, 0)] <= GRACE_PERIODS)


def _recent_bandwidth(periods, total, told):
    """Return the largest sum shortly before each period.

    :param told: (n,) bool, the periods that count
    """
    largest = np.zeros(periods.size)
    bandwidth = np.where(told, total[:, :2].sum(axis=1), 0)
    for ago in range(1, GRACE_PERIODS + 1):
        at = np.minimum(np.searchsorted(periods, periods - ago),
                        max(periods.size - 1, 0))
        largest = np.maximum(largest, np.where(
            periods[at] == periods - ago, bandwidth[at], 0))
    return largest
