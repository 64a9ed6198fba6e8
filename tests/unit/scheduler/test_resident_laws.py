# SPDX-License-Identifier: Apache-2.0

import dataclasses

from nova import objects

from tests.unit.scheduler import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler.scheduler import residency


class TestPriors(base.StateTestCase):
    """Priors instead of the default, which is much larger here."""

    def setUp(self):
        super().setUp()
        self._learn({('m1.test', 'p'): 20.0, ('m1.test', None): 30.0,
                     (None, None): 400.0})

    def _learn(self, priors, placements=None):
        placed = placements or {}
        self.store.answers = [dataclasses.replace(
            base.changes(1, {1: 10.0}), priors={
                key: base.constant(kbps) for key, kbps in priors.items()},
            placements=([base.instance_uuid(number) for number in placed],
                        [(*one, None, None) for one in placed.values()]))]
        self.state = self.make_state(default_egress_kbps=90,
                                     default_ingress_kbps=0)

    def _request(self, number=9, project='p', flavor='m1.test', **more):
        spec = base.request(number, **more)
        spec.flavor.name = flavor
        spec.project_id = project
        return spec

    def test_the_prior_of_the_narrowest_group_counts(self):
        for spec, load, rule in (
                (self._request(), .3, 'prior of flavor and project'),
                (self._request(project='q'), .4, 'prior of flavor'),
                (self._request(egress_kbps=70), .8, 'flavor')):
            self.assertEqual({'a': load}, self.ask(spec, a=[1]))
            self.assertEqual(rule, self.demand.rule)

    def test_a_prior_never_keeps_an_instance_from_an_empty_host(self):
        large = base.aggregate(saturation_kbps='1000',
                               overload_probability='0')
        peak = base.aggregate(vm_peak_kbps='50', saturation_kbps='100',
                              overload_probability='0')
        self.hosts['large'] = base.host_state('large', [], [large])
        self.hosts['peak'] = base.host_state('peak', [], [peak])
        # 400 kbit/s of the fleet, of which a host of 100 carries 100.
        spec = self._request(flavor='other')
        self.assertEqual({'large': .4, 'peak': .5, 'a': 1.0, 'b': 1.1},
                         self.ask(spec, a=[], b=[1]))
        self.assertEqual('prior of fleet', self.demand.rule)
        self.assertEqual({'b': admission.OVERLOAD}, {
            host: reason for host, reason in self.reasons.items() if reason})
        # What is known to peak there is refused.
        self.ask(self._request(egress_kbps=400))
        self.assertEqual(admission.PEAK, self.reasons['a'])
        # What was placed counts as it was judged.
        self.place(spec, 'a')
        self.place(self._request(8, flavor='other'), 'large')
        self.assertEqual({'large': .42, 'peak': .2, 'a': 1.2, 'b': .3},
                         self.ask(self._request(7, egress_kbps=20)))

    def test_on_hosts_without_a_profile_it_is_what_it_is(self):
        self.hosts['a'] = base.host_state('a')
        self.ask(self._request(flavor='other'))
        self.assertEqual(0, self.reasons['a'])
        self.assertEqual(400.0, self.demand.law.mean[0])

    def test_residents_without_a_model_count_by_their_prior(self):
        self._learn({('m1.test', 'p'): 20.0, (None, None): 30.0,
                     base.instance_uuid(4): 7.0},
                    {5: ('a', 'm1.test', 'p'), 6: ('a', None, None)})
        self.assertEqual({'a': .2}, self.ask(self._request(), a=[]))
        for number, expected in ((5, .4), (6, .5), (4, .27), (3, .5)):
            with self.subTest(number):
                self.assertEqual({'a': expected},
                                 self.ask(self._request(), a=[number]))

    def test_what_it_was_placed_with_comes_before_the_group(self):
        self._learn({(None, None): 30.0, base.instance_uuid(4): 7.0})
        self.ask(self._request(), a=[])
        for number in (4, 5):
            self.place(self._request(number, egress_kbps=11), 'a')
        self.assertEqual({'a': .48}, self.ask(self._request()))


class TestFlavors(base.StateTestCase):

    LAWS = {1: 10.0, 2: 20.0, 3: 40.0}

    def test_what_the_flavor_of_a_resident_says_counts(self):
        self.recorded_flavors = {40: {'vswitch:egress_kbps': '30'}}
        self.assertEqual({'a': .4}, self.ask(
            base.request(1, egress_kbps=10), a=[40]))

    def test_of_two_flavors_on_one_host_the_larger_counts(self):
        small, large, uneven = (('m', {
            'vswitch:egress_kbps': str(kbps), **more}) for kbps, more in (
                (10, {}), (70, {}),
                (20, {'vswitch:on_seconds': '1', 'vswitch:off_seconds': '1'})))
        self.ask(a=[])
        move = residency.OngoingMove(base.instance_uuid(40), 'a', 'a')
        for current, old, new, expected in (
                (small, None, large, .8), (large, small, large, .8),
                (small, large, small, .8), (small, None, None, .2),
                (small, small, uneven, .2)):
            self.take_rows({40: residency.Row(
                'a', 'resized', None, (current, old, new))}, moves={1: move})
            self.assertEqual({'a': expected}, self.ask())

    def test_a_flavor_that_names_a_model_means_the_newest(self):
        self.recorded_flavors = {40: {
            flavor_specs.MODEL_EXTRA_SPEC: base.instance_uuid(2)}}
        self.assertEqual({'a': .3}, self.ask(a=[40]))
        self.refresh(base.changes(2, {1: 10.0, 2: 50.0}))
        self.assertEqual({'a': .6}, self.ask())


class TestGuarantees(base.StateTestCase):
    """Hosts of 100 kbit/s, a request of 10, and what ports guarantee."""

    def _store(self, laws=None, **guaranteed):
        """Let the store have {'vm' + number: rates or None}."""
        numbers = [int(name[2:]) for name in guaranteed]
        self.store.answers = [dataclasses.replace(
            base.changes(1, {1: 10.0, **(laws or {})}), placements=(
                list(map(base.instance_uuid, numbers)),
                [('a', 'm1', 'p', None, rates)
                 for rates in guaranteed.values()]))]
        self.state = self.make_state(default_egress_kbps=0,
                                     default_ingress_kbps=0)

    def test_a_guarantee_raises_with_and_without_a_model(self):
        self._store({4: 5.0, 5: 50.0, 6: 5.0}, vm3=(30.0, 0.0, 0.0),
                    vm4=(30.0, 0.0, 0.0), vm5=(30.0, 0.0, 0.0),
                    vm6=(0.0, 0.0, 0.0))
        self.recorded_flavors = {7: {'vswitch:egress_kbps': '20'}}
        for number, expected in ((3, .4), (4, .4), (5, .6), (6, .15),
                                 (7, .3)):
            with self.subTest(number):
                self.assertEqual({'a': expected}, self.ask(a=[number]))

    def test_what_a_claim_states_counts_until_the_inventory_has_it(self):
        self._store({4: 5.0, 5: 5.0}, vm5=(0.0, 0.0, 0.0))
        self.ask(a=[])
        # The policy of the other's port was changed since.
        for number, expected in ((4, .5), (5, .55)):
            spec = base.request(number)
            spec.requested_resources = [objects.RequestGroup(
                resources={'NET_BW_EGR_KILOBIT_PER_SEC': 40})]
            self.place(spec, 'a')
            self.assertEqual({'a': expected}, self.ask(a=range(4, number + 1)))
