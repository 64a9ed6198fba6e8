# SPDX-License-Identifier: Apache-2.0

import dataclasses
import threading
from unittest import mock

import numpy as np
import sqlalchemy as sa

from tests.fakes import store as fake_store
from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import budgets
from vswitch_aware_scheduler.store import snapshot

LIMITS = fake_store.LIMITS
budget = fake_store.budget

STATE = store.BudgetState(300.0, base.NOW)

TODAY = int(base.NOW // 86400)


def measured(count, slots=3):
    generator = np.random.default_rng(1)
    return store.Measured(
        300.0, 10, [base.instance_uuid(number) for number in range(count)],
        generator.uniform(0, 1e9, count), np.arange(count) % 2 == 0,
        generator.integers(0, 300, (count, slots)).astype('f4'),
        generator.exponential(1e3, (count, slots, 3)).astype('f4'))


def charge(number, seconds, name='h', project='p', day=3):
    return store.Charge(store.HOST, name, base.instance_uuid(number), day,
                        project, seconds)


def placed(number, host, **values):
    return store.InstanceRecord(base.instance_uuid(number), host, **values)


class BudgetsTestCase(base.StoreTestCase):

    def test_a_budget_is_read_as_it_was_written(self):
        self.assertIsNone(self.store.budget_state())
        written = budget(balance=-3.5, why='because', unknown_why='one of 2',
                         burn={'3600': 1.5}, measured_seconds=600.0,
                         prediction=store.Prediction(
                             .1, 5.0, 60.0, 6.0, 3.0, .5, -.2))
        self.store.settle_budgets(STATE, [(None, written)])
        self.assertEqual({written.key: written}, self.store.error_budgets())
        self.assertEqual(STATE, self.store.budget_state())
        self.assertTrue(written.in_debt)

    def test_in_debt_it_accepts_instances_after_three_days_of_earning(self):
        for balance, burn, accepts in (
                (0.0, {}, True), (-1.0, {}, False),
                (-1e6, {'259200': .6}, True), (-.1, {'259200': .61}, False),
                (-1.0, {'3600': 0.0, '21600': 0.0}, False)):
            with self.subTest(balance=balance, burn=burn):
                self.assertEqual(accepts, budget(
                    balance=balance, burn=burn).accepts)

    def test_schedulers_get_debts_and_who_spends(self):
        self.store.settle_budgets(STATE, [
            (None, budget(name=name, balance=balance, burn=burn))
            for name, balance, burn in (
                ('a', -518.4, {'259200': .5}), ('b', -518.4, {}),
                ('c', 1.0, {}))], charges=[
            charge(1, 60.0, 'b', 'spender', TODAY),
            charge(2, 35.0, 'b', 'other', TODAY - 3),
            charge(3, 4.9, 'b', 'little', TODAY),
            charge(4, .1, 'b', None, TODAY),
            charge(5, 1e3, 'b', 'former', TODAY - 4)])
        self.store.write(now=base.NOW)
        schedulers = snapshot.Snapshot().updated(self.store.read_changes())
        self.assertEqual({(store.HOST, 'b'): store.Debt(
            1.0, frozenset(['spender', 'other']))}, schedulers.debts())

    def test_charges_and_times_of_a_day_are_added(self):
        for seconds in (1.0, 2.0):
            self.store.settle_budgets(STATE, charges=[
                charge(1, seconds), charge(2, 5.0, 'i')], vm_times=[
                    store.VMTime('p', 3, 10 * seconds, seconds)])
        self.store.settle_budgets(STATE, charges=[charge(1, 7.0, day=4)])
        self.assertEqual(
            [('h', 3, 3.0), ('h', 4, 7.0), ('i', 3, 10.0)],
            sorted((row.name, row.day, row.seconds)
                   for row in self.store.charges()))
        self.assertEqual([7.0], [row.seconds for row in self.store.charges(4)])
        self.assertEqual([store.VMTime('p', 3, 30.0, 3.0)],
                         self.store.vm_times())

    def test_numbers_of_a_budget_follow_from_its_terms(self):
        account = budget()
        # 0.6 x 0.01 of a second is earned; a day has 86400 of them.
        self.assertAlmostEqual(.006, account.rate)
        self.assertAlmostEqual(518.4, account.day)
        self.assertAlmostEqual(1.0, account.days)
        self.assertAlmostEqual(1 / 30, account.left)
        self.assertFalse(budget(balance=0.0).in_debt)

    def test_a_write_of_another_process_does_not_make_it_fail(self):
        # SQLite refuses to write on after a read, if another transaction has
        # written meanwhile.
        second_store = store.Store(self.url, 30.0)
        worker = store.Worker('ctl:1', 'ctl', base.NOW, base.NOW, {})
        thread = threading.Thread(target=second_store.report_worker,
                                  args=[worker])
        settle = budgets._settle

        def meanwhile(connection, *arguments):
            connection.execute(sa.select(budgets.budget_table)).all()
            thread.start()
            thread.join(.5)
            return settle(connection, *arguments)

        with mock.patch.object(budgets, '_settle', meanwhile):
            self.store.settle_budgets(STATE, [(None, budget())])
        thread.join(60)
        self.assertEqual({budget().key}, set(self.store.error_budgets()))
        self.assertEqual(['ctl:1'], [
            stored.name for stored in self.store.workers()])

    def test_of_two_writers_that_read_the_same_one_settles(self):
        self.store.settle_budgets(STATE, [(None, budget()),
                                          (None, budget('i'))])
        later = [(base.NOW, budget(name, until=base.NOW + 300, balance=1.0))
                 for name in 'hi']
        self.store.settle_budgets(STATE, later)
        settled = self.store.error_budgets()
        sums = store.StoredSums(store.HOST, 'h', 1, 300.0, (), b'')
        for outdated in (later, [(None, budget('j')), later[0]]):
            with self.assertRaises(exceptions.StoreChanged):
                self.store.settle_budgets(STATE, outdated, [sums])
            self.assertEqual(settled, self.store.error_budgets())
            self.assertEqual([], self.store.sum_history(store.HOST))

    def test_rates_replace_those_of_the_same_modeler_alone(self):
        self.store.write_measured_rates('m', [measured(250)], 1.0)
        self.store.write_measured_rates('n', [measured(3)], 2.0)
        expected = measured(120)
        self.store.write_measured_rates('m', [expected], 3.0)
        stored = sorted(self.store.measured_rates(),
                        key=lambda part: -len(part.instances))
        self.assertEqual(3, len(stored.pop().instances))
        for name in ('instances', 'last', 'packets_known', 'covered', 'rates'):
            np.testing.assert_array_equal(
                getattr(expected, name), np.concatenate(
                    [getattr(part, name) for part in stored]))
        self.assertEqual({(300.0, 10)}, {
            (part.period_seconds, part.first_slot) for part in stored})

    def test_what_is_not_needed_any_more_goes(self):
        days = [store.StoredSums(store.HOST, name, day, 300.0, (), b'')
                for name in 'hi' for day in (1, 2, 9)]
        self.store.settle_budgets(
            STATE, [(None, budget()), (None, budget('i'))], days,
            charges=[charge(1, 1.0, name, day=day)
                     for name in 'hi' for day in (1, 2)],
            vm_times=[store.VMTime('p', day, 1.0, 0.0) for day in (1, 2)])
        self.store.settle_budgets(STATE, remove=[(store.HOST, 'i')],
                                  forget_before=2)
        self.assertEqual({(store.HOST, 'h')},
                         self.store.error_budgets().keys())
        self.assertEqual([('h', 2), ('h', 9)], [
            (packed.name, packed.day)
            for packed in self.store.sum_history(store.HOST)])
        self.assertEqual([('h', 2)], [(row.name, row.day)
                                      for row in self.store.charges()])
        self.assertEqual([2], [row.day for row in self.store.vm_times()])
        self.assertEqual([], self.store.sum_history(store.HOST, ['i']))
        self.assertEqual([9], [packed.day for packed in self.store.sum_history(
            store.HOST, ['h'], 9)])

    def test_readers_get_budgets_with_the_next_generation(self):
        self.store.settle_budgets(STATE, [(None, budget(balance=-259.2))])
        generation = self.store.generation()
        self.assertEqual({}, self.store.read_changes(generation).debts or {})
        self.store.write(now=base.NOW + 86400)
        changes = self.store.read_changes(generation)
        self.assertEqual([(store.HOST, 'h')], list(changes.debts))
        self.assertAlmostEqual(.5, changes.debts[store.HOST, 'h'].days)
        # One that was not kept for a day says nothing of now.
        self.store.write(now=base.NOW + 86401)
        self.assertEqual({}, self.store.read_changes(generation).debts)


class StaysTestCase(base.StoreTestCase):

    def put(self, now, *placements, gone=()):
        self.store.write(placements=placements, remove_placements=gone,
                         now=now)

    def stays(self, number=1):
        return [(stay.since, stay.host, stay.running) for stay
                in self.store.stays().get(base.instance_uuid(number), ())]

    def test_an_instance_stays_where_it_is_until_it_moves(self):
        self.put(1000.0, placed(1, 'a', began_at=400.0, running=True))
        self.put(1300.0, placed(1, 'a', running=True, flavor='other'))
        self.put(1600.0, placed(1, 'b', running=True, changed_at=1450.0))
        self.put(1900.0, placed(1, 'b', running=False, changed_at=9e9))
        self.put(2200.0, gone=[base.instance_uuid(1), base.instance_uuid(2)])
        # The second one was never there.
        self.assertEqual([], self.stays(2))
        self.assertEqual([(400.0, 'a', True), (1450.0, 'b', True),
                          (1900.0, 'b', False), (2200.0, None, None)],
                         self.stays())

    def test_without_budgets_stays_are_removed_after_nine_days(self):
        self.put(1000.0, placed(1, 'a'), placed(2, 'a'))
        self.put(2000.0, gone=[base.instance_uuid(1)])
        for days, left in ((8, 2), (10, 0)):
            self.put(1000.0 + 86400 * days, placed(days, 'a'))
            self.put(2000.0 + 86400 * days, gone=[base.instance_uuid(days)])
            self.assertEqual(left, len(self.stays()), days)
        self.assertEqual(1, len(self.stays(2)))

    def test_stays_follow_each_other_when_clocks_are_wrong(self):
        self.put(1000.0, placed(1, 'a'))
        self.put(900.0, placed(1, 'b', changed_at=10.0))
        self.put(1000.0, placed(1, 'a'))
        self.assertEqual(['a', 'b', 'a'],
                         [host for _, host, _ in self.stays()])
        times = [since for since, *_ in self.stays()]
        self.assertEqual(sorted(set(times)), times)

    def test_stays_that_ended_are_left_out_and_forgotten(self):
        day = 86400.0
        self.put(1000.0, placed(1, 'a'), placed(2, 'a'), placed(3, 'a'))
        self.put(2000.0, placed(1, 'b'), gone=[base.instance_uuid(2)])
        self.assertEqual([2000.0], [stay.since for stay in self.store.stays(
            2000.0)[base.instance_uuid(1)]])
        self.store.settle_budgets(STATE, forget_before=int(base.NOW // day))
        self.assertEqual([(2000.0, 'b', None)], self.stays())
        self.assertEqual([], self.stays(2))
        self.assertEqual([(1000.0, 'a', None)], self.stays(3))

    def test_records_that_differ_in_times_alone_are_equal(self):
        placement = placed(1, 'a', running=True, began_at=1.0, changed_at=2.0)
        self.put(1000.0, placement)
        self.assertEqual({placement.instance_uuid: placement},
                         self.store.placements())
        self.assertNotEqual(
            placement, dataclasses.replace(placement, running=None))
