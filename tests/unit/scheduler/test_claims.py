# SPDX-License-Identifier: Apache-2.0
"""Claims of several workers at one store that may fail or be slow."""

import contextlib
import threading
import time
from unittest import mock

from tests.fakes import claims_worker
from tests.fakes import store as fake_store
from tests.unit.scheduler import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.scheduler import claims
from vswitch_aware_scheduler import store

PATIENCE_SECONDS = claims_worker.PATIENCE_SECONDS


class SlowStore(fake_store.FakeClaims):
    """A store whose transactions can be stopped."""

    def __init__(self):
        super().__init__()
        self.may_begin, self.may_commit = threading.Event(), threading.Event()
        self.began = threading.Event()
        self.may_begin.set()
        self.may_commit.set()
        self.commit_problem = None

    @contextlib.contextmanager
    def claiming(self, since=None):
        self.began.set()
        self.may_begin.wait(PATIENCE_SECONDS)
        with super().claiming(since) as result:
            yield result
        self.may_commit.wait(PATIENCE_SECONDS)
        if self.commit_problem is not None:
            raise self.commit_problem


class ClaimsTestCase(base.WaitingTestCase):

    def setUp(self):
        super().setUp()
        self.store = SlowStore()

    def worker(self, room=1, **options):
        return claims_worker.Worker(self, self.store, room, **options)

    def stored(self):
        return {int(uuid[-12:], 16): claim.state
                for uuid, claim in self.store.claims.items()}


class TestSerialised(ClaimsTestCase):

    def test_of_many_workers_one_gets_the_last_room(self):
        workers = [self.worker(room=3) for _ in range(4)]
        admitted = []

        def boot(worker, numbers):
            for number in numbers:
                if worker.claim(number).admitted:
                    admitted.append(number)

        base.start_all([threading.Thread(target=boot, args=(
            worker, range(10 * at, 10 * at + 5)))
            for at, worker in enumerate(workers, 1)])()
        self.assertEqual(3, len(admitted))
        self.assertEqual(dict.fromkeys(admitted, store.CLAIMED), self.stored())
        self.assertEqual((20, 17, 0), tuple(
            sum(worker.claims.counts[name] for worker in workers)
            for name in ('claims_made', 'claim_conflicts', 'claim_misses')))

    def test_a_withdrawn_claim_leaves_its_room_to_another_worker(self):
        one, two = self.worker(), self.worker()
        pending = one.claim(1)
        self.assertFalse(two.claim(2).admitted)
        one.withdraw(pending)
        self.wait_for(lambda: self.stored()[1] == store.WITHDRAWN)
        self.assertTrue(two.claim(2).admitted)
        self.assertEqual({1: store.WITHDRAWN, 2: store.CLAIMED},
                         self.stored())
        # A host that must not be refused.
        self.assertTrue(two.claim(3, judged=False).admitted)

    def test_claims_that_wait_are_written_together(self):
        one = self.worker(room=9)
        self.store.may_begin.clear()
        first, *others = [threading.Thread(target=one.claim, args=(number,))
                          for number in range(1, 9)]
        join_first = base.start_all([first])
        self.assertTrue(self.store.began.wait(PATIENCE_SECONDS))
        join_others = base.start_all(others)
        self.wait_for(lambda: len(one.claims._unwritten) == 8)
        self.store.may_begin.set()
        join_first()
        join_others()
        self.assertEqual(2, self.store.number)
        self.assertEqual(8, len(self.stored()))

    def test_a_purge_deletes_what_was_there_at_the_previous_one(self):
        one = self.worker()
        for number in range(3):
            self.store.number = number
            one.claims._purge_at = 0
            # Not at each step.
            one.claims.step()
            one.claims.step()
        self.assertEqual([0, 0, 1], self.store.purged)

    def test_tokens_fit_their_column_and_differ(self):
        tokens = {worker.claim(number).stored.token
                  for worker in (self.worker(), self.worker())
                  for number in range(3)}
        self.assertEqual(6, len(tokens))
        self.assertLessEqual(max(map(len, tokens)), 36)


class InterruptedStore(fake_store.FakeClaims):
    """A store that ends transactions by itself.

    :ivar interruptions: list of (whether the transaction is committed all the
        same, callable() that is called afterwards)
    """

    def __init__(self, *interruptions):
        super().__init__()
        self.interruptions = list(interruptions)

    @contextlib.contextmanager
    def claiming(self, since=None):
        commits, then = self.interruptions.pop(0) if self.interruptions \
            else (True, None)
        if commits:
            with super().claiming(since) as result:
                yield result
        else:
            yield self._changes(since), lambda *_: None
        if then is not None:
            then()
            raise exceptions.StoreInterrupted('deadlock')


class TestInterruptions(ClaimsTestCase):
    """Transactions that end without an error of the worker or the store."""

    def claim(self, *interruptions):
        self.store = InterruptedStore(*interruptions)
        worker = self.worker()
        pending = worker.claim(1)
        self.assertFalse(pending.missed)
        self.wait_for(lambda: not worker.claims._unwritten
                      and not worker.claims._withdrawn)
        self.assertEqual(0, worker.claims.counts['claim_misses'])
        self.assertEqual({None}, {*worker.problems, None})
        return worker, pending

    def claim_of_another_worker(self):
        fake_store.write_claims(self.store, fake_store.claim(2))

    def test_a_transaction_that_was_interrupted_is_repeated(self):
        for commits in (False, True):
            with self.subTest(commits=commits):
                _, pending = self.claim(*[(commits, lambda: None)] * 5)
                self.assertTrue(pending.admitted)
                self.assertEqual({1: store.CLAIMED}, self.stored())

    def test_a_repeated_transaction_judges_by_the_claims_that_won(self):
        worker, pending = self.claim((False, self.claim_of_another_worker))
        self.assertFalse(pending.admitted)
        self.assertEqual({2: store.CLAIMED}, self.stored())
        self.assertEqual({fake_store.instance_uuid(2)}, worker.counted)

    def test_a_claim_that_is_refused_after_its_commit_is_withdrawn(self):
        worker, pending = self.claim((True, self.claim_of_another_worker))
        self.assertFalse(pending.admitted)
        self.wait_for(lambda: self.stored() == {
            1: store.WITHDRAWN, 2: store.CLAIMED})
        self.assertEqual({fake_store.instance_uuid(2)}, worker.counted)

    def test_interruptions_without_end_are_a_miss(self):
        self.store = InterruptedStore(*[(False, lambda: None)] * 10**5)
        one = self.worker(patience=.05)
        pending = one.claim(1)
        self.assertTrue(pending.admitted and pending.missed)
        self.wait_for(lambda: one.problem and 'deadlock' in one.problem)
        self.store.interruptions.clear()
        self.wait_for(lambda: self.stored() == {1: store.CLAIMED})


class TestMisses(ClaimsTestCase):
    """The store does not answer, or its answer is lost."""

    def test_a_request_waits_once_and_the_claim_is_written_later(self):
        one = self.worker(patience=.05)
        self.store.may_begin.clear()
        pending = one.claim(1)
        self.assertTrue(pending.admitted and pending.missed)
        # The room is used, as far as this worker knows.
        began = time.monotonic()
        self.assertFalse(one.claim(2).admitted)
        self.assertFalse(one.claim(3).admitted)
        self.assertLess(time.monotonic() - began, .05)
        self.assertEqual({}, self.stored())
        self.assertEqual(3, one.claims.counts['claim_misses'])
        self.store.may_begin.set()
        self.wait_for(lambda: self.stored() == {1: store.CLAIMED})
        self.assertTrue(
            self.store.claims[fake_store.instance_uuid(1)].missed)
        # The store answers again, so that requests wait again.
        self.wait_for(lambda: one.claims._answers)
        self.assertFalse(one.claim(4).missed)
        topics = [topic for topic, problem in one.all_problems if problem]
        self.assertEqual(['claims'], topics)
        self.assertIsNone(one.problem)
        # Without patience none waits at all.
        self.store.may_begin.clear()
        self.assertTrue(self.worker(patience=0).claim(5).missed)
        self.store.may_begin.set()

    def test_two_workers_without_a_store_exceed_the_limit_and_count_it(self):
        one, two = self.worker(patience=.01), self.worker(patience=.01)
        self.store.problem = OSError('gone')
        self.assertTrue(one.claim(1).admitted)
        self.assertTrue(two.claim(2).admitted)
        self.wait_for(lambda: one.problem and 'gone' in one.problem)
        self.store.problem = None
        self.wait_for(lambda: len(self.stored()) == 2)
        self.wait_for(lambda: 1 == sum(
            worker.claims.counts['claims_over_limit']
            for worker in (one, two)))
        self.wait_for(lambda: one.problem is None)

    def test_a_store_that_refuses_at_once_makes_no_request_wait(self):
        one = self.worker()
        self.store.problem = OSError('read-only')
        began = time.monotonic()
        self.assertTrue(one.claim(1).admitted)
        self.assertLess(time.monotonic() - began, PATIENCE_SECONDS / 2)
        # One line says why.
        self.wait_for(lambda: one.all_problems)
        self.assertEqual({'claims of other workers'}, {
            topic for topic, problem in one.all_problems if problem})

    def test_a_store_that_cannot_be_written_is_still_read(self):
        one, two = self.worker(room=2), self.worker(room=2, patience=.01)
        claiming, self.store.claiming = self.store.claiming, None
        two.claim(2)
        self.store.claiming = claiming
        one.claim(1)
        self.store.claiming = None
        self.wait_for(lambda: fake_store.instance_uuid(1) in two.counted)

    def test_a_commit_whose_answer_is_lost_leaves_no_second_claim(self):
        one, two = self.worker(), self.worker()
        self.store.commit_problem = OSError('connection lost')
        pending = one.claim(1)
        self.assertTrue(pending.admitted and pending.missed)
        self.assertEqual({1: store.CLAIMED}, self.stored())
        self.store.commit_problem = None
        self.wait_for(lambda: not one.claims._unwritten)
        self.assertEqual({1: store.CLAIMED}, self.stored())
        # It can be withdrawn however the commit ended.
        self.store.commit_problem = OSError('connection lost')
        one.withdraw(pending)
        self.wait_for(lambda: self.stored()[1] == store.WITHDRAWN)
        self.store.commit_problem = None
        self.wait_for(lambda: not one.claims._withdrawn)
        self.assertTrue(two.claim(2).admitted)

    def test_a_refusal_stays_one_if_the_commit_fails(self):
        one, two = self.worker(), self.worker()
        self.assertTrue(one.claim(1).admitted)
        self.store.commit_problem = OSError('connection lost')
        self.assertFalse(two.claim(2).admitted)
        self.store.commit_problem = None
        self.wait_for(lambda: not two.claims._unwritten)
        self.assertEqual({1: store.CLAIMED}, self.stored())

    def test_a_claim_withdrawn_before_it_is_written_is_never_written(self):
        one = self.worker(patience=.01)
        self.store.problem = OSError('gone')
        one.withdraw(one.claim(1))
        self.store.problem = None
        self.wait_for(lambda: not one.claims._unwritten)
        self.assertEqual({}, self.stored())

    def test_a_late_claim_replaces_no_newer_one_of_the_instance(self):
        one, two = self.worker(room=9, patience=.01), self.worker(room=9)
        self.store.problem = OSError('gone')
        one.claim(1)
        time.sleep(.01)
        self.store.problem = None
        # The store is back for the other worker first.
        with one.lock:
            newer = two.claim(1)
        self.wait_for(lambda: not one.claims._unwritten)
        self.assertEqual([newer.stored.token], [
            claim.token for claim in self.store.claims.values()])

    def test_what_is_kept_has_bounds(self):
        self.enterContext(mock.patch.object(claims, '_MOST_KEPT', 20))
        one = self.worker(room=10 ** 6, patience=0)
        self.store.problem = OSError('gone')
        for number in range(25):
            one.claim(number)
        self.assertEqual(20, len(one.claims._unwritten))
        self.store.problem = None
        self.wait_for(lambda: not one.claims._unwritten)
        self.assertEqual(set(range(5, 25)), self.stored().keys())
