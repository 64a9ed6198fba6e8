# SPDX-License-Identifier: Apache-2.0
"""Decisions of schedulers: the record, and its rows on a connection.

Decisions make no generation, and no other table refers to them.
"""

import dataclasses
import json

import sqlalchemy as sa

from vswitch_aware_scheduler.store import claims
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import tables

__all__ = ['Decision', 'NOT_PLACED', 'NO_HOST', 'PLACED', 'expired_ids',
           'read', 'to_row']

#: What became of a request: Nova took a host; VSwitchFilter passed none; Nova
#: took none for another reason.
PLACED = 'placed'
NO_HOST = 'no host'
NOT_PLACED = 'not placed'

_MOST_NAME = 255


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
    :ivar rule: the rule that the demand of the instance is found by
    :ivar outcome: PLACED, NO_HOST or NOT_PLACED
    :ivar host: the host that Nova took, or None
    :ivar hosts: how many hosts were judged
    :ivar admitted: how many hosts no check refuses
    :ivar refused: {check: how many hosts it refuses first}; with ``admitted``
        these add up to ``hosts``
    :ivar observed: how many of the refused hosts pass, because they are only
        observed
    :ivar chosen: None, or of the host that Nova took: {'check': that refuses
        it, or None, 'overload_probability', 'loss_fraction', 'utilisation':
        with the instance, 'limit': of the overload probability, or None}
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
    """Return a Decision as a row."""
    values = dataclasses.asdict(decision)
    row = {name: values.pop(name) for name in _COLUMNS}
    for name, value in row.items():
        if isinstance(value, str):
            row[name] = packing.storable(value)[:_MOST_NAME]
    return {**row, 'body': json.dumps(values, allow_nan=False)}


def read(connection, where, limit, damaged):
    """Return a list of Decisions, the newest first.

    :param where: list of conditions
    :param limit: at most so many, None: all
    :param damaged: {('decision', id): reason in words}, to which rows that
        cannot be read are added
    """
    table = tables.decision
    found = []
    for row in connection.execute(sa.select(table).where(*where).order_by(
            table.c.decided_at.desc(), table.c.decision_id).limit(limit)):
        try:
            found.append(Decision(
                **{name: getattr(row, name) for name in _COLUMNS},
                **json.loads(row.body)))
        except (TypeError, ValueError) as error:
            damaged['decision', row.decision_id] = (
                f'decision {row.decision_id}: {error}')
    return found


def expired_ids(connection, kept, age_seconds):
    """Return the ids of the decisions that are to be removed.

    :param kept: how many decisions stay, the newest ones
    :param age_seconds: how old a decision gets, by the database's clock
    """
    table = tables.decision
    newest_first = (table.c.decided_at.desc(), table.c.decision_id)
    beyond = sa.select(table.c.decision_id).order_by(*newest_first).offset(
        kept)
    if connection.dialect.name in ('mysql', 'mariadb'):
        # There is no OFFSET without a LIMIT.
        beyond = beyond.limit(2 ** 62)
    old = sa.select(table.c.decision_id).where(
        table.c.decided_at < claims.now(connection) - age_seconds)
    return list(dict.fromkeys([*connection.scalars(old),
                               *connection.scalars(beyond)]))
