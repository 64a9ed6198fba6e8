# SPDX-License-Identifier: Apache-2.0
"""Connections of psycopg2 with a time limit, for a server that hangs.

libpq waits for an answer without limit. The server's statement_timeout does
not help if the server itself hangs. psycopg2 only has a limit for all
connections of a process, including those of nova. Therefore each call on our
connections is monitored: if it takes too long, the socket is shut down and the
call fails as after a lost connection.
"""

import contextlib
import functools
import os
import socket
import threading
import typing

from vswitch_aware_scheduler.store import native_calls

__all__ = ['connection_factory']


# Methods of psycopg2 that wait for the server.
_CONNECTION_METHODS = ('commit', 'reset', 'rollback', 'set_client_encoding',
                       'set_isolation_level')
_CURSOR_METHODS = ('callproc', 'copy_expert', 'copy_from', 'copy_to',
                   'execute', 'executemany')
# A named cursor exists on the server until it is closed.
_SERVER_CURSOR_METHODS = ('__next__', 'close', 'fetchall', 'fetchmany',
                          'fetchone', 'scroll')


def connection_factory(extensions: typing.Any, seconds: float) -> type:
    """Return a class of connections with a time limit on each call."""
    def limit(base, names, connection_of):
        return {name: _limit(getattr(base, name), seconds, connection_of)
                for name in names}

    cursor = type('Cursor', (extensions.cursor,), {
        **limit(extensions.cursor, _CURSOR_METHODS,
                lambda cursor: cursor.connection),
        **limit(extensions.cursor, _SERVER_CURSOR_METHODS,
                lambda cursor: cursor.name and cursor.connection)})

    def __init__(self, *arguments, **keywords):
        native_calls.run(extensions.connection.__init__, self, *arguments,
                         **keywords)
        self.cursor_factory = cursor

    return type('Connection', (extensions.connection,), {
        '__init__': __init__,
        **limit(extensions.connection, _CONNECTION_METHODS,
                lambda connection: connection)})


def _limit(method, seconds, connection_of):
    """Return a method that waits for the server only for a limited time.

    :param connection_of: callable, returns the connection of the method's
        object, or None if this call does not wait for the server
    """
    @functools.wraps(method)
    def limited(self, *arguments, **keywords):
        connection = connection_of(self)
        if not connection:
            return method(self, *arguments, **keywords)
        with _limited(connection, seconds):
            return native_calls.run(method, self, *arguments, **keywords)

    return limited


@contextlib.contextmanager
def _limited(connection, seconds):
    # The connection is closed, or belongs to a test: nothing to wait for.
    if connection.closed:
        yield
        return
    # A separate descriptor: libpq may have closed its own, and its number may
    # be reused, when the limit is reached.
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
