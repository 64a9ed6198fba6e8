# SPDX-License-Identifier: Apache-2.0

import os
import tempfile
import unittest

from vswitch_aware_scheduler.lab.capacity import cost_model
from vswitch_aware_scheduler.lab.capacity import measurements


class TestCsv(unittest.TestCase):

    def test_columns_may_come_in_any_order_and_some_be_absent(self):
        self.assertEqual(
            [cost_model.Measurement(128, 400000.0, 2, encapsulation='vxlan'),
             cost_model.Measurement(1518, 3660000.0)],
            measurements.parse_csv(
                'rate_kbps, pairs, packet_bytes, encapsulation, note\n'
                '# a comment, with commas\n'
                '400000,2,128,VXLAN,first\n'
                '\n'
                '3.66e6,,1518,,second\n', 'text'))

    def test_a_file_of_a_spreadsheet_is_read(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, 'rates.csv')
            with open(path, 'w', encoding='utf-8-sig') as file:
                file.write('packet_bytes,rate_kbps\r\n88,1000\r\n')
            self.assertEqual([cost_model.Measurement(88, 1000)],
                             measurements.load_csv(path))
