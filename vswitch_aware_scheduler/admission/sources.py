# SPDX-License-Identifier: Apache-2.0
"""Rate laws as arrays in the units of limits. Pure; numpy only."""

import functools

import numpy as np

from vswitch_aware_scheduler.admission import rows as admission_rows
from vswitch_aware_scheduler.admission import slot_sums
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['ACTIVE', 'CLASSED', 'KnownLaws', 'Levels', 'MOST_IN_PART', 'Part',
           'ROUNDED_MEAN', 'Sources', 'TOTALS', 'VARIANCE', 'divided']

_ROW_BYTES = 8 * rate_law.LAW_COLUMNS

#: Maximum number of different laws of a host that are one part. More are
#: divided into parts of 64 to 128 laws on average.
MOST_IN_PART = 128

# Columns of Sources.figures. The first three are peak, mean and smallest rate.
ACTIVE, VARIANCE, ROUNDED_MEAN, TOTALS, CLASSED, _LOW, _MORE, _STEP = (
    3, 4, 5, slice(6, 8), 8, slice(9, 11), slice(11, 13), 13)


class Sources:
    """The laws of some instances in one array.

    A law with fewer states than others repeats its last state with probability
    0. Sources are the last axis of all arrays, so that inner loops are long.

    :param laws: list of n >= 1 RateLaw
    :ivar masses: (m, n) probabilities of the states
    """

    def __init__(self, laws):
        lengths = list(map(len, laws))
        longest = max(lengths)
        whole = np.frombuffer(b''.join([
            law if len(law) == longest else _padded(law, longest)
            for law in laws]), np.uint8).reshape(-1, longest)
        self._low_states = whole[:, -1]
        self._states = np.array(lengths) // _ROW_BYTES - rate_law.TAIL_ROWS
        rows = np.ascontiguousarray(
            whole[:, :-rate_law.TAIL_BYTES].view('<f8').T).reshape(
                -1, rate_law.LAW_COLUMNS, len(laws))
        self.masses, self._rates = rows[:, 0], rows[:, 1:].swapaxes(0, 1)

    def values(self, weights, packet_bytes):
        """Return the (m, n) rates in a unit, as :meth:`.RateLaw.values` does.

        :param weights: weights of egress, ingress and packets in the unit
        :param packet_bytes: size of a packet in bytes, for laws without a
            packet rate
        """
        egress, ingress, packets = self._rates
        values = weights[0] * egress + weights[1] * ingress
        if weights[2]:
            values += weights[2] * np.where(
                packets.any(axis=0), packets,
                (egress + ingress) / (8.0 * packet_bytes))
        return values

    def figures(self, unit, capacity, most_steps):
        """Return what each source adds to the sums of a host.

        :param unit: (weights, packet bytes), as for :meth:`values`
        :param capacity: capacity of the sum
        :param most_steps: number of cells of a grid up to the capacity,
            ``most`` of :func:`.fourier_sum.common_step`
        :returns: (n, 14): peak; mean above the smallest rate; smallest rate;
            whether the rate varies; variance; the mean above the smallest
            rate if rates are rounded to the grid; mean and variance as in
            :func:`.slot_sums.class_moments` over all time; whether the source
            has classes; mean and variance while the source is low; the
            difference to them while the source is high; the common step of
            rates above the smallest rate
        """
        values = self.values(*unit)
        least, peaks = values.min(axis=0), values.max(axis=0)
        above = values - least
        weighted = above * self.masses
        means = weighted.sum(axis=0)
        weighted *= above
        rounded = np.rint(above * (most_steps / capacity))
        total, low, high = slot_sums.class_moments(
            values / capacity, self.shares)
        # A source that exceeds the capacity alone also exceeds it with others.
        above[above > capacity] = 0.0
        steps = fourier_sum.common_step(above, capacity, most_steps)
        have_classes = self._low_states < np.minimum(
            self._states, rate_law.MOST_LOW_STATES)
        return np.array([
            peaks, means, least, peaks > least,
            weighted.sum(axis=0) - means * means,
            (rounded * self.masses).sum(axis=0) * (capacity / most_steps),
            *total, have_classes, *low, *(high - low), steps]).T

    def transforms(self, grid, unit, step):
        """Return the (n, frequencies) transforms of the sources.

        :param grid: :class:`.fourier_sum.Grid`
        :param unit: (weights, packet bytes), as for :meth:`values`
        :param step: cell of the grid's tables
        """
        values = self.values(*unit)
        values -= values.min(axis=0)
        return grid.transforms((values / step).T, self.masses.T)

    @functools.cached_property
    def shares(self):
        """(3, m, n) as returned by :func:`.slot_sums.class_shares`."""
        return slot_sums.class_shares(self.masses, self._low_states)


class KnownLaws:
    """A cache of arrays that are computed from laws.

    :param most: number of cached arrays above which all are dropped
    """

    def __init__(self, most):
        self._most = most
        self._of_keys = {}       # key -> ({law: row}, Rows)

    def __len__(self):
        return sum(len(row_of) for row_of, _ in self._of_keys.values())

    def of(self, laws, key, compute):
        """Return the arrays of some laws; compute those that are not cached.

        :param laws: sequence of n different RateLaw
        :param key: hashable, with all that the arrays depend on besides laws
        :param compute: callable, :class:`Sources` of m laws -> (m, ...)
        :returns: (n, ...)
        """
        row_of, rows = self._of_keys.get(key, ({}, None))
        lacking = [law for law in laws if law not in row_of]
        if lacking:
            if len(self) + len(lacking) > self._most:
                self._of_keys, row_of, rows, lacking = {}, {}, None, laws
            values = compute(Sources(lacking))
            if rows is None:
                rows = admission_rows.Rows((values.dtype, values.shape[1:]))
                self._of_keys[key] = row_of, rows
            rows.expected = len(lacking)
            row_of.update((law, rows.take()) for law in lacking)
            rows.values[0][[row_of[law] for law in lacking]] = values
        return rows.values[0].take([row_of[law] for law in laws], axis=0)


def divided(counts):
    """Divide the laws of a host into parts. A change of one changes one part.

    :param counts: {law: number of instances}
    :returns: list of such dicts
    """
    # A power of 2, because all parts change with their number.
    parts = 1 << ((len(counts) - 1) // MOST_IN_PART).bit_length()
    divided_counts = [{} for _ in range(parts)]
    for law, count in counts.items():
        divided_counts[hash(law) % parts][law] = count
    return [part for part in divided_counts if part]


class Part:
    """The sum of some of the residents of a host.

    :param counts: tuple of (law, number of instances) of n laws
    :param limits: tuple of (unit, capacity) of l limits
    :param known: :class:`KnownLaws` of figures
    :param most_steps: as in :meth:`Sources.figures`
    :ivar sums: (l, 13) sums of the figures
    :ivar steps: (l, n) common steps of the laws
    """

    def __init__(self, counts, limits, known, most_steps):
        self._laws, amounts = zip(*counts)
        figures = known.of(self._laws, limits, lambda sources: np.array([
            sources.figures(unit, capacity, most_steps)
            for unit, capacity in limits]).swapaxes(0, 1))
        self._more = figures[..., _MORE]
        self._amounts = np.array(amounts, dtype=float)
        self.sums = (self._amounts @ figures.reshape(
            len(counts), -1)).reshape(figures.shape[1:])[:, :_STEP]
        self.steps = figures[..., _STEP].T
        self._transforms, self._in_slots = {}, {}

    def transform(self, grid, unit, step, known):
        """Return the transform of the sum.

        :param grid: as in :meth:`Sources.transforms`
        :param unit: as in :meth:`Sources.transforms`
        :param step: as in :meth:`Sources.transforms`
        :param known: :class:`KnownLaws` of transforms
        """
        key = grid, unit, step
        if key not in self._transforms:
            self._transforms[key] = fourier_sum.product(known.of(
                self._laws, key,
                lambda sources: sources.transforms(*key)), self._amounts)
        return self._transforms[key]

    def in_slots(self, position):
        """Return the (2, 504) mean and variance in each slot for a limit.

        :param position: position of the limit
        """
        if position not in self._in_slots:
            bits = b''.join([law[-rate_law.TAIL_BYTES:-1]
                             for law in self._laws])
            high = np.unpackbits(np.frombuffer(bits, np.uint8)).reshape(
                len(self._laws), -1).astype('<f4')
            more = self._amounts * self._more[:, position].T
            in_slots = self._in_slots[position] = more.astype('<f4') @ high
            in_slots += self.sums[position, _LOW, None]
        return self._in_slots[position]


class Levels:
    """The rates of one law in each of several units.

    :param law: RateLaw
    :param units: tuple of u (weights, packet bytes)
    :ivar masses: (n,) probabilities of the states
    :ivar values: (n, u) rates of the states
    :ivar means: (u,) mean rates
    :ivar peaks: (u,) peak rates
    :ivar shares: (3, n, 1) as returned by :func:`.slot_sums.class_shares`; (1,
        n, 1) without classes
    :ivar high: sorted numbers of the slots in which the source was high, or
        None without classes
    """

    def __init__(self, law, units):
        source = Sources([law])
        # Copy to contiguous arrays: look-ups read along the last axis.
        self.masses = source.masses[:, 0].copy()
        self.values = np.empty((self.masses.size, len(units)))
        for i, unit in enumerate(units):
            self.values[:, i] = source.values(*unit)[:, 0]
        self.means = (self.masses[:, None] * self.values).sum(axis=0)
        self.peaks = self.values.max(axis=0)
        self.shares, self.high = source.masses[None], None
        if law.has_classes:
            self.shares, self.high = source.shares, np.flatnonzero(law.high)


def _padded(law, length):
    """Return a law that repeats its last state with probability 0."""
    rates = law[-rate_law.TAIL_BYTES - _ROW_BYTES + 8:-rate_law.TAIL_BYTES]
    return b''.join([law[:-rate_law.TAIL_BYTES], (bytes(8) + rates) * (
        (length - len(law)) // _ROW_BYTES), law[-rate_law.TAIL_BYTES:]])
