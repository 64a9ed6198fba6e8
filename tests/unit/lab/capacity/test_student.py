# SPDX-License-Identifier: Apache-2.0

import math
import unittest

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.capacity import student


class QuantileTestCase(unittest.TestCase):

    def test_quantiles_are_those_of_the_published_table(self):
        # Abramowitz and Stegun, table 26.10.
        for freedom, probability, quantile in (
                (1, .975, 12.706), (2, .975, 4.303), (5, .975, 2.571),
                (10, .95, 1.812), (30, .995, 2.750), (120, .975, 1.980)):
            self.assertAlmostEqual(
                quantile, student.quantile(probability, freedom),
                delta=5.1e-4)
        self.assertEqual(math.inf, student.quantile(.975, 0))

    def test_a_probability_out_of_range_is_refused(self):
        for probability in (.49, 1.0, -1.0, math.nan, math.inf):
            with self.assertRaisesRegex(exceptions.InvalidModel,
                                        'expected a number from 0.5 to below'):
                student.quantile(probability, 3)
