# SPDX-License-Identifier: Apache-2.0
"""Who is where is what Nova's record says, whatever else arrives when."""

import contextlib
import threading
import traceback
from unittest import mock

from tests.functional import base

from nova import context as nova_context
from nova import exception
from nova import objects
from nova.virt import fake
import sqlalchemy as sa

from vswitch_aware_scheduler.scheduler import state as scheduler_state


class RecordTestCase(base.VSwitchTestCase):
    """Hosts of 1000 kbit/s and constant demands."""

    HOSTS = ('host1', 'host2')

    def setUp(self):
        super().setUp()
        self.describe_hosts(*[1000] * len(self.HOSTS))

    def other(self, host):
        """Return the other one of two hosts."""
        return {'host1': 'host2', 'host2': 'host1'}[host]

    def list_late(self, host, server):
        """Let a host list an instance that is not there any more."""
        self._nova_view[host]['instances'][server['id']] = objects.Instance(
            uuid=server['id'])

    @contextlib.contextmanager
    def live_migrating(self, server, host):
        """Stop a live migration on its way; yields the event that ends it."""
        with self.held(fake.FakeDriver, 'live_migration') as (_, go_on):
            self.action(server, 'os-migrateLive', host=host)
            self._wait_for_migration_status(server, ['running'])
            self.read_record()
            yield go_on


class LateListTestCase(RecordTestCase):

    def test_a_late_list_never_beats_the_record(self):
        # As of a compute that somebody has taken over.
        server = self.boot(self.of(1000), host='host1')
        for _ in range(2):
            self.list_late('host2', server)
            self._nova_view['host1']['instances'].pop(server['id'], None)
            self.boot_refused(self.of(1), host='host1')
            self.room('host2', 1000)
        self.sync_reports()
        self.live_migrate(server, 'host2')
        # A worker that begins has never seen the list of the source.
        self.restart_scheduler()
        self.list_late('host1', server)
        self._nova_view['host2']['instances'].pop(server['id'], None)
        self.boot_refused(self.of(1), host='host2')
        self.boot(self.of(1000), 'host1')
        self.boot_refused(self.of(1))


class FirstFilterTestCase(LateListTestCase):
    """The answer does not depend on the order of filters."""

    FILTERS = ['VSwitchFilter'] + base.NOVA_FILTERS


class LiveMigrationTestCase(RecordTestCase):

    def test_a_live_migration_counts_at_both_ends_until_it_ends(self):
        server = self.boot(self.of(600), host='host1')

        def abort(driver, context, instance, dest, post_method,
                  recover_method, block_migration=False, migrate_data=None):
            recover_method(context, instance, dest, migrate_data,
                           migration_status='cancelled')

        with mock.patch.object(fake.FakeDriver, 'live_migration', abort):
            self.action(server, 'os-migrateLive', host='host2')
            self._wait_for_migration_status(server, ['cancelled'])
        self._wait_for_state_change(server, 'ACTIVE')
        # It may have come and gone between two readings.
        self.clock.ahead += 61
        self.read_record()
        self.room('host2', 1000)
        self.room('host1', 400)
        # However long it takes.
        with self.live_migrating(server, 'host2') as finish:
            for _ in range(2):
                self.room('host1', 400)
                self.room('host2', 400)
                self.hours_pass()
            finish.set()
            self._wait_for_migration_status(server, ['completed'])
        self.wait_for(lambda: self.host_of(server) == 'host2', 'host2')
        self._wait_for_state_change(server, 'ACTIVE')
        self.read_record()
        self.room('host1', 1000)
        self.room('host2', 400)


class RefusedLiveMigrationTestCase(RecordTestCase):
    HOSTS = ('host1', 'host2', 'host3')

    def test_a_host_that_refuses_a_live_migration_has_its_room_back(self):
        server = self.boot(self.of(600), host='host1')
        check = fake.FakeDriver.check_can_live_migrate_destination
        refusing = []

        def refuse_first(driver, *args, **kwargs):
            if not refusing:
                refusing.append(driver._host)
                raise exception.MigrationPreCheckError(reason='of the driver')
            return check(driver, *args, **kwargs)

        with mock.patch.object(
                fake.FakeDriver, 'check_can_live_migrate_destination',
                refuse_first), self.live_migrating(server, None):
            self.room(refusing[0], 1000)
            other, = {'host2', 'host3'}.difference(refusing)
            self.room(other, 400)
        self._wait_for_migration_status(server, ['completed'])


class OtherMovesTestCase(RecordTestCase):
    """Moves that come twice, fail or end elsewhere."""

    def test_an_evacuation_there_and_back_counts_once(self):
        server = self.boot(self.of(600), host='host1')
        for origin, target in (('host1', 'host2'), ('host2', 'host1')):
            self.evacuate(server)
            self.assertEqual(target, self.host_of(server))
            self.list_late(origin, server)
            self.room(target, 400)
            self.room(origin, 1000)
            self.restart_scheduler()
            self.room(origin, 1000)

    def test_an_instance_unshelved_elsewhere_counts_there_only(self):
        self.flags(shelved_offload_time=0)
        server = self.boot(self.of(600), host='host1')
        self._shelve_server(server, expected_state='SHELVED_OFFLOADED')
        self.read_record()
        other = self.boot(self.of(1000), host='host1')
        with self.held(fake.FakeDriver, 'spawn'):
            self.action(server, 'unshelve')
            self._wait_for_server_parameter(
                server, {'OS-EXT-STS:task_state': 'spawning'})
            # However long that takes.
            for _ in range(2):
                self.read_record()
                self.boot_refused(self.of(401), host='host2')
                self.hours_pass()
            # After ten minutes a worker that begins reads no claim of it.
            with self.store._engine().begin() as connection:
                connection.execute(sa.text('DELETE FROM claim'))
            self.restart_scheduler()
            self.boot_refused(self.of(401), host='host2')
        self._wait_for_state_change(server, 'ACTIVE')
        self.assertEqual('host2', self.host_of(server))
        self.read_record()
        self.delete(other)
        self.room('host1', 1000)
        self.room('host2', 400)

    def test_an_unshelving_that_fails_counts_nowhere(self):
        self.flags(shelved_offload_time=0)
        server = self.boot(self.of(600), host='host1')
        self._shelve_server(server, expected_state='SHELVED_OFFLOADED')
        with mock.patch.object(fake.FakeDriver, 'spawn',
                               side_effect=exception.InstanceFaultRollback()):
            self.action(server, 'unshelve')
            self._wait_for_instance_action_event(
                server, 'unshelve', 'compute_unshelve_instance', 'error')
        self._wait_for_server_parameter(
            server, {'OS-EXT-STS:task_state': None})
        self.clock.ahead += 61
        self.read_record()
        self.room('host1', 1000)
        self.room('host2', 1000)

    def test_after_a_migration_that_errors_the_record_decides(self):
        server = self.boot(self.of(600), host='host1')
        with mock.patch.object(fake.FakeDriver, 'live_migration',
                               side_effect=ValueError('of the driver')):
            self.action(server, 'os-migrateLive', host='host2')
            self._wait_for_migration_status(server, ['error', 'failed'])
        self.clock.ahead += 61
        self.read_record()
        at = self.host_of(server)
        self.room(at, 400)
        self.room(self.other(at), 1000)
        self.delete(server)
        server = self.boot(self.of(600), host='host1')
        with mock.patch.object(fake.FakeDriver, 'finish_migration',
                               side_effect=ValueError('of the driver')):
            self.action(server, 'resize', flavorRef=self.of(700))
            self._wait_for_migration_status(server, ['error'])
        self._wait_for_state_change(server, 'ERROR')
        self.clock.ahead += 61
        self.read_record()
        at = self.host_of(server)
        self.assertEqual({server['id']}, self.residents(at))
        self.room(self.other(at), 1000)

    def test_a_vm_deleted_before_a_cell_has_it_frees_its_host(self):
        with self.held(scheduler_state.SchedulerState,
                       'request_finished') as (reached, _):
            server = self.post(self.of(1000), host='host1')
            self.assertTrue(reached.wait(base.TIMEOUT_SECONDS))
            self.admin_api.delete_server(server['id'])
        self._wait_until_deleted(server)
        # Build requests are read first, and then the cell.
        self.read_record()
        self.assertEqual([], self.plugin._residency.claims)
        self.room('host1', 1000)


class NothingIsStuckTestCase(RecordTestCase):

    def test_a_vm_deleted_while_it_is_built_frees_its_host(self):
        with self.held(fake.FakeDriver, 'spawn'):
            server = self.post(self.of(1000), host='host1')
            self._wait_for_server_parameter(
                server, {'OS-EXT-STS:task_state': 'spawning'})
            self.read_record()
            self.boot_refused(self.of(1), host='host1')
            self.admin_api.delete_server(server['id'])
        self._wait_until_deleted(server)
        self.read_record()
        self.room('host1', 1000)

    def test_shelved_and_soft_deleted_vms_count_where_they_are_kept(self):
        self.flags(shelved_offload_time=-1, reclaim_instance_interval=3600)
        shelved = self.boot(self.of(600), host='host1')
        self.action(shelved, 'shelve')
        self._wait_for_state_change(shelved, 'SHELVED')
        deleted = self.boot(self.of(300), host='host1')
        self.admin_api.delete_server(deleted['id'])
        self._wait_for_state_change(deleted, 'SOFT_DELETED')
        self.hours_pass()
        self.read_record()
        # The rest is deleted softly, too, and keeps its room.
        self.boot_refused(self.of(101), host='host1')
        self.action(deleted, 'restore')
        self._wait_for_state_change(deleted, 'ACTIVE')
        self.read_record()
        self.boot_refused(self.of(101), host='host1')
        self.admin_api.delete_server(deleted['id'])
        self._wait_for_state_change(deleted, 'SOFT_DELETED')
        self.read_record()
        self.boot_refused(self.of(101), host='host1')
        self.action(deleted, 'forceDelete')
        self._wait_until_deleted(deleted)
        self.action(shelved, 'shelveOffload')
        self._wait_for_state_change(shelved, 'SHELVED_OFFLOADED')
        self.read_record()
        self.boot(self.of(1000), 'host1', host='host1')


class RescheduleTestCase(RecordTestCase):
    compute_driver = 'fake.FakeRescheduleDriver'

    def test_the_host_that_failed_has_its_room_back(self):
        server = self.boot(self.of(1000))
        at = self.host_of(server)
        self.boot_refused(self.of(1), host=at)
        self.assertEqual({server['id']}, self.residents(at))
        self.assertEqual(set(), self.residents(self.other(at)))


class NoWaitTestCase(RecordTestCase):
    """Within a request nothing of ours asks a database."""

    HOOKS = ('assess', 'recall', 'hosts_filtered', 'request_started',
             'claim_host', 'host_consumed', 'claim_failed',
             'request_finished')

    def setUp(self):
        super().setUp()
        self.asking = threading.local()
        self.statements = []

    def _count(self):
        """Note the statements that the threads of requests make in hooks."""
        def watch(hook):
            def watched(state, *args, **kwargs):
                self.asking.hook = hook.__name__
                try:
                    return hook(state, *args, **kwargs)
                finally:
                    self.asking.hook = None
            return watched

        for name in self.HOOKS:
            patch = mock.patch.object(
                scheduler_state.SchedulerState, name,
                watch(getattr(scheduler_state.SchedulerState, name)))
            patch.start()
            self.addCleanup(patch.stop)

        def note(connection, cursor, statement, *args):
            if getattr(self.asking, 'hook', None):
                self.statements.append((self.asking.hook, statement))

        sa.event.listen(sa.engine.Engine, 'before_cursor_execute', note)
        self.addCleanup(sa.event.remove, sa.engine.Engine,
                        'before_cursor_execute', note)

    def test_vms_that_await_confirmation_cost_no_statement(self):
        servers = [self.resize(self.boot(self.of(10), host='host1'),
                               self.of(20)) for _ in range(2)]
        self.boot_refused(self.of(1001))
        self._count()
        self.hours_pass()
        self.boot_refused(self.of(2000))
        self.boot(self.of(30))
        self.live_migrate(self.boot(self.of(40), host='host1'))
        for server in servers:
            self.confirm(server)
        self.boot_refused(self.of(2000), host='host1')
        self.assertEqual([], self.statements)

    def test_a_request_that_hangs_keeps_no_other_waiting(self):
        # In somebody's weigher, between our filter and the claim.
        event, hung = threading.Event(), threading.Event()
        self.addCleanup(event.set)
        recall = scheduler_state.SchedulerState.recall
        assess = scheduler_state.SchedulerState.assess
        seconds = []

        def hang(state, *args):
            if not hung.is_set():
                hung.set()
                event.wait(base.TIMEOUT_SECONDS)
            return recall(state, *args)

        with mock.patch.object(scheduler_state.SchedulerState, 'recall',
                               hang):
            first = self.post(self.of(600))
            self.assertTrue(hung.wait(base.TIMEOUT_SECONDS))

            def measured(state, *args):
                began = base.time.monotonic()
                assessment = assess(state, *args)
                seconds.append(base.time.monotonic() - began)
                return assessment

            with mock.patch.object(scheduler_state.SchedulerState, 'assess',
                                   measured):
                second = self._wait_for_state_change(
                    self.post(self.of(600)), 'ACTIVE')
        # Every wait of ours is longer, see base.UNHURRIED.
        self.assertLess(max(seconds), 50.0)
        event.set()
        # The first one was judged before: it takes what is left.
        first = self._wait_for_state_change(first, 'ACTIVE')
        self.assertNotEqual(self.host_of(first), self.host_of(second))


class DeadCellTestCase(RecordTestCase):
    """A second cell, whose database does not answer."""

    NUMBER_OF_CELLS = 2

    def setUp(self):
        super().setUp()
        self.bugs_expected = True

    def answering(self, function):
        """Call a function whenever cell2 is read, and not by Nova."""
        target = nova_context.set_target_cell
        dead = self.cell_mappings['cell2'].uuid

        def set_target_cell(context, cell_mapping):
            if cell_mapping is not None and cell_mapping.uuid == dead and any(
                    frame.filename.endswith(('/nova_record.py', '/lookup.py'))
                    for frame in traceback.extract_stack()):
                function()
            return target(context, cell_mapping)

        return mock.patch.object(nova_context, 'set_target_cell',
                                 set_target_cell)

    def delete_and_wait(self, server):
        """Wait until the record shows a deletion by itself."""
        self.delete_without_reading(server)
        self.wait_for(lambda: not self.residents('host1'),
                      'the record to show the deletion')

    def test_a_dead_cell_delays_no_boot_in_another_cell(self):
        server = self.boot(self.of(1000), host='host1')
        callers = []

        def fail():
            callers.append(threading.current_thread().name)
            raise exception.CellTimeout()

        with self.answering(fail):
            self.boot_refused(self.of(1), host='host1')
            self.delete_and_wait(server)
            self.boot(self.of(1000), 'host1', host='host1')
            self.wait_for(lambda: callers, 'a reading of the dead cell')
            self.wait_for(lambda: self.log.lines('cell2'), 'the log')
        # Only readers have asked it, never a request.
        self.assertEqual({'vswitch-record-cell2'},
                         set(callers) - {'MainThread'})
        self.assertEqual(1, len([text for text in self.log.warnings
                                 if 'cell2' in text]))
        # A worker that begins while it is dead goes by the record of the
        # other cell at its first request.
        with self.answering(fail):
            self.restart_scheduler()
            self.boot_refused(self.of(1), host='host1')
            self.assertEqual(1, len(self.residents('host1')))


class RescheduleUntrackedTestCase(RescheduleTestCase):
    TRACK_INSTANCE_CHANGES = False
