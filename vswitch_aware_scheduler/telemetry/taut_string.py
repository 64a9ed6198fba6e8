# SPDX-License-Identifier: Apache-2.0
"""The straightest curve of volume that agrees with all readings.

A reading of a counter that is updated at intervals is the volume at some
moment before the reading: it bounds the curve from below at the time of the
reading, and from above at the earliest moment that it can be of. Of all
curves within such bounds, the *taut string* is the shortest one. No other has
a lower peak, nor rates that differ less.

Derivation: reference/counters.rst. Pure: no clock, no I/O.
"""

import numpy as np

__all__ = ['taut_string']


def taut_string(low_times, low, high_times, high, begin, end):
    """Return the points of the shortest curve within bounds.

    :param low_times: (m,) increasing
    :param low: (m,) not decreasing; the curve is at least that at that time
    :param high_times: (n,) increasing
    :param high: (n,) not decreasing; the curve is at most that at that time
    :param begin: (time, volume) at which the curve begins
    :param end: (time, volume) at which it ends
    :returns: times, volumes of the points, increasing
    """
    at, bound, is_low = _bounds(low_times, low, high_times, high, begin, end)
    time, volume = begin
    times, volumes = [time], [volume]
    index, count = 0, len(at)
    while index < count:
        # The narrowest slopes that all bounds from here on leave open, up to
        # the first bound that none of them meets.
        least, most = -np.inf, np.inf
        least_at = most_at = index
        turn = None
        for number in range(index, count):
            seconds = at[number] - time
            slope = (bound[number] - volume) / seconds
            if is_low[number] != _UPPER:
                if slope > most:
                    turn = most_at
                    break
                if slope >= least:
                    least, least_at = slope, number
            if is_low[number] != _LOWER:
                if slope < least:
                    turn = least_at
                    break
                if slope <= most:
                    most, most_at = slope, number
        if turn is None:
            turn = count - 1
        time, volume = at[turn], bound[turn]
        times.append(time)
        volumes.append(volume)
        index = turn + 1
        while index < count and at[index] <= time:
            index += 1
    return np.array(times), np.array(volumes)


_UPPER, _LOWER, _BOTH = range(3)


def _bounds(low_times, low, high_times, high, begin, end):
    """Return lists of times, volumes and kinds of the bounds, in order."""
    inside = (low_times > begin[0]) & (low_times < end[0])
    low_times, low = low_times[inside], low[inside]
    inside = (high_times > begin[0]) & (high_times < end[0])
    high_times, high = high_times[inside], high[inside]
    # The ends hold all that is bounded outside.
    at = np.concatenate([low_times, high_times, [end[0]]])
    bound = np.clip(np.concatenate([low, high, [end[1]]]), begin[1], end[1])
    kind = np.repeat([_LOWER, _UPPER, _BOTH],
                     [low.size, high.size, 1])
    order = np.lexsort((kind, at))
    return at[order].tolist(), bound[order].tolist(), kind[order].tolist()
