# SPDX-License-Identifier: Apache-2.0
"""The output of the demo: tables as text, numbers as JSON, a plot.

No nova; computes only shares.
"""

import numpy as np

from vswitch_aware_scheduler.lab import pictures

__all__ = ['as_dict', 'overload_ratio', 'plot', 'tables']

_COLOURS = ('#c44e52', '#2a6f97', '#55a868')

#: Value at which a share of zero is drawn on a logarithmic axis.
_FLOOR_PERCENT = 0.01


def overload_ratio(baseline, ours):
    """Return the ratio of overloaded host samples, ours to the baseline.

    :returns: float, or None if the baseline has no overload
    """
    before = baseline.summary()['overloaded_samples']
    return ours.summary()['overloaded_samples'] / before if before else None


def _table(header, rows):
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ['  '.join(cell.ljust(width) if i == 0 else cell.rjust(width)
                       for i, (cell, width) in enumerate(zip(row, widths)))
             for row in cells]
    return '\n'.join([lines[0], '  '.join('-' * width for width in widths),
                      *lines[1:]])


def _percent(share):
    return f'{100 * share:.3f} %' if share < 0.1 else f'{100 * share:.2f} %'


def _mbps(kbps):
    return f'{kbps / 1000:.1f}'


def tables(replays: dict) -> str:
    """Return both tables and the lines below them as text."""
    summaries = {policy: replay.summary()
                 for policy, replay in replays.items()}
    columns = list(summaries.values())
    rows = [(name, *(show(column) for column in columns))
            for name, show in (
                ('VMs placed', lambda s: s['vms_placed']),
                ('hosts used', lambda s: f'{s["hosts_used"]} of '
                                         f'{s["hosts"]}'),
                ('time overloaded, mean of hosts',
                 lambda s: _percent(s['overloaded_share_mean'])),
                ('time overloaded, worst host',
                 lambda s: _percent(s['overloaded_share_worst'])),
                ('overloaded host-samples',
                 lambda s: s['overloaded_samples']),
                ('traffic of the VMs placed',
                 lambda s: _percent(s['placed_traffic_share'])),
                ('  of which lost', lambda s: _percent(s['lost_share'])),
                ('traffic carried, Mbit/s',
                 lambda s: _mbps(s['carried_kbps'])),
                ('traffic carried, of the list',
                 lambda s: _percent(s['carried_traffic_share'])))]
    rows.insert(1, ('VMs refused', *(
        replay.vms - summaries[policy]['vms_placed']
        for policy, replay in replays.items())))
    rows.insert(3, ('live migrations', *(
        replay.live_migrations for replay in replays.values())))
    text = [_table(['', *replays], rows), '']
    rows = []
    for profile, kbps in next(iter(replays.values())).profiles.items():
        for policy, replay in replays.items():
            part = replay.summary(profile)
            rows.append((
                profile, _mbps(kbps), part['hosts'], policy,
                part['vms_placed'],
                _mbps(part['placed_kbps']),
                _percent(part['overloaded_share_mean']),
                _percent(part['overloaded_share_worst']),
                _percent(part['lost_share'])))
    text.append(_table(['switch type', 'Mbit/s each', 'hosts', 'policy',
                        'VMs', 'Mbit/s offered', 'overloaded', 'worst host',
                        'traffic lost'], rows))
    text.append('')
    baseline, ours = list(replays.values())[:2]
    ratio = overload_ratio(baseline, ours)
    names = list(replays)
    text.append(f'Overloaded host-samples {names[1]}: ' + (
        f'{ratio:.4f} times those of {names[0]}.' if ratio is not None else
        f'{summaries[names[1]]["overloaded_samples"]}, none with {names[0]}.'))
    text.append(
        f'Fairness: all VMs of the list send {_mbps(baseline.list_kbps)} '
        f'Mbit/s. The switches carried: ' + ', '.join(
            f'{policy} {_mbps(summaries[policy]["carried_kbps"])}'
            for policy in replays) + '. A refused VM carries nothing.')
    return '\n'.join(text)


def as_dict(replays: dict) -> dict:
    """Return all numbers as plain data for JSON."""
    return {policy: _figures(replay) for policy, replay in replays.items()}


def _figures(replay):
    summary = replay.summary()
    return {
        **summary, 'vms_refused': replay.vms - summary['vms_placed'],
        'live_migrations': replay.live_migrations,
        'list_kbps': replay.list_kbps,
        'by_switch_type': {profile: replay.summary(profile)
                           for profile in replay.profiles},
        'by_host': [{
            'host': host.host, 'profile': host.profile, 'vms': host.vms,
            'overloaded_share': host.overloaded_share,
            'offered_kbps': float(host.offered_kbps.mean()),
            'carried_kbps': float(host.carried_kbps.mean())}
            for host in replay.hosts]}


def plot(replays: dict, period_seconds: float, title: str, path: str) -> None:
    """Draw the placements into an image.

    The upper part shows how long each host is overloaded, by switch type, the
    worst host first. The lower part shows the lost traffic over time.

    :param replays: {policy: PlacementReplay}, the baseline first
    :raises InvalidInput: if matplotlib is not installed
    :raises OSError: if the file cannot be written
    """
    figure = pictures.new(figsize=(10, 8))
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    figure.suptitle(title)
    _plot_hosts(above, replays)
    _plot_losses(below, replays, period_seconds)
    figure.savefig(path, dpi=120)


def _plot_hosts(axes, replays):
    profiles = next(iter(replays.values())).profiles
    start, edges, middles = 0, [], []
    for profile in profiles:
        count = max(sum(host.profile == profile for host in replay.hosts)
                    for replay in replays.values())
        for number, (replay, colour) in enumerate(zip(replays.values(),
                                                      _COLOURS)):
            shares = sorted((100 * host.overloaded_share
                             for host in replay.hosts
                             if host.profile == profile), reverse=True)
            axes.bar(start + np.arange(len(shares))
                     + 0.8 * ((number + 0.5) / len(replays) - 0.5),
                     np.maximum(shares, _FLOOR_PERCENT), 0.76 / len(replays),
                     color=colour,
                     label=list(replays)[number] if not start else None)
        edges.append(start + count - 0.5)
        middles.append(start + count / 2 - 0.5)
        start += count
    for edge in edges[:-1]:
        axes.axvline(edge, color='0.8', linewidth=0.8)
    axes.set_yscale('log')
    axes.set_ylim(_FLOOR_PERCENT, 150)
    axes.set_yticks([0.01, 0.1, 1, 10, 100],
                    ['0', '0.1 %', '1 %', '10 %', '100 %'])
    axes.set_xlim(-0.5, start - 0.5)
    axes.set_xticks(middles, [
        f'{name}\n{_mbps(kbps)} Mbit/s' for name, kbps
        in profiles.items()])
    axes.tick_params(axis='x', length=0)
    axes.set_ylabel('time overloaded')
    axes.set_title('Each host, by switch type, the worst first', fontsize=10)
    axes.legend(loc='upper right')


def _plot_losses(axes, replays, period_seconds):
    per_bin = max(1, round(6 * 3600 / period_seconds))
    for replay, colour in zip(replays.values(), _COLOURS):
        lost = sum(host.offered_kbps - host.carried_kbps
                   for host in replay.hosts) / 1000
        whole = max(1, lost.size // per_bin)
        size = min(per_bin, lost.size)
        binned = lost[:whole * size].reshape(whole, size).mean(axis=1)
        days = np.arange(whole + 1) * size * period_seconds / 86400
        axes.stairs(binned, days, color=colour, fill=True, alpha=0.35)
        axes.stairs(binned, days, color=colour, linewidth=1.4)
    axes.set_yscale('symlog', linthresh=1)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f'{value:g}')
    axes.set_xlim(0, days[-1])
    axes.set_xlabel('days of the replayed half')
    axes.set_ylabel('traffic lost, Mbit/s')
    axes.set_title('All hosts together, means of six hours', fontsize=10)
