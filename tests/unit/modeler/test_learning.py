# SPDX-License-Identifier: Apache-2.0

import contextlib
import dataclasses
import math
from unittest import mock

import numpy as np

from tests.unit.modeler import base
from tests.unit.modeler import samples as made
from tests.unit.store import base as store_base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import priors
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import series
from vswitch_aware_scheduler.vswitch import profile

grid = made.grid
whole_rates = made.whole_rates

PERIOD = base.PERIOD
BEGIN = base.BEGIN
END = base.END


class LearningTestCase(base.ModelerTestCase):

    @contextlib.contextmanager
    def overtaken(self, periods, **more):
        """Let another pass write before the own one does."""
        self.run_pass(now=BEGIN + periods * PERIOD, **more)
        yield


class ClockTestCase(base.ModelerTestCase):
    """Of a clock that differs from that of the database or of telemetry."""

    def setUp(self):
        super().setUp()
        self.driver.put(0, grid(50), np.ones(50))
        self.telemetry_ahead = self.store_ahead = 0.0
        self.enterContext(mock.patch.object(
            self.driver, 'server_time', lambda: END - self.telemetry_ahead))
        self.enterContext(mock.patch.object(
            self.store, 'server_time', lambda: END - self.store_ahead))

    def _assert_learns(self, telemetry=0.0, store=0.0, message=None,
                       clock_seconds=60.0):
        """Check a pass of a clock that is ahead of two others by seconds.

        :param message: of the error, or None if the pass learns
        """
        self.telemetry_ahead, self.store_ahead = telemetry, store
        if message is None:
            self.run_pass(clock_seconds=clock_seconds)
            self.assertEqual(1, self.store.generation().number)
            return
        with self.assertRaisesRegex(exceptions.ClockError, message):
            self.run_pass(clock_seconds=clock_seconds)
        self.assertEqual([], self.driver.asked)
        self.assertEqual(0, self.store.generation().number)

    def test_nothing_is_learned_until_the_clocks_agree(self):
        self._assert_learns(
            7 * 86400.0, message='604800 s ahead of.*telemetry memory.*'
            'at most 60 s.*modeler_clock_seconds')
        self._assert_learns(-61.0, message='61 s behind.*telemetry')
        self._assert_learns(store=61.0, message='61 s ahead.*the database')
        self._assert_learns(-59.0, 59.0)

    def test_the_tolerance_is_a_setting(self):
        for clock_seconds, message in (
                (2999.0, 'at most 2999 s'), (3001.0, None), (None, None)):
            self._assert_learns(3000.0, 3000.0, message, clock_seconds)

    def test_without_another_clock_there_is_none_to_compare(self):
        self.assertIsNone(self.make_store().server_time())
        self.assertIsNone(base.MemoryDriver().server_time())


class ProjectsTestCase(base.ModelerTestCase):
    """What one project does to hosts of others' instances.

    60 honest instances, 100 Mbit/s together while they are on: with
    probability .6 from 9 to 13 h and .05 else. A host carries 1 Gbit/s.
    """

    BUSY, CALM, HOURS = .6, .05, 4
    DAY = 86400.0
    START = 19676 * 86400.0

    def fill(self, attackers, hours=(0, 8), honest=lambda n: f'p{n // 10}'):
        times = self.START + PERIOD * np.arange(10 * 288)
        hour = times % self.DAY / 3600
        rng = np.random.default_rng(5)
        share = np.where((hour >= 9) & (hour < 9 + self.HOURS),
                         self.BUSY, self.CALM)
        for number in range(60):
            kbps = 5e4 * (rng.random(times.size) < share)
            self.driver.put(number, times, kbps, kbps)
        night = 1e6 * ((hour >= hours[0]) & (hour < hours[1]))
        for number in range(60, 60 + attackers):
            self.driver.put(number, times, night, night)
        self.store.write(
            inventory=model_store.InventoryState('nova', 5.0, 5.0),
            placements=[model_store.InstanceRecord(
                store_base.instance_uuid(number), 'h', 'f',
                honest(number) if number < 60 else 'attacker')
                for number in range(60 + attackers)])
        for day in range(1, 11):
            self.run_pass(now=self.START + day * self.DAY)

    def overload(self):
        """Return the true overload of a host that is filled, over E."""
        uuids = [store_base.instance_uuid(n) for n in range(60)]
        laws = self.store.laws(uuids)
        policy = admission.HostPolicy(
            profile=profile.SwitchProfile(name='one', saturation_kbps=1e6),
            policy=admission.PROBABILITY, overload_probability=.01)
        table = admission.LoadTable()
        slot = table.describe('h', policy, {uuids[0]: laws[uuids[0]]})
        count = 1
        while table.assess([slot], laws[uuids[count]]).admitted[0]:
            table.change({'h': ({uuids[count]: laws[uuids[count]]}, ())})
            count += 1

        def above(share):
            return sum(math.comb(count, on) * share ** on
                       * (1 - share) ** (count - on)
                       for on in range(11, count + 1))

        return (self.HOURS * above(self.BUSY)
                + (24 - self.HOURS) * above(self.CALM)) / 24 / .01

    def test_no_project_changes_much(self):
        for label, arguments in (
                ('honest instances alone', (0,)),
                ('busy at night', (20,)), ('short bursts', (20, (0, 1))),
                ('one other project', (20, (0, 2.4), lambda n: 'honest')),
                ('many instances', (200, (0, 2.4)))):
            with self.subTest(label):
                self.driver = base.MemoryDriver()
                self.store = self.other_store(label)
                self.fill(*arguments)
                self.assertLessEqual(self.overload(), 1.3)


class IncrementalTestCase(base.ModelerTestCase):

    def _fill(self, instances=12, samples=400, seed=0):
        rng = np.random.default_rng(seed)
        for number in range(instances):
            first = int(rng.integers(0, samples // 2))
            egress = whole_rates(rng, samples - first)
            # A few have no value, and a few are broken.
            egress[rng.random(egress.size) < 0.02] = np.nan
            egress[rng.random(egress.size) < 0.02] = -1
            self.driver.put(number, grid(egress.size, first), egress,
                            whole_rates(rng, egress.size))

    def test_any_pieces_give_exactly_what_one_pass_gives(self):
        self._fill()
        scratch = self.other_store('scratch')
        self.run_pass(scratch)
        rng = np.random.default_rng(1)
        for at in np.sort(rng.integers(1, 400, 40)):
            self.run_pass(now=BEGIN + PERIOD * at)
        self.run_pass()
        pieces, at_once = self.learned(), self.learned(scratch)
        self.assertEqual(12, len(at_once))
        self.assertEqual(pieces.keys(), at_once.keys())
        for uuid, (modelled, counts, refused, model) in at_once.items():
            self.assertEqual((modelled, counts, model),
                             (pieces[uuid][0], pieces[uuid][1],
                              pieces[uuid][3]))
            # Trailing ones are counted again, none is left out.
            self.assertGreaterEqual(pieces[uuid][2].total, refused.total)

    def test_only_changed_instances_are_written(self):
        self._fill(instances=3)
        self.run_pass()
        generation = self.store.generation()
        uuid = self.driver.put(1, grid(100, 500), np.ones(100))
        outcome = self.run_pass()
        self.assertEqual(1, outcome.fitted)
        changes = self.store.read_changes(generation)
        self.assertFalse(changes.complete)
        self.assertEqual([uuid], changes.instance_uuids)
        self.assertEqual(generation.number + 1, outcome.generation.number)

    def test_without_new_samples_no_generation_is_created(self):
        self._fill(instances=2)
        first, second = self.run_pass(), self.run_pass()
        self.assertEqual((True, False), (first.written, second.written))
        self.assertEqual((0, 0), (second.samples, second.fitted))
        self.assertEqual([first.generation] * 2, [
            second.generation, self.store.generation()])

    def test_an_instance_without_an_answer_keeps_its_model(self):
        self._fill(instances=2)
        self.run_pass()
        before = self.learned()
        uuid = store_base.instance_uuid(0)
        self.driver.samples[uuid] = (np.zeros(0),) * 3
        self.driver.put(1, grid(100, 1000), np.full(100, 5.0))
        self.run_pass()
        self.assertEqual(before[uuid], self.learned()[uuid])

    def test_counts_of_short_and_silent_histories_are_not_read_again(self):
        short = self.driver.put(0, grid(10), np.full(10, 7.0))
        silent = self.driver.put(1, grid(100), np.zeros(100))
        outcome = self.run_pass()
        self.assertEqual({'fewer than 24 samples': 1, 'no traffic': 1},
                         outcome.reasons)
        self.assertEqual((0, 2), (outcome.fitted, outcome.waiting))
        self.assertIsNone(self.store.model(short))
        self.assertFalse(self.run_pass().written)
        # New samples are added to the stored counts.
        self.driver.put(0, grid(30), np.full(30, 7.0))
        self.driver.put(1, grid(101), [*np.zeros(100), 3.0])
        outcome = self.run_pass()
        self.assertEqual((21, 2, 0), (outcome.samples, outcome.fitted,
                                      outcome.waiting))
        self.assertEqual(30, self.store.model(short).samples)
        self.assertEqual(101, self.store.model(silent).samples)

    def test_an_instance_without_a_usable_sample_is_reported(self):
        self.driver.put(0, grid(5), np.full(5, np.nan))
        outcome = self.run_pass()
        [refused] = outcome.refused
        self.assertEqual(('vm0', 'no usable sample'),
                         (refused.name, refused.reason))
        self.assertIn('5 refused', refused.detail)
        self.assertEqual({}, self.store.resume_points())
        self.assertFalse(outcome.written)


class ReadingTestCase(base.ModelerTestCase):

    def test_each_is_read_from_its_last_sample_on(self):
        old = {self.driver.put(number, grid(50), np.ones(50))
               for number in range(3)}
        self.run_pass()
        new = {self.driver.put(3, grid(5), np.ones(5))}
        self.run_pass()
        self.assertEqual(
            [-math.inf, (-math.inf, new),
             (math.nextafter(grid(50)[-1], math.inf), old)],
            [self.driver.asked[0][0],
             *((ask[0], ask[2]) for ask in self.driver.asked[1:])])

    def test_late_instances_need_few_readings_and_count_once(self):
        rng = np.random.default_rng(4)
        ends = rng.integers(30, 3000, 200)
        for number, end in enumerate(ends):
            self.driver.put(number, grid(end), np.full(end, 2.0))
        self.run_pass()
        self.driver.asked.clear()
        self.assertEqual(0, self.run_pass().samples)
        # Widths double: a thousand periods need eleven readings.
        self.assertLessEqual(len(self.driver.asked), 13)
        everyone = [uuid for ask in self.driver.asked for uuid in ask[2]]
        self.assertEqual(sorted(self.driver.samples), sorted(everyone))
        for number in range(200):
            self.driver.put(number, grid(3001), np.full(3001, 2.0))
        self.run_pass()
        for number, end in enumerate(ends):
            learned = self.store.model(store_base.instance_uuid(number))
            self.assertEqual(3001, learned.samples)

    def test_refused_samples_of_late_instances_count_once(self):
        def put(number, added):
            rates = np.full(100 - 7 * number + added, 2.0)
            rates[98 - 7 * number] = np.nan
            return self.driver.put(number, grid(rates.size), rates)

        for number in range(10):
            put(number, 0)
        self.run_pass()
        uuids = [put(number, 1) for number in range(10)]
        self.assertEqual(10, self.run_pass().samples)
        # Some were read again from further back than they ended.
        self.assertLess(len(self.driver.asked), 1 + 10)
        self.assertEqual({1}, {
            self.store.model(uuid).refused.missing for uuid in uuids})

    def test_an_instance_read_without_being_listed_counts_once(self):
        # Telemetry learned of it between two questions.
        rates = np.full(60, 4.0)
        rates[10] = np.nan
        uuid = self.driver.put(0, grid(60), rates)
        self.run_pass(now=BEGIN + 49 * PERIOD)
        self.driver.instances = lambda: []
        self.assertEqual(10, self.run_pass().samples)
        learned = self.store.model(uuid)
        self.assertEqual((59, 1), (learned.samples, learned.refused.missing))

    def test_samples_from_the_future_are_read_later(self):
        uuid = self.driver.put(0, [*grid(40), BEGIN + 1e9], np.ones(41))
        outcome = self.run_pass(now=BEGIN + 50 * PERIOD)
        self.assertEqual(40, outcome.samples)
        self.assertEqual(0, outcome.ahead)
        self.driver.put(0, [*grid(45), BEGIN + 1e9], np.ones(46))
        self.assertEqual(5, self.run_pass(now=BEGIN + 50 * PERIOD).samples)
        self.assertEqual(45, self.store.model(uuid).samples)

    def test_a_clock_that_steps_back_loses_and_repeats_nothing(self):
        rng = np.random.default_rng(5)
        for number in range(4):
            self.driver.put(number, grid(300), whole_rates(rng, 300))
        for at in (100, 40, 150, 3, 149, 300):
            outcome = self.run_pass(now=BEGIN + at * PERIOD)
            if at in (40, 3, 149):
                self.assertEqual((False, 4), (outcome.written,
                                              outcome.ahead))
        self.assert_learned_as_at_once()

    def test_a_counter_that_was_reset_is_no_negative_traffic(self):
        self.driver = base.MemoryDriver(counters=True)
        steps = np.full(200, 125.0 * PERIOD * 10)
        counter = np.cumsum(steps)
        counter[120:] -= counter[120]            # reset
        uuid = self.driver.put(0, grid(200), counter, counter)
        for at in (50, 118, 119, 120, 121, 199):
            self.run_pass(now=BEGIN + at * PERIOD)
        learned = self.store.model(uuid)
        self.assertEqual((10.0, 10.0, 0.0), tuple(learned.model.peak))
        self.assertEqual(198, learned.samples)
        self.assertEqual(series.Refused(reset=1), learned.refused)

    def test_progress_never_goes_back_and_ends_at_its_total(self):
        for number in range(7):
            self.driver.put(number, grid(50 + number), np.ones(50 + number))
        for _ in range(2):
            steps = []
            self.run_pass(progress=lambda *step: steps.append(step))
            self.assertEqual(sorted(steps), steps)
            self.assertEqual(steps[-1][0], steps[-1][1])


class FailureTestCase(LearningTestCase):

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(6)
        for number in range(5):
            self.driver.put(number, grid(200), whole_rates(rng, 200))
        self.run_pass(now=BEGIN + 100 * PERIOD)
        self.before = self.store.generation(), self.learned()

    def _assert_unharmed(self):
        self.assertEqual(self.before,
                         (self.store.generation(), self.learned()))
        self.run_pass()
        self.assert_learned_as_at_once()

    def test_a_failure_of_telemetry_leaves_the_last_generation(self):
        self.driver.fail_after = 3
        with self.assertRaises(exceptions.TelemetryError):
            self.run_pass()
        self.driver.fail_after = None
        self._assert_unharmed()

    def test_an_end_at_any_step_leaves_the_generation(self):
        class End(BaseException):
            pass

        def ending(done, total):
            if done >= at:
                raise End

        with self.assertRaises(End):
            self.run_pass(writing=mock.Mock(
                __enter__=mock.Mock(side_effect=End), __exit__=None))
        for at in (0, 300, 900, 1000):
            with self.assertRaises(End):
                self.run_pass(progress=ending)
        self._assert_unharmed()

    def test_a_failed_write_leaves_the_generation(self):
        self.execute(
            "CREATE TRIGGER full BEFORE INSERT ON generation_history "
            "BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        with self.assertRaisesRegex(exceptions.StoreError, 'disk full'):
            self.run_pass()
        self.execute('DROP TRIGGER full')
        self._assert_unharmed()

    def test_models_of_a_concurrent_writer_are_not_overwritten(self):
        with self.assertRaisesRegex(exceptions.StoreChanged,
                                    'counts of 5 instances.* since '
                                    'generation 1'):
            self.run_pass(writing=self.overtaken(150))
        self.before = self.store.generation(), self.learned()
        self._assert_unharmed()

    def test_damaged_counts_are_counted_again_and_end_no_pass(self):
        uuid = store_base.instance_uuid(2)
        # Of the last one it can be read where to go on, but nothing else.
        for damage, samples in (("x''", 200), ("x'07'", 200),
                                ('substr(counts, 1, 60)', 24)):
            self.execute(f'UPDATE traffic_model_detail SET counts = {damage} '
                         'WHERE instance_uuid = :uuid', uuid=uuid)
            self.assertIsNone(self.store.learned([uuid])[uuid].counts)
            if samples < 200:
                self.driver.put(2, grid(samples, 200), np.ones(samples))
            self.run_pass()
            self.assertEqual(samples, self.store.model(uuid).samples)

    def replace_samples(self, times, kbps=9.0, period=PERIOD):
        """Let telemetry have nothing but these samples of an instance."""
        self.driver.period = period
        self.driver.samples = {}
        return self.driver.put(2, times, np.full(len(times), kbps))

    def test_few_samples_do_not_replace_a_model(self):
        self.run_pass()
        # Another period: counts of the two cannot be added.
        times = grid(200)[-1] + 60.0 * np.arange(1, 25)
        uuid = self.replace_samples(times[:23], period=60.0)
        earlier = self.store.model(uuid)
        outcome = self.run_pass()
        self.assertEqual({'counting restarted: the sampling period has '
                          'changed': 1},
                         outcome.reasons)
        self.assertFalse(outcome.written)
        self.assertEqual(earlier.model.to_dict(),
                         self.store.model(uuid).model.to_dict())
        self.replace_samples(times, period=60.0)
        self.assertEqual(1, self.run_pass().fitted)
        learned = self.store.model(uuid)
        self.assertEqual((24, 60.0), (learned.samples,
                                      learned.counts.period_seconds))

    def test_another_period_or_source_reads_all_samples_of_telemetry(self):
        self.run_pass()
        last = grid(200)[-1]
        # Another period, another exporter, another number of it, another
        # driver. The samples of the last two hours were counted before.
        for number, (period, variant, name) in enumerate((
                (60.0, '', 'memory'), (PERIOD, 'ceilometer', 'memory'),
                (PERIOD, 'libvirt-kumina', 'memory'), (PERIOD, '', 'memory'),
                (PERIOD, '', 'gnocchi')), 1):
            times = np.arange(last - 7200.0, last + 900.0, period)
            uuid = self.replace_samples(times, 9.0 * number, period)
            self.driver.variant = variant
            for fitted in (1, 0):
                outcome = self.run_pass(source=name)
                self.assertEqual((fitted, {}),
                                 (outcome.fitted, outcome.reasons))
                learned = self.store.model(uuid)
                self.assertEqual(
                    (times.size, times[0], period, 9.0 * number,
                     f'{name} {variant}'.strip()),
                    (learned.samples, learned.counts.first_time,
                     learned.counts.period_seconds,
                     learned.counts.peaks.max(), learned.source))


class InstancesTestCase(base.ModelerTestCase):

    def test_invalid_counts_change_no_other_instance(self):
        uuid = store_base.instance_uuid(0)
        others = [store_base.instance_uuid(n) for n in (1, 2, 3)]
        scratch = self.other_store('scratch')
        for number in range(4):
            self.driver.put(number, grid(300), np.arange(300) % 7.0)
        self.run_pass(scratch, now=BEGIN + 200 * PERIOD)
        self.run_pass(scratch)
        self.run_pass(now=BEGIN + 200 * PERIOD)
        counts = self.store.learned([uuid])[uuid].counts
        self.execute(
            'UPDATE traffic_model_detail SET counts = :counts '
            'WHERE instance_uuid = :uuid', uuid=uuid,
            counts=dataclasses.replace(
                counts, samples=counts.samples * math.nan).to_bytes())
        self.run_pass()
        for other in others:
            self.assertEqual(scratch.model(other).model.to_dict(),
                             self.store.model(other).model.to_dict())
        self.assertEqual(99, self.store.model(uuid).samples)

    def test_a_new_instance_of_the_same_name_has_its_own_history(self):
        first_uuid = self.driver.put(0, grid(100), np.full(100, 4.0),
                                     name='web')
        self.run_pass()
        del self.driver.samples[first_uuid]
        second_uuid = self.driver.put(1, grid(50, 100), np.full(50, 8.0),
                                      name='web')
        self.run_pass()
        self.assertEqual(100, self.store.model(first_uuid).samples)
        self.assertEqual((50, 8.0), (self.store.model(second_uuid).samples,
                                     self.store.model(second_uuid).model.peak[
                                         0]))
        self.assertEqual(2, len(self.store.models(name='web')))

    def test_instances_gone_for_long_are_removed_and_reported_to_readers(self):
        deleted, silent, stays = (
            self.driver.put(number, grid(100), np.full(100, 4.0))
            for number in range(3))
        waiting = self.driver.put(3, grid(5), np.full(5, 4.0))
        self.run_pass(forget_seconds=10 * PERIOD)
        first = self.store.generation()
        del self.driver.samples[deleted], self.driver.samples[waiting]
        self.driver.put(2, grid(110), np.full(110, 4.0))
        self.run_pass(forget_seconds=10 * PERIOD)
        self.assertIsNotNone(self.store.model(deleted))
        self.driver.put(2, grid(111), np.full(111, 4.0))
        outcome = self.run_pass(forget_seconds=10 * PERIOD)
        # Telemetry still knows the silent one.
        self.assertEqual({deleted}, set(outcome.removed) - {waiting})
        self.assertEqual({silent, stays}, set(self.store.resume_points()))
        self.assertEqual([deleted], [
            uuid for uuid in self.store.read_changes(first).removed
            if uuid != waiting])

    def test_empty_telemetry_removes_no_instance(self):
        uuid = self.driver.put(0, grid(100), np.full(100, 4.0))
        self.run_pass(forget_seconds=PERIOD)
        self.driver.samples.clear()
        outcome = self.run_pass(forget_seconds=PERIOD, now=base.END * 2)
        self.assertEqual((0, ()), (outcome.instances, outcome.removed))
        self.assertIsNotNone(self.store.model(uuid))

    def test_a_long_name_is_cut(self):
        uuid = self.driver.put(0, grid(30), np.ones(30), name='x' * 300)
        self.run_pass()
        self.assertEqual('x' * 255, self.store.model(uuid).name)


class AgeingTestCase(base.ModelerTestCase):

    def follow(self, rates, passes, half_life=50):
        """Learn of one instance in several passes.

        :param passes: the period of each pass; ``half_life`` is in periods
        :returns: iterable of (period, StoredModel)
        """
        uuid = self.driver.put(0, grid(rates.size), rates)
        for at in passes:
            self.run_pass(now=BEGIN + at * PERIOD,
                          half_life_seconds=half_life * PERIOD)
            yield at, self.store.model(uuid)

    def test_a_sample_counts_half_after_a_half_life(self):
        *_, (_, learned) = self.follow(np.full(300, 4.0), (99, 149, 199, 299))
        # Pieces of 50 samples, aged by their ends: those of 100 are two
        # half-lives long.
        weight = sum(50 * 0.5 ** ((299 - at) / 50)
                     for at in range(49, 300, 50))
        self.assertAlmostEqual(weight, learned.samples, 9)

    def test_old_samples_and_their_peak_are_forgotten(self):
        for false_at in (0, 10):
            rates = np.full(2000, 4.0)
            rates[false_at] = 900.0
            for at, learned in self.follow(rates, range(100, 2000, 100), 60):
                # Full weight at 100, an eighth of it three half-lives later.
                self.assertAlmostEqual(900.0 if at < 280 else 4.0,
                                       learned.model.peak[0], 9)
            self.store.write(remove=[*self.store.resume_points()])

    def test_a_history_without_weight_is_replaced(self):
        uuid = self.driver.put(0, grid(50), np.full(50, 4.0))
        self.run_pass(half_life_seconds=60 * PERIOD)
        self.driver.put(0, grid(60, 10000), np.full(60, 4.0))
        self.run_pass(half_life_seconds=60 * PERIOD)
        learned = self.store.model(uuid)
        self.assertEqual((60, grid(1, 10000)[0]),
                         (learned.samples, learned.window_start))

    def assert_admitted(self, period, days, false, expected):
        """Follow a steady instance of 100 Mbit/s, with false samples.

        :param false: {day: kbit/s}
        :param expected: pairs of a day and how many of five empty hosts of
            10 Gbit/s admit the instance then; a pass at least every 5 days
        """
        day = 86400.0
        self.driver.period = period
        times = BEGIN + period * np.arange(days * day / period)
        rates = np.full(times.size, 1e5)
        for at, kbps in false.items():
            rates[int(at * day / period)] = kbps
        uuid = self.driver.put(0, times, rates)
        policy = admission.HostPolicy(profile.SwitchProfile(
            name='p', saturation_kbps=1e7))
        self.now = BEGIN
        for at, count in expected:
            while self.now < BEGIN + at * day:
                self.now = min(self.now + 5 * day, BEGIN + at * day)
                self.run_pass(half_life_seconds=30 * day)
            table = admission.LoadTable()
            hosts = [table.describe(f'host-{n}', policy, {})
                     for n in range(5)]
            law = self.store.model(uuid).model.law
            self.assertEqual(count, table.assess(hosts, law).admitted.sum(),
                             at)
        return self.store.model(uuid).model

    def test_a_false_sample_matters_until_a_week_is_known(self):
        model = self.assert_admitted(
            1800.0, 60, {3: 2e7, 40: 3e7},
            ((2.0, 5), (4.0, 0), (6.9, 0), (7.1, 5), (39.5, 5), (40.5, 5),
             (60.0, 5)))
        self.assertEqual(1e5, model.peak[0])

    def test_a_rate_of_two_days_fades_in_four_half_lives(self):
        self.assert_admitted(
            3600.0, 365, {39: 2e7, 40: 2e7},
            ((39.5, 5), (40.5, 0), (150.0, 0), (170.0, 5), (365.0, 5)))

    def test_a_year_that_is_read_at_once_fades_as_well(self):
        half_life = 30 * 24 * PERIOD
        rates = np.full(365 * 24, 4.0)
        # In the first days, and in the last half-lives, on two days each.
        rates[[100, 100 + 288]] = 900.0
        rates[[-80 * 24, -80 * 24 + 288]] = 50.0
        uuid = self.driver.put(0, grid(rates.size), rates)
        self.run_pass(half_life_seconds=half_life)
        self.assertEqual(50.0, self.store.model(uuid).model.peak[0])


class BoundsTestCase(base.ModelerTestCase):

    def test_a_rate_above_the_capacity_of_the_host_is_rejected(self):
        rates = np.full(300, 4.0)
        rates[50] = 900.0
        bounded, free = (self.driver.put(number, grid(300), rates)
                         for number in range(2))
        outcome = self.run_pass(most_kbps={bounded: 100.0})
        self.assertEqual(1, outcome.refused_samples.absurd)
        self.assertEqual(4.0, self.store.model(bounded).model.peak[0])
        self.assertEqual(900.0, self.store.model(free).model.peak[0])


class SharesTestCase(LearningTestCase):

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(9)
        for number in range(30):
            self.driver.put(number, grid(200), whole_rates(rng, 200))

    @staticmethod
    def share(residue, of=2):
        return lambda instance_uuid: int(instance_uuid[-2:],
                                         16) % of == residue

    def test_an_instance_belongs_to_one_share(self):
        for residue in range(3):
            outcome = self.run_pass(share=self.share(residue, 3))
            self.assertEqual((10, 10), (outcome.instances, outcome.fitted))
            self.assertEqual(10 * (residue + 1), len(self.store.models()))
            [reading] = self.driver.asked[residue:]
            self.assertEqual(10, len(reading[2]))
        self.assert_learned_as_at_once()

    def test_concurrent_shares_add_up(self):
        for at in (90, 91, 140, 199):
            self.run_pass(now=BEGIN + at * PERIOD, share=self.share(0),
                          writing=self.overtaken(at, share=self.share(1)))
        self.assertEqual(8, self.store.generation().number)
        self.assert_learned_as_at_once()

    def test_overlapping_shares_count_nothing_twice(self):
        with self.assertRaisesRegex(exceptions.StoreChanged,
                                    'counts of 15 instances'):
            self.run_pass(share=self.share(0), writing=self.overtaken(90))
        for residue in range(2):
            self.run_pass(share=self.share(residue))
        self.assert_learned_as_at_once()

    def test_a_pass_that_was_overtaken_ends_immediately(self):
        # At first, and when there are counts to go on from.
        for until, at in ((60, 0), (90, 950), (120, 0), (150, 950)):
            overtaken = []

            def faster(done, total, until=until, at=at, steps=overtaken):
                if done >= at and not steps:
                    steps.append(done)
                    self.run_pass(now=BEGIN + until * PERIOD)

            with self.assertRaisesRegex(exceptions.StoreChanged,
                                        'another (modeler|process)'):
                self.run_pass(now=BEGIN + (until + 5) * PERIOD,
                              progress=faster)
            self.assertEqual(1, len(overtaken))
        self.run_pass()
        self.assert_learned_as_at_once()

    def test_instances_of_another_share_are_not_removed(self):
        self.run_pass()
        deleted = [uuid for uuid in self.driver.samples
                   if self.share(1)(uuid)][:3]
        for uuid in deleted:
            del self.driver.samples[uuid]
        self.driver.put(40, grid(300), np.ones(300))
        self.assertEqual((), self.run_pass(
            share=self.share(0), forget_seconds=10 * PERIOD).removed)
        outcome = self.run_pass(share=self.share(1),
                                forget_seconds=10 * PERIOD)
        self.assertEqual(set(deleted), set(outcome.removed))

    def test_an_empty_share_reads_nothing(self):
        for _ in range(2):
            self.driver.asked.clear()
            outcome = self.run_pass(share=lambda uuid: False)
            self.assertEqual((0, False, []), (
                outcome.instances, outcome.written, self.driver.asked))
            self.run_pass()


class SettingsTestCase(base.ModelerTestCase):

    def test_an_invalid_setting_is_named_with_legal_values(self):
        for name, value in (('source', ''), ('min_samples', 1),
                            ('min_samples', 2.5), ('half_life_seconds', 0),
                            ('half_life_seconds', math.nan),
                            ('forget_seconds', -1)):
            with self.assertRaisesRegex(exceptions.InvalidInput,
                                        f'modeler: {name}: .*; expected'):
                learning.LearningSettings(**{'source': 'memory', name: value})

    def test_a_model_without_counts_is_learned_from_the_beginning(self):
        uuid = self.driver.put(0, grid(50), np.full(50, 4.0))
        self.store.write([store_base.constant(0)])
        self.assertEqual(
            model_store.ResumePoint(True, None, None),
            self.store.resume_points()[uuid])
        self.run_pass()
        learned = self.store.model(uuid)
        self.assertEqual(50, learned.samples)
        self.assertIsInstance(learned.counts, estimate.TransitionCounts)


class DeletedTestCase(base.ModelerTestCase):
    """What a pass costs depends on what lives, and on what is new."""

    DAY = 86400.0

    def with_samples(self, since):
        return {uuid for uuid, (times, *_) in self.driver.samples.items()
                if times[-1] >= since}

    def put(self, number, days, from_day=0.0):
        """Give an instance samples of some days; return its uuid."""
        count = int(days * 288)
        return self.driver.put(number, grid(count, int(from_day * 288)),
                               np.ones(count))

    def asked(self, day, **settings):
        """Return the uuids that a pass asks for, and its Outcome."""
        self.driver.asked.clear()
        outcome = self.run_pass(now=BEGIN + day * self.DAY, **settings)
        uuids = set()
        for _, _, instances in self.driver.asked:
            uuids |= set(self.driver.samples if instances is None
                         else instances)
        return uuids, outcome

    def test_ended_instances_are_read_up_to_their_end(self):
        live, ended, late = (self.put(n, days) for n, days in (
            (1, 40), (2, 10), (3, 5)))
        self.driver.ended[ended] = BEGIN + 10 * self.DAY
        self.assertEqual({live, ended, late}, self.asked(9)[0])
        # Its last samples may be late.
        self.assertEqual({live, ended, late}, self.asked(10.02)[0])
        self.assertEqual(2880, self.store.learned([ended])[
            ended].counts.total_samples)
        self.assertEqual({live, ended, late}, self.asked(10.2)[0])
        self.assertEqual({live, late}, self.asked(10.3)[0])
        # Ended while no modeler was running.
        self.driver.ended[late] = BEGIN + 12 * self.DAY
        self.assertEqual({live, late}, self.asked(20)[0])
        self.assertEqual({live}, self.asked(20.1)[0])
        forget = {'forget_seconds': 15 * self.DAY}
        self.assertEqual((late,), self.asked(24, **forget)[1].removed)
        self.assertEqual((ended,), self.asked(26, **forget)[1].removed)
        # Forgotten is gone.
        asked, outcome = self.asked(27, **forget)
        self.assertEqual(({live}, ()), (asked, outcome.removed))
        self.assertEqual({live}, set(self.store.resume_points()))

    def test_instances_without_recent_samples_are_not_read(self):
        live, deleted, paused = (self.put(n, days) for n, days in (
            (1, 40), (2, 10), (3, 5)))
        self.driver.recent = self.with_samples
        self.assertEqual({live, deleted, paused}, self.asked(10)[0])
        self.assertEqual({live, deleted}, self.asked(11)[0])
        self.assertEqual({live}, self.asked(11.1)[0])
        self.store.write(placements=[model_store.InstanceRecord(paused, 'h')])
        forget = {'forget_seconds': 2 * self.DAY}
        self.assertEqual((deleted,), self.asked(13, **forget)[1].removed)
        self.assertEqual({live}, self.asked(14, **forget)[0])
        # Nova has it: it is read from where it was when it goes on.
        self.put(3, 15)
        self.assertEqual({live, paused}, self.asked(15, **forget)[0])
        self.assertEqual(15 * 288, self.store.learned([paused])[
            paused].counts.total_samples)

    def test_samples_ahead_of_the_clock_affect_no_other_instance(self):
        # A pass whose clock was a year ahead has counted a false sample.
        self.driver.put(1, [*grid(50), BEGIN + 300 * self.DAY], np.ones(51))
        self.put(2, 1)
        self.asked(365)
        live = self.put(2, 2)
        self.driver.recent = self.with_samples
        _, outcome = self.asked(2, forget_seconds=90 * self.DAY)
        self.assertEqual((1, 288, ()), (outcome.ahead, outcome.samples,
                                        outcome.removed))
        self.assertEqual(BEGIN + 2 * self.DAY - PERIOD, outcome.last_time)
        self.assertEqual(2 * 288, self.store.model(live).samples)

    def test_the_first_pass_reads_all_instances(self):
        uuid = self.put(1, 10)
        self.driver.recent = lambda since: set()
        self.assertEqual({uuid}, self.asked(40)[0])


class WhoseWordTestCase(base.ModelerTestCase):
    """What of telemetry counts, and what of it does not."""

    def setUp(self):
        super().setUp()
        self.times = base.BEGIN + 300.0 * np.arange(50)
        self.uuids = [self.driver.put(number, self.times, np.full(50, 100.0))
                      for number in range(5)]

    def _inventory(self, count):
        self.store.write(
            placements=[model_store.InstanceRecord(uuid, 'h1', 'small', 'p')
                        for uuid in self.uuids[:count]],
            inventory=model_store.InventoryState('nova', base.END, base.END))

    def test_instances_that_nova_does_not_have_are_not_read(self):
        self._inventory(3)
        outcome = self.run_pass(only_of_inventory=True)
        self.assertEqual((3, 3, {'not in Nova': 2}), (
            outcome.instances, outcome.fitted, outcome.ignored))
        for _, _, uuids in self.driver.asked:
            self.assertEqual(frozenset(self.uuids[:3]), uuids)

    def test_without_an_inventory_or_protection_every_instance_counts(self):
        outcome = self.run_pass(only_of_inventory=True)
        self.assertEqual((5, {}), (outcome.fitted, outcome.ignored))
        self._inventory(3)
        self.driver.put(7, self.times, np.ones(50))
        outcome = self.run_pass()
        self.assertEqual((1, {}), (outcome.fitted, outcome.ignored))

    def _learn_bounds(self, rates, **settings):
        driver = self.driver

        class Bounded(base.MemoryDriver):
            def _series(self, *arguments):
                for rates in super()._series(*arguments):
                    yield dataclasses.replace(
                        rates, partial=np.ones(len(rates), bool))

        self.driver = Bounded()
        uuid = self.driver.put(9, self.times, rates)
        try:
            return uuid, self.run_pass(**settings)
        finally:
            self.driver = driver

    def test_a_lower_bound_counts_if_it_exceeds_the_assumed_demand(self):
        _, outcome = self._learn_bounds(np.full(50, 100.0),
                                        default_kbps=600.0)
        self.assertEqual((0, 50), (outcome.samples,
                                   outcome.refused_samples.missing))
        uuid, outcome = self._learn_bounds(np.full(50, 2e7),
                                           default_kbps=600.0)
        self.assertEqual(1, outcome.fitted)
        self.assertAlmostEqual(
            2e7, self.store.model(uuid).model.to_dict()['rates'][0][0], -1)

    def _unknown(self, uuid, times, known=None):
        """Make an instance idle at known times, and unknown at others."""
        egress = np.full(times.size, math.nan)
        if known is not None:
            egress[known] = 10.0
        self.driver.samples[uuid] = times, egress, np.zeros(times.size)

    def test_an_instance_that_is_mostly_unknown_has_no_model(self):
        for known in (slice(0), slice(None, None, 3)):
            uuid = self.driver.put(9, self.times, np.ones(50))
            for number in range(20, 45):
                self.driver.put(number, self.times, np.full(50, 3000.0))
            self.run_pass()
            self.assertIsNotNone(self.store.model(uuid))
            seen = self.store.generation()
            times = self.times
            for hours in range(20):
                times = times[-1] + PERIOD * np.arange(1, 13)
                self._unknown(uuid, np.concatenate([
                    self.driver.samples[uuid][0], times]))
                so_far = self.driver.samples[uuid]
                so_far[1][:50] = 1.0
                so_far[1][50:][known] = 1.0
                self.run_pass(now=times[-1] + PERIOD)
                if self.store.model(uuid) is None:
                    break
            self.assertGreater(hours, 2)
            self.assertIsNone(self.store.model(uuid), known)
            self.assertEqual([uuid], self.store.read_changes(seen).removed)
            # It counts by the prior of its group, not by its own traffic.
            priors.update(self.store, lambda: self.now)
            self.assertNotIn(uuid, self.store.priors())
            self.assertIn(prior.FLEET, self.store.priors())
            # When it is known again for long enough, it has a model.
            times = times[-1] + PERIOD * np.arange(1, 400)
            self.driver.put(9, times, np.ones(399))
            self.run_pass(now=times[-1] + PERIOD)
            self.assertIsNotNone(self.store.model(uuid))
            self.store.write(remove=[*self.store.resume_points()])

    def test_rejected_samples_age_like_the_others(self):
        egress = np.ones(50)
        egress[:30] = math.nan
        uuid = self.driver.put(9, self.times, egress)
        self.run_pass(half_life_seconds=86400.0)
        self.assertIsNone(self.store.model(uuid))
        times = self.times[-1] + PERIOD * np.arange(1, 290)
        self.driver.put(9, times, np.ones(289))
        self.run_pass(now=times[-1] + PERIOD, half_life_seconds=86400.0)
        self.assertAlmostEqual(
            30 * .5 ** (289 / 288),
            self.store.model(uuid).refused.missing)

    def test_a_model_is_not_lowered_by_lower_bounds(self):
        uuid = self.driver.put(9, self.times, np.full(50, 5000.0))
        self.run_pass()
        self.times = self.times + 300.0 * 50
        _, outcome = self._learn_bounds(
            np.where(np.arange(50) % 2, 10.0, 6000.0))
        self.assertEqual((25, 25), (outcome.samples,
                                    outcome.refused_samples.missing))
        self.assertGreater(self.store.model(uuid).model.mean[0], 5000.0)
