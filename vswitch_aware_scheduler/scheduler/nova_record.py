# SPDX-License-Identifier: Apache-2.0
"""Reads who is where from the databases of Nova's cells, in the background.

One thread finds the cells, and one for each enabled cell and for cell0 reads
it: a cell that hangs keeps nobody else waiting. Statements are plain SQL, and
nothing is written. What is read goes to a :class:`.residency.Residency`
(reference/claims.rst, "The record").
"""

import datetime
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

#: Statuses of migrations that have ended, as Nova has them in
#: migration_get_in_progress_by_host_and_node.
ENDED = ('confirmed', 'reverted', 'error', 'failed', 'completed', 'cancelled',
         'done')

#: Changes are read from so long before the last reading: clocks of those who
#: write differ, and a transaction becomes visible when it ends. Likewise so
#: many of the newest rows.
_OVERLAP_SECONDS = 15.0
_OVERLAP_ROWS = 50

#: Rows that are read at a time, and how long the thread then rests, as a
#: multiple of the time that it has worked.
_PIECE = 100
_REST = 3.0

#: How often the hosts' numbers of instances are compared, and which share of
#: the time that takes at most.
_COMPARE_SECONDS = 5.0
_COMPARE_SHARE = 0.01

#: Longest time between two attempts to read a cell that fails; a reading that
#: hangs for so long is given up.
_MOST_BACK_OFF_SECONDS = 60.0
_GIVE_UP_SECONDS = 600.0

#: How often it is looked which cells there are.
_CELLS_SECONDS = 30.0

#: A worker reads when a request begins, unless it has done so lately.
_FRESH_SECONDS = 0.25

_MOST_FLAVORS = 10_000

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
                 _MIGRATION.c.status, _MIGRATION.c.deleted)

#: The time in UTC, which is what Nova writes.
_NOW = {'sqlite': "datetime('now')",
        'postgresql': "clock_timestamp() at time zone 'utc'",
        'mysql': 'utc_timestamp()', 'mariadb': 'utc_timestamp()'}


class NovaRecord:
    """Keeps a Residency up to date with Nova's record.

    Making one opens nothing.

    :param take: callable(Reading), takes a reading in
    :param take_build_requests: callable(began, uuids that have one)
    :param known: the Residency; only its ``rows``, ``moves``, ``unsettled``
        and ``unseen`` are called
    :param lock: what callers of the Residency hold
    :param seconds: time between two readings of a cell
    :param full_seconds: time between two readings of all of a cell
    :param limit_seconds: a reading that takes longer is reported
    :param first_wait_seconds: longest wait for the first readings
    :param report: callable(topic, problem or None)
    :param clock: callable, monotonic seconds
    """

    def __init__(self, take, take_build_requests, known, lock, seconds,
                 full_seconds, limit_seconds, first_wait_seconds, report,
                 clock=time.monotonic):
        self.take = take
        self.known = known
        self.lock = lock
        self.seconds = seconds
        self.full_seconds = full_seconds
        self.clock = clock
        self._take_build_requests = take_build_requests
        self._limit_seconds = limit_seconds
        self._first_wait_seconds = first_wait_seconds
        self._report = report
        self._thread = worker_thread.WorkerThread(
            'vswitch-record', self.step, self._forget)
        # Who refreshes does so in a thread of its own.
        self._stepping = threading.Lock()
        self._forget()

    def _forget(self):
        self._readers = {}       # cell -> CellReader
        self._cells_at = float('-inf')
        self._tried = threading.Event()
        self._wait_until = time.monotonic() + self._first_wait_seconds

    @property
    def waiting(self):
        """Whether the first readings are being waited for."""
        return not self._tried.is_set() \
            and time.monotonic() < self._wait_until

    def start(self):
        """Be at work from now on, in this process."""
        self._thread.start()

    def wait(self):
        """Wait until each cell was tried once, or the first wait is over."""
        if not self._tried.is_set():
            self._tried.wait(max(0.0, self._wait_until - time.monotonic()))
            self._tried.set()

    def tried(self):
        """Take note that a cell was tried."""
        if self._readers and all(one.tried for one in
                                 list(self._readers.values())):
            self._tried.set()

    def wake(self):
        """Read now what has changed, unless that was done just now."""
        for reader in list(self._readers.values()):
            if reader.problem is None:
                reader.thread.wake(_FRESH_SECONDS)

    def refresh(self):
        """Read all that has changed, in the calling thread."""
        self.start()
        self.step()
        for reader in list(self._readers.values()):
            reader.refresh()
        self.step()

    def stop(self):
        """End the threads."""
        self._thread.stop()
        for reader in self._readers.values():
            reader.thread.stop(30.0)

    def step(self):
        """Look after the readers, and after claims of which nothing is seen.

        :returns: seconds until the next time
        """
        with self._stepping:
            self._look_after_all()
        return self.seconds

    def _look_after_all(self):
        try:
            now = self.clock()
            if time.monotonic() >= self._cells_at + _CELLS_SECONDS:
                self._find_cells()
                self._cells_at = time.monotonic()
            self._look_after_readers()
            with self.lock:
                unseen = list(self.known.unseen(now))
            if unseen:
                self._take_build_requests(now, _build_requests(unseen))
            self._report("Nova's record", None)
        except Exception as error:
            self._report("Nova's record", (
                f'{_words(error)}; going by what was read before'))
            self._tried.set()

    def _find_cells(self):
        cells = {cell.uuid: cell for cell in objects.CellMappingList.get_all(
            _admin_context()) if not cell.disabled}
        for uuid in self._readers.keys() - cells.keys():
            self._readers.pop(uuid).thread.stop(0.0)
            self._report(f'record of cell {uuid}', None)
        new = [CellReader(self, cell) for uuid, cell in cells.items()
               if uuid not in self._readers]
        self._readers.update((reader.cell.uuid, reader) for reader in new)
        for reader in new:
            reader.thread.start()

    def _look_after_readers(self):
        for uuid, reader in list(self._readers.items()):
            hangs = reader.hangs_for()
            problem = reader.problem
            if hangs > self._limit_seconds:
                problem = f'no answer for {hangs:.0f} s'
            self._report(f'record of cell {reader.name}', problem and (
                f'{problem}; its hosts go by what was read before'))
            if hangs > _GIVE_UP_SECONDS:
                self._readers[uuid] = CellReader(self, reader.cell)
                self._readers[uuid].thread.start()
                reader.thread.stop(0.0)

    def is_current(self, reader):
        """Return whether a reader still is the one of its cell."""
        return self._readers.get(reader.cell.uuid) is reader


class CellReader:
    """Reads one cell, in a thread of its own.

    :param record: NovaRecord
    :param cell: nova CellMapping
    """

    def __init__(self, record, cell):
        self.cell = cell
        self.name = cell.name or cell.uuid
        self.problem = None
        self.tried = False
        self.thread = worker_thread.WorkerThread(
            f'vswitch-record-{self.name}', self._step)
        self._record = record
        # One reading at a time; tests read in a thread of their own.
        self._reading = threading.Lock()
        self._began = None       # since when a reading is under way
        self._back_off = 0.0
        self._complete = cell.is_cell0()
        self._full_at = self._compare_at = float('-inf')
        self._since = None       # (time, id of instance, id of migration)
        self._types = {}         # uuid -> id of its flavor
        self._ids = {}           # uuid -> (host, id of its row)
        self._sums = {}          # host -> [instances, sum of their ids]
        self._flavors = {}       # text -> parsed
        self._worked_at = 0.0

    def hangs_for(self):
        """Return for how many seconds the reading has been under way."""
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
        """Read what has changed; now and then everything.

        :raises: any oslo.db, sqlalchemy or nova exception
        """
        with self._reading:
            self._began = time.monotonic()
            self._worked_at = time.thread_time()
            try:
                self._read_changes()
                if self.cell.is_cell0():
                    return
                now = self._record.clock()
                if not now < self._full_at + self._record.full_seconds:
                    self._read_all()
                    self._full_at = now
                elif now >= self._compare_at:
                    self._compare()
            finally:
                self._began = None

    def _read_changes(self):
        began = self._record.clock()
        cell = self.cell.uuid
        with self._record.lock:
            unsettled = list(self._record.known.unsettled(cell))
            moving = list(self._record.known.moves(cell))
        with self._connection() as connection:
            moves, rows = [], []
            if not self.cell.is_cell0():
                now, *newest = connection.execute(sa.select(
                    sa.literal_column(_NOW[connection.dialect.name]),
                    *(sa.select(sa.func.max(table.c.id)).scalar_subquery()
                      for table in (_INSTANCE, _MIGRATION)))).one()
                if isinstance(now, str):
                    now = datetime.datetime.fromisoformat(now)
                # Migrations first: where one ends in between, both of its
                # hosts count the instance until the next reading.
                moves = self._changed_moves(connection, moving)
                if self._since is not None:
                    rows = [*connection.execute(sa.select(*_COLUMNS).where(
                        _INSTANCE.c.updated_at >= self._since[0])),
                        *connection.execute(sa.select(*_COLUMNS).where(
                            _INSTANCE.c.id > self._since[1]))]
                self._since = (
                    now - datetime.timedelta(seconds=_OVERLAP_SECONDS),
                    *((number or 0) - _OVERLAP_ROWS for number in newest))
            seen = {row.uuid for row in rows}
            for some in _pieces([uuid for uuid in unsettled
                                 if uuid not in seen]):
                rows.extend(connection.execute(sa.select(*_COLUMNS).where(
                    _INSTANCE.c.uuid.in_(some))))
            absent = set(unsettled).difference(row.uuid for row in rows)
            if self.cell.is_cell0():
                absent.update(set(self._record.known.rows(cell)).difference(
                    unsettled))
            found = self._reading_of(connection, began, rows, moves, absent)
        self._take(found)

    def _changed_moves(self, connection, moving):
        """Return the rows of migrations that have changed or go on."""
        query = sa.select(*_MOVE_COLUMNS)
        if self._since is None:
            return connection.execute(query.where(
                _MIGRATION.c.deleted == 0,
                _MIGRATION.c.status.not_in(ENDED))).all()
        rows = [*connection.execute(query.where(
            _MIGRATION.c.updated_at >= self._since[0])),
            *connection.execute(query.where(
                _MIGRATION.c.id > self._since[2]))]
        for some in _pieces(moving):
            rows.extend(connection.execute(query.where(
                _MIGRATION.c.id.in_(some))))
        # One that went on is as it is in a later statement.
        return list({row.id: row for row in rows}.values())

    def _read_all(self):
        """Read all instances and all migrations in progress, in pieces."""
        known = self._record.known
        cell = self.cell.uuid
        began = self._record.clock()
        missing = set(known.rows(cell))
        moving = set(known.moves(cell))
        last, changes_at = 0, began + self._record.seconds
        while True:
            if self._record.clock() >= changes_at:
                self._read_changes()
                changes_at = self._record.clock() + self._record.seconds
            with self._connection() as connection:
                rows = connection.execute(sa.select(*_COLUMNS).where(
                    _INSTANCE.c.id > last, _INSTANCE.c.deleted == 0).order_by(
                        _INSTANCE.c.id).limit(_PIECE)).all()
                found = self._reading_of(connection, began, rows)
            self._take(found)
            self._rest()
            missing.difference_update(row.uuid for row in rows)
            if len(rows) < _PIECE:
                break
            last = rows[-1].id
        for some in _pieces(list(missing)):
            self._read_some(_INSTANCE.c.uuid.in_(some), some)
        with self._connection() as connection:
            moves = connection.execute(sa.select(*_MOVE_COLUMNS).where(
                _MIGRATION.c.deleted == 0,
                _MIGRATION.c.status.not_in(ENDED))).all()
            gone = moving.difference(row.id for row in moves)
            for some in _pieces(list(gone)):
                moves.extend(connection.execute(sa.select(
                    *_MOVE_COLUMNS).where(_MIGRATION.c.id.in_(some))))
            gone.difference_update(row.id for row in moves)
            found = self._reading_of(connection, began, [], moves)
        found.moves.update(dict.fromkeys(gone))
        self._complete = True
        self._take(found)
        # What has changed meanwhile, before anybody goes by it.
        self._read_changes()

    def _compare(self):
        """Read the hosts that have other instances than are known.

        The database adds them up: this finds what no time stamp shows.
        """
        began = time.monotonic()
        column = _INSTANCE.c.host
        with self._connection() as connection:
            sums = {row[0]: [row[1], int(row[2])] for row in
                    connection.execute(sa.select(
                        column, sa.func.count(),
                        sa.func.sum(_INSTANCE.c.id)).where(
                            _INSTANCE.c.deleted == 0,
                            column.is_not(None)).group_by(column))}
        took = time.monotonic() - began
        self._compare_at = self._record.clock() + max(
            _COMPARE_SECONDS, took / _COMPARE_SHARE)
        others = [host for host in sums.keys() | self._sums.keys()
                  if sums.get(host) != self._sums.get(host)]
        if others:
            hosts = set(others)
            there = [uuid for uuid, (host, _) in self._ids.items()
                     if host in hosts]
            for some in _pieces(others):
                self._read_some(sa.and_(column.in_(some),
                                        _INSTANCE.c.deleted == 0), [])
            for some in _pieces(there):
                self._read_some(_INSTANCE.c.uuid.in_(some), some)

    def _read_some(self, condition, uuids):
        """Read some instances; those of ``uuids`` that are not there go."""
        began = self._record.clock()
        with self._connection() as connection:
            rows = connection.execute(
                sa.select(*_COLUMNS).where(condition)).all()
            found = self._reading_of(
                connection, began, rows,
                absent=set(uuids).difference(row.uuid for row in rows))
        self._take(found)
        self._rest()

    def _reading_of(self, connection, began, rows, moves=(), absent=()):
        """Return the Reading that some rows of the database make."""
        known = self._record.known.rows(self.cell.uuid)
        found = {uuid: None for uuid in absent}
        deleted, without_flavor = set(), []
        for row in rows:
            if row.deleted:
                found[row.uuid] = None
                deleted.add(row.uuid)
                continue
            before = known.get(row.uuid)
            found[row.uuid] = new = residency.Row(
                row.host, row.vm_state, row.task_state,
                before.flavors if before else (None, None, None),
                row.project_id)
            if before is None or not new.at_rest or new != before \
                    or self._types.get(row.uuid) != row.instance_type_id:
                without_flavor.append(row.uuid)
                self._types[row.uuid] = row.instance_type_id
        for some in _pieces(without_flavor):
            for extra in connection.execute(sa.select(
                    _EXTRA.c.instance_uuid, _EXTRA.c.flavor).where(
                        _EXTRA.c.instance_uuid.in_(some))):
                found[extra.instance_uuid] = found[
                    extra.instance_uuid]._replace(
                        flavors=self._parse(extra.flavor))
        if not self.cell.is_cell0():
            self._add_up(rows, found)
        return residency.Reading(
            self.cell.uuid, began, found, frozenset(deleted), {
                row.id: None if row.deleted or row.status in ENDED
                else residency.Move(row.instance_uuid, row.source_compute,
                                    row.dest_compute) for row in moves},
            self._complete)

    def _add_up(self, rows, found):
        """Follow the hosts' numbers of instances, as :meth:`_compare` does."""
        numbers = {row.uuid: row.id for row in rows}
        for uuid, row in found.items():
            before = self._ids.pop(uuid, None)
            if row is not None and row.host is not None:
                self._ids[uuid] = row.host, numbers[uuid]
            elif row is None:
                self._types.pop(uuid, None)
            for sign, one in ((-1, before), (1, self._ids.get(uuid))):
                if one is not None:
                    of = self._sums.setdefault(one[0], [0, 0])
                    of[0] += sign
                    of[1] += sign * one[1]
                    if not of[0]:
                        del self._sums[one[0]]

    def _parse(self, text):
        """Return (current, old, new) flavor of an instance's flavors."""
        found = self._flavors.get(text)
        if found is None:
            if len(self._flavors) >= _MOST_FLAVORS:
                self._flavors.clear()
            try:
                data = json.loads(text)
                found = tuple(_flavor(data.get(which))
                              for which in ('cur', 'old', 'new'))
            except Exception:
                # Of one instance, which counts without it.
                found = None, None, None
            self._flavors[text] = found
        return found

    def _take(self, reading):
        # One that was given up may come back.
        if self._record.is_current(self):
            self._record.take(reading)

    def _rest(self):
        """Let others work, who share the interpreter."""
        worked = time.thread_time() - self._worked_at
        if not self._record.waiting:
            time.sleep(min(1.0, _REST * worked))
        self._worked_at = time.thread_time()
        # The next piece: only one that does not end is a hang.
        self._began = time.monotonic()

    def _connection(self):
        # Not target_cell, which also copies the context.
        context = _admin_context()
        nova_context.set_target_cell(context, self.cell)
        return database.get_context_manager(
            context).reader.connection.using(context)


def _admin_context():
    """Return a context that nobody else holds.

    The context is given a cell, and whoever else held it would read that cell
    from then on. nova.context.get_admin_context() may be replaced by a
    function that returns one and the same context, as nova's fixture of
    services does while a service starts.
    """
    return nova_context.RequestContext(
        user_id=None, project_id=None, is_admin=True, overwrite=False)


def _build_requests(uuids):
    """Return the set of those instances that have a build request."""
    context = _admin_context()
    with api_database.context_manager.reader.connection.using(
            context) as connection:
        return {row[0] for some in _pieces(uuids) for row in
                connection.execute(sa.select(_REQUEST.c.instance_uuid).where(
                    _REQUEST.c.instance_uuid.in_(some)))}


def _words(error):
    # Errors of a database go on for many lines.
    return f'{type(error).__name__}: {str(error).partition(chr(10))[0]}'


def _flavor(data):
    """Return (name, extra specs) of a serialised nova Flavor, or None."""
    fields = (data or {}).get('nova_object.data')
    return fields and (fields.get('name'), fields.get('extra_specs') or {})


def _pieces(items):
    """Return lists of a few of some items each."""
    return [items[at:at + _PIECE] for at in range(0, len(items), _PIECE)]
