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
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        for suite, text in (('one', _SUITE), ('two', '')):
            path = self.root / 'tests' / suite
            path.mkdir(parents=True)
            (path / '__init__.py').touch()
            (path / 'test_it.py').write_text(text)
        (self.root / 'tests/__init__.py').touch()

    def _run(self, *arguments, options=()):
        """Return the exit status and the output of running both suites."""
        tools = pathlib.Path(sys.executable).parent
        done = subprocess.run(
            [sys.executable, PROJECT / '.ci/run_suites.py', *options,
             'results', 'one', 'two', '--', *arguments], cwd=self.root,
            env={**os.environ, 'PATH': f'{tools}:{os.environ["PATH"]}'},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def _coverage(self):
        return list((self.root / 'results').glob('coverage*'))

    def test_a_name_selects_tests_and_passes_over_suites_without_any(self):
        status, said = self._run('test_good')
        self.assertEqual(0, status, said)
        self.assertIn('Passed: 1\n', said)
        self.assertIn('Failed: 0\n', said)
        self.assertNotIn('# tests/two', said)
        self.assertEqual([], self._coverage())

    def test_coverage_is_measured_where_it_is_asked_for(self):
        status, said = self._run('test_good', options=['--cover'])
        self.assertEqual(0, status, said)
        self.assertNotEqual([], self._coverage())

    def test_a_suite_that_fails_is_told(self):
        status, said = self._run('test_other')
        self.assertEqual(1, status, said)
        self.assertIn('FAILED: tests/one\n', said)

    def test_a_name_that_no_test_has_is_an_error(self):
        status, said = self._run('test_nothing')
        self.assertEqual(1, status, said)
        self.assertIn('No test matches test_nothing\n', said)
