# SPDX-License-Identifier: Apache-2.0

import itertools
import unittest

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.vswitch import profile
from vswitch_aware_scheduler.vswitch import tunnels

# Two VMs on a network each, one with an interface on both, one on neither.
RESIDENTS = [tunnels.Attachments(networks)
             for networks in (('red',), ('blue',), ('red', 'blue'), ())]
PEERS = {'red': {'h2', 'h3'}, 'blue': {'h3', 'h4', 'h5'}, 'green': {'h2'},
         'grey': set()}


class TestTunnels(unittest.TestCase):

    def test_each_unit_counts_its_own(self):
        for unit, number in (('instances', 3), ('interfaces', 4),
                             ('networks', 2), ('vteps', 4)):
            self.assertEqual(number, tunnels.count(unit, RESIDENTS, PEERS))
            self.assertEqual(0, tunnels.count(unit, [], PEERS))

    def test_a_network_that_the_host_serves_opens_no_tunnel(self):
        for networks, expected in (
                (('red',), (1, 1, 0, 0)), (('green',), (1, 1, 1, 0)),
                (('grey',), (1, 1, 1, 0)), (('red', 'red'), (1, 2, 0, 0)),
                ((), (0, 0, 0, 0))):
            self.assertEqual(expected, tuple(
                tunnels.opened(unit, RESIDENTS,
                               tunnels.Attachments(networks), PEERS)
                for unit in profile.TUNNEL_UNITS), networks)

    def test_the_order_in_which_instances_come_does_not_matter(self):
        for unit in profile.TUNNEL_UNITS:
            whole = tunnels.count(unit, RESIDENTS, PEERS)
            for order in itertools.permutations(RESIDENTS):
                self.assertEqual(whole, sum(
                    tunnels.opened(unit, order[:i], one, PEERS)
                    for i, one in enumerate(order)))

    def test_room_is_what_the_profile_says(self):
        for unit, most, networks, fits in (
                ('instances', 3, ('red',), False),
                ('instances', 4, ('red',), True),
                ('instances', 3, (), True),
                ('interfaces', 5, ('red', 'blue'), False),
                ('networks', 2, ('red', 'blue'), True),
                ('networks', 2, ('green',), False),
                # More than there may be already, but none is opened.
                ('networks', 1, ('red',), True),
                ('vteps', 4, ('green',), True),
                ('vteps', 0, ('red',), True)):
            switch = profile.SwitchProfile('x', max_tunnels=most,
                                           tunnel_unit=unit)
            self.assertIs(fits, tunnels.room(
                switch, RESIDENTS, tunnels.Attachments(networks), PEERS),
                (unit, most, networks))
        self.assertTrue(tunnels.room(
            profile.SwitchProfile('x', saturation_kbps=1), RESIDENTS,
            tunnels.Attachments(('green',))))

    def test_what_cannot_be_counted_is_told(self):
        for unit, peers, words in (
                ('vms', PEERS, "unit is 'vms', wanted one of instances"),
                ('vteps', {'red': {'h2'}}, 'hosts on network blue are not'),
                ('vteps', None, 'hosts on network blue are not given')):
            with self.assertRaisesRegex(exceptions.InvalidInput, words):
                tunnels.count(unit, RESIDENTS, peers)
        with self.assertRaisesRegex(exceptions.InvalidInput,
                                    "networks are 'red', wanted one for"):
            tunnels.Attachments('red')


class TestProfile(unittest.TestCase):

    def test_only_units_that_grow_with_instances_bound_their_number(self):
        for unit, most in (('instances', 5), ('interfaces', 5),
                           ('networks', None), ('vteps', None)):
            found = profile.SwitchProfile(
                'x', max_tunnels=5, tunnel_unit=unit).max_instances
            self.assertEqual(most, found and found.count)

    def test_the_unit_is_written_and_read(self):
        for unit in profile.TUNNEL_UNITS:
            one = profile.SwitchProfile('x', max_tunnels=5, tunnel_unit=unit)
            self.assertEqual(one, profile.SwitchProfile.from_dict(
                one.to_dict()))

    def test_a_unit_that_is_not_known_is_told(self):
        with self.assertRaisesRegex(
                exceptions.InvalidProfile,
                "tunnel_unit is 'network', wanted one of instances, .*did "
                "you mean 'networks'"):
            profile.SwitchProfile('x', max_tunnels=5, tunnel_unit='network')


if __name__ == '__main__':
    unittest.main()
