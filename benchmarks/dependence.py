#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures overload of instances that are busy together.

    dependence.py            one host that is filled up to the limit with
                             generated traffic, for each pattern
    dependence.py --traces DIR --frontier
                             hosts and overload on recorded traffic: ours with
                             several factors of the rates, N-sigma and SBP with
                             several N and limits

Results: contributor/dependence.rst and reference/evaluation.rst.
"""

import argparse
import itertools
import json
import os
import pathlib
import sys

import numpy as np

import _traces
from vswitch_aware_scheduler.lab.evaluate import methods
from vswitch_aware_scheduler.lab.evaluate import protocols
from vswitch_aware_scheduler.lab.evaluate import trace
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.fakes import full_host  # noqa: E402
from tests.fakes import traffic_patterns  # noqa: E402

LIMITS = (0.01, 0.003)

#: Values of a frontier: factor of the rates, N, and factor of the limit.
FRONTIER = {'ours': (1.0, 1.1, 1.2), 'nsigma': (4.0, 5.0, 6.0),
            'sbp': (1e-2, 1e-3, 1e-5, 1e-7)}
WANTED_OVERLOAD = 0.8
LEAST_OVERLOAD = 0.02


# One host, filled up to the limit

def by_pattern(options):
    """Return rows: realised overload over E, and capacity wasted."""
    rows = []
    for name, pattern in traffic_patterns.PATTERNS.items():
        outcomes_of_seeds = [full_host.fill(
            pattern, LIMITS, np.random.default_rng([seed, 7]),
            days=options.days, judged_days=options.judged_days)
            for seed in range(options.seeds)]
        for outcomes in zip(*outcomes_of_seeds):
            overload = [outcome.overload for outcome in outcomes]
            rows.append({
                'pattern': name,
                'overload_probability': outcomes[0].overload_probability,
                'overload': float(np.mean(overload)),
                'overload_worst': float(np.max(overload)),
                'wasted': float(np.mean(
                    [outcome.wasted for outcome in outcomes]))})
    return rows


def print_patterns(rows):
    print('Realised over E (worst seed), capacity wasted in %')
    for row in rows:
        print(f'{row["pattern"]:20}{row["overload_probability"]:8g}'
              f'{row["overload"]:8.2f} ({row["overload_worst"]:.2f})'
              f'{100 * row["wasted"]:+8.1f}')


# Recorded traffic

class _Scaled(methods.CountsEstimator):
    """Ours, with rates multiplied by a factor, up to the capacity."""

    def __init__(self, factor):
        super().__init__(estimate.fit_model, _traces.settings().default_law)
        self._factor = factor

    def fit(self, known, saturation_kbps):
        limits = [(model.DIMENSIONS['bandwidth'], None, saturation_kbps)]
        return [prior.scaled(rate_law.RateLaw.from_arrays(
            law.probabilities, law.rates * self._factor,
            law.at_instants), limits)
            for law in super().fit(known, saturation_kbps)]


class _Way(methods.Method):
    """A method with one value of its number."""

    def __init__(self, way, value):
        super().__init__(f'{way} {value:g}', self._start)
        self.way, self.value = way, value

    def _start(self, saturation_kbps, overload_probability):
        if self.way == 'nsigma':
            kind = type('NSigma', (methods._NSigma,), {'_N': self.value})
            return kind(saturation_kbps, overload_probability, [0.0])
        if self.way == 'sbp':
            return methods._Normal(saturation_kbps, overload_probability
                                   * self.value, [0.0])
        return methods.Admission('ours', _Scaled(self.value)).start(
            saturation_kbps, overload_probability)


def frontier(options):
    """Return rows: overload over E and hosts over the clairvoyant's."""
    loaded = [trace.load(os.path.join(options.traces, name))
              for name in options.months.split(',')]
    ways = [_Way(way, value) for way in options.ways.split(',')
            for value in FRONTIER[way]]
    limits = list(itertools.product((22000.0, 60000.0, 180000.0), LIMITS))
    rows = []
    for past, judged in [(None, 0), (None, 1), (0, 1), (1, 0)]:
        case = protocols.ReplayCase(
            loaded[judged], *limits[0],
            past=None if past is None else loaded[past])
        for (_, limit), results in zip(limits, protocols.evaluate_limits(
                case, limits, ways, options.seeds)):
            clairvoyant = results[protocols.CLAIRVOYANT]
            for way in ways:
                figures = results[way.name].figures(limit, clairvoyant)
                rows.append({
                    'way': way.way, 'value': way.value,
                    'overload': figures['overload_avoidable_mean'] / limit,
                    'hosts': figures['hosts_relative']})
    return rows


def print_frontier(rows):
    print(f'{"":22}overload over E: geometric mean, worst; hosts over the '
          f'clairvoyant\'s; both aims are met')
    for way in dict.fromkeys(row['way'] for row in rows):
        points = []
        for value in FRONTIER[way]:
            own_rows = [row for row in rows
                        if (row['way'], row['value']) == (way, value)]
            overload = np.array([row['overload'] for row in own_rows])
            hosts = np.array([row['hosts'] for row in own_rows])
            points.append((np.log(np.maximum(overload, LEAST_OVERLOAD)),
                           np.log(hosts)))
            print(f'{way:14}{value:6g}  {np.exp(points[-1][0].mean()):.2f} '
                  f'{overload.max():.2f}; {np.exp(points[-1][1].mean()):.3f};'
                  f' {np.count_nonzero((overload <= 1) & (hosts <= 1.5))} of '
                  f'{overload.size}')
        overloads, hosts = np.transpose(points, (1, 2, 0))
        rng = np.random.default_rng(1)
        draws = [rng.integers(0, len(hosts), len(hosts)) for _ in range(500)]
        values = [_at_overload(overloads[draw].mean(axis=0),
                               hosts[draw].mean(axis=0)) for draw in draws]
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


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    _traces.add_argument(parser)
    parser.add_argument('--frontier', action='store_true',
                        help='recorded traffic instead of patterns')
    parser.add_argument('--months', metavar='FILE,FILE',
                        default='2013-7.npz,2013-8.npz')
    parser.add_argument('--ways', default=','.join(FRONTIER),
                        help='of the frontier (default: all)')
    parser.add_argument('--days', type=float, default=14,
                        help='history of a pattern')
    parser.add_argument('--judged-days', type=float, default=280)
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--json', action='store_true')
    return parser.parse_args()


def main():
    options = arguments()
    if options.frontier and not options.traces:
        print('No --traces DIR and no VSWITCH_TRACES: nothing to pack')
        return 0
    rows = (frontier if options.frontier else by_pattern)(options)
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        (print_frontier if options.frontier else print_patterns)(rows)
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
