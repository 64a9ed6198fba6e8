#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures overload and hosts of methods on recorded traffic.

Evaluates all cases of two months of one fleet: each month alone and after the
other month, both protocols, limits .01 and .003, and three capacities. Prints
the realised avoidable overload divided by the limit, and the hosts divided by
those of the clairvoyant. Marks values above 1 and above 1.5.

    calibration.py --traces DIR --methods ours,onoff

DIR has two traces that ``vswitch-manage evaluate`` can read. To evaluate
another estimator, write a file that defines METHODS, a list of
evaluate.methods.Method:

    calibration.py --traces DIR --variants mine.py --methods mine
"""

import argparse
import itertools
import json
import os
import runpy
import sys
import time

import numpy as np

import _traces
from vswitch_aware_scheduler.evaluate import methods
from vswitch_aware_scheduler.evaluate import protocols
from vswitch_aware_scheduler.evaluate import trace

MOST_HOSTS = 1.5


def numbers(text):
    return [float(word) for word in text.split(',')]


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    _traces.add_argument(parser)
    parser.add_argument('--months', metavar='FILE,FILE',
                        default='2013-7.npz,2013-8.npz')
    parser.add_argument('--methods', metavar='NAME,...', default='ours')
    parser.add_argument('--variants', metavar='PATH',
                        help='Python file that defines METHODS')
    parser.add_argument('--protocols', metavar='NAME,...',
                        default='static,rolling')
    parser.add_argument('--saturation-kbps', type=numbers, metavar='C,...',
                        default=[22000.0, 60000.0, 180000.0])
    parser.add_argument('--overload-probability', type=numbers,
                        metavar='E,...', default=[0.01, 0.003])
    parser.add_argument('--history', choices=protocols.HISTORIES,
                        default=protocols.TRACE)
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--json', action='store_true')
    return parser.parse_args()


def chosen_methods(names, variants):
    by_name = {method.name: method for method in methods.make_methods(
        _traces.DEFAULT_LAW)}
    if variants:
        by_name.update((method.name, method)
                       for method in runpy.run_path(variants)['METHODS'])
    missing = [name for name in names.split(',') if name not in by_name]
    if missing:
        sys.exit(f'methods: {", ".join(missing)}; expected names out of '
                 f'{", ".join(by_name)}')
    return [by_name[name] for name in names.split(',')]


def replays(options, chosen, **fields):
    """Yield (protocol, case, capacity, limit, {name: Result}).

    :param fields: others of a protocols.Case
    """
    limits = list(itertools.product(options.saturation_kbps,
                                    options.overload_probability))
    loaded = {name: trace.load(os.path.join(options.traces, name))
              for name in options.months.split(',')}
    short = {name: name.rpartition('.')[0] or name for name in loaded}
    for protocol in options.protocols.split(','):
        for past, name in itertools.chain(
                ((None, name) for name in loaded),
                itertools.permutations(loaded, 2)):
            label = short[name] if past is None else \
                f'{short[past]}>{short[name]}'
            case = protocols.Case(
                loaded[name], *limits[0], past=past and loaded[past],
                protocol=protocol, history=options.history, **fields)
            for (capacity, limit), results in zip(
                    limits, protocols.evaluate_limits(
                        case, limits, chosen, options.seeds)):
                yield protocol, label, capacity, limit, results


def main():
    options = arguments()
    if not options.traces:
        print('No --traces DIR and no VSWITCH_TRACES: nothing to calibrate')
        return 0
    chosen = chosen_methods(options.methods, options.variants)
    began, rows = time.monotonic(), []
    width = max(18, *(len(method.name) + 2 for method in chosen))
    if not options.json:
        print(f'{"case":36}' + ''.join(
            f'{method.name:>{width}}' for method in chosen), flush=True)
    for protocol, label, capacity, limit, results in replays(options, chosen):
        clairvoyant = results[protocols.CLAIRVOYANT]
        text = f'{protocol} {label} {capacity:g} {limit:g}'
        line = f'{text:36}'
        for method in chosen:
            figures = results[method.name].figures(limit, clairvoyant)
            overload = figures['overload_avoidable_mean'] / limit
            hosts = figures['hosts_relative']
            rows.append({
                'protocol': protocol, 'case': label, 'method': method.name,
                'saturation_kbps': capacity, 'overload_probability': limit,
                'overload': overload, 'hosts': hosts,
                'passes': overload <= 1 and hosts <= MOST_HOSTS})
            marks = (' ' if overload <= 1 else '!') + (
                ' ' if hosts <= MOST_HOSTS else '#')
            cell = f'{overload:.2f} @ {hosts:.2f} {marks}'
            line += f'{cell:>{width}}'
        if not options.json:
            print(line, flush=True)
    seconds = time.monotonic() - began
    if options.json:
        print(json.dumps({'rows': rows, 'seconds': seconds}, indent=2))
        return 0
    print(f'\n! above the limit, # more than {MOST_HOSTS:g} x the hosts')
    for method in chosen:
        own_rows = [row for row in rows if row['method'] == method.name]
        overload = np.array([row['overload'] for row in own_rows])
        hosts = np.array([row['hosts'] for row in own_rows])
        print(f'{method.name}: {sum(row["passes"] for row in own_rows)} of '
              f'{len(own_rows)} pass')
        for what, values, most in (('overload', overload, 1),
                                   ('hosts', hosts, MOST_HOSTS)):
            print(f'    {what}: {np.count_nonzero(values <= most)} of '
                  f'{len(own_rows)}, mean {values.mean():.2f}, worst '
                  f'{values.max():.2f}')
    print(f'{seconds:.0f} s')
    return 0


if __name__ == '__main__':
    sys.exit(main())
