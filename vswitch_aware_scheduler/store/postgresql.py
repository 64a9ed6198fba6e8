# SPDX-License-Identifier: Apache-2.0
"""Connections of psycopg2 that a server which stands still cannot hold.

libpq waits for an answer without limit, and the server's own statement_timeout
is no help when the server is what hangs. psycopg2 could be given a limit for
all connections of a process, those of nova among them. So each call of ours is
watched instead: when it takes too long, the socket is shut, and the call ends
with an error as after any lost connection.
"""

import contextlib
import os
import socket
import threading

__all__ = ['connection_factory']


def connection_factory(extensions, seconds):
    """Return a class of connections, each call of which is limited.

    :param extensions: module psycopg2.extensions
    :param seconds: longest wait for one answer
    """
    class Cursor(extensions.cursor):

        def execute(self, *arguments):
            with _limited(self.connection, seconds):
                return super().execute(*arguments)

        def fetchone(self):
            with _limited(self.connection, seconds):
                return super().fetchone()

        def fetchmany(self, *arguments):
            with _limited(self.connection, seconds):
                return super().fetchmany(*arguments)

        def fetchall(self):
            with _limited(self.connection, seconds):
                return super().fetchall()

    class Connection(extensions.connection):

        def __init__(self, *arguments, **more):
            super().__init__(*arguments, **more)
            self.cursor_factory = Cursor

        def commit(self):
            with _limited(self, seconds):
                return super().commit()

        def rollback(self):
            with _limited(self, seconds):
                return super().rollback()

    return Connection


@contextlib.contextmanager
def _limited(connection, seconds):
    # Closed already, or in a test: there is nothing to wait for.
    if connection.closed:
        yield
        return
    # A descriptor of its own: that of libpq may be closed, and its number
    # be another's, by the time that the limit is reached.
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        timer = threading.Timer(seconds, _shut, [line])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _shut(line):
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
