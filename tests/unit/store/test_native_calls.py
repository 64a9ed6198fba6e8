# SPDX-License-Identifier: Apache-2.0

import os
import sqlite3
import tempfile
import unittest

from tests.fakes import green_threads
from vswitch_aware_scheduler.store import native_calls


class GreenThreadsTestCase(unittest.TestCase):
    """The rest of a process goes on while a thread waits for the store."""

    def setUp(self):
        super().setUp()
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(folder, 'vswitch.sqlite')

    def test_a_lock_of_sqlite_stops_nobody_else(self):
        # The lock is released by the same process. If nothing ran while the
        # store waits, the lock would last until the time limit, and writing
        # would fail.
        self.assertEqual('40 models\n', green_threads.run('''
            import sqlite3, sys, threading, time
            from vswitch_aware_scheduler import store
            from vswitch_aware_scheduler.store import migration
            from vswitch_aware_scheduler.traffic import model

            url = f'sqlite:///{sys.argv[1]}'
            migration.sync(url)
            law = model.TrafficModel.constant(egress_kbps=1.0)
            models = [store.StoredModel(f'{i:032}', law, source='test')
                      for i in range(40)]
            holder = sqlite3.connect(sys.argv[1], isolation_level=None)
            holder.execute('BEGIN EXCLUSIVE')
            thread = threading.Thread(
                target=store.Store(url, 20.0).write, kwargs={'models': models})
            thread.start()
            time.sleep(.1)
            assert thread.is_alive()
            holder.execute('COMMIT')
            thread.join()
            found, = holder.execute('SELECT count(*) FROM traffic_model')
            print(*found, 'models')
            ''', self.path))

    def test_a_server_of_postgresql_that_says_nothing_stops_nobody_else(self):
        # Psycopg2 is not installed with the unit tests: a class that waits in
        # the same way, by sockets that eventlet did not change.
        self.assertEqual("b'a' b'b' b'c' b'd' b''\n", green_threads.run('''
            import threading, time
            from eventlet import patcher
            from tests.fakes import psycopg2
            from vswitch_aware_scheduler.store import postgresql

            mine, server = patcher.original('socket').socketpair()
            mine.settimeout(60)

            class Connection(psycopg2.Connection):
                def __init__(self, line):
                    super().__init__(line)
                    self.first = line.recv(1)

            psycopg2.extensions.connection = Connection

            def connection(seconds):
                return postgresql.connection_factory(
                    psycopg2.extensions, seconds)(mine)

            found = []

            def use():
                patient = connection(50)
                found.append(patient.first)
                found.append(patient.cursor('rows').fetchmany(9))
                found.append(patient.commit())
                impatient = connection(.05)
                found.append(impatient.first)
                # It is never answered.
                found.append(impatient.commit())

            thread = threading.Thread(target=use)
            thread.start()
            for answer in b'abcd':
                time.sleep(.05)
                server.sendall(bytes([answer]))
            thread.join()
            print(*found)
            '''))

    def test_native_threads_call_directly(self):
        self.assertFalse(native_calls.are_needed())
        self.assertEqual({}, native_calls.sqlite_parameters())
        with self.assertRaises(sqlite3.OperationalError):
            native_calls.run(sqlite3.connect, '/nowhere/at/all')
