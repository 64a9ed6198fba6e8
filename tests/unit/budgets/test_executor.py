# SPDX-License-Identifier: Apache-2.0

import contextlib
import dataclasses
from unittest import mock
import uuid as uuids

from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import clock
from tests.unit.budgets import fleet
from tests.unit.store import base
from vswitch_aware_scheduler.budgets import executor
from vswitch_aware_scheduler.budgets import proposal
from vswitch_aware_scheduler.budgets import rebalance_settings as settings
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import plans as records


def proposed(name, source='host1', destination='host2', memory=1024,
             group=None):
    return proposal.ProposedMove(
        fleet.uuid_of(name), name, source, destination, 'reason', -5.0, 5.0,
        5.0, 5.0, .1, .001, .01, 60.0, 60.0, memory, 9.0, 1024.0, .5,
        uuids.uuid4().int >> 65 if group is None else group)


class Killed(BaseException):
    """The process ends here."""


class ExecutorTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.store = self.make_store()
        self.start()

    def start(self, **options):
        """Begin with three instances on host1, and a store without plans."""
        self.fleet = fleet.Fleet('host1', 'host2', 'host3')
        self.cloud = self.enterContext(self.fleet.cloud)
        for name in ('vm1', 'vm2', 'vm3'):
            self.cloud.boot(name, 'host1')
        for table in ('rebalance_plan', 'rebalance_move', 'decision'):
            self.execute(f'DELETE FROM {table}')
        self.fleet.write(self.store)
        self.settings = settings.RebalanceSettings(
            network=settings.SEPARATE, **options)
        self.clock = clock.Clock(fleet.NOW)
        self.said = []
        self.executor = self.make()

    def make(self, holder='test'):
        return executor.Executor(
            self.store, self.cloud.client(), self.settings, holder,
            self.clock, self.clock, self.said.append)

    def plan(self, *moves, reason='debt'):
        return proposal.RebalanceProposal(
            fleet.NOW, fleet.NOW, 3, (), moves or tuple(
                map(proposed, ('vm1', 'vm2', 'vm3'))), 0, reason, 1e6)

    def run_plan(self, *moves, steps=50):
        """Carry out a plan; return the states of its moves."""
        with self.running(*moves) as running:
            self.steps(running, steps)
        return self.states()

    @contextlib.contextmanager
    def running(self, *moves):
        """Return an executor that has the lock and begins a plan."""
        with self.executor as running:
            running.begin(self.plan(*moves))
            yield running

    def steps(self, running, most=50):
        for _ in range(most):
            if not running.step():
                return
            self.clock.now += 5.0
        self.fail(f'not ended after {most} steps: {self.states()}')

    def states(self):
        return [move.state for move in self.store.moves()]

    def details(self):
        return [move.body.get('detail') for move in self.store.moves()]

    def plan_state(self):
        return self.store.plans()[0].state

    def stays(self, server, host):
        """Accept a migration which is running from then on."""
        server['OS-EXT-STS:task_state'] = 'migrating'
        self.cloud.migration(server['name'], server[
            'OS-EXT-SRV-ATTR:host'], host, 'running')

    def arrive(self, name, status='completed'):
        """End a migration that is running."""
        server = self.cloud.servers[fleet.uuid_of(name)]
        server['OS-EXT-STS:task_state'] = None
        migration = [migration for migration in self.cloud.migrations
                     if migration['instance_uuid'] == server['id']][-1]
        migration['status'] = status
        if status == 'completed':
            server['OS-EXT-SRV-ATTR:host'] = migration['dest_compute']


class WholePlanTestCase(ExecutorTestCase):

    def test_each_instance_is_migrated_once_and_recorded(self):
        self.assertEqual(['done'] * 3, self.run_plan())
        self.assertEqual([('vm1', 'host2'), ('vm2', 'host2'),
                          ('vm3', 'host2')], self.cloud.asked)
        plan, = self.store.plans()
        self.assertEqual(('done', '3 migrations were made'),
                         (plan.state, plan.reason))
        move = self.store.moves()[0]
        self.assertGreater(move.ended_at, move.begun_at)
        self.assertEqual(move.ended_at - move.begun_at,
                         move.body['took_seconds'])
        self.assertEqual(-5.0, move.body['budget_before'])

    def test_a_host_is_never_forced_and_disks_stay(self):
        self.run_plan(proposed('vm1'))
        body, = [body for method, path, _, body in self.cloud.requests
                 if method == 'POST']
        self.assertEqual(b'{"os-migrateLive": {"host": "host2", '
                         b'"block_migration": false}}', body)

    def test_at_most_the_permitted_migrations_run_at_a_time(self):
        self.cloud.on_migrate = self.stays
        for parallel, count in ((1, 1), (2, 2)):
            self.settings = dataclasses.replace(self.settings,
                                                parallel=parallel)
            with self.make() as running:
                if parallel == 1:
                    running.begin(self.plan())
                else:
                    self.assertEqual(3, running.resume())
                for _ in range(3):
                    self.assertTrue(running.step())
            self.assertEqual(count, len(self.cloud.asked))
        with self.make() as running:
            running.resume()
            for name in ('vm1', 'vm2', 'vm3'):
                running.step()
                self.arrive(name)
            self.steps(running)
        self.assertEqual(['done'] * 3, self.states())

    def test_with_a_slow_network_no_migration_begins(self):
        self.settings = settings.RebalanceSettings()
        with self.make() as running:
            with self.assertRaisesRegex(exceptions.InvalidInput, 'hours'):
                running.begin(self.plan())
        self.assertEqual([], self.store.plans())


class FailureTestCase(ExecutorTestCase):
    """A plan goes on with its other moves."""

    def check(self, detail, state, rests, asked=()):
        """Carry out a plan whose first move fails.

        The first instance goes to host2, the others to host3.

        :param rests: what the record says of the first move
        :param asked: instances that Nova is asked to migrate before the others
        """
        self.assertEqual([state, 'done', 'done'], self.run_plan(
            proposed('vm1'), proposed('vm2', destination='host3'),
            proposed('vm3', destination='host3')))
        move = self.store.moves()[0]
        self.assertIn(detail, move.body['detail'])
        self.assertEqual(rests, move.body['rests'])
        self.assertEqual('incomplete', self.plan_state())
        reason = self.store.plans()[0].reason
        self.assertIn(detail, reason)
        self.assertIn(detail, self.executor.problem)
        self.assertIn('2 of 3 migrations were made', reason)
        self.assertEqual([*asked, 'vm2', 'vm3'],
                         [name for name, _ in self.cloud.asked])

    def test_a_move_with_an_obstacle_is_dropped(self):
        uuid = fleet.uuid_of('vm1')

        def changed(**fields):
            return lambda: self.cloud.servers[uuid].update(fields)

        def group():
            self.cloud.boot('other', 'host2')
            self.cloud.groups = [{
                'id': 'g', 'policy': 'anti-affinity', 'rules': {},
                'members': [uuid, fleet.uuid_of('other')]}]

        def debt():
            self.fleet.balance['host2'] = -1.0
            self.fleet.write(self.store)

        for detail, rests, change in (
                ('deleted', 'instance', lambda: self.cloud.servers.pop(uuid)),
                ('is on host3', 'instance',
                 changed(**{'OS-EXT-SRV-ATTR:host': 'host3'})),
                ('its task is migrating', 'instance',
                 changed(**{'OS-EXT-STS:task_state': 'migrating'})),
                ('it is locked', 'instance', changed(locked=True)),
                ('its metadata has vswitch:migrate=never', 'instance',
                 changed(metadata={'vswitch:migrate': 'never'})),
                ('host2 is disabled', 'destination',
                 lambda: self.cloud.services['host2'].update(
                     status='disabled')),
                ('host2 is in debt', 'destination', debt),
                ('no room', 'destination',
                 lambda: self.cloud.boot('large', 'host2', vcpus=16)),
                ('server group', 'destination', group)):
            with self.subTest(detail):
                self.start(tenant_veto=True)
                change()
                self.check(detail, 'dropped', rests)

    def test_an_aggregate_forbids_migrations_of_its_instances(self):
        self.cloud.aggregates = [({'vswitch:migrate': 'never'}, ['host1'])]
        self.assertEqual(['dropped'] * 3, self.run_plan())
        self.assertIn('an aggregate of its host has', self.details()[0])

    def error(self, server, host):
        self.cloud.complete(server, host, 'error')

    def test_a_migration_that_does_not_arrive_has_failed(self):
        def reset(server, host):
            self.cloud.failure = 'the connection was reset'
            self.error(server, host)

        def refused(**values):
            def error(server, host):
                self.decide(**values)
                self.error(server, host)
            return error

        def delete(server, host):
            self.cloud.migration('vm1', 'host1', host, 'error')
            del self.cloud.servers[server['id']]

        def end(server, host):
            self.error(server, host)
            server['OS-EXT-STS:vm_state'] = 'deleted'

        for detail, rests, on_migrate in (
                ('No valid host', 'destination', self.error),
                ('the connection was reset', 'migration', reset),
                ('VSwitchFilter refuses host2 by the check peak: its peak of '
                 '2 is above 1', 'destination', refused()),
                # Decisions on other requests and hosts are ignored.
                ('No valid host', 'destination', refused(request_id='r0')),
                ('No valid host', 'destination', refused(host='host3')),
                ('is on host3', 'instance', lambda server, host:
                 self.cloud.complete(server, 'host3')),
                ('deleted meanwhile', 'instance', delete),
                ('deleted meanwhile', 'instance', end)):
            with self.subTest(detail):
                self.start()
                self.cloud.on_migrate = lambda server, host: (
                    on_migrate if server['name'] == 'vm1'
                    else self.cloud.complete)(server, host)
                self.check(detail, 'failed', rests, ['vm1'])

    def test_nova_refuses_a_migration(self):
        act = self.cloud._act

        def refuse(server, body):
            if server['name'] != 'vm1':
                return act(server, body)
            self.cloud.asked.append((server['name'], 'host2'))
            return 400, {'badRequest': {'message': 'no such host'}}

        self.cloud._act = refuse
        self.check('no such host', 'failed', 'destination', ['vm1'])

    def decide(self, request_id='r1', host='host2', decided_at=fleet.NOW):
        self.store.write_decisions([store.Decision(
            uuids.uuid4().hex, decided_at, 'scheduler', request_id,
            fleet.uuid_of('vm1'), 'p', 'm', store.NO_HOST, 'model', None, 1,
            0, {'peak': 1}, 0, None, [{
                'host': host, 'check': 'peak', 'value': 2.0, 'limit': 1.0,
                'enforced': True, 'text': 'its peak of 2 is above 1'}])])

    def test_a_decision_that_is_written_later_is_the_reason(self):
        with self.running(proposed('vm1')) as running:
            self.cloud.on_migrate = self.error
            self.assertTrue(running.step())
            self.assertTrue(running.step())
            self.clock.now += 5.0
            self.decide()
            self.steps(running)
        self.assertIn('by the check peak', self.details()[0])

    def test_moves_that_help_only_together_end_with_one_of_them(self):
        self.cloud.servers[fleet.uuid_of('vm1')]['locked'] = True
        states = self.run_plan(proposed('vm1', group=7), proposed('vm2'),
                               proposed('vm3', group=7))
        self.assertEqual(['dropped', 'done', 'dropped'], states)
        self.assertIn('helps only together with vm1', self.details()[2])
        self.assertIsNone(self.store.moves()[2].body['rests'])

    def test_a_migration_that_ended_before_the_first_check_is_done(self):
        # It arrived, and somebody has moved or deleted the instance since.
        for later in ('moved', 'moves', 'deleted'):
            with self.subTest(later):
                self.execute('DELETE FROM rebalance_move')
                self.cloud.boot('vm1', 'host1')

                def arrives(server, host):
                    self.cloud.complete(server, host)
                    if later == 'deleted':
                        del self.cloud.servers[server['id']]
                    elif later == 'moved':
                        self.cloud.complete(server, 'host3')
                    else:
                        self.stays(server, 'host3')

                self.cloud.on_migrate = arrives
                self.assertEqual(['done'], self.run_plan(proposed('vm1')))

    def test_a_migration_continues_while_nova_or_its_cell_is_silent(self):
        for faults, status in ((4, 'ACTIVE'), (0, 'UNKNOWN')):
            self.start()
            self.cloud.on_migrate = self.stays
            with self.subTest(status), \
                    self.running(proposed('vm1')) as running:
                self.assertTrue(running.step())
                server = self.cloud.servers[fleet.uuid_of('vm1')]
                server['status'] = status
                self.cloud.faults = [stand_ins.status(503)] * faults
                for _ in range(4):
                    self.assertTrue(running.step())
                self.assertEqual(['begun'], self.states())
                self.cloud.faults = []
                server['status'] = 'ACTIVE'
                self.arrive('vm1')
                self.steps(running)
            self.assertEqual(['done'], self.states())

    def test_a_lost_answer_causes_no_second_migration(self):
        for lost in (True, False):
            with self.subTest(lost):
                requests = len(self.cloud.asked)
                act = self.cloud._act

                def no_answer(server, body):
                    self.cloud._act = act
                    if lost:
                        act(server, body)
                    return 502, None

                self.cloud._act = no_answer
                states = self.run_plan(proposed('vm1' if lost else 'vm2'))
                self.assertEqual('done' if lost else 'failed', states[0])
                self.assertEqual(lost, len(self.cloud.asked) - requests)

    def test_a_plan_continues_without_an_endless_migration(self):
        complete = self.cloud.on_migrate
        self.cloud.on_migrate = lambda server, host: (
            self.stays if server['name'] == 'vm1' else complete)(server, host)
        moves = [proposed('vm1'), proposed('vm2'),
                 proposed('vm4', 'host3', 'host4')]
        self.cloud.services['host4'] = {
            **self.cloud.services['host3'], 'host': 'host4'}
        self.cloud.boot('vm4', 'host3')
        self.fleet.balance['host4'] = self.fleet.capacity['host4'] = 100.0
        self.fleet.write(self.store)
        with self.running(*moves) as running:
            for _ in range(3):
                self.assertTrue(running.step())
            self.assertEqual(['begun', 'planned', 'planned'], self.states())
            self.clock.now += executor.WAIT_SECONDS - 60.0
            self.assertTrue(running.step())
            self.clock.now += 61.0
            self.steps(running)
            self.assertIn('not ended after', running.problem)
        # Its hosts are busy; what does not need them is made.
        self.assertEqual(['begun', 'dropped', 'done'], self.states())
        self.assertIn('the migration of vm1 from host1 to host2 has not ended',
                      self.details()[1])
        # The next plan does not wait for it, and sees when it ends.
        with self.make() as running:
            self.assertEqual(0, running.resume())
            self.assertFalse(running.step())
            self.assertIsNone(running.problem)
        self.arrive('vm1')
        with self.make() as running:
            self.assertEqual(0, running.resume())
        self.assertEqual(['done', 'dropped', 'done'], self.states())

    def test_a_plan_waits_while_nova_does_not_answer(self):
        with self.running() as running:
            self.cloud.faults = [stand_ins.status(503)] * 3
            for _ in range(3):
                self.assertTrue(running.step())
            self.assertEqual(1, sum('the plan waits' in text
                                    for text in self.said))
            self.steps(running)
        self.assertEqual(['done'] * 3, self.states())

    def end_rights(self, *_):
        """Let Nova refuse everything from now on."""
        self.cloud.faults = [stand_ins.status(403)] * 1000

    def test_a_plan_ends_when_the_right_to_migrate_ends(self):
        act = self.cloud._act
        self.cloud._act = lambda server, body: (
            403, {'forbidden': {'message': 'not you'}}
        ) if self.cloud.asked else act(server, body)
        self.assertEqual(['done', 'dropped', 'dropped'], self.run_plan())
        self.assertEqual('incomplete', self.plan_state())
        problem, = self.executor.problems
        self.assertIn('2 moves were not begun: ', problem)
        self.assertIn('not you', problem)
        # Nothing rests: neither an instance nor a destination was at fault.
        self.assertEqual([None] * 2, [
            move.body.get('rests') for move in self.store.moves()[1:]])

    def test_a_plan_ends_when_the_right_to_read_ends(self):
        with self.running() as running:
            self.end_rights()
            self.assertFalse(running.step())
            self.assertIn('3 moves were not begun: ', running.problem)
        self.assertEqual(['dropped'] * 3, self.states())

    def test_a_migration_is_found_again_when_the_right_returns(self):
        self.cloud.on_migrate = self.stays
        with self.running(proposed('vm1')) as running:
            running.step()
            self.end_rights()
            self.assertFalse(running.step())
            self.assertIn('its result is not known', running.problem)
        self.assertEqual(['begun'], self.states())
        self.cloud.faults = []
        self.arrive('vm1')
        with self.make() as running:
            self.assertEqual(1, running.resume())
            self.assertFalse(running.step())
        self.assertEqual(['done'], self.states())

    def test_moves_of_an_old_plan_do_not_begin(self):
        with self.running() as running:
            self.clock.now += executor.BEGIN_SECONDS + 1
            self.assertFalse(running.step())
            self.assertIn('3 moves were not begun within', running.problem)
        self.assertEqual(['dropped'] * 3, self.states())


class InterruptionTestCase(ExecutorTestCase):
    """A process that is killed at any moment leaves what the next needs."""

    def kill(self, function):
        """Let a process end before it writes by this function.

        :param function: None: it ends before it asks for a migration
        """
        change = self.store.write_patiently
        running = self.make('killed')

        def killed(called=None, *arguments):
            if function is None or called is function.__wrapped__:
                raise Killed
            return change(called, *arguments)

        running.__enter__()
        running.begin(self.plan())
        place = (running._cloud, 'live_migrate') if function is None else (
            self.store, 'write_patiently')
        with mock.patch.object(*place, killed), self.assertRaises(Killed):
            self.steps(running)
        # Its lease runs out.
        self.execute('UPDATE rebalance_lock SET expires_at = 1')

    def go_on(self):
        with self.make('next') as running:
            self.assertGreater(running.resume(), 0)
            self.steps(running)
            self.assertIsNone(running.problem)
        self.assertEqual(['done'] * 3, self.states())
        self.assertEqual('done', self.plan_state())
        self.assertEqual(['vm1', 'vm2', 'vm3'],
                         [name for name, _ in self.cloud.asked])

    def test_a_plan_continues_after_a_kill(self):
        for function, states in (
                (records.begin_move, ['planned'] * 3),
                # After the request of the first migration.
                (records.end_move, ['begun', 'planned', 'planned']),
                # Between the record and the request.
                (None, ['begun', 'planned', 'planned'])):
            self.start()
            with self.subTest(function):
                self.kill(function)
                self.assertEqual(states, self.states())
                self.go_on()

    def test_a_plan_continues_if_killed_during_a_migration(self):
        self.cloud.on_migrate = self.stays
        running = self.executor
        running.__enter__()
        running.begin(self.plan())
        running.step()
        self.execute('UPDATE rebalance_lock SET expires_at = 1')
        with self.make('next') as successor:
            successor.resume()
            successor.step()
            self.assertEqual([('vm1', 'host2')], self.cloud.asked)
            # The first process, should it live, does no more.
            with self.assertRaisesRegex(exceptions.StoreChanged, 'lock'):
                running.step()
            self.cloud.on_migrate = self.cloud.complete
            self.arrive('vm1')
            self.steps(successor)
        self.assertEqual(['done'] * 3, self.states())
        self.assertEqual(3, len(self.cloud.asked))

    def test_an_old_plan_is_not_resumed(self):
        self.kill(records.begin_move)
        self.clock.now += executor.RESUME_SECONDS + 1
        with self.make() as running:
            self.assertEqual(0, running.resume())
        self.assertEqual(['dropped'] * 3, self.states())
        self.assertEqual('abandoned', self.plan_state())

    def test_one_process_at_a_time_executes_plans(self):
        with self.executor as running:
            with self.assertRaisesRegex(exceptions.StoreError,
                                        'held by test'):
                self.make('other').__enter__()
            running.keep()
        with self.make('other') as rival:
            rival.keep()
            with self.assertRaises(exceptions.StoreChanged):
                running.keep()

    def test_the_lock_is_kept_while_a_plan_is_made(self):
        reports = []
        with self.executor as running:
            report = running.keeping(lambda *counts: reports.append(counts))
            self.execute('UPDATE rebalance_lock SET expires_at = 1')
            report(1, 3)
            with self.make('other'):
                # Not yet renewed, so another one has it.
                self.clock.now += executor.LEASE_SECONDS
                with self.assertRaises(exceptions.StoreChanged):
                    report(2, 3)
        with self.executor as running:
            report = running.keeping()
            self.clock.now += executor.LEASE_SECONDS
            self.execute('UPDATE rebalance_lock SET expires_at = 1')
            report(3, 3)
            with self.assertRaises(exceptions.StoreError):
                self.make('other').__enter__()
        self.assertEqual([(1, 3)], reports)

    def test_a_process_that_lost_the_lock_begins_no_migration(self):
        running = self.executor
        running.__enter__()
        running.begin(self.plan())
        self.execute("UPDATE rebalance_lock SET token = 'other'")
        with self.assertRaises(exceptions.StoreChanged):
            running.step()
        self.assertEqual([], self.cloud.asked)
