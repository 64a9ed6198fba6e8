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


class TestCatalogue(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.catalogue = profile.catalogue()

    def test_figures_follow_from_those_that_the_documents_print(self):
        for name, key, value in (
                # At 56 GbE as at 1 GbE.
                ('ovs-gre', 'saturation_kbps', 1.241e6 * 221307 / 180465),
                ('iovisor-software', 'saturation_kbps', 36e6 / 10),
                # Of eight pairs, in packets of 512 bytes.
                ('iovisor-offload', 'vm_peak_kbps', 36e6 / 8),
                ('iovisor-offload', 'packet_rate_kpps', 36e6 / (8 * 512))):
            self.assertAlmostEqual(value, getattr(self.catalogue[name], key),
                                   delta=1)
        self.assertTrue(5e6 <= 8 * 128 * self.catalogue[
            'iovisor-offload'].packet_rate_kpps <= 10e6)

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
        for name, built_in in self.catalogue.items():
            for key in NUMBERS:
                if getattr(built_in, key) is None:
                    continue
                with self.subTest(name=name, key=key):
                    self.assertRegex(
                        built_in.sources.get(key, ''),
                        '^(estimate: |MLNX_OFED |(Sarker et al.|Kinoshita et '
                        'al.|PLUMgrid and Mellanox|Liu et al.|Open vSwitch|'
                        'Linux|DPDK( 25.07)?|NVIDIA|VPP 21.10), )')

    def test_every_profile_states_what_it_is_and_how_far_to_trust_it(self):
        for name, built_in in self.catalogue.items():
            with self.subTest(name):
                self.assertGreater(len(built_in.description), 25)
                self.assertIn(built_in.provenance['trust'],
                              ('low', 'medium'))
                self.assertTrue(
                    2014 <= built_in.provenance['published'] <= 2026)
                if name != 'iovisor-offload' and any(
                        built_in.sources.get(key, '').startswith('estimate')
                        for key in ('saturation_kbps', 'packet_rate_kpps')):
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
