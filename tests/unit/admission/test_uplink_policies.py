# SPDX-License-Identifier: Apache-2.0

import unittest

from tests.fakes import host_metadata
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import uplink_policies

PROFILES = host_metadata.PROFILES
keys = host_metadata.keys


class TestUplinkPolicies(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.reports = {}
        self.policies = uplink_policies.UplinkPolicies(
            PROFILES, admission.PROBABILITY, .01, self.reports.__setitem__)

    def find(self, *metadata):
        return self.policies.find(
            [(f'agg{i}', keys_of) for i, keys_of in enumerate(metadata)])

    @property
    def problems(self):
        return {topic: text for topic, text in self.reports.items() if text}

    def test_numbers_and_profiles_describe_an_uplink(self):
        uplinks = self.find(
            keys('tor7', saturation_kbps='5e6', line_rate_kbps='4e6',
                 packet_rate_kpps='800', overload_probability='.001',
                 admission_policy='average'),
            {'vswitch:profile': 'fast', 'colour': 'blue'},
            keys('tor8', saturation_kbps='6e6'),
            keys('gw', profile='slow'),
            # Numbers go before those of the profile.
            keys('gw2', profile='fast', saturation_kbps='7e6'))
        self.assertEqual({'tor7', 'tor8', 'gw', 'gw2'}, set(uplinks))
        self.assertEqual({'networks': 4}, uplinks['gw'].policy.counts)
        self.assertEqual((9e6, 7e6), (
            uplinks['gw2'].policy.profile.line_rate_kbps,
            uplinks['gw2'].policy.profile.saturation_kbps))
        tor = uplinks['tor7'].policy
        self.assertEqual(
            (5e6, 4e6, 800.0, .001, admission.AVERAGE),
            (tor.profile.saturation_kbps, tor.profile.line_rate_kbps,
             tor.profile.packet_rate_kpps, tor.overload_probability,
             tor.policy))
        self.assertEqual((.01, admission.PROBABILITY), (
            uplinks['tor8'].policy.overload_probability,
            uplinks['tor8'].policy.policy))
        self.assertEqual({}, self.problems)

    def test_of_several_values_the_most_cautious_wins(self):
        for order in (1, -1):
            uplinks = self.find(*[
                keys('gw', profile='fast', saturation_kbps='7e6',
                     overload_probability='.1', admission_policy='average',
                     mapping_entries='4096', prediction_margin='3'),
                keys('gw', profile='slow', saturation_kbps='5e5',
                     overload_probability='.2', mapping_interfaces='48',
                     admission_policy='probability', mapping_entries='960',
                     prediction_margin='.5'),
                keys('gw', mapping_interfaces='2')][::order])['gw'].policy
            self.assertEqual((5e5, .1, 3.0, admission.PROBABILITY), (
                uplinks.profile.saturation_kbps, uplinks.overload_probability,
                uplinks.prediction_margin, uplinks.policy))
            self.assertEqual({'networks': 960 // 48}, uplinks.counts)

    def test_what_stays_on_hosts_takes_nothing_of_it(self):
        for shares, capacity in ((['0.5', '.2'], 5e6 / .8), (['0'], 5e6)):
            policy = self.find(*[keys(
                'tor', saturation_kbps='5e6', line_rate_kbps='5e6',
                same_host_share=share) for share in shares])['tor'].policy
            for limit in policy.profile.limits():
                self.assertAlmostEqual(1, limit.capacity / capacity, 8)
                self.assertLessEqual(limit.capacity, capacity * (1 + 1e-12))
        # It is no limit by itself.
        self.assertEqual({}, self.find(keys('tor', same_host_share='.5')))

    def test_a_mapping_table_alone_is_a_limit(self):
        for stated, most in (({'mapping_entries': '0'}, 0),
                             ({'mapping_entries': '4096'}, 4096),
                             ({'mapping_entries': '4096',
                               'mapping_interfaces': '48'}, 85)):
            policy = self.find(keys('gw', **stated))['gw'].policy
            self.assertEqual({'networks': most}, policy.counts)
            self.assertEqual([], policy.limits)
        self.assertEqual({}, self.problems)

    def test_one_that_stays_is_the_same_object(self):
        earlier = self.find(keys('a', saturation_kbps='5'),
                            keys('b', saturation_kbps='5'))
        later = self.find(keys('a', saturation_kbps='5'),
                          keys('b', saturation_kbps='6'))
        self.assertIs(earlier['a'], later['a'])
        self.assertIsNot(earlier['b'], later['b'])
        self.assertEqual({}, self.find())

    def test_what_cannot_be_used_is_told_and_ignored(self):
        good = keys('tor', saturation_kbps='5e6')
        for key, value, expected in (
                ('profile', 'nonesuch', 'expected one of fast, slow'),
                ('admission_policy', 'guess', 'expected one of average,'),
                ('overload_probability', '1.5', 'expected a number 0..1'),
                ('same_host_share', '1', 'expected a number 0 <= share < 1'),
                ('mapping_entries', '-1', 'expected a whole number, 0 <='),
                ('mapping_entries', 'all', 'expected a whole number, 0 <='),
                # More than a profile can count: it raised for all hosts.
                ('mapping_entries', '1' + 16 * '0', 'expected a whole number'),
                ('mapping_entries', '9' * 5000, 'expected a whole number, 0'),
                ('mapping_interfaces', '0', 'expected a whole number, 1 <='),
                ('line_rate_kbps', 'fast', 'expected a number > 0'),
                ('colour', 'blue', 'expected no key but vswitch:uplink_'),
                ('line_rat_kbps', '5',
                 'nearest name: vswitch:uplink_line_rate_kbps')):
            self.reports.clear()
            uplinks = self.find({**good, **keys(**{key: value})})
            self.assertEqual({'saturation_kbps': 5e6}, {
                name: uplink for name, uplink in uplinks['tor'].policy.profile
                .to_dict().items() if name == 'saturation_kbps'})
            (text,) = self.problems.values()
            for part in ('aggregate agg0', key, repr(value)[:30], expected):
                self.assertIn(part, text)
            self.find(good)
            self.reports.pop(f'aggregate agg0 vswitch:uplink_{key}')
            self.assertEqual({}, self.problems)

    def test_an_uplink_of_which_nothing_is_said_limits_nothing(self):
        self.assertEqual({}, self.find(keys('tor'), keys(
            'gw', typical_packet_bytes='900')))
        self.assertEqual({'uplink tor', 'uplink gw'}, set(self.problems))
        self.assertIn('expected one of vswitch:uplink_profile',
                      self.problems['uplink tor'])
        self.assertEqual({'tor'}, set(self.find(
            keys('tor', saturation_kbps='5'))))
        self.assertNotIn('uplink tor', self.problems)

    def test_numbers_without_a_name_are_told(self):
        for name in (None, '', ' '):
            self.assertEqual({}, self.find(keys(name, line_rate_kbps='5')))
            self.assertIn('vswitch:uplink_line_rate_kbps',
                          self.problems['aggregate agg0 vswitch:uplink'])
        self.find(keys('tor', line_rate_kbps='5'))
        self.assertEqual({}, self.problems)
