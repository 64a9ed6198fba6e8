# SPDX-License-Identifier: Apache-2.0
"""Nova's own API tells the modeler which instance is where."""

import os
import time

# Before the rest of nova, as in tests.functional.base.
import nova.tests.functional  # noqa: F401

import fixtures
from nova.tests import fixtures as nova_fixtures

from tests.fakes import keystone as fake_keystone
from tests.fakes import store as fake_store
from tests.functional import base
from vswitch_aware_scheduler.clients import nova as nova_client
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.modeler import instance_sync
from vswitch_aware_scheduler import store


class InventoryTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def setUp(self):
        super().setUp()
        self.keystone = self.useFixture(fake_keystone.Keystone())
        self.useFixture(fixtures.MockPatchObject(nova_client, 'PAGE', 2))
        # Apart from the scheduler's: what it knows is not to matter here.
        url = 'sqlite:///' + os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'inventory.sqlite')
        fake_store.make_empty(url)
        self.known = store.Store(url)
        self.source = instance_sync.make_source(access={
            'url': self.admin_api.base_url, 'auth': {'auth_type': 'fixture'},
            'retries': 0})

    def update(self, complete_seconds=1e9):
        return instance_sync.update(self.known, self.source, time.time,
                                    complete_seconds)

    def places(self):
        return {uuid: (record.host, record.flavor) for uuid, record
                in self.known.placements().items()}

    def test_the_inventory_follows_the_operations_of_nova(self):
        flavor, larger = self.flavor('small'), self.flavor('large')
        servers = self.boot_many(flavor, 5)
        outcome = self.update()
        self.assertEqual((True, 5, 5, 0), (
            outcome.complete, outcome.reported, outcome.written,
            outcome.removed))
        expected = {server['id']: (self.host_of(server), 'small')
                    for server in servers}
        self.assertEqual(expected, self.places())
        self.assertEqual(
            {server['tenant_id'] for server in servers},
            {record.project for record in self.known.placements().values()})
        generation = self.known.generation()
        self.assertFalse(self.update().complete)
        self.assertEqual(generation, self.known.generation())

        self.delete(*servers[:3])
        for server in servers[:3]:
            del expected[server['id']]
        self.confirm(self.resize(servers[3], larger))
        expected[servers[3]['id']] = (self.host_of(servers[3]), 'large')
        outcome = self.update()
        self.assertEqual((False, 3), (outcome.complete, outcome.removed))
        self.assertEqual(expected, self.places())

        # Nova does not know what is not its own.
        self.known.write(placements=[store.InstanceRecord('0' * 36, 'host9')])
        self.assertEqual(1, self.update(complete_seconds=0).removed)
        self.assertEqual(expected, self.places())

    def test_a_user_without_administrator_role_is_an_error(self):
        self.boot(self.flavor('small'))
        self.update()
        before = self.places()
        self.keystone.administrator.roles = 'member,reader'
        with self.assertRaisesRegex(exceptions.TelemetryError,
                                    'HTTP 403|administrator'):
            self.update(complete_seconds=0)
        self.assertEqual(before, self.places())

    def test_a_cell_that_is_down_keeps_what_it_had(self):
        flavor = self.flavor('small')
        servers = [self.boot(flavor) for _ in range(3)]
        self.update()
        before = self.places()
        self.assertEqual(3, len(before))
        with nova_fixtures.DownCellFixture():
            for complete_seconds in (0, 1e9):
                # Nova answers, and knows of none.
                outcome = self.update(complete_seconds)
                self.assertEqual(0, outcome.reported)
                self.assertEqual((0, 0), (outcome.written, outcome.removed))
        self.assertEqual(before, self.places())
        self.delete(servers[0])
        self.assertEqual(1, self.update().removed)
