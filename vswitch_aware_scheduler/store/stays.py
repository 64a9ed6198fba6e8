# SPDX-License-Identifier: Apache-2.0
"""Stays: the hosts of instances over time, for error budgets."""

import collections
from collections import abc
import dataclasses
import itertools
import math
import typing

import sqlalchemy as sa

from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables

__all__ = ['Stay', 'UNSETTLED_SECONDS', 'follow', 'forget', 'read']

#: Seconds for which a stay is kept after its end.
_KEPT_SECONDS = 2 * 86400.0

#: Seconds for which a stay is kept in addition while no error budget is
#: settled, because budgets are not used or wait for samples.
UNSETTLED_SECONDS = 7 * 86400.0

# The host of an instance since a given time, until the next row of the same
# instance.
stay_table = tables.table(
    'stay', tables.key(tables.UUID, 'instance_uuid'),
    tables.key(sa.Double, 'since'),
    tables.columns(tables.NAME, 'host', null=True),
    tables.columns(sa.Boolean, 'running', null=True))


@dataclasses.dataclass(frozen=True)
class Stay:
    """The host of an instance, or None, from a time on (seconds UTC)."""

    since: float
    host: str | None
    running: bool | None = None


@database.reader
def read(connection: sa.Connection, since: float = -math.inf
         ) -> dict[str, list[Stay]]:
    """Return {uuid: its stays, the oldest first} that end after a time."""
    table = stay_table.c
    stays_by_instance = collections.defaultdict(list)
    for uuid, *stay in connection.execute(sa.select(
            table.instance_uuid, table.since, table.host,
            table.running).order_by(table.instance_uuid, table.since)):
        stays = stays_by_instance[uuid]
        if stays and stay[0] <= since:
            stays.clear()
        stays.append(Stay(*stay))
    return dict(stays_by_instance)


def follow(connection: sa.Connection, placements: abc.Iterable[typing.Any],
           removed_uuids: abc.Iterable[str], now: float) -> None:
    """Write the stays that result from new and from removed placements."""
    table = stay_table
    records = {record.instance_uuid: record for record in placements}
    latest = {}
    for chunk in sql.key_chunks(list(dict.fromkeys(
            itertools.chain(records, removed_uuids)))):
        for uuid, *stay in connection.execute(sa.select(
                table.c.instance_uuid, table.c.since, table.c.host,
                table.c.running).where(
                    table.c.instance_uuid.in_(chunk)).order_by(
                        table.c.since)):
            latest[uuid] = Stay(*stay)
    rows = []
    for uuid in itertools.chain(records, removed_uuids):
        record, before = records.get(uuid), latest.get(uuid)
        host, running = (None, None) if record is None else (
            record.host, record.running)
        if before is None:
            if record is None:
                continue
            since = record.began_at
        elif (before.host, before.running) == (host, running):
            continue
        else:
            since = record and record.changed_at
        since = now if since is None else min(since, now)
        if before is not None:
            # The stays of an instance never overlap, even if clocks differ.
            since = max(since, before.since + 1e-3)
        rows.append({'instance_uuid': uuid, 'since': since, 'host': host,
                     'running': running})
    sql.upsert_usable(connection, table, rows)


def forget(connection: sa.Connection, now: float) -> None:
    """Remove the stays that ended long ago."""
    table = stay_table
    later = table.alias()
    oldest = now - _KEPT_SECONDS
    sql.delete_where(
        connection, table, table.c.since < oldest,
        sa.or_(table.c.host.is_(None), sa.exists().where(
            later.c.instance_uuid == table.c.instance_uuid,
            later.c.since > table.c.since, later.c.since < oldest)))
