# SPDX-License-Identifier: Apache-2.0
"""How many instances a host can have, and how many hosts a fleet needs.

Asks the very code that admits. Pure; knows no store and no Nova.
"""

import dataclasses

import numpy as np

from vswitch_aware_scheduler import admission

__all__ = ['FleetSize', 'HostSize', 'MOST', 'fleet_size', 'host_size']

#: Instances on a host up to which is counted: for more than that the numbers
#: were never checked.
MOST = 1000


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
    """Return the HostSize of a host for instances of one law.

    :param policy: admission.HostPolicy
    :param law: RateLaw of each of the instances
    """
    # What is admitted with n others is admitted with fewer.
    low, high = 0, 1
    while high <= MOST and _with_others(policy, law, high - 1).admitted[0]:
        low, high = high, 2 * high
    high = min(high, MOST + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if _with_others(policy, law, middle - 1).admitted[0]:
            low = middle
        else:
            high = middle
    reason = None if low == MOST else \
        _with_others(policy, law, low).explain(0)
    rates = low * law.mean
    rate_kbps = float(rates[:2].sum())
    cpu_mhz = _cpu_mhz(policy, rates)
    if not low:
        return HostSize(0, reason, 0.0, 0.0, 0.0, rate_kbps, cpu_mhz)
    last = _with_others(policy, law, low - 1)
    return HostSize(low, reason, float(last.overload_probability[0]),
                    float(last.loss_fraction[0]), float(last.utilisation[0]),
                    rate_kbps, cpu_mhz)


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
