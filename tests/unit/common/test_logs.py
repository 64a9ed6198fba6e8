# SPDX-License-Identifier: Apache-2.0

import ast
import io
import logging
import pathlib
import unittest

import vswitch_aware_scheduler
from vswitch_aware_scheduler.common import logs


class LogsTestCase(unittest.TestCase):

    def setUp(self):
        self.log = logs.get_logger('vswitch_aware_scheduler.test_logs')
        self.text = io.StringIO()
        handler = logging.StreamHandler(self.text)
        self.log.logger.addHandler(handler)
        self.addCleanup(self.log.logger.removeHandler, handler)

    def test_what_values_hold_is_escaped(self):
        self.log.warning('host %s: %d %%', 'a\x1b[31m\nWARNING b', 3)
        self.assertEqual('host a\\x1b[31m\\nWARNING b: 3 %\n',
                         self.text.getvalue())

    def test_so_is_a_traceback(self):
        try:
            raise ValueError('a\x1b[31m')
        except ValueError:
            self.log.exception('failed')
        self.assertNotIn('\x1b', self.text.getvalue())
        self.assertIn('\nValueError: a\\x1b[31m', self.text.getvalue())

    def test_a_record_that_cannot_be_made_fails_nobody(self):
        before, logging.raiseExceptions = logging.raiseExceptions, False
        self.addCleanup(setattr, logging, 'raiseExceptions', before)
        self.log.warning('host %d', 'a')

    def test_every_module_logs_through_it(self):
        package = pathlib.Path(vswitch_aware_scheduler.__file__).parent
        for path in package.rglob('*.py'):
            for node in ast.parse(path.read_text('utf-8')).body:
                if isinstance(node, ast.Assign) and ast.unparse(
                        node.targets[0]) == 'LOG':
                    self.assertEqual('logs.get_logger(__name__)',
                                     ast.unparse(node.value),
                                     f'{path}: values would not be escaped')
