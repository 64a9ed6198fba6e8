#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures overload, hosts and live migrations by error budgets.

Evaluates the rolling cases of each fleet alone (--after: also after each other
fleet), limits .01 and .003, and three capacities. Prints the measures of
vswitch-manage evaluate --rebalance and their means over the cases. Settings
are those of a configuration, by default as shipped.

    rebalance.py --traces DIR --methods ours,none --seeds 3
"""

import dataclasses
import sys

import _traces
from vswitch_aware_scheduler.lab.evaluate import closed_loop
from vswitch_aware_scheduler.lab.evaluate import protocols
from vswitch_aware_scheduler.lab.evaluate import strategies


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
                and row['hosts_mean_relative'] is not None]
        axes.scatter([row['hosts_mean_relative'] for row in mine],
                     [max(row['overload_over_limit_weighted'], .01)
                      for row in mine],
                     marker=mark, s=28, alpha=.7, label=name)
    axes.set(xlabel='host-hours over the clairvoyant\'s', yscale='log',
             ylabel='overload of all host-hours over the limit')
    axes.legend(fontsize='small')
    picture.savefig(path, dpi=110)


def main():
    parser = _traces.parser(__doc__, ','.join(strategies.NAMES))
    for field in dataclasses.fields(closed_loop.Conditions):
        parser.add_argument(f'--{field.name.replace("_", "-")}', type=float,
                            default=field.default)
    parser.add_argument('--plot', metavar='PATH',
                        help='write a picture of overload and hosts there')
    parser.set_defaults(protocols=protocols.ROLLING)
    options = parser.parse_args()
    if not options.traces:
        print('No --traces DIR and no VSWITCH_TRACES: nothing to replay')
        return 0
    settings = _traces.settings(options.config_file)
    rows = _traces.main(
        options, _traces.choose(strategies.make_rebalanced(settings),
                                options.methods), settings,
        conditions=closed_loop.Conditions(**{
            field.name: getattr(options, field.name)
            for field in dataclasses.fields(closed_loop.Conditions)}))
    if options.plot:
        draw(options.plot, rows)
    return 0


if __name__ == '__main__':
    sys.exit(main())
