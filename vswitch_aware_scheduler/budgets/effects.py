# SPDX-License-Identifier: Apache-2.0
"""Records the effect of migrations: overload of both hosts before and after.

The overload of one day before and one day after is written to the record of a
move when the day after is measured.
"""

import numpy as np

from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.store import plans as records

__all__ = ['update']

_DAYS = 7


def update(store: model_store.Store, now: float) -> int:
    """Write the effects of the moves of the last days, if measured."""
    moves = [move for move in store.moves(
        state=records.DONE, since=now - (_DAYS - 1) * rules.DAY_SECONDS)
        if now - move.ended_at >= rules.DAY_SECONDS
        and 'overload_day_after' not in move.body]
    if not moves:
        return 0
    hosts = {host for move in moves
             for host in (move.source, move.destination)}
    sums = packed.history(store, 'host', now, hosts, _DAYS)
    for move in moves:
        sums_of_both = [sums[host] for host in (move.source, move.destination)
                        if host in sums]
        records.update_body(store, move, {
            **move.body,
            'overload_day_before': _share(
                sums_of_both, move.begun_at - rules.DAY_SECONDS,
                move.begun_at),
            'overload_day_after': _share(
                sums_of_both, move.ended_at,
                move.ended_at + rules.DAY_SECONDS)})
    return len(moves)


def _share(sums_of_hosts, start, end):
    """Return the share of known slots with avoidable overload, or None."""
    known_slots = overloaded_slots = 0
    for host_sums in sums_of_hosts:
        is_known = host_sums.known & host_sums.slots.between(start, end)
        known_slots += np.count_nonzero(is_known)
        overloaded_slots += np.count_nonzero(host_sums.overloaded & is_known)
    return overloaded_slots / known_slots if known_slots else None
