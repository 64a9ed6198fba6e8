# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage evaluate: arguments and answer."""

import argparse
import dataclasses
import math
import os
import textwrap
import typing

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.cmd import arguments as arguments_of
from vswitch_aware_scheduler.lab.evaluate import closed_loop
from vswitch_aware_scheduler.lab.evaluate import methods
from vswitch_aware_scheduler.lab.evaluate import plots
from vswitch_aware_scheduler.lab.evaluate import protocols
from vswitch_aware_scheduler.lab.evaluate import settings as settings_of
from vswitch_aware_scheduler.lab.evaluate import strategies
from vswitch_aware_scheduler.lab.evaluate import trace

__all__ = ['COLUMNS', 'Evaluate', 'run', 'settings_text', 'tables']

#: Columns of a table: title, key, digits after the point.
COLUMNS = (
    ('HOURS', 'overload_over_limit_weighted', 2),
    ('WEEK', 'week_over_limit_worst', 2), ('ABOVE', 'week_hosts_above', 2),
    ('VM', 'vm_over_limit', 2), ('VM99', 'vm_over_limit_p99', 2),
    ('VMS', 'vms_above', 2), ('HOSTS', 'hosts_mean_relative', 2),
    ('FLUID', 'fluid_relative', 2), ('PEAK', 'hosts_relative', 2),
    ('MOVES', 'moves_per_instance_week', 3))

#: A line of text has at most this width, of which the names of a fleet and of
#: a method together have the second number.
_WIDTH, _NAMES_WIDTH = 100, 30

#: Conditions of --rebalance: flag, name of the value, field, description.
_CONDITIONS = (
    ('--rebalance-period', 'SECONDS', 'period_seconds',
     'time between two rounds of migrations'),
    ('--telemetry-delay', 'SECONDS', 'delay_seconds',
     'age of the newest available samples'),
    ('--missing-samples', 'SHARE', 'missing_share',
     'share of randomly selected samples that are missing'),
    ('--failing-migrations', 'SHARE', 'failing_share',
     'share of randomly selected migrations that fail'),
    ('--migration-memory-mib', 'M', 'memory_mib',
     'data that a migration transfers, in MiB'),
    ('--migration-switch-share', 'SHARE', 'switch_share',
     'share of the switch capacity of both hosts that a running migration '
     'uses; 0: migrations have a separate network'))


def _add_arguments(parser):
    parser.add_argument(
        '--trace', metavar='PATH', required=True, nargs='+', dest='traces',
        help='recorded traffic: a file or folder in a format of the telemetry '
             'driver "file"; several traces are fleets, each evaluated alone')
    parser.add_argument(
        '--saturation-kbps', metavar='C', type=float, required=True, nargs='+',
        help='capacity of the switch of each host, egress and ingress '
             'together, in kbit/s: one for all traces, or one for each')
    arguments_of.add_options(
        parser,
        ('--lifetime-days', 'MEAN', float, 'instances leave after a random '
         'time with this mean, exponentially distributed (default: instances '
         'stay)'),
        ('--overload-probability', 'E', float, 'limit of the overload '
         'probability (default: the option overload_probability)'),
        ('--host-cores', 'N', float, 'cores of each host for instances; the '
         'trace must state the cores of each instance (default: unlimited)'),
        ('--host-memory-mb', 'M', float, 'memory of each host for instances '
         'in MB; the trace must state the memory of each instance (default: '
         'unlimited)'))
    arguments_of.add_options(
        parser.add_mutually_exclusive_group(),
        ('--train-days', 'D', float, 'with --protocol static: fit models to '
         'the first D days, and evaluate on the other days (default: half of '
         'the trace)'),
        ('--train-trace', 'PATH', str, 'fit models to this trace, and '
         'evaluate on the trace of --trace'))
    parser.add_argument(
        '--protocol', choices=protocols.PROTOCOLS, default=protocols.STATIC,
        help='static: fit models once, place all instances, and measure the '
             'overload; rolling: instances arrive at random times, and models '
             'are fitted again every day (default: static)')
    parser.add_argument(
        '--history', choices=protocols.HISTORIES, default=protocols.TRACE,
        help='with --protocol rolling: models use the samples of an instance '
             'since the start of the trace or since its arrival (default: '
             'trace)')
    parser.add_argument(
        '--rebalance', action='store_true',
        help='with --protocol rolling: also migrate instances away from hosts '
             'with a negative error budget, and compare with published '
             'strategies and with no migrations')
    arguments_of.add_options(
        parser, *((flag, name, float, f'with --rebalance: {text} (default: '
                   f'{getattr(closed_loop.Conditions, field):g})')
                  for flag, name, field, text in _CONDITIONS),
        ('--groups', 'CSV', str, 'CSV file with the columns instance, flavor '
         'and project, for the method "prior"'),
        ('--seeds', 'K', int, 'number of random orders, over which results '
         'are averaged (default: 3)', 3),
        ('--methods', 'NAME,...', str, 'compare only these methods (default: '
         'all); the clairvoyant is always included'),
        ('--plot-dir', 'DIR', str, 'write the pictures reliability.png and '
         'frontier.png to this directory'))


def run(arguments: argparse.Namespace, conf: typing.Any, progress=None):
    """Run the evaluation. Return the result as plain data."""
    checks.check('seeds', arguments.seeds, checks.whole())
    if arguments.train_days is not None \
            and arguments.protocol == protocols.ROLLING:
        raise exceptions.InvalidInput(
            'train-days: given with the protocol rolling; expected the '
            'protocol static, because rolling learns every day')
    checks.check('train-days', arguments.train_days, checks.number(
        above=True, default=None))
    room = tuple(
        checks.check(flag, getattr(arguments, flag.replace('-', '_')),
                     checks.number(above=True, default=math.inf))
        for flag in ('host-cores', 'host-memory-mb'))
    # Check this before the computation, which takes minutes.
    if arguments.plot_dir is not None:
        plots.prepare(arguments.plot_dir)
    rolling = arguments.protocol == protocols.ROLLING
    settings = _settings(arguments, conf)
    limit = settings.overload_probability
    capacities = _capacities(arguments)
    conditions = _conditions(arguments, rolling)
    selected = _methods(
        arguments.methods, settings, arguments.rebalance,
        None if arguments.groups is None
        else trace.load_groups(arguments.groups))
    past = None if arguments.train_trace is None \
        else trace.load(arguments.train_trace)
    fleets, lines, pictured = [], [], {}
    for number, (path, capacity) in enumerate(
            zip(arguments.traces, capacities)):
        case = protocols.ReplayCase(
            trace.load(path), capacity, limit, past, arguments.train_days,
            arguments.protocol, arguments.history, conditions=conditions,
            lifetime_days=arguments.lifetime_days)
        if room != (math.inf, math.inf):
            case = dataclasses.replace(
                case, room=room,
                needs=trace.load_needs(path, case.trace.uuids))
        results = protocols.evaluate(
            case, selected, arguments.seeds, progress and (
                lambda done, total, number=number: progress(
                    done + number * total, total * len(capacities))),
            settings.modeler_half_life_days)
        fleet = os.path.splitext(os.path.basename(os.path.normpath(path)))[0]
        fleets.append({
            'fleet': fleet, 'trace': path, 'saturation_kbps': capacity,
            'instances': len(case.trace.series),
            'days': case.trace.times.size * case.trace.period_seconds
            / trace.DAY_SECONDS})
        lines += [{'fleet': fleet, **result.figures(
            limit, results[protocols.CLAIRVOYANT])}
            for result in results.values()]
        pictured.update((name if len(capacities) == 1 else f'{fleet} {name}',
                         result) for name, result in results.items())
    answer = {
        'settings': dataclasses.asdict(settings), 'fleets': fleets,
        'train_trace': arguments.train_trace,
        'protocol': arguments.protocol,
        'history': arguments.history if rolling else None,
        'rebalance': arguments.rebalance,
        'overload_probability': limit, 'seeds': arguments.seeds,
        'lifetime_days': arguments.lifetime_days,
        'host_cores': arguments.host_cores,
        'host_memory_mb': arguments.host_memory_mb, 'methods': lines}
    if arguments.rebalance:
        answer['conditions'] = dataclasses.asdict(conditions)
    if arguments.plot_dir:
        answer['pictures'] = plots.draw(arguments.plot_dir, pictured, limit)
    return answer


def _settings(arguments, conf):
    """Return the Settings of the configuration and of the arguments."""
    settings = settings_of.EvaluationSettings.of(conf)
    if arguments.overload_probability is None:
        return settings
    return dataclasses.replace(
        settings, overload_probability=arguments.overload_probability)


def _capacities(arguments):
    """Return the capacity of the hosts of each trace."""
    traces, capacities = arguments.traces, arguments.saturation_kbps
    if len(traces) > 1 and arguments.train_trace is not None:
        raise exceptions.InvalidInput(
            f'train-trace: given with {len(traces)} traces; expected one '
            f'trace, which it precedes')
    if len(capacities) not in (1, len(traces)):
        raise exceptions.InvalidInput(
            f'saturation-kbps: {len(capacities)} values for {len(traces)} '
            f'traces; expected one value, or one for each trace')
    return capacities * (len(traces) // len(capacities))


def _conditions(arguments, rolling):
    """Return the Conditions of --rebalance."""
    if arguments.rebalance and not rolling:
        raise exceptions.InvalidInput(
            f'rebalance: given with the protocol {arguments.protocol}; '
            f'expected --protocol rolling, in which time passes')
    values = {}
    for flag, _, field, _ in _CONDITIONS:
        value = getattr(arguments, flag[2:].replace('-', '_'))
        if value is None:
            continue
        if not arguments.rebalance:
            raise exceptions.InvalidInput(
                f'{flag[2:]}: given without --rebalance; expected both or '
                f'neither')
        values[field] = value
    return closed_loop.Conditions(**values)


def _methods(names, settings, rebalances, groups):
    available = methods.make_methods(settings, groups)
    if rebalances:
        moving = strategies.make_rebalanced(settings)
        if names is None:
            return moving
        available = moving + [method for method in available
                              if method.name not in strategies.NAMES]
    if names is None:
        return available
    requested = {name.strip() for name in names.split(',')}
    possible = [*(method.name for method in available), protocols.CLAIRVOYANT]
    for name in requested:
        if name not in possible:
            raise exceptions.InvalidInput(
                f'method: {name!r}; expected one of '
                f'{", ".join(possible)}')
    return [method for method in available if method.name in requested]


def tables(lines: list) -> list:
    """Return the tables of results as (title, header, rows) of text.

    A table is at most 100 characters wide.
    """
    def cell(value, digits):
        return '-' if value is None else f'{value:.{digits}f}'

    longest = _NAMES_WIDTH - max(len(line['method']) for line in lines)

    def rows(of):
        return [[line['fleet'][:longest], line['method'],
                 *(cell(of(line)[key], digits) for _, key, digits in COLUMNS)]
                for line in lines]

    header = ['FLEET', 'METHOD', *(title for title, _, _ in COLUMNS)]
    return [
        ('All days. HOURS, WEEK, VM, VM99: overload over E; HOSTS, PEAK: '
         'over the clairvoyant', header, rows(lambda line: line)),
        (f'Last {protocols.LAST_DAYS} days', header,
         rows(lambda line: line['last_days']))]


def settings_text(settings):
    """Return the settings of an evaluation as text of several lines."""
    return textwrap.fill(
        'Settings: ' + ', '.join(f'{name} = {value}' for name, value
                                 in settings.items()),
        _WIDTH, subsequent_indent='    ', break_on_hyphens=False)


class Evaluate(base.Command):
    """Replay recorded traffic and compare placement methods."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        _add_arguments(parser)

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the result of :func:`run`."""
        with terminal.progress('evaluating') as progress:
            return run(arguments, self.conf, progress)

    def describe(self, answer: dict) -> None:
        """Print the settings, the fleets and the methods."""
        terminal.print_text(settings_text(answer['settings']))
        for fleet in answer['fleets']:
            terminal.print_line(
                f'{fleet["fleet"]}: {fleet["instances"]} instances, '
                f'{fleet["days"]:.3g} days, hosts of '
                f'{fleet["saturation_kbps"]:g} kbit/s')
        terminal.print_line()
        terminal.print_tables(tables(answer['methods']))
