# SPDX-License-Identifier: Apache-2.0
"""Reading databases that have Nova's own tables, in SQLite."""

import datetime
import json
import os
import pathlib
import re
import tempfile
import threading
import types
from unittest import mock

from nova.db.api import api as api_database
from nova.db.api import models as api_models
from nova.db.main import api as database
from nova.db.main import models
from nova import objects
from oslo_db.sqlalchemy import enginefacade
import sqlalchemy as sa

from tests.fakes import store as fake_store
from tests.unit.scheduler import base
from vswitch_aware_scheduler.scheduler import nova_record
from vswitch_aware_scheduler.scheduler import residency

A, B = base.instance_uuid(901), base.instance_uuid(902)
_INSTANCE = models.Instance.__table__
_MIGRATION = models.Migration.__table__
_EXTRA = models.InstanceExtra.__table__
_REQUEST = api_models.BuildRequest.__table__


def utc(seconds=0.0):
    """Return so many seconds from now, as Nova writes it."""
    return datetime.datetime.now(datetime.timezone.utc).replace(
        tzinfo=None) + datetime.timedelta(seconds=seconds)


def _claim_of(number, host):
    return fake_store.claim(
        host=host, instance_uuid=base.instance_uuid(number))


def flavor(name, **specs):
    return {'nova_object.data': {'name': name, 'extra_specs': specs}}


class Cell:
    """A cell with a database in a file."""

    def __init__(self, directory, uuid, name):
        self.mapping = objects.CellMapping(
            uuid=uuid, name=name, disabled=False,
            transport_url='none:///', database_connection='fake://')
        self.path = os.path.join(directory, uuid)
        self.manager = enginefacade.transaction_context()
        self.manager.configure(connection=f'sqlite:///{self.path}')
        self.engine = self.manager.writer.get_engine()
        models.BASE.metadata.create_all(self.engine)

    def execute(self, statement):
        with self.engine.begin() as connection:
            return connection.execute(statement)

    def boot(self, number, host='a', vm_state='active', task_state=None,
             updated=None, created=0.0, **more):
        """Insert an instance; one that was never changed by default."""
        uuid = base.instance_uuid(number)
        self.execute(sa.insert(_INSTANCE).values(
            uuid=uuid, host=host, vm_state=vm_state, task_state=task_state,
            instance_type_id=1, project_id='p', deleted=0,
            created_at=utc(created),
            updated_at=None if updated is None else utc(updated), **more))
        self.execute(sa.insert(_EXTRA).values(
            instance_uuid=uuid, deleted=0, flavor=json.dumps({
                'cur': flavor('m1'), 'old': None, 'new': None})))
        return uuid

    def change(self, number, updated=0.0, **values):
        self.execute(sa.update(_INSTANCE).where(
            _INSTANCE.c.uuid == base.instance_uuid(number)).values(
                updated_at=utc(updated), **values))

    def delete(self, number):
        """Delete softly: ``updated_at`` stays."""
        self.execute(sa.update(_INSTANCE).where(
            _INSTANCE.c.uuid == base.instance_uuid(number)).values(
                deleted=_INSTANCE.c.id, deleted_at=utc(),
                updated_at=_INSTANCE.c.updated_at))

    def archive(self, number):
        self.execute(sa.delete(_INSTANCE).where(
            _INSTANCE.c.uuid == base.instance_uuid(number)))

    def flavors(self, number, **flavors):
        self.execute(sa.update(_EXTRA).where(
            _EXTRA.c.instance_uuid == base.instance_uuid(number)).values(
                flavor=json.dumps({'cur': None, 'old': None, 'new': None,
                                   **flavors})))

    def migrate(self, number, status='running', source='a', dest=None,
                updated=None):
        return self.execute(sa.insert(_MIGRATION).values(
            instance_uuid=base.instance_uuid(number), status=status,
            source_compute=source, dest_compute=dest, deleted=0,
            created_at=utc(), updated_at=None if updated is None
            else utc(updated))).inserted_primary_key[0]

    def change_migration(self, number, updated=0.0, **values):
        self.execute(sa.update(_MIGRATION).where(
            _MIGRATION.c.id == number).values(
                updated_at=utc(updated), **values))

    def remove_migration(self, number):
        self.execute(sa.delete(_MIGRATION).where(_MIGRATION.c.id == number))


class RecordTestCase(base.WaitingTestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.enterContext(tempfile.TemporaryDirectory())
        self.cells = [Cell(self.directory, A, 'one'),
                      Cell(self.directory, residency.CELL0, 'cell0')]
        self.one, self.cell0 = self.cells
        self.api = enginefacade.transaction_context()
        self.api.configure(connection=f'sqlite:///{self.directory}/api')
        api_models.BASE.metadata.create_all(self.api.writer.get_engine())
        for patch in (
                mock.patch.object(objects.CellMappingList, 'get_all',
                                  lambda context: [
                                      one.mapping for one in self.cells]),
                mock.patch.object(nova_record.nova_context,
                                  'set_target_cell', self._target),
                mock.patch.object(api_database, 'context_manager', self.api),
                mock.patch.object(nova_record, '_FULL_SHARE', 1e9),
                mock.patch.object(nova_record, '_OVERLAP_ROWS', 0),
                mock.patch.object(nova_record, '_REST', 0.0)):
            self.enterContext(patch)
        self.addCleanup(lambda: [one.engine.dispose() for one in self.cells])
        self.now = 1000.0
        self.known = residency.Residency()
        self.lock = threading.Lock()
        self.problems = {}
        self.hooked = lambda cell: None
        self.record = self.make_record()

    def make_record(self, before=lambda: None, **options):
        def take(reading):
            with self.lock:
                self.known.take(reading)

        conf = types.SimpleNamespace(**{
            'record_refresh_seconds': 3600.0, 'record_full_seconds': 1e6,
            'record_timeout_seconds': .05,
            'snapshot_first_wait_seconds': base.PATIENCE_SECONDS, **options})
        record = nova_record.NovaRecord(
            take, self.known, self.lock, conf, self.problems.__setitem__,
            self._clock, before)
        self.addCleanup(record.stop)
        return record

    def _clock(self):
        self.now += .001
        return self.now

    def _target(self, context, mapping):
        self.hooked(mapping.uuid)
        context.db_connection = next(
            one.manager for one in self.cells
            if one.mapping.uuid == mapping.uuid)

    def start(self):
        """Start the threads and wait for the first readings."""
        self.record.start()
        self.record.wait()

    def read(self):
        self.record.refresh()

    def read_all(self):
        """Read when a small cell is read completely again."""
        self.now += nova_record._FULL_SECONDS
        self.read()

    def on(self, host):
        return [int(uuid[-12:]) for uuid in self.known.residents(host)]

    def check(self, **residents):
        """Compare the numbers of the instances that count on some hosts."""
        self.assertEqual(residents, {host: self.on(host)
                                     for host in residents})

    def after_each_reading(self, note):
        take = self.record.take

        def taken(reading):
            take(reading)
            note(reading)

        self.record.take = taken


class TestChanges(RecordTestCase):

    def setUp(self):
        super().setUp()
        self.one.boot(1, updated=-1e5, created=-1e5)
        self.one.boot(2, 'b', updated=-1e5, created=-1e5)
        # The latest update, so that no other one is found by its time.
        self.one.boot(100, 'z', updated=0.0)
        self.start()
        self.check(a=[1], b=[2])
        self.assertIn(A, self.known.complete)

    def test_a_context_that_others_hold_is_given_no_cell(self):
        # As nova's fixture of services replaces the function while one
        # starts: that service would then read the cell that was read here.
        shared = nova_record.nova_context.get_admin_context()
        with mock.patch.object(nova_record.nova_context, 'get_admin_context',
                               return_value=shared):
            self.read()
        self.assertIsNone(shared.db_connection)

    def test_new_changed_and_deleted_instances_are_found(self):
        self.one.boot(3)
        self.one.change(1, host='b')
        self.read()
        self.check(a=[3], b=[2, 1])
        self.one.delete(2)
        self.one.boot(4, 'c', 'building', 'spawning')
        self.one.change(3, vm_state='shelved_offloaded', host=None)
        self.read_all()
        self.check(a=[], b=[1], c=[4])
        # Nothing that a time stamp would show.
        self.one.archive(1)
        self.one.change(4, -1e5, vm_state='active', task_state=None)
        self.read_all()
        self.check(b=[], c=[4])

    def test_what_is_written_with_any_time_is_found(self):
        for number, updated in enumerate((-3600.0, 3600.0), 5):
            self.one.boot(number, None, 'building', created=updated)
            self.read_all()
            self.one.change(number, updated, host='a', vm_state='active')
            self.read_all()
            self.assertIn(number, self.on('a'))
            self.one.change(number, updated, host='c')
            self.read_all()
            self.assertIn(number, self.on('c'))
            self.one.change(number, updated, task_state='deleting')
            self.one.delete(number)
            self.read_all()
            self.assertNotIn(number, self.on('c'))

    def test_a_clock_of_the_database_that_is_ahead_hides_no_change(self):
        ahead = {'sqlite': "datetime('now', '+1 hour')"}
        with mock.patch.dict(nova_record._NOW, ahead):
            self.read()
            self.one.change(1, vm_state='shelved_offloaded')
            self.read_all()
        self.check(a=[])

    def test_a_move_between_two_readings_is_found_with_any_time(self):
        self.one.migrate(1, 'completed', dest='c', updated=-3600.0)
        self.one.change(1, -3600.0, host='c')
        self.read()
        self.check(a=[], c=[1])

    def test_migrations_count_from_their_beginning_to_their_end(self):
        self.one.change(1, task_state='migrating')
        number = self.one.migrate(1, dest='c')
        # By its number, whatever its time.
        for status, residents in (
                ('running', [1]), ('finished', [1]), ('reverting', [1]),
                ('running', [1]), ('error', [])):
            self.one.change_migration(number, -1e5, status=status)
            self.read()
            self.check(a=[1], c=residents)
        for status in nova_record.ENDED:
            self.one.migrate(1, status, dest='d')
        # A move to another cell removes its migration.
        removed = self.one.migrate(1, 'finished', dest='e')
        self.read()
        self.check(d=[], e=[1])
        self.one.remove_migration(removed)
        self.read()
        self.check(e=[])

    def test_a_migration_counts_until_a_reverted_instance_is_back(self):
        # Nova's destination writes "reverted", and then asks the source, which
        # may be down, to take the instance back.
        self.one.migrate(1, 'reverted', dest='d')
        number = self.one.migrate(1, 'finished', dest='c')
        self.one.flavors(1, cur=flavor('m2'), old=flavor('m1'),
                         new=flavor('m2'))
        self.one.change(1, host='c', vm_state='resized')
        self.read()
        self.check(a=[1], c=[1])
        self.one.change(1, task_state='resize_reverting')
        self.one.change_migration(number, status='reverted')
        for read in (self.read, self.read_all, self._begin_again):
            read()
            self.check(a=[1], c=[1], d=[])
            self.assertEqual([('m1', {})], self.known.flavors(
                base.instance_uuid(1), 'a')[0])
        self.one.flavors(1, cur=flavor('m1'))
        self.one.change(1, host='a', vm_state='active', task_state=None)
        self.read()
        self.check(a=[1], c=[])
        self.assertEqual({}, self.known.moves)

    def _begin_again(self):
        """Let a new worker read."""
        self.known = residency.Residency()
        self.record = self.make_record()
        self.start()

    def test_a_migration_that_nobody_ends_ends_with_the_operation(self):
        day = 24 * 3600.0
        self.one.change(1, task_state='migrating')
        self.one.change(2, task_state='migrating')
        for number, updated in ((1, -day - 60), (2, -day + 60)):
            self.one.migrate(number, 'queued', dest='c', updated=updated)
        self.read()
        self.assertEqual([1, 2], sorted(self.on('c')))
        for number in (1, 2):
            self.one.change(number, task_state=None)
        self.read()
        self.check(c=[2])

    def test_migrations_left_over_cost_no_statement(self):
        # A cloud collects them for years.
        for _ in range(3 * nova_record._PIECE):
            self.one.migrate(1, 'queued', dest='b', updated=-2 * 86400.0)
        self.read()
        self.assertEqual([], self.on('b')[1:])
        statements = []
        sa.event.listen(self.one.engine, 'before_cursor_execute',
                        lambda *arguments: statements.append(arguments[2]))
        self.read()
        self.assertLess(len(statements), 6, statements)
        # But they count during an operation.
        self.one.change(1, task_state='migrating')
        self.read()
        self.assertEqual([1, 2], sorted(self.on('b')))

    def test_migrations_in_progress_are_those_of_this_nova(self):
        statuses = (
            'queued', 'accepted', 'preparing', 'pre-migrating', 'migrating',
            'running', 'running (post-copy)', 'post-migrating', 'finished',
            'confirming', 'reverting', 'odd', *nova_record.ENDED)
        for status in statuses:
            self.one.execute(sa.insert(_MIGRATION).values(
                instance_uuid=base.instance_uuid(1), status=status, deleted=0,
                source_compute='a', source_node='a', dest_compute='c',
                dest_node='c', migration_type='migration',
                created_at=utc()))
        context = nova_record._admin_context()
        context.db_connection = self.one.manager
        in_progress = {
            one.status for one in
            database.migration_get_in_progress_by_host_and_node(
                context, 'a', 'a')}
        self.assertEqual(set(statuses) - set(nova_record.ENDED), in_progress)

    def test_a_full_reading_finds_whatever_is_left(self):
        # On the same host, with an old time: nothing else shows it.
        self.one.change(1, -1e5, vm_state='shelved_offloaded')
        self.one.execute(sa.insert(_MIGRATION).values(
            id=1, instance_uuid=base.instance_uuid(2), status='running',
            source_compute='b', dest_compute='d', deleted=0))
        self.read()
        self.check(a=[1])
        self.read_all()
        self.check(a=[], d=[2])
        self.one.execute(sa.delete(_MIGRATION))
        self.one.archive(2)
        self.read_all()
        self.check(b=[], d=[])

    def test_a_cell_is_read_as_often_as_the_share_of_time_allows(self):
        reader = self.record.readers[A]
        for share, option, expected in (
                (1e9, 1e6, 5.0), (1e-9, 600.0, 600.0), (1e9, 1.0, 1.0)):
            self.record.conf.record_full_seconds = option
            reader._full_at = float('-inf')
            with mock.patch.object(nova_record, '_FULL_SHARE', share):
                self.read()
            self.assertAlmostEqual(expected, reader._full_at - self.now,
                                   delta=.5)

    def test_it_is_read_in_pieces(self):
        for number in range(10, 33):
            self.one.boot(number, 'e', updated=-1e5)
        with mock.patch.object(nova_record, '_PIECE', 5):
            self.read_all()
            self.assertEqual(set(range(10, 33)), set(self.on('e')))
            self.one.execute(sa.delete(_INSTANCE).where(
                _INSTANCE.c.host == 'e'))
            self.read_all()
        self.check(e=[])

    def test_many_changes_are_passed_on_in_pieces(self):
        # As after an hour in which this machine did not reach the database.
        for number in range(10, 33):
            self.one.boot(number, 'e')
        self.one.change(1, task_state='migrating')
        self.read()
        for number in range(10, 32):
            self.one.change(number, host='f')
        self.one.change(1, host='f', task_state=None)
        self.known.claim(_claim_of(40, 'g'), self._clock())
        self.one.boot(40, 'g', updated=0.0)
        readings = []
        self.after_each_reading(lambda reading: readings.append(
            (len(reading.rows), reading.began > 0)))
        with mock.patch.object(nova_record, '_PIECE', 5):
            self.read()
        self.assertEqual({1, *range(10, 32)}, set(self.on('f')))
        self.check(e=[32], g=[40])
        self.assertEqual([], self.known.claims)
        of_one = [rows for rows in readings if rows[0]]
        # What is under way and claimed comes first, and ends claims.
        self.assertTrue(of_one[0][1])
        self.assertGreaterEqual(len(of_one), 5)
        self.assertLessEqual(max(rows for rows, _ in of_one), 5)

    def test_a_move_that_ends_in_the_course_of_a_full_reading_is_found(self):
        self.one.change(1, task_state='migrating')
        move = self.one.migrate(1, dest='c')
        self.read()
        self.check(a=[1], c=[1])
        readings = []

        def end(reading):
            readings.append(base.instance_uuid(1) in reading.rows)
            if sum(readings) == 2:
                # Its row was just read.
                self.one.change(1, task_state=None, host='c')
                self.one.change_migration(move, status='completed')

        self.after_each_reading(end)
        self.read_all()
        self.assertGreaterEqual(sum(readings), 2)
        self.check(a=[], c=[1])

    def test_slow_readings_of_changes_leave_time_for_a_full_reading(self):
        for number in range(10, 90):
            self.one.boot(number, 'e', updated=-1e5)
        self.record.conf.record_refresh_seconds = 1.0
        spent = dict.fromkeys(['changes', 'pieces'], 0.0)

        def spend(reading):
            kind, seconds = ('changes', 10.0) if reading.began > 0 \
                else ('pieces', .5)
            if reading.cell == A:
                spent[kind] += seconds
                self.now += seconds

        self.after_each_reading(spend)
        with mock.patch.object(nova_record, '_PIECE', 2):
            self.read_all()
        self.assertGreaterEqual(spent['pieces'], 20.0)
        self.assertLessEqual(spent['changes'], spent['pieces'] + 10.0)

    def test_changes_are_read_in_the_course_of_a_full_reading(self):
        for number in range(10, 40):
            self.one.boot(number, 'e', updated=-1e5)
        self.read()
        self.record.conf.record_refresh_seconds = 0.0
        readings = []

        def change(reading):
            readings.append(set(reading.rows))
            if len(readings) == 3:
                self.one.change(1, host='c')

        self.after_each_reading(change)
        with mock.patch.object(nova_record, '_PIECE', 5):
            self.read_all()
        changed, last = (next(
            at for at, rows in enumerate(readings)
            if base.instance_uuid(number) in rows and at > 2)
            for number in (1, 39))
        self.assertLess(changed, last)
        self.check(c=[1])

    def test_a_row_that_makes_no_sense_harms_no_other(self):
        self.one.boot(7, 'c')
        self.one.execute(sa.update(_EXTRA).where(
            _EXTRA.c.instance_uuid == base.instance_uuid(7)).values(
                flavor='{not json'))
        self.one.boot(8, 'c', vm_state=None)
        self.one.migrate(99, dest='c')
        self.read()
        self.assertEqual({7, 8}, set(self.on('c')))
        self.assertEqual([], self.known.flavors(
            base.instance_uuid(7), 'c')[0])


class TestClaims(RecordTestCase):

    def setUp(self):
        super().setUp()
        self.start()

    def request_build(self, number):
        with self.api.writer.get_engine().begin() as connection:
            connection.execute(sa.insert(_REQUEST).values(
                instance_uuid=base.instance_uuid(number), project_id='p'))

    def _claim(self, number=1, host='a'):
        self.known.observe([host], [A], [()])
        self.known.claim(_claim_of(number, host), self._clock())

    def test_a_claim_ends_with_the_next_reading_that_shows_it(self):
        # On another host, deleted while it was built, and built in no cell.
        for number in (1, 2, 3):
            self._claim(number)
            self.request_build(number)
        self.read()
        self.check(a=[1, 2, 3])
        self.one.boot(1, 'b', updated=-1e5, created=-1e5)
        self.one.boot(2, None, 'building', 'scheduling')
        self.one.delete(2)
        self.cell0.boot(3, None, 'error', 'scheduling')
        self.read()
        self.assertEqual([], self.known.claims)
        self.check(a=[], b=[1])

    def test_the_first_reading_verifies_the_claims_that_a_worker_reads(self):
        self.one.boot(1, 'a')
        self.one.delete(1)
        record = self.make_record(before=self._claim)
        record.start()
        record.wait()
        self.check(a=[])

    def test_a_row_that_follows_a_build_request_late_keeps_a_claim(self):
        # Nova inserts the row and then deletes the build request, between two
        # readings of the cell.
        self._claim()
        self.now += 1
        for reader in self.record.readers.values():
            reader.refresh()
        self.one.boot(1, None, 'building', 'scheduling')
        self.record.step()
        self.read()
        self.check(a=[1])

    def test_a_build_request_keeps_a_claim(self):
        self._claim()
        self.request_build(1)
        for _ in range(3):
            self.now += 1000
            self.read()
            self.check(a=[1])
        with self.api.writer.get_engine().begin() as connection:
            connection.execute(sa.delete(_REQUEST))
        self.read()
        self.check(a=[])

    def test_the_manual_has_the_tables_that_are_read(self):
        page = (pathlib.Path(__file__).resolve().parents[3]
                / 'doc/source/configuration/store.rst').read_text()
        in_manual = re.search(
            r'\* - each cell\n     - (.*)\n   \* - API\n     - (.*)\n',
            page).groups()
        tables, statements = [set(), set()], []

        def note(connection, cursor, statement, *_):
            statements.append(statement)
            tables[connection.engine is self.api.writer.get_engine()].update(
                re.findall(r'\b(?:FROM|JOIN) (\w+)', statement))

        sa.event.listen(sa.Engine, 'before_cursor_execute', note)
        try:
            self._claim(2)
            self.now += 1000
            self.one.boot(1)
            self.one.migrate(1)
            statements.clear()
            self.read_all()
        finally:
            sa.event.remove(sa.Engine, 'before_cursor_execute', note)
        # Nova itself reads the cells.
        tables[1].add(api_models.CellMapping.__tablename__)
        self.assertEqual(tables, [set(re.findall(r'\w+', text))
                                  for text in in_manual])
        self.assertEqual({'SELECT'}, {
            statement.split()[0] for statement in statements} - {'BEGIN'})


class TestCells(RecordTestCase):

    def setUp(self):
        super().setUp()
        self.two = Cell(self.directory, B, 'two')
        self.cells.append(self.two)
        self.one.boot(1, 'a')
        self.two.boot(2, 'b')

    def _break(self, cell):
        def fail(uuid):
            if uuid == cell.mapping.uuid:
                raise OSError('connection refused')

        self.hooked = fail

    def _mend(self):
        self.hooked = lambda uuid: None

    def _find_cells(self):
        self.record._cells_at = float('-inf')
        self.record.step()

    def test_a_dead_cell_goes_by_its_last_record_and_is_reported(self):
        self.start()
        self._break(self.two)
        self.one.change(1, host='c')
        self.two.change(2, host='c')
        with self.assertRaises(OSError):
            self.record.readers[B].refresh()
        self.record.readers[B]._step()
        self.record.readers[A]._step()
        self.record.step()
        self.check(c=[1], b=[2])
        self.assertIn('connection refused',
                      self.problems['record of cell two'])
        self.assertIsNone(self.problems['record of cell one'])
        self._mend()
        self.record.readers[B]._step()
        self.record.step()
        self.assertEqual({1, 2}, set(self.on('c')))
        self.assertIsNone(self.problems['record of cell two'])

    def test_the_age_of_each_cell_is_that_of_its_last_reading(self):
        self._break(self.two)
        self.start()
        self.record.readers[A].refresh()
        self.now += 50.0
        ages = self.record.ages()
        self.assertIsNone(ages['two'])
        self.assertAlmostEqual(50.0, ages['one'], delta=1.0)
        self._mend()
        self.record.readers[B].refresh()
        self.assertLess(self.record.ages()['two'], 1.0)

    def test_one_that_is_dead_from_the_start_keeps_nobody_waiting(self):
        self._break(self.two)
        self.start()
        self.assertIn(A, self.known.complete)
        self.assertNotIn(B, self.known.complete)
        # It is tried again ever more rarely.
        reader = self.record.readers[B]
        self.record.conf.record_refresh_seconds = 2.0
        reader._back_off = 0.0
        self.assertEqual([2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0],
                         [reader._step() for _ in range(7)])
        self._mend()
        self.assertEqual([2.0, 2.0], [reader._step() for _ in range(2)])

    def test_one_that_hangs_is_waited_for_no_longer_than_the_option_says(
            self):
        released = threading.Event()
        self.addCleanup(released.set)

        def hang(uuid):
            if uuid == B:
                released.wait(base.PATIENCE_SECONDS)

        self.hooked = hang
        self.record = self.make_record(snapshot_first_wait_seconds=.2)
        self.start()
        self.wait_for(lambda: A in self.known.complete)
        self.check(a=[1])
        self.assertNotIn(B, self.known.complete)
        self.wait_for(lambda: self.record.readers[B].hangs_for() > .05)
        self.record.step()
        self.assertIn('no answer', self.problems['record of cell two'])
        self.record.wait()
        # Given up, another thread goes on; the old one says nothing more.
        old = self.record.readers[B]
        with mock.patch.object(nova_record, '_GIVE_UP_SECONDS', .05):
            self.record.step()
        self.assertIsNot(old, self.record.readers[B])
        released.set()
        self.wait_for(lambda: B in self.known.complete)

    def test_cells_come_and_go(self):
        self.two.mapping.disabled = True
        self.start()
        self.assertNotIn(B, self.known.complete)
        self.two.mapping.disabled = False
        self._find_cells()
        self.wait_for(lambda: B in self.known.complete)
        self.two.mapping.disabled = True
        self._find_cells()
        # Its hosts go by their last record.
        self.check(b=[2])
        self.assertNotIn(B, self.record.readers)

    def test_one_that_is_removed_from_nova_counts_nowhere(self):
        self.two.migrate(2, source='b', dest='c')
        self.start()
        self.read()
        self.check(b=[2], c=[2])
        # Mostly it is disabled first, and its hosts are still there then.
        self.two.mapping.disabled = True
        self._find_cells()
        self.check(b=[2], c=[2])
        self.known.observe(['b'], [B], [()])
        self.known.claim(_claim_of(3, 'b'), self._clock())
        self.cells.remove(self.two)
        self._find_cells()
        self.check(a=[1], b=[], c=[])
        # Claims on its hosts end, too.
        self.assertEqual([], self.known.claims)
        # It may be added again.
        self.two.mapping.disabled = False
        self.cells.append(self.two)
        self._find_cells()
        self.wait_for(lambda: [self.on('b'), self.on('c')] == [[2], [2]])

    def test_a_dead_one_that_goes_or_is_renamed_leaves_no_problem(self):
        self._break(self.two)
        self.start()
        self.record.step()
        self.assertIn('refused', self.problems['record of cell two'])
        self.two.mapping = self.two.mapping.obj_clone()
        self.two.mapping.name = 'second'
        self._find_cells()
        self.assertIsNone(self.problems['record of cell two'])
        self.wait_for(lambda: self.record.readers[B].problem)
        self.record.step()
        self.assertIn('refused', self.problems['record of cell second'])
        self.two.mapping.disabled = True
        self._find_cells()
        self.assertIsNone(self.problems['record of cell second'])

    def test_without_the_cells_it_is_reported_and_nobody_waits(self):
        with mock.patch.object(objects.CellMappingList, 'get_all',
                               side_effect=OSError('gone\nmore')):
            self.start()
        self.assertIn('gone;', self.problems["Nova's record"])

    def test_a_request_wakes_the_readers(self):
        self.start()
        self.one.change(1, host='c')
        self.record.wake(0.0)
        self.wait_for(lambda: self.on('c') == [1])
