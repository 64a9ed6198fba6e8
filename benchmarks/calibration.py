#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether hosts keep to their limit on recorded traffic, and at what cost.

Runs every case of two months of one fleet: each month by itself and each
after the other, both protocols, limits .01 and .003, three capacities. Prints
realised avoidable overload over the limit @ hosts over the clairvoyant's, and
where that is at most 1 and 1.5.

    calibration.py --traces DIR --methods ours,onoff

DIR has two traces that ``vswitch-manage evaluate`` reads. To try an estimator
write it into a file that makes METHODS, a list of evaluate.methods.Method:

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
                        help='Python file that makes METHODS')
    parser.add_argument('--protocols', metavar='NAME,...',
                        default='static,rolling')
    parser.add_argument('--saturation-kbps', type=numbers, metavar='C,...',
                        default=[22000.0, 60000.0, 180000.0])
    parser.add_argument('--overload-probability', type=numbers,
                        metavar='E,...', default=[0.01, 0.003])
    parser.add_argument('--history', choices=protocols.HISTORIES,
                        default=protocols.TRACE)
    parser.add_argument('--feedback', default=True,
                        action=argparse.BooleanOptionalAction,
                        help='ours corrects its limit by trials, in the '
                             'protocol rolling')
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--json', action='store_true')
    return parser.parse_args()


def chosen_methods(names, variants, corrects):
    known = {one.name: one for one in methods.make_methods(
        _traces.DEFAULT_LAW, corrects=corrects)}
    if variants:
        known.update((one.name, one)
                     for one in runpy.run_path(variants)['METHODS'])
    missing = [name for name in names.split(',') if name not in known]
    if missing:
        sys.exit(f'no method {", ".join(missing)}; there are '
                 f'{", ".join(known)}')
    return [known[name] for name in names.split(',')]


def replays(options, ways, **fields):
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
                        case, limits, ways, options.seeds)):
                yield protocol, label, capacity, limit, results


def main():
    options = arguments()
    if not options.traces:
        print('No --traces DIR and no VSWITCH_TRACES: nothing to calibrate')
        return 0
    ways = chosen_methods(options.methods, options.variants, options.feedback)
    began, rows = time.monotonic(), []
    width = max(18, *(len(way.name) + 2 for way in ways))
    if not options.json:
        print(f'{"case":36}' + ''.join(
            f'{way.name:>{width}}' for way in ways), flush=True)
    for protocol, label, capacity, limit, results in replays(options, ways):
        best = results[protocols.CLAIRVOYANT]
        text = f'{protocol} {label} {capacity:g} {limit:g}'
        line = f'{text:36}'
        for way in ways:
            found = results[way.name].figures(limit, best)
            overload = found['overload_avoidable_mean'] / limit
            hosts = found['hosts_relative']
            rows.append({
                'protocol': protocol, 'case': label, 'method': way.name,
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
    for way in ways:
        mine = [row for row in rows if row['method'] == way.name]
        overload = np.array([row['overload'] for row in mine])
        hosts = np.array([row['hosts'] for row in mine])
        print(f'{way.name}: {sum(row["passes"] for row in mine)} of '
              f'{len(mine)} pass')
        for what, values, most in (('overload', overload, 1),
                                   ('hosts', hosts, MOST_HOSTS)):
            print(f'    {what}: {np.count_nonzero(values <= most)} of '
                  f'{len(mine)}, mean {values.mean():.2f}, worst '
                  f'{values.max():.2f}')
    print(f'{seconds:.0f} s')
    return 0


if __name__ == '__main__':
    sys.exit(main())
