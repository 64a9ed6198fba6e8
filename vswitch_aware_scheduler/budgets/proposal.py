# SPDX-License-Identifier: Apache-2.0
"""Proposes migrations, with reasons.

:func:`propose` reads the store, Nova and telemetry, and makes a plan. The
commands, vswitch-modeler and Watcher's strategy call it. It changes nothing.
"""

import collections
from collections.abc import Callable
import dataclasses
import functools
import itertools
import math
import typing

import numpy as np

from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.budgets import plan_input
from vswitch_aware_scheduler.budgets import rebalance_settings
from vswitch_aware_scheduler.budgets import relief
from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import store as model_store

__all__ = ['HostInDebt', 'ProposedMove', 'RebalanceProposal', 'WINDOW_DAYS',
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

    :ivar balance: seconds of overload, negative
    :ivar checks: number of consecutive checks at which it was in debt
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

    :ivar overload_before: share of the last seven days in which the source
        would have been overloaded by its current instances
    :ivar gain_seconds: avoided seconds of overload of both hosts in seven days
    :ivar vm_gain_seconds: avoided seconds in seven days in which an instance
        is on an overloaded host, the sum over all instances of both hosts
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
class RebalanceProposal:
    """A plan, and its explanation.

    :ivar in_debt: tuple of HostInDebt, the deepest debt first
    :ivar capacity_kbps: smallest capacity of a host
    :ivar made_at: time of the plan, seconds UTC
    :ivar measured_until: end of the measurements, seconds UTC
    :ivar moves: tuple of ProposedMove, in the order of execution
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
    def largest_mib(self) -> int:
        """Memory of the largest instance in the plan; 0 without any."""
        return max((move.memory_mib for move in self.moves), default=0)


def _measured(store, now):
    """Return the :class:`.plan_input.MeasuredFleet` of a store.

    :raises NothingMeasured: if nothing was measured in the last hour
    """
    budgets = {name: budget for (kind, name), budget
               in store.error_budgets().items() if kind == 'host'}
    if not budgets:
        raise exceptions.NothingMeasured(
            thing='error budgets', store=store.url, seen='none',
            hint='expected budgets of hosts with a switch profile and '
            'instances, which vswitch-modeler writes. Run "vswitch-status '
            'check" to see what is missing')
    sums = packed.history(store, 'host', now, days=WINDOW_DAYS)
    is_known = [of_host.known for of_host in sums.values() if of_host.limits]
    # From the first to the last slot that is known for any host.
    known_slots = np.flatnonzero(np.any(is_known, axis=0))
    if not is_known or not known_slots.size:
        raise exceptions.NothingMeasured(
            thing='measured traffic of hosts', store=store.url,
            seen=f'none in the last {WINDOW_DAYS} days', hint='check that '
            'vswitch-modeler runs and that telemetry has samples')
    sums = {host: of_host.part(known_slots[0], known_slots[-1] + 1)
            for host, of_host in sums.items()}
    slots = next(iter(sums.values())).slots
    if now - slots.end > MOST_AGE_SECONDS + slots.seconds:
        raise exceptions.NothingMeasured(
            thing='measured traffic of hosts', store=store.url,
            seen=f'last update at {plain_text.iso_time(slots.end)}',
            hint=f'expected at most {MOST_AGE_SECONDS:g} s ago: check that '
            'vswitch-modeler runs')
    for kind, noun in (('aggregate', 'aggregates'), ('node', 'hypervisors')):
        if store.fleet(kind).read_at is None:
            raise exceptions.NothingMeasured(
                thing=f'{noun} of Nova', store=store.url,
                seen='none were read', hint='check that vswitch-modeler has '
                f'credentials for Nova and may list its {noun}')
    placements = store.placements()
    return plan_input.MeasuredFleet(
        now, budgets, sums, slots,
        {uuid: record.host for uuid, record in placements.items()
         if record.host},
        list(store.fleet('aggregate').facts.values()),
        {node: host for host, row in store.fleet('host').facts.items()
         for node in row.get('nodes', ())},
        frozenset(uuid for uuid, record in placements.items()
                  if record.attachments is not None
                  and record.attachments.virtual_functions),
        store.moves(since=now - WINDOW_DAYS * rules.DAY_SECONDS))


def propose(store: model_store.Store, read_fleet: Callable,
            cloud: nova.CloudApi, driver: typing.Any,
            settings: rebalance_settings.RebalanceSettings, now: float,
            progress: Callable | None = None) -> RebalanceProposal:
    """Return what is proposed now.

    :raises NothingMeasured: if the store or telemetry has no traffic of the
        last seven days
    :raises TelemetryError: if Nova, Placement or telemetry cannot be read
    """
    measured = _measured(store, now)
    in_debt = _in_debt(measured, settings)
    hosts = [debtor.host for debtor in in_debt if debtor.relieved]
    hosts += [host for host in _harmed(measured) if host not in hosts][
        :_HOSTS_A_MOVE * settings.most_moves - len(hosts)]
    if not hosts:
        return RebalanceProposal(
            now, measured.slots.end, len(measured.budgets), in_debt, (), 0,
            _why_nothing(in_debt, settings))
    planned = plan_input.make(
        measured, hosts, functools.partial(read_fleet, store), cloud, driver,
        settings, progress)
    if not planned.case.loads.rates.any():
        raise exceptions.NothingMeasured(
            f'telemetry {driver.source}: no samples of the '
            f'{len(planned.servers)} instances on {len(hosts)} hosts '
            f'in the last {WINDOW_DAYS} days; expected samples')
    churn = settings.churn
    # In a small fleet, at least one instance may be moved in a week.
    least = 1 / max(planned.case.loads.sizes.sum(), 1)
    advice = relief.advise(
        planned.case, relief.Rule(), dataclasses.replace(
            churn, most_share_a_week=max(churn.most_share_a_week, least),
            parted_share_a_week=max(churn.parted_share_a_week, least)),
        planned.moved_at, now, planned.lately)
    return RebalanceProposal(
        now, planned.slots.end, len(measured.budgets), in_debt,
        tuple(_described(planned, advice.moves)), advice.held_back,
        advice.reason + _more_reasons(planned, advice, in_debt),
        planned.capacity_kbps)


def _more_reasons(planned, advice, in_debt):
    """Return clauses on what does not move, and which hosts wait."""
    relieved = {debtor.host for debtor in in_debt if debtor.relieved}
    text = ''
    if not advice.moves:
        text += _listed(planned.fixed.values(), 'instances', 'stay')
        text += _listed([cause for host, cause in planned.closed.items()
                         if host not in relieved], 'hosts',
                        'accept no instances')
    for host in sorted(relieved & planned.closed.keys()):
        text += f'; {host} is not relieved: {planned.closed[host]}'
    waiting = sum(not debtor.relieved for debtor in in_debt)
    if waiting:
        text += '; ' + plain_text.number_of(
            waiting, 'more host is in debt and waits',
            'more hosts are in debt and wait')
    return text


def _listed(reasons, noun, verb):
    """Return clauses on how many things share each reason."""
    counts = collections.Counter(reasons).most_common(_SHOWN)
    return ''.join(f'; {count} {noun} {verb}: {reason}'
                   for reason, count in counts)


def _in_debt(measured, settings):
    """Return a tuple of HostInDebt, the deepest debt first."""
    most_relieved = _HOSTS_A_MOVE * settings.most_moves
    hosts_in_debt = []
    for balance, host in sorted(
            (budget.balance, host) for host, budget
            in measured.budgets.items() if budget.in_debt):
        checks = _confirmed(measured.budgets[host], measured.sums.get(host),
                            settings.checks)
        relieved = checks >= settings.checks and most_relieved > 0
        most_relieved -= relieved
        hosts_in_debt.append(HostInDebt(host, balance, checks, relieved))
    return tuple(hosts_in_debt)


def _confirmed(budget, sums, most_checks):
    """Return at how many consecutive checks, up to now, a host was in debt.

    Past balances are computed from the current one and the sums since then.
    """
    if sums is None:
        return 1
    slots, is_known, overloaded = sums.slots, sums.known, sums.overloaded
    for check in range(1, most_checks):
        time = slots.end - check * rebalance_settings.CHECK_SECONDS
        if time < budget.since:
            return check
        after = slots.between(time, math.inf)
        if budget.balance + slots.seconds * (
                np.count_nonzero(overloaded & after)
                - budget.rate * np.count_nonzero(is_known & after)) >= 0:
            return check
    return most_checks


def _harmed(measured):
    """Return the hosts that one instance overloads alone beyond the limit.

    The host that is overloaded for the longest time comes first.
    """
    counts = collections.Counter(measured.placements.values())
    slots = {}
    for host, budget in measured.budgets.items():
        if counts[host] < 2 or host not in measured.sums or budget.in_debt:
            continue
        sums = measured.sums[host]
        harmed = np.count_nonzero(sums.harmed)
        if harmed > budget.overload_probability * np.count_nonzero(sums.known):
            slots[host] = harmed
    return sorted(slots, key=lambda host: (-slots[host], host))


def _why_nothing(in_debt, settings):
    if not in_debt:
        return 'no host is in debt'
    minutes = rebalance_settings.CHECK_SECONDS / 60
    hosts = plain_text.number_of(len(in_debt), 'host is', 'hosts are')
    return (f'{hosts} in debt, none at {settings.checks} '
            f'checks in a row, {minutes:g} minutes apart; {in_debt[0].host} '
            f'was at {in_debt[0].checks}')


def _described(planned, moves):
    """Yield the ProposedMoves of a plan.

    :param moves: list of :class:`.relief.ReliefMove`, in the order of
        execution
    """
    case, seconds = planned.case, planned.slots.seconds
    loads = case.loads.copy()

    def later(host):
        """Return the later balance and the share of overload of a host."""
        overload_slots = np.count_nonzero(
            loads.overload([host])) if loads.sizes[host] else 0
        known_slots = np.count_nonzero(loads.known[host])
        balance = case.terms[host].after(
            case.balance[host], known_slots * seconds,
            overload_slots * seconds)
        return float(balance), float(overload_slots / max(known_slots, 1))

    for _, group in itertools.groupby(moves, lambda move: move.group):
        group = list(group)
        before = {move.source: later(move.source)[1] for move in group}
        for move in group:
            loads.put(move.instance, move.destination)
        for move in group:
            server = planned.servers[move.instance]
            migration = planned.costs[move.instance]
            source, destination = (planned.hosts[host] for host in (
                move.source, move.destination))
            balance, destination_balance = (float(case.balance[host]) for host
                                            in (move.source, move.destination))
            balance_after, overload_after = later(move.source)
            limit = case.terms[move.source].overload_probability
            overload_before = before[move.source]
            if move.parts:
                reason = (
                    f'one instance overloads {source} alone for more than the '
                    f'limit; the move ends {move.vm_gain * seconds:.0f} s of '
                    f'overload of single instances in {WINDOW_DAYS} days')
            else:
                reason = (
                    f'{source} has overspent its error budget by '
                    f'{-balance:.0f} s; the overload of its present instances '
                    f'in {WINDOW_DAYS} days is {overload_before / limit:.2g} '
                    f'times the limit, and {overload_after / limit:.2g} times '
                    f'with the move')
            yield ProposedMove(
                server.uuid, server.name, source, destination, reason,
                balance, balance_after, destination_balance,
                later(move.destination)[0], overload_before, overload_after,
                limit, move.gain * seconds, move.vm_gain * seconds,
                server.shape.memory_mib, migration.seconds,
                migration.transferred_kbit * 1000 / 8 / 2 ** 20,
                migration.downtime_seconds, move.group)
