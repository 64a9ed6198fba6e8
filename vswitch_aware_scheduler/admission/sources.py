# SPDX-License-Identifier: Apache-2.0
"""Rate laws as arrays in the units of limits. Pure; numpy only."""

from collections import abc
import itertools
import typing

import numpy as np
from numpy import typing as npt

from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import instants as sampled
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['ACTIVE', 'HostPart', 'KnownLaws', 'Levels', 'MOST_IN_PART',
           'ROUNDED_MEAN', 'Rows', 'SAMPLED', 'Sources', 'VARIANCE', 'divided']

#: Weights of egress, ingress and packets in a unit, and the packet size in
#: bytes for laws without a packet rate.
Unit: typing.TypeAlias = tuple[tuple[float, ...], float | None]
#: Units and capacities of limits.
Limits: typing.TypeAlias = tuple[tuple[Unit, float], ...]
Counts: typing.TypeAlias = dict[rate_law.RateLaw, int]

#: Maximum number of different laws of a host that are one part. More are
#: divided into parts of 64 to 128 laws on average.
MOST_IN_PART = 128

# Columns of Sources.figures. The first three are peak, mean and smallest rate.
ACTIVE, VARIANCE, ROUNDED_MEAN, SAMPLED, _STEP = range(3, 8)


class Sources:
    """The laws of n instances in one array.

    A law with fewer states than others repeats its last state with probability
    0. Sources are the last axis of all arrays, so that inner loops are long.

    :ivar masses: (m, n) probabilities of the states
    """

    def __init__(self, laws: abc.Sequence[rate_law.RateLaw]) -> None:
        # Where the instance was sampled, bytes follow the rows.
        self._sampled = np.array([law.is_sampled for law in laws])
        rows = [law.independent() if is_sampled else law
                for law, is_sampled in zip(laws, self._sampled.tolist())]
        longest = max(map(len, rows))
        packed = np.frombuffer(b''.join([
            law if len(law) == longest else _padded(law, longest)
            for law in rows]), '<f8').reshape(len(laws), -1)
        arrays = np.ascontiguousarray(packed.T).reshape(
            -1, rate_law.LAW_COLUMNS, len(laws))
        self.masses = arrays[:, 0]
        self._rates: typing.Any = arrays[:, 1:].swapaxes(0, 1)

    def values(self, weights: abc.Sequence[float],
               packet_bytes: typing.Any) -> np.ndarray:
        """Return the (m, n) rates in a unit, as :meth:`.RateLaw.values`."""
        egress, ingress, packets = self._rates
        values = weights[0] * egress + weights[1] * ingress
        if weights[2]:
            values += weights[2] * np.where(
                packets.any(axis=0), packets,
                (egress + ingress) / (8.0 * packet_bytes))
        return values

    def figures(self, unit: Unit, capacity: float,
                most_steps: int) -> np.ndarray:
        """Return what each source adds to the sums of a host.

        :param most_steps: number of cells of a grid up to the capacity
        :returns: (n, 8): peak; mean above the smallest rate; smallest rate;
            whether the rate varies; variance; the mean above the smallest
            rate if rates are rounded to the grid; whether the instance was
            sampled at the instants; the common step of rates above the
            smallest rate
        """
        values = self.values(*unit)
        least, peaks = values.min(axis=0), values.max(axis=0)
        above = values - least
        weighted = above * self.masses
        means = weighted.sum(axis=0)
        weighted *= above
        rounded = np.rint(above * (most_steps / capacity))
        # A source that exceeds the capacity alone also exceeds it with others.
        above[above > capacity] = 0.0
        steps = fourier_sum.common_step(above, capacity, most_steps)
        return np.array([
            peaks, means, least, peaks > least,
            weighted.sum(axis=0) - means * means,
            (rounded * self.masses).sum(axis=0) * (capacity / most_steps),
            self._sampled, steps]).T

    def rows(self, weights: abc.Sequence[float],
             packet_bytes: float | None) -> np.ndarray:
        """Return the (n, 32) rates of the rows, above the smallest rate."""
        values = self.values(weights, packet_bytes)
        padded = np.zeros((values.shape[1], rate_law.MOST_ROWS))
        padded[:, :len(values)] = (values - values.min(axis=0)).T[
            :, :rate_law.MOST_ROWS]
        return padded

    def transforms(self, grid: fourier_sum.Grid, unit: Unit,
                   step: float) -> np.ndarray:
        """Return the (n, frequencies) transforms of the sources."""
        values = self.values(*unit)
        values -= values.min(axis=0)
        return grid.transforms((values / step).T, self.masses.T)


class Rows:
    """Arrays whose rows are allocated on demand.

    :param kinds: for each array, its dtype and the shape of a row
    :ivar values: list of the (n, ...) arrays; new arrays replace them when
        they grow
    """

    def __init__(self, *kinds: tuple[npt.DTypeLike, tuple[int, ...]]) -> None:
        self.values = [np.zeros((0, *shape), dtype=dtype)
                       for dtype, shape in kinds]
        #: Number of rows that are likely to be taken soon.
        self.expected = 0
        self._free = []

    def take(self) -> int:
        """Return the number of a free row. Its contents are undefined."""
        if not self._free:
            old_rows = len(self.values[0])
            new_rows = max(old_rows // 8, 16, self.expected)
            for i, old in enumerate(self.values):
                # Rows that were never used take no memory.
                grown = np.zeros((old_rows + new_rows, *old.shape[1:]),
                                 old.dtype)
                grown[:old_rows] = old
                self.values[i] = grown
            self._free.extend(range(old_rows + new_rows - 1, old_rows - 1, -1))
        return self._free.pop()

    def free(self, row: int) -> None:
        """Free a row."""
        self._free.append(row)


class KnownLaws:
    """A cache of arrays that are computed from laws."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_keys = {}       # key -> ({law: row}, Rows)

    def __len__(self) -> int:
        return sum(len(row_of) for row_of, _ in self._of_keys.values())

    def of(self, laws: abc.Sequence[rate_law.RateLaw], key: abc.Hashable,
           compute: abc.Callable[[Sources], np.ndarray]) -> np.ndarray:
        """Return the (n, ...) arrays of some laws, computed or cached.

        :param key: all that the arrays depend on besides laws
        """
        row_of, rows = self._of_keys.get(key, ({}, None))
        lacking = [law for law in laws if law not in row_of]
        if lacking:
            if len(self) + len(lacking) > self._most:
                self._of_keys, row_of, rows = {}, {}, None
                lacking = list(laws)
            values = compute(Sources(lacking))
            if rows is None:
                rows = Rows((values.dtype, values.shape[1:]))
                self._of_keys[key] = row_of, rows
            rows.expected = len(lacking)
            row_of.update((law, rows.take()) for law in lacking)
            rows.values[0][[row_of[law] for law in lacking]] = values
        return rows.values[0].take([row_of[law] for law in laws], axis=0)


def divided(counts: Counts) -> list[Counts]:
    """Divide the laws of a host so that a change of one changes one part."""
    # A power of 2, because all parts change with their number.
    parts = 1 << ((len(counts) - 1) // MOST_IN_PART).bit_length()
    divided_counts = [{} for _ in range(parts)]
    for law, count in counts.items():
        divided_counts[hash(law) % parts][law] = count
    return [part for part in divided_counts if part]


class HostPart:
    """The sum of some of the residents of a host.

    :ivar sums: (l, 7) sums of the figures
    :ivar largest: (l,) largest peak of one law
    :ivar steps: (l, n) common steps of the laws
    """

    def __init__(self, counts: tuple[tuple[rate_law.RateLaw, int], ...],
                 limits: Limits, known: KnownLaws,
                 most_steps: int) -> None:
        self._laws, amounts = zip(*counts)
        figures = known.of(self._laws, limits, lambda sources: np.array([
            sources.figures(unit, capacity, most_steps)
            for unit, capacity in limits]).swapaxes(0, 1))
        self.largest = figures[..., 0].max(axis=0)
        self._amounts = np.array(amounts, dtype=float)
        self._is_sampled = figures[:, 0, SAMPLED] > 0
        self.sums = (self._amounts @ figures.reshape(
            len(counts), -1)).reshape(figures.shape[1:])[:, :_STEP]
        self.steps = figures[..., _STEP].T
        self._transforms, self._at_instants = {}, {}

    def transform(self, grid: fourier_sum.Grid, unit: Unit, step: float,
                  known: KnownLaws, unsampled: bool = False) -> typing.Any:
        """Return the transform of the sum.

        :param unsampled: count only residents that were not sampled at the
            instants; there is at least one
        """
        key = grid, unit, step
        if (key, unsampled) not in self._transforms:
            wanted = ~(unsampled & self._is_sampled)
            laws = list(itertools.compress(self._laws, wanted))
            self._transforms[key, unsampled] = fourier_sum.product(
                known.of(laws, key, lambda sources: sources.transforms(*key)),
                self._amounts[wanted]) if laws else 1.0
        return self._transforms[key, unsampled]

    def at_instants(self, unit: Unit, known: KnownLaws) -> np.ndarray:
        """Return the sums of the sampled residents at the instants.

        :returns: (2, 504): sums in the unit, above the smallest rates, and the
            numbers of residents whose row was not drawn
        """
        if unit not in self._at_instants:
            total = np.zeros((2, sampled.INSTANTS))
            laws = list(itertools.compress(self._laws, self._is_sampled))
            if laws:
                values = known.of(laws, unit, lambda sources: sources.rows(
                    *unit))
                rows: np.ndarray = np.frombuffer(b''.join([
                    law[-sampled.INSTANTS:] for law in laws]), np.uint8
                    ).reshape(len(laws), -1)
                amounts = self._amounts[self._is_sampled]
                total[1] = amounts.sum()
                if rows.max() >= sampled.DRAWN:
                    total[1] -= amounts @ (rows >= sampled.DRAWN)
                    rows = rows & (sampled.DRAWN - 1)
                total[0] = amounts @ values.take(
                    rows + rate_law.MOST_ROWS * np.arange(len(laws))[:, None],
                    mode='clip')
            self._at_instants[unit] = total
        return self._at_instants[unit]


class Levels:
    """The rates of one law in each of u units.

    :ivar masses: (n,) probabilities of the states
    :ivar values: (n, u) rates of the states
    :ivar means: (u,) mean rates, as ``peaks``
    :ivar at_instants: (u, 504) rates at the instants; None if the instance was
        not sampled at them
    :ivar was_drawn: (504,) bool, whether the row of the instant was drawn
    """

    def __init__(self, law: rate_law.RateLaw, units: tuple[Unit, ...]) -> None:
        source = Sources([law])
        # Copy to contiguous arrays: look-ups read along the last axis.
        self.masses = source.masses[:, 0].copy()
        self.values = np.empty((self.masses.size, len(units)))
        for i, unit in enumerate(units):
            self.values[:, i] = source.values(*unit)[:, 0]
        self.means = (self.masses[:, None] * self.values).sum(axis=0)
        self.peaks = self.values.max(axis=0)
        self.at_instants, self.was_drawn = None, None
        rows = law.at_instants
        if rows is not None:
            self.was_drawn = rows >= sampled.DRAWN
            self.at_instants = self.values.T[
                :, rows & (sampled.DRAWN - 1)].copy()


def _padded(law: bytes, length: int) -> bytes:
    """Return a law that repeats its last state with probability 0."""
    return law + (bytes(8) + law[8 - rate_law.ROW_BYTES:]) * (
        (length - len(law)) // rate_law.ROW_BYTES)
