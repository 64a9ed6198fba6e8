# SPDX-License-Identifier: Apache-2.0
"""Runs iperf3: command lines, JSON output, and several clients at once.

The caller decides where clients and servers run: an endpoint converts a
command to the one that runs it there.
"""

import dataclasses
import json
import math
import subprocess
import time

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import machine

__all__ = ['Rates', 'STANDARD_MTU', 'Sender', 'UDP_HEADERS', 'measure',
           'parse', 'server', 'wire']

#: Largest IP packet of Ethernet with the standard MTU.
STANDARD_MTU = 1500
_UDP_HEADER = 8
_IPV4_HEADER = 20
_IPV6_HEADER = 40
_IPV6_FRAGMENT_HEADER = 8
#: Header bytes of IPv4 and UDP.
UDP_HEADERS = _IPV4_HEADER + _UDP_HEADER
# Suffixes of the keys of a direction; the second exists with --bidir.
_DIRECTIONS = ('', '_bidir_reverse')
#: Smallest datagram in which the counters of iperf3 fit.
SMALLEST_PAYLOAD = 16
_BUFFER = '1M'
_GRACE_SECONDS = 15.0


@dataclasses.dataclass(frozen=True)
class Sender:
    """One sender.

    :param argv: callable(words), returns the command that runs them there
    """

    argv: object
    address: str
    port: int = 5201


@dataclasses.dataclass(frozen=True)
class Rates:
    """What one or more clients sent, and what the receivers counted.

    Rates of UDP count IP packets, rates of TCP count payload.

    :ivar packets: number of sent IP packets; None for TCP
    :ivar received_packets: number of IP packets that the receivers counted;
        None for TCP
    :ivar received_bytes: payload that receivers counted; None: not reported
    """

    seconds: float
    sent_kbps: float
    received_kbps: float
    packets: int | None = None
    received_packets: int | None = None
    received_bytes: int | None = None
    retransmits: int | None = None

    @property
    def loss(self):
        """Lost share of the packets, 0..1; None if it is unknown."""
        if not self.packets:
            return None
        # The last packets may arrive after the sender has stopped to count.
        return max(1 - self.received_packets / self.packets, 0.0)

    @property
    def received_kpps(self):
        """Received kilo-packets per second; None for TCP."""
        if self.packets is None:
            return None
        return self.received_packets / self.seconds / 1e3


def wire(payload: int, mtu: int = STANDARD_MTU, ipv6: bool = False) -> tuple:
    """Return (number of IP packets, their bytes) of one datagram of UDP.

    A datagram that exceeds the MTU travels in fragments (RFC 791, section
    3.2, and RFC 8200, section 4.5).
    """
    header = _IPV6_HEADER if ipv6 else _IPV4_HEADER
    datagram = payload + _UDP_HEADER
    if header + datagram <= mtu:
        return 1, header + datagram
    if ipv6:
        header += _IPV6_FRAGMENT_HEADER
    count = math.ceil(datagram / ((mtu - header) // 8 * 8))
    return count, datagram + count * header


def server(port: int = 5201) -> list:
    """Return the command of a server, which runs one test at a time."""
    return ['iperf3', '-s', '-p', str(port)]


def _words(client, protocol, seconds, payload, kbps, streams):
    argv = ['iperf3', '-c', client.address, '-p', str(client.port), '-J',
            '-i', '0', '-t', str(seconds), '-P', str(streams)]
    if protocol == 'udp':
        # 0 means the maximum rate.
        argv += ['-u', '-l', str(payload), '-w', _BUFFER, '-b',
                 str(round(kbps * 1e3 / streams)) if kbps else '0']
    return argv


def parse(text: str, place: str = 'iperf3', mtu: int = STANDARD_MTU):
    """Return the Rates in the JSON output of a client or a server.

    The rate that arrived is the number of bytes that the receiver counted.
    The number of lost packets is not used if the receiver counted bytes: it
    is 0 if nothing arrives, and also 0 if the sender is newer than the
    receiver (3.16 and later, 3.15 and earlier). Versions before 3.11 do not
    report bytes; then each stream must at least have a jitter, which is 0 if
    nothing arrives.

    :raises CalibrationError: if iperf3 failed, if the output is not its JSON,
        or if the JSON does not state what arrived
    """
    data = _document(text, place)
    if data.get('error'):
        raise exceptions.CalibrationError(f'{place}: {data["error"]}')
    try:
        start, end = data['start'], data['end']
        udp = start['test_start']['protocol'].upper() == 'UDP'
        server = 'accepted_connection' in start
        if udp:
            test = _Test(place, server, start, mtu)
            if 'sum_received' not in end:
                return test.from_streams(end)
            return together([
                test.direction(end, suffix) for suffix in _DIRECTIONS
                if f'sum_received{suffix}' in end])
        directions = []
        for suffix in _DIRECTIONS:
            if f'sum_received{suffix}' not in end:
                continue
            sent, received = (_checked(end[f'sum_{what}{suffix}'], place)
                              for what in ('sent', 'received'))
            directions.append(Rates(
                received['seconds'], sent['bits_per_second'] / 1e3,
                received['bits_per_second'] / 1e3,
                received_bytes=received.get('bytes'),
                retransmits=sent.get('retransmits')))
        if not directions:
            raise KeyError('sum_received')
        return together(directions)
    except (KeyError, TypeError, ZeroDivisionError, AttributeError,
            IndexError) as error:
        raise exceptions.CalibrationError(
            f'{place}: no key {error} in the JSON; expected the result of a '
            f'finished test') from None


def _document(text, place):
    """Return the object of a text with exactly one JSON object."""
    def refuse(position, problem):
        line = text.count('\n', 0, position) + 1
        column = position - text.rfind('\n', 0, position)
        raise exceptions.CalibrationError(
            f'{place}: line {line}, column {column}: {problem}; expected the '
            f'JSON of one test with iperf3 -J')

    def constant(word):
        refuse(text.index(word), f'{word} is no number')

    start = len(text) - len(text.lstrip())
    try:
        data, last = json.JSONDecoder(
            parse_constant=constant).raw_decode(text, start)
    except json.JSONDecodeError as error:
        word = ' '.join(text[error.pos:].split())[:40]
        refuse(error.pos, f'{error.msg}: {word!r}' if word
               else 'the text ends within the document')
    if not isinstance(data, dict):
        refuse(start, f'{" ".join(text.split())[:40]!r}')
    if {'event', 'data'} <= data.keys():
        refuse(start, 'an event of --json-stream')
    rest = text[last:].lstrip()
    if rest:
        refuse(len(text) - len(rest), f'more text after the first document: '
               f'{" ".join(rest.split())[:40]!r}')
    return data


def _checked(numbers, place):
    """Return a mapping whose numbers are finite and not negative."""
    for key, value in numbers.items():
        if isinstance(value, (int, float)) and not 0 <= value < math.inf:
            raise exceptions.CalibrationError(
                f'{place}: {key}: {value!r}; expected a number >= 0')
    return numbers


class _Test:
    """A test of UDP: converts datagrams to IP packets."""

    def __init__(self, place, server, start, mtu):
        self._place, self._server = place, server
        self._payload = int(start['test_start']['blksize'])
        address = start['connected'][0]['remote_host']
        self._packets, self._bytes = wire(
            self._payload, mtu, ':' in address and '.' not in address)

    def direction(self, end, suffix):
        total, sent, received = (
            _checked(end[f'{what}{suffix}'], self._place)
            for what in ('sum', 'sum_sent', 'sum_received'))
        if self._server and total['sender']:
            self._refuse_sender()
        return self._rates(
            # A receiving server does not know what the client sent, only the
            # highest number of a datagram that arrived.
            sent['packets'] or received['packets'],
            received['bytes'] / self._payload, received['seconds'],
            sent['seconds'])

    def from_streams(self, end):
        sent = received = 0
        for stream in end['streams']:
            stream = _checked(stream['udp'], self._place)
            if self._server and stream['bytes']:
                self._refuse_sender()
            sent += stream['packets']
            if stream['jitter_ms'] > 0:
                received += stream['packets'] - stream['lost_packets']
            elif stream['packets']:
                raise exceptions.CalibrationError(
                    f'{self._place}: a stream has no jitter; expected one: '
                    f'its receiver got nothing, although this version of '
                    f'iperf3 counts no loss then')
        seconds = end['sum']['seconds']
        return self._rates(sent, received, seconds, seconds)

    def _refuse_sender(self):
        raise exceptions.CalibrationError(
            f'{self._place}: JSON of a server that sent; expected the JSON of '
            f'the client, which also states what arrived')

    def _rates(self, sent, received, seconds, sent_seconds):
        if received > 0 and not sent:
            raise KeyError('packets')
        bits = 8 * self._bytes / 1e3
        return Rates(
            float(seconds), sent * bits / sent_seconds,
            received * bits / seconds, round(sent * self._packets),
            round(received * self._packets), round(received * self._payload))


def measure(clients, protocol, seconds, payload=None, kbps=None, streams=1,
            popen=subprocess.Popen):
    """Run clients at the same time.

    :param protocol: 'udp' or 'tcp'
    :param kbps: payload rate that each client offers; None or 0 for the
        maximum
    :param streams: number of streams of each client
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


def together(rates: list[Rates]) -> Rates:
    """Return the sum of the Rates of several clients."""
    def total(name):
        values = [getattr(client_rates, name) for client_rates in rates]
        return None if None in values else sum(values)

    return Rates(max(client_rates.seconds for client_rates in rates),
                 *(total(field.name)
                   for field in dataclasses.fields(Rates)[1:]))


def version():
    """Return the name and the version of iperf3."""
    return parse_version(machine.run(['iperf3', '--version']).stdout)


def parse_version(text: str) -> str:
    """Return the name and the version in the output of iperf3 --version."""
    return text.split('(')[0].strip()
