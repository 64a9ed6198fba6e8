# SPDX-License-Identifier: Apache-2.0
"""How many more instances fit on each host."""

from collections.abc import Callable
import dataclasses

from vswitch_aware_scheduler.admission import demand as demand_rules
from vswitch_aware_scheduler.admission import sizing
from vswitch_aware_scheduler.fleet import view as fleet_view

__all__ = ['room']


def room(view: fleet_view.FleetView, hosts: list[str],
         demand: demand_rules.Demand,
         progress: Callable | None = None) -> list[int | None]:
    """Return how many more instances fit on hosts, at most sizing.MOST.

    None stands for a host that is not judged. Each host is computed as if it
    received all instances that join its uplinks. New instances are not busy at
    the same times, even if a learned law of one instance is their demand.

    :param hosts: hosts whose :meth:`.FleetView.loads` were computed
    """
    demand = dataclasses.replace(demand, law=demand.law.independent())
    policies = [view.policies[host] for host in hosts]
    rooms = _rooms(view.host_table, hosts, [
        demand.law_on(policy) for policy in policies], progress)
    names = sorted({uplink.name for policy in policies
                    for uplink in policy.uplinks})
    of_uplink = {}
    if names:
        view.uplink_loads(sorted(view.uplinks))
        of_uplink = dict(zip(names, _rooms(view.uplink_table, names, [
            demand.law_on(view.uplinks[name].policy) for name in names])))
    return [
        min([number, *(of_uplink[uplink.name] for uplink in policy.uplinks)])
        if policy.judged and (policy.profile or policy.uplinks) else None
        for policy, number in zip(policies, rooms)]


def _rooms(table, names, laws, progress=None):
    """Return how many more instances some hosts of a table admit.

    The table is unchanged afterwards.

    :param laws: RateLaw of a new instance, for each host
    """
    low, high = [0] * len(names), [None] * len(names)
    dummies = [0] * len(names)
    rounds = 0
    while True:
        active = [i for i in range(len(names))
                  if high[i] is None or high[i] - low[i] > 1]
        active = [i for i in active if low[i] < sizing.MOST]
        if not active:
            break
        if progress is not None:
            rounds += 1
            progress(min(rounds, 20), 21)
        number = {i: min(max(2 * low[i], 1), sizing.MOST)
                  if high[i] is None else (low[i] + high[i]) // 2
                  for i in active}
        _set_dummies(table, names, laws, dummies,
                     {i: number[i] - 1 for i in active})
        assessment = table.assess_each(
            table.rows_of([names[i] for i in active]),
            [laws[i] for i in active])
        for i, fits in zip(active, assessment.fits.tolist()):
            if fits:
                low[i] = number[i]
            else:
                high[i] = number[i]
    _set_dummies(table, names, laws, dummies,
                 dict.fromkeys(range(len(names)), 0))
    return low


def _set_dummies(table, names, laws, dummies, numbers):
    changes = {}
    for i, number in numbers.items():
        added = {('new', k): laws[i] for k in range(dummies[i], number)}
        removed = [('new', k) for k in range(number, dummies[i])]
        if added or removed:
            changes[names[i]] = added, removed
        dummies[i] = number
    table.change(changes)
