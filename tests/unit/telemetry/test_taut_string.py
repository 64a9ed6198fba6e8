# SPDX-License-Identifier: Apache-2.0

import unittest
import warnings

import numpy as np

from vswitch_aware_scheduler.telemetry import taut_string


def shortest(at, low, high):
    """Return the curve of least energy at some times, by relaxation.

    The shortest curve is the one of least sum of rise ** 2 / seconds.
    """
    seconds = np.diff(at)
    volume = (low + high) / 2
    for _ in range(3000):
        for i in range(1, len(at) - 1):
            volume[i] = np.clip(
                (volume[i - 1] / seconds[i - 1] + volume[i + 1] / seconds[i])
                / (1 / seconds[i - 1] + 1 / seconds[i]), low[i], high[i])
    return volume


class TautStringTest(unittest.TestCase):

    def string(self, times, volumes, width):
        """Return the string of readings that are up to ``width`` old."""
        return taut_string.taut_string(
            times, volumes, times - width, volumes,
            (times[0] - width / 2, volumes[0]),
            (times[-1] - width / 2, volumes[-1]))

    def test_the_string_is_the_curve_of_least_energy_within_the_bounds(self):
        random = np.random.default_rng(0)
        # Without room, it passes through all readings.
        for width in (0.0, 2.0, 7.0, 7.0, 12.0):
            times = np.arange(7) * 10.0
            volumes = np.cumsum(random.integers(0, 50, 7)).astype(float)
            points, string = self.string(times, volumes, width)
            at = np.unique(np.concatenate([points, times, times - width]))
            at = at[(at >= points[0]) & (at <= points[-1])]
            low = np.array([volumes[times <= moment].max(initial=volumes[0])
                            for moment in at])
            high = np.array([
                volumes[times - width >= moment].min(initial=volumes[-1])
                for moment in at])
            low[0] = high[0] = volumes[0]
            low[-1] = high[-1] = volumes[-1]
            np.testing.assert_allclose(
                np.interp(at, points, string), shortest(at, low, high),
                atol=1e-6)

    def test_the_string_never_falls(self):
        random = np.random.default_rng(2)
        times = np.cumsum(random.uniform(1, 20, 300))
        volumes = np.cumsum(random.exponential(1, 300)
                            * (random.random(300) < .5))
        _, string = self.string(times, volumes, 15.0)
        self.assertGreaterEqual(np.diff(string).min(), -1e-9)

    def test_a_curve_without_duration_is_a_point(self):
        times, volumes = np.array([10.0, 10.0]), np.array([3.0, 3.0])
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            for count in (1, 2):
                points, string = self.string(times[:count], volumes[:count],
                                             5.0)
                self.assertEqual(([7.5], [3.0]),
                                 (points.tolist(), string.tolist()))
