# SPDX-License-Identifier: Apache-2.0
"""Rows of generations: the changes since a generation, and removals."""

import numpy as np
import sqlalchemy as sa

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import budgets as budget_table
from vswitch_aware_scheduler.store import claim_rows
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import instance_rows
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import prior_rows
from vswitch_aware_scheduler.store import profile_rows
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables

__all__ = ['REMOVAL_SECONDS', 'changes', 'forget_removals', 'is_later', 'read',
           'remove']

#: Seconds for which incremental readers can read a removal. A reader that was
#: away for longer reads everything.
REMOVAL_SECONDS = 86400

#: Kind of removal that a reader makes for a damaged row of a kind.
_REMOVED_KINDS = {'model': tables.INSTANCE, 'host': tables.HOST}


def read(connection):
    """Return (Generation, complete_since).

    :param connection: SQLAlchemy Connection within a transaction
    """
    table = tables.generation
    row = connection.execute(sa.select(
        table.c.store_id, table.c.number, table.c.published_at,
        table.c.token, table.c.complete_since)).one()
    try:
        generation = damage.checked(generations.Generation(*row[:4]))
        if not damage.is_number(row.complete_since):
            raise damage.Damaged(f'complete_since: {row.complete_since!r}')
    except ValueError as error:
        raise exceptions.StoreError(
            f'the table generation is damaged: {error}; restore the store '
            f'from a backup') from None
    return generation, row.complete_since


def changes(connection, since, damaged):
    """Return the :class:`~.Changes` since a generation.

    :param connection: SQLAlchemy Connection within a transaction
    :param since: Generation of the reader's last read, None for all
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    generation, complete_since = read(connection)
    complete = (since is None or since.store_id != generation.store_id
                or not complete_since <= since.number <= generation.number
                or not claim_rows.is_remembered(
                    connection, tables.generation_history, since, generation))

    def changed(table, *columns):
        query = sa.select(*columns)
        if not complete:
            query = query.where(table.c.generation > since.number)
        return query

    uuids, sizes, data = [], [np.zeros(0, np.int64)], bytearray()
    hosts, removals, placements, priors = [], [], ((), ()), {}
    debts = None
    if complete or since.number != generation.number:
        table = tables.traffic_model
        rows = sql.stream(connection, changed(table, table.c.instance_uuid,
                                              table.c.law))
        for chunk in rows.partitions(sql.CHUNK):
            usable_uuids, its_sizes, laws = packing.usable_laws(
                *zip(*chunk), 'model', damaged)
            uuids.extend(usable_uuids)
            sizes.append(its_sizes)
            data += laws
        hosts = profile_rows.read(connection, changed(
            tables.host_profile, tables.host_profile), damaged)
        placements = instance_rows.values(connection, changed(
            tables.placement, *instance_rows.COLUMNS), damaged)
        priors = prior_rows.laws(connection, changed(
            tables.prior, *prior_rows.COLUMNS), damaged)
        debts = budget_table.read_debts(
            connection, generation.published_at)
        if not complete:
            table = tables.removal
            removals = connection.execute(changed(
                table, table.c.kind, table.c.name)).all()
            removals += [(kind, name) for kind, name in (
                (_REMOVED_KINDS.get(kind), name) for kind, name in damaged)
                if kind is not None]
    changed_uuids = set(uuids) if removals else ()
    changed_hosts = {host.host for host in hosts}
    placed_uuids = set(placements[0]) if removals else ()
    inventory = instance_rows.inventory(connection)
    return generations.Changes(
        generation=generation, complete=complete, instance_uuids=uuids,
        law_sizes=np.concatenate(sizes), packed_laws=data,
        removed=[name for kind, name in removals
                 if kind == tables.INSTANCE and name not in changed_uuids],
        host_profiles=hosts,
        removed_hosts=[name for kind, name in removals
                       if kind == tables.HOST and name not in changed_hosts],
        placements=placements,
        removed_placements=[name for kind, name in removals
                            if kind == tables.PLACEMENT
                            and name not in placed_uuids],
        seen_at=inventory and inventory.seen_at, priors=priors,
        debts=debts, damaged=damaged)


def is_later(connection, generation, other):
    """Return False if a generation directly follows another one, else True.

    :param connection: SQLAlchemy Connection within a transaction
    :param generation: Generation
    :param other: earlier Generation
    """
    return (other.store_id, other.number + 1) != (
        generation.store_id, generation.number) \
        or not claim_rows.is_remembered(
            connection, tables.generation_history, other, generation)


def remove(connection, instance_uuids, hosts, placements, generation,
           left_out):
    """Remove models, profiles and placements, and note the removals.

    :param connection: SQLAlchemy Connection within a transaction
    :param instance_uuids: uuids of instances whose model and counts are
        removed
    :param hosts: names of hosts whose profile is removed
    :param placements: uuids of instances whose placement is removed
    :param generation: Generation that is being written
    :param left_out: {(kind, name): reason}, to which records are added
        that the database refuses
    """
    instance_rows.keep_former(connection, placements, generation)
    budget_table.follow(connection, (), placements, generation.published_at,
                        left_out)
    for kind, names, columns in (
            (tables.INSTANCE, instance_uuids,
             (tables.traffic_model.c.instance_uuid,
              tables.traffic_model_detail.c.instance_uuid,
              tables.unmodelled_instance.c.instance_uuid)),
            (tables.HOST, hosts, (tables.host_profile.c.host,)),
            (tables.PLACEMENT, placements,
             (tables.placement.c.instance_uuid,))):
        for chunk in sql.chunks(names):
            for column in columns:
                sql.delete(connection, column, chunk)
            sql.upsert(connection, tables.removal, [
                {'kind': kind, 'name': name,
                 'generation': generation.number,
                 'removed_at': generation.published_at} for name in chunk],
                left_out)


def forget_removals(connection, now):
    """Delete records of removals that no incremental reader needs.

    :param connection: SQLAlchemy Connection within a transaction
    :param now: current time, seconds UTC
    """
    limit = now - REMOVAL_SECONDS
    claim_rows.forget_tokens(connection, tables.generation_history,
                             tables.generation, limit)
    for table, is_old in (
            (tables.removal, tables.removal.c.removed_at < limit),
            (tables.prior, (tables.prior.c.members == 0)
             & (tables.prior.c.updated_at < limit))):
        last = connection.scalar(
            sa.select(sa.func.max(table.c.generation)).where(is_old))
        if last is None:
            continue
        connection.execute(sa.delete(table).where(is_old))
        connection.execute(sa.update(tables.generation).values(
            complete_since=sa.case(
                (tables.generation.c.complete_since < last, last),
                else_=tables.generation.c.complete_since)))
