# SPDX-License-Identifier: Apache-2.0
"""The files for operators in etc/ name users, commands and options there are.
"""

import configparser
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

from oslo_config import cfg

from tests.unit import entry_points
from vswitch_aware_scheduler.cmd import modeler
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.vswitch import profile as switch_profile

PROJECT = pathlib.Path(__file__).parents[2]
FILES = PROJECT / 'etc' / 'vswitch_aware_scheduler'
ENVIRONMENT = '/opt/nova/bin/'


class _Unit(configparser.RawConfigParser):
    """A unit file: names keep their case, a name may stand twice."""

    optionxform = staticmethod(str)


def _unit(name):
    parser = _Unit(delimiters=('=',), strict=False)
    parser.read(FILES / 'systemd' / name)
    return parser


def _lines(name):
    return [line for line in (FILES / name).read_text().splitlines()
            if line and not line.startswith('#')]


def _paths():
    """Return {path: (mode, user, group)} of the file for tmpfiles.d."""
    return {fields[1]: tuple(fields[2:5]) for fields in map(
        str.split, _lines('tmpfiles.d/vswitch_aware_scheduler.conf'))}


class UnitTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.service = _unit('vswitch-modeler.service')['Service']

    def test_the_unit_starts_an_existing_command_with_its_options(self):
        path, *arguments = shlex.split(self.service['ExecStart'])
        self.assertTrue(path.startswith(ENVIRONMENT), path)
        command = path.removeprefix(ENVIRONMENT)
        self.assertIs(modeler.main, entry_points.main_of(command))
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, 'vswitch.conf')
            pathlib.Path(file).touch()
            conf = modeler._configuration(
                [file if word == '/etc/vswitch_aware_scheduler/vswitch.conf'
                 else word for word in arguments])
            self.assertEqual([file], conf.config_file)

    def test_systemd_is_notified_when_the_service_is_ready_and_alive(self):
        self.assertEqual('notify', self.service['Type'])
        self.assertRegex(self.service['WatchdogSec'], r'^\d+min$')

    def test_its_user_is_made_and_owns_its_directories(self):
        user = self.service['User']
        self.assertEqual(user, self.service['Group'])
        (kind, user_made, *_), = map(str.split, _lines(
            'sysusers.d/vswitch_aware_scheduler.conf'))
        self.assertEqual(('u', user), (kind, user_made))
        paths = _paths()
        for base, name, mode in (
                ('/var/lib', 'StateDirectory', 'StateDirectoryMode'),
                ('/var/log', 'LogsDirectory', 'LogsDirectoryMode')):
            self.assertEqual((self.service[mode], user, user),
                             paths[f'{base}/{self.service[name]}'])

    def test_the_unit_may_write_where_the_default_store_is(self):
        conf = cfg.ConfigOpts()
        options.register_opts(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        self.assertEqual(
            f'sqlite:////var/lib/{self.service["StateDirectory"]}'
            f'/vswitch.sqlite', conf[options.GROUP].store_url)
        self.assertIn(f'/var/lib/{self.service["StateDirectory"]}'
                      f'/vswitch.sqlite*', _paths())

    @unittest.skipUnless(shutil.which('systemd-analyze'),
                         'systemd-analyze is not installed')
    def test_systemd_finds_nothing_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / 'vswitch-modeler.service'
            text = (FILES / 'systemd' / copy.name).read_text()
            copy.write_text(text.replace(
                f'{ENVIRONMENT}vswitch-modeler', '/bin/true'))
            answer = subprocess.run(
                ['systemd-analyze', 'verify', '--man=no', str(copy)],
                text=True, capture_output=True)
        # Of other units of the machine nothing is judged.
        self.assertEqual([], [line for line in answer.stderr.splitlines()
                              if copy.name in line])


class LogrotateTestCase(unittest.TestCase):

    def test_logrotate_rotates_where_the_service_may_log(self):
        service = _unit('vswitch-modeler.service')['Service']
        text = (FILES / 'logrotate.d' / 'vswitch_aware_scheduler').read_text()
        self.assertIn(f'/var/log/{service["LogsDirectory"]}/*.log {{', text)
        self.assertIn(f'    su {service["User"]} {service["Group"]}\n', text)


class NovaFragmentTestCase(unittest.TestCase):

    path = FILES / 'nova.conf.d' / 'vswitch_aware_scheduler.conf'

    def test_our_options_are_accepted(self):
        conf = cfg.ConfigOpts()
        options.register_opts(conf)
        conf([], default_config_files=[str(self.path)],
             default_config_dirs=[])
        group = conf[options.GROUP]
        for name in group:
            group[name]
        self.assertIn(group.default_switch_profile,
                      switch_profile.catalogue())
        names = re.findall(r'^(\w+) =', self.path.read_text().split(
            '[vswitch_scheduler]')[1], re.MULTILINE)
        self.assertTrue(names)
        self.assertLessEqual(set(names), set(group))

    def test_filters_and_weighers_are_those_of_the_quick_start(self):
        # Which a functional test starts nova with.
        readme = (PROJECT / 'README.rst').read_text()
        block = re.search(r'\[filter_scheduler\]\n(( +\w.*\n)+)',
                          readme).group(1)
        self.assertEqual(
            [line.strip() for line in block.splitlines()],
            self.path.read_text().split('[filter_scheduler]\n')[1].split(
                '\n\n')[0].splitlines())


class PackageTestCase(unittest.TestCase):

    def test_setup_cfg_takes_the_whole_directory(self):
        self.assertIn('    etc/vswitch_aware_scheduler = '
                      'etc/vswitch_aware_scheduler/*\n',
                      (PROJECT / 'setup.cfg').read_text())
