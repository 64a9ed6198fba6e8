# SPDX-License-Identifier: Apache-2.0
"""Update the error budgets of hosts and uplinks from measured rates.

Each pass of a modeler calls :func:`update`. A modeler measures the rates of
its own instances in each period (:mod:`.measuring`), and stores them if there
are several modelers. One of the modelers adds the rates of all instances of
each host and *settles* each period of each budget once, in order of time
(:mod:`.settlement`).

The store has all data that the next pass needs. Each pass reads the telemetry
of the unsettled periods again, so an interrupted pass loses nothing. A budget
is written only if the stored budget has not changed since it was read.

Derivation: reference/rebalance.rst, "Error budget".
"""

import collections
from collections.abc import Callable
import contextlib
import dataclasses
import json
import math
import typing

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import assessment
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.budgets import deviation
from vswitch_aware_scheduler.budgets import measuring
from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.budgets import settlement
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import store as model_store

__all__ = ['LATE_SECONDS', 'ModelerPart', 'SHORTEST_PERIOD_SECONDS', 'Target',
           'Update', 'limits_in_words', 'targets', 'update']

LOG = logs.get_logger(__name__)

LATE_SECONDS = settlement.LATE_SECONDS

#: Periods are as long as the sampling period, but no shorter.
SHORTEST_PERIOD_SECONDS = 10.0

#: Periods that ended earlier are unknown, even if telemetry has samples.
_OLDEST_SECONDS = rules.DAY_SECONDS

#: Maximum number of rates of instances that are in memory at a time.
_MOST_RATES = 2 ** 22

#: Minimum number of periods that are settled together.
_FEW_SLOTS = 24


@dataclasses.dataclass(frozen=True)
class Update:
    """The result of an update of the error budgets.

    :ivar budgets: {(kind, name): :class:`.ErrorBudget`}, or None if another
        modeler settles them
    """

    instances: int = 0
    settled: int = 0
    budgets: dict | None = None


@dataclasses.dataclass(frozen=True)
class ModelerPart:
    """The part of a modeler in an update.

    :ivar name: name of this modeler, different from those of all other running
        modelers
    :ivar share: callable(uuid), whether this modeler measures the instance;
        None: it measures all instances, and is the only modeler
    :ivar stays_until: time up to which this modeler has read the hosts of
        instances, or None if it has not read them
    :ivar most_kbps: {uuid: kbit/s in one direction} that the host of an
        instance can carry; larger rates are ignored
    """

    name: str = 'modeler'
    common: bool = True
    share: Callable | None = None
    stays_until: float | None = None
    most_kbps: dict | None = None


@dataclasses.dataclass(frozen=True)
class Target:
    """A host or an uplink that has a budget.

    :ivar overload_probability: configured limit of the overload probability
    :ivar limits: tuple of (weights, packet bytes, capacity)
    :ivar text: JSON of the name of the profile and the limits, for comparison
    """

    overload_probability: float
    limits: tuple
    text: str

    @property
    def capacities(self) -> np.ndarray:
        """(l,) capacity of each limit."""
        return np.array([capacity for *_, capacity in self.limits])


def targets(store: model_store.Store) -> tuple[dict, dict]:
    """Return the hosts and uplinks with a budget, by their stored policies.

    :returns: ({(kind, name): :class:`Target`}, {host: list of the keys of the
        budgets in which instances on this host count})
    """
    hosts, uplinks, _ = policy_in_force.unpack(
        store.fleet('host').facts, store.fleet('uplink').facts)
    policies = {
        **{(model_store.HOST, name): policy for name, policy in hosts.items()},
        **{(model_store.UPLINK, name): uplink.policy
           for name, uplink in uplinks.items()}}
    by_policy = {policy: _target(policy) for policy in policies.values()}
    targets_by_key = {key: by_policy[policy] for key, policy
                      in policies.items() if by_policy[policy] is not None}
    return targets_by_key, {host: [
        key for key in ((model_store.HOST, host), *(
            (model_store.UPLINK, uplink.name) for uplink in policy.uplinks))
        if key in targets_by_key] for host, policy in hosts.items()}


def _target(policy):
    probability = policy.overload_probability
    if policy.profile is None or not 0 < probability < 1 \
            or policy.policy != admission.PROBABILITY:
        return None
    limits = tuple(
        (tuple(map(float, weights)),
         float(policy.profile.typical_packet_bytes), float(capacity))
        for weights, capacity, _ in policy.limits
        if 0 < capacity < math.inf)
    return Target(probability, limits, json.dumps(
        [policy.profile.name, limits])) if limits else None


def limits_in_words(text: str) -> str:
    """Return the limits of a budget in words.

    :param text: JSON, as in ``text`` of :class:`Target`
    """
    name, limits = json.loads(text)
    return ', '.join([f'profile {name}', *(
        f'{capacity:g} {assessment.UNITS.get(tuple(weights), "units")}'
        for weights, _, capacity in limits)])


def update(store: model_store.Store, driver: typing.Any,
           clock: Callable[[], float], newest: float | None,
           part: ModelerPart = ModelerPart(), *,
           progress: Callable | None = None, writing: Callable | None = None,
           predict: Callable | None = None) -> Update:
    """Measure all unsettled periods, and settle those that do not wait.

    :param newest: time of the newest counted sample, or None
    :param progress: None, or called as ``progress(done, total)``; an exception
        that it raises ends the update
    :param writing: None, or callable that returns a context manager for each
        write
    :param predict: None, or callable(store, progress=), returns {host:
        predicted share of overload}, with which measurements are compared
    :raises TelemetryError: when telemetry cannot be read
    :raises StoreChanged: when another modeler settles at the same time
    """
    state = store.budget_state()
    if newest is None or not part.common and state is None:
        return Update()
    known_until = -math.inf if state is None else state.stays_until
    if part.common:
        state = _state(store, state, driver, part.stays_until, float(clock()))
        if state is None:
            return Update()
    # If the clock is ahead of all samples, no sample counts as late.
    now = min(float(clock()), newest + LATE_SECONDS)
    period = state.period_seconds
    may_predict = predict is not None and (
        driver.period_seconds or period) >= SHORTEST_PERIOD_SECONDS
    work = _Work(
        store, *targets(store), state, now,
        math.floor(min(now, state.stays_until) / period), clock,
        writing or contextlib.nullcontext,
        (lambda: predict(store, progress=progress)) if may_predict else None)
    instances = settled = 0
    while True:
        stored = store.error_budgets()
        budgets = work.begun(stored) if part.common else stored
        pending, complete = work.pending(budgets)
        stays = store.stays(period * min(
            (first for first, _ in pending.values()), default=work.end))
        measured = measuring.measure(
            store, driver, stays, work.of_host, pending, period, part,
            progress)
        instances = max(instances, sum(len(rates.instances)
                                       for rates in measured))
        if part.share is not None and pending:
            with work.writing():
                store.write_measured_rates(part.name, measured, float(clock()))
            measured = [rates for rates in store.measured_rates()
                        if rates.period_seconds == period]
        if not part.common:
            return Update(instances)
        residents = measuring.residents(stays, work.of_host, pending, period)
        number = work.settle(
            stored, budgets, pending, complete, settlement.Settlement(
                store, work.targets, period, measured, residents, newest,
                min(known_until, now) - LATE_SECONDS), known_until)
        settled += number
        known_until = state.stays_until
        if complete or part.share is not None or not number:
            return Update(instances, settled, budgets)


@dataclasses.dataclass(frozen=True)
class _Work:
    """What does not change in an update.

    :ivar now: time to which periods may be settled, seconds UTC
    :ivar end: slot after the last one
    """

    store: model_store.Store
    targets: dict
    of_host: dict
    state: model_store.BudgetState
    now: float
    end: int
    clock: Callable
    writing: Callable
    predict: Callable | None

    def pending(self, budgets):
        """Return the slots to settle, which are not more than fit into memory.

        :returns: ({key: (first slot, slot after the last)}, whether these are
            all unsettled slots)
        """
        period, end = self.state.period_seconds, self.end
        oldest = end - int(_OLDEST_SECONDS // period)
        pending = {
            key: max(round(budget.until / period), oldest)
            for key, budget in budgets.items() if key in self.targets
            and budget.limits == self.targets[key].text}
        first = min(pending.values(), default=end)
        if end - first > _FEW_SLOTS:
            end = min(end, first + max(_FEW_SLOTS, _MOST_RATES // max(
                len(self.store.stays(period * first)), 1)))
        return {key: (first, end) for key, first in pending.items()
                if first < end}, end == self.end

    def settle(self, stored, budgets, pending, complete, settled, known_until):
        """Settle the pending slots, and write the result.

        :param known_until: earlier end of the known stays, seconds UTC
        """
        store, now = self.store, self.now
        debts = _in_force(store.debts(now))
        sums = settled.settle_all(budgets, pending)
        if self.predict is not None and complete and pending:
            budgets.update(_predicted(
                budgets, self.targets, float(self.clock()), self.predict))
        expired = [
            key for key, budget in budgets.items() if key not in self.targets
            and budget.until < now - model_store.KEPT_DAYS * rules.DAY_SECONDS]
        for key in expired:
            del budgets[key]
        day = int(now // rules.DAY_SECONDS)
        with self.writing():
            store.settle_budgets(
                self.state, [
                    (stored[key].until if key in stored else None, budget)
                    for key, budget in budgets.items()
                    if budget != stored.get(key)],
                sums, expired, day - model_store.KEPT_DAYS
                if known_until // rules.DAY_SECONDS != day else None,
                *settled.spending(store))
            if debts != _in_force(store.debts(now)):
                # Schedulers read debts only after a new generation.
                store.write(now=float(self.clock()))
        _report(stored, budgets)
        return settled.slots

    def begun(self, stored):
        """Return the budgets, with new ones for new hosts, changed limits."""
        budgets, period = dict(stored), self.state.period_seconds
        boundary = math.floor(self.now / period) * period
        for key, target in self.targets.items():
            terms = rules.Terms(target.overload_probability)
            previous = stored.get(key)
            reason = previous and _changed(previous, target, terms)
            if previous is None or reason is not None:
                budgets[key] = model_store.ErrorBudget(
                    *key, *dataclasses.astuple(terms), target.text, boundary,
                    reason and f'{reason}: a new budget begins', boundary,
                    terms.first)
            else:
                # The length of periods may have changed.
                budgets[key] = dataclasses.replace(
                    previous, until=math.ceil(
                        previous.until / period - 1e-9) * period)
        return budgets


def _in_force(debts):
    """Return what schedulers decide by."""
    return {key: debt.projects for key, debt in debts.items()}


def _state(store, state, driver, stays_until, clock):
    """Return the BudgetState of this update, or None without samples."""
    period = driver.period_seconds
    if period is None:
        # The period of most instances.
        counts = collections.Counter(
            point.period_seconds for point in store.resume_points().values()
            if point.period_seconds)
        period = next((seconds for seconds, _ in counts.most_common(1)), None)
    read_until = -math.inf if state is None else min(state.stays_until, clock)
    if stays_until is None:
        stays_until = read_until
    if period is None or stays_until == -math.inf:
        return None
    return model_store.BudgetState(
        float(max(round(period), SHORTEST_PERIOD_SECONDS)), stays_until)


def _changed(budget, target, terms):
    """Return what has changed since a budget began, or None."""
    if budget.overload_probability != terms.overload_probability:
        return (f'limit {budget.overload_probability:g} is now '
                f'{terms.overload_probability:g}')
    if budget.limits != target.text:
        before, after = map(limits_in_words, (budget.limits, target.text))
        return ('limits have changed' if before == after
                else f'limits were {before}, are now {after}')
    if rules.Terms.of(budget) != terms:
        return 'terms of the budget changed'
    return None


def _predicted(budgets, targets_by_key, now, predict):
    """Return {key: budget} of hosts with a new prediction."""
    latest = max((budget.prediction.since for budget in budgets.values()),
                 default=0.0)
    due = [key for key in budgets.keys() & targets_by_key.keys()
           if key[0] == model_store.HOST and (
               budgets[key].prediction.share is None
               or budgets[key].prediction.since <= now - rules.DAY_SECONDS)]
    if not due or now - deviation.AGAIN_SECONDS < latest <= now:
        return {}
    shares = predict()
    return {key: dataclasses.replace(budgets[key], prediction=(
        dataclasses.replace(budgets[key].prediction, share=shares[key[1]],
                            since=now)))
            for key in due if key[1] in shares}


def _report(stored, budgets):
    """Log which budgets are new, and which went into debt or left it.

    Also log which predictions of hosts are contradicted.
    """
    contradicted = [
        f'{budget.kind} {budget.name} ({budget.prediction})'
        for key, budget in budgets.items() if budget.prediction.contradicted
        and not (key in stored and stored[key].prediction.contradicted)]
    if contradicted:
        LOG.warning('vswitch-modeler: measured overload contradicts the '
                    'prediction: %s', plain_text.first_of(contradicted))
    changes = collections.defaultdict(list)
    for key, budget in budgets.items():
        previous = stored.get(key)
        if budget.why and (previous is None or previous.since != budget.since):
            changes[budget.why].append(budget)
        elif budget.in_debt != (previous is not None and previous.in_debt):
            changes['it is in debt' if budget.in_debt
                    else 'it is no longer in debt'].append(budget)
    for reason, reported in changes.items():
        LOG.info('vswitch-modeler: error budget of %s: %s',
                 plain_text.first_of(f'{budget.kind} {budget.name}'
                                     for budget in reported), reason)
