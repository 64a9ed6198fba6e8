# SPDX-License-Identifier: Apache-2.0

import unittest

from tests.unit.budgets import fleet
from vswitch_aware_scheduler.budgets import cloud_api
from vswitch_aware_scheduler.common import exceptions


class CloudTestCase(unittest.TestCase):

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
        self.cloud.room(cloud_api.Shape(2, 512, 0, ('FAST',)))
        parameters = self.nova.requests[-1][2]
        self.assertEqual(['VCPU:2,MEMORY_MB:512'], parameters['resources'])
        self.assertEqual(['FAST,!COMPUTE_STATUS_DISABLED'],
                         parameters['required'])
        self.nova.boot('large', 'host1', vcpus=15)
        self.assertEqual({fleet.uuid_of('host2'): (16, 65536, 100)},
                         self.cloud.room(cloud_api.Shape(2, 512, 0)))

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
