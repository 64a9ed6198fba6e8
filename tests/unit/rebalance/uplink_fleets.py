# SPDX-License-Identifier: Apache-2.0
"""Random fleets whose hosts share uplinks, for tests of plans."""

import numpy as np

from vswitch_aware_scheduler.rebalance import budget
from vswitch_aware_scheduler.rebalance import relief
from vswitch_aware_scheduler.rebalance import uplinks

LIMIT = .1
#: No instance alone exceeds a capacity.
HOSTS, INSTANCES, SLOTS, MOST_RATE = 6, 20, 40, 8
INSIDE = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0],
                   [0, 1, 1, 1, 0, 0]], dtype=bool)


class Case:
    """A random fleet with uplinks, some of whose hosts are in debt."""

    def __init__(self, seed):
        generator = np.random.default_rng(seed)
        self.rates = generator.integers(
            0, MOST_RATE, (1, INSTANCES, SLOTS)).astype(float)
        self.rates *= generator.random(self.rates.shape) < .6
        self.hosts = generator.integers(0, HOSTS, INSTANCES)
        self.capacities = generator.integers(14, 20, HOSTS).astype(float)
        self.shared = np.array([
            MOST_RATE + np.quantile(self.sums(at), .8) for at in range(3)])
        self.balance = np.where(generator.random(HOSTS) < .4, -1.0, 1.0)
        self.takes = generator.random(3) < .8

    def sums(self, uplink, hosts=None):
        inside = INSIDE[uplink][self.hosts if hosts is None else hosts]
        return self.rates[0, inside].sum(axis=0)

    def overloads(self, hosts=None):
        """Return [slots of overload of each uplink], by definition."""
        return [int((self.sums(at, hosts) > self.shared[at]).sum())
                for at in range(3)]

    def uplinks(self, stayed=True):
        return uplinks.Uplinks([uplinks.Uplink(
            INSIDE[at], [self.rates[0]], self.shared[at:at + 1],
            self.sums(at)[None], np.zeros((1, SLOTS), dtype=bool), LIMIT,
            bool(self.takes[at])) for at in range(3)],
            self.hosts, np.ones(INSTANCES, dtype=bool),
            np.full(INSTANCES, stayed))

    @property
    def limits(self):
        return [max(slots, LIMIT * SLOTS) for slots in self.overloads()]

    def plan(self):
        loads = relief.Loads(self.rates, self.capacities[None], self.hosts)
        return relief.plan(
            loads, self.balance, budget.Terms(.02), relief.Rule(
                moves=3, lowers_excess=True), SLOTS, relief.Constraints(
                    np.zeros((INSTANCES, 0)), np.zeros((HOSTS, 0)),
                    uplinks=self.uplinks()))

    def exceeding(self):
        """Return (moves, states above a limit) of the plan."""
        hosts, count = self.hosts.copy(), 0
        moves = self.plan()
        for move in moves:
            hosts[move.instance] = move.destination
            count += any(slots > limit for slots, limit in zip(
                self.overloads(hosts), self.limits))
        return len(moves), count
