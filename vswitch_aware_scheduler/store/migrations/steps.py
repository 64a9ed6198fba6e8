# SPDX-License-Identifier: Apache-2.0
"""Steps of migrations that can be repeated after an interruption.

MariaDB and MySQL commit each statement that changes the schema. An upgrade
that was killed therefore leaves a part of a migration without its version.
Each step here first checks whether its result is complete, and does nothing if
so. On SQLite and PostgreSQL an upgrade is one transaction, which leaves no
part behind. There, a table of the same name belongs to another application,
and creating it fails.
"""

from alembic import op
import sqlalchemy as sa

__all__ = ['add_column', 'byte_collation', 'compare_as_bytes',
           'create_table', 'drop_column', 'drop_table', 'insert_row',
           'is_mysql']


def _may_be_partial():
    return not op.get_context().impl.transactional_ddl


def is_mysql():
    """Whether the database is MariaDB or MySQL."""
    return op.get_bind().dialect.name in ('mysql', 'mariadb')


def byte_collation():
    """Return the collation of MariaDB or MySQL that compares bytes.

    Other collations treat upper and lower case, accents or trailing spaces as
    equal: two hosts would be one row.
    """
    return ('utf8mb4_nopad_bin' if op.get_bind().dialect.is_mariadb
            else 'utf8mb4_0900_bin')


def compare_as_bytes(table_name):
    """Convert a table whose texts are not compared as bytes.

    :param table_name: name of the table
    """
    bind, collation = op.get_bind(), byte_collation()
    if {row[0] for row in bind.execute(sa.text(
            'SELECT collation_name FROM information_schema.columns WHERE '
            'table_schema = DATABASE() AND table_name = :name AND '
            'collation_name IS NOT NULL'), {'name': table_name})} - {
                collation}:
        op.execute(f'ALTER TABLE {table_name} CONVERT TO CHARACTER SET '
                   f'utf8mb4 COLLATE {collation}')


def create_table(name, *items, **options):
    """Create a table with its indexes.

    Texts are compared as bytes.

    :param name: name of the table
    :param items: columns and indexes
    :param options: options of the table
    :returns: the sqlalchemy Table
    """
    bind = op.get_bind()
    if is_mysql():
        options[f'{bind.dialect.name}_collate'] = byte_collation()
    table = sa.Table(name, sa.MetaData(), *items, **options)
    inspector = sa.inspect(bind)
    if not (_may_be_partial() and inspector.has_table(name)
            and table.columns.keys() == [
                column['name'] for column in inspector.get_columns(name)]):
        table.create(bind)
        return table
    present = {index['name'] for index in inspector.get_indexes(name)}
    for index in table.indexes:
        if index.name not in present:
            index.create(bind)
    return table


def drop_table(name):
    """Drop a table, unless it is gone.

    :param name: name of the table
    """
    if not _may_be_partial() or sa.inspect(op.get_bind()).has_table(name):
        op.drop_table(name)


def drop_column(table_name, column_name):
    """Drop a column of a table, unless it is gone.

    :param table_name: name of the table
    :param column_name: name of the column
    """
    if column_name in {present['name'] for present in sa.inspect(
            op.get_bind()).get_columns(table_name)}:
        op.drop_column(table_name, column_name)


def add_column(table_name, column):
    """Add a column to a table, unless the table has it.

    :param table_name: name of the table
    :param column: sqlalchemy Column
    """
    if _may_be_partial() and column.name in {
            present['name'] for present
            in sa.inspect(op.get_bind()).get_columns(table_name)}:
        return
    op.add_column(table_name, column)


def insert_row(table, row):
    """Insert the only row of a table, unless the table has it.

    :param table: sqlalchemy Table
    :param row: {column: value}
    """
    bind = op.get_bind()
    if not bind.scalar(sa.select(sa.func.count()).select_from(table)):
        bind.execute(sa.insert(table), [row])
