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
        'list', 'print recent placements of schedulers, including withdrawn '
        'ones', _list), 'host')


def _list(arguments, conf):
    claims = context.open_store(conf).read_claims().claims
    column = output.Column
    output.print_list(arguments, [{
        'instance': claim.instance_uuid, 'state': claim.state,
        'host': claim.host, 'source': claim.source,
        'claimed_by': claim.claimed_by, 'claimed_at': claim.claimed_at,
        'seconds_left': claim.seconds,
        'networks': (None if claim.attachments is None
                     else claim.attachments.to_data()),
        'mean': rates.by_name(claim.law.mean.tolist(),
                              claim.law.packets_known)}
        for claim in claims], [
            column('INSTANCE', 'instance'), column('STATE', 'state'),
            column('HOST', 'host'), column('SOURCE', 'source'),
            column('BY', 'claimed_by'), column('CLAIMED', 'claimed_at_iso'),
            column('LEFT', 'seconds_left', '{:.0f}'.format)],
        'claims', 'claims; LEFT: seconds until a claim is deleted',
        belongs={'host': lambda row, host: host in (row['host'],
                                                    row['source'])})
    return 0
