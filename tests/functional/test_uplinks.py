# SPDX-License-Identifier: Apache-2.0
"""What hosts share: uplinks and networks."""

import copy
import os

from tests.functional import base

import fixtures
from nova.tests import fixtures as nova_fixtures
from oslo_utils import uuidutils

create_port = nova_fixtures.NeutronFixture.create_port


class UplinkTestCase(base.VSwitchTestCase):

    def setUp(self):
        super().setUp()
        self.describe_hosts(10000, 10000, 10000)
        self.rack = self.aggregate(
            'rack', 'host1', 'host2', uplink='tor',
            uplink_saturation_kbps=2000)

    def test_an_uplink_at_saturation_refuses_the_hosts_behind_it(self):
        flavor = self.of(1000)
        first = self.boot(flavor, 'host1', host='host1')
        self.boot(flavor, 'host2', host='host2')
        self.log.clear()
        for host in ('host1', 'host2'):
            self.boot_refused(flavor, host=host)
            line, = self.log.lines(f'({host}, ', 'fails')
            self.assertIn('its uplink tor: with it the overload probability '
                          'would be 1, above the limit of 0.01', line)
            self.log.clear()
        for _ in range(2):
            self.boot(flavor, 'host3')
        # A move behind it changes nothing there, one to it would.
        self.live_migrate(first, 'host2')
        other = self.boot(flavor, 'host3')
        self.move_refused(other, 'os-migrateLive', host='host1')
        # One leaves it, and there is room again.
        self.live_migrate(first, 'host3')
        self.boot(flavor, 'host1', host='host1')
        self.boot_refused(flavor, host='host2')
        # The operator changes the limits of the uplink, then its hosts.
        self.set_metadata(self.rack, uplink_saturation_kbps=3000)
        self.boot(flavor, 'host2', host='host2')
        self.boot_refused(flavor, host='host2')
        self.remove_from_aggregate(self.rack, 'host2')
        self.boot(flavor, 'host2', host='host2')
        self.assertEqual([], self.log.warnings)

    def test_hosts_that_are_switched_off_count_on_their_uplink(self):
        flavor = self.of(1000)
        self.boot(flavor, 'host2', host='host2')
        self.set_service('host2', status='disabled')
        # The scheduler begins anew and never sees it.
        self.restart_scheduler()
        self.boot_refused(self.of(1001), host='host1')
        self.boot(flavor, 'host1', host='host1')
        self.boot_refused(flavor, host='host1')
        self.boot(flavor, 'host3')

    def test_hosts_of_another_aggregate_count_on_their_uplink(self):
        self.remove_from_aggregate(self.rack, 'host2')
        self.aggregate('other rack', 'host2', uplink='tor')
        flavor = self.of(1000)
        project = self.boot(flavor, 'host2', host='host2')['tenant_id']
        # Placement offers the project only the first rack.
        self.flags(limit_tenants_to_placement_aggregate=True,
                   group='scheduler')
        self.admin_api.post_aggregate_action(self.rack, {'set_metadata': {
            'metadata': {'filter_tenant_id': project}}})
        self.restart_scheduler()
        self.boot_refused(self.of(1001))
        self.boot(flavor, 'host1')


class TunnelTestCase(base.VSwitchTestCase):
    """Each host has one tunnel, and needs one for each network."""

    HOSTS = ('host1', 'host2')

    def setUp(self):
        path = os.path.join(self.useFixture(fixtures.TempDir()).path,
                            'profiles.yaml')
        with open(path, 'w') as file:
            file.write('few-networks: '
                       '{max_tunnels: 1, tunnel_unit: networks}\n')
        self.OPTIONS = {'switch_profiles_file': path}
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(
            self.neutron, 'create_port', self._create_port))
        self.small = self.of(1)
        self.red = nova_fixtures.NeutronFixture.network_1['id']
        self.blue = self.make_network('vxlan')
        for host in self.HOSTS:
            self.describe_host(host, profile='few-networks')

    def _create_port(self, body=None):
        # The fixture would put every port on its first network.
        made = create_port(self.neutron, body)
        port = self.neutron._ports[made['port']['id']]
        port['network_id'] = made['port']['network_id'] = \
            body['port']['network_id']
        return made

    def make_network(self, kind):
        """Return the id of a new network of Neutron."""
        network = copy.deepcopy(nova_fixtures.NeutronFixture.network_1)
        network.update({'id': uuidutils.generate_uuid(),
                        'provider:network_type': kind})
        if kind == 'vlan':
            network['provider:physical_network'] = 'physnet1'
        self.neutron._networks[network['id']] = network
        return network['id']

    def make_port(self, network):
        """Return the id of a new port that nobody has."""
        port = copy.deepcopy(nova_fixtures.NeutronFixture.port_2)
        port.update({'id': uuidutils.generate_uuid(), 'network_id': network})
        self.neutron._ports[port['id']] = port
        return port['id']

    def on(self, *networks):
        return [{'uuid': network} for network in networks]

    def boot_on(self, host, network):
        """Boot an instance on a host and a network; return its server."""
        return self.boot(self.small, host, host=host,
                         networks=self.on(network))

    def refused_on(self, host, network):
        """Expect that a host takes no instance on a network."""
        self.boot_refused(self.small, host=host, networks=self.on(network))

    def test_a_vm_on_a_network_that_is_served_passes_a_full_host(self):
        server = self.boot_on('host1', self.red)
        self.boot_on('host1', self.red)
        self.log.clear()
        self.refused_on('host1', self.blue)
        line, = self.log.lines('fails')
        self.assertIn('it has 1 networks, the instance adds 1, and '
                      'max_tunnels of profile few-networks is 1', line)
        blue = self.boot(self.small, 'host2', networks=self.on(self.blue))
        self.boot_on('host2', self.blue)
        self.boot_refused(self.small, networks=self.on(self.red, self.blue))
        # One without a tunnel opens none.
        self.boot_on('host1', self.make_network('vlan'))
        # A move counts by the networks that the instance has.
        self.move_refused(server, 'os-migrateLive', host='host2')
        self.delete(blue)
        self.refused_on('host2', self.red)
        self.assertEqual([], self.log.warnings)

    def test_a_port_is_on_an_unknown_network_until_it_is_built(self):
        # Nova's API knows better and does not tell.
        port = [{'port': self.make_port(self.red)}]
        self.boot_on('host1', self.red)
        self.boot_refused(self.small, host='host1', networks=port)
        self.boot(self.small, 'host2', host='host2', networks=port)
        self.refused_on('host2', self.blue)
        self.boot_on('host2', self.red)
