# SPDX-License-Identifier: Apache-2.0

import pathlib
import tempfile
import unittest

from vswitch_aware_scheduler.lab.purchase import inputs
from vswitch_aware_scheduler.vswitch import profile

SAMPLES = pathlib.Path(__file__).parents[4] / 'etc/vswitch_aware_scheduler'


class FileTestCase(unittest.TestCase):

    def write(self, text):
        path = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()), 'input.yaml')
        path.write_text(text)
        return path

    def test_all_keys_of_a_server_count(self):
        path = self.write('''
            currency: CHF
            servers:
              a:
                cores: 10
                reserved_cores: 2
                cpu_allocation_ratio: 4
                memory_mb: 1000
                reserved_memory_mb: 500
                ram_allocation_ratio: 1.5
                nic_kbps: 123456
                switch_profiles: [ovs-flat, ovs-vxlan]
                price: 12.5
                uplink_kbps: 1000
                hosts_per_uplink: 8
              b: {cores: 1, memory_mb: 1, switch_profiles: ovs-gre}
            ''')
        currency, (first, second) = inputs.load_server_types(
            path, profile.catalogue())
        self.assertEqual(
            ('CHF', 'a', 32, 750, 12.5, 1000, 8),
            (currency, first.name, first.cores, first.memory_mb, first.price,
             first.uplink_kbps, first.hosts_per_uplink))
        self.assertEqual([('ovs-flat', 123456), ('ovs-vxlan', 123456)], [
            (switch.name, switch.line_rate_kbps) for switch in first.profiles])
        self.assertEqual((None, None, 56e6), (
            second.price, second.uplink_kbps,
            second.profiles[0].line_rate_kbps))

    def test_all_keys_of_a_flavor_count(self):
        flavors = inputs.load_flavors(self.write('''
            flavors:
              a: {cores: 2, memory_mb: 3, count: 4, egress_kbps: 50,
                  ingress_kbps: 60, kpps: 7, on_seconds: 1, off_seconds: 3}
              b: {cores: 1, memory_mb: 1, egress_kbps: 5}
              c: {cores: 1, memory_mb: 1}
            '''))
        self.assertEqual((2, 3, 4), (flavors['a'].cores,
                                     flavors['a'].memory_mb,
                                     flavors['a'].count))
        self.assertEqual([12.5, 15, 1.75], flavors['a'].model.mean.tolist())
        self.assertEqual([5, 0, 0], flavors['b'].model.mean.tolist())
        self.assertIsNone(flavors['c'].model)

    def test_the_sample_can_be_read(self):
        entries = inputs.load_flavors(SAMPLES / 'mix.yaml.sample')
        self.assertTrue(all(flavor.count and flavor.model
                            for flavor in entries.values()))
