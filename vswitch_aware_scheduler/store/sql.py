# SPDX-License-Identifier: Apache-2.0
"""Statements for all kinds of rows and databases."""

from collections import abc
import dataclasses
import typing

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite

from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import engines
from vswitch_aware_scheduler.store import packing

__all__ = ['CHUNK', 'Generation', 'NOW', 'Row', 'chunks', 'delete',
           'delete_where', 'fields_of', 'forget_tokens', 'is_remembered',
           'key_chunks', 'now', 'only_record', 'raise_complete_since',
           'remember', 'restricted', 'stream', 'upsert', 'upsert_usable']

#: Number of rows in a statement, which limits the memory in addition to the
#: result.
CHUNK = 5000

#: Maximum number of keys in a query: some builds of SQLite accept 999
#: parameters.
_KEYS = 900

#: Number of the last writes whose tokens are kept regardless of their age.
_KEPT_TOKENS = 1000

_INSERTS = {'sqlite': sqlite.insert, 'postgresql': postgresql.insert,
            'mysql': mysql.insert, 'mariadb': mysql.insert}

#: {dialect: expression for the time of the database}
NOW = {name: sa.literal_column(text) for name, text in {
    'sqlite': "(julianday('now') - 2440587.5) * 86400.0",
    'postgresql': 'extract(epoch from clock_timestamp())',
    'mysql': 'unix_timestamp(now(6))',
    'mariadb': 'unix_timestamp(now(6))'}.items()}


Row: typing.TypeAlias = dict[str, typing.Any]
_Item = typing.TypeVar('_Item')


@dataclasses.dataclass(frozen=True)
class Generation:
    """The state of the store that a reader has read.

    :ivar store_id: distinguishes stores that were at the same URL
    :ivar number: number of the last write; 0 before the first write
    :ivar published_at: time of that write, seconds UTC; 0 before the first
    :ivar token: distinguishes that write from another write with the same
        number in a restored or failed-over store; None before the first write
    """

    store_id: str
    number: int
    published_at: float
    token: str | None = None


def now(connection: sa.Connection) -> float:
    """Return the time of the database's clock, seconds UTC."""
    return float(connection.scalar(sa.select(NOW[connection.dialect.name])))


def chunks(rows: abc.Sequence[_Item], size: int | None = None
           ) -> abc.Iterator[abc.Sequence[_Item]]:
    """Yield the items of a list in parts of at most ``size`` items."""
    size = size or CHUNK
    for start in range(0, len(rows), size):
        yield rows[start:start + size]


def key_chunks(names: abc.Iterable[str]
               ) -> abc.Iterator[abc.Sequence[str]]:
    """Yield lists of names to query, without names that cannot exist."""
    yield from chunks([
        name for name in names
        if isinstance(name, str) and packing.storable(name) == name], _KEYS)


def restricted(query: sa.Select, column: sa.Column,
               names: abc.Iterable[str] | None) -> list[sa.Select]:
    """Return queries for rows whose column has one of the names or any."""
    return [query] if names is None else [
        query.where(column.in_(chunk)) for chunk in key_chunks(names)]


def stream(connection: sa.Connection, query: sa.Select) -> sa.Result:
    """Run a query whose rows are read from the database in parts."""
    # Only for this query: psycopg2 could not write on such a connection.
    return connection.execute(query, execution_options={
        'stream_results': True, 'max_row_buffer': CHUNK})


def upsert(connection: sa.Connection, table: sa.Table,
           rows: abc.Sequence[Row]) -> None:
    """Insert rows, or update existing ones."""
    if not rows:
        return
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


def upsert_usable(connection: sa.Connection, table: sa.Table,
                  rows: abc.Sequence[Row]) -> list[tuple[typing.Any, ...]]:
    """Insert or update the rows with accepted values.

    :returns: the keys of the others, which are damaged
    """
    if not rows:
        return []
    savepoint = connection.begin_nested()
    try:
        upsert(connection, table, rows)
        savepoint.commit()
        return []
    except Exception as error:
        # After a deadlock MariaDB has no savepoint any more.
        if not engines.is_refused_value(error):
            raise
        savepoint.rollback()
        if len(rows) > 1:
            half = len(rows) // 2
            return [*upsert_usable(connection, table, rows[:half]),
                    *upsert_usable(connection, table, rows[half:])]
        key = tuple(rows[0][column.name] for column in table.primary_key)
        damage.of(connection)[table.name, key] = (
            f'{table.name} of {", ".join(map(repr, key))}: '
            f'{engines.reason(error)}')
        return [key]


def only_record(connection: sa.Connection, table: sa.Table,
                record_class: type[_Item]) -> _Item | None:
    """Return the record of the only row of a table, or None without a row."""
    row = connection.execute(sa.select(
        *(column for column in table.c if not column.primary_key))).first()
    return None if row is None else record_class(**row._mapping)


def fields_of(record: typing.Any, table: sa.Table) -> Row:
    """Return the columns of a table that a record has by the same names."""
    return {column.name: getattr(record, column.name) for column in table.c
            if hasattr(record, column.name)}


def delete(connection: sa.Connection, column: sa.Column,
           names: abc.Iterable[str]) -> None:
    """Delete the rows in which a column has one of the given values."""
    for chunk in key_chunks(names):
        connection.execute(
            sa.delete(column.table).where(column.in_(chunk)))


def delete_where(connection: sa.Connection, table: sa.Table,
                 *conditions: sa.ColumnElement) -> None:
    """Delete the few rows that fulfil all conditions.

    The keys of the rows are selected first: in MariaDB, a DELETE that matches
    no row locks the gaps between rows.
    """
    columns = list(table.primary_key)
    for key in connection.execute(
            sa.select(*columns).where(*conditions)).all():
        connection.execute(sa.delete(table).where(
            *(column == value for column, value in zip(columns, key))))


# A history has the tokens of the last writes. If a reader has another token
# for its number, it has read another history: before a backup was restored, or
# from a replica that was promoted.

def remember(connection: sa.Connection, history: sa.Table, number: int,
             token: str, now: float) -> None:
    """Store the token of a write in a history."""
    # A row with that number belongs to a write that a restored backup lacks.
    upsert(connection, history, [
        {'number': number, 'token': token, 'written_at': now}])


def is_remembered(connection: sa.Connection, history: sa.Table,
                  since: Generation, last: Generation) -> bool:
    """Return whether a reader's last write is in this store's history."""
    if since.number == last.number:
        return since.token == last.token
    return since.token == connection.scalar(
        sa.select(history.c.token).where(history.c.number == since.number))


def forget_tokens(connection: sa.Connection, history: sa.Table,
                  head_table: sa.Table, before: float) -> None:
    """Delete the tokens of writes before a time, but for the last ones."""
    connection.execute(sa.delete(history).where(
        history.c.written_at < before,
        history.c.number < sa.select(
            head_table.c.number - _KEPT_TOKENS).scalar_subquery()))


def raise_complete_since(connection: sa.Connection, head_table: sa.Table,
                         number: int) -> None:
    """Note that rows of a write, and of earlier ones, were deleted."""
    column = head_table.c.complete_since
    connection.execute(sa.update(head_table).where(column < number).values(
        complete_since=number))
