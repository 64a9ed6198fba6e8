# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage strict: manages the inventories of the strict mode."""

from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.modeler import placement_inventory as placement
from vswitch_aware_scheduler.modeler import service

__all__ = ['add_arguments']


def add_arguments(parser):
    """Add the sub-commands of ``strict``.

    :param parser: :class:`~vswitch_aware_scheduler.cmd.deferred.Parser`
    """
    output.add_list_arguments(parser.add_command(
        'show', 'print the inventories of hosts in Placement', _show), 'host')
    disable = parser.add_command(
        'disable', 'remove the inventories from Placement, together with '
                   'their allocations', _disable)
    disable.add_argument(
        '--providers', action='store_true',
        help='also remove the empty providers, in two steps: the first '
             'call detaches them, and a second call after 15 minutes '
             'removes them')


def _show(arguments, conf):
    rows = [dict(zip(('provider', 'total', 'reserved', 'used'), inventory))
            for inventory in service.make_keeper(
                arguments.all_options).inventories()]
    for row in rows:
        row['free'] = row['total'] - row['reserved'] - row['used']
    names = ['provider', 'total', 'reserved', 'used', 'free']
    output.print_list(arguments, rows, [
        output.Column(name.upper(), name) for name in names], None,
        belongs={'host': lambda row, host: row['provider'] in (
            host, f'{host}:vswitch')})
    return 0


def _disable(arguments, conf):
    if conf.strict:
        raise exceptions.InvalidInput(
            'strict in the group [vswitch_scheduler]: true; expected false. '
            'Unset the option for vswitch-modeler and nova-scheduler and '
            'restart them first: they would write the inventories again')
    removed = dict(zip(
        ('inventories', 'allocations', 'providers', 'detached'),
        service.make_keeper(arguments.all_options).remove(
            arguments.providers)))
    if output.print_answer(arguments, removed):
        return 0
    terminal.print_line(
        f'Removed {removed["inventories"]} inventories, '
        f'{removed["allocations"]} allocations and '
        f'{removed["providers"]} providers.')
    if removed['detached']:
        terminal.print_line(
            f'Detached {removed["detached"]} providers: each nova-compute '
            f'requests them for some minutes more. Repeat the command after '
            f'{placement.DETACHED_SECONDS / 60:.0f} minutes to remove them.')
    return 0
