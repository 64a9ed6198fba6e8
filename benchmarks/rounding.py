#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many instances a host loses to the rounding of its load.

The VMs of a trace come to one host in a random order, and the host takes each
that its limit allows: by a sum on 8192 cells that this benchmark computes
itself, and by admission.LoadTable. Prints how many either takes, the mean of
some orders. The capacities are three with two limits each, and the bandwidths
of the built-in profiles; a large host is offered several of each VM.

    rounding.py --traces DIR [--json]

DIR has a trace that ``vswitch-manage evaluate`` reads.
"""

import argparse
import json
import math
import os
import sys

import numpy as np

import _traces
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.evaluate import trace as traces
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile

CELLS = 8192
BANDWIDTH = model.DIMENSIONS['bandwidth']
CASES = [(1000.0 * mbps, limit) for mbps in (22, 60, 180)
         for limit in (.01, .001)]


class Exact:
    """A host whose load is a sum on a fine grid, a level split in two."""

    def __init__(self, capacity, limit):
        self._step, self._limit = capacity / CELLS, limit * (1 + 1e-9)
        # Of each regime: probability of each cell up to the capacity.
        self._masses = np.zeros((len(model.REGIMES), CELLS + 1))
        self._masses[:, 0] = 1.0
        self._base = 0.0

    def take(self, law):
        """Take an instance if the limit allows it; return whether it does."""
        values = law.values(BANDWIDTH)
        base = self._base + values.min()
        room = math.floor((CELLS * self._step - base) / self._step + 1e-9)
        if room < 0:
            return False
        above = (values - values.min()) / self._step
        cells = np.floor(above + 1e-9)
        part = np.maximum(above - cells, 0.0)
        masses = np.zeros_like(self._masses)
        for cell, split, weights in zip(cells, part, law.by_regime.T):
            for at, weight in ((cell, weights * (1 - split)),
                               (cell + 1, weights * split)):
                if at <= CELLS and weight.any():
                    at = int(at)
                    masses[:, at:] += weight[:, None] * self._masses[
                        :, :CELLS + 1 - at]
        over = model.REGIME_SHARES @ (1 - masses[:, :room + 1].sum(axis=1))
        if over > self._limit:
            return False
        self._masses, self._base = masses, base
        return True


class Ours:
    """A host of a LoadTable."""

    def __init__(self, capacity, limit):
        self._table = admission.LoadTable()
        self._count = 0
        self._table.describe('host', admission.HostPolicy(
            profile.SwitchProfile('rounding', saturation_kbps=capacity),
            overload_probability=limit), {})

    def take(self, law):
        if not self._table.assess([0], law).admitted[0]:
            return False
        self._count += 1
        self._table.change({'host': ({str(self._count): law}, ())})
        return True


def laws_of(path):
    """Return the laws that the VMs of a trace have shown."""
    trace = traces.load(path)
    counts = traces.History(
        trace, trace.times.size, np.zeros(len(trace.series), dtype=np.int64)
    ).until(trace.times.size).counts
    return [estimate.fit_model(one).law for one in counts if one is not None
            and estimate.lack_of_history(one) is None]


def lost(laws, capacity, limit, orders, seed):
    """Return (exact, ours): instances on a host, the mean of some orders."""
    fit = [law for law in laws if law.values(BANDWIDTH).max() <= capacity]
    load = sum(float(law.mean[:2].sum()) for law in fit)
    fit *= max(1, math.ceil(2 * capacity / load))
    generator, taken = np.random.default_rng(seed), [[], []]
    for _ in range(orders):
        order = generator.permutation(len(fit)).tolist()
        for host, counts in zip((Exact(capacity, limit),
                                 Ours(capacity, limit)), taken):
            counts.append(sum(host.take(fit[i]) for i in order))
    return tuple(map(float, np.mean(taken, axis=1)))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    _traces.add_argument(parser)
    parser.add_argument('--trace', metavar='FILE', default='2013-8.npz')
    parser.add_argument('--orders', type=int, default=10)
    parser.add_argument('--most-kbps', type=float, default=4e6,
                        help='leave larger profiles out, which take long')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    if not options.traces:
        parser.error('--traces is missing; expected the folder of the trace')
    laws = laws_of(os.path.join(options.traces, options.trace))
    bandwidths = {one.bandwidth_kbps()
                  for one in profile.profiles().values()}
    cases = []
    for capacity, limit in CASES + [
            (capacity, .01) for capacity in sorted(bandwidths)
            if capacity <= options.most_kbps]:
        # As many instances in all, whatever there is room for on a host.
        orders = options.orders if capacity < 250_000 else 1
        exact, ours = lost(laws, capacity, limit, orders, options.seed)
        cases.append({
            'capacity_kbps': capacity, 'overload_probability': limit,
            'exact': exact, 'ours': ours,
            'lost_percent': 100 * (exact - ours) / max(exact, 1e-9)})
        if not options.json:
            print('{capacity_kbps:12.0f} kbit/s {overload_probability:6g} '
                  'exact {exact:8.1f} ours {ours:8.1f} lost '
                  '{lost_percent:6.2f} %'.format(**cases[-1]), flush=True)
    if options.json:
        json.dump({'cases': cases}, sys.stdout)
        print()


if __name__ == '__main__':
    main()
