# SPDX-License-Identifier: Apache-2.0
"""What is deleted makes room."""

from tests.functional import base


class DeleteTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def test_a_deleted_vm_makes_room(self):
        self.describe_hosts(1000, 500)
        whole = self.of(1000)
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
