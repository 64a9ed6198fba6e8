# SPDX-License-Identifier: Apache-2.0

import importlib.util
import pathlib
import tempfile
import unittest

PATH = pathlib.Path(__file__).resolve().parents[2] / 'doc' / 'examples.py'


def _load():
    spec = importlib.util.spec_from_file_location('examples', PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ExamplesTestCase(unittest.TestCase):

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.examples = _load()

    def _refreshed(self, text):
        with tempfile.TemporaryDirectory() as directory:
            return self.examples.refreshed(text,
                                           self.examples.Place(directory))

    def test_the_manual_shows_what_commands_print(self):
        for path, text, expected in self.examples.pages():
            with self.subTest(path.name):
                self.assertEqual(
                    expected.splitlines(), text.splitlines(),
                    'examples are stale: run "tox -e examples"')

    def test_stale_output_is_replaced_and_nothing_else(self):
        text = ('Before.\n\n::\n\n    $ vswitch-manage profile show \\\n'
                '          ovs-gre -f value -c name\n    old\n'
                '    $ echo a\n\nAfter.\n')
        self.assertEqual(text.replace('old', 'ovs-gre').replace(
            '$ echo a\n', '$ echo a\n    a\n'), self._refreshed(text))

    def test_a_block_that_is_not_run_stays(self):
        text = ('.. not run\n\n::\n\n    $ vswitch-manage db sync\n    old\n'
                '\nAfter.\n')
        self.assertEqual(text, self._refreshed(text))

    def test_errors_are_part_of_what_is_shown(self):
        self.assertRegex(self._refreshed(
            '::\n\n    $ vswitch-manage profile show none\n'),
            '\n    vswitch-manage: .*none')
