# SPDX-License-Identifier: Apache-2.0
import unittest

import numpy as np

from vswitch_aware_scheduler.lab.demo import replay
from vswitch_aware_scheduler.vswitch import profile

SLOW = profile.SwitchProfile(name='slow', saturation_kbps=100)
FAST = profile.SwitchProfile(name='fast', saturation_kbps=1000)
PROFILES = {'slow': SLOW, 'fast': FAST}
HOSTS = [('a', 'slow'), ('b', 'fast')]


def _rates(*samples):
    return np.array(samples, dtype=float)


class CarryTest(unittest.TestCase):

    def test_the_tightest_limit_decides_what_is_carried(self):
        for stated, rates, expected, overload in (
                ({'saturation_kbps': 100},
                 ((30, 20), (60, 40), (150, 50), (0, 0)),
                 [50, 100, 100, 0], [False, False, True, False]),
                # Each direction has its line rate.
                ({'line_rate_kbps': 100}, ((100, 100), (200, 0), (0, 400)),
                 [200, 100, 100], [False, True, True]),
                # 1 kpps of 1000 bytes is 8000 kbit/s.
                ({'packet_rate_kpps': 1, 'typical_packet_bytes': 1000},
                 ((4000, 4000), (16000, 0)), [8000, 8000], [False, True]),
                ({'saturation_kbps': 150, 'line_rate_kbps': 100},
                 ((100, 100), (200, 0)), [150, 100], [True, True])):
            with self.subTest(**stated):
                overloaded, carried = replay.carry(
                    _rates(*rates), profile.SwitchProfile('own', **stated))
                self.assertEqual(overload, overloaded.tolist())
                np.testing.assert_allclose(expected, carried)


class ReplayTest(unittest.TestCase):

    def setUp(self):
        # x and y are both on: 80 + 80 kbit/s in the first sample only.
        self.rates = {'x': _rates((80, 0), (0, 0), (40, 0), (0, 40)),
                      'y': _rates((0, 80), (40, 0), (0, 0), (20, 20)),
                      'z': _rates(*[(100, 100)] * 4)}

    def test_a_placement_worked_out_by_hand(self):
        replayed = replay.replay({'x': 'a', 'y': 'a', 'z': 'b'}, self.rates,
                                 HOSTS, PROFILES)
        summary = replayed.summary()
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
        self.assertEqual(0, replayed.summary('fast')['overloaded_samples'])
        self.assertAlmostEqual(15 / 80, replayed.summary('slow')['lost_share'])

    def test_a_vm_is_on_the_host_to_which_it_was_migrated(self):
        replayed = replay.replay({'x': 'a', 'y': 'a'}, self.rates, HOSTS,
                                 PROFILES, [(1, 'y', 'b'), (3, 'y', 'a')])
        # Host a: offered 160, 0, 40, 80; host b: 0, 40, 0, 0.
        self.assertEqual([[160, 0, 40, 80], [0, 40, 0, 0]],
                         [host.offered_kbps.tolist()
                          for host in replayed.hosts])
        self.assertEqual([2, 0], [host.vms for host in replayed.hosts])
        summary = replayed.summary()
        self.assertEqual((2, 2, 1), (
            summary['hosts_used'], summary['vms_placed'],
            summary['overloaded_samples']))
        self.assertEqual(2, replayed.live_migrations)

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
        replayed = replay.replay({}, self.rates, HOSTS, PROFILES)
        self.assertEqual([('slow', 100), ('fast', 1000)],
                         list(replayed.profiles.items()))
        self.assertEqual(0, replayed.summary()['lost_share'])
