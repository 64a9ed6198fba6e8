# SPDX-License-Identifier: Apache-2.0
"""How many instances a host can have, and how many hosts a fleet needs.

Asks the very code that admits. Pure; knows no store and no Nova.
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

#: Instances on a host up to which is counted: for more than that the numbers
#: were never checked.
MOST = 1000

_NORMAL = statistics.NormalDist()

#: A search that has not ended after so many guesses goes on by halves.
_GUESSES = 8


@dataclasses.dataclass(frozen=True)
class HostSize:
    """As many equal instances as a host admits one after the other.

    :ivar instances: how many; :data:`MOST` when no limit was met
    :ivar reason: in words, why there is not one more; None at :data:`MOST`
    :ivar overload_probability: of the host that has them
    :ivar loss_fraction: share of its traffic that is cut away
    :ivar utilisation: mean rate over capacity of the tightest limit
    :ivar rate_kbps: mean egress and ingress together
    :ivar cpu_mhz: what switching that takes, None where the profile does not
        state it
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

    :ivar hosts: how many are needed
    :ivar refused: instances that not even an empty host admits
    :ivar overload_probability: (hosts,) of each host
    :ivar rate_kbps: (hosts,) mean egress and ingress together
    :ivar cpu_mhz: (hosts,) what switching takes, None as in HostSize
    """

    hosts: int
    refused: int
    overload_probability: np.ndarray
    rate_kbps: np.ndarray
    cpu_mhz: np.ndarray | None


def host_size(policy, law):
    """Return the HostSize of a host for independent instances of one law.

    Instances with the same classes would all be high at the same time, which
    nobody means who asks for so many of a kind: classes are left out.

    :param policy: admission.HostPolicy without uplinks
    :param law: RateLaw of each of the instances
    """
    law = law.without_classes()
    assessed = functools.cache(functools.partial(_with_others, policy, law))
    # What is admitted with n others is admitted with fewer.
    if policy.policy == admission.AVERAGE:
        low = most_by_average(policy, law)
        high = low + 1
    else:
        low, high = most_by_peak(policy, law), _most_counted(policy) + 1
    guess = min(_likely_size(policy, law), MOST)
    wanted = _deviations(policy.overload_probability)
    # With averages at the capacity, overload is about as likely as not.
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
        guess = _crossing(*points[-2:], wanted)
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
    """Return how many equal instances fit when all are at their peak.

    :returns: 0..:data:`MOST`
    """
    return _most_of(policy, law, [
        values.max() for values in _values(policy, law)])


def most_by_average(policy, law):
    """Return how many equal instances the policy ``average`` admits.

    :returns: 0..:data:`MOST`
    """
    return _most_of(policy, law, _means(policy, law))


def _values(policy, law):
    """Return the rates of a law in the unit of each limit of a host."""
    return [law.values(weights, policy.profile.typical_packet_bytes)
            for weights, _, _ in policy.limits]


def _means(policy, law):
    return [values @ law.probabilities for values in _values(policy, law)]


def _most_of(policy, law, rates):
    """Return how many instances fit that take these rates of the limits."""
    slack = 1 + fourier_sum.TOLERANCE
    if any(values.max() > most * slack for values, (_, _, most)
           in zip(_values(policy, law), policy.limits)):
        return 0
    return math.floor(min(_most_of_sums(policy, rates),
                          _most_counted(policy)))


def _most_of_sums(policy, rates):
    """Return how many times these rates go into the limits, as a float."""
    return min((capacity * (1 + fourier_sum.TOLERANCE) / float(rate)
                for (_, capacity, _), rate in zip(policy.limits, rates)
                if rate > 0), default=math.inf)


def _most_counted(policy):
    """Return how many silent instances a host admits: what is counted."""
    if not policy.counts:
        return MOST
    return bisect.bisect_left(
        range(MOST), True, key=lambda others: not _with_others(
            policy, rate_law.SILENT, others).admitted[0])


def _likely_size(policy, law):
    """Return the size if sums were normally distributed: a first guess."""
    sizes = [math.inf]
    deviations = max(_deviations(policy.overload_probability), 0.0)
    for values, (_, capacity, _) in zip(_values(policy, law), policy.limits):
        peak = float(values.max())
        if peak <= 0 or capacity == math.inf:
            continue
        # In units of the peak: rates may be anything that a float can be.
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
    """Return how many standard deviations a normal value is exceeded by.

    So a probability becomes a number that is nearly linear in the size.
    """
    return -_NORMAL.inv_cdf(min(max(probability, 1e-300), 1 - 1e-15))


def _crossing(first, second, wanted):
    """Return the size at which the line through two points is as wanted.

    :param first: (size, deviations)
    :param second: likewise
    :returns: float, or None when the points tell no such line
    """
    size, deviations = first
    if size == second[0] or deviations == second[1]:
        return None
    return size + (wanted - deviations) * (second[0] - size) / (
        second[1] - deviations)


def _with_others(policy, law, others):
    """Return the Assessment of one more beside so many."""
    table = admission.LoadTable()
    slot = table.describe('host', policy, dict.fromkeys(range(others), law))
    return table.assess([slot], law)


def _cpu_mhz(policy, rates):
    """Return what switching takes of a mean load, or None.

    :param rates: (3,) egress_kbps, ingress_kbps, kpps; 0 kpps: not known
    """
    if policy.profile is None:
        return None
    rate_kbps = float(rates[0] + rates[1])
    packet_bytes = rate_kbps / (8.0 * rates[2]) if rates[2] else None
    return policy.profile.cpu_mhz(rate_kbps, packet_bytes or None)


def fleet_size(policy, laws):
    """Return the FleetSize of instances that come one after the other.

    :param policy: admission.HostPolicy of every host
    :param laws: RateLaw of each instance, in the order in which they come
    """
    table = admission.LoadTable()
    slots, hosts, refused = [], [], 0
    overload, rates = [], []
    for number, law in enumerate(laws):
        found = table.assess(slots, law)
        where = np.flatnonzero(found.admitted)
        if where.size:
            host = int(where[0])
            table.change({hosts[host]: ({number: law}, ())})
            overload[host] = float(found.overload_probability[host])
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
    cpu = [_cpu_mhz(policy, one) for one in rates]
    return FleetSize(
        len(hosts), refused, np.array(overload),
        np.array([one[:2].sum() for one in rates]),
        None if None in cpu else np.array(cpu, dtype=float))
