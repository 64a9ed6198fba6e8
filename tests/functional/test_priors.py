# SPDX-License-Identifier: Apache-2.0
"""New instances count by what others of their flavor and project do."""

from tests.functional import base
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model


class PriorsTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')
    # Above what the hosts can carry.
    OPTIONS = {'default_egress_kbps': 5000, 'default_ingress_kbps': 0,
               'default_on_seconds': 1000, 'default_off_seconds': 1}

    def expect(self, priors):
        """Store priors, {(flavor, project): kbit/s}, for the scheduler."""
        self.store.write(priors=[
            store.Prior(*key, model.TrafficModel.constant(kbps).law, 1)
            for key, kbps in priors.items()])
        self.plugin.refresh()

    def test_nova_tells_what_priors_are_found_by(self):
        self.describe_hosts(1000, 500)
        small, other = self.flavor('small'), self.flavor('other')
        self.boot_refused(small)
        self.expect({('small', None): 400.0, (None, None): 600.0})
        first = self.boot(small, az='nova:host2')
        project = first['tenant_id']
        # Of this project they carry more.
        self.expect({('small', project): 700.0})
        self.boot(small, 'host1')
        # Both count by the prior that is known now, also the one that was
        # placed with less, as for every other worker.
        self.boot_refused(other)
        self.boot(self.of(290), 'host1')
        self.boot_refused(self.of(1), host='host2')

    def test_after_a_restart_residents_count_by_the_inventory(self):
        self.describe_hosts(1000, 500)
        flavor = self.flavor('small')
        self.expect({('small', None): 400.0, (None, None): 10.0})
        server = self.boot(flavor, az='nova:host2')
        self.restart_scheduler()
        self.store.write(placements=[store.InstanceRecord(
            server['id'], 'host2', 'small', server['tenant_id'])])
        self.plugin.refresh()
        self.describe_host('host1', saturation_kbps=50)
        self.room('host2', 100)
