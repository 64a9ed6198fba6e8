# SPDX-License-Identifier: Apache-2.0
"""From samples to a traffic model: black-box estimation.

A :class:`RateSeries` is discretised into fixed, logarithmic rate bins and
reduced to :class:`TransitionCounts`, which can be merged with those of the
next hour, aged and stored; a :class:`TrafficModel` of few states is fitted to
the counts. The bins never change, so that counts of any two times or
instances can be added. Pure; no clock, no configuration, no I/O.

Derivation: reference/model.rst, "Estimation".
"""

import dataclasses
import struct

import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import regime

__all__ = ['BINS_PER_DECADE', 'BURST_SAMPLES', 'FORGOTTEN_SAMPLES',
           'HEADER_BYTES', 'LEAST_CORRELATION', 'LEVEL_QUANTILES',
           'MIN_SAMPLES', 'MOST_PERIODS_APART', 'SampleTrail',
           'TransitionCounts', 'count_all', 'count_transitions', 'fit_model',
           'fit_models', 'fit_on_off', 'lack_of_history', 'law_by_regime',
           'period_and_last_time', 'rate_bin']

#: Bin 0 holds rates below 1 kbit/s; each further bin is 26 % wide.
BINS_PER_DECADE = 10

#: Upper ends of the states of a fitted model, as quantiles of the samples.
LEVEL_QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.997, 1.0)

#: Fewer samples than these are no history.
MIN_SAMPLES = 24

#: So many samples a burst lasts on average in the Bitbrains traces: of what
#: was seen in a few bursts it cannot be told from this how seldom it comes.
BURST_SAMPLES = 3.0

#: A bin of fewer aged samples than these is forgotten, three half-lives after
#: its only sample: a sample, true or false, decides for no longer than that.
FORGOTTEN_SAMPLES = 0.125

#: Peaks of a bin are gathered until the first of them weighs less than this,
#: 1.5 half-lives, and used for as long again.
_GATHERED_WEIGHT = FORGOTTEN_SAMPLES ** 0.5

#: So many samples of the law of all time stand beside those of a regime.
REGIME_PRIOR_SAMPLES = 10.0

#: Where successive samples are correlated less than this, rates change within
#: a sampling period: exp(-1), of a chain that forgets its state in a period.
LEAST_CORRELATION = 0.37

#: Samples further apart than this, in sampling periods, are no step.
MOST_PERIODS_APART = 12

#: Rounds of :func:`_expected_steps`, which each raise the likelihood. It stops
#: before when no step changes by more than this share of all steps.
_MOST_ROUNDS = 200
_LEAST_CHANGE = 1e-6

#: So many samples are counted at once; there are fewer bins than this.
_COUNT_TOGETHER = 100_000
_BINS = 1 << 16

#: So many models are fitted at once.
_FIT_TOGETHER = 1000

_HEADER = struct.Struct('<BHIdddhh')
#: Counts without steps across gaps, with them, and aged counts.
_FORMAT, _FORMAT_WITH_GAPS, _FORMAT_AGED = _FORMATS = 2, 3, 4
_GAP_STEP = np.dtype([('from', '<i2'), ('to', '<i2'), ('periods', '<u2'),
                      ('count', '<f8')])

#: Of packed counts, see :func:`period_and_last_time`.
HEADER_BYTES = _HEADER.size


def rate_bin(kbps):
    """Return the bin of a rate.

    :param kbps: array of rates in kbit/s, egress and ingress together
    :returns: int64 array: 0 below 1 kbit/s, else 1 + floor(10 log10(kbps))
    """
    kbps = np.asarray(kbps, dtype=float)
    above = np.maximum(kbps, 1.0)
    bins = 1 + np.floor(BINS_PER_DECADE * np.log10(above)).astype(np.int64)
    return np.where(kbps < 1.0, 0, bins)


@dataclasses.dataclass(frozen=True, eq=False)
class TransitionCounts:
    """What was seen of one instance, bin by bin. Mergeable.

    Only occupied bins are listed; m is their number.

    :ivar period_seconds: sampling period of the counted series
    :ivar first_time: start of the first counted sample, seconds UTC
    :ivar last_time: start of the last one
    :ivar first_bin: bin of the first sample
    :ivar last_bin: bin of the last one
    :ivar bins: (m,) int64, increasing
    :ivar samples: (m,) number of samples, fractional once aged
    :ivar totals: (m, 3) sum of the samples' rates by column
    :ivar peaks: (m, 2) largest egress + ingress in kbit/s, largest kpps
    :ivar moves: (m, m) number of times a sample of bin j came right after one
        of bin i; the diagonal counts staying
    :ivar in_regime: (2, m) number of the samples that were taken in each of
        the :data:`.model.REGIMES`; of the rest the regime is not known
    :ivar gap_moves: (g, 4) the steps across gaps, in increasing order: bin
        before, bin after, sampling periods from one sample to the other (2 to
        :data:`MOST_PERIODS_APART`), number of such steps
    :ivar recent_peaks: (m, 2) those of ``peaks`` that are gathered to take
        their place; None: all
    :ivar recent_weight: what the first sample counts that is gathered so
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
    in_regime: np.ndarray
    gap_moves: np.ndarray = dataclasses.field(
        default_factory=lambda: np.zeros((0, 4)))
    recent_peaks: np.ndarray | None = None
    recent_weight: float = 1.0

    def __post_init__(self):
        if self.recent_peaks is None:
            object.__setattr__(self, 'recent_peaks', self.peaks)

    @property
    def total_samples(self):
        """Number of samples in all bins, fractional once aged."""
        return float(self.samples.sum())

    @property
    def correlation(self):
        """Correlation of the bandwidths of one sample and the next.

        Each sample counts as the mean of its bin, and samples with a gap
        between them do not count. None when fewer than :data:`MIN_SAMPLES`
        follow each other, or all are in one bin.
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
        """Return these counts with the weight of the past reduced.

        A bin that weighs nothing, less than :data:`FORGOTTEN_SAMPLES`, goes
        with its steps. The peak of a bin that stays is that of 1.5 to 3
        half-lives; of what was before, the mean is left.

        :param factor: 0 < factor <= 1
        :raises InvalidSeries: on another factor
        """
        if not 0 < factor <= 1:
            raise exceptions.InvalidSeries(
                f'ageing factor is {factor}, wanted 0 < factor <= 1')
        samples = self.samples * factor
        # Where the counts end is needed to merge later ones.
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
            in_regime=self.in_regime[:, keep] * factor,
            gap_moves=self.gap_moves[kept_steps] * [1, 1, 1, factor],
            recent_peaks=recent[keep], recent_weight=weight)

    def with_regimes(self, trail, regimes):
        """Return these counts with the samples' regimes told.

        :param trail: SampleTrail of the series that was counted
        :param regimes: :class:`.regime.Regimes`
        """
        found = regimes.of_slots(trail.slots)
        at = np.searchsorted(self.bins, trail.bins)
        return dataclasses.replace(self, in_regime=np.stack([
            np.bincount(at[found == number], minlength=self.bins.size)
            for number in range(len(model.REGIMES))]).astype(float))

    def merged(self, later):
        """Return these counts and those of a later stretch of time together.

        The step from the last sample here to the first of ``later`` is
        counted as well, so that counting a series in pieces gives what
        counting it whole gives.

        :raises InvalidSeries: when the periods differ or ``later`` is not
            later: samples would be counted twice
        """
        if later.period_seconds != self.period_seconds:
            raise exceptions.InvalidSeries(
                f'transition counts: sampling period is '
                f'{later.period_seconds} s, wanted {self.period_seconds} s '
                f'as in the counts so far')
        if later.first_time <= self.last_time:
            raise exceptions.InvalidSeries(
                f'transition counts: samples start at {later.first_time}, '
                f'wanted later than {self.last_time}, the last one counted')
        bins = self.bins
        at = np.searchsorted(bins, later.bins)
        if at[-1] == bins.size or (bins[at] != later.bins).any():
            bins = np.union1d(bins, later.bins)
            at = np.searchsorted(bins, later.bins)
        samples, totals, peaks, recent, moves, in_regime = self._spread(bins)
        samples[at] += later.samples
        totals[at] += later.totals
        peaks[at] = np.maximum(peaks[at], later.peaks)
        recent[at] = np.maximum(recent[at], later.peaks)
        moves[at[:, None], at] += later.moves
        in_regime[:, at] += later.in_regime
        gap_moves = [self.gap_moves, later.gap_moves]
        apart = int(_periods_apart(later.first_time - self.last_time,
                                   self.period_seconds))
        if apart == 1:
            moves[np.searchsorted(bins, self.last_bin),
                  np.searchsorted(bins, later.first_bin)] += 1
        elif apart <= MOST_PERIODS_APART:
            gap_moves.append(
                [[self.last_bin, later.first_bin, apart, 1]])
        return TransitionCounts(
            self.period_seconds, self.first_time, later.last_time,
            self.first_bin, later.last_bin, bins, samples, totals, peaks,
            moves, in_regime, _gathered(np.concatenate(gap_moves)),
            recent, self.recent_weight)

    def _spread(self, bins):
        """Return copies of the arrays, with a place for each of more bins."""
        arrays = (self.samples, self.totals, self.peaks, self.recent_peaks,
                  self.moves, self.in_regime)
        if bins is self.bins:
            return [array.copy() for array in arrays]
        m, at = bins.size, np.searchsorted(bins, self.bins)
        samples, totals, peaks, recent, moves, in_regime = (
            np.zeros(shape) for shape in (
                m, (m, 3), (m, 2), (m, 2), (m, m), (len(model.REGIMES), m)))
        samples[at], totals[at], peaks[at], recent[at] = arrays[:4]
        moves[at[:, None], at], in_regime[:, at] = arrays[4:]
        return samples, totals, peaks, recent, moves, in_regime

    def to_bytes(self):
        """Return the counts packed, little-endian, with a format version."""
        rows, columns = np.nonzero(self.moves)
        gap_steps = np.zeros(len(self.gap_moves), _GAP_STEP)
        for name, column in zip(_GAP_STEP.names, self.gap_moves.T):
            gap_steps[name] = column
        is_aged = self.recent_weight < 1 \
            or not np.array_equal(self.recent_peaks, self.peaks)
        recent = np.append(self.recent_weight, self.recent_peaks) \
            if is_aged else np.empty(0)
        head = _HEADER.pack(
            _FORMAT_AGED if is_aged else
            _FORMAT_WITH_GAPS if gap_steps.size else _FORMAT,
            self.bins.size, rows.size, self.period_seconds, self.first_time,
            self.last_time, self.first_bin, self.last_bin)
        return b''.join([
            head, self.bins.astype('<i2').tobytes(),
            rows.astype('<u2').tobytes(), columns.astype('<u2').tobytes(),
            *(array.astype('<f8').tobytes() for array in (
                self.samples, self.totals, self.peaks, self.in_regime,
                self.moves[rows, columns], recent)), gap_steps.tobytes()])

    @classmethod
    def from_bytes(cls, data):
        """Return the counts that :meth:`to_bytes` packed.

        :raises InvalidSeries: when the bytes are not such counts
        """
        try:
            version, m, k, period, first, last, first_bin, last_bin = \
                _HEADER.unpack_from(data)
        except struct.error:
            version = m = k = None
        if version not in _FORMATS:
            raise exceptions.InvalidSeries(
                f'packed transition counts: format is {version}, wanted '
                f'one of {", ".join(map(str, _FORMATS))}')
        recent = (version == _FORMAT_AGED) * (2 * m + 1)
        wanted = _HEADER.size + 2 * m + 4 * k + 8 * (8 * m + k + recent)
        gap_steps, rest = divmod(len(data) - wanted, _GAP_STEP.itemsize)
        if rest or gap_steps < (version == _FORMAT_WITH_GAPS) \
                or version == _FORMAT and gap_steps:
            more = '' if version == _FORMAT else (
                f' and {_GAP_STEP.itemsize} for each step across a gap')
            raise exceptions.InvalidSeries(
                f'packed transition counts: {len(data)} bytes, wanted '
                f'{wanted}{more}')
        offset = _HEADER.size

        def take(kind, count):
            nonlocal offset
            array = np.frombuffer(data, kind, count, offset)
            offset += array.nbytes
            return array

        bins = take('<i2', m).astype(np.int64)
        rows, columns = take('<u2', k), take('<u2', k)
        outside = np.append(rows, columns).max(initial=0)
        if outside >= m:
            raise exceptions.InvalidSeries(
                f'packed transition counts: a step is from or to bin number '
                f'{outside}, wanted one below {m}')
        samples = take('<f8', m).astype(float)
        totals = take('<f8', 3 * m).astype(float).reshape(m, 3)
        peaks = take('<f8', 2 * m).astype(float).reshape(m, 2)
        in_regime = take('<f8', 2 * m).astype(float).reshape(2, m)
        moves = np.zeros((m, m))
        moves[rows, columns] = take('<f8', k)
        recent_weight, recent_peaks = 1.0, None
        if recent:
            [recent_weight] = take('<f8', 1).tolist()
            recent_peaks = take('<f8', 2 * m).astype(float).reshape(m, 2)
            if not 0 < recent_weight <= 1:
                raise exceptions.InvalidSeries(
                    f'packed transition counts: weight of the recent peaks '
                    f'is {recent_weight}, wanted 0 < weight <= 1')
        packed = take(_GAP_STEP, gap_steps)
        gap_moves = np.zeros((gap_steps, 4))
        for column, name in enumerate(_GAP_STEP.names):
            gap_moves[:, column] = packed[name]
        if not np.isin(gap_moves[:, :2], bins).all():
            raise exceptions.InvalidSeries(
                f'packed transition counts: a step across a gap is from or '
                f'to a bin without samples, wanted one of {bins.tolist()}')
        if (gap_moves[:, 2] < 2).any():
            raise exceptions.InvalidSeries(
                f'packed transition counts: a step across a gap takes '
                f'{gap_moves[:, 2].min():g} sampling periods, wanted 2 or '
                f'more')
        return cls(period, first, last, first_bin, last_bin, bins, samples,
                   totals, peaks, moves, in_regime, gap_moves,
                   recent_peaks, recent_weight)


@dataclasses.dataclass(frozen=True, eq=False)
class SampleTrail:
    """When a series was in which bin; all that regimes are told by.

    Small, so that those of a whole fleet can be kept until its regimes are
    known.

    :ivar slots: (n,) int32, see :func:`.regime.slots_of`
    :ivar bins: (n,) uint8
    """

    slots: np.ndarray
    bins: np.ndarray

    @classmethod
    def of(cls, series):
        """Return the trail of a RateSeries."""
        return cls(
            regime.slots_of(series.times).astype(np.int32),
            rate_bin(series.rates[:, 0] + series.rates[:, 1]).astype(
                np.uint8))


def count_transitions(series, regimes=None):
    """Reduce a series to counts.

    :param series: RateSeries with at least one sample
    :param regimes: :class:`.regime.Regimes`, or None when they are not known
    :returns: TransitionCounts
    :raises NotEnoughSamples: when the series is empty
    """
    [counts] = count_all([series], regimes)
    if isinstance(counts, exceptions.NotEnoughSamples):
        raise counts
    return counts


def count_all(series, regimes=None):
    """Reduce many series to counts, as :func:`count_transitions` does.

    :param series: list of RateSeries
    :returns: list in the same order, TransitionCounts for each, or in its
        place the NotEnoughSamples that tells why there are none
    """
    found = [None if len(one) else exceptions.NotEnoughSamples(
        f'instance {one.instance_uuid}: no usable sample '
        f'({one.refused.total} refused), wanted at least one')
        for one in series]
    some, samples = [], 0
    for i, one in enumerate(series):
        if len(one):
            some.append(i)
            samples += len(one)
        if some and (samples >= _COUNT_TOGETHER or i == len(series) - 1):
            for j, counts in zip(some, _count(
                    [series[j] for j in some], regimes)):
                found[j] = counts
            some, samples = [], 0
    return found


def _count(series, regimes):
    sizes = np.array([len(one) for one in series])
    owner = np.repeat(np.arange(sizes.size), sizes)
    times = np.concatenate([one.times for one in series])
    rates = np.concatenate([one.rates for one in series])
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
    in_regime = np.zeros((len(model.REGIMES), key.size))
    if regimes is not None:
        found = regimes.of_slots(regime.slots_of(times))
        for number, row in enumerate(in_regime):
            row += np.bincount(at[found == number], minlength=key.size)
    periods = np.array([one.period_seconds for one in series], dtype=float)
    # The sample before is of the same series, and no gap is between.
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
            in_regime[:, k:k + n].copy(),
            gap_moves.get(number, np.zeros((0, 4))))
        for number, (period, i, j, first_bin, last_bin, k, n, end)
        in enumerate(zip(
            periods.tolist(), begin.tolist(), last.tolist(),
            sample_bin[begin].tolist(), sample_bin[last].tolist(),
            first.tolist(), m.tolist(), ends.tolist()))]


def _periods_apart(seconds, period_seconds):
    """Return how many sampling periods later a sample is, 1: no gap."""
    return np.maximum(np.ceil(seconds / period_seconds - 0.5), 1)


def _across_gaps(at, owner, sample_bin, apart):
    """Return {number of a series: (g, 4) its steps across gaps}.

    :param at: (k,) samples that a gap follows
    :param owner: of each sample, the number of its series, not decreasing
    """
    rows = np.column_stack([sample_bin[at], sample_bin[at + 1], apart[at],
                            np.ones(at.size)])
    numbers, begin = np.unique(owner[at], return_index=True)
    return {number: _gathered(some) for number, some in zip(
        numbers.tolist(), np.split(rows, begin[1:]))}


def _gathered(gap_moves):
    """Return steps across gaps with the counts of equal ones added up."""
    kinds, which = np.unique(gap_moves[:, :3], axis=0, return_inverse=True)
    return np.column_stack([kinds, np.bincount(
        which.ravel(), weights=gap_moves[:, 3], minlength=len(kinds))])


def period_and_last_time(data):
    """Return the sampling period and the last time of packed counts.

    :param data: the first :data:`HEADER_BYTES` of them, or more
    :returns: two floats, (None, None) when they are of a format not known
        here
    """
    if len(data) < HEADER_BYTES or data[0] not in _FORMATS:
        return None, None
    _, _, _, period, _, last, _, _ = _HEADER.unpack_from(data)
    return period, last


def law_by_regime(counts):
    """Return (2, m) the share of each bin in each regime, or None.

    None when no sample's regime is known. The observed shares, with
    :data:`REGIME_PRIOR_SAMPLES` of the law of all time beside them.
    """
    if not counts.in_regime.any():
        return None
    of_all = counts.samples / counts.total_samples
    shares = counts.in_regime + REGIME_PRIOR_SAMPLES * of_all
    return shares / shares.sum(axis=1, keepdims=True)


def fit_model(counts, quantiles=LEVEL_QUANTILES, min_samples=MIN_SAMPLES,
              burst_samples=0.0):
    """Fit a model whose states are the upper ends of quantile bands.

    Each state gathers the bins between two quantiles of the observed
    bandwidth and carries the largest bandwidth, and the largest packet rate,
    seen in them: the model never understates what was observed. Its long-run
    law is the observed share of samples, in each regime where these are
    known, or more cautious with ``burst_samples``; jump probabilities and
    mean sojourn times come from the counted steps.

    :param counts: TransitionCounts
    :param quantiles: increasing, the last one 1
    :param min_samples: refuse shorter histories
    :param burst_samples: each state counts as seen in so many samples more,
        as by :data:`BURST_SAMPLES` a burst that might have come; 0: the law
        is what was observed
    :returns: TrafficModel of at most ``len(quantiles)`` states
    :raises NotEnoughSamples: when the history is too short or shows no
        traffic at all
    Derivation: reference/model.rst, "Estimation".
    """
    [fitted] = fit_models([counts], quantiles, min_samples, burst_samples)
    if isinstance(fitted, exceptions.NotEnoughSamples):
        raise fitted
    return fitted


def fit_models(counts, quantiles=LEVEL_QUANTILES, min_samples=MIN_SAMPLES,
               burst_samples=0.0):
    """Fit a model to each of many counts, as :func:`fit_model` does.

    :param counts: list of TransitionCounts
    :returns: list in the same order, a TrafficModel for each, or in its place
        the NotEnoughSamples that tells why there is none
    :raises InvalidModel: on quantiles or samples that cannot be
    """
    if not 0 <= burst_samples < np.inf:
        raise exceptions.InvalidModel(
            f'samples of a burst are {burst_samples}, wanted a number >= 0')
    quantiles = np.asarray(quantiles, dtype=float)
    if quantiles.ndim != 1 or not quantiles.size or quantiles[-1] != 1 \
            or (np.diff(quantiles) <= 0).any() or quantiles[0] <= 0:
        raise exceptions.InvalidModel(
            f'level quantiles are {quantiles.tolist()}, wanted increasing '
            f'numbers above 0, the last one 1')
    found = [lack_of_history(one, min_samples) for one in counts]
    enough = [i for i, lack in enumerate(found) if lack is None]
    for first in range(0, len(enough), _FIT_TOGETHER):
        chosen = enough[first:first + _FIT_TOGETHER]
        some = [counts[i] for i in chosen]
        sizes = np.array([one.bins.size for one in some])
        samples = np.concatenate([one.samples for one in some])
        starts = np.cumsum(sizes) - sizes
        totals = np.add.reduceat(samples, starts)
        below = np.concatenate([np.cumsum(one.samples) for one in some]) \
            - samples
        band = np.searchsorted(
            quantiles[:-1], below / np.repeat(totals, sizes) * (1 + 1e-12),
            side='right')
        for i, fitted in zip(chosen, _fit_states(
                some, band, at_peak=True, burst_samples=burst_samples)):
            found[i] = fitted
    return found


def fit_on_off(counts, threshold=0.1, min_samples=MIN_SAMPLES):
    """Fit the on/off model of equation 1, which knows no regimes.

    On is a bandwidth of at least ``threshold`` times its 99th percentile;
    the rate while on is the mean of those samples.

    :param threshold: 0..1
    :returns: TrafficModel of two states, or one when all samples are on
    :raises NotEnoughSamples: as :func:`fit_model`
    :raises InvalidModel: on another threshold
    """
    if not 0 <= threshold <= 1:
        raise exceptions.InvalidModel(
            f'threshold of on is {threshold}, wanted 0..1')
    lack = lack_of_history(counts, min_samples)
    if lack is not None:
        raise lack
    share = np.cumsum(counts.samples) / counts.total_samples
    p99 = counts.peaks[np.searchsorted(share, 0.99), 0]
    # Bins are compared by their largest sample, so one state can be empty
    # only when no sample is below the threshold.
    on = (counts.peaks[:, 0] >= threshold * p99) & (counts.peaks[:, 0] > 0)
    # What is off carries nothing.
    told = dataclasses.replace(
        counts, totals=np.where(on[:, None], counts.totals, 0.0),
        in_regime=np.zeros_like(counts.in_regime))
    [fitted] = _fit_states([told], on.astype(np.int64), at_peak=False)
    return fitted


def lack_of_history(counts, min_samples=MIN_SAMPLES):
    """Return the NotEnoughSamples that a fit would raise, or None."""
    seen = counts.total_samples
    if seen < min_samples:
        return exceptions.NotEnoughSamples(
            f'history of {seen:g} samples is too short, wanted at least '
            f'{min_samples}')
    if not counts.peaks[:, 0].any():
        return exceptions.NotEnoughSamples(
            f'no traffic in {seen:g} samples: nothing to learn from, wanted '
            f'at least one sample above zero')
    return None


def _fit_states(counts, band, at_peak, burst_samples=0.0):
    """Return the models that have a state for each band of bins.

    Everything is done for all models at once: arrays of all bins of all
    counts, one after the other, then of all states, then padded to the most
    states of any.

    :param counts: list of V TransitionCounts
    :param band: (bins of all,) int64, not decreasing within one of them
    :param at_peak: a state carries the largest rate of its bins, else the
        mean
    :param burst_samples: samples that each state has more than were seen
    """
    sizes = np.array([one.bins.size for one in counts])
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
            [getattr(one, name) for one in counts]), at)

    samples = gathered('samples')
    rates = gathered('totals') / samples[:, None]
    if at_peak:
        bandwidth, packets = np.maximum.reduceat(np.concatenate(
            [one.peaks for one in counts]), at).T
        mean = rates[:, 0] + rates[:, 1]
        raised = np.divide(bandwidth, mean, out=np.ones(at.size),
                           where=mean > 0)
        rates[:, :2] *= raised[:, None]
        rates[:, 2] = packets
    seen = np.add.reduceat(samples, first_state)
    of_all = samples / seen[owner]
    told = np.add.reduceat(np.concatenate(
        [one.in_regime for one in counts], axis=1), at, axis=1)
    by_regime = told + REGIME_PRIOR_SAMPLES * of_all
    by_regime /= np.add.reduceat(by_regime, first_state, axis=1)[:, owner]
    knows = np.add.reduceat(told.sum(axis=0), first_state) > 0
    law = np.where(knows[owner], model.REGIME_SHARES @ by_regime, of_all)
    for share in (by_regime, law):
        share *= seen[owner]
        share += burst_samples
        share /= (seen + burst_samples * n)[owner]
    # Padded: (V, most states).
    place = np.arange(at.size) - first_state[owner]
    padded = np.zeros((n.size, int(n.max())))
    padded[owner, place] = law
    steps = _steps(counts, sizes, state_of_bin - first_state[
        np.repeat(np.arange(n.size), sizes)], padded.shape[1])
    period = np.array([one.period_seconds for one in counts])
    observed = np.maximum(steps.sum(axis=(1, 2)), 1.0) * period
    steps *= 1 - np.eye(padded.shape[1])
    exits = np.maximum(steps.sum(axis=(1, 2)), 1.0)
    jump = _jump_probabilities(steps, padded)
    visits = model.visits(jump)
    # The sojourn times that give the observed law, on the scale at which the
    # chain leaves its states as often as was seen.
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
            by_regime[:, states] if knows[i] else None, law[states]))
    return fitted


def _steps(counts, sizes, state, most):
    """Return (V, most, most) how often which state followed which.

    Where more samples follow after a gap of one length than without a gap,
    the steps are those expected of a chain that was seen so seldom.

    :param state: (bins of all,) number of its state, from 0 for each count
    """
    moves = np.concatenate([one.moves.ravel() for one in counts])
    first_bin = np.cumsum(sizes) - sizes
    ends = np.cumsum(sizes * sizes)
    seen = np.flatnonzero(moves)
    owner = np.searchsorted(ends, seen, side='right')
    row, column = np.divmod(seen - (ends - sizes * sizes)[owner],
                            sizes[owner])
    start = first_bin[owner]
    found = np.bincount(
        (owner * most + state[start + row]) * most + state[start + column],
        weights=moves[seen], minlength=sizes.size * most * most,
    ).reshape(-1, most, most).astype(float)
    for i, one in enumerate(counts):
        if not len(one.gap_moves):
            continue
        by_periods = np.bincount(one.gap_moves[:, 2].astype(np.int64),
                                 weights=one.gap_moves[:, 3])
        periods = int(by_periods.argmax())
        if by_periods[periods] <= found[i].sum():
            continue
        across = one.gap_moves[one.gap_moves[:, 2] == periods]
        before, after = state[first_bin[i] + np.searchsorted(
            one.bins, across[:, :2])].T
        steps = np.zeros((most, most))
        np.add.at(steps, (before, after), across[:, 3])
        found[i] = _expected_steps(steps, periods)
    return found


def _expected_steps(steps, periods):
    """Return the steps of a chain that is seen each few periods only.

    The most likely chain that was seen in this way, and how often it is
    expected to have made each of its steps, in the periods that were not seen
    too (Baum and Welch).

    :param steps: (n, n) how often which state was seen after which
    :param periods: steps of the chain from one sight to the next, > 1
    :returns: (n, n), ``periods`` times as many
    Derivation: reference/model.rst, "Estimation".
    """
    total = steps.sum()
    # To begin with, what was seen happened at once, in any of the periods.
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
    """Return row-stochastic (V, n, n) of the counted steps between states.

    Where the steps do not connect all states (a record that ends in a state
    seen nowhere else, steps hidden by gaps), each row gets one step more,
    spread as the long-run law.

    :param steps: (V, n, n), zero diagonals
    :param law: (V, n), 0 beyond the states of a model
    """
    n = law.shape[1]
    there = law > 0
    both = there[:, :, None] & there[:, None, :]
    reach = ((steps > 0) | np.eye(n, dtype=bool)).astype(np.float32)
    for _ in range(n.bit_length()):
        reach = np.minimum(reach @ reach, 1)
    apart = ((reach == 0) & both).any(axis=(1, 2))
    spread = both[apart] * law[apart][:, None, :] * (1 - np.eye(n))
    spread /= np.maximum(spread.sum(axis=2, keepdims=True), 1e-300)
    steps[apart] += spread
    exits = steps.sum(axis=2, keepdims=True)
    return steps / np.where(exits > 0, exits, 1.0)
