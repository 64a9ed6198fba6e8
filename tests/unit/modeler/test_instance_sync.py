# SPDX-License-Identifier: Apache-2.0

import datetime
import logging
import os
import pathlib
from unittest import mock

import fixtures

from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import nova_api
from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.modeler import instance_sync
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import attachments

NOW = nova_api.NOW
iso = nova_api.iso
Cloud = nova_api.NovaApi

#: Of an instance that has no interface at all.
NONE = attachments.Attachments()


class InventoryTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.enterContext(Cloud())
        self.now = NOW + 1000
        self.source = self.make_source()

    def make_source(self, **more):
        return instance_sync.make_source(access={
            'url': self.cloud.url + '/v2.1', 'retries': 1,
            'auth': {'auth_type': 'none', 'endpoint': self.cloud.url},
            'backoff_seconds': 0.0, 'requests_per_second': 1000.0,
            'timeout_seconds': 5.0}, **more)

    def make_source_with_networks(self):
        return self.make_source(network_url=self.cloud.url,
                                read_networks=True)

    def attached(self):
        """Return {instance uuid: its Attachments} in the store."""
        return {uuid: placement.attachments for uuid, placement
                in self.store.placements().items()}

    def update(self, source=None, complete_seconds=1e6, **more):
        self.now += 300
        return instance_sync.update(self.store, source or self.source,
                                    lambda: self.now, complete_seconds,
                                    **more)

    def places(self):
        return {uuid: (placement.host, placement.flavor, placement.project)
                for uuid, placement in self.store.placements().items()}


class NovaTestCase(InventoryTestCase):

    def test_the_state_and_the_start_of_instances_are_read(self):
        for number, (state, status, running) in enumerate((
                (1, 'ACTIVE', True), (4, 'SHUTOFF', False),
                (3, 'PAUSED', False), (7, 'SUSPENDED', False),
                (0, 'BUILD', False), (0, 'ACTIVE', None),
                (None, 'ACTIVE', None)), 1):
            uuid = self.cloud.put(number, status=status, at=50.0)
            self.cloud.servers[uuid].update({
                'OS-EXT-STS:power_state': state, 'created': iso(NOW),
                'OS-SRV-USG:launched_at': (
                    '2023-11-14T22:13:30.000000' if running else None)})
            self.update()
            placement = self.store.placements()[uuid]
            self.assertEqual((f'server {number}', running),
                             (placement.name, placement.running))
            [stay] = self.store.stays()[uuid]
            # Launched ten seconds after NOW, or made then.
            self.assertEqual((NOW + (10 if running else 0), running),
                             (stay.since, stay.running))

    def test_an_instance_moves_when_nova_reports_another_host(self):
        uuid = self.cloud.put(1, 'h1')
        self.update()
        self.cloud.put(1, 'h2', at=1500.0)
        self.now += 300.0
        self.update()
        self.assertEqual(
            ['h1', 'h2'], [stay.host for stay in self.store.stays()[uuid]])
        self.assertEqual(NOW + 1500.0,
                         self.store.stays()[uuid][1].since)

    def test_all_pages_are_read(self):
        self.cloud.most = 7
        for number in range(30):
            self.cloud.put(number, f'h{number % 3}', f'f{number % 2}')
        self.cloud.put(30, None, status='ERROR')
        outcome = self.update()
        self.assertEqual(instance_sync.InventoryUpdate(True, 31, 31, 0),
                         outcome)
        self.assertEqual(
            {base.instance_uuid(n): (f'h{n % 3}', f'f{n % 2}', 'p')
             for n in range(30)} | {base.instance_uuid(30): (None, 'f', 'p')},
            self.places())
        self.assertEqual(5, len(self.cloud.asked()))
        self.assertEqual(['True'], self.cloud.asked()[0]['all_tenants'])

    def test_a_later_pass_reads_and_writes_what_has_changed(self):
        uuids = [self.cloud.put(n, at=n) for n in range(3)]
        self.update()
        generation = self.store.generation()
        # Nothing new: the overlap is read again, and nothing is written.
        self.assertEqual(instance_sync.InventoryUpdate(False, 3, 0, 0),
                         self.update())
        self.assertEqual(generation, self.store.generation())
        [since] = self.cloud.asked()[-1]['changes-since']
        self.assertEqual(
            NOW + 2 - instance_sync.OVERLAP_SECONDS,
            datetime.datetime.fromisoformat(since).timestamp())
        self.cloud.put(0, 'h2', 'large', at=500)
        self.cloud.put(5, 'h3', at=501)
        self.cloud.delete(uuids[1], 502)
        self.assertEqual(instance_sync.InventoryUpdate(False, 4, 2, 1),
                         self.update())
        self.assertEqual(
            {uuids[0]: ('h2', 'large', 'p'), uuids[2]: ('h1', 'f', 'p'),
             base.instance_uuid(5): ('h3', 'f', 'p')}, self.places())
        self.assertEqual(NOW + 502, self.store.inventory().changed_until)
        self.assertEqual(self.now, self.store.inventory().seen_at)

    def test_everything_is_read_again_after_a_while_or_elsewhere(self):
        self.cloud.put(1)
        self.update()
        self.assertFalse(self.update(complete_seconds=400).complete)
        self.assertTrue(self.update(complete_seconds=400).complete)
        self.now -= 10000
        self.assertTrue(self.update().complete)
        self.source.name = 'another one'
        self.assertTrue(self.update().complete)

    def test_without_changes_the_age_is_written_occasionally(self):
        self.cloud.put(1)
        self.update()
        inventory = self.store.inventory()
        self.update()
        self.assertEqual(inventory, self.store.inventory())
        self.now = inventory.seen_at + 3600
        self.update()
        later = self.store.inventory()
        self.assertEqual((self.now, inventory.complete_at),
                         (later.seen_at, later.complete_at))

    def test_a_missing_instance_is_removed_if_nova_does_not_have_it(self):
        uuids = [self.cloud.put(n) for n in range(4)]
        self.update()
        # Cells may be left out of a list.
        del self.cloud.servers[uuids[0]]
        self.cloud.down = {uuids[2]}
        answer = self.cloud._page

        def page(kind, parameters, items):
            return answer(kind, parameters, [
                item for item in items if item['id'] != uuids[1]])

        self.cloud._page = page
        outcome = self.update(complete_seconds=0)
        self.assertEqual(instance_sync.InventoryUpdate(True, 1, 0, 1), outcome)
        self.assertEqual(set(uuids[1:]), set(self.places()))
        self.assertEqual(('h1', 'f', 'p'), self.places()[uuids[2]])

    def test_an_unanswered_cell_is_read_again_soon(self):
        uuids = [self.cloud.put(n) for n in range(3)]
        self.update()
        self.cloud.down = set(uuids[:1])
        self.now += 1e5
        self.update(complete_seconds=86400)
        self.cloud.down = set()
        # It moved meanwhile, and others changed later.
        self.cloud.put(0, 'h7', at=1000)
        self.cloud.put(1, 'h8', at=9000)
        self.assertFalse(self.update(complete_seconds=86400).complete)
        self.now += 3600
        self.assertTrue(self.update(complete_seconds=86400).complete)
        self.assertEqual('h7', self.places()[uuids[0]][0])
        self.now += 3600
        self.assertFalse(self.update(complete_seconds=86400).complete)

    def test_a_failure_leaves_the_inventory_unchanged(self):
        def with_servers(change):
            return [stand_ins.changed(lambda answer: {
                **answer, 'servers': list(map(change, answer['servers']))
            })] * 2

        self.cloud.most = 2
        for number in range(5):
            self.cloud.put(number)
        self.update()
        before = self.store.generation(), self.places()
        self.cloud.put(9, at=700)
        for faults, message in (
                ([None, stand_ins.status(503), stand_ins.status(503)], '503'),
                ([stand_ins.closed] * 2, 'servers'),
                ([None, stand_ins.cut, stand_ins.cut], 'ends early'),
                ([stand_ins.body(b'{"servers": [{"id": "x"}]}')] * 2,
                 'an invalid response'),
                ([stand_ins.status(403)], '403'),
                (with_servers(lambda server: {
                    **server, 'OS-EXT-SRV-ATTR:host': None, 'updated': 'x'}),
                 'an invalid response'),
                (with_servers(lambda server: {
                    key: value for key, value in server.items()
                    if ':host' not in key}), 'not an administrator')):
            for complete_seconds in (0, 1e6):
                self.cloud.faults[:] = faults
                with self.subTest(message), self.assertRaisesRegex(
                        exceptions.TelemetryError, message):
                    self.update(complete_seconds=complete_seconds)
                self.assertEqual(before, (self.store.generation(),
                                          self.places()))
        self.cloud.faults[:] = [stand_ins.status(503), None]
        self.assertEqual(1, self.update().written)

    def test_pages_without_progress_are_an_error(self):
        self.cloud.most = 2
        for number in range(5):
            self.cloud.put(number)
        answer = self.cloud._page
        self.cloud._page = lambda kind, parameters, items: answer(
            kind, {'limit': parameters['limit']}, items)
        with self.assertRaisesRegex(exceptions.TelemetryError, 'two pages'):
            self.update()
        self.cloud._page = lambda *_: (200, {
            'servers': [{'id': 'a'}, {'id': 'a'}]})
        with self.assertRaisesRegex(exceptions.TelemetryError, 'two servers'):
            self.update()

    def test_errors_other_than_not_found_are_errors(self):
        self.cloud.put(1)
        self.update()
        self.cloud.servers.clear()
        self.cloud.faults[:] = [None, stand_ins.status(400)]
        with self.assertRaisesRegex(exceptions.TelemetryError, '400'):
            self.update(complete_seconds=0)
        self.assertEqual(1, len(self.places()))

    def test_networks_are_those_of_the_ports(self):
        source = self.make_source_with_networks()
        self.cloud.most = 2
        uuids = [self.cloud.put(n) for n in range(60)]
        for number, network in ((0, 'b'), (0, 'a'), (0, 'b'), (1, 'c')):
            self.cloud.attach(uuids[number], network)
        self.update(source)
        networks = {uuid: placement.networks for uuid, placement
                    in self.store.placements().items() if placement.networks}
        self.assertEqual({uuids[0]: ('a', 'b', 'b'), uuids[1]: ('c',)},
                         networks)
        # Four ports on pages of two.
        self.assertEqual(2, len(self.cloud.asked('/v2.0/ports')))
        self.cloud.attach(uuids[1], 'd')
        self.update(source)
        self.assertEqual(5, len(self.cloud.asked('/v2.0/ports')))
        self.assertEqual(
            ('c', 'd'), self.store.placements()[uuids[1]].networks)

    def test_instances_without_tunnel_or_with_a_function_are_marked(self):
        source = self.make_source_with_networks()
        uuids = [self.cloud.put(n) for n in range(3)]
        for network, kind in (('flat', 'flat'), ('vlan', 'vlan'),
                              ('red', 'vxlan'), ('odd', None)):
            self.cloud.networks.append(
                {'id': network, 'provider:network_type': kind}
                if kind else {'id': network})
        for number, network, vnic in (
                (0, 'vlan', 'direct'), (0, 'red', 'normal'),
                (0, 'red', 'macvtap'), (1, 'flat', 'normal'),
                (1, 'odd', 'normal'), (1, 'unlisted', None)):
            self.cloud.attach(uuids[number], network, vnic)
        expected = {
            uuids[0]: attachments.Attachments(('red', 'red'), ('vlan',), 2),
            uuids[1]: attachments.Attachments(('odd', 'unlisted'), ('flat',)),
            uuids[2]: NONE}

        # Nobody knows while Neutron is not asked; then all are read anew.
        self.update()
        self.assertEqual(dict.fromkeys(uuids), self.attached())
        self.assertTrue(self.update(source).complete)
        self.assertEqual(expected, self.attached())
        # The type of a network does not change: it is read once.
        asked = len(self.cloud.asked('/v2.0/networks'))
        self.cloud.ports[0]['network_id'] = 'red'
        self.cloud.put(0, at=500)
        self.assertFalse(self.update(source).complete)
        self.assertEqual(attachments.Attachments(('red',) * 3, (), 2),
                         self.attached()[uuids[0]])
        self.assertEqual(asked, len(self.cloud.asked('/v2.0/networks')))
        self.cloud.ports[0]['network_id'] = 'new'
        self.update(source)
        self.assertEqual(['new'], self.cloud.asked('/v2.0/networks')[-1]['id'])

    def attached_after(self, complete):
        """Return what is attached after a reading."""
        self.update(self.make_source_with_networks(),
                    complete_seconds=0 if complete else 1e6)
        return self.attached()

    def test_ports_of_other_projects_do_not_count(self):
        for complete in (True, False):
            with self.subTest(complete=complete):
                victim = self.cloud.put(0, at=500)
                self.cloud.ports.clear()
                self.cloud.attach(victim, f'net {complete}')
                # Not bound, bound elsewhere, bound to the same host by an
                # instance of another project, with the victim's address.
                mac = self.cloud.ports[0]['mac_address']
                for host in ('', 'h2', 'h1'):
                    for number in range(20):
                        self.cloud.attach(victim, 'net', 'direct', host,
                                          'attacker', listed=False)
                    self.cloud.attach(victim, 'a', 'direct', host, 'attacker',
                                      mac, listed=False)
                self.assertEqual(
                    {victim: attachments.Attachments((f'net {complete}',))},
                    self.attached_after(complete))

    def test_ports_that_name_another_device_count_for_their_instance(self):
        for complete in (True, False):
            with self.subTest(complete=complete):
                mine = self.cloud.put(0, at=500)
                self.cloud.ports.clear()
                for number in range(20):
                    self.cloud.attach(mine, f'{complete}{number % 2}',
                                      'direct')
                    self.cloud.ports[-1]['device_id'] = (
                        '', 'nobody', base.instance_uuid(7))[number % 3]
                self.assertEqual(
                    {mine: attachments.Attachments(
                        (f'{complete}0',) * 10 + (f'{complete}1',) * 10,
                        (), 20)},
                    self.attached_after(complete))

    def test_an_interface_without_a_port_counts_as_unknown(self):
        mine = self.cloud.put(0)
        self.cloud.attach(mine, 'net')
        self.cloud.ports.clear()
        self.cloud.servers[mine]['addresses']['no address'] = []
        self.assertEqual(
            {mine: attachments.Attachments((None, None), (), 2)},
            self.attached_after(True))
        self.cloud.attach(mine, 'other', listed=False)
        self.assertEqual(
            {mine: attachments.Attachments((None, 'other'), (), 1)},
            self.attached_after(True))

    def test_two_addresses_of_one_interface_are_one_interface(self):
        mine = self.cloud.put(0)
        self.cloud.attach(mine, 'net')
        addresses, = self.cloud.servers[mine]['addresses'].values()
        addresses.append({**addresses[0], 'addr': '2001:db8::1',
                          'version': 6})
        self.assertEqual({mine: attachments.Attachments(('net',))},
                         self.attached_after(True))

    def test_without_bindings_no_port_counts(self):
        self.cloud.put(0)
        del self.cloud.attach(base.instance_uuid(0), 'n')['binding:host_id']
        with self.assertRaisesRegex(exceptions.TelemetryError,
                                    'no binding:host_id.* administrator'):
            self.attached_after(True)

    def test_secrets_are_not_shown(self):
        source = instance_sync.make_source(access={
            'auth': {'auth_type': 'v3password', 'password': 'hush',
                     'auth_url': self.cloud.url, 'username': 'nova'},
            'region_name': 'north', 'retries': 0})
        self.assertEqual('nova of the catalog in north', source.name)
        logs = fixtures.FakeLogger(level=logging.DEBUG)
        with logs, self.assertRaises(exceptions.TelemetryError) as caught:
            self.update(source)
        self.assertNotIn('hush', f'{caught.exception} {source!r} '
                                 f'{logs.output}')


def grouped(*groups):
    """Return a port's request for resources, as Neutron has since Yoga."""
    return {'same_subtree': [], 'request_groups': [
        {'id': str(number), 'required': ['CUSTOM_PHYSNET_A'],
         'resources': resources} for number, resources in enumerate(groups)]}


class PortsTestCase(InventoryTestCase):
    """What of ports changes while Nova reports no change of instances."""

    def setUp(self):
        super().setUp()
        self.source = self.make_source_with_networks()
        self.uuids = [self.cloud.put(n) for n in range(4)]
        # Later readings do not list the others again.
        self.cloud.put(9, at=instance_sync.OVERLAP_SECONDS + 1)

    def stored(self, number=0):
        return self.store.placements()[self.uuids[number]]

    def assert_stored(self, networks, *guaranteed):
        """Check networks and guaranteed rates of the first instance."""
        stored = self.stored()
        self.assertEqual((networks, guaranteed or (0.0, 0.0, 0.0)),
                         (stored.networks, stored.guaranteed))

    def attach(self, network, egress_kbps=None, number=0, **more):
        port = self.cloud.attach(self.uuids[number], network, **more)
        port['resource_request'] = egress_kbps and grouped(
            {'NET_BW_EGR_KILOBIT_PER_SEC': egress_kbps})
        return port

    def singles(self):
        return [path for _, path, _, _ in self.cloud.requests
                if path.startswith('/v2.1/servers/')
                and path != '/v2.1/servers/detail']

    def test_both_forms_of_requests_are_summed(self):
        self.attach('red')['resource_request'] = {
            'required': ['CUSTOM_PHYSNET_A'], 'resources': {
                'NET_BW_EGR_KILOBIT_PER_SEC': 100,
                'NET_BW_IGR_KILOBIT_PER_SEC': 20}}
        self.attach('red')['resource_request'] = grouped(
            {'NET_BW_EGR_KILOBIT_PER_SEC': 3},
            {'NET_PACKET_RATE_KILOPACKET_PER_SEC': 5})
        self.attach('red')
        self.attach('blue', number=1)['resource_request'] = {}
        self.update()
        self.assertEqual((103.0, 20.0, 5.0), self.stored().guaranteed)
        # No port, or none with a policy, guarantees nothing.
        self.assertEqual([(0.0, 0.0, 0.0)] * 2, [
            self.stored(number).guaranteed for number in (1, 2)])

    def test_guarantees_that_may_not_be_read_are_unknown(self):
        self.cloud.attach(self.uuids[0], 'red')
        self.cloud.attach(self.uuids[1], 'red')
        self.attach('red', 7, number=1)
        self.update()
        self.assertIsNone(self.stored(0).guaranteed)
        self.assertEqual((7.0, 0.0, 0.0), self.stored(1).guaranteed)

    def test_attaching_and_detaching_a_port_is_followed(self):
        self.attach('red')
        self.update()
        generation = self.store.generation()
        port = self.attach('blue', 50)
        self.assertEqual(1, self.update().written)
        self.assert_stored(('blue', 'red'), 50.0, 0.0, 0.0)
        self.assertNotEqual(generation, self.store.generation())
        port.update({'device_id': '', 'binding:host_id': ''})
        self.cloud.servers[self.uuids[0]]['addresses'].pop('net blue')
        self.assertEqual(1, self.update().written)
        self.assert_stored(('red',))
        # Nothing is written or asked of Nova while nothing changes.
        generation = self.store.generation()
        asked = len(self.singles())
        for _ in range(2):
            self.assertEqual(0, self.update().written)
        self.assertEqual(generation, self.store.generation())
        self.assertEqual(asked, len(self.singles()))

    def test_another_policy_changes_the_guarantee_without_nova(self):
        port = self.attach('red', 50)
        self.update()
        port['resource_request'] = grouped({'NET_BW_IGR_KILOBIT_PER_SEC': 9})
        self.assertEqual(1, self.update().written)
        self.assert_stored(('red',), 0.0, 9.0, 0.0)
        port['resource_request'] = None
        self.update()
        self.assert_stored(('red',))
        self.assertEqual([], self.singles())

    def test_a_port_that_names_another_device_is_followed(self):
        # Nova lists the address; a tenant has changed the device.
        port = self.attach('red', 50)
        port['device_id'] = 'nobody'
        self.update()
        self.assert_stored(('red',), 50.0, 0.0, 0.0)
        port['resource_request'] = None
        self.update()
        self.assert_stored(('red',))

    def test_foreign_ports_change_nothing(self):
        self.attach('red')
        self.update()
        for host in ('h1', 'h2'):
            self.attach('spy', 99, host=host, project='attacker',
                        listed=False)
        self.assertEqual(0, self.update().written)
        self.assertEqual(('red',), self.stored().networks)

    def test_ports_are_read_at_their_own_interval(self):
        self.attach('red', 5)
        self.update()
        asked = len(self.cloud.asked('/v2.0/ports'))
        self.attach('blue')
        moved = self.cloud.put(3, 'h2', at=900)
        for _ in range(2):
            self.update(ports_seconds=900)
        self.assertEqual(asked, len(self.cloud.asked('/v2.0/ports')))
        # What is stored about ports stays, also of what has moved.
        self.assertEqual('h2', self.store.placements()[moved].host)
        self.assertEqual(NONE, self.store.placements()[moved].attachments)
        self.assert_stored(('red',), 5.0, 0.0, 0.0)
        self.update(ports_seconds=900)
        self.assertEqual(asked + 1, len(self.cloud.asked('/v2.0/ports')))
        self.assertEqual(('blue', 'red'), self.stored().networks)

    def test_an_instance_between_two_readings_counts_its_addresses(self):
        self.update()
        # Nova lists it while ports are not read, and has an address for it.
        self.uuids.append(self.cloud.put(5, at=1200))
        self.attach('red', number=4, project='another')
        self.update(ports_seconds=900)
        self.assertIsNone(self.stored(4).attachments)
        self.cloud.put(6, at=9000)
        self.update(ports_seconds=900)
        self.update(ports_seconds=900)
        self.assertEqual(('red',), self.stored(4).networks)
        self.assertEqual([], self.singles())

    def test_another_process_continues(self):
        self.attach('red', 5)
        foreign = self.attach('blue', project='another', number=1)
        self.update()
        generation = self.store.generation()
        self.source = self.make_source_with_networks()
        self.assertEqual(0, self.update().written)
        self.assertEqual(generation, self.store.generation())
        # Only Nova knows that the port of another project counts.
        self.assertEqual(['/v2.1/servers/' + self.uuids[1]], self.singles())
        self.update()
        self.assertEqual(1, len(self.singles()))
        foreign['network_id'] = 'green'
        self.update()
        self.assertEqual(('green',), self.stored(1).networks)

    def test_the_number_of_requests_to_nova_is_limited(self):
        self.update()
        for number in range(4):
            self.attach('red', number=number)
        self.enterContext(mock.patch.object(instance_sync, '_MOST_ASKED', 3))
        self.assertEqual(3, self.update().written)
        self.assertEqual(1, self.update().written)
        # One that had to wait is the first at the next reading.
        for networks in (('red',), ('blue', 'blue', 'red')):
            for number in range(4):
                self.attach('blue', number=number)
            self.update()
            self.assertEqual(networks, self.stored(3).networks)

    def test_a_deleted_instance_is_left_to_the_next_reading(self):
        self.update()
        self.attach('red')
        self.cloud.servers[self.uuids[0]]['status'] = 'DELETED'
        self.assertEqual(0, self.update().written)
        self.cloud.delete(self.uuids[0], 9000)
        self.assertEqual(1, self.update().removed)

    def test_changes_that_could_not_be_written_are_written_later(self):
        self.update()
        self.attach('red')
        with mock.patch.object(self.store, 'write',
                               side_effect=exceptions.StoreError('full')):
            with self.assertRaises(exceptions.StoreError):
                self.update()
        self.update()
        self.assertEqual(('red',), self.stored().networks)

    def test_sub_ports_of_a_trunk_count_for_the_instance_of_its_parent(self):
        self.cloud.networks = [
            {'id': 'vlan', 'provider:network_type': 'vlan'}]
        parent = self.attach('red', vnic='direct')
        self.update()
        self.cloud.trunk(parent, ('s1', 'blue'), ('s2', 'vlan'),
                         ('s3', 'blue'))
        self.cloud.trunk({**parent, 'id': 'unused'}, ('s4', 'green'))
        self.cloud.ports[1]['resource_request'] = grouped(
            {'NET_BW_EGR_KILOBIT_PER_SEC': 7})
        for _ in range(2):
            self.update()
            self.assertEqual(
                attachments.Attachments(('blue', 'blue', 'red'), ('vlan',),
                                        1), self.stored().attachments)
            self.assertEqual((7.0, 0.0, 0.0), self.stored().guaranteed)
        # A sub-port that goes, and one that is not among the ports (yet).
        sub_ports = self.cloud.trunks[0]['sub_ports']
        del sub_ports[:2]
        sub_ports.append({**sub_ports[0], 'port_id': 'new'})
        self.update()
        self.assertEqual(
            attachments.Attachments((None, 'blue', 'red'), (), 1),
            self.stored().attachments)
        del self.cloud.trunks[0]
        self.update()
        self.assertEqual(attachments.Attachments(('red',), (), 1),
                         self.stored().attachments)

    def test_a_sub_port_never_replaces_its_parent(self):
        # They have one address. Nova lists it for a port of another project.
        parent = self.attach('red', project='another')
        self.cloud.trunk(parent, ('a first', 'blue'))
        self.update()
        self.assertEqual(('blue', 'red'), self.stored().networks)

    def test_all_pages_of_trunks_are_read(self):
        self.cloud.most = 1
        for number in range(3):
            self.cloud.trunk(self.attach('red', number=number),
                             (f's{number}', 'blue'))
        self.update()
        self.assertEqual([('blue', 'red')] * 3, [
            self.stored(number).networks for number in range(3)])

    def test_errors_of_trunks_are_errors(self):
        self.update()
        answer = self.cloud.answer
        self.cloud.answer = lambda method, path, *more: (
            (500, {}) if path == '/v2.0/trunks'
            else answer(method, path, *more))
        with self.assertRaises(exceptions.TelemetryError):
            self.update()


class FileTestCase(InventoryTestCase):

    def write(self, *lines):
        path = os.path.join(self.directory, 'inventory.csv')
        pathlib.Path(path).write_text('\n'.join(lines) + '\n')
        return instance_sync.make_source(path=path)

    def test_a_file_is_read_completely(self):
        source = self.write('instance_uuid,host,flavor,project,networks',
                            'a,h1,f,p,n2 n1', 'b,,,,')
        self.assertEqual(instance_sync.InventoryUpdate(True, 2, 2, 0),
                         self.update(source))
        self.assertEqual(
            {'a': store.InstanceRecord(
                'a', 'h1', 'f', 'p', attachments.Attachments(('n1', 'n2'))),
             'b': store.InstanceRecord('b', None, attachments=NONE)},
            self.store.placements())
        # Without the column, attachments are unknown.
        source = self.write('instance_uuid,host', 'a,h2')
        self.assertEqual(instance_sync.InventoryUpdate(True, 1, 1, 1),
                         self.update(source))
        self.assertEqual({'a': store.InstanceRecord('a', 'h2')},
                         self.store.placements())

    def test_a_file_that_cannot_be_read_changes_nothing(self):
        self.update(self.write('instance_uuid,host', 'a,h1'))
        for lines in (['uuid', 'a'], ['instance_uuid'], ['\0'],
                      ['instance_uuid', 'x' * 40], ['']):
            with self.subTest(lines[0]), self.assertRaises(
                    exceptions.TelemetryError):
                source = self.write(*lines)
                if lines[-1] == '':
                    os.unlink(os.path.join(self.directory, 'inventory.csv'))
                self.update(source)
        self.assertEqual({'a': ('h1', None, None)}, self.places())
