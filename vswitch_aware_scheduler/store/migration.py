# SPDX-License-Identifier: Apache-2.0
"""Creates the schema of a store and updates it to the newest version."""

import contextlib
import hashlib
import os
import pwd
import shlex
import time

from alembic import command
from alembic import config as alembic_config
from alembic import script
from alembic import util
from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy import exc

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.store import engines
from vswitch_aware_scheduler.store import tables

__all__ = ['DIRECTORY_MODE', 'current_user', 'is_new_file',
           'missing_directory', 'revisions', 'sync', 'version']

#: Longest wait in seconds for a connection or a lock, and for another schema
#: update.
TIMEOUT_SECONDS = 5
SYNC_SECONDS = 60

#: Longest time of one step in seconds. Changing a large table takes long.
_STEP_SECONDS = 3600

#: Mode of a new SQLite file.
_FILE_MODE = 0o640

#: Number of the advisory lock in PostgreSQL, chosen at random.
_POSTGRESQL_LOCK = 0x7673776974636864

#: Mode of a new directory of an SQLite file.
DIRECTORY_MODE = 0o750


def _config(connection=None):
    config = alembic_config.Config()
    location = os.path.join(os.path.dirname(__file__), 'migrations')
    config.set_main_option('script_location', location.replace('%', '%%'))
    config.attributes['connection'] = connection
    return config


def revisions() -> list[str]:
    """Return the list of the known revisions, the oldest first."""
    scripts = script.ScriptDirectory.from_config(_config())
    return [step.revision
            for step in reversed(list(scripts.walk_revisions()))]


def version(url: str, timeout_seconds: float = TIMEOUT_SECONDS
            ) -> str | None:
    """Return the revision of a store's schema, or None without a schema."""
    parsed = engines.parse(url)
    engines.require_file(parsed)
    engine = engines.create(parsed, timeout_seconds)
    try:
        with engines.translate_errors(parsed, 'read'), \
                engine.connect() as connection:
            return tables.version(connection)
    finally:
        engine.dispose()


def is_new_file(url: str) -> bool:
    """Whether an SQLite file does not exist or has no tables."""
    parsed = engines.parse(url)
    path = engines.sqlite_path(parsed)
    if path is None:
        return False
    if not os.path.exists(path):
        return True
    engine = engines.create(parsed, TIMEOUT_SECONDS)
    with engines.translate_errors(parsed, 'read'), \
            engine.connect() as connection:
        return not sa.inspect(connection).get_table_names()


def missing_directory(url: str) -> str | None:
    """Return the missing directory of an SQLite store, or None."""
    path = engines.sqlite_path(engines.parse(url))
    if path is None or os.path.isdir(os.path.dirname(path)):
        return None
    return os.path.dirname(path)


def sync(url: str, version: str | None = None,
         timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[str | None, str]:
    """Update a store's schema to a version. Create a missing SQLite file.

    A missing directory of the file is also created, with mode DIRECTORY_MODE.
    Concurrent calls wait for each other. On SQLite and PostgreSQL, all steps
    are one transaction. MariaDB commits each step; repeating an interrupted
    call continues with the next step. A downgrade is not supported.

    :param version: None for the newest
    :returns: (revision before or None, revision after)
    :raises StoreVersionError: if the version is unknown or older than the
        schema
    :raises StoreError: if the database cannot be written
    """
    parsed = engines.parse(url)
    shown = engines.hide_password(parsed)
    known_versions = revisions()
    wanted_version = known_versions[-1] if version is None else version
    if wanted_version not in known_versions:
        raise exceptions.StoreVersionError(
            f'store {shown}: version: {wanted_version!r}; expected '
            + plain_text.one_of(wanted_version, known_versions))
    path = engines.sqlite_path(parsed)
    if path is not None:
        _make_directory(os.path.dirname(path), shown)
    engine = engines.create(parsed, timeout_seconds, new_file=True,
                            statement_seconds=_STEP_SECONDS)
    try:
        with engines.translate_errors(parsed, 'migrate'):
            if path is not None:
                _make_file(path)
                _use_write_ahead_log(engine)
            # SQLite fails if a reader becomes a writer while another session
            # writes.
            with engine.connect().execution_options(
                    begin=engines.BEGIN_WRITING) as connection, \
                    _only_synchronisation(connection, shown), \
                    connection.begin():
                return _upgrade(connection, shown, wanted_version,
                                known_versions)
    finally:
        engine.dispose()


def _upgrade(connection, shown, wanted_version, known_versions):
    """Update a schema; return the revisions before and after."""
    before = tables.version(connection)
    if before is not None and (
            before not in known_versions or known_versions.index(before)
            > known_versions.index(wanted_version)):
        raise tables.wrong_version(shown, before, wanted_version, (
            'downgrades are not supported' if before in known_versions
            else tables.NEWER))
    if before != wanted_version:
        try:
            command.upgrade(_config(connection), wanted_version)
        except util.CommandError as error:
            raise exceptions.StoreError(
                f'store {shown}: cannot migrate it: {error}') from error
    return before, wanted_version


@contextlib.contextmanager
def _only_synchronisation(connection, shown):
    """Hold the lock of the database for schema updates.

    The lock belongs to the session: the database releases it if the process is
    killed. SQLite has only one writer at a time anyway.
    """
    kind = connection.dialect.name
    if kind == 'sqlite':
        yield
        return
    if kind == 'postgresql':
        acquire = sa.select(sa.func.pg_try_advisory_lock(_POSTGRESQL_LOCK))
        release = sa.select(sa.func.pg_advisory_unlock(_POSTGRESQL_LOCK))
    else:
        # Names of locks apply to the whole server and have at most 64
        # characters.
        name = 'vswitch db sync ' + hashlib.sha256(
            (connection.engine.url.database or '').encode()).hexdigest()[:32]
        acquire = sa.select(sa.func.get_lock(name, 0))
        release = sa.select(sa.func.release_lock(name))
    deadline = time.monotonic() + SYNC_SECONDS
    while not _scalar(connection, acquire):
        if time.monotonic() > deadline:
            raise exceptions.StoreError(
                f'store {shown}: another "vswitch-manage db sync" has been '
                f'running for more than {SYNC_SECONDS} s; wait for its end, '
                f'or end it, and run this command again')
        time.sleep(.2)
    try:
        yield
    finally:
        # If the connection is lost, the lock is released as well.
        with contextlib.suppress(exc.SQLAlchemyError, db_exception.DBError):
            _scalar(connection, release)


def _scalar(connection, query):
    with connection.begin():
        return connection.scalar(query)


def _make_directory(directory, shown):
    """Create the directory of an SQLite file, or raise what to do."""
    if os.path.isdir(directory):
        return
    try:
        os.makedirs(directory, DIRECTORY_MODE, exist_ok=True)
    except OSError as error:
        user = current_user()
        raise exceptions.StoreError(
            f'store {shown}: the directory {directory} does not exist and '
            f'user {user} cannot create it ({error.strerror}); run "sudo '
            f'install -d -o {user} -m {DIRECTORY_MODE:04o} '
            f'{shlex.quote(directory)}" and then "vswitch-manage db sync" '
            f'again; nova-scheduler and vswitch-modeler have to run as the '
            f'same user') from error
    # The umask may have removed too many permissions.
    os.chmod(directory, DIRECTORY_MODE)


def current_user() -> str:
    """Return the name of the user of this process."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        # In a container, the user may have no name.
        return str(os.geteuid())


def _make_file(path):
    """Create a missing SQLite file that other users cannot read.

    A user who can read the files of a store can hold a lock on them and so
    block all writers. SQLite uses the same mode for the files next to it.
    """
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY,
                             _FILE_MODE)
        try:
            os.fchmod(descriptor, _FILE_MODE)
        finally:
            os.close(descriptor)


def _use_write_ahead_log(engine):
    # With a write-ahead log, readers and writers never wait for each other,
    # and a writer that dies needs no repair. The setting is stored in the
    # file.
    raw = engine.raw_connection()
    try:
        raw.driver_connection.execute('PRAGMA journal_mode=WAL')
    finally:
        raw.close()
