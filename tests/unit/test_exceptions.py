# SPDX-License-Identifier: Apache-2.0

import inspect
import unittest

from vswitch_aware_scheduler import exceptions


def _classes():
    return {name: one for name, one in inspect.getmembers(
        exceptions, inspect.isclass) if one.__module__ ==
        exceptions.__name__}


class TestTree(unittest.TestCase):

    def test_every_error_descends_from_the_one_base(self):
        for name, one in _classes().items():
            with self.subTest(name):
                self.assertTrue(issubclass(one, exceptions.VSwitchError))

    def test_an_unusable_value_is_a_value_error_and_others_are_not(self):
        for name, one in _classes().items():
            with self.subTest(name):
                self.assertEqual(name.startswith('Invalid'),
                                 issubclass(one, ValueError))

    def test_the_tree_that_is_drawn_is_the_tree_that_is(self):
        drawn = {}
        above = []
        for line in exceptions.__doc__.splitlines():
            _, branch, text = line.partition('── ')
            words = (text or line).split()
            if not words or words[0] not in _classes():
                continue
            depth = line.index('──') // 4 if branch else 0
            above[depth:] = [words[0]]
            drawn[words[0]] = above[depth - 1] if depth else 'Exception'
        self.assertEqual(
            {name: next(base.__name__ for base in one.__bases__)
             for name, one in _classes().items()}, drawn)

    def test_a_message_is_kept_as_it_is(self):
        self.assertEqual('rate: -1; expected >= 0',
                         str(exceptions.InvalidModel(
                             'rate: -1; expected >= 0')))
