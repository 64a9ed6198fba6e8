# SPDX-License-Identifier: Apache-2.0
"""Plans of migrations, their moves and the lock of rebalancing, with rows.

A plan and its moves are the audit record of rebalancing. Writing them creates
no generation. Only the process that has the lock starts moves. The lock
expires at a time of the database's clock. A move starts in a transaction that
also renews the lock, so that a process that has lost the lock starts no move.
"""

import dataclasses
import functools
import json

import sqlalchemy as sa

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import claim_rows
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import tables

__all__ = ['ABANDONED', 'BEGUN', 'DESTINATION', 'DONE', 'DROPPED', 'FAILED',
           'INCOMPLETE', 'INSTANCE', 'MIGRATION', 'MoveRecord', 'PLANNED',
           'PlanRecord', 'RESTS', 'RUNNING', 'begin_move', 'end_move',
           'end_plan', 'keep_lock', 'read_moves', 'read_plans',
           'release_lock', 'take_lock', 'update_body', 'write_plan']

#: States of a plan. DONE: all moves were made. INCOMPLETE: some were not.
#: ABANDONED: it was interrupted and is too old to continue.
RUNNING, INCOMPLETE, ABANDONED = 'running', 'incomplete', 'abandoned'

#: States of a move. DONE is also a state of a plan. DROPPED: it never started.
PLANNED, BEGUN, DONE, FAILED, DROPPED = (
    'planned', 'begun', 'done', 'failed', 'dropped')

#: What rests after a move that failed or never started, in the key ``rests``
#: of its body. INSTANCE: the instance is not moved for an hour. DESTINATION:
#: it is not moved to this destination for an hour. MIGRATION: it is not moved
#: for the time after a move, and nothing is moved to the destination for an
#: hour.
RESTS = INSTANCE, DESTINATION, MIGRATION = (
    'instance', 'destination', 'migration')

#: How long, in seconds, plans are kept after their end.
KEPT_SECONDS = 180 * 86400.0

_MOST_NAME = 255


@dataclasses.dataclass(frozen=True)
class PlanRecord:
    """A plan that a process executes or has executed.

    :ivar plan_id: uuid
    :ivar made_at: time of the creation, seconds UTC
    :ivar made_by: name of the process that created the plan
    :ivar state: RUNNING, DONE, INCOMPLETE or ABANDONED
    :ivar ended_at: end of the plan, seconds UTC, or None
    :ivar reason: why the plan has these moves or why it ended, a sentence
    """

    plan_id: str
    made_at: float
    made_by: str
    state: str = RUNNING
    ended_at: float | None = None
    reason: str = ''


@dataclasses.dataclass(frozen=True)
class MoveRecord:
    """One migration of a plan.

    :ivar plan_id: uuid of the plan
    :ivar position: number of the move in the plan, from 0
    :ivar instance_uuid: uuid of the instance to move
    :ivar source: name of the host that the instance leaves
    :ivar destination: name of the host that the instance moves to
    :ivar state: PLANNED, BEGUN, DONE, FAILED or DROPPED
    :ivar begun_at: time just before the request to Nova, seconds UTC, or None
    :ivar ended_at: end of the move, seconds UTC, or None
    :ivar body: dictionary that JSON can represent: expectation, course and
        result of the move
    """

    plan_id: str
    position: int
    instance_uuid: str
    source: str
    destination: str
    state: str = PLANNED
    begun_at: float | None = None
    ended_at: float | None = None
    body: dict = dataclasses.field(default_factory=dict)


def _row(record):
    row = dataclasses.asdict(record)
    for name, value in row.items():
        if isinstance(value, str):
            value = packing.storable(value)
            row[name] = value if name == 'reason' else value[:_MOST_NAME]
    if 'body' in row:
        row['body'] = json.dumps(row['body'], allow_nan=False)
    return row


def write_plan(connection, plan, moves):
    """Insert a PlanRecord and its MoveRecords; delete old ones.

    :param connection: SQLAlchemy Connection within a transaction
    :param plan: PlanRecord
    :param moves: list of MoveRecord
    """
    table = tables.rebalance_plan
    connection.execute(sa.insert(table).values(_row(plan)))
    for move in moves:
        connection.execute(sa.insert(tables.rebalance_move).values(
            _row(move)))
    old_plans = connection.scalars(sa.select(table.c.plan_id).where(
        table.c.ended_at < plan.made_at - KEPT_SECONDS)).all()
    for column in (tables.rebalance_move.c.plan_id, table.c.plan_id):
        connection.execute(sa.delete(column.table).where(
            column.in_(old_plans)))


def read_plans(connection, state, limit, damaged):
    """Return a list of PlanRecords, the newest first.

    :param connection: SQLAlchemy Connection within a transaction
    :param state: state of the plans, or None for all
    :param limit: maximum number of plans, or None for all
    :param damaged: {('plan', id): reason in words}, to which rows that cannot
        be read are added
    """
    table = tables.rebalance_plan
    query = sa.select(table).order_by(
        table.c.made_at.desc(), table.c.plan_id).limit(limit)
    if state is not None:
        query = query.where(table.c.state == state)
    plans = [damage.usable(damaged, 'plan', row.plan_id, functools.partial(
        _checked, PlanRecord, row._mapping))
        for row in connection.execute(query)]
    return [plan for plan in plans if plan is not None]


def _checked(record_class, values):
    return damage.checked(record_class(**values))


def read_moves(connection, plan_id, state, since, damaged):
    """Return a list of MoveRecords, the newest plan first.

    :param connection: SQLAlchemy Connection within a transaction
    :param plan_id: only moves of this plan; None: of all plans
    :param state: only moves in this state; None: all
    :param since: only moves that ended at this time or later, seconds UTC;
        None: all
    :param damaged: {('move', id): reason in words}, to which rows that cannot
        be read are added
    """
    table, plan = tables.rebalance_move, tables.rebalance_plan
    query = sa.select(table).join(
        plan, plan.c.plan_id == table.c.plan_id).order_by(
            plan.c.made_at.desc(), table.c.plan_id, table.c.position)
    for column, value in ((table.c.plan_id, plan_id), (table.c.state, state)):
        if value is not None:
            query = query.where(column == value)
    if since is not None:
        query = query.where(table.c.ended_at >= since)
    moves = []
    for row in connection.execute(query):
        name = f'{row.plan_id}/{row.position}'
        # A move without its body is returned anyway: other columns have the
        # essential data.
        body = damage.usable(damaged, 'move', name, functools.partial(
            damage.decode, row.body, dict)) or {}
        move = damage.usable(damaged, 'move', name, functools.partial(
            _checked, MoveRecord, {**row._mapping, 'body': body}))
        if move is not None:
            moves.append(move)
    return moves


def begin_move(connection, move, token, lease_seconds, now):
    """Write that a move starts, and renew the lock.

    :param connection: SQLAlchemy Connection within a transaction
    :param move: MoveRecord
    :param token: token of the lock that the caller has
    :param lease_seconds: time until the lock expires
    :param now: current time, seconds UTC
    :raises StoreChanged: when the caller has lost the lock, or the move is no
        longer planned
    """
    if not keep_lock(connection, token, lease_seconds):
        raise exceptions.StoreChanged(
            'lock of rebalancing: held by another process; expected it held '
            'by this one')
    table = tables.rebalance_move
    if not connection.execute(sa.update(table).where(
            table.c.plan_id == move.plan_id,
            table.c.position == move.position,
            table.c.state == PLANNED).values(
                state=BEGUN, begun_at=now)).rowcount:
        raise exceptions.StoreChanged(
            f'move {move.position} of plan {move.plan_id}: has begun or '
            f'ended already; expected a move that has not begun')


def end_move(connection, move, state, now, body):
    """Write how a move ended, or PLANNED if it never started.

    :param connection: SQLAlchemy Connection within a transaction
    :param move: MoveRecord
    :param state: new state
    :param now: current time, seconds UTC
    :param body: dictionary that JSON can represent
    """
    table = tables.rebalance_move
    values = {'state': state, 'body': json.dumps(body, allow_nan=False),
              'ended_at': None if state == PLANNED else now}
    if state == PLANNED:
        values['begun_at'] = None
    connection.execute(sa.update(table).where(
        table.c.plan_id == move.plan_id,
        table.c.position == move.position).values(**values))


def update_body(connection, move, body):
    """Replace the other data of a move.

    :param connection: SQLAlchemy Connection within a transaction
    :param move: MoveRecord
    :param body: dictionary that JSON can represent
    """
    table = tables.rebalance_move
    connection.execute(sa.update(table).where(
        table.c.plan_id == move.plan_id,
        table.c.position == move.position).values(
            body=json.dumps(body, allow_nan=False)))


def end_plan(connection, plan_id, state, reason, now):
    """Write how a plan ended. Moves that did not start are dropped.

    :param connection: SQLAlchemy Connection within a transaction
    :param plan_id: id of the plan
    :param state: new state
    :param reason: sentence
    :param now: current time, seconds UTC
    """
    table, moves = tables.rebalance_plan, tables.rebalance_move
    connection.execute(sa.update(table).where(
        table.c.plan_id == plan_id).values(
            state=state, reason=packing.storable(reason), ended_at=now))
    connection.execute(sa.update(moves).where(
        moves.c.plan_id == plan_id, moves.c.state == PLANNED).values(
            state=DROPPED, ended_at=now))


# The lock of rebalancing

def _locked_now(connection):
    """Lock the row of the lock and return the time of the database.

    The function writes first, because SQLite can reject a write in a
    transaction that started with a read.
    """
    connection.execute(sa.update(tables.rebalance_lock).values(id=1))
    return claim_rows.now(connection)


def take_lock(connection, holder, token, lease_seconds):
    """Acquire the lock of rebalancing.

    After the clock of the database was set back, a lock may expire later than
    any new lock. Such a lock is ignored. If its holder still runs, it starts
    no more moves, because the lock then has another token.

    :param connection: SQLAlchemy Connection within a transaction
    :param holder: name of the process, for messages
    :param token: 32 hexadecimal digits, different for each acquisition
    :param lease_seconds: time until the lock expires
    :returns: None, or the name of the other process that has the lock
    """
    table = tables.rebalance_lock
    now = _locked_now(connection)
    is_free = (table.c.expires_at <= now) | (
        table.c.expires_at > now + 2 * lease_seconds) | (
            table.c.token == token)
    if connection.execute(sa.update(table).where(is_free).values(
            holder=packing.storable(holder)[:_MOST_NAME], token=token,
            expires_at=now + lease_seconds)).rowcount:
        return None
    return connection.scalar(sa.select(table.c.holder))


def keep_lock(connection, token, lease_seconds):
    """Renew the lock of rebalancing.

    :param connection: SQLAlchemy Connection within a transaction
    :param token: token of the lock that the caller has
    :param lease_seconds: time until the lock expires
    :returns: True, or False if the caller has lost the lock
    """
    table = tables.rebalance_lock
    now = _locked_now(connection)
    return bool(connection.execute(sa.update(table).where(
        table.c.token == token).values(
            expires_at=now + lease_seconds)).rowcount)


def release_lock(connection, token):
    """Release the lock, if the caller has it.

    :param connection: SQLAlchemy Connection within a transaction
    :param token: token of the lock that the caller has
    """
    table = tables.rebalance_lock
    connection.execute(sa.update(table).where(
        table.c.token == token).values(holder='', token='', expires_at=0.0))
