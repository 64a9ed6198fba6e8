# SPDX-License-Identifier: Apache-2.0
"""Where one new instance goes, and what its demand is taken from."""

import uuid

from tests.functional import base
from vswitch_aware_scheduler import store


class BootTestCase(base.VSwitchTestCase):

    def test_a_vm_goes_where_its_peak_fits(self):
        self.describe_hosts(1000, 1000, 5000)
        self.boot(self.of(4000), 'host3')
        self.boot_refused(self.of(4000))
        # Both directions count.
        self.boot_refused(self.of(1001), host='host1')
        more, fits = (self.flavor(f'both-{kbps}', egress_kbps=kbps,
                                  ingress_kbps=500) for kbps in (501, 500))
        self.boot_refused(more, host='host1')
        self.boot(fits, 'host1', host='host1')
        # The peak decides, however rare it is.
        rare = self.flavor('rare', egress_kbps=4001, on_seconds=1,
                           off_seconds=1000000)
        self.boot_refused(rare, host='host2')
        self.describe_host('host2', vm_peak_kbps=4000, saturation_kbps=99999)
        self.boot_refused(rare, host='host2')
        self.describe_host('host2', vm_peak_kbps=4001)
        self.boot(rare, 'host2', host='host2')

    def test_the_demand_is_learned_or_the_flavors_or_the_default(self):
        # The default is 8000 kbit/s for a share of 900 / 10900 of the time.
        share = 900 / 10900
        self.describe_hosts(8000, 8000, 8000)
        plain, constant = self.flavor('plain'), self.of(2000)
        # Two of them are on at once for less than 0.01, two of three not.
        self.assertEqual(2, base.most_instances(share, 1, 0.01))
        self.boot(plain, host='host1')
        self.boot(plain, host='host1')
        self.boot_refused(plain, host='host1')
        # Beside one of them, nothing that is always on.
        default = self.boot(plain, host='host2')
        self.boot_refused(constant, host='host2')
        # Until it is known to do less.
        self.learn(default['id'], egress_kbps=4000)
        constants = [self.boot(constant, host='host2') for _ in range(2)]
        self.boot_refused(constant, host='host2')
        # What is learned of an instance goes before what its flavor says.
        self.learn(constants[0]['id'], egress_kbps=100)
        self.boot_refused(constant, host='host2')
        self.learn(constants[1]['id'], ingress_kbps=1900)
        self.boot(constant, host='host2')
        self.boot_refused(constant, host='host2')


class PolicyTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def test_a_host_admits_by_the_binomial_law(self):
        flavor = self.on_off_flavor('on-off', 1000, 0.1)
        self.describe_hosts(2500, 2000)
        # Room for two at once, with and without equality.
        count = base.most_instances(0.1, 2, 0.01)
        # The instances of one request count against each other.
        self.boot_many_refused(flavor, count + 1, host='host1')
        for host in self.HOSTS:
            self.boot_many(flavor, count, host=host)
            self.boot_refused(flavor, host=host)
        # A looser limit on one of them.
        self.describe_host('host1', overload_probability=0.05)
        self.boot_many(flavor, base.most_instances(0.1, 2, 0.05) - count,
                       host='host1')
        self.boot_refused(flavor, host='host1')


class QosTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def _give_bandwidth(self, host):
        """Let placement know of bandwidth, as Neutron's agent would."""
        compute = self.admin_api.api_get(
            f'/os-hypervisors?hypervisor_hostname_pattern={host}').body[
                'hypervisors'][0]['id']
        bridge = str(uuid.uuid5(uuid.NAMESPACE_DNS, host))
        self.placement.post('/resource_providers', version='1.20', body={
            'name': f'{host}:br', 'uuid': bridge,
            'parent_provider_uuid': compute})
        self._update_inventory(bridge, {
            'resource_provider_generation': 0,
            'inventories': {
                name: {'total': 10000, 'allocation_ratio': 1.0,
                       'max_unit': 10000, 'min_unit': 1, 'reserved': 0,
                       'step_size': 1}
                for name in ('NET_BW_EGR_KILOBIT_PER_SEC',
                             'NET_BW_IGR_KILOBIT_PER_SEC')}})
        traits = ['CUSTOM_PHYSNET2', 'CUSTOM_VNIC_TYPE_NORMAL']
        for trait in traits:
            self._create_trait(trait)
        self._set_provider_traits(bridge, traits)

    def test_the_bandwidth_that_a_port_is_guaranteed_counts(self):
        for host in self.HOSTS:
            self._give_bandwidth(host)
        # The port is guaranteed 1000 kbit/s in each direction, to which the
        # demand of the flavor is raised.
        port = self.neutron.port_with_resource_request['id']
        plain = self.flavor('plain', egress_kbps=1, ingress_kbps=1)
        self.describe_hosts(1999, 1999)
        self.boot_refused(plain, networks=[{'port': port}])
        self.describe_host('host2', saturation_kbps=2000)
        server = self.boot(plain, 'host2', networks=[{'port': port}])
        self.boot_refused(self.of(1), host='host2')
        # A scheduler that begins later knows the guarantee from the inventory,
        # and what has changed since.
        for guaranteed, is_admitted in (
                ((1000, 1000, 0), False), ((999, 1000, 0), True),
                ((1001, 1000, 0), False)):
            self.store.write(placements=[store.InstanceRecord(
                server['id'], 'host2', 'plain', server['tenant_id'],
                guaranteed=guaranteed)])
            self.restart_scheduler()
            if is_admitted:
                self.delete(self.boot(self.of(1), 'host2', host='host2'))
            else:
                self.boot_refused(self.of(1), host='host2')


class BootUntrackedTestCase(BootTestCase):
    TRACK_INSTANCE_CHANGES = False
