# SPDX-License-Identifier: Apache-2.0
"""Many instances in one request."""

from tests.functional import base


class MultiCreateTestCase(base.VSwitchTestCase):

    def test_twelve_fill_three_hosts_and_thirteen_do_not_fit(self):
        self.describe_hosts(4000, 4500, 4999)
        flavor = self.of(1000)
        self.boot_many_refused(flavor, 13)
        # Those of the request that failed do not count.
        servers = self.boot_many(flavor, 12)
        self.assertEqual({'host1': 4, 'host2': 4, 'host3': 4},
                         self.hosts_of(servers))
        self.boot_refused(flavor)
        for host in self.HOSTS:
            self.assertEqual({server['id'] for server in servers
                              if self.host_of(server) == host},
                             self.residents(host))
        # Two that go make room for two.
        self.delete(*servers[:2])
        self.boot_many_refused(flavor, 3)
        again = self.boot_many(flavor, 2)
        self.assertEqual({'host1': 4, 'host2': 4, 'host3': 4},
                         self.hosts_of(servers[2:] + again))

    def test_requests_in_a_row_and_at_once_never_overfill(self):
        self.describe_hosts(2000, 2000, 2000)
        flavor = self.of(1000)
        self.boot_many(flavor, 2)
        posted = self.in_parallel([lambda: self.post(flavor)] * 4)
        for server in posted:
            self._wait_for_state_change(server, 'ACTIVE')
        for host in self.HOSTS:
            self.assertEqual(2, len(self.residents(host)))
        self.boot_refused(flavor)
