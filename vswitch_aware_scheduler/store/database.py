# SPDX-License-Identifier: Apache-2.0
"""A database with the schema of the store: engine, transactions, patience.

It knows no kind of record. :func:`reader`, :func:`writer` and
:func:`patient_writer` let the functions of a kind, which work on a connection,
also be called with a :class:`Database`.
"""

from collections import abc
import contextlib
import functools
import itertools
import os
import time
from typing import Concatenate
from typing import ParamSpec
from typing import TypeVar

from oslo_db import api as db_api
from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy import exc

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import engines
from vswitch_aware_scheduler.store import tables

__all__ = ['Database', 'patient_writer', 'reader', 'writer']

LOG = logs.get_logger(__name__)

#: Number of reasons that are stored so that each is logged only once.
_LOGGED = 10_000

#: Largest number of attempts of a write, within its patience.
_ATTEMPTS = 20

_P = ParamSpec('_P')
_R = TypeVar('_R')
_OnConnection = abc.Callable[Concatenate[sa.Connection, _P], _R]
_OnDatabase = abc.Callable[Concatenate['Database | sa.Connection', _P], _R]


class Database:
    """The database behind an SQLAlchemy URL.

    The constructor opens no connection, so a process may fork afterwards.
    Threads may share a database.

    Every method can raise StoreMissing when there is no store at the URL or it
    has no schema; StoreVersionError when its schema is older or newer than
    this release; StoreError when the database does not answer within the
    timeout. Messages never contain a password.

    :param timeout_seconds: longest time to wait for a connection, for a lock
        and for one answer, > 0
    :param patience_seconds: how long a write that waits for another writer is
        repeated; None: a writer waits for one timeout
    :raises StoreError: when the URL is not valid
    """

    def __init__(self, url: str, timeout_seconds: float = 5.0,
                 patience_seconds: float | None = None) -> None:
        self._url = engines.parse(url)
        self._timeout_seconds = timeout_seconds
        # A lock times out a little earlier than a connection.
        self._patience_seconds = (
            .7 * timeout_seconds if patience_seconds is None
            else patience_seconds)
        # By process id: connections are not shared with a child. No lock,
        # which a fork could leave held; two threads that race make an engine
        self._engines = {}
        self._logged = {}

    @property
    def url(self) -> str:
        """The URL for a message: without password."""
        return engines.hide_password(self._url)

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.url})'

    @contextlib.contextmanager
    def transaction(self, writes: bool = False) -> abc.Iterator[sa.Connection]:
        """Yield a connection within a transaction, and log damaged rows.

        The schema is not checked.

        :param writes: lock the file of SQLite at the begin: SQLite rejects a
            transaction that first reads, if another process then writes
        """
        engine = self._engine()
        if writes:
            engine = engine.execution_options(begin=engines.BEGIN_WRITING)
        engines.require_file(self._url)
        with engines.translate_errors(
                self._url, 'write' if writes else 'read'):
            with engine.begin() as connection:
                connection.execution_options(damaged={})
                yield connection
        self._log_damaged(connection)

    def read(self, function: _OnConnection[_P, _R], *arguments: _P.args,
             **keywords: _P.kwargs) -> _R:
        """Return function(connection, ...), within one consistent view."""
        def called(connection):
            return function(connection, *arguments, **keywords)

        engines.require_file(self._url)
        with engines.translate_errors(self._url, 'read'):
            try:
                return self._read_with(self._engine(), called)
            except (exc.OperationalError, db_exception.DBError) as error:
                if engines.sqlite_path(self._url) is None \
                        or not engines.is_write_protected(error):
                    raise
            return self._read_unlocked(called)

    def write_once(self, function: _OnConnection[_P, _R],
                   *arguments: _P.args, **keywords: _P.kwargs) -> _R:
        """Return function(connection, ...), within a transaction, once."""
        self.require_schema()
        with self.transaction(writes=True) as connection:
            return function(connection, *arguments, **keywords)

    def write_patiently(self, function: _OnConnection[_P, _R],
                        *arguments: _P.args, **keywords: _P.kwargs) -> _R:
        """Return function(connection, ...), within a transaction.

        The transaction is repeated after a deadlock, a wait for a lock or a
        lost connection, while the patience lasts. Its first statement writes.
        """
        attempts = itertools.count()
        limit = time.monotonic() + self._patience_seconds

        @db_api.wrap_db_retry(
            retry_interval=0.1, max_retries=_ATTEMPTS, max_retry_interval=2,
            retry_on_deadlock=True, retry_on_disconnect=True,
            exception_checker=engines.is_locked)
        def attempt():
            number = next(attempts)
            try:
                with self._engine().begin() as connection:
                    connection.execution_options(damaged={})
                    return connection, function(connection, *arguments,
                                                **keywords)
            except Exception:
                if number < _ATTEMPTS and time.monotonic() < limit:
                    raise
                # oslo.db would log the exception of the last attempt with its
                # traceback. It does not log a StoreError.
                with engines.translate_errors(self._url, 'write'):
                    raise

        self.require_schema()
        with engines.translate_errors(self._url, 'write'):
            connection, result = attempt()
        self._log_damaged(connection)
        return result

    def require_schema(self) -> None:
        """Raise if the store is missing or its schema has another version.

        It has its own transaction: SQLite can reject a write after a read.
        """
        self.read(lambda connection: None)

    def check_schema(self, connection: sa.Connection) -> None:
        """Raise if the schema is missing or has another version."""
        version, newest = tables.version(connection), tables.SCHEMA_VERSION
        if version == newest:
            return
        if version is None:
            raise exceptions.StoreMissing(store=self.url,
                                          seen='it has no schema')
        raise tables.wrong_version(
            self.url, version, newest, 'run "vswitch-manage db sync"'
            if version < newest else tables.NEWER)

    def _engine(self) -> sa.Engine:
        pid = os.getpid()
        engine = self._engines.get(pid)
        if engine is None:
            engine = self._engines.setdefault(
                pid, engines.create(self._url, self._timeout_seconds))
        return engine

    def _log_damaged(self, connection: sa.Connection) -> None:
        new = {key: reason for key, reason in damage.of(connection).items()
               if self._logged.get(key) != reason}
        if not new:
            return
        if len(self._logged) > _LOGGED:
            self._logged.clear()
        self._logged.update(new)
        LOG.warning('store %s: %d rows are damaged or invalid: %s', self.url,
                    len(new), plain_text.first_of(new.values(), '; '))

    def _log_recovered(self, changes):
        if not self._logged:
            return
        for kind, name in self._logged.keys() & changes.read_keys():
            del self._logged[kind, name]
            LOG.info('store %s: %s %s can be read again', self.url, kind,
                     name)

    def _read_with(self, engine, function):
        with engine.connect() as connection:
            connection.execution_options(damaged={}, **(
                {} if engine.dialect.name == 'sqlite'
                else {'isolation_level': 'REPEATABLE READ'}))
            with connection.begin():
                self.check_schema(connection)
                result = function(connection)
        self._log_damaged(connection)
        return result

    def _read_unlocked(self, function):
        # SQLite cannot open a write-ahead log in a directory where this
        # process may not write while no other process has it open. Then the
        # file is at rest: read it as it is, and make sure that it still was
        # at rest afterwards.
        path = str(engines.sqlite_path(self._url))

        def state():
            status = os.stat(path)
            log_path = path + '-wal'
            return (status.st_ino, status.st_size, status.st_mtime_ns,
                    os.path.exists(log_path) and os.path.getsize(log_path))

        engine = engines.create(self._url, self._timeout_seconds,
                                immutable=True)
        before = state()
        try:
            if not before[-1]:
                return self._read_with(engine, function)
        finally:
            if before[-1] or state() != before:
                raise exceptions.StoreError(
                    f'store {self.url}: cannot be read while another process '
                    f'writes to it; expected write access to the directory '
                    f'{os.path.dirname(path)}')


def reader(function: _OnConnection[_P, _R]) -> _OnDatabase[_P, _R]:
    """Let a function also be called on a Database: :meth:`Database.read`."""
    return _on_database(function, 'read')


def writer(function: _OnConnection[_P, _R]) -> _OnDatabase[_P, _R]:
    """As :func:`reader`, see :meth:`Database.write_once`."""
    return _on_database(function, 'write_once')


def patient_writer(function: _OnConnection[_P, _R]) -> _OnDatabase[_P, _R]:
    """As :func:`reader`, see :meth:`Database.write_patiently`."""
    return _on_database(function, 'write_patiently')


def _on_database(function, method):
    @functools.wraps(function)
    def called(database, *arguments, **keywords):
        if isinstance(database, sa.Connection):
            return function(database, *arguments, **keywords)
        return getattr(database, method)(function, *arguments, **keywords)

    return called
