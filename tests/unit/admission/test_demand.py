# SPDX-License-Identifier: Apache-2.0

import itertools
import unittest

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import demand
from vswitch_aware_scheduler.store import snapshot as snapshots
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import profile

UUID = 'fdb6c7b5-7b0f-4e4e-8d4e-0f4e7f4b1a11'
OTHER_UUID = 'fdb6c7b5-7b0f-4e4e-8d4e-0f4e7f4b1a12'
RAISED = ', raised to the QoS guarantee of its ports'


def constant(*rates):
    return model.TrafficModel.constant(*rates).law


LEARNED, OWN, OF_GROUP, SMALL, LARGE, CLAIMED, DEFAULT = (
    constant(kbps) for kbps in (10, 20, 30, 40, 60, 50, 70))


class TestDecide(unittest.TestCase):

    def test_every_combination_of_facts(self):
        small, large = (SMALL, 'flavor'), (LARGE, 'flavor model')
        # Of flavors and claim: the largest.
        largest = {
            (): None, (small,): small, (small, large): large,
            (large, small): large}
        for learned, of, stated, claimed, guaranteed, default in \
                itertools.product(
                    (LEARNED, None), ('instance', 'flavor', None), largest,
                    (CLAIMED, None), (None, (0, 0, 0), (45, 0, 0)),
                    (DEFAULT, None)):
            chosen = largest[stated]
            if claimed and chosen in (None, small):
                chosen = CLAIMED, 'claim'
            # The first that exists, from the strongest to the weakest.
            law, rule = next(filter(None, (
                learned and (LEARNED, 'model'),
                of == 'instance' and (OWN, 'prior of instance'),
                chosen,
                not default and (rate_law.SILENT, 'unknown'),
                of and (OF_GROUP, 'prior of flavor'),
                (DEFAULT, 'default'))))
            decided = demand.decide(demand.Known(
                learned, of and ({'instance': OWN}.get(of, OF_GROUP), of),
                OF_GROUP if of == 'instance' else None, stated, claimed,
                guaranteed, default), UUID)
            raised = bool(guaranteed and any(guaranteed))
            with self.subTest(rule=rule, guaranteed=guaranteed):
                self.assertEqual(UUID, decided.instance_uuid)
                self.assertEqual(law, decided.law)
                self.assertEqual(rule + RAISED * raised, decided.rule)
                self.assertEqual(
                    OF_GROUP if rule == 'prior of instance' else None,
                    decided.group)
                self.assertEqual(
                    max(law.mean[0], 45 * raised),
                    decided.law_on(None).mean[0])
                self.assertEqual(rule.startswith('prior'), decided.is_prior)
                self.assertEqual(
                    not decided.is_prior and not raised,
                    decided.same_on_all_hosts)
                self.assertEqual({
                    'model': demand.MODEL, 'flavor': demand.FLAVOR,
                    'flavor model': demand.FLAVOR, 'claim': demand.FLAVOR,
                    'prior of instance': demand.PRIOR,
                    'prior of flavor': demand.PRIOR,
                    'default': demand.DEFAULT, 'unknown': demand.DEFAULT,
                }[rule], decided.kind)
                self.assertIn(decided.kind, demand.KINDS)

    def test_the_size_of_a_law_is_mean_and_peak(self):
        uneven = model.TrafficModel.on_off(
            45, on_seconds=1, off_seconds=1).law
        for other, expected in ((constant(30), uneven), (SMALL, SMALL)):
            self.assertEqual(expected, demand.decide(demand.Known(
                stated=((uneven, 'flavor'),), claimed=other)).law)


class TestLawOn(unittest.TestCase):

    def demand(self, *rates, guaranteed):
        return demand.decide(demand.Known(constant(*rates),
                                          guaranteed=guaranteed))

    def test_a_guarantee_raises_each_rate_of_each_state(self):
        law = model.TrafficModel.on_off(
            300, 50, 2, on_seconds=1, off_seconds=3).law
        raised = demand.decide(demand.Known(
            law, guaranteed=(100, 80, 0))).law_on(None)
        self.assertEqual([[100, 80, 0], [300, 80, 2]], raised.rates.tolist())
        # Closed form: three quarters of the time at 100, a quarter at 300.
        self.assertAlmostEqual(150, raised.mean[0])

    def test_a_guaranteed_packet_rate_never_lowers_unknown_packets(self):
        # 12,000 kbit/s in packets of 500 bytes are 3 kilo-packets/s.
        asked = self.demand(12_000, guaranteed=(0, 0, 1))
        uplink = admission.Uplink('u', admission.HostPolicy(
            profile.SwitchProfile('u', saturation_kbps=1e9,
                                  typical_packet_bytes=500)))
        for policy, kpps in (
                (None, 1),      # 1500 bytes: 1 kilo-packet/s as guaranteed
                (admission.HostPolicy(None), 1),
                (admission.HostPolicy(profile.SwitchProfile(
                    'p', saturation_kbps=1e9, typical_packet_bytes=250)), 6),
                (admission.HostPolicy(profile.SwitchProfile(
                    'p', saturation_kbps=1e9), uplinks=(uplink,)), 3)):
            self.assertEqual([[12_000, 0, kpps]],
                             asked.law_on(policy).rates.tolist())

    def test_without_a_packet_guarantee_packets_stay_unknown(self):
        self.assertFalse(self.demand(
            12_000, guaranteed=(1, 0, 0)).law_on(None).packets_known)

    def test_a_prior_is_cut_to_the_host_and_then_raised(self):
        policy = admission.HostPolicy(profile.SwitchProfile(
            'p', saturation_kbps=100, vm_peak_kbps=50,
            saturation_dimension='egress'))
        for facts, expected in (
                (demand.Known(prior=(constant(400), 'fleet'),
                              default=DEFAULT), 50),
                (demand.Known(prior=(constant(400), 'fleet'),
                              guaranteed=(80, 0, 0), default=DEFAULT), 80),
                # Only what has no peak of its own is cut.
                (demand.Known(stated=((constant(400), 'flavor'),)), 400),
                (demand.Known(default=constant(400)), 400)):
            self.assertEqual(expected,
                             demand.decide(facts).law_on(policy).peak[0])

    def test_a_prior_of_own_traffic_is_cut_with_its_group(self):
        # All of the group that no host carries is removed, and no more.
        policy = admission.HostPolicy(profile.SwitchProfile(
            'p', saturation_kbps=1000, saturation_dimension='egress'))

        def law(broken):
            return rate_law.RateLaw.from_arrays(
                [1 - broken, broken], [[20.0, 0, 0], [1e6, 0, 0]])

        for share, group, kept in ((.01, law(.01), 0), (.5, law(.01), .5)):
            cut = demand.decide(demand.Known(
                prior=(law(share), 'instance'), group=group)).law_on(policy)
            self.assertAlmostEqual(
                kept, cut.probabilities[cut.rates[:, 0] > 20].sum(), 1)


class TestOfInstance(unittest.TestCase):
    """The facts come from a snapshot of the store."""

    FLAVOR = ('m1', {'vswitch:model': OTHER_UUID,
                     'vswitch:egress_kbps': '700'})

    def setUp(self):
        super().setUp()
        self.laws, self.priors, self.reports = {}, {}, []

    def of(self, *flavors, uuid=UUID, project=None, **more):
        snapshot = snapshots.Snapshot(laws=self.laws, priors=self.priors)
        return demand.of_instance(
            snapshot, uuid, list(flavors), project, DEFAULT,
            report=lambda *report: self.reports.append(report), **more)

    def test_the_first_rule_that_holds_gives_the_demand(self):
        self.laws = {UUID: LEARNED, OTHER_UUID: SMALL}
        self.priors = {UUID: OWN, ('m1', 'p'): OF_GROUP, ('m1', None): LARGE}
        for removed, rule, law in (
                (None, 'model', LEARNED),
                (lambda: self.laws.pop(UUID), 'prior of instance', OWN),
                (lambda: self.priors.pop(UUID), 'flavor model', SMALL),
                (lambda: self.laws.pop(OTHER_UUID), 'flavor',
                 constant(700))):
            if removed:
                removed()
            decided = self.of(self.FLAVOR, project='p')
            self.assertEqual((rule, law), (decided.rule, decided.law))
            self.assertEqual(rule == 'prior of instance',
                             decided.group == OF_GROUP)
        for project, rule, law in (('p', 'flavor and project', OF_GROUP),
                                   ('q', 'flavor', LARGE)):
            decided = self.of(('m1', {}), project=project)
            self.assertEqual((f'prior of {rule}', law),
                             (decided.rule, decided.law))
        self.assertEqual('default', self.of(('m2', {})).rule)

    def test_an_instance_without_a_uuid_has_a_demand_too(self):
        self.laws = {None: LEARNED}
        self.assertEqual('default', self.of(uuid=None).rule)

    def test_a_guarantee_raises_a_learned_model(self):
        self.laws = {UUID: LEARNED}
        decided = self.of(guaranteed=(11, 0, 0))
        self.assertEqual('model' + RAISED, decided.rule)
        self.assertEqual(11, decided.law_on(None).mean[0])

    def test_unusable_extra_specs_count_as_absent_and_are_reported(self):
        for specs in ({'vswitch:egress_kbps': 'fast'},
                      {'vswitch:model': 'nobody'},
                      {'vswitch:on_seconds': '5'},
                      {'vswitch:egress_kbps': '1' + '0' * 400},
                      {'vswitch:egress_kbps': '8000000001'}):
            with self.subTest(specs=specs):
                self.reports = []
                self.assertEqual('default', self.of(('m1', specs)).rule)
                (flavor, problem), = self.reports
                self.assertEqual('m1', flavor)
                self.assertIn('expected', str(problem))

    def test_usable_and_other_ones_end_an_earlier_problem(self):
        for specs, rule in (
                ({'vswitch:egress_kbps': '5'}, 'flavor'),
                ({'hw:cpu_policy': 'shared',
                  'quota:vif_outbound_average': '5'}, 'default')):
            self.reports = []
            self.assertEqual(rule, self.of(('m1', specs)).rule)
            self.assertEqual([('m1', None)], self.reports)
        # A named model that is not known leaves the numbers.
        decided = self.of(('m1', {'vswitch:model': 'nobody',
                                  'vswitch:egress_kbps': '5'}))
        self.assertEqual(('flavor', constant(5)),
                         (decided.rule, decided.law))
