# SPDX-License-Identifier: Apache-2.0
"""Keeps the limits of the uplinks that hosts share, through a plan.

A move between hosts of one uplink does not change the load of the uplink. A
move from elsewhere adds the instance to the uplink, and a move to elsewhere
subtracts the instance. Pure. Derivation: reference/rebalance.rst, "Snapshot".
"""

import dataclasses

import numpy as np

__all__ = ['Uplink', 'Uplinks']

#: Sums and capacities are compared with this relative tolerance.
_TOLERANCE = 1e-9


@dataclasses.dataclass(eq=False)
class Uplink:
    """One uplink, and what its hosts send and receive together.

    :ivar inside: (h,) bool, whether a host is behind the uplink
    :ivar rates: list of (n, t) rates of the instances, one for each limit
    :ivar capacities: (l,) capacity of each limit
    :ivar sums: (l, t) of all instances behind the uplink, NaN if unknown
    :ivar alone: (l, t) bool, whether one instance alone exceeds the capacity
    :ivar overload_probability: limit E
    :ivar takes: whether instances may move to hosts behind it; False in debt
    """

    inside: np.ndarray
    rates: list
    capacities: np.ndarray
    sums: np.ndarray
    alone: np.ndarray
    overload_probability: float
    takes: bool = True

    def __post_init__(self):
        self._most = np.asarray(self.capacities)[:, None] * (1 + _TOLERANCE)
        self._above = self.alone.astype(np.int16)
        known_slots = np.count_nonzero(~np.isnan(self.sums).any(axis=0))
        #: Maximum number of slots of overload.
        self.limit = max(
            np.count_nonzero(self._overload(self.sums, self._above)),
            self.overload_probability * known_slots * (1 + _TOLERANCE))

    def copy(self):
        """Return an independent Uplink with the same limit."""
        copied = object.__new__(Uplink)
        copied.__dict__.update(self.__dict__, sums=self.sums.copy(),
                               _above=self._above.copy())
        return copied

    def _overload(self, sums, above):
        return ((sums > self._most) & (above == 0)).any(axis=0)

    def bears(self, instance):
        """Return whether one more instance keeps the limit.

        :param instance: row of the instance
        """
        rates = np.array([rates[instance] for rates in self.rates])
        return self.takes and np.count_nonzero(self._overload(
            self.sums + rates,
            self._above + (rates > self._most))) <= self.limit

    def count(self, instance, times):
        """Add an instance, or subtract it.

        :param instance: row of the instance
        :param times: 1 or -1
        """
        rates = np.array([rates[instance] for rates in self.rates])
        # Sums are packed, so that a difference can be below 0.
        self.sums = np.maximum(self.sums + times * rates, 0.0)
        self._above = np.maximum(
            self._above + times * (rates > self._most), 0).astype(np.int16)


class Uplinks:
    """The uplinks of a fleet, as a plan changes their loads.

    :param uplinks: list of :class:`Uplink`
    :param hosts: (n,) host of each instance
    :param rates_known: (n,) bool, whether the rates of an instance are known;
        otherwise it moves to no host behind an uplink from elsewhere
    :param stayed: (n,) bool, whether an instance was on its host for the whole
        time; the rates of other instances are not subtracted where they leave,
        because the sums possibly do not contain them
    """

    def __init__(self, uplinks, hosts, rates_known, stayed):
        self._uplinks = uplinks
        self._hosts = np.array(hosts, dtype=np.int64)
        self._known = rates_known
        self._stayed = stayed

    def copy(self):
        """Return independent Uplinks."""
        return Uplinks([uplink.copy() for uplink in self._uplinks],
                       self._hosts, self._known, self._stayed)

    def allowed(self, instances, hosts):
        """Return (m, k) bool: whether all uplinks permit each move.

        :param instances: rows of m instances
        :param hosts: numbers of k hosts
        """
        allowed = np.ones((len(instances), len(hosts)), dtype=bool)
        for uplink in self._uplinks:
            inside = uplink.inside[hosts]
            if not inside.any():
                continue
            for row, instance in enumerate(instances):
                if not uplink.inside[self._hosts[instance]] and not (
                        self._known[instance] and uplink.bears(instance)):
                    allowed[row, inside] = False
        return allowed

    def put(self, instance, destination):
        """Move an instance to another host.

        :param instance: row of the instance
        :param destination: number of the host that it joins
        """
        source, self._hosts[instance] = self._hosts[instance], destination
        for uplink in self._uplinks:
            leaves, joins = uplink.inside[[source, destination]]
            if joins and not leaves:
                uplink.count(instance, 1)
            elif leaves and not joins and self._stayed[instance]:
                uplink.count(instance, -1)
