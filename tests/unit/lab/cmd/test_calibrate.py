# SPDX-License-Identifier: Apache-2.0

import json
import os
from unittest import mock

from tests.unit.cmd import commands
from tests.unit.lab.calibrate import base
from tests.unit.lab.calibrate import outputs
from vswitch_aware_scheduler.lab.calibrate import machine
from vswitch_aware_scheduler.lab.cmd import calibrate
from vswitch_aware_scheduler.vswitch import profile


class TestCalibrate(base.NamespacesTestCase):

    def run_command(self, *words):
        return commands.run(calibrate.main, [
            *words, '--state-dir', str(self.state)])

    def assert_fails(self, message, *words, status=1):
        exit_status, _, errors = self.run_command(*words)
        self.assertEqual(status, exit_status, errors)
        self.assertIn(message, errors)

    def _root(self):
        self.enterContext(mock.patch.object(os, 'geteuid', lambda: 0))
        self.program('iperf3', '#!/bin/sh\nexit 1\n')

    def test_only_root_may_and_is_told_so(self):
        with mock.patch.object(os, 'geteuid', lambda: 1000):
            self.assert_fails('user id: 1000; expected 0: only root', 'local')

    def test_a_missing_program_names_its_package(self):
        self._root()
        with mock.patch.object(machine, '_PATH', '/nowhere'):
            self.assert_fails('program ip: not installed; install the package '
                              'iproute2', 'local')

    def test_what_the_machine_cannot_do_is_an_error(self):
        self._root()
        self.assert_fails('no interface of type gretap', 'local',
                          '--encapsulation', 'gre')
        self.assertEqual([], self.namespaces())

    def test_check_says_of_each_topology_whether_it_can_be(self):
        self._root()
        status, output, _ = self.run_command('check', '--json')
        self.assertEqual(0, status)
        lines = {(line['switch'], line['encapsulation']): line
                 for line in json.loads(output)['topologies']}
        self.assertEqual(12, len(lines))
        self.assertTrue(lines['linuxbridge', 'vxlan']['possible'])
        self.assertIn('gretap', lines['linuxbridge', 'gre']['reason'])
        status, output, _ = self.run_command('check')
        self.assertIn('linuxbridge  vxlan    yes', output)

    def test_clean_removes_what_was_left(self):
        self._root()
        self.state.mkdir()
        (self.there / 'vswcal-0a1b2c-h1').touch()
        (self.state / 'vswcal-0a1b2c.json').write_text(json.dumps({
            'run': '0a1b2c', 'pid': os.getpid(), 'started': 1,
            'namespaces': ['vswcal-0a1b2c-h1']}))
        status, output, errors = self.run_command('clean', '--json')
        self.assertEqual((0, {'removed_runs': ['0a1b2c']}),
                         (status, json.loads(output)))
        self.assertIn('interrupted run 0a1b2c', errors)
        self.assertEqual([], self.namespaces())
        self.assertEqual('Nothing was left behind.\n',
                         self.run_command('clean')[1])

    def test_wrong_arguments_are_told_before_anything_is_done(self):
        self._root()
        for arguments, status, message in (
                (['--sizes', '88,x'], 2, "'88,x'; expected a list of whole"),
                (['--sizes', '20'], 1, 'packet size: 20; expected a whole'),
                (['--max-busy', '120'], 2, "'120'; expected a share of 0"),
                (['--retries', '-1'], 1, 'retries: -1; expected a whole'),
                (['--name', 'a b'], 1, "name: 'a b'; expected text"),
                (['--output', '/nowhere/p.yaml'], 1,
                 "output: '/nowhere/p.yaml'; expected a file in a folder"),
                (['--encapsulation', 'stt'], 2, "invalid choice: 'stt'")):
            self.assert_fails(message, 'local', *arguments, status=status)
        self.assertFalse(self.state.exists())

    def test_a_file_with_other_profiles_is_refused_before_measuring(self):
        self._root()
        output = self.root / 'site.yaml'
        output.write_text('mine: {saturation_kbps: 5}\n')
        self.program('ssh', '#!/bin/sh\nexit 9\n')
        for command in (
                ['local'],
                ['remote', '--sender', 'a', '--receiver', 'b=192.0.2.1'],
                ['import', '--format', 'vsperf', self._vsperf()]):
            self.assert_fails('has other profiles (mine); expected a new file',
                              *command, '--output', str(output))
        self.assertEqual('mine: {saturation_kbps: 5}\n', output.read_text())
        self.assertEqual([], self.namespaces())

    def test_import_counts_the_rows_that_the_options_choose(self):
        path = self.root / 'result.csv'
        path.write_text(outputs.SCALABILITY + '5,64,b2b,pvp,1,L4\n'
                        + '7000000,64,p2p,p2p,1,L4\n')
        words = ['import', '--format', 'vsperf', str(path), '--json']
        self.assert_fails('deployments: p2p, pvp; expected one', *words)
        status, output, _ = self.run_command(
            *words, '--deployment', 'pvp', '--streams', '8000')
        self.assertEqual((0, 6200.0),
                         (status, json.loads(output)['packet_rate_kpps']))

    def _vsperf(self):
        path = self.root / 'result.csv'
        path.write_text(outputs.VSPERF)
        return str(path)

    def test_import_writes_a_profile_that_the_filter_can_read(self):
        output = self.root / 'p.yaml'
        status, printed, errors = self.run_command(
            'import', '--format', 'vsperf', self._vsperf(), '--switch',
            'ovs', '--name', 'lab', '--output', str(output), '--json')
        self.assertEqual(0, status, errors)
        loaded = profile.load_profiles(output)['lab']
        answer = json.loads(printed)
        rates = {46.0: 368000.0, 1500.0: 6000000.0}
        self.assertEqual(rates, loaded.saturation_by_packet_bytes)
        self.assertEqual(rates, {float(size): rate for size, rate in answer[
            'profile']['saturation_by_packet_bytes'].items()})
        self.assertEqual((1000.0, 1500.0, 'p2p'), (
            loaded.packet_rate_kpps, loaded.typical_packet_bytes,
            loaded.provenance['deployment']))
        self.assertEqual((1000.0, 6e6), (answer['packet_rate_kpps'],
                                         answer['saturation_kbps']))

    def test_import_prints_a_table_for_a_person(self):
        status, output, _ = self.run_command(
            'import', '--format', 'vsperf', self._vsperf())
        self.assertEqual(0, status)
        self.assertIn('Packet rate 1000.0 kpps, saturation 6000000 kbit/s in '
                      'packets of 1500 bytes', output)
