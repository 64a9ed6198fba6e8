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
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import calibration
from vswitch_aware_scheduler.lab.calibrate import local_testbed
from vswitch_aware_scheduler.lab.calibrate import machine
from vswitch_aware_scheduler.lab.calibrate import namespaces
from vswitch_aware_scheduler.lab.calibrate import plan as plans
from vswitch_aware_scheduler.lab.calibrate import topology
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
        self.assertTrue(0 <= found.provenance['others_share'] <= 1)
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


class TestPaths(calibrator.Programs, unittest.TestCase):
    """A path that loses packets without a word, and a link with a rate."""

    SIZES = (512, 1500)

    def setUp(self):
        super().setUp()
        self.need('ip', 'iperf3', 'tc')
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.plan = plans.Plan(sizes=self.SIZES, pairs=(1,), seconds=1,
                               repeats=1, receivers=0)
        self.run_of = self.enterContext(namespaces.NamespaceRun(
            topology.names(self.plan.vms), directory))

    def _samples(self, change):
        """Return the samples between hosts of a network after a change."""
        class Place(local_testbed.LocalPlace):
            placements = ('cross',)

            def can_ping(self):
                return False

            def build(place):
                super().build()
                change(self.run_of)

        network = topology.Topology(
            self.run_of, 'linuxbridge', 'none', self.plan.vms, self.plan.mtu)
        return calibration.Calibration(
            Place(network, self.plan), self.plan, max_busy=1.0,
            retries=0).run()

    def test_packets_that_never_arrive_are_no_rate(self):
        def shrink(run):
            # A device drops what is larger than its MTU.
            run.ip('h2v1', 'link', 'set', 'eth0', 'mtu', '1400')

        samples = self._samples(shrink)
        self.assertTrue(any(sample.kept for sample in samples
                            if sample.packet_bytes == 512))
        lost = [sample for sample in samples if sample.packet_bytes == 1500]
        self.assertTrue(lost)
        for sample in lost:
            self.assertFalse(sample.kept)
            self.assertIn('no packet arrived', sample.reason)
        with self.assertRaisesRegex(exceptions.CalibrationError,
                                    'all samples'):
            calibration.make_profile(
                calibration.figures(lost), self.plan, calibration.Subject(
                    'x', 'x', 'none', {'date': 'd', 'tool': 't'}))

    def test_no_rate_exceeds_that_of_the_link(self):
        def shape(run):
            run.run('h1', 'tc', 'qdisc', 'add', 'dev', 'u0', 'root', 'tbf',
                    'rate', '100mbit', 'burst', '16kb', 'latency', '10ms')

        samples = [sample for sample in self._samples(shape) if sample.kept]
        self.assertEqual({('udp', 512), ('udp', 1500)}, {
            (sample.kind, sample.packet_bytes) for sample in samples
            if sample.kind == 'udp'})
        self.assertTrue(any(sample.kind == 'tcp' for sample in samples))
        for sample in samples:
            self.assertLess(sample.received_kbps, 102e3)


class TestRemote(calibrator.Programs, unittest.TestCase):
    """Two machines, which are namespaces with an SSH server each."""

    def setUp(self):
        super().setUp()
        self.need('ip', 'iperf3', 'ssh', 'sshd', 'ssh-keygen')
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.root = pathlib.Path(directory)
        self.run_of = self.enterContext(namespaces.NamespaceRun(
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

    def _remote(self, *words, sizes=SMALL):
        options = [word for option in self._options()
                   for word in ('--ssh-option', option)]
        return self.run_of.run(
            'a', sys.executable, *calibrator.COMMAND[1:], 'remote', '--sender',
            'root@198.18.0.1', '--receiver', 'root@198.18.0.2',
            '--max-busy', '100', *sizes,
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

    def test_a_smaller_link_needs_no_other_sizes(self):
        for short in ('a', 'b'):
            self.run_of.ip(short, 'link', 'set', 'v0', 'mtu', '1450')
        done = self._remote('--quick', '--pairs', '1', '--json', sizes=())
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual([88, 512, 1450],
                         json.loads(done.stdout)['plan']['sizes'])

    def test_packets_that_do_not_fit_the_link_are_refused(self):
        done = self._remote('--sizes', '9000')
        self.assertEqual(1, done.returncode)
        self.assertIn('packet size: 9000; expected at most the MTU 1500 of '
                      'the link', done.stderr)


if __name__ == '__main__':
    unittest.main()
