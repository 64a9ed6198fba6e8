# SPDX-License-Identifier: Apache-2.0
"""Creates database engines from store URLs, and translates their errors.

Every connection has a timeout.
"""

from collections import abc
import contextlib
import functools
import importlib
import os
import pathlib
import random
import sqlite3
import time

from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import exc_filters
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy import pool

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.store import native_calls
from vswitch_aware_scheduler.store import postgresql

__all__ = ['BEGIN_WRITING', 'create', 'hide_password', 'is_locked',
           'is_refused_value', 'is_write_protected', 'parse', 'reason',
           'require_file', 'sqlite_files', 'sqlite_path', 'translate_errors']

#: Longest time in seconds for reading a table.
_READ_SECONDS = 600

#: An idle connection that is older than this, in seconds, is replaced before
#: it is used.
_RECYCLE_SECONDS = 3600

#: {module of a client: extra of this package that installs it}
_EXTRAS = {'pymysql': 'mysql', 'psycopg2': 'postgresql'}

#: SQLite: begin a transaction that writes.
BEGIN_WRITING = 'BEGIN IMMEDIATE'

#: SQLite itself waits up to 0.1 s between two attempts to lock a file, and the
#: longer it has waited, the longer. While several processes write one after
#: the other, some would wait for seconds. All try equally often instead.
_SQLITE_PAUSE_SECONDS = 0.002, 0.008

_URL = 'URL of the store'
_EXPECTED = ('sqlite:////path/of/a/file, mysql+pymysql://... or '
             'postgresql+psycopg2://...')


def parse(url: str) -> sa.URL:
    """Return the SQLAlchemy URL of a string, or raise StoreError.

    The message does not contain the URL, which may have a password.
    """
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError, TypeError):
        raise exceptions.StoreError(
            thing=_URL, seen='cannot be parsed', expected=_EXPECTED) from None
    kind = parsed.get_backend_name()
    seen, hint = None, ''
    # A password with such a character is cut there, and the rest is parsed as
    # another part of the URL, which is not hidden.
    if kind != 'sqlite' and '@' in f'{parsed.host}{parsed.database}':
        seen = 'more than one @, or a user with a /'
        hint = (' with %40, %2F and so on for such characters of user and '
                'password')
    elif kind == 'sqlite' and any((parsed.username, parsed.password,
                                   parsed.host, parsed.port)):
        seen = 'names a user or a server of SQLite'
    elif kind not in ('sqlite', 'mysql', 'mariadb', 'postgresql'):
        seen = f'kind of database: {kind}'
    elif kind == 'sqlite' and parsed.database in (None, '', ':memory:'):
        seen, hint = 'a database in memory', ', which processes can share'
    if seen is not None:
        raise exceptions.StoreError(thing=_URL, seen=seen,
                                    expected=_EXPECTED + hint)
    return parsed


def hide_password(url: sa.URL) -> str:
    """Return a parsed URL as text without secrets."""
    # The query may also contain secrets.
    return url.set(query={}).render_as_string(hide_password=True)


def sqlite_path(url: sa.URL) -> str | None:
    """Return the file of an SQLite URL that is no URI, else None."""
    if url.get_backend_name() != 'sqlite' or 'uri' in url.query:
        return None
    return os.path.abspath(url.database)


def require_file(url: sa.URL) -> None:
    """Raise StoreMissing or StoreError unless SQLite has its file."""
    path = sqlite_path(url)
    if path is None or os.path.isfile(path):
        return
    if os.path.exists(path):
        raise exceptions.StoreError(
            f'store {hide_password(url)}: {path} is not a file')
    raise exceptions.StoreMissing(store=hide_password(url),
                                  seen='there is no such file')


def create(url: sa.URL, timeout_seconds: float, *, new_file: bool = False,
           immutable: bool = False, statement_seconds: float | None = None
           ) -> sa.Engine:
    """Return a new SQLAlchemy Engine. Nothing is connected yet.

    The server ends a session of this engine that keeps a transaction open and
    sends nothing for twice ``timeout_seconds``. Such a process is frozen or
    its host has lost power, and other sessions wait for its locks.

    :param new_file: whether to create a missing SQLite file
    :param immutable: whether to read an SQLite file without locks, because no
        process writes it
    :param statement_seconds: longest time of one statement in seconds; None
        means ``timeout_seconds``
    :raises StoreError: if the database's Python driver is not installed
    """
    given_url = url
    seconds = max(1, round(timeout_seconds))
    statement_seconds = max(seconds, round(statement_seconds or seconds))
    kind = url.get_backend_name()
    path = sqlite_path(url)
    if path is not None:
        query = {'uri': 'true', 'mode': 'rwc' if new_file else 'rw',
                 'timeout': str(timeout_seconds)}
        if immutable:
            query.update(mode='ro', immutable='1')
        url = url.set(database=pathlib.Path(path).as_uri(), query=query)
    elif kind == 'sqlite':
        url = url.update_query_dict({'timeout': str(timeout_seconds)})
    elif kind == 'postgresql':
        url = _with_defaults(
            url, _postgresql_limits(seconds, statement_seconds))
    else:
        url = _with_defaults(
            url, _mariadb_limits(seconds, statement_seconds))
    options = {'pool_logging_name': 'vswitch', **(
        {'poolclass': pool.NullPool} if kind == 'sqlite' else
        {'pool_pre_ping': True, 'pool_recycle': _RECYCLE_SECONDS,
         # A writer waits for a row and then reads what was written meanwhile.
         # At a stricter level, PostgreSQL fails this writer, and so does
         # MariaDB with its default innodb_snapshot_isolation since 11.6.2.
         'isolation_level': 'READ COMMITTED'})}
    if kind == 'postgresql' and url.get_driver_name() == 'psycopg2':
        # Send a hundred rows at a time. By default psycopg2 sends each row
        # separately.
        options['executemany_mode'] = 'values_plus_batch'
    with translate_errors(url, 'open'), _translating_parameters(given_url):
        engine = sa.create_engine(url, **options)
    # The caller reports a broken connection. The pool also logs a traceback
    # if it cannot close one.
    logs.make_debug(engine.pool.logger.name)
    if engine.driver == 'psycopg2':
        # The server's own limits are reached first, with clearer messages.
        sa.event.listen(engine, 'do_connect', functools.partial(
            _limit_answers, max(timeout_seconds, statement_seconds) + 1))
    sa.event.listen(engine, 'do_connect',
                    functools.partial(_connect, given_url))
    # Register this listener before those of oslo.db. With oslo.db's
    # create_engine, the order would be the opposite.
    sa.event.listen(engine, 'handle_error', _raise_unlogged)
    exc_filters.register_engine(engine)
    if kind == 'sqlite':
        # Python's module would only begin a transaction at the first write:
        # two reads could then see two generations.
        sa.event.listen(engine, 'connect', _disable_implicit_transactions)
        sa.event.listen(engine, 'begin', _begin)
    return engine


def _postgresql_limits(seconds, statement_seconds):
    """Return parameters of a URL that limit how long a session waits."""
    limits = {
        'statement_timeout': f'{statement_seconds}s',
        # The wait for a lock has to end first, because it can be retried.
        'lock_timeout': f'{seconds * 800}ms',
        'idle_in_transaction_session_timeout': f'{2 * seconds}s',
        # A host without power answers no probe.
        'tcp_keepalives_idle': 2 * seconds,
        'tcp_keepalives_interval': seconds, 'tcp_keepalives_count': 3,
        'tcp_user_timeout': f'{5 * seconds}s'}
    return {
        'connect_timeout': str(seconds),
        'keepalives_idle': str(2 * seconds),
        'keepalives_interval': str(seconds), 'keepalives_count': '3',
        'options': ' '.join(f'-c {name}={value}'
                            for name, value in limits.items())}


def _mariadb_limits(seconds, statement_seconds):
    """Return parameters of a URL that limit how long a session waits."""
    lock_seconds = max(1, seconds - 1)
    limits = {
        'innodb_lock_wait_timeout': lock_seconds,
        # Limits the wait of DDL, and for a table that another session alters.
        'lock_wait_timeout': lock_seconds,
        'net_read_timeout': 2 * seconds,
        # MySQL has no limit for idle transactions, only for idle sessions.
        'wait_timeout': 2 * seconds}
    mariadb_limits = {
        'wait_timeout': 2 * _RECYCLE_SECONDS,
        'idle_transaction_timeout': 2 * seconds,
        # One statement reads a large table. It takes as long as the client
        # needs for the rows.
        'max_statement_time': max(_READ_SECONDS, statement_seconds)}

    def assigned(limits):
        return ', '.join(f'{name} = {value}'
                         for name, value in limits.items())

    return {
        'charset': 'utf8mb4', 'connect_timeout': str(seconds),
        'read_timeout': str(statement_seconds),
        'write_timeout': str(seconds),
        'init_command': f'SET SESSION {assigned(limits)} /*M!100301 , '
                        f'{assigned(mariadb_limits)} */'}


def _connect(url, dialect, _record, arguments, parameters):
    if dialect.name == 'sqlite':
        parameters.update(native_calls.sqlite_parameters())
    with _translating_parameters(url, dialect.loaded_dbapi.Error):
        return dialect.connect(*arguments, **parameters)


@contextlib.contextmanager
def _translating_parameters(url, *passing):
    """Convert errors about unknown parameters to StoreError."""
    try:
        yield
    except (exc.SQLAlchemyError, ImportError, OSError, *passing):
        raise
    except Exception as error:
        raise exceptions.StoreError(
            f'store {hide_password(url)}: cannot be opened with the '
            f'parameters {", ".join(sorted(url.query)) or "of its URL"} '
            f'({type(error).__name__}: {error}); expected parameters of '
            f'{url.drivername}') from error


def _disable_implicit_transactions(connection, _record):
    connection.isolation_level = None


def _begin(connection):
    statement = connection.get_execution_options().get('begin', 'BEGIN')
    if statement == BEGIN_WRITING:
        raw = connection.connection.dbapi_connection
        seconds = float(connection.engine.url.query['timeout'])
        limit = time.monotonic() + seconds
        raw.execute('PRAGMA busy_timeout = 0')
        try:
            while time.monotonic() < limit:
                try:
                    raw.execute(statement)
                    return
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xff != sqlite3.SQLITE_BUSY:
                        break
                time.sleep(random.uniform(*_SQLITE_PAUSE_SECONDS))
        finally:
            raw.execute(f'PRAGMA busy_timeout = {round(1000 * seconds)}')
    # Errors are translated here.
    connection.exec_driver_sql(statement)


def _limit_answers(seconds, _dialect, _record, _arguments, parameters):
    parameters['connection_factory'] = postgresql.connection_factory(
        importlib.import_module('psycopg2.extensions'), seconds)


def _with_defaults(url, query):
    return url.update_query_dict(
        {key: value for key, value in query.items() if key not in url.query})


def _raise_unlogged(context):
    # oslo.db wraps these errors and logs each with its traceback. A scheduler
    # meets a damaged store at every refresh; its caller decides what to log.
    error = context.sqlalchemy_exception
    if error is None and isinstance(context.original_exception, Exception):
        # The client could not parse the answer.
        raise db_exception.DBError(context.original_exception)
    if type(error) in (exc.DatabaseError, exc.ProgrammingError):
        raise error


def _original(error):
    error = getattr(error, 'inner_exception', None) or error
    return getattr(error, 'orig', None)


def _sqlite_code(error):
    # The lower byte is the error, the upper bytes are its variant.
    return getattr(_original(error), 'sqlite_errorcode', 0) & 0xff


def is_locked(error: BaseException) -> bool:
    """Whether another writer held a required lock for too long."""
    # PostgreSQL's lock_not_available.
    return getattr(_original(error), 'pgcode', None) == '55P03' \
        or _sqlite_code(error) in (sqlite3.SQLITE_BUSY,
                                   sqlite3.SQLITE_LOCKED,
                                   sqlite3.SQLITE_PROTOCOL)


def _waited_for_lock(error):
    # MariaDB's ER_LOCK_WAIT_TIMEOUT.
    return is_locked(error) or (
        getattr(_original(error), 'args', None) or (None,))[0] == 1205


def is_refused_value(error: BaseException) -> bool:
    """Whether a database, or its client, rejects a value in a row."""
    if isinstance(error, (db_exception.DBDataError, exc.DataError,
                          exc.IntegrityError,
                          db_exception.DBInvalidUnicodeParameter)):
        return True
    # A value that the client cannot send causes an exception of Python.
    inner = getattr(error, 'inner_exception', None) or error
    return isinstance(getattr(inner, 'orig', None) or inner,
                      (ValueError, OverflowError, sqlite3.DataError,
                       sqlite3.IntegrityError))


def is_write_protected(error: BaseException) -> bool:
    """Whether SQLite cannot write to its file or create files next to it."""
    return _sqlite_code(error) in (sqlite3.SQLITE_CANTOPEN,
                                   sqlite3.SQLITE_READONLY)


@contextlib.contextmanager
def translate_errors(url: sa.URL, doing: str) -> abc.Iterator[None]:
    """Convert errors of the database to StoreError; ``doing``: a verb.

    :raises StoreInterrupted: if a deadlock or a lost connection has ended a
        transaction
    """
    try:
        yield
    except (exc.SQLAlchemyError, db_exception.DBError, _driver_error(url),
            ImportError, OSError) as error:
        message = f'store {hide_password(url)}: cannot {doing} it: ' \
                f'{reason(error)}'
        kind: type[exceptions.StoreError] = exceptions.StoreError
        if _waited_for_lock(error):
            message += f'; {_possible_lock_holders(url)}'
        elif isinstance(error, (db_exception.DBDeadlock,
                                db_exception.DBConnectionError)):
            kind = exceptions.StoreInterrupted
        raise kind(message) from error


def _driver_error(url):
    """Return the base class of errors that SQLAlchemy does not convert."""
    try:
        return url.get_dialect().import_dbapi().Error
    except (exc.SQLAlchemyError, ImportError):
        return exc.SQLAlchemyError


def sqlite_files(url: sa.URL) -> list[str]:
    """Return the paths of the existing files of an SQLite URL."""
    path = sqlite_path(url)
    return [] if path is None else [
        file_path for file_path in (path, path + '-wal', path + '-shm')
        if os.path.exists(file_path)]


def _possible_lock_holders(url):
    """Return a hint which sessions or processes may hold the lock."""
    kind = url.get_backend_name()
    if kind == 'postgresql':
        return ('another session holds a lock: the view pg_stat_activity '
                'names the sessions of this database')
    if kind != 'sqlite':
        return ('another session holds a lock: SHOW FULL PROCESSLIST names '
                'the sessions of this server')
    path = sqlite_path(url)
    holders = _lock_holders(sqlite_files(url))
    if holders:
        return f'processes with a lock on it: {", ".join(holders)}'
    return (f'any process that may open {path} or {path}-shm can hold the '
            f'lock; expected mode 0640 of the files and 0750 of their '
            f'directory')


def _lock_holders(paths):
    files = {(os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
             for status in map(os.stat, paths)}
    holders = {}
    with contextlib.suppress(OSError, ValueError, IndexError), \
            open('/proc/locks') as locks:
        for line in locks:
            fields = line.split()
            if '->' in fields:
                continue
            pid = int(fields[4])
            major, minor, inode = fields[5].split(':')
            if pid != os.getpid() and (
                    int(major, 16), int(minor, 16), int(inode)) in files:
                holders[pid] = _process(pid)
    return [holders[pid] for pid in sorted(holders)]


def _process(pid):
    description = f'process {pid}' if pid > 0 else 'a process'
    with contextlib.suppress(OSError):
        with open(f'/proc/{pid}/comm') as name:
            description += f' ({name.read().strip()!r})'
        description += f' of user {os.stat(f"/proc/{pid}").st_uid}'
    return description


def reason(error: BaseException) -> str:
    """Return the message of the database, without statement and parameters."""
    extra = _EXTRAS.get(str(getattr(error, 'name', None)))
    if isinstance(error, ImportError) and not extra:
        return f'{error}; expected {_EXPECTED}'
    if extra:
        return (f'{error}; expected the extra {extra} of this package: pip '
                f'install "vswitch_aware_scheduler[{extra}]"')
    error = getattr(error, 'inner_exception', None) or error
    error = getattr(error, 'orig', None) or error
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0]
