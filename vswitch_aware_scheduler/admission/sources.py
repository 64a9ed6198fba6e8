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
    slice(0, 6), slice(6, 9), slice(9, 11), slice(11, 13), 8, 13)


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
        return _values(self._rates, weights, packet_bytes)

    def figures(self, unit, capacity, step, most):
        """Return what each source adds to the sums of a host.

        :param unit: (weights, packet bytes), as for :meth:`values`
        :param capacity: capacity of the sum
        :param step: width of a cell of a grid
        :param most: as in :func:`.fourier_sum.common_step`
        :returns: (n, 14). SUMS: peak, mean above the smallest rate, smallest
            rate, whether the rate varies, variance, and whether rates above
            the smallest rate are not on the grid. TOTALS: mean and variance as
            in :func:`.slot_sums.class_moments` over all time, and whether the
            source has classes. LOW: mean and variance while the source is low.
            MORE: difference to them while the source is high. STEP: the common
            step of the rates above the smallest rate
        """
        values = self.values(*unit)
        least, peaks = values.min(axis=0), values.max(axis=0)
        above = values - least
        weighted = above * self.masses
        means = weighted.sum(axis=0)
        weighted *= above
        levels = above / step
        off = (np.abs(levels - np.rint(levels)) > fourier_sum.NEAR).any(axis=0)
        total, low, high = slot_sums.class_moments(
            values / capacity, self._shares)
        # A source that exceeds the capacity alone also exceeds it with others.
        above[above > capacity] = 0.0
        return np.array([
            peaks, means, least, peaks > least,
            weighted.sum(axis=0) - means * means, off, *total,
            self._low_states < np.minimum(self._states, 255), *low,
            *(high - low), fourier_sum.common_step(above, capacity, most)]).T

    @functools.cached_property
    def _shares(self):
        return slot_sums.class_shares(self.masses, self._low_states)


class KnownLaws:
    """Values that follow from laws, cached.

    :param most: number of cached values above which all are dropped
    """

    def __init__(self, most):
        self._most = most
        self._values = {}

    def of(self, laws, key, compute):
        """Yield the value of each law.

        :param laws: list of RateLaw
        :param key: hashable, with all that the values depend on besides laws
        :param compute: callable, :class:`Sources` -> sequence of their values
        """
        for begin in range(0, len(laws), _TOGETHER):
            some = laws[begin:begin + _TOGETHER]
            found = [self._values.get((law, key)) for law in some]
            lacking = [i for i, one in enumerate(found) if one is None]
            if lacking:
                if len(self._values) > self._most:
                    self._values.clear()
                for i, one in zip(lacking, compute(
                        Sources([some[i] for i in lacking]))):
                    found[i] = self._values[some[i], key] = one
            yield from found


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
    :param unit_keys: tuple of u (weights, packet bytes)
    :ivar units: number u of units
    :ivar masses: (n,) probabilities of the states
    :ivar values: (n, u) rates of the states
    :ivar means: (u,) mean rates
    :ivar peaks: (u,) peak rates
    :ivar shares: (3, n, 1) as returned by :func:`.slot_sums.class_shares`; (1,
        n, 1) without classes
    :ivar high: sorted numbers of the slots in which the source was high, or
        None without classes
    """

    def __init__(self, law, unit_keys):
        self.units, self.masses = len(unit_keys), law.probabilities
        masses = self.masses[:, None]
        self.values = _values(law.rates.T[..., None], *_columns(unit_keys))
        self.means = (masses * self.values).sum(axis=0)
        self.peaks = self.values.max(axis=0)
        self.shares, self.high = masses[None], None
        if law.has_classes:
            self.shares = slot_sums.class_shares(masses, law.low_states)
            self.high = np.flatnonzero(law.high)


@functools.lru_cache(maxsize=64)
def _columns(unit_keys):
    """Return (3, u) weights and (u,) packet bytes; 1 of each without units."""
    keys = unit_keys or (((0.0, 0.0, 0.0), None),)
    return (np.array([weights for weights, _ in keys]).T,
            np.array([size or 1.0 for _, size in keys]))


def _values(rates, weights, packet_bytes):
    """Return rates in a unit, from an array of each of their columns.

    In several units if weights and packet sizes are arrays.
    """
    egress, ingress, packets = rates
    values = weights[0] * egress + weights[1] * ingress
    if np.any(weights[2]):
        values += weights[2] * np.where(
            packets.any(axis=0), packets,
            (egress + ingress) / (8.0 * packet_bytes))
    return values


def _padded(law, length):
    """Return a law that repeats its last state with probability 0."""
    rates = law[-rate_law.TAIL_BYTES - _ROW_BYTES + 8:-rate_law.TAIL_BYTES]
    return b''.join([law[:-rate_law.TAIL_BYTES], (bytes(8) + rates) * (
        (length - len(law)) // _ROW_BYTES), law[-rate_law.TAIL_BYTES:]])
