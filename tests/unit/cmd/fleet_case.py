# SPDX-License-Identifier: Apache-2.0
"""The case of the tests of what a fleet carries."""

import time

from tests.unit.cmd import command_case
from tests.unit.store import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import profile


def packed(profile_, origin='aggregate rack', **more):
    """Return what a modeler stores of a host."""
    return {**policy_in_force.pack(admission.HostPolicy(profile_, **more)),
            'origins': {'profile': origin}}


def carrying(saturation_kbps, **more):
    """Return what a modeler stores of a host with a saturation."""
    return packed(profile.SwitchProfile(
        'p', saturation_kbps=saturation_kbps), **more)


class FleetTestCase(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.now = time.time()
        self.store = self.make_store()
        self._configure('default_egress_kbps = 0', 'default_ingress_kbps = 0')

    def put(self, hosts, models=(), flavor='small', project='p', **more):
        """Write instances: {host: numbers of instances}."""
        self.store.write(
            [store.StoredModel(base.instance_uuid(number), traffic,
                               name=f'vm{number}')
             for number, traffic in dict(models).items()],
            placements=[store.InstanceRecord(base.instance_uuid(number),
                                             host, flavor, project)
                        for host, numbers in hosts.items()
                        for number in numbers],
            inventory=store.InventoryState('nova', self.now, self.now), **more)

    def modeled(self, age=0.0, aggregates=True, flavors=None, uplinks=None,
                **hosts):
        """Write what a modeler would: {host: packed policy}."""
        self.store.write_fleet({
            'host': hosts, 'uplink': uplinks or {}, 'flavor': flavors or {
                'small': {}, 'steady': {'vswitch:egress_kbps': '100'}},
            **({'aggregate': {}} if aggregates else {})}, self.now - age)

    def hosts(self, *words):
        return self.ask('fleet', *words)['hosts']
