# SPDX-License-Identifier: Apache-2.0
"""Laws of rates as arrays in the units of limits. Pure; numpy only."""

import functools
import itertools

import numpy as np

from vswitch_aware_scheduler.admission import slot_sums
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['Levels', 'Sources']

_ROW_BYTES = 8 * rate_law.LAW_COLUMNS


class Sources:
    """The laws of the instances of some hosts in one array.

    A law of fewer states than others has its last one again, never. Sources
    are last in all arrays, so that loops are long.

    :param counts: list, {RateLaw: how many have it} of each host; negative: so
        many go
    :ivar laws: list of the n laws
    :ivar parts: list of the slice of the sources of each host
    :ivar counts: (n,) float
    :ivar masses: (m, n) probabilities of their states
    :ivar classed: (n,) how many there are of a source with classes, 0 where
        it has none
    :ivar bits: (n, 63) uint8: in which slots they were high, packed
    """

    def __init__(self, counts):
        self.laws = laws = list(itertools.chain.from_iterable(counts))
        ends = list(itertools.accumulate(map(len, counts), initial=0))
        self.parts = list(map(slice, ends, ends[1:]))
        self.counts = np.array(list(itertools.chain.from_iterable(
            one.values() for one in counts)), dtype=float)
        self._of = None if len(counts) == 1 else np.repeat(
            np.arange(len(counts)), np.diff(ends))
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
        """Return the (m, n) rates in a unit, as :meth:`.RateLaw.values`."""
        egress, ingress, packets = self._rates
        values = weights[0] * egress + weights[1] * ingress
        if weights[2]:
            values += weights[2] * np.where(
                packets.any(axis=0), packets,
                (egress + ingress) / (8.0 * packet_bytes))
        return values

    def sums(self, values):
        """Return the sums of what adds up.

        :param values: (m, n) as of :meth:`values`
        :returns: (5, hosts) peaks, means, least rates, how many of them vary,
            and variances
        """
        least, most = values.min(axis=0), values.max(axis=0)
        above = values - least
        mean = (above * self.masses).sum(axis=0)
        above *= above
        above *= self.masses
        figures = np.array([most, least + mean, least, most > least,
                            above.sum(axis=0) - mean * mean]) * self.counts
        if self._of is None:
            return figures.sum(axis=1, keepdims=True)
        return np.array([np.bincount(self._of, one, len(self.parts))
                         for one in figures])

    @functools.cached_property
    def shares(self):
        """(3, m, n) as of :func:`.slot_sums.class_shares`."""
        return slot_sums.class_shares(self.masses, self._low_states)


class Levels:
    """What one law is in each of some units.

    :ivar units: how many
    :ivar masses: (n,) probabilities of its states
    :ivar values: (n, u) rates of its states
    :ivar means: (u,)
    :ivar peaks: (u,)
    :ivar shares: (3, n, 1) as of :func:`.slot_sums.class_shares`; (1, n, 1)
        where it has no classes
    :ivar high: sorted numbers of the slots in which it was high, or None: it
        has no classes
    """

    def __init__(self, law, unit_keys):
        sources = Sources([{law: 1}])
        self.units, self.masses = len(unit_keys), sources.masses[:, 0]
        self.values = np.stack([sources.values(*key)[:, 0]
                                for key in unit_keys]
                               or [np.zeros(self.masses.size)], axis=1)
        self.means = self.masses @ self.values
        self.peaks = self.values.max(axis=0)
        self.shares, self.high = sources.masses[None], None
        if law.has_classes:
            self.shares = sources.shares
            self.high = np.flatnonzero(law.high)


def _padded(law, length):
    """Return a law with its last state again, never, up to so many bytes."""
    rates = law[-rate_law.TAIL_BYTES - _ROW_BYTES + 8:-rate_law.TAIL_BYTES]
    return b''.join([law[:-rate_law.TAIL_BYTES], (bytes(8) + rates) * (
        (length - len(law)) // _ROW_BYTES), law[-rate_law.TAIL_BYTES:]])
