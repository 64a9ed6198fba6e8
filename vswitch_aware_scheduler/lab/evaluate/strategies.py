# SPDX-License-Identifier: Apache-2.0
"""Strategies that move instances: our error budgets, and published ones.

Each decides by a :class:`.closed_loop.FleetReplay` at the end of a period.
Sources and variants: reference/rebalance.rst, "Strategies".
"""

import numpy as np

from vswitch_aware_scheduler.budgets import cost
from vswitch_aware_scheduler.budgets import relief
from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.lab.evaluate import closed_loop
from vswitch_aware_scheduler.lab.evaluate import methods
from vswitch_aware_scheduler import store

__all__ = ['BudgetStrategy', 'NAMES', 'Sandpiper', 'WorkloadBalance',
           'make_rebalanced']

#: Names in the order of the report; the clairvoyant follows.
NAMES = ('ours', 'none', 'workload_balance', 'sandpiper')


def make_rebalanced(settings) -> list:
    """Return the methods of :data:`NAMES`.

    All place instances as ``ours`` of :mod:`.methods`.
    """
    placing = methods.make_placing(settings)

    def budgets(rule):
        return lambda capacity, limit: BudgetStrategy(
            rules.Terms(limit), rule, settings.churn,
            settings.rebalance_checks, settings.error_budgets)

    by_name = {
        'ours': budgets(relief.Rule()), 'none': budgets(None),
        'workload_balance': lambda capacity, limit: WorkloadBalance(capacity),
        'sandpiper': lambda capacity, limit: Sandpiper(capacity)}
    return [methods.Method(name, placing.start, by_name[name])
            for name in NAMES]


class BudgetStrategy(closed_loop.Strategy):
    """Relieves hosts that have spent more overload than they have earned.

    :param checks: number of consecutive rounds in debt before a host is
        relieved
    """

    def __init__(self, terms, rule, churn, checks: int, places: bool) -> None:
        self._terms = terms
        self._rule = rule
        self._churn = churn
        self._checks = checks
        self._places = places
        self._balance = np.zeros(0)
        self._rounds = np.zeros(0)     # consecutive rounds in debt
        self._moved_at = np.zeros(0)
        self._counted = 0        # judged bins
        self._fleet = None

    def debts(self) -> dict:
        """Return {('host', number): :class:`.budgets.Debt`}.

        The instances of a trace have no projects: nobody is known to spend.
        """
        if self._fleet is None or not self._places:
            return {}
        closed = np.flatnonzero(~self._accepting()).tolist()
        return {(store.HOST, host): store.Debt(
            float(-self._balance[host] / self._terms.day)) for host in closed}

    def _accepting(self):
        """Return (hosts,) bool, as :func:`.store.budgets.accepting`."""
        fleet = self._fleet
        bins = slice(max(0, self._counted - fleet.bins(
            store.RECOVERY_SECONDS)), self._counted)
        used, overload = (np.count_nonzero(of[:fleet.hosts, bins], axis=1)
                          for of in (fleet.used, fleet.overload))
        return (self._balance[:fleet.hosts] >= 0) | (rules.burn_rate(
            overload, used, self._terms.overload_probability)
            <= self._terms.earned_share)

    def _count(self, fleet):
        """Update the balances up to the last known bin."""
        hosts, bins = fleet.used.shape
        if not self._balance.size:
            self._balance = np.full(hosts, self._terms.first)
            self._rounds = np.zeros(hosts, dtype=np.int64)
            self._moved_at = np.full(fleet.loads.hosts.size, -np.inf)
        new = slice(self._counted, max(fleet.judged_end, self._counted))
        self._counted = new.stop
        count = slice(0, fleet.count)
        seconds = [fleet.bin_seconds * np.count_nonzero(of[count, new], axis=1)
                   for of in (fleet.used, fleet.overload)]
        self._balance[count] = self._terms.after(self._balance[count],
                                                 *seconds)

    def decide(self, fleet) -> None:
        """Make the moves that the rule plans."""
        self._count(fleet)
        self._fleet = fleet
        self._rounds = np.where(self._balance < 0, self._rounds + 1, 0)
        relieved = self._rounds >= self._checks
        if self._rule is None:
            return
        now = fleet.end * fleet.bin_seconds
        case = relief.ReliefCase(
            fleet.recent(self._rule.window_seconds),
            np.where(relieved, self._balance, np.maximum(
                self._balance, 0.0))[:fleet.hosts],
            self._terms, fleet.bins(self._rule.recent_seconds),
            fleet.constraints(), fleet.empty_hosts(),
            self._costs(fleet) if fleet.migration_seconds else None,
            self._accepting())
        for move in relief.advise(case, self._rule, self._churn,
                                  self._moved_at, now).moves:
            self._moved_at[move.instance] = now
            if move.destination >= fleet.count \
                    or not fleet.sizes[move.destination]:
                self._balance[move.destination] = self._terms.first
            fleet.move(move.instance, move.destination)

    def _costs(self, fleet):
        """Return the overload that migrations add on the same switch."""
        loads = fleet.recent(self._rule.recent_seconds)
        slots = fleet.migration_seconds / fleet.bin_seconds

        def added(host):
            return cost.added_overload(
                loads.sums[0, host], loads.above[0, host] > 0,
                loads.most[0, host], fleet.migration_kbps, slots)

        def costs(source, instances, hosts):
            return np.broadcast_to(
                added(source) + np.array([added(host) for host in hosts]),
                (len(instances), len(hosts)))

        return costs


def _least_loaded(fleet, row, load, most, excluded=False):
    """Return the least loaded host that takes an instance, or None.

    :param load: (hosts,) load with the instance
    :param excluded: (hosts,) bool, or a bool
    """
    sizes, busy = np.zeros(load.size), np.zeros(load.size, dtype=bool)
    sizes[:fleet.count], busy[:fleet.count] = fleet.sizes, fleet.busy()
    fits = np.zeros(load.size, dtype=bool)
    visible = min(load.size, fleet.hosts)
    fits[:visible] = fleet.constraints().allowed([row], range(visible))[0]
    fits &= (sizes > 0) & ~busy & (load < most) & ~np.asarray(excluded)
    fits[fleet.loads.hosts[row]] = False
    hosts = np.flatnonzero(fits)
    return int(hosts[load[hosts].argmin()]) if hosts.size else None


class WorkloadBalance(closed_loop.Strategy):
    """The strategy workload_balance of Watcher, for the load of the switch.

    In each round, the most loaded host above the threshold gives one instance
    to another host: the largest instance that does not exceed the difference
    between the host's load and the mean. The destination is the least loaded
    host that remains below the threshold, or an empty host if there is none.

    :param capacity: kbit/s
    :param threshold: share of the capacity
    """

    def __init__(self, capacity, threshold=0.8, window_seconds=900.0):
        self._most = threshold * capacity
        self._window_seconds = window_seconds

    def decide(self, fleet) -> None:
        """Move at most one instance."""
        loads = fleet.recent(self._window_seconds)
        if not loads.slots:
            return
        sizes = fleet.sizes
        load = loads.sums[0, :fleet.count].mean(axis=1)
        demand = loads.rates[0].mean(axis=1)
        movable, busy = fleet.free(), fleet.busy()
        mean = load[sizes > 0].mean()
        for source in np.argsort(-load, kind='stable').tolist():
            if load[source] <= self._most:
                return
            rows = np.flatnonzero(movable & (fleet.loads.hosts == source))
            rows = rows[demand[rows] <= load[source] - mean]
            if busy[source] or sizes[source] < 2 or not rows.size:
                continue
            row = int(rows[demand[rows].argmax()])
            host = _least_loaded(fleet, row, load + demand[row], self._most)
            fleet.move(row, fleet.empty_hosts()[0] if host is None else host)
            return


class Sandpiper(closed_loop.Strategy):
    """The hotspots and volumes of Sandpiper, for the load of the switch.

    A host whose load was above the threshold in several of the last samples is
    a hotspot. It gives instances to other hosts, those with the largest ratio
    of volume to size first (all sizes are equal), until it is below the
    threshold. The destination is the host with the smallest volume that
    remains below the threshold. T. Wood et al., "Black-box and gray-box
    strategies for virtual machine migration", NSDI 2007.

    :param capacity: kbit/s
    :param threshold: share of the capacity
    :param above: number of the last ``samples`` samples that have to be above
        the threshold
    """

    def __init__(self, capacity, threshold=0.75, above=3, samples=5):
        self._most = threshold * capacity
        self._above = above
        self._samples = samples

    def decide(self, fleet) -> None:
        """Move instances from hotspots."""
        loads = fleet.recent(self._samples * fleet.bin_seconds)
        if loads.slots < self._samples:
            return
        # Includes empty hosts, because a host that the first move of a round
        # puts into use may receive further instances.
        hot = np.count_nonzero(
            loads.sums[0] > self._most, axis=1) >= self._above
        load = loads.sums[0, :, -1].copy()
        demand = loads.rates[0, :, -1]
        for source in np.argsort(-load, kind='stable').tolist():
            if hot[source]:
                self._relieve(fleet, source, load, demand, hot)

    def _relieve(self, fleet, source, load, demand, hot):
        rows = np.flatnonzero(fleet.free() & (fleet.loads.hosts == source))
        for row in rows[np.argsort(-demand[rows], kind='stable')].tolist():
            if load[source] <= self._most or fleet.sizes[source] < 2 \
                    or fleet.busy()[source]:
                return
            host = _least_loaded(fleet, row, load + demand[row], self._most,
                                 hot)
            if host is None:
                if demand[row] >= self._most:
                    continue
                host = fleet.empty_hosts()[0]
            if host < load.size:
                load[host] += demand[row]
            load[source] -= demand[row]
            fleet.move(row, host)
