# SPDX-License-Identifier: Apache-2.0
"""Cold and live migration, to a host of the scheduler's choice or a named."""

from tests.functional import base


class MigrationTestCase(base.VSwitchTestCase):

    def test_a_cold_migration_goes_where_there_is_room(self):
        self.describe_hosts(1000, 999, 1000)
        whole = self.of(1000)
        server = self.boot(whole, host='host1')
        self.move_refused(server, 'migrate', host='host2')
        self.migrate(server)
        self.assertEqual('host3', self.host_of(server))
        self.boot_refused(whole, host='host3')
        self.confirm(server)
        self.boot_refused(whole, host='host3')
        # The first host is free again, and taken by name.
        second = self.boot(whole, 'host1')
        self.move_refused(server, 'migrate', host=None)
        self.delete(second)
        self.migrate(server, 'host1')
        self.revert(server)
        self.assertEqual('host3', self.host_of(server))
        self.boot(whole, 'host1')
        self.boot_refused(whole)

    def test_a_live_migration_goes_where_there_is_room(self):
        self.describe_hosts(1000, 999, 1000)
        whole = self.of(1000)
        server = self.boot(whole, host='host1')
        self.move_refused(server, 'os-migrateLive', host='host2')
        self.live_migrate(server)
        self.assertEqual('host3', self.host_of(server))
        # At once, whatever the hosts have reported so far.
        self.boot_refused(whole, host='host3')
        second = self.boot(whole, 'host1')
        self.move_refused(server, 'os-migrateLive', host='host1')
        self.describe_host('host2', saturation_kbps=1000)
        self.live_migrate(server, 'host2')
        self.assertEqual('host2', self.host_of(server))
        self.sync_reports()
        self.live_migrate(second)
        self.assertEqual('host3', self.host_of(second))
        self.boot(whole, 'host1')
        self.boot_refused(whole)
        for host in self.HOSTS:
            self.assertEqual(1, len(self.residents(host)))

    def test_a_moving_vm_counts_with_its_learned_model(self):
        self.describe_hosts(1000, 400, 300)
        server = self.boot(self.of(1000), 'host1')
        self.learn(server['id'], egress_kbps=301)
        self.live_migrate(server)
        self.assertEqual('host2', self.host_of(server))
        self.room('host2', 99)
