# SPDX-License-Identifier: Apache-2.0
import os
import tempfile
import unittest

from vswitch_aware_scheduler.demo import clouds
from vswitch_aware_scheduler.demo import fleet
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.traffic import model


class DemoCloudTestCase(unittest.TestCase):
    """The cloud of the demo, in a process of its own as always."""

    def test_learned_models_decide_where_the_flavors_of_the_demo_go(self):
        uuids = [f'00000000-0000-4000-8000-00000000000{i}' for i in range(3)]
        hosts = [('small', 'ovs-vxlan-microserver'), ('large', 'ovs-flat')]
        with tempfile.TemporaryDirectory() as folder:
            url = f'sqlite:///{os.path.join(folder, "store.sqlite")}'
            migration.sync(url)
            store.Store(url).write([
                store.StoredModel(uuid, model.TrafficModel.constant(kbps))
                for uuid, kbps in zip(uuids, (5e6, 5e6, 5e6))])
            found = clouds.place_all(
                [clouds.OURS],
                [fleet.Vm(uuid, str(i), 1, 512)
                 for i, uuid in enumerate(uuids)],
                hosts, 65536,
                {'store_url': url, 'admission_policy': 'probability',
                 'overload_probability': 0.01}, folder)[clouds.OURS]
        # Two of 5 Gbit/s fit on the 11.3 Gbit/s of one host, no third.
        self.assertEqual(dict.fromkeys(uuids[:2], 'large'), found.placements)
        self.assertEqual([uuids[2]], list(found.refusals))
        self.assertIn('VSwitchFilter refused 2 hosts; the roomiest, large: ',
                      found.refusals[uuids[2]])
        self.assertEqual([], found.warnings)
