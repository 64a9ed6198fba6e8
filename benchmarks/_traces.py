# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks on recorded traffic share."""

import argparse
import dataclasses
import itertools
import json
import os
import sys
import time

import numpy as np

from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler import conf
from vswitch_aware_scheduler.lab.cmd import evaluate
from vswitch_aware_scheduler.lab.evaluate import protocols
from vswitch_aware_scheduler.lab.evaluate import settings as settings_of
from vswitch_aware_scheduler.lab.evaluate import trace


def settings(config_files=()):
    """Return the Settings of configuration files, by default as shipped."""
    return settings_of.EvaluationSettings.of(
        conf.read(config_files or [os.devnull])[conf.GROUP])


def add_argument(parser):
    """Add --traces, the folder where the traffic lies."""
    parser.add_argument('--traces', metavar='DIR',
                        default=os.environ.get('VSWITCH_TRACES'),
                        help='default: VSWITCH_TRACES of the environment')


def numbers(text):
    return [float(word) for word in text.split(',')]


def parser(description, methods):
    """Return a parser with the arguments of :func:`main`."""
    new = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawTextHelpFormatter)
    add_argument(new)
    new.add_argument('--months', metavar='FILE[=C/...],...',
                     default='2013-7.npz,2013-8.npz',
                     help='fleets, each evaluated alone, with capacities of '
                          'its own or those of --saturation-kbps')
    new.add_argument('--after', action='store_true',
                     help='also evaluate each fleet after each other one')
    new.add_argument('--methods', metavar='NAME,...', default=methods)
    new.add_argument('--saturation-kbps', type=numbers, metavar='C,...',
                     default=[22000.0, 60000.0, 180000.0])
    new.add_argument('--overload-probability', type=numbers, metavar='E,...',
                     default=[0.01, 0.003])
    new.add_argument('--history', choices=protocols.HISTORIES,
                     default=protocols.TRACE)
    new.add_argument('--lifetime-days', type=float, metavar='MEAN',
                     help='instances leave (default: they stay)')
    new.add_argument('--config-file', action='append', default=[],
                     metavar='PATH',
                     help='configuration (default: as shipped)')
    new.add_argument('--seeds', type=int, default=3)
    new.add_argument('--json', action='store_true')
    return new


def replays(options, chosen, half_life_days, **fields):
    """Yield rows of one protocol and fleet, for all capacities and limits.

    :param fields: others of a protocols.ReplayCase
    """
    fleets = {}
    for word in options.months.split(','):
        name, _, capacities = word.partition('=')
        fleets[name] = numbers(capacities.replace('/', ',')) if capacities \
            else options.saturation_kbps
    loaded = {name: trace.load(os.path.join(options.traces, name))
              for name in fleets}
    short = {name: os.path.splitext(os.path.basename(name))[0]
             for name in loaded}
    pairs = [(None, name) for name in loaded]
    if options.after:
        pairs += itertools.permutations(loaded, 2)
    for protocol, (past, name) in itertools.product(
            options.protocols.split(','), pairs):
        limits = list(itertools.product(fleets[name],
                                        options.overload_probability))
        case = protocols.ReplayCase(
            loaded[name], *limits[0], past=past and loaded[past],
            protocol=protocol, history=options.history,
            lifetime_days=options.lifetime_days, **fields)
        label = short[name] if past is None else f'{short[past]}>{short[name]}'
        yield [{'protocol': protocol, 'case': label,
                'saturation_kbps': capacity, 'overload_probability': limit,
                'fleet': f'{label} {capacity / 1000:g} {limit:g}',
                **result.figures(limit, results[protocols.CLAIRVOYANT])}
               for (capacity, limit), results in zip(
                   limits, protocols.evaluate_limits(
                       case, limits, chosen, options.seeds,
                       half_life_days=half_life_days))
               for result in results.values()]


def choose(available, names):
    """Return the methods that --methods names."""
    by_name = {method.name: method for method in available}
    missing = [name for name in names.split(',') if name not in by_name]
    if missing:
        sys.exit(f'methods: {", ".join(missing)}; expected names out of '
                 f'{", ".join(by_name)}')
    return [by_name[name] for name in names.split(',')]


def main(options, chosen, configured, **fields):
    """Evaluate all cases and print them. Return the rows."""
    began, rows = time.monotonic(), []
    if not options.json:
        print(evaluate.settings_text(dataclasses.asdict(configured)))
    for new in replays(options, chosen, configured.modeler_half_life_days,
                       **fields):
        rows += new
        if not options.json:
            print(f'\n{new[0]["protocol"]}')
            terminal.print_tables(evaluate.tables(new))
            sys.stdout.flush()
    seconds = time.monotonic() - began
    if options.json:
        print(json.dumps({'settings': dataclasses.asdict(configured),
                          'rows': rows, 'seconds': seconds}, indent=2))
        return rows
    print('\nMean and largest value of the cases')
    _summarise(rows)
    print(f'{seconds:.0f} s')
    return rows


def _summarise(rows):
    groups = {}
    for row in rows:
        groups.setdefault((row['protocol'], row['method']), []).append(row)
    header = ['PROTOCOL', 'METHOD', 'KEPT', *(
        title for title, _, _ in evaluate.COLUMNS)]
    for word, function in (('mean', np.mean), ('largest', np.max)):
        lines = []
        for (protocol, method), own in groups.items():
            kept = sum(row['overload_over_limit_weighted'] <= 1 + 1e-9
                       for row in own)
            values = [[row[key] for row in own if row[key] is not None]
                      for _, key, _ in evaluate.COLUMNS]
            lines.append([protocol, method, f'{kept}/{len(own)}', *(
                f'{function(of):.{digits}f}' if of else '-'
                for of, (_, _, digits) in zip(values, evaluate.COLUMNS))])
        print(word)
        terminal.print_table(header, lines)
