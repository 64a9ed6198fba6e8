# SPDX-License-Identifier: Apache-2.0
"""Reads which instance is on which host from the databases of Nova's cells.

One thread finds the cells, and one thread reads each enabled cell, so that a
cell that hangs delays no other. They use plain SQL and write nothing. The
result goes to a :class:`.residency.Residency` (reference/claims.rst, "The
record").
"""

from __future__ import annotations

from collections import abc
import datetime
import functools
import json
import threading
import time
import typing

from nova import context as nova_context
from nova.db.api import api as api_database
from nova.db.api import models as api_models
from nova.db.main import api as database
from nova.db.main import models
from nova import objects
import sqlalchemy as sa

from vswitch_aware_scheduler.scheduler import residency
from vswitch_aware_scheduler.scheduler import worker_thread

__all__ = ['ENDED', 'CellReader', 'NovaRecord']

#: Statuses of migrations that have ended, as in Nova's function
#: migration_get_in_progress_by_host_and_node.
ENDED = ('confirmed', 'reverted', 'error', 'failed', 'completed', 'cancelled',
         'done')

#: Nova sets this status before the source has the instance again. While the
#: instance has this task, its latest migration is still in progress.
_REVERTED, _REVERTING = 'reverted', 'resize_reverting'

#: A reading starts this long before the previous one, because the clocks of
#: the writers differ and a transaction is visible only after its end. For the
#: same reason it includes this number of the newest rows.
_OVERLAP = datetime.timedelta(seconds=15)
_OVERLAP_ROWS = 50

#: A migration that was not changed for this time is left over from a service
#: that died, unless an operation on its instance is under way.
_LEFT_OVER = datetime.timedelta(days=1)

#: Number of rows in a batch, and the pause after a batch as a multiple of the
#: time that the batch took.
_PIECE = 100
_REST = 3.0

#: Interval of complete readings of a cell: _FULL_SECONDS, or the duration of a
#: reading divided by _FULL_SHARE if that is longer, but at most the option
#: record_full_seconds. Three quarters of a reading are pauses.
_FULL_SECONDS = 5.0
_FULL_SHARE = 0.04

#: Longest time between two attempts to read a cell that fails. A reading that
#: hangs for _GIVE_UP_SECONDS is abandoned.
_MOST_BACK_OFF_SECONDS = 60.0
_GIVE_UP_SECONDS = 600.0

#: Seconds between two readings of the list of cells.
_CELLS_SECONDS = 30.0

#: A worker reads when a request starts, unless it has read within this time.
_FRESH_SECONDS = 0.25

_INSTANCE = models.Instance.__table__
_MIGRATION = models.Migration.__table__
_EXTRA = models.InstanceExtra.__table__
_REQUEST = api_models.BuildRequest.__table__

_COLUMNS = (_INSTANCE.c.id, _INSTANCE.c.uuid, _INSTANCE.c.host,
            _INSTANCE.c.vm_state, _INSTANCE.c.task_state,
            _INSTANCE.c.instance_type_id, _INSTANCE.c.project_id,
            _INSTANCE.c.deleted)
_MOVE_COLUMNS = (_MIGRATION.c.id, _MIGRATION.c.instance_uuid,
                 _MIGRATION.c.source_compute, _MIGRATION.c.dest_compute,
                 _MIGRATION.c.status, _MIGRATION.c.deleted,
                 sa.func.coalesce(_MIGRATION.c.updated_at,
                                  _MIGRATION.c.created_at).label('changed'))
_IN_PROGRESS = sa.and_(_MIGRATION.c.deleted == 0,
                       _MIGRATION.c.status.not_in(ENDED))
_IN_REVERSION = sa.and_(
    _MIGRATION.c.deleted == 0, _MIGRATION.c.status == _REVERTED,
    _MIGRATION.c.instance_uuid.in_(sa.select(_INSTANCE.c.uuid).where(
        _INSTANCE.c.task_state == _REVERTING, _INSTANCE.c.deleted == 0)))

#: SQL for the time in UTC, which Nova writes.
_NOW = {'sqlite': "datetime('now')",
        'postgresql': "clock_timestamp() at time zone 'utc'",
        'mysql': 'utc_timestamp()', 'mariadb': 'utc_timestamp()'}


class NovaRecord(worker_thread.WorkerThread):
    """Keeps a Residency up to date with Nova's record. Opens nothing."""

    def __init__(self, take: abc.Callable[[residency.CellReading], None],
                 counted: residency.Residency, lock: typing.Any,
                 conf: typing.Any, report: typing.Any,
                 clock: abc.Callable[[], float] = time.monotonic,
                 before: abc.Callable[[], None] = lambda: None) -> None:
        super().__init__('vswitch-record', self.step, self._forget)
        self.take = take
        self.residency = counted
        self.lock = lock
        self.conf = conf
        self.clock = clock
        self._report = report
        self._before = before
        # refresh() runs steps in the thread of its caller.
        self._stepping = threading.Lock()
        self._forget()

    def _forget(self):
        self.readers = {}        # uuid of a cell -> CellReader
        self.first = threading.Event()   # each cell was tried
        self._cells_at = float('-inf')
        self._wait_until = \
            time.monotonic() + self.conf.snapshot_first_wait_seconds

    def wait(self) -> None:
        """Wait for the first attempt to read each cell, for a limited time."""
        if not self.first.is_set():
            self.first.wait(max(0.0, self._wait_until - time.monotonic()))
            self.first.set()

    def wake(self, older_than_seconds: float = _FRESH_SECONDS) -> None:
        """Read now what has changed, unless that was done recently."""
        for reader in list(self.readers.values()):
            if reader.problem is None:
                reader.wake(older_than_seconds)

    def refresh(self) -> None:
        """Read everything that has changed, in the calling thread."""
        self.start()
        self.step()
        for reader in list(self.readers.values()):
            reader.refresh()

    def stop(self, wait_seconds: float | None = None) -> None:
        """End the threads."""
        super().stop(wait_seconds)
        for reader in self.readers.values():
            reader.stop(30.0)

    def ages(self) -> dict[str, float | None]:
        """Return the age of the last reading of each cell."""
        now = self.clock()
        return {reader.name: None if reader.read_at is None
                else round(max(now - reader.read_at, 0.0), 1)
                for reader in list(self.readers.values())}

    def step(self) -> float:
        """Check the readers, and the claims that the record does not show."""
        with self._stepping:
            try:
                if not self.readers:
                    self._before()
                if time.monotonic() >= self._cells_at + _CELLS_SECONDS:
                    self._find_cells()
                    self._cells_at = time.monotonic()
                for reader in list(self.readers.values()):
                    self._look_after(reader)
                now = self.clock()
                with self.lock:
                    unseen = self.residency.unseen()
                if unseen:
                    unseen -= _build_requests(unseen)
                    with self.lock:
                        self.residency.lack_build_requests(unseen, now)
                self._report("Nova's record", None)
            except Exception as error:
                self._report("Nova's record", (
                    f'{_first_line(error)}; using the data read before'))
                self.first.set()
        return self.conf.record_refresh_seconds

    def _find_cells(self):
        mapped = {cell.uuid: cell for cell in
                  objects.CellMappingList.get_all(_admin_context())}
        enabled = {uuid: cell for uuid, cell in mapped.items()
                   if not cell.disabled}
        for uuid, reader in list(self.readers.items()):
            if uuid not in enabled or enabled[uuid].name != reader.cell.name:
                del self.readers[uuid]
                reader.stop(0.0)
                self._report(reader.topic, None)
        with self.lock:
            # A disabled cell keeps its record.
            self.residency.forget_cells(mapped.keys())
        new_readers = {uuid: CellReader(self, cell)
                       for uuid, cell in enabled.items()
                       if uuid not in self.readers}
        # Add all cells before any of them can report an attempt.
        self.readers.update(new_readers)
        for reader in new_readers.values():
            reader.start()

    def _look_after(self, reader):
        hangs, problem = reader.hangs_for(), reader.problem
        if hangs > self.conf.record_timeout_seconds:
            problem = f'no answer for {hangs:.0f} s'
        self._report(reader.topic, problem and (
            f'{problem}; using the data read before for its hosts'))
        if hangs > _GIVE_UP_SECONDS:
            self.readers[reader.uuid] = CellReader(self, reader.cell)
            self.readers[reader.uuid].start()
            reader.stop(0.0)


class CellReader(worker_thread.WorkerThread):
    """Reads one cell, in a thread of its own."""

    def __init__(self, record: NovaRecord, cell: objects.CellMapping) -> None:
        self.cell = cell
        self.uuid = cell.uuid
        self.name = name = cell.name or cell.uuid
        super().__init__(f'vswitch-record-{name}', self._step)
        self.topic = f'record of cell {name}'
        self.read_at: float | None = None    # start of the last reading
        self.problem = None
        self.tried = False
        self._record = record
        # One reading at a time: refresh() may run in another thread.
        self._reading = threading.Lock()
        self._began: float | None = None     # start of the running statement
        self._worked_at = 0.0
        self._back_off = 0.0
        self._complete = False
        self._full_at = float('-inf')
        self._since: typing.Any = None       # previous result of _newest()
        self._changes_at = 0.0   # time for the next reading of changes

    def hangs_for(self) -> float:
        """Return for how many seconds a statement has been running."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def _step(self):
        record = self._record
        seconds = record.conf.record_refresh_seconds
        try:
            self.refresh()
            self.problem = None
            self._back_off = 0.0
        except Exception as error:
            self.problem = _first_line(error)
            self._back_off = min(_MOST_BACK_OFF_SECONDS,
                                 max(seconds, 2 * self._back_off))
        self.tried = True
        if all(reader.tried for reader in list(record.readers.values())):
            record.first.set()
        return max(seconds, self._back_off)

    def refresh(self) -> None:
        """Read the changes, and now and then the whole cell; raise errors."""
        with self._reading:
            began = self._began = time.monotonic()
            self._worked_at = time.thread_time()
            try:
                now = self._record.clock()
                self._read_changes()
                if now >= self._full_at:
                    self._read_all()
                    self._full_at = now + min(
                        self._record.conf.record_full_seconds, max(
                            _FULL_SECONDS,
                            (time.monotonic() - began) / _FULL_SHARE))
                self.read_at = now
            finally:
                self._began = None

    def _read_changes(self):
        """Read recent changes and instances with an operation under way."""
        began = self._record.clock()
        counted = self._record.residency
        with self._record.lock:
            unsettled = counted.unsettled(self.uuid)
            # Not the migrations that are left over: a cloud collects many.
            moving = [number for number, move
                      in counted.moves.get(self.uuid, {}).items()
                      if move.instance_uuid in unsettled]
        with self._connection() as connection:
            newest = self._newest(connection)
            if self._since is None:
                self._since = newest
            since, instance_id, migration_id = self._since
            # Read migrations first: if a migration ends between the two
            # statements, both of its hosts count the instance until the next
            # reading.
            moves = _select(
                connection, _MOVE_COLUMNS, _MIGRATION.c.id, moving,
                _MIGRATION.c.id > migration_id - _OVERLAP_ROWS)
            # A move that began and ended since the previous reading may have
            # been written with a wrong time.
            unsettled.update(move.instance_uuid for move in moves)
            rows = _select(
                connection, _COLUMNS, _INSTANCE.c.uuid, unsettled,
                _INSTANCE.c.updated_at >= since - _OVERLAP,
                _INSTANCE.c.id > instance_id - _OVERLAP_ROWS)
        # When a move to another cell ends, Nova removes the migration from one
        # of the two cells.
        self._take([row for row in rows if row.uuid in unsettled], unsettled,
                   moves, moving, began)
        # After an interruption, the other changes can be many.
        for batch in _pieces(row for row in rows if row.uuid not in unsettled):
            self._take(batch)
            self._rest()
        self._since = newest
        # A slow machine needs the rest of the time for a complete reading.
        now = self._record.clock()
        self._changes_at = now + max(
            self._record.conf.record_refresh_seconds, now - began)

    def _newest(self, connection):
        """Return (time, id of newest instance, id of newest migration)."""
        now, *newest_ids = connection.execute(sa.select(
            sa.literal_column(_NOW[connection.dialect.name]),
            *(sa.select(sa.func.max(table.c.id)).scalar_subquery()
              for table in (_INSTANCE, _MIGRATION)))).one()
        if isinstance(now, str):
            now = datetime.datetime.fromisoformat(now)
        return now, *(newest_id or 0 for newest_id in newest_ids)

    def _read_all(self):
        """Read all instances and all migrations in progress, in batches."""
        record = self._record
        missing = set(record.residency.rows.get(self.uuid, ()))
        moving = dict(record.residency.moves.get(self.uuid, {}))
        last_id: int | None = 0
        while last_id is not None:
            if record.clock() >= self._changes_at:
                self._read_changes()
            rows = self._read_batch(sa.select(*_COLUMNS).where(
                _INSTANCE.c.id > last_id, _INSTANCE.c.deleted == 0).order_by(
                    _INSTANCE.c.id).limit(_PIECE))
            missing.difference_update(row.uuid for row in rows)
            last_id = rows[-1].id if len(rows) == _PIECE else None
        for uuids in _pieces(missing):
            self._read_batch(sa.select(*_COLUMNS).where(
                _INSTANCE.c.uuid.in_(uuids)), uuids)
        with self._connection() as connection:
            moves = _select(connection, _MOVE_COLUMNS, _MIGRATION.c.id,
                            moving, _IN_PROGRESS, _IN_REVERSION)
            # An instance may have arrived since its row was read.
            in_progress = {move.id for move in moves
                           if move.status not in ENDED}
            moved = {move.instance_uuid for number, move in moving.items()
                     if number not in in_progress}
            rows = _select(connection, _COLUMNS, _INSTANCE.c.uuid, moved)
        # The next reading includes what changed meanwhile.
        self._complete = True
        self._take(rows, moved, moves, moving)

    def _read_batch(self, statement, uuids=()):
        with self._connection() as connection:
            rows = connection.execute(statement).all()
        self._take(rows, uuids)
        self._rest()
        return rows

    def _rest(self):
        """Sleep, so that other threads can use the interpreter."""
        worked = time.thread_time() - self._worked_at
        if self._record.first.is_set():
            time.sleep(min(1.0, _REST * worked))
        self._worked_at = time.thread_time()
        # Measure each batch separately: a batch that does not end is a hang.
        self._began = time.monotonic()

    def _take(self, rows=(), uuids=(), moves=(), moving=(),
              began=float('-inf')):
        """Pass on the CellReading of the given rows of the database."""
        recorded = self._record.residency.rows.get(self.uuid, {})
        rows_by_uuid: dict[str, typing.Any] = dict.fromkeys(uuids)
        deleted, changed = set(), []
        for row in rows:
            if row.deleted:
                rows_by_uuid[row.uuid] = None
                deleted.add(row.uuid)
                continue
            previous = recorded.get(row.uuid)
            rows_by_uuid[row.uuid] = current = residency.Row(
                row.host, row.vm_state, row.task_state,
                previous.flavors if previous else (None, None, None),
                row.project_id, row.instance_type_id)
            if current != previous or not current.at_rest:
                changed.append(row.uuid)
        if changed:
            with self._connection() as connection:
                extras = _select(connection, (
                    _EXTRA.c.id, _EXTRA.c.instance_uuid, _EXTRA.c.flavor),
                    _EXTRA.c.instance_uuid, changed)
            for extra in extras:
                uuid = extra.instance_uuid
                rows_by_uuid[uuid] = rows_by_uuid[uuid]._replace(
                    flavors=_flavors(extra.flavor))
        moves_by_id = dict.fromkeys(moving)
        latest = {row.instance_uuid: row.id for row in sorted(moves)}
        for row in moves:
            uuid = row.instance_uuid
            instance = rows_by_uuid.get(uuid, recorded.get(uuid))
            returns = (row.status == _REVERTED and row.id == latest[uuid]
                       and instance is not None
                       and instance.task_state == _REVERTING)
            if not row.deleted and (
                    returns or row.status not in (None, *ENDED)):
                moves_by_id[row.id] = residency.OngoingMove(
                    uuid, row.source_compute, row.dest_compute,
                    row.changed is not None
                    and row.changed < self._since[0] - _LEFT_OVER)
            else:
                moves_by_id[row.id] = None
        # A reader that was abandoned may return later.
        if self._record.readers.get(self.uuid) is self:
            self._record.take(residency.CellReading(
                self.uuid, began, rows_by_uuid, frozenset(deleted),
                moves_by_id, self._complete))

    def _connection(self):
        # target_cell would also copy the context.
        context = _admin_context()
        nova_context.set_target_cell(context, self.cell)
        return database.get_context_manager(
            context).reader.connection.using(context)


def _admin_context():
    """Return a context that no other code uses.

    A cell is set on the context, and other code with the same context would
    then read that cell. nova.context.get_admin_context() may be replaced, as
    nova's fixture of services does.
    """
    return nova_context.RequestContext(
        user_id=None, project_id=None, is_admin=True, overwrite=False)


def _build_requests(uuids):
    context = _admin_context()
    with api_database.context_manager.reader.connection.using(
            context) as connection:
        return {row.instance_uuid for row in _select(
            connection, (_REQUEST.c.id, _REQUEST.c.instance_uuid),
            _REQUEST.c.instance_uuid, uuids)}


def _select(connection, columns, key, keys, *conditions):
    rows = {}
    for condition in (*conditions, *map(key.in_, _pieces(keys))):
        # A later statement has the newer version of a row.
        rows.update((row.id, row) for row in connection.execute(
            sa.select(*columns).where(condition)))
    return list(rows.values())


def _first_line(error):
    # Error messages of a database have many lines.
    return f'{type(error).__name__}: {str(error).partition(chr(10))[0]}'


@functools.lru_cache(maxsize=10_000)
def _flavors(text):
    try:
        data = json.loads(text or '{}')
        return tuple(_flavor(data.get(key))
                     for key in ('cur', 'old', 'new'))
    except Exception:
        # This concerns one instance, which then counts without flavor.
        return None, None, None


def _flavor(data):
    """Return (name, extra specs) of a serialised nova Flavor, or None."""
    fields = (data or {}).get('nova_object.data')
    return fields and (fields.get('name'), fields.get('extra_specs') or {})


def _pieces(items):
    items = list(items)
    return [items[at:at + _PIECE] for at in range(0, len(items), _PIECE)]
