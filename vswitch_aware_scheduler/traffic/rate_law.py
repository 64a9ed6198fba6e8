# SPDX-License-Identifier: Apache-2.0
"""RateLaw: the long-run distribution of one instance's rates, packed.

Pure.
"""

import numpy as np

from vswitch_aware_scheduler.traffic import slots

__all__ = ['LAW_COLUMNS', 'RateLaw', 'SILENT', 'TAIL_BYTES', 'TAIL_ROWS',
           'split_laws']

#: Columns of a packed :class:`RateLaw`: probability, egress_kbps,
#: ingress_kbps and kpps.
LAW_COLUMNS = 4

#: Bytes of the bits of the sampled slots, and of those with the number of low
#: states behind them. They are as long as some rows of the states are.
BITS_BYTES = slots.SLOTS // 8
TAIL_BYTES = BITS_BYTES + 1
TAIL_ROWS = TAIL_BYTES // (8 * LAW_COLUMNS)

#: The number of low states is one byte.
MOST_LOW_STATES = 255


class RateLaw(bytes):
    """The long-run law of the rates of an instance: all that admission needs.

    It is its own packed form, for a scheduler holds and compares very many: n
    little-endian rows of :data:`LAW_COLUMNS` float64, low states first; a bit
    for each position of the ring of sampled slots, whether the instance was
    high (:func:`numpy.packbits`); and a byte, the number of low states. A law
    without classes has low states only, and no bit is set. Not validated: it
    is made by a TrafficModel or read back from one's record.
    """

    __slots__ = ()

    @classmethod
    def from_arrays(cls, probabilities, rates, high=None, low_states=None):
        """Pack a law.

        :param probabilities: (n,) >= 0, sum to 1
        :param rates: (n, 3) egress_kbps, ingress_kbps, kpps of each state
        :param high: (504,) bool by position in the ring, see :mod:`.slots`;
            None: the law has no classes
        :param low_states: how many of the states, from the first on, the
            instance has while it is low, 1..n; n or None: no classes
        """
        rates = np.asarray(rates, dtype=float)
        packed = np.empty((len(rates), LAW_COLUMNS), dtype='<f8')
        packed[:, 0] = probabilities
        packed[:, 1:] = rates
        bits = bytes(BITS_BYTES)
        if high is None or low_states is None or low_states >= len(rates):
            low_states = min(len(rates), MOST_LOW_STATES)
        else:
            bits = np.packbits(np.asarray(high, dtype=bool)).tobytes()
        return cls(packed.tobytes() + bits + bytes([low_states]))

    @property
    def _rows(self):
        return np.frombuffer(self, '<f8').reshape(
            -1, LAW_COLUMNS)[:-TAIL_ROWS]

    @property
    def probabilities(self):
        """(n,) share of time in each state; sums to 1."""
        return self._rows[:, 0]

    @property
    def high(self):
        """(504,) bool: whether the instance was high, by ring position."""
        return np.unpackbits(np.frombuffer(
            self[-TAIL_BYTES:-1], np.uint8)).astype(bool)

    @property
    def low_states(self):
        """How many of the n states are low ones; n: there are no classes."""
        states = len(self) // (8 * LAW_COLUMNS) - TAIL_ROWS
        return states if self[-1] >= MOST_LOW_STATES else self[-1]

    @property
    def has_classes(self):
        """Whether it is known in which slots the instance was high."""
        return self.low_states < len(self) // (8 * LAW_COLUMNS) - TAIL_ROWS

    def without_classes(self):
        """Return the law of an instance of which no slot is known."""
        return RateLaw.from_arrays(self.probabilities, self.rates)

    @property
    def rates(self):
        """(n, 3) egress_kbps, ingress_kbps, kpps of each state."""
        return self._rows[:, 1:]

    @property
    def packets_known(self):
        """Whether kpps says anything: False with bandwidth and no packets."""
        rates = self.rates
        return bool(rates[:, 2].any() or not rates[:, :2].any())

    @property
    def mean(self):
        """(3,) long-run mean of egress_kbps, ingress_kbps and kpps."""
        return self.probabilities @ self.rates

    @property
    def peak(self):
        """(3,) largest rate of any state, by column."""
        return self.rates.max(axis=0)

    def values(self, weights, packet_bytes=None):
        """Return (n,) of one linear function of the rates, state by state.

        :param weights: (3,) >= 0, see :data:`DIMENSIONS`
        :param packet_bytes: mean packet size that stands in where packets
            are not known
        """
        weights = np.asarray(weights, dtype=float)
        rates = self.rates
        values = rates @ weights
        if weights[2] and packet_bytes and not self.packets_known:
            # kbit/s over bits per packet is kilo-packets per second.
            values = values + weights[2] * (
                rates[:, 0] + rates[:, 1]) / (8.0 * packet_bytes)
        return values


def split_laws(packed, counts):
    """Return the list of RateLaws that stand one after the other.

    :param packed: bytes, the packed forms of n laws
    :param counts: (n,) int, number of states of each
    """
    ends = np.cumsum(np.multiply(counts, 8 * LAW_COLUMNS)
                     + TAIL_BYTES).tolist()
    return [RateLaw(packed[start:end])
            for start, end in zip([0, *ends], ends)]


#: RateLaw of an instance that sends and receives nothing.
SILENT = RateLaw.from_arrays([1.0], [[0.0, 0.0, 0.0]])
