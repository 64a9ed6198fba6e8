# SPDX-License-Identifier: Apache-2.0

import pathlib
import re
import runpy
import unittest

from vswitch_aware_scheduler.vswitch import profile

ROOT = pathlib.Path(__file__).parents[3]
SAMPLE = ROOT / 'etc/vswitch_aware_scheduler/switch_profiles.yaml.sample'
PAGE = ROOT / 'doc/source/configuration/profiles.rst'
NUMBERS = (*profile.OVERRIDABLE_KEYS, 'saturation_by_packet_bytes')

# Figures as printed in the documents, Gb/s by bytes.
DRAFT = {
    'ietf-e5-2430': {128: .40, 256: .66, 512: 1.43, 1024: 2.62, 1518: 3.66},
    'ietf-e5-2620': {128: .46, 256: .70, 512: 1.50, 1024: 3.10, 1518: 5.46},
    'ietf-e5-2430-two-vms': {
        128: 1.01, 256: 1.68, 512: 3.68, 1024: 6.67, 1518: 9.45},
}


class TestCatalogue(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.catalogue = profile.catalogue()

    def stated(self):
        for name, built_in in self.catalogue.items():
            for key in NUMBERS:
                if getattr(built_in, key) is not None:
                    yield name, built_in, key

    def test_every_switch_that_the_documents_name_is_there(self):
        families = {}
        for built_in in self.catalogue.values():
            families.setdefault(built_in.switch, set()).add(
                built_in.encapsulation)
        self.assertEqual({'none', 'vxlan', 'gre', 'geneve'},
                         families['openvswitch'])
        self.assertLessEqual(
            {'dpdk-vswitch', 'lagopus', 'eswitch', 'iovisor',
             'vxlan-gateway', 'vswitch-vtep'}, set(families))
        self.assertLessEqual(
            {'lagopus-raw-socket', 'lagopus-dpdk', 'lagopus-bare-metal',
             'iovisor-offload', 'iovisor-software', 'vxlan-software-10g'},
            set(self.catalogue))

    def test_saturation_is_the_one_that_was_measured(self):
        for name, kbps in (
                ('ovs-flat', 11.289e6), ('ovs-vxlan', 1.241e6),
                ('ovs-vxlan-1g', 180465), ('ovs-gre-1g', 221307),
                ('ovs-vxlan-microserver', 8516),
                ('ovs-gre-microserver', 7159),
                ('iovisor-offload', 36e6), ('iovisor-software', 36e6 / 10)):
            with self.subTest(name=name):
                self.assertEqual(
                    kbps, self.catalogue[name].saturation_kbps)

    def test_gre_at_56_gbe_is_scaled_by_the_ratio_of_test_bed_1(self):
        self.assertAlmostEqual(1.241e6 * 221307 / 180465,
                               self.catalogue['ovs-gre'].saturation_kbps,
                               delta=1)

    def test_the_drafts_rates_come_back_by_packet_size(self):
        for name, table in DRAFT.items():
            for size, gbps in table.items():
                with self.subTest(name=name, size=size):
                    self.assertAlmostEqual(
                        gbps * 1e6,
                        self.catalogue[name].saturation_kbps_at(size), 3)

    def test_software_vxlan_fills_its_line_at_4000_bytes_and_not_before(self):
        software = self.catalogue['vxlan-software-10g']
        # Kinoshita et al., figures 12 and 14: hardly any other packet rate.
        for size in (88, 1000, 1500, 3000, 4000):
            self.assertAlmostEqual(312.5, software.bandwidth_kbps(size)
                                   / (8 * size))
        self.assertEqual(software.line_rate_kbps,
                         software.bandwidth_kbps(4000))

    def test_behind_a_gateway_1500_bytes_almost_fill_the_line(self):
        gateway = self.catalogue['vxlan-gateway-10g']
        self.assertAlmostEqual(
            1, gateway.bandwidth_kbps(1500) / gateway.line_rate_kbps, 3)
        self.assertEqual('none', gateway.encapsulation)

    def test_io_visor_keeps_to_the_figures_by_packet_size(self):
        packets = self.catalogue['iovisor-offload'].packet_rate_kpps
        self.assertAlmostEqual(36e6 / (8 * 512), packets, delta=1)
        self.assertTrue(5e6 <= packets * 8 * 128 <= 10e6)

    def test_one_vm_of_io_visor_gets_an_eighth_of_eight_pairs(self):
        offload = self.catalogue['iovisor-offload']
        self.assertEqual(offload.saturation_kbps / 8, offload.vm_peak_kbps)

    def test_only_the_eswitch_is_limited_by_virtual_functions(self):
        limited = {name: tuple(built_in.max_instances)
                   for name, built_in in self.catalogue.items()
                   if built_in.max_instances is not None}
        self.assertEqual(
            {'mellanox-eswitch': (63, 'max_virtual_functions'),
             'connectx-6dx-eswitch': (127, 'max_virtual_functions'),
             'connectx-7-eswitch': (127, 'max_virtual_functions')},
            limited)

    def test_small_packets_cost_poll_mode_less_than_the_kernel(self):
        kernel = self.catalogue['ietf-e5-2430'].bandwidth_kbps(128)
        raw, poll, hardware = (
            self.catalogue[f'lagopus-{plane}'].bandwidth_kbps(128)
            for plane in ('raw-socket', 'dpdk', 'bare-metal'))
        self.assertTrue(raw < kernel < poll < hardware)
        self.assertEqual(
            poll, self.catalogue['dpdk-vswitch'].bandwidth_kbps(128))

    def test_every_number_has_a_source_or_is_an_estimate(self):
        for name, built_in, key in self.stated():
            with self.subTest(name=name, key=key):
                self.assertRegex(
                    built_in.sources.get(key, ''),
                    '^(estimate: |MLNX_OFED |(Sarker et al.|Kinoshita et al.'
                    '|PLUMgrid and Mellanox|Liu et al.|Open vSwitch|Linux'
                    '|DPDK( 25.07)?|NVIDIA|VPP 21.10), )')

    def test_every_profile_states_its_age_and_how_far_to_trust_it(self):
        for name, built_in in self.catalogue.items():
            with self.subTest(name):
                self.assertIn(built_in.provenance['trust'],
                              ('low', 'medium'))
                self.assertTrue(
                    2014 <= built_in.provenance['published'] <= 2026)
                estimated = [key for each, _, key in self.stated()
                             if each == name and key in (
                                 'saturation_kbps', 'packet_rate_kpps')
                             and built_in.sources[key].startswith('estimate')]
                if estimated and name != 'iovisor-offload':
                    self.assertEqual('low', built_in.provenance['trust'])

    def test_a_built_in_profile_was_measured_elsewhere_until_replaced(self):
        for built_in in self.catalogue.values():
            self.assertTrue(built_in.is_measured_elsewhere)
            self.assertIn(f'--switch {built_in.switch} --encapsulation '
                          f'{built_in.encapsulation} ',
                          built_in.calibration_command)
        measured = profile.SwitchProfile(
            'ovs-geneve', line_rate_kbps=1,
            provenance={'tool': 'vswitch-calibrate remote'})
        self.assertFalse(measured.is_measured_elsewhere)
        # Overrides of an aggregate do not measure.
        self.assertTrue(self.catalogue['ovs-geneve'].overridden(
            {'saturation_kbps': 5}, 'x').is_measured_elsewhere)
        self.assertFalse(profile.SwitchProfile(
            'mine', line_rate_kbps=1).is_measured_elsewhere)

    def test_switches_of_today_have_the_figures_of_their_documents(self):
        for name, key, value in (
                ('ovs-kernel-40g', 'packet_rate_kpps', 15e3),
                ('kernel-geneve-connectx-5', 'saturation_kbps', 21.7e6),
                ('linux-bridge', 'saturation_kbps', 19842.95e3),
                ('macvtap', 'packet_rate_kpps', 1786.289),
                ('vpp-vhost', 'packet_rate_kpps', 7.5e3),
                ('vpp-vhost', 'cores', 2),
                ('connectx-5-eswitch', 'line_rate_kbps', 100e6),
                ('connectx-7-eswitch', 'line_rate_kbps', 400e6),
                ('bluefield-2-eswitch', 'line_rate_kbps', 200e6),
                ('bluefield-3-eswitch', 'line_rate_kbps', 400e6)):
            with self.subTest(name):
                self.assertEqual(value, getattr(self.catalogue[name], key))

    def test_every_profile_says_how_its_figures_are_read(self):
        for name, built_in in self.catalogue.items():
            with self.subTest(name=name):
                self.assertGreater(len(built_in.description), 25)

    def test_each_call_reads_anew(self):
        self.assertEqual(self.catalogue, profile.catalogue())
        self.assertIsNot(self.catalogue, profile.catalogue())

    def test_a_profile_comes_back_from_its_dictionary(self):
        for built_in in self.catalogue.values():
            self.assertEqual(built_in, profile.SwitchProfile.from_dict(
                built_in.to_dict()))


class TestText(unittest.TestCase):

    def test_the_sample_is_a_file_of_profiles(self):
        self.assertGreaterEqual(len(profile.load_profiles(SAMPLE)), 3)

    def test_the_page_lists_the_numbers_of_every_built_in(self):
        # A row of the page's table: "* - ``name``", its numbers, its source.
        self.assertIn('\n.. switch-profiles\n', PAGE.read_text())
        conf = runpy.run_path(str(ROOT / 'doc/source/conf.py'))
        rows = {row.split('``')[0]: row for row in re.split(
            r'\n   \* - ``', conf['list_profiles']()) if '``' in row}
        for name, built_in in profile.catalogue().items():
            self.assertIn(name, rows)
            numbers = ' '.join(rows[name].split('\n     - ')[1].replace(
                ',', '').split())
            for key in profile.OVERRIDABLE_KEYS[:-3] + (
                    'max_virtual_functions',):
                value = getattr(built_in, key)
                if value is not None:
                    with self.subTest(name=name, key=key):
                        self.assertRegex(numbers,
                                         rf'{key} {value:.15g}\b'.replace(
                                             '.', r'\.'))
            estimated = any(text.startswith('estimate:')
                            for key, text in built_in.sources.items()
                            if key != 'typical_packet_bytes')
            with self.subTest(name=name):
                self.assertEqual(estimated, 'stimate' in rows[name])

    def test_the_page_explains_every_key(self):
        page = PAGE.read_text()
        for key in ('base', *profile.SwitchProfile.__dataclass_fields__):
            if key != 'name':
                self.assertIn(f'\n   * - ``{key}``\n', page)
