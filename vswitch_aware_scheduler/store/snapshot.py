# SPDX-License-Identifier: Apache-2.0
"""One generation of the store, in memory.

Immutable; all methods answer without I/O.
"""

from collections import abc
import dataclasses
import typing

from vswitch_aware_scheduler.store import budgets
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import profiles
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['Snapshot']

#: What a prior was learned from, by whether its key has a flavor and a
#: project.
_LEVELS = {(True, True): 'flavor and project', (True, False): 'flavor',
           (False, True): 'project', (False, False): 'fleet'}

#: By instance uuid or by key of a prior.
_Laws: typing.TypeAlias = dict[typing.Any, rate_law.RateLaw]
_Placement: typing.TypeAlias = tuple[typing.Any, ...]


class Snapshot:
    """The laws of instances, the profiles of hosts, placements and priors.

    :ivar generation: the store's Generation, or None for an empty snapshot
    :param placements: {instance uuid: (host, flavor, project, Attachments,
        guaranteed rates)}
    :ivar guarantees: {instance uuid: (egress_kbps, ingress_kbps, kpps)} of the
        instances whose ports have a guarantee above 0; few
    :ivar seen_at: time of the placements, seconds UTC, or None
    """

    def __init__(self, generation: sql.Generation | None = None,
                 laws: _Laws | None = None,
                 host_profiles: dict[str, profiles.HostProfile] | None = None,
                 placements: dict[typing.Any, _Placement] | None = None,
                 seen_at: float | None = None, priors: _Laws | None = None,
                 debts: dict[tuple[str, str], budgets.Debt] | None = None,
                 guarantees: dict[str, typing.Any] | None = None) -> None:
        self.generation = generation
        self.seen_at = seen_at
        self._debts = debts or {}
        # Laws are bytes, which the garbage collector does not traverse: there
        # may be a million.
        self._laws = laws or {}
        self._host_profiles = host_profiles or {}
        self._placements = placements or {}
        self._priors = priors or {}
        self.guarantees = _guarantees(
            self._placements.items()) if guarantees is None else guarantees

    def __len__(self) -> int:
        return len(self._laws)

    def law(self, instance_uuid: str) -> rate_law.RateLaw | None:
        """Return the RateLaw of an instance, or None without a model."""
        return self._laws.get(instance_uuid)

    def laws(self, instance_uuids: abc.Iterable[str]
             ) -> list[rate_law.RateLaw | None]:
        """Return the list of :meth:`law` of the given instances."""
        return list(map(self._laws.get, instance_uuids))

    def placement(self, instance_uuid: str | None) -> _Placement | None:
        """Return (host, flavor, project), each None if unknown, or None."""
        placement = self._placements.get(instance_uuid)
        return placement and placement[:3]

    def placements(self) -> dict[typing.Any, _Placement]:
        """Return the values of all placements, which must not be changed."""
        return self._placements

    def attachments(self, instance_uuid: str
                    ) -> vswitch_attachments.Attachments | None:
        """Return the :class:`.Attachments` of an instance, or None."""
        placement = self._placements.get(instance_uuid)
        return None if placement is None else placement[3]

    def guaranteed(self, instance_uuid: str | None
                   ) -> tuple[float, float, float] | None:
        """Return the rates that an instance's ports guarantee, or None."""
        placement = self._placements.get(instance_uuid)
        return None if placement is None else placement[4]

    def prior(self, instance_uuid: str | None, flavor: str | None = None,
              project: str | None = None
              ) -> tuple[rate_law.RateLaw, str] | None:
        """Return the expected law of an instance without a model, or None.

        :returns: (RateLaw, what it was learned from: 'instance', 'flavor and
            project', 'flavor', 'project' or 'fleet')
        """
        law = self._priors.get(instance_uuid)
        if law is not None:
            return law, 'instance'
        return self.group_prior(instance_uuid, flavor, project)

    def group_prior(self, instance_uuid: str | None,
                    flavor: str | None = None, project: str | None = None
                    ) -> tuple[rate_law.RateLaw, str] | None:
        """Return the law expected by an instance's group: :meth:`prior`."""
        if not self._priors:
            return None
        if flavor is None:
            _, flavor, project, *_ = self._placements.get(
                instance_uuid, (None, None, project))
        for key in prior.levels_of(flavor, project):
            law = self._priors.get(key)
            if law is not None:
                return law, _LEVELS[key[0] is not None, key[1] is not None]
        return None

    def host_profile(self, host: str) -> profiles.HostProfile | None:
        """Return the store's HostProfile of a host, or None."""
        return self._host_profiles.get(host)

    def debts(self) -> dict[tuple[str, str], budgets.Debt]:
        """Return the debts of hosts and uplinks: :func:`.budgets.debts`."""
        return self._debts

    def updated(self, changes: generations.Changes) -> 'Snapshot':
        """Return the snapshot with some :class:`.Changes` applied."""
        if changes.complete:
            return Snapshot(debts=self._debts).updated(
                dataclasses.replace(changes, complete=False))
        laws, hosts = dict(self._laws), dict(self._host_profiles)
        placed, values = changes.placements
        changed = _guarantees(zip(placed, values))
        for uuid in changes.removed:
            laws.pop(uuid, None)
        for host in changes.removed_hosts:
            hosts.pop(host, None)
        laws.update(changes.laws())
        hosts.update((entry.host, entry) for entry in changes.host_profiles)
        return Snapshot(
            changes.generation, laws, hosts, _with(
                self._placements, placed, values,
                changes.removed_placements),
            changes.seen_at, _with(
                self._priors, changes.priors, changes.priors.values(),
                [key for key, law in changes.priors.items() if law is None]),
            self._debts if changes.debts is None else changes.debts,
            _with(self.guarantees, changed, changed.values(), [
                uuid for uuid in (*placed, *changes.removed_placements)
                if uuid in self.guarantees and uuid not in changed]))


def _guarantees(placements):
    """Return {uuid: rates} of the instances with a guarantee above 0."""
    return {uuid: placement[4] for uuid, placement in placements
            if placement[4] is not None and any(placement[4])}


def _with(values_by_key, keys, values, removed_keys):
    """Return a changed copy of a dictionary, or itself without changes."""
    if not keys and not removed_keys:
        return values_by_key
    changed = dict(values_by_key)
    changed.update(zip(keys, values))
    for key in removed_keys:
        changed.pop(key, None)
    return changed
