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
        self.delete(*[{'id': uuid} for uuid in self.residents('host1')])
        # One that no host reports counts for good.
        whole = self.flavor('whole', egress_kbps=1000)
        with self.reports_lost():
            server = self.boot(whole, 'host1')
            for self.clock.ahead in (590, 100000):
                self.boot_refused(whole)
        self.sync_reports()
        self.boot_refused(whole)
        # One that was deleted between two requests is gone.
        for _ in range(2):
            self.delete(server)
            server = self.boot(whole, 'host1')
        self.boot_refused(whole)
        self.assertEqual({server['id']}, self.residents('host1'))
