# SPDX-License-Identifier: Apache-2.0
"""Rows of the inventory: placements of instances, and former instances."""

import dataclasses
import functools

import sqlalchemy as sa

from vswitch_aware_scheduler.store import budgets as budget_table
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import instance_records
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables

__all__ = ['COLUMNS', 'FORMER_SECONDS', 'former', 'inventory', 'keep_former',
           'read', 'values', 'write']

#: How long, in seconds, the flavor and project of a deleted instance are kept.
FORMER_SECONDS = 35 * 86400.0

COLUMNS = [tables.placement.c[name] for name in (
    'instance_uuid', 'host', 'flavor', 'project', 'networks',
    'egress_kbps', 'ingress_kbps', 'kpps')]

_RUNNING = tables.placement.c.running


def values(connection, query, damaged):
    """Return the placements as (uuids, values).

    A value is (host, flavor, project, Attachments or None, guaranteed rates or
    None). There may be a million: equal tuples are one object.

    :param connection: SQLAlchemy Connection within a transaction
    :param query: SELECT of :data:`COLUMNS`
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    uuids, values, shared, attached = [], [], {}, {}
    for chunk in sql.stream(connection, query).partitions(sql.CHUNK):
        for row in chunk:
            uuid, *names, networks, _, _, _ = row
            if networks not in attached:
                attached[networks] = packing.usable_attachments(
                    uuid, networks, 'placement', damaged)
            names.append(attached[networks])
            names.append(packing.usable_guarantee(uuid, row, 'placement',
                                                  damaged))
            value = tuple(shared.setdefault(name, name) for name in names)
            uuids.append(uuid)
            values.append(shared.setdefault(value, value))
    return uuids, values


def inventory(connection):
    """Return the :class:`~.InventoryState`, or None.

    :param connection: SQLAlchemy Connection within a transaction
    """
    table = tables.inventory
    row = connection.execute(sa.select(
        table.c.source, table.c.seen_at, table.c.complete_at,
        table.c.changed_until)).first()
    return row and instance_records.InventoryState(*row)


def former(connection):
    """Return {instance uuid: :class:`~.FormerInstance`} of all.

    :param connection: SQLAlchemy Connection within a transaction
    """
    table = tables.former_instance
    return {row.instance_uuid: instance_records.FormerInstance(*row[1:])
            for row in connection.execute(sa.select(
                table.c.instance_uuid, table.c.flavor, table.c.project,
                table.c.removed_at))}


def read(connection, instance_uuids, damaged):
    """Return {instance uuid: :class:`~.InstanceRecord`}.

    :param connection: SQLAlchemy Connection within a transaction
    :param instance_uuids: collection of uuids, None for all
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    table = tables.placement
    query = sa.select(*COLUMNS, _RUNNING)
    queries = [query] if instance_uuids is None else [
        query.where(table.c.instance_uuid.in_(chunk))
        for chunk in sql.key_chunks(instance_uuids)]
    placements = {}
    for chunk_query in queries:
        for row in connection.execute(chunk_query):
            uuid = row.instance_uuid
            record = damage.usable(
                damaged, 'placement', uuid, functools.partial(
                    _of_row, row, damaged))
            if record is not None:
                placements[uuid] = record
    return placements


def _of_row(row, damaged):
    uuid = row.instance_uuid
    return instance_records.InstanceRecord(
        *row[:4], packing.usable_attachments(
            uuid, row.networks, 'placement', damaged),
        row.running, packing.usable_guarantee(uuid, row, 'placement',
                                              damaged))


def write(connection, placements, inventory, generation, left_out):
    """Write placements and the state of the inventory.

    :param connection: SQLAlchemy Connection within a transaction
    :param placements: list of InstanceRecord
    :param inventory: InventoryState, or None to keep the stored one
    :param generation: Generation that is being written
    :param left_out: {(kind, name): reason}, to which records are added
        that the database refuses
    """
    for chunk in sql.chunks(placements):
        budget_table.follow(connection, chunk, (), generation.published_at,
                            left_out)
        sql.delete(connection, tables.former_instance.c.instance_uuid,
                   [record.instance_uuid for record in chunk])
        sql.upsert(connection, tables.placement, [
            {'instance_uuid': record.instance_uuid,
             'generation': generation.number, 'host': record.host,
             'flavor': record.flavor, 'project': record.project,
             'networks': packing.pack_attachments(record.attachments),
             **packing.pack_guarantee(record.guaranteed),
             'running': record.running,
             'updated_at': generation.published_at}
            for record in chunk], left_out)
    if inventory is not None:
        sql.upsert(connection, tables.inventory, [
            {'id': 1, **dataclasses.asdict(inventory)}])


def keep_former(connection, instance_uuids, generation):
    """Store flavor and project of instances that are removed now.

    :param connection: SQLAlchemy Connection within a transaction
    :param instance_uuids: uuids of instances whose placement is removed
    :param generation: Generation that is being written
    """
    table = tables.placement
    for chunk in sql.key_chunks(instance_uuids):
        sql.upsert(connection, tables.former_instance, [
            {**row._mapping, 'removed_at': generation.published_at}
            for row in connection.execute(sa.select(
                table.c.instance_uuid, table.c.flavor, table.c.project).where(
                    table.c.instance_uuid.in_(chunk)))])
    table = tables.former_instance
    connection.execute(sa.delete(table).where(
        table.c.removed_at < generation.published_at - FORMER_SECONDS))
