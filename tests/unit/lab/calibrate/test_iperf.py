# SPDX-License-Identifier: Apache-2.0

import subprocess
import unittest

from tests.unit.lab.calibrate import outputs
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import iperf

udp = outputs.udp
tcp = outputs.tcp


class Process:
    """A client that has ended, or never ends."""

    def __init__(self, output, ends=True):
        self._output, self._ends, self.killed = output, ends, False

    def communicate(self, timeout=None):
        if not self._ends and not self.killed:
            raise subprocess.TimeoutExpired('iperf3', timeout)
        return self._output, ''

    def poll(self):
        return 0 if self._ends or self.killed else None

    def kill(self):
        self.killed = True


class TestParse(unittest.TestCase):

    def test_udp_counts_ip_packets_that_arrived(self):
        # 72 bytes of payload are packets of 100 bytes, 800 bits.
        rates = iperf.parse(udp(10000, 2500, 72))
        self.assertAlmostEqual(10000 * 800 / 2 / 1e3, rates.sent_kbps)
        self.assertAlmostEqual(7500 * 800 / 2 / 1e3, rates.received_kbps)
        self.assertAlmostEqual(7500 / 2 / 1e3, rates.received_kpps)
        self.assertAlmostEqual(.25, rates.loss)

    def test_tcp_counts_what_the_program_got(self):
        rates = iperf.parse(tcp(2e9, 1.9e9))
        self.assertEqual((2e6, 1.9e6, 7), (
            rates.sent_kbps, rates.received_kbps, rates.retransmits))
        self.assertIsNone(rates.loss)
        self.assertIsNone(rates.received_kpps)

    def test_what_is_no_result_is_told(self):
        for text, message in (
                ('{"error": "unable to connect"}', 'unable to connect'),
                ('Segmentation fault', "output: 'Segmentation fault'; exp"),
                ('[]', "output: '\\[\\]'; expected the JSON"),
                ('{"start": {}}', 'no key .*expected the result'),
                (udp(0, 0, 72), 'no key .*packets')):
            with self.assertRaisesRegex(exceptions.CalibrationError, message):
                iperf.parse(text, 'iperf3 to x')


class TestMeasure(unittest.TestCase):

    def _clients(self, count):
        return [iperf.Client(lambda words: ['at', *words], f'192.0.2.{i}')
                for i in range(count)]

    def test_each_client_runs_at_its_place_with_its_share(self):
        commands = []

        def popen(argv, **_):
            commands.append(argv)
            return Process(udp(100, 0, 72))

        result = iperf.measure(self._clients(2), 'udp', 3, 72, 5000.0,
                               popen=popen)
        self.assertEqual(2, len(result))
        for i, argv in enumerate(commands):
            text = ' '.join(argv)
            self.assertTrue(text.startswith(f'at iperf3 -c 192.0.2.{i} '))
            for options in ('-t 3', '-u -l 72', '-b 5000000'):
                self.assertIn(options, text)

    def test_without_a_rate_clients_send_all_they_can(self):
        commands = []

        def popen(argv, **_):
            commands.append(' '.join(argv))
            return Process(tcp(1, 1) if len(commands) > 1 else udp(1, 0, 72))

        iperf.measure(self._clients(1), 'udp', 1, 72, popen=popen)
        iperf.measure(self._clients(1), 'tcp', 1, streams=4, popen=popen)
        self.assertIn('-b 0', commands[0])
        self.assertIn('-P 4', commands[1])
        self.assertNotIn('-b', commands[1])

    def test_a_client_that_hangs_is_ended_and_told(self):
        hanging = Process('', ends=False)
        processes = iter([Process(udp(1, 0, 72)), hanging])
        with self.assertRaisesRegex(exceptions.CalibrationError,
                                    'to 192.0.2.1: iperf3 has not ended'):
            iperf.measure(self._clients(2), 'udp', 1, 72,
                          popen=lambda *_, **__: next(processes))
        self.assertTrue(hanging.killed)

    def test_rates_of_several_add_up(self):
        total = iperf.together([iperf.parse(udp(100, 10, 72)),
                                iperf.parse(udp(300, 0, 72))])
        self.assertEqual((400, 10), (total.packets, total.lost))
        self.assertAlmostEqual(.025, total.loss)
        self.assertIsNone(iperf.together(
            [iperf.parse(tcp(1, 1)), iperf.parse(tcp(1, 1))]).packets)
