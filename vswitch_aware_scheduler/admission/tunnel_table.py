# SPDX-License-Identifier: Apache-2.0
"""Counts the tunnels of many hosts, in the unit that a profile limits.

Pure. Derivation: reference/admission.rst, "Tunnels".
"""

import collections
import contextlib
import functools
import operator
import typing

import numpy as np
from numpy import typing as npt

from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments
from vswitch_aware_scheduler.vswitch import profile

__all__ = ['COUNTED', 'TunnelTable']

#: Counted in addition to the units of tunnels.
FUNCTIONS = 'virtual_functions'

#: All quantities that can be counted, in the order of TunnelTable's results.
COUNTED = (*profile.TUNNEL_UNITS, FUNCTIONS)
_INSTANCES, _INTERFACES, _NETWORKS, _VTEPS, _FUNCTIONS = range(len(COUNTED))


_Attachments: typing.TypeAlias = vswitch_attachments.Attachments


class TunnelTable:
    """The counts of hosts, which the caller numbers from 0."""

    def __init__(self) -> None:
        self._residents = {}     # host -> {uuid: Attachments}
        self._serving = {}       # network -> {host: interfaces on it}
        self._counts = np.zeros((0, len(COUNTED)), dtype=np.int64)
        self._most = np.zeros((0, len(COUNTED)))
        self._limited = set()    # hosts with any limit
        self._unknown = collections.Counter()   # host -> interfaces
        # For remote VTEPs: sets of hosts as bits of an integer. The hosts that
        # a host has a tunnel to are computed on demand.
        self._on = {}            # network -> hosts
        self._known = {}         # host -> hosts

    @property
    def limited(self) -> bool:
        """Whether any host has a limit."""
        return bool(self._limited)

    def __contains__(self, host: int) -> bool:
        return host in self._residents

    def describe(self, host: int, maxima: dict[str, int],
                 residents: dict[str, _Attachments]) -> None:
        """Set the residents of a host and its limits."""
        self._grow(host + 1)
        self._most[host] = [maxima.get(unit, np.inf) for unit in COUNTED]
        (self._limited.add if maxima else self._limited.discard)(host)
        counted = self._residents.setdefault(host, {})
        for uuid in [uuid for uuid, attachments in counted.items()
                     if residents.get(uuid) != attachments]:
            self.remove(host, uuid)
        for uuid, attachments in residents.items():
            if uuid not in counted:
                self.add(host, uuid, attachments)

    def forget(self, host: int) -> None:
        """Stop counting a host."""
        if host in self._residents:
            self.describe(host, {}, {})
            del self._residents[host]

    def add(self, host: int, uuid: str, attachments: _Attachments) -> None:
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

    def remove(self, host: int, uuid: str) -> None:
        """Stop counting an instance on a host."""
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

    def _knows_anew(self, serving: dict[str, int], host: int) -> None:
        if self._known:
            for other in (*serving, host):
                self._known.pop(other, None)

    def renew(self, host: int, uuid: str, attachments: _Attachments) -> None:
        """Update the attachments of an instance, if it is on the host."""
        counted = self._residents[host].get(uuid)
        if counted not in (None, attachments):
            self.remove(host, uuid)
            self.add(host, uuid, attachments)

    def refused(self, hosts: npt.ArrayLike, attachments: _Attachments,
                exclude: str | None = None) -> np.ndarray:
        """Return, for each host, what prevents one more instance.

        :param hosts: (h,) int; a host that was not described has no limit
        :param exclude: uuid of the instance if it moves; it is then not
            counted on its hosts
        :returns: (h,) int, 0 if the instance fits, else 1 + the position in
            :data:`COUNTED` of the exceeded quantity
        """
        hosts = np.asarray(hosts, dtype=np.int64)
        refusals = np.zeros(hosts.size, dtype=np.int64)
        self._grow(hosts.max(initial=-1) + 1)
        at = np.flatnonzero(np.isfinite(self._most[hosts]).any(axis=1))
        if at.size:
            refusals[at] = self._refused(hosts[at], attachments)
        refusals[(refusals == 0) & self._known_by_full(hosts, attachments)] = \
            1 + _VTEPS
        for host in hosts.tolist() if exclude is not None else ():
            with self._without(host, exclude) as is_there:
                if is_there:
                    refusals[hosts == host] = self.refused([host], attachments)
        return refusals

    @contextlib.contextmanager
    def _without(self, host, exclude):
        """Run a block as if an instance were not on a host."""
        is_there = exclude in self._residents.get(host, ())
        if is_there:
            own_attachments = self._residents[host][exclude]
            self.remove(host, exclude)
        yield is_there
        if is_there:
            self.add(host, exclude, own_attachments)

    def _refused(self, hosts, attachments):
        counts, more = self._numbers(hosts, attachments)
        over = (more > 0) & (counts + more > self._most[hosts])
        return np.where(over.any(axis=1), over.argmax(axis=1) + 1, 0)

    def numbers(self, host: int, attachments: _Attachments, place: int,
                exclude: str | None = None) -> tuple[int, int, float]:
        """Return (number now, added, maximum) of :data:`COUNTED` [place]."""
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
        serving_hosts = functools.reduce(operator.or_, (
            self._on.get(network, 0) for network in networks), 0)
        for i in np.flatnonzero(np.isfinite(
                self._most[hosts, _VTEPS])).tolist():
            host = int(hosts[i])
            peers = self._known_to(host)
            counts[i, _VTEPS] = peers.bit_count() + self._unknown[host]
            more[i, _VTEPS] = unknown + (
                serving_hosts & ~peers & ~(1 << host)).bit_count()
        return counts, more

    def _known_to(self, host: int) -> int:
        """Return the remote hosts that a host has a tunnel to."""
        peers = self._known.get(host)
        if peers is None:
            networks = {network
                        for attachments in self._residents[host].values()
                        for network in attachments.networks} - {None}
            peers = self._known[host] = functools.reduce(
                operator.or_, (self._on[network] for network in networks),
                0) & ~(1 << host)
        return peers

    def _known_by_full(self, hosts, attachments):
        """Return for each host whether a full host needs a tunnel to it."""
        # Bits of the hosts to which no full host would need a new tunnel.
        reachable = -1
        counting = np.isfinite(self._most[:, _VTEPS])
        for other in {host for network in {*attachments.networks}
                      for host in self._serving.get(network, ())
                      if counting[host]} if counting.any() else ():
            peers = self._known_to(other)
            if peers.bit_count() + self._unknown[other] \
                    >= self._most[other, _VTEPS]:
                reachable &= peers | 1 << other
        if reachable == -1:
            return np.zeros(hosts.size, dtype=bool)
        return np.array([not reachable >> host & 1 for host in hosts.tolist()],
                        dtype=bool)

    def _grow(self, size: int) -> None:
        have = len(self._counts)
        if size > have:
            more = max(size, 2 * have) - have
            self._counts = np.concatenate([self._counts, np.zeros(
                (more, len(COUNTED)), dtype=np.int64)])
            self._most = np.concatenate([self._most, np.full(
                (more, len(COUNTED)), np.inf)])


def _own_counts(attachments: _Attachments) -> np.ndarray:
    """Return what an instance adds on any host, in the order of COUNTED."""
    return np.array([bool(attachments.networks), len(attachments.networks),
                     0, 0, attachments.virtual_functions])
