# SPDX-License-Identifier: Apache-2.0
"""What the modeler goes on from: counts without a model, load, base."""

import dataclasses


from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import series


class ResumingTestCase(base.StoreTestCase):

    def _unmodelled(self, number, **more):
        return store.Unmodelled(base.instance_uuid(number),
                                base.fitted(number).counts, **more)

    def test_counts_without_a_model_come_back_as_they_were(self):
        record = self._unmodelled(1, refused=series.Refused(gap=3), name='a')
        self.store.write([base.fitted(number) for number in (2000, 2001)],
                         unmodelled=[record])
        # More uuids than one statement can have, most of them unknown.
        stored = self.store.learned(map(base.instance_uuid, range(2500)))
        self.assertEqual(
            {base.instance_uuid(number) for number in (1, 2000, 2001)},
            set(stored))
        learned = stored[record.instance_uuid]
        self.assertFalse(learned.modelled)
        self.assertEqual(record.counts.to_bytes(), learned.counts.to_bytes())
        self.assertEqual(record.refused, learned.refused)

    def test_resume_points_are_those_of_all_counts(self):
        modelled, unmodelled = base.fitted(1), self._unmodelled(2)
        self.store.write([modelled, base.constant(3)], unmodelled=[unmodelled])
        last_time = modelled.counts.last_time
        expected = {
            base.instance_uuid(1): store.ResumePoint(True, last_time, 300.0),
            base.instance_uuid(2): store.ResumePoint(False, last_time, 300.0),
            base.instance_uuid(3): store.ResumePoint(True, None, None)}
        self.assertEqual(expected, self.store.resume_points())
        basis = self.store.basis()
        self.assertEqual((self.store.generation(), expected),
                         (basis.generation, basis.points))

    def test_a_model_takes_the_place_of_counts_without_one(self):
        self.store.write(unmodelled=[self._unmodelled(1),
                                     self._unmodelled(2)])
        self.store.write([base.fitted(1)])
        self.assertEqual([True, False], [
            self.store.resume_points()[base.instance_uuid(n)].modelled
            for n in (1, 2)])
        self.store.write(remove=[base.instance_uuid(n) for n in (1, 2)])
        self.assertEqual({}, self.store.resume_points())

    def test_one_instance_with_and_without_a_model_is_refused(self):
        with self.assertRaisesRegex(exceptions.InvalidInput, 'given twice'):
            self.store.write([base.fitted(1)],
                             unmodelled=[self._unmodelled(1)])
        with self.assertRaisesRegex(exceptions.InvalidInput,
                                    'source: 3; expected text'):
            self._unmodelled(1, source=3)

    def test_a_write_on_changed_counts_changes_nothing(self):
        basis = self.store.basis()
        self.store.write([base.fitted(1)], unmodelled=[self._unmodelled(2)])
        later_basis = self.store.basis()
        content = self.content()
        concurrent = base.fitted(3)
        for models, more in (
                ([concurrent, base.fitted(1)], {}),
                ([concurrent, base.fitted(2)], {}),
                ([concurrent], {'unmodelled': [self._unmodelled(2)]}),
                ([concurrent], {'unmodelled': [self._unmodelled(1)]}),
                ([concurrent], {'remove': [base.instance_uuid(1)]})):
            with self.assertRaisesRegex(
                    exceptions.StoreChanged,
                    'counts of 1 instances, such as .* since generation 0'):
                self.store.write(models, based_on=basis, **more)
            self.assertEqual(content, self.content())
        self.store.write(remove=[base.instance_uuid(1)])
        with self.assertRaises(exceptions.StoreChanged):
            self.store.write([base.fitted(1)], based_on=later_basis)

    def test_a_write_on_unchanged_counts_goes_beside_others(self):
        basis = self.store.basis()
        self.store.write([base.fitted(number) for number in (1, 2)])
        self.store.write([base.fitted(3)], based_on=basis)
        # Alone since its basis, or not: another store is another one.
        basis = self.store.basis()
        self.store.write([base.fitted(3, seed=1)], based_on=basis)
        with self.assertRaises(exceptions.StoreChanged):
            self.store.write([base.fitted(3)], based_on=dataclasses.replace(
                basis, generation=dataclasses.replace(
                    basis.generation, store_id='other')))
        self.assertEqual(3, len(self.store.models()))
