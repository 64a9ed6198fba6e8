# SPDX-License-Identifier: Apache-2.0
"""The tests of the store, and those of a pass, for another database."""

import concurrent.futures
import contextlib
import os
import threading
import time
from unittest import mock

import sqlalchemy as sa

from tests.fakes import store as fake_store
from tests.fakes import store_accounts
from tests.integration import modeler_suite
from tests.unit.modeler import test_kill
from tests.unit.modeler import test_learning
from tests.unit.store import base as store_base
from tests.unit.store import test_budgets
from tests.unit.store import test_claims
from tests.unit.store import test_copy
from tests.unit.store import test_database
from tests.unit.store import test_decisions
from tests.unit.store import test_instances
from tests.unit.store import test_migration
from tests.unit.store import test_modelers
from tests.unit.store import test_models
from tests.unit.store import test_plans
from tests.unit.store import test_rights
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import models

_MY_NUMBER = {'mysql': 'SELECT CONNECTION_ID()',
              'postgresql': 'SELECT pg_backend_pid()'}
_END = {'mysql': 'KILL CONNECTION {}',
        'postgresql': 'SELECT pg_terminate_backend({})'}

_WAITING = {
    'mysql': "SELECT count(*) FROM information_schema.innodb_trx "
             "WHERE trx_state = 'LOCK WAIT'",
    'postgresql': "SELECT count(*) FROM pg_stat_activity "
                  "WHERE wait_event_type = 'Lock'"}
_ISOLATION = {
    'mysql': 'SET GLOBAL TRANSACTION ISOLATION LEVEL {level}',
    'postgresql': "ALTER DATABASE {database} "
                  "SET default_transaction_isolation = '{level}'"}
_DEFAULT_LEVEL = {'mysql': 'REPEATABLE READ', 'postgresql': 'READ COMMITTED'}


class ContentionTestCase(store_base.StoreTestCase):
    """What others do to a writer, as the servers do it."""

    def setUp(self):
        super().setUp()
        engine = sa.create_engine(self.url)
        self.addCleanup(engine.dispose)
        self.kind = engine.dialect.name
        self.store = self.make_store()
        self.store.write([store_base.constant(1)])
        self.other = self.enterContext(contextlib.closing(engine.connect()))
        self.pool = self.enterContext(
            concurrent.futures.ThreadPoolExecutor(1))

    def _lock_generation(self):
        self.other.exec_driver_sql('UPDATE generation SET number = number')

    def test_a_writer_waits_for_another_one_longer_than_the_timeout(self):
        writer = store.Store(self.url, 1, patience_seconds=60)
        self._lock_generation()
        writing = self.pool.submit(writer.write, [store_base.constant(2)])
        time.sleep(3)
        self.assertFalse(writing.done())
        # A reader does not wait at all.
        self.assertEqual(1, writer.generation().number)
        self.other.rollback()
        self.assertEqual(2, writing.result().number)

    def test_the_clock_of_the_database_is_told(self):
        self.assertLess(abs(self.store.server_time() - time.time()), 60)

    def test_a_writer_that_waits_too_long_says_so(self):
        writer = self.make_store(timeout_seconds=1)
        self._lock_generation()
        began = time.monotonic()
        with self.assertRaisesRegex(exceptions.StoreError,
                                    'cannot write it: .*(lock|Lock|Lost)'):
            writer.write([store_base.constant(2)])
        # Not by twenty attempts.
        self.assertLess(time.monotonic() - began, 15)
        self.other.rollback()
        self.assertEqual(2, writer.write([store_base.constant(2)]).number)

    def _waits_for_a_lock(self):
        """Return whether any session of the server waits for a lock."""
        return bool(self.other.exec_driver_sql(
            _WAITING[self.kind]).scalar_one())

    def _set_isolation(self, level):
        """Change the isolation level that new sessions have by default."""
        statement = _ISOLATION[self.kind].format(
            level=level, database=sa.make_url(self.url).database)
        self.other.exec_driver_sql(statement)
        self.other.commit()

    def _set_snapshot_isolation(self):
        """Let MariaDB refuse what it did not refuse before 11.6.2."""
        if self.kind != 'mysql':
            return
        for name, value in self.other.exec_driver_sql(
                'SHOW VARIABLES LIKE "innodb_snapshot_isolation"').all():
            self.other.exec_driver_sql(f'SET GLOBAL {name} = ON')
            self.addCleanup(self.other.exec_driver_sql,
                            f'SET GLOBAL {name} = {value}')

    def test_a_claim_reads_what_was_written_while_it_waited(self):
        # Whatever the defaults of the server.
        self._set_snapshot_isolation()
        self.addCleanup(self._set_isolation, _DEFAULT_LEVEL[self.kind])
        for level in ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'):
            self._set_isolation(level)
            first, second = store.Store(self.url), store.Store(self.url)
            seen = fake_store.write_claims(first).seen
            second.read_claims(seen)
            with first.claiming(seen) as (changes, write):
                self.assertEqual([], changes.claims)
                later = self.pool.submit(
                    fake_store.write_claims, second,
                    fake_store.claim(2, token=level), since=seen)
                while not self._waits_for_a_lock():
                    self.assertFalse(later.done(), level)
                    self.other.rollback()
                    # InnoDB does not renew this table while it is read more
                    # often than every 0.1 s.
                    time.sleep(.2)
                write([fake_store.claim(1, token=level)])
            self.assertEqual([level], [
                claim.token for claim in later.result().claims], level)
            self.assertEqual([level] * 2, [
                claim.token for claim in first.read_claims().claims])

    @contextlib.contextmanager
    def _before_the_end(self, function):
        """Call function(connection) once, in the middle of a write."""
        functions = [function]

        def forget_removals(connection, now):
            while functions:
                functions.pop()(connection)
            original(connection, now)

        original = generations.forget_removals
        with mock.patch.object(generations, 'forget_removals',
                               forget_removals):
            yield
        self.assertEqual([], functions)

    def test_a_lost_connection_is_made_anew(self):
        def lose(connection):
            number = connection.exec_driver_sql(
                _MY_NUMBER[self.kind]).scalar()
            self.other.exec_driver_sql(_END[self.kind].format(number))
            time.sleep(.2)

        with self._before_the_end(lose):
            generation = self.store.write([store_base.constant(2)])
        self.assertEqual(2, generation.number)
        self.assertEqual(2, len(self.store.models()))

    def test_the_session_of_a_writer_that_stands_still_is_ended(self):
        stands, goes_on = threading.Event(), threading.Event()
        self.addCleanup(goes_on.set)

        def stand_still(_connection):
            stands.set()
            goes_on.wait()

        with self._before_the_end(stand_still):
            writing = self.pool.submit(store.Store(
                self.url, 1, patience_seconds=60).write,
                [store_base.constant(2)])
            stands.wait()
            self.assertEqual(2, self.store.write(
                [store_base.constant(3)]).number)
            goes_on.set()
            # It begins again, with a new session.
            self.assertEqual(3, writing.result().number)
        self.assertEqual(3, len(self.store.models()))

    def test_the_victim_of_a_deadlock_tries_again(self):
        attempts = []

        def write_models(*arguments):
            attempts.append(arguments)
            original(*arguments)

        original = models.write
        if self.kind == 'postgresql':
            # The session that detects the deadlock first is aborted.
            self.other.exec_driver_sql("SET deadlock_timeout = '1min'")
        else:
            # The session that has changed fewer rows is aborted.
            self.store.write([store_base.constant(n) for n in range(200)])
        before = self.store.generation().number
        self.other.exec_driver_sql('UPDATE traffic_model SET samples = 7')
        with mock.patch.object(models, 'write', write_models):
            writing = self.pool.submit(self.store.write,
                                       [store_base.constant(1)])
            time.sleep(.5)
            self._lock_generation()
            self.other.commit()
            self.assertEqual(before + 1, writing.result().number)
        self.assertEqual(2, len(attempts))


class GrantsTestCase(store_base.StoreTestCase):
    """The user of schedulers that the manual creates."""

    def test_a_scheduler_needs_no_more_rights(self):
        modeler = self.make_store()
        target = store.Store(store_accounts.create(self.url)[0])
        for call in test_rights.CALLS.values():
            call(target)
        with self.assertRaises(exceptions.StoreError):
            target.write([store_base.constant(1)])
        self.assertEqual([], modeler.models())


#: All that needs no SQLite file.
CASES = (
    ContentionTestCase, GrantsTestCase,
    modeler_suite.KilledModelersTestCase, test_claims.ClaimsTestCase,
    test_copy.CopyTestCase,
    test_database.RoundTripTestCase, test_database.IncrementalReadTestCase,
    test_database.NamesTestCase,
    test_database.InterruptionTestCase, test_database.ConcurrencyTestCase,
    test_database.BrokenContentTestCase, test_migration.MigrationTestCase,
    test_models.ResumingTestCase, test_instances.PlacementsTestCase,
    test_instances.PriorsTestCase,
    test_modelers.ModelersTestCase, test_decisions.DecisionsTestCase,
    test_plans.RebalanceRecordsTestCase,
    test_budgets.BudgetsTestCase, test_budgets.StaysTestCase,
    test_kill.KillTestCase,
    test_learning.IncrementalTestCase, test_learning.SharesTestCase)


class OnServer:
    """Mixin of a StoreTestCase: each test has an empty database of a server.

    Its store is that of a user with no more rights than the modeler's.

    :cvar server: fixture with ``url``
    """

    server = None

    def make_url(self):
        return new_database(self.server)

    def make_store(self, timeout_seconds=5.0):
        opened = super().make_store(timeout_seconds)
        if self.url.startswith('sqlite'):
            return opened
        return store.Store(store_accounts.create(self.url)[1], timeout_seconds)

    def remove_store(self):
        engine = sa.create_engine(self.url)
        self.addCleanup(engine.dispose)
        metadata = sa.MetaData()
        metadata.reflect(engine)
        metadata.drop_all(engine)


def execute(server, *statements):
    """Execute statements that cannot be in a transaction."""
    engine = sa.create_engine(server.url, isolation_level='AUTOCOMMIT')
    try:
        with engine.connect() as connection:
            return [connection.exec_driver_sql(statement)
                    for statement in statements]
    finally:
        engine.dispose()


def new_database(server):
    """Return the URL of a new database."""
    name = 'store_' + os.urandom(6).hex()
    execute(server, f'CREATE DATABASE {name}')
    return sa.make_url(server.url).set(database=name).render_as_string(
        hide_password=False)


def cases(module, mixin):
    """Return {name: test case} of all CASES with a mixin."""
    return {case.__name__: type(case.__name__, (mixin, case),
                                {'__module__': module}) for case in CASES}
