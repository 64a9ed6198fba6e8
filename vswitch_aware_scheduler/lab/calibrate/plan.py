# SPDX-License-Identifier: Apache-2.0
"""The plan of a calibration: what is measured, in which order, how long.

Pure: values in, values out.
"""

import dataclasses

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import iperf
from vswitch_aware_scheduler.lab.capacity import measurements

__all__ = ['Cell', 'Plan', 'SIZES', 'PAIRS']

#: Packet sizes and numbers of pairs: a subset of those of Kinoshita et al..
SIZES = (88, 250, 512, 1000, 1500, 4000, 8000)
PAIRS = (1, 2, 4, 8)
QUICK_SIZES = (88, 512, 1500)
QUICK_PAIRS = (1, 2, 4)
#: Largest segments of TCP in bytes that a VM hands to its interface: 64 KiB,
#: which is the default of Linux, and less.
SEGMENTS = (8000, 24000, 65536)
#: Place of the receiver: on the other host, on the same host, or several
#: receivers.
PLACEMENTS = ('cross', 'same', 'many')
#: Ratio of two rates of a ladder, and the maximum number of rates.
RUNG = 1.2
MOST_RUNGS = 7
#: Time that iperf3 needs in addition to the test, in seconds (measured).
OVERHEAD_SECONDS = .6
_TYPICAL_RUNGS = 4


@dataclasses.dataclass(frozen=True)
class Cell:
    """One combination of parameters to measure.

    :param kind: 'udp', 'tcp' or 'rtt'
    :param placement: 'cross': sender and receiver on different hosts; 'same':
        on one host; 'many': one sender, several receivers on the other host
    :param packet_bytes: size of IP packets for UDP, largest segment for TCP;
        None: not limited
    """

    kind: str
    placement: str = 'cross'
    packet_bytes: int | None = None
    pairs: int = 1
    streams: int = 1

    @property
    def key(self) -> str:
        """Text that identifies the cell in a journal."""
        return '/'.join(str(value) for value in dataclasses.astuple(self))

    def __str__(self):
        parts = [self.kind.upper()]
        if self.packet_bytes and self.kind == 'tcp':
            parts.append(f'segments of {self.packet_bytes} bytes')
        elif self.packet_bytes:
            parts.append(f'{self.packet_bytes} bytes')
        if self.kind == 'tcp':
            parts.append(f'{self.streams} streams')
        parts.append({'cross': f'{self.pairs} pairs', 'same': 'same host',
                      'many': f'one to {self.pairs}'}[self.placement])
        return ', '.join(parts)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The parameters of a calibration."""

    sizes: tuple = SIZES
    pairs: tuple = PAIRS
    seconds: int = 5
    repeats: int = 3
    receivers: int = 3

    def __post_init__(self):
        smallest_packet = iperf.SMALLEST_PAYLOAD + iperf.UDP_HEADERS
        for name, values, low, high in (
                ('packet size', self.sizes, smallest_packet, 65000),
                ('number of pairs', self.pairs, 1, 64),
                ('seconds', [self.seconds], 1, 3600),
                ('repeats', [self.repeats], 1, 1000),
                ('receivers', [self.receivers], 0, 64)):
            if not values:
                raise exceptions.InvalidInput(
                    f'{name}: none; expected one or more')
            for value in values:
                checks.check(name, value, checks.whole(low, high))
        for name in ('sizes', 'pairs'):
            object.__setattr__(self, name,
                               tuple(sorted(set(getattr(self, name)))))

    @property
    def vms(self) -> int:
        """Number of VMs on each host."""
        return max(*self.pairs, self.receivers, 2)

    @property
    def mtu(self):
        """The required MTU."""
        return max(*self.sizes, 1500)

    @property
    def typical_packet_bytes(self):
        """The largest size up to 1500 bytes, or else the smallest size."""
        return measurements.typical_size(self.sizes)

    def within(self, mtu: int, explicit: bool) -> 'Plan':
        """Return this plan with packets that fit a link.

        :param mtu: MTU of the link in bytes
        :param explicit: True: a larger packet is an error; False: the size
            becomes the MTU
        :raises InvalidInput: with ``explicit``, if a packet is larger
        """
        if explicit and max(self.sizes) > mtu:
            raise exceptions.InvalidInput(
                f'packet size: {max(self.sizes)}; expected at most the MTU '
                f'{mtu} of the link')
        return dataclasses.replace(
            self, sizes=tuple(min(size, mtu) for size in self.sizes))

    def cells(self, can_ping=True, placements=PLACEMENTS, segments=(None,)):
        """Return the list of the Cells of one set-up, in order."""
        cells = [Cell('udp', 'cross', size, pairs)
                 for pairs in self.pairs for size in self.sizes]
        cells.append(Cell('udp', 'same', self.typical_packet_bytes))
        cells += [Cell('tcp', placement, None, 1, streams)
                  for placement in ('cross', 'same') for streams in (1, 4)]
        cells += [Cell('tcp', 'cross', segment, pairs)
                  for pairs in self.pairs for segment in segments]
        if self.receivers:
            cells += [Cell('udp', 'many', self.typical_packet_bytes,
                           self.receivers),
                      Cell('tcp', 'many', None, self.receivers)]
        if can_ping:
            cells += [Cell('rtt', 'cross'), Cell('rtt', 'same')]
        return [cell for cell in dict.fromkeys(cells)
                if cell.placement in placements]

    def cell_seconds(self, cell):
        """Return the approximate duration of a cell in seconds."""
        if cell.kind == 'rtt':
            return 1.5
        rungs = _TYPICAL_RUNGS if cell.kind == 'udp' else 1
        return rungs * (self.seconds + OVERHEAD_SECONDS)

    def to_dict(self) -> dict:
        """Return the plan as a dictionary of plain data."""
        return {**dataclasses.asdict(self), 'sizes': list(self.sizes),
                'pairs': list(self.pairs)}
