# SPDX-License-Identifier: Apache-2.0
"""Classes of psycopg2 that wait for a byte of a socket with each call."""

import types


def _asks(self, *arguments):
    return getattr(self, 'connection', self).line.recv(1)


class Connection:

    def __init__(self, line):
        self.line = line
        self.closed = 0

    def fileno(self):
        return self.line.fileno()

    def cursor(self, name=None):
        return self.cursor_factory(self, name)

    commit = reset = rollback = _asks
    set_client_encoding = set_isolation_level = _asks


class Cursor:

    def __init__(self, connection, name):
        self.connection = connection
        self.name = name

    callproc = copy_expert = copy_from = copy_to = _asks
    execute = executemany = _asks
    __next__ = close = fetchall = fetchmany = fetchone = scroll = _asks


extensions = types.SimpleNamespace(connection=Connection, cursor=Cursor)
