# SPDX-License-Identifier: Apache-2.0

import json
import os
import pathlib

from tests.unit.cmd import command_case


SECRET = 'open-sesame'


class CommonOptionsTestCase(command_case.ManageTestCase):

    def test_options_may_stand_before_and_after_the_command(self):
        self._configure()
        elsewhere = f'sqlite:///{self.directory}/other.sqlite'
        for command in (('--store', elsewhere, '--json', 'db', 'sync'),
                        ('db', '--store', elsewhere, '--json', 'sync'),
                        ('db', 'sync', '--store', elsewhere, '--json'),
                        ('--json', 'db', 'sync', '--store', elsewhere)):
            self.assertIn('after', json.loads(self.text(*command)))
        self.assertFalse(os.path.exists(self.path))

    def test_the_last_of_several_configuration_files_counts(self):
        second_file = os.path.join(self.directory, 'second.conf')
        pathlib.Path(second_file).write_text(
            f'[vswitch_scheduler]\n'
            f'store_url = sqlite:///{self.directory}/second.sqlite\n')
        self.assertEqual(0, self.run_command(
            'db', 'sync', '--config-file', second_file)[0])
        self.assertTrue(os.path.exists(
            os.path.join(self.directory, 'second.sqlite')))

    def test_a_configuration_that_cannot_be_used_is_named(self):
        self._configure('min_samples = few')
        self.assert_fails('min_samples', 'model', 'list')
        self.assert_fails('/nowhere.conf', 'model', 'list', '--config-file',
                          '/nowhere.conf')

    def test_a_wrong_command_line_exits_with_two(self):
        for command in ((), ('db',), ('frobnicate',), ('model', 'show'),
                        ('fit', '--path'),
                        ('fit', '--path', 'x', '--start', 'soon')):
            self.assert_fails('usage: vswitch-manage', *command, status=2)

    def test_help_spells_names_as_they_are(self):
        for command, parts in (
                ((), ('db', 'fit', 'model', 'profile', '--store', '--json',
                      '--config-file')),
                (('gateway',), ['mappings of VXLAN gateways.']),
                (('host', 'discover'), ['reports of Neutron agents.']),
                (('db', 'sync'), ['\n\nCreate '])):
            output = self.text(*command, '--help')
            for part in parts:
                self.assertIn(part, output)

    def test_no_message_shows_the_password_of_the_store(self):
        for url in (f'mysql+nosuch://u:{SECRET}@host/x',
                    f'sqlite:///:memory:?password={SECRET}',
                    f'postgresql+psycopg2://u:{SECRET}@127.0.0.1:1/x',
                    f'{SECRET}'):
            for command in (('model', 'list'), ('db', 'sync'),
                            ('db', 'version'), ('fit', '--path', '/x')):
                errors = self.assert_fails('store', *command, '--store', url)
                self.assertNotIn(SECRET, errors)
