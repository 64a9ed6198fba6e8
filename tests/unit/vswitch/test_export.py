# SPDX-License-Identifier: Apache-2.0

import configparser
import dataclasses
import pathlib
import tempfile
import unittest

from nova.compute import provider_config
import numpy as np
import yaml

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.vswitch import export
from vswitch_aware_scheduler.vswitch import profile


def made(**stated):
    return profile.SwitchProfile('of-the.test', **stated)


class InventoryTestCase(unittest.TestCase):

    def test_what_counts_both_directions_is_halved_and_a_line_is_not(self):
        # Egress, ingress, both, packets, and the most of one VM.
        for expected, stated in (
                ((500, 500, 1000, None, 300),
                 {'saturation_kbps': 1000, 'vm_peak_kbps': 300}),
                # The line carries less than half in neither direction.
                ((500, 500, 1000, None, None),
                 {'saturation_kbps': 1000, 'line_rate_kbps': 800}),
                ((800, 800, 1600, None, None), {'line_rate_kbps': 800}),
                ((800, 800, 1600, None, None),
                 {'line_rate_kbps': 800, 'saturation_kbps': 2000}),
                # The peak of one VM is one of that direction, not of both.
                ((300, 800, 1100, None, None),
                 {'saturation_kbps': 300, 'line_rate_kbps': 800,
                  'saturation_dimension': 'egress', 'vm_peak_kbps': 9}),
                ((800, 300, 1100, None, None),
                 {'saturation_kbps': 300, 'line_rate_kbps': 800,
                  'saturation_dimension': 'ingress'}),
                ((300, None, None, None, None),
                 {'saturation_kbps': 300, 'saturation_dimension': 'egress'}),
                # 10 kpps of 125 bytes are 10 Mbit/s.
                ((5000, 5000, 10000, 10, None),
                 {'packet_rate_kpps': 10.9999, 'saturation_kbps': 10000,
                  'typical_packet_bytes': 125}),
                ((5000, 5000, 10000, 10, None),
                 {'packet_rate_kpps': 10, 'typical_packet_bytes': 125}),
                # 3000 of both, at most 1000 of it in one direction.
                ((1000, 2000, 3000, 3, None),
                 {'saturation_kbps': 1000, 'packet_rate_kpps': 3,
                  'saturation_dimension': 'egress',
                  'typical_packet_bytes': 125}),
                ((2000, 1000, 3000, 3, None),
                 {'saturation_kbps': 1000, 'packet_rate_kpps': 3,
                  'saturation_dimension': 'ingress',
                  'typical_packet_bytes': 125}),
                # 4 us + 1000 bytes * 1 ns = 5 us a packet: 200 kpps, 1.6
                # Gbit/s.
                ((800000, 800000, 1600000, 200, None),
                 {'packet_cost_us': 4, 'byte_cost_ns': 1,
                  'typical_packet_bytes': 1000}),
                ((800000, 800000, 1600000, 200, None),
                 {'byte_cost_ns': 5, 'typical_packet_bytes': 1000,
                  'packet_rate_kpps': 900}),
                ((4000, 4000, 8000, 1, None),
                 {'saturation_by_packet_bytes': {100: 2000, 1000: 8000},
                  'typical_packet_bytes': 1000}),
                # Placement counts to its largest integer.
                ((2147483647,) * 3 + (None, None), {'line_rate_kbps': 1e12})):
            with self.subTest(**stated):
                inventory = export.inventory(made(**stated))
                self.assertEqual(expected, dataclasses.astuple(inventory))

    def test_no_profile_of_the_catalogue_is_promised_more_than_it_carries(
            self):
        for name, switch in profile.catalogue().items():
            with self.subTest(name):
                inventory = export.inventory(switch)
                rates = [inventory.egress_kbps, inventory.ingress_kbps]
                rates.append(sum(rates) / (8 * switch.typical_packet_bytes))
                for limit in switch.limits():
                    self.assertLessEqual(np.dot(limit.weights, rates),
                                         limit.capacity * (1 + 1e-9), limit)


class ProviderTestCase(unittest.TestCase):

    def provider(self, **stated):
        [options] = export.provider_config(made(**stated))['providers']
        classes = {}
        for item in options['inventories']['additional']:
            classes |= {key.removeprefix('CUSTOM_VSWITCH_'):
                        (value['total'], value['max_unit'])
                        for key, value in item.items()}
        return options, classes

    def test_each_limit_is_a_resource_class(self):
        provider, classes = self.provider(
            saturation_kbps=1000, vm_peak_kbps=600, packet_rate_kpps=7.5,
            typical_packet_bytes=1500, max_tunnels=9,
            max_virtual_functions=4)
        self.assertEqual({
            'EGR_KILOBIT_PER_SEC': (500, 500),
            'IGR_KILOBIT_PER_SEC': (500, 500),
            'KILOBIT_PER_SEC': (1000, 600), 'KILOPACKET_PER_SEC': (7, 7),
            'TUNNEL': (9, 9), 'VIRTUAL_FUNCTION': (4, 4)}, classes)
        self.assertEqual({'uuid': '$COMPUTE_NODE'}, provider['identification'])
        self.assertEqual(['CUSTOM_VSWITCH_OF_THE_TEST'],
                         provider['traits']['additional'])

    def test_a_limit_that_is_not_stated_or_none_is_no_class(self):
        self.assertEqual({'TUNNEL'}, self.provider(max_tunnels=2)[1].keys())
        # Placement has no inventory of nothing, nor one of shared tunnels.
        self.assertEqual({}, self.provider(max_virtual_functions=0)[1])
        self.assertEqual({}, self.provider(max_tunnels=2,
                                           tunnel_unit='networks')[1])

    def test_nova_compute_takes_it(self):
        profiles = [*profile.catalogue().values(), made(max_tunnels=10 ** 12)]
        for switch in profiles:
            with self.subTest(switch.name), \
                    tempfile.TemporaryDirectory() as folder:
                text = export.render(switch, 'provider')
                self.assertEqual(export.provider_config(switch),
                                 yaml.safe_load(text))
                pathlib.Path(folder, 'provider.yaml').write_text(text)
                providers = provider_config.get_provider_configs(folder)
                self.assertEqual(['$COMPUTE_NODE'], list(providers))
                for inventory in providers['$COMPUTE_NODE']['inventories'][
                        'additional']:
                    [values] = inventory.values()
                    # As Placement's schema of inventories wants them.
                    self.assertLessEqual(
                        (1, 1), (values['total'], values['max_unit']))
                    self.assertLess(values['total'], 2 ** 31)


class NeutronTestCase(unittest.TestCase):

    def options(self, form, devices=('br-ex',), hypervisor='',
                directions=False, **stated):
        text = export.render(made(**stated), form, devices, hypervisor,
                             directions)
        parser = configparser.ConfigParser()
        parser.read_string(text)
        [section] = parser.sections()
        return section, {
            name.removeprefix('resource_provider_'): value
            for name, value in parser[section].items()}

    def test_an_agent_gets_what_it_reports_of_its_devices(self):
        def of(bandwidths, max_unit, **more):
            return {'bandwidths': bandwidths, 'inventory_defaults':
                    f'allocation_ratio:1.0,min_unit:1,max_unit:{max_unit},'
                    'step_size:1,reserved:0', **more}

        for group, arguments, stated, expected in (
                ('ovs', {}, {'saturation_kbps': 1000, 'vm_peak_kbps': 300,
                             'packet_rate_kpps': 70.9},
                 of('br-ex:500:500', 300,
                    packet_processing_without_direction=':70')),
                # A direction without limit is left out.
                ('ovs', {}, {'saturation_kbps': 300,
                             'saturation_dimension': 'egress'},
                 of('br-ex:300:', 300)),
                ('ovs', {'directions': True}, {'packet_rate_kpps': 71},
                 of('br-ex:426000:426000', 426000,
                    packet_processing_with_direction=':35:35')),
                ('ovs', {'hypervisor': 'node7', 'directions': True},
                 {'packet_rate_kpps': 71},
                 of('br-ex:426000:426000', 426000,
                    hypervisors='br-ex:node7',
                    packet_processing_with_direction='node7:35:35')),
                # Devices share evenly.
                ('sriov_nic', {'devices': 'abc'},
                 {'line_rate_kbps': 800, 'vm_peak_kbps': 700,
                  'packet_rate_kpps': 700},
                 of('a:266:266,b:266:266,c:266:266', 266)),
                ('sriov_nic', {'devices': 'ab', 'hypervisor': 'node7'},
                 {'line_rate_kbps': 800},
                 of('a:400:400,b:400:400', 400,
                    hypervisors='a:node7,b:node7'))):
            form = 'neutron-' + group.partition('_')[0]
            with self.subTest(form, **stated):
                self.assertEqual((group, expected), self.options(
                    form, **arguments, **stated))

    def test_ovn_gets_a_part_of_its_options(self):
        *comments, text = export.render(
            made(line_rate_kbps=800), 'neutron-ovn',
            ['br-ex', 'rp_tunnelled'], 'node7').splitlines()
        self.assertTrue(all(line.startswith('# ') for line in comments))
        self.assertEqual(
            'resource_provider_bandwidths=br-ex:400:400;rp_tunnelled:400:400,'
            'resource_provider_inventory_defaults=allocation_ratio:1.0;'
            'min_unit:1;max_unit:400;step_size:1;reserved:0,'
            'resource_provider_hypervisors=br-ex:node7;rp_tunnelled:node7',
            text)
        # Without a hypervisor ML2/OVN ignores the bandwidth.
        with self.assertRaisesRegex(exceptions.InvalidInput,
                                    '--hypervisor: not given; expected'):
            export.render(made(line_rate_kbps=800), 'neutron-ovn', ['br-ex'])

    def test_tunnels_have_the_bandwidth_of_tunnelled_networks(self):
        tunnel = made(line_rate_kbps=800, encapsulation='vxlan')
        for form in ('neutron-ovs', 'neutron-ovn'):
            self.assertIn('resource_provider_bandwidths', export.render(
                tunnel, form, (), 'h'))
            self.assertIn('rp_tunnelled:800:800', export.render(
                tunnel, form, (), 'h'))
            self.assertIn('# Networks of vxlan use the bandwidth of '
                          'rp_tunnelled', export.render(
                              tunnel, form, ['br-ex'], 'h'))

    def test_what_cannot_be_exported_is_refused(self):
        for message, arguments, stated in (
                ('--device: not given', {'devices': ()},
                 {'line_rate_kbps': 8}),
                ("'br:ex'.*expected letters", {'devices': ['br:ex']},
                 {'line_rate_kbps': 8}),
                ("'a,b'.*expected letters", {'hypervisor': 'a,b'},
                 {'line_rate_kbps': 8}),
                ('no limit.*neutron-ovs', {}, {'max_tunnels': 4})):
            with self.subTest(message), self.assertRaisesRegex(
                    exceptions.InvalidInput, message):
                self.options('neutron-ovs', **arguments, **stated)
