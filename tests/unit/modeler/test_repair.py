# SPDX-License-Identifier: Apache-2.0

from tests.unit.store import base
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import repair
from vswitch_aware_scheduler.traffic import estimate

SETTINGS = learning.LearningSettings('memory')


class RepairTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.store.write([base.fitted(n, n, name=f'n{n}') for n in range(3)])
        self.uuids = list(map(base.instance_uuid, range(3)))

    def damage(self, number, *columns):
        for table, column in columns:
            self.execute(
                f'UPDATE {table} SET {column} = :value WHERE instance_uuid = '
                f':uuid', value=b'\x02damaged', uuid=self.uuids[number])

    def learn_again(self, share=None):
        with self.assertLogs('vswitch_aware_scheduler', 'WARNING'):
            return repair.learn_again(
                self.store, lambda: base.NOW, SETTINGS, share)

    def test_an_undamaged_store_is_not_written(self):
        with self.assertNoLogs('vswitch_aware_scheduler', 'WARNING'):
            self.assertEqual(0, repair.learn_again(
                self.store, lambda: base.NOW, SETTINGS))
        self.assertEqual(1, self.store.generation().number)

    def test_a_model_is_fitted_again_to_the_stored_counts(self):
        counts = self.store.model(self.uuids[1]).counts
        expected, = estimate.fit_models(
            [counts], keys=[self.uuids[1]])
        self.damage(1, ('traffic_model', 'law'))
        self.assertEqual(1, self.learn_again())
        after = self.store.model(self.uuids[1])
        self.assertEqual((counts.to_bytes(), 'n1'),
                         (after.counts.to_bytes(), after.name))
        self.assertEqual(expected.to_dict(), after.model.to_dict())
        self.assertEqual({}, self.store.damaged())

    def test_a_model_without_counts_is_removed(self):
        self.damage(1, ('traffic_model', 'law'),
                    ('traffic_model_detail', 'counts'))
        self.assertEqual(1, self.learn_again())
        self.assertCountEqual([self.uuids[0], self.uuids[2]],
                              self.store.resume_points())
        self.assertEqual({}, self.store.damaged())

    def test_instances_of_another_modeler_are_left_alone(self):
        for number in (1, 2):
            self.damage(number, ('traffic_model', 'law'))
        self.assertEqual(1, self.learn_again(
            lambda uuid: uuid == self.uuids[1]))
        self.assertEqual({self.uuids[2]}, self.store.unreadable_models())
