# SPDX-License-Identifier: Apache-2.0
"""Nova's own functional fixtures, with this project's plugin enabled."""

import os
import sys

# Decides on native threads for the whole process, so it comes before the rest
# of nova.
import nova.tests.functional  # noqa: F401

from nova.tests.functional.api import client
from nova.tests.functional import integrated_helpers

from vswitch_aware_scheduler.scheduler import state as scheduler_state
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration

#: The wheel of nova has it below the prefix, its tests look elsewhere.
API_PASTE = os.path.join(sys.prefix, 'etc', 'nova', 'api-paste.ini')

FILTERS = ['ComputeFilter', 'ComputeCapabilitiesFilter',
           'ImagePropertiesFilter', 'ServerGroupAntiAffinityFilter',
           'ServerGroupAffinityFilter', 'VSwitchFilter']


class VSwitchTestCase(integrated_helpers.ProviderUsageBaseTestCase):
    """A cloud of fake computes that only their virtual switch can fill.

    The plugin is enabled as the manual says: by options of nova.conf.
    """

    compute_driver = 'fake.FakeDriver'
    HOSTS = ('host1', 'host2', 'host3')
    TRACK_INSTANCE_CHANGES = True
    OPTIONS = {}

    def setUp(self):
        self.store_path = os.path.join(self.useFixture(
            integrated_helpers.nova_fixtures.fixtures.TempDir()).path,
            'vswitch.sqlite')
        self.store_url = f'sqlite:///{self.store_path}'
        migration.sync(self.store_url)
        self.store = store.Store(self.store_url)
        self.flags(api_paste_config=API_PASTE, group='wsgi')
        self.flags(
            available_filters=[
                'nova.scheduler.filters.all_filters',
                'vswitch_aware_scheduler.scheduler.filters.VSwitchFilter'],
            enabled_filters=FILTERS,
            weight_classes=[
                'nova.scheduler.weights.all_weighers',
                'vswitch_aware_scheduler.scheduler.weights.VSwitchWeigher'],
            track_instance_changes=self.TRACK_INSTANCE_CHANGES,
            group='filter_scheduler')
        self.flags(store_url=self.store_url, snapshot_refresh_seconds=3600,
                   group='vswitch_scheduler')
        self.flags(group='vswitch_scheduler', **self.OPTIONS)
        self.flags(allow_resize_to_same_host=True)
        super().setUp()
        self.plugin = scheduler_state.current()
        self.addCleanup(self.plugin.stop)
        self.aggregates = {}
        for host in self.HOSTS:
            self._start_compute(host=host)

    # What a host can carry.

    def describe_host(self, host, **metadata):
        """Set the ``vswitch:`` metadata of a host's own aggregate."""
        if host not in self.aggregates:
            aggregate = self.admin_api.post_aggregate(
                {'aggregate': {'name': host}})
            self.admin_api.add_host_to_aggregate(aggregate['id'], host)
            self.aggregates[host] = aggregate['id']
        self.admin_api.post_aggregate_action(self.aggregates[host], {
            'set_metadata': {'metadata': {
                f'vswitch:{key}': None if value is None else str(value)
                for key, value in metadata.items()}}})

    def describe_hosts(self, *saturations_kbps):
        """Give the hosts, in order, a saturation of so many kbit/s."""
        for host, saturation in zip(self.HOSTS, saturations_kbps):
            self.describe_host(host, saturation_kbps=saturation)

    # What an instance demands.

    def flavor(self, name, **extra_specs):
        """Return the id of a new flavor with ``vswitch:`` extra specs."""
        return self._create_flavor(
            name=name, vcpu=1, memory_mb=64, disk=1, extra_spec={
                f'vswitch:{key}': str(value)
                for key, value in extra_specs.items()})

    def boot(self, flavor_id, **kwargs):
        """Boot an instance and return its server, ACTIVE."""
        return self._create_server(flavor_id=flavor_id, networks='none',
                                   **kwargs)

    def boot_refused(self, flavor_id):
        """Boot an instance and expect that no host takes it."""
        server = self._create_server(flavor_id=flavor_id, networks='none',
                                     expected_state='ERROR')
        self.assertIn('No valid host', server['fault']['message'])
        self._delete_server(server)

    def boot_many(self, flavor_id, count, expected_state='ACTIVE'):
        """Boot so many in one request; return their servers."""
        request = self._build_server(flavor_id=flavor_id, networks='none')
        request['min_count'] = request['max_count'] = count
        request['return_reservation_id'] = True
        reservation = self.api.post_server(
            {'server': request})
        reservation_id = reservation['reservation_id']
        servers = self.api.get_servers(
            detail=True, search_opts={'reservation_id': reservation_id})
        self.assertEqual(count, len(servers))
        return [self._wait_for_state_change(server, expected_state)
                for server in servers]

    def refuses(self, function, *args):
        """Assert that an API call ends in "No valid host"."""
        error = self.assertRaises(client.OpenStackApiException, function,
                                  *args)
        self.assertIn('No valid host', str(error))

    def host_of(self, server):
        """Return the host that nova says a server is on."""
        return self.admin_api.get_server(
            server['id'])['OS-EXT-SRV-ATTR:host']

    def residents(self, host):
        """Return the uuids that our plugin counts on a host."""
        return set(self.plugin._residency.residents(host))
