# SPDX-License-Identifier: Apache-2.0
"""First-fit on identical hosts, and the evaluation of the result.

Pure: arrays in, arrays out.
"""

import abc
import dataclasses

import numpy as np

__all__ = ['Clairvoyant', 'FirstFit', 'Judgement', 'judge']

#: Sums and shares are compared with this relative tolerance.
_TOLERANCE = 1e-9

#: Number of hosts that the clairvoyant computes together.
_BLOCK = 8


class FirstFit(abc.ABC):
    """Puts an instance on the first host that admits it.

    If there is none, the instance goes to a new host, even if the method's own
    rule would refuse it, because all methods must place the same instances.

    :ivar residents: one list of instances for each host, in order of arrival
    """

    def __init__(self):
        self.residents = []
        self._needs = None
        self._left = np.zeros((0, 0))

    def limit_resources(self, needs, room):
        """Also limit hosts by cores and memory.

        Call this before the first instance is placed.

        :param needs: (V, r) needs of each instance for each resource; no
            instance needs more than an empty host has
        :param room: (r,) capacity of a host for each resource
        """
        self._needs = needs
        self._room = np.asarray(room, dtype=float)
        self._left = np.zeros((0, self._room.size))

    def resources(self, instances, hosts):
        """Return (V, r) needs of instances and (hosts, r) free resources.

        :param instances: number V of instances
        :param hosts: number of hosts; those that are not in use yet are empty
        """
        if self._needs is None:
            return np.zeros((instances, 0)), np.zeros((hosts, 0))
        return self._needs, np.vstack([self._left, np.tile(
            self._room, (hosts - len(self._left), 1))])

    def has_room(self, instance):
        """Return (hosts,) bool: whether a host has enough cores and memory.

        :param instance: row of the instance
        """
        if self._needs is None:
            return np.ones(len(self.residents), dtype=bool)
        return (self._needs[instance]
                <= self._left + _TOLERANCE * self._room).all(axis=1)

    @abc.abstractmethod
    def learn(self, known):
        """Use what is known now, also for residents.

        :param known: :class:`.trace.Known`
        """

    @abc.abstractmethod
    def admitted(self, instance):
        """Return (hosts,) bool: whether a host admits one more instance.

        :param instance: row of the instance
        """

    @abc.abstractmethod
    def predicted(self):
        """Return (hosts,) overload probability that the method expects."""

    def added(self, host, instance):
        """Update the state after an instance joined a host.

        :param host: number of the host, possibly a new one
        :param instance: row of the instance
        """

    def place(self, instance, closed=None):
        """Put an instance on a host. Return the number of the host.

        :param instance: row of the instance in the trace
        :param closed: (hosts,) bool: hosts that accept no arrivals; default:
            none
        """
        candidates = ()
        if self.residents:
            used = np.array([len(rows) > 0 for rows in self.residents])
            admitted = self.admitted(instance) & self.has_room(instance)
            if closed is not None:
                admitted &= ~closed
            candidates = np.flatnonzero(admitted & used)
            if not candidates.size:
                # A host that moves have emptied is equivalent to a new one.
                candidates = np.flatnonzero(~used)
        if len(candidates):
            host = int(candidates[0])
        else:
            host = len(self.residents)
            self.open()
        if self._needs is not None:
            self._left[host] -= self._needs[instance]
        self.residents[host].append(instance)
        self.added(host, instance)
        return host

    def open(self):
        """Add an empty host."""
        self.residents.append([])
        if self._needs is not None:
            self._left = np.vstack([self._left, self._room])

    def move(self, instance, source, destination):
        """Move an instance from a host to another one.

        :param instance: row of the instance
        :param source: number of the host
        :param destination: number of the other host
        """
        self.residents[source].remove(instance)
        self.residents[destination].append(instance)
        if self._needs is not None:
            self._left[source] += self._needs[instance]
            self._left[destination] -= self._needs[instance]
        self.moved(source, destination)

    def moved(self, source, destination):
        """Update the state after an instance moved between hosts.

        :param source: number of the host
        :param destination: number of the other host
        """
        raise NotImplementedError(f'{type(self).__name__} moves nothing')


@dataclasses.dataclass(frozen=True, eq=False)
class Judgement:
    """What happened on each of h hosts.

    A host counts in the bins in which it has an instance.

    :ivar used: (h,) share of all bins in which the host counts
    :ivar overload: (h,) share of the host's bins with a sum above the capacity
    :ivar avoidable: (h,) share of the host's bins with such a sum in which no
        instance alone exceeds the capacity
    :ivar loss: traffic above the capacity divided by all traffic, of all hosts
    :ivar peak_hosts: largest number of hosts that count in one bin
    :ivar moves_per_instance_week: live migrations per instance and week
    :ivar migration_share: traffic of migrations, as a share of all traffic
    """

    overload: np.ndarray
    avoidable: np.ndarray
    loss: float
    used: np.ndarray
    peak_hosts: int
    moves_per_instance_week: float = 0.0
    migration_share: float = 0.0

    @property
    def mean_hosts(self):
        """Mean number of hosts that count."""
        return float(self.used.sum())

    @property
    def weighted(self):
        """Share of avoidable overload in the bins of all hosts together."""
        return (float(self.avoidable @ self.used / self.used.sum())
                if self.used.any() else 0.0)


def judge(residents, rates, from_bin, capacity):
    """Evaluate a packing on the traffic that followed.

    A host counts from the bin of its first instance on, an instance from its
    own bin on.

    :param residents: list of rows for each host
    :param rates: (V, T) kbit/s, 0 where there is no sample
    :param from_bin: (V,) bin from which on each instance is on its host
    :param capacity: capacity of each host in kbit/s
    :returns: Judgement
    """
    limit = capacity * (1 + _TOLERANCE)
    overload, avoidable, used = np.zeros((3, len(residents)))
    cut = carried = 0.0
    for host, rows in enumerate(residents):
        opened = min(int(from_bin[row]) for row in rows)
        total = np.zeros(rates.shape[1] - opened)
        alone = np.zeros(total.size, dtype=bool)
        for row in rows:
            first = int(from_bin[row])
            total[first - opened:] += rates[row, first:]
            alone[first - opened:] |= rates[row, first:] > limit
        above = total > limit
        used[host] = total.size / rates.shape[1]
        overload[host] = above.mean()
        avoidable[host] = (above & ~alone).mean()
        cut += float((total[above] - capacity).sum())
        carried += float(total.sum())
    return Judgement(overload, avoidable, cut / carried if carried else 0.0,
                     used, len(residents))


class Clairvoyant(FirstFit):
    """First-fit on the future traffic: the bound for comparison.

    A host accepts an instance if its share of avoidable overload remains
    within the limit, from its first instance to the end.

    :param rates: (V, T) kbit/s, 0 where there is no sample
    :param from_bin: (V,) bin from which on each instance would be on its host
    :param capacity: capacity of each host in kbit/s
    :param overload_probability: limit
    """

    def __init__(self, rates, from_bin, capacity, overload_probability):
        super().__init__()
        self._rates = rates
        self._from_bin = from_bin
        self._limit = capacity * (1 + _TOLERANCE)
        self._share = overload_probability * (1 + _TOLERANCE)
        bins = rates.shape[1]
        self._total = np.zeros((0, bins))
        self._alone = np.zeros((0, bins), dtype=bool)
        self._opened = np.zeros(0, dtype=np.int64)

    def learn(self, known):
        """Do nothing: everything is known.

        :param known: ignored
        """

    def _will_be(self, instance):
        first = self._from_bin[instance]
        future = np.zeros(self._rates.shape[1])
        future[first:] = self._rates[instance, first:]
        return future

    def _avoidable(self, hosts, future):
        above = self._total[hosts] + future > self._limit
        above &= ~self._alone[hosts]
        above &= future <= self._limit
        return (np.count_nonzero(above, axis=1)
                / (future.size - self._opened[hosts]))

    def admitted(self, instance):
        """Return (hosts,) bool, correct up to the first host that accepts it.

        :param instance: row of the instance
        """
        future = self._will_be(instance)
        result = np.zeros(len(self.residents), dtype=bool)
        has_room = self.has_room(instance)
        for first in range(0, result.size, _BLOCK):
            block = slice(first, min(first + _BLOCK, result.size))
            result[block] = self._avoidable(block, future) <= self._share
            if (result[block] & has_room[block]).any():
                break
        return result

    def predicted(self):
        """Return the share of avoidable overload, which is known."""
        hosts = slice(0, len(self.residents))
        return self._avoidable(hosts, np.zeros(self._rates.shape[1]))

    def added(self, host, instance):
        """Update the state after an instance joined a host.

        :param host: number of the host
        :param instance: row of the instance
        """
        if host == len(self._total):
            # Double the room; rows beyond the hosts are empty.
            size = max(_BLOCK, 2 * len(self._total))
            for name in ('_total', '_alone', '_opened'):
                old = getattr(self, name)
                new = np.zeros((size,) + old.shape[1:], dtype=old.dtype)
                new[:len(old)] = old
                setattr(self, name, new)
        if len(self.residents[host]) == 1:
            self._opened[host] = self._from_bin[instance]
        future = self._will_be(instance)
        self._total[host] += future
        self._alone[host] |= future > self._limit
