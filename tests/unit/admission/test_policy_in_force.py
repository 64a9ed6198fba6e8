# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import unittest

from tests.fakes import clock as fake_clock
from tests.fakes import host_metadata
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import host_policies
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
            'uplinks': [uplink.name for uplink in policy.uplinks]}


class PolicyInForceTestCase(unittest.TestCase):

    def find(self, hosts, *aggregates, stored=(), default='fast',
             bare_metal=()):
        return policy_in_force.find(
            hosts, [{'name': name, 'metadata': metadata, 'hosts': members}
                    for name, metadata, members in aggregates],
            {profile.host: profile for profile in stored},
            host_policies.HostPolicies(host_metadata.PROFILES, default,
                                       admission.PROBABILITY, 0.01, True,
                                       ignore),
            uplink_policies.UplinkPolicies(host_metadata.PROFILES,
                                           admission.PROBABILITY, 0.01,
                                           ignore),
            frozenset(bare_metal))

    def test_aggregates_go_before_the_store_and_the_default(self):
        in_force = self.find(
            ['a', 'b', 'c', 'd'],
            ('rack', {'vswitch:profile': 'slow',
                      'vswitch:overload_probability': '.003'}, ['a']),
            stored=[store.HostProfile('a', 'fast', {}, 'operator'),
                    store.HostProfile('b', 'slow', {'max_tunnels': 3},
                                      'discovered'),
                    store.HostProfile('d', None, {'max_tunnels': 3},
                                      'operator')])
        self.assertEqual(['slow', 'slow', 'fast', 'fast'], [
            in_force.hosts[host].profile.name for host in 'abcd'])
        self.assertEqual([.003, .01], [
            in_force.hosts[host].overload_probability for host in 'ab'])
        for host, key, origin in (
                ('a', 'profile', 'aggregate rack'),
                ('a', 'overload_probability', 'aggregate rack'),
                ('b', 'profile', 'store (discovered)'),
                ('b', 'max_tunnels', 'store (discovered)'),
                ('b', 'overload_probability', 'option'),
                ('c', 'profile', 'default_switch_profile'),
                ('d', 'profile', 'default_switch_profile'),
                ('d', 'max_tunnels', 'store (operator)')):
            self.assertEqual(origin, in_force.origins[host][key])
        in_force = self.find(['a'], default=None)
        self.assertIsNone(in_force.hosts['a'].profile)
        self.assertIsNone(in_force.origins['a']['profile'])

    def test_hosts_share_uplinks_and_policies(self):
        in_force = self.find(
            ['a', 'b', 'c', 'd'],
            ('rack', host_metadata.keys('tor', saturation_kbps='5e6'),
             ['a', 'b', 'd']),
            ('gate', host_metadata.keys('gw', saturation_kbps='6e6'), ['b']),
            ('none', {'vswitch:judge': 'false'}, ['d']))
        self.assertEqual([['tor'], ['gw', 'tor'], [], []], [
            [uplink.name for uplink in in_force.hosts[host].uplinks]
            for host in 'abcd'])
        self.assertIs(in_force.uplinks['tor'], in_force.hosts['a'].uplinks[0])
        self.assertFalse(in_force.hosts['d'].judged)
        in_force = self.find(['a', 'b'])
        self.assertIs(in_force.hosts['a'], in_force.hosts['b'])

    def test_bare_metal_is_not_judged(self):
        self.assertFalse(self.find(['a'], bare_metal=['a']).hosts['a'].judged)

    def test_one_host_of_which_no_policy_can_be_found_hinders_no_other(self):
        broken = store.HostProfile('a', 'fast')
        object.__setattr__(broken, 'overrides', None)
        in_force = self.find(['a', 'b'], stored=[broken])
        self.assertEqual({'a'}, in_force.problems.keys())
        self.assertEqual('fast', in_force.hosts['b'].profile.name)


class PackTestCase(unittest.TestCase):

    def roundtrip(self, hosts, shared):
        text = json.dumps([
            {name: policy_in_force.pack(policy)
             for name, policy in hosts.items()},
            {name: policy_in_force.pack(policy.policy)
             for name, policy in shared.items()}], allow_nan=False)
        return policy_in_force.unpack(*json.loads(text))

    def test_what_is_packed_decides_as_before(self):
        tor = admission.Uplink('tor', admission.HostPolicy(
            profile.SwitchProfile('tor', line_rate_kbps=1e7),
            tunnel_key='the room'))
        hosts = {name: admission.HostPolicy(
            switch.overridden({'line_rate_kbps': 5e5}, 'test'),
            overload_probability=.003, uplinks=(tor,), enforced=False)
            for name, switch in profile.catalogue().items()}
        hosts['numbers alone'] = admission.HostPolicy(
            profile.with_numbers(None, {'packet_rate_kpps': [7]}, 'test'),
            admission.AVERAGE)
        hosts['unknown'] = admission.HostPolicy(None, pass_unknown=False)
        hosts['unjudged'] = admission.HostPolicy(None, judged=False)
        unpacked, shared, problems = self.roundtrip(hosts, {'tor': tor})
        self.assertEqual({}, problems)
        for name, policy in hosts.items():
            with self.subTest(name):
                self.assertEqual(facts(policy), facts(unpacked[name]))
        self.assertIs(shared['tor'], unpacked['ovs-flat'].uplinks[0])

    def test_hosts_alike_have_the_same_object(self):
        hosts, _, _ = self.roundtrip({
            'a': admission.HostPolicy(None), 'b': admission.HostPolicy(None)},
            {})
        self.assertIs(hosts['a'], hosts['b'])

    def test_one_that_cannot_be_used_hinders_no_other(self):
        good = policy_in_force.pack(admission.HostPolicy(None))
        hosts, shared, problems = policy_in_force.unpack(
            {'a': {}, 'b': {**good, 'overload_probability': 7},
             'c': {**good, 'of a later release': 1}}, {'u': {}})
        self.assertEqual({'c'}, hosts.keys())
        self.assertEqual({'a', 'b', 'u'}, problems.keys())
        self.assertEqual({}, shared)
