# SPDX-License-Identifier: Apache-2.0
"""Which instances are on which host, as one scheduler process knows it.

Two witnesses: what Nova lists for each host, which lags behind, and claims,
placements this process has just made. The newest word about an instance wins,
so that it is never counted on two hosts. Knows no Nova object, no clock and
no traffic; callers serialise access.
"""

import collections
import dataclasses

from vswitch_aware_scheduler.traffic import model

__all__ = ['Claim', 'Residency']

#: An instance that was listed on a host before it was placed there again (a
#: resize to the same host) may be dropped from Nova's view while it runs
#: there; computes put that right every [compute]/scheduler_instance_sync
#: interval, 120 s by default. This much later it is believed to be gone.
RELIST_SECONDS = 180.0

#: Demands remembered for instances that have no learned model yet.
MAX_ASSUMED = 100_000


@dataclasses.dataclass(eq=False)
class Claim:
    """One placement that its host has not reported yet.

    :ivar instance_uuid: the instance
    :ivar host: where it was placed
    :ivar law: RateLaw it was admitted with
    :ivar expires: seconds; after this the placement is taken to have failed
    :ivar relisted: Nova listed it on this very host when it was placed, so
        that being listed there says nothing about this placement
    """

    instance_uuid: str
    host: str
    law: model.RateLaw
    expires: float
    relisted: bool


class Residency:
    """Listings of hosts and claims, put together."""

    def __init__(self):
        self._listed = {}        # host -> list of uuids, as Nova has it
        self._hosts_of = {}      # uuid -> host, or [hosts], newest last
        self._claims = {}        # uuid -> Claim, oldest first
        self._claimed_on = collections.defaultdict(dict)  # host -> {uuid: 1}
        self._changed = set()    # hosts whose residents may have changed
        self._assumed = collections.OrderedDict()  # uuid -> RateLaw

    def observe(self, host, listed, now):
        """Take in what Nova lists for a host.

        :param host: name
        :param listed: list of instance uuids
        :param now: seconds, as every time here
        """
        known = self._listed.get(host)
        if known == listed:
            return
        before = set(known or ())
        after = set(listed)
        self._listed[host] = listed
        self._changed.add(host)
        for uuid in before - after:
            self._leave(uuid, host)
            claim = self._claims.get(uuid)
            if claim is not None and claim.relisted and claim.host == host:
                claim.expires = min(claim.expires, now + RELIST_SECONDS)
        for uuid in after - before:
            self._arrive(uuid, host)
            claim = self._claims.get(uuid)
            if claim is not None and claim.host == host:
                # The host reports it: the listing takes over.
                self._drop(claim)

    def listed(self, host):
        """Return what was last observed for a host, or None."""
        return self._listed.get(host)

    def claim(self, instance_uuid, host, law, expires):
        """Count an instance on a host from now on.

        A later claim for the same instance replaces the earlier one.
        """
        earlier = self._claims.get(instance_uuid)
        if earlier is not None:
            self._drop(earlier)
        claim = Claim(instance_uuid, host, law, expires,
                      relisted=instance_uuid in self._listed.get(host, ()))
        self._claims[instance_uuid] = claim
        self._claimed_on[host][instance_uuid] = 1
        self._assumed[instance_uuid] = law
        self._assumed.move_to_end(instance_uuid)
        if len(self._assumed) > MAX_ASSUMED:
            self._assumed.popitem(last=False)
        self._changed.add(host)
        self._changed.update(self._hosts(instance_uuid))

    def expire(self, now):
        """Forget the claims that have run out.

        :returns: list of the expired Claims
        """
        expired = [claim for claim in self._claims.values()
                   if claim.expires <= now]
        for claim in expired:
            self._drop(claim)
        return expired

    @property
    def claims(self):
        """The open claims, oldest first."""
        return list(self._claims.values())

    def take_changed(self):
        """Return the hosts whose residents may have changed since asked."""
        changed, self._changed = self._changed, set()
        return changed

    def residents(self, host):
        """Return the uuids of the instances that count on a host."""
        residents = [uuid for uuid in self._listed.get(host, ())
                     if self.host_of(uuid) == host]
        claimed = self._claimed_on.get(host)
        if claimed:
            present = set(residents)
            residents.extend(uuid for uuid in claimed if uuid not in present)
        return residents

    def host_of(self, instance_uuid):
        """Return the one host an instance counts on, or None."""
        claim = self._claims.get(instance_uuid)
        if claim is not None:
            return claim.host
        hosts = self._hosts(instance_uuid)
        return hosts[-1] if hosts else None

    def assumed_law(self, instance_uuid):
        """Return the RateLaw an instance was last placed with, or None."""
        return self._assumed.get(instance_uuid)

    def _hosts(self, uuid):
        hosts = self._hosts_of.get(uuid)
        if hosts is None:
            return ()
        return (hosts,) if isinstance(hosts, str) else hosts

    def _arrive(self, uuid, host):
        hosts = self._hosts_of.get(uuid)
        if hosts is None:
            self._hosts_of[uuid] = host
            return
        others = [one for one in self._hosts(uuid) if one != host]
        self._hosts_of[uuid] = others + [host]
        self._changed.update(others)

    def _leave(self, uuid, host):
        rest = [one for one in self._hosts(uuid) if one != host]
        self._changed.update(rest)
        if not rest:
            self._hosts_of.pop(uuid, None)
        else:
            self._hosts_of[uuid] = rest[0] if len(rest) == 1 else rest

    def _drop(self, claim):
        self._claims.pop(claim.instance_uuid, None)
        self._claimed_on[claim.host].pop(claim.instance_uuid, None)
        if not self._claimed_on[claim.host]:
            del self._claimed_on[claim.host]
        self._changed.add(claim.host)
        self._changed.update(self._hosts(claim.instance_uuid))
