#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many instances fit under the strict mode, against the overlay itself.

Instances come in a random order and go to the first host that takes them; the
figure is instances per host, the mean of some orders. Of a fleet of like ones
it is how many fit on a host. In the column "overlay"
the probability of overload decides alone; the others have amounts of
CUSTOM_VSWITCH_KBPS beside a total, by the share of headroom. Fleets: on/off
instances that are all alike, a mix of such, constant ones, and with --traces
what VMs of a public trace have shown, at several saturations.

    strict.py [--traces DIR]

DIR has a trace that ``vswitch-manage evaluate`` reads.
"""

import argparse
import os
import sys

import numpy as np

import _traces
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import effective_limit
from vswitch_aware_scheduler.evaluate import trace as traces
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile

HEADROOMS = (.1, .15, .2, .25, .3, .35, .4, .5)
RISK = .01


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    _traces.add_argument(parser)
    parser.add_argument('--trace', metavar='FILE', default='2013-8.npz')
    parser.add_argument('--orders', type=int, default=5)
    return parser.parse_args()


def on_off(kbps, share):
    return model.TrafficModel.on_off(
        kbps, on_seconds=100 * share, off_seconds=100 * (1 - share)).law


def made_fleets(generator):
    """Yield (name, saturation, laws)."""
    for fit in (10, 30, 100, 300):
        for share in (.05, .3):
            yield (f'alike, {fit} on at once fit, on {share:g}', 1000.0 * fit,
                   [on_off(1000, share)] * int(4 * fit / share))
    yield 'constant, 30 fit', 30_000.0, [
        model.TrafficModel.constant(1000).law] * 120
    rates = generator.choice([500, 1000, 2000, 5000], size=600)
    shares = generator.choice([.05, .1, .3], size=600)
    for fit in (20, 100):
        yield f'mixed on/off, {fit} x 1000 kbit/s', 1000.0 * fit, [
            on_off(int(kbps), share) for kbps, share in zip(rates, shares)]


def trace_fleets(options):
    """Yield (name, saturation, laws) of what a trace shows."""
    trace = traces.load(os.path.join(options.traces, options.trace))
    counts = traces.History(
        trace, trace.times.size, np.zeros(len(trace.series), dtype=np.int64)
    ).until(trace.times.size).counts
    laws = [estimate.fit_model(one).law for one in counts if one is not None
            and estimate.lack_of_history(one) is None]
    for mbps in (22, 180, 1000, 5000):
        # Several of each where hosts are large.
        yield f'trace, {mbps} Mbit/s', 1000.0 * mbps, laws * (
            1 if mbps < 1000 else 4)


def first_fit(laws, saturation, headroom):
    """Return instances per host; headroom None: the overlay decides."""
    policy = admission.HostPolicy(
        profile.SwitchProfile('benchmark', saturation_kbps=saturation),
        overload_probability=RISK)
    table = admission.LoadTable()
    if headroom is None:
        placed = []

        def find(law):
            if not placed:
                return None
            found = table.assess(range(len(placed)), law).admitted
            return int(np.argmax(found)) if found.any() else None

        def put(host, number, law):
            if host is None:
                placed.append({})
                host = len(placed) - 1
            placed[host][str(number)] = law
            table.describe(str(host), policy, placed[host])
    else:
        limit = effective_limit.EffectiveLimit.of(policy, headroom)
        placed = []

        def find(law):
            found = np.array(placed) + limit.amount(law) <= limit.total
            return int(np.argmax(found)) if found.any() else None

        def put(host, number, law):
            if host is None:
                placed.append(0)
                host = len(placed) - 1
            placed[host] += limit.amount(law)
    count, alike = 0, len(set(laws)) == 1
    for number, law in enumerate(laws):
        if law.values((1, 1, 0)).max() > saturation:
            # Refused by its peak, in any way.
            continue
        host = find(law)
        if alike and host is None and placed:
            return count
        count += 1
        put(host, number, law)
    return count / len(placed)


def main():
    options = arguments()
    generator = np.random.default_rng(1)
    fleets = list(made_fleets(generator))
    if options.traces:
        fleets += trace_fleets(options)
    print(f'{"instances per host":38}{"overlay":>9}' + ''.join(
        f'{headroom:>7.0%}' for headroom in HEADROOMS))
    ratios = []
    for name, saturation, laws in fleets:
        found = []
        for _ in range(options.orders if len(set(laws)) > 1 else 1):
            order = [laws[i] for i in generator.permutation(len(laws))]
            found.append([first_fit(order, saturation, headroom)
                          for headroom in (None, *HEADROOMS)])
        exact, *others = np.mean(found, axis=0)
        ratios.append(np.array(others) / exact)
        print(f'{name:38}{exact:9.1f}' + ''.join(
            f'{one:7.1f}' for one in others), flush=True)
    print(f'{"share of the overlay, geometric mean":47}' + ''.join(
        f'{one:7.2f}' for one in np.exp(np.log(ratios).mean(axis=0))))
    return 0


if __name__ == '__main__':
    sys.exit(main())
