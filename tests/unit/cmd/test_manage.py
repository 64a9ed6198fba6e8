# SPDX-License-Identifier: Apache-2.0

import json
import os
import pathlib
import subprocess
import sys
from unittest import mock

from tests.unit.cmd import command_case
from tests.unit.store import base
from vswitch_aware_scheduler.cmd import manage
from vswitch_aware_scheduler import store


SECRET = 'open-sesame'


class CommonOptionsTestCase(command_case.ManageTestCase):

    def test_options_may_stand_before_and_after_the_command(self):
        self._configure()
        elsewhere = f'sqlite:///{self.directory}/other.sqlite'
        for command in (('--store', elsewhere, '--json', 'db', 'sync'),
                        ('db', '--store', elsewhere, '--json', 'sync'),
                        ('db', 'sync', '--store', elsewhere, '--json'),
                        ('--json', 'db', 'sync', '--store', elsewhere)):
            status, output, _ = self.run_command(*command)
            self.assertEqual(0, status)
            self.assertIn('after', json.loads(output))
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

    def test_a_missing_configuration_file_is_named(self):
        self.assert_fails('/nowhere.conf', 'model', 'list', '--config-file',
                          '/nowhere.conf')

    def test_a_bad_value_in_the_configuration_is_named(self):
        self._configure('min_samples = few')
        self.assert_fails('min_samples', 'model', 'list')

    def test_a_wrong_command_line_exits_with_two(self):
        for command in ((), ('db',), ('frobnicate',), ('model', 'show'),
                        ('fit', '--path'),
                        ('fit', '--path', 'x', '--start', 'soon')):
            self.assert_fails('usage: vswitch-manage', *command, status=2)

    def test_help_tells_every_command(self):
        status, output, _ = self.run_command('--help')
        self.assertEqual(0, status)
        for word in ('db', 'fit', 'model', 'profile', '--store', '--json',
                     '--config-file'):
            self.assertIn(word, output)

    def test_help_of_a_command_spells_names_as_they_are(self):
        for command, text in ((('gateway',), 'mappings of VXLAN gateways.'),
                              (('host', 'discover'),
                               'reports of Neutron agents.'),
                              (('db', 'sync'), '\n\nCreate ')):
            status, output, _ = self.run_command(*command, '--help')
            self.assertEqual(0, status)
            self.assertIn(text, output)

    def test_no_message_shows_the_password_of_the_store(self):
        for url in (f'mysql+nosuch://u:{SECRET}@host/x',
                    f'sqlite:///:memory:?password={SECRET}',
                    f'postgresql+psycopg2://u:{SECRET}@127.0.0.1:1/x',
                    f'{SECRET}'):
            for command in (('model', 'list'), ('db', 'sync'),
                            ('db', 'version'), ('fit', '--path', '/x')):
                errors = self.assert_fails('store', *command, '--store', url)
                self.assertNotIn(SECRET, errors)

    def test_debug_shows_where_an_error_comes_from(self):
        with mock.patch.object(manage.logging, 'basicConfig', autospec=True):
            status, _, errors = self.run_command('model', 'list', '--debug')
        self.assertEqual(1, status)
        self.assertIn('Traceback', errors)
        self.assertIn('StoreMissing', errors)

    def test_an_interruption_is_told_in_one_line(self):
        with mock.patch.object(store.Store, 'models', autospec=True,
                               side_effect=KeyboardInterrupt):
            self.make_store()
            self.assert_fails('interrupted', 'model', 'list')

    def test_a_reader_that_goes_away_is_no_traceback(self):
        # More than the 64 KiB that a pipe holds.
        self.make_store().write([base.constant(n) for n in range(1500)])
        process = subprocess.Popen(
            [sys.executable, '-m', 'vswitch_aware_scheduler.cmd.manage',
             'model', 'list', '--store', self.url],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        process.stdout.readline()
        process.stdout.close()
        with process.stderr:
            self.assertEqual(b'', process.stderr.read())
        process.wait()
