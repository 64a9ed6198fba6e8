# SPDX-License-Identifier: Apache-2.0

import itertools
import unittest

import numpy as np

from tests.unit.rebalance import uplink_fleets
from vswitch_aware_scheduler.rebalance import budget
from vswitch_aware_scheduler.rebalance import consolidation
from vswitch_aware_scheduler.rebalance import relief

HOSTS, SLOTS = 4, 30
TERMS = [budget.Terms(.2)] * HOSTS
#: A destination may have so many slots of overload.
MOST = .6 * .2 * SLOTS


class Case:
    """A random fleet with room, cores and groups."""

    def __init__(self, seed):
        generator = np.random.default_rng(seed)
        count = int(generator.integers(5, 9))
        self.rates = generator.integers(0, 8, (1, count, SLOTS)).astype(float)
        self.hosts = generator.integers(0, HOSTS, count)
        self.capacities = generator.integers(8, 24, HOSTS).astype(float)
        self.balance = np.where(generator.random(HOSTS) < .8, 1e5, 100.0)
        self.needs = generator.integers(1, 4, (count, 1)).astype(float)
        self.left = generator.integers(0, 9, (HOSTS, 1)).astype(float)
        self.movable = generator.random(count) < .95
        self.sampled = generator.random(count) < .95

    def loads(self, hosts=None):
        return relief.Loads(self.rates, self.capacities[None],
                            self.hosts if hosts is None else hosts)

    def plan(self, most_moves=9, **more):
        return consolidation.plan(
            self.loads(), self.balance, TERMS, relief.Constraints(
                self.needs, self.left, self.movable), self.sampled,
            most_moves, **more)

    def overload(self, hosts, host):
        return int((self.rates[0, hosts == host].sum(axis=0)
                    > self.capacities[host]).sum())

    def can_be_emptied(self, hosts, emptied, source):
        """Return whether enumeration finds hosts for all instances."""
        own = np.flatnonzero(hosts == source)
        if not (self.movable & self.sampled)[own].all():
            return False
        takers = [host for host in range(HOSTS) if host != source
                  and host not in emptied and (hosts == host).any()
                  and self.balance[host] >= TERMS[host].day]
        for places in itertools.product(takers, repeat=len(own)):
            after = hosts.copy()
            after[own] = places
            if all(self.keeps(after, host) for host in set(places)):
                return True
        return False

    def keeps(self, hosts, host):
        arrived = (hosts == host) & (self.hosts != host)
        return (self.overload(hosts, host) <= MOST
                and self.needs[arrived].sum() <= self.left[host, 0])


class ConsolidationTestCase(unittest.TestCase):

    def test_exactly_those_are_emptied_that_enumeration_can_empty(self):
        emptied_any = kept_any = 0
        for seed in range(150):
            case = Case(seed)
            moves = case.plan()
            hosts, emptied = case.hosts.copy(), set()
            sizes = np.bincount(hosts, minlength=HOSTS)
            order = sorted(np.flatnonzero(sizes),
                           key=lambda host: (sizes[host], host))
            for source in order:
                if (hosts == source).sum() != sizes[source]:
                    continue     # it has received instances
                own = [move for move in moves if move.source == source]
                self.assertEqual(
                    case.can_be_emptied(hosts, emptied, source), bool(own))
                for move in own:
                    self.assertEqual(source, hosts[move.instance])
                    hosts[move.instance] = move.destination
                    self.assertTrue(case.keeps(hosts, move.destination))
                if own:
                    emptied.add(source)
                    self.assertFalse((hosts == source).any())
                    emptied_any += 1
                else:
                    kept_any += 1
            self.assertEqual(emptied, {move.source for move in moves})
        self.assertGreater(emptied_any, 30)
        self.assertGreater(kept_any, 30)

    def test_relief_takes_nothing_back_on_like_traffic(self):
        """Balances go on by the same samples, seven days long."""
        checked = 0
        for seed in range(150):
            case = Case(seed)
            moves = case.plan()
            hosts = case.hosts.copy()
            for move in moves:
                hosts[move.instance] = move.destination
            received = {move.destination for move in moves}
            loads, seconds = case.loads(hosts), 7 * 86400 / SLOTS
            for host in received:
                # What a destination has at least.
                self.assertGreaterEqual(TERMS[host].after(
                    TERMS[host].day, 7 * 86400.0, seconds * np.count_nonzero(
                        loads.overload([host]))), 0.0)
                checked += 1
            after = np.array([
                TERMS[host].after(case.balance[host], 7 * 86400.0,
                                  seconds * np.count_nonzero(
                                      loads.overload([host])))
                for host in range(HOSTS)])
            sources = {move.source for move in relief.plan(
                loads, after, TERMS, relief.Rule(), SLOTS,
                relief.Constraints(case.needs, case.left))}
            self.assertFalse(sources & received)
        self.assertGreater(checked, 30)

    def test_a_plan_empties_whole_hosts_within_the_permitted_moves(self):
        for seed in range(50):
            case = Case(seed)
            sizes = np.bincount(case.hosts, minlength=HOSTS)
            for most in range(4):
                moves = case.plan(most)
                self.assertLessEqual(len(moves), most)
                self.assertEqual(
                    sum(sizes[host] for host in {
                        move.source for move in moves}), len(moves))

    def test_a_move_that_costs_overload_is_not_made(self):
        self.assertTrue(any(Case(seed).plan() for seed in range(9)))
        for seed in range(9):
            self.assertEqual([], Case(seed).plan(
                costs=lambda source, instances, hosts: np.full(
                    (len(instances), len(hosts)), .01)))

    def test_uplinks_keep_their_limits(self):
        moved = 0
        for seed in range(200):
            case = uplink_fleets.Case(seed)
            count = len(case.hosts)
            moves = consolidation.plan(
                relief.Loads(case.rates, 3 * case.capacities[None],
                             case.hosts), np.full(uplink_fleets.HOSTS, 1e6),
                [budget.Terms(.3)] * uplink_fleets.HOSTS, relief.Constraints(
                    np.zeros((count, 0)), np.zeros((uplink_fleets.HOSTS, 0)),
                    uplinks=case.uplinks()), np.ones(count, dtype=bool), 12)
            hosts = case.hosts.copy()
            for move in moves:
                hosts[move.instance] = move.destination
                for slots, limit in zip(case.overloads(hosts), case.limits):
                    self.assertLessEqual(slots, limit)
            moved += len(moves)
        self.assertGreater(moved, 50)
