# SPDX-License-Identifier: Apache-2.0
"""vswitch-calibrate on the machine itself: real namespaces and switches.

Shapes are looked at, never absolute rates: the machine may be busy.
"""

import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

from tests.calibrated import calibrator
from vswitch_aware_scheduler.lab.calibrate import machine
from vswitch_aware_scheduler.lab.calibrate import namespaces
from vswitch_aware_scheduler.vswitch import profile

SMALL = ('--sizes', '88,1500', '--pairs', '1,2', '--seconds', '1',
         '--repeats', '1', '--receivers', '0', '--max-busy', '100')


class TestCalibrate(calibrator.Calibrator, unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.prepare()

    def _measure(self, switch, encapsulation, *words):
        return self.measure(switch, encapsulation, *SMALL, *words)

    def test_a_measured_profile_is_accepted(self):
        output = self.root / 'profile.yaml'
        answer = self._measure('linuxbridge', 'none', '--output',
                               str(output))
        found, = profile.load_profiles(output).values()
        self.assertEqual(found.packet_rate_kpps, answer['packet_rate_kpps'])
        self.assertEqual(
            {(88, 1), (88, 2), (1500, 1), (1500, 2)},
            {(line['packet_bytes'], line['pairs'])
             for line in answer['figures']})
        self.assertGreater(len(answer['samples']), 8)
        # A packet of 17 times the bytes takes little more CPU. What disturbs
        # a measurement only adds to it, so the least counts.
        costs = {size: min(line['cpu_us_per_packet']
                           for line in answer['figures']
                           if line['packet_bytes'] == size)
                 for size in (88, 1500)}
        self.assertLess(costs[1500], 4 * costs[88])

    def test_vxlan_costs_more_than_a_flat_network(self):
        def cost(encapsulation):
            return statistics.median(
                line['cpu_us_per_packet'] for line in self._measure(
                    'linuxbridge', encapsulation)['figures'])

        self.assertGreater(cost('vxlan'), cost('none'))

    def test_open_vswitch_in_user_space_carries_each_encapsulation(self):
        for encapsulation in ('none', 'vxlan', 'gre', 'geneve'):
            with self.subTest(encapsulation=encapsulation):
                answer = self._measure(
                    'ovs-netdev', encapsulation, '--sizes', '1500',
                    '--pairs', '1')
                self.assertGreater(answer['packet_rate_kpps'], 0)

    def _start(self):
        process = subprocess.Popen(
            [*calibrator.COMMAND, 'local', *SMALL, '--state-dir',
             str(self.state)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while len(calibrator.namespaces() - self.before[0]) < 6:
            self.assertLess(time.monotonic(), deadline, 'nothing was made')
            time.sleep(.05)
        return process

    def test_a_killed_run_leaves_nothing_after_the_next_one(self):
        process = self._start()
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertNotEqual(self.before[0], calibrator.namespaces())
        done = self.command('clean', '--json')
        self.assertEqual(1, len(json.loads(done.stdout)['removed_runs']))
        self.assert_nothing_left()

    def test_a_run_that_is_told_to_end_leaves_nothing_itself(self):
        process = self._start()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(128 + signal.SIGTERM, process.wait(60))
        self.assert_nothing_left()

    def test_two_runs_at_a_time_are_refused(self):
        process = self._start()
        there = calibrator.namespaces()
        done = self.command('local', *SMALL)
        self.assertEqual(1, done.returncode)
        self.assertIn(f'still running as process {process.pid}', done.stderr)
        self.assertEqual(there, calibrator.namespaces() & there)


class TestRemote(calibrator.Programs, unittest.TestCase):
    """Two machines, which are namespaces with an SSH server each."""

    def setUp(self):
        super().setUp()
        self.need('ip', 'iperf3', 'ssh', 'sshd', 'ssh-keygen')
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.root = pathlib.Path(directory)
        self.run_of = self.enterContext(namespaces.Run(
            ['a', 'b'], self.root / 'state'))
        for short in ('a', 'b'):
            self.run_of.add(short)
        self.run_of.ip('a', 'link', 'add', 'v0', 'type', 'veth', 'peer',
                       'name', 'v0', 'netns', self.run_of.name('b'))
        for short, address in (('a', '198.18.0.1/30'),
                               ('b', '198.18.0.2/30')):
            self.run_of.ip(short, 'address', 'add', address, 'dev', 'v0')
            self.run_of.ip(short, 'link', 'set', 'v0', 'up')
        for name in ('host', 'user'):
            machine.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f',
                         self.root / name])
        pathlib.Path('/run/sshd').mkdir(mode=0o755, exist_ok=True)
        (self.root / 'sshd_config').write_text('\n'.join([
            'Port 2222', f'HostKey {self.root}/host', 'UsePAM no',
            f'AuthorizedKeysFile {self.root}/user.pub', 'StrictModes no',
            'PermitRootLogin prohibit-password', 'PidFile none', '']))
        for short in ('a', 'b'):
            self.run_of.start(short, 'sshd', '-D', '-f',
                              self.root / 'sshd_config')
        self._await_login()

    def _options(self):
        return ['Port=2222', f'IdentityFile={self.root}/user',
                'StrictHostKeyChecking=no', 'LogLevel=ERROR',
                f'UserKnownHostsFile={self.root}/known']

    def _await_login(self):
        words = [word for option in self._options()
                 for word in ('-o', option)]
        for _ in range(30):
            done = self.run_of.run('a', 'ssh', '-o', 'BatchMode=yes', *words,
                                   'root@198.18.0.2', 'true', check=False)
            if not done.returncode:
                return
            time.sleep(.2)
        self.skipTest(f'root cannot log in by key: {done.stderr.strip()}')

    def _remote(self, *words):
        options = [word for option in self._options()
                   for word in ('--ssh-option', option)]
        return self.run_of.run(
            'a', sys.executable, *calibrator.COMMAND[1:], 'remote', '--sender',
            'root@198.18.0.1', '--receiver', 'root@198.18.0.2', *SMALL,
            *options, *words, timeout_seconds=200, check=False)

    def test_two_machines_are_measured_over_their_link(self):
        output = self.root / 'p.yaml'
        done = self._remote('--sizes', '512', '--json', '--output',
                            str(output))
        self.assertEqual(0, done.returncode, done.stderr)
        answer = json.loads(done.stdout)
        found, = profile.load_profiles(output).values()
        self.assertEqual({(512, 1), (512, 2)}, {
            (line['packet_bytes'], line['pairs'])
            for line in answer['figures']})
        self.assertEqual(('v0', 1500), (found.provenance['nic'],
                                        found.provenance['mtu']))
        left = machine.run(['ip', 'netns', 'pids', self.run_of.name('b')])
        names = {pathlib.Path('/proc', pid, 'comm').read_text().strip()
                 for pid in left.stdout.split()}
        self.assertNotIn('iperf3', names)

    def test_packets_that_do_not_fit_the_link_are_refused(self):
        done = self._remote('--sizes', '9000')
        self.assertEqual(1, done.returncode)
        self.assertIn('packet size: 9000; expected at most the MTU 1500 of '
                      'v0 on root@198.18.0.1', done.stderr)


if __name__ == '__main__':
    unittest.main()
