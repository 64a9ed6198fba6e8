# SPDX-License-Identifier: Apache-2.0
"""What several workers make of each other's claims (reference/claims.rst)."""

import collections
import dataclasses
import itertools
import random
import unittest
from unittest import mock

from vswitch_aware_scheduler.scheduler import claims
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import tunnels

LAW = model.TrafficModel.constant(5).law
OTHER_LAW = model.TrafficModel.constant(7).law
EXPIRY_SECONDS = 600.0
KEPT_SECONDS = 600.0

#: The manual's table.
TRANSITIONS = {
    ('assumed', 'moved'), ('assumed', 'confirmed'), ('assumed', 'forgotten'),
    ('assumed', 'expired'), ('moved', 'confirmed'), ('moved', 'forgotten'),
    ('confirmed', 'forgotten')}


class PlainStore:
    """The rules of the table ``claim``, written out."""

    def __init__(self):
        self.rows = {}           # uuid -> [StoredClaim, until when]
        self.number = self.complete_since = 0

    def write(self, words, now):
        self.number += 1
        late = {}
        for word in words:
            row = self.rows.get(word.instance_uuid)
            if row is None:
                accepted = word.state == 'assumed'
            elif row[0].token == word.token:
                accepted = (row[0].state, word.state) in TRANSITIONS
            else:
                accepted = word.state == 'assumed'
                if accepted and row[0].state == 'assumed' \
                        and row[0].host != word.source \
                        and row[0].claimed_by != word.claimed_by \
                        and row[0].number > word.based_on:
                    accepted, late[word.instance_uuid] = False, row[0]
            if accepted:
                late.pop(word.instance_uuid, None)
                over = word.state not in ('assumed', 'moved')
                self.rows[word.instance_uuid] = [
                    dataclasses.replace(word, number=self.number),
                    now + (KEPT_SECONDS if over else word.seconds)]
        return late

    def read(self, since, now):
        complete = since is None or since < self.complete_since
        rows = sorted((row for row in self.rows.values()
                       if complete or row[0].number > since),
                      key=lambda row: row[0].number)
        return store.ClaimChanges(
            store.ClaimsSeen('one', self.number), complete,
            [dataclasses.replace(one, seconds=until - now)
             for one, until in rows])

    def purge(self, now):
        for uuid, (one, until) in list(self.rows.items()):
            if until < now:
                del self.rows[uuid]
                if one.state not in ('assumed', 'moved'):
                    self.complete_since = max(self.complete_since,
                                              one.number)


class Worker:
    """A Residency, what it has read of a store, and a clock of its own.

    :param ahead: seconds by which its clock is before that of the store
    """

    def __init__(self, name, shared, ahead=0.0):
        self.residency = claims.Residency(name, f'host:{name}')
        self.shared, self.ahead = shared, ahead
        self.seen = None
        self.kept = []           # (word, until when), not told yet

    def place(self, uuid, host, now=0.0, law=LAW, known=True,
              attachments=None):
        at = now + self.ahead
        self.residency.claim(uuid, host, law, at + EXPIRY_SECONDS, at, known,
                             attachments=attachments)

    def tell(self, now=0.0, works=True):
        words = self.residency.take_words()
        self.kept.extend((word, now + word.seconds) for word in words)
        late = {}
        if self.kept and works:
            told = [word for word, _ in self.kept]
            late = self.shared.write(
                [dataclasses.replace(word, seconds=until - now)
                 for word, until in self.kept if until > now], now)
            self.kept = []
            self.residency.sent(told)
        for word in late.values():
            self.residency.take(word, now + self.ahead)

    def hear(self, now=0.0):
        changes = self.shared.read(self.seen, now)
        self.seen = changes.seen.number
        self.residency.take_in(changes, now + self.ahead)

    def list(self, now=0.0, **listed):
        for host, uuids in listed.items():
            self.residency.observe(host, list(uuids), now + self.ahead)

    def host_of(self, uuid):
        return self.residency.host_of(uuid)

    @property
    def claimed(self):
        return {one.instance_uuid: one.host for one in self.residency.claims}


class SharingTestCase(unittest.TestCase):
    """Two workers whose clocks are an hour apart."""

    def setUp(self):
        super().setUp()
        self.store = PlainStore()
        self.one = Worker('one', self.store)
        self.two = Worker('two', self.store, ahead=3600.0)
        self.workers = [self.one, self.two]
        self.exchange()

    def exchange(self, now=0.0):
        for worker in self.workers:
            worker.tell(now)
        for worker in self.workers:
            worker.hear(now)

    def expire(self, now):
        for worker in self.workers:
            worker.residency.expire(now + worker.ahead)

    def assertOn(self, host, uuid='x', **wanted):
        for worker in self.workers:
            self.assertEqual(host, worker.host_of(uuid))
            on = [one for one in 'abc'
                  if uuid in worker.residency.residents(one)]
            self.assertEqual([] if host is None else [host], on)

    def states(self):
        return {uuid: row[0].state for uuid, row in self.store.rows.items()}


class TestBoots(SharingTestCase):

    def test_one_counts_with_all_until_each_of_them_is_told_by_the_host(
            self):
        self.one.place('x', 'a')
        self.exchange()
        self.assertOn('a')
        self.assertEqual(LAW, self.two.residency.assumed_law('x', 'a'))
        self.assertEqual({'a'}, self.two.residency.take_changed())
        self.one.list(a='x')
        self.exchange()
        self.assertEqual({'x': 'confirmed'}, self.states())
        self.assertEqual([{}, {'x': 'a'}],
                         [worker.claimed for worker in self.workers])
        self.assertOn('a')
        self.two.list(a='x')
        self.assertEqual({}, self.two.claimed)
        self.assertOn('a')
        self.assertTrue(self.two.residency.certain)

    def test_one_whose_host_was_faster_than_the_store_is_no_claim(self):
        self.two.list(a='y')
        self.one.place('x', 'a')
        self.two.list(a='yx')
        self.exchange()
        self.assertOn('a')
        self.assertEqual({}, self.two.claimed)
        self.two.list(a='y')
        self.one.list(a='x')
        self.exchange()
        self.assertIsNone(self.two.host_of('x'))

    def test_one_that_came_and_went_is_not_brought_back_by_its_confirmation(
            self):
        self.one.place('x', 'a')
        self.exchange()
        self.two.list(a='x')
        self.two.list(a='')
        self.one.list(a='x')
        self.exchange()
        self.assertIsNone(self.two.host_of('x'))
        self.one.list(a='')
        self.assertOn(None)

    def test_one_that_is_told_and_confirmed_in_one_counts(self):
        # Nothing was read in between.
        self.one.place('x', 'a')
        self.one.list(a='x')
        self.exchange()
        self.assertOn('a')
        self.expire(claims.RELIST_SECONDS)
        self.assertIsNone(self.two.host_of('x'))

    def test_a_request_that_fails_leaves_nothing_anywhere(self):
        self.one.place('x', 'a')
        self.exchange()
        self.one.residency.forget('x', 1.0)
        self.exchange(1.0)
        self.assertOn(None)
        self.assertEqual([{}, {}], [one.claimed for one in self.workers])
        # What the first one is told by Nova is what Nova made of it there.
        self.one.list(a='x')
        self.assertIsNone(self.one.host_of('x'))
        self.two.list(b='x')
        self.assertEqual('b', self.two.host_of('x'))

    def test_one_that_fails_before_it_is_told_is_never_heard_of(self):
        self.one.place('x', 'a')
        self.one.residency.forget('x', 1.0)
        self.exchange()
        self.assertOn(None)

    def test_who_finds_out_that_it_is_no_more_tells_all(self):
        self.one.place('x', 'a')
        self.exchange()
        self.two.residency.remove('x', 3605.0)
        self.exchange(5.0)
        self.assertOn(None)
        self.assertEqual({'x': 'forgotten'}, self.states())

    def test_who_finds_it_elsewhere_tells_all(self):
        self.one.place('x', 'a')
        self.exchange()
        self.two.residency.settle('x', 'b', 3605.0, law=OTHER_LAW,
                                  expires=4200.0)
        self.exchange(5.0)
        self.assertOn('b')
        self.assertEqual(OTHER_LAW, self.one.residency.assumed_law('x', 'b'))

    def test_one_that_nobody_reports_expires_by_everybodys_clock(self):
        self.one.place('x', 'a')
        self.exchange()
        self.expire(EXPIRY_SECONDS - 1)
        self.assertOn('a')
        self.expire(EXPIRY_SECONDS)
        self.exchange(EXPIRY_SECONDS)
        self.assertOn(None)
        self.assertEqual({'x': 'expired'}, self.states())

    def test_one_of_a_worker_that_has_ended_expires_too(self):
        self.one.place('x', 'a')
        self.exchange()
        self.workers = [self.two]
        self.expire(EXPIRY_SECONDS)
        self.exchange(EXPIRY_SECONDS)
        self.assertOn(None)
        self.store.purge(EXPIRY_SECONDS + 1)
        self.assertEqual({}, self.states())

    def test_a_default_law_counts_for_the_claim_alone(self):
        self.one.place('x', 'a', known=False)
        self.exchange()
        self.assertEqual(LAW, self.two.residency.assumed_law('x', 'a'))
        self.two.list(a='x')
        self.assertIsNone(self.two.residency.assumed_law('x', 'a'))

    def test_one_that_was_only_found_is_not_told(self):
        self.one.residency.claim('x', 'a', LAW, 600.0, 0.0, shared=False)
        self.assertEqual([], self.one.residency.take_words())
        self.one.residency.withdraw('x', 0.0)
        self.one.residency.withdraw('nobody', 0.0)
        self.assertEqual([], self.one.residency.take_words())

    def test_what_its_author_does_not_tell_others_do_a_while_later(self):
        self.one.place('x', 'a')
        self.one.place('y', 'a')
        self.exchange()
        self.workers = [self.two]
        self.two.list(a='x')
        self.two.residency.expire(3600.0 + claims.AUTHOR_SECONDS - 1.0)
        self.exchange(claims.AUTHOR_SECONDS - 1.0)
        self.assertEqual('assumed', self.states()['x'])
        self.two.residency.expire(3600.0 + claims.AUTHOR_SECONDS)
        self.exchange(claims.AUTHOR_SECONDS)
        self.assertEqual({'x': 'confirmed', 'y': 'assumed'}, self.states())

    def test_what_its_author_tells_others_do_not(self):
        self.one.place('x', 'a')
        self.exchange()
        self.two.list(a='x')
        self.one.list(a='x')
        self.exchange()
        self.two.residency.expire(3600.0 + claims.AUTHOR_SECONDS)
        self.assertEqual([], self.two.residency.take_words())


class TestMoves(SharingTestCase):

    def setUp(self):
        super().setUp()
        for worker in self.workers:
            worker.list(a='x', b='', c='')

    def test_it_counts_on_its_destination_with_all(self):
        self.one.place('x', 'b')
        self.exchange()
        self.assertOn('b')
        self.assertEqual({'a', 'b', 'c'},
                         self.two.residency.take_changed())
        # The source goes on listing it, and another one more.
        self.two.list(a='xy')
        self.assertOn('b')

    def test_a_request_that_fails_leaves_it_on_its_source(self):
        self.one.place('x', 'b')
        self.exchange()
        self.one.residency.withdraw('x', 0.0)
        self.exchange()
        self.assertOn('a')
        self.assertEqual({}, self.two.claimed)

    def test_a_move_that_fails_leaves_a_boot_that_is_not_listed_yet(self):
        self.one.place('y', 'a')
        self.exchange()
        self.two.place('y', 'b')
        self.exchange()
        self.assertOn('b', 'y')
        self.two.residency.withdraw('y', 3601.0)
        self.exchange()
        self.assertOn('a', 'y')
        self.expire(EXPIRY_SECONDS)
        self.assertOn(None, 'y')

    def test_one_that_may_be_reverted_is_doubtful_until_somebody_knows(self):
        self.one.place('x', 'b')
        self.exchange()
        self.one.list(b='x', a='')
        self.two.list(b='x', a='')
        self.exchange()
        self.assertEqual({'x': 'moved'}, self.states())
        for worker in self.workers:
            self.assertEqual(['x'], list(worker.residency.doubtful(set())))
        self.one.residency.settle('x', 'b', 60.0, stays=False)
        self.exchange(60.0)
        self.assertFalse(self.two.residency.certain)
        self.one.residency.settle('x', 'b', 70.0)
        self.exchange(70.0)
        self.assertEqual({'x': 'confirmed'}, self.states())
        self.assertOn('b')
        for worker in self.workers:
            self.assertTrue(worker.residency.certain)

    def test_one_that_was_reverted_is_on_its_source_with_all(self):
        self.one.place('x', 'b')
        self.exchange()
        for worker in self.workers:
            worker.list(b='x', a='')
        self.exchange()
        self.two.residency.settle('x', 'a', 3660.0, expires=4260.0)
        self.exchange(60.0)
        self.assertOn('a')
        # The destination drops it, the source has it again, in any order.
        self.one.list(b='')
        self.two.list(a='x')
        self.assertOn('a')
        self.one.list(a='x')
        self.two.list(b='')
        self.assertOn('a')
        self.assertTrue(all(one.residency.certain for one in self.workers))

    def test_a_resize_in_place_counts_though_its_host_drops_it(self):
        self.one.place('x', 'a')
        self.exchange()
        for worker in self.workers:
            worker.list(now=20.0, a='')
        self.assertOn('a')
        self.expire(20.0 + claims.RELIST_SECONDS - 1)
        self.assertOn('a')
        for worker in self.workers:
            worker.list(now=100.0, a='x')
        self.assertOn('a')
        self.assertEqual([{}, {}], [one.claimed for one in self.workers])

    def test_a_later_move_by_another_worker_is_newer(self):
        self.one.place('x', 'b')
        self.exchange()
        self.two.place('x', 'c', now=50.0)
        self.exchange(50.0)
        self.assertOn('c')
        # What the first one finds out about its own comes too late.
        self.one.list(now=51.0, b='x')
        self.exchange(51.0)
        self.assertEqual('c', self.two.host_of('x'))
        self.assertEqual({'x': 'assumed'}, self.states())

    def test_what_is_not_told_yet_is_newer_than_what_became_of_others(self):
        self.one.place('x', 'b')
        self.exchange()
        self.two.place('x', 'c')
        self.one.list(b='x', a='')
        self.one.tell()
        self.two.hear()
        self.assertEqual('c', self.two.host_of('x'))
        self.exchange()
        self.assertOn('c')

    def test_one_that_knows_where_it_was_is_newer_though_it_heard_nothing(
            self):
        self.one.place('x', 'b')
        self.one.tell()
        # The store is away for the other one, but not the host.
        self.two.list(b='x', a='')
        self.two.place('x', 'c')
        self.two.hear()
        self.assertEqual('c', self.two.host_of('x'))
        self.exchange()
        self.assertOn('c')

    def test_one_that_is_told_too_late_gives_way(self):
        self.two.place('x', 'c')
        self.one.place('x', 'b', now=300.0)
        self.one.tell(300.0)
        # The store was away for the other one.
        self.exchange(400.0)
        self.assertOn('b')

    def test_one_that_hears_that_it_is_too_late_gives_way(self):
        self.two.place('x', 'c')
        self.one.place('x', 'b', now=300.0)
        self.one.tell(300.0)
        self.two.hear(400.0)
        self.assertOn('b')
        self.exchange(400.0)
        self.assertOn('b')

    def test_one_that_its_destination_lists_already_is_claimed_all_the_same(
            self):
        # That may be from an earlier stay.
        self.one.place('x', 'b')
        self.two.list(b='x')
        self.exchange()
        self.assertOn('b')
        self.assertEqual({'x': 'b'}, self.two.claimed)
        self.assertFalse(self.two.residency.certain)

    def test_a_listing_from_before_says_nothing_about_a_move_back(self):
        self.one.list(b='x')     # which the other one has not heard of
        self.exchange()
        self.one.place('x', 'a')
        self.exchange()
        self.assertOn('a')
        self.assertTrue(self.two.residency.claims[0].relisted)

    def test_a_boot_that_is_listed_last_elsewhere_goes_where_it_was_placed(
            self):
        fresh = Worker('fresh', self.store)
        self.two.place('y', 'b')
        self.two.tell()
        fresh.list(b='y')
        fresh.list(a='y')
        fresh.hear()
        self.assertEqual('b', fresh.host_of('y'))
        self.assertEqual({}, fresh.claimed)


class TestAttachments(SharingTestCase):
    """What claims say of networks."""

    RED = tunnels.Attachments(('red',))
    BLUE = tunnels.Attachments((), ('blue',), 1)

    def attached(self, uuid='x'):
        return [one.residency.attached(uuid) for one in self.workers]

    def test_they_are_those_of_the_latest_placement_with_all(self):
        self.one.place('x', 'a', attachments=self.RED)
        self.exchange()
        self.assertEqual([self.RED] * 2, self.attached())
        for worker in self.workers:
            worker.list(a='x')
        self.two.place('x', 'b', attachments=self.BLUE)
        self.exchange()
        self.assertEqual([self.BLUE] * 2, self.attached())
        # Of a placement that nobody knows anything of, what was before.
        self.one.place('x', 'c')
        self.exchange()
        self.assertEqual([self.BLUE] * 2, self.attached())

    def test_what_is_not_told_yet_stands_against_words_of_before(self):
        self.one.place('x', 'b', attachments=self.RED)
        self.exchange()
        self.two.place('x', 'c', attachments=self.BLUE)
        self.one.list(b='x', a='')
        self.one.tell()
        self.two.hear()
        self.assertEqual([self.RED, self.BLUE], self.attached())
        self.exchange()
        self.assertEqual([self.BLUE] * 2, self.attached())

    def test_its_host_is_described_anew_when_they_are_others(self):
        fresh = Worker('fresh', self.store)
        fresh.list(a='x')
        self.one.place('x', 'a', attachments=self.RED)
        self.one.tell()
        fresh.residency.take_changed()
        fresh.hear()
        self.assertEqual(self.RED, fresh.residency.attached('x'))
        self.assertEqual({'a'}, fresh.residency.take_changed())
        # As the author tells them again when the host has reported it.
        self.one.list(a='x')
        self.one.tell()
        fresh.hear()
        self.assertEqual({'x': 'confirmed'}, self.states())
        self.assertEqual(set(), fresh.residency.take_changed())

    def test_what_was_confirmed_tells_a_worker_that_begins(self):
        self.one.place('x', 'a', attachments=self.RED)
        self.one.list(a='x')
        self.one.tell()
        fresh = Worker('fresh', self.store)
        fresh.list(a='x')
        fresh.hear()
        self.assertEqual(self.RED, fresh.residency.attached('x'))


class TestReaders(SharingTestCase):

    def test_a_new_worker_counts_what_is_open_and_that_alone(self):
        for uuid in 'uvwxyz':
            self.one.place(uuid, 'a')
        self.one.list(a='v')
        self.one.residency.forget('w', 1.0)
        self.exchange(1.0)
        fresh = Worker('fresh', self.store, ahead=-500.0)
        fresh.hear(EXPIRY_SECONDS - 1.0)
        self.assertEqual(dict.fromkeys('uxyz', 'a'), fresh.claimed)
        late = Worker('late', self.store)
        late.hear(EXPIRY_SECONDS + 1.0)
        self.assertEqual({}, late.claimed)

    def test_a_new_worker_knows_which_may_be_reverted(self):
        for worker in self.workers:
            worker.list(a='x')
        self.one.place('x', 'b')
        self.exchange()
        self.one.list(b='x')
        self.exchange()
        fresh = Worker('fresh', self.store)
        fresh.list(b='x')
        fresh.hear()
        self.assertEqual(['x'], list(fresh.residency.doubtful(set())))

    def test_one_that_was_away_drops_what_was_purged_meanwhile(self):
        self.one.place('x', 'a')
        self.one.place('y', 'a')
        self.two.place('z', 'a')
        self.exchange()
        self.one.list(a='x')
        self.one.residency.forget('y', 1.0)
        self.one.tell(1.0)
        self.store.purge(KEPT_SECONDS + 2)
        self.two.hear(KEPT_SECONDS + 2)
        self.assertEqual({'z': 'a'}, self.two.claimed)

    def test_one_that_reads_all_again_takes_in_nothing_twice(self):
        self.one.place('x', 'a')
        self.exchange()
        self.two.list(a='x')
        self.two.seen = self.one.seen = None
        self.exchange()
        self.assertEqual([{'x': 'a'}, {}],
                         [worker.claimed for worker in self.workers])

    def test_a_worker_of_which_nobody_is_to_know_collects_nothing(self):
        alone = claims.Residency()
        alone.claim('x', 'a', LAW, 600.0, 0.0)
        alone.remove('x', 0.0)
        self.assertEqual([], alone.take_words())

    def test_the_oldest_words_are_forgotten(self):
        with mock.patch.object(claims, 'MAX_WORDS', 2):
            for uuid in 'xyz':
                self.one.place(uuid, 'a')
        self.exchange()
        self.one.list(a='xyz')
        self.exchange()
        self.assertEqual({'x': 'assumed', 'y': 'confirmed',
                          'z': 'confirmed'}, self.states())


HOSTS = 'abcd'
MOST_VMS = 8


@dataclasses.dataclass
class Vm:
    """What is so, which workers hear of in time.

    :ivar host: as Nova's database has it
    :ivar task: None, 'build' or 'move' while that is under way
    :ivar before: where a resize to be confirmed may go back to
    """

    host: str | None = None
    exists: bool = False
    task: str | None = None
    target: str | None = None
    before: str | None = None


class World:
    """Operations, reports and words in any order, from a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.now = 0.0
        self.store = PlainStore()
        self.names = itertools.count()
        self.workers = [Worker(f'w{next(self.names)}', self.store,
                               self.random.uniform(-5000, 5000))
                        for _ in range(3)]
        self.vms = {}
        self.void = set()        # tokens of requests that have failed
        # (worker, host) -> lists that are on their way, in their order.
        self.reports = collections.defaultdict(collections.deque)
        for worker in self.workers:
            worker.hear()
            for host in HOSTS:
                worker.list(**{host: ''})

    def on(self, host):
        return [name for name, vm in self.vms.items()
                if vm.exists and vm.host == host]

    # What happens.

    def boot(self):
        if sum(vm.exists for vm in self.vms.values()) == MOST_VMS:
            return
        worker, host = self._anyone(), self.random.choice(HOSTS)
        name = f'vm{len(self.vms)}'
        worker.place(name, host, self.now)
        token = worker.residency.claim_of(name).token
        if self.random.random() < .1:
            worker.residency.forget(name, self.now + worker.ahead)
            self.vms[name] = Vm()
            self.void.add(token)
        else:
            self.vms[name] = Vm(exists=True, task='build', target=host)

    def move(self):
        name, vm = self._settled()
        if vm is None or vm.before is not None:
            return
        worker, host = self._anyone(), self.random.choice(HOSTS)
        before = worker.host_of(name)
        if before is None:
            return               # it would be taken for a boot
        worker.place(name, host, self.now)
        if self.random.random() < .1:
            self.void.add(worker.residency.claim_of(name).token)
            worker.residency.withdraw(name, self.now + worker.ahead)
            assert worker.host_of(name) == before, name
            return
        vm.task, vm.target = 'move', host

    def arrive(self):
        name, vm = self._any(lambda vm: vm.task)
        if vm is None:
            return
        self._deliver_all()
        failed = self.random.random() < .2
        if vm.task == 'build':
            vm.host = None if failed else vm.target
            if not failed and self.random.random() < .2:
                # On an alternate.
                vm.host = self.random.choice(HOSTS)
        elif not failed:
            if self.random.random() < .5:
                vm.before = vm.host
            vm.host = vm.target
        vm.task = None

    def confirm_or_revert(self):
        name, vm = self._settled()
        if vm is None or vm.before is None:
            return
        if self.random.random() < .5:
            vm.host = vm.before
        vm.before = None

    def delete(self):
        # Also while it is being built.
        name, vm = self._any(lambda vm: vm.exists)
        if vm is not None:
            self.vms[name] = Vm()

    def _settled(self):
        return self._any(lambda vm: vm.exists and not vm.task and vm.host)

    def _any(self, condition):
        found = [(name, vm) for name, vm in self.vms.items()
                 if condition(vm)]
        return self.random.choice(found) if found else (None, None)

    def _anyone(self):
        return self.random.choice(self.workers)

    # How workers learn of it.

    def report(self):
        host = self.random.choice(HOSTS)
        for number in range(len(self.workers)):
            if self.random.random() < .9:
                self.reports[number, host].append(self.on(host))

    def deliver(self):
        number = self.random.randrange(len(self.workers))
        host = self.random.choice(HOSTS)
        if self.reports[number, host]:
            self.workers[number].list(
                self.now, **{host: self.reports[number, host].popleft()})

    def _deliver_all(self):
        """No message is on its way for as long as operations take."""
        for (number, host), lists in self.reports.items():
            while lists:
                self.workers[number].list(self.now,
                                          **{host: lists.popleft()})

    def tell(self):
        # At times the store is away.
        self._anyone().tell(self.now, works=self.random.random() < .8)

    def hear(self):
        self._anyone().hear(self.now)

    def ask(self):
        """A worker asks Nova's database about those it doubts."""
        worker = self._anyone()
        self.ask_for(worker, set(self.random.sample(HOSTS, 2)))

    def ask_for(self, worker, refused):
        now = self.now + worker.ahead
        for name in worker.residency.doubtful(refused):
            vm = self.vms[name]
            if not vm.exists or not vm.task and vm.host is None:
                worker.residency.remove(name, now)
            elif not vm.task:
                worker.residency.settle(name, vm.host, now,
                                        vm.before is None, None,
                                        now + EXPIRY_SECONDS)

    def restart(self):
        """A worker ends, with what it had to tell, and another begins."""
        number = self.random.randrange(len(self.workers))
        self.workers[number] = worker = Worker(
            f'w{next(self.names)}', self.store,
            self.random.uniform(-5000, 5000))
        for host in HOSTS:
            # Nova begins with what its database says.
            self.reports[number, host].clear()
            worker.list(self.now, **{host: self.on(host)})
        worker.hear(self.now)

    def time_passes(self):
        seconds = self.random.choice([.1, 1, 10, 100])
        if seconds > 1:
            self._deliver_all()
        self.now += seconds
        for worker in self.workers:
            worker.residency.expire(self.now + worker.ahead)
        self.store.purge(self.now)

    ACTIONS = ((boot, 3), (move, 2), (arrive, 3), (confirm_or_revert, 1),
               (delete, 1), (report, 3), (deliver, 8), (tell, 5), (hear, 5),
               (ask, 1), (time_passes, 2), (restart, .2))

    def step(self):
        actions, weights = zip(*self.ACTIONS)
        self.random.choices(actions, weights)[0](self)

    def settle(self):
        """Let all operations end, and all that was said be heard."""
        for vm in self.vms.values():
            vm.task = None
        for host in HOSTS:
            for worker in self.workers:
                worker.list(self.now, **{host: self.on(host)})
        self.exchange()
        for worker in self.workers:
            self.ask_for(worker, set(HOSTS))
        self.exchange()
        # Of those whose author has ended, the others tell.
        self.now += claims.AUTHOR_SECONDS
        for worker in self.workers:
            worker.residency.expire(self.now + worker.ahead)
        self.exchange()

    def exchange(self):
        for worker in self.workers:
            worker.tell(self.now)
        for worker in self.workers:
            worker.hear(self.now)


class TestAnyOrder(unittest.TestCase):
    """Truth is what World says; workers may be late, but not wrong."""

    SEEDS = range(150)
    STEPS = 150

    def assertOnceEach(self, worker):
        found = [uuid for host in HOSTS
                 for uuid in worker.residency.residents(host)]
        self.assertEqual(len(set(found)), len(found))
        for host in HOSTS:
            for uuid in worker.residency.residents(host):
                self.assertEqual(host, worker.host_of(uuid))

    def assertUnderWayKnown(self, world):
        """Want that all know where those under way are placed."""
        for name, vm in world.vms.items():
            row = world.store.rows.get(name, [None])[0]
            if vm.task and row is not None and row.state == 'assumed' \
                    and row.host == vm.target:
                for worker in world.workers:
                    self.assertEqual(vm.target, worker.host_of(name), name)

    def assertVoidForgotten(self, world):
        """Want that nobody goes by requests that have failed."""
        for worker in world.workers:
            for claim in worker.residency.claims:
                self.assertNotIn(claim.token, world.void)

    def assertTruth(self, world):
        for worker in world.workers:
            for host in HOSTS:
                self.assertEqual(sorted(world.on(host)),
                                 sorted(worker.residency.residents(host)))
        for name, (row, until) in world.store.rows.items():
            if row.state in ('assumed', 'moved') and until > world.now:
                self.assertEqual(world.vms[name].host, row.host, name)

    def play(self, seed):
        world = World(seed)
        for step in range(self.STEPS):
            world.step()
            for worker in world.workers:
                self.assertOnceEach(worker)
            if step % 10 == 9:
                world.exchange()
                self.assertUnderWayKnown(world)
                self.assertVoidForgotten(world)
        world.settle()
        self.assertTruth(world)
        world.now += EXPIRY_SECONDS + claims.RELIST_SECONDS + 1
        for worker in world.workers:
            worker.residency.expire(world.now + worker.ahead)
        world.exchange()
        self.assertTruth(world)
        for worker in world.workers:
            self.assertEqual([], worker.residency.claims)
            self.assertEqual([], worker.residency.take_words())
        world.store.purge(world.now + KEPT_SECONDS + 1)
        self.assertEqual({}, world.store.rows)

    def test_nobody_is_counted_twice_or_lost_and_no_claim_stays(self):
        for seed in self.SEEDS:
            with self.subTest(seed=seed):
                self.play(seed)
