# SPDX-License-Identifier: Apache-2.0
"""The class RateLaw: the long-run distribution of an instance's rates.

Pure.
"""

from __future__ import annotations

import numpy as np
from numpy import typing as npt

from vswitch_aware_scheduler.traffic import instants as sampled

__all__ = ['LAW_COLUMNS', 'MOST_ROWS', 'ROW_BYTES', 'RateLaw', 'SILENT',
           'split_laws']

#: Columns of a packed :class:`RateLaw`: probability, egress_kbps,
#: ingress_kbps and kpps; and bytes of a row.
LAW_COLUMNS = 4
ROW_BYTES = 8 * LAW_COLUMNS

#: Largest number of states of a law that has rows at instants.
MOST_ROWS = 32


class RateLaw(bytes):
    """The long-run distribution of an instance's rates, for admission.

    The object is its own packed form, because a scheduler stores and compares
    very many. It has n little-endian rows of :data:`LAW_COLUMNS` float64, one
    for each state. If the instance was sampled at the instants, one byte for
    each position in the ring follows (:mod:`.instants`). The contents are not
    validated: they come from a TrafficModel or from the store.
    """

    __slots__ = ()

    @classmethod
    def from_arrays(cls, probabilities: npt.ArrayLike, rates: npt.ArrayLike,
                    at_instants: npt.ArrayLike | None = None) -> RateLaw:
        """Create a law from arrays with one item for each state.

        :param probabilities: (n,) >= 0, sum 1
        :param rates: (n, 3) egress_kbps, ingress_kbps, kpps of each state
        :param at_instants: (504,) uint8, as in :class:`.TrafficModel`; None if
            the instance counts as independent of others
        """
        rates = np.asarray(rates, dtype=float)
        packed = np.empty((len(rates), LAW_COLUMNS), dtype='<f8')
        packed[:, 0] = probabilities
        packed[:, 1:] = rates
        return cls(packed.tobytes() + (
            b'' if at_instants is None
            else np.asarray(at_instants, np.uint8).tobytes()))

    @property
    def states(self) -> int:
        """Number of states, n."""
        return len(self) // ROW_BYTES - (
            sampled.INSTANTS // ROW_BYTES if self.is_sampled else 0)

    @property
    def is_sampled(self) -> bool:
        """Whether the instance was sampled at the instants."""
        return len(self) % ROW_BYTES != 0

    @property
    def _rows(self) -> np.ndarray:
        return np.frombuffer(self, '<f8', self.states * LAW_COLUMNS).reshape(
            -1, LAW_COLUMNS)

    @property
    def at_instants(self) -> np.ndarray | None:
        """(504,) uint8, as in :class:`.TrafficModel`, or None."""
        return np.frombuffer(self, np.uint8, offset=self.states * ROW_BYTES) \
            if self.is_sampled else None

    def independent(self) -> RateLaw:
        """Return the law of an instance that is independent of others."""
        return RateLaw(self[:self.states * ROW_BYTES])

    @property
    def probabilities(self) -> np.ndarray:
        """(n,) share of time in each state; sums to 1."""
        return self._rows[:, 0]

    @property
    def rates(self) -> np.ndarray:
        """(n, 3) egress_kbps, ingress_kbps, kpps of each state."""
        return self._rows[:, 1:]

    @property
    def packets_known(self) -> bool:
        """Whether the packet rate is known; not with bandwidth but kpps 0."""
        rates = self.rates
        return bool(rates[:, 2].any() or not rates[:, :2].any())

    @property
    def mean(self) -> np.ndarray:
        """(3,) long-run mean of egress_kbps, ingress_kbps and kpps."""
        return self.probabilities @ self.rates

    @property
    def peak(self) -> np.ndarray:
        """(3,) largest rate of any state, by column."""
        return self.rates.max(axis=0)

    def values(self, weights: npt.ArrayLike,
               packet_bytes: float | None = None) -> np.ndarray:
        """Return (n,) a linear function of the rates of each state.

        :param packet_bytes: mean packet size in bytes, used if the packet rate
            is unknown
        """
        return values_of(self.rates, weights, packet_bytes,
                         self.packets_known)


def values_of(rates: np.ndarray, weights: npt.ArrayLike,
              packet_bytes: float | None, packets_known: bool) -> np.ndarray:
    """Return (n,) a linear function of rates.

    :param rates: (n, 3) rates, see :data:`DIMENSIONS`
    :param packet_bytes: mean packet size in bytes, used if the packet rate is
        unknown; None: such packets do not count
    """
    weights = np.asarray(weights, dtype=float)
    values = rates @ weights
    if weights[2] and packet_bytes and not packets_known:
        # kbit/s over bits per packet is kilo-packets per second.
        values = values + weights[2] * (
            rates[:, 0] + rates[:, 1]) / (8.0 * packet_bytes)
    return values


def split_laws(packed: bytes, sizes: npt.ArrayLike) -> list[RateLaw]:
    """Return the list of RateLaws that were concatenated."""
    ends = np.cumsum(sizes).tolist()
    return [RateLaw(packed[start:end])
            for start, end in zip([0, *ends], ends)]


#: RateLaw of an instance that sends and receives nothing.
SILENT = RateLaw.from_arrays([1.0], [[0.0, 0.0, 0.0]])
