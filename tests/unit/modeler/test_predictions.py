# SPDX-License-Identifier: Apache-2.0

from tests.unit.modeler import base
from tests.unit.store import base as store_base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.modeler import predictions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import superposition
from vswitch_aware_scheduler.vswitch import profile


class PredictedTestCase(base.ModelerTestCase):

    def test_hosts_are_predicted_as_a_scheduler_judges_them(self):
        vm = model.TrafficModel.on_off(60.0, 0.0, on_seconds=100,
                                       off_seconds=900)
        self.store.write(
            [store.StoredModel(store_base.instance_uuid(1), vm)],
            placements=[store.InstanceRecord(store_base.instance_uuid(number),
                                             host)
                        for number, host in ((1, 'a'), (2, 'a'), (3, 'b'))])
        policy = admission.HostPolicy(profile.SwitchProfile(
            's', saturation_kbps=100.0))
        self.store.write_fleet({'host': {
            host: policy_in_force.pack(policy) for host in 'abc'}}, self.now)
        shares = predictions.predicted(self.store, vm.law, False)
        self.assertEqual({'a', 'b', 'c'}, shares.keys())
        self.assertAlmostEqual(superposition.Superposition(
            [vm, vm], 100.0, 'bandwidth').overload_probability(), shares['a'])
        self.assertAlmostEqual(.01, shares['a'])
        self.assertEqual((0.0, 0.0), (shares['b'], shares['c']))
        silent = predictions.predicted(self.store, vm.law, True)
        self.assertEqual(0.0, silent['a'])
