# SPDX-License-Identifier: Apache-2.0

import contextlib
import dataclasses
import math

import numpy as np

from tests.unit.modeler import base
from tests.unit.store import base as store_base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.budgets import accounts
from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import series
from vswitch_aware_scheduler.vswitch import attachments
from vswitch_aware_scheduler.vswitch import profile

P = base.PERIOD
BEGIN = base.BEGIN
HOST_A, HOST_B = (store.HOST, 'a'), (store.HOST, 'b')
UPLINK = store.UPLINK, 'u'

#: What a day of use earns with E = .01, of which .6 are earned.
DAY = .6 * .01 * 86400


def policy(capacity=100.0, name='switch', max_tunnels=None, **values):
    return admission.HostPolicy(profile.SwitchProfile(
        name, saturation_kbps=capacity, max_tunnels=max_tunnels), **values)


class BudgetsTestCase(base.ModelerTestCase):
    """Two instances on host a; the sampling period is five minutes."""

    def setUp(self):
        super().setUp()
        # Says that the sampling period is five minutes.
        self.store.write([store_base.fitted(99)])
        self.now = BEGIN
        self.set_policies({'a': policy()})
        self.uuids = [self.place(number, 'a') for number in (1, 2)]

    def set_policies(self, hosts, uplinks=()):
        self.store.write_fleet({
            'host': {host: {**policy_in_force.pack(policy), 'origins': {}}
                     for host, policy in hosts.items()},
            'uplink': {policy.name: policy_in_force.pack(policy.policy)
                       for policy in uplinks}}, self.now)

    def place(self, number, host='a', running=True, at=BEGIN - 86400,
              networks=None, project=None):
        """Put an instance on a host; return its uuid.

        :param networks: what it is attached to, or None if this is unknown
        """
        uuid = store_base.instance_uuid(number)
        self.store.write(placements=[store.InstanceRecord(
            uuid, host, running=running, began_at=at, changed_at=at,
            project=project, attachments=networks if networks is None
            else attachments.Attachments(networks))], now=self.now)
        return uuid

    def measure(self, *rates):
        """Set what instances send from BEGIN on, a number for each period."""
        for number, egress in enumerate(rates, 1):
            self.driver.put(number, BEGIN + P * np.arange(-2, len(egress)),
                            [0.0, 0.0, *egress])

    def update(self, periods=None, **values):
        """Update so many periods after BEGIN."""
        if periods is not None:
            self.now = BEGIN + P * periods
        values.setdefault('stays_until', self.now)
        part = accounts.ModelerPart(**{
            field.name: values.pop(field.name)
            for field in dataclasses.fields(accounts.ModelerPart)
            if field.name in values})
        return accounts.update(self.store, self.driver, lambda: self.now,
                               values.pop('newest', self.now), part, **values)

    def settle(self, *periods):
        """Begin budgets at BEGIN, and update after so many periods."""
        for number in (0, *periods):
            self.update(number)

    def budget(self, key=HOST_A):
        return self.store.error_budgets()[key]

    def change_budget(self, **values):
        """Write other values of the budget of host a."""
        self.store.settle_budgets(self.store.budget_state(), [
            (self.budget().until,
             dataclasses.replace(self.budget(), **values))])

    def assert_sums(self, expected, now=None):
        """Check the sums of host a in the last periods; return its Sums."""
        sums = packed.history(
            self.store, store.HOST, self.now if now is None else now,
            days=len(expected) * self.driver.period / 86400)['a']
        np.testing.assert_allclose(sums.sums, [expected], atol=.02)
        return sums

    def assert_settled(self, periods, overloaded=0, unknown=0, key=HOST_A):
        """Check a budget whose instances were not measured in some periods.

        If half of the instances were measured in a period, half of this period
        is unknown.
        """
        budget = self.budget(key)
        measured = periods - unknown
        np.testing.assert_allclose(
            (P * measured, P * overloaded, P * unknown),
            (budget.measured_seconds, budget.overload_seconds,
             budget.unknown_seconds), rtol=1e-6)
        self.assertAlmostEqual(
            DAY + .006 * P * measured - P * overloaded, budget.balance)
        self.assertEqual(BEGIN + P * periods, budget.until)


class OneModelerTestCase(BudgetsTestCase):

    def test_the_balance_is_that_of_the_closed_form(self):
        # Both together are above the capacity in every tenth period.
        self.measure(*[[60, *[40] * 9] * 5] * 2)
        self.update(0)
        self.assertEqual((BEGIN, None), (self.budget().since,
                                         self.budget().why))
        for _ in range(2):
            # The second one finds nothing new to do.
            self.update(50)
            self.assert_settled(50, overloaded=5)

    def test_late_samples_count_when_they_arrive(self):
        self.measure([60, 60, 60], [60])
        self.settle(2)
        self.assert_settled(1, overloaded=1)
        self.measure([60, 60, 60], [60, 60, 60])
        self.update(3)
        self.assert_settled(3, overloaded=3)

    def test_missing_samples_earn_nothing(self):
        self.measure([60] * 30, [60, 60])
        self.run_pass(now=BEGIN + 2 * P)
        self.update(0)
        for periods in range(1, 15):
            self.update(periods)
        # The third period ended at 3; modelers wait an hour, 12 periods.
        self.assert_settled(2, overloaded=2)
        for periods in (15, 16, 17, 18):
            self.update(periods)
        # One of two instances was measured in the last three periods.
        self.assert_settled(5, overloaded=2, unknown=1.5)
        # Less than half is known: that it recovers cannot be seen.
        self.assertEqual({}, self.budget().burn)
        self.assertEqual(
            f'1 of 2 instances were measured in the 300 s from '
            f'{BEGIN + 4 * P:.0f} on; {self.uuids[1]} was not',
            self.budget().unknown_why)

    def test_no_period_waits_for_samples_before_later_ones(self):
        self.measure([60] * 30, [60, 60, np.nan, 1e13, 60])
        self.settle(4)
        self.assert_settled(2, overloaded=2)
        self.update(6)
        self.assert_settled(5, overloaded=3, unknown=1)
        self.assertEqual(100.0, self.budget().burn['259200'])

    def test_no_period_waits_for_an_instance_that_has_ended(self):
        self.measure([60] * 30, [60, 60])
        self.update(0)
        self.now = BEGIN + 2.5 * P
        self.store.write(remove_placements=self.uuids[1:], now=self.now)
        self.update(4, newest=BEGIN + 4 * P)
        self.assert_settled(2, overloaded=2)
        self.update(5, newest=BEGIN + 5 * P)
        # It was there for half of the third period, without samples.
        self.assert_settled(5, overloaded=2, unknown=1 / 3)

    def test_a_restart_after_an_outage_reads_the_periods_of_a_day(self):
        self.measure([60] * 700, [60] * 700)
        self.settle(1)
        # Nobody was at work for four hours, then for two days.
        self.update(49)
        self.assert_settled(49, overloaded=49)
        # 288 periods are a day.
        self.update(649)
        self.assert_settled(649, overloaded=49 + 288, unknown=312)

    def test_an_instance_that_does_not_run_need_not_be_measured(self):
        self.measure([60] * 4)
        self.place(2, 'a', running=False, at=BEGIN - P)
        self.settle(4)
        self.assert_settled(4)
        # Of one that runs, or may run, no answer is not no traffic.
        self.place(2, 'a', running=None, at=BEGIN + 4 * P)
        self.measure([60] * 6)
        self.update(6)
        self.assert_settled(4)

    def test_a_host_without_running_instances_earns_nothing(self):
        self.measure([], [])
        for number in (1, 2):
            self.place(number, 'a', running=False, at=BEGIN - P)
        self.settle(4)
        self.assertEqual((DAY, 0, 0), (
            self.budget().balance, self.budget().measured_seconds,
            self.budget().unknown_seconds))
        self.assertEqual(BEGIN + 4 * P, self.budget().until)

    def test_the_balance_is_at_most_that_of_30_days(self):
        self.measure([0] * 10, [0] * 10)
        self.update(0)
        self.change_budget(balance=30 * DAY - 1)
        self.update(10)
        self.assertAlmostEqual(30 * DAY, self.budget().balance)

    def test_samples_of_other_times_and_periods_cover_slots(self):
        # One is sampled every minute, one in the middle of each period.
        times = BEGIN + 60.0 * np.arange(-10, 15)
        self.driver.put(1, times, np.where(times < BEGIN + P, 40, 80))
        self.driver.put(2, BEGIN + P * (np.arange(-3, 3) + .5),
                        [0, 0, 0, 1, 5, 9])
        self.settle(3.5)
        # The driver says that all have the same period of 300 s.
        self.assert_sums([41, 85, 89], BEGIN + 3 * P)

    def test_idle_periods_do_not_lower_burn_rates(self):
        self.measure(*[[60] + [0] * 99] * 2)
        self.settle(10)
        # One of ten periods in use with E = .01; idle ones do not count.
        self.assertEqual(
            {'3600': 100.0, '21600': 100.0, '259200': 100.0},
            self.budget().burn)

    def test_burn_rates_are_of_their_windows(self):
        self.measure(*[[60] * 2 + [1] * 98] * 2)
        self.update(0)
        for periods in (10, 20, 40, 100):
            self.update(periods)
            burn = self.budget().burn
            self.assertAlmostEqual(2 / periods / .01, burn['259200'])
            self.assertAlmostEqual(
                0.0 if periods > 14 else 2 / periods / .01, burn['3600'])
            self.assertAlmostEqual(
                0.0 if periods > 74 else 2 / min(periods, 72) / .01,
                burn['21600'])

    def test_uplinks_have_budgets_of_all_hosts_behind_them(self):
        uplink = admission.Uplink('u', policy(100.0, 'uplink'))
        self.set_policies({name: policy(uplinks=(uplink,))
                           for name in 'ab'}, [uplink])
        self.place(2, 'b')
        self.measure([60, 60, 10], [60, 30, 10])
        self.update(0)
        self.now = BEGIN + P * 2.9
        # A move behind the uplink changes nothing of it.
        self.place(2, 'a', at=BEGIN + P * 2.5)
        self.update(3)
        self.assert_settled(3)
        self.assertEqual(3 * P, self.budget(HOST_B).measured_seconds)
        self.assert_settled(3, overloaded=1, key=UPLINK)


class UnmeasuredTestCase(BudgetsTestCase):
    """What instances that are not measured cannot hide."""

    #: Together above the capacity in one of ten periods.
    BURSTS = [60, *[40] * 9] * 5

    def setUp(self):
        super().setUp()
        self.measure(self.BURSTS, self.BURSTS)
        self.update(0)

    def every_period(self, periods):
        for last in range(1, periods + 1):
            self.update(last)
        return self.budget()

    def assert_spent(self, budget, periods, unknown_share):
        """Check that all overload was spent, and most of the time earned."""
        # All but the last two periods, for which samples may arrive.
        settled = (budget.until - BEGIN) / P
        self.assertGreaterEqual(settled, periods - 3)
        self.assertEqual(math.ceil(settled / 10) * P,
                         budget.overload_seconds)
        self.assertAlmostEqual(settled * P, budget.measured_seconds
                               + budget.unknown_seconds, delta=1)
        self.assertLessEqual(budget.unknown_seconds,
                             unknown_share * settled * P + 1)

    def test_an_instance_without_an_interface_hides_nothing(self):
        self.place(3, networks=())
        self.assert_spent(self.every_period(50), 50, 0)
        self.assertIsNone(self.budget().unknown_why)

    def test_an_instance_that_is_never_measured_hides_no_overload(self):
        uuid = self.place(3, networks=('net',))
        # A third of the time of all instances.
        self.assert_spent(self.every_period(50), 50, 1 / 3)
        self.assertIn('2 of 3 instances were measured in the 300 s from',
                      self.budget().unknown_why)
        self.assertIn(uuid, self.budget().unknown_why)

    def test_an_instance_that_has_never_sent_anything_is_known(self):
        # It was measured until two hours before.
        uuid = self.place(3, networks=('net',))
        counts = estimate.count_transitions(series.RateSeries.from_samples(
            uuid, P, BEGIN - 7200 - P * np.arange(40)[::-1], np.zeros(40),
            np.zeros(40)))
        self.store.write(unmodelled=[store.Unmodelled(uuid, counts)],
                         now=self.now)
        self.assert_spent(self.every_period(50), 50, 0)

    def test_a_boot_in_each_period_hides_nothing(self):
        for period in range(50):
            self.now = BEGIN + P * (period + 1)
            number = 10 + period
            at = self.now - .7 * P
            self.place(number, at=at, networks=('net',))
            # The first reading of a counter gives no rate.
            self.driver.put(number, BEGIN + P * np.arange(
                period + 1, 60), np.full(59 - period, .01))
            self.update(period + 1)
        self.assert_spent(self.budget(), 50, .1)

    def test_instances_of_15_minutes_hide_nothing(self):
        for period in range(50):
            self.now = BEGIN + P * (period + 1)
            for number in (3 * period, 3 * period + 1):
                self.place(10 + number, at=self.now - .5 * P,
                           networks=('net',))
            if period >= 3:
                self.store.write(remove_placements=[
                    store_base.instance_uuid(10 + 3 * (period - 3) + i)
                    for i in (0, 1)], now=self.now - .5 * P)
            self.update(period + 1)
        # They are 6 of 8 instances, and none of them is ever measured.
        self.assert_spent(self.budget(), 50, .76)

    def test_a_host_of_instances_without_interfaces_earns(self):
        self.store.write(remove_placements=self.uuids, now=self.now)
        self.place(3, at=BEGIN, networks=())
        self.update(3)
        self.assert_settled(3)


class SpendersTestCase(BudgetsTestCase):
    """Who is charged for overload, and who suffers from it."""

    def setUp(self):
        super().setUp()
        self.uuids = [self.place(number, project=project)
                      for number, project in (
                          (1, 'burster'), (2, 'calm'), (3, 'calm'))]

    def charged(self):
        return {charge.instance_uuid: charge.seconds
                for charge in self.store.charges()}

    def test_load_above_the_fair_share_is_charged(self):
        # Level 45: 90 + 45 + 10 - 100 = 45 is above it, of one.
        self.measure([90, 40, 50], [45, 10, 50], [10, 10, 50])
        self.settle(1)
        self.assertEqual({self.uuids[0]: P}, self.charged())
        self.update(3)
        charges = self.charged()
        # In the third period, each of them is above a third of 100.
        for uuid, periods in zip(self.uuids, (4 / 3, 1 / 3, 1 / 3)):
            self.assertAlmostEqual(periods * P, charges[uuid])
        self.assertAlmostEqual(self.budget().overload_seconds,
                               sum(charges.values()))

    def test_a_debt_says_which_projects_spend(self):
        self.measure(*[[90] * 9, [20] * 9, [2] * 9])
        self.update(0)
        self.assertEqual({}, self.store.debts(self.now))
        self.update(9)
        [(key, debt)] = self.store.debts(self.now).items()
        self.assertEqual((HOST_A, {'burster'}), (key, debt.projects))
        self.assertAlmostEqual(-self.budget().days, debt.days)
        # Three days after the overload it no longer counts.
        self.measure(*[[1] * 10] * 3)
        later = self.now + 4 * 86400
        self.change_budget(until=later)
        self.assertEqual({HOST_A: frozenset()}, {
            key: debt.projects
            for key, debt in self.store.debts(later).items()})

    def test_charges_of_a_pass_that_is_repeated_count_once(self):
        self.measure([90] * 9, [20] * 9, [2] * 9)
        self.update(0)
        for periods in (2, 2, 5, 5):
            self.update(periods)
        self.assertEqual({self.uuids[0]: 5 * P}, self.charged())

    def test_the_time_of_instances_beside_a_giant_is_counted(self):
        # One alone exceeds the capacity: no overload of the budget.
        self.measure([150, 50, 10], [10, 60, 10], [10, 10, 10])
        self.settle(3)
        budget = self.budget()
        self.assertEqual(P, budget.overload_seconds)
        self.assertEqual(9 * P, budget.vm_seconds)
        # Two beside the giant, then three that exceed the capacity together.
        self.assertEqual(5 * P, budget.vm_overload_seconds)
        times = {}
        for time in self.store.vm_times():
            seconds, overload = times.get(time.project, (0, 0))
            times[time.project] = (seconds + time.seconds,
                                   overload + time.overload_seconds)
        self.assertEqual({'burster': (3 * P, P), 'calm': (6 * P, 4 * P)},
                         times)


class ChangedPeriodTestCase(BudgetsTestCase):
    """The sampling period changes from five minutes to one, before 23:00."""

    def setUp(self):
        super().setUp()
        self.measure([60] * 4, [60] * 4)
        self.settle(4)
        self.assert_settled(4, overloaded=4)
        self.sample(BEGIN, 60.0)

    def sample(self, begin, period, busy=(240.0,)):
        """Set samples of another period; some minutes are overloaded."""
        self.driver.period = period
        times = np.arange(begin, BEGIN + 100 * P, period)
        rates = np.where(np.isin(times - BEGIN, np.array(busy) + 4 * P),
                         60, 30)
        for number in (1, 2):
            self.driver.put(number, times, rates)

    def assert_counted(self, measured, overloaded, until, unknown=0):
        budget = self.budget()
        self.assertEqual((measured, overloaded, unknown, BEGIN + until), (
            budget.measured_seconds, budget.overload_seconds,
            budget.unknown_seconds, budget.until))
        self.assertAlmostEqual(DAY + .006 * measured - overloaded,
                               budget.balance)

    def test_the_next_pass_uses_the_new_period(self):
        self.update(6.5)
        self.assertEqual(60.0, self.store.budget_state().period_seconds)
        self.assert_counted(6 * P + 120, 4 * P + 60, 6 * P + 120)
        # What was settled with the former period stays in force.
        share = (4 * P + 60) / (6 * P + 120)
        self.assertAlmostEqual(share / .01, self.budget().burn['3600'])
        self.assertEqual([60.0, 300.0], sorted(
            sums.period_seconds for sums in self.store.sum_history(
                store.HOST)))
        self.assert_sums([120] * 18 + [60] * 4 + [120] + [60] * 7)

    def test_a_period_that_changes_back_counts_nothing_twice(self):
        self.update(6.5)
        self.sample(BEGIN, P)
        self.update(6.8)
        self.update(10)
        # The first five minutes after the last settled minute.
        self.assert_counted(10 * P - 180, 4 * P + 60, 10 * P)
        self.assertAlmostEqual((4 * P + 60) / (10 * P - 180) / .01,
                               self.budget().burn['3600'])
        self.assert_sums([120] * 4 + [60] * 2 + [np.nan] + [60] * 3)

    def test_periods_that_telemetry_has_lost_change_nothing(self):
        hours = 60 * P
        self.sample(BEGIN + hours - 7200.0, 60.0, busy=(hours - 4 * P - 60,))
        self.update(60)
        self.assert_counted(4 * P + 7200, 4 * P + 60, hours,
                            unknown=hours - 7200 - 4 * P)

    def test_plans_join_short_periods_to_minutes(self):
        self.sample(BEGIN, 10.0, busy=(30.0, 90.0))
        self.update(5)
        self.assert_counted(5 * P, 4 * P + 20, 5 * P)
        # Of each minute its middle.
        self.driver.period = 60.0
        self.assertEqual(60.0, self.assert_sums(
            [120] * 7 + [60] * 3).period_seconds)


class PredictionTestCase(BudgetsTestCase):
    """Host a is predicted, and measured every hour."""

    def setUp(self):
        super().setUp()
        self.share, self.asked = .9, 0
        self.measure([40] * 700, [40] * 700)
        self.update(1)

    def predict(self, target, progress=None):
        self.asked += 1
        return {'a': self.share}

    def update(self, periods=None, **values):
        return super().update(periods, predict=self.predict, **values)

    def prediction(self):
        return self.budget().prediction

    def test_periods_count_after_their_prediction(self):
        # The first update finds no period that has ended.
        self.update(2.5)
        self.assertEqual((.9, BEGIN + 2.5 * P, 0.0), (
            self.prediction().share, self.prediction().since,
            self.prediction().seconds))
        for periods in (3, 5, 5):
            self.update(periods)
        self.assertAlmostEqual(2 * P, self.prediction().seconds, delta=1)
        self.assertEqual(1, self.asked)
        with self.assertLogs(level='WARNING') as logs:
            for periods in (20, 40):
                self.update(periods)
        self.assertEqual(1, len(logs.output))
        self.assertRegex(
            logs.output[0], r'contradicts the prediction: host a '
            r'\(predicted 0.9, measured 0 of \d+ s\)')
        self.assertTrue(self.prediction().contradicted)
        self.assertLess(self.prediction().deviations, -3)

    def test_a_right_prediction_is_not_contradicted(self):
        self.share = 0.0
        for periods in range(2, 600, 12):
            self.update(periods)
        self.assertEqual(0.0, self.prediction().deviations)
        self.assertGreater(self.prediction().blocks, 40)
        # It is made again after a day.
        self.assertEqual(3, self.asked)

    def test_a_change_of_instances_ends_a_prediction_until_the_next(self):
        self.update(2)
        self.now = BEGIN + 5.5 * P
        self.place(3, 'a', at=self.now)
        self.driver.put(3, BEGIN + P * np.arange(-2, 100), np.ones(102))
        self.update(8)
        self.assertIsNone(self.prediction().share)
        self.assertAlmostEqual(3 * P, self.prediction().seconds, delta=1)
        self.share = .4
        self.update(14)
        self.assertEqual((.4, BEGIN + 14 * P), (self.prediction().share,
                                                self.prediction().since))
        self.update(16)
        self.assertAlmostEqual(5 * P, self.prediction().seconds, delta=5)
        self.assertAlmostEqual((3 * .9 + 2 * .4) * P,
                               self.prediction().expected_seconds, delta=5)

    def test_predictions_include_overload_of_single_instances(self):
        self.measure([101] * 30, [0] * 30)
        self.share = 1.0
        self.update(2)
        self.update(28)
        self.assertEqual(0.0, self.budget().overload_seconds)
        self.assertEqual(0.0, self.prediction().deviations)

    def test_new_limits_begin_a_new_comparison(self):
        self.update(2)
        self.update(8)
        self.set_policies({'a': policy(150.0)})
        self.update(9)
        self.assertEqual(0.0, self.prediction().seconds)

    def test_samples_that_are_shorter_than_periods_are_not_compared(self):
        self.driver.period = 5.0
        self.update(2)
        self.assertEqual((0, None), (self.asked, self.prediction().share))


class TermsTestCase(BudgetsTestCase):

    def setUp(self):
        super().setUp()
        self.measure([60] * 30, [60] * 30)
        self.settle(3)
        self.assert_settled(3, overloaded=3)

    def begun(self, **values):
        """Return the budget after an update, as (since, why)."""
        self.update(4.5, **values)
        return self.budget().since, self.budget().why

    def test_another_limit_begins_a_new_budget(self):
        self.set_policies({'a': policy(overload_probability=.02)})
        with self.assertLogs(level='INFO') as logs:
            self.assertEqual((BEGIN + 4 * P, 'limit 0.01 is now 0.02: a new '
                              'budget begins'), self.begun())
        self.assertIn('error budget of host a: limit 0.01 is now 0.02',
                      logs.output[0])
        self.assertAlmostEqual(2 * DAY, self.budget().balance)
        self.update(6)
        self.assertAlmostEqual(2 * DAY + 2 * P * .012 - 2 * P,
                               self.budget().balance)
        self.assertEqual('limit 0.01 is now 0.02: a new budget begins',
                         self.budget().why)

    def test_another_capacity_profile_or_terms_begin_a_new_budget(self):
        for changed in (policy(150.0), policy(name='other')):
            self.set_policies({'a': changed})
            since, why = self.begun()
            self.assertEqual(BEGIN + 4 * P, since)
            self.assertIn('a new budget begins', why)
            self.assertIn(changed.profile.name, why)
        self.change_budget(earned_share=.5)
        self.assertEqual(
            (BEGIN + 4 * P, 'terms of the budget changed: a new budget '
             'begins'), self.begun())

    def test_hosts_without_a_limit_have_no_budget(self):
        self.set_policies({
            'b': policy(policy=admission.AVERAGE), 'c': policy(
                None, max_tunnels=5),
            'd': admission.HostPolicy(None), 'e': admission.HostPolicy(
                None, judged=False),
            'f': policy(overload_probability=1.0),
            'g': policy(overload_probability=0.0)})
        self.update(4)
        self.assertEqual({HOST_A}, self.store.error_budgets().keys())

    def test_a_host_that_is_gone_keeps_its_budget_for_a_week(self):
        before = self.budget()
        self.set_policies({})
        self.update(4)
        self.assertEqual(before, self.budget())
        self.update(3 + 7 * 288)
        self.assertEqual(before, self.budget())
        self.update(4 + 7 * 288)
        self.assertEqual({}, self.store.error_budgets())
        self.assertEqual([], self.store.sum_history(store.HOST))

    def test_a_clock_that_jumps_changes_no_balance(self):
        self.measure([60] * 3, [60] * 3)
        for jump in (10 * 86400.0, -10 * 86400.0):
            self.now = BEGIN + 3 * P + jump
            self.update(newest=BEGIN + 3 * P,
                        stays_until=BEGIN + 3 * P + jump)
            self.assert_settled(3, overloaded=3)
        self.measure([60] * 5, [60] * 5)
        self.update(5)
        self.assert_settled(5, overloaded=5)

    def test_a_new_debt_creates_a_generation(self):
        self.change_budget(balance=10.0)
        generation = self.store.generation()
        with self.assertLogs(level='INFO') as logs:
            self.update(4)
        self.assertIn('error budget of host a: it is in debt',
                      logs.output[0])
        changes = self.store.read_changes(generation)
        self.assertAlmostEqual((P - 10 - .006 * P) / DAY,
                               changes.debts[HOST_A].days)
        generation = self.store.generation()
        self.update(5)
        self.assertEqual(generation, self.store.generation())


class FailuresTestCase(BudgetsTestCase):

    def setUp(self):
        super().setUp()
        self.measure([60] * 60, [60] * 60)
        self.update(0)

    def test_only_one_of_two_concurrent_settlements_is_written(self):
        settle = self.store.settle_budgets

        def other_first(*arguments):
            self.store.settle_budgets = settle
            self.update(3)
            settle(*arguments)

        self.store.settle_budgets = other_first
        with self.assertRaises(exceptions.StoreChanged):
            self.update(3)
        self.assert_settled(3, overloaded=3)

    def test_a_damaged_budget_is_replaced_and_others_are_kept(self):
        self.set_policies({'a': policy(), 'b': policy()})
        self.update(3)
        self.execute("UPDATE error_budget SET balance = 1e999 "
                     "WHERE name = 'a'")
        self.execute("UPDATE sum_history SET data = 'x'")
        with self.assertLogs(level='WARNING'):
            self.update(5)
        self.assertEqual((BEGIN + 5 * P, DAY),
                         (self.budget().since, self.budget().balance))
        self.update(6)
        self.assertEqual(P, self.budget().overload_seconds)
        self.assertEqual(BEGIN + 6 * P, self.budget(HOST_B).until)

    def test_periods_wait_until_the_hosts_of_instances_are_known(self):
        self.update(5, stays_until=BEGIN + 1.5 * P)
        self.assert_settled(1, overloaded=1)
        self.update(5, stays_until=None)
        self.assert_settled(1, overloaded=1)

    def test_without_an_inventory_there_is_no_budget(self):
        self.store = self.other_store('other')
        self.store.write([store_base.fitted(99)])
        self.set_policies({'a': policy()})
        self.assertEqual(accounts.Update(), self.update(3, stays_until=None))


class SharedTestCase(BudgetsTestCase):
    """Each instance is of a modeler of its own."""

    def setUp(self):
        super().setUp()
        self.measure([60] * 60, [60] * 60)
        self.update(0)

    def one_of(self, name, uuids, periods, common=False, **values):
        return self.update(periods, name=name, common=common,
                           share=set(uuids).__contains__, **values)

    def test_a_period_is_settled_when_all_modelers_have_reported(self):
        share_1, share_2 = ([uuid] for uuid in self.uuids)
        self.one_of('m1', share_1, 2, common=True)
        self.assert_settled(0)
        self.one_of('m2', share_2, 2)
        self.assert_settled(0)
        for _ in range(2):
            # The same rates twice count once.
            self.one_of('m1', share_1, 2, common=True)
            self.one_of('m2', share_2, 2)
            self.assert_settled(2, overloaded=2)

    def test_missing_rates_make_periods_unknown(self):
        for periods in range(1, 20):
            self.one_of('m1', self.uuids[:1], periods, common=True)
        # Modelers were at work until 18 periods when the last one began.
        self.assert_settled(6, unknown=3)

    def test_damaged_rates_of_a_modeler_count_as_missing(self):
        self.one_of('m1', self.uuids[:1], 2, common=True)
        self.one_of('m2', self.uuids[1:], 2)
        self.execute("UPDATE measured_rate SET data = 'x'")
        with self.assertLogs(level='WARNING'):
            self.one_of('m1', self.uuids[:1], 2, common=True)
        self.assert_settled(0)

    def test_a_move_counts_that_one_modeler_does_not_know_yet(self):
        self.set_policies({'a': policy(), 'b': policy()})
        self.update(0, share=lambda uuid: False)
        self.one_of('m1', [], 2, common=True, stays_until=BEGIN + P)
        self.store.settle_budgets(store.BudgetState(P, BEGIN + 2 * P))
        self.one_of('m2', self.uuids[1:], 2)
        self.place(2, 'b', at=BEGIN + 1.5 * P)
        self.one_of('m1', self.uuids[:1], 2, common=True)
        # 60 and half of 60 in the second period.
        self.assert_settled(2, overloaded=1)
        self.assertEqual(P, self.budget(HOST_B).measured_seconds)


class ChanceTestCase(BudgetsTestCase):
    """Instances move, modelers come, end and fail, all at random times."""

    HOSTS = 'ab'
    INSTANCES, ROUNDS = 6, 40

    def setUp(self):
        super().setUp()
        self.generator = np.random.default_rng(7)
        self.set_policies({host: policy() for host in self.HOSTS})
        self.rates = self.generator.exponential(
            30.0, (self.INSTANCES, 3 * self.ROUNDS)).round()
        self.measure(*self.rates)
        # {number: [(from when on, host)]}
        self.moves = {number: [(-np.inf, 'a')]
                      for number in range(1, self.INSTANCES + 1)}
        self.uuids = [self.place(number, 'a') for number in self.moves]

    def move(self):
        """Move an instance, at a time since the last reading."""
        number = int(self.generator.integers(1, self.INSTANCES + 1))
        at = max(self.now - self.generator.uniform(0, P), self.read_until)
        at = max(at, self.moves[number][-1][0] + 1)
        if at > self.now:
            return
        host = str(self.generator.choice(list(self.HOSTS)))
        if host != self.moves[number][-1][1]:
            self.moves[number].append((at, host))
            self.place(number, host, at=at)

    def expected(self, host, periods):
        """Return (measured, overloaded, sums) by brute force."""
        measured = overloaded = 0
        sums = []
        for slot in range(periods):
            begin = BEGIN + slot * P
            asked = []
            for number, moves in self.moves.items():
                ends = [at for at, _ in moves[1:]] + [np.inf]
                seconds_there = sum(
                    max(min(end, begin + P) - max(at, begin), 0.0)
                    for (at, where), end in zip(moves, ends)
                    if where == host)
                if seconds_there:
                    asked.append(self.rates[number - 1, slot] * seconds_there
                                 / P)
            measured += bool(asked)
            overloaded += sum(asked) > 100 and max(asked) <= 100
            sums.append(sum(asked))
        return measured, overloaded, sums

    def test_each_period_counts_once_compared_with_brute_force(self):
        choose = self.generator.choice
        self.update(0)
        self.read_until = self.now
        failing = [False]

        def writing():
            if failing[0] and self.generator.random() < .3:
                raise exceptions.StoreError('gone')
            return contextlib.nullcontext()

        periods, settled = 0.0, 0
        for turn in range(self.ROUNDS):
            failing[0] = turn < self.ROUNDS - 1
            periods += self.generator.uniform(.3, 2.0)
            self.now = BEGIN + periods * P
            if turn < self.ROUNDS - 1:
                self.move()
            names = ['m1', *choose(['m2', 'm3', 'm4'], int(choose([0, 1, 2])),
                                   replace=False).tolist()]
            owner = {uuid: choose(names) for uuid in self.uuids}
            for name in [*names, 'm1'] * (1 if failing[0] else 2):
                mine = {uuid for uuid, modeler in owner.items()
                        if modeler == name or self.generator.random() < .1}
                try:
                    self.update(name=name, common=name == 'm1',
                                share=mine.__contains__, writing=writing)
                except exceptions.StoreError:
                    continue
            self.read_until = self.now
            for host in self.HOSTS:
                budget = self.budget((store.HOST, host))
                self.assertAlmostEqual(0.0, budget.unknown_seconds)
                settled = round((budget.until - BEGIN) / P)
                measured, overloaded, sums = self.expected(host, settled)
                np.testing.assert_allclose(
                    (measured * P, overloaded * P),
                    (budget.measured_seconds, budget.overload_seconds))
                self.assertAlmostEqual(
                    DAY + .006 * P * measured - P * overloaded, budget.balance,
                    places=5)
            history = packed.history(self.store, store.HOST,
                                     BEGIN + settled * P,
                                     days=(settled + .5) * P / 86400)
            if settled:
                np.testing.assert_allclose(history[host].sums[0], sums,
                                           atol=.01)
        self.assertGreater(settled, self.ROUNDS / 2)
        self.assertGreater(overloaded, 3)
