# SPDX-License-Identifier: Apache-2.0

import numpy as np

from tests.unit.modeler import base
from tests.unit.store import base as store_base
from vswitch_aware_scheduler.modeler import priors
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import series


def counts(kbps, samples):
    """Return the counts of an instance with one rate."""
    times = base.BEGIN + base.PERIOD * np.arange(samples)
    return estimate.count_transitions(series.RateSeries.from_samples(
        'u', base.PERIOD, times, np.full(samples, float(kbps)),
        np.zeros(samples)))


class PriorsTestCase(base.ModelerTestCase):

    def setUp(self):
        super().setUp()
        # Twelve of each flavor; the last two are of flavors that nobody told.
        self.rates = {n: 10.0 if n % 2 else 1000.0 for n in range(24)}
        self.store.write(
            [store_base.constant(n, rate)
             for n, rate in self.rates.items()],
            placements=[store.InstanceRecord(
                store_base.instance_uuid(n), 'h', 'small' if n % 2
                else 'large', 'p') for n in range(22)])

    def update(self):
        return priors.update(self.store, lambda: 5.0)

    def means(self):
        return {key: group.law.mean[0]
                for key, group in self.store.priors().items()}

    def test_groups_that_differ_have_a_prior(self):
        outcome = self.update()
        # One project, which tells nothing, and flavors of which each is in
        # it alone.
        self.assertEqual(
            {('small', None), ('large', None), prior.FLEET},
            set(self.means()))
        self.assertEqual((3, 0, 3, 0), (
            outcome.groups, outcome.instances, outcome.written,
            outcome.removed))
        means = self.means()
        self.assertAlmostEqual(505.0, means[prior.FLEET])
        self.assertAlmostEqual((11 * 10 + 505) / 12, means['small', None])
        self.assertEqual(11, self.store.priors()['small', None].members)

    def test_only_changed_priors_are_written(self):
        self.update()
        generation = self.store.generation()
        outcome = self.update()
        self.assertEqual((3, 0), (outcome.groups, outcome.written))
        self.assertEqual(generation, self.store.generation())
        # Members count as well, and what is no more goes.
        self.store.write(remove=[store_base.instance_uuid(n)
                                 for n in range(6)])
        outcome = self.update()
        self.assertEqual((0, 0, 3), (outcome.groups, outcome.written,
                                     outcome.removed))
        self.assertEqual({}, self.means())

    def test_silent_instances_are_members_too(self):
        self.store.write(unmodelled=[
            store.Unmodelled(store_base.instance_uuid(n), counts(0.0, 30))
            for n in range(30, 54)])
        self.update()
        self.assertAlmostEqual(505.0 / 2, self.means()[prior.FLEET])
        # Half of what it may carry by what others do, for it had but 30
        # samples to be silent in: 24 of 54.
        self.assertAlmostEqual(505.0 / 2 * 24 / 54,
                               self.means()[store_base.instance_uuid(30)])

    def test_a_short_history_is_shrunk_towards_the_group(self):
        uuids = [store_base.instance_uuid(n) for n in (40, 41)]
        self.store.write(
            unmodelled=[store.Unmodelled(uuid, counts(100.0, 12))
                        for uuid in uuids],
            placements=[store.InstanceRecord(uuids[0], 'h', 'small', 'p')])
        outcome = self.update()
        self.assertEqual(2, outcome.instances)
        means = self.means()
        self.assertAlmostEqual((12 * 100 + 24 * means['small', None]) / 36,
                               means[uuids[0]])
        self.assertAlmostEqual((12 * 100 + 24 * 505) / 36, means[uuids[1]])
        self.assertEqual(12, self.store.priors()[uuids[0]].members)
        # Once it has a model of its own, that is it.
        self.store.write([store_base.constant(40, 100.0)])
        self.update()
        self.assertNotIn(uuids[0], self.means())

    def test_too_few_models_give_no_prior(self):
        small_store = self.other_store('few')
        small_store.write([store_base.constant(1)], unmodelled=[
            store.Unmodelled(store_base.instance_uuid(2), counts(100.0, 12))])
        self.assertEqual(priors.PriorUpdate(0, 0, 0, 0),
                         priors.update(small_store, lambda: 5.0))
        self.assertEqual(0, priors.update(
            self.other_store('none'), lambda: 5.0).groups)


class MembersTestCase(base.ModelerTestCase):
    """Whose traffic counts in what is expected of others."""

    DAY = 86400.0

    def setUp(self):
        super().setUp()
        # Ten projects with two instances each, 1 Mbit/s and 3 Mbit/s.
        self.put(range(20), lambda n: 1000.0 * (1 + 2 * (n % 2)),
                 lambda n: f'p{n // 2}')
        self.now = 10 * self.DAY

    def put(self, numbers, kbps, project, hours=24.0, placed=True):
        window = {'window_end': hours * 3600.0, 'samples': hours * 12}
        self.store.write(
            [store_base.constant(n, kbps(n), **window) for n in numbers],
            placements=([store.InstanceRecord(store_base.instance_uuid(n),
                                              'h', 'f', project(n))
                         for n in numbers] if placed else ()))

    def attack(self, numbers, **more):
        self.put(numbers, lambda n: 0.001, lambda n: 'attacker', **more)

    def know_nova(self):
        self.store.write(inventory=store.InventoryState('nova', 5.0, 5.0))

    def fleet(self, **more):
        priors.update(self.store, lambda: self.now, **more)
        of_fleet = self.store.priors().get(prior.FLEET)
        return of_fleet and of_fleet.law.mean[0]

    def test_deleted_instances_fade(self):
        self.know_nova()
        self.assertAlmostEqual(2000.0, self.fleet())
        self.attack(range(100, 300))
        # Any number of instances counts as one project.
        self.assertAlmostEqual(2000 * 10 / 11, self.fleet(), places=3)
        self.assertAlmostEqual(
            2000 * 10 / 11, self.store.priors()['f', None].law.mean[0],
            places=3)
        self.assertAlmostEqual(
            .001, self.store.priors()[None, 'attacker'].law.mean[0],
            delta=2000 * 20 / 220)
        self.store.write(now=self.now, remove_placements=[
            store_base.instance_uuid(n) for n in range(100, 300)])
        self.assertAlmostEqual(2000 * 10 / 11, self.fleet(), places=3)
        for days, weight in ((7, .5), (21, .125)):
            self.now = (10 + days) * self.DAY
            self.assertAlmostEqual(2000 * 10 / (10 + weight), self.fleet(),
                                   places=3)
        # Nobody knows any more whose they were.
        self.now = 50 * self.DAY
        self.store.write(now=self.now, remove_placements=['x'])
        self.assertAlmostEqual(2000.0, self.fleet())

    def test_only_instances_of_nova_count(self):
        self.attack(range(100, 300), placed=False)
        invented = store_base.instance_uuid(999)
        self.store.write(unmodelled=[store.Unmodelled(
            invented, counts(100.0, 12))])
        self.assertLess(self.fleet(), 1900.0)
        self.assertIn(invented, self.store.priors())
        self.know_nova()
        outcome = priors.update(self.store, lambda: self.now)
        self.assertEqual(201, outcome.ignored)
        self.assertAlmostEqual(2000.0, self.fleet())
        self.assertNotIn(invented, self.store.priors())

    def test_no_instance_counts_before_the_first_inventory(self):
        self.put(range(500, 530), lambda n: 1e6, None, placed=False)
        self.assertAlmostEqual(2000.0, self.fleet(needs_inventory=True))
        self.store = self.other_store('without')
        self.put(range(40), lambda n: 1e6, None, placed=False)
        self.assertIsNone(self.fleet(needs_inventory=True))
        self.assertAlmostEqual(1e6, self.fleet())

    def test_an_instance_counts_after_some_hours(self):
        self.know_nova()
        self.attack(range(100, 300), hours=1.9)
        self.assertAlmostEqual(2000.0, self.fleet())
        self.assertLess(self.fleet(member_seconds=0), 1900.0)
        self.attack(range(100, 300), hours=2)
        self.assertLess(self.fleet(), 1900.0)
        self.assertIsNone(self.fleet(member_seconds=90000.0))
        # A silent one likewise.
        self.store.write(remove=[store_base.instance_uuid(n)
                                 for n in range(100, 300)])
        self.store.write(unmodelled=[store.Unmodelled(
            store_base.instance_uuid(100), counts(0.0, 24))])
        self.assertLess(self.fleet(), 1900.0)
        self.assertAlmostEqual(2000.0, self.fleet(member_seconds=7300.0))
