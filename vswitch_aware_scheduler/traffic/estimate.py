# SPDX-License-Identifier: Apache-2.0
"""Estimates a traffic model from samples, as black-box estimation.

A :class:`RateSeries` is divided into fixed, logarithmic rate bins and reduced
to :class:`TransitionCounts`. These counts can be stored, aged, and merged with
the counts of the next hour. A :class:`TrafficModel` with few states is fitted
to the counts. The bins never change, so that counts of any two times or
instances can be added. Pure; no clock, no configuration, no I/O. Derivation:
reference/model.rst, "Estimation".
"""

from collections import abc
import dataclasses
import functools
import hashlib
import typing

import numpy as np
import numpy.typing as npt

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import instants as sampled
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import packed_counts
from vswitch_aware_scheduler.traffic import series as rate_series

__all__ = ['BINS_PER_DECADE', 'FORGOTTEN_SAMPLES', 'LEAST_CORRELATION',
           'MIN_SAMPLES', 'NO_BIN', 'TransitionCounts', 'count_all',
           'count_transitions', 'fit_model', 'fit_models', 'fit_on_off',
           'lack_of_history', 'rate_bin']

#: Bin 0 holds rates below 1 kbit/s; each further bin is 26 % wide.
BINS_PER_DECADE = 10

#: Number of rows into which the bins of an instance are combined. With more,
#: the sums of instances are no more accurate (contributor/dependence.rst).
_ROWS = 7

#: Value of an instant without a sample, instead of a bin.
NO_BIN = 255

#: A shorter history is too short to fit a model.
MIN_SAMPLES = 24

#: The largest rates are left out for up to this time in sum, if each of their
#: bins occurred on one day only, and the history has this number of days.
_SELDOM_SECONDS = 3600.0
_LEAST_DAYS = 7

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
_FIT_TOGETHER = 250

#: Rates that differ by less than this, relatively, are equal.
_SAME_RATE = 1e-9

_DAY_SECONDS = 86400.0
_NO_DAYS = np.array([2 ** 31 - 1, -2 ** 31])


def rate_bin(kbps: npt.ArrayLike) -> np.ndarray:
    """Return the bin of each rate.

    :param kbps: array of rates in kbit/s, sum of egress and ingress
    :returns: int64 array: 0 below 1 kbit/s, else 1 + floor(10 log10(kbps))
    """
    kbps = np.asarray(kbps, dtype=float)
    above = np.maximum(kbps, 1.0)
    bins = 1 + np.floor(BINS_PER_DECADE * np.log10(above)).astype(np.int64)
    return np.where(kbps < 1.0, 0, bins)


def _no_bins() -> np.ndarray:
    return np.full(sampled.INSTANTS, NO_BIN, dtype=np.uint8)


@dataclasses.dataclass(frozen=True, eq=False)
class TransitionCounts:
    """Samples and transitions of one instance, counted by rate bin. Mergeable.

    Only bins with samples are listed; m is their number.

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
    :ivar days: (m, 2) int64, first and last day with a sample of the bin, days
        since the epoch
    :ivar moves: (m, m) number of times that a sample of bin j directly
        followed a sample of bin i; the diagonal counts transitions within a
        bin
    :ivar at_instants: (504,) uint8, bin of the sample at each of the instants
        up to the end of the last sample, by position in the ring
        (:mod:`.instants`); :data:`NO_BIN` for an instant without a sample
    :ivar gap_moves: (g, 4) transitions across gaps, in increasing order: bin
        before, bin after, sampling periods between the samples (2 to
        :data:`.MOST_PERIODS_APART`), number of such transitions
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
    days: np.ndarray
    moves: np.ndarray
    at_instants: np.ndarray = dataclasses.field(default_factory=_no_bins)
    gap_moves: np.ndarray = dataclasses.field(
        default_factory=lambda: np.zeros((0, 4)))
    recent_peaks: typing.Any = None
    recent_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.recent_peaks is None:
            object.__setattr__(self, 'recent_peaks', self.peaks)

    @property
    def total_samples(self) -> float:
        """Number of samples in all bins; not a whole number after ageing."""
        return float(self.samples.sum())

    @functools.cached_property
    def supported(self) -> int:
        """Number of bins, the first ones, whose rates a model counts with.

        A rate that is an error of telemetry, or that the instance had once,
        would otherwise decide for months.
        """
        if self.last_time - self.first_time < _LEAST_DAYS * _DAY_SECONDS:
            return self.bins.size
        seldom = np.cumsum(self.samples[::-1])[::-1] * self.period_seconds \
            <= _SELDOM_SECONDS
        seldom &= np.minimum.accumulate(
            (self.days[:, 0] == self.days[:, 1])[::-1])[::-1]
        m = int(np.count_nonzero(~seldom))
        return m if self.peaks[:m, 0].any() else self.bins.size

    def without_seldom(self) -> 'TransitionCounts':
        """Return the counts without the bins that are not supported.

        The result cannot be merged with later counts.
        """
        m = self.supported
        if m == self.bins.size:
            return self
        at_instants = np.where(self.at_instants > self.bins[m - 1], NO_BIN,
                               self.at_instants)
        return dataclasses.replace(
            self, bins=self.bins[:m], samples=self.samples[:m],
            totals=self.totals[:m], peaks=self.peaks[:m], days=self.days[:m],
            moves=self.moves[:m, :m], at_instants=at_instants,
            gap_moves=self.gap_moves[
                (self.gap_moves[:, :2] <= self.bins[m - 1]).all(axis=1)],
            recent_peaks=self.recent_peaks[:m])

    @property
    def correlation(self) -> float | None:
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

    def aged(self, factor: float) -> 'TransitionCounts':
        """Return the counts with a reduced weight of all samples so far.

        A bin with a weight below :data:`FORGOTTEN_SAMPLES` is removed together
        with its transitions. The peak of a remaining bin is that of the last
        1.5 to 3 half-lives.

        :param factor: 0 < factor <= 1
        :raises InvalidSeries: if the factor is not in this range
        """
        checks.check('ageing factor', factor, checks.number(
            0, 1, above=True), exceptions.InvalidSeries)
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
            days=self.days[keep],
            moves=self.moves[np.ix_(keep, keep)] * factor,
            gap_moves=self.gap_moves[kept_steps] * [1, 1, 1, factor],
            recent_peaks=recent[keep], recent_weight=weight)

    def merged(self, later: 'TransitionCounts') -> 'TransitionCounts':
        """Return the sum of these counts and those of a later period.

        The transition from the last sample here to the first sample of
        ``later`` is also counted. Counting a series in pieces therefore gives
        the same result as counting it as a whole.

        :raises InvalidSeries: if the sampling periods differ, or if ``later``
            is not later, so that samples would be counted twice
        """
        if later.period_seconds != self.period_seconds:
            raise exceptions.InvalidSeries(
                thing='transition counts: sampling period in seconds',
                seen=later.period_seconds, expected=self.period_seconds)
        if later.first_time <= self.last_time:
            raise exceptions.InvalidSeries(
                thing='transition counts: first new sample',
                seen=later.first_time,
                expected=f'later than {self.last_time}, the last one counted')
        bins = self.bins
        at = np.searchsorted(bins, later.bins)
        if at[-1] == bins.size or (bins[at] != later.bins).any():
            bins = np.union1d(bins, later.bins)
            at = np.searchsorted(bins, later.bins)
        samples, totals, peaks, recent, days, moves = self._spread(bins)
        samples[at] += later.samples
        totals[at] += later.totals
        peaks[at] = np.maximum(peaks[at], later.peaks)
        recent[at] = np.maximum(recent[at], later.peaks)
        days[at, 0] = np.minimum(days[at, 0], later.days[:, 0])
        days[at, 1] = np.maximum(days[at, 1], later.days[:, 1])
        moves[at[:, None], at] += later.moves
        gap_moves, new_gap_moves = self.gap_moves, later.gap_moves
        apart = int(_periods_apart(later.first_time - self.last_time,
                                   self.period_seconds))
        if apart == 1:
            moves[np.searchsorted(bins, self.last_bin),
                  np.searchsorted(bins, later.first_bin)] += 1
        elif apart <= packed_counts.MOST_PERIODS_APART:
            new_gap_moves = np.concatenate([new_gap_moves, [
                [self.last_bin, later.first_bin, apart, 1]]])
        if len(new_gap_moves):
            gap_moves = _gathered(np.concatenate([gap_moves, new_gap_moves]))
        return TransitionCounts(
            self.period_seconds, self.first_time, later.last_time,
            self.first_bin, later.last_bin, bins, samples, totals, peaks, days,
            moves, self._merged_instants(later), gap_moves, recent,
            self.recent_weight)

    @property
    def _newest_number(self):
        """Number of the interval with the end of the last sample."""
        return sampled.newest_number(self.last_time + self.period_seconds)

    def _merged_instants(self, later):
        """Return ``at_instants`` of both counts together."""
        kept = np.where(
            sampled.latest_numbers(later._newest_number)
            <= self._newest_number, self.at_instants, NO_BIN)
        return np.where(later.at_instants != NO_BIN, later.at_instants,
                        kept).astype(np.uint8)

    def _spread(self, bins):
        """Return copies of the arrays, extended to a larger set of bins."""
        arrays = (self.samples, self.totals, self.peaks, self.recent_peaks,
                  self.days, self.moves)
        if bins is self.bins:
            return [array.copy() for array in arrays]
        m, at = bins.size, np.searchsorted(bins, self.bins)
        samples, totals, peaks, recent, moves = (
            np.zeros(shape) for shape in (
                m, (m, 3), (m, 2), (m, 2), (m, m)))
        # No day is later, and none is earlier.
        days = np.tile(_NO_DAYS, (m, 1))
        samples[at], totals[at], peaks[at], recent[at], days[at] = arrays[:5]
        moves[at[:, None], at] = arrays[5]
        return samples, totals, peaks, recent, days, moves

    def to_bytes(self) -> bytes:
        """Return the counts as :mod:`.packed_counts`."""
        return packed_counts.pack(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> 'TransitionCounts':
        """Return the counts that :meth:`to_bytes` converted to bytes.

        :raises InvalidSeries: if the bytes do not represent counts
        """
        return cls(**packed_counts.unpack(data))


def count_transitions(series: rate_series.RateSeries,
                      instants: sampled.Instants = sampled.PUBLIC
                      ) -> TransitionCounts:
    """Return the TransitionCounts of a series.

    :raises NotEnoughSamples: if the series is empty
    """
    [counts] = count_all([series], instants)
    if isinstance(counts, exceptions.NotEnoughSamples):
        raise counts
    return counts


def count_all(series: abc.Sequence[rate_series.RateSeries],
              instants: sampled.Instants = sampled.PUBLIC
              ) -> list[TransitionCounts | exceptions.NotEnoughSamples]:
    """Return the TransitionCounts of each of many series.

    :returns: list in the same order, TransitionCounts for each, or in its
        place the NotEnoughSamples that states why there are none
    """
    results: list[typing.Any] = [
        None if len(recording) else exceptions.NotEnoughSamples(
            thing=f'samples of instance {recording.instance_uuid}',
            seen=f'none is usable ({recording.refused.total} refused)',
            expected='at least one')
        for recording in series]
    batch, samples = [], 0
    for i, recording in enumerate(series):
        if len(recording):
            batch.append(i)
            samples += len(recording)
        if batch and (samples >= _COUNT_TOGETHER or i == len(series) - 1):
            for j, counts in zip(batch, _count(
                    [series[j] for j in batch], instants)):
                results[j] = counts
            batch, samples = [], 0
    return results


def _count(series, instants):
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
    day = np.floor(times / _DAY_SECONDS).astype(np.int64)[order]
    days = np.stack([np.minimum.reduceat(day, start),
                     np.maximum.reduceat(day, start)], axis=1)
    periods = np.array([recording.period_seconds for recording in series],
                       dtype=float)
    at_instants = _at_instants(instants, owner, times, periods, sample_bin)
    # The previous sample belongs to the same series, and there is no gap.
    same = owner[1:] == owner[:-1]
    apart = _periods_apart(np.diff(times), periods[owner[1:]])
    follows = np.flatnonzero(same & (apart <= 1))
    gap_moves = _across_gaps(
        np.flatnonzero(same & (apart > 1)
                       & (apart <= packed_counts.MOST_PERIODS_APART)),
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
            days[k:k + n].copy(),
            moves[end - n * n:end].reshape(n, n).copy(),
            at_instants[number],
            gap_moves.get(number, np.zeros((0, 4))))
        for number, (period, i, j, first_bin, last_bin, k, n, end)
        in enumerate(zip(
            periods.tolist(), begin.tolist(), last.tolist(),
            sample_bin[begin].tolist(), sample_bin[last].tolist(),
            first.tolist(), m.tolist(), ends.tolist()))]


def _at_instants(instants, owner, times, periods, sample_bin):
    """Return (V, 504) uint8, ``at_instants`` of each series.

    :param owner: number of the series of each sample, not decreasing
    """
    begin = np.searchsorted(owner, np.arange(periods.size))
    end = np.append(begin[1:], owner.size) - 1
    newest = sampled.newest_number(times[end] + periods)
    # One interval earlier, because rounding may move a limit of an interval.
    oldest = np.maximum(sampled.newest_number(times[begin]),
                        newest - sampled.INSTANTS + 1)
    amounts = newest - oldest + 1
    of = np.repeat(np.arange(periods.size), amounts)
    number = newest[of] - np.arange(of.size) + np.repeat(
        np.cumsum(amounts) - amounts, amounts)
    at = instants.times(number)
    # One increasing number for series and time, to search all at once.
    first = times.min()
    width = max(float(times.max() - first), float(at.max() - first)) + 1.0
    sample = np.searchsorted(owner * width + (times - first),
                             of * width + (at - first), side='right') - 1
    covered = (sample >= begin[of]) & (
        at < times[np.maximum(sample, 0)] + periods[of])
    bins = np.full((periods.size, sampled.INSTANTS), NO_BIN, dtype=np.uint8)
    bins[of[covered], number[covered] % sampled.INSTANTS] = np.minimum(
        sample_bin[sample[covered]], NO_BIN - 1)
    return bins


def _periods_apart(seconds, period_seconds):
    """Return the number of sampling periods between samples, 1 if no gap."""
    return np.maximum(np.ceil(seconds / period_seconds - 0.5), 1)


def _across_gaps(at, owner, sample_bin, apart):
    """Return {number of a series: (g, 4) its transitions across gaps}.

    :param at: (k,) samples that precede a gap
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


def _row_of_bins(counts):
    """Combine the bins of each instance into rows of similar rates.

    The rows minimise the variance of the bandwidth within them, where each
    sample counts as the mean of its bin (dynamic programming; Fisher 1958).
    They therefore minimise the error of sums.

    :returns: (bins of all,) int64, row of each bin from 0 for each instance
    """
    sizes = np.array([history.bins.size for history in counts])
    own = np.arange(sizes.max()) < sizes[:, None]
    rows = np.broadcast_to(np.arange(own.shape[1]), own.shape).copy()
    large = np.flatnonzero(sizes > _ROWS)
    if large.size:
        samples, rates = np.zeros((2, *own.shape))
        samples[own] = np.concatenate([history.samples for history in counts])
        rates[own] = np.concatenate(
            [history.totals[:, :2].sum(axis=1) for history in counts])
        rows[large] = _least_variance(samples[large], rates[large],
                                      sizes[large])
    return rows[own]


def _least_variance(samples, totals, sizes):
    """Return (n, m) int64, the row of each bin with the least variance.

    :param samples: (n, m) number of samples of each bin, 0 beyond the bins of
        an instance
    :param totals: (n, m) sum of the bandwidth of these samples
    :param sizes: (n,) number of bins of each instance, > _ROWS
    """
    n, m = samples.shape
    count, total = (np.pad(np.cumsum(values, axis=1), [(0, 0), (1, 0)])
                    for values in (samples, totals))
    # gain[:, i, j]: what a row of the bins i to j - 1 explains.
    between = count[:, None] - count[:, :, None]
    gain = np.where(between > 0, (total[:, None] - total[:, :, None]) ** 2
                    / np.where(between > 0, between, 1.0), -np.inf)
    best, choices = gain[:, 0], []
    for _ in range(_ROWS - 1):
        explained = best[:, :, None] + gain
        choices.append(explained.argmax(axis=1))
        best = explained.max(axis=1)
    rows, every = np.zeros((n, m), dtype=np.int64), np.arange(n)
    end = sizes
    for choice in reversed(choices):
        end = choice[every, end]
        rows += np.arange(m) >= end[:, None]
    return rows


def fit_model(counts: TransitionCounts, min_samples: int = MIN_SAMPLES,
              key: str | None = None) -> model.TrafficModel:
    """Fit a model to counts.

    Each state combines neighbouring bins and has their mean rates, except the
    last one, which has the largest bandwidth and the largest packet rate that
    were observed, for the time of one sample. The long-run law is the observed
    share of samples. Jump probabilities and mean sojourn times follow from the
    counted transitions. Derivation: reference/model.rst, "Estimation".

    :param key: seed of the rows of instants without a sample, for example the
        uuid of the instance; None uses the counts
    :returns: TrafficModel with at most eight states
    :raises NotEnoughSamples: if the history is too short or has no traffic
    """
    [fitted] = fit_models([counts], min_samples, [key])
    if isinstance(fitted, exceptions.NotEnoughSamples):
        raise fitted
    return fitted


def fit_models(counts: abc.Sequence[TransitionCounts],
               min_samples: int = MIN_SAMPLES,
               keys: abc.Sequence[str | None] | None = None
               ) -> list[model.TrafficModel | exceptions.NotEnoughSamples]:
    """Fit a model to each of many counts, as :func:`fit_model` does.

    :param keys: list of one key for each of the counts, or None
    :returns: list in the same order, with a TrafficModel or the
        NotEnoughSamples that explains why there is none
    """
    results: list[typing.Any] = [
        lack_of_history(history, min_samples) for history in counts]
    enough = [i for i, lack in enumerate(results) if lack is None]
    for first in range(0, len(enough), _FIT_TOGETHER):
        chosen = enough[first:first + _FIT_TOGETHER]
        batch = [counts[i].without_seldom() for i in chosen]
        for i, fitted in zip(chosen, _fit_states(
                batch, _row_of_bins(batch), True,
                [keys and keys[i] for i in chosen])):
            results[i] = fitted
    return results


def fit_on_off(counts: TransitionCounts, threshold: float = 0.1,
               min_samples: int = MIN_SAMPLES) -> model.TrafficModel:
    """Fit the on/off model of equation 1, which has no instants.

    A sample is on if its bandwidth is at least ``threshold`` times the 99th
    percentile of the bandwidth. The rate of the on state is the mean of these
    samples.

    :param threshold: between 0 and 1
    :returns: TrafficModel with two states, or with one state if all samples
        are on
    :raises NotEnoughSamples: as :func:`fit_model`
    :raises InvalidModel: if the threshold is invalid
    """
    checks.check('threshold of on', threshold, checks.number(0, 1),
                 exceptions.InvalidModel)
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


def lack_of_history(counts: TransitionCounts, min_samples: int = MIN_SAMPLES
                    ) -> exceptions.NotEnoughSamples | None:
    """Return the NotEnoughSamples that a fit would raise, or None."""
    samples = counts.total_samples
    if samples < min_samples:
        return exceptions.NotEnoughSamples(
            thing='number of samples', seen=f'{samples:g}',
            expected=f'at least {min_samples}')
    if not counts.peaks[:, 0].any():
        return exceptions.NotEnoughSamples(
            thing='traffic', seen=f'none in {samples:g} samples',
            expected='at least one sample above zero')
    return None


def _fit_states(counts, band, has_peak=False, keys=None):
    """Return models with one state for each band of bins.

    All models are computed together: first arrays of all bins of all counts,
    then of all states, then padded to the largest number of states.

    :param band: (bins of all,) int64, not decreasing within the bins of one of
        the counts
    :param has_peak: whether the models get a last state with the largest
        observed rates, and the rows of the instants
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
    place = np.arange(at.size) - first_state[owner]

    def gathered(name):
        return np.add.reduceat(np.concatenate(
            [getattr(history, name) for history in counts]), at)

    samples = gathered('samples')
    totals = np.add.reduceat(samples, first_state)
    # Padded: (V, most states).
    most = int(n.max()) + has_peak
    law, rates = np.zeros((n.size, most)), np.zeros((n.size, most, 3))
    law[owner, place] = samples / totals[owner]
    rates[owner, place] = gathered('totals') / samples[:, None]
    state = state_of_bin - first_state[np.repeat(np.arange(n.size), sizes)]
    steps = _steps(counts, sizes, state, most)
    period = np.array([history.period_seconds for history in counts])
    observed = np.maximum(steps.sum(axis=(1, 2)), 1.0) * period
    steps *= 1 - np.eye(most)
    exits = np.maximum(steps.sum(axis=(1, 2)), 1.0)
    jump = _jump_probabilities(steps, law)
    visits = model.visits(jump)
    # Sojourn times that give the observed law, scaled so that the chain leaves
    # its states as often as observed.
    sojourn = np.divide(law, visits, out=np.zeros_like(law), where=law > 0)
    sojourn *= (observed / exits * visits.sum(axis=1))[:, None]
    sojourn[n == 1, 0] = observed[n == 1]
    if has_peak:
        largest = np.array([history.peaks.max(axis=0) for history in counts])
        n = n + _add_peaks(n - 1, largest, totals, period, law, rates, jump,
                           sojourn)
    fitted = []
    for i, count in enumerate(n.tolist()):
        fitted.append(model.TrafficModel.of_fit(
            rates[i, :count], jump[i, :count, :count], sojourn[i, :count],
            law[i, :count], _rows_at_instants(
                counts[i], state[first_bin[i]:first_bin[i] + sizes[i]],
                law[i, :count], keys[i]) if has_peak else None))
    return fitted


def _add_peaks(last, largest, totals, period, law, rates, jump, sojourn):
    """Divide the last state of models into its peak and the rest.

    The peak is visited from the rest for the time of one sample. The mean of
    the rates and the time outside the last state are unchanged. Only if the
    last state has no packets, although other states have, the peak adds to the
    mean packet rate.

    The padded arrays ``law``, ``rates``, ``jump``, ``sojourn`` are changed.

    :param last: (V,) number of the last state of each model
    :param largest: (V, 2) largest bandwidth in kbit/s and largest kpps
    :returns: (V,) bool: which models got one more state
    """
    every = np.arange(last.size)
    mean, share = rates[every, last], law[every, last]
    bandwidth = mean[:, 0] + mean[:, 1]
    peak = np.column_stack([mean[:, :2] * np.divide(
        largest[:, 0], bandwidth, out=np.ones(last.size),
        where=bandwidth > 0)[:, None], largest[:, 1]])
    # Equal rates remain equal, whatever the rounding of their mean.
    equal = peak <= mean * (1 + _SAME_RATE)
    same = equal.all(axis=1)
    rates[every[same], last[same]] = peak[same]
    at = every[~same]
    last, mean, share, peak = last[at], mean[at], share[at], peak[at]
    # At most what the state has of each rate that it has.
    most = np.divide(mean, peak, out=np.full(mean.shape, np.inf),
                     where=mean > _SAME_RATE * peak).min(axis=1)
    part = np.minimum(1.0 / totals[at], share / 2 * np.minimum(most, 1.0))
    rest = (share[:, None] * mean - part[:, None] * peak) / (
        share - part)[:, None]
    rates[at, last] = np.where(equal[at], peak, np.maximum(rest, 0.0))
    rates[at, last + 1] = peak
    law[at, last], law[at, last + 1] = share - part, part
    # Number of visits of the peak for each visit of the last state.
    stay = np.minimum(period[at], sojourn[at, last] / 2)
    visits = part / share * sojourn[at, last] / stay
    alone = last == 0
    visits[alone] = np.maximum(visits[alone], 1.0)
    jump[at, last] /= (1 + visits)[:, None]
    jump[at, last, last + 1] = np.where(alone, 1.0, visits / (1 + visits))
    jump[at, last + 1, last] = 1.0
    sojourn[at, last + 1] = part / share * sojourn[at, last] / visits
    sojourn[at, last] *= (1 - part / share) / np.where(
        alone, visits, 1 + visits)
    return ~same


def _rows_at_instants(counts, state_of_bin, law, key):
    """Return the rows of an instance at the instants, None if too few.

    :returns: (504,) uint8 as in :class:`.TrafficModel`, or None
    """
    known = counts.at_instants != NO_BIN
    if np.count_nonzero(known) < sampled.ENOUGH:
        return None
    # An aged bin may be gone.
    at = np.minimum(np.searchsorted(counts.bins, counts.at_instants),
                    counts.bins.size - 1)
    rows = state_of_bin[at].astype(np.uint8)
    if not known.all():
        if key is None:
            key = hashlib.sha256(counts.to_bytes()).hexdigest()
        drawn = sampled.drawn_rows(key, law)
        rows[~known] = drawn[~known] + sampled.DRAWN
    return rows


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
