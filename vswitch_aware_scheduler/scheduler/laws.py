# SPDX-License-Identifier: Apache-2.0
"""What the instances on a host are taken to carry.

The first of these that exists: the learned model; a prior of that instance
alone; what it was placed with; what its flavor says; the prior of its peers;
the default. Opens nothing and asks no database: of whose flavor nobody has
told is kept for whoever can ask.
"""

import itertools

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.scheduler import request
from vswitch_aware_scheduler.traffic import model

__all__ = ['Laws']

#: Priors that are kept as they are cut for policies.
_MOST_FITTED = 4096

#: Of how many instances it is remembered that their flavors were asked for.
_MOST_ASKED = 1_000_000

_NOTHING = model.TrafficModel.constant().law


class Laws:
    """Finds the laws of residents.

    Whoever has one calls it under its own lock. Of the hosts it reads the
    ``instances`` that Nova lists, {uuid: Instance} or None, and the
    HostPolicy ``policy``, or None.

    :param residency: Residency
    :param hosts: {host: what was last seen of it}, kept by others
    :param default: RateLaw of instances of which nothing is known, None: they
        count for nothing
    """

    def __init__(self, residency, hosts, default):
        self._residency = residency
        self._hosts = hosts
        self._default = default
        # Residents of which neither a model nor a flavor is known: {uuid:
        # host}, and those of which the database was asked.
        self._strangers = {}
        self._asked = set()
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
            return _NOTHING
        return self._default

    def of_flavor(self, flavor, snapshot):
        """Return the law that a nova Flavor states, or None.

        :param flavor: nova Flavor, or None
        """
        try:
            return flavor and request.law_of_flavor(flavor, snapshot.law)
        except exceptions.InvalidInput:
            return None

    def fitting(self, law, host, group=None):
        """Return a prior as an instance can have it that is on a host.

        See :meth:`.admission.HostPolicy.fitting`; laws are remembered.

        :param law: RateLaw
        :param host: name of the host
        :param group: as of :func:`.prior.cut`
        """
        view = self._hosts.get(host)
        policy = view and view.policy
        if not policy or not policy.limits_on_one:
            return law
        key = law, group, id(policy)
        found = self._fitted.get(key)
        if found is None or found[0] is not policy:
            if len(self._fitted) >= _MOST_FITTED:
                self._fitted.clear()
            found = self._fitted[key] = (policy, policy.fitting(law, group))
        return found[1]

    @property
    def has_strangers(self):
        """Whether there are residents whose flavor nobody has told."""
        return bool(self._strangers)

    def strangers(self, most):
        """Return {uuid: host} of so many residents at most."""
        return dict(itertools.islice(self._strangers.items(), most))

    def acquaint(self, strangers, flavors, snapshot):
        """Take in the flavors of strangers; return whether any says more.

        :param strangers: {uuid: host}
        :param flavors: {uuid: nova Flavor} of those that have one
        """
        told = False
        if len(self._asked) > _MOST_ASKED:
            self._asked.clear()
        for uuid, host in strangers.items():
            self._strangers.pop(uuid, None)
            self._asked.add(uuid)
            law = self.of_flavor(flavors.get(uuid), snapshot)
            if law is not None:
                self._residency.state(uuid, host, law)
                told = True
        return told

    def _without_model(self, snapshot, host, uuid):
        law, of = snapshot.prior(uuid) or (None, None)
        # What it has shown itself, then what it was placed with.
        if of != 'instance':
            assumed = self._residency.assumed_law(uuid, host) \
                or self._stated(snapshot, host, uuid)
            if assumed is not None:
                return assumed
        unknown = self.unknown(snapshot)
        if law is None or unknown is _NOTHING:
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

    def _stated(self, snapshot, host, uuid):
        """Return what the flavor of a listed resident says, or None."""
        view = self._hosts.get(host)
        instance = view and view.instances and view.instances.get(uuid)
        flavor = instance and request.flavor_of(instance)
        if flavor is None:
            if uuid not in self._asked:
                self._strangers[uuid] = host
            return None
        return self.of_flavor(flavor, snapshot)
