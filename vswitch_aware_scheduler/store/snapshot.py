# SPDX-License-Identifier: Apache-2.0
"""One generation of the store, in memory.

Immutable; all methods answer without I/O.
"""

from vswitch_aware_scheduler.traffic import prior

__all__ = ['Snapshot']

#: What a prior was learned from, by whether its key has a flavor and a
#: project.
_LEVELS = {(True, True): 'flavor and project', (True, False): 'flavor',
           (False, True): 'project', (False, False): 'fleet'}


class Snapshot:
    """The laws of instances, the profiles of hosts, placements and priors.

    :param generation: the store's Generation, or None for an empty snapshot
    :param laws: {instance uuid: RateLaw}
    :param host_profiles: {host: HostProfile}
    :param placements: {instance uuid: (host, flavor, project, Attachments,
        guaranteed rates)}
    :param seen_at: time of the placements, seconds UTC, or None
    :param priors: {key: RateLaw}
    :param debts: as returned by :func:`.budgets.read_debts`
    :param guarantees: those of ``placements``; None finds them
    :ivar generation: the store's Generation, or None for an empty snapshot
    :ivar guarantees: {instance uuid: (egress_kbps, ingress_kbps, kpps)} of the
        instances whose ports have a guarantee above 0; few
    :ivar seen_at: time of the placements, seconds UTC, or None
    """

    def __init__(self, generation=None, laws=None, host_profiles=None,
                 placements=None, seen_at=None, priors=None, debts=None,
                 guarantees=None):
        self.generation = generation
        self.seen_at = seen_at
        self._debts = {} if debts is None else debts
        # Laws are bytes, which the garbage collector does not traverse: there
        # may be a million.
        self._laws = {} if laws is None else laws
        self._host_profiles = {} if host_profiles is None else host_profiles
        self._placements = {} if placements is None else placements
        self._priors = {} if priors is None else priors
        self.guarantees = _guarantees(
            self._placements.items()) if guarantees is None else guarantees

    def __len__(self):
        return len(self._laws)

    def law(self, instance_uuid):
        """Return the RateLaw of an instance, or None without a model.

        :param instance_uuid: uuid of the instance
        """
        return self._laws.get(instance_uuid)

    def laws(self, instance_uuids):
        """Return the list of :meth:`law` of the given instances.

        :param instance_uuids: iterable of uuids
        """
        return list(map(self._laws.get, instance_uuids))

    def placement(self, instance_uuid):
        """Return (host, flavor, project) of an instance, or None.

        Each value is None if it is unknown. The values are those of the time
        ``seen_at``.

        :param instance_uuid: uuid of the instance
        """
        placement = self._placements.get(instance_uuid)
        return placement and placement[:3]

    def placements(self):
        """Return {uuid: (host, flavor, project, Attachments, guaranteed)}.

        The caller must not change the dict. See :meth:`placement`,
        :meth:`attachments` and :meth:`guaranteed`.
        """
        return self._placements

    def attachments(self, instance_uuid):
        """Return the :class:`.Attachments` of an instance, or None.

        :param instance_uuid: uuid of the instance
        """
        placement = self._placements.get(instance_uuid)
        return placement and placement[3]

    def guaranteed(self, instance_uuid):
        """Return the rates that the ports of an instance guarantee, or None.

        :param instance_uuid: uuid of the instance
        :returns: (egress_kbps, ingress_kbps, kpps), or None if unknown
        """
        placement = self._placements.get(instance_uuid)
        return placement and placement[4]

    def prior(self, instance_uuid, flavor=None, project=None):
        """Return the expected law of an instance without a model.

        :param instance_uuid: uuid of the instance
        :param flavor: name of its flavor; None uses the flavor of its
            placement
        :param project: id of its project; None uses the project of its
            placement
        :returns: (RateLaw, what it was learned from: 'instance', 'flavor and
            project', 'flavor', 'project' or 'fleet'), or None
        """
        law = self._priors.get(instance_uuid)
        if law is not None:
            return law, 'instance'
        return self.group_prior(instance_uuid, flavor, project)

    def group_prior(self, instance_uuid, flavor=None, project=None):
        """Return the expected law of an instance, by its group alone.

        :param instance_uuid: uuid of the instance
        :param flavor: as in :meth:`prior`
        :param project: as in :meth:`prior`
        :returns: as :meth:`prior`
        """
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

    def host_profile(self, host):
        """Return the store's HostProfile of a host, or None.

        :param host: name of the host
        """
        return self._host_profiles.get(host)

    def debts(self):
        """Return the debts of hosts, see :func:`.budgets.read_debts`."""
        return self._debts

    def updated(self, changes):
        """Return the snapshot with some changes applied.

        :param changes: Changes of the store
        :returns: Snapshot
        """
        if changes.complete:
            laws, hosts, placements, priors = {}, {}, {}, {}
            guarantees = {}
        else:
            laws, hosts = dict(self._laws), dict(self._host_profiles)
            placements, priors = self._placements, self._priors
            guarantees = self.guarantees
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
                placements, placed, values, changes.removed_placements),
            changes.seen_at, _with(
                priors, changes.priors, changes.priors.values(),
                [key for key, law in changes.priors.items() if law is None]),
            self._debts if changes.debts is None else changes.debts,
            _with(guarantees, changed, changed.values(), [
                uuid for uuid in (*placed, *changes.removed_placements)
                if uuid in guarantees and uuid not in changed]))


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
