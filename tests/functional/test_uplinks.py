# SPDX-License-Identifier: Apache-2.0
"""What hosts share: uplinks and networks."""

import copy
import os
import time

from tests.functional import base

import fixtures
from nova.tests import fixtures as nova_fixtures
from oslo_utils import uuidutils
import sqlalchemy

from tests.fakes import keystone as fake_keystone
from tests.fakes import nova_api
from vswitch_aware_scheduler.modeler import instance_sync
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import attachments


create_port = nova_fixtures.NeutronFixture.create_port

_LONG_AGO = sqlalchemy.text(
    "UPDATE instances SET updated_at = '2020-01-01 00:00:00' "
    'WHERE uuid = :uuid')


class UplinkTestCase(base.VSwitchTestCase):

    def setUp(self):
        super().setUp()
        self.describe_hosts(10000, 10000, 10000)
        self.rack = self.aggregate(
            'rack', 'host1', 'host2', uplink='tor',
            uplink_saturation_kbps=2000)

    def test_an_uplink_at_saturation_refuses_the_hosts_behind_it(self):
        flavor = self.flavor('f1000', egress_kbps=1000)
        first = self.boot(flavor, 'host1', host='host1')
        self.boot(flavor, 'host2', host='host2')
        self.log.clear()
        for host in ('host1', 'host2'):
            self.boot_refused(flavor, host=host)
            (line,) = [text for text in self.log.messages()
                       if f'({host}, ' in text and 'fails' in text]
            self.assertIn('its uplink tor: with it the overload probability '
                          'would be 1, above the limit of 0.01', line)
            self.log.clear()
        for _ in range(2):
            self.boot(flavor, 'host3')
        # A move behind it changes nothing there, one to it would.
        self.live_migrate(first, 'host2')
        other = self.boot(flavor, 'host3')
        self.move_refused(other, 'os-migrateLive', host='host1',
                          block_migration='auto')
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
        flavor = self.flavor('f1000', egress_kbps=1000)
        self.boot(flavor, 'host2', host='host2')
        service = self.api.get_services(host='host2', binary='nova-compute')
        self.admin_api.put_service(service[0]['id'], {'status': 'disabled'})
        # The scheduler begins anew and never sees it.
        self.restart_scheduler()
        self.boot_refused(self.flavor('f1001', egress_kbps=1001),
                          host='host1')
        self.boot(flavor, 'host1', host='host1')
        self.boot_refused(flavor, host='host1')
        self.boot(flavor, 'host3')

    def test_hosts_of_another_aggregate_count_on_their_uplink(self):
        self.remove_from_aggregate(self.rack, 'host2')
        self.aggregate('other rack', 'host2', uplink='tor')
        flavor = self.flavor('f1000', egress_kbps=1000)
        project = self.boot(flavor, 'host2', host='host2')['tenant_id']
        # Placement offers the project only the first rack.
        self.flags(limit_tenants_to_placement_aggregate=True,
                   group='scheduler')
        self.admin_api.post_aggregate_action(self.rack, {'set_metadata': {
            'metadata': {'filter_tenant_id': project}}})
        self.restart_scheduler()
        self.boot_refused(self.flavor('f1001', egress_kbps=1001))
        self.boot(flavor, 'host1')

    def test_an_uplink_can_be_full_in_the_share_of_time(self):
        half = self.on_off_flavor('half', 1000, 0.5)
        fits = base.most_instances(0.5, 2, 0.2)
        self.set_metadata(self.rack, uplink_overload_probability=0.3,
                          uplink_prediction_margin=1.5)
        for number in range(fits):
            self.boot(half, host=self.HOSTS[number % 2])
        for host in self.HOSTS[:2]:
            self.boot_refused(half, host=host)
        self.boot(half, 'host3')


class TunnelTestCase(base.VSwitchTestCase):
    """Hosts with a limited number of tunnels, one for each network."""

    HOSTS = ('host1', 'host2')
    MAX_TUNNELS = 1

    def setUp(self):
        path = os.path.join(self.useFixture(fixtures.TempDir()).path,
                            'profiles.yaml')
        with open(path, 'w') as file:
            file.write(f'few-networks: {{max_tunnels: {self.MAX_TUNNELS}, '
                       f'tunnel_unit: networks}}\n')
        self.OPTIONS = {'switch_profiles_file': path}
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(
            self.neutron, 'create_port', self._create_port))
        self.small = self.flavor('small', egress_kbps=1)
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


class NetworkTestCase(TunnelTestCase):
    """Tunnels, one for each network, run out."""

    def test_a_vm_on_a_network_that_is_served_passes_a_full_host(self):
        server = self.boot(self.small, 'host1', host='host1',
                           networks=self.on(self.red))
        self.boot(self.small, 'host1', host='host1',
                  networks=self.on(self.red))
        self.log.clear()
        self.boot_refused(self.small, host='host1',
                          networks=self.on(self.blue))
        (line,) = [text for text in self.log.messages() if 'fails' in text]
        self.assertIn('it has 1 networks, the instance adds 1, and '
                      'max_tunnels of profile few-networks is 1', line)
        blue = self.boot(self.small, 'host2', networks=self.on(self.blue))
        self.boot(self.small, 'host2', host='host2',
                  networks=self.on(self.blue))
        self.boot_refused(self.small, networks=self.on(self.red, self.blue))
        # One without a tunnel opens none.
        flat = self.make_network('vlan')
        self.boot(self.small, 'host1', host='host1', networks=self.on(flat))
        # A move counts by the networks that the instance has.
        self.move_refused(server, 'os-migrateLive', host='host2',
                          block_migration='auto')
        self.delete(blue)
        self.boot_refused(self.small, host='host2',
                          networks=self.on(self.red))
        self.assertEqual([], self.log.warnings)

    def test_a_port_is_on_an_unknown_network_until_it_is_built(self):
        # Nova's API knows better and does not tell.
        port = [{'port': self.make_port(self.red)}]
        self.boot(self.small, 'host1', host='host1',
                  networks=self.on(self.red))
        self.boot_refused(self.small, host='host1', networks=port)
        self.boot(self.small, 'host2', host='host2', networks=port)
        self.boot_refused(self.small, host='host2',
                          networks=self.on(self.blue))
        self.boot(self.small, 'host2', host='host2',
                  networks=self.on(self.red))

    def test_the_inventory_tells_a_worker_that_begins(self):
        server = self.boot(self.small, 'host1', host='host1',
                           networks=self.on(self.red))
        self.plugin._statements._of.clear()
        for listed in self.plugin._listings.values():
            for instance in listed:
                listed[instance] = None
        self.store.write(placements=[store.InstanceRecord(
            server['id'], 'host1', attachments=attachments.Attachments(
                (self.blue,)))])
        self.plugin.refresh()
        self.boot_refused(self.small, host='host1',
                          networks=self.on(self.red))
        self.boot(self.small, 'host1', host='host1',
                  networks=self.on(self.blue))


class Neutron(nova_api.NovaApi):
    """The API of Neutron with the ports and networks of Nova's fixture.

    :param fixture: NeutronFixture of Nova
    """

    def __init__(self, fixture):
        super().__init__()
        self._fixture = fixture
        self.trunks = []

    def answer(self, method, path, parameters, body):
        self.ports = [
            {'binding:host_id': '', **port} for port
            in self._fixture.list_ports(is_admin=True)['ports']]
        self.networks = self._fixture.list_networks()['networks']
        return super().answer(method, path, parameters, body)


class PortsTestCase(TunnelTestCase):
    """The modeler reads which ports instances have."""

    MAX_TUNNELS = 2

    def setUp(self):
        super().setUp()
        self.useFixture(fake_keystone.Keystone('admin'))
        self.api_of_neutron = self.useFixture(Neutron(self.neutron))
        self.source = instance_sync.make_source(
            access={'url': self.admin_api.base_url, 'retries': 0,
                    'auth': {'auth_type': 'fixture'}},
            network_url=self.api_of_neutron.url, read_networks=True)
        self.green = self.make_network('vxlan')
        self.server = self.boot(self.small, 'host1', host='host1',
                                networks=self.on(self.red))

    def model(self):
        """Let the modeler read the instances, and the scheduler the store."""
        outcome = instance_sync.update(self.store, self.source, time.time, 1e9)
        self.plugin.refresh()
        return outcome

    def assert_red_and_blue_on_host1(self):
        self.boot_refused(self.small, host='host1',
                          networks=self.on(self.green))
        self.boot(self.small, 'host1', host='host1',
                  networks=self.on(self.blue))

    def test_an_interface_that_is_attached_after_boot_counts(self):
        self.assertTrue(self.model().complete)
        # For Nova the instance changed long ago, and does not change now.
        for engine in self._cell_engines:
            with engine.begin() as connection:
                connection.execute(_LONG_AGO, {'uuid': self.server['id']})
        self.admin_api.attach_interface(self.server['id'], {
            'interfaceAttachment': {'net_id': self.blue}})
        self.assertFalse(self.model().complete)
        self.assert_red_and_blue_on_host1()

    def test_a_sub_port_of_a_trunk_counts(self):
        parent, = (port for port in self.neutron.list_ports(True)['ports']
                   if port['device_id'] == self.server['id'])
        sub_port = {**parent, 'id': uuidutils.generate_uuid(),
                    'device_id': '', 'device_owner': 'trunk:subport',
                    'network_id': self.blue}
        self.neutron._ports[sub_port['id']] = sub_port
        self.api_of_neutron.trunks.append({
            'id': uuidutils.generate_uuid(), 'port_id': parent['id'],
            'sub_ports': [{'port_id': sub_port['id'],
                           'segmentation_type': 'vlan',
                           'segmentation_id': 100}]})
        self.model()
        self.assert_red_and_blue_on_host1()
