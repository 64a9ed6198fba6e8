# SPDX-License-Identifier: Apache-2.0
"""Rows of priors, the expected traffic of instances without a model."""

import functools

import sqlalchemy as sa

from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import prior_records
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['COLUMNS', 'laws', 'read', 'write']

COLUMNS = [tables.prior.c[name] for name in (
    'instance_uuid', 'flavor', 'project', 'members', 'law')]


def laws(connection, query, damaged):
    """Return {key: RateLaw; None if removed or damaged}.

    :param connection: SQLAlchemy Connection within a transaction
    :param query: SELECT of :data:`COLUMNS`
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    rows = {_key(row): row for row in connection.execute(query)}
    return {**dict.fromkeys(rows), **_unpacked(
        [row for row in rows.values() if row.members], damaged)}


def _key(row):
    return row.instance_uuid or (row.flavor or None, row.project or None)


def _unpacked(rows, damaged):
    """Return {key: RateLaw} of rows of the table prior."""
    keys, sizes, data = packing.usable_laws(
        [_key(row) for row in rows], [row.law for row in rows], 'prior',
        damaged)
    return dict(zip(keys, rate_law.split_laws(data, sizes)))


def read(connection, damaged):
    """Return {key: :class:`~.Prior`} of all.

    :param connection: SQLAlchemy Connection within a transaction
    :param damaged: {(kind, name): reason}, to which damaged rows are added
    """
    table = tables.prior
    rows = {_key(row): row for row in connection.execute(sa.select(
        *COLUMNS, table.c.updated_at).where(table.c.members > 0))}
    priors = {}
    for key, law in _unpacked(list(rows.values()), damaged).items():
        prior = damage.usable(damaged, 'prior', key, functools.partial(
            _of_row, rows[key], law))
        if prior is not None:
            priors[key] = prior
    return priors


def _of_row(row, law):
    return damage.checked(prior_records.Prior(
        row.flavor or None, row.project or None, law, row.members,
        row.instance_uuid or None, row.updated_at))


def write(connection, priors, remove, generation, left_out):
    """Write priors, and mark others as removed.

    :param connection: SQLAlchemy Connection within a transaction
    :param priors: list of Prior
    :param remove: list of Prior that are removed
    :param generation: Generation that is being written
    :param left_out: {(kind, name): reason}, to which records are added
        that the database refuses
    """
    rows = [(record, record.members, packing.pack_law(record))
            for record in priors] + [
        (record, 0.0, {'law': b''}) for record in remove]
    for chunk in sql.chunks(rows):
        sql.upsert(connection, tables.prior, [
            {'instance_uuid': record.instance_uuid or '',
             'flavor': '' if record.instance_uuid else record.flavor or '',
             'project': '' if record.instance_uuid else record.project or '',
             'generation': generation.number, **law,
             'members': members, 'updated_at': generation.published_at}
            for record, members, law in chunk], left_out)
