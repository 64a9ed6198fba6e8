# SPDX-License-Identifier: Apache-2.0
"""Computes how many instances fit on a host and how many hosts are needed.

Uses the same code as the admission. Pure; no store and no Nova.
"""

import bisect
from collections import abc
import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['FleetSize', 'HostSize', 'MOST', 'fleet_size', 'host_size',
           'most_by_average', 'most_by_peak']

#: Maximum number of instances on a host. Larger numbers were never validated.
MOST = 1000


@dataclasses.dataclass(frozen=True)
class HostSize:
    """The number of equal instances that a host admits one after the other.

    :ivar instances: :data:`MOST` if no limit was reached
    :ivar reason: why no further instance is admitted; None at :data:`MOST`
    :ivar utilisation: mean rate divided by capacity, of the limit with the
        highest ratio
    :ivar rate_kbps: sum of mean egress and mean ingress
    :ivar cpu_mhz: processor frequency that switching takes, or None if the
        profile does not state it
    """

    instances: int
    reason: str | None
    overload_probability: float
    loss_fraction: float
    utilisation: float
    rate_kbps: float
    cpu_mhz: float | None


@dataclasses.dataclass(frozen=True)
class FleetSize:
    """Different instances on equal hosts, each on the first that admits it.

    The arrays are (hosts,).

    :ivar refused: number of instances that not even an empty host admits
    """

    hosts: int
    refused: int
    overload_probability: np.ndarray
    rate_kbps: np.ndarray
    cpu_mhz: np.ndarray | None


def host_size(policy: admission.HostPolicy, law: rate_law.RateLaw) -> HostSize:
    """Return how many independent instances of one law fit on a host.

    Samples are ignored: all would be busy at the same time.
    """
    law = law.independent()
    # An instance that is admitted in addition to n others is also admitted in
    # addition to fewer.
    if policy.policy == admission.AVERAGE:
        low = most_by_average(policy, law)
        high = low + 1
    else:
        low, high = most_by_peak(policy, law), _most_counted(policy) + 1
    while high - low > 1:
        number = (low + high) // 2
        if _with_others(policy, law, number - 1).admitted[0]:
            low = number
        else:
            high = number
    reason = None if low == MOST else _with_others(
        policy, law, low).explain(0)
    rates = low * law.mean
    rate_kbps = float(rates[:2].sum())
    cpu_mhz = _cpu_mhz(policy, rates)
    if not low:
        return HostSize(0, reason, 0.0, 0.0, 0.0, rate_kbps, cpu_mhz)
    last = _with_others(policy, law, low - 1)
    return HostSize(low, reason, float(last.overload_probability[0]),
                    float(last.loss_fraction[0]), float(last.utilisation[0]),
                    rate_kbps, cpu_mhz)


def most_by_peak(policy: admission.HostPolicy, law: rate_law.RateLaw) -> int:
    """Return how many equal instances fit if all are at their peak."""
    return _most_of(policy, law, [
        values.max() for values in _values(policy, law)])


def most_by_average(policy: admission.HostPolicy,
                    law: rate_law.RateLaw) -> int:
    """Return how many equal instances the policy ``average`` admits."""
    return _most_of(policy, law, [
        values @ law.probabilities for values in _values(policy, law)])


def _values(policy, law):
    return [law.values(weights, policy.profile.typical_packet_bytes)
            for weights, _, _ in policy.limits]


def _most_of(policy, law, rates):
    slack = 1 + fourier_sum.TOLERANCE
    if any(values.max() > most * slack for values, (_, _, most)
           in zip(_values(policy, law), policy.limits)):
        return 0
    by_rates = min((capacity * slack / float(rate)
                    for (_, capacity, _), rate in zip(policy.limits, rates)
                    if rate > 0), default=math.inf)
    return math.floor(min(by_rates, _most_counted(policy)))


def _most_counted(policy: admission.HostPolicy) -> int:
    """Return how many idle instances a host admits, by counted limits."""
    if not policy.counts:
        return MOST
    return bisect.bisect_left(
        range(MOST), True, key=lambda others: not _with_others(
            policy, rate_law.SILENT, others).admitted[0])


def _with_others(policy, law, number):
    table = admission.LoadTable()
    row = table.describe('host', policy, dict.fromkeys(range(number), law))
    return table.assess([row], law)


def _cpu_mhz(policy: admission.HostPolicy, rates: np.ndarray) -> float | None:
    """Return the frequency that switching takes; 0 kpps means unknown."""
    if policy.profile is None:
        return None
    rate_kbps = float(rates[0] + rates[1])
    packet_bytes = rate_kbps / (8.0 * rates[2]) if rates[2] else None
    return policy.profile.cpu_mhz(rate_kbps, packet_bytes or None)


def fleet_size(policy: admission.HostPolicy,
               laws: abc.Iterable[rate_law.RateLaw]) -> FleetSize:
    """Return the FleetSize of instances that arrive one after the other."""
    table = admission.LoadTable()
    rows, refused, overload, rates = [], 0, [], []
    for number, law in enumerate(laws):
        assessment = table.assess(rows, law)
        admitting_hosts = np.flatnonzero(assessment.admitted)
        if admitting_hosts.size:
            host = int(admitting_hosts[0])
            table.change({str(host): ({number: law}, ())})
            overload[host] = float(assessment.overload_probability[host])
            rates[host] += law.mean
            continue
        alone = _with_others(policy, law, 0)
        if not alone.admitted[0]:
            refused += 1
            continue
        rows.append(table.describe(str(len(rows)), policy, {number: law}))
        overload.append(float(alone.overload_probability[0]))
        rates.append(np.array(law.mean))
    cpu = [_cpu_mhz(policy, rate) for rate in rates]
    return FleetSize(
        len(rows), refused, np.array(overload),
        np.array([rate[:2].sum() for rate in rates]),
        None if None in cpu else np.array(cpu, dtype=float))
