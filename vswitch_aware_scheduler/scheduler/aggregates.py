# SPDX-License-Identifier: Apache-2.0
"""Tracks the aggregates of hosts, and the policies that follow from them.

Nova passes the aggregates of a host with each request, usually unchanged. A
change of one host also affects the hosts behind the same uplink, because an
uplink carries the sum of their traffic. This module uses no instances, no
clock and no database.
"""

from __future__ import annotations

import collections
from collections import abc
import typing

from nova import objects

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import aggregate_metadata
from vswitch_aware_scheduler.admission import host_policies
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.admission import uplink_policies as uplinks
from vswitch_aware_scheduler.scheduler import request_demand

__all__ = ['Aggregates']

#: Maximum number of cached policies with uplinks.
_MOST_SHARED = 4096


class Aggregates:
    """The aggregates of all hosts. Callers serialise access.

    The dicts are replaced and never changed.

    :ivar behind: {host: names of its uplinks} of the hosts behind an uplink
    :ivar members: {host: aggregates} of the hosts that an aggregate of an
        uplink lists, whether a request had them or not
    """

    def __init__(self, policies: host_policies.HostPolicies,
                 uplink_policies: uplinks.UplinkPolicies,
                 report: aggregate_metadata.Report) -> None:
        self.behind = {}
        self.members = {}
        self._policies = policies
        self._uplink_policies = uplink_policies
        self._report = report
        self._aggregates_of = {}     # host -> its aggregates
        self._last_hosts: list[str] | None = None    # of the last request
        self._last_groups: typing.Any = None         # their aggregates
        self._policy_of = {}     # host -> ((HostProfile, bare metal), policy)
        self._changed = set()    # hosts that observe() returns next
        self._topics = set()     # of the problems that keys can have
        # id of an aggregate -> (it, its metadata, whether of an uplink)
        self._metadata = {}
        self._metadata_kept = 0
        self._regrouped = False  # whether uplinks have changed
        self._all: typing.Any = None         # all aggregates of Nova
        self._uplinks = {}       # name -> Uplink
        self._shared = {}        # (HostPolicy, uplinks) -> HostPolicy

    def observe(self, hosts: list[str], groups: list[typing.Any]) -> set[str]:
        """Store the aggregates of the hosts of a request, mostly as before.

        :param hosts: must not change; the same list object again is faster
        :returns: the hosts whose :meth:`policy` may have changed, possibly
            including hosts that are not in ``hosts``
        """
        for aggregate, metadata, _ in list(self._metadata.values()):
            if aggregate.metadata != metadata:
                self._changed_in_place(aggregate)
        if hosts is not self._last_hosts:
            self._last_hosts = hosts
            self._last_groups = list(map(self._aggregates_of.get, hosts))
        if groups != self._last_groups:
            for host, aggregates in zip(hosts, groups):
                if self._aggregates_of.get(host) != aggregates:
                    self._belongs_to(host, list(aggregates))
        if self._regrouped:
            self._find_uplinks()
        if self._changed:
            self._clear_problems()
        changed, self._changed = self._changed, set()
        return changed

    def policy(self, host: str, stored: typing.Any,
               bare_metal: bool = False) -> admission.HostPolicy:
        """Return the HostPolicy of a host, with the uplinks of the host."""
        entry, key = self._policy_of.get(host), (stored, bare_metal)
        if entry is None or entry[0] != key:
            entry = self._policy_of[host] = key, self._behind_uplinks(
                host, self._policies.find(
                    [(aggregate.name, aggregate.metadata)
                     for aggregate in self._aggregates_of[host]], *key))
        return entry[1]

    def take_all(self, aggregates: abc.Iterable[objects.Aggregate]) -> None:
        """Store all aggregates of Nova, beside those of hosts of requests."""
        aggregates = list(aggregates)
        if aggregates != self._all:
            self._all = aggregates
            self._regrouped = True

    def forget(self, host: str) -> None:
        """Drop what is stored about a host that no longer exists."""
        for by_host in (self._aggregates_of, self._policy_of):
            by_host.pop(host, None)
        self._last_hosts = None

    def _outdate(self, host):
        self._policy_of.pop(host, None)
        self._changed.add(host)

    def _belongs_to(self, host, aggregates):
        # A host can be in hundreds of aggregates, of which one has changed.
        for aggregate in aggregates:
            if id(aggregate) not in self._metadata:
                self._store_metadata(aggregate)
        self._regrouped |= any(
            self._metadata[key][2] for key in {*map(id, aggregates)} ^ {
                *map(id, self._aggregates_of.get(host, ()))})
        self._aggregates_of[host] = aggregates
        self._last_hosts = None
        self._outdate(host)
        if len(self._metadata) > 2 * self._metadata_kept + 100:
            in_use = self._in_use()
            self._metadata = {key: entry for key, entry
                              in self._metadata.items() if key in in_use}
            self._metadata_kept = len(self._metadata)

    def _in_use(self):
        return {id(aggregate) for aggregates in self._aggregates_of.values()
                for aggregate in aggregates}

    def _store_metadata(self, aggregate):
        self._metadata[id(aggregate)] = (aggregate, dict(aggregate.metadata),
                                         uplinks.is_in(aggregate.metadata))

    def _changed_in_place(self, aggregate):
        # observe() only detects aggregates that are new objects. Here the
        # object is the same, and its metadata have changed.
        self._regrouped |= self._metadata[id(aggregate)][2]
        self._store_metadata(aggregate)
        self._regrouped |= self._metadata[id(aggregate)][2]
        for host, aggregates in self._aggregates_of.items():
            if any(candidate is aggregate for candidate in aggregates):
                self._outdate(host)

    def _clear_problems(self):
        in_use, topics = self._in_use(), set()
        for identity, (aggregate, metadata, _) in self._metadata.items():
            if identity in in_use:
                topics.update(f'aggregate {aggregate.name} {key}'
                              for key in metadata)
        for topic in self._topics - topics:
            self._report(topic, None)
        self._topics = topics

    def _find_uplinks(self):
        """Read the uplinks from the aggregates, and the hosts behind them."""
        in_use = self._in_use()
        # Nova replaces an aggregate that is changed; the last object is valid.
        latest = {
            _identity(aggregate): aggregate
            for aggregate in ([
                aggregate for key, (aggregate, *_) in self._metadata.items()
                if key in in_use] if self._all is None else self._all)}
        uplinks_now = self._uplink_policies.find(
            [(aggregate.name, aggregate.metadata)
             for aggregate in latest.values()])
        members = {}
        for aggregate in latest.values():
            if uplinks.name_in(aggregate.metadata) in uplinks_now:
                for host in request_demand.read(aggregate, 'hosts') or ():
                    members.setdefault(host, []).append(aggregate)
        self.members = members
        for host in members.keys() - self._aggregates_of.keys():
            # No request had it.
            self._belongs_to(host, members[host])
        self._regrouped = False
        behind = collections.defaultdict(set)
        for host, aggregates in self._aggregates_of.items():
            for aggregate in aggregates:
                last = latest.get(_identity(aggregate))
                listed = last and request_demand.read(last, 'hosts')
                if last is not None and (
                        last is aggregate or listed is None or host in listed):
                    behind[host].add(uplinks.name_in(last.metadata))
        before, self.behind = self.behind, {
            host: names for host, all_names in behind.items()
            if (names := tuple(sorted(uplinks_now.keys() & all_names)))}
        former_uplinks, self._uplinks = self._uplinks, uplinks_now
        for host in before.keys() | self.behind.keys():
            names = self.behind.get(host, ())
            if names != before.get(host, ()) or any(
                    former_uplinks.get(name) is not uplinks_now[name]
                    for name in names):
                self._outdate(host)

    def _behind_uplinks(self, host, policy):
        """Return a policy with the uplinks of a host, equal ones once."""
        shared = tuple(map(self._uplinks.__getitem__,
                           self.behind.get(host, ())))
        if not shared or not policy.judged:
            return policy
        key = policy, shared
        if key not in self._shared:
            if len(self._shared) >= _MOST_SHARED:
                self._shared.clear()
            self._shared[key] = policy_in_force.with_uplinks(*key)
        return self._shared[key]


def _identity(aggregate):
    """Return a key that is the same for two objects of one aggregate."""
    identity = request_demand.read(aggregate, 'id')
    return id(aggregate) if identity is None else identity
