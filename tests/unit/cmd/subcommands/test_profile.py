# SPDX-License-Identifier: Apache-2.0

import os
import pathlib

from tests.unit.cmd import command_case
from vswitch_aware_scheduler.vswitch import profile


class ProfileCommandTestCase(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.directory, 'own.yaml')
        pathlib.Path(self.file).write_text(
            'rack:\n  saturation_kbps: 123456\n  max_tunnels: 5\n')

    def test_list_and_show_have_every_built_in_profile(self):
        names = list(profile.catalogue())
        listed = self.ask('profile', 'list')['profiles']
        self.assertEqual(names, [item['name'] for item in listed])
        self.assertEqual({'built-in'}, {item['origin'] for item in listed})
        output = self.text('profile', 'list')
        for name in names:
            self.assertIn(name, output)
            self.text('profile', 'show', name)
        # No store is needed.
        self.assertFalse(os.path.exists(self.path))

    def test_list_and_show_state_what_was_measured_elsewhere(self):
        self._configure(f'switch_profiles_file = {self.file}')
        by_name = {item['name']: item
                   for item in self.ask('profile', 'list')['profiles']}
        self.assertEqual((self.file, None), (
            by_name['rack']['origin'], by_name['rack']['calibration_command']))
        self.assert_holds(by_name['ovs-geneve'], published=2016, trust='low')
        for shown in (by_name['ovs-geneve'],
                      self.ask('profile', 'show', 'ovs-geneve')):
            self.assertIn('vswitch-calibrate remote --sender ',
                          shown['calibration_command'])

    def test_show_of_an_unknown_profile_tells_the_known_ones(self):
        self.assert_fails("'rack'; expected one of .*ovs-flat", 'profile',
                          'show', 'rack')

    def test_validate_tells_good_from_bad(self):
        self.assertEqual({'file': self.file, 'profiles': ['rack']},
                         self.ask('profile', 'validate', self.file))
        self.assert_fails('/nowhere', 'profile', 'validate', '/nowhere')
