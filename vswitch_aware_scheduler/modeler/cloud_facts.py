# SPDX-License-Identifier: Apache-2.0
"""Reads Nova once a pass and stores the facts of the fleet.

Budgets, plans, commands and the report read the facts from the store, without
a request to Nova. No clock except the one that is passed.
"""

from collections.abc import Callable

from vswitch_aware_scheduler.admission import aggregate_metadata
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler import store as model_store

__all__ = ['CloudFacts']


class CloudFacts:
    """Updates aggregates, flavors and the facts of hosts in the store.

    What Nova does not let this user read stays in force.

    :param access: Access of Nova; None: no access to Nova, the facts follow
        from the store and from the options
    :param make_policies: callable(), returns (HostPolicies, UplinkPolicies);
        called for each update
    :param options: {option: value} of the options that schedulers must have
        equal
    :param hosts: names of the only hosts of interest; None: all
    """

    def __init__(self, access: http.Access | None, make_policies: Callable,
                 options: dict | None = None, hosts: set | None = None,
                 **sleep: Callable) -> None:
        self.options = options or {}
        self._access = access
        self._make_policies = make_policies
        self._hosts = hosts
        self._sleep = sleep

    def update(self, store: model_store.Store,
               now: float) -> policy_in_force.Policies:
        """Read the fleet from Nova and write it to the store.

        :raises TelemetryError: if Nova does not answer; nothing is written
        """
        cloud = {} if self._access is None else nova.read_cloud(
            self._access, aggregate_metadata.PREFIX, **self._sleep)
        if self._hosts is not None:
            cloud = self._restricted(cloud)
        nodes = cloud.pop('node', None)
        hosts = facts.host_nodes(store) if nodes is None else \
            facts.by_host(nodes)
        host_policies, uplinks = self._make_policies()
        policies = facts.policies(store, host_policies, uplinks,
                                  cloud.get('aggregate'), hosts)
        store.write_fleet({
            **cloud, **({} if nodes is None else {'node': {}}),
            'host': {
                host: {**policy_in_force.pack(policy),
                       'origins': policies.origins[host],
                       **facts.of_nova(hosts, host)}
                for host, policy in policies.hosts.items()},
            'uplink': {name: policy_in_force.pack(uplink.policy)
                       for name, uplink in policies.uplinks.items()}}, now)
        return policies

    def _restricted(self, cloud):
        """Return what was read without other hosts."""
        if 'node' in cloud:
            cloud['node'] = {uuid: node for uuid, node in cloud['node'].items()
                             if node[0] in self._hosts}
        if 'aggregate' in cloud:
            cloud['aggregate'] = {
                name: {**aggregate, 'hosts': sorted(
                    self._hosts.intersection(aggregate['hosts']))}
                for name, aggregate in cloud['aggregate'].items()}
        return cloud
