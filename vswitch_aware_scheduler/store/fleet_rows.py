# SPDX-License-Identifier: Apache-2.0
"""Rows about the fleet and about the workers of schedulers.

The modeler writes aggregates, flavors and the policies in force; commands read
them. Each worker of a scheduler writes its own state. Schedulers read none of
these rows, so that they create no generation.
"""

import functools
import json

import sqlalchemy as sa

from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import service_records
from vswitch_aware_scheduler.store import tables

__all__ = ['WORKER_SECONDS', 'changes', 'modelers', 'read', 'worker_row',
           'workers']

#: How long, in seconds, the state of a worker is kept after its last report.
WORKER_SECONDS = 86400

#: Shapes of the facts of each kind.
_FACTS = {
    'aggregate': {'name': str, 'metadata': {str: str}, 'hosts': [str]},
    'host': {'in_nova?': (bool, None), 'nodes?': {str: bool},
             'uplinks?': ([str], None),
             'origins?': (dict, None), 'prediction_margin?': float}}

#: Shape of the state of a worker.
_STATE = {
    'plugins?': [str], 'models?': (int, None), 'cells?': {str: (float, None)},
    'claims?': dict, 'options?': dict, 'max_placement_results?': int,
    'problems?': {str: str}}


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
        value = damage.usable(
            damaged, f'fleet {kind}', name, functools.partial(
                damage.decode, text, _FACTS.get(kind, dict)))
        if value is not None:
            facts[name] = value
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
        # A worker without its state is returned anyway: it is there.
        state = damage.usable(damaged, 'worker', row.name, functools.partial(
            damage.decode, row.state, _STATE)) or {}
        worker = damage.usable(damaged, 'worker', row.name,
                               functools.partial(_worker, row, state))
        if worker is not None:
            workers_read.append(worker)
    return workers_read


def _worker(row, state):
    return damage.checked(service_records.Worker(
        row.name, row.host, row.started_at, row.seen_at, state))


def worker_row(worker):
    """Return the row of a :class:`~.Worker`.

    :param worker: Worker
    """
    return {'name': worker.name, 'host': worker.host,
            'started_at': worker.started_at, 'seen_at': worker.seen_at,
            'state': json.dumps(worker.state, allow_nan=False)}


def modelers(connection, damaged):
    """Return a list of :class:`~.Modeler`, by host and start.

    :param connection: SQLAlchemy Connection within a transaction
    :param damaged: {('modeler', name): reason in words}, to which rows that
        cannot be read are added
    """
    table = tables.modeler
    modelers_read = [
        damage.usable(damaged, 'modeler', row.name, functools.partial(
            _modeler, row))
        for row in connection.execute(sa.select(table).order_by(
            table.c.host, table.c.started_at, table.c.name))]
    return [modeler for modeler in modelers_read if modeler is not None]


def _modeler(row):
    return damage.checked(service_records.Modeler(**row._mapping))
