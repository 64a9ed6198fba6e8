# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage rebalance, by live migrations of a real Nova."""

import concurrent.futures
import contextlib
import csv
import dataclasses
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
from vswitch_aware_scheduler.budgets import rebalance_settings as settings
from vswitch_aware_scheduler.budgets import rebalancer as rebalancing
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.cmd import manage
from vswitch_aware_scheduler.cmd.subcommands import rebalance
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.telemetry import file as telemetry_file

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
        self.configure()
        self.measure()

    def configure(self, *lines):
        self.config = os.path.join(self.directory, 'vswitch.conf')
        with open(self.config, 'w') as file:
            file.write('\n'.join([
                '[vswitch_scheduler]', f'store_url = {self.store_url}',
                'rebalance_network = separate', 'telemetry_driver = file',
                f'telemetry_path = {self.directory}/trace.csv', *lines,
                '[vswitch_inventory]',
                f'endpoint_override = {self.admin_api.base_url}',
                f'placement_url = {self.placement.fixture.endpoint}',
                'auth_type = fixture', 'connect_retries = 0',
                'requests_per_second = 1000']))

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
        cloud = nova.read_cloud(self.nova_access(), 'vswitch:')
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

    def execute(self, *words):
        return self.run_command('--execute', *words)

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
        stopped, go_on = threading.Event(), threading.Event()
        running = []
        migrate = fake.FakeDriver.live_migration
        of_compute = manager.ComputeManager._do_live_migration

        def wait(driver, *args, **kwargs):
            stopped.set()
            go_on.wait(base.TIMEOUT_SECONDS)
            return migrate(driver, *args, **kwargs)

        def follow(compute, *args, **kwargs):
            running.append(args)
            try:
                return of_compute(compute, *args, **kwargs)
            finally:
                running.remove(args)

        with mock.patch.object(fake.FakeDriver, 'live_migration', wait), \
                mock.patch.object(manager.ComputeManager,
                                  '_do_live_migration', follow):
            try:
                yield stopped, go_on
            finally:
                go_on.set()
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
            status, answer, errors = self.execute()
        self.assertEqual((0, True, 1), (status, answer['resumed'],
                                        answer['done']), errors)
        self.assertEqual(1, len(self.live_migrations()))
        self.assertEqual('host3', self.where()[self.moved()])

    def test_a_hanging_migration_is_left_and_found_again(self):
        with self.slow() as (stopped, go_on), mock.patch.object(
                executor, 'WAIT_SECONDS', 1.0):
            status, answer, errors = self.execute()
            self.assertEqual(1, status)
            self.assertIn('not ended after', answer['problem'])
            self.wait_for(stopped.is_set, 'the live migration')
            # It still runs: a new plan goes around its hosts.
            status, answer, _ = self.execute()
            self.assertEqual((0, []), (status, [
                move for move in answer['moves'] if move['state'] != 'begun']))
            self.assertIn('a migration is running', answer['reason'])
            self.assertEqual(1, len(self.live_migrations()))
            go_on.set()
            self.arrived()
            status, answer, errors = self.execute()
        self.assertEqual((0, 1), (status, answer['done']), errors)
        self.assertEqual(1, len(self.live_migrations()))

    def planned(self):
        """Write a plan to the store that is not carried out yet."""
        with mock.patch.object(executor.Executor, 'step',
                               side_effect=KeyboardInterrupt):
            self.execute()
        move, = self.store.moves()
        self.assertEqual('planned', move.state)
        return move

    def test_a_destination_that_fills_up(self):
        self.planned()
        # By traffic: only Nova's scheduler knows what came meanwhile.
        full = self.flavor('full', egress_kbps=850)
        self.boot(full, host='host3')
        status, answer, _ = self.execute()
        self.assertEqual(1, status)
        self.assertIn('VSwitchFilter refuses host3 by the check',
                      answer['problem'])
        self.assertEqual('failed', self.store.moves()[0].state)
        self.assertEqual('host1', self.where()['vm1'])
        self.assertEqual('host1', self.where()['vm2'])

    def test_a_destination_without_cores_or_in_maintenance(self):
        self.planned()
        service = self.admin_api.get_services(
            host='host3', binary='nova-compute')[0]
        self.admin_api.put_service(service['id'], {
            'status': 'disabled', 'disabled_reason': 'work'})
        status, answer, _ = self.execute()
        self.assertEqual(1, status)
        self.assertIn('host3 is disabled: work', answer['problem'])
        self.assertEqual([], self.live_migrations())

    def test_a_right_that_ends_and_returns(self):
        move = self.planned()
        rule = 'os_compute_api:os-migrate-server:migrate_live:host'
        self.policy.set_rules({rule: '!'}, overwrite=False)
        status, answer, _ = self.execute()
        self.assertEqual(1, status)
        self.assertIn('1 moves were not begun: ', answer['problem'])
        self.assertIn(rule, answer['problem'])
        self.assertEqual([], self.live_migrations())
        self.policy.set_rules({rule: '@'}, overwrite=False)
        # No destination rests: it was not at fault.
        status, answer, errors = self.execute()
        self.assertEqual((0, 1), (status, answer['done']), errors)
        self.assertEqual([(move.instance_uuid, 'host3', 'completed')],
                         self.live_migrations())

    def test_an_instance_that_was_deleted(self):
        move = self.planned()
        name, = [name for name, server in self.servers.items()
                 if server['id'] == move.instance_uuid]
        self.delete(self.servers.pop(name))
        status, answer, _ = self.execute()
        self.assertEqual(1, status)
        self.assertIn('the instance was deleted', answer['problem'])
        self.assertEqual([], self.live_migrations())

    def test_an_instance_that_is_deleted_while_it_migrates(self):
        with self.slow() as (stopped, _), \
                concurrent.futures.ThreadPoolExecutor() as pool:
            executed = pool.submit(self.execute)
            self.wait_for(stopped.is_set, 'the live migration')
            (uuid, _, _), = self.live_migrations()
            name, = [name for name, server in self.servers.items()
                     if server['id'] == uuid]
            self.delete(self.servers.pop(name))
            status, answer, _ = executed.result()
        self.assertEqual(1, status)
        self.assertIn('the instance was deleted meanwhile',
                      answer['problem'])
        move, = self.store.moves()
        self.assertEqual('failed', move.state)
        # Nothing else has moved, and the next plan is free to begin.
        self.assertEqual({'vm3': 'host2', 'vm4': 'host3'}, {
            name: host for name, host in self.where().items()
            if name not in ('vm1', 'vm2')})
        with executor.Executor(self.store, None, None, 'test') as resumed:
            self.assertEqual(0, resumed.resume())

    def nova_access(self):
        return http.Access(url=self.admin_api.base_url, retries=0,
                           requests_per_second=1000,
                           auth={'auth_type': 'fixture'})

    def modeler(self):
        """Return what makes and executes the plans of a vswitch-modeler."""
        access = self.nova_access()
        return rebalancing.Rebalancer(
            nova.CloudApi(access, dataclasses.replace(
                access, url=self.placement.fixture.endpoint)),
            settings.RebalanceSettings(settings.EXECUTE, settings.SEPARATE),
            fleet.read_fleet)

    def plan(self, modeler):
        modeler.plan(
            self.store, telemetry_file.FileDriver(
                f'{self.directory}/trace.csv'), time.time, time.monotonic)

    def test_a_modeler_killed_in_the_middle_of_a_plan(self):
        real_now = sql.now
        with self.slow() as (stopped, _), \
                mock.patch.object(executor, 'LEASE_SECONDS', 3600.0):
            killed, following = self.modeler(), self.modeler()
            self.plan(killed)
            self.assertIsNone(killed.step(time.monotonic))
            # From here on, it neither looks at its plan nor ends it.
            self.wait_for(stopped.is_set, 'the live migration')
            with self.assertRaisesRegex(exceptions.StoreError,
                                        'held by vswitch-modeler'):
                self.plan(following)
            # Its lease is over.
            with mock.patch.object(
                    sql, 'now',
                    lambda connection: real_now(connection) + 3600.0):
                self.plan(following)
            self.assertIsNone(following.step(time.monotonic))
        self.arrived()

        def is_done():
            self.assertIsNone(following.step(time.monotonic))
            return [move.state for move in self.store.moves()] == ['done']

        self.wait_for(is_done, 'the end of the plan')
        self.assertEqual(1, len(self.live_migrations()))
        self.assertEqual('host3', self.where()[self.moved()])
        self.assertIn('changed by another process', killed.step(time.monotonic))
        self.assertEqual(1, len(self.live_migrations()))

    def test_a_destination_that_the_filter_refuses_is_not_proposed(self):
        # By telemetry host3 has room; the filter counts what flavors state.
        full = self.flavor('full', egress_kbps=850)
        self.store.write_fleet({'flavor': {
            'small': {'vswitch:egress_kbps': '100'},
            'full': {'vswitch:egress_kbps': '850'}}}, time.time())
        uuid = self.boot(full, host='host3')['id']
        self.store.write(placements=[
            store.InstanceRecord(uuid, 'host3', 'full', 'p')])
        status, answer, errors = self.run_command()
        self.assertEqual((0, []), (status, answer['moves']), errors)

    def test_a_tenant_has_a_veto_only_by_the_option(self):
        for name in ('vm1', 'vm2'):
            self.admin_api.post_server_metadata(
                self.servers[name]['id'], {'vswitch:migrate': 'never'})
        status, answer, errors = self.run_command()
        self.assertEqual((0, 1), (status, len(answer['moves'])), errors)
        self.configure('rebalance_tenant_veto = true')
        status, answer, errors = self.run_command()
        self.assertEqual((0, []), (status, answer['moves']), errors)
        self.assertIn('vswitch:migrate=never', answer['reason'])

    def test_an_instance_that_was_locked_stops_no_other(self):
        move = self.planned()
        self.api.post_server_action(move.instance_uuid, {'lock': None})
        status, answer, errors = self.execute()
        self.assertEqual(1, status)
        self.assertIn('it is locked', answer['problem'])
        # The next plan moves the other one.
        status, answer, errors = self.execute()
        self.assertEqual((0, 1), (status, answer['done']), errors)
        self.assertEqual({'host1', 'host3'}, {
            self.where()[name] for name in ('vm1', 'vm2')})
        self.assertNotIn(move.instance_uuid, {
            uuid for uuid, _, _ in self.live_migrations()})
