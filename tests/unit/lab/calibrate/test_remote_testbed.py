# SPDX-License-Identifier: Apache-2.0

import pathlib
import shlex
import unittest

from tests.unit.lab.calibrate import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import machine
from vswitch_aware_scheduler.lab.calibrate import plan as plans
from vswitch_aware_scheduler.lab.calibrate import remote_testbed

# Answers of the machine, by a word of the question.
_SSH = '''#!/bin/sh
printf '%s\\n' "$*" >> {log}
case "$*" in
*"command -v"*) cat {root}/has ;;
*--version*) echo "iperf 3.$(cat {root}/minor) (cJSON 1.7.15)" ;;
*"address show to 192.0.2.2"*) echo "3: eth6    inet 192.0.2.2/24 brd x" ;;
*"address show"*) ;;
*eth6*rx_packets*|*rx_packets*eth6*) echo "5 600 1 66" ;;
*"route get"*) echo "192.0.2.2 dev eth5 src 192.0.2.1 uid 0" ;;
*/sys/class/net/*) printf '9000\\n25000\\nmlx5_core\\n6.1.0\\n'
    printf 'model name : A CPU\\ncpu MHz : 2500.5\\n' ;;
*ethtool*) printf 'Features for eth5:\\n'
    printf 'tcp-segmentation-offload: on\\nrx-vlan-offload: on\\n'
    printf 'generic-receive-offload: off\\n' ;;
*ping*) echo "rtt min/avg/max/mdev = 0.311/0.337/0.402/0.010 ms" ;;
*) exit 7 ;;
esac
'''


class TestRemote(base.NamespacesTestCase):

    def setUp(self):
        super().setUp()
        self.program('ssh', _SSH.format(log=self.log, root=self.root))
        (self.root / 'has').write_text('/usr/bin/iperf3\n')
        (self.root / 'minor').write_text('12')

    def _place(self, senders=('u@a',), receivers=('u@b=192.0.2.2',)):
        return remote_testbed.RemotePlace(
            [remote_testbed.Host.parse(text) for text in senders],
            [remote_testbed.Host.parse(text) for text in receivers], 4,
            ['-o', 'Port=2222'])

    def assert_fails(self, message, function, *arguments):
        with self.assertRaisesRegex(exceptions.CalibrationError,
                                    f'host {message}'):
            function(*arguments)

    def test_a_host_receives_where_it_is_told_or_where_ssh_goes(self):
        self.assertEqual(remote_testbed.Host('u@b', '192.0.2.2'),
                         remote_testbed.Host.parse('u@b=192.0.2.2'))
        self.assertEqual(remote_testbed.Host('u@b', 'b'),
                         remote_testbed.Host.parse('u@b'))

    def test_what_ssh_would_take_for_an_option_is_refused(self):
        for text in ('-oProxyCommand=x', 'a b', 'u@b=-x', ''):
            with self.assertRaisesRegex(exceptions.InvalidInput,
                                        'expected user@name'):
                remote_testbed.Host.parse(text)

    def test_the_link_is_described(self):
        self.assertEqual(
            {'nic': 'eth5', 'mtu': 9000, 'speed_mbps': 25000,
             'driver': 'mlx5_core', 'kernel': '6.1.0', 'cpu': 'A CPU',
             'cpu_mhz': 2500.5, 'offloads': 'tcp-segmentation-offload'},
            self._place().link())

    def test_an_address_on_no_interface_is_refused(self):
        self.assert_fails(
            'u@b: address 192.0.2.9: on no interface; expected',
            self._place(receivers=('u@b=192.0.2.9',)).check)

    def test_the_counters_are_those_of_the_interface_of_the_address(self):
        place = self._place()
        place.check()
        self.assertEqual(
            machine.InterfaceCounters(5, 600, 1, 66),
            place.read_receivers(plans.Cell('udp', 'cross', 88, 4)))

    def test_the_versions_of_both_ends_are_recorded(self):
        place = self._place()
        self.assertEqual({'iperf_version_senders': 'iperf 3.12',
                          'iperf_version_receivers': 'iperf 3.12'},
                         place.versions())

    def test_a_host_without_iperf3_is_named(self):
        (self.root / 'has').write_text('')
        self.assert_fails('u@[ab]: program iperf3: not installed; .*package',
                          self._place().check)

    def test_pairs_use_the_machines_in_turn_with_a_port_each(self):
        place = self._place(('u@a', 'u@c'), ('u@b=192.0.2.2',))
        clients = place.clients(plans.Cell('udp', 'cross', 88, 4))
        self.assertEqual([5301, 5302, 5303, 5304],
                         [client.port for client in clients])
        self.assertEqual(['u@a', 'u@c', 'u@a', 'u@c'], [
            client.argv(['iperf3'])[-2] for client in clients])
        many = place.clients(plans.Cell('udp', 'many', 88, 3))
        self.assertEqual({'u@a'}, {client.argv(['iperf3'])[-2]
                                   for client in many})

    def test_words_reach_the_other_shell_as_they_are(self):
        argv = self._place().clients(plans.Cell('udp', 'cross', 88, 1))[
            0].argv(['iperf3', '-c', 'a; rm b'])
        self.assertEqual(['iperf3', '-c', 'a; rm b'], shlex.split(argv[-1]))
        self.assertIn('BatchMode=yes', argv)
        self.assertIn('Port=2222', argv)

    def test_round_trip_times_are_read(self):
        self.assertAlmostEqual(.337, self._place().rtt_ms(
            plans.Cell('rtt', 'cross')))

    def test_a_host_that_does_not_answer_is_named(self):
        self.assert_fails('u@a: .*exit status 7', self._place().ask,
                          remote_testbed.Host('u@a'), 'true')


class TestParseCpu(unittest.TestCase):

    def _text(self, seconds):
        tick = machine.os.sysconf('SC_CLK_TCK')

        def process(pid, name, own):
            return (f'{pid} ({name}) S 1 0 0 0 0 0 0 0 0 0 '
                    f'{round(own * tick)} 0 0 0 20 0 1 0 99')

        total = ' '.join(str(round(value * tick)) for value in (
            sum(seconds), 0, 0, 0, 0, 0, .5, 0))
        return '\n'.join([f'cpu  {total}', f'cpu0 {total}', '', '',
                          process(5, 'iperf3', seconds[0]),
                          process(6, 'a (b) c', seconds[1]),
                          process(7, 'ovs-vswitchd', seconds[2])])

    def test_programs_of_ours_are_told_from_others_by_name(self):
        first = machine.parse_cpu(self._text((1, 1, 1)), ('iperf3',),
                                  clock=lambda: 10.0)
        last = machine.parse_cpu(self._text((2, 1.5, 3)), ('iperf3',),
                                 clock=lambda: 20.0)
        use = machine.CpuUse.between(first, last)
        self.assertAlmostEqual((.5 + 2) / 10, use.others_share)
        self.assertAlmostEqual(.2, use.switch_cores)

    def test_cpu_times_of_this_machine_are_parsed_as_they_are_read(self):
        text = pathlib.Path('/proc/stat').read_text() + '\n\n' + \
            pathlib.Path('/proc/self/stat').read_text()
        self.assertEqual(machine.read_cpu().cores,
                         machine.parse_cpu(text, ('x',)).cores)

    def test_what_is_no_proc_is_told(self):
        with self.assertRaisesRegex(exceptions.CalibrationError,
                                    ": 'Windows'; expected the CPU times"):
            machine.parse_cpu('Windows', ())
