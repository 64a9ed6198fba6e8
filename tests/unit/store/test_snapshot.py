# SPDX-License-Identifier: Apache-2.0

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
from vswitch_aware_scheduler.vswitch import attachments

_law = fake_store.law
_generation = fake_store.generation
_changes = fake_store.changes

NOW = fake_clock.NOW

RED = attachments.Attachments(('red',))


class TestSnapshot(unittest.TestCase):

    def assertLaws(self, numbers, laws):
        self.assertEqual(len(numbers), len(laws))
        for uuid, number in numbers.items():
            self.assertEqual(_law(number), laws.law(uuid))

    def test_an_empty_one_knows_nothing(self):
        models = snapshot.Snapshot()
        self.assertEqual(0, len(models))
        self.assertIsNone(models.generation)
        self.assertIsNone(models.law('a'))
        self.assertIsNone(models.host_profile('host'))

    def test_laws_and_profiles_are_found_by_name(self):
        models = snapshot.Snapshot().updated(_changes(
            1, {'a': 0, 'b': 1, 'c': 2}, hosts={'host': 'flat'}))
        self.assertLaws({'a': 0, 'b': 1, 'c': 2}, models)
        self.assertIsNone(models.law('d'))
        self.assertEqual('flat', models.host_profile('host').profile)
        self.assertEqual(_generation(1), models.generation)

    def test_the_one_it_came_from_stays_as_it_was(self):
        earlier = snapshot.Snapshot().updated(_changes(
            1, {'a': 0, 'b': 1}, hosts={'h': 'x'}))
        earlier.updated(_changes(2, {'a': 5}, removed=['b'],
                                 removed_hosts=['h']))
        later = earlier.updated(_changes(1, {'b': 1}, complete=True,
                                         store_id='another'))
        self.assertIsNone(later.host_profile('h'))
        self.assertLaws({'b': 1}, later)
        self.assertLaws({'a': 0, 'b': 1}, earlier)
        self.assertEqual('x', earlier.host_profile('h').profile)

    def test_more_instances_than_are_taken_over_at_a_time(self):
        numbers = {f'vm-{i}': i % 7 for i in range(23)}
        with mock.patch.object(generations, '_CHUNK', 5):
            self.assertLaws(numbers, snapshot.Snapshot().updated(
                _changes(1, numbers)))

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=80)
    @hypothesis.given(st.lists(st.tuples(
        st.dictionaries(st.sampled_from('abcdef'), st.integers(0, 8)),
        st.sets(st.sampled_from('abcdef')), st.booleans()), max_size=6))
    def test_step_by_step_it_is_what_a_dictionary_would_be(self, steps):
        expected, models = {}, snapshot.Snapshot()
        for number, (changed, removed, complete) in enumerate(steps):
            removed -= set(changed)
            expected = {} if complete else {
                uuid: law for uuid, law in expected.items()
                if uuid not in removed}
            expected.update(changed)
            models = models.updated(_changes(number, changed, removed,
                                             complete=complete))
        self.assertLaws(expected, models)


class TestPriors(unittest.TestCase):

    def _snapshot(self, placements=None, **priors):
        placed = placements or {}
        return snapshot.Snapshot().updated(store.Changes(
            _generation(1), True, [], np.zeros(0, np.int64), b'', [], [], [],
            placements=(list(placed), list(placed.values())), seen_at=NOW,
            priors={key: _law(number) for key, number
                    in priors.get('priors', {}).items()}))

    def test_the_narrowest_group_that_has_one_gives_the_prior(self):
        priors = {'u': 1, ('f', 'p'): 2, ('f', None): 3, (None, 'p'): 4,
                  (None, None): 5}
        for key, of in list(zip(priors, (
                'instance', 'flavor and project', 'flavor', 'project',
                'fleet'))):
            prior_found = self._snapshot(priors=priors).prior('u', 'f', 'p')
            self.assertEqual((_law(priors.pop(key)), of), prior_found)
        self.assertIsNone(self._snapshot().prior('u', 'f', 'p'))

    def test_flavor_and_project_are_taken_from_the_placement(self):
        models = self._snapshot({'u': ('h', 'f', 'p', RED, None),
                                 'v': (None,) * 5},
                                priors={('f', 'p'): 2, (None, 'q'): 3})
        self.assertEqual(('h', 'f', 'p'), models.placement('u'))
        self.assertEqual(NOW, models.seen_at)
        self.assertEqual('flavor and project', models.prior('u')[1])
        self.assertIsNone(models.prior('v'))
        self.assertIsNone(models.prior('w'))
        self.assertIsNone(models.placement('w'))
        self.assertEqual(RED, models.attachments('u'))
        self.assertIsNone(models.attachments('v'))
        self.assertIsNone(models.attachments('w'))
        # A request knows better.
        self.assertEqual('project', models.prior('u', 'g', 'q')[1])

    def test_changes_add_renew_and_remove(self):
        earlier = self._snapshot({'u': ('h', 'f', 'p', RED, (9, 0, 0)),
                                  'v': ('h', 'f', 'p', RED, (0, 0, 3)),
                                  'x': ('h', 'f', 'p', RED, (7, 0, 0))},
                                 priors={('f', None): 2, (None, None): 3})
        later = earlier.updated(store.Changes(
            _generation(2), False, [], np.zeros(0, np.int64), b'', [], [], [],
            placements=(['w', 'x'], [('i', 'f', 'p', None, (0, 5, 0)),
                                     ('h', 'f', 'p', RED, (0, 0, 0))]),
            removed_placements=['u'],
            seen_at=NOW + 1, priors={('f', None): None, 'w': _law(1)}))
        self.assertIsNone(later.placement('u'))
        self.assertEqual(('h', 'f', 'p'), later.placement('v'))
        self.assertEqual(('i', 'f', 'p'), later.placement('w'))
        self.assertEqual('fleet', later.prior('v')[1])
        self.assertEqual((_law(1), 'instance'), later.prior('w'))
        self.assertEqual(NOW + 1, later.seen_at)
        self.assertEqual({'v': (0, 0, 3), 'w': (0, 5, 0)}, later.guarantees)
        self.assertEqual(
            [None, (0, 0, 3), (0, 5, 0), (0, 0, 0)],
            list(map(later.guaranteed, 'uvwx')))
        # The one that it came from stays as it was.
        self.assertEqual(('h', 'f', 'p'), earlier.placement('u'))
        self.assertEqual({'u', 'v', 'x'}, earlier.guarantees.keys())
        self.assertEqual('flavor', earlier.prior('v')[1])
