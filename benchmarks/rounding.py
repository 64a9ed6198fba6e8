#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many instances a host loses to the rounding of its load.

The VMs of a trace come to one host in a random order. Two hosts decide: one by
a sum on 8192 cells that this benchmark computes itself, one by
admission.LoadTable. Prints the mean of some orders of

* how many VMs each host takes before it refuses the first one;
* when each VM that does not fit is skipped, and both hosts have the VMs of the
  exact host: how many VMs LoadTable refuses that the exact host takes, how
  many of these even for .99 of the capacity, and how many it takes that the
  exact host refuses even for 1.01 of the capacity.

If both hosts skipped VMs on their own, the counts would say little: a full
host takes or refuses a near-silent VM by the last digits of a probability,
and each such decision changes the next ones. Sums on 8192 and on 32768 cells
then differ by some per cent.

The capacities are three with two limits each, and the bandwidths of the
built-in profiles; a large host is offered several of each VM.

    rounding.py --traces DIR [--json]

DIR has a trace that ``vswitch-manage evaluate`` reads.
"""

import argparse
import itertools
import json
import math
import os
import sys

import numpy as np

import _traces
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.lab.evaluate import trace as traces
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile

CELLS = 8192
BANDWIDTH = model.DIMENSIONS['bandwidth']
CASES = [(1000.0 * mbps, limit) for mbps in (22, 60, 180)
         for limit in (.01, .001)]


class Exact:
    """A host whose load is a sum on a fine grid, a level split in two.

    Splitting makes the tail at cell j that of the mean between cells j and
    j + 1, up to the square of a cell, so the tail is read there.
    """

    def __init__(self, capacity, limit):
        self._step, self._limit = capacity / CELLS, limit * (1 + 1e-9)
        # Probability of each cell, up to 1.01 capacities.
        self._masses = np.zeros(CELLS * 102 // 100)
        self._masses[0] = 1.0
        self._base = 0.0

    def take(self, law):
        """Take an instance if the limit allows it; return whether it does."""
        masses, base = self._with(law)
        admitted = self._keeps(masses, base, 1.0)
        if admitted:
            self._masses, self._base = masses, base
        return admitted

    def would_take(self, law, share):
        """Return whether the limit allows it for a share of the capacity."""
        return self._keeps(*self._with(law), share)

    def _with(self, law):
        values = law.values(BANDWIDTH)
        above = (values - values.min()) / self._step
        cells = np.floor(above + 1e-9)
        part = np.maximum(above - cells, 0.0)
        masses = np.zeros_like(self._masses)
        size = masses.size
        for cell, split, mass in zip(cells, part, law.probabilities):
            for at, weight in ((cell, mass * (1 - split)),
                               (cell + 1, mass * split)):
                if at < size and weight > 0:
                    at = int(at)
                    masses[at:] += weight * self._masses[:size - at]
        return masses, self._base + values.min()

    def _keeps(self, masses, base, share):
        cell = share * CELLS - base / self._step
        below = np.cumsum(masses)
        return cell >= 0 and 1 - np.interp(
            cell, np.arange(below.size) + .5, below) <= self._limit


class Ours:
    """A host of a LoadTable."""

    def __init__(self, capacity, limit):
        self._table = admission.LoadTable()
        self._count = 0
        self._table.describe('host', admission.HostPolicy(
            profile.SwitchProfile('rounding', saturation_kbps=capacity),
            overload_probability=limit), {})

    def admits(self, law):
        """Return whether the limit allows an instance."""
        return bool(self._table.assess([0], law).admitted[0])

    def add(self, law):
        """Take an instance."""
        self._count += 1
        self._table.change({'host': ({str(self._count): law}, ())})

    def take(self, law):
        """Take an instance if the limit allows it; return whether it does."""
        admitted = self.admits(law)
        if admitted:
            self.add(law)
        return admitted


def laws_of(path):
    """Return the laws that the VMs of a trace have shown.

    VMs are independent here: what they do together is no matter of rounding.
    """
    trace = traces.load(path)
    counts = traces.History(
        trace, trace.times.size, np.zeros(len(trace.series), dtype=np.int64)
    ).until(trace.times.size).counts
    return [estimate.fit_model(one).law.independent() for one in counts
            if one is not None and estimate.lack_of_history(one) is None]


def until_refused(host, offered):
    """Return how many instances a host takes before it refuses one."""
    return sum(1 for _ in itertools.takewhile(host.take, offered))


def differing(exact, ours, offered):
    """Return the four counts of a host that skips what does not fit.

    :returns: instances that exact takes; of these that ours refuses; of these
        that fit into .99 of the capacity; that ours alone takes, and that do
        not even fit into 1.01
    """
    taken = refused = refused_early = taken_late = 0
    for law in offered:
        admitted = ours.admits(law)
        fits = exact.would_take(law, 1.0)
        if fits and not admitted:
            refused += 1
            refused_early += exact.would_take(law, .99)
        elif admitted and not fits:
            taken_late += not exact.would_take(law, 1.01)
        if fits:
            taken += exact.take(law)
            ours.add(law)
    return taken, refused, refused_early, taken_late


def lost(laws, capacity, limit, orders, seed):
    """Return the figures of a case, the mean of some orders."""
    fit = [law for law in laws if law.values(BANDWIDTH).max() <= capacity]
    load = sum(float(law.mean[:2].sum()) for law in fit)
    fit *= max(1, math.ceil(2 * capacity / load))
    generator, found = np.random.default_rng(seed), []
    for _ in range(orders):
        offered = [fit[i] for i in generator.permutation(len(fit)).tolist()]
        found.append([
            *(until_refused(host(capacity, limit), offered)
              for host in (Exact, Ours)),
            *differing(Exact(capacity, limit), Ours(capacity, limit),
                       offered)])
    exact, ours, *skipping = np.mean(found, axis=0).tolist()
    return {'capacity_kbps': capacity, 'overload_probability': limit,
            'exact': exact, 'ours': ours,
            'lost_percent': 100 * (exact - ours) / max(exact, 1e-9),
            **dict(zip(('skipping', 'skipping_refused',
                        'skipping_refused_at_99_percent',
                        'skipping_taken_at_101_percent'), skipping))}


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
        cases.append(lost(laws, capacity, limit, orders, options.seed))
        if not options.json:
            print('{capacity_kbps:12.0f} kbit/s {overload_probability:6g} '
                  'exact {exact:8.1f} ours {ours:8.1f} lost '
                  '{lost_percent:6.2f} %; skipping {skipping:8.1f} refused '
                  '{skipping_refused:5.1f} at .99 '
                  '{skipping_refused_at_99_percent:.1f} taken at 1.01 '
                  '{skipping_taken_at_101_percent:.1f}'.format(**cases[-1]),
                  flush=True)
    if options.json:
        json.dump({'cases': cases}, sys.stdout)
        print()


if __name__ == '__main__':
    main()
