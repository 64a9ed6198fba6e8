# SPDX-License-Identifier: Apache-2.0

import unittest

from vswitch_aware_scheduler.cmd import rates


class RatesTestCase(unittest.TestCase):

    def test_packets_that_were_not_measured_are_a_hyphen_and_null(self):
        for measured, text, kpps in ((True, '3', 3.0), (False, '-', None)):
            self.assertEqual(['1', '2', text],
                             rates.cells((1.0, 2.0, 3.0), measured))
            self.assertEqual(
                {'egress_kbps': 1.0, 'ingress_kbps': 2.0, 'kpps': kpps},
                rates.by_name((1.0, 2.0, 3.0), with_packets=measured))
        self.assertEqual(3.0, rates.by_name((1.0, 2.0, 3.0))['kpps'])

    def test_large_rates_have_one_decimal(self):
        self.assertEqual(['999.9', '1000.0', '1234567.9'],
                         [*map(rates.number, (999.9, 1000, 1234567.89))])
