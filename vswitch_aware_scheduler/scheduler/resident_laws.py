# SPDX-License-Identifier: Apache-2.0
"""What the instances on a host are taken to carry.

The first of these that exists: the learned model; a prior of that instance
alone; what its flavor, its open claim and the guarantee of its ports say; the
prior of its peers; the default. While a resize is not confirmed there may be
several flavors, of which the larger one counts. Opens nothing.
"""

import functools

from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler.admission import resident_demand
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['ResidentLaws']

#: Priors that are kept as they are cut for policies.
_MOST_FITTED = 65_536


class ResidentLaws:
    """Finds the laws of residents.

    Callers serialise access.

    :param residency: Residency
    :param statements: :class:`.Statements`
    :param policies: {host: HostPolicy or None}, kept by others
    :param default: RateLaw of instances of which nothing is known, None: they
        count for nothing
    """

    def __init__(self, residency, statements, policies, default):
        self._residency = residency
        self._statements = statements
        self._policies = policies
        self._default = default
        # (prior, that of its group, id of policy) -> (policy, law)
        self._fitted = {}

    def of(self, snapshot, host, uuids):
        """Return a list of the laws that some residents of a host have."""
        laws = snapshot.laws(uuids)
        if None in laws:
            laws = [law if law is not None else
                    self._without_model(snapshot, host, uuid)
                    for uuid, law in zip(uuids, laws)]
        return laws

    def unknown(self, snapshot):
        """Return the law of an instance of which nothing is known."""
        # Before any snapshot was read nothing is known of most instances:
        # a default for all of them could fill every host.
        if self._default is None or snapshot.generation is None:
            return rate_law.SILENT
        return self._default

    def fitting(self, law, host, group=None):
        """Return a prior as an instance can have it that is on a host.

        See :meth:`.admission.HostPolicy.fitting`; laws are remembered.

        :param law: RateLaw
        :param host: name of the host
        :param group: as of :func:`.prior.cut`
        """
        policy = self._policies.get(host)
        if not policy or not policy.limits_on_one:
            return law
        key = law, group, id(policy)
        found = self._fitted.get(key)
        if found is None or found[0] is not policy:
            if len(self._fitted) >= _MOST_FITTED:
                self._fitted.clear()
            found = self._fitted[key] = (policy, policy.fitting(law, group))
        return found[1]

    def _without_model(self, snapshot, host, uuid):
        of_flavor, project = self._residency.flavors(uuid, host)
        law, of = snapshot.prior(
            uuid, of_flavor[-1][0] if of_flavor else None, project) \
            or (None, None)
        # What it has shown itself, then what it was placed with.
        if of != 'instance':
            stated = [one for one in (
                self._statements.law(uuid),
                self._residency.claimed_law(uuid, host),
                *(_of_flavor(specs, snapshot) for _, specs in of_flavor))
                if one is not None]
            if stated:
                return max(stated, key=_size)
        unknown = self.unknown(snapshot)
        if law is None or unknown is rate_law.SILENT:
            return unknown
        return self.fitting(law, host, self.group(snapshot, uuid, of))

    @staticmethod
    def group(snapshot, uuid, of):
        """Return the prior of the group of an instance with one of its own.

        :param of: what the prior of the instance is of
        :returns: RateLaw, or None where the prior is that of a group
        """
        found = snapshot.group_prior(uuid) if of == 'instance' else None
        return found and found[0]


def _of_flavor(extra_specs, snapshot):
    """Return the law that a flavor's extra specs state, or None."""
    found = resident_demand.stated_law(extra_specs, snapshot)
    return found and found[0]


@functools.lru_cache(maxsize=flavor_specs.MOST_LAWS)
def _size(law):
    """Return what tells the larger of two laws: (mean + peak, peak)."""
    mean, peak = law.mean, law.peak
    return tuple(float(one[:2].sum() + one[2])
                 for one in (mean + peak, peak))
