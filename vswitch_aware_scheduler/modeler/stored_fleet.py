# SPDX-License-Identifier: Apache-2.0
"""Reads the fleet from the store, with the policies of the modeler."""

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.modeler import fleet
from vswitch_aware_scheduler.report import stored_fleet

__all__ = ['read']


def read(store, make_policies, default_law, uses_budgets=False,
         ignores_unknown=False, host_facts=None):
    """Return the :class:`.StoredFleet` of a store.

    :param store: Store
    :param make_policies: callable(), returns (HostPolicies, UplinkPolicies)
        for hosts whose policy no modeler has stored yet
    :param default_law: as in :class:`.StoredFleet`
    :param uses_budgets: as in :class:`.StoredFleet`
    :param ignores_unknown: as in :class:`.StoredFleet`
    :param host_facts: {host: packed policy} as the modeler stored them; None
        reads them
    :raises StoreError: if the store cannot be read
    """
    if host_facts is None:
        host_facts = store.fleet('host').facts
    return stored_fleet.StoredFleet(
        store, lambda hosts: _find_policies(
            store, make_policies, host_facts, hosts),
        default_law, uses_budgets, ignores_unknown)


def _find_policies(store, make_policies, facts, hosts):
    """Return the stored Policies of a fleet; compute those not yet stored.

    :param make_policies: as in :func:`read`
    :param facts: {host: packed policy}
    :param hosts: set of names of hosts, also of hosts that ``facts`` lacks
    """
    policies, uplinks, problems = policy_in_force.unpack(
        facts, store.fleet('uplink').facts)
    origins = {host: data.get('origins') or {}
               for host, data in facts.items()}
    missing = hosts - facts.keys()
    if missing:
        # No modeler has stored the policies of these hosts yet.
        computed = fleet.stored_policies(
            store, *make_policies(), placed_on=hosts)
        problems.update(computed.problems)
        for host in missing:
            policies[host] = computed.hosts[host]
            origins[host] = computed.origins[host]
        if not facts:
            uplinks = computed.uplinks
    for host in facts.keys() - policies.keys():
        policies[host] = admission.HostPolicy(None, judged=False)
    return policy_in_force.Policies(policies, uplinks, origins, problems)
