# SPDX-License-Identifier: Apache-2.0
"""Reads the fleet into arrays for :mod:`.relief`.

The sums of hosts come from the store. Samples of single instances are read
from telemetry, only for instances on hosts to relieve and for instances that
changed hosts within the window. Nova and Placement determine which instance
may move to which host.

No configuration, no clock except the time that is passed.

Derivation: reference/rebalance.rst, "Plan input".
"""

from collections.abc import Callable
import dataclasses
import math
import typing

import numpy as np

from vswitch_aware_scheduler.budgets import cost
from vswitch_aware_scheduler.budgets import destinations
from vswitch_aware_scheduler.budgets import immovable
from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.budgets import rebalance_settings
from vswitch_aware_scheduler.budgets import relief
from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.clients import placement
from vswitch_aware_scheduler.store import plans as records
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['MeasuredFleet', 'PlanInput', 'make']

#: A slot of a host counts if at least this share of its instances is measured.
_MEASURED = 0.9

#: A host accepts instances if it was measured in at least this share of the
#: last day.
_KNOWN = 0.5

#: Maximum number of instances that changed hosts and whose samples are read.
_MOST_MOVED = 500

#: What failed rests for this time; see :data:`.plans.RESTS`.
REFUSED_SECONDS = 3600.0

#: kbit in 1,000 full packets of Ethernet, for the packets of a migration.
_PACKET_KBIT = 12.0

#: States of a migration after which the instance is at its destination.
_ENDED = frozenset({'completed', 'done', 'finished', 'confirmed'})


@dataclasses.dataclass(frozen=True)
class MeasuredFleet:
    """The data of hosts in the store.

    :ivar budgets: {host: error budget}
    :ivar sums: {host: :class:`.packed.Sums` of all ``slots``}
    :ivar slots: Slots up to the last one that any host has sums for
    :ivar placements: {instance uuid: host}
    :ivar aggregates: list of dictionaries with name, metadata and hosts
    :ivar nodes: {id of a compute node: host}
    :ivar bound: uuids of instances that use virtual functions of their host
    """

    now: float
    budgets: dict
    sums: dict
    slots: packed.Slots
    placements: dict
    aggregates: list
    nodes: dict
    bound: frozenset
    moves: list


@dataclasses.dataclass(frozen=True)
class PlanInput:
    """The input of a plan: h hosts, and n instances that may move.

    :ivar fixed: {instance uuid: why it must not move}
    :ivar closed: {host: why no instance leaves or joins it}
    :ivar moved_at: (n,) time of the last move, seconds UTC, -inf: never
    :ivar lately: number of moves in the fleet in the last seven days
    """

    case: relief.ReliefCase
    hosts: list
    servers: list
    fixed: dict
    closed: dict
    moved_at: np.ndarray
    lately: int
    costs: list
    capacity_kbps: float
    slots: packed.Slots


def make(measured: MeasuredFleet, relieved: list[str], read_fleet: Callable,
         cloud: nova.CloudApi, driver: typing.Any,
         settings: rebalance_settings.RebalanceSettings,
         progress: Callable | None = None) -> PlanInput:
    """Return the input of a plan.

    :param relieved: hosts that instances may leave. No instance leaves another
        host in debt, and no instance joins a host that accepts no instances
    :param read_fleet: as in :class:`.destinations.Destinations`
    :raises TelemetryError: when Nova, Placement or telemetry cannot be read
    """
    reading = _Reading(measured, relieved, cloud)
    hosts, servers = reading.hosts, reading.servers
    loads, migrations, unread = reading.loads(driver, progress)
    reading.read_services()
    fixed = reading.fixed(settings.tenant_veto)
    empty = reading.empty(loads)
    closed = reading.closed(loads, migrations, unread, set(empty))
    capacity_kbps = min((
        capacity / max(weights[:2]) for sums in measured.sums.values()
        if sums.name in measured.budgets
        for weights, _, capacity in sums.limits if max(weights[:2]) > 0),
        default=settings.kbps(math.inf))
    costs = [settings.cost_of(server, capacity_kbps) for server in servers]
    for server, migration in zip(servers, costs):
        if not migration.ends:
            fixed.setdefault(server.uuid, 'its migration would not end')
    judged = destinations.Destinations(
        read_fleet, hosts, {server.uuid: server.host for server in servers})
    constraints = reading.constraints(fixed, closed, judged)
    recent = max(1, round(
        relief.Rule().recent_seconds / measured.slots.seconds))
    budgets = [measured.budgets[host] for host in hosts]
    moved = _moved_at(measured.moves)
    return PlanInput(relief.ReliefCase(
        loads, np.array([budget.balance for budget in budgets]),
        list(map(rules.Terms.of, budgets)), recent, constraints,
        [row for row in empty if hosts[row] not in closed],
        None if settings.is_separate else _added_overload(
            loads.within(max(0, loads.slots - recent), None), reading.limits,
            np.array([migration.seconds for migration in costs])
            / measured.slots.seconds, settings.kbps(capacity_kbps)),
        np.array([budget.accepts for budget in budgets])),
        hosts, servers, fixed, closed,
        np.array([moved.get(server.uuid, -math.inf) for server in servers]),
        sum(measured.now - moved_at < 7 * rules.DAY_SECONDS
            for moved_at in moved.values()),
        costs, capacity_kbps, measured.slots)


class _Reading:
    """What is read of Nova, Placement and telemetry for a plan.

    :ivar limits: list of (weights, packet bytes) of the l limits of all hosts
    """

    def __init__(self, measured, relieved, cloud):
        self._measured, self._cloud = measured, cloud
        self._relieved = set(relieved)
        self.hosts = sorted(measured.budgets)
        self._row_of = {host: row for row, host in enumerate(self.hosts)}
        self.servers = [server for host in relieved
                        for server in cloud.servers(host)
                        if server.host == host]
        self._placements = {**measured.placements, **{
            server.uuid: server.host for server in self.servers}}
        self.limits = list(dict.fromkeys(
            (tuple(weights), packet_bytes) for host in self.hosts
            if host in measured.sums
            for weights, packet_bytes, _ in measured.sums[host].limits))
        self._rests = _resting(measured.moves, measured.now)

    # Measured sums of hosts

    def loads(self, driver, progress):
        """Return (Loads, migrations, hosts with unread instances).

        The loads are those that all hosts would have had with their instances
        now.
        """
        slots, placements = self._measured.slots, self._placements
        migrations = self._cloud.migrations(since=slots.start)
        changed = _changed_hosts(migrations, placements)
        read = sorted(changed, key=lambda uuid: -changed[uuid][-1][0]
                      )[:_MOST_MOVED]
        # Samples from another host count only if the instance was there.
        driver.hosts = {uuid: host for uuid, host in placements.items()
                        if uuid not in changed}
        uuids = {server.uuid for server in self.servers} | set(read)
        series = {rates.instance_uuid: rates.at_least() for rates
                  in driver.series(slots.start, slots.end, uuids, progress)
                  if len(rates)} if uuids else {}
        loads = self._loads_of(series)
        others = {host: row for host, row in self._row_of.items()
                  if host not in self._relieved}
        for uuid in read:
            if uuid in series:
                _follow(loads, slots, self._values(
                    slots.mean(series[uuid])[0]), changed[uuid],
                    placements[uuid], others)
        return loads, migrations, {placements.get(uuid) for uuid
                                   in changed.keys() - set(read)}

    def _values(self, rates):
        """Return the (l, t) loads of (t, 3) rates; see :class:`.Sums`."""
        law = rate_law.RateLaw.from_arrays(
            np.full(len(rates), 1.0 / len(rates)), rates)
        return np.stack([law.values(*limit) for limit in self.limits])

    def _loads_of(self, series):
        """Return the Loads of the instances that are on each host now.

        The sums of other hosts are those that were measured.
        """
        slots, row_of = self._measured.slots, self._row_of
        capacities = np.full((len(self.limits), len(self.hosts)), np.inf)
        sums = np.zeros((*capacities.shape, slots.count))
        above = np.zeros(sums.shape, dtype=np.int16)
        counts = np.bincount([row_of[host] for host
                              in self._placements.values() if host in row_of],
                             minlength=len(self.hosts))
        for row, host in enumerate(self.hosts):
            of_host = self._measured.sums.get(host)
            if counts[row]:
                sums[:, row] = np.nan if of_host is None else 0.0
            for place, (weights, packet_bytes, capacity) in enumerate(
                    of_host.limits if of_host else ()):
                number = self.limits.index((tuple(weights), packet_bytes))
                capacities[number, row] = capacity
                if counts[row]:
                    sums[number, row] = of_host.sums[place]
                    above[number, row] = of_host.alone[place]
        shape = len(self.servers), slots.count
        rates = np.zeros((len(self.limits), *shape))
        is_measured = np.zeros(shape, dtype=bool)
        # The time since which samples are expected may be unknown.
        is_expected = np.ones(shape, dtype=bool)
        for number, server in enumerate(self.servers):
            of_server = series.get(server.uuid)
            if of_server is not None:
                mean, is_measured[number] = slots.mean(of_server)
                rates[:, number] = self._values(mean)
                is_expected[number] = slots.between(
                    of_server.times[0] - slots.seconds, math.inf)
        host_rows = np.array([row_of[server.host] for server in self.servers],
                             dtype=np.int64)
        loads = relief.Loads(
            rates, capacities, host_rows, sums, above,
            counts - np.bincount(host_rows, minlength=len(self.hosts)))
        for row in map(row_of.get, self._relieved):
            own = host_rows == row
            enough = np.count_nonzero(is_measured[own], axis=0) >= _MEASURED \
                * np.maximum(np.count_nonzero(is_expected[own], axis=0), 1)
            sums[:, row] = np.where(enough, rates[:, own].sum(axis=1), np.nan)
            above[:, row] = (rates[:, own] > loads.most[
                :, row, None, None]).sum(axis=1)
        return loads

    # What may move where

    def read_services(self):
        """Read the services of Nova."""
        self._services = self._cloud.services()

    def fixed(self, tenant_veto):
        """Return {uuid: why the instance must not move}."""
        reasons = {}
        for server in self.servers:
            reason = immovable.why_fixed(
                server, self._measured.aggregates, tenant_veto)
            if reason is None and server.uuid in self._measured.bound:
                reason = 'it has a port with a virtual function of the host'
            if reason is None and (records.INSTANCE,
                                   server.uuid) in self._rests:
                reason = 'a move of it failed within the last hour'
            if reason is not None:
                reasons[server.uuid] = reason
        return reasons

    def empty(self, loads):
        """Return the rows of the hosts in service without instances."""
        return [row for row in np.flatnonzero(loads.sizes == 0).tolist()
                if self.hosts[row] in self._services
                and self._services[self.hosts[row]].problem is None]

    def closed(self, loads, migrations, unread, empty):
        """Return {host: why no instance leaves or joins it}."""
        day = min(loads.slots, round(
            rules.DAY_SECONDS / self._measured.slots.seconds))
        is_unknown = np.count_nonzero(
            loads.known[:, -day:], axis=1) < _KNOWN * day
        busy = {host for migration in migrations if migration.is_running
                for host in (migration.source, migration.destination)}
        reasons = {}
        for row, host in enumerate(self.hosts):
            service = self._services.get(host)
            relieved = host in self._relieved
            reason = (
                'unknown to Nova' if service is None
                else service.problem if service.problem is not None
                else 'a migration is running' if host in busy
                else 'in debt' if not relieved
                and not self._measured.budgets[host].accepts
                else 'measured for too little of the last day'
                if host in unread or is_unknown[row] and not relieved
                and row not in empty else None)
            if reason is not None:
                reasons[host] = reason
        return reasons

    def constraints(self, fixed, closed, judged):
        """Return the Constraints, by Placement, aggregates and server groups.

        :param fixed: {uuid: reason}, to which members of groups are added
        """
        hosts, servers, row_of = self.hosts, self.servers, self._row_of
        nodes = self._measured.nodes
        free_amounts = np.zeros((len(hosts), len(placement.CLASSES)))
        may = np.zeros((len(servers), len(hosts)), dtype=bool)
        signatures = self._signatures()
        fits = {}
        for number, server in enumerate(servers):
            if server.uuid in fixed:
                continue
            if server.shape not in fits:
                fits[server.shape] = np.zeros(len(hosts), dtype=bool)
                for uuid, amounts in self._cloud.room(server.shape).items():
                    if nodes.get(uuid) in row_of:
                        row = row_of[nodes[uuid]]
                        free_amounts[row] = amounts
                        fits[server.shape][row] = True
            may[number] = fits[server.shape] & (
                signatures == signatures[row_of[server.host]]) & [
                    self._rests.isdisjoint((
                        (records.MIGRATION, host),
                        (records.DESTINATION, server.uuid, host)))
                    for host in hosts]
        groups, members, most_members = self._groups(fixed)
        return relief.Constraints(
            np.array([server.shape.amounts for server in servers]).reshape(
                len(servers), len(placement.CLASSES)),
            np.nan_to_num(free_amounts, posinf=1e18),
            [server.uuid not in fixed for server in servers],
            [host in closed for host in hosts], may, groups, members,
            most_members, judged)

    def _signatures(self):
        """Return (h,) numbers, equal for hosts that filters treat alike.

        Two hosts have the same number if they are in the same availability
        zone and their aggregates have the same metadata. Instances only move
        between such hosts.
        """
        stated = {host: set() for host in self.hosts}
        for aggregate in self._measured.aggregates:
            for host in stated.keys() & aggregate['hosts']:
                stated[host].update(
                    (key, value)
                    for key, value in aggregate['metadata'].items()
                    if not key.startswith('vswitch:')
                    and not key.endswith('_multiplier'))
        numbers = {}
        return np.array([numbers.setdefault(
            (self._services[host].zone if host in self._services else None,
             frozenset(stated[host])), len(numbers)) for host in self.hosts])

    def _groups(self, fixed):
        """Return (groups, members, most_members) of the Constraints.

        Instances of a group with the policy affinity must not move.
        """
        number_of = {server.uuid: number
                     for number, server in enumerate(self.servers)}
        groups = np.full(len(self.servers), -1)
        members, most_members = [], []
        for group in self._cloud.groups() if self.servers else ():
            own = [uuid for uuid in group.members if uuid in number_of]
            placed = [self._placements[uuid] for uuid in group.members
                      if uuid in self._placements]
            if not own or len(placed) < 2:
                continue
            if group.policy == 'affinity':
                for uuid in own:
                    fixed.setdefault(uuid, 'its server group keeps it with '
                                           'others')
                continue
            groups[[number_of[uuid] for uuid in own]] = len(members)
            most_members.append(group.most_members)
            members.append(np.bincount(
                [self._row_of[host] for host in placed
                 if host in self._row_of], minlength=len(self.hosts)))
        return (groups, np.array(members), np.array(most_members)) \
            if members else (None, None, None)


def _changed_hosts(migrations, placements):
    """Return {uuid: [(since, host)]} of the instances that changed hosts.

    :param migrations: migrations within the window, the newest first
    """
    changed = {}
    for migration in reversed(migrations):
        if migration.status in _ENDED \
                and migration.instance_uuid in placements \
                and migration.source != migration.destination:
            stays = changed.setdefault(migration.instance_uuid, [
                (-math.inf, migration.source)])
            stays.append((migration.changed_at, migration.destination))
    return changed


def _follow(loads, slots, rates, stays, host, row_of):
    """Count an instance as if it had always been on its current host.

    :param rates: (l, t) of the instance
    :param stays: [(since, host)], the oldest first
    """
    ends = [since for since, _ in stays[1:]] + [math.inf]
    was_there = np.zeros(slots.count, dtype=bool)
    for (since, stay_host), end in zip(stays, ends):
        inside = slots.between(since, end)
        if stay_host == host:
            was_there |= inside
        elif stay_host in row_of:
            loads.add(rates[:, inside], row_of[stay_host], -1, inside)
    if host in row_of:
        loads.add(rates[:, ~was_there], row_of[host], 1, ~was_there)


def _resting(moves, now):
    """Return the set of what rests, see :data:`.plans.RESTS`.

    An item is (INSTANCE, uuid), (DESTINATION, uuid, host) or (MIGRATION,
    host).
    """
    items = set()
    for move in moves:
        rests = move.body.get('rests')
        if move.state in (records.FAILED, records.DROPPED) \
                and now - move.ended_at < REFUSED_SECONDS:
            items.add({
                records.INSTANCE: (rests, move.instance_uuid),
                records.DESTINATION: (
                    rests, move.instance_uuid, move.destination),
                records.MIGRATION: (rests, move.destination)}.get(rests))
    return items


def _moved_at(moves):
    """Return {uuid: time of the last move that took place, or broke off}."""
    last_moves = {}
    for move in moves:
        if move.state == records.DONE or move.state == records.FAILED \
                and move.body.get('rests') == records.MIGRATION:
            last_moves[move.instance_uuid] = max(
                move.ended_at, last_moves.get(move.instance_uuid, -math.inf))
    return last_moves


def _added_overload(recent, limits, slots, link_kbps):
    """Return the overload that migrations through the virtual switch add.

    :param slots: (n,) expected duration of the migration of each instance
    :returns: as ``costs`` of :class:`.relief.ReliefCase`
    """
    packets = link_kbps / _PACKET_KBIT
    leaving, joining = (
        [np.dot(weights, (*kbps, packets)) for weights, _ in limits]
        for kbps in ((link_kbps, 0.0), (0.0, link_kbps)))

    def added(host, loads_kbps):
        # The overload of all limits together is at most the sum of the
        # overloads of each limit.
        return sum(cost.added_overload(
            np.nan_to_num(recent.sums[number, host]),
            recent.above[number, host] > 0, recent.most[number, host],
            kbps, 1.0) for number, kbps in enumerate(loads_kbps))

    def costs(source, instances, hosts):
        share = added(source, leaving) + np.array(
            [added(host, joining) for host in hosts])
        return np.where(share > 0, slots[instances][:, None] * share, 0.0)

    return costs
