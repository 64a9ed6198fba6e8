# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage claim: prints the recent placements of schedulers."""

import argparse

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import rates
from vswitch_aware_scheduler import store

__all__ = ['List']

_column = base.Column


class List(base.List):
    """Print recent placements of schedulers, including withdrawn ones."""

    rows_key = 'claims'
    filters = ('host',)
    below = ('claims; WAIT: milliseconds that the request waited for '
             'the store; CONFLICTS: hosts that it could not claim before; '
             'MISSED: claimed without waiting for the store; LEFT: seconds '
             'until a claim is deleted')
    columns = [
        _column('INSTANCE', 'instance'), _column('STATE', 'state'),
        _column('HOST', 'host'), _column('SOURCE', 'source'),
        _column('BY', 'claimed_by'), _column('CLAIMED', 'claimed_at_iso'),
        _column('WAIT', 'waited_seconds',
                lambda seconds: f'{1e3 * seconds:.0f}'),
        _column('CONFLICTS', 'conflicts'), _column('MISSED', 'missed'),
        _column('LEFT', 'seconds_left', '{:.0f}'.format)]

    def belongs(self, row: dict, name: str, value: str) -> bool:
        """Return whether a claim is on a host, or came from it."""
        return value in (row['host'], row['source'])

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the claims that schedulers read."""
        return {'claims': [{
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
            for claim in self.store.read_claims().claims]}
