# SPDX-License-Identifier: Apache-2.0
"""Hosts without profile and instances without model."""

from tests.functional import base

from vswitch_aware_scheduler import store


class UnknownHostPassesTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def test_a_host_without_profile_passes(self):
        flavor = self.flavor('huge', egress_kbps=1000000000)
        for _ in range(2):
            self.boot(flavor, 'host2', host='host2')
        warning, = self.log.warnings
        self.assertIn('no host that requests have been for has a switch '
                      'profile', warning)
        self.describe_host('host1', saturation_kbps=1000)
        self.boot_many(flavor, 3, host='host2')
        self.boot(flavor, 'host2')
        self.boot_refused(flavor, host='host1')


class UnknownHostRejectedTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')
    OPTIONS = {'unknown_host_policy': 'reject'}

    def test_a_host_without_profile_is_refused_until_it_has_one(self):
        flavor = self.flavor('small', egress_kbps=1)
        self.boot_refused(flavor)
        self.describe_host('host2', saturation_kbps=1)
        self.boot(flavor, 'host2')
        self.boot_refused(flavor)
        # The store's word counts as well, below the aggregates'.
        self.store.write(host_profiles=[
            store.HostProfile('host1', 'mellanox-eswitch',
                              {'max_virtual_functions': 1}),
            store.HostProfile('host2', 'mellanox-eswitch')])
        self.plugin.refresh()
        self.boot(flavor, 'host1', host='host1')
        self.boot_refused(flavor, host='host1')
        self.boot_refused(flavor, host='host2')
        self.describe_host('host2', saturation_kbps=None)
        self.boot(flavor, 'host2')


class DefaultProfileTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')
    OPTIONS = {'default_switch_profile': 'mellanox-eswitch'}

    def test_the_default_profile_is_for_hosts_with_no_other(self):
        flavor = self.flavor('small', egress_kbps=1)
        self.boot_refused(self.flavor('huge', egress_kbps=1000000000))
        self.describe_host('host1', max_virtual_functions=1)
        self.describe_host('host2', profile='ovs-flat',
                           saturation_kbps=1)
        servers = self.boot_many(flavor, 2)
        self.assertEqual({'host1': 1, 'host2': 1}, self.hosts_of(servers))
        self.boot_refused(flavor)


class UnknownInstanceTestCase(base.VSwitchTestCase):
    """Instances that were there before the scheduler has heard of any."""

    HOSTS = ('host1', 'host2')
    FITS = False

    def test_residents_without_model_count_as_the_options_say(self):
        # The default model is 8000 kbit/s for a share of 0.08.
        self.describe_hosts(8000, 10)
        plain = self.flavor('plain')
        resident = self.boot(plain, 'host1')
        constant = self.flavor('constant', egress_kbps=4000)
        if not self.FITS:
            self.boot_refused(constant)
            self.learn(resident['id'], egress_kbps=3000)
        for _ in range(2):
            self.delete(self.boot(constant, 'host1'))
            # The scheduler that did not place it sees the same.
            self.restart_scheduler()
        self.boot(constant, 'host1')
        # The one that is asked for counts in any case.
        self.boot_refused(plain)


class UnknownInstanceIgnoredTestCase(UnknownInstanceTestCase):
    OPTIONS = {'unknown_instance_policy': 'ignore'}
    FITS = True
