# SPDX-License-Identifier: Apache-2.0

import unittest

from vswitch_aware_scheduler.lab.capacity import cost_model


class TestMeasurement(unittest.TestCase):

    def test_packets_and_time_follow_from_rate_and_size(self):
        measured = cost_model.Measurement(125, 1000)      # 1000 bits a packet
        self.assertAlmostEqual(1.0, measured.kpps)
        self.assertAlmostEqual(1000.0, measured.packet_us)


class TestLine(unittest.TestCase):

    def test_ten_gigabit_carries_the_well_known_14_88_million_frames(self):
        # 64 byte frames hold 46 bytes of IP: 10e9 / (8 * 84) frames.
        rate = cost_model.line_rate_kbps(10e6, 46)
        self.assertAlmostEqual(14880.95, rate / (8 * 46), places=2)

    def test_headers_of_an_encapsulation_use_the_line_too(self):
        for name, header in (('vxlan', 50), ('gre', 42), ('geneve', 50)):
            self.assertAlmostEqual(
                1e6 * 1450 / (1450 + header + 38),
                cost_model.line_rate_kbps(1e6, 1450, name))
