# SPDX-License-Identifier: Apache-2.0
"""Decisions of schedulers: the record, and its rows on a connection.

Decisions do not create a generation, and no other table refers to them.
"""

import dataclasses
import functools
import json

import sqlalchemy as sa

from vswitch_aware_scheduler.store import claim_rows as claims
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import tables

__all__ = ['Decision', 'NOT_PLACED', 'NO_HOST', 'PLACED', 'conditions',
           'expired_ids', 'read', 'to_row']

#: Outcomes of a request. PLACED: Nova selected a host. NO_HOST: VSwitchFilter
#: passed no host. NOT_PLACED: Nova selected no host for another reason.
PLACED = 'placed'
NO_HOST = 'no host'
NOT_PLACED = 'not placed'

_MOST_NAME = 255

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
    :ivar decided_by: name of the worker
    :ivar request_id: Nova's id of the request, or None
    :ivar instance_uuid: uuid, or None
    :ivar project: id of the project, or None
    :ivar flavor: name of the flavor, or None
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
    refused: dict
    observed: int
    chosen: dict | None
    nearest: list


_COLUMNS = ('decision_id', 'decided_at', 'decided_by', 'request_id',
            'instance_uuid', 'project', 'flavor', 'outcome', 'host')


def to_row(decision):
    """Return a Decision as a row.

    :param decision: Decision
    :returns: {column: value}
    """
    values = dataclasses.asdict(decision)
    row = {name: values.pop(name) for name in _COLUMNS}
    for name, value in row.items():
        if isinstance(value, str):
            row[name] = packing.storable(value)[:_MOST_NAME]
    return {**row, 'body': json.dumps(values, allow_nan=False)}


def conditions(since, values):
    """Return the conditions of a selection as a list.

    :param since: earliest time of a decision, seconds UTC, or None
    :param values: {name of a column: required value, or None for any}
    """
    columns = tables.decision.c
    where = [columns[name] == value for name, value in values.items()
             if value is not None]
    if since is not None:
        where.append(columns.decided_at >= since)
    return where


def read(connection, where, limit, damaged):
    """Return a list of Decisions, the newest first.

    :param connection: SQLAlchemy Connection
    :param where: list of conditions
    :param limit: maximum number of decisions, or None for all
    :param damaged: {('decision', id): reason in words}, to which rows that
        cannot be read are added
    """
    table = tables.decision
    decisions = []
    for row in connection.execute(sa.select(table).where(*where).order_by(
            table.c.decided_at.desc(), table.c.decision_id).limit(limit)):
        decision = damage.usable(damaged, 'decision', row.decision_id,
                                 functools.partial(_of_row, row))
        if decision is not None:
            decisions.append(decision)
    return decisions


def _of_row(row):
    return damage.checked(Decision(
        **{name: getattr(row, name) for name in _COLUMNS},
        **damage.decode(row.body, _BODY)))


def expired_ids(connection, most_decisions, age_seconds):
    """Return the ids of the decisions that have to be removed.

    :param connection: SQLAlchemy Connection
    :param most_decisions: maximum number of decisions; the newest ones remain
    :param age_seconds: maximum age of a decision by the database's clock
    """
    table = tables.decision
    newest_first = (table.c.decided_at.desc(), table.c.decision_id)
    too_many = sa.select(table.c.decision_id).order_by(*newest_first).offset(
        most_decisions)
    if connection.dialect.name in ('mysql', 'mariadb'):
        # MySQL has no OFFSET without a LIMIT.
        too_many = too_many.limit(2 ** 62)
    too_old = sa.select(table.c.decision_id).where(
        table.c.decided_at < claims.now(connection) - age_seconds)
    return list(dict.fromkeys([*connection.scalars(too_old),
                               *connection.scalars(too_many)]))
