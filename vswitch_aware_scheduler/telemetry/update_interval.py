# SPDX-License-Identifier: Apache-2.0
"""Determines at which interval a source updates its counters.

Pure: no clock, no I/O. Derivation: reference/counters.rst, "The interval".
"""

from collections.abc import Sequence
import operator

import numpy as np

__all__ = ['JITTER_SECONDS', 'STEPPED', 'configured_seconds',
           'guessed_update_seconds', 'update_seconds']

#: Updates and readings of a counter have different intervals if that of the
#: updates is at least this multiple of that of the readings.
STEPPED = 1.25

#: Below this multiple of the interval of the readings, several updates may
#: come between two readings.
_VISIBLE = 1.9

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

#: Minimum number of changes of a counter to determine its update interval.
_MIN_CHANGES = 4

#: Maximum number of updates between two readings of a steady counter at which
#: the updates can be detected.
_MOST_UPDATES = 10

#: Permitted difference of such a rise from a whole number of updates, in
#: addition to the jitter; and its maximum.
_EXACTLY_WHOLE = 0.05
_WHOLE = 0.3

#: An update may be early or late by this time, in addition to a share of the
#: interval.
JITTER_SECONDS = 2.0


def update_seconds(series: Sequence[tuple[np.ndarray, np.ndarray]],
                   min_changes: int = _MIN_CHANGES,
                   period_seconds: float | None = None) -> float | None:
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
    if interval < STEPPED * between:
        return 0.0
    # The first and the last change were each between two readings.
    return configured_seconds(interval, between / count)


def guessed_update_seconds(series: Sequence[tuple[np.ndarray, np.ndarray]],
                           period_seconds: float, until: float
                           ) -> float | None:
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


def configured_seconds(seconds: float, uncertain: float) -> float:
    """Return the usual interval that a measured one is close to, or itself.

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
        exactly = 2 * JITTER_SECONDS * number / between + _EXACTLY_WHOLE
        off = abs(updates - whole) > (
            min(exactly, _WHOLE) if unusual.size > 1 else _EXACTLY_WHOLE)
        together = np.append(
            (np.diff(whole[unusual]) == 0) & (np.diff(unusual) == 1), False)
        if max(off.mean(), off[unusual].mean()) <= 0.05 \
                and together.mean() <= 0.5:
            return float(whole.sum() / whole.size)
    return 0.0
