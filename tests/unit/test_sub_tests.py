# SPDX-License-Identifier: Apache-2.0
"""How sub-tests and classes that skip are counted."""

import ast
import importlib.util
import io
import pathlib
import unittest

from subunit import run as subunit_run

from tests.integration import base

PROJECT = pathlib.Path(__file__).parents[2]

_SPEC = importlib.util.spec_from_file_location(
    'count_tests', PROJECT / '.ci/count_tests.py')
count_tests = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(count_tests)


def outcome(skips, fails=(), bases=(base.SubTests, unittest.TestCase)):
    """Return [(status, reason)] of a test of three sub-tests, as counted.

    :param skips: numbers of those that skip
    :param fails: numbers of those that fail
    """
    def runTest(self):
        for number in range(3):
            with self.subTest(number=number):
                if number in skips:
                    self.skipTest(f'no program {number // 2}')
                self.assertNotIn(number, fails)

    stream = io.BytesIO()
    subunit_run.SubunitTestRunner(stream=stream).run(unittest.TestSuite([
        type('Sample', bases, {'runTest': runTest})()]))
    stream.seek(0)
    return [(status, reason) for status, name, reason
            in count_tests.outcomes(stream) if name.endswith('runTest')]


class SubTestsTestCase(unittest.TestCase):

    def test_a_test_all_of_whose_sub_tests_skip_is_skipped(self):
        self.assertEqual([('skip', 'no program 0; no program 1')],
                         outcome({0, 1, 2}))

    def test_a_test_some_of_whose_sub_tests_run_is_what_these_are(self):
        self.assertEqual([('success', '')], outcome({0, 2}))
        self.assertEqual([('success', '')], outcome(()))

    def test_a_sub_test_that_fails_is_a_failure(self):
        for skips in ((), {0}, {0, 2}):
            self.assertNotIn(('skip', 'no program 0'), outcome(skips, {1}))
            self.assertNotIn(('success', ''), outcome(skips, {1}))

    def test_without_the_mixin_it_would_count_as_failed(self):
        self.assertNotIn('skip', [status for status, _ in outcome(
            {0, 1, 2}, bases=(unittest.TestCase,))])

    def test_each_suite_whose_sub_tests_can_skip_has_the_mixin(self):
        # Programs are looked for while tests run in these two only.
        for folder in ('integration', 'calibrated'):
            for path in (PROJECT / 'tests' / folder).glob('test_*.py'):
                for node in ast.parse(path.read_text()).body:
                    if isinstance(node, ast.ClassDef) \
                            and 'subTest(' in ast.unparse(node):
                        module = importlib.import_module(
                            f'tests.{folder}.{path.stem}')
                        self.assertTrue(issubclass(
                            getattr(module, node.name), base.SubTests),
                            f'{path.name}: {node.name}')


class SkippedClassTestCase(unittest.TestCase):

    def test_a_class_that_two_workers_skip_is_skipped_once(self):
        def set_up(cls):
            raise unittest.SkipTest('no server')

        sample = type('Sample', (unittest.TestCase,), {
            'setUpClass': classmethod(set_up)})
        streams = b''
        for name in ('test_first', 'test_second'):
            setattr(sample, name, lambda self: None)
            stream = io.BytesIO()
            subunit_run.SubunitTestRunner(stream=stream).run(
                unittest.TestSuite([sample(name)]))
            streams += stream.getvalue()
        self.assertEqual(
            [('skip', 'no server')],
            [(status, reason) for status, _, reason
             in count_tests.outcomes(io.BytesIO(streams))])
