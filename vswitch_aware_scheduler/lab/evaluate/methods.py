# SPDX-License-Identifier: Apache-2.0
"""Methods that decide which host an instance may join.

A :class:`Method` has a name and starts a :class:`.packing.FirstFit` for one
capacity and one limit. Our methods decide with :class:`admission.LoadTable`,
as the scheduler does, using the laws of an :class:`Estimator`. To try another
estimator, use ``Admission('name', MyEstimator())``. Pure. Sources and
variants: reference/evaluation.rst, "Methods".
"""

import abc
import functools
import math
import statistics

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.lab.evaluate import packing
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import profile

__all__ = ['Admission', 'CountsEstimator', 'Estimator', 'Method', 'NAMES',
           'PriorEstimator', 'make_methods', 'make_placing']

#: Names in the order of the report. 'clairvoyant' is created elsewhere,
#: because it needs the future traffic.
NAMES = ('agnostic', 'ours', 'prior', 'default', 'onoff', 'peak', 'average',
         'p99', 'sbp', 'queue', 'nsigma', 'chernoff', 'clairvoyant')

_NORMAL = statistics.NormalDist()
_TOLERANCE = 1e-9


class Method:
    """A method that decides on admission, and on moves.

    :ivar start: callable(saturation_kbps, overload_probability), returns an
        empty :class:`.packing.FirstFit`
    :ivar strategy: None, or callable(saturation_kbps, overload_probability),
        returns a :class:`.closed_loop.Strategy` that moves instances
    """

    def __init__(self, name: str, start, strategy=None) -> None:
        self.name, self.start, self.strategy = name, start, strategy


# Ours

class Estimator(abc.ABC):
    """Returns the laws that our admission uses."""

    @abc.abstractmethod
    def fit(self, known, saturation_kbps: float):
        """Return a law for every instance.

        :returns: list of V laws for :meth:`table`; instances with too little
            history have the prior
        """

    def limit(self, overload_probability: float):
        """Return the limit to configure so that the overload meets a limit."""
        return overload_probability

    def table(self):
        """Return a new, empty table, with which hosts are assessed."""
        return admission.LoadTable()


class CountsEstimator(Estimator):
    """Fits to transition counts, as the modeler does.

    An instance with enough samples but without traffic counts as idle. An
    instance with fewer samples gets the prior: the law of a randomly chosen
    instance among the others that fit the switch. If there are none, the prior
    is the law of the configured default, cut at the capacity.

    :param min_samples: minimum number of samples to fit a model
    :param fit: callable(TransitionCounts), returns a TrafficModel or raises
        NotEnoughSamples
    """

    def __init__(self, fit, default_law, min_samples=estimate.MIN_SAMPLES):
        self._fit = fit
        self._default_law = default_law
        self._min_samples = min_samples

    def fit(self, known, saturation_kbps: float) -> list:
        """Return a list with a RateLaw for every instance."""
        # Of no capacity: fitted once for all of them.
        fitted = known.derived(self, lambda: self.models(known))
        peers = [counts for counts, law, peak
                 in zip(known.counts, fitted, known.peak.tolist())
                 if law is not None
                 and peak <= saturation_kbps * (1 + _TOLERANCE)]
        if peers:
            expected = prior.Pool.of_counts(peers).law
        else:
            expected = prior.scaled(self._default_law, [(
                model.DIMENSIONS['bandwidth'], None, saturation_kbps)])
        return [expected if law is None else law for law in fitted]

    def models(self, known) -> list:
        """Return a list of V RateLaws, None for short histories."""
        return [self._law(counts) if counts is not None
                and counts.total_samples >= self._min_samples else None
                for counts in known.counts]

    def _law(self, counts):
        if not counts.peaks[:, 0].any():
            return rate_law.SILENT
        return self._fit(counts).law


class PriorEstimator(CountsEstimator):
    """Gives instances without a model the same law as the scheduler.

    An instance with too few samples for a model gets the prior of its group,
    learned from the models of the others and cut at the capacity. Without a
    prior it gets the law of the configured default, scaled down to the
    capacity.

    :param groups: {instance uuid: (flavor, project)}; None: all get the prior
        of the fleet
    """

    def __init__(self, fit, default_law, min_samples=estimate.MIN_SAMPLES,
                 groups=None, learns=True):
        super().__init__(fit, default_law, min_samples)
        self._groups = groups or {}
        self._learns = learns

    def fit(self, known, saturation_kbps: float) -> list:
        """Return a list with a RateLaw for every instance."""
        laws = known.derived(self, lambda: self.models(known))
        groups = [self._groups.get(uuid, prior.FLEET)
                  for uuid in known.uuids]
        pools = known.derived((self, 'pools'),
                              lambda: self._pools(laws, groups))
        limits = [(model.DIMENSIONS['bandwidth'], None, saturation_kbps)]
        default = prior.scaled(self._default_law, limits)
        expected = {}
        for group in set(groups):
            pool = next((pools[key] for key in prior.levels_of(*group)
                         if key in pools), None)
            expected[group] = default if pool is None else prior.cut(
                pool.law, limits, limits)
        return [expected[group] if law is None else law
                for law, group in zip(laws, groups)]

    def _pools(self, laws, groups):
        if not self._learns:
            return {}
        fitted = [i for i, law in enumerate(laws) if law is not None]
        return prior.group_pools(
            *([groups[i][part] for i in fitted] for part in (0, 1)),
            [laws[i] for i in fitted])


class Admission(Method):
    """The decision of the scheduler, on the laws of an estimator."""

    def __init__(self, name: str, estimator, policy=admission.PROBABILITY,
                 prediction_margin: float = 1.0) -> None:
        super().__init__(name, functools.partial(
            _ByTable, estimator, policy, prediction_margin))


class _ByTable(packing.FirstFit):
    """First-fit in which a LoadTable admits instances."""

    def __init__(self, estimator, policy, margin, saturation_kbps, limit):
        super().__init__()
        self._estimator = estimator
        self._policy = admission.HostPolicy(
            profile.SwitchProfile(
                name='evaluated', switch='any',
                saturation_kbps=saturation_kbps,
                saturation_dimension='bandwidth'),
            policy, estimator.limit(limit), prediction_margin=margin)
        self._saturation_kbps = saturation_kbps
        self._table = estimator.table()
        self._slots = []
        self._laws = None

    def learn(self, known):
        self._laws = known.derived(
            (self._estimator, self._saturation_kbps),
            lambda: self._estimator.fit(known, self._saturation_kbps))
        for host in range(len(self.residents)):
            self._describe(host)

    def _describe(self, host):
        slot = self._table.describe(
            host, self._policy,
            {row: self._laws[row] for row in self.residents[host]})
        if host == len(self._slots):
            self._slots.append(slot)

    def admitted(self, instance):
        assessment = self._table.assess(self._slots, self._laws[instance])
        # An empty host, which always passes, is not among the hosts.
        return assessment.admitted & (
            assessment.avoided == admission.ADMITTED)

    def set_debts(self, debts):
        self._table.set_debts(debts)

    def last(self):
        return self._table.assess(self._slots, rate_law.SILENT).in_debt

    def suppose(self, instance, source, destination):
        self._table.change({source: ({}, [instance]), destination: (
            {instance: self._laws[instance]}, ())})

    def changed(self, host):
        self._describe(host)

    def open(self):
        super().open()
        self._describe(len(self.residents) - 1)

    def predicted(self):
        # The value with one more instance that sends nothing.
        return self._table.assess(
            self._slots, rate_law.SILENT).overload_probability


# Published methods

class _Figures(packing.FirstFit):
    """Decides by numbers of each instance that are added up on a host.

    An instance with too few samples for a model gets the numbers of a randomly
    chosen instance among the others that fit the switch or, if there is none,
    those of the default law.

    :param default_rates: (n,) samples of the default law, kbit/s
    """

    def __init__(self, saturation_kbps, overload_probability, default_rates):
        super().__init__()
        self.capacity = saturation_kbps
        self.limit = overload_probability
        self._default_rates = default_rates
        self._figures = None     # (V, k)
        self._sums = None        # (hosts, k)

    def learn(self, known):
        self._figures = known.derived(
            (type(self), self.capacity), lambda: self._completed(known))
        self._sums = np.zeros((0, self._figures.shape[1]))
        for host in range(len(self.residents)):
            self.changed(host)

    def _completed(self, known):
        enough = known.samples >= estimate.MIN_SAMPLES
        peers = enough & self.within(known.peak)
        figures = self.figures(known)
        if peers.any():
            unknown = self.at_random(figures[peers])
        else:
            unknown = self.figures(_Samples(self._default_rates))[0]
        figures[~enough] = unknown
        return figures

    def changed(self, host):
        sums = self.sums(self.residents[host])
        if host == len(self._sums):
            self._sums = np.vstack([self._sums, sums])
        else:
            self._sums[host] = sums

    def sums(self, rows):
        """Return (k,) the sums of numbers of some instances."""
        return self._figures[rows].sum(axis=0)

    def admitted(self, instance):
        return self.fits(self._sums + self._figures[instance])

    def predicted(self):
        return self.probability(self._sums)

    @abc.abstractmethod
    def figures(self, known):
        """Return (V, k) numbers."""

    def at_random(self, figures):
        """Return the (k,) numbers of a randomly chosen instance."""
        return figures.mean(axis=0)

    @abc.abstractmethod
    def fits(self, sums):
        """Return (hosts,) bool: whether each host is within the limit."""

    @abc.abstractmethod
    def probability(self, sums):
        """Return (hosts,) the overload probability according to the method."""

    def within(self, values):
        """Return whether values are at most the capacity, with tolerance."""
        return values <= self.capacity * (1 + _TOLERANCE)


class _Samples:
    """One instance with given samples, with the interface of KnownTraffic."""

    def __init__(self, samples):
        self.rates = np.asarray(samples, dtype=float)[None]
        self.samples = np.array([self.rates.size])
        self.mean = self.rates.mean(axis=1)
        self.variance = self.rates.var(axis=1)
        self.peak = self.rates.max(axis=1)
        self.p99 = np.quantile(self.rates, 0.99, axis=1,
                               method='inverted_cdf')


class _Agnostic(_Figures):
    """Only cores and memory decide, as in Figure 1 of the paper.

    It predicts no overload, because it does not use traffic.
    """

    def figures(self, known):
        return np.zeros((len(known.rates), 1))

    def fits(self, sums):
        return np.ones(len(sums), dtype=bool)

    def probability(self, sums):
        return np.zeros(len(sums))


class _Peak(_Figures):
    """The sum of the peaks is at most the capacity."""

    def figures(self, known):
        return known.peak[:, None].copy()

    def fits(self, sums):
        return self.within(sums[:, 0])

    def probability(self, sums):
        return np.where(self.within(sums[:, 0]), 0.0, 1.0)


class _Percentile(_Figures):
    """The sum of the 99th percentiles is at most the capacity.

    The method states no probability. The report has the probability that some
    instance exceeds its percentile, for independent instances: otherwise there
    is no overload.
    """

    def figures(self, known):
        return np.column_stack([known.p99, known.samples > 0])

    def fits(self, sums):
        return self.within(sums[:, 0])

    def probability(self, sums):
        return 1 - 0.99 ** sums[:, 1]


class _Normal(_Figures):
    """Stochastic bin packing: independent normal rates."""

    def figures(self, known):
        return np.column_stack([known.mean, known.variance])

    def at_random(self, figures):
        # Law of total variance.
        return np.array([figures[:, 0].mean(),
                         figures[:, 1].mean() + figures[:, 0].var()])

    def fits(self, sums):
        if self.limit >= 1:
            return np.ones(len(sums), dtype=bool)
        z = _NORMAL.inv_cdf(1 - self.limit) if self.limit > 0 else np.inf
        deviation = np.sqrt(sums[:, 1])
        margin = np.zeros(len(sums))
        np.multiply(z, deviation, out=margin, where=deviation > 0)
        return self.within(sums[:, 0] + margin)

    def probability(self, sums):
        return _normal_tail(self.capacity, sums[:, 0], np.sqrt(sums[:, 1]))


def _normal_tail(capacity, means, deviations):
    """Return P(normal > capacity) of each mean and standard deviation."""
    return np.array([
        (0.5 * math.erfc((capacity - mean) / deviation / math.sqrt(2))
         if deviation > 0 else float(mean > capacity * (1 + _TOLERANCE)))
        for mean, deviation in zip(means.tolist(), deviations.tolist())])


class _NSigma(_Normal):
    """Mean plus N standard deviations of the host's sum, N = 5.

    The variance of the sum includes the covariances, estimated over the bins
    in which both instances were known. A missing sample counts as no traffic.
    """

    _N = 5.0

    def learn(self, known):
        self._covariance = known.derived(
            'covariance', lambda: _covariances(known))
        super().learn(known)

    def sums(self, rows):
        sums = super().sums(rows)
        sums[1] += self._covariance[np.ix_(rows, rows)].sum()
        return sums

    def _covariances_with(self, instance):
        row = self._covariance[instance]
        return np.array([2 * row[rows].sum() for rows in self.residents])

    def admitted(self, instance):
        sums = self._sums + self._figures[instance]
        sums[:, 1] += self._covariances_with(instance)
        return self.fits(sums)

    def fits(self, sums):
        deviation = np.sqrt(np.maximum(sums[:, 1], 0))
        return self.within(sums[:, 0] + self._N * deviation)

    def probability(self, sums):
        return _normal_tail(self.capacity, sums[:, 0],
                            np.sqrt(np.maximum(sums[:, 1], 0)))


def _covariances(known):
    """Return (V, V) covariances, 0 on the diagonal and of the unknown."""
    present = known.present
    rates = np.nan_to_num(known.rates, nan=0.0)
    bins = np.count_nonzero(present, axis=1)
    known_for = present.astype(np.float32)
    mean = rates.sum(axis=1) / np.maximum(bins, 1)
    # Single precision is sufficient for a variance and takes half the time.
    away = np.where(present, rates - mean[:, None], 0).astype(np.float32)
    together = np.maximum(known_for @ known_for.T, 1)
    covariance = (away @ away.T).astype(float) / together
    np.fill_diagonal(covariance, 0.0)
    enough = known.samples >= estimate.MIN_SAMPLES
    covariance[~enough] = 0.0
    covariance[:, ~enough] = 0.0
    return covariance


class _Chernoff(_Figures):
    """The Chernoff bound for independent rates, by effective bandwidths.

    The numbers are log E exp(theta X) at each theta of a grid, where X has the
    empirical law with each sample raised to the largest of its rate bin.
    """

    #: theta times the capacity.
    _GRID = np.geomspace(0.1, 1000.0, 81)

    def figures(self, known):
        result = np.zeros((len(known.rates), self._GRID.size))
        theta = self._GRID / self.capacity
        for row, rates in enumerate(known.rates):
            rates = rates[~np.isnan(rates)]
            if not rates.size:
                continue
            bins, at, counts = np.unique(
                estimate.rate_bin(rates), return_inverse=True,
                return_counts=True)
            largest = np.zeros(bins.size)
            np.maximum.at(largest, at, rates)
            exponents = np.log(counts / rates.size) + np.outer(theta, largest)
            result[row] = np.logaddexp.reduce(exponents, axis=1)
        return result

    def at_random(self, figures):
        return np.logaddexp.reduce(figures, axis=0) - math.log(len(figures))

    def _log_bound(self, sums):
        return np.minimum((sums - self._GRID).min(axis=1), 0.0)

    def fits(self, sums):
        limit = math.log(self.limit) if self.limit > 0 else -np.inf
        return self._log_bound(sums) <= limit + _TOLERANCE

    def probability(self, sums):
        return np.exp(self._log_bound(sums))


class _Queue(_Figures):
    """The method QUEUE: on/off chains whose spikes share reserved blocks.

    The numbers of an instance are base rate, height of the spike, and P(on).
    """

    _ON_SHARE_OF_P99 = 0.1

    def figures(self, known):
        rates, seen = known.rates, ~np.isnan(known.rates)
        threshold = self._ON_SHARE_OF_P99 * known.p99
        on = seen & (rates >= threshold[:, None]) & (rates > 0)
        off = seen & ~on

        def mean(of):
            return (np.where(of, rates, 0.0).sum(axis=1)
                    / np.maximum(np.count_nonzero(of, axis=1), 1))

        base = np.where(off.any(axis=1), mean(off), 0.0)
        probability = (np.count_nonzero(on, axis=1)
                       / np.maximum(known.samples, 1))
        spike = np.where(on.any(axis=1), mean(on) - base, 0.0)
        return np.column_stack([base, spike, probability])

    def learn(self, known):
        self._base, self._block = np.zeros((2, 0))
        # Row h: P(n instances of host h are on).
        self._on = np.zeros((0, 2))
        super().learn(known)

    def changed(self, host):
        rows = self.residents[host]
        if host == len(self._on):
            self._on = np.pad(self._on, ((0, 1), (0, 0)))
            self._base = np.append(self._base, 0.0)
            self._block = np.append(self._block, 0.0)
        missing = len(rows) + 1 - self._on.shape[1]
        if missing > 0:
            self._on = np.pad(self._on, ((0, 0), (0, missing)))
        figures = self._figures[rows]
        self._base[host] = figures[:, 0].sum()
        self._block[host] = figures[:, 1].max(initial=0.0)
        on = np.zeros(self._on.shape[1])
        on[0] = 1.0
        for probability in figures[:, 2].tolist():
            on = _with_one_more(on, probability)
        self._on[host] = on

    def _blocks(self, on):
        """Return the least n for which P(more than n on) is in the limit."""
        beyond = np.cumsum(on[:, ::-1], axis=1)[:, ::-1]  # P(count >= n)
        is_sufficient = np.column_stack([beyond[:, 1:], np.zeros(len(on))]) \
            <= self.limit * (1 + _TOLERANCE)
        return is_sufficient.argmax(axis=1)

    def admitted(self, instance):
        base, spike, probability = self._figures[instance]
        on = np.pad(self._on, ((0, 0), (0, 1)))
        on = _with_one_more(on, probability)
        block = np.maximum(self._block, spike)
        return self.within(self._base + base + self._blocks(on) * block)

    def fits(self, sums):
        raise NotImplementedError('use admitted()')

    def probability(self, sums):
        raise NotImplementedError('use predicted()')

    def predicted(self):
        # Overload occurs if more instances are on than the host has blocks.
        room = np.maximum(self.capacity * (1 + _TOLERANCE) - self._base, 0.0)
        size = self._on.shape[1]
        blocks = np.full(len(room), float(size))
        np.divide(room, self._block, out=blocks, where=self._block > 0)
        beyond = np.arange(size) > np.floor(blocks)[:, None]
        return np.where(self._base > self.capacity * (1 + _TOLERANCE), 1.0,
                        (self._on * beyond).sum(axis=1))


def _with_one_more(on, probability):
    """Return the law of the number of instances that are on, with one more.

    The last entry of ``on`` along its last axis must be 0.
    """
    result = on * (1 - probability)
    result[..., 1:] += on[..., :-1] * probability
    return result


def make_placing(settings) -> Admission:
    """Return our method of placing."""
    samples = settings.min_samples
    estimator = CountsEstimator(
        lambda counts: estimate.fit_model(counts, samples),
        settings.default_law, samples)
    return Admission('ours', estimator, settings.admission_policy,
                     settings.prediction_margin)


def make_methods(settings, groups=None) -> list:
    """Return the methods of the report, without the clairvoyant.

    :param groups: {instance uuid: (flavor, project)}, or None
    :returns: list of Method, in the order of :data:`NAMES`
    """
    default_law, min_samples = settings.default_law, settings.min_samples

    def fit(counts):
        return estimate.fit_model(counts, min_samples)

    on_off = CountsEstimator(
        lambda counts: estimate.fit_on_off(
            counts, min_samples=min_samples),
        default_law, min_samples)
    bandwidth = default_law.rates[:, :2].sum(axis=1)
    default_rates = np.repeat(
        bandwidth, np.maximum(np.rint(1000 * default_law.probabilities), 1)
        .astype(np.int64))
    published = {'agnostic': _Agnostic, 'peak': _Peak, 'p99': _Percentile,
                 'sbp': _Normal, 'queue': _Queue, 'nsigma': _NSigma,
                 'chernoff': _Chernoff}
    methods = {
        'ours': make_placing(settings),
        'prior': Admission('prior', PriorEstimator(
            fit, default_law, min_samples, groups)),
        'default': Admission('default', PriorEstimator(
            fit, default_law, min_samples, learns=False)),
        'onoff': Admission('onoff', on_off),
        'average': Admission('average', on_off, admission.AVERAGE),
        **{name: Method(name, functools.partial(
            kind, default_rates=default_rates))
           for name, kind in published.items()}}
    return [methods[name] for name in NAMES if name in methods]
