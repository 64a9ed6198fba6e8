# SPDX-License-Identifier: Apache-2.0
"""Instances count where they are when Nova has two cells."""

import random

from tests.functional import base

from nova.policies import base as base_policies
from nova.policies import servers as server_policies
from nova.tests import fixtures as nova_fixtures


class CellsTestCase(base.VSwitchTestCase):
    NUMBER_OF_CELLS = 2
    HOSTS = ('host1', 'host2', 'host3', 'host4')
    CELLS = {'host3': 'cell2', 'host4': 'cell2'}

    def setUp(self):
        super().setUp()
        self.describe_hosts(*[1000] * len(self.HOSTS))


class CrossCellTestCase(CellsTestCase):
    HOSTS = ('host1', 'host2')
    CELLS = {'host2': 'cell2'}

    def setUp(self):
        super().setUp()
        self.useFixture(nova_fixtures.CinderFixture(self))
        self.policy.set_rules({server_policies.CROSS_CELL_RESIZE:
                               base_policies.RULE_ADMIN_API},
                              overwrite=False)
        self.flags(long_rpc_timeout=60, allow_resize_to_same_host=False)

    def test_a_resize_to_another_cell_counts_in_both_until_it_ends(self):
        server = self.boot(self.of(400), host='host1')
        server = self.resize(server, self.of(900))
        self.assertEqual('host2', self.host_of(server))
        self.room('host1', 600)
        self.room('host2', 100)
        self.clock.ahead += 120
        server = self.revert(server)
        self.assertEqual('host1', self.host_of(server))
        self.room('host1', 600)
        self.room('host2', 1000)
        self.clock.ahead += 120
        server = self.resize(server, self.of(900))
        self.confirm(server)
        self.room('host1', 1000)
        self.room('host2', 100)


class RandomOperationsTestCase(CellsTestCase):
    """The auditor of tests/cloud, short and in one process."""

    SEED, COUNT = 1, 16

    def setUp(self):
        super().setUp()
        self.generator = random.Random(self.SEED)
        self.servers = {}        # uuid -> kbit/s

    def test_after_random_operations_each_instance_counts_where_it_is(self):
        for number in range(self.COUNT):
            kinds = [name for name in dir(self) if name.startswith('do_')]
            kind = self.generator.choice(kinds if self.servers
                                         else ['do_boot'])
            getattr(self, kind)()
            self.read_record()
            self.assertEqual(self._recorded(), self._counted(),
                             f'after operation {number}, {kind}')
        for host in self.HOSTS:
            self.assertLessEqual(sum(
                self.servers[uuid] for uuid in self._counted()[host]), 1000)

    def _recorded(self):
        uuids = {host: set() for host in self.HOSTS}
        for server in self.admin_api.get_servers(detail=True):
            host = server['OS-EXT-SRV-ATTR:host']
            if host:
                uuids[host].add(server['id'])
        return uuids

    def _counted(self):
        return {host: self.residents(host) for host in self.HOSTS}

    def _any(self):
        uuid = self.generator.choice(sorted(self.servers))
        return self.admin_api.get_server(uuid)

    def do_boot(self):
        kbps = self.generator.choice((200, 400))
        if all(sum(self.servers[uuid] for uuid in uuids) + kbps > 1000
               for uuids in self._recorded().values()):
            self.boot_refused(self.of(kbps))
        else:
            self.servers[self.boot(self.of(kbps))['id']] = kbps

    def do_delete(self):
        server = self._any()
        # Nova's own lists, which may be late, are not waited for.
        self.delete_without_reading(server)
        del self.servers[server['id']]

    def _has_room(self, server, kbps):
        """Whether another host of its cell has room for a server."""
        host = self.host_of(server)
        return any(
            sum(self.servers[uuid] for uuid in uuids) + kbps <= 1000
            for other, uuids in self._recorded().items() if other != host
            and self.CELLS.get(other) == self.CELLS.get(host))

    def do_resize(self):
        server = self._any()
        old = self.servers[server['id']]
        new = {200: 400, 400: 200}[old]
        if not self._has_room(server, max(old, new)):
            return
        server = self.resize(server, self.of(new))
        if self.generator.random() < .5:
            self.confirm(server)
            self.servers[server['id']] = new
        else:
            self.revert(server)

    def do_live_migrate(self):
        server = self._any()
        if self._has_room(server, self.servers[server['id']]):
            self.live_migrate(server)

    def do_shelve(self):
        server = self._any()
        self._shelve_server(server, expected_state='SHELVED_OFFLOADED')
        self.read_record()
        self.assertNotIn(server['id'], set().union(
            *self._counted().values()))
        self.action(server, 'unshelve')
        self.reported(self._wait_for_state_change(server, 'ACTIVE'))

    def do_stop(self):
        server = self._any()
        self.action(server, 'os-stop')
        server = self._wait_for_state_change(server, 'SHUTOFF')
        self.action(server, 'os-start')
        self._wait_for_state_change(server, 'ACTIVE')

    def do_restart_scheduler(self):
        self.restart_scheduler()

    def do_step_clock(self):
        self.plugin._clock.ahead += 3600
