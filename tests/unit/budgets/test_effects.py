# SPDX-License-Identifier: Apache-2.0

import numpy as np

from tests.unit.budgets import fleet
from tests.unit.store import base
from vswitch_aware_scheduler.budgets import effects
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import plans as records

DAY = 86400.0


class OutcomeTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.store = self.make_store()
        self.fleet = fleet.Fleet('host1', 'host2')
        # Two days: the move was at the middle, and relieved host1.
        totals = np.full(576, 500.0)
        totals[:288:4] = 1100.0
        totals[288:288 + 144:12] = 1100.0
        unknown = np.where(np.arange(576) < 576 - 72, 100.0, np.nan)
        self.fleet.history = lambda: {
            'host1': fleet.sums('host1', totals),
            'host2': fleet.sums('host2', unknown)}
        self.fleet.write(self.store)
        self.at = fleet.NOW - DAY
        records.write_plan(
            self.store, store.PlanRecord('p', self.at, 'test'), [
                store.MoveRecord('p', number, base.instance_uuid(number),
                                 'host1', 'host2', state, self.at, ended_at)
                for number, (state, ended_at) in enumerate((
                    (records.DONE, self.at), (records.DONE, self.at + 60),
                    (records.FAILED, self.at)))])

    def test_overload_of_both_hosts_a_day_before_and_after(self):
        self.assertEqual(1, effects.update(self.store, fleet.NOW))
        first, second, third = self.store.moves()
        # A quarter of one host's day; 12 of 288 and 216 known slots.
        self.assertAlmostEqual(72 / 576, first.body['overload_day_before'])
        self.assertAlmostEqual(12 / 504, first.body['overload_day_after'])
        # The day after is not over yet; a failed move brought nothing.
        self.assertEqual([{}, {}], [second.body, third.body])
        self.assertEqual(0, effects.update(self.store, fleet.NOW))

    def test_hosts_without_measurements_have_no_effect(self):
        self.fleet.history = dict
        with self.store._engine().begin() as connection:
            connection.exec_driver_sql('DELETE FROM sum_history')
        effects.update(self.store, fleet.NOW)
        self.assertIsNone(
            self.store.moves()[0].body['overload_day_after'])
