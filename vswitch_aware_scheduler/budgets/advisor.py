# SPDX-License-Identifier: Apache-2.0
"""Selects the moves to advise now, within limits on the number of moves.

:func:`advise` calls :func:`.relief.plan` with the instances that may move,
shortens the plan to the permitted number of moves, and explains its length.
Pure. Derivation: reference/rebalance.rst, "Plans".
"""

import dataclasses

import numpy as np

from vswitch_aware_scheduler.budgets import relief
from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.common import plain_text

__all__ = ['Advice', 'Churn', 'advise']


@dataclasses.dataclass(frozen=True)
class Churn:
    """Limits on the number of moves.

    :ivar cool_down_seconds: shortest time between two moves of an instance
    :ivar most_moves: maximum number of moves in the fleet at a time
    :ivar most_share_a_week: maximum number of moves in seven days, as a share
        of all instances
    :ivar parted_share_a_week: number of moves in seven days, as a share of all
        instances, from which on a plan relieves only hosts in debt
    """

    cool_down_seconds: float = rules.DAY_SECONDS
    most_moves: int = 10
    most_share_a_week: float = 0.25
    parted_share_a_week: float = 0.03


@dataclasses.dataclass(frozen=True)
class Advice:
    """A plan and the explanation of its length.

    :ivar moves: tuple of ReliefMove in the order of execution
    :ivar held_back: number of moves that the limits currently forbid
    :ivar reason: sentence that explains why there is no move or why moves wait
    """

    moves: tuple
    held_back: int
    reason: str


def advise(case: relief.Case, rule: relief.Rule, churn: Churn = Churn(),
           moved_at: np.ndarray | None = None, now: float = 0.0,
           lately: int | None = None) -> Advice:
    """Return the moves that are advised now.

    :param moved_at: (n,) time of the last move of each instance, seconds UTC,
        -inf: never; default: no instance was ever moved
    :param now: current time, seconds UTC
    :param lately: number of instances of the fleet that were moved in the last
        seven days; default: by ``moved_at``
    """
    count = int(case.loads.sizes.sum())
    if not case.loads.slots:
        return Advice((), 0, 'no samples: nothing can be advised')
    if moved_at is None:
        moved_at = np.full(len(case.loads.hosts), -np.inf)
    if lately is None:
        lately = int(np.count_nonzero(
            now - moved_at < 7 * rules.DAY_SECONDS))
    case = dataclasses.replace(case, constraints=dataclasses.replace(
        case.constraints, movable=case.constraints.movable
        & (now - moved_at >= churn.cool_down_seconds)))
    moves = relief.plan(
        case, rule, max(0, int(churn.parted_share_a_week * count) - lately))
    moves_left = max(0, min(churn.most_moves,
                            int(churn.most_share_a_week * count) - lately))
    # Moves that end overload only together are not divided.
    while moves_left and len(moves) > moves_left \
            and moves[moves_left].group == moves[moves_left - 1].group:
        moves_left -= 1
    advised = tuple(moves[:moves_left])
    return Advice(advised, len(moves) - len(advised),
                  _reason(case, advised, moves, churn, lately))


def _reason(case, advised, moves, churn, lately):
    loads = case.loads
    in_debt = np.flatnonzero((case.balance < 0) & (loads.sizes > 0))
    parted = [move.source for move in moves if move.parts]
    if not in_debt.size and not moves:
        return 'no host is in debt'
    hosts = plain_text.number_of(in_debt.size, 'host is', 'hosts are')
    if len(advised) < len(moves):
        return (f'{len(moves) - len(advised)} of {len(moves)} moves wait: at '
                f'most {churn.most_moves} at a time and '
                f'{churn.most_share_a_week:g} of the instances a week, of '
                f'which {lately} were moved')
    if parted:
        harmed = plain_text.number_of(
            len(set(parted)), 'host is', 'hosts are')
        text = f'one instance overloads each host alone: {harmed} affected'
        return f'{hosts} in debt; {text}' if in_debt.size else text
    if moves:
        return f'{hosts} in debt'
    on_them = np.isin(loads.hosts, in_debt)
    still = on_them & ~case.constraints.movable
    return (f'{hosts} in debt; none was overloaded beyond its limit lately '
            f'and has an instance whose move helps; '
            f'{np.count_nonzero(still)} of their '
            f'{np.count_nonzero(on_them)} instances may not move now')
