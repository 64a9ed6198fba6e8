# SPDX-License-Identifier: Apache-2.0
"""The straightest curve of volume that agrees with all readings.

A reading of a counter that is updated at intervals is the volume at some
moment before the reading. It is a lower bound of the curve at the time of the
reading, and an upper bound at the earliest possible moment. The *taut string*
is the shortest curve within such bounds. No other curve has a lower peak or
smaller differences between rates. Derivation: reference/counters.rst. Pure: no
clock, no I/O.
"""

import numpy as np

__all__ = ['taut_string']


def taut_string(low_times: np.ndarray, low: np.ndarray,
                high_times: np.ndarray, high: np.ndarray,
                begin: tuple[float, float], end: tuple[float, float]
                ) -> tuple[np.ndarray, np.ndarray]:
    """Return the points of the shortest curve within bounds.

    :param low_times: (m,) increasing
    :param low: (m,) not decreasing, lower bounds of the curve at these times
    :param high_times: (n,) increasing
    :param high: (n,) not decreasing, upper bounds of the curve at these times
    :param begin: (time, volume) of the start of the curve
    :param end: (time, volume) of the end of the curve
    :returns: times, volumes of the points, increasing
    """
    at, bound, is_low = _bounds(low_times, low, high_times, high, begin, end)
    time, volume = begin
    times, volumes = [time], [volume]
    index, count = 0, len(at)
    while True:
        while index < count and at[index] <= time:
            index += 1
        if index == count:
            break
        # The range of slopes that all bounds so far permit, up to the first
        # bound that excludes all slopes.
        lowest_slope, highest_slope = -np.inf, np.inf
        lowest_at = highest_at = index
        turn = None
        for number in range(index, count):
            seconds = at[number] - time
            slope = (bound[number] - volume) / seconds
            if is_low[number] != _UPPER:
                if slope > highest_slope:
                    turn = highest_at
                    break
                if slope >= lowest_slope:
                    lowest_slope, lowest_at = slope, number
            if is_low[number] != _LOWER:
                if slope < lowest_slope:
                    turn = lowest_at
                    break
                if slope <= highest_slope:
                    highest_slope, highest_at = slope, number
        if turn is None:
            turn = count - 1
        time, volume = at[turn], bound[turn]
        times.append(time)
        volumes.append(volume)
        index = turn + 1
    return np.array(times), np.array(volumes)


_UPPER, _LOWER, _BOTH = range(3)


def _bounds(low_times, low, high_times, high, begin, end):
    """Return lists of times, volumes and kinds of the bounds, by time."""
    inside = (low_times > begin[0]) & (low_times < end[0])
    low_times, low = low_times[inside], low[inside]
    inside = (high_times > begin[0]) & (high_times < end[0])
    high_times, high = high_times[inside], high[inside]
    # Bounds outside the two ends are omitted or clipped to the ends.
    at = np.concatenate([low_times, high_times, [end[0]]])
    bound = np.clip(np.concatenate([low, high, [end[1]]]), begin[1], end[1])
    kind = np.repeat([_LOWER, _UPPER, _BOTH],
                     [low.size, high.size, 1])
    order = np.lexsort((kind, at))
    return at[order].tolist(), bound[order].tolist(), kind[order].tolist()
