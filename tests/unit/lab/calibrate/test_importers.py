# SPDX-License-Identifier: Apache-2.0

import os
import tempfile
import unittest

from tests.unit.lab.calibrate import outputs
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import importers

VSPERF = outputs.VSPERF


class TestImporters(unittest.TestCase):

    def test_iperf3_gives_size_and_rate_of_what_arrived(self):
        row, = importers.parse_iperf3(
            outputs.udp(10000, 2500, 72), 'x', 'gre', 4)
        self.assertAlmostEqual(100, row.packet_bytes)
        self.assertAlmostEqual(3000, row.rate_kbps)
        self.assertEqual(('gre', 4), (row.encapsulation, row.pairs))

    def test_a_test_of_tcp_is_refused(self):
        with self.assertRaisesRegex(exceptions.CalibrationError,
                                    'x: protocol: TCP; expected UDP'):
            importers.parse_iperf3(outputs.tcp(1, 1), 'x')

    def test_a_test_without_arrivals_is_refused(self):
        with self.assertRaisesRegex(exceptions.CalibrationError,
                                    '10 of 10 packets were lost; expected'):
            importers.parse_iperf3(outputs.udp(10, 10, 72), 'x')

    def test_vsperf_frames_become_packets(self):
        rows = importers.parse_vsperf(VSPERF, 'x')
        # Header and check of a frame are 18 bytes.
        self.assertEqual([46, 1500], [row.packet_bytes for row in rows])
        self.assertEqual([1e6 * 8 * 46 / 1e3, 5e5 * 8 * 1500 / 1e3],
                         [row.rate_kbps for row in rows])
        self.assertAlmostEqual(1000, rows[0].kpps)

    def test_the_tunnel_of_vsperf_counts_unless_told_otherwise(self):
        text = VSPERF.replace('512,\n', '512,vxlan\n')
        self.assertEqual(['vxlan', 'none'], [
            row.encapsulation for row in importers.parse_vsperf(text, 'x')])
        self.assertEqual(['geneve'] * 2, [
            row.encapsulation
            for row in importers.parse_vsperf(text, 'x', 'geneve')])

    def test_mistakes_in_vsperf_are_told_by_line(self):
        for text, message in (
                ('a,b\n1,2\n', "header: 'a,b'; expected the columns"),
                (VSPERF.splitlines()[0] + '\n', 'no row below the header'),
                (VSPERF.replace('1000000', 'n/a'),
                 "line 2: throughput_rx_fps: 'n/a'; expected a number"),
                (VSPERF.replace('rfc2544,64', 'rfc2544,18'),
                 'line 2: packet_size = 18, .*expected frames of more than'),
                (VSPERF.replace('512,\n', '512,stt\n'),
                 "line 2: encapsulation: 'stt'; expected one of")):
            with self.assertRaisesRegex(exceptions.CalibrationError, message):
                importers.parse_vsperf(text, 'x')

    def test_a_file_becomes_a_profile(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, 'result.csv')
            with open(path, 'w') as file:
                file.write(VSPERF)
            rows = importers.load('vsperf', path)
            with self.assertRaisesRegex(exceptions.CalibrationError,
                                        'cannot be read'):
                importers.load('vsperf', path + '.not')
            with self.assertRaisesRegex(exceptions.InvalidInput,
                                        'pairs: 0; expected'):
                importers.load('vsperf', path, pairs=0)
        imported = importers.make_profile(rows, 'lab', 'ovs', 'test',
                                          ['result.csv'])
        self.assertEqual({46.0: 368000.0, 1500.0: 6000000.0},
                         imported.saturation_by_packet_bytes)
        self.assertEqual((1000.0, 1500.0), (imported.packet_rate_kpps,
                                            imported.typical_packet_bytes))

    def test_several_encapsulations_are_no_profile(self):
        rows = importers.parse_vsperf(
            VSPERF.replace('512,\n', '512,vxlan\n'), 'x')
        with self.assertRaisesRegex(exceptions.CalibrationError,
                                    'of the files: none, vxlan; expected'):
            importers.make_profile(rows, 'lab', 'ovs', 'test', ['x'])
