# SPDX-License-Identifier: Apache-2.0

import json
import unittest

import numpy as np

from vswitch_aware_scheduler.admission import tunnel_table
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.vswitch import attachments
from vswitch_aware_scheduler.vswitch import profile

RESIDENTS = [attachments.Attachments(networks)
             for networks in (('red',), ('blue',), ('red', 'blue'), ())]


class TestAttachments(unittest.TestCase):

    def test_what_is_written_is_read_again(self):
        for attached in (*RESIDENTS, attachments.UNKNOWN,
                         attachments.Attachments(
                ('red', None), ('grey',), 3)):
            data = json.loads(json.dumps(attached.to_data()))
            self.assertEqual(attached, attachments.Attachments.from_data(data))
        # As it was before there was more to tell.
        self.assertEqual(['red', 'blue'], attachments.Attachments(
            ('red', 'blue')).to_data())

    def test_where_all_networks_need_one_the_others_do_too(self):
        attached = attachments.Attachments(('red',), ('grey', 'red'), 2)
        self.assertEqual(
            attachments.Attachments(('red', 'grey', 'red'), (), 2),
            attached.all_tunnelled)
        self.assertIs(RESIDENTS[0], RESIDENTS[0].all_tunnelled)

    def test_what_cannot_be_is_told(self):
        for kwargs, message in (
                ({'networks': ('',)}, "a network of networks: ''"),
                ({'networks': (5,)}, ': 5; expected text of 1 to 36'),
                ({'others': ('',)}, "a network of others: ''"),
                ({'others': 'red'}, "others: 'red'; expected a collection"),
                ({'networks': ('x' * 37,)}, '1 to 36 characters'),
                ({'virtual_functions': -1}, 'virtual_functions: -1'),
                ({'virtual_functions': 'two'}, "virtual_functions: 'two'")):
            with self.assertRaisesRegex(exceptions.InvalidInput, message):
                attachments.Attachments(**kwargs)
        for data in (5, {'colour': 'red'}):
            with self.assertRaisesRegex(exceptions.InvalidInput,
                                        'expected a list of networks, or'):
                attachments.Attachments.from_data(data)


def random_attachments(rng):
    """Return Attachments to few networks, so that many meet."""
    names = [None, 'a', 'b', 'c', 'd', 'e']
    return attachments.Attachments(
        [names[i] for i in rng.integers(0, 6, rng.integers(0, 4))],
        [names[i] for i in rng.integers(1, 6, rng.integers(0, 2))],
        int(rng.integers(0, 3)))


def peers_of(residents, host):
    """Return {network: other hosts with a VM on it}, by going through all."""
    return {network: {
        peer for peer, of_peer in residents.items() if peer != host
        and any(network in attached.networks for attached in of_peer.values())}
        for network in 'abcde'}


def count(unit, residents, peers):
    """Return how many tunnels or virtual functions instances need.

    :param residents: iterable of the Attachments on a host
    :param peers: {network: the other hosts with an instance on it}
    """
    if unit == tunnel_table.FUNCTIONS:
        return sum(attached.virtual_functions for attached in residents)
    if unit == 'instances':
        return sum(bool(attached.networks) for attached in residents)
    interfaces = [network for attached in residents
                  for network in attached.networks]
    if unit == 'interfaces':
        return len(interfaces)
    # Each unknown network may be a different one.
    networks = {*interfaces} - {None}
    return interfaces.count(None) + len(
        networks if unit == 'networks'
        else set().union(*map(peers.get, networks)))


def refused_by_count(limits, residents, host, new, exclude=None):
    """Return what has no room, by counting it all, before and after."""
    def counted(everyone, at, unit):
        return count(unit, everyone[at].values(), peers_of(everyone, at))

    before = {name: dict(of_host) for name, of_host in residents.items()}
    before[host].pop(exclude, None)
    with_new = {**before, host: {**before[host], 'new': new}}
    for unit in tunnel_table.COUNTED:
        for at in residents if unit == 'vteps' else [host]:
            with_it = counted(with_new, at, unit)
            if with_it > counted(before, at, unit) \
                    and with_it > limits[at].get(unit, np.inf):
                return unit
    return None


class TestTunnelTable(unittest.TestCase):

    def check(self, table, limits, residents, new, exclude=None):
        hosts = np.array(sorted(limits))
        codes = table.refused(hosts, new, exclude).tolist()
        for host, code in zip(hosts.tolist(), codes):
            # A host that is to know one more may be another one.
            expected = refused_by_count(limits, residents, host, new, exclude)
            self.assertEqual(
                expected, tunnel_table.COUNTED[code - 1] if code else None,
                (host, new, limits, residents))

    def test_it_says_what_counting_says(self):
        rng = np.random.default_rng(6)
        refusals = 0
        for trial in range(60):
            table = tunnel_table.TunnelTable()
            unit = tunnel_table.COUNTED[trial % 5]
            residents = {host: {} for host in range(5)}
            limits = {host: {unit: int(rng.integers(0, 6))}
                      if rng.random() < .8 else {} for host in residents}
            for host, most in limits.items():
                table.describe(host, most, {})
            for step in range(25):
                host = int(rng.integers(0, 5))
                of_host = residents[host]
                action = rng.random()
                if action < .6 or not of_host:
                    of_host[f'{step}'] = random_attachments(rng)
                    table.add(host, f'{step}', of_host[f'{step}'])
                elif action < .8:
                    uuid = next(iter(of_host))
                    del of_host[uuid]
                    table.remove(host, uuid)
                elif action < .9:
                    uuid = next(iter(of_host))
                    of_host[uuid] = random_attachments(rng)
                    table.renew(host, uuid, of_host[uuid])
                else:
                    limits[host] = {unit: int(rng.integers(0, 6))}
                    residents[host] = {'x': random_attachments(rng)}
                    table.describe(host, limits[host], residents[host])
                new = random_attachments(rng)
                self.check(table, limits, residents, new)
                refusals += table.refused([host], new).sum() > 0
        self.assertGreater(refusals, 200)

    def test_one_that_moves_is_not_counted_where_it_is(self):
        rng = np.random.default_rng(7)
        for trial in range(100):
            table = tunnel_table.TunnelTable()
            unit = tunnel_table.COUNTED[trial % 4]
            # Of VTEPs those that others know of it stay until it is gone.
            residents = {host: {f'{host}{i}': random_attachments(rng)
                                for i in range(3)} for host in range(3)}
            limits = {host: {unit: 3} if unit != 'vteps' or not host else {}
                      for host in residents}
            for host, most in limits.items():
                table.describe(host, most, residents[host])
            before = table._counts.tolist()
            new = residents[0]['00']
            self.assertEqual(
                refused_by_count(limits, residents, 0, new, '00') is None,
                not table.refused([0], new, '00')[0])
            self.assertEqual(before, table._counts.tolist())

    def test_a_host_that_is_forgotten_is_served_no_more(self):
        table = tunnel_table.TunnelTable()
        self.assertFalse(table.limited)
        table.describe(3, {'vteps': 1}, {'u': RESIDENTS[0]})
        table.describe(4, {}, {'v': RESIDENTS[0]})
        self.assertTrue(table.limited)
        self.assertEqual((1, 0, 1.0), table.numbers(3, RESIDENTS[0], 3))
        # It would be the second that host 3 has to know.
        self.assertEqual([4], table.refused([9], RESIDENTS[0]).tolist())
        table.forget(4)
        self.assertNotIn(4, table)
        self.assertEqual([0], table.refused([9], RESIDENTS[0]).tolist())
        table.forget(3)
        table.forget(3)
        self.assertFalse(table.limited)
        self.assertEqual({}, table._serving)


class TestProfile(unittest.TestCase):

    def test_the_unit_of_tunnels_is_kept_and_checked(self):
        for unit, most in (('instances', 5), ('interfaces', 5),
                           ('networks', None), ('vteps', None)):
            own = profile.SwitchProfile('x', max_tunnels=5, tunnel_unit=unit)
            # Only units that grow with instances bound their number.
            self.assertEqual(most, own.max_instances
                             and own.max_instances.count)
            self.assertEqual(own, profile.SwitchProfile.from_dict(
                own.to_dict()))
        with self.assertRaisesRegex(
                exceptions.InvalidInput,
                "tunnel_unit: 'network'; expected one of instances, .*"
                'nearest name: networks'):
            profile.SwitchProfile('x', max_tunnels=5, tunnel_unit='network')
