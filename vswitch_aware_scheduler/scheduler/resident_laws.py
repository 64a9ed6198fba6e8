# SPDX-License-Identifier: Apache-2.0
"""Finds the rate law that each instance on a host is judged by.

:func:`.demand.of_instance` decides. Opens nothing.
"""

import typing

from vswitch_aware_scheduler.admission import demand as demand_rules
from vswitch_aware_scheduler.scheduler import request_demand
from vswitch_aware_scheduler.scheduler import residency as residencies
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['ResidentLaws']


class ResidentLaws:
    """Finds the laws of the residents of hosts. Callers serialise access.

    :param policies: {host: HostPolicy or None}, which the owner may change
    :param default: law of instances about which nothing is known; None: they
        count as idle
    """

    def __init__(self, residency: residencies.Residency,
                 statements: request_demand.Statements,
                 policies: dict[str, typing.Any],
                 default: rate_law.RateLaw | None) -> None:
        self._residency = residency
        self._statements = statements
        self._policies = policies
        self._default = default

    def of(self, snapshot: typing.Any, host: str,
           uuids: list[str]) -> list[rate_law.RateLaw]:
        """Return the laws of the given residents of a host."""
        # Almost all residents have a model and no guarantee.
        laws = snapshot.laws(uuids)
        guaranteed = {
            uuid for guarantees in (snapshot.guarantees,
                                    self._statements.guarantees)
            if guarantees for uuid in uuids if uuid in guarantees}
        if guaranteed or None in laws:
            laws = [law if law is not None and uuid not in guaranteed
                    else self._law(snapshot, host, uuid)
                    for uuid, law in zip(uuids, laws)]
        return laws

    def _law(self, snapshot, host, uuid):
        flavors, project = self._residency.flavors(uuid, host)
        claim = self._residency.claimed(uuid, host)
        return demand_rules.of_instance(
            snapshot, uuid, flavors, project,
            # Before the first snapshot is read, most instances look unknown.
            # The default for all of them could fill every host.
            None if snapshot.generation is None else self._default,
            # The inventory also shows what has changed since the claim.
            self._statements.guarantees.get(uuid)
            if snapshot.guaranteed(uuid) is None else None,
            None if claim is None or claim.rule == demand_rules.UNKNOWN
            else claim.law).law_on(
                self._policies.get(host))
