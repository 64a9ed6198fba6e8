# SPDX-License-Identifier: Apache-2.0
"""The format in which transition counts are stored, little-endian bytes.

A header (format, numbers of bins and of steps, sampling period, first and last
time, first and last bin), then arrays. Pure.
"""

import math
import struct
import typing

import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import instants as sampled

__all__ = ['HEADER_BYTES', 'MOST_PERIODS_APART', 'pack',
           'period_and_last_time', 'unpack']

#: Samples with more sampling periods between them form no transition.
MOST_PERIODS_APART = 12

_HEADER = struct.Struct('<BHIdddhh')
#: Formats of counts and of aged counts.
_FORMAT, _FORMAT_AGED = _FORMATS = 7, 8
_GAP_STEP = np.dtype([('from', '<i2'), ('to', '<i2'), ('periods', '<u2'),
                      ('count', '<f8')])
#: Larger numbers in packed counts are damaged. Together with the counts of
#: other instances, they would hide the digits of the others.
_MOST_SAMPLES, _MOST_TOTAL = 1e9, 1e20

#: Size of the header of packed counts, see :func:`period_and_last_time`.
HEADER_BYTES = _HEADER.size


def pack(counts: typing.Any) -> bytes:
    """Return counts as bytes, with a format version."""
    rows, columns = np.nonzero(counts.moves)
    gap_steps = np.zeros(len(counts.gap_moves), _GAP_STEP)
    for name, column in zip(_GAP_STEP.names or (), counts.gap_moves.T):
        gap_steps[name] = column
    is_aged = counts.recent_weight < 1 \
        or not np.array_equal(counts.recent_peaks, counts.peaks)
    recent = np.append(counts.recent_weight, counts.recent_peaks) \
        if is_aged else np.empty(0)
    head = _HEADER.pack(
        _FORMAT_AGED if is_aged else _FORMAT, counts.bins.size, rows.size,
        counts.period_seconds, counts.first_time, counts.last_time,
        counts.first_bin, counts.last_bin)
    return b''.join([
        head, counts.bins.astype('<i2').tobytes(),
        counts.days.astype('<i4').tobytes(),
        rows.astype('<u2').tobytes(), columns.astype('<u2').tobytes(),
        *(array.astype('<f8').tobytes() for array in (
            counts.samples, counts.totals, counts.peaks,
            counts.moves[rows, columns], recent)),
        counts.at_instants.tobytes(), gap_steps.tobytes()])


def unpack(data: bytes) -> dict[str, typing.Any]:
    """Return the arguments of :class:`.TransitionCounts` that were packed.

    :raises InvalidSeries: if the bytes do not represent counts
    """
    try:
        version, m, k, period, first, last, first_bin, last_bin = \
            _HEADER.unpack_from(data)
    except struct.error:
        version = m = k = None
    if version not in _FORMATS:
        raise _error(f'format: {version}',
                     f'one of {", ".join(map(str, _FORMATS))}')
    recent = (version == _FORMAT_AGED) * (2 * m + 1)
    numbers_count = 6 * m + k + recent
    expected_bytes = (_HEADER.size + 10 * m + 4 * k
                      + 8 * numbers_count + sampled.INSTANTS)
    gap_steps, excess = divmod(len(data) - expected_bytes, _GAP_STEP.itemsize)
    if excess or gap_steps < 0:
        raise _error(f'{len(data)} bytes', f'{expected_bytes} and '
                     f'{_GAP_STEP.itemsize} for each step across a gap')
    if not _are_valid(period, first, last):
        raise _error(f'{period} s each from {first} to {last}',
                     'a sampling period above 0 and increasing times')
    offset, arrays = _HEADER.size, []
    for kind, count in (('<i2', m), ('<i4', 2 * m), ('<u2', k), ('<u2', k),
                        ('<f8', numbers_count), ('u1', sampled.INSTANTS),
                        (_GAP_STEP, gap_steps)):
        arrays.append(np.frombuffer(data, kind, count, offset))
        offset += arrays[-1].nbytes
    bins, days, rows, columns, numbers, at_instants, packed = arrays
    bins = bins.astype(np.int64)
    _check(bins, last_bin, rows, columns, numbers)
    samples, totals, peaks, steps, recent_numbers = np.split(
        numbers.astype(float), np.cumsum([m, 3 * m, 2 * m, k]))
    moves = np.zeros((m, m))
    moves[rows, columns] = steps
    recent_weight, recent_peaks = 1.0, None
    if recent:
        recent_weight = float(recent_numbers[0])
        recent_peaks = recent_numbers[1:].reshape(m, 2)
        if not 0 < recent_weight <= 1:
            raise _error(f'weight of the recent peaks: {recent_weight}',
                         '0 < weight <= 1')
    return {
        'period_seconds': period, 'first_time': first, 'last_time': last,
        'first_bin': first_bin, 'last_bin': last_bin, 'bins': bins,
        'samples': samples, 'totals': totals.reshape(m, 3),
        'peaks': peaks.reshape(m, 2),
        'days': days.astype(np.int64).reshape(m, 2), 'moves': moves,
        'at_instants': at_instants.copy(),
        'gap_moves': _gap_moves(packed, bins), 'recent_peaks': recent_peaks,
        'recent_weight': recent_weight}


def _check(bins, last_bin, rows, columns, numbers):
    """Raise InvalidSeries if an array cannot be of counts."""
    m = bins.size
    if (np.diff(bins) <= 0).any() or last_bin not in bins:
        raise _error(f'bins {bins.tolist()}', f'increasing ones, the last '
                     f'sample, {last_bin}, among them')
    outside = np.append(rows, columns).max(initial=0)
    if outside >= m:
        raise _error(f'a step is from or to bin number {outside}',
                     f'one below {m}')
    if not ((numbers >= 0) & (numbers < _MOST_TOTAL)).all() \
            or not ((numbers[:m] > 1 / _MOST_SAMPLES)
                    & (numbers[:m] < _MOST_SAMPLES)).all():
        raise _error(
            f'numbers of samples from {numbers[:m].min()} to '
            f'{numbers[:m].max()}, all numbers from {numbers.min()} to '
            f'{numbers.max()}', f'samples above {1 / _MOST_SAMPLES:g} and '
            f'below {_MOST_SAMPLES:g}, and numbers from 0 and below '
            f'{_MOST_TOTAL:g}')


def _gap_moves(packed, bins):
    """Return (g, 4) the steps across gaps.

    :raises InvalidSeries: if one of them is impossible
    """
    gap_moves = np.zeros((packed.size, 4))
    for column, name in enumerate(_GAP_STEP.names or ()):
        gap_moves[:, column] = packed[name]
    # np.isin takes long even for an empty array.
    if packed.size and not np.isin(gap_moves[:, :2], bins).all():
        raise _error('a step across a gap is from or to a bin without '
                     'samples', f'one of {bins.tolist()}')
    if not ((gap_moves[:, 2:] >= [2, 0])
            & (gap_moves[:, 2:] <= [MOST_PERIODS_APART, _MOST_SAMPLES])
            ).all():
        raise _error(
            f'sampling periods and number of the steps across gaps: '
            f'{gap_moves[:, 2:].tolist()}', f'2 to {MOST_PERIODS_APART} '
            f'periods and 0 to {_MOST_SAMPLES:g} steps')
    return gap_moves


def _error(seen, expected):
    return exceptions.InvalidSeries(thing='packed transition counts',
                                    seen=seen, expected=expected)


def period_and_last_time(data: bytes) -> tuple[float | None, float | None]:
    """Return the sampling period and the last time of packed counts.

    :param data: bytes, at least the first :data:`HEADER_BYTES`
    :returns: two floats, (None, None) if the format is unknown or if a time is
        impossible
    """
    if len(data) < HEADER_BYTES or data[0] not in _FORMATS:
        return None, None
    _, _, _, period, first, last, _, _ = _HEADER.unpack_from(data)
    return (period, last) if _are_valid(period, first, last) \
        else (None, None)


def _are_valid(period_seconds, first_time, last_time):
    """Return whether packed times are possible; NaN is not."""
    return 0 < period_seconds < math.inf \
        and -math.inf < first_time <= last_time < math.inf
