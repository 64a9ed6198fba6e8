# SPDX-License-Identifier: Apache-2.0
"""Computes the curve of volume over time from readings of a counter.

Pure: no clock, no I/O. Derivation: reference/counters.rst.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler.telemetry import taut_string
from vswitch_aware_scheduler.telemetry import update_interval

__all__ = ['AGGREGATES_AROUND', 'Curve', 'GAP_PERIODS', 'JITTER',
           'aggregated_curve', 'margin_seconds', 'updated_curve']

#: Readings that are further apart, in periods, leave a gap.
GAP_PERIODS = 1.5

#: Below this multiple of the interval of the readings, updates cannot be
#: separated well.
_SHARP = 2.2

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

#: Number of values around an empty period that are from an unknown moment.
AGGREGATES_AROUND = 5

#: Places of the first and the last value that are tried, in units of their
#: bounds.
_PLACES = (0.0, -0.5, 0.5, -1.0, 1.0)

#: A rise of aggregates that is this multiple of all earlier rises may belong
#: to two polls.
_LARGER = 1.3

#: An update may be early or late by this share of the interval, plus
#: :data:`.JITTER_SECONDS`.
JITTER = 0.05

#: Number of updates at each end of a run of bounded readings that are not
#: used.
_UNSURE_UPDATES = 2


def margin_seconds(period_seconds: float, update: float) -> float:
    """Return how much time to read before and after a period.

    :param period_seconds: length of a period in seconds
    :param update: seconds as returned by :func:`update_seconds`
    """
    return _delay(period_seconds, update) + update \
        + GAP_PERIODS * period_seconds


def _neighbours(period_seconds, update):
    return max(_NEIGHBOURS, math.ceil(_NEIGHBOUR_PERIODS * period_seconds
                                      / update))


def _delay(period_seconds, update):
    """Return for how long later readings affect the rates of earlier ones."""
    if not update:
        return 0.0
    return (max(_neighbours(period_seconds, update), _LATE + 1) + 1) * update


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """The volume of an interface over time, as points of a curve.

    :ivar times: (k, c) seconds, increasing
    :ivar volumes: (k, c) values of the counters at these times
    :ivar end: later readings do not change points before this time
    """

    times: np.ndarray
    volumes: np.ndarray
    end: float


def updated_curve(times: np.ndarray, counters: np.ndarray, is_over: bool,
                  between: float, period_seconds: float, update: float
                  ) -> Curve:
    """Return the :class:`Curve` of counters that are updated at intervals.

    A reading shows the volume of the last update before it. If the counter
    changed, that update came after the previous reading, at most an interval
    ago. The curve is the straightest that agrees with this.

    :param times: (n, c) seconds UTC
    :param counters: (n, c), not decreasing
    :param is_over: whether it is certain that no reading follows
    :param between: interval of the readings in seconds
    :param period_seconds: length of a period
    :param update: interval of updates in seconds
    """
    clock = times[:, 0]
    volume = counters[:, :2].sum(axis=1)
    changed = np.flatnonzero((np.diff(counters, axis=0) > 0).any(axis=1)) + 1
    if _began_late(clock, counters, changed, update):
        return updated_curve(times[changed[0]:], counters[changed[0]:],
                             is_over, between, period_seconds, update)
    # Rows with the first and with the last reading of each volume.
    first = np.concatenate([[0], changed])
    last = np.concatenate([changed - 1, [len(clock) - 1]])
    # Largest age of the update that a volume belongs to. If several updates
    # come between two readings, a missing one is not visible.
    longest = (1 + (update < _SHARP * between) + JITTER) * update \
        + update_interval.JITTER_SECONDS
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
    return Curve(
        # The counters of one interface are read shortly after each other.
        when[:, None] + (times[:1] - times[:1, :1]),
        np.stack([np.interp(when, *string) for string in strings], axis=1),
        end)


def aggregated_curve(times: np.ndarray, counters: np.ndarray, is_over: bool,
                     period_seconds: float, update: float,
                     sides: Sequence[bool]) -> tuple[Curve, float]:
    """Return the :class:`Curve` of aggregates, and their interval.

    If the polls keep their place in the periods, a value is that of the start
    of its period, or of another moment that is the same in all periods. A late
    poll may leave a period empty and fall into the next period together with
    the next poll. Values around an empty period are therefore from an unknown
    moment of their periods, and the curve is the straightest that agrees with
    this.

    :param period_seconds: length of a period
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
    for at in np.flatnonzero(np.diff(clock) > GAP_PERIODS * period_seconds):
        near |= (clock >= clock[at] - around) & (
            clock <= clock[at + 1] + around)
    if near.mean() > 0.5:
        # There is no usual place: use the middle.
        slack = np.full(clock.size, period_seconds / 2)
    else:
        slack = np.where(near, period_seconds, 0.0)
    if update:
        slack = np.maximum(slack, update / 2 + update_interval.JITTER_SECONDS)
    end = math.inf if is_over else min(
        _sure_until(clock, counters), float(clock[-1]) - around * near.any())
    if not slack.any():
        return Curve(times, counters, min(
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
    offsets: Sequence[float] = (0.0, 0.0)
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
    return Curve(
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
    jitter = JITTER * update + update_interval.JITTER_SECONDS
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
