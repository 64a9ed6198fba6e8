# SPDX-License-Identifier: Apache-2.0
"""The exact distribution of a sum of independent rates, up to a capacity.

:class:`AtomSum` keeps every distinct sum, :class:`LatticeSum` a lattice. Both
only add positive numbers and are therefore accurate to the last digits of
float64, even for very small tails. Sums above the capacity are only kept as
their probability and their mean excess. These classes are too slow for a
scheduler, which uses :mod:`.fourier_sum`; :mod:`.superposition` uses them.
Pure; immutable. Derivation: reference/model.rst, "Exact sums".
"""

from __future__ import annotations

import typing

import numpy as np

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import fourier_sum

__all__ = ['AtomSum', 'LatticeSum']


_CAPACITY = checks.number(high=np.inf, above=True)


def require_capacity(capacity: typing.Any) -> float:
    """Return the capacity as a float.

    :raises InvalidModel: if it is not a finite number > 0
    """
    return checks.check('capacity', capacity, _CAPACITY,
                        exceptions.InvalidModel)


class AtomSum:
    """Exact law of a sum: every distinct value up to the capacity.

    The caller limits their number.
    """

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self._sums = np.zeros(1)
        self._masses = np.ones(1)
        self.overflow = 0.0
        self.excess = 0.0

    def plus(self, values: np.ndarray, masses: np.ndarray) -> AtomSum:
        """Return the law of this sum plus an independent rate.

        :param values: (m,) rates, in any order
        """
        law = AtomSum(self.capacity)
        sums = np.add.outer(self._sums, values).ravel()
        weights = np.multiply.outer(self._masses, masses).ravel()
        tolerance = fourier_sum.TOLERANCE * self.capacity
        above = sums > self.capacity + tolerance
        law.overflow = self.overflow + weights[above].sum()
        law.excess = (self.excess + self.overflow * (values @ masses)
                      + weights[above] @ (sums[above] - self.capacity))
        sums, weights = sums[~above], weights[~above]
        order = np.argsort(sums, kind='stable')
        sums, weights = sums[order], weights[order]
        if sums.size:
            # A thousandth of the tolerance for the comparison with the
            # capacity, so that merged sums cannot drift across the capacity.
            new = np.diff(sums, prepend=-np.inf) > 1e-3 * tolerance
            sums = sums[new]
            weights = np.add.reduceat(weights, np.flatnonzero(new))
        law._sums, law._masses = sums, weights
        return law

    def tail(self, thresholds: np.ndarray) -> np.ndarray:
        """Return P(sum > threshold) for each threshold.

        :param thresholds: array of numbers <= capacity
        """
        tolerance = fourier_sum.TOLERANCE * self.capacity
        above = np.append(np.cumsum(self._masses[::-1])[::-1], 0.0)
        first = np.searchsorted(
            self._sums, np.asarray(thresholds) + tolerance, side='right')
        return np.where(np.asarray(thresholds) < -tolerance, 1.0,
                        self.overflow + above[first])

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """Return the rates unchanged, because this law does not round."""
        return values

    def between(self, low: float, high: float) -> float:
        """Return P(low < sum <= high).

        :param high: number <= capacity
        """
        tolerance = fourier_sum.TOLERANCE * self.capacity
        first, last = np.searchsorted(
            self._sums, [low + tolerance, high + tolerance], side='right')
        return float(self._masses[first:last].sum())


class LatticeSum:
    """Law of a sum on a lattice, rounded up (a safe bound) or down.

    The lowest rate of each source is kept exactly. Only the difference to the
    lowest rate is rounded to the grid.

    :ivar overflow: P(sum > capacity) of the rounded sum
    :ivar excess: E[(sum - capacity)+] of the rounded sum
    """

    def __init__(self, capacity: float, step: float,
                 round_up: bool = True) -> None:
        self.capacity = capacity
        self.step = step
        self._round_up = round_up
        self._base = 0.0
        self._masses = np.ones(1)   # cell j: the sum is _base + j * step
        self.overflow = 0.0
        self.excess = 0.0

    def plus(self, values: np.ndarray, masses: np.ndarray) -> LatticeSum:
        """Return the law of this sum plus an independent rate.

        :param values: (m,) rates, in any order
        """
        law = LatticeSum(self.capacity, self.step, self._round_up)
        lowest = values.min()
        law._base = self._base + lowest
        cells = self._cells_above(values, lowest)
        room = self.capacity - law._base
        last = law._cell(self.capacity)
        fits = cells <= last
        overflow, excess = _beyond(
            self._masses, cells[~fits], masses[~fits], self.step, room)
        law.overflow = self.overflow + overflow
        law.excess = self.excess + excess + self.overflow * (
            lowest + self.step * float(cells @ masses))
        spread = _convolved(self._masses, cells[fits].astype(np.int64),
                            masses[fits])
        if spread.size > last + 1:
            over = spread[last + 1:]
            j = np.arange(last + 1, spread.size)
            law.overflow += float(over.sum())
            law.excess += float(over @ (j * self.step - room))
            spread = spread[:last + 1]
        law._masses = spread
        return law

    def _cells_above(self, values: np.ndarray, lowest: float) -> np.ndarray:
        cells = (values - lowest) / self.step
        if self._round_up:
            return np.ceil(cells - fourier_sum.TOLERANCE)
        return np.floor(cells + fourier_sum.TOLERANCE)

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """Return the rates, rounded to the grid as in :meth:`plus`."""
        lowest = values.min()
        return lowest + self.step * self._cells_above(values, lowest)

    def _cell(self, threshold: float) -> int:
        # Last cell whose sum is not above the threshold; -1 if there is none.
        cell = np.floor((threshold - self._base) / self.step
                        + fourier_sum.TOLERANCE)
        return int(max(cell, -1.0))

    def tail(self, thresholds: np.ndarray) -> np.ndarray:
        """Return P(sum > threshold) for each threshold.

        :param thresholds: array of numbers <= capacity
        """
        above = np.append(np.cumsum(self._masses[::-1])[::-1], 0.0)
        cells = np.floor((np.asarray(thresholds, dtype=float) - self._base)
                         / self.step + fourier_sum.TOLERANCE)
        first = np.clip(cells + 1, 0, self._masses.size).astype(np.int64)
        return np.where(cells < 0, 1.0, self.overflow + above[first])

    def between(self, low: float, high: float) -> float:
        """Return P(low < sum <= high).

        :param high: number <= capacity
        """
        return float(self._masses[self._cell(low) + 1:
                                  self._cell(high) + 1].sum())


def _beyond(held, cells, masses, step, room):
    """Return the contribution of levels that exceed the capacity alone."""
    of_levels = float(masses @ (cells * step - room))
    of_held = step * float(held @ np.arange(held.size))
    levels, here = float(masses.sum()), float(held.sum())
    return levels * here, of_levels * here + levels * of_held


def _convolved(held, cells, masses):
    """Return the masses of a sum on the grid plus one source.

    :param cells: (m,) int64 cells of the source, in any order
    """
    spread = np.zeros(held.size + int(cells.max(initial=0)))
    for cell, mass in zip(cells.tolist(), masses.tolist()):
        spread[cell:cell + held.size] += mass * held
    return spread
