# SPDX-License-Identifier: Apache-2.0
"""How often a host is overloaded, and for how long."""

import math

import numpy as np

from vswitch_aware_scheduler.fleet import view as fleet_view
from vswitch_aware_scheduler.traffic import superposition

__all__ = ['expected']

_DAY_SECONDS = 86400.0


def expected(view: fleet_view.FleetView, host: str,
             overload_probability: float) -> tuple[float, float | None]:
    """Return the overload episodes of a host.

    Their number follows from the overload probability and their mean length.
    For the length, instances count as independent of each other, and those
    without a model with their mean rate.

    :returns: (number a day, mean length in seconds or None without episodes)
    """
    seconds = _mean_seconds(view, host)
    return (overload_probability * _DAY_SECONDS / seconds if seconds else 0.0,
            seconds)


def _mean_seconds(view, host):
    policy = view.policies[host]
    if policy.profile is None:
        return None
    laws = view.laws(host)
    limits = [limit for limit in policy.limits
              if _may_overload(laws.values(), policy, limit)]
    chains_by_uuid = view.store.chains(laws) if limits else {}
    if not chains_by_uuid:
        return None
    chains = [chain for _, chain in chains_by_uuid.values()]
    average = sum((law.mean for uuid, law in laws.items()
                   if uuid not in chains_by_uuid), np.zeros(3))
    share, rate = map(sum, zip(*(
        _overload_of(chains, average, policy, limit) for limit in limits)))
    return share / rate if share and rate else None


def _may_overload(laws, policy, limit):
    weights, capacity, _ = limit
    if not math.isfinite(capacity):
        return False
    packet_bytes = policy.profile.typical_packet_bytes
    return sum(float(law.values(weights, packet_bytes).max())
               for law in laws) > capacity


def _overload_of(chains, average, policy, limit):
    """Return the overload of one limit: (share of time, overloads/s).

    :param average: sum of the mean rates of instances without a model
    """
    weights, capacity, _ = limit
    free = capacity - float(np.dot(weights, average))
    if free <= 0:
        return 0.0, 0.0
    if weights[2]:
        packet_bytes = policy.profile.typical_packet_bytes
        chains = [chain if chain.packets_known
                  else chain.with_packets(packet_bytes)
                  for chain in chains]
    total = superposition.Superposition(chains, free, weights)
    return total.overload_probability(), total.episodes_per_second()
