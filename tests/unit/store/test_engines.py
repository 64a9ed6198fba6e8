# SPDX-License-Identifier: Apache-2.0

import contextlib
import logging
import os
import sqlite3
import sys
import unittest
from unittest import mock

from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy import exc

from tests.fakes import psycopg2
from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import engines

SECRET = 'open-sesame'


class PoolTestCase(base.StoreTestCase):

    def test_a_failed_clean_up_is_logged_at_level_debug(self):
        self.make_store()
        for kind in (KeyboardInterrupt, ValueError):
            for level in (logging.INFO, logging.DEBUG):
                engine = engines.create(engines.parse(self.url), 1.0)
                with mock.patch.object(engine.dialect, 'do_close',
                                       side_effect=kind), \
                        self.assertLogs('sqlalchemy', level) as logs:
                    logging.getLogger('sqlalchemy').info('the only line')
                    with contextlib.suppress(KeyboardInterrupt):
                        engine.connect().close()
                self.assertEqual(level == logging.DEBUG, any(
                    'closing connection' in record.getMessage()
                    for record in logs.records))
                self.assertLessEqual({record.levelname for record
                                      in logs.records}, {'DEBUG', 'INFO'})

    def test_pools_of_others_log_as_before(self):
        engines.create(engines.parse('sqlite:////x'), 1.0)
        other = sa.create_engine('sqlite://', poolclass=sa.pool.NullPool)
        with self.assertLogs(level='INFO') as logs:
            other.pool.logger.error('broken')
        self.assertEqual('ERROR', logs.records[0].levelname)


class UrlTestCase(unittest.TestCase):

    def test_an_unusable_url_is_refused_and_never_shown(self):
        for url in (SECRET, f'mysql://u:{SECRET}@host:port/x',
                    f'oracle://u:{SECRET}@host/x', 'sqlite://',
                    'sqlite:///:memory:', '', None, 5,
                    # Passwords that split the URL.
                    f'mysql+pymysql://u:p@{SECRET}@host/x',
                    f'postgresql+psycopg2://u:pw@{SECRET}@host:1/x',
                    f'postgresql+psycopg2://u/x:p@{SECRET}@host/x',
                    f'sqlite://u:{SECRET}@host/x'):
            with self.assertRaises(exceptions.StoreError) as caught:
                store.Store(url)
            self.assertNotIn(SECRET, str(caught.exception))
            self.assertIn('expected', str(caught.exception))
        self.assertEqual('mysql+pymysql://u:***@host/x', store.Store(
            f'mysql+pymysql://u:p%40{SECRET}@host/x').url)

    def test_neither_password_nor_query_of_a_url_is_shown(self):
        url = f'postgresql+psycopg2://u:{SECRET}@host/x?password={SECRET}'
        storage = store.Store(url)
        for text in (storage.url, repr(storage), str(storage)):
            self.assertNotIn(SECRET, text)
        self.assertEqual('postgresql+psycopg2://u:***@host/x', storage.url)

    def test_a_missing_client_is_named_with_its_extra(self):
        for kind, module in (('mysql', 'pymysql'), ('postgresql', 'psycopg2')):
            with mock.patch.dict(sys.modules, {module: None}), \
                    self.assertRaisesRegex(
                        exceptions.StoreError,
                        rf'{module}.*vswitch_aware_scheduler\[{kind}\]'
                    ) as caught:
                store.Store(
                    f'{kind}+{module}://u:{SECRET}@host/x').generation()
            self.assertNotIn(SECRET, str(caught.exception))

    def test_parameters_and_clients_that_do_not_exist_are_a_store_error(self):
        for url in (f'mysql+pymysql://u:{SECRET}@127.0.0.1:1/x?foo=1',
                    f'mysql+pymysql://u:{SECRET}@127.0.0.1:1/x?foo=',
                    f'mysql+pymysql://u:{SECRET}@127.0.0.1:1/x?port=a',
                    f'mysql+pymysql://u:{SECRET}@127.0.0.1:1/x?charset=no',
                    f'postgresql+psycopg2://u:{SECRET}@127.0.0.1:1/x?foo=1',
                    'sqlite+none:////tmp/x'):
            with self.assertRaises(exceptions.StoreError) as caught:
                store.Store(url).generation()
            self.assertNotIn(SECRET, str(caught.exception))


class TimeoutTestCase(unittest.TestCase):

    def _connect_arguments(self, url, module):
        # The database's own client is what a timeout has to reach.
        client = mock.MagicMock()
        client.paramstyle = 'format'
        client.__version__ = '2.9.9'
        client.Error = client.DatabaseError = sqlite3.Error
        client.connect.side_effect = OSError('no network here')
        # psycopg2's have these methods, and can be inherited from.
        client.connection = psycopg2.Connection
        client.cursor = psycopg2.Cursor
        with mock.patch.dict(sys.modules, {
                module: client, f'{module}.extensions': client,
                f'{module}.extras': client, f'{module}.constants': client}):
            with self.assertRaisesRegex(exceptions.StoreError, 'no network'):
                store.Store(url, timeout_seconds=7).generation()
        return client.connect.call_args.kwargs

    def test_mariadb_is_given_up_and_ends_a_session_that_stands_still(self):
        arguments = self._connect_arguments('mysql+pymysql://u@h/x', 'pymysql')
        self.assertEqual(
            (7, 7, 7, 'utf8mb4'),
            tuple(arguments[key] for key in ('connect_timeout', 'read_timeout',
                                             'write_timeout', 'charset')))
        common, of_mariadb = arguments['init_command'].split('/*M!100301')
        self.assertIn('idle_transaction_timeout = 14', of_mariadb)
        # A reader may take longer than the timeout for all rows of a table.
        self.assertIn('max_statement_time = 600', of_mariadb)
        # MySQL has only this one.
        self.assertIn('wait_timeout = 14', common)

    def test_postgresql_is_given_up_and_ends_a_session_that_stands_still(self):
        arguments = self._connect_arguments('postgresql+psycopg2://u@h/x',
                                            'psycopg2')
        self.assertEqual('7', str(arguments['connect_timeout']))
        for limit in ('statement_timeout=7s',
                      'idle_in_transaction_session_timeout=14s',
                      'lock_timeout=5600ms', 'tcp_keepalives_idle=14',
                      'tcp_user_timeout=35s'):
            self.assertIn(limit, arguments['options'])

    def test_what_the_url_says_is_kept(self):
        arguments = self._connect_arguments(
            'mysql+pymysql://u@h/x?read_timeout=60', 'pymysql')
        self.assertEqual(60, arguments['read_timeout'])


class LockedTestCase(unittest.TestCase):

    def test_a_lock_of_postgresql_that_timed_out_is_told_from_others(self):
        # 55P03 is lock_not_available, 57014 query_canceled.
        for code, locked in (('55P03', True), ('57014', False)):
            original = mock.Mock(spec=['pgcode'], pgcode=code)
            error = exc.OperationalError('UPDATE', {}, original)
            self.assertEqual(locked, engines.is_locked(error))
            self.assertEqual(locked, engines.is_locked(
                db_exception.DBError(error)))


class SqliteFileTestCase(base.StoreTestCase):

    def test_a_file_with_odd_characters_in_its_path_is_found(self):
        self.path = os.path.join(self.directory, 'a b%20#ü.sqlite')
        url = engines.parse('sqlite:///x').set(database=self.path)
        self.url = url.render_as_string()
        self.store.write([base.constant(1)])
        self.assertTrue(os.path.exists(self.path))
        self.assertEqual(1, self.store.generation().number)

    def test_a_relative_path_is_from_the_working_directory(self):
        url = engines.parse('sqlite:///some.sqlite')
        self.assertEqual(os.path.join(os.getcwd(), 'some.sqlite'),
                         engines.sqlite_path(url))

    def test_an_sqlite_uri_says_itself_how_to_be_opened(self):
        self.make_store().write([base.constant(1)])
        storage = store.Store(f'sqlite:///file:{self.path}?mode=ro&uri=true')
        self.assertEqual(1, storage.generation().number)
        with self.assertRaisesRegex(exceptions.StoreError, 'readonly'):
            storage.write([base.constant(2)])
