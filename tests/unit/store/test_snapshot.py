# SPDX-License-Identifier: Apache-2.0

import dataclasses
import math
import unittest
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import numpy as np

from tests.fakes import clock as fake_clock
from tests.fakes import store as fake_store
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import snapshot
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import slots
from vswitch_aware_scheduler.vswitch import attachments

_law = fake_store.law
_generation = fake_store.generation
_changes = fake_store.changes

NOW = fake_clock.NOW

RED = attachments.Attachments(('red',))


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
