# SPDX-License-Identifier: Apache-2.0

import dataclasses
import math
import os
import threading
import time
import unittest
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import numpy as np

from tests.unit.store import base as store_base
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.scheduler import snapshot_source
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import snapshot
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import slots
from vswitch_aware_scheduler.vswitch import attachments

NOW = 1_700_000_000.0

#: Longest wait for a thread: nothing here takes that long unless it failed.
PATIENCE_SECONDS = 30.0


RED = attachments.Attachments(('red',))


def _law(number):
    """Return the law of an instance; its number tells how many states."""
    n = 1 + number % 3
    probabilities = np.arange(1, n + 1) / (n * (n + 1) / 2)
    rates = number + np.arange(3.0 * n).reshape(n, 3)
    return rate_law.RateLaw.from_arrays(probabilities, rates)


def _generation(number, published_at=NOW, store_id='one'):
    return store.Generation(store_id, number, published_at)


def _changes(number, given=(), removed=(), hosts=(), removed_hosts=(),
             complete=False, **generation):
    """Return the Changes that give or renew some instances' laws.

    :param given: {uuid: number of its law}, or pairs
    """
    given = dict(given)
    laws = [_law(one) for one in given.values()]
    return store.Changes(
        _generation(number, **generation), complete, list(given),
        np.array([law.probabilities.size for law in laws], dtype=np.int64),
        b''.join(laws),
        list(removed), [store.HostProfile(host, name)
                        for host, name in dict(hosts).items()],
        list(removed_hosts))


class FakeStore:
    """A store that answers what a test has put into it."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.gate = threading.Event()
        self.gate.set()

    def read_changes(self, since):
        self.asked.append(since)
        self.gate.wait(PATIENCE_SECONDS)
        answer = self.answers[0]
        if len(self.answers) > 1:
            self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Clock:

    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


class TestSnapshot(unittest.TestCase):

    def assertLaws(self, wanted, one):
        self.assertEqual(len(wanted), len(one))
        for uuid, number in wanted.items():
            self.assertEqual(_law(number), one.law(uuid))

    def test_an_empty_one_knows_nothing(self):
        one = snapshot.Snapshot()
        self.assertEqual(0, len(one))
        self.assertIsNone(one.generation)
        self.assertIsNone(one.law('a'))
        self.assertIsNone(one.host_profile('host'))

    def test_laws_and_profiles_are_found_by_name(self):
        one = snapshot.Snapshot().updated(_changes(
            1, {'a': 0, 'b': 1, 'c': 2}, hosts={'host': 'flat'}))
        self.assertLaws({'a': 0, 'b': 1, 'c': 2}, one)
        self.assertIsNone(one.law('d'))
        self.assertEqual('flat', one.host_profile('host').profile)
        self.assertEqual(_generation(1), one.generation)

    def test_changes_add_renew_and_remove(self):
        first = snapshot.Snapshot().updated(_changes(
            1, {'a': 0, 'b': 1, 'c': 2}, hosts={'h': 'x', 'i': 'x'}))
        second = first.updated(_changes(
            2, {'b': 5, 'd': 3}, removed=['a', 'never'], hosts={'h': 'y'},
            removed_hosts=['i', 'never']))
        self.assertLaws({'b': 5, 'c': 2, 'd': 3}, second)
        self.assertIsNone(second.law('a'))
        self.assertEqual('y', second.host_profile('h').profile)
        self.assertIsNone(second.host_profile('i'))

    def test_the_one_it_came_from_stays_as_it_was(self):
        first = snapshot.Snapshot().updated(_changes(
            1, {'a': 0, 'b': 1}, hosts={'h': 'x'}))
        first.updated(_changes(2, {'a': 5}, removed=['b'],
                               removed_hosts=['h']))
        self.assertLaws({'a': 0, 'b': 1}, first)
        self.assertEqual('x', first.host_profile('h').profile)

    def test_a_complete_answer_forgets_all_before(self):
        first = snapshot.Snapshot().updated(_changes(
            1, {'a': 0}, hosts={'h': 'x'}))
        second = first.updated(_changes(1, {'b': 1}, complete=True,
                                        store_id='another'))
        self.assertLaws({'b': 1}, second)
        self.assertIsNone(second.law('a'))
        self.assertIsNone(second.host_profile('h'))

    def test_more_instances_than_are_taken_over_at_a_time(self):
        given = {f'vm-{i}': i % 7 for i in range(23)}
        with mock.patch.object(generations, '_CHUNK', 5):
            self.assertLaws(given, snapshot.Snapshot().updated(
                _changes(1, given)))

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(st.lists(st.tuples(
        st.dictionaries(st.sampled_from('abcdef'), st.integers(0, 8)),
        st.sets(st.sampled_from('abcdef')), st.booleans()), max_size=6))
    def test_step_by_step_it_is_what_a_dictionary_would_be(self, steps):
        wanted, one = {}, snapshot.Snapshot()
        for number, (given, removed, complete) in enumerate(steps):
            removed -= set(given)
            wanted = {} if complete else {
                uuid: law for uuid, law in wanted.items()
                if uuid not in removed}
            wanted.update(given)
            one = one.updated(_changes(number, given, removed,
                                       complete=complete))
        self.assertLaws(wanted, one)


class SourceTestCase(unittest.TestCase):

    def make(self, *answers, refresh_seconds=3600, first_wait_seconds=10,
             max_age_seconds=0, prepare=None, tidy=None):
        self.store = FakeStore(*answers)
        self.clock = Clock()
        source = snapshot_source.SnapshotSource(
            self.store, refresh_seconds, first_wait_seconds,
            max_age_seconds, self.clock, prepare, tidy)
        self.addCleanup(source.stop)
        self.addCleanup(self.store.gate.set)
        return source

    def wait_for(self, condition):
        until = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), until, 'waited in vain')
            time.sleep(.005)


class TestPriors(unittest.TestCase):

    def _snapshot(self, placements=None, **priors):
        placed = placements or {}
        return snapshot.Snapshot().updated(store.Changes(
            _generation(1), True, [], np.zeros(0, np.int64), b'', [], [], [],
            placements=(list(placed), list(placed.values())), seen_at=NOW,
            priors={key: _law(number) if isinstance(key, str)
                    else prior.Expected(_law(number))
                    for key, number in priors.pop('priors', {}).items()}))

    def test_the_narrowest_group_that_has_one_gives_the_prior(self):
        priors = {'u': 1, ('f', 'p'): 2, ('f', None): 3, (None, 'p'): 4,
                  (None, None): 5}
        for key, of in list(zip(priors, (
                'instance', 'flavor and project', 'flavor', 'project',
                'fleet'))):
            found = self._snapshot(priors=priors).prior('u', 'f', 'p')
            self.assertEqual((_law(priors.pop(key)), of), found)
        self.assertIsNone(self._snapshot().prior('u', 'f', 'p'))

    def test_flavor_and_project_are_taken_from_the_placement(self):
        known = self._snapshot({'u': ('h', 'f', 'p', RED), 'v': (None,) * 4},
                               priors={('f', 'p'): 2, (None, 'q'): 3})
        self.assertEqual(('h', 'f', 'p'), known.placement('u'))
        self.assertEqual(NOW, known.seen_at)
        self.assertEqual('flavor and project', known.prior('u')[1])
        self.assertIsNone(known.prior('v'))
        self.assertIsNone(known.prior('w'))
        self.assertIsNone(known.placement('w'))
        self.assertEqual(RED, known.attachments('u'))
        self.assertIsNone(known.attachments('v'))
        self.assertIsNone(known.attachments('w'))
        # A request knows better.
        self.assertEqual('project', known.prior('u', 'g', 'q')[1])

    def test_in_which_slots_an_instance_is_high_is_drawn(self):
        law = rate_law.RateLaw.from_arrays(
            [.9, .1], [[1, 0, 0], [9, 0, 0]], np.zeros(slots.SLOTS, bool), 1)
        shares = np.where(np.arange(slots.SLOTS) < 252, 102, 0)
        known = snapshot.Snapshot().updated(dataclasses.replace(
            _changes(1), priors={('f', None): prior.Expected(
                law, shares.astype(np.uint8).tobytes())}))
        laws = [known.prior(f'vm-{n}', 'f')[0] for n in range(50)]
        self.assertEqual(laws[3], known.prior('vm-3', 'f')[0])
        high = np.array([one.high for one in laws])
        self.assertFalse(high[:, 252:].any())
        # Four standard deviations of 50 times 252 draws.
        self.assertAlmostEqual(.4, high[:, :252].mean(), delta=4 * math.sqrt(
            .24 / (50 * 252)))
        # Without a name the instance is independent of all others.
        self.assertFalse(known.prior(None, 'f')[0].has_classes)

    def test_changes_add_renew_and_remove(self):
        first = self._snapshot({'u': ('h', 'f', 'p', RED),
                                'v': ('h', 'f', 'p', RED)},
                               priors={('f', None): 2, (None, None): 3})
        second = first.updated(store.Changes(
            _generation(2), False, [], np.zeros(0, np.int64), b'', [], [], [],
            placements=(['w'], [('i', 'f', 'p', None)]),
            removed_placements=['u'],
            seen_at=NOW + 1, priors={('f', None): None, 'w': _law(1)}))
        self.assertIsNone(second.placement('u'))
        self.assertEqual(('h', 'f', 'p'), second.placement('v'))
        self.assertEqual(('i', 'f', 'p'), second.placement('w'))
        self.assertEqual('fleet', second.prior('v')[1])
        self.assertEqual((_law(1), 'instance'), second.prior('w'))
        self.assertEqual(NOW + 1, second.seen_at)
        # The one that it came from stays as it was.
        self.assertEqual(('h', 'f', 'p'), first.placement('u'))
        self.assertEqual('flavor', first.prior('v')[1])


class TestSource(SourceTestCase):

    def test_making_one_starts_nothing(self):
        before = threading.active_count()
        source = self.make(_changes(1))
        self.assertEqual(before, threading.active_count())
        self.assertEqual([], self.store.asked)
        source.stop()

    def test_the_first_question_gets_the_snapshot(self):
        source = self.make(_changes(3, {'a': 1}))
        one, problem = source.current()
        self.assertIsNone(problem)
        self.assertEqual(_law(1), one.law('a'))
        self.assertEqual([None], self.store.asked)

    def test_it_asks_for_what_is_new_since_the_last_generation(self):
        source = self.make(_changes(3, {'a': 1}), _changes(4, {'b': 2}))
        source.current()
        source.refresh()
        one, problem = source.current()
        self.assertIsNone(problem)
        self.assertEqual([None, _generation(3)], self.store.asked)
        self.assertEqual((_law(1), _law(2)), (one.law('a'), one.law('b')))

    def test_the_same_generation_changes_nothing(self):
        prepared = []
        source = self.make(_changes(3, {'a': 1}), prepare=prepared.append)
        first = source.current()[0]
        source.refresh()
        self.assertIs(first, source.current()[0])
        self.assertEqual([first], prepared)

    def test_it_refreshes_by_itself(self):
        source = self.make(_changes(1), _changes(2), _changes(3, {'a': 1}),
                           refresh_seconds=.01)
        source.current()
        self.wait_for(lambda: source.current()[0].law('a') is not None)

    def test_an_error_is_told_and_the_last_snapshot_kept(self):
        source = self.make(
            _changes(1, {'a': 1}), exceptions.StoreError('disk is gone'),
            _changes(2, {'b': 2}))
        source.current()
        source.refresh()
        one, problem = source.current()
        self.assertEqual('disk is gone', problem)
        self.assertEqual(_law(1), one.law('a'))
        source.refresh()
        one, problem = source.current()
        self.assertIsNone(problem)
        self.assertEqual(_law(2), one.law('b'))

    def test_a_store_that_never_answered_leaves_an_empty_snapshot(self):
        source = self.make(exceptions.StoreMissing('there is no store'))
        one, problem = source.current()
        self.assertEqual('there is no store', problem)
        self.assertIsNone(one.generation)
        self.assertEqual(0, len(one))

    def test_an_unexpected_error_is_told_by_its_kind(self):
        source = self.make(KeyError('what'), _changes(1))
        self.assertIn("unexpected KeyError: 'what'", source.current()[1])
        source.refresh()
        self.assertIsNone(source.current()[1])

    def test_what_cannot_be_prepared_is_not_taken_over(self):
        def prepare(_):
            raise ValueError('no')

        source = self.make(_changes(1, {'a': 1}), prepare=prepare)
        one, problem = source.current()
        self.assertIn('ValueError: no', problem)
        self.assertIsNone(one.law('a'))

    def test_it_tidies_up_whether_there_is_something_new_or_not(self):
        tidied = []
        source = self.make(_changes(1), tidy=lambda: tidied.append(
            source._snapshot.generation))
        source.refresh()
        source.refresh()
        self.assertEqual([_generation(1)] * 2, tidied)

    def test_what_goes_wrong_with_tidying_is_told(self):
        def tidy():
            raise ValueError('no')

        source = self.make(_changes(1, {'a': 1}), tidy=tidy)
        one, problem = source.current()
        self.assertIn('ValueError: no', problem)
        self.assertEqual(_law(1), one.law('a'))

    def test_it_prepares_before_it_hands_out(self):
        started, go_on = threading.Event(), threading.Event()

        def prepare(one):
            if one.generation.number == 2:
                started.set()
                go_on.wait(PATIENCE_SECONDS)

        source = self.make(_changes(1), _changes(2, {'a': 1}),
                           prepare=prepare)
        source.current()
        refreshing = threading.Thread(target=source.refresh)
        refreshing.start()
        started.wait(PATIENCE_SECONDS)
        self.assertEqual(_generation(1), source.current()[0].generation)
        go_on.set()
        refreshing.join(PATIENCE_SECONDS)
        self.assertEqual(_generation(2), source.current()[0].generation)


class TestAge(SourceTestCase):

    def test_an_old_generation_is_told_with_both_numbers(self):
        source = self.make(_changes(1, {'a': 1}), max_age_seconds=100)
        for age, stale in ((0, False), (100, False), (101, True),
                           (5000, True), (50, False)):
            self.clock.now = NOW + age
            one, problem = source.current()
            self.assertEqual(_law(1), one.law('a'))
            if stale:
                for part in (f'{age} s', '100 s', 'modeler'):
                    self.assertIn(part, problem)
            else:
                self.assertIsNone(problem)

    def test_without_a_limit_nothing_is_stale(self):
        source = self.make(_changes(1))
        self.clock.now = NOW + 1e9
        self.assertIsNone(source.current()[1])

    def test_a_store_never_written_is_not_stale(self):
        source = self.make(_changes(0, published_at=0.0),
                           max_age_seconds=100)
        self.assertIsNone(source.current()[1])

    def test_an_error_counts_for_more_than_age(self):
        source = self.make(_changes(1), exceptions.StoreError('gone'),
                           max_age_seconds=100)
        source.current()
        source.refresh()
        self.clock.now = NOW + 1e6
        self.assertEqual('gone', source.current()[1])


class TestFirstWait(SourceTestCase):

    def test_it_is_bounded(self):
        source = self.make(_changes(1, {'a': 1}), first_wait_seconds=.2)
        self.store.gate.clear()
        started = time.monotonic()
        one, problem = source.current()
        waited = time.monotonic() - started
        self.assertGreaterEqual(waited, .15)
        self.assertLess(waited, PATIENCE_SECONDS / 2)
        self.assertIsNone(one.generation)
        self.assertIn('0.2 s', problem)
        # Later ones do not.
        started = time.monotonic()
        for _ in range(100):
            self.assertIn('not answered', source.current()[1])
        self.assertLess(time.monotonic() - started, 10)
        self.store.gate.set()
        self.wait_for(lambda: source.current()[1] is None)
        self.assertEqual(_law(1), source.current()[0].law('a'))

    def test_with_none_no_request_waits(self):
        source = self.make(_changes(1), first_wait_seconds=0)
        self.store.gate.clear()
        self.assertIn('not answered', source.current()[1])
        self.store.gate.set()
        self.wait_for(lambda: source.current()[1] is None)

    def test_requests_that_come_together_wait_together(self):
        source = self.make(_changes(1, {'a': 1}),
                           first_wait_seconds=PATIENCE_SECONDS)
        self.store.gate.clear()
        found = []
        threads = [threading.Thread(
            target=lambda: found.append(source.current()))
            for _ in range(8)]
        for thread in threads:
            thread.start()
        self.wait_for(lambda: self.store.asked)
        time.sleep(.1)
        self.assertEqual([], found)
        self.store.gate.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        self.assertEqual([None] * 8, [problem for _, problem in found])
        self.assertEqual([_law(1)] * 8, [one.law('a') for one, _ in found])
        self.assertEqual(1, len(self.store.asked))


class TestFork(SourceTestCase):

    def test_a_process_has_one_thread_of_its_own(self):
        source = self.make(_changes(1))
        for _ in range(3):
            source.current()
        self.assertEqual(1, len(self.store.asked))
        thread = source._thread
        # What a child sees after a fork: another process number, no thread.
        with mock.patch.object(os, 'getpid', autospec=True,
                               return_value=os.getpid() + 1):
            for _ in range(3):
                source.current()
            self.wait_for(lambda: len(self.store.asked) == 2)
            self.assertIsNot(thread, source._thread)
        source._stop.set()
        thread.join(PATIENCE_SECONDS)

    def test_a_real_child_reads_the_store_itself(self):
        source = self.make(_changes(1), _changes(2, {'a': 1}))
        source.current()
        child = os.fork()
        if not child:
            status = 1
            try:
                until = time.monotonic() + PATIENCE_SECONDS
                while time.monotonic() < until:
                    if source.current()[0].law('a') is not None:
                        status = 0
                        break
                    time.sleep(.01)
            finally:
                os._exit(status)
        self.assertEqual(0, os.waitstatus_to_exitcode(
            os.waitpid(child, 0)[1]))
        self.assertIsNone(source.current()[0].law('a'))

    def test_stopping_ends_the_thread_and_may_be_done_twice(self):
        source = self.make(_changes(1), refresh_seconds=.01)
        source.current()
        thread = source._thread
        source.stop()
        self.assertFalse(thread.is_alive())
        source.stop()


class StoreTestCase(store_base.StoreTestCase):
    """A source that runs while its store is damaged or restored."""

    def setUp(self):
        super().setUp()
        self.store = self.make_store()
        self.store.write([store_base.constant(n) for n in range(5)])
        self.source = self._source()

    def _source(self):
        source = snapshot_source.SnapshotSource(
            store.Store(self.url), 3600, 0, 0, lambda: 0.0)
        source.refresh()
        return source

    def _modelled(self, source):
        return [number for number in range(9) if source._snapshot.law(
            store_base.instance_uuid(number)) is not None]

    def test_one_damaged_row_leaves_the_others_to_old_and_new_workers(self):
        self.store.write([store_base.constant(n) for n in (3, 4)])
        self.execute("UPDATE traffic_model SET law = 'x' WHERE "
                     'instance_uuid = :uuid',
                     uuid=store_base.instance_uuid(3))
        self.source.refresh()
        for source in (self.source, self._source()):
            self.assertIsNone(source._error)
            self.assertEqual(2, source._snapshot.generation.number)
            self.assertEqual([0, 1, 2, 4], self._modelled(source))

    def test_a_restored_store_of_the_same_number_is_read_again(self):
        backup = self.content()
        self.store.write([store_base.constant(5)])
        self.source.refresh()
        self.restore(backup)
        for number, wanted in ((6, [*range(5), 6]), (7, [*range(5), 6, 7])):
            self.store.write([store_base.constant(number)])
            self.source.refresh()
            self.assertEqual(wanted, self._modelled(self.source))
