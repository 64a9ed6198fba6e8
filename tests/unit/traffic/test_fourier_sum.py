# SPDX-License-Identifier: Apache-2.0

import math
import unittest

import numpy as np

from tests.unit.traffic import exact
from vswitch_aware_scheduler.traffic import fourier_sum


def _random(rng, count, states, largest, on_grid=False):
    """Return (levels, masses) of sources that are silent most of the time."""
    levels = rng.uniform(0, largest, (count, states))
    levels[:, 0] = 0
    return (np.rint(levels) if on_grid else levels,
            rng.dirichlet([9.0] + [1.0] * (states - 1), count))


def _sum(grid, levels, masses, counts=None):
    """Return (transform, mean) of one sum of sources."""
    counts = np.ones(len(levels)) if counts is None else counts
    return (fourier_sum.product(grid.transforms(levels, masses), counts),
            counts @ (levels * masses).sum(axis=1))


class GridTestCase(unittest.TestCase):

    def tables(self, grid, levels, masses, counts=None):
        """Return the tail and the excess of one sum of sources."""
        spectrum, mean = _sum(grid, levels, masses, counts)
        [table] = grid.table(spectrum[None], np.array([mean]))
        return table.real, table.imag

    def assertEnumerated(self, levels, masses, tail, excess, atol):
        sums, shares = exact.enumerated(zip(levels, masses))
        for cell, (over, mean_above) in enumerate(zip(tail, excess)):
            # Rounding errors grow with the cells.
            delta = atol * (1 if cell < .7 * len(tail) else 1e3)
            self.assertAlmostEqual(shares[sums > cell + 1e-6].sum(), over,
                                   delta=delta)
            self.assertAlmostEqual(
                shares @ np.maximum(sums - cell, 0), mean_above,
                delta=delta * 1e3)


class TestOnTheGrid(GridTestCase):

    def test_whole_rates_are_the_enumeration(self):
        rng = np.random.default_rng(1)
        for cells, finer, largest in ((32, 1, 4), (32, 1, 12), (32, 1, 33),
                                      (8, 4, 36)):
            levels, masses = _random(rng, 6, 3, largest, on_grid=True)
            self.assertEnumerated(levels / finer, masses, *self.tables(
                fourier_sum.grid(cells, finer), levels / finer, masses),
                atol=1e-13)

    def test_so_many_of_one_are_its_power(self):
        grid = fourier_sum.grid(32)
        levels, masses = np.array([[0.0, 3.0]]), np.array([[.9, .1]])
        for count in (2, 5, 60):
            tail, _ = self.tables(grid, levels, masses, np.array([count]))
            tail_of_32 = math.fsum(
                math.comb(count, k) * .1 ** k * .9 ** (count - k)
                for k in range(11, count + 1))
            self.assertAlmostEqual(tail_of_32, tail[32], delta=1e-13)

    def test_a_source_far_above_the_capacity_is_above_while_it_is_on(self):
        grid = fourier_sum.grid(32)
        for level in (33.0, 200.0, 1e12):
            tail, _ = self.tables(grid, np.array([[0, level], [0, 2.0]]),
                                  np.array([[.75, .25], [.5, .5]]))
            self.assertAlmostEqual(.25, tail[32], delta=1e-13)
            if level > 33:
                # Of the cells above the capacity as well.
                np.testing.assert_allclose(tail[34:], .25, rtol=1e-9)

    def test_much_more_than_the_capacity_is_surely_above(self):
        grid = fourier_sum.grid(32)
        tail, _ = self.tables(grid, np.full((1, 2), 30.0), np.full((1, 2), .5),
                              np.array([4000]))
        np.testing.assert_allclose(tail, 1.0, rtol=1e-13)


class TestOffTheGrid(GridTestCase):

    def test_like_sources_of_any_rate_are_binomial(self):
        for rate, count, share, finer in ((.7313, 300, .3, 1),
                                          (.05171, 2000, .6, 8)):
            grid = fourier_sum.grid(128, finer, on_grid=False)
            tail, excess = self.tables(
                grid, np.array([[0, rate]]), np.array([[1 - share, share]]),
                np.array([count]))
            cells = np.arange(1, 129)
            for cell in cells[(tail[1:129] > 1e-9)].tolist():
                # A hundredth of the capacity more, and less.
                low, high = (self._binomial_tail(
                    count, share, math.floor((cell + by) / rate))
                    for by in (1.28, -1.28))
                self.assertGreaterEqual(high * (1 + 2e-3), tail[cell])
                self.assertLessEqual(low * (1 - 2e-3), tail[cell])

    @staticmethod
    def _binomial_tail(count, share, most):
        """Return P(more than ``most`` of ``count`` are on)."""
        return math.fsum(
            math.exp(math.lgamma(count + 1) - math.lgamma(k + 1)
                     - math.lgamma(count - k + 1) + k * math.log(share)
                     + (count - k) * math.log1p(-share))
            for k in range(max(most + 1, 0), count + 1))

    def test_many_of_any_kind_are_the_enumeration_within_a_cell_or_two(self):
        rng = np.random.default_rng(4)
        grid = fourier_sum.grid(128, on_grid=False)
        for _ in range(4):
            levels, masses = _random(rng, 16, 2, 40)
            tail, excess = self.tables(grid, levels, masses)
            sums, shares = exact.enumerated(zip(levels, masses))
            for cell in range(64, 127, 5):
                low, high = (shares[sums > cell + by].sum()
                             for by in (3, -3))
                self.assertLess(low * .999 - 1e-6, tail[cell])
                self.assertGreater(high * 1.001 + 1e-6, tail[cell])
                self.assertAlmostEqual(
                    1, excess[cell] / (shares @ np.maximum(sums - cell, 0)),
                    delta=.02)

    def test_a_spread_tail_has_no_waves_beside_a_step(self):
        grid = fourier_sum.grid(256, 8, False, 2.0)
        levels = np.array([[0, 83.37], [0, 168.81], [0, 1.3e-4]])
        masses = np.array([[.3, .7], [.6, .4], [.5, .5]])
        tail, excess = self.tables(grid, levels, masses)
        sums, shares = exact.enumerated(zip(levels, masses))
        for cell in range(2, 257):
            # Twelve cells of the grid are six standard deviations.
            low, high = (shares[sums > cell + by].sum() for by in (1.5, -1.5))
            self.assertLess(low - 1e-8, tail[cell])
            self.assertGreater(high + 1e-8, tail[cell])
            self.assertAlmostEqual(
                shares @ np.maximum(sums - cell, 0), excess[cell], delta=.1)

    def test_one_more_and_one_less_is_as_before(self):
        rng = np.random.default_rng(5)
        grid = fourier_sum.grid(128, on_grid=False)
        levels, masses = _random(rng, 40, 4, 20)
        start, means = _sum(grid, levels, masses)
        spectrum, mean = start, means
        other_levels, of_others = _random(rng, 20, 4, 30)
        for _ in range(100):
            for sign in (1.0, -1.0):
                for index in range(20):
                    factor, shift = _sum(
                        grid, other_levels[[index]], of_others[[index]],
                        np.array([sign]))
                    self.assertTrue(np.isfinite(factor).all())
                    spectrum, mean = spectrum * factor, mean + shift
        actual, expected = grid.table(np.stack([spectrum, start]),
                                      np.array([mean, means]))
        np.testing.assert_allclose(actual[:130], expected[:130],
                                   rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(actual[130:], expected[130:],
                                   rtol=1e-6, atol=1e-9)

    def test_sources_one_by_one_are_the_product_of_all_at_once(self):
        rng = np.random.default_rng(7)
        for grid in (fourier_sum.grid(128, on_grid=False),
                     fourier_sum.grid(64, 8, on_grid=False),
                     fourier_sum.grid(64, 8)):
            levels, masses = _random(rng, 150, 4, 6)
            # One of them above the grid.
            levels[3, 3] = 5000.0
            counts = rng.integers(1, 3, 150)
            expected, _ = _sum(grid, levels, masses, counts)
            spectrum = 1.0
            for index in range(150):
                # So few levels are transformed in another way.
                factor, _ = _sum(grid, levels[[index]], masses[[index]],
                                 counts[[index]])
                spectrum = spectrum * factor
            np.testing.assert_allclose(spectrum, expected, rtol=1e-9,
                                       atol=1e-15)


class TestCommonStep(unittest.TestCase):

    def test_it_is_the_largest_common_divisor(self):
        for rates, divisor in (((100, 100), 100), ((100, 250), 50),
                               ((333, 0), 333), ((.3, .1, .2), .1),
                               ((12 / 7, 30 / 7), 6 / 7),
                               ((1e9 / 3,), 1e9 / 3),
                               ((84, 126, 231), 21)):
            step = fourier_sum.common_step(
                np.array(rates, dtype=float), max(1000.0, 3 * max(rates)),
                10 ** 6)
            self.assertAlmostEqual(1, step / divisor, 9)

    def test_rates_that_floats_do_not_represent_have_their_divisor(self):
        rng = np.random.default_rng(7)
        for unit in (.1, .007, 1 / 3, 1.1e6):
            for count in (2, 3, 8):
                numbers = rng.integers(1, 2000, (count, 500))
                np.testing.assert_allclose(
                    fourier_sum.common_step(numbers * unit, 2000 * unit, 2048),
                    np.gcd.reduce(numbers) * unit, rtol=1e-12)

    def test_each_column_has_its_step_none_that_is_too_fine(self):
        np.testing.assert_allclose(fourier_sum.common_step(np.array([
            [100, 100 + math.pi, 0, .4, .5, 333],
            [250, 100, 0, .8, 0, 0]]), 1000.0, 2048),
            [50, 0, math.inf, 0, .5, 333])
