# SPDX-License-Identifier: Apache-2.0
"""Turns :class:`.telemetry_driver.Traffic` into what a cloud measures.

That is readings of the counters of each interface, as Ceilometer and the
exporters publish them. The same readings are brought into the real servers
and into the stand-ins for them.
"""

import dataclasses
import uuid

import numpy as np

from tests.contract import telemetry_driver

#: Metrics of Ceilometer, in the order of the columns of a reading.
METRICS = ('network.outgoing.bytes', 'network.incoming.bytes',
           'network.outgoing.packets', 'network.incoming.packets')

_NAMESPACE = uuid.UUID('a1e3ec47-95d4-4a5e-9e0f-0f6a6c0d7f52')


def instance_uuid(number):
    return str(uuid.uuid5(_NAMESPACE, str(number)))


@dataclasses.dataclass
class Interface:
    """An interface, with its readings.

    :ivar times: (n,) seconds UTC
    :ivar counters: (n, 4) in the order of METRICS
    :ivar rates: (m, 4) per second, mean of the period that begins at
        ``rate_times``, NaN: no sample
    """

    number: int
    device: int
    times: np.ndarray
    counters: np.ndarray
    rate_times: np.ndarray
    rates: np.ndarray

    @property
    def instance_uuid(self):
        return instance_uuid(self.number)

    @property
    def domain(self):
        return f'instance-{self.number:08x}'

    @property
    def tap(self):
        return f'tap{self.number:08x}-{self.device}'

    @property
    def resource(self):
        return f'{self.domain}-{self.instance_uuid}-{self.tap}'


def interfaces(traffic, before=0):
    """Return the interfaces of all VMs: two of the busy one, else one.

    :param before: readings ahead of the first period
    """
    counts = {number: 2 if number == telemetry_driver.BUSY else 1
              for number in traffic.numbers}
    return [_interface(traffic, number, device, count, before)
            for number, count in counts.items() for device in range(count)]


def steady_interfaces(now):
    """Return interfaces of five instances with 1 kbit/s until a time.

    :param now: time of the last of 100 readings, one each 300 s
    """
    times = now - 300. * np.arange(100)[::-1]
    counters = np.tile(37500. * np.arange(100)[:, None], (1, 4))
    return [Interface(number, 0, times, counters, times[:-1],
                      np.full((99, 4), 125.)) for number in range(1, 6)]


def _interface(traffic, number, device, count, before):
    egress = traffic.egress_kbps[number - 1] * 125 / count
    ingress = traffic.ingress_kbps[number - 1] * 125 / count
    packets = traffic.kpps[number - 1] * 1000 / count
    rates = np.stack([egress, ingress, packets / 4, packets * 3 / 4], axis=1)
    rates = np.concatenate([np.zeros((before, 4)), rates])
    rate_times = traffic.t0 + traffic.period_seconds * np.arange(
        -before, len(rates) - before)
    counters = np.concatenate([
        np.full((1, 4), 4096. * number),
        4096. * number + np.cumsum(np.nan_to_num(rates)
                                   * traffic.period_seconds, axis=0)])
    times = traffic.t0 + traffic.period_seconds * np.arange(
        -before, len(counters) - before)
    # A reading is there if the rate before or after it is.
    complete = ~np.isnan(rates).any(axis=1)
    read = np.concatenate([[False], complete]) | np.concatenate(
        [complete, [False]])
    # What was seen at least once is known to its source.
    read[0] = True
    return Interface(number, device, times[read].astype(float),
                     counters[read], rate_times.astype(float), rates)
