# SPDX-License-Identifier: Apache-2.0
"""What is deleted makes room, and forced hosts are counted."""

from tests.functional import base


class DeleteTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def test_a_deleted_vm_makes_room(self):
        self.describe_hosts(1000, 500)
        whole = self.flavor('whole', egress_kbps=1000)
        server = self.boot(whole, 'host1')
        self.boot_refused(whole)
        self.delete(server)
        server = self.boot(whole, 'host1')
        # Without a request in between.
        if self.TRACK_INSTANCE_CHANGES:
            self._delete_and_list(server)
        else:
            self.delete(server)
        self.boot(whole, 'host1')
        self.boot_refused(whole)

    def _delete_and_list(self, server):
        # As when a host reports all its instances while one is deleted.
        reported = self._nova_view['host1']['instances']
        listed = dict(reported)
        self.assertEqual([server['id']], list(listed))
        self.delete(server)
        self.wait_for(lambda: not reported, 'the report of the deletion')
        reported.update(listed)
        self.assertTrue(self._lists(server['id'], 'host1'))

    def test_a_vm_forced_on_a_host_is_counted_there(self):
        self.describe_hosts(1000, 500)
        large = self.flavor('most', egress_kbps=800)
        # Nova asks no filter.
        with self.reports_lost():
            self.boot(large, 'host2', az='nova:host2')
            self.boot(large, 'host1', az='nova:host1')
            self.boot_refused(self.flavor('more', egress_kbps=201))
            self.boot(self.flavor('rest', egress_kbps=200), 'host1')
        self.sync_reports()
        self.boot_refused(self.flavor('least', egress_kbps=1))
        self.boot(large, 'host1', az='nova:host1')
