# SPDX-License-Identifier: Apache-2.0
"""What is watched; tests/integration has a real server that stands still."""

import socket
import time
import types
import unittest

from vswitch_aware_scheduler.store import postgresql


class _Connection:
    """As psycopg2's: every call waits for a byte of the server."""

    def __init__(self, line):
        self._line = line
        self.closed = 0

    def fileno(self):
        return self._line.fileno()

    def cursor(self):
        return self.cursor_factory(self)

    def answer(self):
        return self._line.recv(1)

    def commit(self):
        return self.answer()

    rollback = commit


class _Cursor:

    def __init__(self, connection):
        self.connection = connection

    def execute(self, statement, parameters=None):
        return self.connection.answer()

    def fetchone(self):
        return self.connection.answer()

    def fetchmany(self, size=None):
        return self.connection.answer()

    fetchall = fetchone


EXTENSIONS = types.SimpleNamespace(connection=_Connection, cursor=_Cursor)


class LimitTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        mine, self.server = socket.socketpair()
        self.addCleanup(mine.close)
        self.addCleanup(self.server.close)
        mine.settimeout(30)
        self.line = mine

    def _calls(self, seconds):
        connection = postgresql.connection_factory(
            EXTENSIONS, seconds)(self.line)
        cursor = connection.cursor()
        return connection, [
            lambda: cursor.execute('SELECT'), cursor.fetchone,
            lambda: cursor.fetchmany(3), cursor.fetchall, connection.commit,
            connection.rollback]

    def test_an_answer_in_time_is_returned(self):
        _, calls = self._calls(20)
        self.server.sendall(b'abcdef')
        self.assertEqual([b'a', b'b', b'c', b'd', b'e', b'f'],
                         [call() for call in calls])

    def test_no_answer_is_not_waited_for(self):
        for number in range(len(self._calls(1)[1])):
            with self.subTest(number):
                self.setUp()
                began = time.monotonic()
                # As after a lost connection.
                self.assertEqual(b'', self._calls(.05)[1][number]())
                self.assertLess(time.monotonic() - began, 20)

    def test_a_line_that_is_gone_already_is_no_problem(self):
        connection, [execute, *_] = self._calls(.05)
        self.server.close()
        connection.answer = lambda: time.sleep(.2)
        self.line.shutdown(socket.SHUT_RDWR)
        execute()
        connection.closed = 1
        execute()
