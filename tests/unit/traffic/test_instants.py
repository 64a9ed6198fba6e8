# SPDX-License-Identifier: Apache-2.0

import json
import subprocess
import sys
import unittest

import numpy as np

from vswitch_aware_scheduler.traffic import instants

#: Two-sided normal quantile: one comparison in about 16,000 fails by chance;
#: the seeds are fixed.
SIGMAS = 4.0

GOLDEN = (5 ** .5 - 1) / 2


def times(secret, first_day=20000, days=14):
    """Return (days, 36) times of the instants of some days."""
    numbers = np.arange(first_day * 36, (first_day + days) * 36)
    return instants.Instants(secret).times(numbers).reshape(days, 36)


class TimesTestCase(unittest.TestCase):

    def test_each_interval_has_one_instant(self):
        number = np.floor(times(b'any', 19990, 40) / 2400)
        np.testing.assert_array_equal(
            np.arange(19990 * 36, 20030 * 36), number.ravel())

    def test_the_days_of_a_fortnight_cover_the_interval(self):
        # 14 steps of the golden section leave gaps of at most its fifth power;
        # the random part of a fourteenth adds to a gap at one end.
        most = (GOLDEN ** 5 + 1 / 14) * 2400
        for number in range(50):
            offsets = np.sort(times(b'%d' % number, 19000 + 37 * number)
                              % 2400, axis=0)
            gaps = np.diff(offsets, axis=0, append=offsets[:1] + 2400)
            self.assertLessEqual(gaps.max(), most)

    def test_another_secret_gives_other_times(self):
        several = np.array([times(b'%d' % number) % 2400 / 2400
                            for number in range(60)]).reshape(60, -1)
        # By chance, two offsets differ by less than 1e-3 in 2 of 1,000 cases.
        near = (abs(np.diff(several, axis=0)) < 1e-3).mean()
        self.assertLess(near, .002 + SIGMAS * np.sqrt(
            .002 / several[1:].size))
        # What is known of one instant says nothing about the next interval.
        self.assertLess(abs(np.corrcoef(several[:, 0], several[:, 1])[0, 1]),
                        SIGMAS / np.sqrt(60))

    def test_another_process_has_the_same_times(self):
        script = ('import json, numpy, sys\n'
                  'from vswitch_aware_scheduler.traffic import instants\n'
                  'json.dump(instants.Instants(b"k").times('
                  'numpy.arange(720000, 720504)).tolist(), sys.stdout)')
        other = subprocess.run([sys.executable, '-c', script], check=True,
                               capture_output=True, timeout=120).stdout
        self.assertEqual(times(b'k').ravel().tolist(), json.loads(other))


class RingTestCase(unittest.TestCase):

    def test_the_newest_interval_begins_before_the_end(self):
        self.assertEqual([-1, 0, 0, 1], instants.newest_number(
            [0, 1e-6, 2400, 2400.5]).tolist())

    def test_the_latest_intervals_fill_the_ring(self):
        for newest in (503, 504, 720001):
            latest = instants.latest_numbers(newest)
            self.assertEqual(list(range(newest - 503, newest + 1)),
                             sorted(latest.tolist()))
            self.assertEqual(list(range(504)), (latest % 504).tolist())


class DrawnTestCase(unittest.TestCase):

    LAW = np.array([.5, .3, .15, .05])

    def drawn(self, count):
        return np.array([instants.drawn_rows(f'instance {number}', self.LAW)
                         for number in range(count)])

    def test_they_are_those_of_any_process(self):
        # SHAKE128 of "": 7f9c2ba4 (FIPS 202).
        first = int.from_bytes(bytes.fromhex('7f9c2ba4'), 'little') / 2 ** 32
        for edge, row in ((first + 1e-6, 0), (first - 1e-6, 1)):
            self.assertEqual(row, instants.drawn_rows('', np.array(
                [edge, 1 - edge]))[0])

    def test_they_have_the_law_at_each_position(self):
        rows = self.drawn(1000)
        for row, share in enumerate(self.LAW):
            # 504 comparisons of each row.
            self.assertLess(abs((rows == row).mean(axis=0) - share).max(),
                            (SIGMAS + 1) * np.sqrt(share * (1 - share) / 1000))

    def test_those_of_two_keys_and_of_two_positions_are_independent(self):
        rows = self.drawn(400).astype(float)
        rows -= rows.mean()
        for first, second in ((rows[::2], rows[1::2]),
                              (rows[:, ::2], rows[:, 1::2])):
            products = first * second / rows.var()
            self.assertLess(abs(products.mean()),
                            SIGMAS / np.sqrt(products.size))
            # The largest of 200 or 400 pairs.
            self.assertLess(abs(products.mean(axis=1)).max(),
                            (SIGMAS + 1) / np.sqrt(products.shape[1]))
