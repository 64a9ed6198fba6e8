# SPDX-License-Identifier: Apache-2.0
"""Computes how many instances fit on a host and how many hosts are needed.

Uses the same code as the admission. Pure; no store and no Nova.
"""

import bisect
import dataclasses
import functools
import math
import statistics

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['FleetSize', 'HostSize', 'MOST', 'fleet_size', 'host_size',
           'most_by_average', 'most_by_peak']

#: Maximum number of instances on a host. Larger numbers were never validated.
MOST = 1000

_NORMAL = statistics.NormalDist()

#: After this number of guesses, the search continues by bisection.
_GUESSES = 8


@dataclasses.dataclass(frozen=True)
class HostSize:
    """The number of equal instances that a host admits one after the other.

    :ivar instances: number of instances; :data:`MOST` if no limit was reached
    :ivar reason: why no further instance is admitted; None at :data:`MOST`
    :ivar overload_probability: overload probability of the host with them
    :ivar loss_fraction: expected share of the host's traffic that is lost
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

    :ivar overload_probability: (hosts,) of each host
    :ivar hosts: number of hosts that are needed
    :ivar refused: number of instances that not even an empty host admits
    :ivar rate_kbps: (hosts,) sum of mean egress and mean ingress
    :ivar cpu_mhz: (hosts,) processor frequency that switching takes, or None
        as in HostSize
    """

    hosts: int
    refused: int
    overload_probability: np.ndarray
    rate_kbps: np.ndarray
    cpu_mhz: np.ndarray | None


def host_size(policy, law):
    """Return how many independent instances of one law fit on a host.

    Instances with the same classes would all be busy at the same time, which
    does not describe many instances of one kind. Therefore classes are
    ignored.

    :param policy: admission.HostPolicy without uplinks
    :param law: RateLaw of each of the instances
    :returns: HostSize
    """
    law = law.independent()
    assessed = functools.cache(functools.partial(_with_others, policy, law))
    # An instance that is admitted in addition to n others is also admitted in
    # addition to fewer.
    if policy.policy == admission.AVERAGE:
        low = most_by_average(policy, law)
        high = low + 1
    else:
        low, high = most_by_peak(policy, law), _most_counted(policy) + 1
    guess = min(_likely_size(policy, law), MOST)
    target = _deviations(policy.limit_in_force)
    # If the mean rates sum up to the capacity, overload has a probability of
    # about one half.
    points = [(_most_of_sums(policy, _means(policy, law)), 0.0)]
    while high - low > 1:
        number = min(max(int(guess), low + 1), high - 1)
        one_more = assessed(number - 1)
        if one_more.admitted[0]:
            low = number
        else:
            high = number
        points.append((number, _deviations(
            float(one_more.overload_probability[0]))))
        guess = _crossing(*points[-2:], target)
        if guess is None or len(points) > _GUESSES:
            guess = (low + high) / 2
    reason = None if low == MOST else assessed(low).explain(0)
    rates = low * law.mean
    rate_kbps = float(rates[:2].sum())
    cpu_mhz = _cpu_mhz(policy, rates)
    if not low:
        return HostSize(0, reason, 0.0, 0.0, 0.0, rate_kbps, cpu_mhz)
    last = assessed(low - 1)
    return HostSize(low, reason, float(last.overload_probability[0]),
                    float(last.loss_fraction[0]), float(last.utilisation[0]),
                    rate_kbps, cpu_mhz)


def most_by_peak(policy, law):
    """Return how many equal instances fit if all are at their peak.

    :param policy: HostPolicy of the host
    :param law: RateLaw of each instance
    :returns: int, 0..:data:`MOST`
    """
    return _most_of(policy, law, [
        values.max() for values in _values(policy, law)])


def most_by_average(policy, law):
    """Return how many equal instances the policy ``average`` admits.

    :param policy: HostPolicy of the host
    :param law: RateLaw of each instance
    :returns: int, 0..:data:`MOST`
    """
    return _most_of(policy, law, _means(policy, law))


def _values(policy, law):
    """Return the rates of a law in the unit of each limit of a host."""
    return [law.values(weights, policy.profile.typical_packet_bytes)
            for weights, _, _ in policy.limits]


def _means(policy, law):
    return [values @ law.probabilities for values in _values(policy, law)]


def _most_of(policy, law, rates):
    """Return how many instances with these rates fit within the limits."""
    slack = 1 + fourier_sum.TOLERANCE
    if any(values.max() > most * slack for values, (_, _, most)
           in zip(_values(policy, law), policy.limits)):
        return 0
    return math.floor(min(_most_of_sums(policy, rates),
                          _most_counted(policy)))


def _most_of_sums(policy, rates):
    """Return the ratio of the limits to these rates, the smallest one."""
    return min((capacity * (1 + fourier_sum.TOLERANCE) / float(rate)
                for (_, capacity, _), rate in zip(policy.limits, rates)
                if rate > 0), default=math.inf)


def _most_counted(policy):
    """Return how many idle instances a host admits, by counted limits."""
    if not policy.counts:
        return MOST
    return bisect.bisect_left(
        range(MOST), True, key=lambda others: not _with_others(
            policy, rate_law.SILENT, others).admitted[0])


def _likely_size(policy, law):
    """Return a first guess of the size, for normally distributed sums."""
    sizes = [math.inf]
    deviations = max(_deviations(policy.limit_in_force), 0.0)
    for values, (_, capacity, _) in zip(_values(policy, law), policy.limits):
        peak = float(values.max())
        if peak <= 0 or capacity == math.inf:
            continue
        # In units of the peak, because rates may have any magnitude.
        shares = values / peak
        mean = float(shares @ law.probabilities)
        room = capacity / peak
        if mean <= 0:
            continue
        spread = deviations * math.sqrt(max(
            float(shares ** 2 @ law.probabilities) - mean ** 2, 0.0))
        # n mean + spread sqrt(n) = room, solved for sqrt(n).
        root = (math.sqrt(spread * spread + 4 * mean * room)
                - spread) / (2 * mean)
        sizes.append(root * root)
    return min(sizes)


def _deviations(probability):
    """Return how many standard deviations a normal value exceeds.

    This turns a probability into a number that is almost linear in the size.
    """
    return -_NORMAL.inv_cdf(min(max(probability, 1e-300), 1 - 1e-15))


def _crossing(first, second, target):
    """Return the size at which the line through two points is at ``target``.

    :param first: (size, deviations)
    :param second: (size, deviations)
    :returns: float, or None if the sizes or the deviations are equal
    """
    size, deviations = first
    if size == second[0] or deviations == second[1]:
        return None
    return size + (target - deviations) * (second[0] - size) / (
        second[1] - deviations)


def _with_others(policy, law, number):
    """Return the Assessment of one more instance on a host of equal ones.

    :param number: number of instances on the host
    """
    table = admission.LoadTable()
    slot = table.describe('host', policy, dict.fromkeys(range(number), law))
    return table.assess([slot], law)


def _cpu_mhz(policy, rates):
    """Return the processor frequency that switching takes, or None.

    :param rates: (3,) egress_kbps, ingress_kbps, kpps; 0 kpps means unknown
    """
    if policy.profile is None:
        return None
    rate_kbps = float(rates[0] + rates[1])
    packet_bytes = rate_kbps / (8.0 * rates[2]) if rates[2] else None
    return policy.profile.cpu_mhz(rate_kbps, packet_bytes or None)


def fleet_size(policy, laws):
    """Return the FleetSize of instances that arrive one after the other.

    :param policy: admission.HostPolicy of every host
    :param laws: iterable of the RateLaw of each instance, in the order of
        arrival
    """
    table = admission.LoadTable()
    slots, hosts, refused = [], [], 0
    overload, rates = [], []
    for number, law in enumerate(laws):
        assessment = table.assess(slots, law)
        admitting_hosts = np.flatnonzero(assessment.admitted)
        if admitting_hosts.size:
            host = int(admitting_hosts[0])
            table.change({hosts[host]: ({number: law}, ())})
            overload[host] = float(assessment.overload_probability[host])
            rates[host] += law.mean
            continue
        alone = _with_others(policy, law, 0)
        if not alone.admitted[0]:
            refused += 1
            continue
        hosts.append(len(hosts))
        slots.append(table.describe(hosts[-1], policy, {number: law}))
        overload.append(float(alone.overload_probability[0]))
        rates.append(np.array(law.mean))
    cpu = [_cpu_mhz(policy, rate) for rate in rates]
    return FleetSize(
        len(hosts), refused, np.array(overload),
        np.array([rate[:2].sum() for rate in rates]),
        None if None in cpu else np.array(cpu, dtype=float))
