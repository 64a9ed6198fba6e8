# SPDX-License-Identifier: Apache-2.0

import argparse
import subprocess
import sys
import unittest

from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import deferred
from vswitch_aware_scheduler.cmd import manage
from vswitch_aware_scheduler.common import exceptions

HEAVY = ('alembic', 'keystoneauth1', 'matplotlib', 'openstack', 'scipy',
         'sqlalchemy')


def _imported(*words):
    """Return the modules that ``vswitch-manage`` with arguments imports."""
    answer = subprocess.run(
        [sys.executable, '-c', f"""
import sys
from vswitch_aware_scheduler.cmd import manage
try:
    manage.main({list(words)!r})
except SystemExit:
    pass
print('IMPORTED', *sys.modules)
"""], text=True, capture_output=True, check=True)
    return set(answer.stdout.rsplit('IMPORTED ', 1)[1].split())


class StartTestCase(unittest.TestCase):

    def test_version_imports_no_large_library(self):
        self.assertEqual(set(), _imported('--version').intersection(HEAVY))

    def test_a_list_imports_nothing_for_services_or_pictures(self):
        modules = _imported('--store', 'sqlite:////nowhere/a', 'host', 'list')
        self.assertIn('sqlalchemy', modules)
        self.assertEqual(set(), modules & {
            'matplotlib', 'openstack',
            'vswitch_aware_scheduler.lab.cmd.evaluate',
            'vswitch_aware_scheduler.modeler.wiring'})


class ModuleTestCase(unittest.TestCase):

    def test_every_deferred_module_of_the_commands_is_there(self):
        modules = {name: value for part in (context, manage)
                   for name, value in vars(part).items()
                   if isinstance(value, deferred._Module)}
        self.assertIn('store', modules)
        for name, module in modules.items():
            with self.subTest(module=name):
                self.assertTrue(module.__file__)

    def test_an_attribute_is_that_of_the_module(self):
        self.assertIs(exceptions.VSwitchError,
                      deferred.module('common.exceptions').VSwitchError)


class ParserTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.added = []
        self.top = deferred.Parser()
        for name in ('a', 'b'):
            self.top.add_command(name, 'do it').add_later(self._add)

    def _add(self, parser):
        self.added.append(parser.prog.split()[-1])
        parser.add_argument('--count', type=int)

    def test_only_the_arguments_of_the_parsed_command_are_added(self):
        self.assertEqual([], self.added)
        for _ in range(2):
            self.assertEqual(argparse.Namespace(count=3),
                             self.top.parse_args(['a', '--count', '3']))
        self.assertEqual(['a'], self.added)

    def test_all_can_be_added_at_once(self):
        deferred.add_all(self.top)
        self.assertEqual(['a', 'b'], self.added)
