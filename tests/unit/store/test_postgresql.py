# SPDX-License-Identifier: Apache-2.0
"""What is watched; tests/integration has a real server that stands still."""

import socket
import threading
import time
import types
import unittest
from unittest import mock

from tests.fakes import psycopg2
from vswitch_aware_scheduler.store import postgresql


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
            psycopg2.extensions, seconds)(self.line)
        cursor = connection.cursor('of the server')
        return connection, [
            lambda: cursor.execute('SELECT'), cursor.executemany,
            lambda: cursor.fetchmany(3), cursor.fetchone, cursor.fetchall,
            cursor.__next__, cursor.close, connection.commit,
            connection.rollback]

    def test_an_answer_in_time_is_returned(self):
        _, calls = self._calls(20)
        self.server.sendall(b'abcdefghi')
        self.assertEqual(b'abcdefghi', b''.join(call() for call in calls))

    def test_rows_that_are_here_are_read_without_a_limit(self):
        # A thread for each row would cost more than the row.
        connection = postgresql.connection_factory(
            psycopg2.extensions, .01)(self.line)
        with mock.patch.object(threading, 'Timer') as timer:
            self.server.sendall(b'ab')
            cursor = connection.cursor()
            self.assertEqual([b'a', b'b'], [next(cursor), cursor.close()])
        timer.assert_not_called()

    def test_no_answer_is_not_waited_for(self):
        for number in range(len(self._calls(1)[1])):
            with self.subTest(number):
                self.setUp()
                began = time.monotonic()
                # As after a lost connection.
                self.assertEqual(b'', self._calls(.05)[1][number]())
                self.assertLess(time.monotonic() - began, 20)

    def test_a_line_that_is_gone_already_is_no_problem(self):
        slow = type('_Slow', (psycopg2.Cursor,), {
            'execute': lambda cursor, statement: time.sleep(.2)})
        connection = postgresql.connection_factory(
            types.SimpleNamespace(connection=psycopg2.Connection, cursor=slow),
            .05)(self.line)
        cursor = connection.cursor()
        self.server.close()
        self.line.shutdown(socket.SHUT_RDWR)
        cursor.execute('SELECT')
        connection.closed = 1
        cursor.execute('SELECT')
