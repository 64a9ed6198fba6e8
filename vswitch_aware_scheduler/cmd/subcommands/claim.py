# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage claim: prints the recent placements of schedulers."""

from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.cmd import rates
from vswitch_aware_scheduler import store

__all__ = ['SUMMARY', 'add_arguments']

#: What it does.
SUMMARY = 'print the latest placements of schedulers'


def add_arguments(parser):
    """Add the sub-command of ``claim``.

    :param parser: :class:`~vswitch_aware_scheduler.cmd.deferred.Parser`
    """
    output.add_list_arguments(parser.add_command(
        'list', 'print recent placements of schedulers, including withdrawn '
        'ones', _list), 'host')


def _milliseconds(seconds):
    return f'{1e3 * seconds:.0f}'


def _yes_or_no(value):
    return 'yes' if value else 'no'


def _list(arguments, conf):
    claims = context.open_store(conf).read_claims().claims
    column = output.Column
    output.print_list(arguments, [{
        'instance': claim.instance_uuid, 'state': claim.state,
        'host': claim.host, 'source': claim.source,
        'claimed_by': claim.claimed_by, 'claimed_at': claim.claimed_at,
        'seconds_left': max(0.0, store.HELD_SECONDS - claim.age_seconds)
        if claim.state == store.CLAIMED else None,
        'waited_seconds': claim.waited_seconds,
        'conflicts': claim.conflicts, 'missed': claim.missed,
        'rule': claim.rule,
        'guaranteed': claim.guaranteed and rates.by_name(
            claim.guaranteed, True),
        'networks': (None if claim.attachments is None
                     else claim.attachments.to_data()),
        'mean': rates.by_name(claim.law.mean.tolist(),
                              claim.law.packets_known)}
        for claim in claims], [
            column('INSTANCE', 'instance'), column('STATE', 'state'),
            column('HOST', 'host'), column('SOURCE', 'source'),
            column('BY', 'claimed_by'), column('CLAIMED', 'claimed_at_iso'),
            column('WAIT', 'waited_seconds', _milliseconds),
            column('CONFLICTS', 'conflicts', '{:d}'.format),
            column('MISSED', 'missed', _yes_or_no),
            column('LEFT', 'seconds_left', '{:.0f}'.format)],
        'claims', 'claims; WAIT: milliseconds that the request waited for '
        'the store; CONFLICTS: hosts that it could not claim before; MISSED: '
        'claimed without waiting for the store; LEFT: seconds until a claim '
        'is deleted',
        belongs={'host': lambda row, host: host in (row['host'],
                                                    row['source'])})
    return 0
