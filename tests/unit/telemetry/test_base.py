# SPDX-License-Identifier: Apache-2.0

import operator
import pickle
import uuid

import testtools

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import base

_UUID = '0d5e2f0c-7b1a-4c7e-8f59-6a1c3f1b2a3d'


class _Recorder(base.Driver):
    """Remembers what reaches a subclass."""

    source = 'memory'

    def instances(self):
        return []

    def _series(self, start, end, instances, progress):
        self.seen = (start, end, instances)
        progress(0, 0)
        return iter(())


class NormalisedUuidTest(testtools.TestCase):

    def test_every_spelling_of_a_uuid_becomes_one(self):
        for text in (_UUID, _UUID.upper(), _UUID.replace('-', '')):
            self.assertEqual(_UUID, base.normalised_uuid(text))

    def test_what_is_no_uuid_is_none(self):
        for text in ('', 'web-1', _UUID[:-1], '{' + _UUID[2:] + '}',
                     'urn:uuid:' + _UUID[:23] + '-234', 'g' * 32, None, 7,
                     '0d5e-2f0c7b1a-4c7e-8f59-6a1c3f1b2a3d'):
            self.assertIsNone(base.normalised_uuid(text))


class InstanceTest(testtools.TestCase):

    def test_another_uuid_is_refused_by_name(self):
        error = self.assertRaises(exceptions.InvalidInput,
                                  base.Instance, '17', 'web-1')
        self.assertIn('web-1', str(error))
        self.assertIn("'17'", str(error))

    def test_metadata_cannot_be_changed_from_outside(self):
        metadata = {'cpu_cores': 2.0}
        instance = base.Instance(_UUID, 'a', metadata)
        metadata['cpu_cores'] = 4.0
        self.assertEqual({'cpu_cores': 2.0}, dict(instance.metadata))
        self.assertRaises(TypeError, operator.setitem, instance.metadata,
                          'cpu_cores', 1.0)

    def test_instances_compare_hash_and_travel(self):
        instance = base.Instance(_UUID, 'a', {'cpu_cores': 2.0})
        self.assertEqual(instance, pickle.loads(pickle.dumps(instance)))
        capital = base.Instance(_UUID.upper(), 'a', {'cpu_cores': 2.0})
        self.assertEqual(_UUID, capital.uuid)
        self.assertEqual(1, len({instance, capital}))
        self.assertNotEqual(instance, base.Instance(_UUID, 'a'))


class DriverTest(testtools.TestCase):

    def test_period_is_a_positive_number_or_absent(self):
        self.assertIsNone(_Recorder().period_seconds)
        self.assertEqual(60.0, _Recorder(60).period_seconds)
        for wrong in (0, -1, float('nan'), float('inf'), 'hourly', []):
            error = self.assertRaises(exceptions.InvalidInput, _Recorder,
                                      wrong)
            self.assertIn('expected', str(error))

    def test_arguments_reach_the_subclass_in_one_form(self):
        driver = _Recorder()
        driver.series()
        self.assertEqual((float('-inf'), float('inf'), None), driver.seen)
        driver.series(start=1, end=2.5, instances=[uuid.UUID(_UUID)])
        self.assertEqual((1.0, 2.5, frozenset([_UUID])), driver.seen)

    def test_the_contract_cannot_be_left_open(self):
        class Nothing(base.Driver):
            pass

        self.assertRaises(TypeError, Nothing)
