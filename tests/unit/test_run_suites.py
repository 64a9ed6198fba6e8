# SPDX-License-Identifier: Apache-2.0
"""What every tox environment runs its tests with: .ci/run_suites.py."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROJECT = pathlib.Path(__file__).parents[2]

_SUITE = '''\
import unittest


class ATest(unittest.TestCase):

    def test_good(self):
        pass

    def test_other(self):
        self.fail('not asked for')
'''


class RunSuitesTest(unittest.TestCase):

    def setUp(self):
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.root = pathlib.Path(directory)
        for suite, text in (('one', _SUITE), ('two', '')):
            path = self.root / 'tests' / suite
            path.mkdir(parents=True)
            (path / '__init__.py').touch()
            (path / 'test_it.py').write_text(text)
        (self.root / 'tests/__init__.py').touch()

    def _run(self, *arguments, options=()):
        """Return the exit status and the output of running both suites."""
        tools = pathlib.Path(sys.executable).parent
        completed = subprocess.run(
            [sys.executable, PROJECT / '.ci/run_suites.py', *options,
             'results', 'one', 'two', '--', *arguments], cwd=self.root,
            env={**os.environ, 'PATH': f'{tools}:{os.environ["PATH"]}'},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)
        return completed.returncode, completed.stdout

    def _coverage(self):
        return list((self.root / 'results').glob('coverage*'))

    def test_a_name_selects_tests_and_coverage_is_measured_if_asked_for(self):
        status, output = self._run('test_good', options=['--cover'])
        self.assertEqual(0, status, output)
        self.assertIn('Passed: 1\n', output)
        self.assertIn('Failed: 0\n', output)
        self.assertNotIn('# tests/two', output)
        self.assertNotEqual([], self._coverage())

    def test_a_suite_that_fails_and_a_name_without_tests_are_errors(self):
        for name, message in (('test_other', 'FAILED: tests/one\n'),
                              ('test_nothing',
                               'No test matches test_nothing\n')):
            status, output = self._run(name)
            self.assertEqual(1, status, output)
            self.assertIn(message, output)
            self.assertEqual([], self._coverage())
