# SPDX-License-Identifier: Apache-2.0

import json
import unittest

from vswitch_aware_scheduler.lab.capacity import published


class TestPublished(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tables = published.tables()
        cls.answers = {name: published.reproduce(table)
                       for name, table in cls.tables.items()}

    def test_a_table_has_the_figures_of_its_document(self):
        self.assertIn((1518, 2, 2, 9.45e6), [
            (row.packet_bytes, row.pairs, row.flows, row.rate_kbps)
            for row in self.tables['draft-ports'].measurements])
        self.assertEqual((495, (4704, 4830, 5161, 5131, 4957), True),
                         self.tables['draft-server-1'].cpu['host'])

    def test_rates_left_out_are_predicted_within_ten_percent(self):
        errors = {name: answer['median_errors']
                  for name, answer in self.answers.items()}
        for name in ('draft-server-1', 'draft-vcpus', 'draft-ports'):
            for key, error in errors[name].items():
                if key != 'host_less_tester':
                    self.assertLessEqual(error, .10, (name, key))
        self.assertLessEqual(errors['draft-server-2']['host'], .10)

    def test_a_table_with_a_larger_error_is_said_to_contradict_itself(self):
        for name, answer in self.answers.items():
            if any(error > .10 for error in answer['median_errors'].values()):
                self.assertTrue(
                    answer['contradictions'] or answer['remarks'], name)
        # 1518 bytes in less time than 256: nothing can fit.
        self.assertTrue(any(
            '2.22 us at 1518 bytes' in text
            for text in self.answers['draft-server-2']['contradictions']))

    def test_each_figure_is_left_out_once_in_each_way(self):
        for name, answer in self.answers.items():
            # Plain data, without NaN.
            json.dumps(answer, allow_nan=False)
            rows = len(self.tables[name].measurements)
            for key in self.tables[name].leave_out:
                self.assertEqual(rows, sum(
                    line['left_out'] == key for line in answer['rates']))

    def test_the_gateway_paper_is_reproduced(self):
        lines = self.answers['gateway-paper-software-vxlan']['statements']
        self.assertEqual(10, len(lines))
        self.assertEqual([True] * 10, [line['within'] for line in lines])

    def test_growth_with_offload_is_linear_to_the_line(self):
        lines = self.answers['iovisor-offload']['statements']
        for line in lines:
            if 'linear' in line['words']:
                self.assertAlmostEqual(36e6 / 8 * line['pairs'],
                                       line['predicted'], delta=5e4)

    def test_udp_of_a_line_is_reproduced_and_tcp_above_it_is_told(self):
        udp, tcp = self.answers['exogeni']['statements']
        # 100 Mbps times 1470 of 1536 bytes on the wire.
        self.assertAlmostEqual(1e5 * 1470 / 1536, udp['predicted'], places=6)
        self.assertTrue(udp['within'])
        self.assertFalse(tcp['within'])
        self.assertIn('shaper', self.answers['exogeni']['remarks'][0])
