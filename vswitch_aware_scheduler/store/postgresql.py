# SPDX-License-Identifier: Apache-2.0
"""Connections of psycopg2 that a server which stands still cannot hold.

libpq waits for an answer without limit, and the server's own statement_timeout
is no help when the server is what hangs. psycopg2 could be given a limit for
all connections of a process, those of nova among them. So each call of ours is
watched instead: when it takes too long, the socket is shut, and the call ends
with an error as after any lost connection.
"""

import contextlib
import functools
import os
import socket
import threading

__all__ = ['connection_factory']


# Methods of psycopg2 that wait for an answer of the server.
_CONNECTION_METHODS = ('commit', 'reset', 'rollback', 'set_client_encoding',
                       'set_isolation_level')
_CURSOR_METHODS = ('callproc', 'copy_expert', 'copy_from', 'copy_to',
                   'execute', 'executemany')
# A cursor that has a name is on the server, until it is closed.
_SERVER_CURSOR_METHODS = ('__next__', 'close', 'fetchall', 'fetchmany',
                          'fetchone', 'scroll')


def connection_factory(extensions, seconds):
    """Return a class of connections, each call of which is limited.

    :param extensions: module psycopg2.extensions
    :param seconds: longest wait for one answer
    """
    def limit(base, names, connection_of):
        return {name: _limit(getattr(base, name), seconds, connection_of)
                for name in names}

    cursor = type('Cursor', (extensions.cursor,), {
        **limit(extensions.cursor, _CURSOR_METHODS,
                lambda cursor: cursor.connection),
        **limit(extensions.cursor, _SERVER_CURSOR_METHODS,
                lambda cursor: cursor.name and cursor.connection)})

    def __init__(self, *arguments, **more):
        extensions.connection.__init__(self, *arguments, **more)
        self.cursor_factory = cursor

    return type('Connection', (extensions.connection,), {
        '__init__': __init__,
        **limit(extensions.connection, _CONNECTION_METHODS,
                lambda connection: connection)})


def _limit(method, seconds, connection_of):
    """Return a method that waits for the server no longer than a limit.

    :param connection_of: returns the connection of what the method belongs
        to, or None when this call does not wait for the server
    """
    @functools.wraps(method)
    def limited(self, *arguments, **more):
        connection = connection_of(self)
        if not connection:
            return method(self, *arguments, **more)
        with _limited(connection, seconds):
            return method(self, *arguments, **more)

    return limited


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
