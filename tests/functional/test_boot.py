# SPDX-License-Identifier: Apache-2.0
"""Where one new instance goes, and what its demand is taken from."""

import uuid

from tests.functional import base
from vswitch_aware_scheduler import store


class BootTestCase(base.VSwitchTestCase):

    def test_a_vm_goes_where_its_peak_fits(self):
        self.describe_hosts(1000, 1000, 5000)
        big = self.flavor('big', egress_kbps=4000)
        self.boot(big, 'host3')
        self.boot_refused(big)
        # Both directions count.
        for name, rates in (('up', {'egress_kbps': 1001}),
                            ('both', {'egress_kbps': 501,
                                      'ingress_kbps': 500})):
            self.boot_refused(self.flavor(name, **rates), host='host1')
        self.boot(self.flavor('fits', egress_kbps=500, ingress_kbps=500),
                  'host1', host='host1')
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
        plain = self.flavor('plain')
        constant = self.flavor('constant', egress_kbps=2000)
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

    def test_a_flavor_can_name_the_model_of_an_instance(self):
        named = str(uuid.uuid4())
        self.learn(named, egress_kbps=3000)
        self.describe_hosts(2999, 3000, 2999)
        flavor = self.flavor('like-that', model=named)
        self.boot(flavor, 'host2')
        self.boot_refused(flavor)
        # Of an instance without a model: the default, and one line of log.
        self.log.clear()
        self.describe_host('host1', saturation_kbps=8000)
        nowhere = self.flavor('nowhere', model=str(uuid.uuid4()))
        self.boot(nowhere, 'host1')
        self.boot(nowhere, 'host1')
        self.boot_refused(nowhere)
        self.assertEqual(1, len(self.log.warnings), self.log.warnings)
        self.assertIn('vswitch:model', self.log.warnings[0])


class PolicyTestCase(base.VSwitchTestCase):
    """How many like instances a host takes, against closed forms."""

    HOSTS = ('host1', 'host2')
    SHARE = 0.1

    def fill(self, flavor, host, count):
        """Boot as many on a host and see that it takes no more."""
        self.boot_many(flavor, count, host=host)
        self.boot_refused(flavor, host=host)

    def test_probability_admits_by_the_binomial_law(self):
        flavor = self.on_off_flavor('on-off', 1000, self.SHARE)
        self.describe_hosts(2500, 2000)
        # Room for two at once, with and without equality.
        count = base.most_instances(self.SHARE, 2, 0.01)
        self.assertEqual(5, count)
        # The instances of one request count against each other.
        self.boot_many_refused(flavor, count + 1, host='host1')
        self.fill(flavor, 'host1', count)
        self.fill(flavor, 'host2', count)
        # A looser limit on one of them.
        looser = base.most_instances(self.SHARE, 2, 0.05)
        self.assertEqual(8, looser)
        self.describe_host('host1', overload_probability=0.05)
        self.fill(flavor, 'host1', looser - count)

    def test_average_admits_to_the_sum_of_averages(self):
        self.describe_host('host1', saturation_kbps=1000,
                           admission_policy='average')
        self.describe_host('host2', saturation_kbps=1000)
        # 250 kbit/s each on average: four, although they overload it.
        self.fill(self.on_off_flavor('quarter', 1000, 0.25), 'host1', 4)
        # By the other policy P(2 or more of 2 are on) is 0.01 exactly.
        self.fill(self.on_off_flavor('tenth', 1000, self.SHARE), 'host2', 2)
        # Above the peak of what it can carry at all: neither.
        for host in self.HOSTS:
            self.boot_refused(self.on_off_flavor(
                f'big-{host}', 1001, 0.01), host=host)

    def test_tunnels_and_virtual_functions_run_out(self):
        flavor = self.flavor('light', egress_kbps=1)
        self.describe_host('host1', profile='mellanox-eswitch',
                           max_virtual_functions=3)
        self.describe_host('host2', saturation_kbps=1000000, max_tunnels=2)
        self.fill(flavor, 'host1', 3)
        self.fill(flavor, 'host2', 2)
        self.describe_host('host2', max_tunnels=3)
        self.boot(flavor, 'host2')
        self.boot_refused(flavor)


class AveragePolicyTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')
    OPTIONS = {'admission_policy': 'average'}

    def test_the_policy_of_the_options_can_be_overridden(self):
        flavor = self.on_off_flavor('on-off', 1000, 0.5)
        self.describe_host('host1', saturation_kbps=1000)
        self.describe_host('host2', saturation_kbps=1000,
                           admission_policy='probability')
        self.boot(flavor, host='host1')
        self.boot(flavor, host='host2')
        self.boot_refused(flavor, host='host2')
        self.boot(flavor, 'host1')
        self.boot_refused(flavor)


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
        small = self.flavor('small', egress_kbps=1)
        self.boot_refused(small, host='host2')
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
                self.delete(self.boot(small, 'host2', host='host2'))
            else:
                self.boot_refused(small, host='host2')


class BootUntrackedTestCase(BootTestCase):
    TRACK_INSTANCE_CHANGES = False
