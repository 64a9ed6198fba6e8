# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage claim: prints the recent placements of schedulers."""

from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.cmd import rates

__all__ = ['add_arguments']


def add_arguments(parser):
    """Add the sub-command of ``claim``.

    :param parser: :class:`~vswitch_aware_scheduler.cmd.deferred.Parser`
    """
    output.add_list_arguments(parser.add_command(
        'list', 'print what schedulers have recently placed and withdrawn',
        _list), 'host')


def _list(arguments, conf):
    found = context.open_store(conf).read_claims().claims
    column = output.Column
    output.print_list(arguments, [{
        'instance': one.instance_uuid, 'state': one.state,
        'host': one.host, 'source': one.source,
        'claimed_by': one.claimed_by, 'claimed_at': one.claimed_at,
        'seconds_left': one.seconds,
        'networks': (None if one.attachments is None
                     else one.attachments.to_data()),
        'mean': rates.by_name(one.law.mean.tolist(), one.law.packets_known)}
        for one in found], [
            column('INSTANCE', 'instance'), column('STATE', 'state'),
            column('HOST', 'host'), column('SOURCE', 'source'),
            column('BY', 'claimed_by'), column('TOLD', 'claimed_at_iso'),
            column('LEFT', 'seconds_left', '{:.0f}'.format)],
        'claims', 'claims; seconds that they stay listed',
        belongs={'host': lambda row, host: host in (row['host'],
                                                    row['source'])})
    return 0
