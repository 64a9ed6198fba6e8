# SPDX-License-Identifier: Apache-2.0
"""Writes the switch profiles of hosts that Neutron's agents imply.

:mod:`.clients.neutron` reads the agents, :mod:`.vswitch.discovery` proposes
profiles, and :func:`apply` writes them. Records from another source, for
example from an operator, are kept unless the caller requests their
replacement.
"""

import collections
from collections.abc import Iterable
import dataclasses

from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.vswitch import discovery

__all__ = ['ProfileChange', 'apply', 'plan', 'virtual_functions']


@dataclasses.dataclass(frozen=True)
class ProfileChange:
    """The change of a host's record.

    :ivar action: 'new', 'changed', 'same', 'kept' (a record from another
        source) or 'none' (no proposal)
    """

    host: str
    action: str
    before: model_store.HostProfile | None


def virtual_functions(store: model_store.Store) -> dict[str, int]:
    """Return {host: number of interfaces with a virtual function}."""
    counts: collections.Counter = collections.Counter()
    for record in store.placements().values():
        if record.attachments is not None:
            counts[record.host] += record.attachments.virtual_functions
    return counts


def plan(records: Iterable[model_store.HostProfile],
         proposals: list[discovery.ProposedProfile],
         force: bool = False) -> list[ProfileChange]:
    """Return the changes of the hosts' records."""
    record_of = {record.host: record for record in records}
    return [
        ProfileChange(
            proposal.host,
            _action(record_of.get(proposal.host), proposal, force),
            record_of.get(proposal.host)) for proposal in proposals]


def _action(record, proposal, force):
    if proposal.profile is None:
        return 'none'
    if record is None:
        return 'new'
    if (record.profile, record.overrides) == (proposal.profile,
                                              proposal.overrides):
        return 'same'
    if record.source != discovery.SOURCE and not force:
        return 'kept'
    return 'changed'


def apply(store: model_store.Store, proposals: list[discovery.ProposedProfile],
          force: bool = False) -> list[ProfileChange]:
    """Write proposals to a store. Equal records are not written again."""
    steps = plan(store.host_profiles(), proposals, force)
    records = [
        model_store.HostProfile(proposal.host, proposal.profile,
                                proposal.overrides, discovery.SOURCE)
        for proposal, step in zip(proposals, steps)
        if step.action in ('new', 'changed')
    ]
    if records:
        store.write(host_profiles=records)
    return steps
