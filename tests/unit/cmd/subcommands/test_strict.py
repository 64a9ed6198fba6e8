# SPDX-License-Identifier: Apache-2.0

import time
from unittest import mock

from tests.fakes import placement_api
from tests.unit.cmd import command_case
from tests.unit.cmd import commands
from vswitch_aware_scheduler.modeler import placement_inventory


class StrictTestCase(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.enterContext(placement_api.PlacementApi())
        self.configure()
        for host, total in (('h1', 1000), ('h2', 2000)):
            node = self.cloud.host(host)
            uuid = placement_inventory.provider_uuid(node)
            self.cloud.providers[uuid] = placement_api.Provider(
                f'node-{host}:vswitch', node, 0, {
                    placement_api.CLASS: {
                        'total': total, 'reserved': 100, 'min_unit': 1,
                        'allocation_ratio': 1.0}})
            self.cloud.allocate(f'on-{host}', node, total // 2)

    def configure(self, *lines):
        self._configure(
            *lines, '[vswitch_inventory]', 'auth_type = none', 'retries = 0',
            'requests_per_second = 1000',
            f'endpoint = {self.cloud.url}', f'url = {self.cloud.url}/v2.1',
            f'placement_url = {self.cloud.url}/placement')

    def test_what_placement_keeps_is_shown(self):
        self.assertEqual(
            [{'provider': 'node-h1:vswitch', 'total': 1000, 'reserved': 100,
              'used': 500, 'free': 400},
             {'provider': 'node-h2:vswitch', 'total': 2000, 'reserved': 100,
              'used': 1000, 'free': 900}], self.ask('strict', 'show'))
        _, output, _ = self.run_command('strict', 'show')
        self.assertEqual(
            [['PROVIDER', 'TOTAL', 'RESERVED', 'USED', 'FREE'],
             ['node-h1:vswitch', '1000', '100', '500', '400'],
             ['node-h2:vswitch', '2000', '100', '1000', '900']],
            commands.table(output))
        self.assertEqual([900], [inventory['free'] for inventory in self.ask(
            'strict', 'show', '--host', 'node-h2')])

    def test_inventories_are_removed_from_placement(self):
        providers = set(self.cloud.providers)
        self.assertEqual(
            {'inventories': 2, 'allocations': 2, 'providers': 0,
             'detached': 0},
            self.ask('strict', 'disable'))
        # nova-compute would miss a provider that it knows.
        self.assertEqual(providers, set(self.cloud.providers))
        self.assertEqual([], self.ask('strict', 'show'))
        _, output, _ = self.run_command('strict', 'disable')
        self.assertEqual('Removed 0 inventories, 0 allocations and 0 '
                         'providers.\n', output)

    def test_the_providers_go_when_asked_for(self):
        _, output, _ = self.run_command('strict', 'disable', '--providers')
        self.assertRegex(output, r'^Removed 2 inventories, 2 allocations and '
                                 r'0 providers.\nDetached 2 providers')
        self.assertIn('after 15 minutes', output)
        later = time.time() + 901
        with mock.patch.object(
            placement_inventory.time, 'time', lambda: later
        ):
            _, output, _ = self.run_command('strict', 'disable',
                                            '--providers')
        self.assertEqual(set(self.cloud.hosts), set(self.cloud.providers))
        self.assertEqual('Removed 0 inventories, 0 allocations and 2 '
                         'providers.\n', output)

    def test_inventories_are_not_removed_while_the_mode_is_on(self):
        self.configure('strict = true')
        self.assert_fails('strict in the group .*: true; expected', 'strict',
                          'disable')
        self.assertEqual([], self.cloud.writes())

    def test_the_command_needs_the_user_of_the_inventory(self):
        self._configure()
        self.assert_fails('auth_type in the group', 'strict', 'show')
