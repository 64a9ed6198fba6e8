# SPDX-License-Identifier: Apache-2.0

import math
import struct
import unittest

import numpy as np

from tests.unit.store import base
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import records
from vswitch_aware_scheduler.traffic import model


class PackedLawTestCase(unittest.TestCase):

    def test_a_law_is_a_format_byte_and_rows_little_endian(self):
        law = records.pack_law(model.TrafficModel.on_off(
            8, 4, 2, on_seconds=1, off_seconds=3))
        self.assertEqual(
            b'\x02' + struct.pack('<10d', .75, .75, 0, 0, 0,
                                  .25, .25, 8, 4, 2), law)
        law = records.pack_law(model.TrafficModel(
            [[0, 0, 0], [8, 4, 2]], [[0, 1], [1, 0]], [3, 1],
            regime_law=[[.8, .2], [.3, .7]]))
        self.assertEqual(
            b'\x02' + struct.pack('<10d', .8, .3, 0, 0, 0,
                                  .2, .7, 8, 4, 2), law)

    def test_states_that_are_never_visited_are_left_out(self):
        # State 0 is left for good.
        one = model.TrafficModel(
            [[9, 0, 0], [1, 0, 0], [2, 0, 0]],
            [[0, 1, 0], [0, 0, 1], [0, 1, 0]], [1, 1, 3])
        counts, data = records.unpack_laws(['u'], [records.pack_law(one)])
        rows = np.frombuffer(data).reshape(-1, 5)
        self.assertEqual([2], counts.tolist())
        np.testing.assert_allclose(rows[:, 0], [.25, .75], rtol=1e-15)
        np.testing.assert_array_equal(rows[:, 0], rows[:, 1])
        self.assertEqual([1, 2], rows[:, 2].tolist())

    def test_many_laws_are_unpacked_one_after_the_other(self):
        laws = [records.pack_law(base.fitted(n, seed=n).model)
                for n in range(3)]
        counts, data = records.unpack_laws(list('abc'), laws)
        self.assertEqual(b''.join(law[1:] for law in laws), data)
        self.assertEqual([(len(law) - 1) // 40 for law in laws],
                         counts.tolist())

    def test_a_damaged_law_is_refused_with_the_name_of_its_instance(self):
        good = records.pack_law(model.TrafficModel.constant(3))
        for bad in (good[:-1], good[:1],
                    b'\x02' + struct.pack('<5d', 1, 1, math.nan, 0, 0),
                    b'\x02' + struct.pack('<5d', 1, 1, math.inf, 0, 0),
                    b'\x02' + struct.pack('<5d', 1, 1, -1, 0, 0),
                    b'\x02' + struct.pack('<5d', 1.5, 1, 1, 0, 0),
                    b'\x02' + struct.pack('<5d', 1, 1.5, 1, 0, 0)):
            with self.assertRaisesRegex(exceptions.StoreError,
                                        'instance second: .*damaged'):
                records.unpack_laws(['first', 'second', 'third'],
                                    [good, bad, good])

    def test_a_law_of_another_format_is_refused(self):
        for bad, seen in ((b'\x01' + bytes(40), '1'), (b'', 'None')):
            with self.assertRaisesRegex(
                    exceptions.StoreVersionError,
                    f'instance u: format of its law is {seen}, wanted 2'):
                records.unpack_laws(['u'], [bad])


class StoredModelTestCase(unittest.TestCase):

    def test_the_window_comes_from_the_counts(self):
        record = base.fitted(1)
        self.assertEqual(base.NOW, record.window_start)
        self.assertEqual(base.NOW + 500 * 300, record.window_end)
        self.assertEqual(500, record.samples)

    def test_values_that_make_no_sense_are_refused(self):
        for wrong, what in (({'window_start': 2.0}, 'window'),
                            ({'window_end': math.nan}, 'window'),
                            ({'samples': -1.0}, 'samples'),
                            ({'samples': math.inf}, 'samples'),
                            ({'source': ''}, 'source'),
                            ({'name': 'n' * 256}, 'name')):
            with self.assertRaisesRegex(exceptions.InvalidModel, what):
                base.constant(1, **wrong)
        for wrong in ('', 'x' * 37, None, 5):
            with self.assertRaisesRegex(exceptions.InvalidModel, 'uuid'):
                store.StoredModel(wrong, model.TrafficModel.constant(1))


class HostProfileTestCase(unittest.TestCase):

    def test_values_that_make_no_sense_are_refused(self):
        for wrong, what in (({'host': ''}, 'its name'),
                            ({'profile': ''}, 'profile'),
                            ({'source': ''}, 'source'),
                            ({'overrides': [1]}, 'overrides'),
                            ({'overrides': {'a': math.nan}}, 'overrides'),
                            ({'overrides': {'a': object()}}, 'overrides')):
            with self.assertRaisesRegex(exceptions.InvalidProfile, what):
                store.HostProfile(**{'host': 'h', 'profile': 'ovs-flat',
                                     **wrong})
