# SPDX-License-Identifier: Apache-2.0
"""Rate laws as arrays in the units of limits. Pure; numpy only."""

import functools

import numpy as np

from vswitch_aware_scheduler.admission import slot_sums
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['CLASSED', 'KnownLaws', 'LOW', 'Levels', 'MORE', 'STEP', 'SUMS',
           'Sources', 'TOTALS', 'high_slots']

_ROW_BYTES = 8 * rate_law.LAW_COLUMNS

#: Number of laws whose values are computed together.
_TOGETHER = 128

# Columns of Sources.figures.
SUMS, TOTALS, LOW, MORE, CLASSED, STEP = (
    slice(0, 7), slice(7, 10), slice(10, 12), slice(12, 14), 9, 14)


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
        :returns: (n, 15). SUMS: peak, mean above the smallest rate, smallest
            rate, whether the rate varies, variance, whether rates above the
            smallest rate have no common step, and the mean of these rates if
            they are rounded to the grid. TOTALS: mean and variance as in
            :func:`.slot_sums.class_moments` over all time, and whether the
            source has classes. LOW: mean and variance while the source is low.
            MORE: difference to them while the source is high. STEP: the common
            step
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
            weighted.sum(axis=0) - means * means, steps == 0,
            (rounded * self.masses).sum(axis=0) * (capacity / most_steps),
            *total, have_classes, *low, *(high - low), steps]).T

    @functools.cached_property
    def shares(self):
        """(3, m, n) as returned by :func:`.slot_sums.class_shares`."""
        return slot_sums.class_shares(self.masses, self._low_states)


class KnownLaws:
    """A cache of values that are computed from laws.

    :param most: number of cached values above which all are dropped
    """

    def __init__(self, most):
        self._most = most
        self._values = {}        # key -> {law: value}

    def __len__(self):
        return sum(map(len, self._values.values()))

    def of(self, laws, key, compute):
        """Yield the value of each law; compute values that are not cached.

        :param laws: list of RateLaw
        :param key: hashable, with all that the values depend on besides laws
        :param compute: callable, :class:`Sources` -> sequence of their values
        """
        for begin in range(0, len(laws), _TOGETHER):
            chunk = laws[begin:begin + _TOGETHER]
            of_key = self._values.get(key, {})
            values = list(map(of_key.get, chunk))
            lacking = [i for i, value in enumerate(values) if value is None]
            if lacking:
                if len(self) > self._most:
                    self._values.clear()
                of_key = self._values.setdefault(key, {})
                for i, value in zip(lacking, compute(
                        Sources([chunk[i] for i in lacking]))):
                    values[i] = of_key[chunk[i]] = value
            yield from values


def high_slots(laws):
    """Return (n, 504) float32: 1 for each slot in which a source was high.

    :param laws: iterable of n RateLaw
    """
    bits = b''.join([law[-rate_law.TAIL_BYTES:-1] for law in laws])
    return np.unpackbits(np.frombuffer(bits, np.uint8)).reshape(
        -1, 8 * rate_law.BITS_BYTES).astype('<f4')


class Levels:
    """The rates of one law in each of several units.

    :param law: RateLaw
    :param source: :class:`Sources` of this law
    :param units: sized iterable of u (weights, packet bytes)
    :ivar masses: (n,) probabilities of the states
    :ivar values: (n, u) rates of the states
    :ivar means: (u,) mean rates
    :ivar peaks: (u,) peak rates
    :ivar shares: (3, n, 1) as returned by :func:`.slot_sums.class_shares`; (1,
        n, 1) without classes
    :ivar high: sorted numbers of the slots in which the source was high, or
        None without classes
    """

    def __init__(self, law, source, units):
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
