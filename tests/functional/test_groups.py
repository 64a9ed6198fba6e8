# SPDX-License-Identifier: Apache-2.0
"""Server groups: affinity and the switch both have their say."""

from tests.functional import base


class ServerGroupTestCase(base.VSwitchTestCase):

    def group(self, policy):
        return self.admin_api.post_server_groups(
            {'name': policy, 'policy': policy})['id']

    def test_anti_affinity_spreads_over_hosts_with_room(self):
        self.describe_hosts(1000, 1000, 999)
        whole, small = self.of(1000), self.of(500)
        group = self.group('anti-affinity')
        self.boot_many_refused(whole, 3, group=group)
        # Nova leaves those that failed in its own lists, where its own
        # filter counts them.
        self.sync_reports()
        servers = self.boot_many(whole, 2, group=group)
        self.assertEqual({'host1': 1, 'host2': 1}, self.hosts_of(servers))
        # host3 would do for a smaller one, the others would not.
        server = self.boot(small, 'host3', group=group)
        self.boot_refused(small, group=group)
        self.boot_refused(small, host='host1')
        self.delete(server)
        self.boot_many(self.of(333), 3, host='host3')

    def test_affinity_holds_until_the_host_is_full(self):
        self.describe_hosts(2000, 3000, 2000)
        flavor = self.of(1000)
        group = self.group('affinity')
        first = self.boot(flavor, 'host2', host='host2', group=group)
        self.boot_many_refused(flavor, 3, group=group)
        servers = self.boot_many(flavor, 2, group=group)
        self.assertEqual({'host2': 3}, self.hosts_of([first] + servers))
        self.boot_refused(flavor, group=group)
        self.assertEqual({'host1': 2, 'host3': 2},
                         self.hosts_of(self.boot_many(flavor, 4)))

    def test_soft_policies_hold_as_far_as_there_is_room(self):
        # Else other weighers of Nova outvote these.
        self.flags(soft_affinity_weight_multiplier=1000,
                   soft_anti_affinity_weight_multiplier=1000,
                   group='filter_scheduler')
        self.describe_hosts(2000, 2000, 2000)
        flavor = self.of(1000)
        together = self.group('soft-affinity')
        servers = [self.boot(flavor, group=together) for _ in range(3)]
        self.assertEqual([1, 2], sorted(self.hosts_of(servers).values()))
        self.delete(*servers)
        apart = self.group('soft-anti-affinity')
        servers = [self.boot(flavor, group=apart) for _ in range(6)]
        self.assertEqual(dict.fromkeys(self.HOSTS, 1),
                         self.hosts_of(servers[:3]))
        self.assertEqual(dict.fromkeys(self.HOSTS, 2), self.hosts_of(servers))
        self.boot_refused(flavor, group=apart)
