# SPDX-License-Identifier: Apache-2.0

import unittest

from oslo_config import cfg

from vswitch_aware_scheduler.conf import number


class FloatOptTestCase(unittest.TestCase):

    def test_a_number_that_is_not_finite_is_refused(self):
        for limits in ({}, {'min': 0, 'max': 1}):
            option = number.FloatOpt('share', **limits)
            for text in ('nan', 'inf', '-inf', '1e999'):
                with self.subTest(text=text, **limits), \
                        self.assertRaises(ValueError):
                    option.type(text)

    def test_other_numbers_are_those_of_oslo_config(self):
        option = number.FloatOpt('share', min=0, max=1, default=.5)
        self.assertIsInstance(option, cfg.FloatOpt)
        self.assertEqual(.25, option.type('.25'))
        self.assertEqual((0, 1, .5),
                         (option.type.min, option.type.max, option.default))
        with self.assertRaisesRegex(ValueError, '1'):
            option.type('1.5')
