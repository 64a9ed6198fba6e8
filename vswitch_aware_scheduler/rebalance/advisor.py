# SPDX-License-Identifier: Apache-2.0
"""Which moves to advise now: relief within what the fleet bears.

:func:`advise` calls :func:`.relief.plan` with the instances that may move,
cuts the plan to what churn allows and says why it is as short as it is. Pure.

Derivation: reference/rebalance.rst, "Advice".
"""

import dataclasses

import numpy as np

from vswitch_aware_scheduler.rebalance import budget
from vswitch_aware_scheduler.rebalance import relief

__all__ = ['Advice', 'Churn', 'NEVER', 'advise', 'marked']

#: Metadata by which an instance is never moved.
MARK, NEVER = 'vswitch:migrate', 'never'


@dataclasses.dataclass(frozen=True)
class Churn:
    """How many moves the fleet bears.

    :ivar cool_down_seconds: an instance is not moved again before
    :ivar most_moves: of the fleet at a time
    :ivar most_share_a_week: of all instances, moves of seven days
    """

    cool_down_seconds: float = budget.DAY_SECONDS
    most_moves: int = 10
    most_share_a_week: float = 0.25


@dataclasses.dataclass(frozen=True)
class Advice:
    """A plan and why it is not longer.

    :ivar moves: tuple of :class:`.relief.Move`, in the order to do them
    :ivar held_back: moves that churn forbids now
    :ivar reason: sentence; says why there is no move, or what holds back
    """

    moves: tuple
    held_back: int
    reason: str


def marked(metadata):
    """Return whether metadata forbid to move an instance.

    :param metadata: mapping of an instance's metadata; case and blanks of the
        value do not count
    """
    return str((metadata or {}).get(MARK, '')).strip().lower() == NEVER


def advise(loads, balance, terms, rule, recent, constraints, empty=(),
           churn=Churn(), moved_at=None, now=0.0):
    """Return the :class:`Advice` for a snapshot.

    :param churn: Churn
    :param moved_at: (n,) seconds UTC at which each instance was moved last,
        -inf: never; default: none ever was
    :param now: seconds UTC
    The other parameters are those of :func:`.relief.plan`.
    """
    count = int(np.count_nonzero(loads.hosts >= 0))
    if not loads.slots:
        return Advice((), 0, 'no samples: nothing can be advised')
    if moved_at is None:
        moved_at = np.full(len(loads.hosts), -np.inf)
    resting = now - moved_at < churn.cool_down_seconds
    allowed = constraints.copy()
    allowed.movable = constraints.movable & ~resting
    moves = relief.plan(loads, balance, terms, rule, recent, allowed, empty)
    lately = int(np.count_nonzero(now - moved_at < 7 * budget.DAY_SECONDS))
    left = max(0, min(churn.most_moves,
                      int(churn.most_share_a_week * count) - lately))
    kept = tuple(moves[:left])
    return Advice(kept, len(moves) - len(kept), _reason(
        loads, balance, kept, moves, resting, constraints, churn, lately))


def _reason(loads, balance, kept, moves, resting, constraints, churn, lately):
    in_debt = np.flatnonzero((balance < 0) & (loads.sizes > 0))
    if not in_debt.size:
        return 'no host is in debt'
    if len(kept) < len(moves):
        return (f'{len(moves) - len(kept)} of {len(moves)} moves wait: at '
                f'most {churn.most_moves} at a time and '
                f'{churn.most_share_a_week:g} of the instances a week, of '
                f'which {lately} were moved')
    if moves:
        return f'{in_debt.size} hosts are in debt'
    on_them = np.isin(loads.hosts, in_debt)
    still = on_them & ~(constraints.movable & ~resting)
    return (f'{in_debt.size} hosts are in debt; none was overloaded of late '
            f'beyond its limit and has an instance whose move helps; '
            f'{np.count_nonzero(still)} of their '
            f'{np.count_nonzero(on_them)} instances may not move now')
