# SPDX-License-Identifier: Apache-2.0

import getpass
import json
import os
import pathlib

from tests.unit.cmd import command_case
from tests.unit.store import base
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration


class DatabaseCommandTestCase(command_case.ManageTestCase):

    def test_sync_makes_the_store_and_version_tells_it(self):
        newest = migration.revisions()[-1]
        self.assertEqual({'before': None, 'after': newest},
                         self.ask('db', 'sync'))
        self.assertEqual({'before': newest, 'after': newest},
                         self.ask('db', 'sync'))
        self.assertEqual({'version': newest, 'newest': newest,
                          'generation': 0, 'published_at': 0,
                          'published_at_iso': None},
                         self.ask('db', 'version'))

    def test_sync_makes_the_directory_and_says_whose_it_is(self):
        self.url = f'sqlite:///{self.directory}/new/vswitch.sqlite'
        status, output, errors = self.run_command(
            '--store', self.url, '--json', 'db', 'sync')
        self.assertEqual((0, None), (status, json.loads(output)['before']))
        self.assertEqual(
            f'vswitch-manage: made the directory {self.directory}/new, mode '
            f'0750, owner {getpass.getuser()}: nova-scheduler and '
            f'vswitch-modeler have to run as that user\n', errors)

    def test_sync_stops_at_the_version_that_is_asked_for(self):
        first = migration.revisions()[0]
        self.assertEqual({'before': None, 'after': first},
                         self.ask('db', 'sync', '--version', first))
        self.assert_fails('version: .nine.; expected', 'db', 'sync',
                          '--version', 'nine')

    def test_a_copy_goes_to_a_new_store_and_to_no_other(self):
        url = f'sqlite:///{self.directory}/other/vswitch.sqlite'
        self.assert_fails('no such file', 'db', 'copy', url)
        self.make_store().write([base.constant(1)])
        copied = self.ask('db', 'copy', url)
        self.assertEqual((1, 1, 0), tuple(copied['tables'][name] for name in (
            'traffic_model', 'generation', 'decision')))
        self.assertEqual(sum(copied['tables'].values()), copied['rows'])
        self.assertEqual(1, store.Store(url).generation().number)
        self.assert_fails('generation_history has rows; expected an empty',
                          'db', 'copy', url)

    def test_version_of_an_empty_file_is_none_and_of_no_file_an_error(self):
        self.assert_fails('no such file', 'db', 'version')
        self.assertFalse(os.path.exists(self.path))
        pathlib.Path(self.path).touch()
        self.assertIsNone(self.ask('db', 'version')['version'])
