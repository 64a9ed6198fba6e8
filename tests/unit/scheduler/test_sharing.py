# SPDX-License-Identifier: Apache-2.0
"""Workers at one store: what one places counts with the others."""

import collections
import json
import os
import tempfile
import time

from tests.fakes import store as fake_store
from tests.unit.scheduler import base
from vswitch_aware_scheduler.scheduler import residency
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.vswitch import attachments

PATIENCE_SECONDS = 60.0


class SharingTestCase(base.StateTestCase):
    """States of several workers, with a real store in a file."""

    def setUp(self):
        super().setUp()
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(directory, 'vswitch.sqlite')
        self.url = f'sqlite:///{self.path}'
        fake_store.make_empty(self.url)
        self.make_store.side_effect = database.Store

    def make_worker(self, **options):
        return self.make_state(**{
            'store_url': self.url, 'snapshot_refresh_seconds': 1,
            'claims_broadcast_seconds': .02, **options})

    def host(self, name):
        return base.host_state(name, (), [self.aggregate])

    def load(self, worker, *hosts):
        """Return what hosts carry of what they can, as a worker sees it."""
        assessment, _ = worker.assess(list(hosts), base.request(99, kpps=1))
        return [round(value, 6) for value in assessment.utilisation.tolist()]

    def wait_for(self, condition):
        limit = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), limit)
            time.sleep(.01)

    def claims(self):
        return {int(one.instance_uuid[-12:]): (one.state, one.host)
                for one in database.Store(self.url).read_claims().claims}


class TestWorkers(SharingTestCase):

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
        worker._take_reading(residency.Reading(base.CELL, self.clock.now, {
            base.instance_uuid(number): host and residency.Row(
                host, 'active', None,
                (('m', {'vswitch:egress_kbps': '30'}), None, None))}))

    def test_what_one_places_counts_with_the_other(self):
        self.place(1, self.a)
        self.wait_for(lambda: self.load(self.two, self.a, self.b) == [.3, 0])
        counted = self.two.counted()['a']
        self.assertEqual(([], [base.instance_uuid(1)]), (
            counted['claimed'], counted['claimed_by_others']))
        self.assertEqual([base.instance_uuid(1)],
                         self.one.counted()['a']['claimed'])

    def test_what_comes_to_nothing_goes_with_the_other_as_well(self):
        self.place(1, self.a)
        self.wait_for(lambda: self.load(self.two, self.a) == [.3])
        self.one.request_finished(True)
        self.wait_for(lambda: self.load(self.two, self.a) == [0])
        self.assertEqual({1: (store.FORGOTTEN, 'a')}, self.claims())

    def test_each_ends_a_claim_by_its_own_reading(self):
        self.place(1, self.a)
        self.wait_for(lambda: self.load(self.two, self.a) == [.3])
        self.read(self.one, 1, 'b')
        self.assertEqual([0, .3], self.load(self.one, self.a, self.b))
        self.assertEqual([.3, 0], self.load(self.two, self.a, self.b))
        self.read(self.two, 1, 'b')
        self.assertEqual([0, .3], self.load(self.two, self.a, self.b))

    def test_a_move_that_fails_leaves_the_source_with_both(self):
        for worker in (self.one, self.two):
            self.read(worker, 1, 'a')
        self.place(1, self.b)
        self.wait_for(lambda: self.load(self.two, self.a, self.b)
                      == [.3, .3])
        self.one.request_finished(True)
        self.wait_for(lambda: self.load(self.two, self.a, self.b) == [.3, 0])
        self.assertEqual([.3, 0], self.load(self.one, self.a, self.b))

    def test_the_host_that_was_sorted_first_counts_before_it_is_taken(self):
        spec = base.request(1, egress_kbps=30)
        self.one.request_started()
        self.one.hosts_sorted([self.a, self.b], spec)
        self.wait_for(lambda: self.load(self.two, self.a, self.b) == [.3, 0])
        # Placement refuses it there.
        self.one.host_consumed(self.b, spec)
        self.wait_for(lambda: self.load(self.two, self.a, self.b) == [0, .3])
        self.one.request_finished(False)
        self.assertEqual([0, .3], self.load(self.one, self.a, self.b))

    def test_while_the_store_is_away_each_goes_on_and_tells_later(self):
        os.rename(self.path, self.path + '.away')
        self.wait_for(lambda: sum('claims of other workers' in text
                                  for text in self.warnings) >= 2)
        self.place(1, self.a)
        self.assertEqual([.3], self.load(self.one, self.a))
        os.rename(self.path + '.away', self.path)
        self.wait_for(lambda: self.load(self.two, self.a) == [.3])
        self.wait_for(lambda: sum('claims of other workers is well' in text
                                  for text in self.infos) >= 2)

    def test_networks_of_a_placement_are_told_too(self):
        self.place(1, self.a, networks=['red'])
        self.wait_for(lambda: self.two._statements.attachments(
            base.instance_uuid(1)) is not None)
        self.assertEqual(
            attachments.Attachments(('red',)),
            self.two._statements.attachments(base.instance_uuid(1)))

    def test_a_worker_that_begins_hears_of_open_claims(self):
        self.place(1, self.a)
        self.wait_for(self.claims)
        three = self.make_worker()
        self.wait_for(lambda: self.load(three, self.a) == [.3])
        claim, = three._residency.claims
        self.assertLess(claim.received - claim.made, 50)

    def test_a_scheduler_of_the_release_before_is_understood(self):
        # It tells of a placement and later what came of it.
        old = database.Store(self.url)
        word = store.StoredClaim(
            base.instance_uuid(1), 'old-1', store.ASSUMED, 'a', None,
            base.constant(30), True, 3600.0, 'old:1')
        old.write_claims([word])
        self.wait_for(lambda: self.load(self.two, self.a) == [.3])
        for state, expected in ((store.CONFIRMED, .3),
                                (store.FORGOTTEN, 0)):
            old.write_claims([store.StoredClaim(
                **{**vars(word), 'state': state})])
            self.wait_for(lambda: self.two._broadcast._last_read.number
                          == old.read_claims().seen.number)
            self.wait_for(
                lambda: self.load(self.two, self.a) == [expected])

    def test_claims_that_are_not_shared_stay_with_their_worker(self):
        alone = self.make_worker(claims_broadcast_seconds=0)
        self.load(alone, self.a)
        self.place(1, self.a, alone)
        alone.request_finished(True)
        self.place(2, self.a, alone)
        self.assertEqual([.3], self.load(alone, self.a))
        self.assertEqual({}, self.claims())

    def test_options_of_the_release_before_are_ignored(self):
        worker = self.make_worker(claims_refresh_seconds=0,
                                  claims_wait_seconds=10,
                                  claim_expiry_seconds=1)
        self.load(worker, self.a)
        self.place(1, self.a, worker)
        self.clock.now += 100
        self.assertEqual([.3], self.load(worker, self.a))
        self.wait_for(self.claims)


class TestProcesses(SharingTestCase):
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

    def _boot(self, worker, number, hosts):
        """Return the host that a request has put an instance on."""
        spec = base.request(number, egress_kbps=10)
        worker.request_started()
        assessment, _ = worker.assess(hosts, spec)
        fits = [host for host, good in zip(
            hosts, assessment.admitted.tolist()) if good]
        worker.hosts_filtered(fits)
        fits = worker.hosts_sorted(
            fits[number % len(fits):] if fits else [], spec)
        if fits:
            worker.host_consumed(fits[0], spec)
        worker.request_finished(not fits)
        return fits[0].host if fits else None

    def _count(self, worker):
        return {host: sorted(found['instances'])
                for host, found in worker.counted().items()}

    def test_they_agree_on_who_is_where(self):
        hosts = [self.host(name) for name in 'abc']
        worker = self.make_worker()
        ready, go = os.pipe()

        def play(stream, index):
            os.close(go)
            placed = {}
            for number in range(self.EACH):
                number += 100 * (index + 1)
                placed[number] = self._boot(worker, number, hosts)
            self.wait_for(lambda: not worker._broadcast._unwritten)
            print(json.dumps(placed), file=stream, flush=True)
            # Until all have told what they have placed.
            os.read(ready, 1)
            last = database.Store(self.url).read_claims().seen.number
            self.wait_for(
                lambda: worker._broadcast._last_read is not None
                and worker._broadcast._last_read.number >= last)
            print(json.dumps(self._count(worker)), file=stream)

        children = [self._fork(lambda stream, index=index: play(
            stream, index)) for index in range(self.WORKERS)]
        placed = [json.loads(stream.readline()) for _, stream in children]
        # A word is on its way when it has left the queue.
        count = sum(host is not None for one in placed
                    for host in one.values())
        self.wait_for(lambda: len(self.claims()) >= count)
        os.close(ready)
        os.close(go)
        counted = []
        for pid, stream in children:
            with stream:
                counted.append(json.loads(stream.readline()))
            self.assertEqual(0, os.waitpid(pid, 0)[1])
        truth = collections.defaultdict(list)
        for one in placed:
            for number, host in one.items():
                if host is not None:
                    truth[host].append(base.instance_uuid(int(number)))
        truth = {host: sorted(uuids) for host, uuids in truth.items()}
        for one in counted:
            self.assertEqual(truth, one)
