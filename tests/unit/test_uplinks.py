# SPDX-License-Identifier: Apache-2.0

import dataclasses
import os
import tempfile
import unittest
from unittest import mock

from nova.network import model as network_model
from nova import objects

from tests.unit.scheduler import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.scheduler import claims
from vswitch_aware_scheduler.scheduler import state as scheduler_state
from vswitch_aware_scheduler import uplinks
from vswitch_aware_scheduler.vswitch import profile
from vswitch_aware_scheduler.vswitch import tunnels

PROFILES = {one.name: one for one in (
    profile.SwitchProfile(name='fast', line_rate_kbps=9e6),
    profile.SwitchProfile(name='slow', saturation_kbps=1e6, max_tunnels=4,
                          tunnel_unit='networks'))}


def keys(name=None, **stated):
    """Return metadata: ``saturation_kbps`` is ``uplink_saturation_kbps``."""
    return {**({} if name is None else {'vswitch:uplink': name}),
            **{f'vswitch:uplink_{key}': value
               for key, value in stated.items()}}


class TestUplinkPolicies(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.reports = {}
        self.policies = uplinks.UplinkPolicies(
            PROFILES, admission.PROBABILITY, .01, self.reports.__setitem__)

    def find(self, *metadata):
        return self.policies.find(
            [(f'agg{i}', one) for i, one in enumerate(metadata)])

    @property
    def problems(self):
        return {topic: text for topic, text in self.reports.items() if text}

    def test_numbers_describe_an_uplink(self):
        found = self.find(
            keys('tor7', saturation_kbps='5e6', line_rate_kbps='4e6',
                 packet_rate_kpps='800', overload_probability='.001',
                 admission_policy='average'),
            {'vswitch:profile': 'fast', 'colour': 'blue'},
            keys('tor8', saturation_kbps='6e6'))
        self.assertEqual({'tor7', 'tor8'}, set(found))
        tor = found['tor7'].policy
        self.assertEqual(
            (5e6, 4e6, 800.0, .001, admission.AVERAGE),
            (tor.profile.saturation_kbps, tor.profile.line_rate_kbps,
             tor.profile.packet_rate_kpps, tor.overload_probability,
             tor.policy))
        self.assertEqual((.01, admission.PROBABILITY), (
            found['tor8'].policy.overload_probability,
            found['tor8'].policy.policy))
        self.assertEqual({}, self.problems)

    def test_a_profile_does_and_numbers_go_before_its_own(self):
        found = self.find(keys('gw', profile='slow'),
                          keys('gw2', profile='fast', saturation_kbps='7e6'))
        self.assertEqual({'networks': 4}, found['gw'].policy.counts)
        self.assertEqual((9e6, 7e6), (
            found['gw2'].policy.profile.line_rate_kbps,
            found['gw2'].policy.profile.saturation_kbps))

    def test_of_several_values_the_most_cautious_wins(self):
        for order in (1, -1):
            found = self.find(*[
                keys('gw', profile='fast', saturation_kbps='7e6',
                     overload_probability='.1', admission_policy='average',
                     mapping_entries='4096'),
                keys('gw', profile='slow', saturation_kbps='5e5',
                     overload_probability='.2', mapping_interfaces='48',
                     admission_policy='probability', mapping_entries='960'),
                keys('gw', mapping_interfaces='2')][::order])['gw'].policy
            self.assertEqual((5e5, .1, admission.PROBABILITY), (
                found.profile.saturation_kbps, found.overload_probability,
                found.policy))
            self.assertEqual({'networks': 960 // 48}, found.counts)

    def test_what_stays_on_hosts_takes_nothing_of_it(self):
        for shares, wanted in ((['0.5', '.2'], 5e6 / .8), (['0'], 5e6)):
            policy = self.find(*[keys(
                'tor', saturation_kbps='5e6', line_rate_kbps='5e6',
                same_host_share=share) for share in shares])['tor'].policy
            for limit in policy.profile.limits():
                self.assertAlmostEqual(1, limit.capacity / wanted, 8)
                self.assertLessEqual(limit.capacity, wanted * (1 + 1e-12))
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
        first = self.find(keys('a', saturation_kbps='5'),
                          keys('b', saturation_kbps='5'))
        second = self.find(keys('a', saturation_kbps='5'),
                           keys('b', saturation_kbps='6'))
        self.assertIs(first['a'], second['a'])
        self.assertIsNot(first['b'], second['b'])
        self.assertEqual({}, self.find())

    def test_what_cannot_be_used_is_told_and_ignored(self):
        good = keys('tor', saturation_kbps='5e6')
        for key, value, wanted in (
                ('profile', 'nonesuch', 'wanted one of fast, slow'),
                ('admission_policy', 'guess', 'wanted average or'),
                ('overload_probability', '1.5', 'wanted a number 0..1'),
                ('overload_probability', 'nan', 'wanted a number 0..1'),
                ('overload_probability', 'few', 'wanted a number 0..1'),
                ('same_host_share', '1', 'wanted a number 0 <= share < 1'),
                ('mapping_entries', '-1', 'wanted a whole number >= 0'),
                ('mapping_entries', 'all', 'wanted a whole number >= 0'),
                ('mapping_interfaces', '0', 'wanted a whole number >= 1'),
                ('line_rate_kbps', 'fast', 'wanted a number > 0'),
                ('colour', 'blue', 'wanted no key but vswitch:uplink, ')):
            self.reports.clear()
            found = self.find({**good, **keys(**{key: value})})
            self.assertEqual({'saturation_kbps': 5e6}, {
                name: one for name, one in found['tor'].policy.profile
                .to_dict().items() if name == 'saturation_kbps'})
            (text,) = self.problems.values()
            for part in ('aggregate agg0', key, repr(value), wanted):
                self.assertIn(part, text)
            self.find(good)
            self.reports.pop(f'aggregate agg0 vswitch:uplink_{key}')
            self.assertEqual({}, self.problems)

    def test_an_uplink_of_which_nothing_is_said_limits_nothing(self):
        self.assertEqual({}, self.find(keys('tor'), keys(
            'gw', typical_packet_bytes='900')))
        self.assertEqual({'uplink tor', 'uplink gw'}, set(self.problems))
        self.assertIn('wanted one of vswitch:uplink_profile',
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


class UplinkTestCase(base.SchedulerTestCase):
    """Hosts of 1000 kbit/s behind uplinks of 1000 in all."""

    OPTIONS = {**base.SchedulerTestCase.OPTIONS, 'overload_probability': 0.0}

    def setUp(self):
        super().setUp()
        self.numbers = 0
        self.aggregates = {'all': self.aggregate(
            'all', 'abcd', **{'vswitch:saturation_kbps': '1000'})}
        self.hosts = {}
        for host in 'abcd':
            self.host(host)
        self.state = self.make_state()

    def aggregate(self, name, hosts, **metadata):
        self.numbers += 1
        return objects.Aggregate(id=self.numbers, name=name,
                                 hosts=list(hosts), metadata=metadata)

    def replace(self, name, hosts, number=None, **metadata):
        """Make an aggregate, or a new object of one, as Nova does."""
        made = self.aggregate(name, hosts, **metadata)
        if name in self.aggregates:
            made.id = self.aggregates[name].id
        self.aggregates[name] = made
        for host, one in self.hosts.items():
            one.aggregates = [agg for agg in self.aggregates.values()
                              if host in agg.hosts]

    def host(self, host, *instances):
        self.hosts[host] = base.host_state(host, instances, [
            agg for agg in self.aggregates.values() if host in agg.hosts])

    def rack(self, hosts='ab', **stated):
        self.replace('rack', hosts, **keys('tor', **{
            'saturation_kbps': '1000', **stated}))

    def ask(self, hosts='abcd', number=9, kbps=100, **more):
        """Return the hosts that are admitted."""
        self.found, _ = self.state.assess(
            [self.hosts[host] for host in hosts],
            base.request(number, egress_kbps=kbps, **more))
        self.words = {host: self.found.explain(i)
                      for i, host in enumerate(hosts)}
        return ''.join(host for host, fits in zip(
            hosts, self.found.admitted) if fits)

    def place(self, host, number, kbps=100):
        self.state.placed(self.hosts[host],
                          base.request(number, egress_kbps=kbps))


class TestState(UplinkTestCase):

    def test_hosts_behind_an_uplink_share_its_saturation(self):
        self.rack()
        self.assertEqual('abcd', self.ask(kbps=600))
        self.place('a', 1, 600)
        self.assertEqual('cd', self.ask(kbps=600))
        self.assertIn('its uplink tor: ', self.words['b'])
        self.assertEqual('bcd', self.ask(kbps=400, hosts='bcd'))
        self.place('b', 2, 400)
        self.assertEqual('cd', self.ask(kbps=1))

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

    def test_a_host_that_has_left_is_believed_to_have(self):
        self.rack('abc')
        self.ask()
        self.place('a', 1, 600)
        # Only the aggregate tells that host a is not in it any more.
        self.rack('bc')
        self.assertEqual('bcd', self.ask('bcd', kbps=600))
        self.assertEqual('bcd', self.ask(kbps=600))

    def test_aggregates_without_an_id_are_told_apart(self):
        for host in 'ab':
            self.hosts[host].aggregates = [objects.Aggregate(
                name='rack', metadata=keys('tor', saturation_kbps='500'))]
        self.assertEqual('cd', self.ask(kbps=501))
        self.place('a', 1, 300)
        self.assertEqual('cd', self.ask(kbps=300))

    def test_policies_with_uplinks_are_kept_within_bounds(self):
        self.rack('abcd')
        with mock.patch.object(scheduler_state, '_MOST_FITTED', 1):
            for capacity in ('1000', '1100', '1200'):
                self.rack('abcd', saturation_kbps=capacity)
                self.assertEqual('abcd', self.ask(kbps=800))
        self.assertEqual(1, len(self.state._shared_policies))

    def test_a_host_that_is_not_asked_about_counts_all_the_same(self):
        self.rack()
        self.ask()
        self.place('a', 1, 600)
        self.assertEqual('cd', self.ask('bcd', kbps=600))
        # It moves to another one; nobody asks about where it was.
        self.place('c', 1, 600)
        self.assertEqual('bd', self.ask('bd', kbps=600))
        # Only a request without host a tells that the rack is another one.
        self.rack(saturation_kbps='500')
        self.assertEqual('d', self.ask('bd', kbps=600))

    def test_hosts_that_no_request_has_are_looked_up(self):
        self.rack('abx')
        self.on_hosts = {'x': {base.instance_uuid(5), base.instance_uuid(6)}}
        self.flavors = {base.instance_uuid(5): base.request(
            egress_kbps=700).flavor}
        # One of them counts by the default.
        self.state = self.make_state(default_egress_kbps=200,
                                     default_ingress_kbps=0)
        self.assertEqual('cd', self.ask(kbps=101))
        self.assertEqual('abcd', self.ask(kbps=100))
        self.assertIn(['x'], self.asked_hosts)
        self.assertEqual(1, self.asked_hosts.count(['x']))
        # One of them has moved to where hosts tell.
        self.host('c', 5)
        self.assertEqual('abd', self.ask(kbps=800))
        # A host that no request has any more is asked for again.
        self.asked_hosts.clear()
        self.clock.now += 200
        self.on_hosts = {'a': {base.instance_uuid(7)}, 'x': set()}
        self.flavors = {base.instance_uuid(7): base.request(
            egress_kbps=300).flavor}
        self.assertEqual('b', self.ask('b', kbps=700))
        self.assertEqual('', self.ask('b', kbps=701))
        self.assertEqual([['a', 'x']], self.asked_hosts)
        # Hosts that are seen again tell for themselves.
        self.clock.now += 10
        self.assertEqual('abd', self.ask(kbps=800))
        self.assertEqual([['a', 'x']], self.asked_hosts)

    def test_without_a_database_what_is_known_of_them_counts(self):
        self.rack('abx')
        self.on_hosts = OSError('gone')
        self.assertEqual('abcd', self.ask(kbps=900))
        self.assertTrue([text for text in self.warnings if 'gone' in text],
                        self.warnings)

    def test_a_placement_that_came_to_nothing_makes_room(self):
        self.rack()
        self.ask()
        self.place('a', 1, 600)
        self.state.finished(False)
        self.database[1] = None
        self.assertEqual('bcd', self.ask('bcd', kbps=600))
        self.assertEqual([1], self.looked_up)

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

    def test_what_an_uplink_has_left_is_made_exact_in_the_background(self):
        self.rack()
        half = {'on_seconds': 1, 'off_seconds': 1}
        for number in (4, 5, 6):
            self.ask(number=number, kbps=10, **half)
            self.state.placed(self.hosts['b'], base.request(
                number, egress_kbps=10, **half))
        self.host('b', 4, 5, 6)
        self.assertEqual('abcd', self.ask(kbps=1))
        self.host('b', 4, 6)
        self.assertEqual('abcd', self.ask(kbps=1))
        self.assertEqual(2, len(self.state._table.loose()))
        self.state.refresh()
        self.assertEqual([], self.state._table.loose())


class NetworkTestCase(UplinkTestCase):

    def spec(self, number, *networks):
        return base.request(number, networks=networks, egress_kbps=1)

    def fits(self, spec, hosts='abcd'):
        self.found, _ = self.state.assess(
            [self.hosts[host] for host in hosts], spec)
        self.words = self.found.explain(0)
        return ''.join(host for host, fits in zip(
            hosts, self.found.admitted) if fits)


class TestMappings(NetworkTestCase):

    def test_networks_of_all_hosts_behind_a_gateway_fill_its_table(self):
        self.replace('gw', 'ab', **keys('gw', mapping_entries='96',
                                        mapping_interfaces='48'))
        for number, host, network in ((1, 'a', 'red'), (2, 'b', 'blue')):
            spec = self.spec(number, network)
            self.assertEqual('abcd', self.fits(spec))
            self.state.placed(self.hosts[host], spec)
        self.assertEqual('cd', self.fits(self.spec(3, 'green')))
        self.assertIn('its uplink gw: it has 2 networks, the instance adds '
                      '1, and the room of the mapping table', self.words)
        self.assertEqual('abcd', self.fits(self.spec(3, 'red', 'blue')))
        # Nobody knows which network it would be.
        self.assertEqual('cd', self.fits(base.request(3, egress_kbps=1)))
        self.database[2] = None
        self.clock.now += 1
        self.assertEqual('abcd', self.fits(self.spec(3, 'green')))


class TestTunnels(NetworkTestCase):
    """Hosts of one tunnel each, one for each network."""

    def setUp(self):
        super().setUp()
        directory = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(directory, 'profiles.yaml')
        with open(path, 'w') as file:
            file.write('one: {max_tunnels: 1, tunnel_unit: networks}\n')
        self.aggregates['all'].metadata = {'vswitch:profile': 'one'}
        self.options = {'switch_profiles_file': path}
        self.state = self.make_state(**self.options)

    def interface(self, network):
        """Return the Instance of one that tells of its interface."""
        return objects.Instance(info_cache=objects.InstanceInfoCache(
            network_info=network_model.NetworkInfo([
                {'network': {'id': network, 'meta': {}}}])))

    def test_what_was_placed_is_on_the_networks_it_asked_for(self):
        self.assertEqual('abcd', self.fits(self.spec(1, 'red')))
        self.state.placed(self.hosts['a'], self.spec(1, 'red'))
        self.assertEqual('abcd', self.fits(self.spec(2, 'red')))
        self.assertEqual('bcd', self.fits(self.spec(2, 'blue')))
        self.assertEqual('', self.fits(self.spec(2, 'red', 'blue')))
        # Reported by its host, which does not tell more.
        self.host('a', 1)
        self.assertEqual('bcd', self.fits(self.spec(2, 'blue')))
        # It moves, and is itself the one that has the tunnel.
        self.assertEqual('abcd', self.fits(self.spec(1, 'red')))
        self.assertEqual('abcd', self.fits(self.spec(1, 'blue')))

    def test_the_host_tells_and_the_inventory_knows_better(self):
        self.store.answers = [base.changes(1), dataclasses.replace(
            base.changes(2), placements=([base.instance_uuid(1)], [
                ('a', None, None, tunnels.Attachments(('green',)))]))]
        self.host('a', 1)
        self.assertEqual('bcd', self.fits(self.spec(2, 'red')))
        self.hosts['a'].instances[base.instance_uuid(1)] = \
            self.interface('red')
        self.clock.now += 2
        self.assertEqual('bcd', self.fits(self.spec(2, 'red')))
        # What a host lists is looked at when who is on it changes.
        self.host('a', 1, 3)
        self.hosts['a'].instances.update(
            (base.instance_uuid(number), self.interface('red'))
            for number in (1, 3))
        self.assertEqual('abcd', self.fits(self.spec(2, 'red')))
        self.host('a', 1)
        self.state.refresh()
        self.assertEqual('bcd', self.fits(self.spec(2, 'red')))
        self.assertEqual('abcd', self.fits(self.spec(2, 'green')))

    def test_what_is_remembered_of_placements_has_bounds(self):
        with mock.patch.object(claims, 'MAX_ATTACHED', 2):
            for number in (1, 2, 1, 3):
                self.state.assess(list(self.hosts.values()),
                                  self.spec(number, 'red'))
                self.state.placed(self.hosts['a'], self.spec(number, 'red'))
        self.assertEqual([base.instance_uuid(number) for number in (1, 3)],
                         list(self.state._residency._attached))


if __name__ == '__main__':
    unittest.main()
