# SPDX-License-Identifier: Apache-2.0
"""Compares predicted with measured overload.

A host counts once, by one instance that was placed on it: the prediction at
that time is compared with the traffic of its instances since then. One group
has the hosts that the filter refused and that received the instance because
they are only observed. The other group has the admitted hosts. Pure; no clock.
"""

from collections.abc import Collection
import dataclasses
import math
import statistics

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['CONFIDENCE', 'MIN_HOSTS', 'MIN_SLOTS', 'MeasuredGroup',
           'Realised', 'confidence_of_more', 'exceeds', 'group_of', 'overload',
           'slots_wanted', 'wilson']

CONFIDENCE = 0.95

#: Minimum number of hosts in a group for an interval of the mean share.
MIN_HOSTS = 10

#: Minimum number of measured slots of a host. The number also has to be so
#: large that one slot of overload does not exceed the limit.
MIN_SLOTS = 20

#: A slot counts if at least this share of the instances was measured in it.
_MEASURED = 0.9

_DRAWS = 2000


@dataclasses.dataclass(frozen=True)
class Realised:
    """One host since its last decision.

    :ivar predicted: predicted overload probability, 0..1
    :ivar limit: limit of the overload probability, 0..1
    :ivar overloaded: number of these slots in which a limit of the switch was
        exceeded
    :ivar unknown: number of further slots, in which too few instances were
        measured and these exceeded no limit
    """

    predicted: float
    limit: float
    slots: int
    overloaded: int
    unknown: int = 0

    @property
    def share(self) -> float:
        """Share of the time with overload that is certain."""
        return self.overloaded / (self.slots + self.unknown)

    @property
    def waits(self) -> bool:
        """Whether the traffic was measured for too short a time."""
        return self.slots < slots_wanted(self.limit)

    @property
    def is_measured(self) -> bool:
        """Whether enough was measured to tell if the host was overloaded."""
        return not self.waits and (
            self.is_overloaded
            or not exceeds(self.overloaded / self.slots, self.limit))

    @property
    def is_overloaded(self) -> bool:
        """Whether the host was overloaded longer than its limit permits."""
        return exceeds(self.share, self.limit)


@dataclasses.dataclass(frozen=True)
class MeasuredGroup:
    """Several hosts together; all shares are None without any host.

    :ivar overloaded_hosts: number of these hosts that were overloaded for
        longer than the limit permits
    :ivar share: share of overloaded hosts; ``share_low`` and ``share_high``
        are its Wilson interval
    :ivar realised: mean share of time with overload, with its bootstrap
        interval over hosts
    """

    hosts: int
    overloaded_hosts: int
    share: float | None
    share_low: float | None
    share_high: float | None
    predicted: float | None
    realised: float | None
    realised_low: float | None
    realised_high: float | None


def exceeds(share: float, limit: float) -> bool:
    """Return whether a share of time in overload exceeds a limit."""
    return share > limit * (1 + fourier_sum.TOLERANCE)


def slots_wanted(limit: float) -> int:
    """Return how many slots have to be measured for a limit."""
    return max(MIN_SLOTS, math.ceil(1 / limit - 1e-9) if limit > 0 else 0)


def wilson(successes: int, number: int, confidence: float = CONFIDENCE
           ) -> tuple[float, float]:
    """Return (low, high) of the Wilson score interval of a share.

    :param successes: 0..number
    :param number: number of trials, > 0
    """
    z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / number
    middle = share + z * z / (2 * number)
    half = z * math.sqrt(share * (1 - share) / number
                         + z * z / (4 * number * number))
    scale = 1 + z * z / number
    return (0.0 if successes == 0 else (middle - half) / scale,
            1.0 if successes == number else (middle + half) / scale)


def confidence_of_more(one: MeasuredGroup, other: MeasuredGroup) -> float:
    """Return the confidence that hosts of one group are overloaded more often.

    This is 1 - p of the one-sided exact test of Fisher, for any number of
    hosts. Both groups have hosts.
    """
    def log_ways(count, chosen):
        return (math.lgamma(count + 1) - math.lgamma(chosen + 1)
                - math.lgamma(count - chosen + 1))

    hosts, overloaded = (one.hosts + other.hosts,
                         one.overloaded_hosts + other.overloaded_hosts)
    return max(1.0 - sum(
        math.exp(log_ways(one.hosts, number)
                 + log_ways(other.hosts, overloaded - number)
                 - log_ways(hosts, overloaded))
        for number in range(max(one.overloaded_hosts,
                                overloaded - other.hosts),
                            min(one.hosts, overloaded) + 1)), 0.0)


def overload(policy: admission.HostPolicy, series: dict,
             instances: Collection[str], start: float,
             end: float) -> tuple[int, int]:
    """Return (measured slots, slots with overload) of a host.

    A slot is as long as the longest sampling period. It counts if 90 % of the
    instances were measured in it; the others count as idle.

    :param series: {instance uuid: RateSeries}
    :param start: start of the time, seconds UTC
    :param end: end of the time, exclusive, seconds UTC
    """
    # Neither a missing nor an empty series was measured.
    measured = [series[uuid] for uuid in dict.fromkeys(instances)
                if series.get(uuid)]
    if not measured:
        return 0, 0
    seconds = max(history.period_seconds for history in measured)
    first, last = math.ceil(start / seconds), math.floor(end / seconds)
    if last <= first:
        return 0, 0
    slots = packed.Slots(seconds, first, last - first)
    counts = np.zeros(slots.count)
    totals = np.zeros((len(policy.limits), slots.count))
    for history in measured:
        rates, in_slot = slots.mean(history)
        counts += in_slot
        for total, (weights, _, _) in zip(totals, policy.limits):
            total += rate_law.values_of(
                rates, weights, policy.profile.typical_packet_bytes,
                bool(rates[:, 2].any()))
    is_counted = counts >= _MEASURED * len(instances)
    above = rules.exceeds(totals, [
        capacity for _, capacity, _ in policy.limits]).any(axis=0)
    return int(is_counted.sum()), int((above & is_counted).sum())


def group_of(hosts: list, seed: int = 1) -> MeasuredGroup:
    """Return the :class:`MeasuredGroup` of a list of :class:`Realised`.

    Hosts that were not measured for long enough are omitted.
    """
    measured = [host for host in hosts if host.is_measured]
    if not measured:
        return MeasuredGroup(0, 0, *[None] * 7)
    count = len(measured)
    overloaded = sum(host.is_overloaded for host in measured)
    shares = np.array([host.share for host in measured])
    draws = np.random.default_rng(seed).integers(
        count, size=(_DRAWS, count))
    means = shares[draws].mean(axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2,
                                    (1 + CONFIDENCE) / 2])
    return MeasuredGroup(
        count, overloaded, overloaded / count, *wilson(overloaded, count),
        statistics.fmean(host.predicted for host in measured),
        float(shares.mean()), float(low), float(high))
