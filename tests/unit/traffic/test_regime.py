# SPDX-License-Identifier: Apache-2.0

import unittest

import numpy as np

from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import regime
from vswitch_aware_scheduler.traffic import series

SLOT = regime.SLOT_SECONDS


def _series(number, kbps, first_slot=0, period=SLOT):
    kbps = np.asarray(kbps, dtype=float)
    times = SLOT * first_slot + period * np.arange(kbps.size)
    return series.RateSeries.from_samples(
        f'vm-{number}', period, times, kbps, np.zeros(kbps.size))


def _load(rows, **where):
    load = regime.FleetLoad()
    for number, row in enumerate(rows):
        load.add(_series(number, row, **where))
    return load


class TestSlots(unittest.TestCase):

    def test_a_slot_begins_at_a_whole_number_of_them(self):
        self.assertEqual([-1, 0, 0, 1, 5_000_000],
                         regime.slots_of([-1, 0, SLOT - .1, SLOT,
                                          5e6 * SLOT + 10]).tolist())


class TestFleetLoad(unittest.TestCase):

    def _busy(self, load, slots):
        return load.regimes().of_slots(slots).tolist()

    def test_the_tenth_with_the_most_is_busy(self):
        rows = np.full((20, 100), 10.0)
        busy = [3, 14, 15, 50, 51, 52, 53, 77, 98, 99]
        rows[:, busy] = 40.0
        found = self._busy(_load(rows), np.arange(100))
        self.assertEqual(busy, np.flatnonzero(found).tolist())
        self.assertEqual(regime.BUSY_SHARE, np.mean(found))

    def test_each_instance_counts_by_what_is_usual_for_it(self):
        # One gigantic instance with bursts of its own, many small ones that
        # burst together: sqrt keeps the one from being the fleet.
        rows = np.full((41, 50), 100.0)
        rows[0] = 1e4
        rows[0, :5] = 4e4
        rows[1:, 20:25] = 400.0
        found = self._busy(_load(rows), np.arange(50))
        self.assertEqual([20, 21, 22, 23, 24], np.flatnonzero(found).tolist())

    def test_an_instance_counts_only_while_it_is_measured(self):
        # Half of the fleet comes later: the sum doubles, the load does not.
        load = _load(np.where(np.arange(100) % 10 == 4, 11.0, 10.0)
                     * np.ones((20, 1)))
        for number in range(20, 40):
            load.add(_series(number, np.where(
                np.arange(50) % 10 == 4, 11.0, 10.0), first_slot=50))
        self.assertEqual(
            list(range(4, 100, 10)),
            np.flatnonzero(self._busy(load, np.arange(100))).tolist())

    def test_pieces_are_as_good_as_the_whole(self):
        generator = np.random.default_rng(3)
        rows = generator.lognormal(3, 1, (25, 200))
        whole, pieces = _load(rows), regime.FleetLoad()
        for first, last in ((120, 200), (0, 50), (50, 120)):
            for number, row in enumerate(rows):
                pieces.add(_series(number, row[first:last], first),
                           np.sqrt(row).mean())
        slots = np.arange(-3, 203)
        self.assertEqual(self._busy(whole, slots), self._busy(pieces, slots))

    def test_slots_without_samples_are_not_known(self):
        load = _load(np.ones((20, 10)), first_slot=1000)
        for number in range(20):
            load.add(_series(number, np.ones(10), 1020))
        found = self._busy(load, [999, 1000, 1009, 1010, 1019, 1020, 1030])
        self.assertEqual([-1, -1, -1, -1],
                         [found[i] for i in (0, 3, 4, 6)])
        self.assertNotIn(-1, [found[i] for i in (1, 2, 5)])

    def test_of_few_instances_nothing_is_told(self):
        rows = np.random.default_rng(4).lognormal(
            3, 1, (regime.MIN_INSTANCES, 50))
        self.assertEqual({-1}, set(self._busy(_load(rows[1:]),
                                              np.arange(50))))
        self.assertEqual({0, 1}, set(self._busy(_load(rows), np.arange(50))))

    def test_a_fleet_without_traffic_or_samples_has_no_regimes(self):
        self.assertEqual([-1, -1], self._busy(regime.FleetLoad(), [0, 1]))
        self.assertEqual([-1, -1], self._busy(_load(np.zeros((30, 2))),
                                              [0, 1]))
        self.assertEqual([-1], self._busy(_load(np.zeros((30, 0))), [0]))

    def test_shorter_and_longer_periods_are_taken_by_their_start(self):
        load = _load(np.ones((20, 50)) * 10)
        for number in range(20, 30):
            load.add(_series(number, np.where(
                (np.arange(250) >= 100) & (np.arange(250) < 125), 90.0, 10.0),
                period=60.0))
        self.assertEqual(
            [20, 21, 22, 23, 24],
            np.flatnonzero(self._busy(load, np.arange(50))).tolist())


class TestKeeping(unittest.TestCase):

    def test_what_was_told_by_slot_goes_on_as_if_it_had_never_stopped(self):
        rng = np.random.default_rng(7)
        early, late = rng.lognormal(3, 1, (2, 25, 40))
        kept = _load(early, first_slot=100)
        load = regime.FleetLoad.of(*kept.by_slot(), kept.instances)
        for number, row in enumerate(late):
            for one in (kept, load):
                one.add(_series(number, row, first_slot=130), usual=20.0)
        self.assertEqual(kept.instances, load.instances)
        for one, other in zip(kept.by_slot(), load.by_slot()):
            np.testing.assert_array_equal(one, other)
        slots = np.arange(90, 180)
        found = load.regimes().of_slots(slots)
        np.testing.assert_array_equal(kept.regimes().of_slots(slots), found)
        self.assertEqual({-1, 0, 1}, set(found.tolist()))

    def test_only_slots_with_samples_are_told(self):
        load = _load([[4.0, 9.0]], first_slot=3)
        load.add(_series(1, [16.0], first_slot=9))
        slots, sums = load.by_slot()
        self.assertEqual([3, 4, 9], slots.tolist())
        self.assertEqual([[2.0, 2.5], [3.0, 2.5], [4.0, 4.0]], sums.tolist())

    def test_a_load_of_nothing_is_nothing(self):
        slots, sums = regime.FleetLoad().by_slot()
        self.assertEqual((0, (0, 2)), (slots.size, sums.shape))
        load = regime.FleetLoad.of(slots, sums, ['a'])
        self.assertEqual({'a'}, load.instances)
        self.assertEqual(0, load.by_slot()[0].size)


class TestShares(unittest.TestCase):

    def test_they_are_those_of_the_laws(self):
        self.assertEqual(1.0, model.REGIME_SHARES.sum())
        self.assertEqual(.1, regime.BUSY_SHARE)
        self.assertEqual(len(model.REGIMES), model.REGIME_SHARES.size)


class TestProjects(unittest.TestCase):
    """How much one project counts."""

    def _loads(self, rows, project_of):
        load = regime.FleetLoad()
        loads = regime.ProjectLoads(load, {
            f'vm-{number}': project_of(number) for number in rows})
        for number, row in rows.items():
            loads.add(_series(number, row))
        loads.finish()
        return load

    def _busy(self, load, slots=100):
        return np.flatnonzero(
            load.regimes().of_slots(np.arange(slots)) == 1).tolist()

    def test_with_one_project_or_none_nothing_changes(self):
        rows = dict(enumerate(np.random.default_rng(1).lognormal(
            3, 1, (25, 50))))
        plain = _load(list(rows.values()))
        for projects in (lambda n: 'p', lambda n: None,
                         lambda n: 'p' if n % 2 else None):
            found = self._loads(rows, projects)
            for one, other in zip(plain.by_slot(), found.by_slot()):
                np.testing.assert_array_equal(one, other)

    def test_it_counts_by_its_instances_and_not_by_their_size(self):
        # 60 with twice their usual load in slots 20 to 29, and 20 gigantic
        # ones that are on in 50 to 59.
        day = np.full(100, 100.0)
        day[20:30] = 400.0
        night = np.zeros(100)
        night[50:60] = 2e6
        rows = {number: day if number < 60 else night for number in range(80)}
        self.assertEqual(list(range(50, 60)), self._busy(
            _load(list(rows.values()))))
        for honest in (lambda n: 'p', lambda n: f'p{n // 10}',
                       lambda n: f'p{n}'):
            load = self._loads(rows, lambda n: 'other' if n >= 60
                               else honest(n))
            self.assertEqual(list(range(20, 30)), self._busy(load))
            # 20 of 80, at twice their share.
            _, sums = load.by_slot()
            usual = 60 * (9 * 10 + 20) / 10
            np.testing.assert_allclose(usual + usual / 3, sums[:, 1])
            np.testing.assert_allclose(600 + 2 * usual / 3, sums[50:60, 0])
            self.assertAlmostEqual(600, sums[0, 0])

    def test_a_thousand_instances_are_a_quarter_at_most(self):
        rows = {number: np.ones(50) * 100 for number in range(1060)}
        load = self._loads(rows, lambda n: 'other' if n >= 60
                           else f'p{n // 10}')
        np.testing.assert_allclose(600 + 200, load.by_slot()[1][:, 1])

    def test_small_projects_burst_as_they_do(self):
        # One of 100 is on for a hundredth of the time.
        rows = {number: np.ones(100) * 100 for number in range(100)}
        rows[7] = np.where(np.arange(100) == 33, 100.0 * 100 ** 2, 0.0)
        load = self._loads(rows, lambda n: f'p{n // 2}')
        _, sums = load.by_slot()
        # Ten times its usual 10, for the two of its project: 5 % of all.
        usual = 100 * 10
        np.testing.assert_allclose(usual, sums[:, 1])
        self.assertAlmostEqual(98 * 10 + .05 * usual, sums[33, 0])

    def test_what_comes_late_is_limited_too(self):
        rows = {number: np.ones(100) * 100 for number in range(60)}
        load = self._loads(rows, lambda n: f'p{n // 10}')
        late = np.zeros(100)
        late[:5] = 2e6
        found = regime.ProjectLoads(load, {
            **{f'vm-{n}': f'p{n // 10}' for n in range(60)},
            **{f'vm-{n}': 'other' for n in range(100, 120)}})
        for number in range(100, 120):
            found.add(_series(number, late))
        found.finish()
        _, sums = load.by_slot()
        np.testing.assert_allclose(600 + 200, sums[:, 1])
        np.testing.assert_allclose(600 + 400, sums[:5, 0])
