#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What instances have in common, and what it costs to know it.

Compares ways to count on instances that are busy together:

    independent  eight states at means, instances independent
    regimes      what the product does: upper edges, a busy tenth of the time
    stretch      the distribution stretched to the measured variance of the sum
    projections  the same, the variance from 32 random projections
    hours        mean and variance of each half hour of the day, independent
                 within it
    samples      the measured sums of 504 slots of time, and nothing else
    slots        504 slots, one bit of each instance for each: high or low
    groups       the same, 16 groups of slots for each host, rates x 1.03

    dependence.py            a host filled up to the limit, by six patterns
    dependence.py --cost     processor time and bytes of ``groups``
    dependence.py --traces DIR --frontier
                             hosts against overload on recorded traffic

Nothing but ``regimes`` is in the product. Results and the calculation:
contributor/dependence.rst.
"""

import argparse
import itertools
import json
import os
import time

import numpy as np

import _traces
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.evaluate import methods
from vswitch_aware_scheduler.evaluate import packing
from vswitch_aware_scheduler.evaluate import patterns
from vswitch_aware_scheduler.evaluate import protocols
from vswitch_aware_scheduler.evaluate import trace
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import regime
from vswitch_aware_scheduler.traffic import series
from vswitch_aware_scheduler.vswitch import profile

LIMITS = (0.01, 0.003)

#: Upper ends of the states, as quantiles of the samples of their class.
LOW_QUANTILES = np.array([0.5, 0.9, 0.99, 1.0])
HIGH_QUANTILES = np.array([0.5, 0.8, 0.95, 1.0])
STATES = LOW_QUANTILES.size + HIGH_QUANTILES.size

#: One slot of eight is sampled, another one each day: in eight days each time
#: of the day is. So many slots are kept, 14 days of 300 s.
EACH, NEXT_DAY, SLOTS, DAY = 8, 3, 504, 288
#: Slots in a group of a host, from the busiest on.
GROUPS = np.array([1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 32, 64, 64, 128, 122])
STARTS = np.cumsum(GROUPS) - GROUPS
MARGIN = 1.03

#: Another tenant: 20 instances of 1 Gbit/s each way at night beside 60 that
#: are busy from 9 to 13 h, 25 of which are on the host that is judged.
MORNING = patterns.Pattern('60 beside 20 of a tenant', calm=.03, busy=.9,
                           hours=((9, 13),))
NIGHT = patterns.Pattern('20 of a tenant', calm=0.0, busy=1.0,
                         hours=((0, 6),))
NIGHT_KBPS, NIGHT_INSTANCES, MORNING_INSTANCES = 2e6, 20, 60
INSTANCES = 25

#: The capacity is at this cell; tails are known up to twice the capacity.
CELLS = 256
GRID = fourier_sum.grid(2 * CELLS, 1, False, 2)

#: What is varied for a frontier: rates times it, limit times it, or N.
FRONTIER = {
    'independent': (1.35, 1.55), 'stretch': (1.15, 1.3), 'slots': (1.15, 1.3),
    'regimes': (1.7, 1.0), 'nsigma': (4.0, 5.0, 6.0),
    'sbp': (1e-2, 1e-3, 1e-5, 1e-7)}
WANTED_OVERLOAD = 0.8
LEAST_OVERLOAD = 0.02


# What is known of instances

class Fleet:
    """Laws of V instances, and what they have in common.

    :param rates: (V, T) kbit/s of the past, NaN where there is no sample
    :param factor: rates count as so many times what they were

    :ivar levels: (V, STATES) kbit/s
    :ivar masses: (V, STATES) their probabilities
    :ivar means: (V,), and variances (V,)
    :ivar slot_means: (V, slots) of the class that an instance was in
    :ivar slot_variances: likewise
    """

    def __init__(self, rates, factor=1.0):
        self.rates = rates
        self.levels, self.masses = np.zeros((2, len(rates), STATES))
        self.thresholds = np.full(len(rates), np.inf)
        self.known = (~np.isnan(rates)).sum(axis=1) >= estimate.MIN_SAMPLES
        for row in np.flatnonzero(self.known).tolist():
            self._fit(row, np.sort(rates[row][~np.isnan(rates[row])]))
        if not self.known.all():
            # One of the others at random, with the middle one's levels.
            self.masses[~self.known] = self.masses[self.known].mean(axis=0)
            self.levels[~self.known] = np.median(
                self.levels[self.known], axis=0)
        self.levels *= factor
        self.means = (self.levels * self.masses).sum(axis=1)
        self.variances = (self.levels ** 2 * self.masses).sum(
            axis=1) - self.means ** 2
        self._fit_slots()

    def _fit(self, row, samples):
        """Divide the samples in two classes, and each class in states."""
        high = samples.size
        if samples[-1] > samples[0]:
            # The root: else the few largest samples are a class.
            sums = np.cumsum(np.sqrt(samples))
            below = np.arange(1, samples.size)
            high = 1 + int(((sums[:-1] / below - (sums[-1] - sums[:-1]) / (
                samples.size - below)) ** 2 * below * (
                    samples.size - below)).argmax())
            self.thresholds[row] = samples[high - 1]
        at = 0
        for part, quantiles in ((samples[:high], LOW_QUANTILES),
                                (samples[high:], HIGH_QUANTILES)):
            state = np.searchsorted(
                quantiles[:-1], np.arange(part.size) / max(part.size, 1),
                side='right')
            count = np.bincount(state, minlength=quantiles.size)
            states = slice(at, at + quantiles.size)
            self.masses[row, states] = count / samples.size
            self.levels[row, states] = np.bincount(
                state, part, quantiles.size) / np.maximum(count, 1)
            at += quantiles.size

    def _fit_slots(self):
        slot = np.arange(self.rates.shape[1])
        chosen = slot[(slot + NEXT_DAY * (slot // DAY)) % EACH == 0]
        if chosen.size > SLOTS and len(self.rates) > 100:
            # Of a longer past, slots of all of it.
            chosen = chosen[np.arange(SLOTS) * chosen.size // SLOTS]
        self.slots = chosen[-SLOTS:]
        sampled = self.rates[:, self.slots]
        unknown = np.isnan(sampled) | ~self.known[:, None]
        high = sampled > self.thresholds[:, None]
        low_states = np.arange(STATES) < LOW_QUANTILES.size
        (low_mean, low_variance), (high_mean, high_variance) = (
            self._of_class(states) for states in (low_states, ~low_states))
        self.slot_means = np.where(unknown, self.means[:, None], np.where(
            high, high_mean, low_mean))
        self.slot_variances = np.where(
            unknown, self.variances[:, None],
            np.where(high, high_variance, low_variance))

    def _of_class(self, states):
        masses, levels = self.masses[:, states], self.levels[:, states]
        total = np.maximum(masses.sum(axis=1, keepdims=True), 1e-300)
        mean = (masses * levels).sum(axis=1, keepdims=True) / total
        return mean, (masses * (levels - mean) ** 2).sum(
            axis=1, keepdims=True) / total


def tail_at(tables, cells):
    """Return P(sum > cells) of (h, 2 * CELLS + 2) tables at (h, k) cells."""
    cells = np.minimum(cells, tables.shape[1] - 1.001)
    below = np.floor(np.maximum(cells, 0)).astype(np.int64)
    part = np.maximum(cells, 0) - below
    rows = np.arange(len(tables))[:, None]
    tail = tables[rows, below] * (1 - part) + tables[rows, below + 1] * part
    return np.where(cells < 0, 1.0, tail)


def stretched(tables, capacity, mean, variance, means, variances, shares):
    """Return P(sum > capacity) where the sum has other moments by share.

    :param mean: (h,) of the independent sums; ``variance`` likewise
    :param means: (h, k) in k shares of the time; ``variances`` likewise
    :param shares: (k,), sum to 1
    """
    variance = np.maximum(variance, 1e-9)[:, None]
    wider = np.sqrt(np.maximum(variances / variance, 1e-4))
    at = mean[:, None] + (capacity - means) / wider
    return tail_at(tables, at * CELLS / capacity) @ shares


def grouped(means, variances):
    """Return the moments of (slots,) sums in GROUPS, from the busiest on."""
    order = np.argsort(-means)
    first, second, inside = (
        np.add.reduceat(values[order], STARTS) / GROUPS
        for values in (means, means * means, variances))
    return first, inside + np.maximum(second - first * first, 0.0)


# One host, filled up to the limit

class FullHost:
    """Instances on one host, and what their sum is taken to be."""

    def __init__(self, rates, rng, elsewhere=()):
        self.rates, self.fleet = rates, Fleet(rates)
        self.mean = self.fleet.means.sum()
        self.variance = self.fleet.variances.sum()
        self.sum = rates.sum(axis=0)
        away = rates - rates.mean(axis=1, keepdims=True)
        self.common = max(self.sum.var() - rates.var(axis=1).sum(), 0.0)
        sketch = away @ rng.standard_normal(
            (rates.shape[1], 32)) / np.sqrt(32 * rates.shape[1])
        self.sketched = max((sketch.sum(axis=0) ** 2).sum()
                            - (sketch ** 2).sum(), 0.0)
        half_hour = np.arange(rates.shape[1]) % DAY // 6
        count = np.bincount(half_hour)
        hours = np.array([np.bincount(half_hour, row) / count
                          for row in rates])
        squares = np.array([np.bincount(half_hour, row * row) / count
                            for row in rates])
        self.hours = (hours.sum(axis=0),
                      (squares - hours ** 2).sum(axis=0))
        self.slots = (self.fleet.slot_means.sum(axis=0),
                      self.fleet.slot_variances.sum(axis=0))
        self.groups = grouped(*self.slots)
        self.product = _ProductHost(rates, elsewhere)

    def ways(self):
        """Return {name: callable(capacity) to P(overload)}."""
        slots = self.fleet.slots

        def stretch(common):
            return lambda capacity: self._tail(
                capacity, [self.mean], [self.variance + common], [1.0])

        def at_least_independent(moments, shares, margin=1.0):
            return lambda capacity: max(
                stretch(0.0)(capacity),
                self._tail(capacity, *moments, shares, margin))

        equal = np.full(slots.size, 1 / slots.size)
        return {
            'independent': stretch(0.0),
            'regimes': self.product.overload_probability,
            'stretch': stretch(self.common),
            'projections': stretch(self.sketched),
            'hours': at_least_independent(
                self.hours, np.full(48, 1 / 48)),
            'samples': lambda capacity: float(
                (self.sum[slots] > capacity).mean()),
            'slots': at_least_independent(self.slots, equal),
            'groups': at_least_independent(
                self.groups, GROUPS / GROUPS.sum(), MARGIN)}

    def _tail(self, capacity, means, variances, shares, margin=1.0):
        # Rates times the margin, or the capacity over it.
        capacity = capacity / margin
        fleet = self.fleet
        scale = CELLS / capacity
        spectrum = GRID.spectra(
            np.minimum(fleet.levels * scale, 4.0 * CELLS),
            fleet.masses[:, None]).prod(axis=0)
        tables = GRID.tables(
            spectrum[None], np.array([[self.mean * scale]]))[:, 0].real
        return float(stretched(
            tables, capacity, np.array([self.mean]),
            np.array([self.variance]), np.array([means]),
            np.array([variances]), np.array(shares))[0])


class _ProductHost:
    """The same instances in the product, with its levels and regimes."""

    def __init__(self, rates, elsewhere):
        """Learn it.

        :param elsewhere: rates of further instances of the same project, and
            of those of another one
        """
        load, every, projects = regime.FleetLoad(), [], {}
        for project, values in zip('aab', (rates, *elsewhere)):
            for row in values:
                projects[str(len(every))] = project
                every.append(series.RateSeries.from_samples(
                    str(len(every)), patterns.PERIOD_SECONDS,
                    patterns.PERIOD_SECONDS * np.arange(row.size), row,
                    0 * row))
        loads = regime.ProjectLoads(load, projects)
        for one in every:
            loads.add(one)
        loads.finish()
        self._laws = {number: fitted.law for number, fitted in enumerate(
            estimate.fit_models(
                estimate.count_all(every[:len(rates)], load.regimes()),
                burst_samples=estimate.BURST_SAMPLES))}

    def overload_probability(self, capacity):
        """Return what a LoadTable takes it to be."""
        table = admission.LoadTable()
        slot = table.describe('host', admission.HostPolicy(
            profile.SwitchProfile(
                name='benchmark', switch='any', saturation_kbps=capacity,
                saturation_dimension='bandwidth')), self._laws)
        silent = model.TrafficModel.constant().law
        return float(table.assess([slot], silent).overload_probability[0])


def filled(probability, limit, most):
    """Return the capacity at which the predicted probability is the limit."""
    least = 1.0
    for _ in range(22):
        middle = (least + most) / 2
        if probability(middle) > limit:
            least = middle
        else:
            most = middle
    return most


def by_pattern(options):
    """Return rows: realised overload over E, and capacity wasted."""
    found = {}
    for pattern in (*patterns.PATTERNS.values(), MORNING):
        name = pattern.name
        for seed in range(options.seeds):
            rng = np.random.default_rng([seed, 7])
            levels = pattern.levels(rng, INSTANCES)
            past = pattern.rates(rng, options.days, levels)
            elsewhere = () if pattern is not MORNING else (
                pattern.rates(rng, options.days, pattern.levels(
                    rng, MORNING_INSTANCES - INSTANCES)),
                NIGHT.rates(rng, options.days, np.full(
                    NIGHT_INSTANCES, NIGHT_KBPS)))
            host = FullHost(past, rng, elsewhere)
            future = np.sort(pattern.rates(
                rng, options.judged_days, levels).sum(axis=0))
            for (way, probability), limit in itertools.product(
                    host.ways().items(), LIMITS):
                capacity = filled(probability, limit,
                                  2 * host.rates.max(axis=1).sum())
                needed = future[int(np.ceil(future.size * (1 - limit))) - 1]
                found.setdefault((way, name, limit), []).append((
                    (future > capacity).mean() / limit,
                    1 - needed / capacity))
    return [{'way': way, 'pattern': name, 'overload_probability': limit,
             'overload': float(np.mean([one[0] for one in values])),
             'overload_worst': float(np.max([one[0] for one in values])),
             'wasted': float(np.mean([one[1] for one in values]))}
            for (way, name, limit), values in found.items()]


def print_patterns(rows):
    names = list(dict.fromkeys(row['pattern'] for row in rows))
    for limit in LIMITS:
        print(f'\nE = {limit:g}: realised over E (worst seed), capacity '
              f'wasted in %')
        print(f'{"":14}' + ''.join(f'{name:>25}' for name in names))
        for way in dict.fromkeys(row['way'] for row in rows):
            line = f'{way:14}'
            for row in rows:
                if (row['way'], row['overload_probability']) == (way, limit):
                    cell = (f'{row["overload"]:.2f} '
                            f'({row["overload_worst"]:.2f}) '
                            f'{100 * row["wasted"]:+.0f}')
                    line += f'{cell:>25}'
            print(line)


# Recorded traffic

class _Packer(packing.FirstFit):
    """First-fit by one of the ways, with sums kept as transforms."""

    def __init__(self, way, factor, capacity, limit):
        super().__init__()
        self._way, self._factor = way, factor
        self._capacity, self._limit = capacity, limit * (1 + 1e-9)
        self._sums = None

    def learn(self, known):
        """Take over the laws; hosts are empty, as the protocol is static."""
        fleet = self._fleet = known.derived(
            ('fleet', self._factor), lambda: Fleet(known.rates, self._factor))
        self._spectra = known.derived(
            ('spectra', self._factor, self._capacity),
            lambda: GRID.spectra(np.minimum(
                fleet.levels * (CELLS / self._capacity), 4.0 * CELLS),
                fleet.masses[:, None])[:, 0])
        self._covariance = known.derived(
            'covariance', lambda: methods._covariances(known)
        ) * self._factor ** 2 if self._way == 'stretch' else None
        slots = fleet.slots.size
        self._sums = [np.zeros((0, GRID.frequencies), complex),
                      np.zeros((0, 1)), np.zeros((0, 1)),
                      np.zeros((0, slots)), np.zeros((0, slots))]

    def _of(self, instance):
        fleet = self._fleet
        return (self._spectra[instance], fleet.means[instance],
                fleet.variances[instance], fleet.slot_means[instance],
                fleet.slot_variances[instance])

    def admitted(self, instance):
        result = np.zeros(len(self.residents), dtype=bool)
        for first in range(0, result.size, 16):
            hosts = slice(first, min(first + 16, result.size))
            result[hosts] = self._with(hosts, instance) <= self._limit
            if result[hosts].any():
                break
        return result

    def _with(self, hosts, instance):
        new = self._of(instance)
        spectrum = self._sums[0][hosts] * new[0]
        mean, variance, means, variances = (
            have[hosts] + more for have, more in zip(self._sums[1:], new[1:]))
        mean, variance = mean[:, 0], variance[:, 0]
        tables = GRID.tables(spectrum[:, None], (
            mean * CELLS / self._capacity)[:, None])[:, 0].real
        alone = stretched(tables, self._capacity, mean, variance,
                          mean[:, None], variance[:, None], np.ones(1))
        if self._way == 'independent':
            return alone
        if self._way == 'stretch':
            common = np.array([
                self._covariance[np.ix_(rows, rows)].sum()
                + 2 * self._covariance[instance, rows].sum()
                for rows in self.residents[hosts]])
            return stretched(
                tables, self._capacity, mean, variance, mean[:, None],
                (variance + np.maximum(common, 0))[:, None], np.ones(1))
        slots = means.shape[1]
        return np.maximum(alone, stretched(
            tables, self._capacity, mean, variance, means, variances,
            np.full(slots, 1 / slots)))

    def added(self, host, instance):
        for number, new in enumerate(self._of(instance)):
            if host == len(self._sums[number]):
                self._sums[number] = np.vstack([
                    self._sums[number], np.full(
                        (1, self._sums[number].shape[1]), number == 0)])
            if number:
                self._sums[number][host] += new
            else:
                self._sums[number][host] *= new

    def predicted(self):
        return np.zeros(len(self.residents))


class _Way(methods.Method):
    """One way with one value of what is varied."""

    def __init__(self, way, value):
        super().__init__(f'{way} {value:g}')
        self.way, self.value = way, value

    def start(self, saturation_kbps, overload_probability):
        if self.way == 'nsigma':
            kind = type('NSigma', (methods._NSigma,), {'_N': self.value})
            return kind(saturation_kbps, overload_probability, [0.0])
        if self.way == 'sbp':
            return methods._Normal(saturation_kbps, overload_probability
                                   * self.value, [0.0])
        if self.way == 'regimes':
            [ours] = [one for one in methods.make_methods(
                _traces.DEFAULT_LAW) if one.name == 'ours']
            return ours.start(saturation_kbps,
                              overload_probability * self.value)
        return _Packer(self.way, self.value, saturation_kbps,
                       overload_probability)


def frontier(options):
    """Return rows: overload over E and hosts over the clairvoyant's."""
    loaded = [trace.load(os.path.join(options.traces, name))
              for name in options.months.split(',')]
    ways = [_Way(way, value) for way in options.ways.split(',')
            for value in FRONTIER[way]]
    limits = list(itertools.product((22000.0, 60000.0, 180000.0), LIMITS))
    rows = []
    for past, judged in [(None, 0), (None, 1), (0, 1), (1, 0)]:
        case = protocols.Case(
            loaded[judged], *limits[0],
            past=None if past is None else loaded[past])
        for (_, limit), results in zip(limits, protocols.evaluate_limits(
                case, limits, ways, options.seeds)):
            best = results[protocols.CLAIRVOYANT]
            for way in ways:
                figures = results[way.name].figures(limit, best)
                rows.append({
                    'way': way.way, 'value': way.value,
                    'overload': figures['overload_avoidable_mean'] / limit,
                    'hosts': figures['hosts_relative']})
    return rows


def print_frontier(rows):
    print(f'{"":22}overload over E: geometric mean, worst; hosts over the '
          f'clairvoyant\'s; both hold')
    for way in dict.fromkeys(row['way'] for row in rows):
        points = []
        for value in FRONTIER[way]:
            mine = [row for row in rows
                    if (row['way'], row['value']) == (way, value)]
            overload = np.array([row['overload'] for row in mine])
            hosts = np.array([row['hosts'] for row in mine])
            points.append((np.log(np.maximum(overload, LEAST_OVERLOAD)),
                           np.log(hosts)))
            print(f'{way:14}{value:6g}  {np.exp(points[-1][0].mean()):.2f} '
                  f'{overload.max():.2f}; {np.exp(points[-1][1].mean()):.3f};'
                  f' {np.count_nonzero((overload <= 1) & (hosts <= 1.5))} of '
                  f'{overload.size}')
        overloads, hosts = np.transpose(points, (1, 2, 0))
        rng = np.random.default_rng(1)
        drawn = [rng.integers(0, len(hosts), len(hosts)) for _ in range(500)]
        values = [_at_overload(overloads[some].mean(axis=0),
                               hosts[some].mean(axis=0)) for some in drawn]
        low, high = np.quantile(values, [0.05, 0.95])
        print(f'{way:14}at {WANTED_OVERLOAD:g} E: '
              f'{_at_overload(overloads.mean(axis=0), hosts.mean(axis=0)):.3f}'
              f' x clairvoyant (90 % of bootstrapped cases: {low:.3f} to '
              f'{high:.3f})')


def _at_overload(overloads, hosts):
    """Return the hosts at WANTED_OVERLOAD on the line through the points."""
    slope, at_wanted = np.polyfit(
        overloads - np.log(WANTED_OVERLOAD), hosts, 1)
    return float(np.exp(at_wanted))


# Cost

def cost(options):
    """Return what the groups of a host cost, and a decision by them."""
    rng = np.random.default_rng(3)
    hosts = options.hosts
    means = rng.gamma(3, 1, (hosts, SLOTS))
    tables = np.sort(rng.random((hosts, 2 * CELLS + 2)))[:, ::-1]
    bits = np.packbits(rng.random(SLOTS) < 0.1)
    masks = np.zeros((hosts, GROUPS.size, bits.size), np.uint8)
    began = time.process_time()
    for host in range(hosts):
        order = np.argsort(-means[host])
        grouped(means[host], means[host])
        group = np.empty(SLOTS, np.uint8)
        group[order] = np.repeat(np.arange(GROUPS.size), GROUPS)
        masks[host] = np.packbits(
            group == np.arange(GROUPS.size)[:, None], axis=1)
    described = time.process_time() - began
    ones = np.array([bin(byte).count('1') for byte in range(256)], np.uint8)
    first, inside = np.array([grouped(row, row) for row in means]).swapaxes(
        0, 1)
    mean, variance = means.mean(axis=1), means.var(axis=1)
    began = time.process_time()
    for _ in range(20):
        high = ones[masks & bits].sum(axis=2, dtype=np.int64) / GROUPS
        stretched(tables, 10.0, mean, variance, first + 0.1 + high,
                  inside + 0.1 + high * (1 - high), GROUPS / SLOTS)
    decided = (time.process_time() - began) / 20
    return {'hosts': hosts, 'describe_us_per_host': 1e6 * described / hosts,
            'decision_ms': 1e3 * decided, 'instance_bytes': bits.size,
            'regime_bytes': 8 * len(estimate.LEVEL_QUANTILES),
            'host_bytes': 2 * 4 * SLOTS + masks[0].nbytes
            + 2 * 8 * GROUPS.size}


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    _traces.add_argument(parser)
    parser.add_argument('--frontier', action='store_true',
                        help='recorded traffic instead of patterns')
    parser.add_argument('--cost', action='store_true')
    parser.add_argument('--months', metavar='FILE,FILE',
                        default='2013-7.npz,2013-8.npz')
    parser.add_argument('--ways', default=','.join(FRONTIER),
                        help='of the frontier (default: all)')
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--days', type=float, default=14,
                        help='known of a pattern, 14 or more')
    parser.add_argument('--judged-days', type=float, default=280)
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    if options.days < 14:
        parser.error(f'--days is {options.days:g}; expected 14 or more, for '
                     f'{SLOTS} slots')
    return options


def main():
    options = arguments()
    if options.frontier and not options.traces:
        print('No --traces DIR and no VSWITCH_TRACES: nothing to pack')
        return 0
    if options.cost:
        found = cost(options)
    else:
        found = (frontier if options.frontier else by_pattern)(options)
    if options.json:
        print(json.dumps(found, indent=2))
    elif options.cost:
        for name, value in found.items():
            print(f'{name:24}{value:10.4g}')
    else:
        (print_frontier if options.frontier else print_patterns)(found)
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
