# SPDX-License-Identifier: Apache-2.0

import unittest

from tests.unit.lab import sites
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab import gateway

SITE = sites.SITE
changed = sites.changed


def made(data):
    return gateway.plan(gateway.site_from_dict(data))


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

    def test_a_site_may_be_empty(self):
        self.assertEqual({'networks': [], 'gateways': {}}, made({}).to_dict())
