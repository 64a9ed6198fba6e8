# SPDX-License-Identifier: Apache-2.0

import argparse

from tests.unit.cmd import fleet_case
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import profile


class ReadTestCase(fleet_case.FleetTestCase):

    def read(self):
        conf = context.configuration(argparse.Namespace(
            config_file=[self.config], store=None))
        return wiring.read_fleet(self.store, conf.vswitch_scheduler)

    def test_policies_that_a_modeler_stored_come_before_the_options(self):
        self._configure('default_switch_profile = ovs-vxlan')
        self.put({'h1': (1,), 'h2': (2,)}, host_profiles=[
            store.HostProfile('h3', 'ovs-flat', {}, 'operator')])
        self.modeled(h1=fleet_case.packed(
            profile.SwitchProfile('p', saturation_kbps=250.0)))
        fleet = self.read()
        self.assertEqual(
            {'h1': 'p', 'h2': 'ovs-vxlan', 'h3': 'ovs-flat'},
            {host: policy.profile.name
             for host, policy in fleet.policies.items()})
        self.assertEqual(
            {'h1': 'aggregate rack', 'h3': 'store (operator)'},
            {host: fleet.origins[host]['profile'] for host in ('h1', 'h3')})

    def test_a_stored_policy_that_cannot_be_used_is_a_problem_of_its_host(
            self):
        self.put({'h1': (1,), 'h2': (2,)})
        self.modeled(h1={}, h2=fleet_case.packed(
            profile.SwitchProfile('p', saturation_kbps=250.0)))
        fleet = self.read()
        self.assertEqual(['h1'], list(fleet.problems))
        self.assertEqual([False, True], [
            fleet.policies[host].judged for host in ('h1', 'h2')])

    def test_what_an_unknown_instance_counts_as_is_the_option(self):
        self.put({'h1': (1,)})
        default = 'default_egress_kbps = 7', 'default_ingress_kbps = 0'
        for lines, peak in (((), 7.0),
                            (('unknown_instance_policy = ignore',), 0.0)):
            self._configure(*default, *lines)
            fleet = self.read()
            [law] = fleet.laws('h1').values()
            self.assertEqual(peak, law.peak[0])
            # The one that is asked for counts in any case.
            self.assertEqual(7.0, fleet.demand(None, 'small', 'p').law.peak[0])
