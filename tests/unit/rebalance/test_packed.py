# SPDX-License-Identifier: Apache-2.0

import unittest

import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.rebalance import packed


class PackedTestCase(unittest.TestCase):

    def test_sums_are_known_to_half_a_step(self):
        generator = np.random.default_rng(1)
        sums = generator.exponential(9.0, 2016)
        alone = generator.random(2016) < .1
        found, flags = packed.unpack(packed.pack(sums, alone, 10.0), 2016,
                                     10.0)
        np.testing.assert_allclose(np.minimum(sums, 39.9), np.minimum(
            found, 39.9), atol=10 / 2 ** 14)
        np.testing.assert_array_equal(alone, flags)

    def test_no_sum_changes_its_side_of_the_capacity(self):
        sums = 7.0 * np.array([0, 1 - 1e-6, 1, 1 + 1e-12, 1 + 1e-6, 2, 100])
        found, _ = packed.unpack(packed.pack(sums, np.zeros(7), 7.0), 7, 7.0)
        self.assertEqual([False] * 4 + [True] * 3, (found > 7.0).tolist())

    def test_what_is_not_known_stays_unknown(self):
        found, _ = packed.unpack(packed.pack(
            [1.0, np.nan, 1e9], [False] * 3, 1.0), 3, 1.0)
        self.assertEqual([False, True, False], np.isnan(found).tolist())

    def test_seven_days_of_one_limit_take_4284_bytes(self):
        self.assertEqual(4284, packed.bytes_needed(2016))
        self.assertEqual(4284, len(packed.pack(
            np.zeros(2016), np.zeros(2016), 1.0)))

    def test_what_cannot_be_is_rejected(self):
        for call in (lambda: packed.pack([1.0], [False], 0.0),
                     lambda: packed.pack([1.0], [False], np.inf),
                     lambda: packed.pack([-1.0], [False], 1.0),
                     lambda: packed.unpack(b'123', 2, 1.0)):
            with self.assertRaisesRegex(exceptions.InvalidInput, 'expected'):
                call()


if __name__ == '__main__':
    unittest.main()
