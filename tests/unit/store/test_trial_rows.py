# SPDX-License-Identifier: Apache-2.0
"""Trials of limits, and what came of them."""

from tests.unit.store import base
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import store

DAY = 86400.0
KIND = '0.01: 1 1 0 <= 20'


def trial(number, since=DAY, kind=KIND):
    return store.StoredTrial(
        base.instance_uuid(number), kind, since, since,
        tuple(map(base.instance_uuid, range(3))), ((0, 0, 1), (0, 0, 0)))


def outcome(until=2 * DAY, kind=KIND, days=((50, 1.0, 3.0), (100, 2.0, 2.0))):
    return store.TrialOutcome(kind, until, days)


class TrialsTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.store = self.make_store()

    def test_trials_come_back_as_they_were_until_they_end(self):
        later = trial(1, 2 * DAY, 'A' * 255)
        simultaneous = trial(2, 2 * DAY, 'a' * 255)
        self.store.write(trials=[later, simultaneous, trial(3)])
        self.assertEqual([trial(3), later, simultaneous], self.store.trials())
        self.store.write(end_trials=[trial(3).trial_id, 'unknown'])
        self.assertEqual([later, simultaneous], self.store.trials())

    def test_a_trial_is_followed_from_where_it_was_or_nothing_is_written(
            self):
        self.store.write(trials=[trial(1), trial(2)])
        followed = [(trial(n).trial_id, DAY, 2 * DAY) for n in (1, 2)]
        self.store.write(followed=followed[:1], outcomes=[outcome()])
        self.assertEqual([2 * DAY, DAY],
                         [stored.until for stored in self.store.trials()])
        before = self.store.generation()
        for wrong in (followed, [('unknown', DAY, 2 * DAY)]):
            with self.assertRaisesRegex(exceptions.StoreChanged,
                                        'measured until 86400'):
                self.store.write(followed=wrong, outcomes=[outcome()])
        self.assertEqual(before, self.store.generation())
        self.assertEqual([2 * DAY, DAY],
                         [stored.until for stored in self.store.trials()])
        self.assertEqual({KIND: outcome()}, self.store.trial_outcomes())

    def test_outcomes_add_up_over_writers_and_days(self):
        self.store.write(outcomes=[outcome(), outcome(kind='other')])
        self.store.write(outcomes=[outcome(2.5 * DAY, days=((100, .5, 1.0),)),
                                   outcome(4 * DAY)])
        self.store.write(outcomes=[
            outcome(2.1 * DAY, days=((800, 0.0, 1.0),))])
        self.assertEqual({
            KIND: outcome(4 * DAY, days=(
                (50, 2.0, 6.0), (100, 4.5, 5.0), (800, 0.0, 1.0))),
            'other': outcome(kind='other')}, self.store.trial_outcomes())
        self.assertEqual(5, len(self.execute(
            'SELECT * FROM trial_outcome WHERE kind != :k', k='other')))
        # Of the first day the later mark holds.
        self.store.write(forget_outcomes_before=3)
        self.assertEqual({KIND: outcome(4 * DAY)},
                         self.store.trial_outcomes())

    def test_a_reader_gets_all_outcomes_when_anything_has_changed(self):
        changes_before = self.store.read_changes()
        self.assertEqual({}, changes_before.outcomes)
        self.store.write(outcomes=[outcome()])
        changes = self.store.read_changes(changes_before.generation)
        self.assertFalse(changes.complete)
        self.assertEqual({KIND: outcome()}, changes.outcomes)
        self.assertIsNone(self.store.read_changes(
            changes.generation).outcomes)

    def test_a_trial_with_damaged_hosts_is_named_and_left_out(self):
        self.store.write(trials=[trial(1), trial(2)])
        for text in ('{', '[]', '{"instances": 1, "hosts": []}', '{}'):
            self.execute('UPDATE trial SET hosts = :text WHERE trial_id = :t',
                         text=text, t=trial(1).trial_id)
            with self.assertLogs('vswitch_aware_scheduler.store',
                                 'WARNING') as logs:
                self.assertEqual([trial(2)], self.make_store().trials())
            self.assertIn(f'trial {trial(1).trial_id}: its hosts are damaged',
                          logs.output[0])

    def test_laws_of_some_instances_are_found(self):
        models = [base.constant(number) for number in range(1000)]
        self.store.write(models)
        selected = models[3:950]
        self.assertEqual(
            {record.instance_uuid: record.model.law for record in selected},
            self.store.laws([record.instance_uuid for record in selected]
                            + ['unknown']))
        self.assertEqual({}, self.store.laws(['unknown']))
