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

    def test_any_aggregate_that_observes_goes_before_the_option(self):
        for option in ('enforce', 'observe'):
            policies = self.make(enforcement=option)
            for texts, enforced in (
                    ([], option == 'enforce'), (['enforce'], True),
                    (['observe'], False), (['enforce', 'observe'], False),
                    (['observe', 'enforce'], False)):
                aggregates = [{'vswitch:enforcement': text} for text in texts]
                self.assertIs(enforced, self.find(
                    *aggregates, {'vswitch:profile': 'fast'},
                    policies=policies).enforced)


class TestPolicy(PoliciesTestCase):

    def test_without_aggregates_the_options_hold(self):
        policies = self.make('slow', admission.AVERAGE, .25, False,
                             prediction_margin=2.0)
        policy = self.find(policies=policies)
        self.assertIs(PROFILES['slow'], policy.profile)
        self.assertEqual((admission.AVERAGE, .25, False, 2.0),
                         (policy.policy, policy.overload_probability,
                          policy.pass_unknown, policy.prediction_margin))
        self.assertIsNone(self.find().profile)

    def test_aggregates_set_values_and_the_most_cautious_wins(self):
        first = {'profile': 'fast', 'admission_policy': 'average',
                 'overload_probability': '0.2', 'max_tunnels': '7',
                 'prediction_margin': '.125'}
        for aggregates, expected in (
                ([first], {'name': 'fast', 'max_tunnels': 7,
                           'policy': admission.AVERAGE,
                           'overload_probability': .2,
                           'prediction_margin': .125}),
                ([first, {'profile': 'slow', 'max_tunnels': '3',
                          'admission_policy': 'probability',
                          'overload_probability': '0.05',
                          'prediction_margin': '20'},
                  {'prediction_margin': '3'}],
                 {'name': 'slow', 'max_tunnels': 3,
                  'policy': admission.PROBABILITY,
                  'overload_probability': .05, 'prediction_margin': 20.0}),
                # 100 kpps of 1000 bytes are 0.8 Gbit/s, less than 1 Gbit/s.
                ([{'profile': name} for name in ('slow', 'packets', 'fast')],
                 {'name': 'packets'}),
                # Numbers without a profile make one, but not the packet size.
                ([{'saturation_kbps': '5000', 'max_tunnels': '4'},
                  {'saturation_kbps': '3000'}],
                 {'saturation_kbps': 3000.0, 'max_tunnels': 4}),
                ([{'typical_packet_bytes': '500',
                   'packet_rate_kpps': '10'}],
                 {'typical_packet_bytes': 500.0, 'packet_rate_kpps': 10.0}),
                ([{'typical_packet_bytes': '500'}], {'profile': None}),
                # Zero closes a host.
                *(([{key: '1000'}, {key: '0'}], {key: 0}) for key in (
                    'saturation_kbps', 'packet_rate_kpps', 'line_rate_kbps',
                    'vm_peak_kbps'))):
            metadata = [{'availability_zone': 'nova', **{
                f'vswitch:{key}': text for key, text in aggregate.items()}}
                for aggregate in aggregates]
            for order in (metadata, metadata[::-1]):
                with self.subTest(order):
                    policy = self.find(*order)
                    self.assertEqual(expected, {
                        key: getattr(policy if hasattr(policy, key)
                                     else policy.profile, key)
                        for key in expected})
        self.assertEqual([], self.problems)

    def test_every_number_can_be_overridden(self):
        for key in profile.OVERRIDABLE_KEYS:
            with self.subTest(key):
                policy = self.find({'vswitch:profile': 'fast',
                                    f'vswitch:{key}': '10'})
                self.assertEqual(10, getattr(policy.profile, key))
                self.assertIn('agg0', policy.profile.sources[key])
                # It may be larger than the profile, and is of this host only.
                self.assertEqual(9, self.find(
                    {'vswitch:profile': 'fast'}).profile.max_tunnels)
        self.assertEqual([], self.problems)

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
