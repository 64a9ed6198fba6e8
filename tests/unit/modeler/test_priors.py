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
            placements=[store.Placement(
                store_base.instance_uuid(n), 'h', 'small' if n % 2
                else 'large', 'p') for n in range(22)])

    def update(self):
        return priors.update(self.store, lambda: 5.0)

    def means(self):
        return {key: one.law.mean[0]
                for key, one in self.store.priors().items()}

    def test_groups_with_a_difference_get_a_prior(self):
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

    def test_only_what_differs_is_written(self):
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
            placements=[store.Placement(uuids[0], 'h', 'small', 'p')])
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

    def test_too_few_models_give_no_prior_at_all(self):
        few = self.other_store('few')
        few.write([store_base.constant(1)], unmodelled=[store.Unmodelled(
            store_base.instance_uuid(2), counts(100.0, 12))])
        self.assertEqual(priors.Outcome(0, 0, 0, 0),
                         priors.update(few, lambda: 5.0))
        self.assertEqual(0, priors.update(
            self.other_store('none'), lambda: 5.0).groups)
