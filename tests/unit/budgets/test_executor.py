# SPDX-License-Identifier: Apache-2.0

import dataclasses
import uuid as uuids

from tests.contract import telemetry_stand_ins as stand_ins
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
        self.fleet = fleet.Fleet('host1', 'host2', 'host3')
        self.cloud = self.enterContext(self.fleet.cloud)
        for name in ('vm1', 'vm2', 'vm3'):
            self.cloud.boot(name, 'host1')
        self.store = self.make_store()
        self.fleet.write(self.store)
        self.settings = settings.RebalanceSettings(network=settings.SEPARATE)
        self.clock = fleet.Clock()
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
        with self.executor as running:
            running.begin(self.plan(*moves))
            self.steps(running, steps)
        return self.states()

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

    def check(self, detail, state, rests, others='done', asked=()):
        """Carry out a plan whose first move fails.

        :param rests: what the record says of the first move
        :param others: state of the other moves
        :param asked: instances that Nova is asked to migrate
        """
        self.assertEqual([state, others, others], self.run_plan())
        move = self.store.moves()[0]
        self.assertIn(detail, move.body['detail'])
        self.assertEqual(rests, move.body['rests'])
        self.assertEqual('incomplete', self.plan_state())
        reason = self.store.plans()[0].reason
        self.assertIn(detail, reason)
        self.assertIn(detail, self.executor.problem)
        if others == 'done':
            self.assertIn('2 of 3 migrations were made', reason)
        self.assertEqual([*asked] + ['vm2', 'vm3'] * (others == 'done'),
                         [name for name, _ in self.cloud.asked])

    def test_an_instance_was_deleted(self):
        del self.cloud.servers[fleet.uuid_of('vm1')]
        self.check('deleted', 'dropped', 'instance')

    def check_changed(self, detail, **fields):
        self.cloud.servers[fleet.uuid_of('vm1')].update(fields)
        self.check(detail, 'dropped', 'instance')

    def test_an_instance_was_moved_by_another_user(self):
        self.check_changed('is on host3', **{'OS-EXT-SRV-ATTR:host': 'host3'})

    def test_an_instance_has_a_running_task(self):
        self.check_changed('its task is migrating',
                           **{'OS-EXT-STS:task_state': 'migrating'})

    def test_an_instance_was_locked(self):
        self.check_changed('it is locked', locked=True)

    def test_a_tenant_has_no_veto(self):
        self.cloud.servers[fleet.uuid_of('vm1')]['metadata'] = {
            'vswitch:migrate': 'never'}
        self.assertEqual(['done'] * 3, self.run_plan())

    def test_a_tenant_with_a_veto_stops_no_move_of_others(self):
        self.settings = dataclasses.replace(self.settings, tenant_veto=True)
        self.executor = self.make()
        self.check_changed('its metadata has vswitch:migrate=never',
                           metadata={'vswitch:migrate': 'never'})

    def test_an_aggregate_forbids_migrations_of_its_instances(self):
        self.cloud.aggregates = [({'vswitch:migrate': 'never'}, ['host1'])]
        self.assertEqual(['dropped'] * 3, self.run_plan())
        self.assertIn('an aggregate of its host has', self.details()[0])

    def check_destination(self, detail, *moves):
        """Carry out a plan; the first goes to host2, the others to host3."""
        self.plan = lambda: proposal.RebalanceProposal(
            fleet.NOW, fleet.NOW, 3, (), (
                proposed('vm1'), proposed('vm2', destination='host3'),
                proposed('vm3', destination='host3')), 0, 'debt', 1e6)
        self.check(detail, 'dropped', 'destination')

    def test_a_destination_is_disabled(self):
        self.cloud.services['host2']['status'] = 'disabled'
        self.check_destination('host2 is disabled')

    def test_a_destination_went_into_debt(self):
        self.fleet.balance['host2'] = -1.0
        self.fleet.write(self.store)
        self.check_destination('host2 is in debt')

    def test_a_destination_filled_up(self):
        self.cloud.boot('large', 'host2', vcpus=16)
        self.check_destination('no room')

    def test_a_group_member_is_on_the_destination(self):
        self.cloud.boot('other', 'host2')
        self.cloud.groups = [{
            'id': 'g', 'policy': 'anti-affinity', 'rules': {}, 'members': [
                fleet.uuid_of('vm1'), fleet.uuid_of('other')]}]
        self.check('server group', 'dropped', 'destination')

    def check_failed(self, detail, rests, on_migrate):
        complete = self.cloud.on_migrate
        self.cloud.on_migrate = lambda server, host: (
            on_migrate if server['name'] == 'vm1' else complete)(server, host)
        self.check(detail, 'failed', rests, asked=['vm1'])

    def test_nova_refuses_a_migration(self):
        act = self.cloud._act

        def refuse(server, body):
            if server['name'] != 'vm1':
                return act(server, body)
            self.cloud.asked.append((server['name'], 'host2'))
            return 400, {'badRequest': {'message': 'no such host'}}

        self.cloud._act = refuse
        self.check('no such host', 'failed', 'destination', asked=['vm1'])

    def error(self, server, host):
        self.cloud.complete(server, host, 'error')

    def test_a_migration_finds_no_valid_host(self):
        self.check_failed('No valid host', 'destination', self.error)

    def test_a_migration_fails(self):
        self.cloud.failure = 'the connection was reset'
        self.check_failed('the connection was reset', 'migration', self.error)

    def decide(self, request_id='r1', host='host2', decided_at=fleet.NOW):
        self.store.write_decisions([store.Decision(
            uuids.uuid4().hex, decided_at, 'scheduler', request_id,
            fleet.uuid_of('vm1'), 'p', 'm', store.NO_HOST, 'model', None, 1,
            0, {'peak': 1}, 0, None, [{
                'host': host, 'check': 'peak', 'value': 2.0, 'limit': 1.0,
                'enforced': True, 'text': 'its peak of 2 is above 1'}])])

    def test_the_reason_is_that_of_the_decision(self):
        self.decide()
        self.check_failed(
            'VSwitchFilter refuses host2 by the check peak: its peak of 2 is '
            'above 1', 'destination', self.error)

    def test_a_decision_that_is_written_later_is_the_reason(self):
        def later(server, host):
            self.error(server, host)
            self.clock.now += 5.0
            self.decide()

        with self.executor as running:
            running.begin(self.plan(proposed('vm1')))
            self.cloud.on_migrate = self.error
            self.assertTrue(running.step())
            self.assertTrue(running.step())
            self.clock.now += 5.0
            self.decide()
            self.steps(running)
        self.assertIn('by the check peak', self.details()[0])

    def test_decisions_on_other_requests_are_ignored(self):
        self.decide(request_id='r0')
        self.decide(host='host3')
        self.check_failed('No valid host', 'destination', self.error)

    def test_a_migration_has_another_destination(self):
        self.check_failed('is on host3', 'instance', lambda server, host:
                          self.cloud.complete(server, 'host3'))

    def test_an_instance_is_deleted_while_it_migrates(self):
        def delete(server, host):
            self.cloud.migration('vm1', 'host1', host, 'error')
            del self.cloud.servers[server['id']]

        self.check_failed('deleted meanwhile', 'instance', delete)

    def test_a_deletion_ends_a_migration(self):
        def delete(server, host):
            self.cloud.complete(server, host, 'error')
            server['OS-EXT-STS:vm_state'] = 'deleted'

        self.check_failed('deleted meanwhile', 'instance', delete)

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

    def test_a_tenant_that_toggles_the_veto_blocks_no_other_move(self):
        """As often as the tenant likes, with any state when we look."""
        self.settings = dataclasses.replace(self.settings, tenant_veto=True)
        for number in range(20):
            for name in ('vm1', 'vm2', 'vm3'):
                self.cloud.boot(name, 'host1')
            server = self.cloud.servers[fleet.uuid_of('vm1')]
            with self.make() as running:
                running.begin(self.plan())
                server['metadata'] = {'vswitch:migrate': 'never'}
                self.steps(running)
                server['metadata'] = {}
            states = [move.state for move in self.store.moves(
                self.store.plans()[0].plan_id)]
            self.assertEqual(['dropped', 'done', 'done'], states)
            self.clock.now += 900.0
        self.assertEqual(40, len(self.cloud.asked))

    def test_a_migration_continues_while_its_cell_does_not_answer(self):
        self.cloud.on_migrate = self.stays
        with self.make() as running:
            running.begin(self.plan(proposed('vm1')))
            server = self.cloud.servers[fleet.uuid_of('vm1')]
            self.assertTrue(running.step())
            server['status'] = 'UNKNOWN'
            self.assertTrue(running.step())
            self.assertEqual(['begun'], self.states())
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
        with self.executor as running:
            running.begin(self.plan(*moves))
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
        with self.executor as running:
            running.begin(self.plan())
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
        with self.executor as running:
            running.begin(self.plan())
            self.end_rights()
            self.assertFalse(running.step())
            self.assertIn('3 moves were not begun: ', running.problem)
        self.assertEqual(['dropped'] * 3, self.states())

    def test_a_migration_is_found_again_when_the_right_returns(self):
        self.cloud.on_migrate = self.stays
        with self.executor as running:
            running.begin(self.plan(proposed('vm1')))
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
        with self.executor as running:
            running.begin(self.plan())
            self.clock.now += executor.BEGIN_SECONDS + 1
            self.assertFalse(running.step())
            self.assertIn('3 moves were not begun within', running.problem)
        self.assertEqual(['dropped'] * 3, self.states())

    def test_a_migration_continues_while_nova_does_not_answer(self):
        self.cloud.on_migrate = self.stays
        with self.executor as running:
            running.begin(self.plan(proposed('vm1')))
            running.step()
            self.cloud.faults = [stand_ins.status(503)] * 4
            for _ in range(4):
                self.assertTrue(running.step())
            self.assertEqual(['begun'], self.states())
            self.cloud.faults = []
            self.arrive('vm1')
            self.steps(running)
        self.assertEqual(['done'], self.states())


class InterruptionTestCase(ExecutorTestCase):
    """A process that is killed at any moment leaves what the next needs."""

    def kill(self, function):
        """Let a process end when it writes by this function, before it."""
        change = self.store.write_patiently

        def killed(called, *arguments):
            if called is function.__wrapped__:
                raise Killed
            return change(called, *arguments)

        running = self.make('killed')
        self.store.write_patiently = killed
        running.__enter__()
        running.begin(self.plan())
        with self.assertRaises(Killed):
            self.steps(running)
        del self.store.write_patiently
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

    def test_a_plan_continues_if_killed_before_a_move_begins(self):
        self.kill(records.begin_move)
        self.assertEqual(['planned'] * 3, self.states())
        self.go_on()

    def test_a_plan_continues_if_killed_after_the_request(self):
        self.kill(records.end_move)
        self.assertEqual(['begun', 'planned', 'planned'], self.states())
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

    def test_a_plan_continues_if_killed_before_the_request(self):
        act, self.cloud._act = self.cloud._act, None
        client = self.cloud.client()

        def killed(*_):
            raise Killed
        client.live_migrate = killed
        running = executor.Executor(
            self.store, client, self.settings, 'killed', self.clock,
            self.clock)
        running.__enter__()
        running.begin(self.plan())
        with self.assertRaises(Killed):
            self.steps(running)
        self.execute('UPDATE rebalance_lock SET expires_at = 1')
        self.assertEqual(['begun', 'planned', 'planned'], self.states())
        self.cloud._act = act
        self.go_on()

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
