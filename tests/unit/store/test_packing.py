# SPDX-License-Identifier: Apache-2.0

import math
import struct
import unittest
from unittest import mock

import numpy as np

from tests.unit.store import base
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import packing
from vswitch_aware_scheduler.store import prior_records
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import slots


class PackedLawTestCase(unittest.TestCase):

    def test_a_law_is_a_format_byte_and_rows_little_endian(self):
        law = packing.pack_law(model.TrafficModel.on_off(
            8, 4, 2, on_seconds=1, off_seconds=3))
        # Each probability twice: the version before reads these rows.
        rows = b'\x02' + struct.pack('<10d', .75, .75, 0, 0, 0,
                                     .25, .25, 8, 4, 2)
        self.assertEqual({'law': rows, 'slots': bytes(63) + b'\x02'}, law)
        high = np.arange(slots.SLOTS) % 8 == 1
        law = packing.pack_law(model.TrafficModel(
            [[0, 0, 0], [8, 4, 2]], [[0, 1], [1, 0]], [3, 1], high, 1))
        self.assertEqual({'law': rows, 'slots': 63 * b'\x40' + b'\x01'},
                         law)

    def test_a_law_of_the_version_before_keeps_its_probabilities(self):
        # A tenth of the time was busy.
        packed = b'\x02' + struct.pack('<10d', .8, .3, 0, 0, 0, .2, .7, 8,
                                       4, 2)
        states, data = packing.unpack_laws(['u'], [packed], [None])
        [law] = rate_law.split_laws(data, states)
        np.testing.assert_allclose(law.probabilities, [.75, .25])
        self.assertEqual([[0, 0, 0], [8, 4, 2]], law.rates.tolist())
        self.assertFalse(law.has_classes)

    def test_a_prior_has_the_share_of_each_slot(self):
        shares = bytes(range(252)) * 2
        law = rate_law.RateLaw.from_arrays(
            [.9, .1], [[1, 0, 0], [9, 0, 0]], np.zeros(slots.SLOTS, bool), 1)
        columns = packing.pack_prior(prior_records.Prior(
            'f', None, law, 3.0, high_shares=shares))
        self.assertEqual(shares + b'\x01', columns['slots'])
        states, data = packing.unpack_laws(['f'], [columns['law']],
                                           [columns['slots']])
        [unpacked] = rate_law.split_laws(data, states)
        self.assertEqual(law, unpacked)
        self.assertEqual(shares, packing.unpack_prior(
            unpacked, columns['slots']).high_shares)
        # That of an instance has its own bits.
        own = prior.with_high(law, np.arange(slots.SLOTS) < 9)
        columns = packing.pack_prior(
            prior_records.Prior(None, None, own, 3.0, 'u'))
        states, data = packing.unpack_laws(['u'], [columns['law']],
                                           [columns['slots']])
        self.assertEqual(own, data)

    def test_states_that_are_never_visited_are_left_out(self):
        # State 0 is left for good.
        chain = model.TrafficModel(
            [[9, 0, 0], [1, 0, 0], [2, 0, 0]],
            [[0, 1, 0], [0, 0, 1], [0, 1, 0]], [1, 1, 3])
        columns = packing.pack_law(chain)
        counts, data = packing.unpack_laws(['u'], [columns['law']],
                                           [columns['slots']])
        [law] = rate_law.split_laws(data, counts)
        self.assertEqual([2], counts.tolist())
        np.testing.assert_allclose(law.probabilities, [.25, .75], rtol=1e-15)
        self.assertEqual([1, 2], law.rates[:, 0].tolist())

    def test_many_laws_are_unpacked_one_after_the_other(self):
        laws = [base.fitted(n, seed=n).model.law for n in range(3)]
        laws.insert(1, model.TrafficModel.constant(3).law)
        columns = [packing.pack_law(mock.Mock(law=law)) for law in laws]
        counts, data = packing.unpack_laws(
            list('abcd'), [packed['law'] for packed in columns],
            [packed['slots'] for packed in columns])
        self.assertEqual(laws, rate_law.split_laws(data, counts))

    def test_a_damaged_law_is_refused_with_the_name_of_its_instance(self):
        columns = packing.pack_law(model.TrafficModel.constant(3))
        good, tail = columns['law'], columns['slots']
        for bad in (good[:-1], good[:1],
                    b'\x02' + struct.pack('<5d', 1, 1, math.nan, 0, 0),
                    b'\x02' + struct.pack('<5d', 1, 1, math.inf, 0, 0),
                    b'\x02' + struct.pack('<5d', 1, 1, -1, 0, 0),
                    b'\x02' + struct.pack('<5d', 1.5, 1, 1, 0, 0),
                    b'\x02' + struct.pack('<5d', 1, 1.5, 1, 0, 0)):
            with self.assertRaisesRegex(exceptions.StoreError,
                                        'instance second: .*damaged'):
                packing.unpack_laws(['first', 'second', 'third'],
                                    [good, bad, good], [tail] * 3)
        for bad in (b'', tail[:-1], tail + b'0', bytes(64),
                    tail[:-1] + b'\x02'):
            with self.assertRaisesRegex(exceptions.StoreError,
                                        'instance second: .*damaged'):
                packing.unpack_laws(['first', 'second', 'third'],
                                    [good] * 3, [None, bad, tail])
            damaged = {}
            names, _, data = packing.usable_laws(
                ['first', 'second'], [good] * 2, [tail, bad], 'model',
                damaged)
            self.assertEqual((['first'], [('model', 'second')]),
                             (list(names), list(damaged)))
            self.assertEqual(model.TrafficModel.constant(3).law, data)

    def test_a_law_of_another_format_is_refused(self):
        for bad, version in ((b'\x01' + bytes(40), '1'), (b'', 'None')):
            with self.assertRaisesRegex(
                    exceptions.StoreVersionError,
                    f'instance u: format of its law: {version}; expected 2'):
                packing.unpack_laws(['u'], [bad], [None])


class StoredModelTestCase(unittest.TestCase):

    def test_the_window_comes_from_the_counts(self):
        record = base.fitted(1)
        self.assertEqual(base.NOW, record.window_start)
        self.assertEqual(base.NOW + 500 * 300, record.window_end)
        self.assertEqual(500, record.samples)

    def test_values_that_make_no_sense_are_refused(self):
        for wrong, message in (({'window_start': 2.0}, 'window'),
                               ({'window_end': math.nan}, 'window'),
                               ({'samples': -1.0}, 'samples'),
                               ({'samples': math.inf}, 'samples'),
                               ({'source': ''}, 'source'),
                               ({'name': 'n' * 256}, 'name')):
            with self.assertRaisesRegex(exceptions.InvalidModel, message):
                base.constant(1, **wrong)
        for wrong in ('', 'x' * 37, None, 5):
            with self.assertRaisesRegex(exceptions.InvalidModel, 'uuid'):
                store.StoredModel(wrong, model.TrafficModel.constant(1))


class HostProfileTestCase(unittest.TestCase):

    def test_values_that_make_no_sense_are_refused(self):
        for wrong, message in (({'host': ''}, 'its name'),
                               ({'profile': ''}, 'profile'),
                               ({'source': ''}, 'source'),
                               ({'overrides': [1]}, 'overrides'),
                               ({'overrides': {'a': math.nan}}, 'overrides'),
                               ({'overrides': {'a': object()}}, 'overrides')):
            with self.assertRaisesRegex(exceptions.InvalidProfile, message):
                store.HostProfile(**{'host': 'h', 'profile': 'ovs-flat',
                                     **wrong})
