# SPDX-License-Identifier: Apache-2.0
"""The cost of a packet for a switch, and the resulting capacity.

A packet of x bytes takes a time of a + b*x in the flow that sends it, in the
sender, in the switch that all senders share, and on the line. The slowest of
the four limits the rate. Pure: numpy only; no clock, no configuration, no
input or output. Derivation: reference/capacity.rst.
"""

import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.capacity import student

__all__ = ['CapacityModel', 'CpuCost', 'ETHERNET_FRAMING_BYTES',
           'HEADER_BYTES', 'Measurement', 'PacketCost', 'line_rate_kbps']

#: Bytes that an encapsulation over IPv4 adds to a tenant's IP packet: the
#: inner Ethernet header (14), its own header and the outer IPv4 header (20).
#: VXLAN: 8 + UDP 8 (RFC 7348, section 5). GRE as NVGRE and gretap with a key:
#: 8 (RFC 7637, section 3.2). Geneve without options: 8 + UDP 8 (RFC 8926,
#: section 3.1). STT: 18 + 20 as TCP (Open vSwitch, include/net/stt.h). VLAN: a
#: tag of 4 alone (IEEE 802.1Q).
HEADER_BYTES = {'none': 0, 'vlan': 4, 'vxlan': 50, 'gre': 42, 'geneve': 50,
                'stt': 72}

#: What Ethernet adds to an IP packet on the wire: header 14, frame check 4,
#: preamble and start of frame 8, gap 12 (IEEE 802.3).
ETHERNET_FRAMING_BYTES = 38

LEVELS = ('flow', 'sender', 'switch')


_ABOVE_0 = checks.number(above=True)
_COUNT = checks.whole()
_SIZE = checks.number(1e-6, 1e15)


def check(name: str, value: object, kind: checks.Kind) -> None:
    """Check that a value is of a kind.

    :raises InvalidModel: if the value is invalid
    """
    checks.check(name, value, kind, exceptions.InvalidModel)


def _check_encapsulation(value):
    check('encapsulation', value, checks.one_of(HEADER_BYTES))


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One row of a table: one measured rate.

    :param packet_bytes: size of all packets in bytes, > 0
    :param rate_kbps: rate of all pairs together in packets of this size, > 0
    :param cpu_mhz: processor use of the host during the measurement, or None
    """

    packet_bytes: float
    rate_kbps: float
    pairs: int = 1
    flows: int = 1
    encapsulation: str = 'none'
    cpu_mhz: float | None = None

    def __post_init__(self):
        for key, kind in (('packet_bytes', _SIZE), ('rate_kbps', _SIZE),
                          ('pairs', _COUNT), ('flows', _COUNT)):
            check(key, getattr(self, key), kind)
        _check_encapsulation(self.encapsulation)
        if self.cpu_mhz is not None:
            check('cpu_mhz', self.cpu_mhz, _ABOVE_0)

    @property
    def packet_us(self):
        """Time between two packets, in microseconds."""
        return 8e3 * self.packet_bytes / self.rate_kbps

    @property
    def kpps(self):
        """Packet rate of all pairs together, in kilo-packets/s."""
        return self.rate_kbps / (8.0 * self.packet_bytes)

    @property
    def setting(self) -> tuple:
        """All parameters except the packet size."""
        return self.encapsulation, self.pairs, self.flows


def line_rate_kbps(line_kbps, packet_bytes, encapsulation='none',
                   framing_bytes=ETHERNET_FRAMING_BYTES):
    """Return the capacity of a line in packets of one size, in kbit/s.

    The headers of the encapsulation and of the frame also use the line.

    :param framing_bytes: bytes that the line adds to a packet; less than
        :data:`ETHERNET_FRAMING_BYTES` if the sizes already include a part of
        them
    """
    _check_encapsulation(encapsulation)
    return line_kbps * packet_bytes / (
        packet_bytes + HEADER_BYTES[encapsulation] + framing_bytes)


@dataclasses.dataclass(frozen=True, eq=False)
class PacketCost:
    """Time that a packet takes in one flow, one sender or the switch.

    :ivar packet_us: {encapsulation: a}, microseconds
    :ivar byte_ns: b, nanoseconds
    :ivar freedom: degrees of freedom of the whole fit
    :ivar covariance: covariance of the values a, in their order, and of b, in
        microseconds and nanoseconds; infinite if the table does not determine
        it
    :ivar measurements: number of rows that this level limited
    """

    packet_us: dict
    byte_ns: float
    covariance: np.ndarray
    measurements: int
    freedom: int

    def _row(self, packet_bytes, encapsulation, unit_bytes):
        if encapsulation not in self.packet_us:
            raise exceptions.InvalidModel(
                f'encapsulation: {encapsulation!r}; expected one that was '
                f'measured: {", ".join(self.packet_us)}')
        row = np.zeros(len(self.packet_us) + 1)
        row[list(self.packet_us).index(encapsulation)] = \
            packet_bytes / max(packet_bytes, unit_bytes)
        row[-1] = packet_bytes / 1e3
        return row

    def _us(self, packet_bytes, encapsulation='none', unit_bytes=0):
        """Return a + b*x and its standard error in microseconds."""
        row = self._row(packet_bytes, encapsulation, unit_bytes)
        mean = float(row @ [*self.packet_us.values(), self.byte_ns])
        return mean, _deviation(row, self.covariance)

    def limits(self, confidence: float = 0.95) -> dict:
        """Return the confidence limits of the costs.

        :param confidence: share of tables whose limits contain the true cost
        :returns: {'packet_us': {encapsulation: (low, high)}, 'byte_ns': (low,
            high)}
        """
        factor = student.quantile((1 + confidence) / 2, self.freedom)
        errors = np.sqrt(np.diag(self.covariance))

        def interval(value, error):
            if not np.isfinite(factor * error):
                return (0.0, math.inf)
            return (float(max(value - factor * error, 0.0)),
                    float(value + factor * error))

        return {'packet_us': {
            name: interval(value, error) for (name, value), error
            in zip(self.packet_us.items(), errors)},
            'byte_ns': interval(self.byte_ns, errors[-1])}

    def to_dict(self) -> dict:
        """Return the costs and their confidence limits, for JSON."""
        limits = self.limits()
        return {
            'packet_us': dict(self.packet_us), 'byte_ns': self.byte_ns,
            'packet_us_limits': {name: _finite(interval) for name, interval
                                 in limits['packet_us'].items()},
            'byte_ns_limits': _finite(limits['byte_ns']),
            'measurements': self.measurements}


@dataclasses.dataclass(frozen=True, eq=False)
class CapacityModel:
    """The costs at each level. A level without a cost is None and no limit.

    :ivar flow: PacketCost of a flow, divided by the number of all flows
    :ivar sender: PacketCost of a sender, divided by the number of pairs
    :ivar switch: PacketCost of what all senders share
    :ivar line_kbps: rate of the line, or None
    :ivar framing_bytes: bytes that the line adds to a packet
    :ivar unit_bytes: smallest unit that is processed: with segmentation
        offload, many packets are processed as one; 0 without
    """

    flow: PacketCost | None
    sender: PacketCost | None
    switch: PacketCost | None
    line_kbps: float | None = None
    framing_bytes: float = ETHERNET_FRAMING_BYTES
    unit_bytes: float = 0.0
    deviation: float = 0.0
    freedom: int = 0

    def _slowest(self, packet_bytes, pairs, flows, encapsulation):
        """Return (time between packets, its standard error, level)."""
        for name, value, kind in (('packet_bytes', packet_bytes, _ABOVE_0),
                                  ('pairs', pairs, _COUNT),
                                  ('flows', flows, _COUNT)):
            check(name, value, kind)
        _check_encapsulation(encapsulation)
        costs = [(level, cost, count) for level, count in (
            ('flow', pairs * flows), ('sender', pairs), ('switch', 1))
            if (cost := getattr(self, level)) is not None]
        times = []
        for level, cost, count in costs:
            if encapsulation in cost.packet_us:
                mean, error = cost._us(packet_bytes, encapsulation,
                                       self.unit_bytes)
                times.append((mean / count, error / count, level))
        if self.line_kbps is not None:
            times.append((8e3 * packet_bytes / line_rate_kbps(
                self.line_kbps, packet_bytes, encapsulation,
                self.framing_bytes), 0.0, 'line'))
        measured = sorted({name for _, cost, _ in costs
                           for name in cost.packet_us})
        if not times or measured and encapsulation not in measured:
            raise exceptions.InvalidModel(
                f'encapsulation: {encapsulation!r}; expected one that was '
                f'measured: {", ".join(measured) or "none of them was"}')
        return max(times, key=lambda entry: entry[0])

    def rate_kbps(self, packet_bytes, pairs=1, flows=1, encapsulation='none'):
        """Return the rate of all pairs together.

        Derivation: reference/capacity.rst, "Levels".

        :returns: kbit/s
        :raises InvalidModel: if an argument is invalid, or the encapsulation
            was not measured
        """
        return 8e3 * packet_bytes / self._slowest(
            packet_bytes, pairs, flows, encapsulation)[0]

    def limiting(self, packet_bytes, pairs=1, flows=1, encapsulation='none'):
        """Return what limits that rate: flow, sender, switch or line."""
        return self._slowest(packet_bytes, pairs, flows, encapsulation)[2]

    def interval_kbps(self, packet_bytes, pairs=1, flows=1,
                      encapsulation='none', confidence=.95):
        """Return the confidence interval (low, high) of another measurement.

        Derivation: reference/capacity.rst, "Confidence".

        :param confidence: probability of the interval, between 0 and 1
        """
        time_us, error, _ = self._slowest(packet_bytes, pairs, flows,
                                          encapsulation)
        rate = 8e3 * packet_bytes / time_us
        spread = math.hypot(error / time_us, self.deviation)
        if spread == 0:
            return rate, rate
        reach = student.quantile((1 + confidence) / 2, self.freedom) * spread
        # A rate is the inverse of a time: its interval is symmetric in the
        # logarithm.
        with np.errstate(over='ignore'):
            factor = float(np.exp(reach))
        return rate / factor, rate * factor

    def to_dict(self) -> dict:
        """Return the model as plain values, for JSON."""
        return {field.name: value.to_dict() if isinstance(value, PacketCost)
                else value for field in dataclasses.fields(self)
                for value in [getattr(self, field.name)]}


def _finite(interval):
    return [value if math.isfinite(value) else None for value in interval]


def _deviation(row, covariance):
    used = row != 0
    variance = row[used] @ covariance[np.ix_(used, used)] @ row[used]
    return math.sqrt(max(variance, 0.0)) if np.isfinite(variance) \
        else math.inf


@dataclasses.dataclass(frozen=True)
class CpuCost:
    """Processor use of traffic, linear in packets and in bytes.

    :ivar sender_mhz: processor use of each sender at any rate; 0 if the
        values do not include senders
    """

    idle_mhz: float
    sender_mhz: float
    mhz_per_kpps: float
    mhz_per_mbps: float
    deviation: float = 0.0

    def mhz(self, rate_kbps: float, packet_bytes: float, senders=1):
        """Return the processor use in MHz at a rate in packets of one size."""
        return (self.idle_mhz + self.sender_mhz * senders
                + self.mhz_per_kpps * rate_kbps / (8.0 * packet_bytes)
                + self.mhz_per_mbps * rate_kbps / 1e3)
