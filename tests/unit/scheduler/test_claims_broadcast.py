# SPDX-License-Identifier: Apache-2.0

import time
import unittest
from unittest import mock

from vswitch_aware_scheduler.scheduler import claims_broadcast
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model

LAW = model.TrafficModel.constant(egress_kbps=1).law


class FakeStore:
    """Keeps the words; the newest on an instance is read."""

    def __init__(self):
        self.words, self.number, self.purged = {}, 0, 0
        self.problem = None

    def _check(self):
        if self.problem is not None:
            raise self.problem

    def write_claims(self, words):
        self._check()
        self.number += 1
        for word in words:
            self.words[word.instance_uuid] = self.number, word
        return {}

    def read_claims(self, seen):
        self._check()
        return store.ClaimChanges(
            store.ClaimsSeen('one', self.number), seen is None,
            [word for number, word in self.words.values()
             if seen is None or number > seen.number])

    def purge_claims(self):
        self.purged += 1


class TestClaimsBroadcast(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.store = FakeStore()
        self.heard, self.problems = [], []
        self.one, self.two = self._make(), self._make()

    def _make(self):
        return claims_broadcast.ClaimsBroadcast(
            self.store, 5.0, self.heard.extend, 'me',
            lambda topic, problem: self.problems.append(problem))

    def _place(self, uuid='x', host='a', by=None):
        return (by or self.one).placed(uuid, host, None, LAW, True, None)

    def _step(self, *which):
        self.heard.clear()
        for one in which:
            one.step()
        return [(word.instance_uuid, word.host, word.state)
                for word, _ in self.heard]

    def test_what_one_places_and_withdraws_the_others_hear(self):
        self._step(self.two)
        word = self._place()
        self.assertEqual([('x', 'a', store.ASSUMED)],
                         self._step(self.one, self.two))
        self.assertEqual([], self._step(self.one, self.two))
        self.one.withdrawn(word)
        self.assertEqual([('x', 'a', store.FORGOTTEN)],
                         self._step(self.one, self.two))

    def test_nobody_hears_of_what_it_has_said_itself(self):
        self._place()
        self.assertEqual([], self._step(self.one, self.one))

    def test_one_that_begins_hears_how_old_words_are(self):
        self.store.write_claims([store.StoredClaim(
            uuid, f'o-{uuid}', store.ASSUMED, 'a', None, LAW, True, seconds,
            'other') for uuid, seconds in (('x', 500.0), ('y', 3600.0))])
        self._step(self.one)
        self.assertEqual([100.0, 0.0], [age for _, age in self.heard])

    def test_while_the_store_is_away_the_latest_words_are_kept(self):
        self.store.problem = OSError('gone')
        self._place('x', 'a')
        self._place('y', 'b')
        self.assertLess(self.one.step(), 5.0)
        self._place('z', 'c')
        self.one.step()
        self.assertIn('gone', self.problems[-1])
        self.store.problem = None
        self.assertEqual([('x', 'a', store.ASSUMED),
                          ('y', 'b', store.ASSUMED),
                          ('z', 'c', store.ASSUMED)],
                         self._step(self.one, self.two))
        self.assertIsNone(self.problems[-1])

    def test_a_word_that_waited_for_the_store_is_as_old_as_it_is(self):
        self._step(self.two)
        with mock.patch.object(time, 'monotonic', return_value=0.0):
            self._place()
        with mock.patch.object(time, 'monotonic', return_value=300.0):
            self._step(self.one, self.two)
        self.assertEqual([300.0], [age for _, age in self.heard])

    def test_what_is_kept_has_bounds_and_ends(self):
        self.store.problem = OSError('gone')
        for number in range(claims_broadcast._MOST_KEPT + 5):
            self._place(f'i{number}')
        self.one.step()
        self.assertEqual(claims_broadcast._MOST_KEPT, len(self.one._unwritten))
        word, _ = self.one._unwritten[-1]
        self.one._unwritten.clear()
        self.one._unwritten.append((word, time.monotonic() - 1))
        self.store.problem = None
        self.assertEqual([], self._step(self.one, self.two))
        self.assertEqual(0, len(self.one._unwritten))

    def test_a_failure_to_read_leaves_what_was_written(self):
        self._place()
        self.store.read_claims, read = None, self.store.read_claims
        self.one.step()
        self.assertIn('TypeError', self.problems[-1])
        self.store.read_claims = read
        self.assertEqual([('x', 'a', store.ASSUMED)],
                         self._step(self.two))

    def test_old_words_are_purged_now_and_then(self):
        for _ in range(3):
            self.one.step()
        self.assertEqual(1, self.store.purged)

    def test_tokens_fit_their_column_and_differ(self):
        tokens = {self._place(by=one).token for one in (self.one, self.two)
                  for _ in range(3)}
        self.assertEqual(6, len(tokens))
        self.assertLessEqual(max(map(len, tokens)), 36)
