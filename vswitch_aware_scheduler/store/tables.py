# SPDX-License-Identifier: Apache-2.0
"""What the tables of all kinds share: metadata, columns, version.

The module of a kind of thing has its tables. A row that a scheduler reads has
the number of the generation that wrote it. Times are seconds UTC.
"""

import re
import typing

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from vswitch_aware_scheduler.common import exceptions

__all__ = ['BLOB', 'KIND', 'NAME', 'NEWER', 'NEW_STORE', 'SCHEMA_VERSION',
           'TEXT', 'UUID', 'columns', 'is_superseded', 'key', 'metadata',
           'table', 'version', 'wrong_version']

#: The newest migration. A store with another version is not used.
SCHEMA_VERSION = '0001_initial'

#: What is wrong with a store that has an unknown version.
NEWER = 'it was written by a newer release'

#: What to do with a store for which :func:`is_superseded` is true.
NEW_STORE = ('no migration starts from this version: remove its tables, or '
             'the SQLite file, and run "vswitch-manage db sync"; the next '
             'pass of the modeler learns its content again')

metadata = sa.MetaData()

#: Types of columns. MySQL limits BLOB and TEXT to 64 kB; other databases have
#: no such limit.
BLOB = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql', 'mariadb')
TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')
NAME, UUID, KIND = sa.String(255), sa.String(36), sa.String(16)


def table(name: str, *column_lists: list[sa.Column[typing.Any]],
          indexes: tuple[str, ...] = ()) -> sa.Table:
    """Return a table of the store, with an index for each of some columns."""
    return sa.Table(
        name, metadata, *(column for some in column_lists for column in some),
        *(sa.Index(f'ix_{name}_{column}', column) for column in indexes),
        mysql_engine='InnoDB', mysql_charset='utf8mb4')


def key(kind: typing.Any, *names: str) -> list[sa.Column[typing.Any]]:
    """Return columns of the primary key, of one type."""
    return [sa.Column(name, kind, primary_key=True, autoincrement=False)
            for name in names]


def columns(kind: typing.Any, *names: str, null: bool = False
            ) -> list[sa.Column[typing.Any]]:
    """Return other columns of one type; ``null``: they may be null."""
    return [sa.Column(name, kind, nullable=null) for name in names]


def version(connection: sa.Connection) -> str | None:
    """Return the version of the database's schema, None without a schema."""
    if not sa.inspect(connection).has_table('alembic_version'):
        return None
    return connection.scalar(sa.text(
        'SELECT version_num FROM alembic_version'))


def is_superseded(version: str) -> bool:
    """Whether no migration starts from a version."""
    return re.fullmatch('00[0-9][0-9]', version) is not None


def wrong_version(shown: str, version: str, expected: str, hint: str
                  ) -> exceptions.StoreVersionError:
    """Return the error of a store whose schema has another version."""
    if is_superseded(version):
        hint = NEW_STORE
    return exceptions.StoreVersionError(
        thing=f'store {shown}: its schema', seen=version,
        expected=f'{expected}: {hint}')
