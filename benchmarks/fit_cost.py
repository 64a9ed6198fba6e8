#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What learning costs: whole months at once, and cycle after cycle.

Counts and fits the series of some instances from arrays in memory; then does
what an incremental cycle does for many more: unpacks the counts of each, adds
12 new samples, fits, and packs counts and law again. Synthetic traffic, or
with --trace what ``vswitch-manage fit --telemetry file`` reads. Prints
medians and spread of CPU seconds; --json for a machine.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time

import numpy as np

from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.telemetry import file as telemetry_file
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import series

PERIOD = 300.0
NEW_SAMPLES = 12

#: Instances of one pass of a cycle, for memory.
_TOGETHER = 2000


def synthetic(count, samples, generator):
    """Return series of heavy-tailed, sticky, mostly quiet traffic."""
    found = []
    for number in range(count):
        level = np.repeat(generator.lognormal(0, 1, samples // 4 + 1), 4)
        rates = np.zeros((samples, 3))
        rates[:, 0] = generator.lognormal(4, 2) * level[:samples] \
            * generator.lognormal(0, .1, samples)
        rates[:, 1] = rates[:, 0] * generator.random()
        found.append(series.RateSeries(
            f'vm-{number}', PERIOD, PERIOD * np.arange(samples), rates))
    return found


def whole(all_series):
    """Return the counts, all of which have models."""
    counts = estimate.count_all(all_series)
    estimate.fit_models([one for one in counts if hasattr(one, 'bins')])
    return counts


def cycle(packed, pieces):
    """Learn from new samples of many instances; return what is written."""
    written = []
    for first in range(0, len(packed), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        new = estimate.count_all(pieces[part])
        merged = [estimate.TransitionCounts.from_bytes(one).merged(two)
                  for one, two in zip(packed[part], new)]
        names = [str(number) for number in range(first, first + len(merged))]
        written += [(packing.pack_law(fitted), counts.to_bytes())
                    for fitted, counts in zip(
                        estimate.fit_models(merged, keys=names), merged)]
    return written


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--instances', type=int, default=500)
    parser.add_argument('--samples', type=int, default=8640)
    parser.add_argument('--fleet', type=int, default=100_000,
                        help='instances of the incremental cycle')
    parser.add_argument('--trace', metavar='PATH')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    if options.trace:
        all_series = list(telemetry_file.FileDriver(options.trace).series())
    else:
        all_series = synthetic(options.instances, options.samples,
                               np.random.default_rng(options.seed))
    found = {'fit_s': [], 'cycle_s': []}
    for _ in range(options.rounds):
        began = time.process_time()
        counts = whole(all_series)
        found['fit_s'].append(time.process_time() - began)
    known = [(one.to_bytes(), like) for one, like in zip(counts, all_series)
             if hasattr(one, 'bins') and one.peaks[:, 0].any()]
    packed = [known[i % len(known)][0] for i in range(options.fleet)]
    pieces = []
    for i in range(options.fleet):
        like = known[i % len(known)][1]
        at = like.times[-1] + like.period_seconds * np.arange(
            1, NEW_SAMPLES + 1)
        pieces.append(dataclasses.replace(
            like, times=at, rates=like.rates[:NEW_SAMPLES]))
    for _ in range(options.rounds):
        began = time.process_time()
        cycle(packed, pieces)
        found['cycle_s'].append(time.process_time() - began)
    answer = {
        'instances': len(all_series),
        'samples': sum(map(len, all_series)), 'fleet': options.fleet,
        'counts_bytes': statistics.mean(map(len, packed)),
        **{name: statistics.median(values)
           for name, values in found.items()}}
    if options.json:
        print(json.dumps({**answer, 'all': found}, indent=2))
        return 0
    print(f'{answer["instances"]} instances, {answer["samples"]} samples; '
          f'then {NEW_SAMPLES} new ones of {options.fleet} instances')
    print(f'{answer["counts_bytes"]:.0f} bytes of counts for each instance')
    for name, values in found.items():
        print(f'{name:10} median {statistics.median(values):8.2f}  '
              f'min {min(values):8.2f}  max {max(values):8.2f}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
