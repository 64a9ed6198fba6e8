# SPDX-License-Identifier: Apache-2.0
"""The facts of hosts that a modeler stores, one row a host.

A row has the policy of the host (:mod:`.policy_in_force`), ``origins``, where
its values come from, and what Nova has of the host: ``in_nova``, and
``nodes``, {id of a compute node: whether it is bare metal}. Without both it is
not known whether Nova has the host.
"""

from vswitch_aware_scheduler.admission import host_policies as host_rules
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.admission import uplink_policies as uplink_rules
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.vswitch import discovery

__all__ = ['by_host', 'host_nodes', 'hosts_not_in_nova', 'most_kbps',
           'of_nova', 'policies']

#: Number of names in a message.
_MOST_NAMED = 5


def by_host(nodes: dict) -> dict:
    """Return {host: {id of a compute node: whether it is bare metal}}."""
    hosts = {}
    for node, (host, bare_metal) in nodes.items():
        hosts.setdefault(host, {})[node] = bare_metal
    return hosts


def host_nodes(store: model_store.Store) -> dict:
    """Return the result of :func:`by_host` for the last reading of Nova."""
    return {host: row['nodes'] for host, row
            in store.fleet('host').facts.items() if row.get('nodes')}


def of_nova(nodes: dict, host: str) -> dict:
    """Return what a row of a host has about Nova."""
    return {'in_nova': host in nodes,
            'nodes': nodes.get(host, {})} if nodes else {}


def policies(store: model_store.Store,
             host_policies: host_rules.HostPolicies,
             uplink_policies: uplink_rules.UplinkPolicies,
             aggregates: dict | None = None, nodes: dict | None = None,
             placed_on: set | None = None) -> policy_in_force.Policies:
    """Return the policies of all hosts.

    The hosts are those of Nova, of aggregates, of profiles in the store, and
    those with instances.

    :param aggregates: {id: dictionary} from Nova; None uses those in the store
    :param nodes: as returned by :func:`by_host`; None uses the last reading
    :param placed_on: the hosts with instances; None reads them from the store
    """
    if aggregates is None:
        aggregates = store.fleet('aggregate').facts
    if nodes is None:
        nodes = host_nodes(store)
    if placed_on is None:
        placed_on = {record.host
                     for record in store.placements().values()} - {None}
    profiles = {profile.host: profile for profile in store.host_profiles()}
    hosts = {host for aggregate in aggregates.values()
             for host in aggregate['hosts']}
    hosts.update(profiles, nodes, placed_on)
    return policy_in_force.find(
        sorted(hosts), aggregates.values(), profiles, host_policies,
        uplink_policies, {host for host, its_nodes in nodes.items()
                          if any(its_nodes.values())})


def most_kbps(store: model_store.Store) -> dict:
    """Return the largest possible rate of each instance on its host.

    :returns: {instance uuid: kbit/s in one direction}, without instances on
        hosts whose profile in the store does not state this rate
    """
    placements = store.placements()
    judged, _, _ = policy_in_force.unpack(
        store.fleet('host').facts if placements else {}, {})
    of_host = {host: policy.profile.most_kbps
               for host, policy in judged.items()
               if policy.profile is not None}
    return {uuid: of_host[placement.host]
            for uuid, placement in placements.items()
            if of_host.get(placement.host) is not None}


def hosts_not_in_nova(store: model_store.Store,
                      profiles: list) -> str | None:
    """Return which hosts with a profile in the store Nova does not have.

    Discovered profiles are not checked, because Neutron also has agents on
    hosts without nova-compute.
    """
    hosts = {profile.host for profile in profiles
             if profile.source != discovery.SOURCE}
    in_nova = {host for host, row in store.fleet('host').facts.items()
               if row.get('in_nova')} if hosts else set()
    unknown = sorted(hosts - in_nova)
    if not in_nova or not unknown:
        return None
    # The search for the nearest name compares all names.
    named = [host + plain_text.nearest(host, in_nova)
             for host in unknown[:_MOST_NAMED]]
    return ('by the last reading of the modeler, Nova has no host of the '
            'name: '
            + plain_text.first_of(named + unknown[_MOST_NAMED:],
                                  most=_MOST_NAMED)
            + '; its switch profile in the store has no effect')
