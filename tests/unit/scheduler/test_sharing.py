# SPDX-License-Identifier: Apache-2.0
"""Workers at one store: what one places counts with the others."""

import contextlib
import json
import os
import sqlite3
import threading

from nova import objects

from tests.unit.scheduler import base
from vswitch_aware_scheduler.scheduler import residency
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import attachments


class TestWorkers(base.SharingTestCase):

    def setUp(self):
        super().setUp()
        self.a, self.b = self.host('a'), self.host('b')
        self.one, self.two = self.make_worker(), self.make_worker()
        for worker in (self.one, self.two):
            self.assertEqual([0, 0], self.load(worker, self.a, self.b))

    def place(self, number, host, worker=None, kbps=30, **more):
        worker = worker or self.one
        worker.request_started()
        worker.host_consumed(host, base.request(number, egress_kbps=kbps,
                                                **more))

    def read(self, worker, number, host):
        self.clock.now += 1
        worker._take_reading(residency.CellReading(base.CELL, self.clock.now, {
            base.instance_uuid(number): host and residency.Row(
                host, 'active', None,
                (('m', {'vswitch:egress_kbps': '30'}), None, None))}))

    def test_what_one_places_counts_with_the_other(self):
        self.place(1, self.a, networks=['red'])
        self.wait_for(lambda: self.load(self.two, self.a, self.b) == [.3, 0])
        counted = self.two.counted()['a']
        self.assertEqual(([], [base.instance_uuid(1)]), (
            counted['claimed'], counted['claimed_by_others']))
        self.assertEqual([base.instance_uuid(1)],
                         self.one.counted()['a']['claimed'])
        self.assertEqual(
            attachments.Attachments(('red',)),
            self.two._statements.attachments(base.instance_uuid(1)))
        # And with one that begins later.
        three = self.make_worker()
        self.wait_for(lambda: self.load(three, self.a) == [.3])

    def test_each_ends_a_claim_by_its_own_reading(self):
        self.place(1, self.a)
        self.wait_for(lambda: self.load(self.two, self.a) == [.3])
        self.read(self.one, 1, 'b')
        self.assertEqual([0, .3], self.load(self.one, self.a, self.b))
        self.assertEqual([.3, 0], self.load(self.two, self.a, self.b))
        self.read(self.two, 1, 'b')
        self.assertEqual([0, .3], self.load(self.two, self.a, self.b))

    def test_what_comes_to_nothing_goes_with_the_other_as_well(self):
        for worker in (self.one, self.two):
            self.read(worker, 1, 'a')
        self.place(1, self.b)
        self.wait_for(lambda: self.load(self.two, self.a, self.b)
                      == [.3, .3])
        self.one.request_finished(True)
        self.wait_for(lambda: self.load(self.two, self.a, self.b) == [.3, 0])
        self.assertEqual([.3, 0], self.load(self.one, self.a, self.b))
        self.assertEqual({1: (store.WITHDRAWN, 'b')}, self.claims())

    def test_a_claim_counts_with_the_others_before_placement_is_asked(self):
        loads = []

        def placement(host):
            self.wait_for(lambda: self.load(self.two, self.a, self.b)
                          != [0, 0])
            loads.append(self.load(self.two, self.a, self.b))
            if host == 'a':
                self.two_refused = self.boot(
                    self.two, 2, [self.host('a')], egress_kbps=80)
                return False
            return True

        self.assertEqual('b', self.boot(
            self.one, 1, [self.host('a'), self.host('b')], placement,
            egress_kbps=30))
        # The tentative claim on a has refused another request there.
        self.assertIsNone(self.two_refused)
        self.assertEqual([.3, 0], loads[0])
        self.wait_for(lambda: self.load(self.two, self.a, self.b) == [0, .3])
        self.wait_for(lambda: self.two.claims.counts[
            'requests_refused_by_withdrawn_claims'] == 1)

    def test_a_request_waits_for_a_lock_as_long_as_its_patience(self):
        placing = threading.Thread(target=self.place, args=(1, self.a))
        with contextlib.closing(sqlite3.connect(
                self.path, isolation_level=None)) as other:
            other.execute('BEGIN IMMEDIATE')
            placing.start()
            # The store of a worker with a short patience waits for 2 s.
            placing.join(3.0)
            self.assertTrue(placing.is_alive())
            other.execute('ROLLBACK')
        placing.join(base.PATIENCE_SECONDS)
        self.assertEqual((1, 0), (
            self.one.claims.counts['claims_made'],
            self.one.claims.counts['claim_misses']))
        self.assertEqual({1: (store.CLAIMED, 'a')}, self.claims())

    def test_the_last_room_goes_to_one_of_two_workers_that_judged_it(self):
        spec_one, spec_two = (base.request(number, egress_kbps=60)
                              for number in (1, 2))
        hosts = [self.host('a'), self.host('b')]
        for worker, spec in ((self.one, spec_one), (self.two, spec_two)):
            worker.request_started()
            worker.assess(hosts, spec)
            worker.hosts_filtered(hosts)
        # With equal snapshots both have judged that each host has room.
        self.assertTrue(self.one.claim_host({hosts[0].uuid}, spec_one))
        self.assertFalse(self.two.claim_host({hosts[0].uuid}, spec_two))
        self.assertTrue(self.two.claim_host({hosts[1].uuid}, spec_two))
        claim, = [claim for claim in base.RealStore(
            self.url).read_claims().claims if claim.host == 'b']
        self.assertEqual((1, False), (claim.conflicts, claim.missed))

    def test_a_guarantee_counts_with_all_and_after_a_restart(self):
        spec = base.request(1, egress_kbps=1)
        spec.requested_resources = [objects.RequestGroup(resources={
            'NET_BW_EGR_KILOBIT_PER_SEC': 70})]
        self.one.request_started()
        self.one.host_consumed(self.a, spec)
        three = self.make_worker()
        for worker in (self.one, self.two, three):
            self.wait_for(lambda: self.load(worker, self.a) == [.7])
        # The record shows the instance, and the inventory is still older.
        for worker in (self.one, self.two, three):
            self.read(worker, 1, 'a')
            self.assertEqual([], worker._residency.claims)
            self.assertEqual([.7], self.load(worker, self.a))

    def test_who_is_behind_an_uplink_counts_with_the_first_request(self):
        rack = objects.Aggregate(
            id=1, name='rack', hosts=['a', 'b'], metadata={
                'vswitch:uplink': 'tor',
                'vswitch:uplink_saturation_kbps': '100',
                'vswitch:uplink_overload_probability': '0'})
        other = objects.Aggregate(
            id=2, name='other', hosts=['b'],
            metadata={'vswitch:uplink': 'tor'})
        # Another aggregate of the same uplink, none of whose hosts is listed.
        for listed, hosts in (([rack], ['a', 'b']), (None, ['a', 'b']),
                              ([rack, other], ['a'])):
            with self.subTest(listed=listed):
                rack.hosts = hosts
                worker = self.make_worker()
                worker._ensure_ready()
                self.read(worker, 1, 'b')
                worker.request_started(listed)
                assessment, _ = worker.assess(
                    [base.host_state('a', (), [self.aggregate, rack])],
                    base.request(9, egress_kbps=80))
                self.assertEqual([False], assessment.passing.tolist())

    def test_while_the_store_is_away_each_goes_on_and_writes_later(self):
        os.rename(self.path, self.path + '.away')
        self.wait_for(lambda: sum('claims of other workers' in text
                                  for text in self.warnings) >= 2)
        self.place(1, self.a)
        self.assertEqual([.3], self.load(self.one, self.a))
        os.rename(self.path + '.away', self.path)
        self.wait_for(lambda: self.load(self.two, self.a) == [.3])
        self.wait_for(lambda: sum('claims of other workers is well' in text
                                  for text in self.infos) >= 2)


class TestProcesses(base.SharingTestCase):
    """As nova-scheduler forks them, each with requests of its own."""

    WORKERS, EACH = 4, 12

    def _fork(self, function):
        """Return (pid, file that function(file) writes to)."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            return pid, os.fdopen(reading)
        status = 1
        try:
            os.close(reading)
            with os.fdopen(writing, 'w') as stream:
                function(stream)
            status = 0
        finally:
            os._exit(status)

    def test_they_agree_on_who_is_where(self):
        hosts = [self.host(name) for name in 'abc']
        worker = self.make_worker()
        ready, go = os.pipe()

        def play(stream, index):
            os.close(go)
            placed = {}
            for number in range(100 * index, 100 * index + self.EACH):
                first = number % len(hosts)
                placed[number] = self.boot(
                    worker, number, hosts[first:] + hosts[:first],
                    egress_kbps=10)
            self.wait_for(lambda: not worker.claims._unwritten)
            print(json.dumps(placed), file=stream, flush=True)
            # Until all have printed what they have placed.
            os.read(ready, 1)
            last = base.RealStore(self.url).read_claims().seen.number
            self.wait_for(
                lambda: worker.claims._last_read is not None
                and worker.claims._last_read.number >= last)
            print(json.dumps({
                host: sorted(counted['instances'])
                for host, counted in worker.counted().items()}), file=stream)

        children = [self._fork(lambda stream, index=index: play(
            stream, index)) for index in range(1, self.WORKERS + 1)]
        placed = {number: host for _, stream in children
                  for number, host in json.loads(stream.readline()).items()
                  if host is not None}
        # A word is on its way when it has left the queue.
        self.wait_for(lambda: len(self.claims()) >= len(placed))
        os.close(ready)
        os.close(go)
        truth = {host: sorted(
            base.instance_uuid(int(number))
            for number, place in placed.items() if place == host)
            for host in 'abc'}
        for pid, stream in children:
            with stream:
                self.assertEqual(truth, json.loads(stream.readline()))
            self.assertEqual(0, os.waitpid(pid, 0)[1])
