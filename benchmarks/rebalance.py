#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What live migrations by error budgets bring on recorded traffic.

Runs the 24 rolling cases of two months of one fleet: each month by itself and
each after the other, limits .01 and .003, three capacities. Prints for each
method avoidable overload over the limit (mean of the hosts, all hosts
together, the worst host), hosts over the clairvoyant's (peak, mean over time),
moves per instance and week, loss, and the share of all traffic that
migrations are. Then how many cases keep to the bars.

    rebalance.py --traces DIR --methods ours,none --seeds 3
"""

import argparse
import dataclasses
import json
import sys
import time

import numpy as np

import _traces
import calibration
from vswitch_aware_scheduler.evaluate import closed_loop
from vswitch_aware_scheduler.evaluate import protocols
from vswitch_aware_scheduler.evaluate import strategies

COLUMNS = ('overload_over_limit', 'overload_over_limit_weighted',
           'overload_over_limit_worst', 'hosts_relative',
           'hosts_mean_relative', 'moves_per_instance_week', 'loss',
           'migration_share')

HEADER = ('O/E', 'O/E all', 'O/E worst', 'peak', 'mean', 'moves', 'loss',
          'traffic')

#: (column, largest value that keeps to it), of single cases.
BARS = (('overload_over_limit', 1.0), ('overload_over_limit', 1.05),
        ('overload_over_limit_weighted', 1.0),
        ('overload_over_limit_worst', 1.0), ('hosts_relative', 1.25),
        ('hosts_relative', 1.45), ('moves_per_instance_week', .15))


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    _traces.add_argument(parser)
    parser.add_argument('--months', metavar='FILE,FILE',
                        default='2013-7.npz,2013-8.npz')
    parser.add_argument('--methods', metavar='NAME,...',
                        default=','.join(strategies.NAMES))
    parser.add_argument('--saturation-kbps', type=calibration.numbers,
                        metavar='C,...', default=[22000.0, 60000.0, 180000.0])
    parser.add_argument('--overload-probability', type=calibration.numbers,
                        metavar='E,...', default=[0.01, 0.003])
    parser.add_argument('--history', choices=protocols.HISTORIES,
                        default=protocols.TRACE)
    for field in dataclasses.fields(closed_loop.Conditions):
        parser.add_argument(f'--{field.name.replace("_", "-")}', type=float,
                            default=field.default)
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--plot', metavar='PATH',
                        help='write a picture of overload and hosts there')
    parser.set_defaults(protocols=protocols.ROLLING)
    return parser.parse_args()


def cells(values):
    return ''.join('         -' if value is None else f'{value:10.3f}'
                   for value in values)


def draw(path, rows):
    """Write a picture: a mark for each case and method."""
    from matplotlib import figure
    picture = figure.Figure(figsize=(8, 4.5), layout='constrained')
    axes = picture.add_subplot()
    axes.axhline(1.0, color='grey', linestyle=':', linewidth=1)
    axes.axvline(1.0, color='grey', linestyle=':', linewidth=1)
    for name, mark in zip(dict.fromkeys(row['method'] for row in rows),
                          'osD^vP'):
        mine = [row for row in rows if row['method'] == name
                and row['hosts_relative'] is not None]
        axes.scatter([row['hosts_relative'] for row in mine],
                     [max(row['overload_over_limit'], .01) for row in mine],
                     marker=mark, s=28, alpha=.7, label=name)
    axes.set(xlabel='peak hosts over the clairvoyant\'s', yscale='log',
             ylabel='avoidable overload over the limit')
    axes.legend(fontsize='small')
    picture.savefig(path, dpi=110)


def main():
    options = arguments()
    if not options.traces:
        print('No --traces DIR and no VSWITCH_TRACES: nothing to replay')
        return 0
    known = {one.name: one for one in strategies.make_rebalanced(
        _traces.DEFAULT_LAW)}
    names = options.methods.split(',')
    missing = [name for name in names if name not in known]
    if missing:
        sys.exit(f'no method {", ".join(missing)}; there are '
                 f'{", ".join(known)}')
    conditions = closed_loop.Conditions(**{
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(closed_loop.Conditions)})
    began, rows = time.monotonic(), []
    if not options.json:
        print(f'{"case":28}{"method":18}'
              + ''.join(f'{name:>10}' for name in HEADER), flush=True)
    for _, label, capacity, limit, results in calibration.replays(
            options, [known[name] for name in names], conditions=conditions):
        best = results[protocols.CLAIRVOYANT]
        for name in [*names, protocols.CLAIRVOYANT]:
            line = results[name].figures(limit, best)
            rows.append({'case': label, 'saturation_kbps': capacity,
                         'overload_probability': limit, **line})
            if not options.json:
                print(f'{f"{label} {capacity:g} {limit:g}":28}{name:18}'
                      + cells(line[column] for column in COLUMNS),
                      flush=True)
    seconds = time.monotonic() - began
    if options.plot:
        draw(options.plot, rows)
    if options.json:
        print(json.dumps({'rows': rows, 'seconds': seconds}, indent=2))
        return 0
    for name in [*names, protocols.CLAIRVOYANT]:
        mine = [row for row in rows if row['method'] == name]
        # Where the clairvoyant needs no host there is nothing to compare.
        values = {column: np.array([row[column] for row in mine
                                    if row[column] is not None])
                  for column in COLUMNS}
        print(f'\n{name}, {len(mine)} cases')
        for title, of in (('mean', np.mean), ('largest', np.max)):
            print(f'    {title:10}' + ' ' * 32 + cells(
                of(values[column]) if len(values[column]) else None
                for column in COLUMNS))
        for column, most in BARS:
            kept = np.count_nonzero(values[column] <= most * (1 + 1e-9))
            print(f'    {column} <= {most:g}: {kept}')
    print(f'{seconds:.0f} s')
    return 0


if __name__ == '__main__':
    sys.exit(main())
