# SPDX-License-Identifier: Apache-2.0
"""Copies a store to another database, with its identity and its secret."""

from collections.abc import Callable

import sqlalchemy as sa

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.store import claims
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import plans
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables

__all__ = ['copy']

#: Tables that have one row as soon as they exist.
_ONE_ROW = (generations.generation_table, claims.counter_table,
            generations.secret_table, plans.lock_table)

#: Number of rows that are in memory.
_ROWS = 500


def copy(source: database.Database, target: database.Database,
         progress: Callable[..., None] | None = None) -> dict[str, int]:
    """Copy all rows of a store to an empty one; return {table: its rows}.

    The rows are those of one consistent view, and are written in one
    transaction. A row that the other database refuses is omitted, logged and
    not counted.

    :param progress: callable(done, total), counts tables
    :raises StoreError: if the target has rows; nothing is written
    """
    return source.read(lambda connection: target.write_once(
        _copy, connection, target.url, progress))


def _copy(connection, source, url, progress):
    for table in _ONE_ROW[:2]:
        # No other process writes before the end of the transaction.
        connection.execute(sa.update(table).values(number=table.c.number))
    for table in tables.metadata.sorted_tables:
        if table not in _ONE_ROW and connection.execute(
                sa.select(table).limit(1)).first() is not None:
            raise exceptions.StoreError(
                f'store {url}: table {table.name} has rows; expected an empty '
                f'database. Nothing was copied')
    counts = {}
    for number, table in enumerate(tables.metadata.sorted_tables):
        counts[table.name] = 0
        for rows in sql.stream(source, sa.select(table)).mappings(
                ).partitions(_ROWS):
            counts[table.name] += len(rows) - len(sql.upsert_usable(
                connection, table, list(map(dict, rows))))
        if progress is not None:
            progress(number + 1, len(tables.metadata.tables))
    return counts
