# SPDX-License-Identifier: Apache-2.0
"""Proposes migrations, with reasons.

:func:`propose` reads the store, Nova and telemetry, and makes a plan. The
commands, vswitch-modeler and Watcher's strategy call it. It changes nothing.
"""

import collections
import dataclasses
import functools
import itertools
import math

import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.rebalance import advisor
from vswitch_aware_scheduler.rebalance import budget
from vswitch_aware_scheduler.rebalance import packed
from vswitch_aware_scheduler.rebalance import relief
from vswitch_aware_scheduler.rebalance import settings as rebalance_settings
from vswitch_aware_scheduler.rebalance import snapshot

__all__ = ['HostInDebt', 'Proposal', 'ProposedMove', 'WINDOW_DAYS', 'measured',
           'propose']

WINDOW_DAYS = 7

#: A plan needs measurements that are not older than this, in seconds.
MOST_AGE_SECONDS = 3600.0

#: Number of hosts whose instances are read from telemetry, for each move of a
#: plan.
_HOSTS_A_MOVE = 2

#: Maximum number of reasons that are named.
_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class HostInDebt:
    """A host that has spent more than its error budget.

    :ivar host: name of the host
    :ivar balance: seconds of overload, negative
    :ivar checks: number of consecutive checks at which it was in debt
    :ivar relieved: whether the plan searched for moves
    """

    host: str
    balance: float
    checks: int
    relieved: bool


@dataclasses.dataclass(frozen=True)
class ProposedMove:
    """A proposed migration.

    Budgets are seconds of overload. Values ``after`` apply after seven days
    that are like the last seven, with this move and those before it.

    :ivar instance_uuid: uuid of the instance
    :ivar name: name of the instance
    :ivar source: host that the instance leaves
    :ivar destination: host that the instance joins
    :ivar reason: sentence that explains the move
    :ivar budget_before: current budget of the source
    :ivar budget_after: later budget of the source
    :ivar destination_budget_before: current budget of the destination
    :ivar destination_budget_after: later budget of the destination
    :ivar overload_before: share of the last seven days in which the source
        would have been overloaded by its current instances
    :ivar overload_after: the same share with the move
    :ivar limit: limit of the source
    :ivar gain_seconds: avoided seconds of overload of both hosts in seven days
    :ivar vm_gain_seconds: avoided seconds in seven days in which an instance
        is on an overloaded host, the sum over all instances of both hosts
    :ivar memory_mib: memory of the instance
    :ivar seconds: expected duration of the migration
    :ivar transferred_mib: expected data that the migration transfers
    :ivar downtime_seconds: expected downtime of the instance
    :ivar group: equal for moves that avoid overload only together. They share
        the gains equally, and have the values after all of them
    """

    instance_uuid: str
    name: str
    source: str
    destination: str
    reason: str
    budget_before: float
    budget_after: float
    destination_budget_before: float
    destination_budget_after: float
    overload_before: float
    overload_after: float
    limit: float
    gain_seconds: float
    vm_gain_seconds: float
    memory_mib: int
    seconds: float
    transferred_mib: float
    downtime_seconds: float
    group: int = 0


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A plan, and its explanation.

    :ivar in_debt: tuple of HostInDebt, the deepest debt first
    :ivar capacity_kbps: smallest capacity of a host
    :ivar made_at: time of the plan, seconds UTC
    :ivar measured_until: end of the measurements, seconds UTC
    :ivar hosts: number of hosts with an error budget
    :ivar moves: tuple of ProposedMove, in the order of execution
    :ivar held_back: number of moves that have to wait
    :ivar reason: sentence that explains the plan
    """

    made_at: float
    measured_until: float
    hosts: int
    in_debt: tuple
    moves: tuple
    held_back: int
    reason: str
    capacity_kbps: float = math.inf

    @property
    def largest_mib(self):
        """Memory of the largest instance in the plan; 0 without any."""
        return max((move.memory_mib for move in self.moves), default=0)


def measured(store, now):
    """Return the :class:`.snapshot.Measured` of a store.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param now: current time, seconds UTC
    :raises NothingMeasured: if nothing was measured in the last hour
    """
    accounts = store.error_budgets()
    budgets = {name: account for (kind, name), account in accounts.items()
               if kind == 'host'}
    if not budgets:
        raise exceptions.NothingMeasured(
            f'error budgets in the store {store.url}: none; expected budgets '
            f'of hosts with a switch profile and instances, which '
            f'vswitch-modeler writes. Run "vswitch-status check" to see what '
            f'is missing')
    sums = packed.history(store, 'host', now, days=WINDOW_DAYS)
    is_known = np.array([
        ~np.isnan(host_sums.sums).any(axis=0) for host_sums in sums.values()
        if len(host_sums.limits)])
    slots = np.flatnonzero(is_known.any(axis=0)) if is_known.size else ()
    if not len(slots):
        raise exceptions.NothingMeasured(
            f'measured traffic of hosts in the store {store.url}: none in '
            f'the last {WINDOW_DAYS} days; check that vswitch-modeler runs '
            f'and that telemetry has samples')
    any_sums = next(iter(sums.values()))
    # From the first to the last slot that is known for any host.
    part = slice(int(slots[0]), int(slots[-1]) + 1)
    grid = snapshot.Grid(any_sums.period_seconds,
                         any_sums.first + part.start, part.stop - part.start)
    if now - grid.end > MOST_AGE_SECONDS + grid.seconds:
        raise exceptions.NothingMeasured(
            f'measured traffic of hosts in the store {store.url}: last update '
            f'at {plain_text.iso_time(grid.end)}; expected at most '
            f'{MOST_AGE_SECONDS:g} s ago: check that vswitch-modeler runs')
    placements = store.placements()
    return snapshot.Measured(
        budgets,
        {host: _cut(host_sums, part) for host, host_sums in sums.items()},
        grid, {uuid: record.host for uuid, record in placements.items()
               if record.host},
        frozenset(uuid for uuid, record in placements.items()
                  if record.attachments is not None
                  and record.attachments.virtual_functions))


def _cut(sums, part):
    """Return the Sums of the given slots, a slice."""
    return dataclasses.replace(
        sums, first=sums.first + part.start, sums=sums.sums[:, part],
        alone=sums.alone[:, part])


def propose(store, read_fleet, cloud, driver, settings, now, progress=None):
    """Return the current :class:`Proposal`.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param read_fleet: callable(store), returns the fleet by which the filter
        judges, as :class:`.FleetView`
    :param cloud: :class:`.cloud.Cloud`
    :param driver: telemetry driver
    :param settings: :class:`.settings.Settings`
    :param now: current time, seconds UTC
    :param progress: callback, as for :meth:`.telemetry.base.Driver.series`
    :raises NothingMeasured: if the store or telemetry has no traffic of the
        last seven days
    :raises TelemetryError: if Nova, Placement or telemetry cannot be read
    :raises StoreError: if the store cannot be read
    """
    data = measured(store, now)
    in_debt = _in_debt(data, settings)
    most_hosts = _HOSTS_A_MOVE * settings.most_moves
    hosts = [debtor.host for debtor in in_debt if debtor.relieved]
    hosts += [host for host in _harmed(data) if host not in hosts][
        :most_hosts - len(hosts)]
    if not hosts:
        return Proposal(now, data.grid.end, len(data.budgets), in_debt, (), 0,
                        _why_nothing(in_debt, settings))
    moves = store.moves(since=now - WINDOW_DAYS * budget.DAY_SECONDS)
    fleet = snapshot.make(
        data, hosts, functools.partial(read_fleet, store), cloud, driver,
        settings, now, moves, progress)
    if not fleet.loads.rates.any():
        raise exceptions.NothingMeasured(
            f'telemetry {driver.source}: no samples of the '
            f'{len(fleet.servers)} instances on {len(hosts)} hosts '
            f'in the last {WINDOW_DAYS} days; expected samples')
    return _planned(fleet, data, in_debt, settings, now)


def _planned(fleet, data, in_debt, settings, now):
    """Return the Proposal for a Snapshot."""
    rule, churn = relief.Rule(), settings.churn
    # In a small fleet, at least one instance may be moved in a week.
    least = 1 / max(fleet.loads.sizes.sum(), 1)
    churn = dataclasses.replace(
        churn, most_share_a_week=max(churn.most_share_a_week, least),
        parted_share_a_week=max(churn.parted_share_a_week, least))
    advice = advisor.advise(
        fleet.loads, fleet.balance, fleet.terms, rule,
        max(1, round(rule.recent_seconds / fleet.grid.seconds)),
        fleet.constraints, fleet.empty, churn, fleet.moved_at, now,
        fleet.costs, fleet.lately, fleet.accepting)
    reason = advice.reason
    relieved = {debtor.host for debtor in in_debt if debtor.relieved}
    if not advice.moves:
        reason += _listed(fleet.fixed.values(), 'instances', 'stay')
        reason += _listed([cause for host, cause in fleet.closed.items()
                           if host not in relieved], 'hosts',
                          'accept no instances')
    for host in sorted(relieved & fleet.closed.keys()):
        reason += f'; {host} is not relieved: {fleet.closed[host]}'
    waiting = sum(not debtor.relieved for debtor in in_debt)
    if waiting:
        reason += '; ' + plain_text.number_of(
            waiting, 'more host is in debt and waits',
            'more hosts are in debt and wait')

    def why(move, before, after):
        if move.parts:
            return (f'one instance overloads {fleet.hosts[move.source]} alone '
                    f'for more than the limit; the move ends '
                    f'{move.vm_gain * fleet.grid.seconds:.0f} s of overload '
                    f'of single instances in {WINDOW_DAYS} days')
        limit = fleet.terms[move.source].overload_probability
        return (f'{fleet.hosts[move.source]} has overspent its error budget '
                f'by {-fleet.balance[move.source]:.0f} s; the overload of its '
                f'present instances in {WINDOW_DAYS} days is '
                f'{before / limit:.2g} times the limit, and '
                f'{after / limit:.2g} times with the move')

    return Proposal(now, fleet.grid.end, len(data.budgets), in_debt,
                    tuple(_described(fleet, advice.moves, why)),
                    advice.held_back, reason, fleet.capacity_kbps)


def _listed(reasons, noun, verb):
    """Return clauses on how many things share each reason.

    :param reasons: iterable of reasons
    :param noun: ``instances`` or ``hosts``
    :param verb: what these things do for a reason
    """
    counts = collections.Counter(reasons).most_common(_SHOWN)
    return ''.join(f'; {count} {noun} {verb}: {reason}'
                   for reason, count in counts)


def _in_debt(data, settings):
    """Return a tuple of HostInDebt, the deepest debt first."""
    hosts = sorted((host for host, account in data.budgets.items()
                    if account.in_debt),
                   key=lambda host: (data.budgets[host].balance, host))
    most_relieved = _HOSTS_A_MOVE * settings.most_moves
    hosts_in_debt = []
    for host in hosts:
        checks = snapshot.confirmed(
            data.budgets[host], data.sums.get(host), data.grid,
            settings.checks, rebalance_settings.CHECK_SECONDS)
        relieved = checks >= settings.checks and most_relieved > 0
        most_relieved -= relieved
        hosts_in_debt.append(
            HostInDebt(host, data.budgets[host].balance, checks, relieved))
    return tuple(hosts_in_debt)


def _harmed(data):
    """Return the hosts that one instance overloads alone beyond the limit.

    The host that is overloaded for the longest time comes first.
    """
    counts = collections.Counter(data.placements.values())
    slots = {}
    for host, account in data.budgets.items():
        if counts[host] < 2 or host not in data.sums or account.in_debt:
            continue
        is_harmed = np.count_nonzero(snapshot.harmed(data.sums[host]))
        known = np.count_nonzero(
            ~np.isnan(data.sums[host].sums).any(axis=0))
        if is_harmed > account.overload_probability * known:
            slots[host] = is_harmed
    return sorted(slots, key=lambda host: (-slots[host], host))


def _why_nothing(in_debt, settings):
    if not in_debt:
        return 'no host is in debt'
    minutes = rebalance_settings.CHECK_SECONDS / 60
    hosts = plain_text.number_of(len(in_debt), 'host is', 'hosts are')
    return (f'{hosts} in debt, none at {settings.checks} '
            f'checks in a row, {minutes:g} minutes apart; {in_debt[0].host} '
            f'was at {in_debt[0].checks}')


def _described(fleet, moves, reason_of):
    """Yield the ProposedMoves of a plan.

    :param fleet: Snapshot
    :param moves: list of :class:`.relief.Move`, in the order of execution
    :param reason_of: callable(move, overload before, overload after), returns
        the reason of a move in words
    """
    loads, seconds = fleet.loads.copy(), fleet.grid.seconds

    def budget_after(host):
        overload_slots = np.count_nonzero(
            loads.overload([host])) if loads.sizes[host] else 0
        known_slots = np.count_nonzero(loads.known[host])
        balance = fleet.terms[host].after(
            fleet.balance[host], known_slots * seconds,
            overload_slots * seconds)
        return float(balance), overload_slots / max(known_slots, 1)

    for _, group in itertools.groupby(moves, lambda move: move.group):
        group = list(group)
        before = {move.source: budget_after(move.source)[1] for move in group}
        for move in group:
            loads.put(move.instance, move.destination)
        for move in group:
            server = fleet.servers[move.instance]
            migration = fleet.migrations[move.instance]
            source_after, after = budget_after(move.source)
            destination_after, _ = budget_after(move.destination)
            yield ProposedMove(
                server.uuid, server.name, fleet.hosts[move.source],
                fleet.hosts[move.destination],
                reason_of(move, float(before[move.source]), float(after)),
                float(fleet.balance[move.source]), source_after,
                float(fleet.balance[move.destination]), destination_after,
                float(before[move.source]), float(after),
                fleet.terms[move.source].overload_probability,
                move.gain * seconds, move.vm_gain * seconds,
                server.shape.memory_mib, migration.seconds,
                migration.transferred_kbit * 1000 / 8 / 2 ** 20,
                migration.downtime_seconds, move.group)
