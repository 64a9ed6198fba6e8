# SPDX-License-Identifier: Apache-2.0
"""The command of the demo: arguments, progress, exit status."""

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import time

import numpy as np

from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.cmd import arguments as arguments_of
from vswitch_aware_scheduler.lab.demo import clouds
from vswitch_aware_scheduler.lab.demo import fleet
from vswitch_aware_scheduler.lab.demo import page
from vswitch_aware_scheduler.lab.demo import rebalancing
from vswitch_aware_scheduler.lab.demo import replay
from vswitch_aware_scheduler.lab.demo import report
from vswitch_aware_scheduler.vswitch import profile as switch_profile

#: Number of hosts in the cloud with rebalancing: one of each switch type.
_FEW_HOSTS = len(fleet.HOST_MIX)

#: Factor on the overload limit for placing, in the cloud where live migrations
#: relieve hosts.
_PLACING_TIMES = 8


def _at_least(minimum):
    def number(text):
        value = int(text)
        if not value >= minimum:
            raise argparse.ArgumentTypeError(
                f'{text}; expected {minimum} or more')
        return value
    return number


def _probability(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(
            f'{text}; expected a probability from 0 to 1')
    return value


def parser():
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog='python -m vswitch_aware_scheduler.demo',
        description="Compare three ways of placing the same VMs. A real Nova "
                    "with simulated computes places the VMs with its default "
                    "filters and weighers, with VSwitchFilter and "
                    "VSwitchWeigher, and with these on fewer hosts with live "
                    "migrations. The demo fits traffic models to the first "
                    "half of the traffic. It then replays the second half on "
                    "each placement, and prints how much each host is "
                    "overloaded.")
    top.add_argument(
        '--trace', metavar='PATH', nargs='+', default=[],
        help='recorded traffic: a GWA-T-12 file, a folder of such files, an '
             '.npz file or a plain CSV file. Each PATH is a comparison of its '
             'own. Default: traffic that is generated from the published '
             'statistics of GWA-T-12')
    arguments_of.add_options(
        top,
        ('--hosts', 'N', _at_least(len(fleet.HOST_MIX)), 'number of compute '
         'hosts (default: %(default)s)', 24),
        ('--vms', 'N', _at_least(1), 'place only the N VMs with the most '
         'traffic in the first half. Default: all VMs of a trace that have '
         'traffic, or 180 VMs with generated traffic'),
        ('--seed', 'N', _at_least(0), 'seed of the order in which VMs are '
         'placed, and of generated traffic (default: %(default)s)', 1),
        ('--overload-probability', 'P', _probability, 'overload_probability '
         'of the plugin (default: %(default)s)', 0.01),
        ('--plot', 'PATH', str, 'path of the image (default: placements.png '
         'in a temporary folder). With several traces, a number precedes the '
         'suffix'),
        ('--jobs', 'N', _at_least(1), 'number of clouds that run at the same '
         'time (default: %(default)s)', 3))
    top.add_argument(
        '--policy', choices=('probability', 'average'), default='probability',
        help='admission_policy of the plugin (default: %(default)s)')
    top.add_argument('--json', action='store_true',
                     help='print JSON instead of tables')
    return top


@contextlib.contextmanager
def _step(label):
    began = time.monotonic()
    with terminal.progress(label) as progress:
        yield progress
    _say(f'{label}: done in {time.monotonic() - began:.0f} s')


def _say(text):
    print(text, file=sys.stderr, flush=True)


def compare(arguments, trace, folder, plot_path):
    """Compare the policies on one trace. Return (numbers, lines of text)."""
    scratch = os.path.join(folder, 'scratch')
    os.makedirs(scratch)
    store_url = f'sqlite:///{os.path.join(folder, "vswitch.sqlite")}'
    source, learned = _learned(arguments, trace, scratch, store_url)
    hosts = fleet.hosts(arguments.hosts)
    memory_mb = fleet.host_memory_mb(learned.vms, len(hosts))
    usual = clouds.CloudHosts(hosts, clouds.CORES, memory_mb)
    sites = {clouds.DEFAULT: usual, clouds.OURS: usual}
    # Only a limit between 0 and 1 is a budget that can be spent.
    if 0 < arguments.overload_probability < 1:
        sites[clouds.REBALANCED] = _few_hosts(arguments, learned, folder,
                                              scratch, memory_mb)
    with _step(f'Placing {len(learned.vms)} VMs in {len(sites)} '
               f'clouds') as progress:
        placed = clouds.place_all(
            sites, learned.vms,
            {'store_url': store_url, 'admission_policy': arguments.policy,
             'overload_probability': arguments.overload_probability},
            folder, arguments.jobs, progress)
    profiles = switch_profile.profiles()

    def replayed(policy, moves):
        return replay.replay(
            placed[policy].placements, learned.rates,
            sorted(sites[policy].hosts, key=lambda host: (
                profiles[host[1]].bandwidth_kbps(), host)), profiles, moves)

    replays = {policy: replayed(policy, placement.moves)
               for policy, placement in placed.items()}
    data = {**_figures(arguments, source, learned, placed, replays),
            'rebalancing': _rebalancing(placed, replayed), 'folder': folder}
    lines = _lines(arguments, learned, sites, data, replays)
    try:
        report.plot(replays, learned.period_seconds,
                    f'{len(learned.vms)} VMs, placed {len(sites)} times '
                    f'by Nova', plot_path)
        data['plot'] = os.path.abspath(plot_path)
        lines.append(f'Plot: {data["plot"]}')
    except exceptions.InvalidInput as error:
        _say(f'No plot: {error}')
    try:
        with _step('Writing the report of the cloud with the plugin'):
            path = os.path.join(folder, 'report.html')
            page.write(path, store_url, placed[clouds.OURS].placements,
                       hosts, profiles, arguments.policy,
                       arguments.overload_probability)
        data['report'] = path
        lines.append(f'Report: {path}')
    except exceptions.InvalidInput as error:
        _say(f'No report: {error}')
    shutil.rmtree(scratch)
    lines.append(f'Configurations, logs and store: {folder}')
    return data, '\n'.join(lines)


def _learned(arguments, trace, scratch, store_url):
    """Return the description of the traffic and the Fleet of its models."""
    # Both branches draw the order of the VMs from the same stream.
    order, traffic = np.random.default_rng(arguments.seed).spawn(2)
    path, source = trace, trace and os.path.abspath(trace)
    if trace is None:
        path = os.path.join(scratch, 'generated.npz')
        with _step('Generating traffic'):
            fleet.generate_trace(path, traffic,
                                 carrying=max(180, arguments.vms or 0))
        source = f'generated from the statistics of GWA-T-12, seed ' \
                 f'{arguments.seed}'
    with _step('Reading telemetry, fitting models') as progress:
        return source, fleet.learn(path, store_url, order, arguments.vms,
                                   progress)


def _figures(arguments, source, learned, placed, replays):
    """Return the numbers of a comparison, as plain data."""
    names = {vm.uuid: vm.name for vm in learned.vms}
    return {
        'trace': source, 'seed': arguments.seed, 'vms': len(learned.vms),
        'models': learned.models, 'missing_share': learned.missing_share,
        'policy': arguments.policy,
        'overload_probability': arguments.overload_probability,
        'overload_ratio': report.overload_ratio(
            replays[clouds.DEFAULT], replays[clouds.OURS]),
        'policies': report.as_dict(replays), 'plot': None, 'report': None,
        'refusals': {policy: {names[uuid]: reason for uuid, reason
                              in placement.refusals.items()}
                     for policy, placement in placed.items()},
        'warnings': {policy: placement.warnings
                     for policy, placement in placed.items()},
        'seconds_per_boot': {policy: placement.seconds_per_boot
                             for policy, placement in placed.items()}}


def _lines(arguments, learned, sites, data, replays):
    """Return the lines of text above those of the files."""
    days = len(next(iter(learned.rates.values()))) \
        * learned.period_seconds / 86400
    usual, few = sites[clouds.OURS], sites.get(clouds.REBALANCED)
    lines = [
        f'Traffic: {data["trace"]}',
        f'{len(learned.vms)} VMs, {learned.models} models fitted to the first '
        f'half; replayed: the second half, {days:.1f} days in samples of '
        f'{learned.period_seconds:.0f} s ({100 * learned.missing_share:.1f} '
        f'% of the samples are missing and count as no traffic)',
        f'{len(usual.hosts)} hosts of {usual.cores} cores and '
        f'{usual.memory_mb // 1024} GB each; plugin: admission_policy='
        f'{arguments.policy}, overload_probability='
        f'{arguments.overload_probability:g}']
    if few is not None:
        lines.append(
            f'Rebalancing: {len(few.hosts)} hosts of {few.cores} cores and '
            f'{few.memory_mb // 1024} GB each, which are filled one after the '
            f'other to an overload probability of '
            f'{few.options["overload_probability"]:g}; live migrations keep '
            f'{arguments.overload_probability:g}, on a network of their own')
    lines += ['', report.tables(replays)]
    if few is not None:
        lines.append(_in_words(data['rebalancing'], arguments))
    for policy, refusals in data['refusals'].items():
        lines += [f'Refused, {policy}: VM {name}: {reason}'
                  for name, reason in refusals.items()]
    return lines + [f'Warning, {policy}: {text}'
                    for policy, texts in data['warnings'].items()
                    for text in texts]


def _few_hosts(arguments, learned, folder, scratch, memory_mb):
    """Return the CloudHosts with rebalancing.

    Its hosts have the cores and the memory of all others together, and its
    scheduler has a store of its own, for budgets and migrations.
    """
    path = os.path.join(folder, 'rebalanced.sqlite')
    with contextlib.closing(sqlite3.connect(
            os.path.join(folder, 'vswitch.sqlite'))) as source, \
            contextlib.closing(sqlite3.connect(path)) as copy:
        source.backup(copy)
    rates = os.path.join(scratch, 'rates.npz')
    rebalancing.write_rates(rates, learned.rates)
    store_url = f'sqlite:///{path}'
    times = arguments.hosts / _FEW_HOSTS
    return clouds.CloudHosts(
        fleet.hosts(_FEW_HOSTS), round(clouds.CORES * times),
        round(memory_mb * times), {
            'store_url': store_url, 'overload_probability': min(
                _PLACING_TIMES * arguments.overload_probability, 1)},
        {'store_url': store_url, 'rates': rates,
         'period_seconds': learned.period_seconds, 'start': learned.start,
         'overload_probability': arguments.overload_probability})


def _rebalancing(placed, replayed):
    """Return what live migrations did, as plain data, or None.

    :param placed: {policy: Placement}
    :param replayed: callable(policy, moves), returns a PlacementReplay
    """
    if clouds.REBALANCED not in placed:
        return None
    placement = placed[clouds.REBALANCED]
    summary = replayed(clouds.REBALANCED, ()).summary()
    return {
        'moves': placement.moves, 'problems': placement.problems,
        'without_migrations': {name: summary[name] for name in (
            'overloaded_samples', 'overloaded_share_mean',
            'overloaded_share_worst', 'lost_share')},
        'avoidable_share': {
            host: overload / measured if measured else 0.0
            for host, (overload, measured) in placement.budgets.items()}}


def _in_words(results, arguments):
    without = results['without_migrations']
    worst = max(results['avoidable_share'].values())
    return (
        f'Rebalancing: {len(results["moves"])} live migrations. Without '
        f'them, {without["overloaded_samples"]} overloaded host-samples, '
        f'worst host {100 * without["overloaded_share_worst"]:.3f} %. '
        f'Avoidable overload, that is of several VMs together, with them: '
        f'worst host {100 * worst:.3f} % of its time, the limit is '
        f'{100 * arguments.overload_probability:g} %.' + ''.join(
            f'\nRebalancing stopped: {text}' for text in results['problems']))


def _plot_path(arguments, number, folder):
    if arguments.plot is None:
        return os.path.join(folder, 'placements.png')
    if len(arguments.trace) < 2:
        return arguments.plot
    stem, ending = os.path.splitext(arguments.plot)
    return f'{stem}-{number}{ending}'


def main(argv: list | None = None) -> int:
    """Run the demo.

    :returns: exit status: 0 on success, 1 after an error, which is printed on
        standard error
    """
    arguments = parser().parse_args(argv)
    base = tempfile.mkdtemp(prefix='vswitch-demo-')
    compared = []
    try:
        for number, trace in enumerate(arguments.trace or [None], 1):
            folder = os.path.join(base, str(number))
            os.makedirs(folder)
            data, text = compare(arguments, trace, folder,
                                 _plot_path(arguments, number, folder))
            compared.append(data)
            if not arguments.json:
                print(f'\n{text}', flush=True)
        if arguments.json:
            print(json.dumps(compared, indent=2, allow_nan=False))
        return 0
    except KeyboardInterrupt:
        _say('interrupted')
    except (exceptions.VSwitchError, OSError, ValueError) as error:
        _say(f'demo: {" ".join(str(error).split())}')
    return 1


if __name__ == '__main__':
    sys.exit(main())
