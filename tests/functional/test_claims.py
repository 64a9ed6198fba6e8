# SPDX-License-Identifier: Apache-2.0
"""An instance counts from when it is placed, once, until it is gone."""

import threading
from unittest import mock

from tests.functional import base

from nova import exception
from nova.scheduler.client import report
from nova.scheduler import manager
from oslo_utils import uuidutils

from vswitch_aware_scheduler.scheduler import state as scheduler_state
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model


class ClaimTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def test_a_vm_counts_before_and_after_its_host_reports_it(self):
        self.describe_hosts(1000, 10)
        with self.reports_lost():
            server = self.boot(self.of(900), 'host1')
            self.assertFalse(self._lists(server['id']))
            # One that no host reports counts for good.
            for self.clock.ahead in (0, 590, 100000):
                self.boot_refused(self.of(101))
        self.sync_reports()
        # Twice would be 1800.
        self.room('host1', 100)
        # One that was deleted between two requests is gone.
        for _ in range(2):
            self.delete(server)
            server = self.boot(self.of(1000), 'host1')
        self.boot_refused(self.of(1000))
        self.assertEqual({server['id']}, self.residents('host1'))


class RefusedByPlacementTestCase(base.VSwitchTestCase):
    """host1 has two cores and a large switch, host2 room for one instance."""

    HOSTS = ()
    OPTIONS = {'overload_probability': 0, 'claim_patience_seconds': 60}
    BOOTS = 4

    def setUp(self):
        super().setUp()
        self.flags(initial_cpu_allocation_ratio=1.0)
        self.flags(vswitch_weight_multiplier=100, group='vswitch_scheduler')
        for host, driver, saturation in (
                ('host1', 'fake.SmallFakeDriver', 100_000),
                ('host2', 'fake.FakeDriver', 1000)):
            self.flags(compute_driver=driver)
            self._start_compute(host)
            self.describe_host(host, saturation_kbps=saturation)
        self.flavor_id = self.of(600)

    def test_each_host_that_nova_tries_is_judged_again(self):
        # All have filtered the hosts before the first claim.
        barrier = threading.Barrier(self.BOOTS)
        claim = report.SchedulerReportClient.claim_resources
        waited = set()

        def claim_together(client, context, uuid, *args, **kwargs):
            if uuid not in waited:
                waited.add(uuid)
                barrier.wait(base.TIMEOUT_SECONDS)
            return claim(client, context, uuid, *args, **kwargs)

        with mock.patch.object(report.SchedulerReportClient,
                               'claim_resources', claim_together):
            servers = [self.post(self.flavor_id) for _ in range(self.BOOTS)]
            self.wait_for(
                lambda: all(self._statuses(server['id']) in (
                    ['ACTIVE'], ['ERROR']) for server in servers),
                'all boots to end')
        placed = [server for server in servers
                  if self._statuses(server['id']) == ['ACTIVE']]
        self.assertEqual({'host1': 2, 'host2': 1}, self.hosts_of(placed))
        self.assertEqual({'host1': 2, 'host2': 1}, {
            host: len(self.residents(host)) for host in ('host1', 'host2')})
        self.assertGreaterEqual(
            self.plugin.claims.counts['claim_conflicts'], 1)

    def test_a_claim_that_fails_leaves_no_trace(self):
        def fail(client, context, uuid, *args, **kwargs):
            raise exception.AllocationUpdateFailed(
                consumer_uuid=uuid, error='as a test wants it')

        with mock.patch.object(report.SchedulerReportClient,
                               'claim_resources', fail):
            self._wait_for_state_change(self.post(self.flavor_id), 'ERROR')
        for host in ('host1', 'host2'):
            self.assertEqual(set(), self.residents(host))
        self.boot(self.flavor_id, 'host1')

    def test_a_host_without_room_is_no_alternate(self):
        # Between filter and claim, somebody else takes the room on host1.
        self.describe_host('host1', saturation_kbps=1000)
        self.describe_host('host2', saturation_kbps=650)
        recall = scheduler_state.SchedulerState.recall
        taken, selected = [], []

        def take_room(state, *args):
            result = recall(state, *args)
            if not taken:
                taken.append(store.StoredClaim(
                    uuidutils.generate_uuid(), 'other-1', 'host1', None,
                    model.TrafficModel.constant(600).law, 'flavor', 'other'))
                with state._lock:
                    state._count(taken[0], foreign=True)
            return result

        select = manager.SchedulerManager.select_destinations

        def note(self, *args, **kwargs):
            selected.append(select(self, *args, **kwargs))
            return selected[-1]

        with mock.patch.object(scheduler_state.SchedulerState, 'recall',
                               take_room), mock.patch.object(
                                   manager.SchedulerManager,
                                   'select_destinations', note):
            self.boot(self.flavor_id, 'host2')
        (selections,), = selected
        self.assertEqual(['host2'], [
            selection.service_host for selection in selections])


class ForcedHostTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def test_a_forced_host_is_claimed_without_being_judged(self):
        self.describe_hosts(1000, 500)
        flavor = self.of(600)
        self.boot(flavor, 'host1', host='host1')
        self.boot_refused(flavor, host='host1')
        # On a host that is full and on one that is too small.
        self.boot(flavor, 'host2', az='nova:host2')
        self.boot_refused(self.of(1), host='host2')
        with self.reports_lost(), mock.patch.object(
                self.plugin._record, 'take'):
            # Nova refuses no forced host, and neither do we.
            self.boot(flavor, 'host1', az='nova:host1')
            self.assertEqual(2, len(self.residents('host1')))
            claim, = [claim for claim in self.plugin._residency.claims
                      if claim.host == 'host1']
            self.assertEqual('flavor', claim.stored.rule)


class TwiceNamedTestCase(base.VSwitchTestCase):
    """nova.conf names the weigher twice."""

    HOSTS = ('host1',)
    WEIGHERS = [*base.VSwitchTestCase.WEIGHERS, base.OUR_WEIGHER]

    def test_all_plugins_count_in_one_state(self):
        self.describe_hosts(1000)
        self.boot_many_refused(self.of(300), 4)
        self.boot_many(self.of(333), 3)
