# SPDX-License-Identifier: Apache-2.0

import numpy as np

from tests.fakes import store as fake_store
from tests.unit.budgets import fleet as budget_fleet
from tests.unit.store import base
from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.fleet import outcomes
from vswitch_aware_scheduler import store

PERIOD = budget_fleet.PERIOD
LIMITS = (((1.0, 1.0, 0.0), 800.0, 100.0),)
#: Slots since the decisions.
SLOTS = 120
DECIDED = base.NOW // PERIOD * PERIOD - SLOTS * PERIOD


class SummaryTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.store, self.decisions, self.measured = self.make_store(), [], []

    def decide(self, host, check=None, slots=SLOTS, **more):
        number = len(self.decisions) + 1
        self.decisions.append(fake_store.decision(
            number, base.NOW - DECIDED + (slots - SLOTS) * PERIOD, **{
                'host': host, 'admitted': 1, 'chosen': {
                    'check': check, 'overload_probability': .02,
                    'limit': .01, 'loss_fraction': 0.0, 'utilisation': .5},
                **more}))

    def measure(self, host, overloaded, slots=SLOTS, alone=False):
        """Store sums: before the decision, the host is always overloaded."""
        rates = np.full((1, slots + 24), 150.0)
        rates[0, 24 + overloaded:] = 50.0
        self.measured += budget_fleet.days_of(packed.Sums(
            host, PERIOD, round(DECIDED / PERIOD) - 24, LIMITS, rates,
            np.full(rates.shape, alone)))

    def summary(self):
        self.store.settle_budgets(
            store.BudgetState(PERIOD, base.NOW), [], self.measured)
        return outcomes.summary(self.store, self.decisions, base.NOW)

    def test_requests_are_counted_by_what_enforcement_changes(self):
        answer = self.summary()
        self.assertEqual(['The store has no decision of a scheduler.'],
                         outcomes.sentences(answer))
        self.assertEqual((0, [], []), (
            answer['requests'], answer['remarks'], answer['hosts']))
        self.decide('a')
        for _ in range(2):
            self.decide('b', 'overload probability')
        for host in ('a', 'b', None):
            self.decide(host, 'peak', admitted=0, **(
                {} if host else {'outcome': store.NO_HOST, 'chosen': None}))
        self.decide('c', chosen=None)
        answer = self.summary()
        self.assertEqual((7, 3, 1, 2), tuple(answer[key] for key in (
            'requests', 'would_fail', 'failed', 'elsewhere')))
        self.assertEqual(
            'Of 7 requests since 2023-11-14T12:10:00Z, 3 would have failed '
            'and 2 would be on another host if every host were enforced. '
            '1 did fail.', outcomes.sentences(answer)[0])
        self.assertEqual({'no filter checked the host': 1},
                         answer['left_out'])

    def test_hosts_are_measured_since_their_decisions(self):
        for host, check, overloaded in (
                ('a', 'overload probability', 60), ('b', 'average', 2),
                ('c', 'peak', 1), ('d', None, 0), ('e', None, 0)):
            self.decide(host, check)
            self.measure(host, overloaded)
        self.decide('f', 'peak')
        self.measure('f', 60, slots=99)
        self.decide('g', 'peak')
        # Traffic does not show it.
        self.decide('h', 'tunnels')
        answer = self.summary()
        self.assertEqual([(5, 3, 2), (2, 2, 0)], [
            tuple(group[key] for key in ('hosts_decided', 'hosts',
                                         'overloaded_hosts'))
            for group in answer['groups']])
        self.assertAlmostEqual((.5 + 2 / 120 + 1 / 120) / 3,
                               answer['groups'][0]['realised'])
        # 3 of the 10 ways to draw three of five hosts.
        self.assertEqual([
            'refused hosts were overloaded more often than admitted ones: 2 '
            'of 3 and 0 of 2, confidence 70 %, not yet certain',
            'refused: 2 hosts wait for traffic to be measured: 0 slots of '
            'time since the decision; expected 100',
            '1 hosts are left out: refused for tunnels'], answer['remarks'])
        self.assertEqual([
            '5 hosts received an instance although they are refused: 3 of '
            'them were measured for long enough since, and 2 were overloaded '
            'for longer than their limit (21 to 94 %).',
            '2 hosts received an instance and are admitted: 2 of them were '
            'measured for long enough since, and 0 were overloaded for longer '
            'than their limit (0 to 66 %).'], outcomes.sentences(answer)[1:])

    def test_a_host_of_which_too_little_is_known_does_not_wait(self):
        # Overloaded in 2 of 101 measured slots, of 200 at all.
        self.decide('a', 'peak', slots=200)
        sums = np.full((1, 200), np.nan)
        sums[0, 99:], sums[0, 99:101] = 50.0, 150.0
        self.measured += budget_fleet.days_of(packed.Sums(
            'a', PERIOD, round(DECIDED / PERIOD) - 80, LIMITS, sums,
            np.zeros(sums.shape, dtype=bool)))
        answer = self.summary()
        self.assertIsNone(answer['hosts'][0]['overloaded'])
        self.assertEqual([
            'refused: of 1 hosts too few instances are measured to tell'],
            answer['remarks'])

    def remarks(self, refused, admitted):
        """Return the remarks on (overloaded hosts, all hosts) of groups."""
        self.decisions, slots = [], {}
        for check, (overloaded, total) in (('peak', refused),
                                           (None, admitted)):
            for number in range(total):
                host = f'{check}-{number}'
                self.decide(host, check)
                slots[host] = SLOTS, 60 if number < overloaded else 0
        return outcomes.compared(*outcomes.by_host(self.decisions),
                                 lambda host, _: slots[host])['remarks']

    def test_few_hosts_give_a_conclusion_with_less_confidence(self):
        # All ways to draw the refused hosts of all hosts are equally likely:
        # 10 of three from five, 3 of one from three.
        for refused, admitted, remark in (
                ((3, 3), (0, 2), 'more often .*, confidence 90 %, not yet'),
                ((1, 1), (0, 2), 'more often .*, confidence 67 %, not yet'),
                ((3, 3), (0, 3), 'more often .*: 3 of 3 and 0 of 3, '
                                 'confidence 95 %$'),
                ((9, 9), (0, 9), 'more often .*, confidence above 99 %$'),
                ((0, 3), (3, 3), 'less often .*, confidence 95 %$'),
                ((1, 2), (1, 2), 'as often as admitted ones$')):
            with self.subTest(remark):
                self.assertRegex(self.remarks(refused, admitted)[0],
                                 f'^refused hosts were overloaded {remark}')
        self.assertEqual([], self.remarks((3, 3), (0, 0)))

    def test_overload_by_one_instance_alone_counts_too(self):
        self.decide('a', 'peak')
        self.measure('a', 60, alone=True)
        host, = self.summary()['hosts']
        self.assertEqual((True, 60), (host['overloaded'],
                                      host['overloaded_slots']))
