# SPDX-License-Identifier: Apache-2.0

import os
import pathlib

from tests.unit.cmd import command_case


class GatewayCommandTestCase(command_case.ManageTestCase):

    SITE = (
        'gateways: {g: {interfaces: 48, mapping_entries: 96}}\n'
        'silos: {s: {interface_groups: {all: {g: 48}}}}\n'
        'tenants: {t: {networks: {web: {silos: [s]}, db: {silos: [s]}}}}\n')

    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.directory, 'site.yaml')
        pathlib.Path(self.file).write_text(self.SITE)

    def test_a_plan_is_printed(self):
        answer = self.ask('gateway', 'plan', self.file)
        self.assertEqual([('web', 4096, {'all': 2}),
                          ('db', 4097, {'all': 3})], [
            (network['network'], network['vni'], network['vlans'])
            for network in answer['networks']])
        self.assert_holds(answer['gateways']['g'], entries=96,
                          mapping_entries=96, switch_back=False)
        # No store is needed for it.
        self.assertFalse(os.path.exists(self.path))

    def test_a_table_that_is_full_is_an_error(self):
        pathlib.Path(self.file).write_text(self.SITE.replace(': 96', ': 95'))
        self.assert_fails('gateway g: 2 mappings need 96 entries; expected at '
                          'most 95', 'gateway', 'plan', self.file)
        self.assert_fails('/nowhere', 'gateway', 'plan', '/nowhere')
