# SPDX-License-Identifier: Apache-2.0
import os
import tempfile
import unittest

import numpy as np

from tests.fakes import store as fake_store
from vswitch_aware_scheduler.lab.demo import clouds
from vswitch_aware_scheduler.lab.demo import fleet
from vswitch_aware_scheduler.lab.demo import rebalancing
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model


UUIDS = [f'00000000-0000-4000-8000-00000000000{i}' for i in range(3)]
VMS = [fleet.TraceVm(uuid, str(i), 1, 512) for i, uuid in enumerate(UUIDS)]


def _write_models(folder, *egress_kbps):
    """Write constant models to a new store; return its URL."""
    url = f'sqlite:///{os.path.join(folder, "store.sqlite")}'
    fake_store.make_empty(url)
    store.Store(url).write([
        store.StoredModel(uuid, model.TrafficModel.constant(kbps))
        for uuid, kbps in zip(UUIDS, egress_kbps)])
    return url


class DemoCloudTestCase(unittest.TestCase):
    """The cloud of the demo, in a process of its own as always."""

    def test_learned_models_decide_where_the_flavors_of_the_demo_go(self):
        uuids = UUIDS
        hosts = [('small', 'ovs-vxlan-microserver'), ('large', 'ovs-flat')]
        with tempfile.TemporaryDirectory() as folder:
            url = _write_models(folder, 5e6, 5e6, 5e6)
            outcome = clouds.place_all(
                {clouds.OURS: clouds.CloudHosts(hosts, clouds.CORES, 65536)},
                VMS,
                {'store_url': url, 'admission_policy': 'probability',
                 'overload_probability': 0.01}, folder)[clouds.OURS]
        # Two of 5 Gbit/s fit on the 11.3 Gbit/s of one host, no third.
        self.assertEqual(dict.fromkeys(uuids[:2], 'large'), outcome.placements)
        self.assertEqual([uuids[2]], list(outcome.refusals))
        self.assertIn('VSwitchFilter refused 2 hosts; the roomiest, large: ',
                      outcome.refusals[uuids[2]])
        self.assertEqual([], outcome.warnings)

    def test_an_overloaded_host_of_the_demo_is_relieved(self):
        # Of 180 Mbit/s, two VMs learned as 60 each ask for 100 each.
        busy, calm = np.full((12, 2), 5e4), np.full((12, 2), 10.)
        with tempfile.TemporaryDirectory() as folder:
            url = _write_models(folder, 6e4, 6e4, 1e3)
            rates = os.path.join(folder, 'rates.npz')
            rebalancing.write_rates(rates, dict(zip(
                UUIDS, (busy, busy, calm))))
            outcome = clouds.place_all(
                {clouds.REBALANCED: clouds.CloudHosts(
                    [('host1', 'ovs-vxlan-1g'), ('host2', 'ovs-vxlan-1g')],
                    64, 65536, {'store_url': url, 'overload_probability': .08,
                                'admission_policy': 'probability'},
                    {'rates': rates, 'store_url': url, 'start': 1.5e9,
                     'period_seconds': 300., 'overload_probability': .01})},
                VMS, {}, folder)[clouds.REBALANCED]
        first, = set(outcome.placements.values())
        (sample, uuid, host), = outcome.moves
        self.assertIn(uuid, UUIDS[:2])
        self.assertNotEqual(first, host)
        # All samples before the migration are overload, and none after it.
        self.assertEqual({first: [300. * sample, 3600.],
                          host: [0., 3600. - 300. * sample]}, outcome.budgets)
        self.assertEqual(([], []), (outcome.problems, outcome.warnings))
