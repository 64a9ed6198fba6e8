# SPDX-License-Identifier: Apache-2.0
"""Update the error budgets of hosts and uplinks from measured rates.

Each pass of a modeler calls :func:`update`. A modeler measures the rates of
its own instances in each period, and stores them (:class:`~.budgets.Measured`)
if there are several modelers. One of the modelers adds the rates of all
instances of each host and *settles* each period of each budget once, in order
of time.

* Rates are not negative. If the measured instances exceed a capacity, the host
  was overloaded, whatever the others sent: spending never depends on what is
  missing. A host earns in proportion to what is measured: the share of the
  time of its instances that their samples cover.
* An instance without an interface, or that has never sent anything, counts as
  measured.
* A period waits for samples that may still arrive: of an instance that has
  recent samples but none of this period, for :data:`LATE_SECONDS`.
* The overload that a host spends is charged to the instances that made it
  (:func:`.rules.charges`).

The store has all data that the next pass needs. Each pass reads the telemetry
of the unsettled periods again, so an interrupted pass loses nothing. A budget
is written only if the stored budget has not changed since it was read.

Derivation: reference/rebalance.rst, "Error budget".
"""

import collections
import contextlib
import dataclasses
import itertools
import json
import math

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.budgets import deviation
from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.budgets import rules as budget_rules
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['LATE_SECONDS', 'SHORTEST_PERIOD_SECONDS', 'Update', 'WINDOWS',
           'limits_in_words', 'targets', 'update']

LOG = logs.get_logger(__name__)

#: Seconds that a period waits for samples.
LATE_SECONDS = 3600.0

#: Periods are as long as the sampling period, but no shorter.
SHORTEST_PERIOD_SECONDS = 10.0

#: Windows of burn rates in seconds: an hour, six hours, three days.
WINDOWS = (3600, 21600, model_store.RECOVERY_SECONDS)

_DAY_SECONDS = budget_rules.DAY_SECONDS

#: Periods that ended earlier are unknown, even if telemetry has samples.
_OLDEST_SECONDS = _DAY_SECONDS

#: A period of an instance is measured if samples cover this share of it.
_COVERED = 0.9

#: Maximum number of rates of instances that are in memory at a time.
_MOST_RATES = 2 ** 22

#: Minimum number of periods that are settled together.
_FEW_SLOTS = 24


@dataclasses.dataclass(frozen=True)
class Update:
    """The result of an update of the error budgets.

    :ivar instances: number of instances that this modeler has measured
    :ivar settled: number of periods of budgets that were settled
    :ivar budgets: {(kind, name): :class:`.ErrorBudget`}, or None if another
        modeler settles them
    """

    instances: int = 0
    settled: int = 0
    budgets: dict | None = None


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
    def capacities(self):
        """(l,) capacity of each limit."""
        return np.array([capacity for *_, capacity in self.limits])


def targets(store):
    """Return the hosts and uplinks with a budget, by their stored policies.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :returns: ({(kind, name): :class:`Target`}, {host: list of the keys of the
        budgets in which instances on this host count})
    :raises StoreError: when the store cannot be read
    """
    hosts, uplinks, _ = policy_in_force.unpack(
        store.fleet('host').facts, store.fleet('uplink').facts)
    targets_by_key, of_host, by_policy = {}, {}, {}
    policies = itertools.chain(
        (((model_store.HOST, name), policy) for name, policy in hosts.items()),
        (((model_store.UPLINK, name), uplink.policy)
         for name, uplink in uplinks.items()))
    for key, policy in policies:
        if policy not in by_policy:
            by_policy[policy] = _target(policy)
        if by_policy[policy] is not None:
            targets_by_key[key] = by_policy[policy]
    for host, policy in hosts.items():
        keys = [(model_store.HOST, host), *((model_store.UPLINK, uplink.name)
                                            for uplink in policy.uplinks)]
        of_host[host] = [key for key in keys if key in targets_by_key]
    return targets_by_key, of_host


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


def limits_in_words(text):
    """Return the limits of a budget in words.

    :param text: JSON, as in ``text`` of :class:`Target`
    """
    name, limits = json.loads(text)
    units = {(1.0, 1.0, 0.0): 'kbit/s', (1.0, 0.0, 0.0): 'kbit/s egress',
             (0.0, 1.0, 0.0): 'kbit/s ingress',
             (0.0, 0.0, 1.0): 'kilo-packets/s'}
    return ', '.join([f'profile {name}', *(
        f'{capacity:g} {units.get(tuple(weights), "units")}'
        for weights, _, capacity in limits)])


def update(store, driver, clock, newest, *, name='modeler', common=True,
           share=None, stays_until=None, most_kbps=None, progress=None,
           writing=None, predict=None):
    """Measure all unsettled periods, and settle those that do not wait.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param driver: telemetry :class:`~.base.Driver`
    :param clock: callable, returns the time in seconds UTC
    :param newest: time of the newest counted sample, or None
    :param name: name of this modeler, different from those of all other
        running modelers
    :param common: whether this modeler settles periods for all modelers
    :param share: callable(uuid), whether this modeler measures the instance;
        None: it measures all instances, and is the only modeler
    :param stays_until: time up to which this modeler has read the hosts of
        instances, or None if it has not read them
    :param most_kbps: {uuid: kbit/s in one direction} that the host of an
        instance can carry; larger rates are ignored
    :param progress: None, or called as ``progress(done, total)``; an exception
        that it raises ends the update
    :param writing: None, or callable that returns a context manager for each
        write
    :param predict: None, or callable(store, progress=), returns {host:
        predicted share of overload}, with which measurements are compared
    :returns: :class:`Update`
    :raises TelemetryError: when telemetry cannot be read
    :raises StoreError: when the store cannot be read or written
    :raises StoreChanged: when another modeler settles at the same time
    """
    writing = writing or contextlib.nullcontext
    state = store.budget_state()
    if newest is None or not common and state is None:
        return Update()
    # If the clock is ahead of all samples, no sample counts as late.
    now = min(float(clock()), newest + LATE_SECONDS)
    known_until = -math.inf if state is None else state.stays_until
    if common:
        state = _state(store, state, driver, stays_until, float(clock()))
        if state is None:
            return Update()
    targets_by_key, of_host = targets(store)
    grid = _Grid(state.period_seconds, math.floor(
        min(now, state.stays_until) / state.period_seconds))
    instances = settled = 0
    while True:
        stored = store.error_budgets()
        budgets = stored if not common else _begun(
            stored, targets_by_key, grid.period, now)
        pending, complete = _pending(budgets, targets_by_key, grid, store)
        stays = store.stays(grid.period * min(
            (first for first, _ in pending.values()), default=grid.end))
        measured = _measure(
            store, driver, stays, of_host, pending, grid.period,
            share or (lambda instance_uuid: True), most_kbps or {}, progress)
        instances = max(instances, sum(len(part.instances)
                                       for part in measured))
        if share is not None and pending:
            with writing():
                store.write_measured_rates(name, measured, float(clock()))
        if not common:
            return Update(instances)
        if share is not None and pending:
            measured = [part for part in store.measured_rates()
                        if part.period_seconds == grid.period]
        settlement = _Settlement(
            store, targets_by_key, grid.period, measured,
            _residents(stays, of_host, pending, grid.period),
            newest, min(known_until, now) - LATE_SECONDS)
        number = _settle(store, state, settlement, stored, budgets, pending,
                         now, known_until, writing, clock, (
                             None if predict is None or not complete
                             or (driver.period_seconds or grid.period)
                             < SHORTEST_PERIOD_SECONDS
                             else lambda: predict(store, progress=progress)))
        settled += number
        known_until = state.stays_until
        if complete or share is not None or not number:
            return Update(instances, settled, budgets)


@dataclasses.dataclass(frozen=True)
class _Grid:
    """The slots of an update: their length, and the one after the last."""

    period: float
    end: int


def _pending(budgets, targets_by_key, grid, store):
    """Return the slots to settle, which are not more than fit into memory.

    :returns: ({key: (first slot, slot after the last)}, whether these are all
        unsettled slots)
    """
    oldest = grid.end - int(_OLDEST_SECONDS // grid.period)
    pending = {
        key: max(round(budget.until / grid.period), oldest)
        for key, budget in budgets.items()
        if key in targets_by_key and budget.limits == targets_by_key[key].text}
    first = min(pending.values(), default=grid.end)
    end = grid.end
    if end - first > _FEW_SLOTS:
        end = min(end, first + max(_FEW_SLOTS, _MOST_RATES // max(
            len(store.stays(grid.period * first)), 1)))
    return {key: (first, end) for key, first in pending.items()
            if first < end}, end == grid.end


def _settle(store, state, settlement, stored, budgets, pending, now,
            known_until, writing, clock, predict):
    """Settle the pending slots, and write the result.

    :param budgets: {key: ErrorBudget}, changed in place
    :returns: number of settled slots
    """
    debts = store.debts(now)
    sums = []
    period = state.period_seconds
    history = _history(store, pending, period)
    for key, (first, last) in pending.items():
        budgets[key], days = settlement.settle(
            budgets[key], first, last, history.get(key, {}))
        sums += days
    if predict is not None and pending:
        budgets.update(_predicted(
            budgets, settlement.targets, float(clock()), predict))
    expired = [
        key for key, budget in budgets.items()
        if key not in settlement.targets
        and budget.until < now - model_store.KEPT_DAYS * _DAY_SECONDS]
    for key in expired:
        del budgets[key]
    day = int(now // _DAY_SECONDS)
    with writing():
        store.settle_budgets(
            state, [(stored[key].until if key in stored else None, budget)
                    for key, budget in budgets.items()
                    if budget != stored.get(key)],
            sums, expired, day - model_store.KEPT_DAYS
            if known_until // _DAY_SECONDS != day else None,
            *settlement.spending(store))
        if _in_force(debts) != _in_force(store.debts(now)):
            # Schedulers read debts only after a new generation.
            store.write(now=float(clock()))
    _report(stored, budgets)
    return settlement.settled


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


def _begun(stored, targets_by_key, period, now):
    """Return the budgets, with new ones for new hosts and changed limits."""
    budgets = dict(stored)
    boundary = math.floor(now / period) * period
    for key, target in targets_by_key.items():
        terms = budget_rules.Terms(target.overload_probability)
        previous, reason = stored.get(key), None
        if previous is not None:
            reason = _changed(previous, target, terms)
            if reason is None:
                # The length of periods may have changed.
                until = math.ceil(previous.until / period - 1e-9) * period
                budgets[key] = dataclasses.replace(previous, until=until)
                continue
            reason += ': a new budget begins'
        budgets[key] = model_store.ErrorBudget(
            *key, *dataclasses.astuple(terms), target.text, boundary, reason,
            boundary, terms.first)
    return budgets


def _terms(budget):
    return budget_rules.Terms(budget.overload_probability, budget.earned_share,
                              budget.first_days, budget.most_days)


def _changed(budget, target, terms):
    """Return what has changed since a budget began, or None."""
    if budget.overload_probability != terms.overload_probability:
        return (f'limit {budget.overload_probability:g} is now '
                f'{terms.overload_probability:g}')
    if budget.limits != target.text:
        before, after = map(limits_in_words, (budget.limits, target.text))
        return ('limits have changed' if before == after
                else f'limits were {before}, are now {after}')
    if _terms(budget) != terms:
        return 'terms of the budget changed'
    return None


def _predicted(budgets, targets_by_key, now, predict):
    """Return {key: budget} of hosts with a new prediction.

    :param predict: callable(), returns {host: predicted share of overload}
    """
    latest = max((budget.prediction.since for budget in budgets.values()),
                 default=0.0)
    due = [key for key in budgets.keys() & targets_by_key.keys()
           if key[0] == model_store.HOST and (
               budgets[key].prediction.share is None
               or budgets[key].prediction.since <= now - _DAY_SECONDS)]
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


def _history(store, pending, period):
    """Return the sums that a settlement needs.

    :returns: {key: {(day, period): StoredSums}}
    """
    if not pending:
        return {}
    first = min(first for first, _ in pending.values()) * period
    history = collections.defaultdict(dict)
    for kind in {kind for kind, _ in pending}:
        for day_sums in store.sum_history(
                kind, {name for its_kind, name in pending if its_kind == kind},
                int((first - max(WINDOWS)) // _DAY_SECONDS)):
            history[kind, day_sums.name][
                day_sums.day, day_sums.period_seconds] = day_sums
    return history


# Measuring: the rates of the instances of this modeler


def _measure(store, driver, stays, of_host, pending, period, share, most_kbps,
             progress):
    """Return a list of Measured: the rates in the unsettled periods."""
    mine = [uuid for uuid, its_stays in stays.items()
            if any(key in pending for stay in its_stays
                   for key in of_host.get(stay.host, ())) and share(uuid)]
    if not mine:
        return []
    driver.hosts = {**driver.hosts, **{
        uuid: stays[uuid][-1].host for uuid in mine
        if stays[uuid][-1].host is not None}}
    end = max(last for _, last in pending.values())
    groups = list(_groups({uuid: stays[uuid] for uuid in mine}, of_host,
                          pending))
    points = store.resume_points()
    return [_read(driver, uuids, points, period, first, end, most_kbps,
                  progress) for first, uuids in groups]


def _groups(stays, of_host, pending):
    """Yield (first slot, uuids) of instances that are read together.

    Instances with many unsettled periods are in a group of their own, so that
    the others are not read for the same long time.
    """
    uuids_by_group = collections.defaultdict(list)
    firsts = {}
    for uuid, its_stays in stays.items():
        first, end = min(pending[key] for stay in its_stays
                         for key in of_host.get(stay.host, ())
                         if key in pending)
        group = (end - first).bit_length()
        uuids_by_group[group].append(uuid)
        firsts[group] = min(first, firsts.get(group, first))
    for group, uuids in sorted(uuids_by_group.items()):
        yield firsts[group], uuids


def _read(driver, uuids, points, period, first, end, most_kbps, progress):
    """Return Measured: the rates of some instances from a slot on.

    :param points: {uuid: ResumePoint}
    """
    last = np.array([getattr(points.get(uuid), 'last_time', None) or -math.inf
                     for uuid in uuids])
    packets_known = np.ones(len(uuids), dtype=bool)
    covered = np.zeros((len(uuids), end - first), dtype=np.float32)
    means = np.zeros((*covered.shape, 3), dtype=np.float32)
    rows = {uuid: row for row, uuid in enumerate(uuids)}
    edges = period * np.arange(first, end + 1)
    # One earlier sample covers the start of the first slot. One more is needed
    # because the first reading of a counter gives no rate.
    for series in driver.series(edges[0] - 2 * period, edges[-1], rows,
                                progress):
        row = rows.get(series.instance_uuid)
        if row is not None:
            rates = _Rates(series, most_kbps.get(series.instance_uuid))
            last[row] = max(last[row], rates.last)
            packets_known[row] = rates.packets_known
            covered[row] = rates.covered(edges)
            means[row] = rates.means(first, end, period, edges)
    return model_store.Measured(period, first, uuids, last, packets_known,
                                covered, means)


def _within(stays, edges):
    """Yield each Stay between the edges, with the edges clipped to its time.

    :param stays: list of Stay of one instance, the oldest first
    :param edges: (t + 1,) bounds of slots, seconds UTC
    """
    for place, stay in enumerate(stays):
        until = stays[place + 1].since if place + 1 < len(stays) else math.inf
        if max(stay.since, edges[0]) < min(until, edges[-1]):
            yield stay, np.clip(edges, stay.since, until)


class _Rates:
    """The rates of one instance, as samples and as functions of time.

    A sample lasts for its period. If the next sample is late by at most half a
    period, the sample lasts until then.

    :param series: RateSeries
    :param most_kbps: larger rates are ignored; None: no limit
    """

    def __init__(self, series, most_kbps):
        self._times, self._rates = np.zeros(0), np.zeros((0, 3))
        seconds = np.zeros(0)
        if len(series):
            if most_kbps is not None:
                series = series.within(most_kbps)
            self._times = series.times[series.whole]
            self._rates = series.rates[series.whole]
            period = series.period_seconds
            seconds = np.full(self._times.size, period)
            gaps = np.diff(self._times)
            seconds[:-1] = np.where(gaps <= 1.5 * period, gaps, period)
        #: When the last sample began, seconds UTC.
        self.last = self._times[-1] if self._times.size else -math.inf
        self._points = np.column_stack(
            [self._times, self._times + seconds]).ravel()
        self._seconds = self._running_sum(seconds)
        self._lasting = seconds
        #: Whether its rates say anything of packets.
        self.packets_known = bool(self._rates[:, 2].any()
                                  or not self._rates[:, :2].any())

    @staticmethod
    def _running_sum(amounts):
        """Return the cumulated amounts at the start and end of each sample."""
        total = np.cumsum(amounts)
        return np.column_stack([total - amounts, total]).ravel()

    def covered(self, edges):
        """Return (t,) seconds that samples cover between t + 1 edges.

        :param edges: (t + 1,) bounds of the slots, seconds UTC
        """
        if not self._points.size:
            return np.zeros(len(edges) - 1)
        return np.diff(np.interp(edges, self._points, self._seconds))

    def means(self, first, end, period, edges):
        """Return (t, 3) mean rates of the samples that start in each slot.

        If no sample starts in a slot, the samples that last into the slot are
        used.

        :param first: first slot
        :param end: end of the slots, exclusive
        :param period: length of a slot in seconds
        :param edges: (t + 1,) bounds of the slots, seconds UTC
        """
        means = np.zeros((end - first, 3))
        if not self._points.size:
            return means
        slots = np.floor(self._times / period).astype(np.int64) - first
        inside = (slots >= 0) & (slots < end - first)
        counts = np.bincount(slots[inside], minlength=end - first)
        np.add.at(means, slots[inside], self._rates[inside])
        means /= np.maximum(counts, 1)[:, None]
        if not counts.all():
            seconds = np.maximum(self.covered(edges), 1e-9)
            for column, rates in enumerate(self._rates.T):
                lasting = np.diff(np.interp(
                    edges, self._points,
                    self._running_sum(self._lasting * rates)))
                means[:, column] = np.where(
                    counts > 0, means[:, column],
                    np.maximum(lasting, 0.0) / seconds)
        return means


# Settling: the traffic of the instances of all modelers


@dataclasses.dataclass(eq=False)
class _Residents:
    """The instances on a host, or behind an uplink, in its pending slots.

    :ivar active: {uuid: (t,) seconds in which the instance may have run there}
    :ivar events: list of the times at which an instance came, left, started or
        stopped
    """

    active: dict = dataclasses.field(default_factory=dict)
    events: list = dataclasses.field(default_factory=list)


def _residents(stays, of_host, pending, period):
    """Return {key: _Residents} of the pending slots of each budget."""
    found = {key: _Residents() for key in pending}
    for uuid, its_stays in stays.items():
        previous = ()
        for stay in its_stays:
            keys = of_host.get(stay.host, ())
            for key in {*previous, *keys} & found.keys():
                found[key].events.append(stay.since)
            previous = keys
        for key in {key for stay in its_stays for key in of_host.get(
                stay.host, ())} & found.keys():
            first, end = pending[key]
            active = np.zeros(end - first)
            for stay, inside in _within(its_stays,
                                        period * np.arange(first, end + 1)):
                if stay.running is not False \
                        and key in of_host.get(stay.host, ()):
                    active += np.diff(inside)
            if active.any():
                found[key].active[uuid] = active
    return found


class _Settlement:
    """Settles periods: what a host earned and spent in each, and by whom.

    :param store: Store, from which it is read which instances send nothing
    :param targets_by_key: {(kind, name): Target}
    :param period: length of a slot in seconds
    :param measured: list of Measured
    :param residents: {key: _Residents}
    :param newest: time of the newest sample of the fleet
    :param late_before: periods that ended before this time no longer wait for
        samples
    :ivar settled: number of periods that were settled
    """

    def __init__(self, store, targets_by_key, period, measured, residents,
                 newest, late_before):
        self.targets = targets_by_key
        self.settled = 0
        self._period = period
        self._residents = residents
        self._newest = newest
        self._late_before = late_before
        self._of = collections.defaultdict(list)
        for part in measured:
            for row, uuid in enumerate(part.instances):
                self._of[uuid].append((part, row))
        self._silent = store.silent_instances(self._unmeasured())
        self._charged = collections.Counter()
        self._vm_time = collections.defaultdict(lambda: np.zeros(2))

    def _unmeasured(self):
        """Return the set of the instances without recent samples."""
        uuids = set(itertools.chain.from_iterable(
            residents.active for residents in self._residents.values()))
        return {uuid for uuid in uuids if max(
            (part.last[row] for part, row in self._of[uuid]),
            default=-math.inf) < self._newest - LATE_SECONDS}

    def _gather(self, key, first, end):
        """Return what was measured of the instances of a budget.

        :returns: (uuids, active, covered, values, waits): (n, t) seconds in
            which an instance may have run, and those of them that are
            measured; (l, n, t) its mean load while it was measured; (n, t)
            bool, whether its samples may still arrive
        """
        period, limits = self._period, self.targets[key].limits
        resident = self._residents[key].active
        shape = len(resident), end - first
        active = np.array(list(resident.values())).reshape(shape)
        covered, waits = np.zeros(shape), np.zeros(shape, dtype=bool)
        values = np.zeros((len(limits), *shape))
        ends = period * np.arange(first + 1, end + 1)
        for i, uuid in enumerate(resident):
            last, is_reported = -math.inf, np.zeros(shape[1], dtype=bool)
            for part, row in self._of[uuid]:
                last = max(last, part.last[row])
                seconds, rates = np.zeros(shape[1]), np.zeros((shape[1], 3))
                low = max(first, part.first_slot)
                high = min(end, part.first_slot + part.covered.shape[1])
                if low >= high:
                    continue
                own, its = (slice(low - begin, high - begin)
                            for begin in (first, part.first_slot))
                seconds[own], rates[own] = (part.covered[row, its],
                                            part.rates[row, its])
                is_reported[own] = True
                better = seconds > covered[i]
                covered[i][better] = seconds[better]
                for j, (weights, packet_bytes, _) in enumerate(limits):
                    values[j, i][better] = rate_law.values_of(
                        rates[better], weights, packet_bytes,
                        part.packets_known[row])
            np.minimum(covered[i], active[i], out=covered[i])
            is_measured = covered[i] >= _COVERED * active[i]
            covered[i][is_measured] = active[i][is_measured]
            # Samples of an instance arrive in order. When other instances have
            # later samples, an instance that has ended gets no more samples,
            # and one without recent samples is not measured.
            later = ends <= self._newest - 2 * period
            gone = (active[i] < period) | (
                last < ends - period - LATE_SECONDS)
            # Without rates, its modeler has not yet stored them.
            waits[i] = ~is_measured & (ends > self._late_before) & (
                ~is_reported | (ends > last) & ~(later & gone))
            if uuid in self._silent:
                waits[i] = False
                # It counts as measured, unless it has samples.
                covered[i][covered[i] == 0] = active[i][covered[i] == 0]
        return list(resident), active, covered, values, waits

    def settle(self, budget, first, end, stored):
        """Settle the periods of a budget that do not wait, in order.

        :param budget: :class:`.ErrorBudget`
        :param first: the first slot to settle
        :param end: the slot after the last one that has ended
        :param stored: {(day, period): :class:`.StoredSums`}
        :returns: (ErrorBudget, list of StoredSums to write)
        """
        key, period, target = (budget.key, self._period,
                               self.targets[budget.key])
        uuids, active, covered, values, waits = self._gather(key, first, end)
        size = int(np.append(waits.any(axis=0), True).argmax())
        skipped = first - round(budget.until / period)
        if size <= 0 and skipped <= 0:
            return budget, []
        end = first + size
        active, covered, values = (array[..., :size] for array in (
            active, covered, values))
        total = active.sum(axis=0)
        used = total > 0
        known = np.divide(covered.sum(axis=0), total,
                          out=np.ones(size), where=used)
        loads = values * covered / period
        sums = loads.sum(axis=1)
        above = budget_rules.exceeds(sums, target.capacities)
        alone = budget_rules.exceeds(
            loads.max(axis=1, initial=0.0), target.capacities)
        overload = (above & ~alone).any(axis=0)
        self._charge(key, uuids, first, loads, above & ~alone)
        suffering = covered * above.any(axis=0) * ~budget_rules.exceeds(
            loads, np.repeat(target.capacities[:, None], len(uuids), axis=1)
        ).any(axis=0)
        if key[0] == model_store.HOST:
            self._add_vm_time(uuids, first, covered, suffering)
        terms, balance = _terms(budget), budget.balance
        measured_seconds = period * known * used
        for seconds, overloaded in zip(measured_seconds.tolist(),
                                       overload.tolist()):
            balance = float(terms.after(balance, seconds, period * overloaded))
        self.settled += size
        # Like a plan, burn rates use only periods that are known.
        is_known = (known >= _COVERED) | above.any(axis=0)
        days, burn = self._remembered(
            budget, first, np.where(is_known, sums, np.nan), alone, stored)
        begins = period * np.arange(first, end)
        changed = np.zeros(size, dtype=bool)
        for event in self._residents[key].events:
            slot = int(event // period) - first
            if event > max(budget.prediction.since, budget.until) \
                    and slot < size:
                changed[max(slot, 0)] = True
        return dataclasses.replace(
            budget, until=end * period, balance=balance,
            measured_seconds=budget.measured_seconds
            + float(measured_seconds.sum()),
            overload_seconds=budget.overload_seconds
            + period * int(overload.sum()),
            unknown_seconds=budget.unknown_seconds + period * float(
                (used * (1 - known)).sum() + max(skipped, 0)),
            unknown_why=self._unknown(uuids, active, covered, first)
            or budget.unknown_why, burn=burn,
            vm_seconds=budget.vm_seconds + float(covered.sum()),
            vm_overload_seconds=budget.vm_overload_seconds
            + float(suffering.sum()), prediction=deviation.after(
                budget.prediction, begins, period, changed,
                used & (known >= _COVERED), above.any(axis=0))), days

    def _unknown(self, uuids, active, covered, first):
        """Return which instances were not measured most recently, or None."""
        missing = (active > 0) & (covered < _COVERED * active)
        slots = np.flatnonzero(missing.any(axis=0))
        if not slots.size:
            return None
        place = slots[-1]
        number = np.count_nonzero(active[:, place])
        return (f'{number - np.count_nonzero(missing[:, place])} of {number} '
                f'instances were measured in the {self._period:g} s from '
                f'{self._period * (first + place):.0f} on; '
                f'{uuids[missing[:, place].argmax()]} was not')

    def _charge(self, key, uuids, first, loads, above):
        """Charge the instances of a budget for its avoidable overload.

        :param loads: (l, n, t) load of each instance on each limit
        :param above: (l, t) bool, where a limit is exceeded avoidably
        """
        capacities = self.targets[key].capacities
        for slot in np.flatnonzero(above.any(axis=0)).tolist():
            limit = int(np.where(above[:, slot], loads[..., slot].sum(
                axis=1) / capacities, 0.0).argmax())
            shares = budget_rules.charges(loads[limit, :, slot],
                                          capacities[limit])
            day = int((first + slot) * self._period // _DAY_SECONDS)
            for i in np.flatnonzero(shares).tolist():
                self._charged[(*key, uuids[i], day)] += (
                    self._period * float(shares[i]))

    def _add_vm_time(self, uuids, first, covered, suffering):
        days = ((first + np.arange(covered.shape[1])) * self._period
                // _DAY_SECONDS).astype(np.int64)
        for day in set(days.tolist()):
            seconds = np.stack([covered, suffering], axis=-1)[
                :, days == day].sum(axis=1)
            for uuid, both in zip(uuids, seconds):
                self._vm_time[uuid, day] += both

    def spending(self, store):
        """Return who spent the settled budgets.

        :param store: Store, from which the projects of instances are read
        :returns: (list of :class:`.Charge`, list of :class:`.VMTime`)
        """
        if not self._vm_time:
            return [], []
        projects = {uuid: former.project for uuid, former
                    in store.former_instances().items()} | store.projects()
        of_project = collections.defaultdict(lambda: np.zeros(2))
        for (uuid, day), seconds in self._vm_time.items():
            of_project[projects.get(uuid), day] += seconds
        return [model_store.Charge(
            kind, name, uuid, day, projects.get(uuid), seconds)
            for (kind, name, uuid, day), seconds in self._charged.items()
        ], [model_store.VMTime(project, day, *seconds.tolist())
            for (project, day), seconds in of_project.items()
            if project is not None]

    def _remembered(self, budget, first, sums, exceeded, stored):
        """Return (changed StoredSums, burn rates) after a settlement."""
        period, target = self._period, self.targets[budget.key]
        end = first + sums.shape[1]
        stored = dict(stored)
        changed = []
        day = int(first * period // _DAY_SECONDS)
        while sums.shape[1] and packed.slots_of_day(day, period)[0] < end:
            begin, stop = packed.slots_of_day(day, period)
            day_arrays = packed.of_limits(
                stored.get((day, period)), target.limits, stop - begin)
            low, high = max(begin, first), min(stop, end)
            for target_array, source in zip(day_arrays, (sums, exceeded)):
                target_array[:, low - begin:high - begin] = source[
                    :, low - first:high - first]
            stored[day, period] = model_store.StoredSums(
                *budget.key, day, period, target.limits, packed.pack_day(
                    *day_arrays, target.capacities))
            changed.append(stored[day, period])
            day += 1
        return changed, _burn(budget, stored.values(), target, end * period)


def _burn(budget, stored, target, end):
    """Return {window: burn rate} of a budget.

    Windows of which less than half is known are omitted.

    :param budget: :class:`.ErrorBudget`
    :param stored: iterable of :class:`.StoredSums`, with any periods
    :param target: Target
    :param end: end of the windows, seconds UTC
    """
    begins = [max(end - window, budget.since) for window in WINDOWS]
    seconds = np.zeros((len(WINDOWS), 3))
    for day_sums in stored:
        period = day_sums.period_seconds
        first, stop = packed.slots_of_day(day_sums.day, period)
        sums, exceeded = packed.of_limits(day_sums, target.limits,
                                          stop - first)
        is_known = ~np.isnan(sums).any(axis=0)
        active = is_known & (sums > 0).any(axis=0)
        columns = np.array([is_known, active, active & budget_rules.overloaded(
            sums, exceeded, target.capacities)])
        middles = period * (np.arange(first, stop) + 0.5)
        for place, begin in enumerate(begins):
            seconds[place] += period * columns[
                :, (middles > begin) & (middles < end)].sum(axis=1)
    return {
        str(window): float(budget_rules.burn_rate(
            overloaded, active, budget.overload_probability))
        for window, begin, (known, active, overloaded) in zip(
            WINDOWS, begins, seconds)
        if 2 * known >= end - begin > 0}
