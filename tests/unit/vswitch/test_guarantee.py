# SPDX-License-Identifier: Apache-2.0

import unittest

from vswitch_aware_scheduler.vswitch import guarantee


class TestOfResources(unittest.TestCase):

    def test_guaranteed_rates_of_all_ports_add_up(self):
        self.assertEqual((120, 30, 12), guarantee.of_resources([
            {'NET_BW_EGR_KILOBIT_PER_SEC': 100, 'VCPU': 4},
            {'NET_BW_EGR_KILOBIT_PER_SEC': 20,
             'NET_BW_IGR_KILOBIT_PER_SEC': 30},
            # Packets of one direction are packets of both.
            {'NET_PACKET_RATE_KILOPACKET_PER_SEC': 7},
            {'NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC': 2,
             'NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC': 3}]))

    def test_other_resources_guarantee_nothing(self):
        for amounts in ([], [{}], [{'VCPU': 4}]):
            self.assertEqual(guarantee.NONE, guarantee.of_resources(amounts))
