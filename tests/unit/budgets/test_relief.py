# SPDX-License-Identifier: Apache-2.0

import dataclasses
import time
import unittest

import numpy as np

from vswitch_aware_scheduler.budgets import relief
from vswitch_aware_scheduler.budgets import rules


def free(loads, **words):
    """Return Constraints that exclude no instance from any host."""
    return relief.Constraints(np.zeros((len(loads.hosts), 0)),
                              np.zeros((loads.most.shape[1], 0)), **words)


def plan(loads, balance, limit=.1, recent=20, rule=relief.Rule(), empty=(),
         costs=None, accepting=None, most_parted=np.inf, **excluded):
    """Return the moves of a plan.

    :param limit: limit of all hosts, or a list
    :param excluded: fields of the Constraints
    """
    terms = rules.Terms(limit) if isinstance(limit, float) else list(
        map(rules.Terms, limit))
    return relief.plan(relief.ReliefCase(
        loads, np.array(balance), terms, recent, free(loads, **excluded),
        empty, costs, accepting), rule, most_parted)


def constant_costs(cost):
    """Return a function that gives each move the same cost."""
    return lambda source, instances, hosts: np.full(
        (len(instances), len(hosts)), cost)


#: What a host earns in a day with the limit .1.
DAY = rules.Terms(.1).day


def pairs(moves):
    return [(move.instance, move.destination) for move in moves]


def overload(rates, capacities, hosts, host):
    """Count slots of avoidable overload by definition."""
    members = [row for row, at in enumerate(hosts) if at == host]
    count = 0
    for slot in range(rates.shape[2]):
        count += any(
            sum(rates[limit, row, slot] for row in members)
            > capacities[limit][host] + 1e-6
            and all(rates[limit, row, slot] <= capacities[limit][host] + 1e-6
                    for row in members)
            for limit in range(len(capacities)))
    return count


def suffered(rates, capacities, hosts, host):
    """Count overloaded slots of instances by definition."""
    members = [row for row, at in enumerate(hosts) if at == host]
    count = 0
    for slot in range(rates.shape[2]):
        exceeded = [limit for limit in range(len(capacities)) if sum(
            rates[limit, row, slot] for row in members)
            > capacities[limit][host] + 1e-6]
        alone = max(([row for row in members if rates[limit, row, slot]
                      > capacities[limit][host] + 1e-6]
                     for limit in range(len(capacities))), key=len)
        count += len(members) - len(alone) if exceeded else 0
    return count


def case(generator, limits=1, instances=7, hosts=3, slots=25):
    rates = generator.integers(0, 9, (limits, instances, slots)).astype(float)
    # Rare instances that are above a capacity alone.
    rates[rates > 7] *= generator.integers(1, 3)
    capacities = generator.integers(9, 14, (limits, hosts)).astype(float)
    return rates, capacities, generator.integers(0, hosts, instances)


class LoadsTestCase(unittest.TestCase):

    def test_overload_and_suffered_time_are_counted_by_definition(self):
        generator = np.random.default_rng(1)
        for limits in [1] * 30 + [2] * 30:
            rates, capacities, hosts = case(generator, limits)
            loads = relief.Loads(rates, capacities, hosts)
            self.assertEqual(
                [overload(rates, capacities, hosts, host)
                 for host in range(3)],
                np.count_nonzero(loads.overload(range(3)), axis=1).tolist())
            self.assertEqual(
                [suffered(rates, capacities, hosts, host)
                 for host in range(3)], loads.suffered(range(3)).tolist())
            own = np.flatnonzero(hosts == 0)
            if not own.size:
                continue
            without, joined = hosts.copy(), hosts.copy()
            without[own[0]], joined[own[0]] = -1, 1
            self.assertEqual(suffered(rates, capacities, without, 0),
                             loads.without(0, own, relief.suffered)[0])
            self.assertEqual(suffered(rates, capacities, joined, 1),
                             loads.joined(own, [1], relief.suffered)[0, 0])

    def test_sums_include_instances_without_rates(self):
        generator = np.random.default_rng(5)
        for limits in (1, 2):
            rates, capacities, hosts = case(generator, limits)
            hosts[:2] = 0
            of_all = relief.Loads(rates, capacities, hosts)
            own = np.flatnonzero(hosts == 0)
            part = relief.Loads(
                rates[:, own], capacities, hosts[own], of_all.sums.copy(),
                of_all.above.copy(), np.bincount(hosts[hosts > 0],
                                                 minlength=3))
            self.assertEqual(of_all.sizes.tolist(), part.sizes.tolist())
            self.assertTrue(part.known.all())
            for row, instance in enumerate(own[:1]):
                self.assertEqual(
                    of_all.joined([instance], [1, 2]).tolist(),
                    part.joined([row], [1, 2]).tolist())
                of_all.put(instance, 1)
                part.put(row, 1)
            self.assertEqual(of_all.overload(range(3)).tolist(),
                             part.overload(range(3)).tolist())
            self.assertEqual(of_all.sizes.tolist(), part.sizes.tolist())

    def test_unknown_slots_are_no_overload(self):
        sums = np.full((1, 2, 4), np.nan)
        sums[0, :, 2:] = 15.0
        loads = relief.Loads(
            np.full((1, 1, 4), 6.0), [[10.0, 10.0]], [0], sums,
            np.zeros((1, 2, 4), dtype=np.int16), [2, 1])
        self.assertEqual([2, 2], loads.known.sum(axis=1).tolist())
        self.assertEqual([[False, False, True, True]],
                         loads.overload([0]).tolist())
        self.assertEqual([0], loads.without(0, [0]).tolist())
        self.assertEqual([[2]], loads.joined([0], [1]).tolist())

    def test_a_missing_limit_is_never_exceeded(self):
        loads = relief.Loads(np.full((1, 2, 3), 1e9), [[np.inf]], [0, 0])
        self.assertFalse(loads.overload([0]).any())
        self.assertEqual([0, 0], loads.without(0, [0, 1]).tolist())

    def test_a_move_there_and_back_changes_nothing(self):
        generator = np.random.default_rng(2)
        rates, capacities, hosts = case(generator)
        rates *= .1
        loads = relief.Loads(rates, capacities, hosts)
        before = loads.sums.copy(), loads.above.copy()
        for _ in range(100):
            row, host = generator.integers(7), generator.integers(-1, 3)
            loads.put(row, host)
        for row, host in enumerate(hosts):
            loads.put(row, host)
        np.testing.assert_allclose(before[0], loads.sums, atol=1e-9)
        np.testing.assert_array_equal(before[1], loads.above)

    def test_a_view_of_some_slots_follows_changes(self):
        rates, capacities, hosts = case(np.random.default_rng(3))
        loads = relief.Loads(rates, capacities, hosts)
        view = loads.within(5, 11)
        loads.put(0, (hosts[0] + 1) % 3)
        alone = relief.Loads(rates[..., 5:11], capacities, loads.hosts)
        np.testing.assert_array_equal(alone.sums, view.sums)
        np.testing.assert_array_equal(alone.overload(range(3)),
                                      view.overload(range(3)))


class BestMoveTestCase(unittest.TestCase):

    def _enumerated(self, rates, capacities, hosts, source, limit):
        """Return the largest gain of any move and all moves with it."""
        best, moves = 0, set()
        for row in np.flatnonzero(hosts == source):
            for to in range(3):
                if to == source:
                    continue
                moved = hosts.copy()
                moved[row] = to
                was, target, remaining, joined = (
                    overload(rates, capacities, where, host)
                    for where in (hosts, moved) for host in (source, to))
                if joined > max(limit, target):
                    continue
                gain = was + target - remaining - joined
                if gain > best:
                    best, moves = gain, set()
                if gain == best > 0:
                    moves.add((int(row), to))
        return best, moves

    def test_the_chosen_move_is_the_best_of_all(self):
        generator = np.random.default_rng(4)
        compared = 0
        for trial in range(150):
            rates, capacities, hosts = case(generator, 1 + trial % 2)
            limit = trial % 4
            best, moves = self._enumerated(rates, capacities, hosts, 0, limit)
            move = relief.best_move(
                relief.Loads(rates, capacities, hosts), 0, [1, 2], limit)
            if not moves:
                self.assertIsNone(move)
                continue
            compared += 1
            self.assertEqual((0, best), (move.source, move.gain))
            self.assertIn((move.instance, move.destination), moves)
        self.assertGreater(compared, 40)

    def test_closed_destinations_and_excluded_instances_are_left_out(self):
        rates = np.array([[[6.0, 6.0], [6.0, 6.0], [0.0, 0.0], [1.0, 1.0]]])
        loads = relief.Loads(rates, [[10.0, 10.0, 10.0]], [0, 0, 1, 2])
        self.assertEqual(2, relief.best_move(loads, 0, [2], 0).destination)
        self.assertIsNone(relief.best_move(loads, 0, [], 0))
        for instance in (0, 1):
            self.assertEqual(instance, relief.best_move(
                loads, 0, [1], 0, [instance]).instance)
        self.assertIsNone(relief.best_move(loads, 0, [1], 0, []))


class PlanTestCase(unittest.TestCase):
    """Slots of 900 s, E = .1: .06 of the time is earned."""

    def setUp(self):
        # Host 0: 12 in one slot of ten, and in the last one; host 1: quiet.
        base = np.zeros((5, 100))
        base[:3] = 3.0
        base[0, ::10] = base[0, -1] = 6.0
        base[3] = 1.0
        self.rates = base[None]
        self.hosts = [0, 0, 0, 1, -1]

    def loads(self):
        return relief.Loads(self.rates, [[10.0, 10.0, 10.0]], self.hosts)

    def _plan(self, balance=(-1.0, 0.0, 100.0), loads=None, **values):
        loads = loads or self.loads()
        before = loads.hosts.copy(), loads.sums.copy()
        moves = plan(loads, balance, **{'recent': 4, 'empty': (2,), **values})
        np.testing.assert_array_equal(before[0], loads.hosts)
        np.testing.assert_array_equal(before[1], loads.sums)
        return moves

    def test_a_host_in_debt_is_relieved_by_the_fewest_moves(self):
        moves = self._plan()
        self.assertEqual([(0, 1)], [(move.source, move.destination)
                                    for move in moves])
        self.assertEqual(11, moves[0].gain)

    def test_no_move_is_made_without_need_or_possibility(self):
        base = self.rates.copy()
        for reason, change, values in (
                ('a host with budget', lambda: None,
                 {'balance': [0.0, 0.0, 100.0]}),
                ('no recent overload',
                 lambda: self.rates[0, 0].__setitem__(slice(-5, None), 3.0),
                 {}),
                ('10 of 100 slots are E exactly',
                 lambda: self.rates[0, 0].__setitem__(0, 3.0), {}),
                ('overload by former instances',
                 lambda: self.hosts.__setitem__(0, 2),
                 {'balance': [-1.0, 0.0, 0.0]}),
                ('a destination in debt',
                 lambda: self.hosts.__setitem__(0, 0),
                 {'balance': [-1.0, -1.0, 100.0], 'empty': ()}),
                ('all instances are immovable', lambda: None,
                 {'movable': np.zeros(5, bool)}),
                ('the source is closed', lambda: None,
                 {'empty': (), 'closed': np.arange(3) == 0}),
                ('the destination is closed', lambda: None,
                 {'empty': (), 'closed': np.arange(3) == 1})):
            self.rates = base.copy()
            change()
            with self.subTest(reason):
                self.assertEqual([], self._plan(**values))

    def test_a_host_with_a_large_debt_is_relieved_until_it_earns(self):
        # 10 of 100 slots are E, more than the 6 that are earned.
        self.rates[0, 0, 0] = 3.0
        for days, count in ((19.9, 0), (20.1, 1)):
            self.assertEqual(count, len(self._plan(
                [-days * DAY, 0.0, 100.0])))

    def test_the_number_of_moves_at_a_time_is_limited(self):
        # Each of eight brings host 0 above 10 in slots of its own.
        rates = np.zeros((1, 14, 40))
        rates[0, 8] = 9.0
        for row in range(8):
            rates[0, row, 5 * row:5 * row + 5] = 2.0
        loads = relief.Loads(rates, [[10.0] * 6], [0] * 9 + [1, 2, 3, 4, 5])
        for most in (1, 2, 3):
            self.assertEqual(most, len(self._plan(
                [-1e9] + 5 * [100.0], loads, recent=40, empty=(),
                rule=relief.Rule(moves=most), movable=np.arange(14) < 8)))

    def test_an_empty_host_is_the_last_resort(self):
        # Host 1 is full: no move helps.
        self.rates[0, 3] = 9.0
        for days, empty, destinations in (
                (.9, (2,), []), (1.1, (2,), [2]), (1.1, (), [])):
            self.assertEqual(destinations, [
                move.destination for move in self._plan(
                    [-days * DAY, 0.0, 100.0], empty=empty)])

    def test_the_instance_for_an_empty_host_leaves_least_overload(self):
        generator = np.random.default_rng(6)
        compared = 0
        for _ in range(60):
            rates, capacities, hosts = case(generator)
            rates = np.minimum(rates, 8.0)
            hosts[:] = 0
            moves = plan(relief.Loads(rates, capacities, hosts),
                         [-1e9, 0.0, 0.0], recent=25,
                         rule=relief.Rule(moves=1), empty=(2, 1))
            overload_left = {}
            for row in range(7):
                moved = hosts.copy()
                moved[row] = -1
                overload_left[row] = overload(rates, capacities, moved, 0)
            for move in moves if len(moves) == 1 else ():
                compared += 1
                self.assertEqual(2, move.destination)
                self.assertEqual(min(overload_left.values()),
                                 overload_left[move.instance])
        self.assertGreater(compared, 40)

    def test_several_moves_go_to_one_new_host_together(self):
        # 4 x 4 and 1 above 10: two of the large ones have to go.
        rates = np.full((1, 5, 20), 4.0)
        rates[0, 2] = 1.0
        loads = relief.Loads(rates, np.full((1, 4), 10.0), [0] * 5)
        moves = self._plan([-1e9, 9.0, 9.0, 9.0], loads, empty=(1, 2, 3))
        self.assertEqual([1, 1], [move.destination for move in moves])
        self.assertNotIn(2, [move.instance for move in moves])
        for move in moves:
            loads.put(move.instance, move.destination)
        self.assertFalse(loads.overload(range(4)).any())

    def test_the_new_host_stays_within_the_limit(self):
        # Two of 6 do not fit together: all overload ends with three hosts.
        rates = np.full((1, 4, 20), 6.0)
        loads = relief.Loads(rates, np.full((1, 4), 10.0), [0] * 4)
        moves = self._plan([-1e9, 9.0, 9.0, 9.0], loads, empty=(1, 2, 3))
        self.assertEqual([1, 2, 3], sorted(move.destination
                                           for move in moves))
        self.assertEqual(1, len({move.group for move in moves}))

    def test_a_lone_instance_is_never_moved_to_an_empty_host(self):
        loads = relief.Loads(np.full((2, 1, 9), 20.0) * [[[1.0]], [[.1]]],
                             [[30.0, 30.0], [1.0, 1.0]], [0])
        self.assertEqual([], self._plan([-1e9, 0.0], loads, empty=(1,)))

    def test_a_move_that_costs_more_than_it_saves_is_not_made(self):
        loads = self.loads()
        for cost, count in ((10.9, 1), (11.0, 0)):
            moves = plan(
                loads, [-1e9, 0.0, 1.0], recent=4, empty=(2,),
                costs=constant_costs(cost))
            self.assertEqual(count, len(moves))
            for move in moves:
                self.assertAlmostEqual(11 - cost, move.gain)

    def test_with_costs_the_cheaper_of_equal_moves_is_made(self):
        rates = np.concatenate([self.rates, self.rates[:, 3:4]], axis=1)
        loads = relief.Loads(rates, np.full((1, 3), 10.0), [0, 0, 0, 1, -1, 2])
        for cheap in (1, 2):
            moves = plan(
                loads, [-1.0, 0.0, 0.0], recent=4,
                costs=lambda source, instances, hosts: np.array(
                    [[host != cheap for host in hosts]] * len(instances)))
            self.assertEqual([cheap], [move.destination for move in moves])

    def test_a_host_in_debt_that_accepts_keeps_what_it_earns(self):
        # E = .1, .06 of it is earned. Host 0 is overloaded in 20 of 100
        # slots, host 1 with one of its instances in 6 or 7.
        rates = np.zeros((1, 3, 100))
        rates[0, :2, -20:] = 6.0
        for slots, accepting, count in (
                (6, [False, True], 1), (6, [False, False], 0),
                (7, [False, True], 0)):
            rates[0, 2] = 0.0
            rates[0, 2, -slots:] = 5.0
            loads = relief.Loads(rates, np.full((1, 2), 10.0), [0, 0, 1])
            with self.subTest(slots=slots, accepting=accepting):
                self.assertEqual(count, len(plan(
                    loads, [-1.0, -1.0], recent=4,
                    accepting=np.array(accepting))))

    def test_a_relieved_host_is_no_destination(self):
        loads = relief.Loads(np.concatenate([self.rates] * 2, axis=1),
                             np.full((1, 2), 10.0), [0, 0, 0, -1, -1] + [
                                 1, 1, 1, -1, -1])
        for accepting in (True, False):
            self.assertEqual([], plan(loads, [-1.0, -1.0], recent=4,
                                      accepting=np.full(2, accepting)))

    def test_with_costs_a_quiet_hour_does_not_delay_a_move(self):
        self.rates[0, 0, -5:] = 3.0
        self.rates[0, 0, 1] = 6.0
        self.assertEqual(1, len(plan(self.loads(), [-1.0, 0.0, 1.0], recent=4,
                                     costs=constant_costs(0.0))))


class ConstraintsTestCase(unittest.TestCase):

    def test_cores_and_memory_are_kept_through_a_plan(self):
        constraints = relief.Constraints([[2.0, 1.0], [2.0, 8.0]],
                                         [[0.0, 0.0], [3.0, 8.0]])
        self.assertEqual([[True], [True]],
                         constraints.allowed([0, 1], [1]).tolist())
        copied = dataclasses.replace(constraints)
        copied.put(0, 0, 1)
        self.assertEqual([[False]], copied.allowed([1], [1]).tolist())
        self.assertEqual([[True]], copied.allowed([0], [0]).tolist())
        self.assertEqual([[True]], constraints.allowed([1], [1]).tolist())

    def test_aggregates_and_groups_keep_instances_from_hosts(self):
        may = np.array([[True, True, False], [True, True, True],
                        [True, True, True]])
        constraints = relief.Constraints(
            np.zeros((3, 0)), np.zeros((3, 0)), may=may,
            groups=np.array([-1, 0, 0]), members=[[1, 1, 0]],
            most_members=[1])
        self.assertEqual([[True, False], [False, True]],
                         constraints.allowed([0, 1], [1, 2]).tolist())
        constraints.put(2, 1, 2)
        self.assertEqual([[True, False], [True, False]],
                         constraints.allowed([0, 1], [1, 2]).tolist())


class ExcessTestCase(unittest.TestCase):
    """Four instances of 4 on a host of 10; others have room for two each."""

    def setUp(self):
        self.rates = np.full((1, 6, 20), 4.0)
        self.rates[0, 4:] = 1.0

    def plan(self, **values):
        return plan(relief.Loads(self.rates, [[10.0, 10.0, 9.0]],
                                 [0, 0, 0, 0, 1, 2]), [-1.0, 1.0, 1.0],
                    **values)

    def test_moves_that_end_overload_only_together_are_made(self):
        self.assertEqual([], self.plan(rule=relief.Rule(together=1)))
        moves = self.plan()
        self.assertEqual([(0, 1), (0, 2)],
                         [(move.source, move.destination) for move in moves])
        # They end 20 slots of overload, in each of which four suffered.
        self.assertEqual([10.0, 10.0], [move.gain for move in moves])
        self.assertEqual([40.0, 40.0], [move.vm_gain for move in moves])
        self.assertEqual(1, len({move.group for move in moves}))

    def test_moves_that_end_no_overload_are_not_made(self):
        # The host stays overloaded without any number of the small ones.
        self.rates[0, :2] = 8.0
        self.rates[0, 2:4] = .5
        self.assertEqual([], self.plan(movable=np.isin(np.arange(6), (2, 3))))

    def test_unnecessary_moves_of_a_group_are_omitted(self):
        generator = np.random.default_rng(8)
        made = 0
        for _ in range(60):
            rates = generator.integers(2, 5, (1, 7, 25)).astype(float)
            rates[0, 4] *= generator.integers(0, 2)
            rates[0, 5:] = 1.0
            loads = relief.Loads(rates, [[6.0, 9.0, 9.0]],
                                 [0, 0, 0, 0, 0, 1, 2])
            moves = plan(loads, [-1.0, 1.0, 1.0], .01, 25)
            for number in {move.group for move in moves}:
                group = [move for move in moves if move.group == number]
                before = np.count_nonzero(loads.overload(range(3)))
                for move in group:
                    loads.put(move.instance, move.destination)
                after = np.count_nonzero(loads.overload(range(3)))
                self.assertAlmostEqual(before - after, sum(
                    move.gain for move in group))
                self.assertTrue(after < before or group[0].vm_gain > 0)
                for move in group if len(group) > 1 else ():
                    made += 1
                    loads.put(move.instance, move.source)
                    self.assertGreater(np.count_nonzero(
                        loads.overload(range(3))), after)
                    loads.put(move.instance, move.destination)
        self.assertGreater(made, 3)

    def test_a_group_of_moves_adds_no_overload(self):
        # In all slots, and in one of 20 slots, which is within the limit.
        for slots in (slice(None), 0):
            self.rates[0, 4:] = 1.0
            self.rates[0, 4:, slots] = 7.0
            self.assertEqual([], self.plan())

    def test_an_instance_above_the_capacity_is_no_relief(self):
        self.rates[0, 0, :10] = 11.0
        self.assertEqual([], self.plan(movable=np.arange(6) == 0))

    def test_moves_end_for_any_samples(self):
        # Also with a host that is empty at first.
        generator = np.random.default_rng(7)
        for number in range(20):
            hosts = 3 + number % 2
            rates, capacities, at = case(generator, 1, 10, hosts)
            at[:7] = 0
            at[at == 3] = 2
            loads = relief.Loads(rates, capacities, at)
            states = set()
            for _ in range(30):
                slots = np.count_nonzero(
                    loads.overload(range(hosts)), axis=1)
                moves = plan(loads, np.where(slots > 0, -1e9, 1.0), .01, 25,
                             empty=np.flatnonzero(loads.sizes == 0))
                if not moves:
                    break
                for move in moves:
                    loads.put(move.instance, move.destination)
                    state = tuple(loads.hosts)
                    self.assertNotIn(state, states)
                    states.add(state)
            else:
                self.fail('moves without end')


class PartingTestCase(unittest.TestCase):
    """Instance 0 alone exceeds host 0; instances 1 and 2 suffer from it."""

    def plan(self, capacities=(10.0, 10.0, 10.0), hosts=(0, 0, 0, 1, 2),
             others=1.0, **values):
        rates = np.full((1, 5, 20), 1.0)
        rates[0, 0, ::4] = 12.0
        rates[0, 3:] = others
        return plan(relief.Loads(rates, [capacities], hosts), np.full(3, 1.0),
                    **values)

    def test_a_large_instance_goes_to_a_switch_that_carries_it(self):
        move, = self.plan((10.0, 10.0, 13.0))
        self.assertEqual((0, 2), (move.instance, move.destination))
        # In 5 slots, two suffered; it was no overload of the host by itself.
        self.assertEqual((0.0, 10.0), (move.gain, move.vm_gain))
        self.assertTrue(move.parts)

    def test_an_empty_host_is_used_only_for_instances_that_it_carries(self):
        hosts = (0, 0, 0, 1, 1)
        for capacity, expected in ((13.0, [(0, 2)]), (10.0, [(1, 1), (2, 1)])):
            self.assertEqual(expected, pairs(self.plan(
                (10.0, 10.0, capacity), hosts, empty=(2,))))

    def test_others_leave_a_large_instance_that_no_host_carries(self):
        moves = self.plan()
        self.assertEqual([1, 2], sorted(move.instance for move in moves))
        self.assertEqual([5.0, 5.0], [move.vm_gain for move in moves])

    def test_a_large_instance_joins_another_if_that_ends_more(self):
        rates = np.full((1, 6, 20), 1.0)
        rates[0, :2, ::4] = 12.0
        loads = relief.Loads(rates, [[10.0, 10.0]], [0, 1, 0, 0, 0, 1])
        moves = plan(loads, np.full(2, 1.0))
        self.assertEqual([(0, 1)], pairs(moves))
        self.assertEqual(15.0, moves[0].vm_gain)

    def test_no_move_brings_a_host_beyond_its_limit(self):
        self.assertEqual([], self.plan(others=9.5))
        self.assertEqual([], self.plan(movable=np.arange(5) > 2))

    def test_the_number_of_parting_moves_is_limited(self):
        for most in (0, 1, 2):
            self.assertEqual(most, len(self.plan(most_parted=most)))

    def test_within_the_limit_nothing_moves(self):
        rates = np.full((1, 3, 20), 1.0)
        rates[0, 0, -2:] = 12.0
        loads = relief.Loads(rates, [[10.0, 10.0]], [0, 0, 1])
        for limit, count in ((.11, 0), (.09, 1)):
            self.assertEqual(count, len(plan(loads, np.full(2, 1.0), limit)))


class HostTermsTestCase(unittest.TestCase):

    def test_each_host_has_its_own_limit(self):
        # 4 of 100 slots above the capacity; with the move host 1 has 2.
        rates = np.full((1, 3, 100), 3.0)
        rates[0, :2, :4] = 6.0
        rates[0, 2, :2] = 6.0
        loads = relief.Loads(rates, [[10.0, 10.0]], [0, 0, 1])
        for limits, count in (
                ([.01, .03], 1), ([.05, .03], 0), ([.01, .01], 0)):
            self.assertEqual(count, len(plan(loads, [-1.0, 1.0], limits, 100)))

    def test_the_limit_applies_to_known_slots(self):
        sums = np.full((1, 2, 100), 1.0)
        sums[0, 0, :50] = np.nan
        sums[0, 0, 50:54] = 12.0
        loads = relief.Loads(
            np.full((1, 2, 100), 5.0), [[10.0, 10.0]], [0, 0], sums,
            np.zeros((1, 2, 100), dtype=np.int16), [0, 1])
        # 4 of 50, not of 100.
        for limit, count in ((.05, 1), (.09, 0)):
            self.assertEqual(count, len(plan(
                loads, [-1.0, 1.0], limit, 100)), limit)


class AdviseTestCase(unittest.TestCase):

    def _advise(self, loads, balance, churn=relief.Churn(), closed=None,
                **values):
        return relief.advise(relief.ReliefCase(
            loads, np.array(balance), rules.Terms(.1), 20,
            free(loads, closed=closed)), relief.Rule(), churn, **values)

    def _loads(self, hosts=3, each=4):
        """Return hosts above their capacity and as many quiet ones."""
        rates = np.full((1, hosts * each + hosts, 20), 3.0)
        rates[:, hosts * each:] = 0.1
        at = [*np.repeat(np.arange(hosts), each), *range(hosts, 2 * hosts)]
        return relief.Loads(rates, np.full((1, 2 * hosts), 10.0), at)

    def test_each_host_in_debt_is_relieved(self):
        advice = self._advise(self._loads(), [-1.0] * 3 + [9.0] * 3,
                              relief.Churn(most_share_a_week=1.0))
        self.assertEqual([0, 1, 2], sorted(
            move.source for move in advice.moves))
        self.assertEqual(0, advice.held_back)
        self.assertEqual('3 hosts are in debt', advice.reason)

    def test_the_limits_on_churn_hold_moves_back(self):
        loads = self._loads()
        for churn, count in (
                (relief.Churn(most_moves=2, most_share_a_week=1.0), 2),
                # 15 instances.
                (relief.Churn(most_share_a_week=.1), 1),
                (relief.Churn(most_share_a_week=0.0), 0)):
            advice = self._advise(loads, [-1.0] * 3 + [9.0] * 3, churn)
            self.assertEqual((count, 3 - count),
                             (len(advice.moves), advice.held_back))
            self.assertIn('wait', advice.reason)

    def test_moves_of_the_last_week_count(self):
        loads = self._loads()
        moved_at = np.full(15, -np.inf)
        moved_at[12:14] = 5 * rules.DAY_SECONDS
        for days, count in ((5.5, 1), (13, 3)):
            self.assertEqual(count, len(self._advise(
                loads, [-1.0] * 3 + [9.0] * 3, relief.Churn(
                    most_share_a_week=.2), moved_at=moved_at,
                now=days * rules.DAY_SECONDS).moves))

    def test_moves_that_help_only_together_are_not_divided(self):
        # Two of four have to leave host 0.
        rates = np.full((1, 6, 20), 4.0)
        rates[0, 4:] = 0.1
        loads = relief.Loads(rates, np.full((1, 3), 10.0), [0, 0, 0, 0, 1, 2])
        for most, count in ((1, 0), (2, 2)):
            advice = self._advise(
                loads, [-1.0, 9.0, 9.0],
                relief.Churn(most_moves=most, most_share_a_week=1.0))
            self.assertEqual((count, 2 - count),
                             (len(advice.moves), advice.held_back))

    def test_instances_are_parted_while_few_were_moved(self):
        rates = np.full((1, 4, 20), 1.0)
        rates[0, 0] = 12.0
        loads = relief.Loads(rates, np.full((1, 2), 10.0), [0, 0, 0, 1])
        for lately, count in ((0, 2), (1, 1), (2, 0)):
            advice = self._advise(loads, [9.0, 9.0], relief.Churn(
                most_share_a_week=1.0, parted_share_a_week=.5), lately=lately)
            self.assertEqual(count, len(advice.moves))
            self.assertEqual(
                'one instance overloads each host alone: 1 host is affected'
                if count else 'no host is in debt', advice.reason)

    def test_an_instance_that_was_moved_recently_stays(self):
        loads = self._loads(hosts=1)
        moved_at = np.full(5, -np.inf)
        moved_at[:3] = 0.0
        churn = relief.Churn(most_share_a_week=10.0)
        for days, possible in ((0.9, {3}), (1.1, {0, 1, 2, 3})):
            advice = self._advise(
                loads, [-1.0, 9.0], churn, moved_at=moved_at,
                now=days * rules.DAY_SECONDS)
            self.assertEqual(1, len(advice.moves))
            self.assertIn(advice.moves[0].instance, possible)
        moved_at[3] = 0.0
        advice = self._advise(loads, [-1.0, 9.0], churn, moved_at=moved_at)
        self.assertEqual((), advice.moves)
        self.assertIn('4 of their 4 instances may not move now',
                      advice.reason)

    def test_an_empty_plan_states_its_reason(self):
        loads = self._loads()
        self.assertEqual('no host is in debt', self._advise(
            loads, [1.0] * 6).reason)
        self.assertIn('no samples', self._advise(
            loads.within(0, 0), [-1.0] * 6).reason)
        self.assertIn('0 of their 15 instances', self._advise(
            loads, [-1.0] * 3 + [-1.0] * 3, closed=np.arange(6) >= 3).reason)

    def test_a_large_fleet_is_planned_for_in_seconds(self):
        # 300 hosts of 20, a tenth of them in debt, a day of samples.
        generator = np.random.default_rng(1)
        rates = generator.exponential(1.0, (1, 6000, 288))
        hosts = np.repeat(np.arange(300), 20)
        rates[:, hosts < 30] *= 1.8
        loads = relief.Loads(rates, np.full((1, 300), 35.0), hosts)
        balance = np.where(np.arange(300) < 30, -1.0, 1.0)
        began = time.process_time()
        advice = self._advise(loads, balance,
                              relief.Churn(most_moves=1000))
        self.assertGreater(len(advice.moves), 10)
        self.assertLess(time.process_time() - began, 30)
