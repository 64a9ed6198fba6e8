# SPDX-License-Identifier: Apache-2.0
"""Read the fleet from the store, with the options of a command."""

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.modeler import fleet
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler.report import stored_fleet
from vswitch_aware_scheduler.traffic import model

__all__ = ['read']


def read(store, group, host_facts=None):
    """Return the :class:`.StoredFleet` of a store.

    :param store: Store
    :param group: options of the group [vswitch_scheduler]
    :param host_facts: {host: packed policy} as the modeler stored them; None
        reads them
    :raises StoreError: if the store cannot be read
    """
    if host_facts is None:
        host_facts = store.fleet('host').facts

    def find_policies(hosts):
        return _find_policies(store, group, host_facts, hosts)

    return stored_fleet.StoredFleet(
        store, find_policies,
        model.TrafficModel.on_off(**options.default_demand(group)).law,
        group.error_budgets,
        group.unknown_instance_policy == 'ignore')


def _find_policies(store, group, facts, hosts):
    """Return the stored Policies of a fleet; compute those not yet stored.

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
            store, *wiring.make_policies(group), placed_on=hosts)
        problems.update(computed.problems)
        for host in missing:
            policies[host] = computed.hosts[host]
            origins[host] = computed.origins[host]
        if not facts:
            uplinks = computed.uplinks
    for host in facts.keys() - policies.keys():
        policies[host] = admission.HostPolicy(None, judged=False)
    return policy_in_force.Policies(policies, uplinks, origins, problems)
