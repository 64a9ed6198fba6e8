# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import unittest

from tests.fakes import clock as fake_clock
from tests.fakes import host_metadata
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import host_policies
from vswitch_aware_scheduler.admission import limit_feedback
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.admission import uplink_policies
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import profile

ignore = host_metadata.ignore

NOW = fake_clock.NOW


def facts(policy):
    """Return what decides of a HostPolicy, uplinks by name."""
    return {**{field.name: getattr(policy, field.name)
               for field in dataclasses.fields(policy)
               if field.name not in ('profile', 'uplinks')},
            'limits': policy.limits, 'counts': policy.counts,
            'uplinks': [one.name for one in policy.uplinks]}


class PolicyInForceTestCase(unittest.TestCase):

    def find(self, hosts, *aggregates, stored=(), default='fast',
             outcomes=None, bare_metal=()):
        return policy_in_force.find(
            hosts,
            [
                {'name': name, 'metadata': metadata, 'hosts': members}
                for name, metadata, members in aggregates
            ],
            {one.host: one for one in stored},
            host_policies.HostPolicies(
                host_metadata.PROFILES,
                default,
                admission.PROBABILITY,
                0.01,
                True,
                ignore,
            ),
            uplink_policies.UplinkPolicies(
                host_metadata.PROFILES,
                admission.PROBABILITY,
                0.01,
                ignore,
            ),
            limit_feedback.Corrections(8.0, lambda: NOW, ignore),
            outcomes or {},
            frozenset(bare_metal),
        )

    def test_aggregates_go_before_the_store_and_the_default(self):
        found = self.find(
            ['a', 'b', 'c'],
            ('rack', {'vswitch:profile': 'slow',
                      'vswitch:overload_probability': '.003'}, ['a']),
            stored=[store.HostProfile('a', 'fast', {}, 'operator'),
                    store.HostProfile('b', 'slow', {'max_tunnels': 3},
                                      'discovered')])
        self.assertEqual(['slow', 'slow', 'fast'], [
            found.hosts[host].profile.name for host in 'abc'])
        self.assertEqual((.003, .01), (
            found.hosts['a'].overload_probability,
            found.hosts['b'].overload_probability))
        self.assertEqual(
            ['aggregate rack', 'store (discovered)',
             'default_switch_profile'],
            [found.origins[host]['profile'] for host in 'abc'])
        self.assertEqual('aggregate rack',
                         found.origins['a']['overload_probability'])
        self.assertEqual('option',
                         found.origins['b']['overload_probability'])
        self.assertEqual('store (discovered)',
                         found.origins['b']['max_tunnels'])

    def test_a_number_of_the_store_beside_the_default_profile(self):
        found = self.find(['a'], stored=[store.HostProfile(
            'a', None, {'max_tunnels': 3}, 'operator')])
        self.assertEqual(('default_switch_profile', 'store (operator)'),
                         (found.origins['a']['profile'],
                          found.origins['a']['max_tunnels']))

    def test_hosts_without_anything_have_no_origin(self):
        found = self.find(['a'], default=None)
        self.assertIsNone(found.hosts['a'].profile)
        self.assertIsNone(found.origins['a']['profile'])

    def test_hosts_share_uplinks_and_policies(self):
        found = self.find(
            ['a', 'b', 'c', 'd'],
            (
                'rack',
                host_metadata.keys('tor', saturation_kbps='5e6'),
                ['a', 'b', 'd'],
            ),
            (
                'gate',
                host_metadata.keys('gw', saturation_kbps='6e6'),
                ['b'],
            ),
            ('none', {'vswitch:judge': 'false'}, ['d']),
        )
        self.assertEqual([['tor'], ['gw', 'tor'], [], []], [
            [one.name for one in found.hosts[host].uplinks]
            for host in 'abcd'])
        self.assertIs(found.uplinks['tor'], found.hosts['a'].uplinks[0])
        self.assertFalse(found.hosts['d'].judged)
        found = self.find(['a', 'b'])
        self.assertIs(found.hosts['a'], found.hosts['b'])

    def test_feedback_comes_last(self):
        asked = self.find(['a']).hosts['a']
        # Overload of a tenth of what is expected, in 90 host-days.
        outcome = store.TrialOutcome(
            limit_feedback.kind_of(asked), NOW - 7200.0, tuple(
                (percent, .1 * 90.0 * .0001 * percent, 90.0)
                for percent in limit_feedback.PERCENT))
        found = self.find(['a'], outcomes={outcome.kind: outcome}).hosts['a']
        self.assertAlmostEqual(.01 * 1.1 ** 17, found.overload_probability)
        self.assertEqual(.01, found.asked_probability)

    def test_bare_metal_is_not_judged(self):
        self.assertFalse(self.find(['a'], bare_metal=['a']).hosts['a'].judged)

    def test_one_host_of_which_no_policy_can_be_found_hinders_no_other(self):
        broken = store.HostProfile('a', 'fast')
        object.__setattr__(broken, 'overrides', None)
        found = self.find(['a', 'b'], stored=[broken])
        self.assertEqual({'a'}, found.problems.keys())
        self.assertEqual('fast', found.hosts['b'].profile.name)


class PackTestCase(unittest.TestCase):

    def roundtrip(self, hosts, shared):
        text = json.dumps([
            {name: policy_in_force.pack(one) for name, one in hosts.items()},
            {name: policy_in_force.pack(one.policy)
             for name, one in shared.items()}], allow_nan=False)
        return policy_in_force.unpack(*json.loads(text))

    def test_what_is_packed_decides_as_before(self):
        tor = admission.Uplink('tor', admission.HostPolicy(
            profile.SwitchProfile('tor', line_rate_kbps=1e7),
            tunnel_key='the room'))
        hosts = {name: admission.HostPolicy(
            one.overridden({'line_rate_kbps': 5e5}, 'test'),
            overload_probability=.003, asked_probability=.001,
            uplinks=(tor,), enforced=False)
            for name, one in profile.catalogue().items()}
        hosts['numbers alone'] = admission.HostPolicy(
            profile.with_numbers(None, {'packet_rate_kpps': [7]}, 'test'),
            admission.AVERAGE)
        hosts['unknown'] = admission.HostPolicy(None, pass_unknown=False)
        hosts['unjudged'] = admission.HostPolicy(None, judged=False)
        found, shared, problems = self.roundtrip(hosts, {'tor': tor})
        self.assertEqual({}, problems)
        for name, policy in hosts.items():
            with self.subTest(name):
                self.assertEqual(facts(policy), facts(found[name]))
        self.assertIs(shared['tor'], found['ovs-flat'].uplinks[0])

    def test_hosts_alike_have_the_same_object(self):
        found, _, _ = self.roundtrip({
            'a': admission.HostPolicy(None), 'b': admission.HostPolicy(None)},
            {})
        self.assertIs(found['a'], found['b'])

    def test_one_that_cannot_be_used_hinders_no_other(self):
        good = policy_in_force.pack(admission.HostPolicy(None))
        found, shared, problems = policy_in_force.unpack(
            {'a': {}, 'b': {**good, 'overload_probability': 7},
             'c': {**good, 'of a later release': 1}}, {'u': {}})
        self.assertEqual({'c'}, found.keys())
        self.assertEqual({'a', 'b', 'u'}, problems.keys())
        self.assertEqual({}, shared)
