# SPDX-License-Identifier: Apache-2.0
import math
import os
import tempfile
import unittest

import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.demo import fleet
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.telemetry import file as telemetry_file
from vswitch_aware_scheduler.vswitch import profile


class _InFolder(unittest.TestCase):

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(self.folder, 'trace.npz')
        self.store_url = f'sqlite:///{self.folder}/store.sqlite'


def _median_interval(values):
    """Return the 99.9 % confidence interval of a median, by its ranks."""
    ordered = np.sort(values)
    n = ordered.size
    reach = 3.29 * math.sqrt(n) / 2
    return ordered[int(n / 2 - reach)], ordered[int(n / 2 + reach)]


class GeneratedTraceTest(_InFolder):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'trace.npz')
            fleet.generate_trace(path, np.random.default_rng(7))
            with np.load(path) as trace:
                kbytes = (trace['rx_KBps'] + trace['tx_KBps']).astype(float)
        cls.total = kbytes.shape[0]
        cls.carrying = kbytes[kbytes.mean(axis=1) > 10]
        p99 = np.percentile(cls.carrying, 99, axis=1)
        cls.on = cls.carrying > 0.1 * p99[:, None]

    def _assert_median_as_published(self, values, low, high):
        below, above = _median_interval(values)
        self.assertLessEqual(below, high)
        self.assertGreaterEqual(above, low)
        # And an interval that says something.
        self.assertLess(above / below, 1.6)

    def test_the_share_of_vms_that_carry_traffic_is_as_published(self):
        self.assertAlmostEqual(0.4, len(self.carrying) / self.total, 2)

    def test_the_share_of_time_on_and_the_heavy_tail_are_as_published(self):
        self._assert_median_as_published(self.on.mean(axis=1), .08, .08)
        self._assert_median_as_published(
            self.carrying.max(axis=1) / self.carrying.mean(axis=1),
            114, 140)

    def test_the_probability_to_go_on_and_off_is_as_published(self):
        for on, *published in ((~self.on, .023, .037), (self.on, .30, .38)):
            before, changes = on[:, :-1], on[:, :-1] & ~on[:, 1:]
            self._assert_median_as_published(
                changes.sum(axis=1) / before.sum(axis=1), *published)

    def test_the_mean_of_the_fleet_is_as_published(self):
        # Published for 500 VMs.
        gbps = self.carrying.sum(axis=0).mean() * 8 / 1e6 * 500 / self.total
        self.assertTrue(.4 <= gbps <= .65, gbps)

    def test_a_seed_gives_the_same_trace(self):
        traces = []
        for name in ('a', 'b'):
            path = os.path.join(self.folder, f'{name}.npz')
            fleet.generate_trace(path, np.random.default_rng(3), 4, days=2)
            with np.load(path) as trace:
                traces.append(trace['tx_KBps'])
        np.testing.assert_array_equal(*traces)


class LearnTest(_InFolder):

    def _write(self, egress_kbytes, t0=0):
        egress = np.array(egress_kbytes, dtype=np.float32)
        np.savez(self.path, vm=np.arange(1, len(egress) + 1), t0=t0, dt=300,
                 rx_KBps=np.zeros_like(egress), tx_KBps=egress)

    def _learn(self, **kwargs):
        return fleet.learn(self.path, self.store_url,
                           np.random.default_rng(0), **kwargs)

    def test_models_are_of_the_first_half_and_rates_of_the_second(self):
        # 1 KB/s is 8 kbit/s.
        self._write([[100.0, 20.0] * 15 + [500.0] * 30,
                     [50.0] * 30 + [np.nan] * 15 + [10.0] * 15])
        learned = self._learn()
        carrying_uuid, second_uuid = (telemetry_file.instance_uuid(n)
                                      for n in (1, 2))
        stored = store.Store(self.store_url).model(carrying_uuid)
        self.assertEqual(30, stored.samples)
        self.assertEqual(800, stored.model.peak[0])
        self.assertEqual([4000.0] * 30,
                         learned.rates[carrying_uuid][:, 0].tolist())
        self.assertEqual([0.0] * 15 + [80.0] * 15,
                         learned.rates[second_uuid][:, 0].tolist())
        self.assertEqual((300, 2), (learned.period_seconds, learned.models))
        self.assertEqual(0.25, learned.missing_share)

    def test_the_list_is_chosen_by_the_first_half_only(self):
        rows = [[10.0] * 30 + [999.0] * 30, [20.0] * 60,
                [30.0] * 30 + [0.0] * 30]
        self._write(rows)
        learned = self._learn(count=2)
        self.assertEqual({'2', '3'}, {vm.name for vm in learned.vms})
        self.assertEqual({vm.uuid for vm in learned.vms}, set(learned.rates))

    def test_cores_and_memory_come_from_the_trace(self):
        fleet.generate_trace(self.path, np.random.default_rng(5), 4, days=1)
        instances = {item.uuid: item.metadata for item
                     in telemetry_file.FileDriver(self.path).instances()}
        learned = self._learn(count=4)
        self.assertEqual(4, len(learned.vms))
        for vm in learned.vms:
            self.assertEqual(instances[vm.uuid]['cpu_cores'], vm.vcpus)
            self.assertEqual(instances[vm.uuid]['memory_kb'] / 1024,
                             vm.memory_mb)

    def test_a_trace_without_traffic_is_refused(self):
        self._write([[0.0] * 60])
        self.assertRaisesRegex(exceptions.TelemetryError, 'first half',
                               self._learn)


class HostsTest(unittest.TestCase):

    def test_every_number_of_hosts_has_every_switch_type(self):
        self.assertLessEqual(set(fleet.HOST_MIX), set(profile.catalogue()))
        for count in range(4, 60):
            hosts = fleet.hosts(count)
            self.assertEqual(count, len({host for host, _ in hosts}))
            self.assertEqual(set(fleet.HOST_MIX),
                             {name for _, name in hosts})

    def test_memory_is_twice_what_the_list_needs(self):
        vms = [fleet.TraceVm('x', 'x', 1, 400 * 1024)] * 4
        # 4 * 400 GB * 2 / 4 hosts = 800 GB, rounded up to 1024 GB.
        self.assertEqual(1024 * 1024, fleet.host_memory_mb(vms, 4))
        # One VM decides where many hosts share the list.
        self.assertEqual(768 * 1024, fleet.host_memory_mb(vms, 40))
