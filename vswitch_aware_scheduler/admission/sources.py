# SPDX-License-Identifier: Apache-2.0
"""Rate laws as arrays in the units of limits. Pure; numpy only."""

import functools
import itertools

import numpy as np

from vswitch_aware_scheduler.admission import slot_sums
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['Levels', 'Sources']

_ROW_BYTES = 8 * rate_law.LAW_COLUMNS


class Sources:
    """The laws of the instances of some hosts in one array.

    A law with fewer states than others repeats its last state with probability
    0. Sources are the last axis of all arrays, so that inner loops are long.

    :param counts: list with {RateLaw: number of instances} of each host; a
        negative number means that instances are removed
    :ivar laws: list of the n laws
    :ivar parts: list of slices, the sources of each host
    :ivar counts: (n,) float, number of instances
    :ivar masses: (m, n) probabilities of the states
    :ivar classed: (n,) number of instances of a source with classes, 0 for a
        source without classes
    :ivar bits: (n, 63) uint8, packed bits of the slots in which each source
        was high
    """

    def __init__(self, counts):
        self.laws = laws = list(itertools.chain.from_iterable(counts))
        ends = list(itertools.accumulate(map(len, counts), initial=0))
        self.parts = list(map(slice, ends, ends[1:]))
        self.counts = np.array(list(itertools.chain.from_iterable(
            one.values() for one in counts)), dtype=float)
        self._of = np.repeat(np.arange(len(counts)), list(map(len, counts)))
        lengths = list(map(len, laws))
        longest = max(lengths, default=len(rate_law.SILENT))
        packed = b''.join(
            laws if min(lengths, default=longest) == longest
            else [_padded(law, longest) for law in laws])
        whole = np.frombuffer(packed, np.uint8).reshape(-1, longest)
        tails = whole[:, -rate_law.TAIL_BYTES:]
        self.bits, self._low_states = tails[:, :-1], tails[:, -1]
        rows = np.ascontiguousarray(
            whole[:, : -rate_law.TAIL_BYTES].view('<f8').T
        ).reshape(
            longest // _ROW_BYTES - rate_law.TAIL_ROWS,
            rate_law.LAW_COLUMNS,
            len(laws),
        )
        self.masses, self._rates = rows[:, 0], rows[:, 1:].swapaxes(0, 1)
        self.classed = self.counts * (
            self._low_states
            < np.minimum(
                np.array(lengths, dtype=int) // _ROW_BYTES
                - rate_law.TAIL_ROWS,
                255,
            )
        )

    def values(self, weights, packet_bytes):
        """Return the (m, n) rates in a unit, as :meth:`.RateLaw.values` does.

        :param weights: weights of egress, ingress and packets in the unit
        :param packet_bytes: size of a packet in bytes, for laws without a
            packet rate
        """
        return _values(self._rates, weights, packet_bytes)

    def sums(self, values):
        """Return the sums of the quantities that can be added.

        :param values: (m, n) as returned by :meth:`values`
        :returns: (5, hosts): peaks, means, smallest rates, number of instances
            whose rates vary, and variances
        """
        least, most = values.min(axis=0), values.max(axis=0)
        above = values - least
        mean = (above * self.masses).sum(axis=0)
        above *= above
        above *= self.masses
        figures = np.array([most, least + mean, least, most > least,
                            above.sum(axis=0) - mean * mean]) * self.counts
        return np.array(list(map(self.by_host, figures)))

    def by_host(self, figures):
        """Return (hosts,) sums of a figure of each source.

        :param figures: (n,) a number of each source
        """
        return np.bincount(self._of, figures, len(self.parts))

    @functools.cached_property
    def shares(self):
        """(3, m, n) as returned by :func:`.slot_sums.class_shares`."""
        return slot_sums.class_shares(self.masses, self._low_states)


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
