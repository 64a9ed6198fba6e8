# SPDX-License-Identifier: Apache-2.0

import time
import unittest

import numpy as np

from tests.unit.budgets import offers
from vswitch_aware_scheduler.budgets import advisor
from vswitch_aware_scheduler.budgets import relief
from vswitch_aware_scheduler.budgets import rules

DAY = rules.DAY_SECONDS


class AdvisorTestCase(unittest.TestCase):

    terms = rules.Terms(.1)
    rule = relief.Rule()

    def _advise(self, loads, balance, churn=advisor.Churn(), empty=(),
                **words):
        names = ('movable', 'closed')
        constraints = offers.free(loads, **{
            name: words.pop(name) for name in names if name in words})
        return advisor.advise(relief.Case(
            loads, np.array(balance), self.terms, 20, constraints, empty),
            self.rule, churn, **words)

    def _loads(self, hosts=3, each=4):
        """Return hosts above their capacity and as many quiet ones."""
        rates = np.full((1, hosts * each + hosts, 20), 3.0)
        rates[:, hosts * each:] = 0.1
        at = [*np.repeat(np.arange(hosts), each), *range(hosts, 2 * hosts)]
        return relief.Loads(rates, np.full((1, 2 * hosts), 10.0), at)

    def test_each_host_in_debt_is_relieved(self):
        advice = self._advise(self._loads(), [-1.0] * 3 + [9.0] * 3,
                              advisor.Churn(most_share_a_week=1.0))
        self.assertEqual([0, 1, 2], sorted(
            move.source for move in advice.moves))
        self.assertEqual(0, advice.held_back)
        self.assertEqual('3 hosts are in debt', advice.reason)

    def test_churn_holds_moves_back(self):
        loads = self._loads()
        for churn, count in (
                (advisor.Churn(most_moves=2, most_share_a_week=1.0), 2),
                # 15 instances.
                (advisor.Churn(most_share_a_week=.1), 1),
                (advisor.Churn(most_share_a_week=0.0), 0)):
            advice = self._advise(loads, [-1.0] * 3 + [9.0] * 3, churn)
            self.assertEqual((count, 3 - count),
                             (len(advice.moves), advice.held_back))
            self.assertIn('wait', advice.reason)

    def test_moves_of_the_last_week_count(self):
        loads = self._loads()
        moved_at = np.full(15, -np.inf)
        moved_at[12:14] = 5 * DAY
        for now, count in ((5.5 * DAY, 1), (13 * DAY, 3)):
            self.assertEqual(count, len(self._advise(
                loads, [-1.0] * 3 + [9.0] * 3, advisor.Churn(
                    most_share_a_week=.2), moved_at=moved_at,
                now=now).moves))

    def test_moves_that_help_only_together_are_not_divided(self):
        # Two of four have to leave host 0.
        rates = np.full((1, 6, 20), 4.0)
        rates[0, 4:] = 0.1
        loads = relief.Loads(rates, np.full((1, 3), 10.0), [0, 0, 0, 0, 1, 2])
        for most, count in ((1, 0), (2, 2)):
            advice = self._advise(
                loads, [-1.0, 9.0, 9.0],
                advisor.Churn(most_moves=most, most_share_a_week=1.0))
            self.assertEqual((count, 2 - count),
                             (len(advice.moves), advice.held_back))

    def test_instances_are_parted_while_few_were_moved(self):
        rates = np.full((1, 4, 20), 1.0)
        rates[0, 0] = 12.0
        loads = relief.Loads(rates, np.full((1, 2), 10.0), [0, 0, 0, 1])
        for lately, count in ((0, 2), (1, 1), (2, 0)):
            advice = self._advise(loads, [9.0, 9.0], advisor.Churn(
                most_share_a_week=1.0, parted_share_a_week=.5), lately=lately)
            self.assertEqual(count, len(advice.moves))
            self.assertEqual(
                'one instance overloads each host alone: 1 host is affected'
                if count else 'no host is in debt', advice.reason)

    def test_what_was_moved_of_late_stays(self):
        loads = self._loads(hosts=1)
        moved_at = np.full(5, -np.inf)
        moved_at[:3] = 0.0
        churn = advisor.Churn(most_share_a_week=10.0)
        for now, possible in ((0.9 * DAY, {3}), (1.1 * DAY, {0, 1, 2, 3})):
            advice = self._advise(loads, [-1.0, 9.0], churn,
                                  moved_at=moved_at, now=now)
            self.assertEqual(1, len(advice.moves))
            self.assertIn(advice.moves[0].instance, possible)
        moved_at[3] = 0.0
        advice = self._advise(loads, [-1.0, 9.0], churn, moved_at=moved_at)
        self.assertEqual((), advice.moves)
        self.assertIn('4 of their 4 instances may not move now',
                      advice.reason)

    def test_an_empty_plan_says_why(self):
        loads = self._loads()
        self.assertEqual('no host is in debt', self._advise(
            loads, [1.0] * 6).reason)
        self.assertIn('no samples', self._advise(
            loads.within(0, 0), [-1.0] * 6).reason)
        self.assertIn('0 of their 15 instances', self._advise(
            loads, [-1.0] * 3 + [-1.0] * 3, closed=np.arange(6) >= 3).reason)

    def test_a_large_fleet_takes_seconds_of_processor_time(self):
        # 300 hosts of 20, a tenth of them in debt, a day of samples.
        generator = np.random.default_rng(1)
        rates = generator.exponential(1.0, (1, 6000, 288))
        hosts = np.repeat(np.arange(300), 20)
        rates[:, hosts < 30] *= 1.8
        loads = relief.Loads(rates, np.full((1, 300), 35.0), hosts)
        balance = np.where(np.arange(300) < 30, -1.0, 1.0)
        began = time.process_time()
        advice = self._advise(loads, balance,
                              advisor.Churn(most_moves=1000))
        self.assertGreater(len(advice.moves), 10)
        self.assertLess(time.process_time() - began, 30)
