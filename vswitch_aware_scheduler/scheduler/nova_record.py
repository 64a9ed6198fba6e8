# SPDX-License-Identifier: Apache-2.0
"""Reads which instance is on which host from the databases of Nova's cells.

One thread finds the cells. A separate thread reads each enabled cell, so that
a cell that hangs delays no other cell. The threads use plain SQL statements
and write nothing. They pass the result to a :class:`.residency.Residency`
(reference/claims.rst, "The record").
"""

import datetime
import functools
import json
import threading
import time

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

#: Shortest time between two comparisons of the numbers of instances per host,
#: and the largest share of time that the comparisons take.
_COMPARE_SECONDS = 5.0
_COMPARE_SHARE = 0.01

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

#: SQL for the time in UTC, which Nova writes.
_NOW = {'sqlite': "datetime('now')",
        'postgresql': "clock_timestamp() at time zone 'utc'",
        'mysql': 'utc_timestamp()', 'mariadb': 'utc_timestamp()'}


class NovaRecord:
    """Keeps a Residency up to date with Nova's record.

    The constructor opens nothing.

    :param take: callable(Reading), receives each reading
    :param known: the Residency; only its methods for the reader of the record
        are called
    :param lock: lock that protects the Residency
    :param seconds: time between two readings of the changes of a cell
    :param full_seconds: time between two readings of a whole cell
    :param limit_seconds: a longer reading is reported as a problem
    :param first_wait_seconds: longest time that requests wait for the first
        readings
    :param report: callable(topic, problem or None), receives problems
    :param clock: callable, returns monotonic seconds
    :param before: callable(), run in the background before the first reading
    """

    def __init__(self, take, known, lock, seconds, full_seconds,
                 limit_seconds, first_wait_seconds, report,
                 clock=time.monotonic, before=None):
        self.take = take
        self.known = known
        self.lock = lock
        self.seconds = seconds
        self.full_seconds = full_seconds
        self.clock = clock
        self._limit_seconds = limit_seconds
        self._first_wait_seconds = first_wait_seconds
        self._report = report
        self._before = before
        self._thread = worker_thread.WorkerThread(
            'vswitch-record', self.step, self._forget)
        # refresh() runs steps in the thread of its caller.
        self._stepping = threading.Lock()
        self._forget()

    def _forget(self):
        self._readers = {}       # uuid of a cell -> CellReader
        self._cells_at = float('-inf')
        self._first = threading.Event()
        self._wait_until = time.monotonic() + self._first_wait_seconds

    @property
    def is_first(self):
        """Whether a request may be waiting for the first readings."""
        return not self._first.is_set()

    def start(self):
        """Start the threads in this process, unless they run."""
        self._thread.start()

    def wait(self):
        """Wait for the first attempt to read each cell, for a limited time."""
        if not self._first.is_set():
            self._first.wait(max(0.0, self._wait_until - time.monotonic()))
            self._first.set()

    def tried(self):
        """End the first wait if every cell was tried."""
        if all(reader.tried for reader in list(self._readers.values())):
            self._first.set()

    def wake(self):
        """Read now what has changed, unless that was done recently."""
        for reader in list(self._readers.values()):
            if reader.problem is None:
                reader.thread.wake(_FRESH_SECONDS)

    def refresh(self):
        """Read everything that has changed, in the calling thread."""
        self.start()
        self.step()
        for reader in list(self._readers.values()):
            reader.refresh()

    def stop(self):
        """End the threads."""
        self._thread.stop()
        for reader in self._readers.values():
            reader.thread.stop(30.0)

    def ages(self):
        """Return the age of the last reading of each cell.

        :returns: {name of a cell: seconds, or None for a cell that was never
            read}
        """
        now = self.clock()
        return {reader.name: None if reader.read_at is None
                else round(max(now - reader.read_at, 0.0), 1)
                for reader in list(self._readers.values())}

    def is_current(self, reader):
        """Return whether a reader is in use, that is, was not replaced.

        :param reader: CellReader
        """
        return self._readers.get(reader.uuid) is reader

    def step(self):
        """Check the readers, and the claims that the record does not show.

        :returns: seconds until the next time
        """
        with self._stepping:
            try:
                if self._before is not None and not self._readers:
                    self._before()
                if time.monotonic() >= self._cells_at + _CELLS_SECONDS:
                    self._find_cells()
                    self._cells_at = time.monotonic()
                for reader in list(self._readers.values()):
                    self._look_after(reader)
                now = self.clock()
                with self.lock:
                    unseen = self.known.unseen(now)
                if unseen:
                    unseen -= _build_requests(unseen)
                    with self.lock:
                        self.known.lack_build_requests(unseen, now)
                self._report("Nova's record", None)
            except Exception as error:
                self._report("Nova's record", (
                    f'{_words(error)}; going by what was read before'))
                self._first.set()
        return self.seconds

    def _find_cells(self):
        mapped = {cell.uuid: cell for cell in
                  objects.CellMappingList.get_all(_admin_context())}
        cells = {uuid: cell for uuid, cell in mapped.items()
                 if not cell.disabled}
        for uuid, reader in list(self._readers.items()):
            if uuid not in cells or cells[uuid].name != reader.cell.name:
                del self._readers[uuid]
                reader.thread.stop(0.0)
                self._report(reader.topic, None)
        for uuid in self.known.cells() - mapped.keys():
            # Nova has deleted the cell. A disabled cell keeps its record.
            self.take(residency.Reading(
                uuid, float('-inf'), dict.fromkeys(self.known.rows(uuid)),
                moves=dict.fromkeys(self.known.moves(uuid))))
        new = {uuid: CellReader(self, cell) for uuid, cell in cells.items()
               if uuid not in self._readers}
        # Add all cells before any of them can report an attempt.
        self._readers.update(new)
        for reader in new.values():
            reader.thread.start()

    def _look_after(self, reader):
        hangs, problem = reader.hangs_for(), reader.problem
        if hangs > self._limit_seconds:
            problem = f'no answer for {hangs:.0f} s'
        self._report(reader.topic, problem and (
            f'{problem}; its hosts go by what was read before'))
        if hangs > _GIVE_UP_SECONDS:
            new = self._readers[reader.uuid] = CellReader(self, reader.cell)
            new.thread.start()
            reader.thread.stop(0.0)


class CellReader:
    """Reads one cell, in a thread of its own.

    :param record: NovaRecord that owns the reader
    :param cell: nova CellMapping
    """

    def __init__(self, record, cell):
        self.cell = cell
        self.uuid = cell.uuid
        self.name = name = cell.name or cell.uuid
        self.topic = f'record of cell {name}'
        self.read_at = None      # start of the last finished reading
        self.problem = None
        self.tried = False
        self.thread = worker_thread.WorkerThread(
            f'vswitch-record-{name}', self._step)
        self._record = record
        # One reading at a time: refresh() may run in another thread.
        self._reading = threading.Lock()
        self._began = None       # start of the running statement
        self._worked_at = 0.0
        self._back_off = 0.0
        self._complete = False
        self._full_at = self._compare_at = float('-inf')
        self._since = None       # previous result of _newest()

    def hangs_for(self):
        """Return for how many seconds a statement has been running."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def _step(self):
        try:
            self.refresh()
            self.problem = None
            self._back_off = 0.0
        except Exception as error:
            self.problem = _words(error)
            self._back_off = min(_MOST_BACK_OFF_SECONDS, max(
                self._record.seconds, 2 * self._back_off))
        self.tried = True
        self._record.tried()
        return max(self._record.seconds, self._back_off)

    def refresh(self):
        """Read the changes, and from time to time the whole cell.

        :raises: any oslo.db, sqlalchemy or nova exception
        """
        with self._reading:
            self._began = time.monotonic()
            self._worked_at = time.thread_time()
            try:
                now = self._record.clock()
                if now >= self._full_at:
                    self._read_all()
                    self._full_at = now + self._record.full_seconds
                self._read_changes()
                if now >= self._compare_at:
                    self._compare()
                self.read_at = now
            finally:
                self._began = None

    def _read_changes(self):
        """Read recent changes and instances with an operation under way."""
        began = self._record.clock()
        with self._record.lock:
            unsettled = self._record.known.unsettled(self.uuid)
            moving = list(self._record.known.moves(self.uuid))
        with self._connection() as connection:
            newest = self._newest(connection)
            since, row, move = self._since
            # Read migrations first: if a migration ends between the two
            # statements, both of its hosts count the instance until the next
            # reading.
            moves = _select(connection, _MOVE_COLUMNS, _MIGRATION.c.id,
                            moving, _MIGRATION.c.id > move - _OVERLAP_ROWS)
            rows = _select(connection, _COLUMNS, _INSTANCE.c.uuid, unsettled,
                           _INSTANCE.c.updated_at >= since - _OVERLAP,
                           _INSTANCE.c.id > row - _OVERLAP_ROWS)
            # When a move to another cell ends, Nova removes the migration from
            # one of the two cells.
            reading = self._reading_of(connection, rows, unsettled, moves,
                                       moving, began)
        self._take(reading)
        self._since = newest

    def _newest(self, connection):
        """Return (time, id of newest instance, id of newest migration)."""
        now, *newest = connection.execute(sa.select(
            sa.literal_column(_NOW[connection.dialect.name]),
            *(sa.select(sa.func.max(table.c.id)).scalar_subquery()
              for table in (_INSTANCE, _MIGRATION)))).one()
        if isinstance(now, str):
            now = datetime.datetime.fromisoformat(now)
        return now, *(number or 0 for number in newest)

    def _read_all(self):
        """Read all instances and all migrations in progress, in batches."""
        known = self._record.known
        missing = set(known.rows(self.uuid))
        moving = set(known.moves(self.uuid))
        if self._since is None:
            with self._connection() as connection:
                self._since = self._newest(connection)
        last, rows = 0, None
        changes_at = self._record.clock() + self._record.seconds
        while rows is None or len(rows) == _PIECE:
            if self._record.clock() >= changes_at:
                self._read_changes()
                changes_at = self._record.clock() + self._record.seconds
            with self._connection() as connection:
                rows = connection.execute(sa.select(*_COLUMNS).where(
                    _INSTANCE.c.id > last, _INSTANCE.c.deleted == 0).order_by(
                        _INSTANCE.c.id).limit(_PIECE)).all()
                reading = self._reading_of(connection, rows)
            self._take(reading)
            missing.difference_update(row.uuid for row in rows)
            last = rows[-1].id if rows else last
            self._rest()
        self._read_instances(missing)
        with self._connection() as connection:
            moves = _select(connection, _MOVE_COLUMNS, _MIGRATION.c.id,
                            moving, _IN_PROGRESS)
            # The next reading includes what changed meanwhile.
            self._complete = True
            reading = self._reading_of(connection, moves=moves, gone=moving)
        self._take(reading)

    def _compare(self):
        """Read the hosts whose instances differ from the known instances.

        The database counts the instances of each host. This finds changes that
        no time stamp shows.
        """
        began = time.monotonic()
        known, host = self._record.known.rows(self.uuid), _INSTANCE.c.host
        with self._connection() as connection:
            recorded = {(row[0], row[1], int(row[2])) for row in
                        connection.execute(sa.select(
                         host, sa.func.count(),
                         sa.func.sum(_INSTANCE.c.id)).where(
                             _INSTANCE.c.deleted == 0,
                             host.is_not(None)).group_by(host))}
        sums = {}
        for row in known.values():
            count, total = sums.get(row.host, (0, 0))
            sums[row.host] = count + 1, total + row.number
        sums.pop(None, None)
        hosts = {entry[0] for entry in recorded ^ {
            (name, *numbers) for name, numbers in sums.items()}}
        on_hosts = [uuid for uuid, row in known.items() if row.host in hosts]
        self._compare_at = self._record.clock() + max(
            _COMPARE_SECONDS, (time.monotonic() - began) / _COMPARE_SHARE)
        for host_batch in _pieces(hosts):
            self._read_where(
                sa.and_(host.in_(host_batch), _INSTANCE.c.deleted == 0))
        self._read_instances(on_hosts)

    def _read_instances(self, uuids):
        for batch in _pieces(uuids):
            self._read_where(_INSTANCE.c.uuid.in_(batch), batch)

    def _read_where(self, condition, asked=()):
        with self._connection() as connection:
            rows = connection.execute(
                sa.select(*_COLUMNS).where(condition)).all()
            reading = self._reading_of(connection, rows, asked)
        self._take(reading)
        self._rest()

    def _reading_of(self, connection, rows=(), asked=(), moves=(), gone=(),
                    began=float('-inf')):
        """Return the Reading of some rows of the database.

        :param asked: uuids of the instances that the statement asked for
        :param gone: ids of the migrations that the statement asked for
        :param began: as in Reading
        """
        known = self._record.known.rows(self.uuid)
        rows_by_uuid = dict.fromkeys(asked)
        deleted, changed = set(), []
        for row in rows:
            if row.deleted:
                rows_by_uuid[row.uuid] = None
                deleted.add(row.uuid)
                continue
            known_row = known.get(row.uuid)
            rows_by_uuid[row.uuid] = new = residency.Row(
                row.host, row.vm_state, row.task_state,
                known_row.flavors if known_row else (None, None, None),
                row.project_id, row.id, row.instance_type_id)
            if new != known_row or not new.at_rest:
                changed.append(row.uuid)
        for extra in _select(connection, (_EXTRA.c.id, _EXTRA.c.instance_uuid,
                                          _EXTRA.c.flavor),
                             _EXTRA.c.instance_uuid, changed):
            uuid = extra.instance_uuid
            rows_by_uuid[uuid] = rows_by_uuid[uuid]._replace(
                flavors=_flavors(extra.flavor))
        ends = dict.fromkeys(gone)
        for row in moves:
            ends[row.id] = None if row.deleted or row.status in (
                None, *ENDED) else residency.Move(
                    row.instance_uuid, row.source_compute, row.dest_compute,
                    row.changed is not None
                    and row.changed < self._since[0] - _LEFT_OVER)
        return residency.Reading(self.uuid, began, rows_by_uuid,
                                 frozenset(deleted),
                                 ends, self._complete)

    def _take(self, reading):
        # A reader that was abandoned may return later.
        if self._record.is_current(self):
            self._record.take(reading)

    def _rest(self):
        """Sleep, so that other threads can use the interpreter."""
        worked = time.thread_time() - self._worked_at
        if not self._record.is_first:
            time.sleep(min(1.0, _REST * worked))
        self._worked_at = time.thread_time()
        # Measure each batch separately: a batch that does not end is a hang.
        self._began = time.monotonic()

    def _connection(self):
        # target_cell would also copy the context.
        context = _admin_context()
        nova_context.set_target_cell(context, self.cell)
        return database.get_context_manager(
            context).reader.connection.using(context)


def _admin_context():
    """Return a context that no other code uses.

    A cell is set on the context, and other code with the same context would
    then read that cell. nova.context.get_admin_context() may be replaced by a
    function that always returns the same context: nova's fixture of services
    does this while a service starts.
    """
    return nova_context.RequestContext(
        user_id=None, project_id=None, is_admin=True, overwrite=False)


def _build_requests(uuids):
    """Return the set of the instances that have a build request."""
    context = _admin_context()
    with api_database.context_manager.reader.connection.using(
            context) as connection:
        return {row.instance_uuid for row in _select(
            connection, (_REQUEST.c.id, _REQUEST.c.instance_uuid),
            _REQUEST.c.instance_uuid, uuids)}


def _select(connection, columns, key, keys, *conditions):
    """Return the rows that have one of some keys or meet a condition."""
    rows = {}
    for condition in (*conditions, *map(key.in_, _pieces(keys))):
        # A later statement has the newer version of a row.
        rows.update((row.id, row) for row in connection.execute(
            sa.select(*columns).where(condition)))
    return list(rows.values())


def _words(error):
    # Error messages of a database have many lines.
    return f'{type(error).__name__}: {str(error).partition(chr(10))[0]}'


@functools.lru_cache(maxsize=10_000)
def _flavors(text):
    """Return the (current, old, new) flavor of an instance, as in a Row."""
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
    """Return lists of a few items each."""
    items = list(items)
    return [items[at:at + _PIECE] for at in range(0, len(items), _PIECE)]
