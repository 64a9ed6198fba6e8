# SPDX-License-Identifier: Apache-2.0

import logging

from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import plans as records

LEASE = 60.0


def moves(plan_id, count, **more):
    return [store.MoveRecord(
        plan_id, number, base.instance_uuid(number), 'host1', 'host2',
        **more) for number in range(count)]


class RebalanceRecordsTestCase(base.StoreTestCase):

    def write(self, plan_id='p1', count=2, made_at=base.NOW, **more):
        records.write_plan(self.store, store.PlanRecord(
            plan_id, made_at, 'test'), moves(plan_id, count, **more))

    def take(self, token='t1', holder='me'):
        return records.take_lock(self.store, holder, token, LEASE)

    def states(self, **which):
        return [move.state for move in self.store.moves(**which)]

    def test_what_is_written_is_read_the_newest_plan_first(self):
        self.write('p1', body={'reason': 'debt'})
        self.write('p2', 1, base.NOW + 1)
        self.assertEqual(['p2', 'p1'],
                         [plan.plan_id for plan in self.store.plans()])
        self.assertEqual(moves('p1', 2, body={'reason': 'debt'}),
                         self.store.moves('p1'))
        self.assertEqual(3, len(self.store.moves()))
        self.assertEqual(1, len(self.store.plans(limit=1)))

    def test_a_move_begins_once_and_only_with_the_lock(self):
        self.write()
        move = self.store.moves()[0]
        with self.assertRaisesRegex(exceptions.StoreChanged, 'lock'):
            records.begin_move(self.store, move, 't1', LEASE, base.NOW)
        self.assertIsNone(self.take())
        records.begin_move(self.store, move, 't1', LEASE, base.NOW)
        with self.assertRaisesRegex(exceptions.StoreChanged, 'state of move'):
            records.begin_move(self.store, move, 't1', LEASE, base.NOW)
        self.assertEqual(['begun', 'planned'], self.states())
        self.assertEqual(1, len(self.store.moves(state=records.BEGUN)))

    def test_the_end_of_a_plan_drops_what_did_not_begin(self):
        self.write(count=3)
        self.take()
        move_1, move_2, _ = self.store.moves()
        for move in (move_1, move_2):
            records.begin_move(self.store, move, 't1', LEASE, base.NOW)
        records.end_move(self.store, move_1, records.DONE, base.NOW + 9,
                         {'seconds': 9})
        records.end_plan(self.store, 'p1', records.INCOMPLETE, 'a surprise',
                         base.NOW + 10)
        self.assertEqual(['done', 'begun', 'dropped'], self.states())
        self.assertEqual(['done'], self.states(since=base.NOW + 9)[:1])
        self.assertEqual(1, len(self.store.moves(since=base.NOW + 10)))
        plan, = self.store.plans()
        self.assertEqual(('incomplete', 'a surprise', base.NOW + 10),
                         (plan.state, plan.reason, plan.ended_at))
        self.assertEqual([], self.store.plans(records.RUNNING))

    def test_plans_are_kept_for_half_a_year(self):
        for plan_id, ended_at in (('old', base.NOW - records.KEPT_SECONDS - 1),
                                  ('kept', base.NOW - records.KEPT_SECONDS)):
            self.write(plan_id, made_at=base.NOW - 2e8)
            records.end_plan(self.store, plan_id, records.DONE, '', ended_at)
        self.write('new')
        self.assertEqual(['new', 'kept'],
                         [plan.plan_id for plan in self.store.plans()])
        self.assertEqual(4, len(self.store.moves()))

    def test_a_move_that_never_began_can_be_planned_again(self):
        self.write(count=1)
        self.take()
        move, = self.store.moves()
        records.begin_move(self.store, move, 't1', LEASE, base.NOW)
        records.end_move(self.store, move, records.PLANNED, base.NOW, {})
        self.assertEqual([move], self.store.moves())

    def test_a_damaged_body_hides_no_move(self):
        self.write(count=2)
        self.execute("UPDATE rebalance_move SET body = '{' WHERE position=0")
        with self.assertLogs('vswitch_aware_scheduler', logging.WARNING):
            self.assertEqual(2, len(self.store.moves()))

    def test_only_one_has_the_lock(self):
        self.assertIsNone(self.take())
        self.assertEqual('me', self.take('t2', 'another'))
        self.assertTrue(records.keep_lock(self.store, 't1', LEASE))
        self.assertFalse(records.keep_lock(self.store, 't2', LEASE))
        records.release_lock(self.store, 't2')
        self.assertEqual('me', self.take('t2'))
        records.release_lock(self.store, 't1')
        self.assertIsNone(self.take('t2'))

    def test_the_lock_of_a_killed_holder_ends_with_its_lease(self):
        self.take()
        self.execute('UPDATE rebalance_lock SET expires_at = '
                     f'expires_at - {LEASE + 1}')
        self.assertIsNone(self.take('t2'))
        self.assertFalse(records.keep_lock(self.store, 't1', LEASE))

    def test_a_clock_that_was_put_back_locks_nobody_out(self):
        self.take()
        self.execute('UPDATE rebalance_lock SET expires_at = '
                     'expires_at + 86400')
        self.assertIsNone(self.take('t2'))
        self.write(count=1)
        with self.assertRaises(exceptions.StoreChanged):
            records.begin_move(self.store, self.store.moves()[0], 't1',
                               LEASE, base.NOW)
