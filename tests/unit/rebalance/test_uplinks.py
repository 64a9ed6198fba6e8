# SPDX-License-Identifier: Apache-2.0

import unittest
from unittest import mock

import numpy as np

from tests.unit.rebalance import uplink_fleets
from vswitch_aware_scheduler.rebalance import uplinks

HOSTS, INSTANCES = uplink_fleets.HOSTS, uplink_fleets.INSTANCES
Case = uplink_fleets.Case


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
                        inside = uplink_fleets.INSIDE
                        joins = inside[:, host] & ~inside[:, hosts[row]]
                        expected = all(
                            takes and slots <= limit for takes, slots, limit,
                            joined in zip(case.takes, case.overloads(after),
                                          case.limits, joins) if joined)
                        self.assertEqual(expected, found[row, host])
                        allowed.add((expected, bool(joins.any())))
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
            np.full((1, 10), alone), uplink_fleets.LIMIT)], [0, 1],
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
