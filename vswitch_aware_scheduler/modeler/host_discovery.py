# SPDX-License-Identifier: Apache-2.0
"""Which profile the switch of each host has: from Neutron into the store.

:func:`read_agents` asks Neutron, :mod:`~vswitch_aware_scheduler.vswitch
.discovery` makes proposals of its answer, and :func:`apply` writes them. What
somebody else wrote, by hand for instance, stays unless that is asked for.
"""

import dataclasses

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import openstack
from vswitch_aware_scheduler import store as model_store

__all__ = ['SOURCE', 'Step', 'apply', 'plan', 'read_agents']

#: Source of the records of hosts that were discovered.
SOURCE = 'discovered'


@dataclasses.dataclass(frozen=True)
class Step:
    """What becomes of a host's record.

    :ivar host: its name
    :ivar action: 'new', 'changed', 'same', 'kept': somebody else's, or
        'none': nothing was proposed
    :ivar before: HostProfile in the store, or None
    """

    host: str
    action: str
    before: model_store.HostProfile | None


def read_agents(access, **sleep):
    """Return the agents of a Neutron, as dictionaries.

    All are asked for at once: what ML2/OVN adds to an answer is on each of
    its pages, and the link to a next one as well.

    :param access: :class:`.Access` of Neutron
    :param sleep: waits seconds, None: as :class:`.Client` does
    :raises TelemetryError: when they cannot be read to their end
    """
    name = f'neutron {access.where()}'
    found = {}
    with openstack.SdkClient(access, name, 'network', **sleep) as client:
        for page in openstack.pages(
            client,
            'agents',
            '/agents',
            _agent,
            repeats=True,
            connect_retries=0,
        ):
            found.update(page)
    return list(found.values())


def _agent(agent):
    """Return an agent as it is, when it is one."""
    for key, kind in (('id', str), ('host', str), ('agent_type', str),
                      ('alive', bool), ('configurations', dict)):
        if not isinstance(agent[key], kind):
            raise ValueError(f'{key} of an agent is '
                             f'{http.shown(agent[key])}, wanted '
                             f'{kind.__name__}')
    return agent


def plan(records, proposals, force=False):
    """Return what would become of the hosts' records.

    :param records: HostProfile of the store
    :param proposals: :class:`.discovery.Proposal` of each host
    :param force: whether records of others are replaced
    :returns: list of :class:`Step`, one for each proposal
    """
    known = {one.host: one for one in records}
    return [Step(one.host, _action(known.get(one.host), one, force),
                 known.get(one.host)) for one in proposals]


def _action(before, proposal, force):
    if proposal.profile is None:
        return 'none'
    if before is None:
        return 'new'
    if (before.profile, before.overrides) == (proposal.profile,
                                              proposal.overrides):
        return 'same'
    if before.source != SOURCE and not force:
        return 'kept'
    return 'changed'


def apply(store, proposals, force=False):
    """Write proposals to a store; what is the same is not written again.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param proposals: as :func:`plan` takes them
    :param force: whether records of others are replaced
    :returns: list of :class:`Step` that were taken
    :raises StoreError: when the store cannot be read or written
    """
    steps = plan(store.host_profiles(), proposals, force)
    records = [
        model_store.HostProfile(one.host, one.profile, one.overrides, SOURCE)
        for one, step in zip(proposals, steps)
        if step.action in ('new', 'changed')]
    if records:
        store.write(host_profiles=records)
    return steps
