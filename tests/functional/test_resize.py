# SPDX-License-Identifier: Apache-2.0
"""Resize, to the same host and to another, confirmed and reverted."""

from tests.functional import base

from nova.compute import manager


class ResizeTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def resized_to_host2(self):
        """Return a server of 900 kbit/s that had 600 on host1."""
        self.describe_hosts(1000, 1000)
        self.boot(self.of(300), host='host1')
        server = self.resize(self.boot(self.of(600), host='host1'),
                             self.of(900))
        self.assertEqual('host2', self.host_of(server))
        return server

    def test_a_resize_to_another_host_counts_at_both_until_it_ends(self):
        server = self.resized_to_host2()
        self.hours_pass()
        self.room('host1', 100)
        self.room('host2', 100)
        self.revert(server)
        self.assertEqual('host1', self.host_of(server))
        self.room('host1', 100)
        self.room('host2', 1000)
        server = self.resize(server, self.of(900))
        self.confirm(server)
        self.room('host1', 700)
        self.room('host2', 100)

    def test_the_source_keeps_room_while_a_revert_is_under_way(self):
        server = self.resized_to_host2()
        # Before the source has the instance again.
        with self.held(manager.ComputeManager, 'finish_revert_resize'):
            self.action(server, 'revertResize')
            # So says Nova's destination before it asks the source.
            self._wait_for_migration_status(server, ['reverted'])
            self.read_record()
            self.assertEqual('host2', self.host_of(server))
            for _ in range(2):
                self.room('host1', 100)
                # However long the source is down.
                self.hours_pass()
            # A worker that begins has nothing but the record.
            self.restart_scheduler()
            self.room('host1', 100)
        self._wait_for_state_change(server, 'ACTIVE')
        self.read_record()
        self.room('host1', 100)
        self.room('host2', 1000)

    def test_on_the_same_host_the_larger_flavor_counts_until_the_end(self):
        self.describe_hosts(1000, 1)
        for before, after, end, left in (
                (300, 900, self.confirm, 900), (900, 300, self.confirm, 300),
                (900, 300, self.revert, 900), (100, 900, self.revert, 100)):
            server = self.resize(self.boot(self.of(before), host='host1'),
                                 self.of(after))
            self.assertEqual('host1', self.host_of(server))
            if before < after:
                # A worker that begins meanwhile counts the same.
                self.restart_scheduler()
            self.hours_pass()
            self.read_record()
            self.room('host1', 1000 - max(before, after))
            end(server)
            # Nova drops it from its view for a while.
            self.sync_reports()
            self.room('host1', 1000 - left)
            self.delete(server)

    def test_a_resize_that_fits_nowhere_changes_nothing(self):
        self.describe_hosts(700, 700)
        server = self.boot(self.of(600), host='host1')
        self.move_refused(server, 'resize', flavorRef=self.of(900))
        self.room('host1', 100)
        self.boot(self.of(600), 'host2', host='host2')
