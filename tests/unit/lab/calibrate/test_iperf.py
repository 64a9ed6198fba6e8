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


class TestWire(unittest.TestCase):

    def test_a_datagram_above_the_mtu_is_several_packets(self):
        for payload, options, expected in (
                (1472, {}, (1, 1500)), (1452, {'ipv6': True}, (1, 1500)),
                (8192, {'mtu': 9000}, (1, 8220)),
                # 1,480 bytes of 8,200 fit beside a header of 20 bytes.
                (8192, {}, (6, 8200 + 6 * 20)),
                # 1,448 bytes of 1,480 fit beside headers of 48 bytes.
                (1472, {'ipv6': True}, (2, 1480 + 2 * 48))):
            self.assertEqual(expected, iperf.wire(payload, **options))


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

    def test_output_of_each_version_states_what_arrived(self):
        """Compare rates with those that the receivers counted.

        The files are the outputs of the versions in their names, without
        intervals. The numbers are what the receiver's own file of the same
        run states, or packets that a capture counted.
        """
        for name, packets, size, seconds in (
                ('3.1-udp', 11734 - 2632, 500, 1.00045),
                ('3.6-udp', 13134 - 2491, 500, 1.048948),
                ('3.9-udp', 13232, 500, 1.044059),
                ('3.9-server', 13232, 500, 1.044059),
                ('3.12-udp', 13217 - 8, 500, 1.000747),
                ('3.12-server', 51968, 500, 1.00012),
                ('3.16-udp', 12516 - 3189, 500, 1.014446),
                ('3.18-lossy', 119442, 1228, 2.182493),
                ('3.21-udp', 13287 - 1, 500, 1.003932),
                # Both directions.
                ('3.21-bidir', (6228984 + 6273352) / 472, 500, 1.005619),
                ('3.12-bidir', (4375912 + 4561408) / 472, 500, 1.018549),
                ('3.9-bidir', 10280 - 4717 + 11180 - 4869, 500, 1.156176),
                ('3.12-reverse', 5967496 / 472, 500, 1.000626),
                # The sender is newer: its file states no loss.
                ('3.18-to-3.12', 28939200 / 1200, 1228, 2.008),
                ('3.21-to-3.12', 11387 - 4548, 1228, 1.038402),
                # 1,831 datagrams in 6 fragments, 4,243 - 336 in 2.
                ('3.12-fragments', 1831 * 6, (8200 + 120) / 6, 2.003973),
                ('3.12-ipv6', 3907 * 2, (1480 + 96) / 2, 1.004122)):
            with self.subTest(name):
                rates = iperf.parse(outputs.iperf3(name), name)
                self.assertAlmostEqual(packets, rates.received_packets,
                                       delta=1)
                self.assertAlmostEqual(
                    1, rates.received_kbps * seconds * 1e3
                    / (packets * size * 8), delta=1e-3)

    def test_a_silent_receiver_received_nothing(self):
        for name in ('3.12-hole', '3.12-ipv6-hole', '3.16-hole', '3.21-hole'):
            with self.subTest(name):
                rates = iperf.parse(outputs.iperf3(name), name)
                self.assertEqual((0, 0, 1), (
                    rates.received_kbps, rates.received_packets, rates.loss))
        # Older versions do not report what the receiver counted.
        for name in ('3.6-hole', '3.9-hole'):
            with self.subTest(name), self.assertRaisesRegex(
                    exceptions.CalibrationError, 'no jitter; .*got nothing'):
                iperf.parse(outputs.iperf3(name), name)

    def test_a_server_that_sent_does_not_know_what_arrived(self):
        for name in ('3.12-reverse-server', '3.21-bidir-server'):
            with self.subTest(name), self.assertRaisesRegex(
                    exceptions.CalibrationError,
                    'JSON of a server that sent; expected .* the client'):
                iperf.parse(outputs.iperf3(name), name)

    def test_an_error_has_its_position(self):
        whole = outputs.iperf3('3.12-udp')
        for text, message in (
                ('{"error": "unable to connect"}', 'unable to connect'),
                ('Segmentation fault', "line 1, column 1: Expecting value: "
                 "'Segmentation fault'; expected the JSON"),
                ('[]', r"line 1, column 1: '\[\]'; expected the JSON"),
                ('', 'line 1, column 1: the text ends within'),
                (whole[:-60], 'line [0-9]+, column [0-9]+: .*the JSON'),
                ('{"a":\n -nan}', 'line 2, column 2: Expecting value'),
                ('{"a":\n NaN}', 'line 2, column 2: NaN is no number'),
                (whole + whole, 'line [0-9]{2,}, column 1: more text after '
                 'the first document'),
                ('{"event":"start","data":{}}\n{"event":"end","data":{}}\n',
                 'an event of --json-stream; expected'),
                ('{"start": {}}', 'no key .*expected the result'),
                (whole.replace('"lost_packets": 8', '"lost_packets": -8'),
                 'lost_packets: -8; expected a number >= 0'),
                (whole.replace('"bytes": 6234648', '"bytes": 1e999'),
                 'bytes: inf; expected a number >= 0')):
            with self.subTest(text[:20]), self.assertRaisesRegex(
                    exceptions.CalibrationError, message):
                iperf.parse(text, 'iperf3 to x')


class TestMeasure(unittest.TestCase):

    def _clients(self, count):
        return [iperf.Sender(lambda words: ['at', *words], f'192.0.2.{i}')
                for i in range(count)]

    def test_each_client_runs_at_its_place_with_its_share(self):
        for output, protocol, options, words in (
                (udp(100, 0, 72), 'udp', {'payload': 72, 'kbps': 5000.0},
                 '-u -l 72 -w 1M -b 5000000'),
                # Without a rate it sends all that it can.
                (udp(1, 0, 72), 'udp', {'payload': 72}, '-u -l 72 -w 1M -b 0'),
                (tcp(1, 1), 'tcp', {'streams': 4}, '-P 4')):
            commands = []

            def popen(argv, output=output, **_):
                commands.append(' '.join(argv))
                return Process(output)

            self.assertEqual(2, len(iperf.measure(
                self._clients(2), protocol, 3, popen=popen, **options)))
            for i, text in enumerate(commands):
                self.assertTrue(text.startswith(f'at iperf3 -c 192.0.2.{i} '))
                self.assertIn('-t 3', text)
                self.assertIn(words, text)
                self.assertEqual(protocol == 'udp', '-b' in text)

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
        self.assertEqual((400, 390), (total.packets, total.received_packets))
        self.assertAlmostEqual(.025, total.loss)
        self.assertIsNone(iperf.together(
            [iperf.parse(tcp(1, 1)), iperf.parse(tcp(1, 1))]).packets)
