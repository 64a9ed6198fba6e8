# SPDX-License-Identifier: Apache-2.0
import unittest

import numpy as np

from vswitch_aware_scheduler.traffic import slots


class SlotsTestCase(unittest.TestCase):
    # 20 days, from the middle of one.
    numbers = np.arange(5900000, 5900000 + 20 * slots.SLOTS_A_DAY)

    def sampled(self):
        return self.numbers[slots.sampled(self.numbers)]

    def test_one_slot_of_eight_is_sampled(self):
        self.assertEqual(20 * 36, self.sampled().size)

    def test_eight_days_visit_each_time_of_the_day(self):
        first_days = self.sampled()[:8 * 36]
        self.assertEqual(slots.SLOTS_A_DAY, np.unique(
            first_days % slots.SLOTS_A_DAY).size)

    def test_positions_follow_one_another_around_the_ring(self):
        steps = np.diff(slots.ring_index(self.sampled()))
        self.assertEqual({1, 1 - slots.SLOTS}, set(steps.tolist()))

    def test_the_latest_slots_fill_the_ring(self):
        sampled = self.sampled()
        for last in (sampled[-1], sampled[-1] + 3, sampled[600]):
            latest = slots.latest_slots(int(last))
            self.assertEqual(sampled[sampled <= last][-slots.SLOTS:].tolist(),
                             sorted(latest.tolist()))
            self.assertEqual(list(range(slots.SLOTS)),
                             slots.ring_index(latest).tolist())

    def test_drawn_bits_are_those_of_any_process(self):
        # SHAKE128 of "": 7f9c2ba4 (FIPS 202).
        first = int.from_bytes(bytes.fromhex('7f9c2ba4'), 'little') / 2 ** 32
        self.assertTrue(slots.drawn('', first + 1e-6)[0])
        self.assertFalse(slots.drawn('', first - 1e-6)[0])

    def test_drawn_bits_have_the_share_of_their_slot(self):
        shares = np.linspace(0, 1, slots.SLOTS)
        count = np.sum([slots.drawn(f'instance {number}', shares)
                        for number in range(1000)], axis=0)
        # Five standard deviations.
        self.assertTrue((np.abs(count - 1000 * shares)
                         <= 5 * np.sqrt(1000 * shares * (1 - shares))).all())

    def test_groups_have_each_slot_once(self):
        self.assertEqual(slots.SLOTS, sum(slots.GROUP_SIZES))
