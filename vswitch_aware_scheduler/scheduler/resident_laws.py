# SPDX-License-Identifier: Apache-2.0
"""Finds the rate law that each instance on a host is judged by.

:func:`.demand.of_instance` decides. Opens nothing.
"""

import typing

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import demand as demand_rules
from vswitch_aware_scheduler.scheduler import request_demand
from vswitch_aware_scheduler.scheduler import residency as residencies
from vswitch_aware_scheduler.store import snapshot as snapshots
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['laws_of']


def laws_of(uuids: list[str], host: str, policy: admission.HostPolicy,
            snapshot: snapshots.Snapshot, residency: residencies.Residency,
            statements: request_demand.Statements,
            default: rate_law.RateLaw | None) -> list[typing.Any]:
    """Return the laws of the given residents of a host.

    :param default: of the unknown; None: they count as idle
    """
    def law_of(uuid):
        flavors, project = residency.flavors(uuid, host)
        claim = residency.claimed(uuid, host)
        return demand_rules.of_instance(
            snapshot, uuid, flavors, project,
            # Before the first snapshot is read, most instances look unknown.
            # The default for all of them could fill every host.
            None if snapshot.generation is None else default,
            # The inventory also shows what has changed since the claim.
            statements.guarantees.get(uuid)
            if snapshot.guaranteed(uuid) is None else None,
            None if claim is None or claim.rule == demand_rules.UNKNOWN
            else claim.law).law_on(policy)

    # Almost all residents have a model and no guarantee.
    laws = snapshot.laws(uuids)
    guaranteed = {
        uuid for guarantees in (snapshot.guarantees, statements.guarantees)
        if guarantees for uuid in uuids if uuid in guarantees}
    if guaranteed or None in laws:
        return [law_of(uuid) if law is None or uuid in guaranteed else law
                for uuid, law in zip(uuids, laws)]
    return laws
