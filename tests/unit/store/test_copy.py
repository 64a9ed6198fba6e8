# SPDX-License-Identifier: Apache-2.0

import sqlalchemy as sa

from tests.fakes import store as fake_store
from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import copy
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables

#: Values of columns, by their kind.
VALUES = {sa.LargeBinary: bytes(range(256)) * 400,
          sa.Text: 'é"\\\'%\n' * 20000, sa.Double: 1e-300 / 3,
          sa.BigInteger: 2 ** 62, sa.Integer: 7, sa.Boolean: True}


def _value(column, number):
    if column.name == 'id':
        return 1
    for kind, value in VALUES.items():
        if isinstance(column.type, kind):
            return value - number if column.primary_key else value
    return None if column.nullable else f'n{number}'


class CopyTestCase(base.StoreTestCase):
    """From an SQLite file to a database, and back to a file."""

    def setUp(self):
        super().setUp()
        self.source, self.back = (self.other_store(name)
                                  for name in ('source', 'back'))
        self.target = self.make_store()

    def other_store(self, name):
        url = f'sqlite:///{self.directory}/{name}.sqlite'
        fake_store.make_empty(url)
        return store.Store(url)

    def rows(self, of):
        """Return {table: rows as a client reads them}."""
        return {table.name: sorted(of.read(
            lambda connection: connection.execute(sa.select(table)).all()))
            for table in tables.metadata.sorted_tables}

    def fill(self):
        """Write rows to every table, more than are copied at a time."""
        with self.source.transaction(writes=True) as connection:
            for table in tables.metadata.sorted_tables:
                count = 1 if 'id' in table.c else 3
                if table.name == 'claim':
                    count = 2 * copy._ROWS + 1
                sql.upsert(connection, table, [
                    {column.name: _value(column, number)
                     for column in table.columns} for number in range(count)])

    def test_every_row_of_every_table_arrives_as_it_was(self):
        self.fill()
        expected, done = self.rows(self.source), []
        self.assertNotIn([], expected.values())
        counts = copy.copy(self.source, self.target,
                           lambda *step: done.append(step))
        self.assertEqual({name: len(rows) for name, rows in expected.items()},
                         counts)
        self.assertEqual((len(counts),) * 2, done[-1])
        copy.copy(self.target, self.back)
        for target in (self.target, self.back):
            for name, rows in self.rows(target).items():
                self.assertEqual(expected[name], rows, name)

    def test_readers_and_writers_go_on_with_the_copy(self):
        self.source.write([base.fitted(1), base.constant(2)])
        seen = self.source.read_changes().generation
        copy.copy(self.source, self.target)
        self.assertEqual(seen, self.target.generation())
        self.assertEqual(self.source.secret(), self.target.secret())
        self.assertEqual(2, self.target.write([base.constant(3)]).number)
        changes = self.target.read_changes(seen)
        self.assertEqual((False, [base.instance_uuid(3)]),
                         (changes.complete, list(changes.instance_uuids)))

    def test_a_store_with_rows_is_refused_and_stays(self):
        self.source.write([base.constant(1)])
        self.target.write_decisions([fake_store.decision(1, 1e9)])
        before = self.rows(self.target)
        with self.assertRaisesRegex(
                exceptions.StoreError,
                'table decision has rows; expected an empty database'):
            copy.copy(self.source, self.target)
        self.assertEqual(before, self.rows(self.target))

    def test_an_error_in_the_middle_leaves_the_target_empty(self):
        self.fill()
        before = self.rows(self.target)

        def interrupt(done, total):
            if done == total // 2:
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            copy.copy(self.source, self.target, interrupt)
        self.assertEqual(before, self.rows(self.target))

    def test_a_missing_store_is_named(self):
        missing = store.Store(f'sqlite:///{self.directory}/missing')
        for pair in ((missing, self.target), (self.source, missing)):
            with self.assertRaisesRegex(exceptions.StoreMissing, 'missing'):
                copy.copy(*pair)
