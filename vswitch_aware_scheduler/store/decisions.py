# SPDX-License-Identifier: Apache-2.0
"""Decisions: how schedulers judged the hosts for their last requests.

Decisions do not create a generation, and no other table refers to them.
"""

from collections import abc
import dataclasses
import json
import typing

import sqlalchemy as sa

from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables

__all__ = ['Decision', 'NOT_PLACED', 'NO_HOST', 'PLACED', 'count', 'purge',
           'read', 'write']

#: Outcomes of a request. PLACED: Nova selected a host. NO_HOST: VSwitchFilter
#: passed no host. NOT_PLACED: Nova selected no host for another reason.
PLACED = 'placed'
NO_HOST = 'no host'
NOT_PLACED = 'not placed'

_NUMBER_OR_NULL = (float, None)

#: Shape of the column ``body``.
_BODY = {
    'rule': str, 'hosts': int, 'admitted': int, 'refused': {str: int},
    'observed': int,
    'chosen': (None, {
        'check': (str, None), 'overload_probability': _NUMBER_OR_NULL,
        'loss_fraction': _NUMBER_OR_NULL, 'utilisation': _NUMBER_OR_NULL,
        'limit': _NUMBER_OR_NULL}),
    'nearest': [{'host': str, 'check': str, 'value': _NUMBER_OR_NULL,
                 'limit': _NUMBER_OR_NULL, 'enforced': bool, 'text': str}]}


@dataclasses.dataclass(frozen=True)
class Decision:
    """How VSwitchFilter judged the hosts for one instance.

    :ivar decision_id: 32 hexadecimal digits
    :ivar decided_at: seconds UTC, by the clock of the worker
    :ivar outcome: PLACED, NO_HOST or NOT_PLACED
    :ivar rule: the rule that gave the demand of the instance
    :ivar host: the host that Nova selected, or None
    :ivar hosts: number of hosts that were judged
    :ivar admitted: number of hosts that no check refuses
    :ivar refused: {check: number of hosts that it refuses first}; together
        with ``admitted`` these add up to ``hosts``
    :ivar observed: number of refused hosts that pass because they are only
        observed
    :ivar chosen: None, or for the host that Nova selected: {'check': check
        that refuses it or None, 'overload_probability', 'loss_fraction' and
        'utilisation' with the instance, 'limit': limit of the overload
        probability or None}
    :ivar nearest: list of the refused hosts that are nearest to fitting, each
        {'host', 'check', 'value', 'limit', 'enforced', 'text'}
    """

    decision_id: str
    decided_at: float
    decided_by: str
    request_id: str | None
    instance_uuid: str | None
    project: str | None
    flavor: str | None
    rule: str
    outcome: str
    host: str | None
    hosts: int
    admitted: int
    refused: dict[str, int]
    observed: int
    chosen: dict[str, typing.Any] | None
    nearest: list[dict[str, typing.Any]]


# body is a JSON object of the other values.
decision_table = tables.table(
    'decision', tables.key(tables.UUID, 'decision_id'),
    tables.columns(sa.Double, 'decided_at'),
    tables.columns(tables.NAME, 'decided_by'),
    tables.columns(tables.NAME, 'request_id', null=True),
    tables.columns(tables.UUID, 'instance_uuid', null=True),
    tables.columns(tables.NAME, 'project', 'flavor', null=True),
    tables.columns(tables.KIND, 'outcome'),
    tables.columns(tables.NAME, 'host', null=True),
    tables.columns(tables.TEXT, 'body'),
    indexes=('decided_at', 'instance_uuid'))

_COLUMNS = [column.name for column in decision_table.c
            if column.name != 'body']


def _row(decision):
    values = dataclasses.asdict(decision)
    row = {name: values.pop(name) for name in _COLUMNS}
    return {**packing.storable_texts(row),
            'body': json.dumps(values, allow_nan=False)}


def _of_row(row):
    return damage.checked(Decision(
        **{name: getattr(row, name) for name in _COLUMNS},
        **damage.decode(row.body, _BODY)))


def _conditions(since, values):
    columns = decision_table.c
    return [columns[name] == value for name, value in values.items()
            if value is not None] + (
                [] if since is None else [columns.decided_at >= since])


@database.reader
def read(connection: sa.Connection, /, since: float | None = None,
         limit: int | None = None, **values: str | None) -> list[Decision]:
    """Return decisions, the newest first.

    :param values: of columns; None restricts nothing
    """
    table = decision_table
    return damage.usable_records(
        connection, 'decision', connection.execute(sa.select(table).where(
            *_conditions(since, values)).order_by(
                table.c.decided_at.desc(), table.c.decision_id).limit(limit)),
        _of_row, lambda row: row.decision_id)


@database.reader
def count(connection: sa.Connection, /, **values: str | None) -> int:
    """Return the number of decisions with some values, see :func:`read`."""
    return connection.scalar(sa.select(sa.func.count()).select_from(
        decision_table).where(*_conditions(None, values)))


@database.writer
def write(connection: sa.Connection, decisions: abc.Iterable[Decision]
          ) -> None:
    """Write decisions, without retries; refused ones are in the log."""
    rows = (damage.usable(connection, 'decision', decision.decision_id, _row,
                          decision) for decision in decisions)
    sql.upsert_usable(connection, decision_table,
                      [row for row in rows if row is not None])


def purge(store: database.Database, most_decisions: int, age_seconds: float
          ) -> int:
    """Remove the oldest decisions; return their number."""
    # Selected first: in MariaDB, a DELETE that matches no row locks the gaps
    # between rows.
    ids = store.read(_expired_ids, most_decisions, age_seconds)
    if ids:
        store.write_once(sql.delete, decision_table.c.decision_id, ids)
    return len(ids)


def _expired_ids(connection, most_decisions, age_seconds):
    table = decision_table
    newest_first = (table.c.decided_at.desc(), table.c.decision_id)
    too_many = sa.select(table.c.decision_id).order_by(*newest_first).offset(
        most_decisions)
    if connection.dialect.name in ('mysql', 'mariadb'):
        # MySQL has no OFFSET without a LIMIT.
        too_many = too_many.limit(2 ** 62)
    too_old = sa.select(table.c.decision_id).where(
        table.c.decided_at < sql.now(connection) - age_seconds)
    return list(dict.fromkeys([*connection.scalars(too_old),
                               *connection.scalars(too_many)]))
