# SPDX-License-Identifier: Apache-2.0

import contextlib
import os
import pathlib
import pwd
import shutil
import sqlite3
import subprocess
import sys

from alembic import autogenerate
from alembic.runtime import migration as alembic_migration
import sqlalchemy as sa

from tests.unit.store import base
import vswitch_aware_scheduler
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import engines
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.store import tables


class MigrationTestCase(base.StoreTestCase):

    def _difference(self):
        engine = engines.create(engines.parse(self.url), 5)
        self.addCleanup(engine.dispose)
        with engine.connect() as connection:
            context = alembic_migration.MigrationContext.configure(
                connection, opts={'compare_type': True,
                                  'compare_server_default': True})
            return autogenerate.compare_metadata(context, tables.metadata)

    def test_walking_up_one_revision_at_a_time_gives_the_models(self):
        previous = None
        for revision in migration.revisions():
            self.assertEqual((previous, revision),
                             migration.sync(self.url, revision))
            self.assertEqual(revision, migration.version(self.url))
            previous = revision
        self.assertEqual([], self._difference())

    def test_the_comparison_notices_a_column_and_an_index_too_many(self):
        migration.sync(self.url)
        self.execute('ALTER TABLE removal ADD COLUMN more INTEGER')
        self.execute('CREATE INDEX ix_more ON removal (removed_at)')
        self.assertEqual({'remove_column', 'remove_index'},
                         {change[0] for change in self._difference()})

    def test_sync_twice_changes_nothing(self):
        migration.sync(self.url)
        rows = self.execute('SELECT * FROM generation')
        self.assertEqual((tables.SCHEMA_VERSION,) * 2,
                         migration.sync(self.url))
        self.assertEqual(rows, self.execute('SELECT * FROM generation'))

    def test_a_store_of_another_lineage_is_left_alone(self):
        migration.sync(self.url)
        too_old = ('expected 0001_initial: no migration .*remove its tables'
                   '.*learns')
        for version, advice in (('0001', too_old), ('0017', too_old),
                                ('9999', '.*newer release')):
            self.execute('UPDATE alembic_version SET version_num = :version',
                         version=version)
            for use in (lambda: migration.sync(self.url),
                        store.Store(self.url).generation,
                        store.Store(self.url).read_claims):
                with self.assertRaisesRegex(exceptions.StoreVersionError,
                                            f'version {version}; {advice}'):
                    use()

    def test_an_upgrade_that_was_cut_anywhere_can_be_repeated(self):
        for statements in range(5, 500, 7):
            complete = self._is_whole_before(statements)
            self.assertEqual(tables.SCHEMA_VERSION,
                             migration.sync(self.url)[1])
            self.assertEqual([], self._difference())
            for table in ('generation', 'claim_counter'):
                self.assertEqual([(1,)], self.execute(
                    f'SELECT count(*) FROM {table}'))
            if complete:
                break
            self.remove_store()
        self.assertGreater(statements, 30)

    def _is_whole_before(self, statements):
        """Whether an upgrade ends before so many statements are sent."""
        statements_left = [statements]

        def before(*_):
            statements_left[0] -= 1
            if not statements_left[0]:
                raise KeyboardInterrupt

        sa.event.listen(sa.engine.Engine, 'before_cursor_execute', before)
        try:
            migration.sync(self.url)
        except KeyboardInterrupt:
            return False
        finally:
            sa.event.remove(sa.engine.Engine, 'before_cursor_execute',
                            before)
        return True

    def test_upgrades_at_the_same_time_wait_for_each_other(self):
        children = []
        for _ in range(3):
            pid = os.fork()
            if not pid:
                status = 1
                try:
                    migration.sync(self.url, timeout_seconds=60)
                    status = 0
                finally:
                    os._exit(status)
            children.append(pid)
        self.assertEqual([0] * 3, [os.waitstatus_to_exitcode(os.waitpid(
            pid, 0)[1]) for pid in children])
        self.assertEqual([], self._difference())


class FileTestCase(base.StoreTestCase):

    def test_revisions_are_in_the_order_of_their_names(self):
        # database.py compares them.
        revisions = migration.revisions()
        self.assertEqual(sorted(revisions), revisions)

    def test_neither_an_unknown_version_nor_a_question_makes_a_file(self):
        with self.assertRaisesRegex(exceptions.StoreVersionError,
                                    'version: .9999.; expected'):
            migration.sync(self.url, '9999')
        with self.assertRaises(exceptions.StoreMissing):
            migration.version(self.url)
        self.assertFalse(os.path.exists(self.path))

    def test_a_missing_directory_is_made(self):
        directory = pathlib.Path(self.directory, 'not', 'yet')
        url = f'sqlite:///{directory}/x.sqlite'
        self.assertEqual(str(directory), migration.missing_directory(url))
        migration.sync(url)
        self.assertEqual(0o750, directory.stat().st_mode & 0o777)
        self.assertIsNone(migration.missing_directory(url))
        self.assertEqual(0, store.Store(url).generation().number)

    def test_commands_are_told_where_the_directory_cannot_be_made(self):
        # Not even root can make a directory below a file.
        below = pathlib.Path(self.directory, 'a file')
        below.touch()
        with self.assertRaises(exceptions.StoreError) as caught:
            migration.sync(f'sqlite:///{below}/state/x.sqlite')
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.assertIn(
            f"run \"sudo install -d -o {user} -m 0750 '{below}/state'\" and "
            f'then "vswitch-manage db sync"', str(caught.exception))
        self.assertIn('(Not a directory)', str(caught.exception))

    def test_a_server_has_no_directory(self):
        self.assertIsNone(migration.missing_directory('mysql+pymysql://h/x'))

    def test_a_file_that_is_no_database_is_left_alone(self):
        pathlib.Path(self.path).write_bytes(b'a letter to someone' * 100)
        with self.assertRaisesRegex(exceptions.StoreError,
                                    'cannot migrate it'):
            migration.sync(self.url)
        self.assertTrue(pathlib.Path(self.path).read_bytes().startswith(
            b'a letter to someone'))

    def test_a_failed_migration_leaves_nothing_behind(self):
        # A table of that name is there already, of someone else.
        self.execute('CREATE TABLE removal (mine INTEGER)')
        with self.assertRaisesRegex(exceptions.StoreError,
                                    'removal already exists'):
            migration.sync(self.url)
        self.assertEqual(
            [('removal',)],
            self.execute("SELECT name FROM sqlite_master "
                         "WHERE type = 'table'"))
        self.assertIsNone(migration.version(self.url))

    def test_only_a_missing_or_empty_file_is_new(self):
        self.assertTrue(migration.is_new_file(self.url))
        pathlib.Path(self.path).touch()
        self.assertTrue(migration.is_new_file(self.url))
        self.execute('CREATE TABLE other (id INTEGER)')
        self.assertFalse(migration.is_new_file(self.url))
        self.assertFalse(migration.is_new_file('mysql+pymysql://h/x'))

    def test_others_may_neither_read_nor_write_the_files(self):
        umask = os.umask(0)
        self.addCleanup(os.umask, umask)
        migration.sync(self.url)
        store.Store(self.url).write([base.constant(1)])
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            connection.execute('SELECT * FROM generation').fetchall()
            # So that readers do not wait for a writer.
            self.assertEqual([('wal',)], connection.execute(
                'PRAGMA journal_mode').fetchall())
            modes = {name: oct(os.stat(os.path.join(
                self.directory, name)).st_mode & 0o777)
                for name in os.listdir(self.directory)}
        self.assertEqual({
            'vswitch.sqlite' + suffix: '0o640'
            for suffix in ('', '-wal', '-shm')}, modes)

    def test_migrations_are_found_wherever_the_package_is(self):
        # As in site-packages, at a path with a percent sign, from elsewhere.
        source = pathlib.Path(vswitch_aware_scheduler.__file__).parent
        target = pathlib.Path(self.directory, 'site%20packages')
        shutil.copytree(source, target / source.name,
                        ignore=shutil.ignore_patterns('__pycache__'))
        result = subprocess.run(
            [sys.executable, '-c',
             'import sys\n'
             'from vswitch_aware_scheduler.store import migration\n'
             'print(migration.__file__)\n'
             'print(migration.sync(sys.argv[1])[1])', self.url],
            env=dict(os.environ, PYTHONPATH=str(target)), cwd=self.directory,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=True)
        place, version = result.stdout.split()
        self.assertTrue(place.startswith(str(target)), place)
        self.assertEqual(tables.SCHEMA_VERSION, version)
