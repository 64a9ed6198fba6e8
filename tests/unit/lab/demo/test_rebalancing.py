# SPDX-License-Identifier: Apache-2.0
import os
import tempfile
import unittest
from unittest import mock

import numpy as np

from tests.fakes import store as fake_store
from tests.unit.budgets import fleet
from vswitch_aware_scheduler.budgets import executor
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.lab.demo import rebalancing
from vswitch_aware_scheduler import store

#: Of 180,465 kbit/s, two instances ask for 200,000 in one sample of ten.
HOSTS = [('host1', 'ovs-vxlan-1g'), ('host2', 'ovs-vxlan-1g')]
PLACED = {'vm1': 'host1', 'vm2': 'host1', 'idle': 'host2'}


class ReplayTest(unittest.TestCase):

    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(folder, 'rates.npz')
        url = f'sqlite:///{os.path.join(folder, "store.sqlite")}'
        fake_store.make_empty(url)
        self.store = store.Store(url)
        self.nova = self.enterContext(fleet.Cloud('host1', 'host2'))
        self.uuids = {name: self.nova.boot(name, host)
                      for name, host in PLACED.items()}

    def replay(self, busy_kbps=100_000.0, samples=288, limit=0.01):
        busy = np.zeros((samples, 2))
        busy[9::10, 0] = busy_kbps
        rebalancing.write_rates(self.path, {
            'a': busy, 'b': busy, 'c': np.zeros((samples, 2)),
            'refused': busy})
        traffic = rebalancing.read_traffic(
            {'rates': self.path, 'period_seconds': 300.0,
             'start': fleet.NOW}, {
                self.uuids['vm2']: 'b', self.uuids['vm1']: 'a',
                self.uuids['idle']: 'c'})

        def access(path):
            return http.Access(url=self.nova.url + path, retries=0,
                               auth={'auth_type': 'none'},
                               requests_per_second=1e5)

        outcome = rebalancing.MigrationReplay(
            self.store, rebalancing.ReplayedCloud(
                access('/v2.1'), access('/placement')), traffic,
            {self.uuids[name]: host for name, host in PLACED.items()}, HOSTS,
            limit)
        reports = []
        outcome.run(lambda *args: reports.append(args))
        self.assertEqual((samples, samples), reports[-1])
        return outcome.summary()

    def test_a_host_that_has_spent_its_budget_is_relieved(self):
        outcome = self.replay()
        # It has 518 s, earns 1.8 s in a sample, and 300 s are spent in the
        # 10th and in the 20th. The check after the 21st relieves it.
        (sample, uuid, host), = outcome['moves']
        self.assertEqual((21, 'host2'), (sample, host))
        self.assertIn(uuid, (self.uuids['vm1'], self.uuids['vm2']))
        self.assertEqual('host2', self.nova.servers[uuid][
            'OS-EXT-SRV-ATTR:host'])
        self.assertEqual({'host1': [600.0, 86400.0],
                          'host2': [0.0, 86400.0]}, outcome['budgets'])
        self.assertEqual([], outcome['problems'])
        move, = self.store.moves()
        self.assertEqual(('done', fleet.NOW + 21 * 300),
                         (move.state, move.ended_at))

    def test_within_its_budget_nova_is_not_asked(self):
        self.assertEqual([], self.replay(busy_kbps=90_000.0)['moves'])
        self.assertEqual([], self.nova.asked)
        self.assertEqual([], self.store.plans())

    def test_overload_of_one_instance_by_itself_is_not_spent(self):
        outcome = self.replay(busy_kbps=200_000.0)
        self.assertEqual(([], 0.0), (outcome['moves'],
                                     outcome['budgets']['host1'][0]))

    def test_a_migration_that_fails_leaves_the_instance_where_it_is(self):
        self.nova.on_migrate = lambda server, host: self.nova.complete(
            server, host, 'error')
        # No scheduler writes to this store.
        self.enterContext(mock.patch.object(executor, 'DECISION_SECONDS', 0))
        outcome = self.replay(samples=30)
        self.assertEqual([], outcome['moves'])
        # The host refused one, then the other.
        self.assertEqual(2, len({name for name, _ in self.nova.asked}))
        self.assertIn('Nova: error: No valid host', outcome['problems'][0])
        self.assertEqual(900.0, outcome['budgets']['host1'][0])
