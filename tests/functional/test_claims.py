# SPDX-License-Identifier: Apache-2.0
"""An instance counts from when it is placed, once, until it is gone."""

from tests.functional import base


class ClaimTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def test_a_vm_counts_before_and_after_its_host_reports_it(self):
        self.describe_hosts(1000, 10)
        half = self.flavor('half', egress_kbps=500)
        with self.reports_lost():
            first = self.boot(half, 'host1')
            self.assertFalse(self._lists(first['id']))
            self.boot(self.flavor('more', egress_kbps=400), 'host1')
            self.boot_refused(half)
        self.sync_reports()
        # Twice would be 1800.
        self.boot(self.flavor('rest', egress_kbps=100), 'host1')
        self.boot_refused(self.flavor('least', egress_kbps=1),
                          host='host1')
        self.assertEqual(3, len(self.residents('host1')))

    def test_a_vm_that_no_host_reports_counts_for_good(self):
        self.describe_hosts(1000, 10)
        whole = self.flavor('whole', egress_kbps=1000)
        with self.reports_lost():
            server = self.boot(whole, 'host1')
            for self.clock.ahead in (590, 100000):
                self.boot_refused(whole)
        self.sync_reports()
        self.boot_refused(whole)
        self.delete(server)
        self.boot(whole, 'host1')

    def test_a_vm_that_was_deleted_between_two_requests_is_gone(self):
        self.describe_hosts(1000, 10)
        whole = self.flavor('whole', egress_kbps=1000)
        for _ in range(3):
            self.delete(self.boot(whole, 'host1'))
        server = self.boot(whole, 'host1')
        self.boot_refused(whole)
        self.assertEqual({server['id']}, self.residents('host1'))


class RescheduleTestCase(base.VSwitchTestCase):
    # Of two hosts, the one that an instance is built on first fails.
    compute_driver = 'fake.FakeRescheduleDriver'
    HOSTS = ('host1', 'host2')

    def test_a_vm_counts_where_it_was_built_at_last(self):
        self.describe_hosts(1000, 1000)
        whole = self.flavor('whole', egress_kbps=1000)
        server = self.boot(whole)
        at = self.host_of(server)
        other = {'host1': 'host2', 'host2': 'host1'}[at]
        self.boot_refused(whole, host=at)
        self.assertEqual({server['id']}, self.residents(at))
        self.assertEqual(set(), self.residents(other))
