# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage rebalance, by live migrations of a real Nova."""

import concurrent.futures
import contextlib
import csv
import json
import os
import threading
import time
import types
from unittest import mock

# Before the rest of nova, as in tests.functional.base.
import nova.tests.functional  # noqa: F401

import fixtures
from keystoneauth1 import loading as ks_loading
import numpy as np

from nova.compute import manager
from nova.virt import fake

from tests.fakes import keystone as fake_keystone
from tests.functional import base
from tests.unit.budgets import fleet
from tests.unit.cmd import commands
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.budgets import executor
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.cmd import manage
from vswitch_aware_scheduler.cmd.subcommands import rebalance
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler import store

#: Of the slots of a day, so many are busy.
BUSY = np.arange(fleet.SLOTS) % 10 == 9


class RebalanceTestCase(base.VSwitchTestCase):
    """host1 is hot by hand: two instances, each 600 of 1000 kbit/s at times.

    host2 is full most of the time, host3 has room.
    """

    def setUp(self):
        super().setUp()
        # Nova's fixture knows the administrator by this name.
        self.useFixture(fake_keystone.Keystone('admin'))
        self.useFixture(fixtures.MockPatchObject(
            ks_loading, 'get_auth_plugin_conf_options', return_value=[]))
        self.useFixture(fixtures.MockPatchObject(executor, 'POLL_SECONDS',
                                                 .2))
        self.describe_hosts(1000, 1000, 1000)
        self.small = self.flavor('small', egress_kbps=100)
        self.servers = {}
        self.rates = {}
        for name, host, rates in (
                ('vm1', 'host1', np.where(BUSY, 600, 100)),
                ('vm2', 'host1', np.where(BUSY, 600, 100)),
                ('vm3', 'host2', 500), ('vm4', 'host3', 100)):
            self.servers[name] = self.boot(self.small, host=host, name=name)
            self.rates[self.servers[name]['id']] = np.broadcast_to(
                rates, fleet.SLOTS)
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.config = os.path.join(self.directory, 'vswitch.conf')
        with open(self.config, 'w') as file:
            file.write('\n'.join([
                '[vswitch_scheduler]', f'store_url = {self.store_url}',
                'rebalance_network = separate', 'telemetry_driver = file',
                f'telemetry_path = {self.directory}/trace.csv',
                '[vswitch_inventory]',
                f'endpoint_override = {self.admin_api.base_url}',
                f'placement_url = {self.placement.fixture.endpoint}',
                'auth_type = fixture', 'connect_retries = 0',
                'requests_per_second = 1000']))
        self.measure()

    def measure(self):
        """Write what a modeler would have measured until now."""
        now = time.time() // fleet.PERIOD * fleet.PERIOD
        with open(f'{self.directory}/trace.csv', 'w', newline='') as file:
            writer = csv.writer(file)
            writer.writerow(('instance', 'time', 'egress_kbps',
                             'ingress_kbps'))
            for uuid, rates in self.rates.items():
                for back, rate in zip(range(fleet.SLOTS, 0, -1), rates):
                    writer.writerow((uuid, now - back * fleet.PERIOD, rate,
                                     0))
        totals = {host: np.zeros(fleet.SLOTS) for host in self.HOSTS}
        for server in self.servers.values():
            totals[self.host_of(server)] += self.rates[server['id']]
        cloud = nova.read_cloud(http.Access(
            url=self.admin_api.base_url, retries=0,
            auth={'auth_type': 'fixture'}), 'vswitch:')
        nodes = facts.by_host(cloud['node'])
        self.store.write_fleet({
            'aggregate': cloud['aggregate'], 'node': {},
            'flavor': {'small': {'vswitch:egress_kbps': '100'}},
            'host': {host: {
                **policy_in_force.pack(fleet.policy_of(1000.0)),
                **facts.of_nova(nodes, host)} for host in self.HOSTS},
            'uplink': {}}, now)
        self.store.write(placements=[
            store.InstanceRecord(
                server['id'], self.host_of(server), 'small', 'p')
            for server in self.servers.values()])
        balances = {'host1': -600.0, 'host2': 100.0, 'host3': 100.0}
        self.store.settle_budgets(
            store.BudgetState(fleet.PERIOD, now), [
                (None, fleet.account(host, balance, now=now))
                for host, balance in balances.items()],
            [stored for host, total in totals.items()
             for stored in fleet.days_of(fleet.sums(host, total, now=now))])
        self.plugin.refresh()

    def run_command(self, *words):
        """Return (status, answer, what was said) of the command."""
        status, output, errors = commands.run(manage.main, [
            '--config-file', self.config, 'rebalance', *words, '--json'])
        return status, json.loads(output) if output else None, errors

    def execute(self):
        return self.run_command('--execute')

    def assert_stops(self, *words):
        """Execute a plan that ends with a problem in these words."""
        status, answer, _ = self.execute()
        self.assertEqual(1, status)
        for text in words:
            self.assertIn(text, answer['problem'])

    def assert_done(self):
        """Execute a plan of one move, which ends well."""
        status, answer, errors = self.execute()
        self.assertEqual((0, 1), (status, answer['done']), errors)
        self.assertEqual('host3', self.where()[self.moved()])

    def where(self):
        return {name: self.host_of(server)
                for name, server in self.servers.items()}

    def live_migrations(self):
        return [tuple(migration[key] for key in (
            'instance_uuid', 'dest_compute', 'status'))
            for migration in self.admin_api.api_get(
                '/os-migrations').body['migrations']]

    @contextlib.contextmanager
    def slow(self):
        """Stop live migrations in the driver of their source.

        Yields two events: a migration has been stopped; migrations go on. At
        the end, all migrations go on, and this waits until they have ended.
        A migration that ran while the services stop would call a service that
        does not answer any more.
        """
        running = []
        of_compute = manager.ComputeManager._do_live_migration

        def follow(compute, *args, **kwargs):
            running.append(args)
            try:
                return of_compute(compute, *args, **kwargs)
            finally:
                running.remove(args)

        with mock.patch.object(manager.ComputeManager,
                               '_do_live_migration', follow):
            with self.held(fake.FakeDriver, 'live_migration') as events:
                yield events
            self.wait_for(lambda: not running,
                          'the end of all live migrations')

    def arrived(self):
        """Wait until no live migration runs."""
        self.wait_for(lambda: all(
            status == 'completed' for _, _, status in self.live_migrations()),
            'the end of all live migrations')

    def moved(self):
        """Return the name of the instance that left host1."""
        name, = [name for name in ('vm1', 'vm2')
                 if self.where()[name] != 'host1']
        return name

    def test_a_hot_host_is_relieved(self):
        before = self.where()
        status, answer, errors = self.run_command()
        self.assertEqual(0, status, errors)
        move, = answer['moves']
        self.assertEqual(('host1', 'host3'),
                         (move['source'], move['destination']))
        self.assertEqual(before, self.where())
        self.assertEqual([], self.live_migrations())
        status, answer, errors = self.execute()
        self.assertEqual(0, status, errors)
        self.assertEqual([(move['instance_uuid'], 'host3', 'completed')],
                         self.live_migrations())
        self.assertEqual('host3', self.where()[self.moved()])
        self.assertEqual(['done'], [move['state'] for move in answer['moves']])
        # Its cool-down holds, and what is left on host1 is within budget.
        self.read_record()
        status, answer, errors = self.run_command()
        self.assertEqual((0, []), (status, answer['moves']), errors)
        self.assertTrue(answer['reason'])

    def test_an_interrupted_plan_goes_on(self):
        with self.slow() as (stopped, go_on):
            with mock.patch.object(rebalance, 'time', types.SimpleNamespace(
                    time=time.time, monotonic=time.monotonic,
                    sleep=mock.Mock(side_effect=KeyboardInterrupt))):
                status, _, errors = self.execute()
            self.assertEqual(1, status)
            self.assertIn('Run the same command again', errors)
            self.wait_for(stopped.is_set, 'the live migration')
            threading.Timer(1.0, go_on.set).start()
            self.assert_done()
        self.assertEqual(1, len(self.live_migrations()))

    def test_a_hanging_migration_is_left_and_found_again(self):
        with self.slow() as (stopped, go_on), mock.patch.object(
                executor, 'WAIT_SECONDS', 1.0):
            self.assert_stops('not ended after')
            self.wait_for(stopped.is_set, 'the live migration')
            # It still runs: a new plan goes around its hosts.
            status, answer, _ = self.execute()
            self.assertEqual((0, []), (status, [
                move for move in answer['moves'] if move['state'] != 'begun']))
            self.assertIn('a migration is running', answer['reason'])
            go_on.set()
            self.arrived()
            self.assert_done()
        self.assertEqual(1, len(self.live_migrations()))

    def planned(self):
        """Write a plan to the store that is not carried out yet."""
        with mock.patch.object(executor.Executor, 'step',
                               side_effect=KeyboardInterrupt):
            self.execute()
        move, = self.store.moves()
        self.assertEqual('planned', move.state)
        return move

    def pop(self, uuid):
        """Return the server with a uuid, which is there no longer."""
        name, = [name for name, server in self.servers.items()
                 if server['id'] == uuid]
        return self.servers.pop(name)

    def test_a_destination_that_fills_up(self):
        self.planned()
        # By traffic: only Nova's scheduler knows what came meanwhile.
        self.boot(self.of(850), host='host3')
        before = self.where()
        self.assert_stops('VSwitchFilter refuses host3 by the check')
        self.assertEqual('failed', self.store.moves()[0].state)
        self.assertEqual(before, self.where())

    def test_a_destination_in_maintenance(self):
        self.planned()
        self.set_service('host3', status='disabled', disabled_reason='work')
        self.assert_stops('host3 is disabled: work')
        self.assertEqual([], self.live_migrations())

    def test_a_right_that_ends_and_returns(self):
        self.planned()
        rule = 'os_compute_api:os-migrate-server:migrate_live:host'
        self.policy.set_rules({rule: '!'}, overwrite=False)
        self.assert_stops('1 moves were not begun: ', rule)
        self.assertEqual([], self.live_migrations())
        self.policy.set_rules({rule: '@'}, overwrite=False)
        # No destination rests: it was not at fault.
        self.assert_done()

    def test_an_instance_that_was_deleted(self):
        move = self.planned()
        self.delete(self.pop(move.instance_uuid))
        self.assert_stops('the instance was deleted')
        self.assertEqual([], self.live_migrations())

    def test_an_instance_that_is_deleted_while_it_migrates(self):
        with self.slow() as (stopped, _), \
                concurrent.futures.ThreadPoolExecutor() as pool:
            executed = pool.submit(
                self.assert_stops, 'the instance was deleted meanwhile')
            self.wait_for(stopped.is_set, 'the live migration')
            (uuid, _, _), = self.live_migrations()
            self.delete(self.pop(uuid))
            executed.result()
        self.assertEqual(['failed'],
                         [move.state for move in self.store.moves()])
        # Nothing else has moved, and the next plan is free to begin.
        self.assertEqual(['host1', 'host2', 'host3'],
                         sorted(self.where().values()))
        with executor.Executor(self.store, None, None, 'test') as resumed:
            self.assertEqual(0, resumed.resume())

    def test_an_instance_that_was_locked_stops_no_other(self):
        move = self.planned()
        self.api.post_server_action(move.instance_uuid, {'lock': None})
        self.assert_stops('it is locked')
        # The next plan moves the other one.
        self.assert_done()
        self.assertNotIn(move.instance_uuid, {
            uuid for uuid, _, _ in self.live_migrations()})
