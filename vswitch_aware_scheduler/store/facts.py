# SPDX-License-Identifier: Apache-2.0
"""Facts of the fleet, and the reports of modelers and of workers.

The modeler writes aggregates, flavors and the policies in force; commands read
them. Each modeler and each worker of a scheduler reports its own state.
Schedulers read none of these rows, so that they create no generation.
"""

import dataclasses
import json
import typing

import sqlalchemy as sa

from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables

__all__ = ['FLEET_KINDS', 'FleetFacts', 'Modeler', 'Worker', 'modelers',
           'read', 'report_modeler', 'report_worker', 'workers', 'write']

#: Kinds of facts of the fleet. 'aggregate', by id: ``name``, ``metadata`` and
#: ``hosts``. 'flavor', by name: its extra specs. 'host' and 'uplink': the
#: policy in force; that of a host has more, see
#: :mod:`vswitch_aware_scheduler.fleet.facts`. 'node': only the time at which
#: the compute nodes in the facts of hosts were read.
FLEET_KINDS = ('aggregate', 'flavor', 'host', 'node', 'uplink')

#: How long, in seconds, the state of a process is kept after its last report.
_KEPT_SECONDS = 86400

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

# A row is only written if its value, a JSON object, changes.
fact_table = tables.table(
    'fleet_fact', tables.key(tables.KIND, 'kind'),
    tables.key(tables.NAME, 'name'), tables.columns(tables.TEXT, 'value'))

# Time of the last reading of all facts of a kind.
reading_table = tables.table(
    'fleet_reading', tables.key(tables.KIND, 'kind'),
    tables.columns(sa.Double, 'read_at'))

modeler_table = tables.table(
    'modeler', tables.key(tables.NAME, 'name'),
    tables.columns(tables.NAME, 'host'),
    tables.columns(sa.Double, 'started_at', 'seen_at'),
    tables.columns(sa.Boolean, 'ended'),
    tables.columns(sa.Double, 'interval_seconds', null=True),
    tables.columns(sa.BigInteger, 'passes'),
    tables.columns(sa.Double, 'passed_at', 'waiting_since', null=True),
    tables.columns(tables.TEXT, 'outcome', 'waiting_for', 'options',
                   null=True))

# state is a JSON object.
worker_table = tables.table(
    'worker', tables.key(tables.NAME, 'name'),
    tables.columns(tables.NAME, 'host'),
    tables.columns(sa.Double, 'started_at', 'seen_at'),
    tables.columns(tables.TEXT, 'state'))


@dataclasses.dataclass(frozen=True)
class Modeler:
    """The heartbeat of one modeler process.

    :ivar waiting_for: what the modeler waits for, in words, or None
    :ivar name: unique name of the process
    :ivar started_at: seconds UTC by the modeler's clock, as all times here
    :ivar seen_at: time of the heartbeat
    :ivar ended: whether the process has ended normally
    :ivar interval_seconds: seconds from the start of a pass to the start of
        the next; None if the process made a single pass
    :ivar passes: number of successful passes
    :ivar passed_at: end of the last successful pass, or None
    :ivar outcome: result of the last successful pass in words, or None
    :ivar waiting_since: when the modeler started to wait, or None
    :ivar options: {option: value} of those that have to be the same everywhere
    """

    name: str
    host: str
    started_at: float
    seen_at: float
    ended: bool = False
    interval_seconds: float | None = None
    passes: int = 0
    passed_at: float | None = None
    outcome: str | None = None
    waiting_for: str | None = None
    waiting_since: float | None = None
    options: dict[str, typing.Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class FleetFacts:
    """Facts of one kind that the modeler has read about the fleet.

    :ivar facts: {name: dictionary}, see :data:`FLEET_KINDS`
    :ivar read_at: time of the last reading of all facts, seconds UTC; None:
        never
    """

    facts: dict[str, dict[str, typing.Any]]
    read_at: float | None = None


@dataclasses.dataclass(frozen=True)
class Worker:
    """The state of one worker process of a scheduler.

    :ivar name: unique name of the process
    :ivar started_at: seconds UTC by the worker's clock, as all times here
    :ivar seen_at: time of the report
    :ivar state: dictionary that JSON can represent
    """

    name: str
    host: str
    started_at: float
    seen_at: float
    state: dict[str, typing.Any]


@database.reader
def read(connection: sa.Connection, kind: str) -> FleetFacts:
    """Return the facts of a kind, one of :data:`FLEET_KINDS`."""
    table, facts = fact_table.c, {}
    for name, text in connection.execute(sa.select(
            table.name, table.value).where(table.kind == kind)):
        value = damage.usable(connection, f'fleet {kind}', name,
                              damage.decode, text, _FACTS.get(kind, dict))
        if value is not None:
            facts[name] = value
    return FleetFacts(facts, connection.scalar(sa.select(
        reading_table.c.read_at).where(reading_table.c.kind == kind)))


@database.writer
def write(connection: sa.Connection, facts: dict[str, dict[str, typing.Any]],
          read_at: float) -> None:
    """Replace the stored facts of the fleet, for the given kinds.

    This does not write unchanged rows. A fact with a value that the database
    refuses is skipped and named in the log.

    :param facts: {kind: {name: dictionary}}, all facts of each kind
    :param read_at: when the facts were read, seconds UTC
    """
    table = fact_table
    for kind, facts_of_kind in facts.items():
        texts = {name: json.dumps(value, sort_keys=True, allow_nan=False)
                 for name, value in facts_of_kind.items()}
        stored_texts = dict(connection.execute(sa.select(
            table.c.name, table.c.value).where(table.c.kind == kind)).all())
        for names in sql.key_chunks(stored_texts.keys() - texts.keys()):
            connection.execute(sa.delete(table).where(
                (table.c.kind == kind) & table.c.name.in_(names)))
        for chunk in sql.chunks([
                {'kind': kind, 'name': name, 'value': text}
                for name, text in texts.items()
                if stored_texts.get(name) != text]):
            sql.upsert_usable(connection, table, chunk)
    sql.upsert(connection, reading_table, [
        {'kind': kind, 'read_at': read_at} for kind in facts])


def _of_processes(connection, table, kind, column, shape):
    """Return the records of processes, by host and start.

    A record whose JSON cannot be read is returned with {} in its place.

    :param kind: class of the records
    :param column: name of the column with JSON, of the given shape
    """
    name = table.name
    return damage.usable_records(
        connection, name, connection.execute(sa.select(table).order_by(
            table.c.host, table.c.started_at, table.c.name)),
        lambda row: damage.checked(kind(**{
            **row._mapping, column: damage.usable(
                connection, name, row.name, damage.decode,
                getattr(row, column) or '{}', shape) or {}})),
        lambda row: row.name)


def _report(connection, table, record, column, expired):
    """Replace the record of a process; delete old and expired ones."""
    sql.delete_where(connection, table, expired | (
        table.c.seen_at < record.seen_at - _KEPT_SECONDS))
    sql.upsert(connection, table, [{
        **dataclasses.asdict(record),
        column: json.dumps(getattr(record, column), allow_nan=False)}])


@database.reader
def workers(connection: sa.Connection) -> list[Worker]:
    """Return the workers of schedulers, by host and start."""
    return _of_processes(connection, worker_table, Worker, 'state', _STATE)


@database.reader
def modelers(connection: sa.Connection) -> list[Modeler]:
    """Return the modelers, by host and start."""
    return _of_processes(connection, modeler_table, Modeler, 'options', dict)


@database.writer
def report_modeler(connection: sa.Connection, modeler: Modeler) -> None:
    """Write the heartbeat of a modeler; it replaces the previous one.

    This is one short transaction without retries. It also removes the
    heartbeats of modelers that have not reported for a day, and those of ended
    modelers on the same host.
    """
    table = modeler_table.c
    _report(connection, modeler_table, modeler, 'options',
            (table.host == modeler.host) & table.ended)


@database.writer
def report_worker(connection: sa.Connection, worker: Worker) -> None:
    """Write the state of a worker, as :func:`report_modeler`."""
    _report(connection, worker_table, worker, 'state', sa.false())
