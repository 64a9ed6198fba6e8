# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage evaluate: arguments and answer."""

import dataclasses
import math

from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.evaluate import closed_loop
from vswitch_aware_scheduler.evaluate import methods
from vswitch_aware_scheduler.evaluate import plots
from vswitch_aware_scheduler.evaluate import protocols
from vswitch_aware_scheduler.evaluate import strategies
from vswitch_aware_scheduler.evaluate import trace
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import model

__all__ = ['add_arguments', 'run', 'table']

_COLUMNS = ('hosts', 'hosts_relative', 'refused', 'overload_mean',
            'overload_avoidable_mean', 'overload_worst', 'hosts_above',
            'loss', 'predicted_mean')

#: Columns with --rebalance.
_MOVING = ('overload_over_limit', 'overload_over_limit_weighted',
           'overload_over_limit_worst', 'hosts', 'hosts_relative',
           'hosts_mean', 'hosts_mean_relative', 'moves_per_instance_week',
           'loss', 'migration_share')

#: Conditions of --rebalance: flag, field, name of the value, description.
_CONDITIONS = (
    ('--rebalance-period', 'period_seconds', 'SECONDS',
     'time between two rounds of migrations'),
    ('--telemetry-delay', 'delay_seconds', 'SECONDS',
     'age of the newest available samples'),
    ('--missing-samples', 'missing_share', 'SHARE',
     'share of randomly selected samples that are missing'),
    ('--failing-migrations', 'failing_share', 'SHARE',
     'share of randomly selected migrations that fail'),
    ('--migration-memory-mib', 'memory_mib', 'M',
     'data that a migration transfers, in MiB'),
    ('--migration-switch-share', 'switch_share', 'SHARE',
     'share of the switch capacity of both hosts that a running migration '
     'uses; 0: migrations have a separate network'))


def add_arguments(parser):
    """Add the arguments of the sub-command to its parser.

    :param parser: argparse parser
    """
    parser.set_defaults(function=_print)
    parser.add_argument('--trace', metavar='PATH', required=True,
                        help='recorded traffic: a file or folder in a format '
                             'of the telemetry driver "file"')
    parser.add_argument('--saturation-kbps', metavar='C', type=float,
                        required=True,
                        help='capacity of the switch of each host, egress '
                             'and ingress together, in kbit/s')
    parser.add_argument('--overload-probability', metavar='E', type=float,
                        help='limit of the overload probability (default: '
                             'the option overload_probability)')
    parser.add_argument('--host-cores', metavar='N', type=float,
                        help='cores of each host for instances; the trace '
                             'must state the cores of each instance '
                             '(default: unlimited)')
    parser.add_argument('--host-memory-mb', metavar='M', type=float,
                        help='memory of each host for instances in MB; the '
                             'trace must state the memory of each instance '
                             '(default: unlimited)')
    source = parser.add_mutually_exclusive_group()
    source.add_argument('--train-days', metavar='D', type=float,
                        help='with --protocol static: fit models to the first '
                             'D days, and evaluate on the other days '
                             '(default: half of the trace)')
    source.add_argument('--train-trace', metavar='PATH',
                        help='fit models to this trace, and evaluate on the '
                             'trace of --trace')
    parser.add_argument('--protocol', choices=protocols.PROTOCOLS,
                        default=protocols.STATIC,
                        help='static: fit models once, place all instances, '
                             'and measure the overload; rolling: instances '
                             'arrive at random times, and models are fitted '
                             'again every day (default: static)')
    parser.add_argument('--history', choices=protocols.HISTORIES,
                        default=protocols.TRACE,
                        help='with --protocol rolling: models use the samples '
                             'of an instance since the start of the trace or '
                             'since its arrival (default: trace)')
    parser.add_argument('--rebalance', action='store_true',
                        help='with --protocol rolling: also migrate '
                             'instances away from hosts with a negative error '
                             'budget, and compare with published strategies '
                             'and with no migrations')
    for flag, field, unit, text in _CONDITIONS:
        parser.add_argument(
            flag, metavar=unit, type=float,
            help=f'with --rebalance: {text} (default: '
                 f'{getattr(closed_loop.Conditions, field):g})')
    parser.add_argument('--groups', metavar='CSV',
                        help='CSV file with the columns instance, flavor and '
                             'project, for the method "prior"')
    parser.add_argument('--seeds', metavar='K', type=int, default=3,
                        help='number of random orders, over which results '
                             'are averaged (default: 3)')
    parser.add_argument('--methods', metavar='NAME,...',
                        help='compare only these methods (default: all); the '
                             'clairvoyant is always included')
    parser.add_argument('--plot-dir', metavar='DIR',
                        help='write the pictures reliability.png and '
                             'frontier.png to this directory')


def run(arguments, conf, progress=None):
    """Run the evaluation. Return the result as plain data.

    :param arguments: argparse Namespace
    :param conf: options of the group [vswitch_scheduler]
    :param progress: None, or callable(done, total)
    :raises InvalidInput: if an argument is invalid
    """
    if arguments.seeds < 1:
        raise exceptions.InvalidInput(
            f'seeds: {arguments.seeds}; expected 1 or more')
    if arguments.train_days is not None \
            and arguments.protocol == protocols.ROLLING:
        raise exceptions.InvalidInput(
            'train-days: given with the protocol rolling; expected the '
            'protocol static, because rolling learns every day')
    if arguments.train_days is not None \
            and not math.isfinite(arguments.train_days):
        raise exceptions.InvalidInput(
            f'train-days: {arguments.train_days}; expected a number above 0 '
            f'and less than the days of the trace')
    room = tuple(
        _room(flag, getattr(arguments, flag.replace('-', '_')))
        for flag in ('host-cores', 'host-memory-mb'))
    # Check this before the computation, which takes minutes.
    if arguments.plot_dir is not None:
        plots.prepare(arguments.plot_dir)
    rolling = arguments.protocol == protocols.ROLLING
    conditions = _conditions(arguments, rolling)
    selected = _methods(
        arguments.methods, conf, arguments.rebalance,
        None if arguments.groups is None
        else trace.load_groups(arguments.groups))
    limit = arguments.overload_probability
    if limit is None:
        limit = conf.overload_probability
    case = protocols.Case(
        trace.load(arguments.trace), arguments.saturation_kbps, limit,
        None if arguments.train_trace is None
        else trace.load(arguments.train_trace),
        arguments.train_days, arguments.protocol, arguments.history,
        conditions=conditions)
    if room != (math.inf, math.inf):
        case = dataclasses.replace(case, room=room, needs=trace.load_needs(
            arguments.trace, case.trace.uuids))
    results = protocols.evaluate(case, selected, arguments.seeds, progress)
    best = results[protocols.CLAIRVOYANT]
    answer = {
        'trace': arguments.trace, 'train_trace': arguments.train_trace,
        'protocol': arguments.protocol,
        'history': arguments.history if rolling else None,
        'saturation_kbps': arguments.saturation_kbps,
        'rebalance': arguments.rebalance,
        'overload_probability': limit, 'seeds': arguments.seeds,
        'instances': len(case.trace.series),
        'host_cores': arguments.host_cores,
        'host_memory_mb': arguments.host_memory_mb,
        'methods': [result.figures(limit, best)
                    for result in results.values()]}
    if arguments.rebalance:
        answer['conditions'] = dataclasses.asdict(conditions)
    if arguments.plot_dir:
        answer['pictures'] = plots.draw(arguments.plot_dir, results, limit)
    return answer


def _room(flag, value):
    if value is None:
        return math.inf
    if not 0 < value < math.inf:
        raise exceptions.InvalidInput(
            f'{flag}: {value:g}; expected a number above 0')
    return value


def _conditions(arguments, rolling):
    """Return the Conditions of --rebalance."""
    if arguments.rebalance and not rolling:
        raise exceptions.InvalidInput(
            f'rebalance: given with the protocol {arguments.protocol}; '
            f'expected --protocol rolling, in which time passes')
    values = {}
    for flag, field, _, _ in _CONDITIONS:
        value = getattr(arguments, flag[2:].replace('-', '_'))
        if value is None:
            continue
        if not arguments.rebalance:
            raise exceptions.InvalidInput(
                f'{flag[2:]}: given without --rebalance; expected both or '
                f'neither')
        values[field] = value
    return closed_loop.Conditions(**values)


def _methods(names, conf, rebalances, groups):
    default = model.TrafficModel.on_off(**options.default_demand(conf)).law
    available = methods.make_methods(default, conf.min_samples, groups)
    if rebalances:
        moving = strategies.make_rebalanced(default, conf.min_samples)
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


def table(answer):
    """Return the header and the rows of the answer as text.

    :param answer: result of :func:`run`
    """
    columns = _MOVING if answer['rebalance'] else _COLUMNS

    def cell(value):
        return '-' if value is None else f'{value:.4g}'

    return (['METHOD', *(name.upper() for name in columns)],
            [[line['method'], *(cell(line[name]) for name in columns)]
             for line in answer['methods']])


def _print(arguments, conf):
    with terminal.progress('evaluating') as progress:
        answer = run(arguments, conf, progress)
    if not output.print_answer(arguments, answer):
        terminal.print_table(*table(answer))
    return 0
