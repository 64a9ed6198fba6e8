# SPDX-License-Identifier: Apache-2.0

import os
import tempfile
import unittest

from vswitch_aware_scheduler.common import exceptions
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

    def test_a_mistake_is_told_with_its_line_and_column(self):
        head = 'packet_bytes,rate_kbps,pairs\n'
        for text, message in (
                ('', "header: ''; expected the columns packet_bytes"),
                ('size,rate\n1,2\n', "header: 'size,rate'; expected"),
                (head, 'no row below the header; expected 1'),
                (head + '128,abc,1\n',
                 "line 2: rate_kbps: 'abc'; expected a number"),
                (head + '# x\n128,1,1.5\n',
                 "line 3: pairs: '1.5'; expected a whole number"),
                (head + '128,,1\n', 'line 2: rate_kbps is empty; expected'),
                (head + '128,nan,1\n', 'line 2: rate_kbps: nan; expected'),
                (head + '128,-4,1\n', 'line 2: rate_kbps: -4.0; expected')):
            with self.assertRaises(exceptions.InvalidModel) as caught:
                measurements.parse_csv(text, 'table x.csv')
            self.assertIn('table x.csv: ', str(caught.exception))
            self.assertIn(message, str(caught.exception))

    def test_a_file_is_read_and_one_that_cannot_be_is_named(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, 'rates.csv')
            with open(path, 'w', encoding='utf-8-sig') as file:
                file.write('packet_bytes,rate_kbps\r\n88,1000\r\n')
            self.assertEqual([cost_model.Measurement(88, 1000)],
                             measurements.load_csv(path))
            for bad in (path + '.not', directory):
                with self.assertRaisesRegex(exceptions.InvalidModel,
                                            f'table {bad}: cannot be'):
                    measurements.load_csv(bad)
