# SPDX-License-Identifier: Apache-2.0
"""Judges destinations of moves as VSwitchFilter does, through a plan.

The policies, the demands and the LoadTable are those of the scheduler, with
the state of the store in place of Nova's hosts. No rule of its own.
"""

from collections.abc import Callable, Iterable
import functools

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['Destinations']

#: Policy of a host that the fleet does not have.
_UNJUDGED = admission.HostPolicy(None, judged=False)


class Destinations:
    """Which hosts the filter would pass for each instance of a plan.

    The fleet is read when a host is judged for the first time, because most
    plans need no destination.

    :param read_fleet: callable(), returns the fleet: an object with
        ``policies``, ``snapshot``, ``debts``, ``laws`` and ``demand``, as
        :class:`.FleetView`
    :param hosts: list of h names
    :param placements: {instance uuid: name of its host} of the n instances
        that may move, in the order of their rows
    """

    def __init__(self, read_fleet: Callable, hosts: list[str],
                 placements: dict[str, str]) -> None:
        self._read_fleet = read_fleet
        self._hosts = hosts
        self._uuids = list(placements)
        self._placements = dict(placements)

    @functools.cached_property
    def _fleet(self):
        return self._read_fleet()

    @functools.cached_property
    def _demands(self):
        snapshot = self._fleet.snapshot
        return [self._fleet.demand(
            uuid, *(snapshot.placement(uuid) or (None,) * 3)[1:])
            for uuid in self._uuids]

    @functools.cached_property
    def _table(self):
        """LoadTable with the instances where the plan has put them."""
        fleet = self._fleet
        table = admission.LoadTable(attachments=fleet.snapshot.attachments,
                                    debts=fleet.debts)
        arrived = {}
        for row, uuid in enumerate(self._uuids):
            host = self._placements[uuid]
            arrived.setdefault(host, {})[uuid] = self._law(row, host)
        # Hosts that are no destinations load the uplinks as well.
        for host in dict.fromkeys([*self._hosts, *fleet.policies]):
            table.describe(host, fleet.policies.get(host, _UNJUDGED), {
                **{uuid: law for uuid, law in fleet.laws(host).items()
                   if uuid not in self._placements}, **arrived.get(host, {})}
                if host in fleet.policies else arrived.get(host, {}))
        return table

    def _law(self, row, host):
        return self._demands[row].law_on(self._fleet.policies.get(host))

    def assess(self, instance: int,
               hosts: Iterable[int]) -> admission.Assessment:
        """Return the :class:`.Assessment` of hosts for an instance."""
        names = [self._hosts[host] for host in hosts]
        slots, uuid = self._table.rows_of(names), self._uuids[instance]
        return self._table.assess_each(
            slots, [self._law(instance, name) for name in names], uuid,
            self._fleet.snapshot.attachments(uuid)
            or vswitch_attachments.UNKNOWN, self._demands[instance].project)

    def admitted(self, instance: int, hosts: Iterable[int]) -> np.ndarray:
        """Return (k,) bool: whether the filter would pass hosts.

        A host that it passes only if there is no other is none.
        """
        assessment = self.assess(instance, hosts)
        return assessment.passing & ((
            assessment.avoided == admission.ADMITTED) | ~assessment.enforced)

    def put(self, instance: int, source: int, destination: int) -> None:
        """Move an instance to another host."""
        uuid, host = self._uuids[instance], self._hosts[destination]
        self._placements[uuid] = host
        if '_table' in self.__dict__:
            self._table.change({
                self._hosts[source]: ({}, [uuid]),
                host: ({uuid: self._law(instance, host)}, ())})
