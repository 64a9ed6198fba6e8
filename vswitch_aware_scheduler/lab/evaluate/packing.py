# SPDX-License-Identifier: Apache-2.0
"""First-fit on identical hosts.

Pure: arrays in, arrays out.
"""

import abc
import heapq

import numpy as np

from vswitch_aware_scheduler.lab.evaluate import measures

__all__ = ['Clairvoyant', 'FirstFit', 'STAYS']

#: End of the bins of an instance that does not leave.
STAYS = np.iinfo(np.int64).max

_TOLERANCE = measures.TOLERANCE

#: Number of hosts that the clairvoyant computes together.
_BLOCK = 8


class FirstFit(abc.ABC):
    """Puts an instance on the first host that admits it.

    If there is none, the instance goes to a new host, even if the method's own
    rule would refuse it, because all methods must place the same instances.

    :ivar residents: one list of instances for each host, in order of arrival
    """

    def __init__(self) -> None:
        self.residents = []
        self.stays = []
        self._current = {}       # stay of each resident
        self._departures = []    # heap of (end, instance)
        self._needs = None
        self._left = np.zeros((0, 0))

    def limit_resources(self, needs, room: np.ndarray) -> None:
        """Also limit hosts by cores and memory.

        Call this before the first instance is placed.

        :param needs: (V, r) needs of each instance for each resource; no
            instance needs more than an empty host has
        :param room: (r,) capacity of a host for each resource
        """
        self._needs = needs
        self._room = np.asarray(room, dtype=float)
        self._left = np.zeros((0, self._room.size))

    def resources(self, instances: int, hosts: int) -> tuple:
        """Return (V, r) needs of instances and (hosts, r) free resources."""
        if self._needs is None:
            return np.zeros((instances, 0)), np.zeros((hosts, 0))
        return self._needs, np.vstack([self._left, np.tile(
            self._room, (hosts - len(self._left), 1))])

    def has_room(self, instance: int) -> np.ndarray:
        """Return (hosts,) bool: whether a host has enough cores and memory."""
        if self._needs is None:
            return np.ones(len(self.residents), dtype=bool)
        return (self._needs[instance]
                <= self._left + _TOLERANCE * self._room).all(axis=1)

    @abc.abstractmethod
    def learn(self, known):
        """Use what is known now, also for residents."""

    @abc.abstractmethod
    def admitted(self, instance: int) -> np.ndarray:
        """Return (hosts,) bool: whether a host admits one more instance."""

    @abc.abstractmethod
    def predicted(self) -> np.ndarray:
        """Return (hosts,) overload probability that the method expects."""

    def suppose(self, instance: int, source: int, destination: int) -> None:
        """Judge hosts as if an instance had moved, until :meth:`changed`."""

    def set_debts(self, debts: dict) -> None:
        """Set which hosts are in debt, if the method places by budgets.

        :param debts: {('host', number): :class:`.budgets.Debt`}
        """

    def last(self) -> np.ndarray:
        """Return (hosts,) bool: whether all other hosts come first."""
        return np.zeros(len(self.residents), dtype=bool)

    def changed(self, host: int) -> None:
        """Update the state after the residents of a host changed."""

    def host_of(self, instance: int) -> int:
        """Return the number of the host of an instance, or -1."""
        stay = self._current.get(instance)
        return -1 if stay is None else stay[1]

    def place(self, instance: int, first: int = 0, end: int = STAYS) -> int:
        """Put an instance on a host. Return the number of the host."""
        candidates = ()
        if self.residents:
            used = np.array([len(rows) > 0 for rows in self.residents])
            admitted = self.admitted(instance) & self.has_room(instance)
            candidates = np.flatnonzero(admitted & used)
            candidates = candidates[np.argsort(self.last()[candidates],
                                               kind='stable')]
            if not candidates.size:
                # A host that moves have emptied is equivalent to a new one.
                candidates = np.flatnonzero(~used)
        if len(candidates):
            host = int(candidates[0])
        else:
            host = len(self.residents)
            self.open()
        self._join(instance, host, first, end)
        if end != STAYS:
            heapq.heappush(self._departures, (end, instance))
        return host

    def _join(self, instance, host, first, end):
        if self._needs is not None:
            self._left[host] -= self._needs[instance]
        self.residents[host].append(instance)
        self._current[instance] = stay = [instance, host, first, end]
        self.stays.append(stay)
        self.changed(host)

    def _leave(self, instance):
        stay = self._current.pop(instance)
        host = stay[1]
        if self._needs is not None:
            self._left[host] += self._needs[instance]
        self.residents[host].remove(instance)
        self.changed(host)
        return stay

    def open(self) -> None:
        """Add an empty host."""
        self.residents.append([])
        if self._needs is not None:
            self._left = np.vstack([self._left, self._room])

    def end_stays(self, now: int) -> list[int]:
        """Remove the instances that have left. Return their rows."""
        gone = []
        while self._departures and self._departures[0][0] <= now:
            gone.append(heapq.heappop(self._departures)[1])
            self._leave(gone[-1])
        return gone

    def move(self, instance: int, destination: int, now: int) -> None:
        """Move an instance to another host.

        :param now: first bin of the instance on that host
        """
        stay = self._leave(instance)
        end = stay[3]
        stay[3] = min(end, now)
        self._join(instance, destination, now, end)


class Clairvoyant(FirstFit):
    """First-fit on the future traffic: the bound for comparison.

    A host accepts an instance if its share of avoidable overload remains
    within the limit, from its first instance to the end.

    :param rates: (V, T) kbit/s, 0 where there is no sample
    :param arrivals: (V,) bin from which on each instance would be on its host
    :param departures: (V,) end of the bins of each instance
    :param capacity: capacity of each host in kbit/s
    """

    def __init__(self, rates, arrivals: np.ndarray, departures: np.ndarray,
                 capacity: float, overload_probability: float) -> None:
        super().__init__()
        self._rates = rates
        self._arrivals, self._departs = arrivals, departures
        self._limit = capacity * (1 + _TOLERANCE)
        self._share = overload_probability * (1 + _TOLERANCE)
        bins = rates.shape[1]
        self._total = np.zeros((0, bins))
        self._alone, self._used = np.zeros((2, 0, bins), dtype=bool)

    def learn(self, known) -> None:
        """Do nothing: everything is known."""

    def _will_be(self, instance):
        """Return the rates and the presence of an instance in all bins."""
        present = np.zeros(self._rates.shape[1], dtype=bool)
        present[self._arrivals[instance]:self._departs[instance]] = True
        return np.where(present, self._rates[instance], 0.0), present

    def _avoidable(self, hosts, future, present):
        above = self._total[hosts] + future > self._limit
        above &= ~self._alone[hosts]
        above &= future <= self._limit
        return (np.count_nonzero(above, axis=1) / np.maximum(
            np.count_nonzero(self._used[hosts] | present, axis=1), 1))

    def admitted(self, instance: int) -> np.ndarray:
        """Return (hosts,) bool, correct up to the first host that accepts."""
        future = self._will_be(instance)
        result = np.zeros(len(self.residents), dtype=bool)
        possible = self.has_room(instance) & np.array(
            [len(rows) > 0 for rows in self.residents], dtype=bool)
        for first in range(0, result.size, _BLOCK):
            block = slice(first, min(first + _BLOCK, result.size))
            result[block] = self._avoidable(block, *future) <= self._share
            if (result[block] & possible[block]).any():
                break
        return result

    def predicted(self):
        """Return the share of avoidable overload, which is known."""
        hosts, bins = slice(0, len(self.residents)), self._rates.shape[1]
        return self._avoidable(hosts, np.zeros(bins),
                               np.zeros(bins, dtype=bool))

    def place(self, instance: int, first: int = 0, end: int = STAYS) -> int:
        """Put an instance on a host, as :meth:`FirstFit.place`."""
        host = super().place(instance, first, end)
        if host == len(self._total):
            # Double the room; rows beyond the hosts are empty.
            size = max(_BLOCK, 2 * len(self._total))
            for name in ('_total', '_alone', '_used'):
                old = getattr(self, name)
                new = np.zeros((size,) + old.shape[1:], dtype=old.dtype)
                new[:len(old)] = old
                setattr(self, name, new)
        future, present = self._will_be(instance)
        self._total[host] += future
        self._alone[host] |= future > self._limit
        self._used[host] |= present
        return host
