# SPDX-License-Identifier: Apache-2.0
"""The class RateLaw: the long-run distribution of an instance's rates.

Pure.
"""

import numpy as np

from vswitch_aware_scheduler.traffic import slots

__all__ = ['LAW_COLUMNS', 'RateLaw', 'SILENT', 'TAIL_BYTES', 'TAIL_ROWS',
           'split_laws']

#: Columns of a packed :class:`RateLaw`: probability, egress_kbps,
#: ingress_kbps and kpps.
LAW_COLUMNS = 4

#: Bytes of the bits of the sampled slots, and bytes including the number of
#: low states. This is as long as TAIL_ROWS rows of the states.
BITS_BYTES = slots.SLOTS // 8
TAIL_BYTES = BITS_BYTES + 1
TAIL_ROWS = TAIL_BYTES // (8 * LAW_COLUMNS)

#: Largest number of low states, which is one byte.
MOST_LOW_STATES = 255


class RateLaw(bytes):
    """The long-run distribution of an instance's rates, for admission.

    The object is its own packed form, because a scheduler stores and compares
    very many. It has n little-endian rows of :data:`LAW_COLUMNS` float64, low
    states first. Then follow one bit for each position of the ring of sampled
    slots, whether the instance was high (:func:`numpy.packbits`), and one
    byte, the number of low states. A law without classes has only low states
    and no bit set. The contents are not validated: they come from a
    TrafficModel or from the store.
    """

    __slots__ = ()

    @classmethod
    def from_arrays(cls, probabilities, rates, high=None, low_states=None):
        """Create a law from arrays with one item for each state.

        :param probabilities: (n,) >= 0, sum 1
        :param rates: (n, 3) egress_kbps, ingress_kbps, kpps of each state
        :param high: (504,) bool by position in the ring, see :mod:`.slots`;
            None for a law without classes
        :param low_states: number of low states, which come first, 1..n; n or
            None for a law without classes
        :returns: RateLaw
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
        """Number of the n states that are low; n without classes."""
        states = len(self) // (8 * LAW_COLUMNS) - TAIL_ROWS
        return states if self[-1] >= MOST_LOW_STATES else self[-1]

    @property
    def has_classes(self):
        """Whether the slots in which the instance was high are known."""
        return self.low_states < len(self) // (8 * LAW_COLUMNS) - TAIL_ROWS

    def without_classes(self):
        """Return the law without classes and slots."""
        return RateLaw.from_arrays(self.probabilities, self.rates)

    @property
    def rates(self):
        """(n, 3) egress_kbps, ingress_kbps, kpps of each state."""
        return self._rows[:, 1:]

    @property
    def packets_known(self):
        """Whether the packet rate is known; not with bandwidth but kpps 0."""
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
        """Return (n,) a linear function of the rates of each state.

        :param weights: (3,) >= 0, see :data:`DIMENSIONS`
        :param packet_bytes: mean packet size in bytes, used if the packet rate
            is unknown
        """
        return values_of(self.rates, weights, packet_bytes,
                         self.packets_known)


def values_of(rates, weights, packet_bytes, packets_known):
    """Return (n,) a linear function of rates.

    :param rates: (n, 3) rates, see :data:`DIMENSIONS`
    :param weights: (3,) >= 0
    :param packet_bytes: mean packet size in bytes, used if the packet rate is
        unknown; None: such packets do not count
    :param packets_known: whether the packet rate was measured
    """
    weights = np.asarray(weights, dtype=float)
    values = rates @ weights
    if weights[2] and packet_bytes and not packets_known:
        # kbit/s over bits per packet is kilo-packets per second.
        values = values + weights[2] * (
            rates[:, 0] + rates[:, 1]) / (8.0 * packet_bytes)
    return values


def split_laws(packed, counts):
    """Return the list of RateLaws that were concatenated.

    :param packed: bytes of n laws, one after the other
    :param counts: (n,) int, number of states of each
    """
    ends = np.cumsum(np.multiply(counts, 8 * LAW_COLUMNS)
                     + TAIL_BYTES).tolist()
    return [RateLaw(packed[start:end])
            for start, end in zip([0, *ends], ends)]


#: RateLaw of an instance that sends and receives nothing.
SILENT = RateLaw.from_arrays([1.0], [[0.0, 0.0, 0.0]])
