# SPDX-License-Identifier: Apache-2.0
"""How many tunnels a host has, as its profile counts them.

:func:`count` counts for one host; :class:`TunnelTable` keeps the counts of
many hosts and checks all of them at once. Pure.

Derivation: reference/admission.rst, "Tunnels".
"""

import collections
import contextlib
import functools
import operator

import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.vswitch import profile

__all__ = ['COUNTED', 'TunnelTable', 'count', 'opened', 'room']

#: Counted beside the units of tunnels.
FUNCTIONS = 'virtual_functions'

#: All that can be counted, in the order of what a TunnelTable tells.
COUNTED = (*profile.TUNNEL_UNITS, FUNCTIONS)
_INSTANCES, _INTERFACES, _NETWORKS, _VTEPS, _FUNCTIONS = range(len(COUNTED))


def count(unit, residents, peers=None):
    """Return the tunnels, or the virtual functions, of a host.

    :param unit: one of :data:`COUNTED`
    :param residents: Attachments of each instance on the host
    :param peers: {network: the other hosts that have a VM on it}, wanted for
        'vteps'
    :raises InvalidInput: when the unit is not known, or a network's peers are
    """
    if unit not in COUNTED:
        raise exceptions.InvalidInput(
            f'tunnel unit is {unit!r}, wanted one of {", ".join(COUNTED)}')
    residents = list(residents)
    if unit == FUNCTIONS:
        return sum(one.virtual_functions for one in residents)
    if unit == 'instances':
        return sum(bool(one.networks) for one in residents)
    if unit == 'interfaces':
        return sum(len(one.networks) for one in residents)
    every = [network for one in residents for network in one.networks]
    # Each of those that are not known may be another one.
    unknown = every.count(None)
    networks = {*every} - {None}
    if unit == 'networks':
        return len(networks) + unknown
    missing = sorted(map(str, networks - set(peers or ())))
    if missing:
        raise exceptions.InvalidInput(
            f'the hosts on network {missing[0]} are not given, wanted them '
            f'to count remote VTEPs')
    return unknown + len(
        set().union(*(peers[network] for network in networks)))


def opened(unit, residents, new, peers=None):
    """Return how many tunnels one more instance opens on a host.

    None on a network that the host already serves, counted by networks or by
    VTEPs.
    """
    residents = list(residents)
    return (count(unit, [*residents, new], peers)
            - count(unit, residents, peers))


def room(switch, residents, new, peers=None):
    """Return whether the tunnels of one more instance fit a profile.

    An instance that opens none fits even where there are too many.

    :param switch: SwitchProfile
    """
    if switch.max_tunnels is None:
        return True
    residents = list(residents)
    more = opened(switch.tunnel_unit, residents, new, peers)
    return more == 0 or count(
        switch.tunnel_unit, [*residents, new], peers) <= switch.max_tunnels


class TunnelTable:
    """What is counted on each of many hosts, kept ready for the next question.

    Hosts are numbered by the caller, from 0. Callers serialise access.
    """

    def __init__(self):
        self._residents = {}     # host -> {uuid: Attachments}
        self._serving = {}       # network -> {host: interfaces on it}
        self._counts = np.zeros((0, len(COUNTED)), dtype=np.int64)
        self._most = np.zeros((0, len(COUNTED)))
        self._limited = set()    # hosts of which anything is limited
        self._unknown = collections.Counter()   # host -> interfaces
        # Of remote VTEPs: sets of hosts as the bits of a whole number. What
        # each host knows is found when it is asked for.
        self._on = {}            # network -> hosts
        self._known = {}         # host -> hosts

    @property
    def limited(self):
        """Whether anything is limited anywhere."""
        return bool(self._limited)

    def __contains__(self, host):
        return host in self._residents

    def describe(self, host, most, residents):
        """Set who is on a host, and how many of what it can have.

        :param most: {one of :data:`COUNTED`: number}
        :param residents: {uuid: Attachments}
        """
        self._grow(host + 1)
        self._most[host] = [most.get(unit, np.inf) for unit in COUNTED]
        (self._limited.add if most else self._limited.discard)(host)
        known = self._residents.setdefault(host, {})
        for uuid in [uuid for uuid, one in known.items()
                     if residents.get(uuid) != one]:
            self.remove(host, uuid)
        for uuid, one in residents.items():
            if uuid not in known:
                self.add(host, uuid, one)

    def forget(self, host):
        """Count a host no more."""
        if host in self._residents:
            self.describe(host, {}, {})
            del self._residents[host]

    def add(self, host, uuid, attachments):
        """Count an instance on a host."""
        self._residents[host][uuid] = attachments
        self._counts[host] += _own_counts(attachments)
        for network in attachments.networks:
            if network is None:
                self._counts[host, _NETWORKS] += 1
                self._unknown[host] += 1
                continue
            serving = self._serving.setdefault(network, {})
            if host not in serving:
                self._counts[host, _NETWORKS] += 1
                self._on[network] = self._on.get(network, 0) | 1 << host
                self._knows_anew(serving, host)
            serving[host] = serving.get(host, 0) + 1

    def remove(self, host, uuid):
        """Count an instance on a host no more."""
        attachments = self._residents[host].pop(uuid)
        self._counts[host] -= _own_counts(attachments)
        for network in attachments.networks:
            if network is None:
                self._counts[host, _NETWORKS] -= 1
                self._unknown[host] -= 1
                continue
            serving = self._serving[network]
            serving[host] -= 1
            if serving[host]:
                continue
            self._counts[host, _NETWORKS] -= 1
            self._knows_anew(serving, host)
            del serving[host]
            self._on[network] ^= 1 << host
            if not serving:
                del self._serving[network], self._on[network]

    def _knows_anew(self, serving, host):
        if self._known:
            for other in (*serving, host):
                self._known.pop(other, None)

    def renew(self, host, uuid, attachments):
        """Take in what an instance is attached to now, if it is there."""
        known = self._residents[host].get(uuid)
        if known not in (None, attachments):
            self.remove(host, uuid)
            self.add(host, uuid, attachments)

    def refused(self, hosts, attachments, exclude=None):
        """Return what has no room for one more instance, host by host.

        :param hosts: (h,) int; for one that was not described there is room
        :param attachments: its Attachments
        :param exclude: uuid of the instance itself when it moves: it is not
            counted where it is
        :returns: (h,) int, 0 where it fits, else one more than the place in
            :data:`COUNTED` of what does not
        """
        hosts = np.asarray(hosts, dtype=np.int64)
        found = np.zeros(hosts.size, dtype=np.int64)
        self._grow(hosts.max(initial=-1) + 1)
        at = np.flatnonzero(np.isfinite(self._most[hosts]).any(axis=1))
        if at.size:
            found[at] = self._refused(hosts[at], attachments)
        found[(found == 0) & self._known_by_full(hosts, attachments)] = \
            1 + _VTEPS
        for host in hosts.tolist() if exclude is not None else ():
            with self._without(host, exclude) as there:
                if there:
                    found[hosts == host] = self.refused([host], attachments)
        return found

    @contextlib.contextmanager
    def _without(self, host, exclude):
        """Do something as if an instance was not on a host it may be on."""
        there = exclude in self._residents.get(host, ())
        if there:
            own = self._residents[host][exclude]
            self.remove(host, exclude)
        yield there
        if there:
            self.add(host, exclude, own)

    def _refused(self, hosts, attachments):
        counts, more = self._numbers(hosts, attachments)
        over = (more > 0) & (counts + more > self._most[hosts])
        return np.where(over.any(axis=1), over.argmax(axis=1) + 1, 0)

    def numbers(self, host, attachments, place, exclude=None):
        """Return (how many there are, opened by one more, the most).

        :param place: in :data:`COUNTED`
        :param exclude: as in :meth:`refused`
        """
        with self._without(host, exclude):
            counts, more = self._numbers(np.array([host]), attachments)
        return (int(counts[0, place]), int(more[0, place]),
                float(self._most[host, place]))

    def _numbers(self, hosts, attachments):
        counts = self._counts[hosts]
        more = np.tile(_own_counts(attachments), (hosts.size, 1))
        networks = {*attachments.networks} - {None}
        unknown = attachments.networks.count(None)
        served = np.zeros(len(self._counts), dtype=np.int64)
        for network in networks:
            served[list(self._serving.get(network, ()))] += 1
        more[:, _NETWORKS] = len(networks) + unknown - served[hosts]
        every = functools.reduce(operator.or_, (
            self._on.get(network, 0) for network in networks), 0)
        for i in np.flatnonzero(np.isfinite(
                self._most[hosts, _VTEPS])).tolist():
            host = int(hosts[i])
            known = self._known_to(host)
            counts[i, _VTEPS] = known.bit_count() + self._unknown[host]
            more[i, _VTEPS] = unknown + (
                every & ~known & ~(1 << host)).bit_count()
        return counts, more

    def _known_to(self, host):
        """Return the remote hosts that a host knows."""
        found = self._known.get(host)
        if found is None:
            networks = {network for one in self._residents[host].values()
                        for network in one.networks} - {None}
            found = self._known[host] = functools.reduce(
                operator.or_, (self._on[network] for network in networks),
                0) & ~(1 << host)
        return found

    def _known_by_full(self, hosts, attachments):
        """Return whether a host that has no room would have to know them.

        Hosts with an instance on one of its networks learn of the host that
        it comes to.

        :returns: (h,) bool
        """
        # Hosts that nobody who is full would have to learn of.
        welcome = -1
        counting = np.isfinite(self._most[:, _VTEPS])
        for other in {host for network in {*attachments.networks}
                      for host in self._serving.get(network, ())
                      if counting[host]} if counting.any() else ():
            known = self._known_to(other)
            if known.bit_count() + self._unknown[other] \
                    >= self._most[other, _VTEPS]:
                welcome &= known | 1 << other
        if welcome == -1:
            return np.zeros(hosts.size, dtype=bool)
        return np.array([not welcome >> host & 1 for host in hosts.tolist()],
                        dtype=bool)

    def _grow(self, size):
        have = len(self._counts)
        if size > have:
            more = max(size, 2 * have) - have
            self._counts = np.concatenate([self._counts, np.zeros(
                (more, len(COUNTED)), dtype=np.int64)])
            self._most = np.concatenate([self._most, np.full(
                (more, len(COUNTED)), np.inf)])


def _own_counts(attachments):
    """Return what an instance adds wherever it is, by place in COUNTED."""
    return np.array([bool(attachments.networks), len(attachments.networks),
                     0, 0, attachments.virtual_functions])
