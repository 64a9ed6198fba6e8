# SPDX-License-Identifier: Apache-2.0
"""The distribution of a sum of independent rates, by Fourier transform.

The transform of a sum is the product of the transforms of its sources: one
source more multiplies, one source less divides. :meth:`Grid.table` inverts
the product to a look-up table of the tail and of the mean excess. Rates are
counted in cells of a grid, above the lowest rate of their source. Pure; numpy
only.

Derivation: reference/model.rst, "The sum by Fourier transform".
"""

import functools

import numpy as np

__all__ = ['Grid', 'LEAST_PRODUCT', 'NEAR', 'TOLERANCE', 'common_step',
           'grid', 'table_cells']

#: Rates closer than this, relative to the capacity, are the same rate: a sum
#: equal to the capacity is not above the capacity, whatever its rounding.
TOLERANCE = 1e-9

#: Likewise of levels, in cells of a grid.
NEAR = 1e-6

#: By whether rates are on the grid: how many times the capacity the period is,
#: and the exponential tilting over it. What wraps around is e^-16 = 1.1e-7 or
#: e^-30 = 9e-14 of what it was, and rounding errors grow by e^8 or e^7.5 up to
#: the capacity.
_PERIODS = {False: (2, 16.0), True: (4, 30.0)}

#: Means that are more than that count as that.
_MOST = 1e200

#: A source whose transform is smaller somewhere is not divided by.
_LEAST_DIVISOR = 1e-3

#: Transforms of sources that are kept, 4 KiB each with 256 cells.
_MOST_KNOWN = 1024

#: Products that are smaller somewhere lose their accuracy.
LEAST_PRODUCT = 1e-250

#: Sources that are transformed at once, and so many levels in another way.
_TOGETHER = 128
_FEW_LEVELS = 24


def table_cells(cells):
    """Return how many cells tables have: 1.5 times the capacity.

    What is smoothed below 0 shows further up.

    :param cells: cells up to the capacity
    """
    return cells + cells // 2 + 2


@functools.lru_cache(maxsize=32)
def grid(cells, finer=1, on_grid=True):
    """Return the :class:`Grid`, which is made once."""
    return Grid(cells, finer, on_grid)


class Grid:
    """The frequencies at which sums are known, and the way back.

    :param cells: cells of the tables up to the capacity
    :param finer: cells of the grid in a cell of the tables
    :param on_grid: whether rates are rounded to cells of the grid; else they
        are not rounded, and the tail is smooth on the scale of a cell
    """

    def __init__(self, cells, finer, on_grid):
        reach, tilting = _PERIODS[on_grid]
        self._last, self._on_grid = (cells + 1) * finer, on_grid
        self._known = {}         # key -> transform of a source
        size = self._size = reach * cells * finer
        half = size // 2
        self.frequencies = half + 1
        self._tilt = tilting / size
        # Frequency number a * width + b is a coarse step and a fine one.
        width = self._width = 1 << (half.bit_length() // 2)
        angle = 2 * np.pi / size * np.arange(half + 1)
        tilted = self._tilt + 1j * angle
        # The fine steps with the tilt of all, and the coarse ones.
        self._turns = -np.append(tilted[:width], 1j * angle[::width])
        # 1 at frequency 0 and 0 at the last one, and so are seven derivatives.
        part = np.sin(angle / 2) ** 2
        window = (1 - part) ** 4 * (
            1 + 4 * part + 10 * part ** 2 + 20 * part ** 3)
        step = 1 / -np.expm1(-tilted)
        # Of the distribution function, and of its sum or integral.
        self._inverse = np.stack(
            [step, np.exp(-tilted) * step ** 2] if on_grid else
            [window / tilted, window / tilted ** 2])
        self._read = np.arange(table_cells(cells)) * finer
        # The second row is in cells of the tables.
        self._untilt = np.exp(self._tilt * self._read) / [[1], [finer]]
        self._finer = finer
        wrapped = np.exp(-tilting)
        self._ones = 1 / (1 - wrapped)
        self._constant = (-self._read * self._ones
                          - size * wrapped / (1 - wrapped) ** 2) / finer

    def _spectra(self, levels, masses):
        """Return the tilted transforms of some sources.

        :param levels: (n, m) cells >= 0
        :param masses: (n, m) their probabilities
        :returns: (n, frequencies) complex
        """
        if levels.size <= _FEW_LEVELS:
            # Few calls. The tilt is in the fine steps.
            turns = np.exp(levels[..., None] * self._turns)
            coarse = turns[..., self._width:].transpose(0, 2, 1)
            fine = turns[..., :self._width]
        else:
            angle = levels * (-2 * np.pi / self._size)
            turn = np.empty(levels.shape, dtype=complex)
            np.cos(angle, out=turn.real)
            np.sin(angle, out=turn.imag)
            fine, turn = _powers(turn, self._width)
            coarse, _ = _powers(turn, -(-self.frequencies // self._width))
            masses = masses * np.exp(-self._tilt * levels)
            # Contiguous, (n, a, m) times (n, m, b), for BLAS.
            coarse = coarse.transpose(1, 0, 2)
            fine = np.ascontiguousarray(fine.transpose(1, 2, 0))
        return (masses[:, None] * coarse @ fine).reshape(len(masses), -1)[
            :, :self.frequencies]

    def product(self, levels, masses, counts, keys=None):
        """Return the transform and the mean of the sum of some sources.

        :param levels: (n, m) cells of the tables, >= 0, of each source
        :param masses: (n, m) their probabilities
        :param counts: (n,) how many there are of a source; negative: divide
        :param keys: list of n keys, equal for sources with equal levels and
            masses only: transforms are kept by them; None: none is kept
        :returns: (frequencies,) complex, NaN where it cannot be divided, and
            cells of the tables
        """
        levels = levels * self._finer
        if self._on_grid:
            levels = np.rint(levels)
        mean = float(counts @ (masses * levels).sum(axis=1)) / self._finer
        # Of what is above the capacity alone, no more counts than that it is.
        levels[levels > self._last] = self._size
        found = np.ones(self.frequencies, complex)
        for begin in range(0, len(levels), _TOGETHER):
            some = slice(begin, begin + _TOGETHER)
            factors = self._factors(levels[some], masses[some],
                                    keys and keys[some])
            for i in np.flatnonzero(counts[some] != 1).tolist():
                count = counts[begin + i]
                if count < 0 and not np.abs(
                        factors[i]).min() > _LEAST_DIVISOR:
                    count = np.nan
                factors[i] **= count
            found *= np.multiply.reduce(factors, axis=0)
        return found, min(mean, _MOST)

    def _factors(self, levels, masses, keys):
        """Return the transforms of some sources, as of :meth:`product`."""
        if not keys:
            return self._spectra(levels, masses)
        # Other threads may use the grid, too.
        known = self._known
        if len(known) > _MOST_KNOWN:
            known = self._known = {}
        factors = [known.get(key) for key in keys]
        lacking = [i for i, one in enumerate(factors) if one is None]
        if lacking:
            for i, one in zip(lacking, self._spectra(
                    levels[lacking], masses[lacking])):
                factors[i] = known[keys[i]] = one.copy()
        return np.array(factors)

    def table(self, spectrum, mean):
        """Return the look-up table of a sum.

        :param spectrum: (frequencies,) as of :meth:`product`
        :param mean: its mean, in cells of the tables
        :returns: (n,) complex, at each of the first :func:`table_cells`: as
            the real part P(sum > it), as the imaginary part E[(sum - it)+] in
            cells of the tables. Above the capacity, a rate above it counts as
            more than any cell
        """
        period = np.fft.irfft(spectrum * self._inverse, self._size)
        period = period[:, :self._read[-1] + 1:self._finer] * self._untilt
        found = np.empty(self._read.size, complex)
        below = np.subtract(self._ones, period[0], out=found.real)
        np.maximum(below, 0.0, out=below)
        np.minimum(below, 1.0, out=below)
        excess = np.add(period[1], self._constant, out=found.imag)
        excess += mean * self._ones
        np.maximum(excess, 0.0, out=excess)
        return found


def _powers(numbers, count):
    """Return ``count`` powers of each number from 0 on, and the next one.

    :param numbers: (n, m) complex
    :param count: any, if only the powers are wanted; else a power of 2
    :returns: (count, n, m) and (n, m)
    """
    found = np.empty((count, *numbers.shape), dtype=complex)
    found[0] = 1.0
    have = 1
    while have < count:
        np.multiply(found[:min(have, count - have)], numbers,
                    out=found[have:2 * have])
        numbers = numbers * numbers
        have *= 2
    return found, numbers


def common_step(rates, capacity, most):
    """Return what all rates of a sum are whole multiples of.

    :param rates: array of rates >= 0
    :param capacity: of the sum; :data:`TOLERANCE` is relative to it
    :param most: how many steps there may be to the capacity
    :returns: 0 where there is none, inf where all rates are 0
    """
    step, left = np.inf, rates
    while True:
        left = left[left > TOLERANCE * capacity]
        if not left.size:
            return step
        # The least of what is left over, as in the algorithm of Euclid.
        step = float(left.min())
        if step * most < capacity * (1 - TOLERANCE):
            return 0.0
        left = np.abs(rates - step * np.rint(rates / step))
