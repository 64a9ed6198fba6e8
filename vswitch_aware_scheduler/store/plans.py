# SPDX-License-Identifier: Apache-2.0
"""Plans of migrations, their moves, and the lock of rebalancing.

A plan and its moves are the audit record of rebalancing. Writing them creates
no generation. Only the process that has the lock starts moves. The lock
expires at a time of the database's clock. A move starts in a transaction that
also renews the lock, so that a process that has lost the lock starts no move.
"""

import dataclasses
import json
import typing

import sqlalchemy as sa

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import sql
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

# Times are those of the clock of the process that created the plan.
plan_table = tables.table(
    'rebalance_plan', tables.key(tables.UUID, 'plan_id'),
    tables.columns(sa.Double, 'made_at'),
    tables.columns(tables.NAME, 'made_by'),
    tables.columns(tables.KIND, 'state'),
    tables.columns(sa.Double, 'ended_at', null=True),
    tables.columns(tables.TEXT, 'reason'), indexes=('made_at',))

# body is a JSON object.
move_table = tables.table(
    'rebalance_move', tables.key(tables.UUID, 'plan_id'),
    tables.key(sa.Integer, 'position'),
    tables.columns(tables.UUID, 'instance_uuid'),
    tables.columns(tables.NAME, 'source', 'destination'),
    tables.columns(tables.KIND, 'state'),
    tables.columns(sa.Double, 'begun_at', 'ended_at', null=True),
    tables.columns(tables.TEXT, 'body'), indexes=('state', 'ended_at'))

# One row. expires_at is a time of the database's clock. token differs for each
# acquisition of the lock; it is empty if no process has the lock.
lock_table = tables.table(
    'rebalance_lock', tables.key(sa.Integer, 'id'),
    tables.columns(tables.NAME, 'holder'),
    tables.columns(tables.UUID, 'token'),
    tables.columns(sa.Double, 'expires_at'))


@dataclasses.dataclass(frozen=True)
class PlanRecord:
    """A plan that a process executes or has executed; times in seconds UTC.

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

    :ivar position: number of the move in the plan, from 0
    :ivar state: PLANNED, BEGUN, DONE, FAILED or DROPPED
    :ivar begun_at: time just before the request to Nova, seconds UTC
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
    body: dict[str, typing.Any] = dataclasses.field(default_factory=dict)


def _row(record):
    row = packing.storable_texts(dataclasses.asdict(record), 'reason')
    if 'body' in row:
        row['body'] = json.dumps(row['body'], allow_nan=False)
    return row


@database.patient_writer
def write_plan(connection: sa.Connection, plan: PlanRecord,
               moves: list[MoveRecord]) -> None:
    """Insert a plan and its moves; delete old ones."""
    table = plan_table
    connection.execute(sa.insert(table).values(_row(plan)))
    for move in moves:
        connection.execute(sa.insert(move_table).values(_row(move)))
    old_plans = connection.scalars(sa.select(table.c.plan_id).where(
        table.c.ended_at < plan.made_at - KEPT_SECONDS)).all()
    for column in (move_table.c.plan_id, table.c.plan_id):
        connection.execute(sa.delete(column.table).where(
            column.in_(old_plans)))


@database.reader
def read_plans(connection: sa.Connection, state: str | None = None,
               limit: int | None = None) -> list[PlanRecord]:
    """Return plans, the newest first; ``None`` restricts nothing."""
    table = plan_table
    query = sa.select(table).order_by(
        table.c.made_at.desc(), table.c.plan_id).limit(limit)
    if state is not None:
        query = query.where(table.c.state == state)
    return damage.usable_records(
        connection, 'plan', connection.execute(query),
        lambda row: damage.checked(PlanRecord(**row._mapping)),
        lambda row: row.plan_id)


@database.reader
def read_moves(connection: sa.Connection, plan_id: str | None = None,
               state: str | None = None, since: float | None = None
               ) -> list[MoveRecord]:
    """Return moves, the newest plan first; ``None`` restricts nothing.

    :param since: only moves that ended at this time or later, seconds UTC
    """
    table, plan = move_table, plan_table
    query = sa.select(table).join(
        plan, plan.c.plan_id == table.c.plan_id).order_by(
            plan.c.made_at.desc(), table.c.plan_id, table.c.position)
    for column, value in ((table.c.plan_id, plan_id), (table.c.state, state)):
        if value is not None:
            query = query.where(column == value)
    if since is not None:
        query = query.where(table.c.ended_at >= since)

    def name(row):
        return f'{row.plan_id}/{row.position}'

    # A move without its body is returned anyway: other columns have the
    # essential data.
    return damage.usable_records(
        connection, 'move', connection.execute(query),
        lambda row: damage.checked(MoveRecord(**{
            **row._mapping, 'body': damage.usable(
                connection, 'move', name(row), damage.decode, row.body,
                dict) or {}})), name)


@database.patient_writer
def begin_move(connection: sa.Connection, move: MoveRecord, token: str,
               lease_seconds: float, now: float) -> None:
    """Write that a move starts, and renew the lock.

    :param lease_seconds: time until the lock expires
    :raises StoreChanged: when the caller has lost the lock, or the move is no
        longer planned
    """
    if not keep_lock(connection, token, lease_seconds):
        raise exceptions.StoreChanged(
            thing='holder of the lock of rebalancing')
    if not _update_move(connection, move, {'state': BEGUN, 'begun_at': now},
                        move_table.c.state == PLANNED):
        raise exceptions.StoreChanged(
            thing=f'state of move {move.position} of plan {move.plan_id}')


def _update_move(connection, move, values, *conditions):
    table = move_table
    return connection.execute(sa.update(table).where(
        table.c.plan_id == move.plan_id, table.c.position == move.position,
        *conditions).values(**values)).rowcount


@database.patient_writer
def end_move(connection: sa.Connection, move: MoveRecord, state: str,
             now: float, body: dict[str, typing.Any]) -> None:
    """Write how a move ended, or PLANNED if it never started."""
    _update_move(connection, move, {
        'state': state, 'body': json.dumps(body, allow_nan=False), **(
            {'ended_at': None, 'begun_at': None} if state == PLANNED
            else {'ended_at': now})})


@database.patient_writer
def update_body(connection: sa.Connection, move: MoveRecord,
                body: dict[str, typing.Any]) -> None:
    """Replace the other data of a move, which JSON can represent."""
    _update_move(connection, move, {
        'body': json.dumps(body, allow_nan=False)})


@database.patient_writer
def end_plan(connection: sa.Connection, plan_id: str, state: str, reason: str,
             now: float) -> None:
    """Write how a plan ended. Moves that did not start are dropped."""
    connection.execute(sa.update(plan_table).where(
        plan_table.c.plan_id == plan_id).values(
            state=state, reason=packing.storable(reason), ended_at=now))
    connection.execute(sa.update(move_table).where(
        move_table.c.plan_id == plan_id,
        move_table.c.state == PLANNED).values(state=DROPPED, ended_at=now))


def _locked_now(connection):
    """Lock the row of the lock and return the time of the database.

    It writes first: SQLite can reject a write after a read.
    """
    connection.execute(sa.update(lock_table).values(id=1))
    return sql.now(connection)


@database.patient_writer
def take_lock(connection: sa.Connection, holder: str, token: str,
              lease_seconds: float) -> str | None:
    """Acquire the lock of rebalancing.

    After the clock of the database was set back, a lock may expire later than
    any new lock. Such a lock is ignored. If its holder still runs, it starts
    no more moves, because the lock then has another token.

    :param token: 32 hexadecimal digits, different for each acquisition
    :param lease_seconds: time until the lock expires
    :returns: None, or the name of the other process that has the lock
    """
    table = lock_table
    now = _locked_now(connection)
    is_free = (table.c.expires_at <= now) | (
        table.c.expires_at > now + 2 * lease_seconds) | (
            table.c.token == token)
    if connection.execute(sa.update(table).where(is_free).values(
            holder=packing.storable(holder)[:255], token=token,
            expires_at=now + lease_seconds)).rowcount:
        return None
    return connection.scalar(sa.select(table.c.holder))


@database.patient_writer
def keep_lock(connection: sa.Connection, token: str, lease_seconds: float
              ) -> bool:
    """Renew the lock, and return False if the caller has lost it."""
    now = _locked_now(connection)
    return bool(connection.execute(sa.update(lock_table).where(
        lock_table.c.token == token).values(
            expires_at=now + lease_seconds)).rowcount)


@database.patient_writer
def release_lock(connection: sa.Connection, token: str) -> None:
    """Release the lock, if the caller has it."""
    connection.execute(sa.update(lock_table).where(
        lock_table.c.token == token).values(
            holder='', token='', expires_at=0.0))
