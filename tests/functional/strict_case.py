# SPDX-License-Identifier: Apache-2.0
"""A cloud in the strict mode, whose modeler is the test."""


import fixtures

from tests.fakes import keystone as fake_keystone
from tests.functional import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import host_policies as policies
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.modeler import placement_inventory


class StrictTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')
    OPTIONS = {'strict': True, 'overload_probability': 0}

    def setUp(self):
        super().setUp()
        self.useFixture(fake_keystone.Keystone())
        self.useFixture(
            fixtures.MockPatchObject(placement_inventory, 'PAGE', 1))
        self.keeper = self.make_keeper()

    def make_keeper(self, host_policies=None, **more):
        def access(url):
            return http.Access(url=url, auth={'auth_type': 'fixture'},
                               retries=0, requests_per_second=1000.0)

        return placement_inventory.PlacementInventories(
            access(self.admin_api.base_url),
            access(self.placement.fixture.endpoint),
            host_policies or policies.HostPolicies(
                {}, None, admission.PROBABILITY, 0, True,
                lambda topic, problem: None), **more)

    def keep(self):
        return self.keeper.update(self.store)

    def kept(self):
        """Return {host: (total, reserved, used)} as placement has it."""
        return {name.removesuffix(':vswitch'): tuple(numbers)
                for name, *numbers in self.keeper.inventories()}

    def used(self, *hosts):
        figures = self.kept()
        return [figures[host][2] for host in hosts or self.HOSTS]
