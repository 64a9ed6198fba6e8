# SPDX-License-Identifier: Apache-2.0
"""Reads the fleet into arrays for :mod:`.relief` and :mod:`.advisor`.

The sums of hosts come from the store. Samples of single instances are read
from telemetry, only for instances on hosts to relieve and for instances that
changed hosts within the window. Nova and Placement determine which instance
may move to which host.

No configuration, no clock except the time that is passed.

Derivation: reference/rebalance.rst, "Snapshot".
"""

import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler.budgets import cloud_api as nova
from vswitch_aware_scheduler.budgets import cost
from vswitch_aware_scheduler.budgets import destinations
from vswitch_aware_scheduler.budgets import immovable
from vswitch_aware_scheduler.budgets import relief
from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.store import rebalance_records as records
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['Grid', 'Measured', 'Snapshot', 'confirmed', 'harmed', 'make',
           'overload']

#: A slot of a host counts if at least this share of its instances is measured.
_MEASURED = 0.9

#: A host accepts instances if it was measured in at least this share of the
#: last day.
_KNOWN = 0.5

#: Maximum number of instances that changed hosts and whose samples are read.
_MOST_MOVED = 500

#: What failed rests for this time; see :data:`.rebalance_records.RESTS`.
REFUSED_SECONDS = 3600.0

#: kbit in 1,000 full packets of Ethernet, for the packets of a migration.
_PACKET_KBIT = 12.0

#: States of a migration after which the instance is at its destination.
_ENDED = frozenset({'completed', 'done', 'finished', 'confirmed'})

_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class Grid:
    """Consecutive slots of time. Slot k starts k times ``seconds`` after 1970.

    :ivar seconds: length of a slot
    :ivar first: number of the first slot
    :ivar slots: number of slots
    """

    seconds: float
    first: int
    slots: int

    @property
    def start(self):
        """Start of the first slot, seconds UTC."""
        return self.first * self.seconds

    @property
    def end(self):
        """End of the last slot, seconds UTC."""
        return (self.first + self.slots) * self.seconds

    def mean(self, series):
        """Return (rates, measured) of a RateSeries in each slot.

        :param series: RateSeries
        :returns: (t, 3) mean of the samples, 0 without any, and (t,) bool
        """
        at = np.floor(series.times / self.seconds).astype(int) - self.first
        inside = (at >= 0) & (at < self.slots)
        at = at[inside]
        counts = np.bincount(at, minlength=self.slots)
        rates = np.stack([
            np.bincount(at, column, self.slots)
            for column in series.rates[inside].T], axis=1)
        return rates / np.maximum(counts, 1)[:, None], counts > 0

    def between(self, start, end):
        """Return (t,) bool: slots that start within a period of time.

        :param start: start of the time, seconds UTC
        :param end: end of the time, exclusive, seconds UTC
        """
        begins = (self.first + np.arange(self.slots)) * self.seconds
        return (begins >= start) & (begins < end)


@dataclasses.dataclass(frozen=True)
class Measured:
    """The data of hosts in the store.

    :ivar budgets: {host: error budget}
    :ivar sums: {host: sums of its traffic in all slots of ``grid``}
    :ivar grid: Grid that ends with the last slot that any host has sums for
    :ivar placements: {instance uuid: host}
    :ivar bound: uuids of instances that use virtual functions of their host
    """

    budgets: dict
    sums: dict
    grid: Grid
    placements: dict
    bound: frozenset = frozenset()


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The input of a plan: h hosts, and n instances that may move.

    :ivar hosts: names
    :ivar servers: list of n :class:`.cloud.Server`
    :ivar fixed: {instance uuid: why it must not move}
    :ivar loads: :class:`.relief.Loads`
    :ivar balance: (h,) remaining seconds of overload
    :ivar accepting: (h,) bool, whether a host accepts instances by its budget
    :ivar terms: list of h :class:`.rules.Terms`
    :ivar constraints: :class:`.relief.Constraints`
    :ivar empty: hosts without instances, in the order in which to use them
    :ivar moved_at: (n,) time of the last move, seconds UTC, -inf: never
    :ivar lately: number of moves in the fleet in the last seven days
    :ivar migrations: list of n :class:`.cost.Migration`
    :ivar costs: as in :func:`.relief.plan`, or None
    :ivar capacity_kbps: smallest capacity of a host
    :ivar grid: Grid
    :ivar closed: {host: why no instance leaves or joins it}
    """

    hosts: list
    servers: list
    fixed: dict
    loads: relief.Loads
    balance: np.ndarray
    accepting: np.ndarray
    terms: list
    constraints: relief.Constraints
    empty: list
    moved_at: np.ndarray
    lately: int
    migrations: list
    costs: object
    capacity_kbps: float
    grid: Grid
    closed: dict


def confirmed(account, sums, grid, checks, check_seconds):
    """Return at how many consecutive checks, up to now, a host was in debt.

    Past balances are computed from the current one and the sums since then.

    :param account: error budget of the host
    :param sums: sums of the host, or None if there are none
    :param grid: Grid of the sums
    :param checks: maximum number of checks to consider
    :param check_seconds: seconds between two checks
    """
    if not account.in_debt:
        return 0
    if sums is None:
        return 1
    is_known, is_overloaded = overload(sums)
    for check in range(1, checks):
        time = grid.end - check * check_seconds
        if time < account.since:
            return check
        after = grid.between(time, math.inf)
        seconds = grid.seconds * np.count_nonzero(is_known & after)
        spent = grid.seconds * np.count_nonzero(is_overloaded & after)
        if account.balance - account.rate * seconds + spent >= 0:
            return check
    return checks


def overload(sums):
    """Return (t,) bool of measured slots and of those with avoidable overload.

    :param sums: :class:`.packed.Sums` of a host
    """
    return ~np.isnan(sums.sums).any(axis=0), rules.overloaded(
        sums.sums, sums.alone, [limit[2] for limit in sums.limits])


def harmed(sums):
    """Return (t,) bool of slots that one instance overloads alone.

    :param sums: :class:`.packed.Sums` of a host
    """
    return (rules.exceeds(sums.sums, [limit[2] for limit in sums.limits])
            & sums.alone).any(axis=0)


def make(measured, relieved, read_fleet, cloud, driver, settings, now,
         moves=(), progress=None):
    """Return the :class:`Snapshot` of a fleet.

    :param measured: Measured
    :param relieved: hosts that instances may leave. No instance leaves another
        host in debt, and no instance joins a host that accepts no instances
    :param read_fleet: as in :class:`.destinations.Destinations`
    :param cloud: :class:`.cloud.Cloud`
    :param driver: telemetry driver
    :param settings: :class:`.settings.Settings`
    :param now: seconds UTC
    :param moves: MoveRecords of the last days, for the cool-down
    :param progress: callback, as for :meth:`.telemetry.base.Driver.series`
    :raises TelemetryError: when Nova, Placement or telemetry cannot be read
    """
    hosts = sorted(measured.budgets)
    row_of = {host: row for row, host in enumerate(hosts)}
    servers = [server for host in relieved for server in cloud.servers(host)
               if server.host == host]
    placements = {**measured.placements,
                  **{server.uuid: server.host for server in servers}}
    migrations = cloud.migrations(since=measured.grid.start)
    changed = _changed_hosts(migrations, placements)
    read = sorted(changed, key=lambda uuid: -changed[uuid][-1][0]
                  )[:_MOST_MOVED]
    # Samples from another host count only if the instance was on that host.
    driver.hosts = {uuid: host for uuid, host in placements.items()
                    if uuid not in changed}
    series = _series(driver, measured.grid,
                     {server.uuid for server in servers} | set(read), progress)
    limits = list(dict.fromkeys(
        (tuple(limit[0]), limit[1]) for host in hosts if host in measured.sums
        for limit in measured.sums[host].limits))
    loads = _loads(measured, hosts, limits, servers, series, placements,
                   set(relieved), {uuid: changed[uuid] for uuid in read})
    services = cloud.services()
    aggregates = cloud.aggregates() if servers else []
    rests = _resting(moves, now)
    fixed = _fixed(servers, measured.bound, aggregates, settings, rests)
    count = loads.sizes
    empty = [row for row, host in enumerate(hosts)
             if not count[row] and host in services
             and services[host].problem is None]
    balance = np.array([measured.budgets[host].balance for host in hosts])
    accepting = np.array([measured.budgets[host].accepts for host in hosts])
    unread = {placements.get(uuid) for uuid in changed.keys() - set(read)}
    unknown = _unknown(loads, measured.grid, set(empty), set(
        row_of[host] for host in relieved))
    busy = {host for migration in migrations if migration.is_running
            for host in (migration.source, migration.destination)}
    closed = {}
    for row, host in enumerate(hosts):
        service = services.get(host)
        reason = ('unknown to Nova' if service is None
                  else service.problem if service.problem is not None
                  else 'a migration is running' if host in busy
                  else 'in debt' if not accepting[row] and host not in relieved
                  else 'measured for too little of the last day'
                  if unknown[row] or host in unread else None)
        if reason is not None:
            closed[host] = reason
    capacity_kbps = min((
        capacity / max(weights[:2]) for host in hosts
        if host in measured.sums
        for weights, _, capacity in measured.sums[host].limits
        if max(weights[:2]) > 0), default=settings.kbps(math.inf))
    expected = [settings.migration(server, capacity_kbps)
                for server in servers]
    for server, migration in zip(servers, expected):
        if not migration.ends:
            fixed.setdefault(server.uuid, 'its migration would not end')
    moved = _moved_at(moves)
    constraints = _constraints(
        cloud, hosts, row_of, servers, services, placements,
        np.array([host in closed for host in hosts]), fixed, aggregates,
        rests,
        destinations.Destinations(
            read_fleet, hosts,
            {server.uuid: server.host for server in servers}))
    rule = relief.Rule()
    recent = max(1, round(rule.recent_seconds / measured.grid.seconds))
    costs = None if settings.is_separate else _costs(
        loads.within(max(0, loads.slots - recent), None), limits, expected,
        settings.kbps(capacity_kbps), measured.grid.seconds)
    return Snapshot(
        hosts, servers, fixed, loads, balance, accepting,
        [rules.Terms(account.overload_probability, account.earned_share,
                     account.first_days, account.most_days)
         for account in (measured.budgets[host] for host in hosts)],
        constraints, [row for row in empty if hosts[row] not in closed],
        np.array([moved.get(server.uuid, -math.inf) for server in servers]),
        sum(1 for moved_at in moved.values()
            if now - moved_at < 7 * rules.DAY_SECONDS),
        expected, costs, capacity_kbps, measured.grid, closed)


# Measured sums of hosts

def _changed_hosts(migrations, placements):
    """Return {uuid: [(since, host)]} of the instances that changed hosts.

    :param migrations: migrations within the window, the newest first
    :param placements: {uuid: current host}
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


def _series(driver, grid, uuids, progress):
    """Return {uuid: RateSeries} for the window."""
    if not uuids:
        return {}
    return {rates.instance_uuid: rates.at_least() for rates in driver.series(
        grid.start, grid.end, uuids, progress)}


def _values(rates, limits):
    """Return the (l, t) loads of (t, 3) rates; see :class:`.packed.Sums`."""
    law = rate_law.RateLaw.from_arrays(
        np.full(len(rates), 1.0 / len(rates)), rates)
    return np.stack([law.values(weights, packet_bytes)
                     for weights, packet_bytes in limits])


def _loads(measured, hosts, limits, servers, series, placements, relieved,
           moved):
    """Return the Loads that all hosts would have had with their instances now.

    :param moved: as returned by :func:`_changed_hosts`
    """
    grid = measured.grid
    row_of = {host: row for row, host in enumerate(hosts)}
    capacities = np.full((len(limits), len(hosts)), np.inf)
    sums = np.zeros((len(limits), len(hosts), grid.slots))
    above = np.zeros(sums.shape, dtype=np.int16)
    counts = np.bincount([row_of[host] for host in placements.values()
                          if host in row_of], minlength=len(hosts))
    for row, host in enumerate(hosts):
        if host not in measured.sums:
            if counts[row]:
                sums[:, row] = np.nan
            continue
        for limit, total, alone in zip(
                measured.sums[host].limits, measured.sums[host].sums,
                measured.sums[host].alone):
            number = limits.index((tuple(limit[0]), limit[1]))
            capacities[number, row] = limit[2]
            if counts[row]:
                sums[number, row], above[number, row] = total, alone
    rates = np.zeros((len(limits), len(servers), grid.slots))
    measured_in = np.zeros((len(servers), grid.slots), dtype=bool)
    expected = np.zeros(measured_in.shape, dtype=bool)
    for number, server in enumerate(servers):
        rates_read = series.get(server.uuid)
        if rates_read is None or not len(rates_read):
            # The time since which samples are expected is unknown.
            expected[number] = True
            continue
        mean, measured_in[number] = grid.mean(rates_read)
        rates[:, number] = _values(mean, limits)
        expected[number] = grid.between(rates_read.times[0] - grid.seconds,
                                        math.inf)
    host_rows = np.array([row_of[server.host] for server in servers],
                         dtype=np.int64)
    thresholds = capacities * (1 + _TOLERANCE)
    for host in relieved:
        own = host_rows == row_of[host]
        row = row_of[host]
        enough = np.count_nonzero(measured_in[own], axis=0) >= _MEASURED \
            * np.maximum(np.count_nonzero(expected[own], axis=0), 1)
        sums[:, row] = np.where(enough, rates[:, own].sum(axis=1), np.nan)
        above[:, row] = (rates[:, own]
                         > thresholds[:, row, None, None]).sum(axis=1)
    for uuid, stays in moved.items():
        rates_read = series.get(uuid)
        if rates_read is not None and len(rates_read):
            _follow(sums, above, thresholds, grid,
                    _values(grid.mean(rates_read)[0], limits), stays,
                    placements[uuid], row_of, relieved)
    unread_instances = counts - np.bincount(host_rows, minlength=len(hosts))
    return relief.Loads.of_sums(rates, capacities, host_rows, sums, above,
                                unread_instances)


def _follow(sums, above, thresholds, grid, rates, stays, host, row_of,
            relieved):
    """Count an instance as if it had always been on its current host.

    :param rates: (l, t) of the instance
    :param stays: [(since, host)], the oldest first
    :param host: current host of the instance
    """
    ends = [since for since, _ in stays[1:]] + [math.inf]
    was_there = np.zeros(grid.slots, dtype=bool)
    for (since, stay_host), end in zip(stays, ends):
        slots = grid.between(since, end)
        if stay_host == host:
            was_there |= slots
        elif stay_host in row_of and stay_host not in relieved:
            _add(sums, above, thresholds, rates, row_of[stay_host], slots, -1)
    if host in row_of and host not in relieved:
        _add(sums, above, thresholds, rates, row_of[host], ~was_there, 1)


def _add(sums, above, thresholds, rates, row, slots, times):
    """Add an instance to a host in some slots, or subtract it."""
    rates = rates[:, slots]
    # Sums are packed, so that a difference can be below 0.
    sums[:, row, slots] = np.maximum(sums[:, row, slots] + times * rates, 0.0)
    above[:, row, slots] = np.maximum(
        above[:, row, slots] + times * (rates > thresholds[:, row, None]), 0)


def _unknown(loads, grid, empty, relieved):
    """Return (h,) bool: hosts whose last day is mostly unknown."""
    day = min(loads.slots, round(rules.DAY_SECONDS / grid.seconds))
    is_known = np.count_nonzero(loads.known[:, -day:], axis=1) >= _KNOWN * day
    is_known[list(empty | relieved)] = True
    return ~is_known


# What may move where

def _fixed(servers, bound, aggregates, settings, rests):
    """Return {uuid: why the instance must not move}."""
    fixed = {}
    for server in servers:
        reason = immovable.why_fixed(server, aggregates, settings.tenant_veto)
        if reason is None and server.uuid in bound:
            reason = 'it has a port with a virtual function of the host'
        if reason is None and (records.INSTANCE, server.uuid) in rests:
            reason = 'a move of it failed within the last hour'
        if reason is not None:
            fixed[server.uuid] = reason
    return fixed


def _resting(moves, now):
    """Return the set of what rests, see :data:`.rebalance_records.RESTS`.

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


def _constraints(cloud, hosts, row_of, servers, services, placements, closed,
                 fixed, aggregates, rests, judged):
    """Return the Constraints, by Placement, aggregates and server groups.

    :param aggregates: as returned by :meth:`.cloud.Cloud.aggregates`
    :param rests: as returned by :func:`_resting`
    :param judged: :class:`.destinations.Destinations`
    """
    nodes = cloud.nodes() if servers else {}
    free_amounts = np.zeros((len(hosts), len(nova.CLASSES)))
    may = np.zeros((len(servers), len(hosts)), dtype=bool)
    signatures = _signatures(aggregates, hosts, services)
    broken = np.array([(records.MIGRATION, host) in rests for host in hosts],
                      dtype=bool)
    fits = {}
    for number, server in enumerate(servers):
        if server.uuid in fixed:
            continue
        if server.shape not in fits:
            fits[server.shape] = np.zeros(len(hosts), dtype=bool)
            for uuid, amounts in cloud.room(server.shape).items():
                if nodes.get(uuid) in row_of:
                    row = row_of[nodes[uuid]]
                    free_amounts[row] = amounts
                    fits[server.shape][row] = True
        may[number] = ~broken & fits[server.shape] & (
            signatures == signatures[row_of[server.host]])
        may[number, [row for row, host in enumerate(hosts)
                     if (records.DESTINATION, server.uuid, host)
                     in rests]] = False
    groups, members, most_members = _groups(cloud, row_of, servers,
                                            placements, fixed)
    return relief.Constraints(
        np.array([server.shape.amounts for server in servers]).reshape(
            len(servers), len(nova.CLASSES)),
        np.nan_to_num(free_amounts, posinf=1e18),
        [server.uuid not in fixed for server in servers], closed, may, groups,
        members=members, most_members=most_members, admission=judged)


def _signatures(aggregates, hosts, services):
    """Return (h,) numbers, equal for hosts that filters treat alike.

    Two hosts have the same number if they are in the same availability zone
    and their aggregates have the same metadata. Instances only move between
    such hosts.
    """
    stated = {host: set() for host in hosts}
    for metadata, members in aggregates:
        for host in members & stated.keys():
            stated[host].update(
                (key, value) for key, value in metadata.items()
                if not key.startswith('vswitch:')
                and not key.endswith('_multiplier'))
    numbers = {}
    return np.array([numbers.setdefault(
        (services[host].zone if host in services else None,
         frozenset(stated[host])), len(numbers)) for host in hosts])


def _groups(cloud, row_of, servers, placements, fixed):
    """Return (groups, members, most_members) of the Constraints.

    Instances of a group with the policy affinity must not move.
    """
    number_of = {server.uuid: number for number, server in enumerate(servers)}
    groups = np.full(len(servers), -1)
    members, most_members = [], []
    for group in cloud.groups() if servers else ():
        read_members = [uuid for uuid in group.members if uuid in number_of]
        placed_members = [uuid for uuid in group.members if uuid in placements]
        if not read_members or len(placed_members) < 2:
            continue
        if group.policy == 'affinity':
            for uuid in read_members:
                fixed.setdefault(uuid, 'its server group keeps it with '
                                       'others')
            continue
        groups[[number_of[uuid] for uuid in read_members]] = len(members)
        most_members.append(group.most_members)
        members.append(np.bincount(
            [row_of[placements[uuid]] for uuid in placed_members
             if placements[uuid] in row_of], minlength=len(row_of)))
    if not members:
        return None, None, None
    return groups, np.array(members), np.array(most_members)


# What a migration costs

def _costs(recent, limits, expected, link_kbps, slot_seconds):
    """Return the overload that migrations through the virtual switch add.

    :param recent: Loads of the last slots
    :param expected: list of :class:`.cost.Migration` of the instances
    """
    slots = np.array(
        [migration.seconds for migration in expected]) / slot_seconds
    packets = link_kbps / _PACKET_KBIT
    leaving = np.array([np.dot(weights, (link_kbps, 0.0, packets))
                        for weights, _ in limits])
    joining = np.array([np.dot(weights, (0.0, link_kbps, packets))
                        for weights, _ in limits])

    def added(host, loads_kbps):
        # The overload of all limits together is at most the sum of the
        # overloads of each limit.
        return sum(cost.added_overload(
            np.nan_to_num(recent.sums[number, host]),
            recent.above[number, host] > 0, recent.most[number, host],
            loads_kbps[number], 1.0) for number in range(len(limits)))

    def costs(source, instances, hosts):
        share = added(source, leaving) + np.array(
            [added(host, joining) for host in hosts])
        return np.where(share > 0, slots[instances][:, None] * share, 0.0)

    return costs
