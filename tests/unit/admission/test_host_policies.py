# SPDX-License-Identifier: Apache-2.0

import unittest

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import host_policies
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import profile

PROFILES = {one.name: one for one in (
    profile.SwitchProfile(name='fast', saturation_kbps=9e6, max_tunnels=9),
    profile.SwitchProfile(name='slow', saturation_kbps=1e6,
                          vm_peak_kbps=5e5),
    profile.SwitchProfile(name='packets', packet_rate_kpps=100.0,
                          typical_packet_bytes=1000.0))}


class PoliciesTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.reports = []
        self.policies = self.make()

    def make(self, default_profile=None, policy=admission.PROBABILITY,
             limit=.01, pass_unknown=True, **more):
        return host_policies.HostPolicies(
            PROFILES, default_profile, policy, limit, pass_unknown,
            lambda topic, problem: self.reports.append((topic, problem)),
            **more)

    @property
    def problems(self):
        return [problem for _, problem in self.reports if problem]

    def find(self, *metadata, stored=None, policies=None):
        """Return the HostPolicy of a host in aggregates 'agg0', 'agg1'..."""
        return (policies or self.policies).find(
            [(f'agg{i}', keys) for i, keys in enumerate(metadata)], stored)


class TestEnforcement(PoliciesTestCase):

    def test_the_option_holds_where_no_aggregate_says_anything(self):
        self.assertTrue(self.find().enforced)
        self.assertFalse(self.find(policies=self.make(
            enforcement='observe')).enforced)

    def test_an_aggregate_sets_it_either_way(self):
        observing = self.make(enforcement='observe')
        for policies in (self.policies, observing):
            for text, enforced in (('enforce', True), ('observe', False)):
                self.assertIs(enforced, self.find(
                    {'vswitch:enforcement': text}, policies=policies
                ).enforced)

    def test_any_aggregate_that_observes_makes_the_host_observed(self):
        aggregates = ({'vswitch:enforcement': 'enforce'},
                      {'vswitch:enforcement': 'observe'},
                      {'vswitch:profile': 'fast'})
        for order in (aggregates, aggregates[::-1]):
            self.assertFalse(self.find(*order).enforced)


class TestPredictionMargin(PoliciesTestCase):
    KEY = 'vswitch:prediction_margin'

    def test_an_aggregate_sets_it_and_of_several_the_largest_wins(self):
        policies = self.make(prediction_margin=2.0)
        for texts, margin in (([], 2.0), (['.125'], .125),
                              (['.125', '20', '3'], 20.0)):
            for order in (texts, texts[::-1]):
                self.assertEqual(margin, self.find(
                    *({self.KEY: text} for text in order),
                    policies=policies).prediction_margin)


class TestPolicy(PoliciesTestCase):

    def test_without_aggregates_the_options_hold(self):
        policies = self.make('slow', admission.AVERAGE, .25, False)
        policy = self.find(policies=policies)
        self.assertIs(PROFILES['slow'], policy.profile)
        self.assertEqual((admission.AVERAGE, .25, False),
                         (policy.policy, policy.overload_probability,
                          policy.pass_unknown))
        self.assertIsNone(self.find().profile)

    def test_an_aggregate_sets_profile_policy_and_limit(self):
        policy = self.find({'vswitch:profile': 'fast',
                            'vswitch:admission_policy': 'average',
                            'vswitch:overload_probability': '0.2',
                            'availability_zone': 'nova'})
        self.assertIs(PROFILES['fast'], policy.profile)
        self.assertEqual((admission.AVERAGE, .2),
                         (policy.policy, policy.overload_probability))
        self.assertEqual([], self.problems)

    def test_of_several_the_most_cautious_wins(self):
        aggregates = ({'vswitch:profile': 'fast',
                       'vswitch:admission_policy': 'average',
                       'vswitch:overload_probability': '0.2',
                       'vswitch:max_tunnels': '7'},
                      {'vswitch:profile': 'slow',
                       'vswitch:admission_policy': 'probability',
                       'vswitch:overload_probability': '0.05',
                       'vswitch:max_tunnels': '3'})
        for order in (aggregates, aggregates[::-1]):
            policy = self.find(*order)
            self.assertEqual('slow', policy.profile.name)
            self.assertEqual(3, policy.profile.max_tunnels)
            self.assertEqual((admission.PROBABILITY, .05),
                             (policy.policy, policy.overload_probability))

    def test_the_profile_that_carries_least_wins(self):
        # 100 kpps of 1000 bytes are 0.8 Gbit/s, less than 1 Gbit/s.
        self.assertEqual('packets', self.find(*(
            {'vswitch:profile': name}
            for name in ('slow', 'packets', 'fast'))).profile.name)

    def test_every_number_can_be_overridden(self):
        for key in profile.OVERRIDABLE_KEYS:
            with self.subTest(key):
                policy = self.find({'vswitch:profile': 'fast',
                                    f'vswitch:{key}': '5'})
                self.assertEqual(5, getattr(policy.profile, key))
                self.assertIn('agg0', policy.profile.sources[key])
        self.assertEqual([], self.problems)

    def test_an_override_changes_the_profile_of_that_host_only(self):
        # It may be larger than the profile.
        self.assertEqual(10, self.find({
            'vswitch:profile': 'fast',
            'vswitch:max_tunnels': '10'}).profile.max_tunnels)
        self.assertEqual(9, self.find(
            {'vswitch:profile': 'fast'}).profile.max_tunnels)

    def test_numbers_without_a_profile_make_one(self):
        policy = self.find({'vswitch:saturation_kbps': '5000',
                            'vswitch:max_tunnels': '4'},
                           {'vswitch:saturation_kbps': '3000'})
        self.assertEqual((3000.0, 4), (policy.profile.saturation_kbps,
                                       policy.profile.max_tunnels))
        self.assertEqual([], self.problems)

    def test_a_packet_size_alone_makes_none(self):
        self.assertIsNone(self.find(
            {'vswitch:typical_packet_bytes': '500'}).profile)
        policy = self.find({'vswitch:typical_packet_bytes': '500',
                            'vswitch:packet_rate_kpps': '10'})
        self.assertEqual((500.0, 10.0), (
            policy.profile.typical_packet_bytes,
            policy.profile.packet_rate_kpps))

    def test_hosts_alike_share_one_policy(self):
        first = self.find({'vswitch:profile': 'fast', 'x': '1'})
        second = self.find({'x': '2', 'vswitch:profile': 'fast'})
        self.assertIs(first, second)
        self.assertIsNot(first, self.find({'vswitch:profile': 'slow'}))


class TestBadValues(PoliciesTestCase):

    def test_each_is_reported_with_where_and_what_and_ignored(self):
        for key, value, expected in (
                ('profile', 'fsat', 'fast'),
                ('admission_policy', 'maybe', 'probability'),
                ('overload_probability', '1.5', '0..1'),
                ('overload_probability', '-0.1', '0..1'),
                ('overload_probability', 'nan', '0..1'),
                ('overload_probability', 'low', '0..1'),
                ('saturation_kbps', '-5', '> 0'),
                ('saturation_kbps', 'much', '> 0'),
                ('max_tunnels', '2.5', 'whole number'),
                ('line_rate_kbps', 'inf', '> 0'),
                ('saturation', '5', 'vswitch:saturation_kbps'),
                *(('enforcement', text, 'one of enforce, observe')
                  for text in ('Observe', '', 'true')),
                *(('prediction_margin', text, 'a number 0.001..1000')
                  for text in ('0', '1001', '-1', 'nan', 'inf', 'two', '')),
                ('judge', 'no', 'one of true, false')):
            with self.subTest(key=key, value=value):
                self.reports = []
                policy = self.find({f'vswitch:{key}': value},
                                   policies=self.make('fast'))
                self.assertIs(PROFILES['fast'], policy.profile)
                self.assertEqual(
                    (admission.PROBABILITY, .01, True, 1.0, True),
                    (policy.policy, policy.overload_probability,
                     policy.enforced, policy.prediction_margin,
                     policy.judged))
                problem, = self.problems
                for part in ('agg0', key, 'ignored', 'expected', expected,
                             repr(value)):
                    self.assertIn(part, problem)

    def test_the_good_values_beside_a_bad_one_hold(self):
        policy = self.find({'vswitch:profile': 'fast',
                            'vswitch:max_tunnels': 'few',
                            'vswitch:overload_probability': '0.3'},
                           {'vswitch:max_tunnels': '2'})
        self.assertEqual(2, policy.profile.max_tunnels)
        self.assertEqual(.3, policy.overload_probability)

    def test_good_and_bad_values_are_reported_whenever_they_change(self):
        for name in ('fsat', 'fast', 'fsat'):
            self.find({'vswitch:profile': name})
        self.assertEqual({'aggregate agg0 vswitch:profile'},
                         {topic for topic, _ in self.reports})
        self.assertEqual([False, True, False],
                         [problem is None for _, problem in self.reports])


class TestStoredProfile(PoliciesTestCase):

    def test_it_holds_where_no_aggregate_names_one(self):
        policies = self.make('fast')
        stored = store.HostProfile('host', 'slow')
        self.assertEqual('slow', self.find(
            stored=stored, policies=policies).profile.name)
        self.assertEqual('packets', self.find(
            {'vswitch:profile': 'packets'}, stored=stored,
            policies=policies).profile.name)

    def test_its_overrides_change_its_profile_or_the_default(self):
        for default, name, overrides, metadata, expected in (
                (None, 'slow', {'saturation_kbps': 123.0}, {},
                 {'saturation_kbps': 123.0, 'vm_peak_kbps': 5e5}),
                ('fast', None, {'max_tunnels': 2}, {},
                 {'name': 'fast', 'max_tunnels': 2}),
                # Without any profile they make one.
                (None, None, {'saturation_kbps': 123.0, 'max_tunnels': 2}, {},
                 {'saturation_kbps': 123.0, 'max_tunnels': 2}),
                # An aggregate overrides them.
                (None, 'slow', {'saturation_kbps': 55.0},
                 {'vswitch:saturation_kbps': '77'},
                 {'saturation_kbps': 77.0})):
            with self.subTest(name=name, overrides=overrides):
                own = self.find(
                    metadata, policies=self.make(default),
                    stored=store.HostProfile('host', name, overrides)).profile
                self.assertEqual(expected, {
                    key: getattr(own, key) for key in expected})

    def test_what_cannot_be_used_is_reported_and_ignored(self):
        for default, name, overrides, used, parts in (
                ('fast', 'gone', {'max_tunnels': 2}, 'fast',
                 ("'gone'", 'slow')),
                (None, 'slow', {'max_tunnels': -1}, 'slow', ('max_tunnels',)),
                (None, 'slow', {'colour': 5}, 'slow', ('colour',)),
                (None, 'slow', {'saturation_kbps': 'much'}, 'slow',
                 ('saturation_kbps',))):
            self.reports = []
            policy = self.find(
                policies=self.make(default),
                stored=store.HostProfile('host', name, overrides))
            self.assertIs(PROFILES[used], policy.profile)
            for part in ('host', 'ignored', *parts):
                self.assertIn(part, self.problems[0])

    def test_hosts_that_differ_in_it_do_not_share_a_policy(self):
        first, second, third = (self.find(stored=store.HostProfile(
            'host', 'slow', {'max_tunnels': count})) for count in (1, 2, 1))
        self.assertIsNot(first, second)
        self.assertIs(first, third)


class TestZero(PoliciesTestCase):

    def test_zero_closes_a_host_whatever_other_aggregates_state(self):
        for key in ('saturation_kbps', 'packet_rate_kpps', 'line_rate_kbps',
                    'vm_peak_kbps'):
            with self.subTest(key):
                policy = self.find({f'vswitch:{key}': '1000'},
                                   {f'vswitch:{key}': '0'})
                self.assertEqual(0, getattr(policy.profile, key))
                self.assertEqual([], self.problems)


class TestJudged(PoliciesTestCase):

    def test_bare_metal_passes_unjudged_unless_an_aggregate_asks(self):
        policies = self.make('slow', pass_unknown=False)

        def find(*metadata, bare_metal=True):
            return policies.find([(f'agg{i}', keys) for i, keys
                                  in enumerate(metadata)], None, bare_metal)

        unjudged = find()
        self.assertEqual((None, True, False), (
            unjudged.profile, unjudged.pass_unknown, unjudged.judged))
        self.assertTrue(find(bare_metal=False).judged)
        judged = find({'vswitch:judge': 'true'})
        self.assertEqual(('slow', True), (judged.profile.name, judged.judged))

    def test_an_aggregate_can_opt_a_host_out_and_the_most_cautious_wins(self):
        out, judged = {'vswitch:judge': 'false'}, {'vswitch:judge': 'true'}
        fast = {'vswitch:profile': 'fast'}
        self.assertFalse(self.find(fast, out).judged)
        for order in ((out, judged, fast), (judged, out, fast)):
            policy = self.find(*order)
            self.assertEqual(('fast', True),
                             (policy.profile.name, policy.judged))
        self.assertEqual([], self.problems)
