# SPDX-License-Identifier: Apache-2.0

import unittest

from oslo_config import cfg

from vswitch_aware_scheduler.conf import option


class FloatOptTestCase(unittest.TestCase):

    def test_a_number_that_is_not_finite_is_refused(self):
        for limits in ({}, {'min': 0, 'max': 1}):
            share = option.FloatOpt('share', **limits)
            for text in ('nan', 'inf', '-inf', '1e999'):
                with self.subTest(text=text, **limits), \
                        self.assertRaises(ValueError):
                    share.type(text)

    def test_other_numbers_are_those_of_oslo_config(self):
        share = option.FloatOpt('share', min=0, max=1, default=.5)
        self.assertIsInstance(share, cfg.FloatOpt)
        self.assertEqual(.25, share.type('.25'))
        self.assertEqual((0, 1, .5),
                         (share.type.min, share.type.max, share.default))
        with self.assertRaisesRegex(ValueError, '1'):
            share.type('1.5')


class HelpTestCase(unittest.TestCase):

    def test_unit_and_range_precede_what_goes_wrong(self):
        rate = option.IntOpt('rate', min=0, max=8000000000, unit='kbit/s',
                             related='share limit', help="""
The rate.

When it is wrong, nothing works.
""")
        self.assertEqual("""
The rate.

Unit: kbit/s, 0 to 8000000000.

When it is wrong, nothing works.

Related options: ``share``, ``limit``.
""", rate.help)
