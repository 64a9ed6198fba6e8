# SPDX-License-Identifier: Apache-2.0

import dataclasses

from tests.contract import telemetry_stand_ins as stand_ins
from tests.unit.rebalance import fleet
from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.rebalance import executor
from vswitch_aware_scheduler.rebalance import proposal
from vswitch_aware_scheduler.rebalance import settings
from vswitch_aware_scheduler.store import rebalance_records as records


def proposed(name, source='host1', destination='host2', memory=1024):
    return proposal.ProposedMove(
        fleet.uuid_of(name), name, source, destination, 'reason', -5.0, 5.0,
        5.0, 5.0, .1, .001, .01, 60.0, memory, 9.0, 1024.0, .5)


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
        self.settings = settings.Settings(network=settings.SEPARATE)
        self.clock = fleet.Clock()
        self.said = []
        self.executor = self.make()

    def make(self, holder='test'):
        return executor.Executor(
            self.store, self.cloud.client(), self.settings, holder,
            self.clock, self.clock, self.said.append)

    def plan(self, *moves, reason='debt'):
        return proposal.Proposal(fleet.NOW, fleet.NOW, 3, (), moves or tuple(
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

    def test_each_is_migrated_once_and_recorded(self):
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

    def test_no_more_migrations_than_permitted_run_at_a_time(self):
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

    def test_a_slow_network_begins_nothing(self):
        self.settings = settings.Settings()
        with self.make() as running:
            with self.assertRaisesRegex(exceptions.InvalidInput, 'hours'):
                running.begin(self.plan())
        self.assertEqual([], self.store.plans())


class SurpriseTestCase(ExecutorTestCase):
    """The first surprise ends the plan; the rest is dropped."""

    def check(self, detail, *states, asked=()):
        self.assertEqual([*states], self.run_plan())
        self.assertIn(detail, next(filter(None, self.details())))
        self.assertEqual('stopped', self.plan_state())
        self.assertIn(detail, self.store.plans()[0].reason)
        self.assertEqual([*asked], [name for name, _ in self.cloud.asked])

    def test_a_deleted_instance_ends_the_plan(self):
        del self.cloud.servers[fleet.uuid_of('vm1')]
        self.check('deleted', 'dropped', 'dropped', 'dropped')

    def check_changed(self, detail, **fields):
        self.cloud.servers[fleet.uuid_of('vm1')].update(fields)
        self.check(detail, *['dropped'] * 3)

    def test_an_instance_that_somebody_moved_ends_the_plan(self):
        self.check_changed('is on host3', **{'OS-EXT-SRV-ATTR:host': 'host3'})

    def test_an_instance_with_a_running_task_ends_the_plan(self):
        self.check_changed('its task is migrating',
                           **{'OS-EXT-STS:task_state': 'migrating'})

    def test_an_instance_that_was_marked_meanwhile_ends_the_plan(self):
        self.check_changed('never', metadata={'vswitch:migrate': 'never'})

    def test_a_destination_that_is_disabled_ends_the_plan(self):
        self.cloud.services['host2']['status'] = 'disabled'
        self.check('host2 is disabled', *['dropped'] * 3)

    def test_a_destination_that_came_into_debt_ends_the_plan(self):
        self.fleet.balance['host2'] = -1.0
        self.fleet.write(self.store)
        self.check('host2 is in debt', *['dropped'] * 3)

    def test_a_destination_that_fills_up_ends_the_plan(self):
        self.cloud.boot('large', 'host2', vcpus=15)
        # One core is left.
        self.check('no room', 'done', 'dropped', 'dropped', asked=['vm1'])

    def test_a_group_member_on_the_destination_ends_the_plan(self):
        self.cloud.boot('other', 'host2')
        self.cloud.groups = [{
            'id': 'g', 'policy': 'anti-affinity', 'rules': {}, 'members': [
                fleet.uuid_of('vm1'), fleet.uuid_of('other')]}]
        self.check('server group', *['dropped'] * 3)

    def check_failed(self, detail):
        self.check(detail, 'failed', 'dropped', 'dropped', asked=['vm1'])

    def test_a_migration_that_nova_refuses_fails_and_ends_the_plan(self):
        def act(server, body):
            self.cloud.asked.append((server['name'], 'host2'))
            return 400, {'badRequest': {'message': 'no such host'}}
        self.cloud._act = act
        self.check_failed('no such host')

    def test_a_migration_that_finds_no_valid_host_ends_the_plan(self):
        self.cloud.on_migrate = lambda server, host: self.cloud.complete(
            server, host, 'error')
        self.check_failed('NoValidHost')

    def test_a_migration_that_goes_elsewhere_ends_the_plan(self):
        self.cloud.on_migrate = lambda server, host: self.cloud.complete(
            server, 'host3')
        self.check_failed('is on host3')

    def test_an_instance_deleted_while_it_migrates_ends_the_plan(self):
        self.cloud.on_migrate = lambda server, host: self.cloud.servers.pop(
            server['id'])
        self.check_failed('deleted meanwhile')

    def test_a_deletion_that_ends_a_migration_ends_the_plan(self):
        def delete(server, host):
            self.cloud.complete(server, host, 'error')
            server['OS-EXT-STS:vm_state'] = 'deleted'

        self.cloud.on_migrate = delete
        self.check_failed('deleted meanwhile')

    def test_a_migration_goes_on_while_its_cell_does_not_answer(self):
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

    def test_other_migrations_that_run_are_waited_for(self):
        self.settings = dataclasses.replace(self.settings, parallel=2)
        self.cloud.on_migrate = self.stays
        with self.make() as running:
            running.begin(self.plan())
            running.step()
            self.arrive('vm1', 'failed')
            for _ in range(3):
                self.assertTrue(running.step())
            self.assertEqual(['failed', 'begun', 'planned'], self.states())
            self.arrive('vm2')
            self.steps(running)
        self.assertEqual(['failed', 'done', 'dropped'], self.states())

    def test_a_lost_answer_is_no_second_migration(self):
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

    def test_a_migration_that_hangs_ends_the_plan_and_is_waited_for(self):
        self.cloud.on_migrate = self.stays
        self.settings = dataclasses.replace(self.settings, wait_seconds=60.0)
        self.executor = self.make()
        self.assertEqual(['begun', 'dropped', 'dropped'], self.run_plan())
        self.assertIn('not ended after', self.store.plans()[0].reason)
        # The next one waits for it, and begins nothing before it has ended.
        with self.make() as running:
            self.assertEqual(1, running.resume())
            self.assertTrue(running.step())
            self.arrive('vm1')
            self.steps(running)
            self.assertIsNone(running.problem)
        self.assertEqual(['done', 'dropped', 'dropped'], self.states())
        self.assertEqual([('vm1', 'host2')], self.cloud.asked)

    def test_a_migration_goes_on_while_nova_does_not_answer(self):
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
        change = self.store.change_rebalancing

        def killed(called, *arguments):
            if called is function:
                raise Killed
            return change(called, *arguments)

        running = self.make('killed')
        self.store.change_rebalancing = killed
        running.__enter__()
        running.begin(self.plan())
        with self.assertRaises(Killed):
            self.steps(running)
        del self.store.change_rebalancing
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

    def test_a_plan_goes_on_if_killed_before_a_move_begins(self):
        self.kill(records.begin_move)
        self.assertEqual(['planned'] * 3, self.states())
        self.go_on()

    def test_a_plan_goes_on_if_killed_after_nova_was_asked(self):
        self.kill(records.end_move)
        self.assertEqual(['begun', 'planned', 'planned'], self.states())
        self.go_on()

    def test_a_plan_goes_on_if_killed_while_a_migration_runs(self):
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

    def test_a_plan_goes_on_if_killed_between_the_record_and_nova(self):
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

    def test_a_process_that_lost_the_lock_begins_nothing(self):
        running = self.executor
        running.__enter__()
        running.begin(self.plan())
        self.execute("UPDATE rebalance_lock SET token = 'other'")
        with self.assertRaises(exceptions.StoreChanged):
            running.step()
        self.assertEqual([], self.cloud.asked)
