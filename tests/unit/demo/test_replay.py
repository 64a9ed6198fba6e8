# SPDX-License-Identifier: Apache-2.0
import unittest

import numpy as np

from vswitch_aware_scheduler.demo import replay
from vswitch_aware_scheduler.vswitch import profile

SLOW = profile.SwitchProfile(name='slow', saturation_kbps=100)
FAST = profile.SwitchProfile(name='fast', saturation_kbps=1000)
PROFILES = {'slow': SLOW, 'fast': FAST}
HOSTS = [('a', 'slow'), ('b', 'fast')]


def _rates(*samples):
    return np.array(samples, dtype=float)


class CarryTest(unittest.TestCase):

    def test_what_is_carried_is_the_smaller_of_sum_and_saturation(self):
        overloaded, carried = replay.carry(
            _rates((30, 20), (60, 40), (150, 50), (0, 0)), SLOW)
        self.assertEqual([False, False, True, False], overloaded.tolist())
        np.testing.assert_allclose([50, 100, 100, 0], carried)

    def test_each_direction_has_its_line_rate(self):
        line = profile.SwitchProfile(name='line', line_rate_kbps=100)
        overloaded, carried = replay.carry(
            _rates((100, 100), (200, 0), (0, 400)), line)
        self.assertEqual([False, True, True], overloaded.tolist())
        np.testing.assert_allclose([200, 100, 100], carried)

    def test_packets_are_derived_from_their_typical_size(self):
        # 1 kpps of 1000 bytes is 8000 kbit/s.
        packets = profile.SwitchProfile(name='packets', packet_rate_kpps=1,
                                        typical_packet_bytes=1000)
        overloaded, carried = replay.carry(
            _rates((4000, 4000), (16000, 0)), packets)
        self.assertEqual([False, True], overloaded.tolist())
        np.testing.assert_allclose([8000, 8000], carried)

    def test_the_tightest_limit_decides(self):
        both = profile.SwitchProfile(name='both', saturation_kbps=150,
                                     line_rate_kbps=100)
        _, carried = replay.carry(_rates((100, 100), (200, 0)), both)
        np.testing.assert_allclose([150, 100], carried)


class ReplayTest(unittest.TestCase):

    def setUp(self):
        # x and y are both on: 80 + 80 kbit/s in the first sample only.
        self.rates = {'x': _rates((80, 0), (0, 0), (40, 0), (0, 40)),
                      'y': _rates((0, 80), (40, 0), (0, 0), (20, 20)),
                      'z': _rates(*[(100, 100)] * 4)}

    def test_a_placement_worked_out_by_hand(self):
        found = replay.replay({'x': 'a', 'y': 'a', 'z': 'b'}, self.rates,
                              HOSTS, PROFILES)
        summary = found.summary()
        # Host a: offered 160, 40, 40, 80; carried 100, 40, 40, 80.
        self.assertEqual(1, summary['overloaded_samples'])
        self.assertEqual(1 / 8, summary['overloaded_share_mean'])
        self.assertEqual(1 / 4, summary['overloaded_share_worst'])
        self.assertEqual(280, summary['placed_kbps'])
        self.assertEqual(265, summary['carried_kbps'])
        self.assertAlmostEqual(15 / 280, summary['lost_share'])
        self.assertEqual((3, 2, 2), (summary['vms_placed'],
                                     summary['hosts_used'],
                                     summary['hosts']))
        self.assertEqual(0, found.summary('fast')['overloaded_samples'])
        self.assertAlmostEqual(15 / 80, found.summary('slow')['lost_share'])

    def test_a_vm_is_on_the_host_to_which_it_was_migrated(self):
        found = replay.replay({'x': 'a', 'y': 'a'}, self.rates, HOSTS,
                              PROFILES, [(1, 'y', 'b'), (3, 'y', 'a')])
        # Host a: offered 160, 0, 40, 80; host b: 0, 40, 0, 0.
        self.assertEqual([[160, 0, 40, 80], [0, 40, 0, 0]],
                         [host.offered_kbps.tolist() for host in found.hosts])
        self.assertEqual([2, 0], [host.vms for host in found.hosts])
        summary = found.summary()
        self.assertEqual((2, 2, 1), (
            summary['hosts_used'], summary['vms_placed'],
            summary['overloaded_samples']))
        self.assertEqual(2, found.live_migrations)

    def test_a_refused_vm_counts_nowhere_but_in_the_list(self):
        summary = replay.replay({'x': 'a'}, self.rates, HOSTS,
                                PROFILES).summary()
        self.assertEqual(1, summary['vms_placed'])
        self.assertEqual(1, summary['hosts_used'])
        self.assertEqual(0, summary['overloaded_samples'])
        self.assertEqual(0, summary['lost_share'])
        self.assertAlmostEqual(40 / 280, summary['placed_traffic_share'])
        self.assertAlmostEqual(40 / 280, summary['carried_traffic_share'])

    def test_switch_types_come_in_the_order_of_the_hosts(self):
        found = replay.replay({}, self.rates, HOSTS, PROFILES)
        self.assertEqual([('slow', 100), ('fast', 1000)],
                         list(found.profiles.items()))
        self.assertEqual(0, found.summary()['lost_share'])
