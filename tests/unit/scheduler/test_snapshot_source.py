# SPDX-License-Identifier: Apache-2.0

import threading
import time
from unittest import mock

from tests.fakes import clock as fake_clock
from tests.fakes import store as fake_store
from tests.unit.scheduler import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.scheduler import snapshot_source

NOW = fake_clock.NOW
PATIENCE_SECONDS = base.PATIENCE_SECONDS
_law = fake_store.law
_generation = fake_store.generation
_changes = fake_store.changes
FakeStore = fake_store.FakeStore
Clock = fake_clock.Clock


class SourceTestCase(base.WaitingTestCase):

    def make(self, *answers, refresh_seconds=3600, first_wait_seconds=10,
             max_age_seconds=0, **more):
        self.store = FakeStore(*answers)
        self.clock = Clock()
        self.monotonic = 1000.0
        source = snapshot_source.SnapshotSource(
            self.store, refresh_seconds, first_wait_seconds,
            max_age_seconds, self.clock, monotonic=lambda: self.monotonic,
            **more)
        self.addCleanup(source.stop)
        self.addCleanup(self.store.gate.set)
        return source


class TestSource(SourceTestCase):

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

    def test_an_error_is_reported_and_the_last_snapshot_kept(self):
        for error, words in (
                (exceptions.StoreError('disk is gone'), 'disk is gone'),
                (exceptions.StoreMissing('there is no store'),
                 'there is no store'),
                (KeyError('what'), "unexpected KeyError: 'what'")):
            for earlier in ([], [_changes(1, {'a': 1})]):
                source = self.make(*earlier, error, _changes(2, {'b': 2}))
                source.current()
                for _ in earlier:
                    source.refresh()
                one, problem = source.current()
                self.assertEqual(words, problem)
                self.assertEqual(len(earlier), len(one))
                self.assertEqual(_law(1) if earlier else None, one.law('a'))
                source.refresh()
                one, problem = source.current()
                self.assertIsNone(problem)
                self.assertEqual(_law(2), one.law('b'))

    def test_a_snapshot_that_arrives_after_the_wait_is_for_the_next_call(
            self):
        source = self.make(_changes(1, {'a': 1}), first_wait_seconds=0,
                           max_age_seconds=60)
        self.store.gate.clear()
        tried = mock.Mock(wraps=source._tried)
        # The thread reads the store between the wait and the answer.
        tried.is_set.side_effect = [False, True]
        tried.wait.return_value = False
        source._tried = tried
        self.assertIn('has not answered in the 0 s', source.current()[1])

    def test_what_cannot_be_prepared_is_not_taken_over(self):
        # An error of tidying up is reported, but comes too late for that.
        def fail(*_):
            raise ValueError('no')

        for name, law in (('prepare', None), ('tidy', _law(1))):
            source = self.make(_changes(1, {'a': 1}), **{name: fail})
            one, problem = source.current()
            self.assertIn('ValueError: no', problem)
            self.assertEqual(law, one.law('a'))

    def test_it_tidies_up_whether_there_is_something_new_or_not(self):
        tidied = []
        source = self.make(_changes(1), tidy=lambda: tidied.append(
            source._snapshot.generation))
        source.refresh()
        source.refresh()
        self.assertEqual([_generation(1)] * 2, tidied)

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

    def test_an_old_generation_is_reported_with_both_numbers(self):
        source = self.make(_changes(1, {'a': 1}), max_age_seconds=100)
        for age, parts in ((0, ()), (100, ()),
                           (101, ('101 s', '100 s', 'modeler')),
                           (5000, ('5000 s', '100 s', 'modeler'))):
            self.monotonic = 1000.0 + age
            one, problem = source.current()
            self.assertEqual(_law(1), one.law('a'))
            self.assertEqual(bool(parts), problem is not None)
            for part in parts:
                self.assertIn(part, problem)

    def test_the_age_is_that_which_the_store_states(self):
        old = _changes(1, published_at=NOW - 101)
        for answers, limit, later, words in (
                ([old], 100, 0, '101 s'),
                # A store that was restored.
                ([_changes(2), old], 100, 0, '101 s'),
                ([_changes(1)], 0, 1e9, None),
                # One that was never written.
                ([_changes(0, published_at=0.0)], 100, 0, None),
                # An error counts for more than age.
                ([_changes(1), exceptions.StoreError('gone')], 100, 1e6,
                 'gone')):
            source = self.make(*answers, max_age_seconds=limit)
            source.current()
            for _ in answers[1:]:
                source.refresh()
            self.monotonic += later
            problem = source.current()[1]
            self.assertEqual(words is None, problem is None)
            self.assertIn(words or '', problem or '')

    def test_a_clock_that_is_set_makes_nothing_stale(self):
        # The modeler's clock is right throughout.
        source = self.make(
            _changes(1), *(_changes(number, published_at=NOW + 50 * number)
                           for number in (2, 3)), max_age_seconds=100)
        source.current()
        for step in (3600, -3600):
            self.monotonic += 50
            self.clock.now = NOW + self.monotonic - 1000 + step
            self.assertIsNone(source.current()[1])
            source.refresh()
            self.assertIsNone(source.current()[1])
        self.monotonic += 101
        self.assertIn('s old', source.current()[1])


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

    def test_requests_that_come_together_wait_together(self):
        source = self.make(_changes(1, {'a': 1}),
                           first_wait_seconds=PATIENCE_SECONDS)
        self.store.gate.clear()
        found = []
        join = base.start_all([threading.Thread(
            target=lambda: found.append(source.current()))
            for _ in range(8)])
        self.wait_for(lambda: self.store.asked)
        time.sleep(.1)
        self.assertEqual([], found)
        self.store.gate.set()
        join()
        self.assertEqual([(None, _law(1))] * 8, [
            (problem, one.law('a')) for one, problem in found])
        self.assertEqual(1, len(self.store.asked))
