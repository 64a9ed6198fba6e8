# SPDX-License-Identifier: Apache-2.0
"""Updates the data about the fleet in the store.

:class:`Fleet` reads aggregates, hosts and flavors from Nova, determines the
policy of each host with the same code as the scheduler, and writes all of it
to the store. Commands then show the fleet without a request to Nova. The
constructor opens nothing; no clock except the one that is passed.
"""

from vswitch_aware_scheduler.admission import aggregate_metadata
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.modeler import host_discovery

__all__ = ['Fleet', 'hosts_not_in_nova', 'most_kbps', 'stored_policies']

#: Number of names in a message.
_MOST_NAMED = 5


class Fleet:
    """Updates aggregates, flavors and policies in force in the store.

    :param access: :class:`.Access` of Nova; None: no access to Nova, the
        policies follow from the profiles in the store and from the options
    :param make_policies: callable(), returns (HostPolicies, UplinkPolicies);
        called for each update
    :param options: {option: value} of the options that schedulers must have
        equal
    :param sleep: keyword ``sleep`` of :class:`.Client`
    :ivar options: as passed to the constructor
    """

    def __init__(self, access, make_policies, options=None, **sleep):
        self.options = options or {}
        self._access = access
        self._make_policies = make_policies
        self._sleep = sleep

    def update(self, store, clock):
        """Read the fleet from Nova and write it to the store.

        :param store: :class:`~vswitch_aware_scheduler.store.Store`
        :param clock: callable, returns seconds UTC
        :returns: :class:`.Policies` of the fleet
        :raises TelemetryError: if Nova does not answer; nothing is written
        :raises StoreError: if the store cannot be read or written
        """
        cloud = {} if self._access is None else nova.read_cloud(
            self._access, aggregate_metadata.PREFIX, **self._sleep)
        policies = stored_policies(
            store, *self._make_policies(), aggregates=cloud.get('aggregate'),
            nodes=cloud.get('node'))
        facts = {kind: cloud[kind] for kind in ('aggregate', 'flavor')
                 if kind in cloud}
        if 'node' in cloud:
            facts['bare_metal'] = {
                host: {} for host, bare_metal in cloud['node'].values()
                if bare_metal}
        of_nova = {host for host, _ in cloud.get('node', {}).values()}
        store.write_fleet({
            **facts, 'options': {'modeler': self.options}, 'host': {
                host: {**policy_in_force.pack(policy),
                       'origins': policies.origins[host],
                       **({'in_nova': host in of_nova} if of_nova else {})}
                for host, policy in policies.hosts.items()},
            'uplink': {name: policy_in_force.pack(uplink.policy)
                       for name, uplink in policies.uplinks.items()}},
            float(clock()))
        return policies


def stored_policies(store, host_policies, uplink_policies, aggregates=None,
                    nodes=None, placed_on=None):
    """Return the :class:`.Policies` of all hosts.

    The hosts are those of Nova, of aggregates, of profiles in the store, and
    those with instances.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param host_policies: :class:`.HostPolicies`
    :param uplink_policies: :class:`.UplinkPolicies`
    :param aggregates: {id: dictionary} from Nova; None uses those in the store
    :param nodes: {id: (host, whether it is bare metal)} from Nova; None uses
        the bare metal hosts in the store
    :param placed_on: set of the hosts with instances; None reads it from the
        store
    :raises StoreError: if the store cannot be read
    """
    if aggregates is None:
        aggregates = store.fleet('aggregate').facts
    profiles = {profile.host: profile for profile in store.host_profiles()}
    if nodes is None:
        bare_metal = store.fleet('bare_metal').facts.keys()
        nodes = {}
    else:
        nodes = dict(nodes.values())
        bare_metal = {host for host, is_bare in nodes.items() if is_bare}
    hosts = {
        host
        for aggregate in aggregates.values()
        for host in aggregate['hosts']
    }
    if placed_on is None:
        placed_on = {record.host
                     for record in store.placements().values()} - {None}
    hosts.update(profiles, nodes, placed_on)
    return policy_in_force.find(
        sorted(hosts), aggregates.values(), profiles, host_policies,
        uplink_policies, bare_metal)


def most_kbps(store):
    """Return the largest possible rate of each instance on its host.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :returns: {instance uuid: kbit/s in one direction}, without instances on
        hosts whose profile in the store does not state this rate
    :raises StoreError: if the store cannot be read
    """
    placements = store.placements()
    policies, _, _ = policy_in_force.unpack(
        store.fleet('host').facts if placements else {}, {})
    by_host = {host: policy.profile.most_kbps
               for host, policy in policies.items()
               if policy.profile is not None}
    return {uuid: by_host[placement.host]
            for uuid, placement in placements.items()
            if by_host.get(placement.host) is not None}


def hosts_not_in_nova(store, profiles):
    """Return which hosts with a profile in the store Nova does not have.

    Discovered profiles are not checked, because Neutron also has agents on
    hosts without nova-compute.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param profiles: list of :class:`~.HostProfile`
    :returns: the problem in words, or None; also None if no modeler has stored
        which hosts Nova has
    :raises StoreError: if the store cannot be read
    """
    hosts = {profile.host for profile in profiles
             if profile.source != host_discovery.SOURCE}
    of_nova = {host for host, facts in store.fleet('host').facts.items()
               if facts.get('in_nova')} if hosts else set()
    unknown = sorted(hosts - of_nova)
    if not of_nova or not unknown:
        return None
    # The search for the nearest name compares all names.
    named = [host + plain_text.nearest(host, of_nova)
             for host in unknown[:_MOST_NAMED]]
    return ('by the last reading of the modeler, Nova has no host of the '
            'name: '
            + plain_text.first_of(named + unknown[_MOST_NAMED:],
                                  most=_MOST_NAMED)
            + '; its switch profile in the store has no effect')
