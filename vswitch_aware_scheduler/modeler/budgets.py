# SPDX-License-Identifier: Apache-2.0
"""Update the error budgets of hosts and uplinks from measured rates.

Each pass of a modeler calls :func:`update`. A modeler adds up the traffic of
its own instances for each host, each uplink and each period, and stores these
partial sums (:class:`~.budgets.Share`). One of the modelers adds the shares of
all modelers and *settles* each period of each budget once, in order of time:
it counts the period in the budget as measured or as unknown.

* The shares of a period are *complete* if they contain each instance of the
  host exactly once. To check this, a share has the sum of the marks of its
  instances. A mark is a hash of the uuid and of the time that the instance
  spent on the host. The marks of all shares must add up to the marks of all
  instances of the host. This check does not depend on which modeler measured
  which instance, and detects late, missing and repeated shares.
* An instance is *accounted for* in a period if its samples cover the time that
  it ran there, or if it does not run. If it was on several hosts in the
  period, it counts on each of them for a part of the period.
* A period that is not complete waits. The period becomes *unknown* when
  modelers have worked for :data:`LATE_SECONDS` after it, or when an instance
  has later samples but none of this period. An unknown period earns and spends
  nothing.

The store has all data that the next pass needs. Each pass reads the telemetry
of the unsettled periods again, so an interrupted pass loses nothing. A budget
is written only if the stored budget has not changed since it was read.

Derivation: reference/rebalance.rst, "Error budget".
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import math

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.modeler import predictions
from vswitch_aware_scheduler.rebalance import budget as budget_rules
from vswitch_aware_scheduler.rebalance import packed
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['LATE_SECONDS', 'SHORTEST_PERIOD_SECONDS', 'Update', 'WINDOWS',
           'limits_in_words', 'targets', 'update']

LOG = logs.get_logger(__name__)

#: Seconds that a period waits for shares.
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

#: Maximum number of shares of a host whose subsets are tried.
_MOST_SHARES = 8


@dataclasses.dataclass(frozen=True)
class Update:
    """The result of an update of the error budgets.

    :ivar shares: number of hosts and uplinks with instances of this modeler
    :ivar measured: number of periods that were settled as measured
    :ivar unknown: number of periods that were settled as unknown
    :ivar budgets: {(kind, name): :class:`.ErrorBudget`}, or None if another
        modeler settles them
    """

    shares: int = 0
    measured: int = 0
    unknown: int = 0
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
           share=None, stays_until=None, most_kbps=None, earned_share=0.6,
           progress=None, writing=None, predict=None):
    """Measure all unsettled periods, and settle those that are complete.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param driver: telemetry :class:`~.base.Driver`
    :param clock: callable, returns the time in seconds UTC
    :param newest: time of the newest counted sample, or None
    :param name: name of this modeler, different from those of all other
        running modelers
    :param common: whether this modeler settles periods for all modelers
    :param share: callable(uuid), whether this modeler measures the instance;
        None: it measures all instances
    :param stays_until: time up to which this modeler has read the hosts of
        instances, or None if it has not read them
    :param most_kbps: {uuid: kbit/s in one direction} that the host of an
        instance can carry; larger rates are ignored
    :param earned_share: a host earns this share of its limit
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
    period = state.period_seconds
    end = math.floor(min(now, state.stays_until) / period)
    targets_by_key, of_host = targets(store)
    stored = store.error_budgets()
    budgets = stored if not common else _begun(
        stored, targets_by_key, earned_share, period, now)
    pending = {
        key: (max(round(budget.until / period),
                  end - int(_OLDEST_SECONDS // period)), end)
        for key, budget in budgets.items()
        if key in targets_by_key and budget.limits == targets_by_key[key].text}
    pending = {key: (first, last) for key, (first, last) in pending.items()
               if first < last}
    begin = min((first for first, _ in pending.values()), default=end)
    stays = store.stays(begin * period)
    shares = _measure(
        driver, stays, of_host, targets_by_key, pending, period, name,
        share or (lambda instance_uuid: True), most_kbps or {}, newest,
        progress)
    if pending:
        with writing():
            store.write_budget_shares(name, shares, float(clock()))
    if not common:
        return Update(len(shares))
    settlement = _Settlement(
        state, targets_by_key, _Residents(stays, of_host, period, begin, end),
        store.budget_shares() if pending else [],
        min(known_until, now) - LATE_SECONDS)
    settled, sums = {}, []
    history = _history(store, pending, period)
    for key, (first, last) in pending.items():
        settled[key], days = settlement.settle(
            budgets[key], first, last, history.get(key, {}))
        sums += days
    budgets = {**budgets, **settled}
    if predict is not None and begin < end \
            and (driver.period_seconds or period) >= SHORTEST_PERIOD_SECONDS:
        budgets.update(_predicted(
            budgets, targets_by_key, settlement, end, float(clock()),
            lambda: predict(store, progress=progress)))
    expired = [
        key for key, budget in budgets.items()
        if key not in targets_by_key
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
            if known_until // _DAY_SECONDS != day else None)
        if _in_force(stored) != _in_force(budgets):
            # Schedulers read budgets only after a new generation.
            store.write(now=float(clock()))
    _report(stored, budgets)
    return Update(len(shares), settlement.measured, settlement.unknown,
                  budgets)


def _in_force(budgets):
    """Return what schedulers decide by."""
    return {(key, budget.in_debt, budget.accepts)
            for key, budget in budgets.items()}


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


def _begun(stored, targets_by_key, earned_share, period, now):
    """Return the budgets, with new ones for new hosts and changed limits."""
    budgets = dict(stored)
    boundary = math.floor(now / period) * period
    for key, target in targets_by_key.items():
        terms = budget_rules.Terms(target.overload_probability, earned_share)
        previous, reason = stored.get(key), None
        if previous is not None:
            _, reason = budget_rules.Account(
                budget_rules.Terms(
                    previous.overload_probability, previous.earned_share,
                    previous.first_days, previous.most_days),
                limits_in_words(previous.limits), previous.since,
                previous.balance).under(
                    terms, limits_in_words(target.text), boundary)
            if reason is None and previous.limits != target.text:
                reason = 'limits have changed: a new budget begins'
            if reason is None:
                # The length of periods may have changed.
                until = math.ceil(previous.until / period - 1e-9) * period
                budgets[key] = dataclasses.replace(previous, until=until)
                continue
        budgets[key] = model_store.ErrorBudget(
            *key, terms.overload_probability, terms.earned_share,
            terms.first_days, terms.most_days, target.text, boundary, reason,
            boundary, terms.first)
    return budgets


def _predicted(budgets, targets_by_key, settlement, end, now, predict):
    """Return {key: budget} of hosts with a new prediction.

    :param settlement: _Settlement
    :param end: the slot after the last that has ended
    :param predict: callable(), returns {host: predicted share of overload}
    """
    latest = max((budget.prediction.since for budget in budgets.values()),
                 default=0.0)
    due = [key for key in budgets.keys() & targets_by_key.keys()
           if key[0] == model_store.HOST and (
               budgets[key].prediction.share is None
               or budgets[key].prediction.since <= now - _DAY_SECONDS)]
    if not due or now - predictions.AGAIN_SECONDS < latest <= now:
        return {}
    shares, renewed = predict(), {}
    for key in due:
        if key[1] in shares:
            renewed[key] = dataclasses.replace(
                budgets[key], prediction=dataclasses.replace(
                    budgets[key].prediction, share=shares[key[1]], since=now,
                    residents=settlement.residents_at(key, end - 1)))
    return renewed


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


# Measuring: the traffic of the instances of this modeler


def _measure(driver, stays, of_host, targets_by_key, pending, period, name,
             share, most_kbps, newest, progress):
    """Return a list of Shares of the unsettled periods."""
    places = {}      # uuid -> {host: Stays there}
    for uuid, its_stays in stays.items():
        if not share(uuid):
            continue
        if any(key in pending for stay in its_stays
               for key in of_host.get(stay.host, ())):
            places[uuid] = its_stays
    totals = {}
    for first, uuids in _groups(places, of_host, pending):
        _add_up(driver, {uuid: places[uuid] for uuid in uuids}, of_host,
                targets_by_key, pending, period, first, most_kbps, newest,
                progress, totals)
    return [
        model_store.Share(
            name, *key, targets_by_key[key].text, period, pending[key][0],
            *(array[..., pending[key][0] - total.first:]
              for array in (total.members, total.counted, total.sums,
                            total.peaks, total.lost)))
        for key, total in totals.items()
    ]


def _groups(places, of_host, pending):
    """Yield (first slot, uuids) of instances that are read together.

    Instances with many unsettled periods are in a group of their own, so that
    the others are not read for the same long time.
    """
    uuids_by_group = collections.defaultdict(list)
    firsts = {}
    for uuid, its_stays in places.items():
        first, end = min(pending[key] for stay in its_stays
                         for key in of_host.get(stay.host, ())
                         if key in pending)
        group = (end - first).bit_length()
        uuids_by_group[group].append(uuid)
        firsts[group] = min(first, firsts.get(group, first))
    for group, uuids in sorted(uuids_by_group.items()):
        yield firsts[group], uuids


class _Total:
    """Sums of some instances, from a slot on.

    :param first: first slot
    :param slots: number of slots
    :param limits: number of limits
    """

    def __init__(self, first, slots, limits):
        self.first = first
        self.members = np.zeros(slots, dtype=np.uint64)
        self.counted = np.zeros(slots, dtype=np.int64)
        self.lost = np.zeros(slots, dtype=np.int64)
        self.sums = np.zeros((limits, slots))
        self.peaks = np.zeros((limits, slots))

    def add(self, first, marks, accounted, lost, values):
        """Add one instance.

        :param first: slot of the first element of each array
        :param marks: (t,) uint64, marks of the instance
        :param accounted: (t,) bool, whether the instance is accounted for
        :param lost: (t,) bool, whether the instance was on the host but its
            samples will never arrive
        :param values: (l, t) load of the instance on each limit
        """
        start = max(first, self.first)
        own_slots = slice(start - self.first, None)
        added_slots = slice(start - first, None)
        accounted = accounted[added_slots]
        self.members[own_slots] += np.where(accounted, marks[added_slots],
                                            np.uint64(0))
        self.counted[own_slots] += accounted
        self.lost[own_slots] += lost[added_slots]
        values = np.where(accounted, values[:, added_slots], 0.0)
        self.sums[:, own_slots] += values
        np.maximum(self.peaks[:, own_slots], values,
                   out=self.peaks[:, own_slots])


def _add_up(driver, places, of_host, targets_by_key, pending, period, first,
            most_kbps, newest, progress, totals):
    """Read the samples of the given instances, and add them to the totals.

    :param totals: {key: _Total}, changed in place
    """
    end = max(last for _, last in pending.values())
    # One earlier sample covers the start of the first slot. One more is needed
    # because the first reading of a counter gives no rate.
    since = (first - 2) * period
    driver.hosts = {
        **driver.hosts,
        **{uuid: its_stays[-1].host for uuid, its_stays in places.items()
           if its_stays[-1].host is not None},
    }

    def add(uuid, series):
        _add(totals, uuid, series, places[uuid], of_host, targets_by_key,
             pending, period, first, end, most_kbps.get(uuid), newest)

    # Read all instances at once, because a driver searches for the instances
    # in each reading.
    silent = set(places)
    for series in driver.series(since, end * period, places, progress):
        if series.instance_uuid in silent:
            silent.remove(series.instance_uuid)
            add(series.instance_uuid, series)
    for uuid in silent:
        add(uuid, None)


def _add(totals, uuid, series, stays, of_host, targets_by_key, pending, period,
         first, end, most_kbps, newest):
    """Add one instance to the totals of all its hosts."""
    rates = _Rates(series, most_kbps)
    edges = period * np.arange(first, end + 1)
    ran, covered = np.zeros((2, end - first))
    for stay, inside in _within(stays, edges):
        if stay.host is not None and stay.running is not False:
            ran += np.diff(inside)
            covered += rates.covered(inside)
    times = {key: seconds for key, seconds
             in _seconds_at(stays, edges, of_host).items() if key in pending}
    accounted = covered >= _COVERED * ran
    # Samples of an instance arrive in order. When other instances have later
    # samples, an instance that has ended gets no more samples.
    ended = stays[-1].since if stays[-1].host is None \
        or stays[-1].running is False else math.inf
    lost = ~accounted & ((edges[1:] <= rates.last) | (
        (edges[1:] >= ended) & (edges[1:] <= newest - 2 * period)))
    mean = rates.means(first, end, period, edges)
    for key, (present, active) in times.items():
        target = targets_by_key[key]
        if key not in totals:
            begin, last = pending[key]
            totals[key] = _Total(begin, last - begin, len(target.limits))
        values = np.array([
            rate_law.values_of(mean, weights, packet_bytes,
                               rates.packets_known)
            for weights, packet_bytes, _ in target.limits])
        totals[key].add(
            first, _marks(uuid, present, active), (present > 0) & accounted,
            (present > 0) & lost, values * active / period)


def _within(stays, edges):
    """Yield each Stay between the edges, with the edges clipped to its time.

    :param stays: list of Stay of one instance, the oldest first
    :param edges: (t + 1,) bounds of slots, seconds UTC
    """
    for place, stay in enumerate(stays):
        until = stays[place + 1].since if place + 1 < len(stays) else math.inf
        if max(stay.since, edges[0]) < min(until, edges[-1]):
            yield stay, np.clip(edges, stay.since, until)


def _seconds_at(stays, edges, of_host):
    """Return the time that an instance spent on each host in each slot.

    :param stays: list of Stay of the instance, the oldest first
    :param edges: (t + 1,) bounds of the slots, seconds UTC
    :param of_host: {host: keys of budgets}
    :returns: {key: (2, t) seconds on the host, and seconds of these in which
        the instance may have run}
    """
    of_key = {}
    for stay, inside in _within(stays, edges):
        for key in of_host.get(stay.host, ()):
            present, active = of_key.setdefault(
                key, np.zeros((2, len(edges) - 1)))
            present += np.diff(inside)
            if stay.running is not False:
                active += np.diff(inside)
    return of_key


def _marks(instance_uuid, present, active):
    """Return (t,) uint64, the marks of an instance in some slots.

    A mark contains the time that the instance spent on the host. A modeler
    that has not yet read a migration therefore computes other marks than a
    modeler that has.

    :param instance_uuid: uuid of the instance
    :param present: (t,) seconds on the host
    :param active: (t,) seconds of these in which the instance may have run
    """
    mark = np.uint64(int.from_bytes(hashlib.blake2b(
        instance_uuid.encode(), digest_size=8).digest(), 'little') | 1)
    present, active = (np.rint(1000 * seconds).astype(np.uint64)
                       for seconds in (present, active))
    return mark * ((present << np.uint64(32)) + active)


class _Rates:
    """The rates of one instance, as samples and as functions of time.

    A sample lasts for its period. If the next sample is late by at most half a
    period, the sample lasts until then.

    :param series: RateSeries, or None without samples
    :param most_kbps: larger rates are ignored; None: no limit
    """

    def __init__(self, series, most_kbps):
        self._times, self._rates = np.zeros(0), np.zeros((0, 3))
        seconds = np.zeros(0)
        if series is not None and len(series):
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

class _Residents:
    """The instances on each host in each slot, of all modelers.

    :param stays: {uuid: list of Stay}
    :param of_host: {host: keys of budgets}
    :param period: length of a slot in seconds
    :param first: the first slot
    :param end: the slot after the last
    """

    def __init__(self, stays, of_host, period, first, end):
        self._first = first
        self._period = period
        self._size = max(end - first, 0)
        self._found = {}
        self._stays = stays
        self._of_key = collections.defaultdict(list)
        self._of_host = of_host
        edges = period * np.arange(first, first + self._size + 1)
        for uuid, its_stays in stays.items() if self._size else ():
            for key, times in _seconds_at(
                    its_stays, edges, of_host).items():
                self._of_key[key].append(uuid)
                members, number, active = self._of(key)
                members += _marks(uuid, *times)
                number += times[0] > 0
                active |= times[1] > 0

    def missing(self, key, slot, missing_marks):
        """Return the uuid of the only instance that is not accounted for.

        :param key: (kind, name)
        :param slot: number of the slot
        :param missing_marks: marks of all instances minus marks of those
            accounted for
        :returns: uuid, or None if several instances are missing
        """
        edges = self._period * np.array([slot, slot + 1])
        for uuid in self._of_key[key]:
            times = _seconds_at(self._stays[uuid], edges,
                                self._of_host).get(key)
            if times is not None and _marks(uuid, *times)[0] == missing_marks:
                return uuid
        return None

    def _of(self, key):
        if key not in self._found:
            self._found[key] = (np.zeros(self._size, dtype=np.uint64),
                                np.zeros(self._size, dtype=np.int64),
                                np.zeros(self._size, dtype=bool))
        return self._found[key]

    def within(self, key, first, end):
        """Return the marks, the number of instances and whether any ran.

        :param key: (kind, name)
        :param first: first slot
        :param end: end of the slots, exclusive
        :returns: three (t,) arrays
        """
        return tuple(array[first - self._first:end - self._first]
                     for array in self._of(key))


class _Settlement:
    """Settles periods: counts each as measured or unknown in its budget.

    :param state: BudgetState
    :param targets_by_key: {(kind, name): Target}
    :param residents: _Residents
    :param shares: list of Share
    :param late_before: periods that ended before this time no longer wait for
        missing shares
    :ivar measured: number of periods that were settled as measured
    :ivar unknown: number of periods that were settled as unknown
    """

    def __init__(self, state, targets_by_key, residents, shares, late_before):
        self._period = state.period_seconds
        self._targets = targets_by_key
        self._residents = residents
        self._late_before = late_before
        self._shares = collections.defaultdict(list)
        for share in shares:
            if share.period_seconds == self._period:
                self._shares[share.kind, share.name,
                             share.limits].append(share)
        self.measured = self.unknown = 0

    def residents_at(self, key, slot):
        """Return a number that changes with the instances on a host.

        :param key: (kind, name)
        :param slot: number of the slot
        """
        return int(self._residents.within(key, slot, slot + 1)[0][0])

    def settle(self, budget, first, end, stored):
        """Settle the complete and the late periods of a budget, in order.

        :param budget: :class:`.ErrorBudget`
        :param first: the first slot to settle
        :param end: the slot after the last one that has ended
        :param stored: {(day, period): :class:`.StoredSums`}
        :returns: (ErrorBudget, list of StoredSums to write)
        """
        key, period = budget.key, self._period
        target = self._targets[key]
        marks, number, active = self._residents.within(key, first, end)
        complete, sums, peaks, measured_number, missing_marks, lost = \
            self._total(budget, marks, first, end)
        ended = period * np.arange(first + 1, end + 1)
        waits = ~complete & ~lost & ~(ended <= self._late_before)
        if waits.any():
            end = first + int(waits.argmax())
        size = end - first
        skipped = first - round(budget.until / period)
        if size <= 0 and skipped <= 0:
            return budget, []
        complete, active = complete[:size], active[:size]
        sums, peaks = sums[:, :size], peaks[:, :size]
        overload = budget_rules.avoidable(
            sums[:, None], peaks[:, None], target.capacities[:, None])[0]
        terms = budget_rules.Terms(
            budget.overload_probability, budget.earned_share,
            budget.first_days, budget.most_days)
        balance = budget.balance
        for measured, overloaded in zip((complete & active).tolist(),
                                        (overload & active).tolist()):
            if measured:
                balance = float(terms.after(balance, period,
                                            period * overloaded))
        lacking = np.flatnonzero(~complete & active)
        reason = budget.unknown_why
        if lacking.size:
            place = int(lacking[-1])
            reason = (
                f'{measured_number[place]} of {number[place]} instances were '
                f'measured in the {period:g} s from '
                f'{period * (first + place):.0f} on')
            missing = self._residents.missing(key, first + place,
                                              missing_marks[place])
            if missing is not None:
                reason += f'; {missing} was not'
        unknown = int(lacking.size) + max(skipped, 0)
        self.measured += int((complete & active).sum())
        self.unknown += unknown
        days, burn = self._remembered(
            budget, first, np.where(complete, sums, np.nan),
            budget_rules.exceeds(peaks, target.capacities), stored)
        return dataclasses.replace(
            budget, until=end * period, balance=balance,
            measured_seconds=budget.measured_seconds
            + period * int((complete & active).sum()),
            overload_seconds=budget.overload_seconds
            + period * int((overload & complete & active).sum()),
            unknown_seconds=budget.unknown_seconds + period * unknown,
            unknown_why=reason, burn=burn, prediction=predictions.after(
                budget.prediction, ended[:size] - period, period, marks[:size],
                complete & active, budget_rules.exceeds(
                    sums, target.capacities).any(axis=0))), days

    def _total(self, budget, marks, first, end):
        """Add the shares of a budget.

        :returns: (complete, sums, peaks, counted, rest, lost): (t,) bool;
            (l, t); (l, t); (t,) the largest number of instances accounted
            for; (t,) marks of all instances minus marks of all shares; (t,)
            bool, whether the slot can never become complete
        """
        size, limits = end - first, len(self._targets[budget.key].limits)
        shares = [_Part(share, first, end) for share in self._shares[
            (*budget.key, budget.limits)][:_MOST_SHARES]]
        shares = [part for part in shares if part.there]
        complete = marks == 0
        sums, peaks = np.zeros((2, limits, size))
        counted = np.zeros(size, dtype=np.int64)
        for part in shares:
            np.maximum(counted, part.counted, out=counted)
        for subset in _subsets(shares):
            if complete.all():
                break
            marks_of_subset = sum((part.members for part in subset),
                                  np.zeros(size, dtype=np.uint64))
            newly_complete = ~complete & (marks_of_subset == marks)
            if newly_complete.any():
                sums[:, newly_complete] = sum(
                    part.sums for part in subset)[:, newly_complete]
                peaks[:, newly_complete] = np.max(
                    [part.peaks for part in subset],
                    axis=0)[:, newly_complete]
                complete |= newly_complete
            counted[~complete] = np.maximum(counted, sum(
                part.counted for part in subset))[~complete]
        missing_marks = marks - sum((part.members for part in shares),
                                    np.zeros(size, dtype=np.uint64))
        lost = np.any([part.lost > 0 for part in shares], axis=0) \
            if shares else np.zeros(size, dtype=bool)
        return complete, sums, peaks, counted, missing_marks, lost

    def _remembered(self, budget, first, sums, exceeded, stored):
        """Return (changed StoredSums, burn rates) after a settlement."""
        period, target = self._period, self._targets[budget.key]
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


class _Part:
    """The part of a Share between two slots, filled up with zeros.

    :param share: Share
    :param first: first slot
    :param end: end of the slots, exclusive
    """

    def __init__(self, share, first, end):
        low = max(first, share.first_slot)
        high = min(end, share.first_slot + share.members.size)
        self.there = low < high

        def part(array):
            filled = np.zeros((*array.shape[:-1], end - first), array.dtype)
            if self.there:
                filled[..., low - first:high - first] = array[
                    ..., low - share.first_slot:high - share.first_slot]
            return filled

        self.members, self.counted = part(share.members), part(share.counted)
        self.lost = part(np.zeros(share.counted.shape, dtype=int)
                         if share.lost is None else share.lost)
        self.sums, self.peaks = part(share.sums), part(share.peaks)


def _subsets(shares):
    """Yield the subsets of the shares, largest first."""
    for size in range(len(shares), 0, -1):
        yield from itertools.combinations(shares, size)
