# SPDX-License-Identifier: Apache-2.0

import dataclasses

from tests.unit.store import base
from vswitch_aware_scheduler import store


class FleetTestCase(base.StoreTestCase):

    def test_facts_of_a_kind_replace_those_before(self):
        self.assertEqual(store.FleetFacts({}, None),
                         self.store.fleet('aggregate'))
        a, b, c = ({'name': name, 'metadata': {}, 'hosts': []}
                   for name in 'abc')
        self.store.write_fleet({'aggregate': {'1': a, '2': b}, 'flavor': {}},
                               base.NOW)
        self.assertEqual(store.FleetFacts({'1': a, '2': b}, base.NOW),
                         self.store.fleet('aggregate'))
        self.assertEqual(store.FleetFacts({}, base.NOW),
                         self.store.fleet('flavor'))
        self.store.write_fleet({'aggregate': {'2': c}}, base.NOW + 60)
        self.assertEqual(store.FleetFacts({'2': c}, base.NOW + 60),
                         self.store.fleet('aggregate'))
        self.assertEqual(base.NOW, self.store.fleet('flavor').read_at)

    def test_names_that_differ_in_case_alone_are_two(self):
        self.store.write_fleet({'host': {'h': {'a': 1}, 'H': {'a': 2}}},
                               base.NOW)
        self.assertEqual({'h': {'a': 1}, 'H': {'a': 2}},
                         self.store.fleet('host').facts)


class WorkersTestCase(base.StoreTestCase):

    def test_each_worker_has_its_last_state_for_a_day(self):
        worker_a = store.Worker('a', 'ctl1', base.NOW - 9, base.NOW,
                                {'cells': {'c': 3.5}})
        worker_b = store.Worker('b', 'ctl0', base.NOW - 9, base.NOW, {})
        for worker in (worker_a, worker_b):
            self.store.report_worker(worker)
        self.assertEqual([worker_b, worker_a], self.store.workers())
        later = dataclasses.replace(worker_a, seen_at=base.NOW + 60,
                                    state={'cells': {}})
        self.store.report_worker(later)
        self.assertEqual([worker_b, later], self.store.workers())
        self.store.report_worker(dataclasses.replace(
            worker_a, seen_at=base.NOW + 86401))
        self.assertEqual(['a'],
                         [worker.name for worker in self.store.workers()])
