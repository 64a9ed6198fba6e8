# SPDX-License-Identifier: Apache-2.0
"""Tests that the capacity of a switch limits the instances of its host.

The tests put a host into an aggregate with a capacity far above that of any
real switch, and boot servers whose flavors demand a large part of this
capacity. Other instances on the host therefore neither affect the tests nor
are affected by them.
"""

from tempest.common import waiters
from tempest import config
from tempest.lib.common.utils import data_utils
from tempest.lib.common.utils import test_utils
from tempest.lib import decorators
from tempest import test

CONF = config.CONF

FILTER = 'VSwitchFilter'

#: Saturation of the host and rate of each server: two servers fit.
SATURATION_KBPS = 1_000_000_000
SERVER_KBPS = 400_000_000


class VSwitchAdmissionTest(test.BaseTestCase):
    """Servers on a forced host, which only an administrator may request."""

    credentials = ['admin']

    # Since 2.74, a request can name a host without bypassing the filters.
    min_microversion = '2.74'

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        enabled = CONF.compute_feature_enabled.scheduler_enabled_filters
        if FILTER not in enabled and enabled != ['all']:
            raise cls.skipException(
                f'scheduler_enabled_filters: {enabled}; expected {FILTER} '
                f'among them')

    @classmethod
    def setup_credentials(cls):
        cls.set_network_resources()
        super().setup_credentials()

    @classmethod
    def setup_clients(cls):
        super().setup_clients()
        cls.servers = cls.os_admin.servers_client
        cls.flavors = cls.os_admin.flavors_client
        cls.aggregates = cls.os_admin.aggregates_client
        cls.services = cls.os_admin.services_client

    @classmethod
    def resource_setup(cls):
        super().resource_setup()
        cls.setup_api_microversion_fixture(
            compute_microversion=cls.min_microversion)
        cls.host = cls.host_of_our_own()
        cls.flavor_id = cls.make_flavor(SERVER_KBPS)
        aggregate = cls.aggregates.create_aggregate(
            name=data_utils.rand_name('vswitch'))['aggregate']
        cls.aggregate_id = aggregate['id']
        cls.addClassResourceCleanup(cls.aggregates.delete_aggregate,
                                    cls.aggregate_id)
        # Every limit that a profile may have.
        cls.set_numbers(saturation_kbps=SATURATION_KBPS,
                        line_rate_kbps=2 * SATURATION_KBPS,
                        packet_rate_kpps=SATURATION_KBPS,
                        max_tunnels=1_000_000,
                        vm_peak_kbps=SATURATION_KBPS, overload_probability=0)
        cls.aggregates.add_host(cls.aggregate_id, host=cls.host)
        cls.addClassResourceCleanup(cls.aggregates.remove_host,
                                    cls.aggregate_id, host=cls.host)

    @classmethod
    def host_of_our_own(cls):
        """Return a running host without vswitch metadata in its aggregates.

        With other aggregates, their most cautious value would be used.
        """
        up = {service['host'] for service in cls.services.list_services(
            binary='nova-compute')['services']
            if (service['state'], service['status']) == ('up', 'enabled')}
        described = {host for aggregate
                     in cls.aggregates.list_aggregates()['aggregates']
                     if any(key.startswith('vswitch:')
                            for key in aggregate['metadata'])
                     for host in aggregate['hosts']}
        if not up - described:
            raise cls.skipException(
                f'hosts that are up: {sorted(up)}; expected one in no '
                f'aggregate with vswitch: metadata')
        return min(up - described)

    @classmethod
    def make_flavor(cls, egress_kbps):
        """Return the id of a new flavor whose servers send at this rate.

        :param egress_kbps: constant egress rate of its instances
        """
        flavor_id = cls.flavors.create_flavor(
            name=data_utils.rand_name('vswitch'), ram=64, vcpus=1,
            disk=1)['flavor']['id']
        cls.addClassResourceCleanup(cls.flavors.delete_flavor, flavor_id)
        cls.flavors.set_flavor_extra_spec(
            flavor_id, **{'vswitch:egress_kbps': str(egress_kbps)})
        return flavor_id

    @classmethod
    def set_numbers(cls, **numbers):
        """Set metadata of the aggregate of the host.

        :param numbers: values of the metadata, by key without prefix
        """
        cls.aggregates.set_metadata(cls.aggregate_id, metadata={
            f'vswitch:{key}': str(value) for key, value in numbers.items()})

    def boot(self, status, flavor_id=None):
        """Boot a server on the host and wait for its final status.

        :param status: expected status of the server
        :param flavor_id: id of the flavor
        :returns: the server as Nova shows it
        """
        server_id = self.servers.create_server(
            name=data_utils.rand_name('vswitch'), networks='none',
            imageRef=CONF.compute.image_ref, host=self.host,
            flavorRef=flavor_id or self.flavor_id)['server']['id']
        self.addCleanup(self.delete, server_id)
        waiters.wait_for_server_status(self.servers, server_id, status,
                                       raise_on_error=status != 'ERROR')
        return self.servers.show_server(server_id)['server']

    def delete(self, server_id):
        test_utils.call_and_ignore_notfound_exc(
            self.servers.delete_server, server_id)
        waiters.wait_for_server_termination(self.servers, server_id,
                                            ignore_error=True)

    def assertRefused(self, server):
        self.assertIn('No valid host', server['fault']['message'])

    @decorators.idempotent_id('4c3f7f64-9e0e-4bb1-8a20-5b5d6e0b7d11')
    def test_a_host_at_saturation_refuses(self):
        first = self.boot('ACTIVE')
        self.boot('ACTIVE')
        self.assertRefused(self.boot('ERROR'))
        # A deleted server makes room for another one.
        self.delete(first['id'])
        self.boot('ACTIVE')

    @decorators.idempotent_id('a0c8b6b8-3a5d-4a53-92a7-5e6f0f6b2f0e')
    def test_an_aggregate_that_says_more_lets_more_in(self):
        self.addCleanup(self.set_numbers, saturation_kbps=SATURATION_KBPS)
        for _ in range(2):
            self.boot('ACTIVE')
        self.assertRefused(self.boot('ERROR'))
        self.set_numbers(saturation_kbps=2 * SATURATION_KBPS)
        self.boot('ACTIVE')

    @decorators.idempotent_id('6f1d0d5b-0c4e-4e7e-9d64-2f3f1c7a9b52')
    def test_a_server_above_the_peak_of_one_is_refused_on_an_empty_host(self):
        self.addCleanup(self.set_numbers, vm_peak_kbps=SATURATION_KBPS)
        self.set_numbers(vm_peak_kbps=SERVER_KBPS // 2)
        self.assertRefused(self.boot('ERROR'))
