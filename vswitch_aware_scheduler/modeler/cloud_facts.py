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
    """

    def __init__(self, access: http.Access | None, make_policies: Callable,
                 options: dict | None = None, **sleep: Callable) -> None:
        self.options = options or {}
        self._access = access
        self._make_policies = make_policies
        self._sleep = sleep

    def update(self, store: model_store.Store,
               now: float) -> policy_in_force.Policies:
        """Read the fleet from Nova and write it to the store.

        :raises TelemetryError: if Nova does not answer; nothing is written
        """
        cloud = {} if self._access is None else nova.read_cloud(
            self._access, aggregate_metadata.PREFIX, **self._sleep)
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
