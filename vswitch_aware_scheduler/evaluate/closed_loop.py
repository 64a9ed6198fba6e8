# SPDX-License-Identifier: Apache-2.0
"""Replays arrivals and live migrations, period after period.

A :class:`Replay` simulates one fleet: a :class:`.packing.FirstFit` places
arriving instances, and a :class:`Strategy` moves instances at the end of each
period, using only what telemetry has delivered by then. Pure; the caller
passes the random generator. Derivation: reference/rebalance.rst, "Replay".
"""

import abc
import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler.evaluate import packing
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.rebalance import cost
from vswitch_aware_scheduler.rebalance import relief

__all__ = ['Conditions', 'Fleet', 'Replay', 'Strategy']

#: Sums and capacities are compared with this relative tolerance.
_TOLERANCE = 1e-9

#: Number of empty hosts that a strategy sees in addition to used hosts.
_NEW_HOSTS = 16


@dataclasses.dataclass(frozen=True)
class Conditions:
    """The conditions under which instances are moved.

    :ivar period_seconds: seconds between two rounds of decisions
    :ivar delay_seconds: age of the newest known samples
    :ivar missing_share: share of all samples, at random, that never arrive
    :ivar failing_share: share of all migrations, at random, that fail
    :ivar memory_mib: data that a migration transfers, in MiB
    :ivar switch_share: share of the capacity of both hosts that a migration
        uses while it runs; 0: migrations use a separate network and end within
        the period
    """

    period_seconds: float = 900.0
    delay_seconds: float = 0.0
    missing_share: float = 0.0
    failing_share: float = 0.0
    memory_mib: float = 8192.0
    switch_share: float = 0.0

    def __post_init__(self):
        for name, least, most in (
                ('period_seconds', 1, math.inf),
                ('delay_seconds', 0, math.inf), ('missing_share', 0, 1),
                ('failing_share', 0, 1), ('memory_mib', 0, math.inf),
                ('switch_share', 0, 1)):
            value = getattr(self, name)
            if not least <= value <= most or value == math.inf:
                raise exceptions.InvalidInput(
                    f'{name.replace("_", " ")}: {value}; expected a number '
                    f'from {least} to {most}')


class Strategy(abc.ABC):
    """Decides which instances move. Each Replay has its own Strategy.

    :ivar moves_any: whether the strategy moves instances at all
    """

    moves_any = True

    @abc.abstractmethod
    def decide(self, fleet):
        """Decide on moves and make them with :meth:`Fleet.move`.

        :param fleet: :class:`Fleet`
        """

    def closed(self, hosts):
        """Return (hosts,) bool: whether a host accepts no arrivals.

        :param hosts: number of hosts
        """
        return np.zeros(hosts, dtype=bool)


class Fleet:
    """The fleet that a strategy of rebalancing reads and changes.

    Bins are those of the whole trace, including the past before the evaluated
    time.

    :param replay: Replay
    :param loads: see the attribute
    :param used: see the attribute
    :param overload: see the attribute
    :ivar bins_per_period: bins between two decisions
    :ivar bin_seconds: length of a bin
    :ivar migration_kbps: load of a migration on the switches of both hosts
    :ivar loads: :class:`~..rebalance.relief.Loads` of all bins with the
        current instances of hosts; bins from ``end`` on are unknown
    :ivar end: number of known bins
    :ivar migration_seconds: duration of a migration; 0 on a separate network
    :ivar count: number of hosts that are or were in use
    :ivar used: (hosts, bins) bool: evaluated bins in which a host was in use;
        bin 0 is the first evaluated one
    :ivar overload: (hosts, bins) bool: evaluated bins with avoidable overload
        according to telemetry
    """

    def __init__(self, replay, loads, used, overload):
        self._replay = replay
        self.loads = loads
        self.used = used
        self.overload = overload
        self.end = self.judged_end = self.count = 0
        self.bins_per_period = replay.bins_per_period
        self.bin_seconds = replay.bin_seconds
        self.migration_kbps = replay.migration_kbps
        self.migration_seconds = replay.migration_seconds

    @property
    def sizes(self):
        """(hosts,) number of instances on each host."""
        return np.bincount(self.loads.hosts[self.loads.hosts >= 0],
                           minlength=self.count)[:self.count]

    def bins(self, seconds):
        """Return the number of bins of a time, at least one.

        :param seconds: length of the time
        """
        return max(1, round(seconds / self.bin_seconds))

    def recent(self, seconds):
        """Return a view of Loads with the last known bins and :attr:`hosts`.

        :param seconds: length of the time
        """
        return self.loads.within(max(0, self.end - self.bins(seconds)),
                                 self.end, self.hosts)

    @property
    def hosts(self):
        """Number of hosts in use, and of empty hosts that a plan may use."""
        return min(self.count + _NEW_HOSTS, len(self.used))

    def free(self):
        """Return (instances,) bool: whether an instance can move now."""
        return self._replay.free_instances()

    def busy(self):
        """Return (hosts,) bool: whether a host has a migration running."""
        return self._replay.busy_hosts()

    def constraints(self):
        """Return :class:`~..rebalance.relief.Constraints` of all hosts."""
        return self._replay.constraints()

    def empty_hosts(self):
        """Return hosts that can be put into use: first those used before."""
        unused = np.flatnonzero((self.sizes == 0) & ~self.busy()).tolist()
        return unused + list(range(self.count, self.hosts))

    def move(self, instance, destination):
        """Start a live migration. Return whether it did not fail.

        :param instance: row of the instance
        :param destination: host
        """
        return self._replay.move(instance, destination)


class Replay:
    """One fleet from its first arrival to the end of the trace.

    :param packer: :class:`.methods` FirstFit with ``move``
    :param strategy: Strategy
    :param known: (V, B) rates of each instance in telemetry, kbit/s, including
        the past
    :param rates: (V, T) rates of each instance in the evaluated time, kbit/s
    :param arrivals: (V,) evaluated bin in which each instance arrives
    :param capacity: capacity of each host in kbit/s
    :param bin_seconds: length of a bin
    :param conditions: Conditions
    :param generator: numpy.random.Generator that selects failing migrations
    """

    def __init__(self, packer, strategy, known, rates, arrivals, capacity,
                 bin_seconds, conditions, generator):
        self.packer = packer
        self.bin_seconds = bin_seconds
        self.bins_per_period = max(
            1, round(conditions.period_seconds / bin_seconds))
        self._size = conditions.memory_mib * cost.KBIT_PER_MIB
        self.migration_kbps = conditions.switch_share * capacity
        self.migration_seconds = (self._size / self.migration_kbps
                                  if self.migration_kbps else 0.0)
        self._strategy = strategy
        self._begin = known.shape[1] - rates.shape[1]
        self._known = known
        self._rates = rates
        self._arrivals = arrivals
        self._capacity = capacity
        self._most = capacity * (1 + _TOLERANCE)
        self._conditions = conditions
        self._generator = generator
        # Number of bins after which a bin is known to the strategy.
        self._delay = math.ceil(
            conditions.delay_seconds / bin_seconds - _TOLERANCE)
        count, bins = rates.shape
        # Each instance can be on a host of its own and move to another one.
        # Unused rows take no memory.
        hosts = 2 * count
        self._used, self._overload, self._avoidable, self._seen = (
            np.zeros((hosts, bins), dtype=bool) for _ in range(4))
        self._placed = np.zeros(count, dtype=bool)
        self._running = []       # [instance, destination, kbit to transfer]
        self._sent = self._cut = self._transferred = 0.0
        self._moves = 0
        self._done = 0           # judged bins
        self.fleet = Fleet(self, relief.Loads(
            known[None], np.full((1, hosts), capacity),
            np.full(count, -1)), self._used, self._seen)

    def advance(self, known, rows, end):
        """Learn, place some arrivals and simulate up to a bin.

        :param known: :class:`.trace.Known` at the start
        :param rows: instances in the order of arrival, all before ``end``
        :param end: evaluated bin
        """
        self.packer.learn(known)
        waiting = list(rows)
        while self._done < end:
            # Rounds are counted from the start of the replay, independent of
            # days.
            until = min(end, self._done - self._done % self.bins_per_period
                        + self.bins_per_period)
            while waiting and self._arrivals[waiting[0]] < until:
                self._place(waiting.pop(0))
            self._judge(self._done, until)
            self._done = until
            if self._strategy.moves_any and self.fleet.count:
                self.fleet.end = max(self._begin + until - self._delay, 0)
                self.fleet.judged_end = max(until - self._delay, 0)
                self._strategy.decide(self.fleet)

    def _place(self, row):
        count = len(self.packer.residents)
        host = self.packer.place(row, self._strategy.closed(count))
        self.fleet.loads.put(row, host)
        self.fleet.count = len(self.packer.residents)
        self._placed[row] = True

    def _judge(self, first, last):
        """Record the use, load and overload of hosts in some bins."""
        count = self.fleet.count
        if not count:
            return
        residents = (self.fleet.loads.hosts
                     == np.arange(count)[:, None]).astype(float)
        is_present = (np.arange(first, last) >= self._arrivals[:, None])
        rates = np.where(is_present, self._rates[:, first:last], 0.0)
        bins = slice(first, last)
        self._used[:count, bins] = residents @ is_present > 0
        alone_above = residents @ (rates > self._most) > 0
        load = residents @ rates
        migration_load = self._transfer(count, last - first)
        load += migration_load
        above = load > self._most
        self._overload[:count, bins] = above
        self._avoidable[:count, bins] = above & ~alone_above
        known_rates = np.where(is_present, self._known[
            :, self._begin + first:self._begin + last], 0.0)
        known_load = residents @ known_rates + migration_load
        self._seen[:count, bins] = (known_load > self._most) & ~(
            residents @ (known_rates > self._most) > 0)
        self._sent += float(load.sum())
        self._cut += float((load[above] - self._capacity).sum())

    def _transfer(self, count, bins):
        """Continue running migrations. Return (hosts, bins) their load."""
        load = np.zeros((count, bins))
        rate = self.migration_kbps
        for migration in list(self._running):
            instance, destination, kbit_left = migration
            bins_left = kbit_left / rate / self.bin_seconds
            added = np.clip(bins_left - np.arange(bins), 0.0, 1.0) * rate
            load[self.fleet.loads.hosts[instance]] += added
            load[destination] += added
            migration[2] = kbit_left - rate * self.bin_seconds * bins
            if migration[2] <= 0:
                self._running.remove(migration)
                self._end(instance, destination)
        return load

    def free_instances(self):
        """Return (V,) bool: whether an instance is on a host and at rest."""
        free = self.fleet.loads.hosts >= 0
        free[[instance for instance, _, _ in self._running]] = False
        return free

    def busy_hosts(self):
        """Return (hosts,) bool: whether a host has a migration running."""
        busy = np.zeros(self.fleet.count, dtype=bool)
        for instance, destination, _ in self._running:
            busy[[self.fleet.loads.hosts[instance], destination]] = True
        return busy

    def constraints(self):
        """Return the constraints on moves at this time."""
        hosts = self.fleet.hosts
        closed = np.zeros(hosts, dtype=bool)
        closed[:self.fleet.count] = self.busy_hosts()
        return relief.Constraints(*self.packer.resources(
            len(self._rates), hosts), self.free_instances(), closed)

    def move(self, instance, destination):
        """Start a migration. Return whether it did not fail.

        :param instance: row of the instance
        :param destination: host
        """
        self._transferred += self._size
        while destination >= self.fleet.count:
            self.packer.open()
            self.fleet.count += 1
        if self._generator.random() < self._conditions.failing_share:
            return False
        if self.migration_kbps:
            self._running.append([instance, destination, self._size])
        else:
            self._end(instance, destination)
        return True

    def _end(self, instance, destination):
        self.packer.move(instance, int(self.fleet.loads.hosts[instance]),
                         destination)
        self.fleet.loads.put(instance, destination)
        self._moves += 1

    def predicted(self):
        """Return the expected overload of each used host."""
        hosts = self._used[:self.fleet.count].any(axis=1)
        return np.asarray(self.packer.predicted())[hosts]

    def judgement(self):
        """Return the :class:`.packing.Judgement` of the simulation."""
        used = self._used[:self.fleet.count]
        bins = np.count_nonzero(used, axis=1)
        hosts = np.flatnonzero(bins)
        sent = self._sent * self.bin_seconds
        weeks = float((self._rates.shape[1] - self._arrivals[self._placed])
                      .sum()) * self.bin_seconds / (7 * 86400)
        return packing.Judgement(
            np.count_nonzero(self._overload[hosts] & used[hosts], axis=1)
            / bins[hosts],
            np.count_nonzero(self._avoidable[hosts] & used[hosts], axis=1)
            / bins[hosts],
            self._cut / self._sent if self._sent else 0.0,
            bins[hosts] / max(used.shape[1], 1),
            int(used.sum(axis=0).max(initial=0)),
            self._moves / weeks if weeks else 0.0,
            self._transferred / (sent + self._transferred)
            if self._transferred else 0.0)
