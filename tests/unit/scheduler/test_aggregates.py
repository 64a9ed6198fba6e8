# SPDX-License-Identifier: Apache-2.0

import dataclasses
import os
import tempfile
import unittest
from unittest import mock

from nova.network import model as network_model
from nova import objects

from tests.fakes import host_metadata
from tests.unit.scheduler import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import host_policies
from vswitch_aware_scheduler.admission import uplink_policies
from vswitch_aware_scheduler.scheduler import aggregates
from vswitch_aware_scheduler.scheduler import residency
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import snapshot
from vswitch_aware_scheduler.vswitch import attachments


class TestAggregates(unittest.TestCase):

    def setUp(self):
        super().setUp()
        limits = (admission.PROBABILITY, 0.01)
        self.found = aggregates.Aggregates(
            host_policies.HostPolicies(
                host_metadata.PROFILES, None, *limits, True, mock.Mock()),
            uplink_policies.UplinkPolicies(
                host_metadata.PROFILES, *limits, mock.Mock()),
            mock.Mock())
        self.groups = {}

    def rack(self, name, hosts, number=1, **stated):
        made = objects.Aggregate(
            id=number, name=name, hosts=list(hosts),
            metadata=host_metadata.keys(name, **stated))
        for host in hosts:
            self.groups.setdefault(host, []).append(made)
        return made

    def observe(self, hosts):
        """Return the hosts that have to be described anew, sorted."""
        return ''.join(sorted(self.found.observe(
            list(hosts), [self.groups.get(host, []) for host in hosts])))

    def policy(self, host):
        return self.found.policy(host, None)

    def test_hosts_that_a_change_concerns_are_returned_once(self):
        self.assertEqual('abc', self.observe('abc'))
        self.assertEqual('', self.observe('abc'))
        rack = self.rack('tor', 'ab', saturation_kbps='1000')
        self.assertEqual('ab', self.observe('abc'))
        self.assertEqual('', self.observe('abc'))
        # Of those as well that the request does not have.
        rack.metadata['vswitch:uplink_saturation_kbps'] = '1100'
        self.assertEqual('ab', self.observe('bc'))
        self.assertEqual('', self.observe('abc'))

    def test_each_of_many_aggregates_is_looked_at_once(self):
        many = [objects.Aggregate(id=number, name=str(number), metadata={})
                for number in range(50)]
        hosts = [f'h{number}' for number in range(20)]
        with mock.patch.object(uplink_policies, 'is_in', autospec=True,
                               side_effect=uplink_policies.is_in) as is_in:
            self.found.observe(hosts, [list(many) for _ in hosts])
            self.assertEqual(50, is_in.call_count)
            many[7] = objects.Aggregate(id=7, name='7', metadata={})
            self.assertEqual(set(hosts), self.found.observe(
                hosts, [list(many) for _ in hosts]))
        self.assertEqual(51, is_in.call_count)

    def test_what_changes_and_changes_back_is_returned_twice(self):
        hosts, racks = ['a', 'b'], [[self.rack('tor', 'ab')], []]
        self.found.observe(list(hosts), racks)
        self.assertEqual(set(), self.found.observe(hosts, racks))
        for groups in (racks[::-1], racks):
            self.assertEqual({'a', 'b'}, self.found.observe(hosts, groups))
            self.assertEqual(set(), self.found.observe(hosts, groups))

    def test_a_policy_has_the_uplinks_of_its_host(self):
        self.rack('tor', 'ab', saturation_kbps='1000')
        self.rack('gw', 'b', 2, profile='slow')
        self.observe('abc')
        self.assertEqual([['tor'], ['gw', 'tor'], []], [
            [one.name for one in self.policy(host).uplinks]
            for host in 'abc'])
        self.assertIs(self.policy('a'), self.policy('a'))

    def test_a_policy_is_by_the_profile_that_is_stored(self):
        self.observe('a')
        for name in ('slow', 'fast', 'slow'):
            stored = store.HostProfile('a', name, {}, 'test')
            self.assertEqual(name, self.found.policy('a', stored).profile.name)
        self.assertIsNone(self.policy('a').profile)

    def test_members_are_what_aggregates_of_uplinks_list(self):
        self.rack('all', 'abcz', 2)
        self.groups['c'][0].metadata.clear()
        self.observe('abc')
        self.assertEqual({}, self.found.members)
        self.rack('tor', 'abx', saturation_kbps='1000')
        self.observe('abc')
        self.assertEqual({'a', 'b', 'x'}, self.found.members.keys())
        members = self.found.members
        self.observe('bc')
        self.assertIs(members, self.found.members)

    def test_a_host_that_no_request_has_is_behind_what_lists_it(self):
        self.rack('tor', 'abx', saturation_kbps='1000')
        self.assertEqual('abx', self.observe('ab'))
        self.assertEqual(('tor',), self.found.behind['x'])
        self.assertEqual(self.policy('a'), self.policy('x'))


class TestOneHostAlone(base.StateTestCase):
    """What is wrong with one host changes nothing for the others."""

    LAWS = {1: 60.0, 2: 0.0}

    def setUp(self):
        super().setUp()
        self.state = self.make_state(unknown_host_policy='reject')

    def judge(self, spec, **stated):
        """Return {host: whether it is admitted} of empty hosts.

        :param stated: host={key of metadata: value}
        """
        states = [base.host_state(host, [], [base.aggregate(host, **keys)])
                  for host, keys in stated.items()]
        assessment, _ = self.state.assess(states, spec)
        return dict(zip(stated, assessment.admitted.tolist()))

    def test_a_prior_is_not_cut_to_what_a_closed_host_carries(self):
        with mock.patch.object(snapshot.Snapshot, 'prior', autospec=True,
                               return_value=(base.constant(50), 'fleet')):
            self.assertEqual(
                {'shut': False, 'small': True, 'open': True}, self.judge(
                    base.request(9), shut={'saturation_kbps': '0'},
                    small={'saturation_kbps': '40'},
                    open={'saturation_kbps': '100'}))

    def test_a_host_whose_policy_cannot_be_found_passes_alone(self):
        find = host_policies.HostPolicies.find

        def fail_for_odd(self, metadata, *rest):
            if metadata[0][0] == 'odd':
                raise RuntimeError('odd')
            return find(self, metadata, *rest)

        with mock.patch.object(host_policies.HostPolicies, 'find',
                               fail_for_odd):
            self.assertEqual({'odd': True, 'full': False}, self.judge(
                base.request(1), odd={'saturation_kbps': '1'},
                full={'saturation_kbps': '50'}))
        self.assertIn('host odd: RuntimeError: odd; it passes unjudged',
                      self.warnings[-1])


class TestBareMetal(base.StateTestCase):

    def test_nodes_of_an_ironic_service_pass_unjudged_by_default(self):
        self.store.answers = [base.changes(1, {1: 60.0})]
        self.state = self.make_state(default_switch_profile='ovs-vxlan-1g',
                                     unknown_host_policy='reject')
        large = base.request(9, egress_kbps=10 ** 9)

        def admitted(**stated):
            nodes = [base.host_state('ironic', [], [
                base.aggregate('bare', **stated)] if stated else [])
                for _ in range(3)]
            for node in nodes:
                node.hypervisor_type = 'ironic'
            assessment, _ = self.state.assess(
                [*nodes, base.host_state('kvm')], large)
            return assessment.admitted.tolist()

        self.assertEqual([True, True, True, False], admitted())
        self.assertEqual([False] * 4, admitted(judge='true'))
        # Other hosts can be opted out.
        assessment, _ = self.state.assess([base.host_state(
            'other', [], [base.aggregate('out', judge='false')])], large)
        self.assertEqual([True], assessment.admitted.tolist())


class UplinkTestCase(base.SchedulerTestCase):
    """Hosts of 1000 kbit/s behind uplinks of 1000 in all."""

    OPTIONS = {**base.SchedulerTestCase.OPTIONS, 'overload_probability': 0.0}

    def setUp(self):
        super().setUp()
        self.aggregates, self.hosts = {}, {}
        self.replace('all', 'abcd', **{'vswitch:saturation_kbps': '1000'})
        for host in 'abcd':
            self.host(host)
        self.state = self.make_state()

    def replace(self, name, hosts, **metadata):
        """Make an aggregate, or a new object of one, as Nova does."""
        earlier = self.aggregates.get(name)
        self.aggregates[name] = objects.Aggregate(
            id=earlier.id if earlier else len(self.aggregates) + 1, name=name,
            hosts=list(hosts), metadata=metadata)
        for host, one in self.hosts.items():
            one.aggregates = self._aggregates_of(host)

    def _aggregates_of(self, host):
        return [aggregate for aggregate in self.aggregates.values()
                if host in aggregate.hosts]

    def host(self, host, *instances):
        self.hosts[host] = base.host_state(host, instances,
                                           self._aggregates_of(host))

    def record(self, host, *numbers, kbps=None):
        """Let Nova's record have instances on a host, of one demand."""
        self.clock.now += 1
        specs = {} if kbps is None else {'vswitch:egress_kbps': str(kbps)}
        self.state._take_reading(residency.CellReading(
            base.CELL, self.clock.now, {
                base.instance_uuid(number): host and residency.Row(
                    host, 'active', None, (('m1', specs), None, None))
                for number in numbers}))

    def rack(self, hosts='ab', **stated):
        self.replace('rack', hosts, **host_metadata.keys('tor', **{
            'saturation_kbps': '1000', **stated}))

    def ask(self, hosts='abcd', number=9, kbps=100, **more):
        """Return the hosts that are admitted."""
        return self.admitted(
            hosts, base.request(number, egress_kbps=kbps, **more))

    def admitted(self, hosts, spec):
        assessment, _ = self.state.assess(
            [self.hosts[host] for host in hosts], spec)
        return ''.join(host for host, fits in zip(
            hosts, assessment.admitted) if fits)

    def place(self, host, number, kbps=100):
        self.state.host_consumed(
            self.hosts[host], base.request(number, egress_kbps=kbps))


class TestUplinks(UplinkTestCase):

    def test_aggregates_that_change_are_followed(self):
        self.ask()
        self.place('a', 1, 600)
        self.assertEqual('bcd', self.ask(kbps=600))
        self.rack()
        self.assertEqual('cd', self.ask(kbps=600))
        # In place, and by another object.
        self.aggregates['rack'].metadata['vswitch:uplink_saturation_kbps'] = \
            '1200'
        self.assertEqual('bcd', self.ask(kbps=600))
        self.rack(saturation_kbps='1100')
        self.assertEqual('cd', self.ask(kbps=600))
        self.rack('ac')
        self.assertEqual('bd', self.ask(kbps=600))
        self.rack('ac', saturation_kbps='fast')
        self.assertEqual('bcd', self.ask(kbps=600))
        self.assertTrue([text for text in self.warnings if 'fast' in text])
        self.rack('ac')
        self.assertEqual('bd', self.ask(kbps=600))
        self.replace('rack', 'ac')
        self.assertEqual('bcd', self.ask(kbps=600))

    def test_a_host_that_its_aggregate_no_longer_lists_has_left(self):
        self.rack('abc')
        self.ask()
        self.place('a', 1, 600)
        # Only the aggregate tells that host a is not in it any more.
        self.rack('bc')
        self.assertEqual('bcd', self.ask('bcd', kbps=600))
        self.assertEqual('bcd', self.ask(kbps=600))

    def test_aggregates_without_an_id_are_distinguished(self):
        for host in 'ab':
            self.hosts[host].aggregates = [objects.Aggregate(
                name='rack', metadata=host_metadata.keys(
                    'tor', saturation_kbps='500'))]
        self.assertEqual('cd', self.ask(kbps=501))
        self.place('a', 1, 300)
        self.assertEqual('cd', self.ask(kbps=300))

    def test_policies_with_uplinks_are_kept_within_bounds(self):
        self.rack('abcd')
        with mock.patch.object(aggregates, '_MOST_SHARED', 1):
            for capacity in ('1000', '1100', '1200'):
                self.rack('abcd', saturation_kbps=capacity)
                self.assertEqual('abcd', self.ask(kbps=800))
        self.assertEqual(1, len(self.state._aggregates._shared))

    def test_a_host_that_is_not_asked_about_counts_all_the_same(self):
        self.rack()
        self.ask()
        self.place('a', 1, 600)
        self.assertEqual('cd', self.ask('bcd', kbps=600))
        # It moves to another one; nobody asks about where it was.
        self.record('c', 1, kbps=600)
        self.assertEqual('bd', self.ask('bd', kbps=600))
        # Only a request without host a tells that the rack is another one.
        self.rack(saturation_kbps='500')
        self.assertEqual('d', self.ask('bd', kbps=600))

    def test_hosts_that_no_request_has_count_by_the_record(self):
        self.rack('abx')
        self.state = self.make_state(default_egress_kbps=200,
                                     default_ingress_kbps=0)
        self.ask()
        self.record('x', 5, kbps=700)
        # One of them counts by the default.
        self.record('x', 6)
        self.assertEqual('cd', self.ask(kbps=101))
        self.assertEqual('abcd', self.ask(kbps=100))
        # One of them moves away.
        self.record('c', 5, kbps=700)
        self.assertEqual('abd', self.ask(kbps=800))
        # A host that no request has any more counts as before.
        self.clock.now += 200
        self.record('a', 7, kbps=300)
        self.record(None, 6)
        self.assertEqual('b', self.ask('b', kbps=700))
        self.assertEqual('', self.ask('b', kbps=701))

    def test_bare_metal_behind_an_uplink_passes_whoever_asks_first(self):
        self.rack('abx')
        self.state = self.make_state(default_switch_profile='ovs-vxlan-1g')
        # No instance without hardware of its own is for host x.
        self.ask()
        self.host('x')
        self.hosts['x'].hypervisor_type = 'ironic'
        self.assertEqual('x', self.ask('abx', kbps=10 ** 9))
        self.place('x', 1, 10 ** 9)
        self.assertEqual('x', self.ask('abx', kbps=10 ** 9))

    def test_a_new_generation_leaves_uplinks_as_they_are(self):
        self.rack()
        self.host('a', 1, 2)
        self.store.answers = [base.changes(1, {1: 300.0, 2: 300.0}),
                              base.changes(2, {2: 100.0})]
        self.assertEqual('cd', self.ask(kbps=600))
        self.state.refresh()
        self.assertEqual('abcd', self.ask(kbps=600))
        self.assertEqual('bcd', self.ask('bcd', kbps=600))
        self.place('b', 3, 600)
        self.assertEqual('cd', self.ask(kbps=1))
        self.state.refresh()
        self.assertEqual('cd', self.ask(kbps=1))


class TestTunnels(UplinkTestCase):
    """Hosts of one tunnel each, one for each network."""

    def setUp(self):
        super().setUp()
        directory = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(directory, 'profiles.yaml')
        with open(path, 'w') as file:
            file.write('one: {max_tunnels: 1, tunnel_unit: networks}\n')
        self.aggregates['all'].metadata = {'vswitch:profile': 'one'}
        self.state = self.make_state(switch_profiles_file=path)

    def spec(self, number, *networks):
        return base.request(number, networks=networks, egress_kbps=1)

    def fits(self, number, *networks):
        return self.admitted('abcd', self.spec(number, *networks))

    def interface(self, network):
        """Return the Instance of one that tells of its interface."""
        return objects.Instance(info_cache=objects.InstanceInfoCache(
            network_info=network_model.NetworkInfo([
                {'network': {'id': network, 'meta': {}}}])))

    def test_what_was_placed_is_on_the_networks_it_asked_for(self):
        self.assertEqual('abcd', self.fits(1, 'red'))
        self.state.host_consumed(self.hosts['a'], self.spec(1, 'red'))
        self.assertEqual('abcd', self.fits(2, 'red'))
        self.assertEqual('bcd', self.fits(2, 'blue'))
        self.assertEqual('', self.fits(2, 'red', 'blue'))
        # Reported by its host, which does not tell more.
        self.host('a', 1)
        self.assertEqual('bcd', self.fits(2, 'blue'))
        # It moves, and is itself the one that has the tunnel.
        self.assertEqual('abcd', self.fits(1, 'red'))
        self.assertEqual('abcd', self.fits(1, 'blue'))

    def test_the_inventory_counts_before_the_list_of_the_host(self):
        self.store.answers = [base.changes(1), dataclasses.replace(
            base.changes(2), placements=([base.instance_uuid(1)], [(
                'a', None, None, attachments.Attachments(('green',)),
                None)]))]
        self.host('a', 1)
        self.assertEqual('bcd', self.fits(2, 'red'))
        self.hosts['a'].instances[base.instance_uuid(1)] = \
            self.interface('red')
        self.clock.now += 2
        self.assertEqual('bcd', self.fits(2, 'red'))
        # What a host lists is looked at when who is on it changes.
        self.host('a', 1, 3)
        self.hosts['a'].instances.update(
            (base.instance_uuid(number), self.interface('red'))
            for number in (1, 3))
        self.assertEqual('abcd', self.fits(2, 'red'))
        self.host('a', 1)
        self.state.refresh()
        self.assertEqual('bcd', self.fits(2, 'red'))
        self.assertEqual('abcd', self.fits(2, 'green'))
