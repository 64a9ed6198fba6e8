# SPDX-License-Identifier: Apache-2.0
"""Rows about the fleet and about the workers of schedulers.

The modeler writes aggregates, flavors and the policies in force; commands read
them. Each worker of a scheduler writes its own state. Schedulers read none of
these rows, so that they create no generation.
"""

import json

import sqlalchemy as sa

from vswitch_aware_scheduler.store import service_records
from vswitch_aware_scheduler.store import tables

__all__ = ['WORKER_SECONDS', 'changes', 'modelers', 'read', 'worker_row',
           'workers']

#: How long, in seconds, the state of a worker is kept after its last report.
WORKER_SECONDS = 86400


def read(connection, kind, damaged):
    """Return the :class:`~.FleetFacts` of a kind.

    :param connection: SQLAlchemy Connection
    :param kind: one of :data:`.FLEET_KINDS`
    :param damaged: {(kind, name): reason in words}, to which rows that cannot
        be read are added
    """
    table, times = tables.fleet_fact, tables.fleet_reading
    facts = {}
    for name, text in connection.execute(sa.select(
            table.c.name, table.c.value).where(table.c.kind == kind)):
        try:
            facts[name] = _dictionary(text)
        except ValueError as error:
            damaged[f'fleet {kind}', name] = (
                f'{kind} {name}: its stored facts are damaged: {error}')
    return service_records.FleetFacts(facts, connection.scalar(sa.select(
        times.c.read_at).where(times.c.kind == kind)))


def changes(connection, kind, facts):
    """Compare facts about the fleet with the stored rows.

    :param connection: SQLAlchemy Connection
    :param kind: one of :data:`.FLEET_KINDS`
    :param facts: {name: dictionary}, all present facts of this kind
    :returns: (rows to write, names of rows to delete)
    """
    table = tables.fleet_fact
    texts = {name: json.dumps(value, sort_keys=True, allow_nan=False)
             for name, value in facts.items()}
    stored_texts = dict(connection.execute(sa.select(
        table.c.name, table.c.value).where(table.c.kind == kind)).all())
    return ([{'kind': kind, 'name': name, 'value': text}
             for name, text in texts.items()
             if stored_texts.get(name) != text],
            [name for name in stored_texts if name not in texts])


def workers(connection, damaged):
    """Return a list of :class:`~.Worker`, sorted by host and start.

    :param connection: SQLAlchemy Connection
    :param damaged: {('worker', name): reason in words}, to which rows that
        cannot be read are added
    """
    table = tables.worker
    workers_read = []
    for row in connection.execute(sa.select(table).order_by(
            table.c.host, table.c.started_at, table.c.name)):
        try:
            workers_read.append(service_records.Worker(
                row.name, row.host, row.started_at, row.seen_at,
                _dictionary(row.state)))
        except ValueError as error:
            damaged['worker', row.name] = (
                f'worker {row.name}: its stored state is damaged: {error}')
    return workers_read


def worker_row(worker):
    """Return the row of a :class:`~.Worker`.

    :param worker: Worker
    """
    return {'name': worker.name, 'host': worker.host,
            'started_at': worker.started_at, 'seen_at': worker.seen_at,
            'state': json.dumps(worker.state, allow_nan=False)}


def _dictionary(text):
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f'it is a {type(value).__name__}; expected a '
                         f'dictionary')
    return value


def modelers(connection):
    """Return a list of :class:`~.Modeler`, by host and start.

    :param connection: SQLAlchemy Connection within a transaction
    """
    table = tables.modeler
    return [
        service_records.Modeler(**row._mapping)
        for row in connection.execute(
            sa.select(table).order_by(
                table.c.host, table.c.started_at, table.c.name
            )
        )
    ]
