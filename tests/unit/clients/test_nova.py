# SPDX-License-Identifier: Apache-2.0

import dataclasses
import unittest
from unittest import mock

from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import nova_hosts
from tests.unit.budgets import fleet
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.clients import placement
from vswitch_aware_scheduler.common import exceptions


class NovaTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.enterContext(nova_hosts.NovaHosts())
        self.access = self.cloud.access()

    def read(self):
        return nova.read_cloud(self.access, 'vswitch:')

    def test_aggregates_have_all_their_metadata(self):
        self.cloud.host('h1', profile='slow')
        self.cloud.aggregates.append(('all', {'other': '1'}, ['h1', 'h2']))
        self.assertEqual([
            {'name': 'of h1', 'hosts': ['h1'], 'metadata': {
                'availability_zone': 'nova', 'vswitch:profile': 'slow'}},
            {'name': 'all', 'hosts': ['h1', 'h2'], 'metadata': {'other': '1'}},
        ], list(nova.read_aggregates(self.access).values()))

    def test_a_migration_whose_answer_is_lost_is_requested_once(self):
        for fault in (stand_ins.closed, stand_ins.status(503)):
            self.cloud.requests.clear()
            self.cloud.faults[:] = [fault] * 4
            cloud = nova.CloudApi(dataclasses.replace(
                self.access, retries=3, connect_retries=3,
                backoff_seconds=0.0), self.access)
            with self.assertRaises(exceptions.TelemetryError):
                cloud.live_migrate('a-server', 'h1', False)
            self.assertEqual(['POST'], [
                method for method, *_ in self.cloud.requests])

    def test_only_keys_of_flavors_with_the_prefix_are_returned(self):
        self.cloud.flavors = {'small': {'vswitch:egress_kbps': '7',
                                        'hw:secret': '1'}, 'other': {}}
        cloud = self.read()
        self.assertEqual({'small': {'vswitch:egress_kbps': '7'},
                          'other': {}}, cloud['flavor'])

    def test_all_pages_are_read(self):
        for number in range(5):
            self.cloud.host(f'h{number}')
            self.cloud.flavors[f'f{number}'] = {}
        self.cloud.types['h3'] = 'ironic'
        with mock.patch.object(nova, 'PAGE', 2):
            cloud = self.read()
        self.assertEqual({f'h{number}': number == 3 for number in range(5)},
                         dict(cloud['node'].values()))
        self.assertEqual({f'f{number}' for number in range(5)},
                         cloud['flavor'].keys())

    def test_a_list_without_end_ends_at_a_page_without_new_items(self):
        self.cloud.host('h1')
        answer = self.cloud.answer

        def circle(method, path, *more):
            status, body = answer(method, path, *more)
            if 'hypervisors' in path:
                body['hypervisors_links'] = [{'rel': 'next', 'href': 'x'}]
                body['hypervisors'] = body['hypervisors'] or begun
                begun[:] = body['hypervisors']
            return status, body

        begun = []
        with mock.patch.object(self.cloud, 'answer', circle):
            self.assertEqual([('h1', False)],
                             list(self.read()['node'].values()))

    def test_what_this_user_may_not_read_is_left_out(self):
        self.cloud.host('h1')
        answer = self.cloud.answer

        def refuse(method, path, *more):
            if path == '/v2.1/os-hypervisors/detail':
                return status, {}
            return answer(method, path, *more)

        with mock.patch.object(self.cloud, 'answer', refuse):
            status = 403
            self.assertEqual({'aggregate', 'flavor'}, self.read().keys())
            status = 404
            with self.assertRaises(exceptions.TelemetryError):
                self.read()


class CloudApiTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.nova = self.enterContext(fleet.Cloud('host1', 'host2'))
        self.cloud = self.nova.client()

    def shape(self, **flavor):
        uuid = self.nova.boot('vm', 'host1')
        self.nova.servers[uuid]['flavor'].update(flavor)
        return self.cloud.server(uuid).shape

    def test_what_placement_is_asked_for(self):
        self.assertEqual((1, 1024, 1), self.shape().amounts)
        # Swap is in MiB and rounded up to GiB, as Nova does.
        self.assertEqual((1, 1024, 1 + 5 + 2), self.shape(
            ephemeral=5, swap=1025).amounts)
        uuid = self.nova.boot('vm', 'host1', image='')
        self.assertEqual(0, self.cloud.server(uuid).shape.disk_gib)
        self.assertEqual(('!SLOW', 'FAST'), self.shape(extra_specs={
            'trait:FAST': 'required', 'trait:SLOW': 'forbidden',
            'hw:cpu_policy': 'shared'}).traits)

    def test_room_is_asked_with_traits_and_without_what_is_nothing(self):
        self.cloud.room(placement.Shape(2, 512, 0, ('FAST',)))
        parameters = self.nova.requests[-1][2]
        self.assertEqual(['VCPU:2,MEMORY_MB:512'], parameters['resources'])
        self.assertEqual(['FAST,!COMPUTE_STATUS_DISABLED'],
                         parameters['required'])
        self.nova.boot('large', 'host1', vcpus=15)
        self.assertEqual({fleet.uuid_of('host2'): (16, 65536, 100)},
                         self.cloud.room(placement.Shape(2, 512, 0)))

    def test_why_a_host_takes_nothing(self):
        for change, reason in (
                ({}, None), ({'state': 'down'}, 'down'),
                ({'status': 'disabled', 'disabled_reason': 'disk'},
                 'disabled: disk'), ({'forced_down': True}, 'forced down')):
            self.nova.services['host1'].update(change)
            self.assertEqual(reason,
                             self.cloud.services()['host1'].problem)
            self.nova.services['host1'].update(
                state='up', status='enabled', forced_down=False)

    def test_a_cell_that_is_down_has_no_servers(self):
        uuid = self.nova.boot('vm', 'host1')
        self.nova.servers[uuid]['status'] = 'UNKNOWN'
        self.assertEqual([], self.cloud.servers('host1'))
        with self.assertRaisesRegex(exceptions.TelemetryError,
                                    'its cell does not answer'):
            self.cloud.server(uuid)

    def test_a_deleted_server_is_none(self):
        uuid = self.nova.boot('vm', 'host1')
        # Nova shows this before it removes the instance.
        self.nova.servers[uuid]['OS-EXT-STS:vm_state'] = 'deleted'
        self.assertIsNone(self.cloud.server(uuid))
        del self.nova.servers[uuid]
        self.assertIsNone(self.cloud.server(uuid))

    def test_a_user_that_may_not_see_extra_specs_is_an_error(self):
        uuid = self.nova.boot('vm', 'host1')
        del self.nova.servers[uuid]['flavor']['extra_specs']
        with self.assertRaisesRegex(exceptions.TelemetryError,
                                    'show:flavor-extra-specs'):
            self.cloud.server(uuid)
        del self.nova.servers[uuid]['OS-EXT-SRV-ATTR:host']
        with self.assertRaisesRegex(exceptions.TelemetryError,
                                    'not an administrator'):
            self.cloud.server(uuid)

    def test_the_newest_migration_comes_first(self):
        for status in ('completed', 'Running'):
            self.nova.migration('vm', 'host1', 'host2', status)
        self.nova.migration('vm', 'host1', 'host2', kind='resize')
        self.nova.migration('other', 'host1', 'host2')
        migrations = self.cloud.live_migrations(fleet.uuid_of('vm'))
        self.assertEqual([(2, 'running', True), (1, 'completed', False)], [
            (migration.number, migration.status, migration.is_running)
            for migration in migrations])
        self.assertEqual(fleet.NOW, migrations[0].changed_at)
        self.assertEqual(4, len(self.cloud.migrations(since=0)))

    def test_groups_that_the_scheduler_enforces(self):
        self.nova.groups = [
            {'id': str(number), 'policy': policy, 'rules': rules,
             'members': ['a']} for number, (policy, rules) in enumerate((
                 ('affinity', {}), ('soft-anti-affinity', {}),
                 ('anti-affinity', {'max_server_per_host': 3})))]
        self.assertEqual(
            [('affinity', 1), ('anti-affinity', 3)],
            [(group.policy, group.most_members)
             for group in self.cloud.groups()])
