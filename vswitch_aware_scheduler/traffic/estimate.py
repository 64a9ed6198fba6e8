# SPDX-License-Identifier: Apache-2.0
"""Estimates a traffic model from samples, as black-box estimation.

A :class:`RateSeries` is divided into fixed, logarithmic rate bins and reduced
to :class:`TransitionCounts`. These counts can be stored, aged, and merged with
the counts of the next hour. A :class:`TrafficModel` with few states is fitted
to the counts. The bins never change, so that counts of any two times or
instances can be added. Pure; no clock, no configuration, no I/O. Derivation:
reference/model.rst, "Estimation".
"""

import dataclasses
import hashlib
import math
import struct

import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import slots

__all__ = ['BINS_PER_DECADE', 'FORGOTTEN_SAMPLES', 'HEADER_BYTES',
           'HIGH_QUANTILES', 'LEAST_CORRELATION', 'LOW_QUANTILES',
           'MIN_SAMPLES', 'MOST_PERIODS_APART', 'NO_SLOT',
           'TransitionCounts', 'classes', 'count_all', 'count_transitions',
           'fit_model', 'fit_models', 'fit_on_off', 'high_slots',
           'lack_of_history', 'period_and_last_time', 'rate_bin']

#: Bin 0 holds rates below 1 kbit/s; each further bin is 26 % wide.
BINS_PER_DECADE = 10

#: Upper ends of the states of a fitted model, as quantiles of the samples of
#: their class.
LOW_QUANTILES = (0.5, 0.9, 0.99, 1.0)
HIGH_QUANTILES = (0.5, 0.8, 0.95, 1.0)

#: Value of a slot without samples, instead of a bin.
NO_SLOT = 255

#: A shorter history is too short to fit a model.
MIN_SAMPLES = 24

#: A bin with a smaller aged number of samples is removed. A single sample,
#: right or wrong, is therefore forgotten after three half-lives.
FORGOTTEN_SAMPLES = 0.125

#: Peaks of a bin are collected until the weight of the first sample falls
#: below this value, after 1.5 half-lives, and then used for the same time.
_GATHERED_WEIGHT = FORGOTTEN_SAMPLES ** 0.5

#: If the correlation of successive samples is lower, rates change within a
#: sampling period. The value is exp(-1), that of a chain that forgets its
#: state in one period.
LEAST_CORRELATION = 0.37

#: Samples with more sampling periods between them form no transition.
MOST_PERIODS_APART = 12

#: Maximum number of iterations of :func:`_expected_steps`, each of which
#: raises the likelihood. It stops earlier if no transition changes by more
#: than _LEAST_CHANGE of all transitions.
_MOST_ROUNDS = 200
_LEAST_CHANGE = 1e-6

#: Number of samples that are counted together. There are fewer bins than
#: _BINS.
_COUNT_TOGETHER = 100_000
_BINS = 1 << 16

#: Number of models that are fitted together.
_FIT_TOGETHER = 1000

_HEADER = struct.Struct('<BHIdddhh')
#: Formats of counts and of aged counts. Earlier formats have twice as many
#: float64 as bins instead of the sampled slots. The first of them has no
#: transitions across gaps, the last one is for aged counts.
_FORMAT, _FORMAT_AGED = 5, 6
_FORMATS_BEFORE = 2, 3, 4
_FORMATS = *_FORMATS_BEFORE, _FORMAT, _FORMAT_AGED
_GAP_STEP = np.dtype([('from', '<i2'), ('to', '<i2'), ('periods', '<u2'),
                      ('count', '<f8')])
_SLOTS_BYTES = slots.SLOTS + 4 * 8
#: Larger numbers in packed counts are damaged. Together with the counts of
#: other instances, they would hide the digits of the others.
_MOST_SAMPLES, _MOST_TOTAL = 1e9, 1e20

#: Size of the header of packed counts, see :func:`period_and_last_time`.
HEADER_BYTES = _HEADER.size


def rate_bin(kbps):
    """Return the bin of each rate.

    :param kbps: array of rates in kbit/s, sum of egress and ingress
    :returns: int64 array: 0 below 1 kbit/s, else 1 + floor(10 log10(kbps))
    """
    kbps = np.asarray(kbps, dtype=float)
    above = np.maximum(kbps, 1.0)
    bins = 1 + np.floor(BINS_PER_DECADE * np.log10(above)).astype(np.int64)
    return np.where(kbps < 1.0, 0, bins)


def _no_slots():
    return np.full(slots.SLOTS, NO_SLOT, dtype=np.uint8)


def _covered_slots(times, period_seconds):
    """Return the first and the last slot that each sample covers.

    A sample covers the slots whose middle is in its period, and at least the
    slot of its own middle. Of a longer period than 14 days, only the last 14
    days count, because older slots are not kept.

    :param times: (n,) start of each sample, seconds UTC
    :param period_seconds: sampling period of each sample
    :returns: two int64 arrays
    """
    middle = times + period_seconds / 2
    own = np.floor(middle / slots.SLOT_SECONDS)
    last = np.ceil((times + period_seconds) / slots.SLOT_SECONDS - 0.5) - 1
    first = np.maximum(np.ceil(times / slots.SLOT_SECONDS - 0.5),
                       last - slots.EACH * slots.SLOTS)
    longer = np.asarray(period_seconds) > slots.SLOT_SECONDS
    return (np.where(longer, first, own).astype(np.int64),
            np.where(longer, last, own).astype(np.int64))


@dataclasses.dataclass(frozen=True, eq=False)
class TransitionCounts:
    """Samples and transitions of one instance, counted by rate bin. Mergeable.

    Only bins with samples are listed; m is their number.

    :ivar period_seconds: sampling period of the counted series
    :ivar first_time: start of the first counted sample, seconds UTC
    :ivar first_bin: bin of the first sample
    :ivar bins: (m,) int64, increasing
    :ivar samples: (m,) number of samples, fractional once aged
    :ivar last_time: start of the last counted sample, seconds UTC
    :ivar last_bin: bin of the last sample
    :ivar totals: (m, 3) sum of the rates of the samples: egress kbit/s,
        ingress kbit/s, kpps
    :ivar peaks: (m, 2) largest sum of egress and ingress in kbit/s, largest
        kpps
    :ivar moves: (m, m) number of times that a sample of bin j directly
        followed a sample of bin i; the diagonal counts transitions within a
        bin
    :ivar slot_bins: (504,) uint8, bin of the mean rate in each of the sampled
        slots up to the last sample, by position in the ring (:mod:`.slots`);
        :data:`NO_SLOT` for a slot without samples
    :ivar slot_edges: (2, 2) sum in kbit/s and number of the samples in the
        first and in the last slot, whether the slot is sampled or not
    :ivar gap_moves: (g, 4) transitions across gaps, in increasing order: bin
        before, bin after, sampling periods between the samples (2 to
        :data:`MOST_PERIODS_APART`), number of such transitions
    :ivar recent_peaks: (m, 2) peaks of the recent samples, which replace
        ``peaks`` later; None if all samples are recent
    :ivar recent_weight: weight of the oldest sample in ``recent_peaks``
    """

    period_seconds: float
    first_time: float
    last_time: float
    first_bin: int
    last_bin: int
    bins: np.ndarray
    samples: np.ndarray
    totals: np.ndarray
    peaks: np.ndarray
    moves: np.ndarray
    slot_bins: np.ndarray = dataclasses.field(default_factory=_no_slots)
    slot_edges: np.ndarray = dataclasses.field(
        default_factory=lambda: np.zeros((2, 2)))
    gap_moves: np.ndarray = dataclasses.field(
        default_factory=lambda: np.zeros((0, 4)))
    recent_peaks: np.ndarray | None = None
    recent_weight: float = 1.0

    def __post_init__(self):
        if self.recent_peaks is None:
            object.__setattr__(self, 'recent_peaks', self.peaks)

    @property
    def total_samples(self):
        """Number of samples in all bins; not a whole number after ageing."""
        return float(self.samples.sum())

    @property
    def correlation(self):
        """Correlation of the bandwidths of successive samples, or None.

        Each sample counts as the mean of its bin. Samples with a gap between
        them do not count. None if fewer than :data:`MIN_SAMPLES` samples
        follow each other or if all samples are in one bin.
        """
        follow = self.moves.sum()
        if follow < MIN_SAMPLES:
            return None
        level = self.totals[:, :2].sum(axis=1) / self.samples
        first, second = self.moves.sum(axis=1), self.moves.sum(axis=0)
        before = level - level @ first / follow
        after = level - level @ second / follow
        spread = (before ** 2 @ first) * (after ** 2 @ second)
        if not spread > 0:
            return None
        return float(np.clip(
            before @ self.moves @ after / np.sqrt(spread), -1, 1))

    def aged(self, factor):
        """Return the counts with a reduced weight of all samples so far.

        A bin with a weight below :data:`FORGOTTEN_SAMPLES` is removed together
        with its transitions. The peak of a remaining bin is that of the last
        1.5 to 3 half-lives.

        :param factor: 0 < factor <= 1
        :returns: TransitionCounts
        :raises InvalidSeries: if the factor is not in this range
        """
        if not 0 < factor <= 1:
            raise exceptions.InvalidSeries(
                f'ageing factor: {factor}; expected 0 < factor <= 1')
        samples = self.samples * factor
        # The end of the counts is needed to merge later ones.
        keep = (samples >= FORGOTTEN_SAMPLES) | (self.bins == self.last_bin)
        kept_steps = np.isin(self.gap_moves[:, :2],
                             self.bins[keep]).all(axis=1)
        peaks, recent = self.peaks, self.recent_peaks
        weight = self.recent_weight * factor
        if weight < _GATHERED_WEIGHT * (1 + 1e-9):
            mean = np.stack([self.totals[:, :2].sum(axis=1),
                             self.totals[:, 2]], axis=1)
            mean /= self.samples[:, None]
            peaks = mean if factor < FORGOTTEN_SAMPLES \
                else np.maximum(recent, mean)
            recent, weight = np.zeros_like(peaks), 1.0
        return dataclasses.replace(
            self, bins=self.bins[keep], samples=samples[keep],
            totals=self.totals[keep] * factor, peaks=peaks[keep],
            moves=self.moves[np.ix_(keep, keep)] * factor,
            gap_moves=self.gap_moves[kept_steps] * [1, 1, 1, factor],
            recent_peaks=recent[keep], recent_weight=weight)

    def merged(self, later):
        """Return the sum of these counts and those of a later period.

        The transition from the last sample here to the first sample of
        ``later`` is also counted. Counting a series in pieces therefore gives
        the same result as counting it as a whole.

        :param later: TransitionCounts of the same instance
        :returns: TransitionCounts
        :raises InvalidSeries: if the sampling periods differ, or if ``later``
            is not later, so that samples would be counted twice
        """
        if later.period_seconds != self.period_seconds:
            raise exceptions.InvalidSeries(
                f'transition counts: sampling period: '
                f'{later.period_seconds} s; expected {self.period_seconds} s '
                f'as in the counts so far')
        if later.first_time <= self.last_time:
            raise exceptions.InvalidSeries(
                f'transition counts: samples start at {later.first_time}; '
                f'expected later than {self.last_time}, the last one counted')
        bins = self.bins
        at = np.searchsorted(bins, later.bins)
        if at[-1] == bins.size or (bins[at] != later.bins).any():
            bins = np.union1d(bins, later.bins)
            at = np.searchsorted(bins, later.bins)
        samples, totals, peaks, recent, moves = self._spread(bins)
        samples[at] += later.samples
        totals[at] += later.totals
        peaks[at] = np.maximum(peaks[at], later.peaks)
        recent[at] = np.maximum(recent[at], later.peaks)
        moves[at[:, None], at] += later.moves
        gap_moves, new_gap_moves = self.gap_moves, later.gap_moves
        apart = int(_periods_apart(later.first_time - self.last_time,
                                   self.period_seconds))
        if apart == 1:
            moves[np.searchsorted(bins, self.last_bin),
                  np.searchsorted(bins, later.first_bin)] += 1
        elif apart <= MOST_PERIODS_APART:
            new_gap_moves = np.concatenate([new_gap_moves, [
                [self.last_bin, later.first_bin, apart, 1]]])
        if len(new_gap_moves):
            gap_moves = _gathered(np.concatenate([gap_moves, new_gap_moves]))
        return TransitionCounts(
            self.period_seconds, self.first_time, later.last_time,
            self.first_bin, later.last_bin, bins, samples, totals, peaks,
            moves, *self._merged_slots(later), gap_moves, recent,
            self.recent_weight)

    def _merged_slots(self, later):
        """Return ``slot_bins`` and ``slot_edges`` of both counts together."""
        firsts, lasts = _covered_slots(np.array([
            self.first_time, later.first_time, self.last_time,
            later.last_time]), self.period_seconds)
        (first, next_first), (last, end) = (
            firsts[:2].tolist(), lasts[2:].tolist())
        latest = slots.latest_slots(end)
        bins = np.where(latest <= last, self.slot_bins, later.slot_bins)
        edges = np.stack([self.slot_edges[0], later.slot_edges[1]])
        if next_first == last:
            # Both have samples in this slot.
            both = self.slot_edges[1] + later.slot_edges[0]
            if first == last:
                edges[0] = both
            if next_first == end:
                edges[1] = both
            if slots.sampled(last) and both[1]:
                position = slots.ring_index(last)
                if latest[position] == last:
                    bins[position] = rate_bin(both[0] / both[1])
        return bins, edges

    def _spread(self, bins):
        """Return copies of the arrays, extended to a larger set of bins."""
        arrays = (self.samples, self.totals, self.peaks, self.recent_peaks,
                  self.moves)
        if bins is self.bins:
            return [array.copy() for array in arrays]
        m, at = bins.size, np.searchsorted(bins, self.bins)
        samples, totals, peaks, recent, moves = (
            np.zeros(shape) for shape in (
                m, (m, 3), (m, 2), (m, 2), (m, m)))
        samples[at], totals[at], peaks[at], recent[at] = arrays[:4]
        moves[at[:, None], at] = arrays[4]
        return samples, totals, peaks, recent, moves

    def to_bytes(self):
        """Return the counts as bytes, little-endian, with a format version."""
        rows, columns = np.nonzero(self.moves)
        gap_steps = np.zeros(len(self.gap_moves), _GAP_STEP)
        for name, column in zip(_GAP_STEP.names, self.gap_moves.T):
            gap_steps[name] = column
        is_aged = self.recent_weight < 1 \
            or not np.array_equal(self.recent_peaks, self.peaks)
        recent = np.append(self.recent_weight, self.recent_peaks) \
            if is_aged else np.empty(0)
        head = _HEADER.pack(
            _FORMAT_AGED if is_aged else _FORMAT, self.bins.size, rows.size,
            self.period_seconds, self.first_time, self.last_time,
            self.first_bin, self.last_bin)
        return b''.join([
            head, self.bins.astype('<i2').tobytes(),
            rows.astype('<u2').tobytes(), columns.astype('<u2').tobytes(),
            *(array.astype('<f8').tobytes() for array in (
                self.samples, self.totals, self.peaks,
                self.moves[rows, columns], recent, self.slot_edges)),
            self.slot_bins.tobytes(), gap_steps.tobytes()])

    @classmethod
    def from_bytes(cls, data):
        """Return the counts that :meth:`to_bytes` converted to bytes.

        :param data: bytes
        :returns: TransitionCounts
        :raises InvalidSeries: if the bytes do not represent counts
        """
        try:
            version, m, k, period, first, last, first_bin, last_bin = \
                _HEADER.unpack_from(data)
        except struct.error:
            version = m = k = None
        if version not in _FORMATS:
            raise exceptions.InvalidSeries(
                f'packed transition counts: format: {version}; expected '
                f'one of {", ".join(map(str, _FORMATS))}')
        has_slots = version not in _FORMATS_BEFORE
        recent = (version in (_FORMATS_BEFORE[-1], _FORMAT_AGED)) * (
            2 * m + 1)
        expected_bytes = (
            _HEADER.size + 2 * m + 4 * k + 8 * (6 * m + k + recent)
            + (_SLOTS_BYTES if has_slots else 16 * m))
        gap_steps, excess = divmod(len(data) - expected_bytes,
                                   _GAP_STEP.itemsize)
        has_gaps = version != _FORMATS_BEFORE[0]
        if excess or gap_steps < 0 or (gap_steps and not has_gaps):
            more = '' if not has_gaps else (
                f' and {_GAP_STEP.itemsize} for each step across a gap')
            raise exceptions.InvalidSeries(
                f'packed transition counts: {len(data)} bytes; expected '
                f'{expected_bytes}{more}')
        offset = _HEADER.size

        def take(kind, count):
            nonlocal offset
            array = np.frombuffer(data, kind, count, offset)
            offset += array.nbytes
            return array

        if not _are_valid(period, first, last):
            raise exceptions.InvalidSeries(
                f'packed transition counts: {period} s each from {first} to '
                f'{last}; expected a sampling period above 0 and increasing '
                f'times')
        bins = take('<i2', m).astype(np.int64)
        if (np.diff(bins) <= 0).any() or last_bin not in bins:
            raise exceptions.InvalidSeries(
                f'packed transition counts: bins {bins.tolist()}; expected '
                f'increasing ones, the last sample, {last_bin}, among them')
        rows, columns = take('<u2', k), take('<u2', k)
        outside = np.append(rows, columns).max(initial=0)
        if outside >= m:
            raise exceptions.InvalidSeries(
                f'packed transition counts: a step is from or to bin number '
                f'{outside}; expected one below {m}')
        numbers = np.frombuffer(
            data, '<f8', 6 * m + k + recent + (4 if has_slots else 2 * m),
            offset)
        if not ((numbers >= 0) & (numbers < _MOST_TOTAL)).all() \
                or not ((numbers[:m] > 1 / _MOST_SAMPLES)
                        & (numbers[:m] < _MOST_SAMPLES)).all():
            raise exceptions.InvalidSeries(
                f'packed transition counts: numbers of samples from '
                f'{numbers[:m].min()} to {numbers[:m].max()}, all numbers '
                f'from {numbers.min()} to {numbers.max()}; expected samples '
                f'above {1 / _MOST_SAMPLES:g} and below {_MOST_SAMPLES:g}, '
                f'and numbers from 0 and below {_MOST_TOTAL:g}')
        samples = take('<f8', m).astype(float)
        totals = take('<f8', 3 * m).astype(float).reshape(m, 3)
        peaks = take('<f8', 2 * m).astype(float).reshape(m, 2)
        if not has_slots:
            take('<f8', 2 * m)
        moves = np.zeros((m, m))
        moves[rows, columns] = take('<f8', k)
        recent_weight, recent_peaks = 1.0, None
        if recent:
            [recent_weight] = take('<f8', 1).tolist()
            recent_peaks = take('<f8', 2 * m).astype(float).reshape(m, 2)
            if not 0 < recent_weight <= 1:
                raise exceptions.InvalidSeries(
                    f'packed transition counts: weight of the recent peaks:'
                    f' {recent_weight}; expected 0 < weight <= 1')
        slot_edges, slot_bins = np.zeros((2, 2)), _no_slots()
        if has_slots:
            slot_edges = take('<f8', 4).astype(float).reshape(2, 2)
            slot_bins = take(np.uint8, slots.SLOTS).copy()
        packed = take(_GAP_STEP, gap_steps)
        gap_moves = np.zeros((gap_steps, 4))
        for column, name in enumerate(_GAP_STEP.names):
            gap_moves[:, column] = packed[name]
        # np.isin takes long even for an empty array.
        if gap_steps and not np.isin(gap_moves[:, :2], bins).all():
            raise exceptions.InvalidSeries(
                f'packed transition counts: a step across a gap is from or '
                f'to a bin without samples; expected one of {bins.tolist()}')
        if not ((gap_moves[:, 2:] >= [2, 0])
                & (gap_moves[:, 2:] <= [MOST_PERIODS_APART, _MOST_SAMPLES])
                ).all():
            raise exceptions.InvalidSeries(
                f'packed transition counts: sampling periods and number of '
                f'the steps across gaps: {gap_moves[:, 2:].tolist()}; '
                f'expected 2 to {MOST_PERIODS_APART} periods and 0 to '
                f'{_MOST_SAMPLES:g} steps')
        return cls(period, first, last, first_bin, last_bin, bins, samples,
                   totals, peaks, moves, slot_bins, slot_edges, gap_moves,
                   recent_peaks, recent_weight)


def count_transitions(series):
    """Return the TransitionCounts of a series.

    :param series: RateSeries with at least one sample
    :returns: TransitionCounts
    :raises NotEnoughSamples: if the series is empty
    """
    [counts] = count_all([series])
    if isinstance(counts, exceptions.NotEnoughSamples):
        raise counts
    return counts


def count_all(series):
    """Return the TransitionCounts of each of many series.

    :param series: list of RateSeries
    :returns: list in the same order, TransitionCounts for each, or in its
        place the NotEnoughSamples that states why there are none
    """
    results = [None if len(recording) else exceptions.NotEnoughSamples(
        f'instance {recording.instance_uuid}: no usable sample '
        f'({recording.refused.total} refused); expected at least one')
        for recording in series]
    batch, samples = [], 0
    for i, recording in enumerate(series):
        if len(recording):
            batch.append(i)
            samples += len(recording)
        if batch and (samples >= _COUNT_TOGETHER or i == len(series) - 1):
            for j, counts in zip(batch, _count([series[j] for j in batch])):
                results[j] = counts
            batch, samples = [], 0
    return results


def _count(series):
    sizes = np.array([len(recording) for recording in series])
    owner = np.repeat(np.arange(sizes.size), sizes)
    times = np.concatenate([recording.times for recording in series])
    rates = np.concatenate([recording.rates for recording in series])
    bandwidth = rates[:, 0] + rates[:, 1]
    sample_bin = rate_bin(bandwidth)
    key, at, samples = np.unique(owner * _BINS + sample_bin,
                                 return_inverse=True, return_counts=True)
    bins = key % _BINS
    first = np.searchsorted(key, np.arange(sizes.size) * _BINS)
    m = np.diff(first, append=key.size)
    order = np.argsort(at, kind='stable')
    start = np.cumsum(samples) - samples
    peaks = np.stack([np.maximum.reduceat(column[order], start)
                      for column in (bandwidth, rates[:, 2])], axis=1)
    totals = np.stack([np.bincount(at, weights=column, minlength=key.size)
                       for column in rates.T], axis=1)
    periods = np.array([recording.period_seconds for recording in series],
                       dtype=float)
    slot_bins, slot_edges = _count_slots(owner, times, periods, bandwidth)
    # The previous sample belongs to the same series, and there is no gap.
    same = owner[1:] == owner[:-1]
    apart = _periods_apart(np.diff(times), periods[owner[1:]])
    follows = np.flatnonzero(same & (apart <= 1))
    gap_moves = _across_gaps(
        np.flatnonzero(same & (apart > 1) & (apart <= MOST_PERIODS_APART)),
        owner, sample_bin, apart)
    of = owner[follows]
    ends = np.cumsum(m * m)
    moves = np.bincount(
        (ends - m * m)[of] + (at[follows] - first[of]) * m[of]
        + at[follows + 1] - first[of], minlength=ends[-1]).astype(float)
    samples = samples.astype(float)
    begin = np.cumsum(sizes) - sizes
    last = begin + sizes - 1
    return [
        TransitionCounts(
            period, times[i], times[j], first_bin, last_bin,
            bins[k:k + n].copy(), samples[k:k + n].copy(),
            totals[k:k + n].copy(), peaks[k:k + n].copy(),
            moves[end - n * n:end].reshape(n, n).copy(),
            slot_bins[number], slot_edges[number],
            gap_moves.get(number, np.zeros((0, 4))))
        for number, (period, i, j, first_bin, last_bin, k, n, end)
        in enumerate(zip(
            periods.tolist(), begin.tolist(), last.tolist(),
            sample_bin[begin].tolist(), sample_bin[last].tolist(),
            first.tolist(), m.tolist(), ends.tolist()))]


def _count_slots(owner, times, periods, bandwidth):
    """Return ``slot_bins`` and ``slot_edges`` of each series.

    :param owner: number of the series of each sample, not decreasing
    :param times: start of each sample in seconds, increasing within a series
    :param periods: (V,) sampling period of each series in seconds
    :param bandwidth: bandwidth of each sample in kbit/s
    """
    first, last = _covered_slots(times, periods[owner])
    # A sample that is longer than a slot counts in each slot that it covers.
    repeats = last - first + 1
    sample = np.repeat(np.arange(times.size), repeats)
    slot = first[sample] + np.arange(sample.size) - np.repeat(
        np.cumsum(repeats) - repeats, repeats)
    begins = np.ones(sample.size, dtype=bool)
    of = owner[sample]
    begins[1:] = (np.diff(of) != 0) | (np.diff(slot) > 0)
    number = np.cumsum(begins) - 1
    sums = np.bincount(number, weights=bandwidth[sample])
    counts = np.bincount(number)
    of, slot = of[begins], slot[begins]
    begin = np.searchsorted(of, np.arange(periods.size))
    end = np.append(begin[1:], of.size) - 1
    edges = np.stack([np.stack([sums[at], counts[at]], axis=1)
                      for at in (begin, end)], axis=1)
    # The last 504 sampled slots end at the last slot. An older slot has lost
    # its position to a newer slot, which may have no sample.
    oldest = slots.latest_number(slot[end]) - slots.SLOTS
    near = np.flatnonzero(
        slots.sampled(slot) & (slot // slots.EACH > oldest[of]))
    bins = np.full((periods.size, slots.SLOTS), NO_SLOT, dtype=np.uint8)
    bins[of[near], slots.ring_index(slot[near])] = rate_bin(
        sums[near] / counts[near])
    return bins, edges


def _periods_apart(seconds, period_seconds):
    """Return the number of sampling periods between samples, 1 if no gap."""
    return np.maximum(np.ceil(seconds / period_seconds - 0.5), 1)


def _across_gaps(at, owner, sample_bin, apart):
    """Return {number of a series: (g, 4) its transitions across gaps}.

    :param at: (k,) samples that precede a gap
    :param owner: number of the series of each sample, not decreasing
    """
    rows = np.column_stack([sample_bin[at], sample_bin[at + 1], apart[at],
                            np.ones(at.size)])
    numbers, begin = np.unique(owner[at], return_index=True)
    return {number: _gathered(some) for number, some in zip(
        numbers.tolist(), np.split(rows, begin[1:]))}


def _gathered(gap_moves):
    """Return transitions across gaps, with the counts of equal ones added."""
    kinds, which = np.unique(gap_moves[:, :3], axis=0, return_inverse=True)
    return np.column_stack([kinds, np.bincount(
        which.ravel(), weights=gap_moves[:, 3], minlength=len(kinds))])


def period_and_last_time(data):
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


def classes(counts):
    """Divide the bins of each instance into low and high bins.

    The boundary minimises the variance within the two classes of the square
    roots of the rates, where each sample counts as the mean of its bin.
    Without the square root, the high class would only contain the few largest
    samples. Derivation: reference/model.rst, "Instances that are busy
    together".

    :param counts: list of V TransitionCounts
    :returns: (V,) int64, number of low bins of each instance; 1 if the
        instance has only one bin
    """
    sizes = np.array([history.bins.size for history in counts])
    samples = np.concatenate([history.samples for history in counts])
    totals = np.concatenate([history.totals for history in counts])
    starts = np.cumsum(sizes) - sizes
    owner = np.repeat(np.arange(sizes.size), sizes)
    roots = np.sqrt((totals[:, 0] + totals[:, 1]) / samples)

    count, sum_ = (_sums_up_to(values, sizes)
                   for values in (samples, samples * roots))
    ends = starts + sizes - 1
    above, above_sum = count[ends][owner] - count, sum_[ends][owner] - sum_
    last = np.zeros(samples.size, dtype=bool)
    last[ends] = True
    apart = np.where(last, -1.0, (
        sum_ / count - above_sum / np.where(last, 1.0, above)) ** 2
        * count * above)
    most = np.maximum.reduceat(apart, starts)[owner]
    low = np.minimum.reduceat(np.where(
        apart >= most, np.arange(samples.size), samples.size), starts)
    return low - starts + 1


def _sums_up_to(values, sizes):
    """Return the sums up to each bin of the same instance.

    The sums of an instance do not depend on other instances, not even by
    rounding.

    :param values: (bins of all,) numbers
    :param sizes: (V,) number of bins of each instance
    """
    own = np.arange(sizes.max()) < sizes[:, None]
    table = np.zeros(own.shape)
    table[own] = values
    return np.cumsum(table, axis=1)[own]


def high_slots(counts, low_bins, share, key=None):
    """Return in which of the sampled slots an instance was high.

    A slot without a sample takes the value of a day that has a sample at the
    same time of the day: seven days away, or else the first that is found in
    steps of three days back around the ring. In a short history, slots that
    two instances have in common therefore count as if they repeated, and each
    day counts about as often. If no day has a sample, the bit is drawn at
    random, so that the instance is independent of others.

    :param counts: TransitionCounts
    :param low_bins: number of low bins of the instance
    :param share: probability that a drawn bit is set: one number, or (504,)
    :param key: seed of the drawn bits, for example the uuid of the instance;
        None uses the counts
    :returns: (504,) bool by position in the ring, see :mod:`.slots`
    """
    high = counts.slot_bins > counts.bins[low_bins - 1]
    missing = counts.slot_bins == NO_SLOT
    for days in slots.REPLACEMENT_DAYS:
        if not missing.any():
            return high
        # Negative positions count from the end: the slots are a ring.
        source = np.arange(slots.SLOTS) - days * slots.SAMPLED_A_DAY
        high = np.where(missing, high[source], high)
        missing &= missing[source]
    if missing.any():
        if key is None:
            key = hashlib.sha256(counts.to_bytes()).hexdigest()
        high = np.where(missing, slots.drawn(key, share), high)
    return high


def fit_model(counts, min_samples=MIN_SAMPLES, key=None,
              quantiles=(LOW_QUANTILES, HIGH_QUANTILES)):
    """Fit a model with low and high states to counts.

    The bins are divided into a low and a high class (:func:`classes`). Each
    state combines the bins between two quantiles of the bandwidth in its class
    and has their mean rates. The last state has the largest bandwidth and the
    largest packet rate that were observed. The long-run law is the observed
    share of samples. Jump probabilities and mean sojourn times follow from the
    counted transitions. Derivation: reference/model.rst, "Estimation".

    :param counts: TransitionCounts
    :param min_samples: minimum number of samples
    :param key: as in :func:`high_slots`
    :param quantiles: for the low and the high class, the upper ends of the
        states as quantiles of the samples, increasing, the last one 1
    :returns: TrafficModel with at most four low and four high states
    :raises NotEnoughSamples: if the history is too short or has no traffic
    :raises InvalidModel: if the quantiles are invalid
    """
    [fitted] = fit_models([counts], min_samples, [key], quantiles)
    if isinstance(fitted, exceptions.NotEnoughSamples):
        raise fitted
    return fitted


def fit_models(counts, min_samples=MIN_SAMPLES, keys=None,
               quantiles=(LOW_QUANTILES, HIGH_QUANTILES)):
    """Fit a model to each of many counts, as :func:`fit_model` does.

    :param counts: list of TransitionCounts
    :param min_samples: minimum number of samples
    :param keys: list of one key for each of the counts, or None
    :param quantiles: as in :func:`fit_model`
    :returns: list in the same order, with a TrafficModel or the
        NotEnoughSamples that explains why there is none
    """
    low_ends, high_ends = map(_checked_quantiles, quantiles)
    results = [lack_of_history(history, min_samples) for history in counts]
    enough = [i for i, lack in enumerate(results) if lack is None]
    for first in range(0, len(enough), _FIT_TOGETHER):
        chosen = enough[first:first + _FIT_TOGETHER]
        batch = [counts[i] for i in chosen]
        sizes = np.array([history.bins.size for history in batch])
        starts = np.cumsum(sizes) - sizes
        owner = np.repeat(np.arange(sizes.size), sizes)
        low_bins = classes(batch)
        high = np.arange(owner.size) - starts[owner] >= low_bins[owner]
        # Number of the class of each bin: one low and one high for each
        # instance.
        number = 2 * owner + high
        samples = np.concatenate([history.samples for history in batch])
        totals = np.bincount(number, weights=samples)
        so_far = _sums_up_to(samples, sizes)
        before = np.where(high, totals[2 * owner], 0.0)
        below = (so_far - samples - before) / totals[number] * (1 + 1e-12)
        band = np.where(
            high, low_ends.size + np.searchsorted(
                high_ends[:-1], below, side='right'),
            np.searchsorted(low_ends[:-1], below, side='right'))
        for i, fitted in zip(chosen, _fit_states(
                batch, band, low_bins, keys and [keys[i] for i in chosen])):
            results[i] = fitted
    return results


def _checked_quantiles(values):
    quantiles = np.asarray(values, dtype=float)
    if quantiles.ndim != 1 or not quantiles.size or quantiles[-1] != 1 \
            or (np.diff(quantiles) <= 0).any() or quantiles[0] <= 0:
        raise exceptions.InvalidModel(
            f'level quantiles: {quantiles.tolist()}; expected increasing '
            f'numbers above 0, the last one 1')
    return quantiles


def fit_on_off(counts, threshold=0.1, min_samples=MIN_SAMPLES):
    """Fit the on/off model of equation 1, which has no sampled slots.

    A sample is on if its bandwidth is at least ``threshold`` times the 99th
    percentile of the bandwidth. The rate of the on state is the mean of these
    samples.

    :param counts: TransitionCounts
    :param threshold: between 0 and 1
    :param min_samples: minimum number of samples
    :returns: TrafficModel with two states, or with one state if all samples
        are on
    :raises NotEnoughSamples: as :func:`fit_model`
    :raises InvalidModel: if the threshold is invalid
    """
    if not 0 <= threshold <= 1:
        raise exceptions.InvalidModel(
            f'threshold of on: {threshold}; expected 0..1')
    lack = lack_of_history(counts, min_samples)
    if lack is not None:
        raise lack
    share = np.cumsum(counts.samples) / counts.total_samples
    p99 = counts.peaks[np.searchsorted(share, 0.99), 0]
    # Bins are compared by their largest sample, so that one state is only
    # empty if no sample is below the threshold.
    on = (counts.peaks[:, 0] >= threshold * p99) & (counts.peaks[:, 0] > 0)
    # The off state has no traffic.
    silent_off = dataclasses.replace(
        counts, totals=np.where(on[:, None], counts.totals, 0.0))
    [fitted] = _fit_states([silent_off], on.astype(np.int64))
    return fitted


def lack_of_history(counts, min_samples=MIN_SAMPLES):
    """Return the NotEnoughSamples that a fit would raise, or None.

    :param counts: TransitionCounts
    :param min_samples: minimum number of samples
    """
    samples = counts.total_samples
    if samples < min_samples:
        return exceptions.NotEnoughSamples(
            f'history of {samples:g} samples is too short; expected at least '
            f'{min_samples}')
    if not counts.peaks[:, 0].any():
        return exceptions.NotEnoughSamples(
            f'no traffic in {samples:g} samples: nothing to learn from; '
            f'expected at least one sample above zero')
    return None


def _fit_states(counts, band, low_bins=None, keys=None):
    """Return models with one state for each band of bins.

    All models are computed together: first arrays of all bins of all counts,
    then of all states, then padded to the largest number of states.

    :param counts: list of V TransitionCounts
    :param band: (bins of all,) int64, not decreasing within the bins of one of
        the counts
    :param low_bins: (V,) number of low bins of each, the first ones; None: the
        models have no classes, and each state has mean rates
    :param keys: V keys of :func:`high_slots`, or None
    """
    sizes = np.array([history.bins.size for history in counts])
    first_bin = np.cumsum(sizes) - sizes
    begins = np.diff(band, prepend=-1) != 0
    begins[first_bin] = True
    at = np.flatnonzero(begins)              # first bin of each state
    state_of_bin = np.cumsum(begins) - 1
    first_state = state_of_bin[first_bin]
    n = np.diff(first_state, append=at.size)
    owner = np.repeat(np.arange(n.size), n)  # of each state

    def gathered(name):
        return np.add.reduceat(np.concatenate(
            [getattr(history, name) for history in counts]), at)

    samples = gathered('samples')
    rates = gathered('totals') / samples[:, None]
    if low_bins is not None:
        # The last state has the largest observed rates.
        last = first_state + n - 1
        largest = np.maximum.reduceat(np.concatenate(
            [history.peaks for history in counts]), at)[last]
        mean = rates[last, 0] + rates[last, 1]
        rates[last, :2] *= np.divide(
            largest[:, 0], mean, out=np.ones(last.size),
            where=mean > 0)[:, None]
        rates[last, 2] = largest[:, 1]
    totals = np.add.reduceat(samples, first_state)
    law = samples / totals[owner]
    # Padded: (V, most states).
    place = np.arange(at.size) - first_state[owner]
    padded = np.zeros((n.size, int(n.max())))
    padded[owner, place] = law
    steps = _steps(counts, sizes, state_of_bin - first_state[
        np.repeat(np.arange(n.size), sizes)], padded.shape[1])
    period = np.array([history.period_seconds for history in counts])
    observed = np.maximum(steps.sum(axis=(1, 2)), 1.0) * period
    steps *= 1 - np.eye(padded.shape[1])
    exits = np.maximum(steps.sum(axis=(1, 2)), 1.0)
    jump = _jump_probabilities(steps, padded)
    visits = model.visits(jump)
    # Sojourn times that give the observed law, scaled so that the chain leaves
    # its states as often as observed.
    sojourn = np.divide(padded, visits, out=np.zeros_like(padded),
                        where=padded > 0)
    sojourn *= (observed / exits * visits.sum(axis=1))[:, None]
    fitted = []
    for i, (start, count) in enumerate(zip(first_state.tolist(),
                                           n.tolist())):
        states = slice(start, start + count)
        fitted.append(model.TrafficModel.of_fit(
            rates[states], jump[i, :count, :count],
            sojourn[i, :count] if count > 1 else observed[i:i + 1],
            law[states], *(
                (None, None) if low_bins is None else _classes_of_states(
                    counts[i], int(low_bins[i]), law[states],
                    state_of_bin[first_bin[i]:first_bin[i] + sizes[i]]
                    - start, keys and keys[i]))))
    return fitted


def _classes_of_states(counts, low_bins, law, state_of_bin, key):
    """Return ``high`` and ``low_states`` of a model, None without classes."""
    if low_bins >= counts.bins.size:
        return None, None
    low_states = int(state_of_bin[low_bins])
    return high_slots(counts, low_bins, law[low_states:].sum(), key), \
        low_states


def _steps(counts, sizes, state, most):
    """Return (V, most, most) the number of transitions between states.

    If more transitions cross gaps of one length than no gap, the result is the
    expected number of transitions of a chain that is observed at that
    interval.

    :param state: (bins of all,) number of the state of each bin, from 0 for
        each of the counts
    """
    moves = np.concatenate([history.moves.ravel() for history in counts])
    first_bin = np.cumsum(sizes) - sizes
    ends = np.cumsum(sizes * sizes)
    nonzero = np.flatnonzero(moves)
    owner = np.searchsorted(ends, nonzero, side='right')
    row, column = np.divmod(nonzero - (ends - sizes * sizes)[owner],
                            sizes[owner])
    start = first_bin[owner]
    transitions = np.bincount(
        (owner * most + state[start + row]) * most + state[start + column],
        weights=moves[nonzero], minlength=sizes.size * most * most,
    ).reshape(-1, most, most).astype(float)
    for i, history in enumerate(counts):
        if not len(history.gap_moves):
            continue
        by_periods = np.bincount(history.gap_moves[:, 2].astype(np.int64),
                                 weights=history.gap_moves[:, 3])
        periods = int(by_periods.argmax())
        if by_periods[periods] <= transitions[i].sum():
            continue
        across = history.gap_moves[history.gap_moves[:, 2] == periods]
        before, after = state[first_bin[i] + np.searchsorted(
            history.bins, across[:, :2])].T
        steps = np.zeros((most, most))
        np.add.at(steps, (before, after), across[:, 3])
        transitions[i] = _expected_steps(steps, periods)
    return transitions


def _expected_steps(steps, periods):
    """Return the transitions of a chain that is not observed in each period.

    Determines the most likely chain with these observations, and the number of
    times it is expected to have made each transition, including the periods
    without observation (Baum and Welch). Derivation: reference/model.rst,
    "Estimation".

    :param steps: (n, n) number of observed pairs of states
    :param periods: number of transitions of the chain between two
        observations, > 1
    :returns: (n, n), with the sum of ``steps`` multiplied by ``periods``
    """
    total = steps.sum()
    # Initially, assume that each transition may have happened in any period.
    expected = steps + (periods - 1) * np.diag(
        (steps.sum(axis=0) + steps.sum(axis=1)) / 2)
    for _ in range(_MOST_ROUNDS):
        exits = expected.sum(axis=1, keepdims=True)
        chain = expected / np.where(exits > 0, exits, 1.0)
        powers = [np.eye(len(steps))]
        for _ in range(periods):
            powers.append(powers[-1] @ chain)
        weights = np.divide(steps, powers[-1], out=np.zeros_like(steps),
                            where=powers[-1] > 0)
        before = expected
        expected = chain * sum(
            powers[k].T @ weights @ powers[periods - 1 - k].T
            for k in range(periods))
        if abs(expected - before).max() <= _LEAST_CHANGE * total:
            break
    return expected


def _jump_probabilities(steps, law):
    """Return row-stochastic (V, n, n) of the transitions between states.

    If the transitions do not connect all states (for example a record that
    ends in a state that occurs nowhere else, or transitions hidden by gaps),
    each row gets one more transition, distributed as the long-run law.

    :param steps: (V, n, n), zero diagonals
    :param law: (V, n), 0 beyond the states of a model
    """
    n = law.shape[1]
    is_state = law > 0
    both = is_state[:, :, None] & is_state[:, None, :]
    reach = ((steps > 0) | np.eye(n, dtype=bool)).astype(np.float32)
    for _ in range(n.bit_length()):
        reach = np.minimum(reach @ reach, 1)
    apart = ((reach == 0) & both).any(axis=(1, 2))
    spread = both[apart] * law[apart][:, None, :] * (1 - np.eye(n))
    spread /= np.maximum(spread.sum(axis=2, keepdims=True), 1e-300)
    steps[apart] += spread
    exits = steps.sum(axis=2, keepdims=True)
    return steps / np.where(exits > 0, exits, 1.0)
