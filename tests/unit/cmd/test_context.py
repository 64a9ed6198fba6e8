# SPDX-License-Identifier: Apache-2.0

import argparse
import unittest

from vswitch_aware_scheduler.cmd import context


class SecondsTestCase(unittest.TestCase):

    def test_seconds_are_read_from_numbers_and_dates(self):
        self.assertEqual(86400.0, context.seconds('86400'))
        self.assertEqual(86400.0, context.seconds('1970-01-02'))
        self.assertEqual(82800.0, context.seconds('1970-01-02T00:00+01:00'))

    def test_other_words_are_refused(self):
        for text in ('', 'yesterday', 'nan', 'inf'):
            with self.subTest(text), self.assertRaisesRegex(
                    argparse.ArgumentTypeError, 'expected a time'):
                context.seconds(text)
