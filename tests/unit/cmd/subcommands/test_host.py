# SPDX-License-Identifier: Apache-2.0

import os

from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import neutron_api
from tests.unit.cmd import command_case
from tests.unit.cmd import commands
from tests.unit.store import base
from tests.unit.vswitch import agents


class HostTestCase(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.neutron = self.enterContext(neutron_api.NeutronApi())
        self.options = [
            '[vswitch_inventory]', 'auth_type = none', 'connect_retries = 0',
            f'endpoint = {self.neutron.url}',
            f'network_url = {self.neutron.url}']
        self._configure(*self.options)
        self.neutron.agents = [
            agents.open_vswitch('a', ['vxlan']),
            agents.nic_switch('b', ens1f0=(70, 80)),
            agents.linux_bridge('c')]

    def stored(self):
        return {host['host']: (host['profile'], host['overrides'],
                               host['source'])
                for host in self.ask('host', 'list')['hosts']}

    def actions(self, *words):
        return {host['host']: host['action'] for host
                in self.ask('host', 'discover', *words)['hosts']}


class DiscoverTestCase(HostTestCase):

    def test_discovery_proposes_profiles_and_writes_nothing(self):
        answer = self.ask('host', 'discover')
        self.assertFalse(answer['applied'])
        self.assertFalse(os.path.exists(self.path))
        self.assertEqual(
            [('a', 'ovs-vxlan', {}, 'new'),
             ('b', 'mellanox-eswitch', {'line_rate_kbps': 70}, 'new'),
             ('c', None, {}, 'none')],
            [tuple(host[key] for key in ('host', 'profile', 'overrides',
                                         'action'))
             for host in answer['hosts']])
        self.assertEqual(['vxlan'],
                         answer['hosts'][0]['agents'][0]['tunnel_types'])

    def test_the_reason_and_remarks_are_printed(self):
        output = self.text('host', 'discover')
        _, row_a, row_b, third = commands.table(output)
        self.assertEqual(['a', 'ovs-vxlan', '-', 'new', '-'], row_a[:5])
        self.assertRegex(row_a[5], 'Open vSwitch agent .*tunnels vxlan')
        self.assertEqual(['b', 'mellanox-eswitch', 'line_rate_kbps=70'],
                         row_b[:3])
        self.assertRegex(third[5], '.*linuxbridge:vxlan$')
        self.assertIn('- b: line_rate_kbps is 70, as the operator', output)
        self.assertIn('Nothing was written', output)

    def test_one_host_can_be_discovered_alone(self):
        self.make_store()
        self.assertEqual({'b': 'new'}, self.actions('--apply', '--host', 'b'))
        self.assertEqual({'b'}, self.stored().keys())

    def test_a_second_run_changes_nothing(self):
        status, output, errors = self.run_command('host', 'discover',
                                                  '--apply')
        self.assertEqual(0, status)
        self.assertIn('made a new store', errors)
        self.assertNotIn('Nothing was written', output)
        expected = {'a': ('ovs-vxlan', {}, 'discovered'),
                    'b': ('mellanox-eswitch', {'line_rate_kbps': 70},
                          'discovered')}
        self.assertEqual(expected, self.stored())
        for options in ((), ('--apply',), ('--apply', '--force')):
            self.assertEqual({'a': 'same', 'b': 'same', 'c': 'none'},
                             self.actions(*options))
        self.assertEqual(expected, self.stored())
        self.assertEqual(1, self.ask('db', 'version')['generation'])

    def test_what_was_set_by_hand_stays_unless_it_is_forced(self):
        self.run_command('host', 'set', 'a', 'ovs-gre')
        output = self.text('host', 'discover', '--apply')
        self.assertEqual(
            ['a', 'ovs-vxlan', '-', 'kept', 'ovs-gre (operator)'],
            commands.table(output)[1][:5])
        self.assertIn('- a: what operator wrote stays; --force', output)
        self.assertEqual(('ovs-gre', {}, 'operator'), self.stored()['a'])
        self.assertEqual('changed', self.actions('--apply', '--force')['a'])
        self.assertEqual(('ovs-vxlan', {}, 'discovered'), self.stored()['a'])

    def test_profiles_of_switches_can_be_given(self):
        self.configure_profiles('mine: {saturation_kbps: 5}', *self.options)
        self.run_command('db', 'sync')
        self.assertEqual({'a': 'new', 'b': 'new', 'c': 'new'}, self.actions(
            '--map', 'linuxbridge=mine', '--map', 'ovs-system=ovs-gre',
            '--apply'))
        self.assertEqual('mine', self.stored()['c'][0])
        self.assertEqual('ovs-vxlan', self.stored()['a'][0])
        self.assert_fails("'x=mine'.*expected one of", 'host', 'discover',
                          '--map', 'x=mine')

    def test_discovery_needs_the_user_of_the_inventory(self):
        self._configure()
        self.assert_fails(r'auth_type.*\[vswitch_inventory\]: not set',
                          'host', 'discover')
        self._configure('[vswitch_inventory]', 'path = inventory.csv')
        self.assert_fails('auth_type', 'host', 'discover')

    def test_what_goes_wrong_with_neutron_is_told(self):
        self.neutron.faults[:] = [stand_ins.status(403)]
        self.assert_fails('agents: seen HTTP 403', 'host', 'discover',
                          '--apply')
        # Nor was anything made.
        self.assertFalse(os.path.exists(self.path))


class RecordTestCase(HostTestCase):

    def test_a_name_that_no_host_can_have_is_refused(self):
        for name in ('a b;c', '', 'a\x1b[1m', 'h' * 256, 'höst', 'a/b'):
            self.assert_fails('host: .*; expected its name in Nova', 'host',
                              'set', name, 'ovs-flat')
        self.make_store()
        for name in ('compute-1.example.org', 'a_b', 'fe80::1'):
            self.text('host', 'set', name, 'ovs-flat')

    def test_what_is_set_is_listed_until_it_is_removed(self):
        overrides = {'line_rate_kbps': 1e6, 'max_tunnels': 7}
        self.make_store()
        self.assertEqual(
            {'host': 'h', 'profile': 'ovs-flat', 'generation': 1,
             'overrides': overrides}, self.ask(
                'host', 'set', 'h', 'ovs-flat', '--override',
                'line_rate_kbps=1e6', '--override', 'max_tunnels=7'))
        self.run_command('host', 'set', 'i', '--override', 'max_tunnels=8')
        self.assertEqual({'h': ('ovs-flat', overrides, 'operator'),
                          'i': (None, {'max_tunnels': 8}, 'operator')},
                         self.stored())
        self.assertEqual(
            ['h', 'ovs-flat', 'line_rate_kbps=1000000, max_tunnels=7',
             'operator'], commands.table(self.text('host', 'list'))[1][:4])
        self._configure('default_switch_profile = ovs-gre')
        self.assertEqual(
            {'host': 'h', 'removed_profile': 'ovs-flat', 'generation': 3,
             'removed_overrides': overrides, 'default_profile': 'ovs-gre'},
            self.ask('host', 'remove', 'h'))
        self.assertEqual({'i'}, self.stored().keys())
        self.assert_fails("profile of a host in the store .*: 'h'; "
                          'expected a host', 'host', 'remove', 'h')

    def test_a_host_that_nova_does_not_have_is_stored_with_a_warning(self):
        target = self.make_store()
        target.write_fleet({'host': {
            name: {'in_nova': name != 'compute9'}
            for name in ('compute7', 'compute8', 'compute9')}}, base.NOW)
        for name, warning in (
                ('compute7', ''),
                ('compute07', 'compute07 (nearest name: compute7);'),
                # It has a profile already.
                ('compute9', 'compute9 (nearest name: compute8);'),
                ('x', 'x;')):
            status, output, errors = self.run_command('host', 'set', name,
                                                      'ovs-flat')
            self.assertEqual((0, name in self.stored()), (status, True))
            self.assertIn(name, output)
            self.assertIn(warning, errors)
            self.assertEqual(bool(warning), bool(errors))
        target.write_fleet({'host': {'compute7': {}}}, base.NOW)
        self.assertEqual('', self.run_command('host', 'set', 'x',
                                              'ovs-flat')[2])

    def test_what_makes_no_sense_is_refused(self):
        for message, options in (
                ("'gone'; expected one of", ['gone']),
                ('neither a profile nor', []),
                ('a key: .*nearest name: line_rate',
                 ['--override', 'line_rat=5']),
                ('max_tunnels: .x', ['--override', 'max_tunnels=x']),
                ('max_tunnels: ', ['--override', 'max_tunnels'])):
            self.assert_fails(f'host h: .*{message}', 'host', 'set', 'h',
                              *options)


class ExportTestCase(HostTestCase):

    def export(self, *words):
        return self.ask('profile', 'export', *words)

    def test_a_profile_is_printed(self):
        # Half of 1.241 Gbit/s in each direction.
        self.assertIn('[ovs]\nresource_provider_bandwidths = '
                      'br-ex:620500:620500\n', self.text(
                          'profile', 'export', 'ovs-vxlan', '--format',
                          'neutron-ovs', '--device', 'br-ex'))
        self.assertEqual(1241000, self.export(
            'ovs-vxlan', '--format', 'provider')['inventory'][
                'bandwidth_kbps'])

    def test_a_host_has_its_overrides(self):
        self.run_command('host', 'discover', '--apply')
        answer = self.export('--host', 'b', '--format', 'neutron-sriov',
                             '--device', 'ens1f0')
        self.assertEqual(('mellanox-eswitch', {'line_rate_kbps': 70}),
                         (answer['profile'], answer['overrides']))
        self.assertIn('ens1f0:70:70', answer['text'])
        self.assertEqual(self.export('ovs-vxlan', '--format', 'provider'),
                         self.export('--host', 'a', '--format', 'provider'))

    def test_a_host_without_a_name_has_the_default_profile(self):
        self._configure('default_switch_profile = ovs-gre')
        self.run_command('host', 'set', 'h', '--override', 'max_tunnels=3')
        answer = self.export('--host', 'h', '--format', 'provider')
        self.assertEqual('ovs-gre', answer['profile'])
        self.assertIn('CUSTOM_VSWITCH_TUNNEL', answer['text'])

    def test_what_is_not_there_is_told(self):
        self.run_command('host', 'set', 'h', '--override', 'max_tunnels=3')
        for message, options in (
                ('profile: .gone', ['gone', '--format', 'provider']),
                ('profile: not given',
                 ['--host', 'h', '--format', 'provider']),
                ("profile of a host .*: 'x'", ['--host', 'x', '--format',
                                               'provider']),
                ('--device', ['ovs-flat', '--format', 'neutron-ovs'])):
            self.assert_fails(message, 'profile', 'export', *options)
        for options in (['--format', 'provider'], ['ovs-flat'],
                        ['ovs-flat', '--format', 'x'],
                        ['ovs-flat', '--host', 'h', '--format', 'provider']):
            self.assert_fails('usage', 'profile', 'export', *options, status=2)
