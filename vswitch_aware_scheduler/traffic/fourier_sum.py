# SPDX-License-Identifier: Apache-2.0
"""The distribution of a sum of independent rates, by Fourier transform.

The transform of a sum is the product of the transforms of its sources.
:meth:`Grid.table` inverts the product to a look-up table of the tail and of
the mean excess. The rates of a source are counted in cells of a grid, above
the lowest rate of the source. Pure; numpy only. Derivation:
reference/model.rst, "The sum by Fourier transform".
"""

import functools

import numpy as np

__all__ = ['Grid', 'MOST', 'NEAR', 'TOLERANCE', 'common_step', 'grid',
           'product', 'table_cells']

#: Rates that differ by less than this, relative to the capacity, are equal. A
#: sum that equals the capacity is not above it, even after rounding.
TOLERANCE = 1e-9

#: The same tolerance for levels, in cells of a grid.
NEAR = 1e-6

#: A smaller remainder of a division, relative to the finest step, is none.
_NO_REMAINDER = 1e-3

#: Depending on whether rates are on the grid: ratio of the period to the
#: capacity, and exponential tilting over the period. Wrapped-around parts are
#: reduced by e^-16 = 1.1e-7 or e^-30 = 9e-14. Rounding errors grow by e^8 or
#: e^7.5 up to the capacity.
_PERIODS = {False: (2, 16.0), True: (4, 30.0)}

#: Larger means, in cells, count as this value, which float32 can store.
MOST = 1e30

#: Sources with up to this number of levels are transformed by another method.
_FEW_LEVELS = 24


def table_cells(cells: int) -> int:
    """Return the number of cells of a table: 1.5 times the capacity.

    Smoothing below 0 also affects the upper end of the table.
    """
    return cells + cells // 2 + 2


class Grid:
    """The frequencies at which sums are represented, and the inversion.

    :param cells: number of table cells up to the capacity
    :param on_grid: whether rates are rounded to cells of the grid; otherwise
        they are not rounded, and the tail is smooth on the scale of a cell
    :param spread: how a tail that is not on the grid is smoothed. 0 keeps the
        moments of the sum, but the tail is wrong beside a step. A larger
        number is the standard deviation, in grid cells, of a normal
        distribution, which moves steps but adds no waves beside them
    """

    def __init__(self, cells: int, finer: int = 1, on_grid: bool = True,
                 spread: float = 0.0) -> None:
        reach, tilting = _PERIODS[on_grid]
        self._last, self._on_grid = (cells + 1) * finer, on_grid
        size = self._size = reach * cells * finer
        half = size // 2
        self.frequencies = half + 1
        self._tilt = tilting / size
        # Frequency number a * width + b is a coarse step plus a fine step.
        width = self._width = 1 << (half.bit_length() // 2)
        angle = 2 * np.pi / size * np.arange(half + 1)
        tilted = self._tilt + 1j * angle
        # The fine steps include the tilt; the coarse steps do not.
        self._turns = -np.append(tilted[:width], 1j * angle[::width])
        # 1 at frequency 0, and 0 at the last one together with seven
        # derivatives.
        part = np.sin(angle / 2) ** 2
        window = np.exp((spread * tilted) ** 2 / 2) if spread else (
            1 - part) ** 4 * (1 + 4 * part + 10 * part ** 2 + 20 * part ** 3)
        step = 1 / -np.expm1(-tilted)
        # Row 0 gives the distribution function, row 1 its sum or integral.
        self._inverse = np.stack(
            [step, np.exp(-tilted) * step ** 2] if on_grid else
            [window / tilted, window / tilted ** 2])
        self._read = np.arange(table_cells(cells)) * finer
        # The second row is in table cells.
        self._untilt = np.exp(self._tilt * self._read) / [[1], [finer]]
        self._finer = finer
        wrapped = np.exp(-tilting)
        self._ones = 1 / (1 - wrapped)
        self._constant = (-self._read * self._ones
                          - size * wrapped / (1 - wrapped) ** 2) / finer

    def transforms(self, levels: np.ndarray, masses: np.ndarray) -> np.ndarray:
        """Return the tilted transforms of the given sources.

        :param levels: (n, m) levels of each source in table cells, >= 0
        :returns: (n, frequencies) complex
        """
        levels = levels * self._finer
        if self._on_grid:
            levels = np.rint(levels)
        # For a level above the capacity, only this fact matters.
        levels[levels > self._last] = self._size
        if levels.size <= _FEW_LEVELS:
            # Use few numpy calls. The fine steps include the tilt.
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
            # Contiguous arrays, (n, a, m) times (n, m, b), for BLAS.
            coarse = coarse.transpose(1, 0, 2)
            fine = np.ascontiguousarray(fine.transpose(1, 2, 0))
        return (masses[:, None] * coarse @ fine).reshape(len(masses), -1)[
            :, :self.frequencies]

    def table(self, spectra: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Return the look-up tables of the given sums.

        :param spectra: (s, frequencies) complex, transforms of the sums
        :param means: (s,) means of the sums in table cells
        :returns: (s, n) complex for the first :func:`table_cells` cells: the
            real part is P(sum > cell), the imaginary part E[(sum - cell)+] in
            table cells. A rate above the capacity counts as larger than any
            cell.
        """
        period = np.fft.irfft(spectra[:, None] * self._inverse, self._size)
        period = period[..., :self._read[-1] + 1:self._finer] * self._untilt
        tables = np.empty((len(period), self._read.size), complex)
        below = np.subtract(self._ones, period[:, 0], out=tables.real)
        np.maximum(below, 0.0, out=below)
        np.minimum(below, 1.0, out=below)
        excess = np.add(period[:, 1], self._constant, out=tables.imag)
        excess += np.minimum(means, MOST)[:, None] * self._ones
        np.maximum(excess, 0.0, out=excess)
        return tables


#: Return the :class:`Grid` with some arguments, which is created once.
grid = functools.lru_cache(maxsize=32)(Grid)


def _powers(numbers: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the powers 0 to ``count`` - 1 of each number, and the next one.

    :param count: number of powers; a power of 2 if the next power is used
    """
    powers = np.empty((count, *numbers.shape), dtype=complex)
    powers[0] = 1.0
    computed = 1
    while computed < count:
        np.multiply(powers[:min(computed, count - computed)], numbers,
                    out=powers[computed:2 * computed])
        numbers = numbers * numbers
        computed *= 2
    return powers, numbers


def product(transforms: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the transform of a sum of sources.

    :param transforms: (n, frequencies) transforms of n sources; overwritten
    """
    several = counts != 1
    if several.any():
        transforms[several] **= counts[several, None]
    return np.multiply.reduce(transforms)


def common_step(rates: np.ndarray, capacity: float, most: int) -> np.ndarray:
    """Return the largest step of which all rates are whole multiples.

    :param rates: (n, ...) rates >= 0, finite; the step of each column
    :param capacity: capacity of the sum; :data:`TOLERANCE` is relative to it
    :param most: maximum number of steps up to the capacity
    :returns: (...), 0 if there is no such step, inf if all rates are 0
    """
    step, left = np.full(rates.shape[1:], np.inf), rates
    finest = capacity / most * (1 - TOLERANCE)
    with np.errstate(divide='ignore', invalid='ignore'):
        while True:
            # The smallest remainder, as in the Euclidean algorithm. Remainders
            # far below the finest step are rounding errors.
            least = np.where(left > _NO_REMAINDER * finest, left, np.inf).min(
                axis=0)
            if not (least < np.inf).any():
                break
            left = np.where(left == least, step, left)
            step = np.where(least < np.inf, np.where(
                least < finest, 0.0, least), step)
            left = np.abs(left - step * np.rint(left / step))
        largest = rates.max(axis=0)
        step = largest / np.rint(largest / step)
        exact = np.abs(rates - step * np.rint(rates / step)).max(
            axis=0) <= TOLERANCE * capacity
    return np.where(largest > TOLERANCE * capacity, np.where(
        exact, step, 0.0), np.inf)
