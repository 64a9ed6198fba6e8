# SPDX-License-Identifier: Apache-2.0
"""Placement refuses what schedulers give away at the same moment."""

import itertools
import threading
import time
from unittest import mock

# Before the rest of nova, as in tests.functional.base.
import nova.tests.functional  # noqa: F401

from nova.cmd import manage
from nova.compute import manager

from tests.functional import base
from tests.functional import strict_case
from vswitch_aware_scheduler.admission import effective_limit
from vswitch_aware_scheduler.modeler import placement_inventory
from vswitch_aware_scheduler.scheduler import filters
from vswitch_aware_scheduler.scheduler import state as scheduler_state
from vswitch_aware_scheduler import store

StrictTestCase = strict_case.StrictTestCase


class ObserveTestCase(StrictTestCase):
    OPTIONS = {**StrictTestCase.OPTIONS, 'enforcement': 'observe'}
    HOSTS = ('host1',)

    def test_placement_refuses_nothing_until_it_is_enforced(self):
        flavor = self.flavor('f600', egress_kbps=600)
        self.describe_hosts(1000)
        self.keep()
        for _ in range(2):
            self.boot(flavor, 'host1')
        # No claim exists; the modeler reserves the demand of the residents.
        self.assertEqual({'host1': (1000, 0, 0)}, self.kept())
        self.store.write(placements=[
            store.InstanceRecord(server['id'], 'host1', 'f600')
            for server in self.admin_api.get_servers()])
        self.keep()
        self.assertEqual({'host1': (1000, 1000, 0)}, self.kept())
        self.boot(flavor, 'host1')
        self.describe_host('host1', enforcement='enforce')
        self.boot_refused(flavor)


class ConcurrencyTestCase(StrictTestCase):

    def at_once(self, flavor):
        """Return the states of two boots whose hosts are judged at once."""
        both = threading.Barrier(2, timeout=base.TIMEOUT_SECONDS)
        judge = filters.VSwitchFilter.filter_all

        def filter_all(filter_, hosts, spec):
            passed = judge(filter_, hosts, spec)
            both.wait()
            return passed

        # As schedulers that know nothing of each other.
        with mock.patch.object(
                scheduler_state.SchedulerState, 'hosts_sorted',
                lambda state, hosts, spec: hosts), mock.patch.object(
                    filters.VSwitchFilter, 'filter_all', filter_all):
            servers = self.in_parallel([lambda: self.post(flavor)] * 2)
            built = [self.wait_for(lambda uuid=server['id']: (
                lambda answer: answer['status'] != 'BUILD' and answer)(
                    self.admin_api.get_server(uuid)), 'the end of a build')
                for server in servers]
        return sorted(server['status'] for server in built)

    def test_the_second_of_two_boots_at_once_is_refused_by_placement(self):
        flavor = self.flavor('f600', egress_kbps=600)
        self.describe_hosts(1000, 10)
        self.keep()
        self.assertEqual(['ACTIVE', 'ERROR'], self.at_once(flavor))
        self.assertEqual({'host1': (1000, 0, 600), 'host2': (10, 0, 0)},
                         self.kept())

    def test_two_boots_at_once_are_both_placed_without_inventories(self):
        # What the strict mode is for.
        flavor = self.flavor('f600', egress_kbps=600)
        self.describe_hosts(1000, 10)
        self.assertEqual(['ACTIVE', 'ACTIVE'], self.at_once(flavor))
        self.assertEqual(1, len(self.log.warnings), self.log.warnings)
        self.assertIn('placement has no inventory of CUSTOM_VSWITCH_KBPS',
                      self.log.warnings[0])


class LifeTestCase(StrictTestCase):

    def setUp(self):
        super().setUp()
        self.small = self.flavor('f100', egress_kbps=100)
        self.large = self.flavor('f300', egress_kbps=300)
        self.describe_hosts(1000, 1000)
        self.keep()

    def test_a_move_moves_the_allocation_of_the_instance(self):
        server = self.boot(self.small, az='nova:host1')
        # A forced host is asked of no filter; the modeler finds it.
        self.assertEqual([0, 0], self.used())
        self.learn(server['id'], egress_kbps=150)
        self.keep()
        self.assertEqual((1000, 150, 0), self.kept()['host1'])

        self.migrate(server)
        self.assertEqual([0, 150], self.used())
        self.revert(server)
        self.assertEqual([0, 0], self.used())
        self.migrate(server)
        self.confirm(server)
        self.assertEqual([0, 150], self.used())
        self.keep()
        self.assertEqual({'host1': (1000, 0, 0), 'host2': (1000, 0, 150)},
                         self.kept())

        self.live_migrate(server)
        # Nova gives back what was left behind a moment later.
        self.wait_for(lambda: self.used() == [150, 0], 'the room on host2')
        self.live_migrate(server, host='host2')
        self.wait_for(lambda: self.used() == [0, 150], 'the room on host1')

    def test_the_demand_of_a_flavor_is_reserved_on_a_forced_host(self):
        server = self.boot(self.large, az='nova:host1')
        self.store.write(placements=[store.InstanceRecord(
            server['id'], 'host1', 'f300')])
        self.keep()
        self.assertEqual({'host1': (1000, 300, 0), 'host2': (1000, 0, 0)},
                         self.kept())
        # It moves as any other; then its source has all its room again.
        self.live_migrate(server, host='host2')
        self.wait_for(lambda: self.used() == [0, 300], 'the room on host2')
        self.keep()
        self.assertEqual({'host1': (1000, 0, 0), 'host2': (1000, 0, 300)},
                         self.kept())

    def test_leaving_a_host_frees_the_allocation(self):
        server = self.boot(self.small)
        home, = [host for host in self.HOSTS if self.host_of(server) == host]
        self.assertEqual(100, self.kept()[home][2])
        self.action(server, 'shelve')
        self._wait_for_state_change(server, 'SHELVED_OFFLOADED')
        self.wait_for(lambda: self.used() == [0, 0], 'nothing to be booked')
        self.action(server, 'unshelve')
        self._wait_for_state_change(server, 'ACTIVE')
        self.assertEqual(100, sum(self.used()))

        server = self.resize(server, self.large)
        self.assertEqual(400, sum(self.used()))
        self.confirm(server)
        self.assertEqual(300, sum(self.used()))
        self.delete(server)
        self.wait_for(lambda: self.used() == [0, 0], 'nothing to be booked')

    def test_evacuation_books_the_new_host(self):
        server = self.boot(self.small, az='nova:host1')
        self.computes['host1'].stop()
        service_ = self.admin_api.get_services(
            host='host1', binary='nova-compute')[0]
        self.admin_api.put_service_force_down(service_['id'], True)
        self._evacuate_server(server, expected_state='SHUTOFF')
        self.assertEqual('host2', self.host_of(server))
        self.assertEqual([0, 100], self.used())

    def test_each_instance_of_one_request_is_allocated(self):
        counts = self.hosts_of(self.boot_many(self.large, 6))
        self.assertEqual({'host1': 3, 'host2': 3}, counts)
        self.assertEqual([900, 900], self.used())
        self.boot_refused(self.large)
        self.boot_many_refused(self.small, 3)
        self.wait_for(lambda: self.used() == [900, 900],
                      'what was claimed to be given back')

    def test_computes_leave_our_provider_alone_and_not_their_own(self):
        # Why it is a provider beside that of the compute node.
        node, = [provider['uuid'] for provider in self._get_all_providers()
                 if provider['name'] == 'host1']
        url = f'/resource_providers/{node}/inventories'
        inventory = self.placement.get(url, version='1.36').body
        inventory['inventories'][effective_limit.RESOURCE_CLASS] = {'total': 7}
        self.placement.put(url, inventory, version='1.36')
        # They look at what placement has when they start, and now and then.
        self.restart_compute_service(self.computes['host1'])
        self.assertNotIn(effective_limit.RESOURCE_CLASS, self.placement.get(
            url, version='1.36').body['inventories'])
        self.assertEqual({'host1': (1000, 0, 0), 'host2': (1000, 0, 0)},
                         self.kept())
        server = self.boot(self.small)
        self._run_periodics()
        self.assertEqual(100, sum(self.used()))
        self.assertEqual('ACTIVE', self.admin_api.get_server(
            server['id'])['status'])

    def test_inventories_can_be_removed_while_instances_run(self):
        server = self.boot(self.small)
        self.assertEqual((2, 1, 0, 0), self.keeper.remove())
        self.assertEqual({}, self.kept())
        self.assertNotIn(effective_limit.RESOURCE_CLASS,
                         self._get_all_resource_classes())
        self.migrate(server)
        self.confirm(server)
        self.keep()
        self.assertEqual([(1000, 0, 0)] * 2, sorted(self.kept().values()))

    def test_allocations_removed_by_heal_allocations_are_reserved(self):
        server = self.boot(self.small)
        host = self.host_of(server)
        self.assertEqual((1000, 0, 100), self.kept()[host])
        # It writes what the flavor says, of which ours is no part.
        self.assertEqual(0, manage.PlacementCommands().heal_allocations(
            instance_uuid=server['id'], force=True))
        self.assertEqual((1000, 0, 0), self.kept()[host])
        self.learn(server['id'], egress_kbps=120)
        self.keep()
        self.assertEqual((1000, 120, 0), self.kept()[host])


class DeleteTestCase(StrictTestCase):
    """A server can be deleted, whatever becomes of our providers."""

    # Of the hosts, the one that an instance is built on first fails.
    compute_driver = 'fake.FakeRescheduleDriver'

    def setUp(self):
        super().setUp()
        self.small = self.flavor('f100', egress_kbps=100)
        self.describe_hosts(1000, 1000)
        self.keep()
        self._computes_look()

    def _computes_look(self):
        # They ask what placement has below them when they start, and every
        # five minutes.
        for host, compute in list(self.computes.items()):
            self.computes[host] = self.restart_compute_service(compute)

    def _computes_look_again(self):
        # As after resource_provider_association_refresh.
        for compute in self.computes.values():
            compute.manager.reportclient._association_refresh_time.clear()
        self._run_periodics()

    def test_a_rescheduled_build_is_allocated_while_providers_change(self):
        servers = [self.boot(self.small) for _ in range(5)]
        self.assertEqual(500, sum(self.used()))
        # Before each question to placement our providers change.
        changes = itertools.cycle([
            lambda: self.keeper.remove(), self.keep,
            lambda: self.keeper.remove(providers=True), self.keep])
        delete = manager.ComputeManager._complete_deletion

        def complete(compute, context, instance):
            get = compute.reportclient.get

            def changed(*args, **kwargs):
                next(changes)()
                return get(*args, **kwargs)

            with mock.patch.object(compute.reportclient, 'get', changed):
                return delete(compute, context, instance)

        self.delete(servers.pop())
        with mock.patch.object(manager.ComputeManager, '_complete_deletion',
                               complete):
            self.delete(servers.pop())
        # They know of providers that are detached, and then gone.
        self.assertEqual(2, self.keeper.remove(providers=True)[-1])
        self.delete(servers.pop())
        self._computes_look_again()
        later = time.time() + placement_inventory.DETACHED_SECONDS + 1
        with mock.patch.object(
            placement_inventory.time, 'time', lambda: later
        ):
            self.assertEqual((0, 0, 2, 0),
                             self.keeper.remove(providers=True))
        self._run_periodics()
        self.delete(servers.pop())
        self.keep()
        self._computes_look_again()
        self.delete(servers.pop())
        self.assertEqual([0, 0], self.used())
