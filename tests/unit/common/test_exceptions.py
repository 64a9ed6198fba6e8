# SPDX-License-Identifier: Apache-2.0

import ast
import inspect
import pathlib
import pickle
import string
import unittest

import vswitch_aware_scheduler
from vswitch_aware_scheduler.common import exceptions


def _classes():
    return {name: error for name, error in inspect.getmembers(
        exceptions, inspect.isclass) if error.__module__ ==
        exceptions.__name__}


class TestTree(unittest.TestCase):

    def test_every_error_has_one_base_and_invalid_input_is_a_value_error(self):
        for name, error in _classes().items():
            with self.subTest(name):
                self.assertTrue(issubclass(error, exceptions.VSwitchError))
                self.assertEqual(issubclass(error, exceptions.InvalidInput),
                                 issubclass(error, ValueError))

    def test_the_tree_that_is_drawn_is_the_tree_that_is(self):
        drawn = {}
        above = []
        for line in exceptions.__doc__.splitlines():
            _, branch, text = line.partition('── ')
            names = (text or line).split()
            if not names or names[0] not in _classes():
                continue
            depth = line.index('──') // 4 if branch else 0
            above[depth:] = [names[0]]
            drawn[names[0]] = above[depth - 1] if depth else 'Exception'
        self.assertEqual(
            {name: next(base.__name__ for base in error.__bases__)
             for name, error in _classes().items()}, drawn)

    def test_a_message_is_formatted_with_values(self):
        for values, message in (
                ({'seen': 'none'}, 'rate: none; expected 3'),
                ({'value': 'x'}, "rate: 'x'; expected 3"),
                ({'value': None}, 'rate: not given; expected 3'),
                ({'value': 'x' * 10 ** 6}, "rate: 'xxx")):
            error = exceptions.InvalidInput(thing='rate', expected=3, **values)
            self.assertTrue(str(error).startswith(message), error)
            self.assertLess(len(str(error)), 120)
            self.assertEqual(str(error), str(pickle.loads(
                pickle.dumps(error))))

    def test_each_error_that_is_raised_with_values_has_those_of_its_text(self):
        package = pathlib.Path(vswitch_aware_scheduler.__file__).parent
        calls = [(node, f'{path}: line {node.lineno}')
                 for path in package.rglob('*.py')
                 for node in ast.walk(ast.parse(path.read_text()))
                 if isinstance(node, ast.Call) and not node.args
                 and ast.unparse(node.func).startswith('exceptions.')]
        found = 0
        for call, place in calls:
            error = _classes().get(call.func.attr)
            given = {keyword.arg for keyword in call.keywords}
            if error is None or None in given:
                continue
            found += 1
            given |= {'seen'} if 'value' in given else set()
            self.assertLessEqual({
                field for _, field, _, _ in string.Formatter().parse(
                    error.msg_fmt) if field}, given, place)
        self.assertGreater(found, 50)
