# SPDX-License-Identifier: Apache-2.0

import logging
import time

from tests.fakes import store as fake_store
from tests.unit.store import base
from vswitch_aware_scheduler import store

decision = fake_store.decision


class DecisionsTestCase(base.StoreTestCase):

    def kept(self, **which):
        return [int(kept_decision.decision_id, 16)
                for kept_decision in self.store.decisions(**which)]

    def test_what_is_written_is_read_the_newest_first(self):
        decisions = [decision(1, 20), decision(2, 10, request_id=None,
                                               instance_uuid=None, host=None,
                                               outcome=store.NO_HOST,
                                               chosen=None, project=None,
                                               flavor=None),
                     decision(3, 30)]
        self.store.write_decisions(decisions)
        self.assertEqual([decisions[1], decisions[0], decisions[2]],
                         self.store.decisions())
        # Writing one again, after an answer that was lost, changes nothing.
        self.store.write_decisions(decisions[:1])
        self.assertEqual([2, 1, 3], self.kept())

    def test_decisions_are_found_by_instance_request_and_time(self):
        self.store.write_decisions([
            decision(1, 30), decision(2, 20), decision(
                3, 10, instance_uuid=base.instance_uuid(1))])
        self.assertEqual([3, 1], self.kept(
            instance_uuid=base.instance_uuid(1)))
        self.assertEqual([2], self.kept(request_id='req-2'))
        self.assertEqual([3, 2], self.kept(since=base.NOW - 20))
        self.assertEqual([3, 2], self.kept(limit=2))
        self.assertEqual([], self.kept(request_id='req-9'))

    def test_so_many_stay_and_none_that_is_too_old(self):
        now = time.time()
        self.store.write_decisions([
            decision(number, base.NOW - now + age)
            for number, age in ((1, 10), (2, 2000), (3, 20), (4, 30))])
        self.assertEqual(0, self.store.purge_decisions(10, 3000.0))
        self.assertEqual(1, self.store.purge_decisions(10, 1000.0))
        self.assertEqual([1, 3, 4], self.kept())
        self.assertEqual(1, self.store.purge_decisions(2, 1000.0))
        self.assertEqual([1, 3], self.kept())

    def test_thousands_are_written_and_removed(self):
        self.store.write_decisions([
            decision(number, base.NOW - time.time() + number)
            for number in range(3000)])
        self.assertEqual(2990, self.store.purge_decisions(10, 86400.0))
        self.assertEqual([*range(10)], self.kept())

    def test_a_value_that_cannot_be_kept_is_no_reason_to_drop_others(self):
        with self.assertLogs('vswitch_aware_scheduler', logging.WARNING):
            self.store.write_decisions([
                decision(1), decision(2, 1, chosen={'limit': float('nan')}),
                decision(3, 2, nearest=[object()])])
        self.assertEqual([1], self.kept())

    def test_names_that_databases_refuse_are_made_fit(self):
        self.store.write_decisions([decision(
            1, host='a\0b', flavor='x' * 300, project='\ud800')])
        stored, = self.store.decisions()
        self.assertEqual(('ab', 'x' * 255, '?'),
                         (stored.host, stored.flavor, stored.project))
