# SPDX-License-Identifier: Apache-2.0
"""The case of the tests that run vswitch-manage."""

import json
import os
import pathlib

from tests.unit.cmd import commands
from tests.unit.store import base
from vswitch_aware_scheduler.cmd import manage


class ManageTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        # What is in /etc of this machine is of no concern here.
        self.config = os.path.join(self.directory, 'vswitch.conf')
        self._configure()

    def _configure(self, *lines):
        pathlib.Path(self.config).write_text('\n'.join([
            '[vswitch_scheduler]', f'store_url = {self.url}', *lines]))

    def configure_profiles(self, profiles, *lines):
        """Configure a file of switch profiles: text in YAML."""
        path = pathlib.Path(self.directory, 'profiles.yaml')
        path.write_text(profiles)
        self._configure(f'switch_profiles_file = {path}', *lines)

    def run_command(self, *words, config=True, terminal=False):
        """Return (status, stdout, stderr) of the command."""
        return commands.run(
            manage.main, [*(['--config-file', self.config] if config else []),
                          *words], terminal)

    def ask(self, *words):
        """Return what a command that must succeed prints as JSON."""
        status, output, errors = self.run_command(*words, '--json')
        self.assertEqual((0, ''), (status, errors))
        return json.loads(output)

    def text(self, *words):
        """Return what a command that must succeed prints for people."""
        status, output, errors = self.run_command(*words)
        self.assertEqual((0, ''), (status, errors))
        return output

    def assert_holds(self, thing, **values):
        """Assert some values of a mapping, or attributes of an object."""
        self.assertEqual(values, {
            name: thing[name] if isinstance(thing, dict)
            else getattr(thing, name) for name in values})

    def assert_fails(self, words, *command, status=1, **how):
        exit_status, output, errors = self.run_command(*command, **how)
        self.assertEqual((status, ''), (exit_status, output), errors)
        self.assertRegex(errors, words)
        if status == 1:
            self.assertEqual(1, errors.count('\n'), errors)
            self.assertTrue(errors.startswith('vswitch-manage: '), errors)
        self.assertNotIn('Traceback', errors)
        return errors
