# SPDX-License-Identifier: Apache-2.0

import dataclasses
import unittest

import numpy as np

from tests.unit.lab.evaluate import scripts
from tests.unit.lab.evaluate import traces
from vswitch_aware_scheduler.budgets import relief
from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.lab.evaluate import closed_loop
from vswitch_aware_scheduler.lab.evaluate import methods
from vswitch_aware_scheduler.lab.evaluate import protocols
from vswitch_aware_scheduler.lab.evaluate import strategies

DAY = 288

#: As in a cloud where migrations correct what placement expects too little.
SETTINGS = dataclasses.replace(
    traces.SETTINGS, prediction_margin=.125, error_budgets=True,
    rebalance_checks=1, rebalance_cool_down_hours=0.0)


class Apart(scripts.Script):
    """Puts instances on given hosts after the first bin, then decides.

    :ivar made: [(bin, instance, destination)] that were tried
    """

    def __init__(self, hosts, strategy):
        super().__init__()
        self.hosts = hosts
        self.strategy = strategy
        self.made = []
        self.bin = 0

    def decide(self, fleet):
        self.bin += 1
        if self.bin == 1:
            for row, host in enumerate(self.hosts):
                if host:
                    fleet.move(row, host)
            really = fleet.move
            fleet.move = lambda row, host: (
                self.made.append((self.bin, row, host)), really(row, host))[1]
        self.strategy.decide(fleet)


def moves(rates, hosts, strategy, **conditions):
    """Return the moves that were tried, and the Replay."""
    script = Apart(hosts, strategy)
    replayed = scripts.replay(
        rates, [0] * len(rates), script,
        **{'period_seconds': 300.0, **conditions})
    return script.made, replayed


class ErrorBudgetTestCase(unittest.TestCase):

    def _strategy(self, limit=.05, checks=1, churn=None, places=True,
                  **rule):
        return strategies.BudgetStrategy(
            rules.Terms(limit), relief.Rule(**rule),
            churn or relief.Churn(0.0, 10, 10.0), checks, places)

    def _rates(self, bins=2 * DAY):
        # Both send at once for ten bins of each hundred; a third is quiet.
        at = np.arange(bins) % 100
        busy = np.where((at >= 20) & (at < 30), 6.0, 1.0)
        return np.array([busy, busy, np.ones(bins)])

    def _moves(self, bins=2 * DAY, conditions=(), **of_strategy):
        return moves(self._rates(bins), [0, 0, 1],
                     self._strategy(**of_strategy), **dict(conditions))

    def test_a_host_in_debt_is_relieved_once(self):
        migrations, replayed = self._moves()
        # .03 of 288 bins at first and of 30 since then are 9.54 bins.
        self.assertEqual(1, len(migrations))
        when, instance, destination = migrations[0]
        self.assertEqual((30, 1), (when, destination))
        self.assertIn(instance, (0, 1))
        self.assertEqual(10, scripts.judged(replayed).avoidable[0])
        # Within its budget nothing moves.
        self.assertEqual([], self._moves(60, limit=.2)[0])

    def test_a_move_that_fails_is_tried_again(self):
        tries = []
        for seed in range(12):
            migrations, replayed = self._moves(
                60, {'failing_share': .5, 'seed': seed})
            hosts = replayed.loads.hosts
            if hosts[2] == 1:
                tries.append(len(migrations))
                self.assertNotEqual(hosts[0], hosts[1])
                self.assertEqual(list(range(30, 30 + len(migrations))),
                                 [when for when, _, _ in migrations])
        self.assertIn(1, tries)
        self.assertGreater(max(tries), 1)

    def test_a_host_is_relieved_after_several_rounds_in_debt(self):
        for checks, when in ((2, 31), (4, 33)):
            self.assertEqual(when, self._moves(checks=checks)[0][0][0])

    def test_the_limits_on_the_number_of_moves_hold(self):
        # A quarter of three instances in a week: none.
        self.assertEqual([], self._moves(churn=relief.Churn(0.0, 10))[0])
        # One whose migration failed rests.
        for seed in range(12):
            migrations, _ = self._moves(
                60, {'failing_share': .5, 'seed': seed},
                churn=relief.Churn(1e9, 10, 10.0))
            rows = [row for _, row, _ in migrations]
            self.assertEqual(len(set(rows)), len(rows))

    def test_arrivals_are_placed_by_debts_if_that_is_the_option(self):
        for places in (True, False):
            strategy = self._strategy(places=places, open_days=1e9)
            moves(self._rates()[:2], [0, 0], strategy)
            # A tenth of the time is above .6 x .05.
            self.assertEqual([('host', 0)] * places, list(strategy.debts()))


class PublishedTestCase(unittest.TestCase):

    def test_instances_with_constant_rates_move_by_the_published_rules(self):
        for strategy, rates, hosts, expected in (
                # 9 of 10 with a mean of 13 / 3 are 4.67 too much: the largest
                # that is not above this goes to the idlest host.
                (strategies.WorkloadBalance, [4.0, 3.0, 2.0, 3.0, 1.0],
                 [0, 0, 0, 1, 2], [(1, 0, 2)]),
                # Below the threshold.
                (strategies.WorkloadBalance, [4.0, 3.9, 1.0], [0, 0, 1], []),
                # An empty host, if no other stays below the threshold.
                *((strategies.WorkloadBalance, [5.0, 3.9, 1.0, rate],
                   [0, 0, 0, 1], [(1, 2, destination)])
                  for rate, destination in ((6.0, 1), (7.5, 2))),
                # It does not fit elsewhere.
                (strategies.Sandpiper, [4.0, 3.9, 6.0], [0, 0, 1],
                 [(5, 0, 2)]),
                # 8.5 is hot and fits nowhere else: the others go, together.
                (strategies.Sandpiper, [8.5, 2.0, 1.0, 6.9], [0, 0, 0, 1],
                 [(5, 1, 2), (5, 2, 2)])):
            with self.subTest(strategy, rates=rates):
                self.assertEqual(expected, moves(
                    np.array(rates)[:, None] * np.ones(9), hosts,
                    strategy(10.0))[0])

    def test_three_of_five_samples_make_a_hotspot(self):
        for above, expected in ((2, []), (3, [(9, 0, 1)])):
            rates = np.array([[4.0], [3.0], [1.0]]) * np.ones(9)
            rates[1, 9 - above:] = 3.9
            rates[1, -1] = 3.9
            self.assertEqual(expected, moves(
                rates, [0, 0, 1], strategies.Sandpiper(10.0))[0])


def _figures(result):
    return result.figures(.02, result)


class ProtocolTestCase(unittest.TestCase):

    def setUp(self):
        generator = np.random.default_rng(1)
        rates = generator.exponential(1.0, (24, 4 * 24))
        # From the third day on they send three times as much.
        rates[:, 2 * 24:] *= 3.0
        self.case = protocols.ReplayCase(
            traces.trace.Trace.from_series(traces.make_series(
                rates, period=3600.0)), 20.0, .02, protocol='rolling')

    def _results(self, seeds=1, settings=SETTINGS, **words):
        case = dataclasses.replace(
            self.case, conditions=closed_loop.Conditions(**words))
        return protocols.evaluate(
            case, strategies.make_rebalanced(settings), seeds)

    def test_all_are_reported_with_moves_and_host_hours(self):
        results = self._results(2)
        self.assertEqual([*strategies.NAMES, 'clairvoyant'], list(results))
        lines = {name: result.figures(.02, results['clairvoyant'])
                 for name, result in results.items()}
        self.assertEqual(0.0, lines['none']['moves_per_instance_week'])
        self.assertEqual(0.0, lines['none']['migration_share'])
        self.assertGreater(lines['ours']['moves_per_instance_week'], 0)
        self.assertGreater(lines['ours']['migration_share'], 0)
        for line in lines.values():
            self.assertLessEqual(line['hosts_mean'], line['hosts'])
            self.assertAlmostEqual(line['overload_over_limit'] * .02,
                                   line['overload_avoidable_mean'])
            self.assertLessEqual(line['overload_over_limit'],
                                 line['overload_over_limit_worst'])
        self.assertLess(lines['ours']['overload_over_limit_weighted'],
                        lines['none']['overload_over_limit_weighted'])

    def test_without_moves_it_is_what_the_method_ours_comes_to(self):
        plain = protocols.evaluate(
            self.case, methods.make_methods(traces.SETTINGS)[1:2], 2)
        self.assertEqual(['ours', 'clairvoyant'], list(plain))
        best = plain['clairvoyant']
        expected = plain['ours'].figures(.02, best)
        figures = self._results(2, traces.SETTINGS)['none'].figures(.02, best)
        self.assertEqual({**expected, 'method': 'none'}, figures)

    def test_instances_that_leave_are_on_hosts_equally_long(self):
        self.case = dataclasses.replace(self.case, saturation_kbps=12.0,
                                        lifetime_days=2.0)
        for words in ({}, {'switch_share': .1, 'memory_mib': .01}):
            results = self._results(**words)
            presence = {name: result.judgements[0].vm_bins.tolist()
                        for name, result in results.items()}
            for name in strategies.NAMES:
                self.assertEqual(presence['clairvoyant'], presence[name])
            self.assertLess(max(presence['ours']), 4 * 24)
            self.assertGreater(results['ours'].judgements[0].moves, 0)

    def test_conditions_change_what_comes_of_moves_only(self):
        plain = self._results()
        for condition in ({'delay_seconds': 3600.0}, {'failing_share': .5},
                          {'switch_share': .1, 'memory_mib': .01}):
            changed = self._results(**condition)
            for name, unchanged in (('clairvoyant', True), ('none', True),
                                    ('ours', False)):
                self.assertEqual(
                    unchanged, _figures(plain[name]) == _figures(
                        changed[name]), (condition, name))

    def test_missing_samples_change_what_is_known_not_what_is_judged(self):
        plain, with_gaps = self._results(), self._results(missing_share=.3)
        self.assertEqual(plain['clairvoyant'].judgements[0].loss,
                         with_gaps['clairvoyant'].judgements[0].loss)
        self.assertNotEqual(_figures(plain['ours']),
                            _figures(with_gaps['ours']))
