# SPDX-License-Identifier: Apache-2.0

import unittest

from tests.unit.lab.calibrate import outputs
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import importers

VSPERF = outputs.VSPERF


def iperf3(text, **values):
    return importers.parse_iperf3(text, 'x', importers.Setting(**values))


def vsperf(text, **values):
    return importers.parse_vsperf(text, 'x', importers.Setting(**values))


class TestImporters(unittest.TestCase):

    def test_iperf3_gives_size_and_rate_of_what_arrived(self):
        row, = iperf3(outputs.udp(10000, 2500, 72), encapsulation='gre',
                      pairs=4).measurements
        self.assertAlmostEqual(100, row.packet_bytes)
        self.assertAlmostEqual(3000, row.rate_kbps)
        self.assertEqual(('gre', 4), (row.encapsulation, row.pairs))

    def test_datagrams_above_the_mtu_are_several_packets(self):
        text = outputs.iperf3('3.12-fragments')
        for options, packets in (({}, 1831 * 6), ({'mtu': 9000}, 1831)):
            row, = iperf3(text, **options).measurements
            self.assertAlmostEqual(packets / 2.003973 / 1e3, row.kpps,
                                   places=3)

    def test_a_test_of_tcp_or_without_arrivals_is_refused(self):
        nothing = 'none of [0-9]+ packets arrived; exp'
        for text, message in (
                (outputs.tcp(1, 1), 'x: protocol: TCP; expected UDP'),
                (outputs.udp(10, 10, 72), nothing),
                (outputs.iperf3('3.12-hole'), nothing)):
            with self.assertRaisesRegex(exceptions.CalibrationError, message):
                iperf3(text)

    def test_vsperf_frames_become_packets(self):
        rows = vsperf(VSPERF).measurements
        # Header and check of a frame are 18 bytes.
        self.assertEqual([46, 1500], [row.packet_bytes for row in rows])
        self.assertEqual([1e6 * 8 * 46 / 1e3, 5e5 * 8 * 1500 / 1e3],
                         [row.rate_kbps for row in rows])
        self.assertAlmostEqual(1000, rows[0].kpps)

    def test_a_frame_counts_as_often_as_it_passes_the_switch(self):
        for deployment, passes in (('p2p', 1), ('op2p', 1), ('pvp', 2),
                                   ('pvpv', 2), ('pvvp', 3)):
            row = vsperf(VSPERF.replace('p2p', deployment)).measurements[0]
            self.assertAlmostEqual(1000 * passes, row.kpps)

    def test_deployments_are_never_mixed(self):
        text = VSPERF.replace('p2p', 'pvp', 1)
        with self.assertRaisesRegex(
                exceptions.CalibrationError,
                'deployments: p2p, pvp; expected one, .*--deployment'):
            vsperf(text)
        for deployment, size, kpps in (('pvp', 46, 2000), ('p2p', 1500, 500)):
            row, = vsperf(text, deployment=deployment).measurements
            self.assertEqual((size, kpps), (row.packet_bytes, row.kpps))

    def test_one_stream_does_not_stand_for_many(self):
        results = vsperf(outputs.SCALABILITY)
        self.assertEqual([2400.0], [row.kpps for row in results.measurements])
        self.assertEqual(1000000, results.conditions['streams'])
        results = vsperf(outputs.SCALABILITY, streams=8000)
        self.assertEqual([6200.0], [row.kpps for row in results.measurements])
        with self.assertRaisesRegex(exceptions.CalibrationError,
                                    'no row below the header that counts'):
            vsperf(outputs.SCALABILITY, streams=7)

    def test_a_back_to_back_row_does_not_count_and_is_named(self):
        results = vsperf(
            VSPERF + 'phy2phy_b2b,p2p,rfc2544_back2back,64,,,\n')
        self.assertEqual(2, len(results.measurements))
        self.assertEqual(['x: line 4: a back-to-back test has no rate; the '
                          'row does not count'], results.remarks)

    def test_the_tunnel_of_vsperf_counts_unless_told_otherwise(self):
        text = VSPERF.replace('512,\n', '512,vxlan\n')
        self.assertEqual(['vxlan', 'none'], [
            row.encapsulation for row in vsperf(text).measurements])
        self.assertEqual(['geneve'] * 2, [
            row.encapsulation for row in vsperf(
                text, encapsulation='geneve').measurements])

    def test_different_conditions_are_no_profile(self):
        for texts, message in (
                ([VSPERF.replace('512,\n', '512,vxlan\n')],
                 'of the files: none, vxlan; expected'),
                ([VSPERF, VSPERF.replace('p2p', 'pvp')],
                 'deployment of the files: p2p, pvp; expected the same')):
            with self.assertRaisesRegex(exceptions.CalibrationError, message):
                importers.make_profile(list(map(vsperf, texts)), 'lab', 'ovs',
                                       'test', ['x', 'y'][:len(texts)])
