#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well the first day of an instance is foretold before it is known.

Each instance of a trace in turn is taken for new: what is expected of it is
learned from all the others, or is the configured default, and compared with
what it carries on its first day. Printed are means over the instances:

crps    of the root of the bandwidth, in root kbit/s: 0 for one who knows
above   share of samples above the 99th percentile, .01 if calibrated
log     mean log probability of the rate bin; one in 10,000 is taken for
        anything at all. The default names two rates, so it has none.

    priors.py --traces DIR --groups CSV --projects 10

With --projects N, the instances are dealt out at random to N projects, and
``projects`` is the prior of the fleet for an instance of another project.
DIR has a trace that ``vswitch-manage evaluate`` reads, CSV is what its
``--groups`` reads.
"""

import argparse
import os
import sys

import numpy as np

import _traces
from vswitch_aware_scheduler.lab.evaluate import trace as traces
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior

_ANYTHING = 1e-4


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    _traces.add_argument(parser)
    parser.add_argument('--trace', metavar='FILE', default='2013-8.npz')
    parser.add_argument('--groups', metavar='CSV')
    parser.add_argument('--projects', metavar='N', type=int)
    parser.add_argument('--seed', type=int, default=1)
    return parser.parse_args()


def scores(law, bandwidth):
    """Return (crps, share above the 99th percentile, log probability)."""
    seen = np.sqrt(bandwidth)
    kbps = law.rates[:, :2].sum(axis=1)
    rates, shares = np.sqrt(kbps), law.probabilities
    crps = (np.abs(rates[:, None] - seen).T @ shares).mean() - 0.5 * (
        shares @ np.abs(rates[:, None] - rates) @ shares)
    order = np.argsort(rates)
    p99 = rates[order][np.searchsorted(np.cumsum(shares[order]), 0.99)]
    masses = np.bincount(estimate.rate_bin(kbps), weights=shares,
                         minlength=200)
    found = masses[estimate.rate_bin(bandwidth)]
    log = np.log(np.maximum(found, _ANYTHING)).mean()
    return crps, (seen > p99 * (1 + 1e-9)).mean(), log


def main():
    options = arguments()
    if not options.traces:
        print('No --traces DIR and no VSWITCH_TRACES: nothing to foretell')
        return 0
    trace = traces.load(os.path.join(options.traces, options.trace))
    groups = traces.load_groups(options.groups) if options.groups else {}
    default_law = _traces.settings().default_law
    known = traces.History(
        trace, trace.times.size, np.zeros(len(trace.series), dtype=np.int64)
    ).until(trace.times.size)
    laws, first_days, keys = [], [], []
    for one, counts in zip(trace.series, known.counts):
        if counts is None or counts.total_samples < estimate.MIN_SAMPLES:
            continue
        lack = estimate.lack_of_history(counts)
        laws.append(model.TrafficModel.constant().law if lack
                    else estimate.fit_model(counts).law)
        first = one.times < one.times[0] + traces.DAY_SECONDS
        first_days.append(one.rates[first, :2].sum(axis=1))
        keys.append(groups.get(one.instance_uuid, prior.FLEET))
    found = {'default': [], 'fleet': [], 'group': []}
    projects = None
    if options.projects:
        found['projects'] = []
        projects = np.random.default_rng(options.seed).permutation(
            len(laws)) % options.projects
    for i, (key, seen) in enumerate(zip(keys, first_days)):
        others = [j for j in range(len(laws)) if j != i]
        pools = prior.group_pools(
            *([keys[j][at] for j in others] for at in (0, 1)),
            [laws[j] for j in others])
        group = next(pools[one] for one in prior.levels_of(*key)
                     if one in pools)
        expected = [('default', default_law),
                    ('fleet', pools[prior.FLEET].law), ('group', group.law)]
        if projects is not None:
            expected.append(('projects', prior.group_pools(
                [None] * len(others), [f'p{projects[j]}' for j in others],
                [laws[j] for j in others])[prior.FLEET].law))
        for name, law in expected:
            found[name].append(scores(law, seen))
    print(f'{len(laws)} instances, {len(set(keys))} groups')
    print(f'{"":10}{"crps":>10}{"above":>10}{"log":>10}')
    for name, values in found.items():
        crps, above, log = np.mean(values, axis=0)
        log = '-' if name == 'default' else f'{log:.3f}'
        print(f'{name:10}{crps:10.2f}{above:10.4f}{log:>10}')
    rows = {name: np.array(values)[:, 0] for name, values in found.items()}
    for better, worse in (('fleet', 'default'), ('group', 'fleet'),
                          ('projects', 'fleet')):
        if better not in rows:
            continue
        gain = rows[worse] - rows[better]
        print(f'{better} is {gain.mean():.2f} +- '
              f'{gain.std() / np.sqrt(gain.size):.2f} closer than {worse} by '
              f'crps')
    return 0


if __name__ == '__main__':
    sys.exit(main())
