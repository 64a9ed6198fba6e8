# SPDX-License-Identifier: Apache-2.0
"""What the store knows of the fleet: aggregates, flavors, policies in force.

:class:`Fleet` reads aggregates, hosts and flavors from Nova, finds the policy
of each host by the code that the scheduler uses, and writes all of it to the
store, from which commands show the fleet without asking Nova. Opens nothing
itself; no clock but the one handed in.
"""

from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.modeler import placement_inventory

__all__ = ['Fleet', 'stored_policies']


class Fleet:
    """Brings what the store knows of the fleet up to date.

    :param access: :class:`.Access` of Nova, None: Nova may not be
        asked, and the policies follow from profiles of the store and the
        options
    :param make_policies: returns (HostPolicies, UplinkPolicies), called for
        each update
    :param corrections: :class:`.Corrections`
    :param options: {option: value} of those that schedulers have to have
        alike
    :param sleep: waits seconds, None: as :class:`.Client` does
    :ivar options: as given
    """

    def __init__(self, access, make_policies, corrections, options=None,
                 **sleep):
        self.options = options or {}
        self._access = access
        self._make_policies = make_policies
        self._corrections = corrections
        self._sleep = sleep

    def update(self, store, clock):
        """Read and write what there is.

        :param store: :class:`~vswitch_aware_scheduler.store.Store`
        :param clock: returns the time, seconds UTC
        :returns: :class:`.Policies`
        :raises TelemetryError: when Nova cannot be asked; nothing is written
        :raises StoreError: when the store cannot be read or written
        """
        read = {} if self._access is None else placement_inventory.read_cloud(
            self._access, **self._sleep)
        found = stored_policies(
            store, *self._make_policies(), self._corrections,
            aggregates=read.get('aggregate'), nodes=read.get('node'))
        facts = {kind: read[kind] for kind in ('aggregate', 'flavor')
                 if kind in read}
        store.write_fleet({
            **facts, 'options': {'modeler': self.options}, 'host': {
                host: {**policy_in_force.pack(policy),
                       'origins': found.origins[host]}
                for host, policy in found.hosts.items()},
            'uplink': {name: policy_in_force.pack(uplink.policy)
                       for name, uplink in found.uplinks.items()}},
            float(clock()))
        return found


def stored_policies(store, host_policies, uplink_policies, corrections,
                    aggregates=None, nodes=None, placed_on=None):
    """Return the :class:`.Policies` of all hosts.

    Hosts are those of Nova, of aggregates, of profiles of the store, and
    those that instances are on.

    :param aggregates: {id: dictionary} of Nova; None: those of the store
    :param nodes: {id: (host, whether it is bare metal)} of Nova, or None
    :param placed_on: hosts that instances are on; None: as the store says
    :raises StoreError: when the store cannot be read
    """
    if aggregates is None:
        aggregates = store.fleet('aggregate').facts
    profiles = {one.host: one for one in store.host_profiles()}
    nodes = dict(nodes.values()) if nodes is not None else {}
    hosts = {host for one in aggregates.values() for host in one['hosts']}
    if placed_on is None:
        placed_on = {one.host for one in store.placements().values()} - {None}
    hosts.update(profiles, nodes, placed_on)
    return policy_in_force.find(
        sorted(hosts), aggregates.values(), profiles, host_policies,
        uplink_policies, corrections, store.trial_outcomes(),
        {host for host, bare_metal in nodes.items() if bare_metal})
