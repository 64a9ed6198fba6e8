# SPDX-License-Identifier: Apache-2.0

import dataclasses

from tests.contract import telemetry_stand_ins as stand_ins
from tests.unit.rebalance import fleet
from tests.unit.store import base
from vswitch_aware_scheduler import exceptions
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
        self.cloud = self.fleet.cloud
        self.cloud.setUp()
        self.addCleanup(self.cloud.cleanUp)
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
        with self.executor as one:
            one.begin(self.plan(*moves))
            self.steps(one, steps)
        return self.states()

    def steps(self, one, most=50):
        for _ in range(most):
            if not one.step():
                return
            self.clock.now += 5.0
        self.fail(f'not ended after {most} steps: {self.states()}')

    def states(self):
        return [one.state for one in self.store.moves()]

    def details(self):
        return [one.body.get('detail') for one in self.store.moves()]

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
        one = [one for one in self.cloud.migrations
               if one['instance_uuid'] == server['id']][-1]
        one['status'] = status
        if status == 'completed':
            server['OS-EXT-SRV-ATTR:host'] = one['dest_compute']


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

    def test_so_many_run_at_a_time(self):
        self.cloud.on_migrate = self.stays
        for parallel, wanted in ((1, 1), (2, 2)):
            self.settings = dataclasses.replace(self.settings,
                                                parallel=parallel)
            with self.make() as one:
                if parallel == 1:
                    one.begin(self.plan())
                else:
                    self.assertEqual(3, one.resume())
                for _ in range(3):
                    self.assertTrue(one.step())
            self.assertEqual(wanted, len(self.cloud.asked))
        with self.make() as one:
            one.resume()
            for name in ('vm1', 'vm2', 'vm3'):
                one.step()
                self.arrive(name)
            self.steps(one)
        self.assertEqual(['done'] * 3, self.states())

    def test_a_slow_network_begins_nothing(self):
        self.settings = settings.Settings()
        with self.make() as one:
            with self.assertRaisesRegex(exceptions.InvalidInput, 'hours'):
                one.begin(self.plan())
        self.assertEqual([], self.store.plans())


class SurpriseTestCase(ExecutorTestCase):
    """The first surprise ends the plan; the rest is dropped."""

    def check(self, detail, *states, asked=()):
        self.assertEqual([*states], self.run_plan())
        self.assertIn(detail, next(filter(None, self.details())))
        self.assertEqual('stopped', self.plan_state())
        self.assertIn(detail, self.store.plans()[0].reason)
        self.assertEqual([*asked], [name for name, _ in self.cloud.asked])

    def test_a_deleted_instance(self):
        del self.cloud.servers[fleet.uuid_of('vm1')]
        self.check('deleted', 'dropped', 'dropped', 'dropped')

    def test_an_instance_that_somebody_moved(self):
        self.cloud.servers[fleet.uuid_of('vm1')][
            'OS-EXT-SRV-ATTR:host'] = 'host3'
        self.check('is on host3', 'dropped', 'dropped', 'dropped')

    def test_an_instance_that_is_being_worked_on(self):
        self.cloud.servers[fleet.uuid_of('vm1')][
            'OS-EXT-STS:task_state'] = 'migrating'
        self.check('its task is migrating', *['dropped'] * 3)

    def test_a_mark_that_came_meanwhile(self):
        self.cloud.servers[fleet.uuid_of('vm1')]['metadata'] = {
            'vswitch:migrate': 'never'}
        self.check('never', *['dropped'] * 3)

    def test_a_destination_that_is_disabled(self):
        self.cloud.services['host2']['status'] = 'disabled'
        self.check('host2 is disabled', *['dropped'] * 3)

    def test_a_destination_that_came_into_debt(self):
        self.fleet.balance['host2'] = -1.0
        self.fleet.write(self.store)
        self.check('host2 is in debt', *['dropped'] * 3)

    def test_a_destination_that_fills_up(self):
        self.cloud.boot('large', 'host2', vcpus=15)
        # One core is left.
        self.check('no room', 'done', 'dropped', 'dropped', asked=['vm1'])

    def test_a_group_member_that_came_to_the_destination(self):
        self.cloud.boot('other', 'host2')
        self.cloud.groups = [{
            'id': 'g', 'policy': 'anti-affinity', 'rules': {}, 'members': [
                fleet.uuid_of('vm1'), fleet.uuid_of('other')]}]
        self.check('server group', *['dropped'] * 3)

    def test_nova_that_refuses(self):
        def act(server, body):
            self.cloud.asked.append((server['name'], 'host2'))
            return 400, {'badRequest': {'message': 'no such host'}}
        self.cloud._act = act
        self.check('no such host', 'failed', 'dropped', 'dropped',
                   asked=['vm1'])

    def test_a_scheduler_that_does_not_confirm(self):
        self.cloud.on_migrate = lambda server, host: self.cloud.complete(
            server, host, 'error')
        self.check('NoValidHost', 'failed', 'dropped', 'dropped',
                   asked=['vm1'])

    def test_a_migration_that_goes_elsewhere(self):
        self.cloud.on_migrate = lambda server, host: self.cloud.complete(
            server, 'host3')
        self.check('is on host3', 'failed', 'dropped', 'dropped',
                   asked=['vm1'])

    def test_an_instance_deleted_while_it_migrates(self):
        self.cloud.on_migrate = lambda server, host: self.cloud.servers.pop(
            server['id'])
        self.check('deleted meanwhile', 'failed', 'dropped', 'dropped',
                   asked=['vm1'])

    def test_an_instance_whose_deletion_ends_its_migration(self):
        def delete(server, host):
            self.cloud.complete(server, host, 'error')
            server['OS-EXT-STS:vm_state'] = 'deleted'

        self.cloud.on_migrate = delete
        self.check('deleted meanwhile', 'failed', 'dropped', 'dropped',
                   asked=['vm1'])

    def test_a_migrating_instance_whose_cell_does_not_answer_for_a_time(self):
        self.cloud.on_migrate = self.stays
        with self.make() as one:
            one.begin(self.plan(proposed('vm1')))
            server = self.cloud.servers[fleet.uuid_of('vm1')]
            self.assertTrue(one.step())
            server['status'] = 'UNKNOWN'
            self.assertTrue(one.step())
            self.assertEqual(['begun'], self.states())
            server['status'] = 'ACTIVE'
            self.arrive('vm1')
            self.steps(one)
        self.assertEqual(['done'], self.states())

    def test_others_that_run_are_waited_for(self):
        self.settings = dataclasses.replace(self.settings, parallel=2)
        self.cloud.on_migrate = self.stays
        with self.make() as one:
            one.begin(self.plan())
            one.step()
            self.arrive('vm1', 'failed')
            for _ in range(3):
                self.assertTrue(one.step())
            self.assertEqual(['failed', 'begun', 'planned'], self.states())
            self.arrive('vm2')
            self.steps(one)
        self.assertEqual(['failed', 'done', 'dropped'], self.states())

    def test_a_lost_answer_is_no_second_migration(self):
        for lost in (True, False):
            with self.subTest(lost):
                before = len(self.cloud.asked)
                act = self.cloud._act

                def no_answer(server, body):
                    self.cloud._act = act
                    if lost:
                        act(server, body)
                    return 502, None

                self.cloud._act = no_answer
                states = self.run_plan(proposed('vm1' if lost else 'vm2'))
                self.assertEqual('done' if lost else 'failed', states[0])
                self.assertEqual(lost, len(self.cloud.asked) - before)

    def test_a_migration_that_hangs(self):
        self.cloud.on_migrate = self.stays
        self.settings = dataclasses.replace(self.settings, wait_seconds=60.0)
        self.executor = self.make()
        self.assertEqual(['begun', 'dropped', 'dropped'], self.run_plan())
        self.assertIn('not ended after', self.store.plans()[0].reason)
        # The next one waits for it, and begins nothing before it has ended.
        with self.make() as one:
            self.assertEqual(1, one.resume())
            self.assertTrue(one.step())
            self.arrive('vm1')
            self.steps(one)
            self.assertIsNone(one.problem)
        self.assertEqual(['done', 'dropped', 'dropped'], self.states())
        self.assertEqual([('vm1', 'host2')], self.cloud.asked)

    def test_nova_that_cannot_be_asked_for_a_while(self):
        self.cloud.on_migrate = self.stays
        with self.executor as one:
            one.begin(self.plan(proposed('vm1')))
            one.step()
            self.cloud.faults = [stand_ins.status(503)] * 4
            for _ in range(4):
                self.assertTrue(one.step())
            self.assertEqual(['begun'], self.states())
            self.cloud.faults = []
            self.arrive('vm1')
            self.steps(one)
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

        one = self.make('killed')
        self.store.change_rebalancing = killed
        one.__enter__()
        one.begin(self.plan())
        with self.assertRaises(Killed):
            self.steps(one)
        del self.store.change_rebalancing
        # Its lease runs out.
        self.execute('UPDATE rebalance_lock SET expires_at = 1')

    def go_on(self):
        with self.make('next') as one:
            self.assertGreater(one.resume(), 0)
            self.steps(one)
            self.assertIsNone(one.problem)
        self.assertEqual(['done'] * 3, self.states())
        self.assertEqual('done', self.plan_state())
        self.assertEqual(['vm1', 'vm2', 'vm3'],
                         [name for name, _ in self.cloud.asked])

    def test_before_a_move_begins(self):
        self.kill(records.begin_move)
        self.assertEqual(['planned'] * 3, self.states())
        self.go_on()

    def test_after_nova_was_asked(self):
        self.kill(records.end_move)
        self.assertEqual(['begun', 'planned', 'planned'], self.states())
        self.go_on()

    def test_while_a_migration_runs(self):
        self.cloud.on_migrate = self.stays
        one = self.executor
        one.__enter__()
        one.begin(self.plan())
        one.step()
        self.execute('UPDATE rebalance_lock SET expires_at = 1')
        with self.make('next') as other:
            other.resume()
            other.step()
            self.assertEqual([('vm1', 'host2')], self.cloud.asked)
            # The first process, should it live, does no more.
            with self.assertRaisesRegex(exceptions.StoreChanged, 'lock'):
                one.step()
            self.cloud.on_migrate = self.cloud.complete
            self.arrive('vm1')
            self.steps(other)
        self.assertEqual(['done'] * 3, self.states())
        self.assertEqual(3, len(self.cloud.asked))

    def test_between_the_record_and_nova(self):
        act, self.cloud._act = self.cloud._act, None
        client = self.cloud.client()

        def killed(*_):
            raise Killed
        client.live_migrate = killed
        one = executor.Executor(
            self.store, client, self.settings, 'killed', self.clock,
            self.clock)
        one.__enter__()
        one.begin(self.plan())
        with self.assertRaises(Killed):
            self.steps(one)
        self.execute('UPDATE rebalance_lock SET expires_at = 1')
        self.assertEqual(['begun', 'planned', 'planned'], self.states())
        self.cloud._act = act
        self.go_on()

    def test_an_old_plan_is_not_resumed(self):
        self.kill(records.begin_move)
        self.clock.now += executor.RESUME_SECONDS + 1
        with self.make() as one:
            self.assertEqual(0, one.resume())
        self.assertEqual(['dropped'] * 3, self.states())
        self.assertEqual('abandoned', self.plan_state())

    def test_one_process_at_a_time(self):
        with self.executor as one:
            with self.assertRaisesRegex(exceptions.StoreError,
                                        'held by test'):
                self.make('other').__enter__()
            one.keep()
        with self.make('other') as other:
            other.keep()
            with self.assertRaises(exceptions.StoreChanged):
                one.keep()

    def test_the_lock_is_kept_while_a_plan_is_made(self):
        told = []
        with self.executor as one:
            report = one.keeping(lambda *counts: told.append(counts))
            self.execute('UPDATE rebalance_lock SET expires_at = 1')
            report(1, 3)
            with self.make('other'):
                # Not yet renewed, so another one has it.
                self.clock.now += executor.LEASE_SECONDS
                with self.assertRaises(exceptions.StoreChanged):
                    report(2, 3)
        with self.executor as one:
            report = one.keeping()
            self.clock.now += executor.LEASE_SECONDS
            self.execute('UPDATE rebalance_lock SET expires_at = 1')
            report(3, 3)
            with self.assertRaises(exceptions.StoreError):
                self.make('other').__enter__()
        self.assertEqual([(1, 3)], told)

    def test_a_process_that_lost_the_lock_begins_nothing(self):
        one = self.executor
        one.__enter__()
        one.begin(self.plan())
        self.execute("UPDATE rebalance_lock SET token = 'other'")
        with self.assertRaises(exceptions.StoreChanged):
            one.step()
        self.assertEqual([], self.cloud.asked)
