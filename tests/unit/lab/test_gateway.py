# SPDX-License-Identifier: Apache-2.0

import os
import tempfile
import unittest

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab import gateway

#: Two silos of two racks each; the second has one VLAN domain for both.
SITE = {
    'gateways': {
        'g1': {'interfaces': 4, 'mapping_entries': 10},
        'g2': {'interfaces': 4, 'mapping_entries': 8, 'switch_back': True}},
    'silos': {
        'east': {'interface_groups': {'e1': {'g1': 2}, 'e2': {'g2': 2}}},
        'west': {'interface_groups': {'w': {'g1': [3, 4], 'g2': [4]}}}},
    'tenants': {
        'red': {'networks': {
            'web': {'silos': ['east', 'west']},
            'db': {'silos': ['west'], 'vlans': {'w': 2}, 'vni': 4096}}},
        'blue': {'networks': {'web': {'vlans': {'e1': None, 'w': 7}}}}}}


def changed(path, value):
    """Return the site with something else at a path of keys."""
    def at(data, keys):
        if not keys:
            return value
        return {**data, keys[0]: at(data.get(keys[0], {}), keys[1:])}
    return at(SITE, path)


def made(data):
    return gateway.plan(gateway.site_from_dict(data))


class TestEntries(unittest.TestCase):

    def test_the_paper_gives_48_times_4k_against_4k(self):
        self.assertEqual(48 * 4096, gateway.entries(4096, 48, False))
        self.assertEqual(4096, gateway.entries(4096, 48, True))


class TestPlan(unittest.TestCase):

    def test_networks_get_the_first_numbers_that_nobody_asks_for(self):
        self.assertEqual(
            [{'tenant': 'red', 'network': 'web', 'vni': 4097,
              'vlans': {'e1': 2, 'e2': 2, 'w': 3}},
             {'tenant': 'red', 'network': 'db', 'vni': 4096,
              'vlans': {'w': 2}},
             {'tenant': 'blue', 'network': 'web', 'vni': 4098,
              'vlans': {'e1': 3, 'w': 7}}], made(SITE).to_dict()['networks'])

    def test_each_gateway_is_told_what_it_maps(self):
        gateways = made(SITE).to_dict()['gateways']
        self.assertEqual([
            ('red', 'web', 4097, 'e1', 2, [1, 2]),
            ('red', 'web', 4097, 'w', 3, [3, 4]),
            ('red', 'db', 4096, 'w', 2, [3, 4]),
            ('blue', 'web', 4098, 'e1', 3, [1, 2]),
            ('blue', 'web', 4098, 'w', 7, [3, 4])],
            [tuple(mapping.values()) for mapping in gateways['g1'][
                'mappings']])
        # Two for each of five without switch-back; with it, one for each.
        self.assertEqual((10, 4), (gateways['g1']['entries'],
                                   gateways['g2']['entries']))
        self.assertEqual(['e2', 'w', 'w', 'w'], [
            mapping['interface_group'] for mapping in gateways['g2'][
                'mappings']])

    def test_a_full_table_is_refused(self):
        with self.assertRaisesRegex(
                exceptions.MappingTableFull,
                'gateway g1: 5 mappings need 10 entries; expected at most 9, '
                'which its table holds; with switch-back they would need 5'):
            made(changed(['gateways', 'g1', 'mapping_entries'], 9))
        made(changed(['gateways', 'g1', 'mapping_entries'], 10))
        made(changed(['gateways', 'g1'], {
            'interfaces': 4, 'mapping_entries': 5, 'switch_back': True}))
        with self.assertRaisesRegex(exceptions.MappingTableFull,
                                    'need 4 entries; expected at most 3, '
                                    'which its table holds$'):
            made(changed(['gateways', 'g2', 'mapping_entries'], 3))

    def test_all_vlans_of_all_interfaces_are_what_the_paper_says(self):
        networks = {f'n{i}': {'silos': ['s']} for i in range(4094)}
        data = {
            'gateways': {'g': {'interfaces': 48,
                               'mapping_entries': 48 * 4094}},
            'silos': {'s': {'interface_groups': {'all': {'g': 48}}}},
            'tenants': {'t': {'networks': networks}}}
        self.assertEqual(48 * 4094, made(data).entries('g'))
        data['gateways']['g'].update(switch_back=True, mapping_entries=4094)
        plan = made(data)
        self.assertEqual(4094, plan.entries('g'))
        self.assertEqual([*range(2, 4095), 1], [
            vlans['all'] for _, _, vlans in plan.networks])
        networks['one-more'] = {'silos': ['s']}
        with self.assertRaisesRegex(
                exceptions.InvalidInput, 'network t/one-more: no free '
                'VLAN of interface group all'):
            made(data)

    def test_a_number_that_two_ask_for_is_refused(self):
        for path, value, message in (
                (['tenants', 'blue', 'networks', 'web', 'vni'], 4096,
                 'network blue/web: VNI: 4096; expected a VNI that network '
                 'red/db does not have'),
                (['tenants', 'blue', 'networks', 'web', 'vlans'], {'w': 2},
                 'blue/web: VLAN of interface group w: 2; expected a VLAN')):
            with self.assertRaisesRegex(exceptions.InvalidInput, message):
                made(changed(path, value))

    def test_a_vlan_domain_may_have_what_another_one_has(self):
        plan = made(changed(['tenants', 'blue', 'networks', 'web', 'vlans'],
                            {'e2': 2, 'e1': 2, 'w': 7}))
        self.assertEqual({'e2': 2, 'e1': 2, 'w': 7}, plan.networks[-1][2])


class TestSite(unittest.TestCase):

    def test_what_cannot_be_is_told(self):
        g1, red = ['gateways', 'g1'], ['tenants', 'red', 'networks']
        e1 = ['silos', 'east', 'interface_groups', 'e1']
        for path, value, message in (
                ([], [], 'the file: content: .*; expected a mapping'),
                (['racks'], {}, "a key: 'racks'; expected one of gateways"),
                (['gateways'], [5], 'gateways: content: .5.; expected a'),
                (['gateways', 5], {}, 'gateways: a name: 5; expected text'),
                (g1, {'interfaces': 4},
                 'gateway g1: mapping_entries: not given; expected a whole'),
                ([*g1, 'interfaces'], 0, 'interfaces: 0; expected a whole '
                 'number from 1'),
                ([*g1, 'switch_back'], 'no', "switch_back: 'no'; expected"),
                ([*g1, 'colour'], 1, "gateway g1: a key: 'colour'"),
                ([*e1, 'g9'], 1, "interface group e1: a gateway: 'g9'; "
                 'expected one of g1, g2'),
                ([*e1, 'g1'], 5, 'an interface of gateway g1: 5; expected 1'),
                ([*e1, 'g1'], [1, 1], 'expected each once, and one or more'),
                ([*e1, 'g1'], [], 'expected each once, and one or more'),
                ([*e1, 'g1'], [True], ': True; expected a whole number'),
                ([*e1, 'g1'], [3], 'gateway g1: 3; expected one that is not '
                 'in interface group e1: an interface has one VLAN domain'),
                (['silos', 'west', 'interface_groups', 'e1'], {'g1': [4]},
                 "its silo: 'west'; expected east alone"),
                ([*red, 'web', 'silos'], ['north'],
                 "network red/web: a silo: 'north'; expected one of east"),
                ([*red, 'web', 'silos'], 'east', 'expected a list of names'),
                ([*red, 'web'], {}, 'where it is: .*; expected silos, or'),
                ([*red, 'db', 'vni'], 1 << 24, 'vni: 16777216; expected'),
                ([*red, 'db', 'vlans', 'w'], 4095, ': 4095; expected a whole '
                 'number from 1 to 4094'),
                ([*red, 'db', 'vlans', 'x'], 1, "a key: 'x'; expected one")):
            with self.subTest(path=path), self.assertRaisesRegex(
                    exceptions.InvalidInput, message):
                gateway.site_from_dict(changed(path, value) if path
                                       else value)

    def test_a_file_is_named_in_what_is_wrong(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, 'site.yaml')
            for text, message in (
                    (None, 'site.yaml: cannot be read .No such file'),
                    ('a: [', 'site.yaml, line 1: .*expected valid YAML'),
                    ('silos: {}\nsilos: {}\n', "key 'silos' comes a second"),
                    ('silos: 5\n', 'site.yaml: silos: content: 5')):
                if text is not None:
                    with open(path, 'w') as file:
                        file.write(text)
                with self.assertRaisesRegex(exceptions.InvalidInput, message):
                    gateway.load(path)
            with open(path, 'w') as file:
                file.write('{}\n')
            self.assertEqual({'networks': [], 'gateways': {}},
                             gateway.plan(gateway.load(path)).to_dict())
