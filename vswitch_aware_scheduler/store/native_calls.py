# SPDX-License-Identifier: Apache-2.0
"""Calls of database clients written in C, in processes with green threads.

Before release 33, nova-scheduler runs its threads with eventlet: they share
one thread of the operating system. A client that eventlet cannot change, such
as sqlite3 or psycopg2, stops all of them while it waits for a lock or for the
server. In such a process, :func:`run` makes the call in a native thread, and
only the calling green thread waits for it.
"""

from collections import abc
import functools
import sqlite3
import sys
import typing

__all__ = ['are_needed', 'run', 'sqlite_parameters']

# Methods of sqlite3 that can wait for a lock, or that read many rows.
_CONNECTION_METHODS = ('close', 'commit', 'execute', 'executemany',
                       'executescript', 'rollback')
_CURSOR_METHODS = ('close', 'execute', 'executemany', 'executescript',
                   'fetchall', 'fetchmany')


def are_needed() -> bool:
    """Return whether the threads of this process are green threads."""
    # A process with native threads may forbid the import of eventlet.
    patcher = sys.modules.get('eventlet.patcher')
    return patcher is not None and patcher.is_monkey_patched('thread')


def run(function: abc.Callable[..., typing.Any], *arguments: typing.Any,
        **keywords: typing.Any) -> typing.Any:
    """Call a function, in a native thread if that is needed.

    The function must not use locks or other objects of :mod:`threading`.
    """
    if not are_needed():
        return function(*arguments, **keywords)
    from eventlet import tpool
    return tpool.execute(function, *arguments, **keywords)


def sqlite_parameters() -> dict[str, typing.Any]:
    """Return parameters of ``sqlite3.connect`` for this process."""
    if not are_needed():
        return {}
    # Successive calls may run in different native threads.
    return {'factory': _Connection, 'check_same_thread': False}


def _natively(method):
    @functools.wraps(method)
    def called(self, *arguments, **keywords):
        return run(method, self, *arguments, **keywords)

    return called


_Cursor = type('_Cursor', (sqlite3.Cursor,), {
    name: _natively(getattr(sqlite3.Cursor, name))
    for name in _CURSOR_METHODS})


class _Connection(sqlite3.Connection):

    def cursor(self, factory=_Cursor):
        return super().cursor(factory)


for _name in _CONNECTION_METHODS:
    setattr(_Connection, _name, _natively(getattr(sqlite3.Connection, _name)))
