# SPDX-License-Identifier: Apache-2.0
"""Replays arrivals and live migrations, period after period.

A :class:`FleetReplay` simulates one fleet: a :class:`.packing.FirstFit` places
arriving instances, and a :class:`Strategy` moves instances at the end of each
period, using only what telemetry has delivered by then. Pure; the caller
passes the random generator. Derivation: reference/rebalance.rst, "Replay".
"""

import abc
import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler.budgets import cost
from vswitch_aware_scheduler.budgets import relief
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.lab.evaluate import measures

__all__ = ['Conditions', 'FleetReplay', 'Strategy', 'TraceTraffic']

#: Sums and capacities are compared with this relative tolerance.
_TOLERANCE = 1e-9

#: Number of empty hosts that a strategy sees in addition to used hosts.
_NEW_HOSTS = 16


@dataclasses.dataclass(frozen=True)
class Conditions:
    """The conditions under which instances are moved.

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
        share = checks.number(0, 1)
        for name, kind in (
                ('period_seconds', checks.number(1)),
                ('delay_seconds', checks.number()), ('missing_share', share),
                ('failing_share', share), ('memory_mib', checks.number()),
                ('switch_share', share)):
            checks.check(name.replace('_', ' '), getattr(self, name), kind)


@dataclasses.dataclass(frozen=True, eq=False)
class TraceTraffic:
    """The traffic that is replayed.

    :ivar known: (V, B) rates of each instance in telemetry, kbit/s, including
        the past
    :ivar rates: (V, T) rates of each instance in the evaluated time, kbit/s
    :ivar stays: (2, V) evaluated bin in which each instance arrives, and the
        one in which it has left
    """

    known: np.ndarray
    rates: np.ndarray
    stays: tuple
    bin_seconds: float


class Strategy(abc.ABC):
    """Decides which instances move. Each FleetReplay has its own Strategy."""

    @abc.abstractmethod
    def decide(self, fleet: 'FleetReplay') -> None:
        """Decide on moves and make them with :meth:`FleetReplay.move`."""

    def debts(self) -> dict:
        """Return {('host', number): :class:`.budgets.Debt`} for arrivals."""
        return {}


class _Admission:
    """Judges the hosts of a packer for moves, as :class:`.Destinations`."""

    def __init__(self, packer):
        self._packer = packer
        self._changed = set()

    def admitted(self, instance, hosts):
        """Return (k,) bool: whether hosts admit an instance."""
        admitted = self._packer.admitted(instance)
        hosts = np.asarray(hosts)
        return np.append(admitted, True)[np.minimum(hosts, admitted.size)]

    def put(self, instance, source, destination):
        """Judge hosts as if an instance had moved, until :meth:`restore`."""
        self._packer.suppose(instance, source, destination)
        self._changed.update((source, destination))

    def restore(self):
        """Judge hosts by the instances that they have."""
        for host in self._changed:
            if host < len(self._packer.residents):
                self._packer.changed(host)
        self._changed.clear()


class FleetReplay:
    """One fleet from its first arrival to the end of the trace.

    A strategy reads it and moves its instances. Hosts are those that are or
    were in use, and up to 16 empty ones.

    :param capacity: capacity of each host in kbit/s
    :ivar count: number of hosts that are or were in use
    :ivar end: number of known bins of the trace, with the past before the
        evaluated time
    :ivar judged_end: number of these bins in the evaluated time
    :ivar loads: :class:`~..budgets.relief.Loads` of all bins of the trace
    :ivar migration_seconds: duration of a migration; 0 on a separate network
    :ivar used: (hosts, bins) bool: evaluated bins in which a host was in use
    :ivar overload: (hosts, bins) bool: evaluated bins with avoidable overload
        according to telemetry
    """

    def __init__(self, packer, strategy, traffic, capacity: float, conditions,
                 generator: np.random.Generator) -> None:
        self.packer, self._strategy, self._traffic = packer, strategy, traffic
        self._conditions, self._generator = conditions, generator
        self.bin_seconds = bin_seconds = traffic.bin_seconds
        self._period = max(1, round(conditions.period_seconds / bin_seconds))
        size = conditions.memory_mib * cost.KBIT_PER_MIB
        self.migration_kbps = conditions.switch_share * capacity
        self.migration_seconds = (size / self.migration_kbps
                                  if self.migration_kbps else 0.0)
        self._most = capacity * (1 + _TOLERANCE)
        # Number of bins after which a bin is known to the strategy.
        self._delay = math.ceil(
            conditions.delay_seconds / bin_seconds - _TOLERANCE)
        count, bins = traffic.rates.shape
        self._begin = traffic.known.shape[1] - bins
        # Each instance can be on a host of its own and move to another one.
        # Unused rows take no memory.
        hosts = 2 * count
        self.used, self.overload = np.zeros((2, hosts, bins), dtype=bool)
        self._running = []       # [instance, destination, kbit to transfer]
        self.migrations = measures.Migrations(
            [], size, np.zeros((hosts, bins)) if self.migration_kbps else None)
        self._done = 0           # simulated bins
        self._admission = _Admission(packer)
        self.end = self.judged_end = self.count = 0
        self.loads = relief.Loads(
            traffic.known[None], np.full((1, hosts), capacity),
            np.full(count, -1))

    def advance(self, known, rows: list, end: int) -> None:
        """Learn, place some arrivals and simulate up to a bin.

        :param rows: instances in the order of arrival, all before ``end``
        """
        self.packer.learn(known)
        arrivals, departures = self._traffic.stays
        waiting = list(rows)
        while self._done < end:
            # Rounds are counted from the start of the replay, independent of
            # days.
            until = min(end, self._done - self._done % self._period
                        + self._period)
            while waiting and arrivals[waiting[0]] < until:
                row = waiting.pop(0)
                self.loads.put(row, self.packer.place(
                    row, int(arrivals[row]), int(departures[row])))
                self.count = len(self.packer.residents)
            if self.count:
                self._observe(self._done, until)
            self._done = until
            for row in self.packer.end_stays(until):
                self.loads.put(row, -1)
                self._running = [migration for migration in self._running
                                 if migration[0] != row]
            if self.count:
                self.end = max(self._begin + until - self._delay, 0)
                self.judged_end = max(until - self._delay, 0)
                self._strategy.decide(self)
                self._admission.restore()
                self.packer.set_debts(self._strategy.debts())

    def _observe(self, first, last):
        """Record the use of hosts and their overload by telemetry."""
        arrivals, departures = self._traffic.stays
        residents = (self.loads.hosts
                     == np.arange(self.count)[:, None]).astype(float)
        at = np.arange(first, last)
        is_present = (at >= arrivals[:, None]) & (at < departures[:, None])
        bins = slice(first, last)
        self.used[:self.count, bins] = residents @ is_present > 0
        rates = np.where(is_present, self._traffic.known[
            :, self._begin + first:self._begin + last], 0.0)
        load = residents @ rates + self._transfer(bins)
        self.overload[:self.count, bins] = (load > self._most) & ~(
            residents @ (rates > self._most) > 0)

    def _transfer(self, bins):
        """Continue running migrations. Return (hosts, bins) their load."""
        if not self.migration_kbps:
            return 0.0
        load = self.migrations.load[:self.count, bins]
        rate, number = self.migration_kbps, load.shape[1]
        for migration in list(self._running):
            instance, destination, kbit_left = migration
            bins_left = kbit_left / rate / self.bin_seconds
            added = np.clip(bins_left - np.arange(number), 0.0, 1.0) * rate
            load[self.loads.hosts[instance]] += added
            load[destination] += added
            migration[2] = kbit_left - rate * self.bin_seconds * number
            if migration[2] <= 0:
                self._running.remove(migration)
                self._end(instance, destination, bins.stop)
        return load

    @property
    def sizes(self) -> np.ndarray:
        """(hosts,) number of instances on each host that is or was in use."""
        return np.bincount(self.loads.hosts[self.loads.hosts >= 0],
                           minlength=self.count)[:self.count]

    def bins(self, seconds: float) -> int:
        """Return the number of bins of a time, at least one."""
        return max(1, round(seconds / self.bin_seconds))

    def recent(self, seconds: float):
        """Return Loads of the last known bins and of :attr:`hosts`."""
        return self.loads.within(max(0, self.end - self.bins(seconds)),
                                 self.end, self.hosts)

    @property
    def hosts(self) -> int:
        """Number of hosts in use, and of empty hosts that a plan may use."""
        return min(self.count + _NEW_HOSTS, len(self.used))

    def free(self) -> np.ndarray:
        """Return (V,) bool: whether an instance is on a host and at rest."""
        free = self.loads.hosts >= 0
        free[[instance for instance, _, _ in self._running]] = False
        return free

    def busy(self) -> np.ndarray:
        """Return (count,) bool: whether a host has a migration running."""
        busy = np.zeros(self.count, dtype=bool)
        for instance, destination, _ in self._running:
            busy[[self.loads.hosts[instance], destination]] = True
        return busy

    def constraints(self):
        """Return :class:`~..budgets.relief.Constraints` of all hosts."""
        closed = np.zeros(self.hosts, dtype=bool)
        closed[:self.count] = self.busy()
        return relief.Constraints(*self.packer.resources(
            len(self._traffic.rates), self.hosts), self.free(), closed,
            admission=self._admission)

    def empty_hosts(self):
        """Return hosts that can be put into use: first those used before."""
        unused = np.flatnonzero((self.sizes == 0) & ~self.busy()).tolist()
        return unused + list(range(self.count, self.hosts))

    def move(self, instance: int, destination: int) -> bool:
        """Start a live migration. Return whether it did not fail."""
        self.migrations.started.append(self._done)
        while destination >= self.count:
            self.packer.open()
            self.count += 1
        if self._generator.random() < self._conditions.failing_share:
            return False
        if self.migration_kbps:
            self._running.append([instance, destination,
                                  self.migrations.kbit])
        else:
            self._end(instance, destination, self._done)
        return True

    def _end(self, instance, destination, now):
        self.packer.move(instance, destination, now)
        self.loads.put(instance, destination)
