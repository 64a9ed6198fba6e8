# SPDX-License-Identifier: Apache-2.0
"""Writes the switch profiles of hosts that Neutron's agents imply.

:func:`read_agents` reads the agents from Neutron,
:mod:`~vswitch_aware_scheduler.vswitch .discovery` proposes profiles, and
:func:`apply` writes them. Records from another source, for example from an
operator, are kept unless the caller requests their replacement.
"""

import collections
import dataclasses

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import openstack
from vswitch_aware_scheduler import store as model_store

__all__ = ['SOURCE', 'Step', 'apply', 'plan', 'read_agents',
           'virtual_functions']

#: Source of the records of hosts that were discovered.
SOURCE = 'discovered'


@dataclasses.dataclass(frozen=True)
class Step:
    """The change of a host's record.

    :ivar before: HostProfile in the store, or None
    :ivar host: name of the host
    :ivar action: 'new', 'changed', 'same', 'kept' (a record from another
        source) or 'none' (no proposal)
    """

    host: str
    action: str
    before: model_store.HostProfile | None


def read_agents(access, **sleep):
    """Return the agents of Neutron, as dictionaries.

    All agents are requested at once: ML2/OVN adds its agents to each page of
    an answer, and a link to a next page as well.

    :param access: :class:`.Access` of Neutron
    :param sleep: keyword ``sleep`` of :class:`.Client`
    :raises TelemetryError: if the agents cannot be read completely
    """
    name = f'neutron {access.where()}'
    agents = {}
    with openstack.SdkClient(access, name, 'network', **sleep) as client:
        for page in openstack.pages(
            client,
            'agents',
            '/agents',
            _agent,
            repeats=True,
            connect_retries=0,
        ):
            agents.update(page)
    return list(agents.values())


def _agent(agent):
    """Return an agent unchanged, if it is valid."""
    for key, kind in (('id', str), ('host', str), ('agent_type', str),
                      ('alive', bool), ('configurations', dict)):
        if not isinstance(agent[key], kind):
            raise ValueError(f'{key} of an agent: '
                             f'{http.shown(agent[key])}; expected '
                             f'{kind.__name__}')
    return agent


def virtual_functions(store):
    """Return {host: number of interfaces with a virtual function}.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :raises StoreError: if the store cannot be read
    """
    counts = collections.Counter()
    for record in store.placements().values():
        if record.attachments is not None:
            counts[record.host] += record.attachments.virtual_functions
    return counts


def plan(records, proposals, force=False):
    """Return the changes of the hosts' records.

    :param records: iterable of the HostProfile in the store
    :param proposals: list of :class:`.discovery.Proposal`, one for each host
    :param force: whether to replace records from other sources
    :returns: list of :class:`Step`, one for each proposal
    """
    record_of = {record.host: record for record in records}
    return [
        Step(proposal.host,
             _action(record_of.get(proposal.host), proposal, force),
             record_of.get(proposal.host)) for proposal in proposals
    ]


def _action(record, proposal, force):
    if proposal.profile is None:
        return 'none'
    if record is None:
        return 'new'
    if (record.profile, record.overrides) == (proposal.profile,
                                              proposal.overrides):
        return 'same'
    if record.source != SOURCE and not force:
        return 'kept'
    return 'changed'


def apply(store, proposals, force=False):
    """Write proposals to a store. Equal records are not written again.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param proposals: as in :func:`plan`
    :param force: whether to replace records from other sources
    :returns: list of the :class:`Step` of each proposal
    :raises StoreError: if the store cannot be read or written
    """
    steps = plan(store.host_profiles(), proposals, force)
    records = [
        model_store.HostProfile(proposal.host, proposal.profile,
                                proposal.overrides, SOURCE)
        for proposal, step in zip(proposals, steps)
        if step.action in ('new', 'changed')
    ]
    if records:
        store.write(host_profiles=records)
    return steps
