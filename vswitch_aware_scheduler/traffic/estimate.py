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

__all__ = ['BINS_PER_DECADE', 'LEVEL_QUANTILES', 'MIN_SAMPLES', 'SampleTrail',
           'TransitionCounts', 'count_transitions', 'fit_model', 'fit_on_off',
           'law_by_regime', 'rate_bin']

#: Bin 0 holds rates below 1 kbit/s; each further bin is 26 % wide.
BINS_PER_DECADE = 10

#: Upper ends of the states of a fitted model, as quantiles of the samples.
LEVEL_QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.997, 1.0)

#: Fewer samples than these are no history.
MIN_SAMPLES = 24

#: So many samples of the law of all time stand beside those of a regime.
REGIME_PRIOR_SAMPLES = 10.0

_HEADER = struct.Struct('<BHIdddhh')
_FORMAT = 2


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

    @property
    def total_samples(self):
        """Number of samples in all bins, fractional once aged."""
        return float(self.samples.sum())

    def aged(self, factor):
        """Return these counts with the weight of the past reduced.

        :param factor: 0 < factor <= 1; peaks keep their height
        :raises InvalidSeries: on another factor
        """
        if not 0 < factor <= 1:
            raise exceptions.InvalidSeries(
                f'ageing factor is {factor}, wanted 0 < factor <= 1')
        return dataclasses.replace(
            self, samples=self.samples * factor, totals=self.totals * factor,
            moves=self.moves * factor, in_regime=self.in_regime * factor)

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
        counted when the two follow each other without a gap, so that
        counting a series in pieces gives what counting it whole gives.

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
        bins = np.union1d(self.bins, later.bins)
        m = bins.size
        samples, totals = np.zeros(m), np.zeros((m, 3))
        peaks, moves = np.zeros((m, 2)), np.zeros((m, m))
        in_regime = np.zeros((len(model.REGIMES), m))
        for part in (self, later):
            at = np.searchsorted(bins, part.bins)
            samples[at] += part.samples
            totals[at] += part.totals
            peaks[at] = np.maximum(peaks[at], part.peaks)
            moves[np.ix_(at, at)] += part.moves
            in_regime[:, at] += part.in_regime
        if later.first_time - self.last_time <= 1.5 * self.period_seconds:
            moves[np.searchsorted(bins, self.last_bin),
                  np.searchsorted(bins, later.first_bin)] += 1
        return TransitionCounts(
            self.period_seconds, self.first_time, later.last_time,
            self.first_bin, later.last_bin, bins, samples, totals, peaks,
            moves, in_regime)

    def to_bytes(self):
        """Return the counts packed, little-endian, with a format version."""
        rows, columns = np.nonzero(self.moves)
        head = _HEADER.pack(_FORMAT, self.bins.size, rows.size,
                            self.period_seconds, self.first_time,
                            self.last_time, self.first_bin, self.last_bin)
        return b''.join([
            head, self.bins.astype('<i2').tobytes(),
            rows.astype('<u2').tobytes(), columns.astype('<u2').tobytes(),
            *(array.astype('<f8').tobytes() for array in (
                self.samples, self.totals, self.peaks, self.in_regime,
                self.moves[rows, columns]))])

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
        if version != _FORMAT:
            raise exceptions.InvalidSeries(
                f'packed transition counts: format is {version}, wanted '
                f'{_FORMAT}')
        wanted = _HEADER.size + 2 * m + 4 * k + 8 * (8 * m + k)
        if len(data) != wanted:
            raise exceptions.InvalidSeries(
                f'packed transition counts: {len(data)} bytes, wanted '
                f'{wanted}')
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
        return cls(period, first, last, first_bin, last_bin, bins, samples,
                   totals, peaks, moves, in_regime)


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
    if not len(series):
        raise exceptions.NotEnoughSamples(
            f'instance {series.instance_uuid}: no usable sample '
            f'({series.refused.total} refused), wanted at least one')
    bandwidth = series.rates[:, 0] + series.rates[:, 1]
    sample_bin = rate_bin(bandwidth)
    bins, at = np.unique(sample_bin, return_inverse=True)
    m = bins.size
    peaks = np.zeros((m, 2))
    np.maximum.at(peaks[:, 0], at, bandwidth)
    np.maximum.at(peaks[:, 1], at, series.rates[:, 2])
    follows = series.follows[1:]
    steps = at[:-1][follows] * m + at[1:][follows]
    counts = TransitionCounts(
        period_seconds=float(series.period_seconds),
        first_time=float(series.times[0]), last_time=float(series.times[-1]),
        first_bin=int(sample_bin[0]), last_bin=int(sample_bin[-1]),
        bins=bins, samples=np.bincount(at, minlength=m).astype(float),
        totals=np.stack([np.bincount(at, weights=column, minlength=m)
                         for column in series.rates.T], axis=1),
        peaks=peaks,
        moves=np.bincount(steps, minlength=m * m).reshape(m, m).astype(float),
        in_regime=np.zeros((len(model.REGIMES), m)))
    if regimes is None:
        return counts
    return counts.with_regimes(SampleTrail.of(series), regimes)


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


def fit_model(counts, quantiles=LEVEL_QUANTILES, min_samples=MIN_SAMPLES):
    """Fit a model whose states are the upper ends of quantile bands.

    Each state gathers the bins between two quantiles of the observed
    bandwidth and carries the largest bandwidth, and the largest packet rate,
    seen in them: the model never understates what was observed. Its long-run
    law is the observed share of samples, in each regime where these are
    known; jump probabilities and mean sojourn times come from the counted
    steps.

    :param counts: TransitionCounts
    :param quantiles: increasing, the last one 1
    :param min_samples: refuse shorter histories
    :returns: TrafficModel of at most ``len(quantiles)`` states
    :raises NotEnoughSamples: when the history is too short or shows no
        traffic at all
    Derivation: reference/model.rst, "Estimation".
    """
    _require_history(counts, min_samples)
    quantiles = np.asarray(quantiles, dtype=float)
    if quantiles.ndim != 1 or not quantiles.size or quantiles[-1] != 1 \
            or (np.diff(quantiles) <= 0).any() or quantiles[0] <= 0:
        raise exceptions.InvalidModel(
            f'level quantiles are {quantiles.tolist()}, wanted increasing '
            f'numbers above 0, the last one 1')
    below = np.cumsum(counts.samples) - counts.samples
    band = np.searchsorted(quantiles[:-1],
                           below / counts.total_samples * (1 + 1e-12),
                           side='right')
    _, state = np.unique(band, return_inverse=True)
    return _fit_states(counts, state, at_peak=True,
                       by_regime=law_by_regime(counts))


def fit_on_off(counts, threshold=0.1, min_samples=MIN_SAMPLES):
    """Fit the on/off model of equation 1.

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
    _require_history(counts, min_samples)
    share = np.cumsum(counts.samples) / counts.total_samples
    p99 = counts.peaks[np.searchsorted(share, 0.99), 0]
    # Bins are compared by their largest sample, so one state can be empty
    # only when no sample is below the threshold.
    on = (counts.peaks[:, 0] >= threshold * p99) & (counts.peaks[:, 0] > 0)
    _, state = np.unique(on, return_inverse=True)
    return _fit_states(counts, state, at_peak=False,
                       silent=None if on.all() else 0)


def _require_history(counts, min_samples):
    seen = counts.total_samples
    if seen < min_samples:
        raise exceptions.NotEnoughSamples(
            f'history of {seen:g} samples is too short, wanted at least '
            f'{min_samples}')
    if not counts.peaks[:, 0].any():
        raise exceptions.NotEnoughSamples(
            f'no traffic in {seen:g} samples: nothing to learn from, wanted '
            f'at least one sample above zero')


def _fit_states(counts, state, at_peak, silent=None, by_regime=None):
    """Return the model that has the given state for each bin.

    :param state: (m,) state of each bin, 0..n-1, every one used
    :param at_peak: a state carries the largest rate of its bins, else the mean
    :param silent: a state that carries nothing, or None
    :param by_regime: (2, m) law of the bins in each regime, or None
    """
    n = int(state.max()) + 1
    members = np.zeros((n, state.size))
    members[state, np.arange(state.size)] = 1.0
    samples = members @ counts.samples
    rates = (members @ counts.totals) / samples[:, None]
    if at_peak:
        bandwidth, packets = np.where(
            members[:, :, None] > 0, counts.peaks, 0.0).max(axis=1).T
        mean = rates[:, 0] + rates[:, 1]
        raised = np.divide(bandwidth, mean, out=np.ones(n), where=mean > 0)
        rates[:, :2] *= raised[:, None]
        rates[:, 2] = packets
    if silent is not None:
        rates[silent] = 0.0
    regime_law = None if by_regime is None else by_regime @ members.T
    law = (samples / samples.sum() if regime_law is None
           else model.REGIME_SHARES @ regime_law)
    steps = members @ counts.moves @ members.T
    observed_seconds = max(steps.sum(), 1.0) * counts.period_seconds
    if n == 1:
        return model.TrafficModel(rates, [[0.0]], [observed_seconds],
                                  regime_law)
    np.fill_diagonal(steps, 0.0)
    exits = steps.sum()
    jump = _jump_probabilities(steps, law)
    visits = model.TrafficModel(rates, jump, np.ones(n)).stationary
    # The sojourn times that give the observed law, on the scale at which the
    # chain leaves its states as often as was seen.
    sojourn = law / visits
    sojourn *= (observed_seconds / max(exits, 1.0)) * (law / sojourn).sum()
    return model.TrafficModel(rates, jump, sojourn, regime_law)


def _jump_probabilities(steps, law):
    """Return row-stochastic (n, n) of the counted steps between states.

    Where the steps do not connect all states (a record that ends in a state
    seen nowhere else, steps hidden by gaps), each row gets one step more,
    spread as the long-run law.
    """
    n = law.size
    reach = (steps > 0) | np.eye(n, dtype=bool)
    for _ in range(n.bit_length()):
        reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
    if not reach.all():
        spread = np.tile(law, (n, 1))
        np.fill_diagonal(spread, 0.0)
        steps = steps + spread / spread.sum(axis=1, keepdims=True)
    return steps / steps.sum(axis=1, keepdims=True)
