# SPDX-License-Identifier: Apache-2.0

import dataclasses
import os
import threading
import time
import unittest
from unittest import mock

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.scheduler import exchange
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model

PATIENCE_SECONDS = 30.0
LAW = model.TrafficModel.constant(5).law


def claim(name, state=store.ASSUMED, seconds=600.0):
    return store.StoredClaim(name, f't-{name}', state, 'h1', None, LAW, True,
                             seconds, 'here:1')


class FakeStore:
    """Keeps what is written; a problem is raised instead of an answer."""

    def __init__(self):
        self.written, self.reads, self.purges = [], [], 0
        self.write_problem = self.read_problem = None
        self.late = {}
        self.gate = threading.Event()
        self.gate.set()

    def write_claims(self, claims):
        if self.write_problem is not None:
            raise self.write_problem
        self.written.append(claims)
        return self.late

    def read_claims(self, since):
        self.reads.append(since)
        self.gate.wait(PATIENCE_SECONDS)
        if self.read_problem is not None:
            raise self.read_problem
        return store.ClaimChanges(
            store.ClaimsSeen('one', len(self.written)), since is None, [])

    def purge_claims(self):
        self.purges += 1
        return 0


class ExchangeTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.store = FakeStore()
        self.words, self.taken, self.reports = [], [], []

    def make(self, refresh_seconds=3600.0, first_wait_seconds=0.0):
        one = exchange.ClaimExchange(
            self.store, refresh_seconds, first_wait_seconds, self._collect,
            lambda *more: self.taken.append(more),
            lambda topic, problem: self.reports.append(problem))
        self.addCleanup(one.stop)
        return one

    def _collect(self):
        words, self.words = self.words, []
        return words

    def written(self):
        return [[one.instance_uuid for one in claims]
                for claims in self.store.written]

    def wait_for(self, condition):
        limit = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), limit)
            time.sleep(.005)


class TestRounds(ExchangeTestCase):

    def test_words_are_written_first_and_then_all_is_read(self):
        one = self.make()
        self.words = [claim('a'), claim('b')]
        self.store.late = {'b': claim('b')}
        self.assertTrue(one.exchange())
        self.assertEqual([['a', 'b']], self.written())
        (told, late, changes), = self.taken
        self.assertEqual((self.store.written[0], self.store.late),
                         (told, late))
        # What was written is in what was read.
        self.assertEqual(1, changes.seen.number)
        self.assertTrue(one.exchange())
        self.assertEqual(1, len(self.store.written))
        self.assertEqual([None, store.ClaimsSeen('one', 1)],
                         self.store.reads)

    def test_a_store_that_takes_nothing_gets_it_later_if_it_still_holds(
            self):
        one = self.make()
        self.store.write_problem = exceptions.StoreError('read only')
        self.words = [claim('a'), claim('short', seconds=.05)]
        self.assertFalse(one.exchange())
        # What others say is read all the same.
        (told, _, changes), = self.taken
        self.assertEqual([], told)
        self.assertIsNotNone(changes)
        self.assertIn('read only', self.reports[-1])
        self.assertIn('hosts report', self.reports[-1])
        self.words = [claim('b')]
        self.assertFalse(one.exchange())
        time.sleep(.06)
        self.store.write_problem = None
        self.assertTrue(one.exchange())
        self.assertEqual([['a', 'b']], self.written())
        self.assertIsNone(self.reports[-1])
        # It holds for as long as it did.
        self.assertLess(self.store.written[0][0].seconds, 599.95)

    def test_only_the_latest_are_kept(self):
        one = self.make()
        self.store.write_problem = OSError('gone')
        self.words = [claim(name) for name in 'abcde']
        with mock.patch.object(exchange, 'MAX_KEPT', 2):
            one.exchange()
        self.store.write_problem = None
        one.exchange()
        self.assertEqual([['d', 'e']], self.written())

    def test_what_cannot_be_read_is_read_from_the_same_place_later(self):
        one = self.make()
        one.exchange()
        self.store.read_problem = exceptions.StoreError('gone')
        self.assertFalse(one.exchange())
        self.assertIsNone(self.taken[-1][-1])
        self.store.read_problem = None
        one.exchange()
        self.assertEqual(self.store.reads[1], self.store.reads[2])

    def test_what_could_not_be_taken_in_is_read_again(self):
        one = self.make()
        with mock.patch.object(one, '_take', side_effect=KeyError('x')):
            self.assertFalse(one.exchange())
        self.assertIn("KeyError: 'x'", self.reports[-1])
        one.exchange()
        self.assertEqual([None, None], self.store.reads)

    def test_what_has_run_out_is_purged_now_and_then(self):
        one = self.make()
        for _ in range(3):
            one.exchange()
        self.assertEqual(1, self.store.purges)
        with mock.patch.object(time, 'monotonic', lambda now=time.monotonic(
                ): now + exchange._PURGE_SECONDS + 1):
            one.exchange()
        self.assertEqual(2, self.store.purges)


class TestThread(ExchangeTestCase):

    def test_making_one_starts_nothing(self):
        before = threading.active_count()
        self.make().stop()
        self.assertEqual(before, threading.active_count())

    def test_the_first_callers_wait_for_the_claims(self):
        one = self.make(first_wait_seconds=PATIENCE_SECONDS)
        one.begin()
        self.assertEqual(1, len(self.taken))
        one.begin()
        self.assertEqual(1, len(self.taken))

    def test_nobody_waits_longer_than_that(self):
        self.store.gate.clear()
        one = self.make(first_wait_seconds=.05)
        start = time.monotonic()
        for _ in range(3):
            one.begin()
        self.assertLess(time.monotonic() - start, PATIENCE_SECONDS / 2)
        self.assertEqual([], self.taken)
        self.store.gate.set()

    def test_it_reads_again_and_again(self):
        one = self.make(refresh_seconds=.01)
        one.begin()
        self.wait_for(lambda: len(self.taken) > 3)

    def test_what_is_to_be_told_is_told_at_once(self):
        one = self.make(first_wait_seconds=PATIENCE_SECONDS)
        one.begin()
        self.words = [claim('a')]
        one.wake()
        self.wait_for(lambda: self.store.written)
        # And what was read just now is not read again.
        one.wake(older_than_seconds=1000.0)
        time.sleep(.05)
        self.assertEqual(2, len(self.store.reads))

    def test_one_can_wait_for_what_was_told_before(self):
        one = self.make(first_wait_seconds=PATIENCE_SECONDS)
        one.begin()
        # A read that has begun already may have missed it.
        self.store.gate.clear()
        one.wake()
        self.wait_for(lambda: len(self.store.reads) == 2)
        waiting = threading.Thread(target=one.freshen,
                                   args=(PATIENCE_SECONDS,))
        waiting.start()
        self.store.gate.set()
        waiting.join(PATIENCE_SECONDS)
        self.assertFalse(waiting.is_alive())
        self.assertEqual(3, len(self.store.reads))
        self.store.gate.clear()
        start = time.monotonic()
        one.freshen(.05)
        self.assertGreaterEqual(time.monotonic() - start, .05)
        self.store.gate.set()

    def test_after_a_failure_it_waits_a_little(self):
        self.store.read_problem = exceptions.StoreError('gone')
        one = self.make(refresh_seconds=.001)
        with mock.patch.object(exchange, '_AGAIN_SECONDS', 1.0):
            one.begin()
            time.sleep(.1)
            one.wake()
            time.sleep(.05)
            self.assertEqual(1, len(self.store.reads))
            self.wait_for(lambda: len(self.store.reads) > 1)

    def test_a_child_begins_anew(self):
        # It has no thread, and what its parent has to tell is not its own.
        one = self.make(refresh_seconds=.01,
                        first_wait_seconds=PATIENCE_SECONDS)
        self.store.write_problem = OSError('gone')
        self.words = [claim('a')]
        one.begin()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                self.store.write_problem = None
                self.store.reads, self.taken = [], []
                one.begin()
                one.freshen(PATIENCE_SECONDS)
                os.write(writing, repr(
                    (self.written(), self.store.reads[0])).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as stream:
            self.assertEqual('([], None)', stream.read())
        os.waitpid(child, 0)


class TestTimes(ExchangeTestCase):

    def test_what_is_told_holds_for_the_rest_of_its_time(self):
        told = claim('a', seconds=10.0)
        self.words = [told]
        self.make().exchange()
        written = self.store.written[0][0]
        self.assertEqual(told, dataclasses.replace(written, seconds=10.0))
        self.assertLessEqual(written.seconds, 10.0)
