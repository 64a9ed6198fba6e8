# SPDX-License-Identifier: Apache-2.0
"""Statements for all kinds of rows and databases."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite

from vswitch_aware_scheduler.store import engines
from vswitch_aware_scheduler.store import packing

__all__ = ['CHUNK', 'chunks', 'delete', 'delete_where', 'key_chunks',
           'schema_version', 'stream', 'upsert']

#: Number of rows in a statement, which limits the memory in addition to the
#: result.
CHUNK = 5000

#: Maximum number of keys in a query: some builds of SQLite accept 999
#: parameters.
_KEYS = 900

_INSERTS = {'sqlite': sqlite.insert, 'postgresql': postgresql.insert,
            'mysql': mysql.insert, 'mariadb': mysql.insert}


def chunks(rows, size=CHUNK):
    """Yield the items of a list in parts.

    :param rows: list
    :param size: maximum number of items in a part
    """
    for start in range(0, len(rows), size):
        yield rows[start:start + size]


def key_chunks(names):
    """Yield lists of names to query, without names that cannot exist.

    :param names: iterable of names
    """
    yield from chunks([name for name in names
                       if packing.storable(name) == name], _KEYS)


def stream(connection, query):
    """Run a query whose rows are read from the database in parts.

    :param connection: SQLAlchemy Connection within a transaction
    :param query: SELECT of the columns that are read
    """
    # Only for this query: psycopg2 could not write on such a connection.
    return connection.execute(query, execution_options={
        'stream_results': True, 'max_row_buffer': CHUNK})


def upsert(connection, table, rows, left_out=None):
    """Insert rows, or update existing ones.

    :param connection: SQLAlchemy Connection within a transaction
    :param table: SQLAlchemy Table
    :param rows: list of dictionaries
    :param left_out: None, or {(table, key): reason in words}, to which rows
        are added whose values the database rejects. The other rows are
        written.
    """
    if not rows:
        return
    if left_out is None:
        _insert_or_update(connection, table, rows)
        return
    savepoint = connection.begin_nested()
    try:
        _insert_or_update(connection, table, rows)
        savepoint.commit()
    except Exception as error:
        # After a deadlock MariaDB has no savepoint any more.
        if not engines.is_refused_value(error):
            raise
        savepoint.rollback()
        if len(rows) > 1:
            half = len(rows) // 2
            upsert(connection, table, rows[:half], left_out)
            upsert(connection, table, rows[half:], left_out)
            return
        key = tuple(rows[0][column.name] for column in table.primary_key)
        left_out[table.name, key] = (
            f'{table.name} of {", ".join(map(repr, key))}: '
            f'{engines.reason(error)}')


def _insert_or_update(connection, table, rows):
    insert = _INSERTS[connection.dialect.name](table)
    other_columns = [column.name for column in table.columns
                     if not column.primary_key]
    if hasattr(insert, 'on_duplicate_key_update'):
        insert = insert.on_duplicate_key_update(
            {name: insert.inserted[name] for name in other_columns})
    else:
        insert = insert.on_conflict_do_update(
            index_elements=list(table.primary_key),
            set_={name: insert.excluded[name] for name in other_columns})
    connection.execute(insert, rows)


def delete(connection, column, names):
    """Delete the rows in which a column has one of the given values.

    :param connection: SQLAlchemy Connection within a transaction
    :param column: column of the table, compared with the names
    :param names: list of values
    """
    for chunk in key_chunks(names):
        connection.execute(
            sa.delete(column.table).where(column.in_(chunk)))


def delete_where(connection, table, *conditions):
    """Delete the few rows that fulfil all conditions.

    The keys of the rows are selected first: in MariaDB, a DELETE that matches
    no row locks the gaps between rows.

    :param connection: SQLAlchemy Connection within a transaction
    :param table: SQLAlchemy Table
    :param conditions: SQLAlchemy expressions
    """
    columns = list(table.primary_key)
    for key in connection.execute(
            sa.select(*columns).where(*conditions)).all():
        connection.execute(sa.delete(table).where(
            *(column == value for column, value in zip(columns, key))))


def schema_version(connection):
    """Return the version of the database's schema, or None without a schema.

    :param connection: SQLAlchemy Connection
    """
    if not sa.inspect(connection).has_table('alembic_version'):
        return None
    return connection.scalar(sa.text(
        'SELECT version_num FROM alembic_version'))
