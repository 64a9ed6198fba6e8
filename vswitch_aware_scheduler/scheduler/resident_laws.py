# SPDX-License-Identifier: Apache-2.0
"""Finds the rate law that each instance on a host is judged by.

The first law that exists applies: the learned traffic model; a prior of this
instance alone; the largest of what its flavor, its open claim and the QoS
guarantee of its ports state; the prior of its group; the configured default.
An instance whose resize is not confirmed may have several flavors, of which
the larger counts. Opens nothing.
"""

import functools

from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler.admission import resident_demand
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['ResidentLaws']

#: Maximum number of cached priors that were cut for a policy.
_MOST_FITTED = 65_536


class ResidentLaws:
    """Finds the laws of the residents of hosts.

    Callers serialise access.

    :param residency: Residency
    :param statements: :class:`.Statements`
    :param policies: {host: HostPolicy or None}; the owner of the dict may
        change it
    :param default: RateLaw of instances about which nothing is known, or None
        if these instances count as idle
    """

    def __init__(self, residency, statements, policies, default):
        self._residency = residency
        self._statements = statements
        self._policies = policies
        self._default = default
        # (prior, that of its group, id of policy) -> (policy, law)
        self._fitted = {}

    def of(self, snapshot, host, uuids):
        """Return the laws of the given residents of a host.

        :param snapshot: Snapshot of the store
        :param host: name of the host
        :param uuids: list of instance uuids
        :returns: list of RateLaw, in the order of ``uuids``
        """
        laws = snapshot.laws(uuids)
        if None in laws:
            laws = [law if law is not None else
                    self._without_model(snapshot, host, uuid)
                    for uuid, law in zip(uuids, laws)]
        return laws

    def unknown(self, snapshot):
        """Return the law of an instance about which nothing is known.

        :param snapshot: Snapshot of the store
        :returns: RateLaw
        """
        # Before the first snapshot is read, most instances look unknown. The
        # default for all of them could fill every host.
        if self._default is None or snapshot.generation is None:
            return rate_law.SILENT
        return self._default

    def fitting(self, law, host, group=None):
        """Return a prior, cut to what the virtual switch of a host can carry.

        See :meth:`.admission.HostPolicy.fitting`. Results are cached.

        :param law: RateLaw of the prior
        :param host: name of the host
        :param group: RateLaw of the prior of the group, as in
            :func:`.prior.cut`, or None
        :returns: RateLaw
        """
        policy = self._policies.get(host)
        if not policy or not policy.limits_on_one:
            return law
        key = law, group, id(policy)
        cached = self._fitted.get(key)
        if cached is None or cached[0] is not policy:
            if len(self._fitted) >= _MOST_FITTED:
                self._fitted.clear()
            cached = self._fitted[key] = (policy, policy.fitting(law, group))
        return cached[1]

    def _without_model(self, snapshot, host, uuid):
        of_flavor, project = self._residency.flavors(uuid, host)
        law, of = snapshot.prior(
            uuid, of_flavor[-1][0] if of_flavor else None, project) \
            or (None, None)
        stated_laws = [candidate for candidate in (
            self._statements.law(uuid),
            self._residency.claimed_law(uuid, host),
            *(_of_flavor(specs, snapshot) for _, specs in of_flavor))
            if candidate is not None]
        if stated_laws and not resident_demand.takes_prior(of, True):
            return max(stated_laws, key=_size)
        unknown = self.unknown(snapshot)
        if law is None or unknown is rate_law.SILENT:
            return unknown
        return self.fitting(law, host, self.group(snapshot, uuid, of))

    @staticmethod
    def group(snapshot, uuid, of):
        """Return the prior of the group of an instance that has its own prior.

        :param snapshot: Snapshot of the store
        :param uuid: uuid of the instance
        :param of: what the prior of the instance was learned from; 'instance'
            for its own traffic
        :returns: RateLaw, or None if the prior of the instance is the one of a
            group
        """
        group_prior = snapshot.group_prior(uuid) if of == 'instance' else None
        return group_prior and group_prior[0]


def _of_flavor(extra_specs, snapshot):
    """Return the law that the extra specs of a flavor state, or None."""
    stated = resident_demand.stated_law(extra_specs, snapshot)
    return stated and stated[0]


@functools.lru_cache(maxsize=flavor_specs.MOST_LAWS)
def _size(law):
    """Return the sort key of a law by size: (mean + peak, peak)."""
    mean, peak = law.mean, law.peak
    return tuple(float(rate[:2].sum() + rate[2])
                 for rate in (mean + peak, peak))
