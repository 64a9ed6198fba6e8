# SPDX-License-Identifier: Apache-2.0

import math
import pathlib
import unittest

from vswitch_aware_scheduler.lab.purchase import counts
from vswitch_aware_scheduler.lab.purchase import inputs
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile

SAMPLES = pathlib.Path(__file__).parents[4] / 'etc/vswitch_aware_scheduler'

ON, OFF = 60.0, 540.0


def _server(cores=64, memory_mb=65536, price=1000.0, uplink=(None, 1),
            **limits):
    limits = limits or {'saturation_kbps': 1e6}
    return inputs.ServerType(
        'server', cores, memory_mb,
        (profile.SwitchProfile('switch', **limits),), price, *uplink)


def _vm(cores=1, memory_mb=1024, kbps=100.0, on_off=True, count=1,
        flavor='vm', kpps=0.0):
    chain = model.TrafficModel.on_off(
        kbps, kpps=kpps, on_seconds=ON, off_seconds=OFF) if on_off \
        else model.TrafficModel.constant(kbps, kpps=kpps)
    return inputs.Vm(flavor, cores, memory_mb, chain.law, chain, count=count)


def _row(server, *vms, limit=0.01, count=None):
    row, = counts.purchase([server], inputs.mix_of_flavors(vms, 1001), limit,
                           count)
    return row


def _vms(server_type, switch, vm, method):
    """Return how many VMs of one kind a server takes.

    This is what purchase() reports as ``vms``. It also computes the overload
    and the sensitivity of each count, which takes five times as long.
    """
    server = counts.ServerCapacity(server_type, switch, .01)
    if server.takes(vm, method):
        return 0
    return server.fill(inputs.mix_of_flavors([vm], 1001).vms, method).vms


def _binomial(n, p, k):
    return math.comb(n, k) * p ** k * (1 - p) ** (n - k)


def _binomial_tail(n, p, above):
    return math.fsum(_binomial(n, p, k) for k in range(above + 1, n + 1))


def _most(limit, at_once, copies=1):
    """Return how many on/off VMs keep P(more than some are on) at a limit.

    200 at the most.
    """
    return next((n for n in range(200) if _binomial_tail(
        copies * (n + 1), ON / (ON + OFF), at_once) > limit * (1 + 1e-9)),
        200)


class CountsTestCase(unittest.TestCase):

    def assert_counts(self, row, method, vms, resource):
        self.assertEqual((vms, resource), (
            row[method]['vms'], row[method]['first_to_run_out']))


class AgnosticTestCase(CountsTestCase):
    """Figure 1: the smaller of two quotients."""

    def test_one_flavor_is_counted_by_the_closed_form(self):
        for cores, memory_mb, need, resource in (
                (64, 65536, (1, 1024), 'cores'),
                (64, 65535, (1, 1024), 'memory'),
                (7, 65536, (2, 1024), 'cores'),
                (64, 10000, (1, 3000), 'memory'),
                (.3, 4096, (.1, 1), 'cores')):
            row = _row(_server(cores, memory_mb), _vm(*need))
            expected = min(int(cores / need[0] * (1 + 1e-12)),
                           int(memory_mb / need[1]))
            self.assert_counts(row, 'agnostic', expected, resource)

    def test_a_mix_is_walked_until_the_first_that_does_not_fit(self):
        # Of ten beginning VMs: seven of 1 core and three of 4; 19 cores.
        mix = inputs.mix_of_flavors(
            [_vm(1, count=7, flavor='a'), _vm(4, count=3, flavor='b')], 100)
        for cores in (19, 38, 41):
            used = count = 0
            for vm in mix.vms:
                used += vm.cores
                if used > cores:
                    break
                count += 1
            row, = counts.purchase([_server(cores)], mix, .01)
            self.assertEqual(count, row['agnostic']['vms'])

    def test_each_beginning_of_a_mix_has_the_shares_of_its_flavors(self):
        shares = {'a': 70, 'b': 25, 'c': 5}
        mix = inputs.mix_of_flavors(
            [_vm(count=count, flavor=name)
             for name, count in shares.items()], 200)
        self.assertEqual(100, mix.total)
        for length in range(1, 201):
            for name, share in shares.items():
                count_of_flavor = sum(vm.flavor == name
                                      for vm in mix.vms[:length])
                self.assertLess(abs(count_of_flavor - length * share / 100),
                                1.5)


class Figure9TestCase(CountsTestCase):

    def test_each_resource_can_be_the_first(self):
        for keywords, vms, resource in (
                # Averages of 10: 37 of them are 370.
                ({'saturation_kbps': 379.0}, 37, 'saturation'),
                ({'saturation_kbps': 1e6, 'max_tunnels': 9}, 9, 'tunnels'),
                ({'saturation_kbps': 1e6, 'max_virtual_functions': 5}, 5,
                 'virtual_functions'),
                ({'line_rate_kbps': 200.0}, 20, 'nic'),
                ({'packet_rate_kpps': 3.0}, 15, 'packets'),
                ({'packet_cost_us': 250.0}, 20, 'switching'),
                ({'line_rate_kbps': 1e6}, 64, 'cores'),
                ({'line_rate_kbps': 1e6, 'uplink': (500.0, 5)}, 10,
                 'uplink')):
            with self.subTest(resource):
                self.assert_counts(_row(_server(**keywords), _vm(kpps=2.0)),
                                   'figure9', vms, resource)

    def test_a_peak_that_the_switch_cannot_carry_is_refused(self):
        server = _server(saturation_kbps=1e6, vm_peak_kbps=99.0)
        row = _row(server, _vm(flavor='loud'))
        for method in ('figure9', 'overlay'):
            self.assertEqual((0, None, None, 1, {'loud': 'peak'}), tuple(
                row[method][key] for key in (
                    'vms', 'servers', 'cost', 'refused', 'refused_flavors')))
        self.assertEqual(64, row['agnostic']['vms'])


class OverlayTestCase(CountsTestCase):

    def test_on_off_vms_are_as_many_as_the_binomial_law_says(self):
        for limit in (1.0, .1, .01, 1e-4, 0.0):
            row = _row(_server(saturation_kbps=450.0), _vm(), limit=limit)
            most = min(_most(limit, 4), 64)
            self.assert_counts(row, 'overlay', most,
                               'cores' if limit == 1 else 'saturation')
            self.assertAlmostEqual(
                _binomial_tail(most, .1, 4),
                row['overlay']['overload_probability'], places=9)

    def test_the_resource_named_is_the_one_that_is_exceeded(self):
        most = _most(.01, 4)
        for keywords, vms, resource in (
                ({'cores': 3}, 3, 'cores'),
                ({'memory_mb': 2048}, 2, 'memory'),
                ({'saturation_kbps': 1e6, 'max_tunnels': 4}, 4, 'tunnels'),
                ({'line_rate_kbps': 450.0, 'saturation_kbps': 5e3}, most,
                 'nic'),
                ({'line_rate_kbps': 5e3, 'saturation_kbps': 450.0}, most,
                 'saturation'),
                ({'line_rate_kbps': 5e3, 'packet_rate_kpps': 9.0}, most,
                 'packets')):
            self.assert_counts(_row(_server(**keywords), _vm(kpps=2.0)),
                               'overlay', vms, resource)

    def test_a_shared_uplink_ends_it_by_the_traffic_of_all_servers(self):
        row = _row(_server(saturation_kbps=1e6, uplink=(950.0, 4)), _vm())
        self.assert_counts(row, 'overlay', _most(.01, 9, 4), 'uplink')
        self.assertLessEqual(
            row['overlay']['uplink_overload_probability'], .01)
        self.assertGreater(
            row['agnostic']['uplink_overload_probability'], .01)

    def test_episodes_a_day_are_those_of_the_closed_form(self):
        row = _row(_server(saturation_kbps=450.0), _vm())
        for method in counts.METHODS:
            n = int(row[method]['vms'])
            # From four on to five: one of those that are off turns on.
            rate = _binomial(n, .1, 4) * (n - 4) / OFF
            self.assertAlmostEqual(
                1, row[method]['episodes_per_day'] / (rate * 86400))
            self.assertAlmostEqual(
                1, row[method]['mean_episode_seconds']
                * rate / _binomial_tail(n, .1, 4))

    def test_traffic_that_grows_is_that_of_a_smaller_switch(self):
        row = _row(_server(1000, 1e9, saturation_kbps=1200.0), _vm())
        for grown in row['sensitivity']['growth']:
            smaller = _server(
                1000, 1e9, saturation_kbps=1200.0 / grown['growth'])
            self.assertEqual(
                _vms(smaller, *smaller.profiles, _vm(), 'overlay'),
                grown['vms'])
        self.assertEqual(
            [_most(limit, 12) for limit in (.001, .01, .1)],
            [changed['vms'] for changed
             in row['sensitivity']['overload_probability']])


class FleetTestCase(unittest.TestCase):

    def test_servers_and_cost_are_rounded_up(self):
        # 12 on each by cores.
        for count, servers, price, cost in (
                (1, 1, 1e3, 1e3), (12, 1, 1e3, 1e3), (13, 2, 1e3, 2e3),
                (120, 10, 1e3, 1e4), (121, 11, 1e3, 1.1e4),
                (13, 2, None, None)):
            row = _row(_server(12, price=price), _vm(on_off=False),
                       count=count)
            for method in counts.METHODS:
                self.assertEqual((servers, cost), (
                    row[method]['servers'], row[method]['cost']))

    def test_flavors_that_no_server_takes_are_counted_and_left_out(self):
        for server, vms, count, expected in (
                (_server(8), (_vm(1, count=30), _vm(9, count=10, flavor='l')),
                 400, {'vms': 8, 'refused': 100, 'servers': 38,
                       'refused_flavors': {'l': 'cores'}}),
                # One that is rare is refused as well.
                (_server(10), (_vm(1, count=99_999),
                               _vm(11, count=1, flavor='rare')), None,
                 {'refused': 1, 'refused_flavors': {'rare': 'cores'}}),
                # The list of the others is not shorter.
                (_server(100, 1e6), (_vm(101, count=99, flavor='l'),
                                     _vm(1, count=1)), 1000,
                 {'vms': 100, 'first_to_run_out': 'cores', 'refused': 990,
                  'servers': 1})):
            agnostic = _row(server, *vms, count=count)['agnostic']
            self.assertEqual(expected, {
                key: agnostic[key] for key in expected})

    def test_what_is_unused_is_the_rest(self):
        for kbps, used, unused in ((2400.0, .5, .5), (600.0, 2, 0)):
            result = _row(_server(12, 65536, saturation_kbps=kbps),
                          _vm(on_off=False))['agnostic']
            self.assertAlmostEqual(used, result['used']['saturation'])
            for resource, share in (('cores', 0), ('memory', 1 - 12 / 64),
                                    ('saturation', unused)):
                self.assertAlmostEqual(share, result['unused'][resource])

    def test_a_list_of_vms_fills_one_server_after_the_other(self):
        vms = [_vm(cores, on_off=False) for cores in (3, 1, 4, 2, 2, 3, 1)]
        mix = inputs.Mix(tuple(vms), 7, False, tuple(vms))
        row, = counts.purchase([_server(4)], mix, .01)
        # 3 1, 4, 2 2, 3 1.
        self.assertEqual((4, 7 / 4), (row['agnostic']['servers'],
                                      row['agnostic']['vms']))

    def test_the_cheapest_of_a_technology_refuses_nobody(self):
        def row(server, switch, servers, cost, refused=0):
            return {'server': server, 'profile': 'p', 'switch': switch,
                    'encapsulation': 'none', 'overlay': {
                        'servers': servers, 'cost': cost, 'vms': 1.0,
                        'refused': refused}}

        cheapest = counts.by_technology([
            row('a', 'x', 3, 30.0), row('b', 'x', 9, 20.0),
            row('c', 'x', 1, 10.0, refused=1), row('d', 'y', None, None, 5),
            row('e', 'z', 7, None), row('f', 'z', 6, None)])
        self.assertEqual([('x', 'b', 20.0), ('y', None, None),
                          ('z', 'f', None)],
                         [(row_of['switch'], row_of['server'], row_of['cost'])
                          for row_of in cheapest])


class PaperTestCase(unittest.TestCase):
    """The set-ups of the paper, as the sample file has them."""

    #: Mbit/s that the switch of each row carries, and VMs of 1 core and 1 GB
    #: by cores and memory.
    SERVERS = ((11289.0, 128), (1241.0, 128), (180.465, 16), (8.516, 2))

    def test_each_count_is_that_of_its_closed_form(self):
        _, server_types = inputs.load_server_types(
            SAMPLES / 'server_types.yaml.sample', profile.catalogue())
        kinds = [(server_type, switch) for server_type in server_types
                 for switch in server_type.profiles]
        self.assertEqual(len(self.SERVERS), len(kinds))
        for mbps in (1.0, 10.0, 40.0, 100.0, 200.0, 1000.0):
            vm = _vm(kbps=1e3 * mbps)
            for (server_type, switch), (capacity, by_cores) in zip(
                    kinds, self.SERVERS):
                with self.subTest(switch.name, mbps=mbps):
                    refused = mbps > capacity
                    self.assertEqual(
                        [by_cores, 0 if refused
                         else min(by_cores, int(capacity / (.1 * mbps))),
                         0 if refused
                         else min(by_cores,
                                  _most(.01, int(capacity / mbps)))],
                        [_vms(server_type, switch, vm, method)
                         for method in counts.METHODS])
