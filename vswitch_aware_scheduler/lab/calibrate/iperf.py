# SPDX-License-Identifier: Apache-2.0
"""Runs iperf3: command lines, JSON output, and several clients at once.

The caller decides where clients and servers run: an endpoint converts a
command to the one that runs it there.
"""

import dataclasses
import json
import subprocess
import time

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import machine

__all__ = ['Client', 'Rates', 'UDP_HEADERS', 'measure', 'parse', 'server']

#: Header bytes of IPv4 and UDP.
UDP_HEADERS = 28
#: Smallest datagram in which the counters of iperf3 fit.
SMALLEST_PAYLOAD = 16
_BUFFER = '1M'
_GRACE_SECONDS = 15.0


@dataclasses.dataclass(frozen=True)
class Client:
    """One sender.

    :param argv: callable(list of words), returns the command that runs them at
        their place
    :param address: address of the receiver
    :param port: port of the receiver
    """

    argv: object
    address: str
    port: int = 5201


@dataclasses.dataclass(frozen=True)
class Rates:
    """What one or more clients sent, and what arrived.

    Rates of UDP count IP packets, rates of TCP count payload.

    :ivar packets: number of sent packets; None for TCP
    """

    seconds: float
    sent_kbps: float
    received_kbps: float
    packets: int | None = None
    lost: int | None = None
    retransmits: int | None = None

    @property
    def loss(self):
        """Lost share of the packets, 0..1; None if it is unknown."""
        if not self.packets:
            return None
        return min(max(self.lost / self.packets, 0.0), 1.0)

    @property
    def received_kpps(self):
        """Received kilo-packets per second; None for TCP."""
        if self.packets is None:
            return None
        return (self.packets - self.lost) / self.seconds / 1e3


def server(port=5201, options=()):
    """Return the command of a server, which runs one test at a time.

    :param port: port to listen on
    :param options: further options of iperf3
    """
    return ['iperf3', '-s', '-p', str(port), *options]


def _words(client, protocol, seconds, payload, kbps, streams):
    argv = ['iperf3', '-c', client.address, '-p', str(client.port), '-J',
            '-i', '0', '-t', str(seconds), '-P', str(streams)]
    if protocol == 'udp':
        # 0 means the maximum rate.
        argv += ['-u', '-l', str(payload), '-w', _BUFFER, '-b',
                 str(round(kbps * 1e3 / streams)) if kbps else '0']
    return argv


def parse(text, place='iperf3'):
    """Return the Rates in the JSON output of one client.

    :param text: output of iperf3
    :param place: name of the client, for messages
    :raises CalibrationError: if iperf3 failed, or if the output is not its
        JSON
    """
    try:
        data = json.loads(text)
        error, end = data.get('error'), data.get('end') or {}
    except (ValueError, AttributeError):
        raise exceptions.CalibrationError(
            f'{place}: output: {" ".join(text.split())[:120]!r}; expected the '
            f'JSON of iperf3 -J') from None
    if error:
        raise exceptions.CalibrationError(f'{place}: {error}')
    try:
        udp = data['start']['test_start']['protocol'].upper() == 'UDP'
        if udp:
            return _udp(end)
        sent, received = end['sum_sent'], end['sum_received']
        return Rates(received['seconds'], sent['bits_per_second'] / 1e3,
                     received['bits_per_second'] / 1e3,
                     retransmits=sent.get('retransmits'))
    except (KeyError, TypeError, ZeroDivisionError, AttributeError) as error:
        raise exceptions.CalibrationError(
            f'{place}: no key {error} in the JSON; expected the result of a '
            f'finished test') from None


def _udp(end):
    total = end['sum']
    packets, lost = int(total['packets']), int(total['lost_packets'])
    seconds = float(end.get('sum_sent', total)['seconds'])
    sent_bytes = end.get('sum_sent', total)['bytes']
    if not packets:
        raise KeyError('packets')
    bits = 8 * (sent_bytes / packets + UDP_HEADERS)
    return Rates(seconds, packets * bits / seconds / 1e3,
                 (packets - lost) * bits / seconds / 1e3, packets, lost)


def measure(clients, protocol, seconds, payload=None, kbps=None, streams=1,
            popen=subprocess.Popen):
    """Run clients at the same time.

    :param clients: list of Client
    :param protocol: 'udp' or 'tcp'
    :param seconds: duration of the test
    :param payload: payload bytes in a datagram
    :param kbps: payload rate that each client offers; None or 0 for the
        maximum
    :param streams: number of streams of each client
    :param popen: callable, as subprocess.Popen
    :returns: list of the Rates of each client
    :raises CalibrationError: if a client fails
    """
    processes = []
    rates = []
    try:
        for client in clients:
            processes.append(popen(
                client.argv(_words(client, protocol, seconds, payload, kbps,
                                   streams)),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, errors='replace'))
        deadline = time.monotonic() + seconds + _GRACE_SECONDS
        for client, process in zip(clients, processes):
            place = f'iperf3 to {client.address}'
            try:
                output, messages = process.communicate(
                    timeout=max(deadline - time.monotonic(), .1))
            except subprocess.TimeoutExpired:
                raise exceptions.CalibrationError(
                    f'{place}: iperf3 has not ended; expected its end within '
                    f'{seconds} s and {_GRACE_SECONDS:g} s more') from None
            rates.append(parse(output or messages, place))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
    return rates


def together(rates):
    """Return the sum of the Rates of several clients.

    :param rates: list of Rates
    """
    def total(name):
        values = [getattr(client_rates, name) for client_rates in rates]
        return None if None in values else sum(values)

    return Rates(max(client_rates.seconds for client_rates in rates),
                 total('sent_kbps'), total('received_kbps'), total('packets'),
                 total('lost'), total('retransmits'))


def version():
    """Return the name and the version of iperf3."""
    return machine.run(['iperf3', '--version']).stdout.split('(')[0].strip()
