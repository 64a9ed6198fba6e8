# SPDX-License-Identifier: Apache-2.0

import dataclasses
import math
import struct
import unittest
from unittest import mock

import numpy as np

from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import rate_law


class PackedLawTestCase(unittest.TestCase):

    def test_a_law_is_a_format_byte_and_rows_little_endian(self):
        rows = b'\x03' + struct.pack('<8d', .75, 0, 0, 0, .25, 8, 4, 2)
        of_model = model.TrafficModel.on_off(
            8, 4, 2, on_seconds=1, off_seconds=3)
        self.assertEqual({'law': rows}, packing.pack_law(of_model))
        # The rows at the instants follow.
        states = np.arange(504) % 2 + 128 * (np.arange(504) < 9)
        self.assertEqual({'law': rows + bytes(states.tolist())},
                         packing.pack_law(dataclasses.replace(
                             of_model, at_instants=states)))

    def test_states_that_are_never_visited_are_left_out(self):
        # State 0 is left for good.
        chain = model.TrafficModel(
            [[9, 0, 0], [1, 0, 0], [2, 0, 0]],
            [[0, 1, 0], [0, 0, 1], [0, 1, 0]], [1, 1, 3])
        sizes, data = packing.unpack_laws(
            ['u'], [packing.pack_law(chain)['law']])
        [law] = rate_law.split_laws(data, sizes)
        self.assertEqual(2, law.states)
        np.testing.assert_allclose(law.probabilities, [.25, .75], rtol=1e-15)
        self.assertEqual([1, 2], law.rates[:, 0].tolist())

    def test_many_laws_are_unpacked_one_after_the_other(self):
        laws = [base.fitted(n, seed=n).model.law for n in range(3)]
        laws.insert(1, model.TrafficModel.constant(3).law)
        sampled = [law.is_sampled for law in laws]
        self.assertEqual({True, False}, set(sampled))
        sizes, data = packing.unpack_laws(list('abcd'), [
            packing.pack_law(mock.Mock(law=law))['law'] for law in laws])
        unpacked = rate_law.split_laws(data, sizes)
        self.assertEqual(laws, unpacked)
        self.assertEqual(sampled, [law.is_sampled for law in unpacked])

    def test_a_damaged_law_is_refused_with_the_name_of_its_instance(self):
        good = packing.pack_law(model.TrafficModel.constant(3))['law']
        for bad in (good[:-1], good[:1], good + b'0', good[:1] + bytes(504),
                    good + bytes(503), good + bytes(505),
                    # There is one state: neither 1 nor 1 that was drawn.
                    good + bytes(503) + b'\x01', good + bytes(503) + b'\x81',
                    b'\x03' + struct.pack('<4d', 1, math.nan, 0, 0),
                    b'\x03' + struct.pack('<4d', 1, math.inf, 0, 0),
                    b'\x03' + struct.pack('<4d', 1, -1, 0, 0),
                    b'\x03' + struct.pack('<4d', 1.5, 1, 0, 0)):
            drawn = good + bytes(503) + b'\x80'
            with self.assertRaisesRegex(damage.Damaged,
                                        'instance second: .*damaged'):
                packing.unpack_laws(['first', 'second', 'third'],
                                    [drawn, bad, good])
            connection, damaged = mock.Mock(), {}
            connection.get_execution_options.return_value = {
                'damaged': damaged}
            names, _, data = packing.usable_laws(
                connection, 'model', ['first', 'second'], [drawn, bad])
            self.assertEqual((['first'], [('model', 'second')], drawn[1:]),
                             (list(names), list(damaged), data))

    def test_a_law_of_another_format_is_refused(self):
        for bad, version in ((b'\x02' + bytes(40), '2'), (b'', 'None')):
            with self.assertRaisesRegex(
                    damage.Damaged,
                    f'instance u: format of its law: {version}; expected 3'):
                packing.unpack_laws(['u'], [bad])


class StoredModelTestCase(unittest.TestCase):

    def test_the_window_comes_from_the_counts(self):
        record = base.fitted(1)
        self.assertEqual(base.NOW, record.window_start)
        self.assertEqual(base.NOW + 500 * 300, record.window_end)
        self.assertEqual(500, record.samples)

    def test_values_that_make_no_sense_are_refused(self):
        for wrong, message in (
                ({'window_start': 2.0}, 'window'),
                ({'window_end': math.nan}, 'window'),
                ({'samples': -1.0}, 'samples'),
                ({'samples': math.inf}, 'samples'),
                ({'source': ''}, 'source'), ({'name': 'n' * 256}, 'name'),
                *(({'instance_uuid': uuid}, 'uuid')
                  for uuid in ('', 'x' * 37, None, 5))):
            with self.assertRaisesRegex(exceptions.InvalidInput, message):
                store.StoredModel(**{
                    'instance_uuid': 'u',
                    'model': model.TrafficModel.constant(1), **wrong})


class HostProfileTestCase(unittest.TestCase):

    def test_values_that_make_no_sense_are_refused(self):
        for wrong, message in (({'host': ''}, "host '': host"),
                               ({'profile': ''}, 'profile'),
                               ({'source': ''}, 'source'),
                               ({'overrides': [1]}, 'overrides'),
                               ({'overrides': {'a': math.nan}}, 'overrides'),
                               ({'overrides': {'a': object()}}, 'overrides')):
            with self.assertRaisesRegex(exceptions.InvalidInput, message):
                store.HostProfile(**{'host': 'h', 'profile': 'ovs-flat',
                                     **wrong})
