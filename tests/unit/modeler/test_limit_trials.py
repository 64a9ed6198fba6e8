# SPDX-License-Identifier: Apache-2.0
"""Trials in the store come to what Feedback makes of the same samples."""

import contextlib
import functools
import math
from unittest import mock

import numpy as np
import sqlalchemy as sa

from tests.fakes import nova_hosts
from tests.unit.modeler import base
from tests.unit.modeler import trials
from tests.unit.store import base as store_base
from vswitch_aware_scheduler.admission import host_policies as policies
from vswitch_aware_scheduler.admission import limit_feedback
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.modeler import limit_trials
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.store import generation_rows
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.store import trial_rows
from vswitch_aware_scheduler.vswitch import profile

KIND = trials.KIND
LIMIT = trials.LIMIT
host_policies = trials.host_policies

DAY = 86400.0
#: Midnight.
START = 19676 * DAY


class TrialsTestCase(base.ModelerTestCase):

    COUNT, DAYS = 50, 9

    def setUp(self):
        super().setUp()
        self.kinds = limit_trials.HostKinds(host_policies)
        self.policy = host_policies().find([], None)
        self.now = START

    def put(self, number, kbps, from_day=0.0):
        """Give an instance samples from a day on."""
        times = START + from_day * DAY + base.PERIOD * np.arange(len(kbps))
        return self.driver.put(number, times, kbps)

    def fill(self, shares=(.1, .02, .2)):
        """Give all on/off traffic whose share of time on changes."""
        generator = np.random.default_rng(7)
        share = np.repeat(shares, self.DAYS // len(shares) * 288)
        for number in range(self.COUNT):
            self.put(number, 10.0 * (generator.random(share.size) < share))

    def update(self, share=None, driver=None, **more):
        """Do as a modeler that has just started."""
        return limit_trials.update(
            model_store.Store(self.url), driver or self.driver,
            lambda: self.now, limit_trials.HostKinds(host_policies), share,
            **more)

    def at(self, day, hour=2.0):
        """Let it be some hour of a day; learn what is new."""
        self.now = START + day * DAY + hour * 3600.0
        self.run_pass()

    def live(self, *days, shares=(None,)):
        for day in days:
            self.at(day)
            for share in shares:
                self.update(share)

    def outcome(self, kind=KIND):
        """Return the feedback.Outcome that the store has."""
        stored = self.store.trial_outcomes().get(kind)
        if stored is None:
            return limit_feedback.NOTHING
        percent, *days = zip(*stored.days)
        self.assertEqual(limit_feedback.PERCENT, percent)
        return limit_feedback.Outcome(*map(np.array, days))


class Direct:
    """feedback.Feedback on the samples themselves, an hour behind.

    :param test: TrialsTestCase
    :param share: as a modeler takes it
    """

    def __init__(self, test, share=None):
        self._test = test
        self._share = share or (lambda uuid: True)
        self._follow = limit_feedback.Feedback(test.policy)
        self._last = -math.inf

    def day(self):
        """Follow the trials of the day that the store has one more of."""
        until = self._test.now - 2 * 3600.0 + 3600.0
        rates = {}
        for uuid, (times, *columns) in self._test.driver.samples.items():
            keep = (times >= self._last) & (times < until)
            rates[uuid] = np.stack([*columns, np.zeros(times.size)],
                                   axis=1)[keep]
        self._follow.count(until / DAY, rates, base.PERIOD / DAY)
        self._last = until
        newest, = [trial for trial in self._test.store.trials()
                   if trial.since == until and self._share(trial.instances[0])]
        self._follow.add(until / DAY, limit_feedback.Trial.of(
            {uuid: self._test.store.model(uuid).model.law
             for uuid in newest.instances}, self._test.policy))

    @property
    def outcome(self):
        return self._follow.outcome


class TheoryTestCase(TrialsTestCase):

    def _compare(self, *shares):
        self.fill((.1, .02, .5))
        direct = [Direct(self, share) for share in shares]
        corrections = limit_feedback.Corrections(
            8.0, lambda: self.now, lambda topic, problem: None)
        multiples = []
        for day in range(2, self.DAYS):
            self.live(day, shares=shares)
            for modeler in direct:
                modeler.day()
            expected = functools.reduce(limit_feedback.Outcome.__add__, (
                modeler.outcome for modeler in direct))
            outcome_stored = self.outcome()
            np.testing.assert_allclose(outcome_stored.overload_days,
                                       expected.overload_days)
            np.testing.assert_allclose(outcome_stored.host_days,
                                       expected.host_days)
            multiples.append(limit_feedback.factor(outcome_stored, LIMIT))
            stored = self.store.trial_outcomes().get(KIND)
            self.assertLess(abs(math.log(corrections.of_outcome(
                stored) / multiples[-1])), .5 * math.log(
                    limit_feedback.STEP) + 1e-9)
        # Each is followed for five days.
        self.assertEqual(5 * len(shares), len(self.store.trials()))
        self.assertAlmostEqual(1.0, multiples[0])
        self.assertGreater(max(multiples), 1.5)
        self.assertLess(multiples[-1], .8)

    def test_one_modeler_that_starts_anew_each_day(self):
        self._compare(None)

    def test_two_modelers_that_share_the_fleet(self):
        def share(of, uuid):
            return int(uuid[-2:], 16) % 2 == of

        self._compare(*(functools.partial(share, of) for of in (0, 1)))


class OnceTestCase(TrialsTestCase):

    COUNT = 25

    def setUp(self):
        super().setUp()
        self.fill()
        self.live(2, 3)
        self.before = self.outcome()

    def test_a_day_is_counted_once(self):
        self.assertEqual(limit_trials.Update(), self.update())
        self.at(3, 20.0)
        self.assertEqual(limit_trials.Update(), self.update())
        self.at(4)
        self.assertEqual(limit_trials.Update(1, 2), self.update())
        self.assertEqual(limit_trials.Update(), self.update())
        np.testing.assert_allclose(
            3 * self.before.host_days[0],
            self.outcome().host_days[0], rtol=.35)

    def test_a_modeler_that_is_ended_leaves_the_last_good_state(self):
        self.at(4)
        before = self.store.trials()
        generation = self.store.generation()
        for rows, name in ((trial_rows, 'write'),
                           (generation_rows, 'forget_removals')):
            with mock.patch.object(rows, name,
                                   side_effect=KeyboardInterrupt), \
                    self.assertRaises(KeyboardInterrupt):
                self.update()
        with self.assertRaises(ZeroDivisionError):
            self.update(progress=lambda done, total: 1 / 0)
        self.assertEqual(before, self.store.trials())
        self.assertEqual(generation, self.store.generation())
        np.testing.assert_array_equal(self.before.host_days,
                                      self.outcome().host_days)
        self.assertEqual(limit_trials.Update(1, 2), self.update())

    def test_of_two_that_follow_the_same_trials_one_counts(self):
        self.at(4)

        @contextlib.contextmanager
        def meanwhile():
            self.update()
            self.found = self.outcome()
            yield

        with self.assertRaisesRegex(exceptions.StoreChanged,
                                    'another process has written it'):
            self.update(writing=meanwhile())
        np.testing.assert_array_equal(self.found.host_days,
                                      self.outcome().host_days)
        self.assertEqual(3, len(self.store.trials()))

    def test_a_trial_is_over_when_some_of_it_are_of_another_modeler(self):
        self.at(4)
        foreign = store_base.instance_uuid(3)
        update = self.update(lambda uuid: uuid != foreign)
        self.assertEqual(limit_trials.Update(1, 0, 2), update)
        trial, = self.store.trials()
        self.assertNotIn(foreign, trial.instances)
        np.testing.assert_array_equal(self.before.host_days,
                                      self.outcome().host_days)
        # Those of others stay as they are.
        self.assertEqual(limit_trials.Update(), self.update(
            lambda uuid: uuid == foreign))
        self.assertEqual([trial], self.store.trials())

    def test_other_limits_end_a_trial(self):
        self.at(4)
        self.assertEqual(limit_trials.Update(1, 0, 2), limit_trials.update(
            self.store, self.driver, lambda: self.now,
            limit_trials.HostKinds(
                functools.partial(host_policies, .02))))
        self.assertEqual(['0.02: 1 1 0 <= 20'],
                         [trial.kind for trial in self.store.trials()])
        self.assertEqual(limit_trials.Update(0, 0, 1), limit_trials.update(
            self.store, self.driver, lambda: self.now,
            limit_trials.HostKinds(
                functools.partial(host_policies, 0))))

    def test_after_a_long_rest_nothing_of_old_counts(self):
        self.at(3 + limit_feedback.TRIAL_DAYS + 1)
        self.assertEqual(limit_trials.Update(1, 0, 2), self.update())
        self.assertEqual({}, self.store.trial_outcomes())

    def test_a_clock_that_was_ahead_erases_nothing(self):
        before = self.store.trials(), self.store.trial_outcomes()
        self.assertGreater(self.outcome().host_days[0], 0)
        for days in (7, 400):
            self.now = START + days * DAY
            self.assertEqual(limit_trials.Update(), self.update())
            self.assertEqual(before, (self.store.trials(),
                                      self.store.trial_outcomes()))
        self.at(4)
        self.assertEqual(limit_trials.Update(1, 2), self.update())
        self.assertGreater(self.outcome().host_days[0],
                           self.before.host_days[0])


class ChosenTestCase(TrialsTestCase):
    """Which instances are tried, with 60 of 120 at a time."""

    COUNT = 120

    def setUp(self):
        super().setUp()
        self.fill()
        self.now = START + 2 * DAY + 7200.0
        self.run_pass()
        self.uuids = [store_base.instance_uuid(n) for n in range(self.COUNT)]

    def tried(self, **more):
        """Return the numbers of the instances of a new trial."""
        self.store.write(end_trials=[
            trial.trial_id for trial in self.store.trials()])
        with mock.patch.object(limit_trials, 'MOST_INSTANCES', 60):
            self.update(**more)
        return {self.uuids.index(uuid) for trial in self.store.trials()
                for uuid in trial.instances}

    def know(self, projects):
        """Let Nova have instances of some projects, {number: project}."""
        self.store.write(
            inventory=model_store.InventoryState('nova', 5.0, 5.0),
            placements=[
                model_store.InstanceRecord(self.uuids[n], 'h', 'f', project)
                for n, project in projects.items()])

    def test_only_instances_of_nova_are_tried(self):
        self.assertEqual(set(), self.tried(needs_inventory=True))
        self.assertEqual(60, len(self.tried()))
        self.know({n: 'p' for n in range(40)})
        self.assertEqual(set(range(40)), self.tried())

    def test_no_project_has_more_than_a_quarter(self):
        self.know({n: 'large' if n < 90 else f'p{n % 5}'
                   for n in range(120)})
        tried = self.tried()
        # 30 of five others: ten are a quarter of all.
        self.assertEqual(set(range(90, 120)), {n for n in tried if n >= 90})
        self.assertEqual(10, len(tried) - 30)

    def test_which_ones_nobody_can_tell_without_the_secret(self):
        with_secret = self.tried()
        self.assertEqual(with_secret, self.tried())
        with self.store._engine().begin() as connection:
            connection.execute(sa.update(tables.secret).values(value='0' * 64))
        with_another = self.tried()
        # Of 120, 60 twice at random: 30 of both, +-2.7 (hypergeometric).
        self.assertLess(abs(len(with_secret & with_another) - 30), 5 * 2.7)


class MeasuredTestCase(TrialsTestCase):

    COUNT = 25

    def setUp(self):
        super().setUp()
        self.fill()
        self.live(2)
        self.hosts = np.array(self.store.trials()[0].hosts).max(axis=1) + 1

    def _drop(self, numbers, first, last):
        """Take away the samples of some instances between two days."""
        for number in numbers:
            uuid = store_base.instance_uuid(number)
            times, *columns = self.driver.samples[uuid]
            keep = (times < START + first * DAY) | (
                times >= START + last * DAY)
            self.driver.samples[uuid] = (
                times[keep], *(column[keep] for column in columns))

    def _assert_days(self, days):
        self.live(3)
        np.testing.assert_allclose(days * self.hosts,
                                   self.outcome().host_days)

    def test_each_host_is_looked_at_all_the_time(self):
        self._assert_days(1.0)

    def test_a_stretch_without_telemetry_counts_nothing(self):
        self._drop(range(25), 2.5, 2.75)
        self._assert_days(.75)

    def test_a_stretch_without_some_instances_counts_nothing(self):
        self._drop(range(3), 2.5, 2.75)
        self._assert_days(.75)

    def test_a_few_that_were_not_measured_have_no_traffic(self):
        self._drop(range(2), 2.5, 2.75)
        self._assert_days(1.0)

    def test_instances_that_are_off_have_no_traffic(self):
        self._drop(range(12), 2.0, 12.0)
        self._assert_days(1.0)

    def test_most_of_them_missing_is_no_answer(self):
        self._drop(range(13), 2.0, 12.0)
        self._assert_days(0.0)

    def test_deleted_instances_are_not_missed(self):
        for number in range(13):
            del self.driver.samples[store_base.instance_uuid(number)]
        self._assert_days(1.0)

    def test_nobody_left_counts_nothing(self):
        self.driver.samples.clear()
        self._assert_days(0.0)

    def test_slots_are_those_of_the_longest_period(self):
        # One is measured by the hour from now on.
        times = START + 2 * DAY + 3600.0 * np.arange(48)
        self._drop([0], 2.0, 12.0)
        read = self.driver._series

        def series(*arguments):
            for raw in read(*arguments):
                if raw.instance_uuid == store_base.instance_uuid(0):
                    raw = type(raw)(raw.instance_uuid, 3600.0, times[
                        (times >= arguments[0]) & (times < arguments[1])],
                        np.zeros((23, 3)) + [1.0, 0.0, 0.0])
                yield raw

        self.at(3)
        with mock.patch.object(
            self.driver, '_series', series
        ), mock.patch.object(
            limit_feedback.Trial,
            'followed',
            autospec=True,
            return_value=limit_feedback.NOTHING,
        ) as followed:
            times = times[times < START + 3 * DAY]
            self.update()
        (_, _, rates, days), _ = followed.call_args
        self.assertEqual(1 / 24, days)
        for uuid, trial_outcome in rates.items():
            if uuid == store_base.instance_uuid(0):
                continue
            when, egress, _ = self.driver.samples[uuid]
            inside = (when >= START + 2 * DAY + 3600) & (
                when < START + 3 * DAY + 3600)
            np.testing.assert_allclose(
                egress[inside].reshape(-1, 12).mean(axis=1)[
                    :len(trial_outcome)],
                trial_outcome[:, 0])


class DrawnTestCase(TrialsTestCase):

    def test_a_small_fleet_makes_no_trial(self):
        for number in range(limit_feedback.MIN_INSTANCES):
            self.put(number, np.full(288, 1.0 + number % 2))
        # One is larger than any host takes.
        self.put(0, np.full(288, 20.1))
        self.at(1)
        generation = self.store.generation()
        self.assertEqual(limit_trials.Update(), self.update())
        self.assertEqual(generation, self.store.generation())
        self.put(limit_feedback.MIN_INSTANCES, np.full(288, 1.0))
        self.at(1)
        self.assertEqual(1, self.update().made)
        trial, = self.store.trials()
        self.assertEqual(limit_feedback.MIN_INSTANCES, len(trial.instances))
        self.assertNotIn(store_base.instance_uuid(0), trial.instances)

    def test_a_large_one_is_tried_by_the_same_ones_in_another_order(self):
        for number in range(60):
            self.put(number, np.full(3 * 288, 1.0))
        with mock.patch.object(limit_trials, 'MOST_INSTANCES', 30), \
                mock.patch.object(limit_trials, '_TOGETHER', 7):
            self.live(1, 2)
        first, second = (trial.instances for trial in self.store.trials())
        self.assertEqual(30, len(set(first)))
        self.assertEqual(set(first), set(second))
        self.assertNotEqual(first, second)

    def test_all_that_decides_is_a_kind_of_its_own(self):
        self.fill()
        self.store.write(host_profiles=[
            model_store.HostProfile('h1', 'other'),
            model_store.HostProfile('h2', 'other'),
            model_store.HostProfile('h3', 'own', {'saturation_kbps': 25})])
        kinds = list(self.kinds.find(self.store))
        self.assertEqual(['0.01: 1 1 0 <= 30', KIND, '0.01: 1 1 0 <= 25'],
                         kinds)
        with mock.patch.object(limit_trials, 'MOST_KINDS', 2):
            self.live(2, 3)
        self.assertEqual({KIND, kinds[0]}, set(self.store.trial_outcomes()))
        self.assertEqual(4, len(self.store.trials()))

    def test_hosts_say_what_an_instance_cannot_exceed(self):
        def make_policies():
            return policies.HostPolicies(
                {'own': profile.SwitchProfile(
                    name='own', saturation_kbps=20.0, line_rate_kbps=10.0)},
                None, 'probability', LIMIT, True, lambda topic, problem: None)

        kinds = limit_trials.HostKinds(make_policies)
        self.assertEqual({}, kinds.most_kbps(self.store))
        uuids = [store_base.instance_uuid(number) for number in range(3)]
        self.store.write(
            placements=[model_store.InstanceRecord(uuid, host) for uuid, host
                        in zip(uuids, ('known', 'unknown', None))],
            host_profiles=[model_store.HostProfile('known', 'own')])
        self.assertEqual({uuids[0]: 30.0}, kinds.most_kbps(self.store))
        # Physical machines are not limited by a virtual switch.
        self.store.write_fleet({'bare_metal': {'known': {}}}, START)
        self.assertEqual({}, kinds.most_kbps(self.store))

    def test_bare_metal_is_of_no_kind(self):
        self.store.write(host_profiles=[
            model_store.HostProfile(host, None, {'saturation_kbps': number})
            for number, host in enumerate(('metal', 'switched'), 30)])
        self.store.write_fleet({'bare_metal': {'metal': {}}}, START)
        kinds = limit_trials.HostKinds(host_policies)
        self.assertEqual({20, 31}, {
            policy.profile.saturation_kbps
            for policy in kinds.find(self.store).values()})

    def test_aggregates_make_kinds_where_nova_can_be_asked(self):
        cloud = self.enterContext(nova_hosts.NovaHosts())
        cloud.host('h1', overload_probability='0.05')
        cloud.host('h2', admission_policy='average')
        kinds = limit_trials.HostKinds(host_policies, cloud.access())
        self.assertEqual([KIND, '0.05: 1 1 0 <= 20'],
                         list(kinds.find(self.store)))
        for status, expected in ((403, [KIND]), (404, None)):
            with mock.patch.object(cloud, 'answer',
                                   return_value=(status, {})):
                if expected:
                    self.assertEqual(expected, list(kinds.find(self.store)))
                else:
                    with self.assertRaises(exceptions.TelemetryError):
                        kinds.find(self.store)
