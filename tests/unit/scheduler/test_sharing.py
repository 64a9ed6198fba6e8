# SPDX-License-Identifier: Apache-2.0
"""Workers at one store: what one places counts with the others."""

import collections
import dataclasses
import json
import os
import signal
import tempfile
import threading
import time
from unittest import mock

from tests.unit.scheduler import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.scheduler import lookup
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import migration

PATIENCE_SECONDS = 30.0


class SharingTestCase(base.StateTestCase):
    """States of several workers, with a real store in a file."""

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, 'vswitch.sqlite')
        self.url = f'sqlite:///{self.path}'
        migration.sync(self.url)
        self.make_store.side_effect = database.Store

    def make_worker(self, **options):
        return self.make_state(**{
            'store_url': self.url, 'snapshot_refresh_seconds': 1,
            'claims_refresh_seconds': .02, **options})

    def host(self, name, *numbers):
        return base.host_state(name, numbers, [self.aggregate])

    def load(self, worker, *hosts):
        """Return what hosts carry of what they can, as a worker sees it."""
        assessment, _ = worker.assess(list(hosts), base.request(99, kpps=1))
        return [round(value, 6) for value in assessment.utilisation.tolist()]

    def wait_for(self, condition):
        limit = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), limit)
            time.sleep(.01)

    def rows(self):
        found = database.Store(self.url).read_claims().claims
        return {int(one.instance_uuid[-12:]): (one.state, one.host)
                for one in found}


class TestWorkers(SharingTestCase):

    def setUp(self):
        super().setUp()
        self.a, self.b = self.host('a'), self.host('b')
        self.one, self.two = self.make_worker(), self.make_worker()
        for worker in (self.one, self.two):
            self.assertEqual([0, 0], self.load(worker, self.a, self.b))

    def place(self, number, host, worker=None, kbps=30):
        worker = worker or self.one
        worker.began()
        worker.placed(host, base.request(number, egress_kbps=kbps))

    def test_what_one_places_counts_with_the_other_within_a_second(self):
        self.place(1, self.a)
        begun = time.monotonic()
        self.wait_for(lambda: self.load(self.two, self.a, self.b) == [.3, 0])
        # A second, and more on a machine that is busy with other things.
        self.assertLess(time.monotonic() - begun, 5.0)
        counted = self.two.counted()['a']
        self.assertEqual(([], [base.instance_uuid(1)]), (
            counted['claimed'], counted['claimed_by_others']))
        self.assertEqual([base.instance_uuid(1)],
                         self.one.counted()['a']['claimed'])

    def test_what_comes_to_nothing_goes_with_the_other_as_well(self):
        self.place(1, self.a)
        self.wait_for(lambda: self.load(self.two, self.a) == [.3])
        self.one.finished(failed=True)
        self.wait_for(lambda: self.load(self.two, self.a) == [0])
        self.assertEqual({1: ('forgotten', 'a')}, self.rows())

    def test_a_move_that_fails_is_back_where_it_was_with_both(self):
        a = self.host('a', 1)
        for worker in (self.one, self.two):
            worker.assess([a, self.b], base.request(1, egress_kbps=30))
        self.place(1, self.b)
        self.wait_for(lambda: self.load(self.two, a, self.b)[1] == .3)
        self.assertEqual(0, self.load(self.two, a, self.b)[0])
        self.one.finished(failed=True)
        self.wait_for(lambda: self.load(self.two, a, self.b)[1] == 0)
        self.assertLess(0, self.load(self.two, a, self.b)[0])

    def test_what_the_database_says_is_asked_by_one_of_them(self):
        self.place(1, self.a, kbps=90)
        self.wait_for(lambda: self.load(self.two, self.a) == [.9])
        self.database[1] = None
        large = base.request(2, egress_kbps=50)
        assessment, _ = self.two.assess([self.a], large)
        self.assertEqual([admission.ADMITTED], assessment.reason.tolist())
        self.wait_for(lambda: self.load(self.one, self.a) == [0])
        self.assertEqual([1], self.looked_up)

    def test_what_is_placed_while_the_database_is_asked_counts(self):
        self.place(1, self.a, kbps=90)
        self.wait_for(lambda: self.load(self.two, self.a, self.b) == [.9, 0])
        look_up = lookup.look_up

        def slowly(uuid):
            # Meanwhile the first one fills the other host.
            self.place(2, self.b, kbps=80)
            self.wait_for(lambda: self.two.counted()['b']['instances'])
            return look_up(uuid)

        with mock.patch.object(lookup, 'look_up', slowly):
            assessment, _ = self.two.assess(
                [self.a, self.b], base.request(3, egress_kbps=30))
        self.assertEqual([admission.OVERLOAD] * 2,
                         assessment.reason.tolist())

    def test_the_host_that_was_sorted_first_counts_before_it_is_placed(self):
        spec = base.request(1, egress_kbps=30)
        self.one.began()
        self.one.chosen([self.a, self.b], spec)
        self.wait_for(lambda: self.load(self.two, self.a, self.b) == [.3, 0])
        self.one.placed(self.a, spec)
        self.one.finished(failed=False)
        self.assertEqual([.3, 0], self.load(self.one, self.a, self.b))
        time.sleep(.1)
        self.assertEqual({1: ('assumed', 'a')}, self.rows())

    def test_it_counts_where_it_is_placed_in_the_end(self):
        spec = base.request(1, egress_kbps=30)
        self.one.began()
        self.one.chosen([self.a, self.b], spec)
        self.one.placed(self.b, spec)
        self.wait_for(lambda: self.load(self.two, self.a, self.b) == [0, .3])
        self.assertEqual([0, .3], self.load(self.one, self.a, self.b))
        # It was nowhere before, so nobody has to ask whether it stays.
        b = self.host('b', 1)
        for worker in (self.one, self.two):
            self.load(worker, self.a, b)
            self.assertTrue(worker._residency.certain)
        self.one.finished(failed=True)

    def test_alternates_to_where_it_is_placed_do_not_count(self):
        spec = base.request(1, egress_kbps=30)
        self.one.began()
        self.one.chosen([self.a, self.b], spec)
        self.one.placed(self.a, spec)
        # Of several instances Nova sorts the hosts once more at the end.
        self.one.chosen([self.b, self.a], spec)
        self.one.finished(failed=False)
        self.assertEqual([.3, 0], self.load(self.one, self.a, self.b))
        self.wait_for(lambda: self.load(self.two, self.a, self.b) == [.3, 0])
        self.assertEqual({1: ('assumed', 'a')}, self.rows())

    def test_nobody_is_chosen_where_there_is_no_host_or_no_request(self):
        self.one.began()
        self.one.chosen([], base.request(1))
        self.one.finished(failed=True)
        self.one.chosen([self.a], base.request(1, egress_kbps=30))
        self.assertEqual([0], self.load(self.one, self.a))

    def test_while_the_store_is_away_each_goes_on_and_tells_later(self):
        os.rename(self.path, self.path + '.away')
        # One of each worker.
        self.wait_for(lambda: sum('claims of other workers' in text
                                  for text in self.warnings) == 2)
        self.place(1, self.a)
        self.assertEqual([.3], self.load(self.one, self.a))
        os.rename(self.path + '.away', self.path)
        self.wait_for(lambda: self.load(self.two, self.a) == [.3])
        self.wait_for(lambda: sum('claims of other workers is well' in text
                                  for text in self.infos) == 2)
        told = [text for text in self.warnings if 'claims of' in text]
        self.assertEqual(2, len(told), told)

    def test_a_claim_stands_against_what_the_database_said_before(self):
        # The worker has not seen the source yet; a move is under way.
        self.place(1, self.b)
        self.wait_for(lambda: self.load(self.two, self.b) == [.3])
        self.on_hosts = {'c': {base.instance_uuid(1)}}
        c = self.host('c')
        self.assertEqual([.3, 0], self.load(self.two, self.b, c))


class TestTunnels(SharingTestCase):
    """Hosts of one tunnel each, one for each network."""

    def setUp(self):
        super().setUp()
        path = os.path.join(os.path.dirname(self.path), 'profiles.yaml')
        with open(path, 'w') as file:
            file.write('one: {max_tunnels: 1, tunnel_unit: networks}\n')
        self.options = {'switch_profiles_file': path}
        self.aggregate = base.aggregate(profile='one')

    def spec(self, number, *networks):
        return base.request(number, networks=networks, egress_kbps=1)

    def fits(self, worker, *networks, on):
        assessment, _ = worker.assess([on], self.spec(99, *networks))
        return assessment.admitted.tolist() == [True]

    def test_what_one_places_is_on_its_networks_with_all(self):
        one, two = (self.make_worker(**self.options) for _ in range(2))
        a = self.host('a')
        for worker in (one, two):
            self.assertTrue(self.fits(worker, 'red', on=a))
        one.began()
        one.placed(a, self.spec(1, 'red'))
        self.wait_for(lambda: not self.fits(two, 'blue', on=a))
        self.assertTrue(self.fits(two, 'red', on=a))
        # Its host, which is faster than a worker that begins, tells no more.
        a = self.host('a', 1)
        for worker in (one, two, self.make_worker(**self.options)):
            self.assertFalse(self.fits(worker, 'blue', on=a))
            self.assertTrue(self.fits(worker, 'red', on=a))


class TestOptions(SharingTestCase):

    def test_without_sharing_there_is_no_thread_and_nothing_is_told(self):
        worker = self.make_worker(claims_refresh_seconds=0)
        a = self.host('a')
        self.load(worker, a)
        worker.began()
        worker.placed(a, base.request(1, egress_kbps=30))
        worker.finished(failed=True)
        self.assertNotIn('vswitch-claims', [
            one.name for one in threading.enumerate()])
        self.assertEqual({}, self.rows())

    def test_a_request_may_wait_for_the_latest(self):
        # Else nothing would be read in an hour.
        one, two = (self.make_worker(
            claims_refresh_seconds=60, claims_wait_seconds=10)
            for _ in range(2))
        a = self.host('a')
        for worker in (one, two):
            self.load(worker, a)
        one.began()
        one.placed(a, base.request(1, egress_kbps=30))
        self.wait_for(self.rows)
        two.began()
        self.assertEqual([.3], self.load(two, a))
        two.finished(failed=False)

    def test_a_request_that_begins_has_the_claims_read_meanwhile(self):
        one, two = (self.make_worker(claims_refresh_seconds=60)
                    for _ in range(2))
        a = self.host('a')
        for worker in (one, two):
            self.load(worker, a)
        one.began()
        one.placed(a, base.request(1, egress_kbps=30))
        self.wait_for(self.rows)
        time.sleep(.05)
        two.began()
        self.wait_for(lambda: self.load(two, a) == [.3])
        two.finished(failed=False)

    def test_a_store_that_cannot_be_used_is_told(self):
        self.make_store.side_effect = exceptions.StoreError('bad URL')
        worker = self.make_worker()
        self.load(worker, self.host('a'))
        self.assertTrue(any('claims of other workers' in text
                            and 'bad URL' in text for text in self.warnings))


class TestInventory(base.StateTestCase):
    """What the modeler has read of Nova spares asking its database."""

    def setUp(self):
        super().setUp()
        self.store.answers = [base.changes(1, {1: 60.0, 2: 50.0})]
        self.state = self.make_state()
        self.ask(base.request(1), a=[], b=[])
        self.place(base.request(1), 'a')

    def _inventory(self, host, later_seconds):
        self.number = getattr(self, 'number', 1) + 1
        self.store.answers = [dataclasses.replace(
            base.changes(self.number), placements=(
                [base.instance_uuid(1)], [(host, None, None)]),
            seen_at=base.NOW + later_seconds)]
        self.state.refresh()

    def test_one_that_it_has_on_its_host_is_not_asked_for(self):
        self._inventory('a', 100)
        self.assertEqual({'a': 1.1, 'b': .5}, self.ask(base.request(2)))
        self.assertEqual([], self.looked_up)

    def test_one_that_it_has_elsewhere_counts_there(self):
        self._inventory('b', 100)
        self.assertEqual({'a': .5, 'b': 1.1}, self.ask(base.request(2)))
        self.assertEqual([], self.looked_up)

    def test_what_is_hardly_later_or_has_no_host_tells_nothing(self):
        for host, later in (('b', 1), (None, 100)):
            with self.subTest(host=host):
                self.looked_up.clear()
                self.clock.now += 1
                self._inventory(host, later)
                self.assertEqual({'a': 1.1, 'b': .5},
                                 self.ask(base.request(2)))
                self.assertEqual([1], self.looked_up)


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
        worker.began()
        found = None
        assessment, _ = worker.assess(hosts, spec)
        fits = [host for host, good in zip(
            hosts, assessment.admitted.tolist()) if good]
        if fits:
            found = fits[number % len(fits)]
            worker.chosen([found], spec)
            worker.placed(found, spec)
        worker.finished(failed=not fits)
        return found and found.host

    def _count(self, worker):
        return {host: sorted(found['instances'])
                for host, found in worker.counted().items()}

    def test_they_agree_on_who_is_where_and_nothing_is_left(self):
        hosts = [self.host(name) for name in 'abc']
        worker = self.make_worker(claims_wait_seconds=5)
        ready, go = os.pipe()

        def play(stream, index):
            os.close(go)
            placed = {}
            for number in range(self.EACH):
                number += 100 * (index + 1)
                placed[number] = self._boot(worker, number, hosts)
            worker._exchange.freshen(PATIENCE_SECONDS)
            print(json.dumps(placed), file=stream, flush=True)
            # Until all have told what they have placed.
            os.read(ready, 1)
            worker._exchange.freshen(PATIENCE_SECONDS)
            worker.assess(hosts, base.request(99))
            print(json.dumps(self._count(worker)), file=stream)

        children = [self._fork(lambda stream, index=index: play(
            stream, index)) for index in range(self.WORKERS)]
        placed = [json.loads(stream.readline()) for _, stream in children]
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
        # 30 fit; with a request in each worker at a time there can be at
        # most three more on a host.
        for host in 'abc':
            self.assertLessEqual(10, len(truth[host]))
            self.assertLess(len(truth[host]), 10 + self.WORKERS)
        # Hosts report them to a worker that begins, and all is settled.
        late = self.make_worker()
        listing = [self.host(host, *[int(uuid[-12:]) for uuid in uuids])
                   for host, uuids in sorted(truth.items())]
        late.assess(listing, base.request(99))
        self.assertEqual([], late._residency.claims)
        self.assertEqual(truth, self._count(late))

    def test_claims_of_one_that_was_killed_are_kept_and_run_out(self):
        hosts = [self.host('a')]
        worker = self.make_worker(claim_expiry_seconds=2)

        def play(_stream):
            self._boot(worker, 1, hosts)
            self.wait_for(self.rows)
            os.kill(os.getpid(), signal.SIGKILL)

        pid, stream = self._fork(play)
        with stream:
            os.waitpid(pid, 0)
        other = self.make_worker()
        self.assertEqual([.1], self.load(other, *hosts))
        time.sleep(2.0)
        self.clock.now += 2.0
        self.assertEqual([0], self.load(other, *hosts))
        self.assertEqual(1, database.Store(self.url).purge_claims())
        self.assertEqual({}, self.rows())
