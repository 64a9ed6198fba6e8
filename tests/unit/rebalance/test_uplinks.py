# SPDX-License-Identifier: Apache-2.0

import unittest
from unittest import mock

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
        hosts, found = self.hosts.copy(), 0
        moves = self.plan()
        for move in moves:
            hosts[move.instance] = move.destination
            found += any(slots > limit for slots, limit in zip(
                self.overloads(hosts), self.limits))
        return len(moves), found


class UplinksTestCase(unittest.TestCase):

    def test_every_state_of_a_plan_keeps_the_limits(self):
        cases = [Case(seed) for seed in range(200)]
        counts = np.array([case.exceeding() for case in cases])
        self.assertGreater(counts[:, 0].sum(), 100)
        self.assertEqual(0, counts[:, 1].sum())
        # Judged one by one, moves of a plan overload an uplink together.
        with mock.patch.object(uplinks.Uplinks, 'put', autospec=True):
            self.assertGreater(
                sum(case.exceeding()[1] for case in cases), 0)

    def test_what_is_allowed_is_what_enumeration_finds(self):
        allowed = set()
        for seed in range(20):
            case = Case(seed)
            shared, hosts = case.uplinks(), case.hosts.copy()
            generator = np.random.default_rng(seed)
            for _ in range(4):
                found = shared.allowed(range(INSTANCES), np.arange(HOSTS))
                for row in range(INSTANCES):
                    for host in range(HOSTS):
                        after = hosts.copy()
                        after[row] = host
                        joins = INSIDE[:, host] & ~INSIDE[:, hosts[row]]
                        wanted = all(
                            takes and slots <= limit for takes, slots, limit,
                            joined in zip(case.takes, case.overloads(after),
                                          case.limits, joins) if joined)
                        self.assertEqual(wanted, found[row, host])
                        allowed.add((wanted, bool(joins.any())))
                row, host = (generator.integers(INSTANCES),
                             generator.integers(HOSTS))
                shared.put(row, host)
                hosts[row] = host
        self.assertEqual({(True, True), (False, True), (True, False)},
                         allowed)

    def test_a_copy_is_independent(self):
        case = Case(1)
        shared = case.uplinks()
        before = shared.allowed(range(INSTANCES), np.arange(HOSTS))
        copied = shared.copy()
        for row in range(INSTANCES):
            copied.put(row, 0)
        self.assertFalse(np.array_equal(before, copied.allowed(
            range(INSTANCES), np.arange(HOSTS))))
        np.testing.assert_array_equal(before, shared.allowed(
            range(INSTANCES), np.arange(HOSTS)))

    def one(self, known=True, stayed=True, alone=False):
        """Return Uplinks: full by the instance on host 0, one on host 1."""
        rates = np.array([[6.0] * 10, [6.0] * 10])
        return uplinks.Uplinks([uplinks.Uplink(
            np.array([True, False]), [rates], np.array([10.0]), rates[:1],
            np.full((1, 10), alone), LIMIT)], [0, 1],
            np.array([True, known]), np.array([stayed, True]))

    def test_room_that_an_instance_leaves_can_be_used(self):
        for stayed in (True, False):
            shared = self.one(stayed=stayed)
            self.assertFalse(shared.allowed([1], [0])[0, 0])
            shared.put(0, 1)
            # Of one that came lately, the sums may not have what leaves.
            self.assertEqual(stayed, shared.allowed([1], [0])[0, 0])

    def test_an_instance_of_unknown_rates_stays_outside(self):
        shared = self.one(known=False)
        shared.put(0, 1)
        self.assertFalse(shared.allowed([1], [0])[0, 0])
        self.assertTrue(shared.allowed([1], [1])[0, 0])

    def test_what_one_instance_exceeds_alone_is_not_counted(self):
        self.assertTrue(self.one(alone=True).allowed([1], [0])[0, 0])
