# SPDX-License-Identifier: Apache-2.0
"""Daily trials of the limits of hosts.

:func:`update` evaluates the running trials on the traffic of the last day,
adds the outcomes to the store, and starts one new trial for each kind of host.
It reads the samples of the few instances in trials separately from a learning
pass, when late samples have arrived.

Everything is written in one transaction. The store keeps the time up to which
a trial was evaluated, and a write that started from another time is void. No
day is therefore counted twice or omitted, whenever a modeler ends. Modelers
that share the instances use instances of their own share. A trial with
instances of several modelers ends. No configuration, no clock except the one
that is passed. Derivation: reference/feedback.rst.
"""

import collections
import contextlib
import dataclasses
import functools
import hmac
import math
import uuid as uuids

import numpy as np

from vswitch_aware_scheduler.admission import limit_feedback
from vswitch_aware_scheduler.admission import uplink_policies
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import fourier_sum
from vswitch_aware_scheduler.traffic import shares

__all__ = ['HostKinds', 'MOST_INSTANCES', 'MOST_KINDS', 'SETTLED_SECONDS',
           'Update', 'day_of', 'update']

#: Maximum number of instances in one trial of one modeler.
MOST_INSTANCES = 500

#: Maximum number of kinds of hosts with trials. Kinds with more hosts come
#: first.
MOST_KINDS = 8

#: Delay after which samples are expected to be complete.
SETTLED_SECONDS = 3600.0

#: A time slot counts if it has samples of these shares of the instances that
#: were measured on that day, and of those in telemetry.
_MEASURED, _KNOWN = 0.9, 0.5

_DAY_SECONDS = 86400.0

#: Number of laws that are read together.
_TOGETHER = 1000


def _settled(now):
    return math.floor(now / SETTLED_SECONDS - 1) * SETTLED_SECONDS


def _by_samples(now, newest):
    """Return the time by which trials are evaluated.

    This is the time of the clock, unless the newest counted sample is much
    older: a clock that is ahead would end all trials and remove their
    outcomes.
    """
    return now if newest is None else min(now, newest + SETTLED_SECONDS)


def day_of(now, newest=None):
    """Return the day of the trials that are due, in days since 1970.

    :param now: current time, seconds UTC
    :param newest: time of the newest counted sample, seconds UTC, or None
    """
    return int(_settled(_by_samples(now, newest)) // _DAY_SECONDS)


@dataclasses.dataclass(frozen=True)
class Update:
    """The result of an update.

    :ivar made: number of new trials
    :ivar followed: number of trials that were evaluated
    :ivar ended: number of trials that have ended
    """

    made: int = 0
    followed: int = 0
    ended: int = 0


class HostKinds:
    """Determines the kinds of hosts.

    :param make_policies: callable(), returns :class:`.HostPolicies`; called
        for each use
    :param access: :class:`.Access` of Nova, to read aggregates if permitted,
        or None
    :param sleep: keyword ``sleep`` of :class:`.Client`
    """

    def __init__(self, make_policies, access=None, **sleep):
        self._make_policies = make_policies
        self._access = access
        self._sleep = sleep

    def find(self, store):
        """Return the kinds with the largest numbers of hosts.

        All hosts about which neither the store nor an aggregate states
        anything count as one host.

        :param store: :class:`~vswitch_aware_scheduler.store.Store`
        :returns: {kind: HostPolicy}
        :raises TelemetryError: if Nova does not answer
        :raises StoreError: if the store cannot be read
        :raises VSwitchError: if ``make_policies`` raises it
        """
        policy_of, counts = {}, collections.Counter()
        for policy in self._policies(store, self._aggregates()):
            kind = limit_feedback.kind_of(policy)
            if kind is not None:
                policy_of.setdefault(kind, policy)
                counts[kind] += 1
        most_frequent = sorted(counts, key=lambda kind: (-counts[kind], kind))
        return {kind: policy_of[kind] for kind in most_frequent[:MOST_KINDS]}

    def most_kbps(self, store):
        """Return the largest possible rate of each instance on its host.

        :param store: :class:`~vswitch_aware_scheduler.store.Store`
        :returns: {instance uuid: kbit/s in one direction}, without instances
            on hosts whose profile does not state this rate
        :raises VSwitchError: as :meth:`find`
        """
        placements = store.placements()
        if not placements:
            return {}
        policies = self._make_policies()
        aggregates = self._aggregates()
        bare_metal = store.fleet('bare_metal').facts
        profiles = {profile.host: profile for profile in store.host_profiles()}
        by_host = {}
        for host in {placement.host
                     for placement in placements.values()} - {None}:
            profile = policies.find(aggregates.get(host, []),
                                    profiles.get(host),
                                    host in bare_metal).profile
            if profile is not None and profile.most_kbps is not None:
                by_host[host] = profile.most_kbps
        return {
            uuid: by_host[placement.host]
            for uuid, placement in placements.items()
            if placement.host in by_host
        }

    @property
    def asks_nova(self):
        """Whether aggregates are read from Nova."""
        return self._access is not None

    def described(self, store):
        """Return whether any host has a profile or is behind an uplink.

        :param store: :class:`~vswitch_aware_scheduler.store.Store`
        :raises VSwitchError: as :meth:`find`
        """
        if any(policy.profile is not None
               for policy in self._policies(store, {})):
            return True
        aggregates = self._aggregates()
        return any(
            uplink_policies.is_in(metadata) for of_host in aggregates.values()
            for _, metadata in of_host) or any(
                policy.profile is not None
                for policy in self._policies(store, aggregates))

    def _policies(self, store, aggregates):
        """Yield the HostPolicy of hosts, first that of unspecified hosts."""
        policies = self._make_policies()
        bare_metal = store.fleet('bare_metal').facts
        profiles = {profile.host: profile for profile in store.host_profiles()}
        for host in [None, *sorted(aggregates.keys() | profiles.keys())]:
            yield policies.find(aggregates.get(host, []), profiles.get(host),
                                host in bare_metal)

    def _aggregates(self):
        if self._access is None:
            return {}
        try:
            return nova.read_aggregates(self._access, **self._sleep)
        except http.Refusal as refusal:
            if refusal.status != 403:
                raise
            # A user with permission to read instances may have none to read
            # aggregates.
            return {}


def update(store, driver, clock, kinds, share=None, progress=None,
           writing=None, needs_inventory=False):
    """Evaluate the trials and start those of today, if they are due.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param driver: telemetry :class:`~.base.Driver`
    :param clock: callable, returns seconds UTC
    :param kinds: :class:`HostKinds`
    :param share: None if all instances belong to this modeler, or
        callable(uuid), returns whether this instance does
    :param progress: None, or callable(done, total); an exception that it
        raises ends the update
    :param writing: None, or a context manager around the write
    :param needs_inventory: whether trials require an inventory in the store;
        False: without an inventory, all instances may be in trials
    :returns: :class:`Update`
    :raises TelemetryError: if telemetry or Nova cannot be read
    :raises StoreError: if the store cannot be read or written
    :raises StoreChanged: if another writer has evaluated the same trials
        meanwhile
    """
    now = float(clock())
    share = share or (lambda instance_uuid: True)
    until = _settled(_by_samples(now, _newest(store)))
    current, ending = _sorted(store.trials(), share, until)
    policies = kinds.find(store)
    ending += [trial for trial in current if trial.kind not in policies]
    started_at = {trial.kind: trial.since for trial in current}
    due = {kind: policy for kind, policy in policies.items()
           if kind not in started_at
           or started_at[kind] // _DAY_SECONDS < until // _DAY_SECONDS}
    if not due and not ending:
        return Update()
    followed, ended = _steps(current, due, until)
    ending += ended
    measured = {
        instance.uuid
        for instance in driver.instances() if share(instance.uuid)
    }
    outcomes = _outcomes(_Traffic(driver, followed, measured, progress), due,
                         followed, until)
    new_trials = _made(store, due, measured, needs_inventory, until,
                       progress or (lambda done, total: None))
    if new_trials or followed or ending:
        with writing or contextlib.nullcontext():
            store.write(
                trials=new_trials, followed=[
                    (trial.trial_id, trial.until, end)
                    for trial, end in followed],
                end_trials=[trial.trial_id for trial in ending],
                outcomes=outcomes, now=now, forget_outcomes_before=int(
                    until // _DAY_SECONDS) - limit_feedback.TRIAL_DAYS + 1)
    return Update(len(new_trials), len(followed), len(ending))


def _newest(store):
    """Return the time of the newest counted sample, or None."""
    return max((point.last_time for point in store.resume_points().values()
                if point.last_time is not None), default=None)


def _sorted(trials, share, until):
    """Return (trials of this modeler alone, trials that have ended).

    Both are lists of StoredTrial, the oldest first. A trial also ends if its
    last evaluation is too old or in the future.
    """
    current, ending = [], []
    oldest = until - limit_feedback.TRIAL_DAYS * _DAY_SECONDS
    for trial in trials:
        in_share = [share(uuid) for uuid in trial.instances]
        if not any(in_share):
            continue
        usable = oldest <= trial.until <= until + _DAY_SECONDS
        (current if all(in_share) and usable else ending).append(trial)
    return current, ending


def _steps(current, due, until):
    """Return ([(trial, time up to which to evaluate)], [ending trial])."""
    followed, ending = [], []
    for trial in current:
        if trial.kind not in due:
            continue
        end = trial.since + limit_feedback.TRIAL_DAYS * _DAY_SECONDS
        if trial.until < min(until, end):
            followed.append((trial, min(until, end)))
        if end <= until:
            ending.append(trial)
    return followed, ending


def _outcomes(traffic, due, followed, until):
    """Return a list of TrialOutcome of the kinds that have an outcome."""
    outcomes = []
    for kind, policy in due.items():
        outcome = functools.reduce(limit_feedback.Outcome.__add__, (
            traffic.outcome(trial, policy, end) for trial, end in followed
            if trial.kind == kind), limit_feedback.NOTHING)
        if outcome.host_days.any():
            outcomes.append(model_store.TrialOutcome(kind, until, tuple(zip(
                limit_feedback.PERCENT, outcome.overload_days.tolist(),
                outcome.host_days.tolist()))))
    return outcomes


def _made(store, due, measured, needs_inventory, until, progress):
    """Return the new trials of the given kinds of hosts."""
    laws = _drawn(store, measured, needs_inventory) if due else {}
    # In a different order every day.
    order = sorted(laws, key=functools.partial(
        _number, store.secret(), str(until)))
    trials = []
    for number, (kind, policy) in enumerate(due.items()):
        progress(number, len(due))
        fit = {uuid: laws[uuid] for uuid in order if all(
            laws[uuid].values(weights, packet_bytes).max()
            <= most_of_one * (1 + fourier_sum.TOLERANCE)
            for weights, packet_bytes, most_of_one in policy.limits_on_one)}
        if len(fit) >= limit_feedback.MIN_INSTANCES:
            trial = limit_feedback.Trial.of(fit, policy)
            trials.append(model_store.StoredTrial(
                str(uuids.uuid4()), kind, until, until, trial.instances,
                tuple(map(tuple, trial.hosts.tolist()))))
    return trials


def _drawn(store, measured, needs_inventory):
    """Return {uuid: RateLaw} of selected instances, the same each day.

    If there is an inventory, only instances of Nova are selected. The number
    of instances of a project is limited by :func:`_quotas`.
    """
    placements = store.placements()
    if needs_inventory or store.inventory() is not None:
        measured = measured & placements.keys()
    projects = {uuid: placements[uuid].project if uuid in placements else None
                for uuid in measured}
    quotas = _quotas(collections.Counter(projects.values()))
    order = sorted(measured, key=functools.partial(
        _number, store.secret(), ''))
    laws = {}
    for first in range(0, len(order), _TOGETHER):
        uuids_read = order[first:first + _TOGETHER]
        laws_read = store.laws(uuids_read)
        for uuid in uuids_read:
            if uuid in laws_read and quotas[projects[uuid]] > 0:
                quotas[projects[uuid]] -= 1
                laws[uuid] = laws_read[uuid]
                if len(laws) == MOST_INSTANCES:
                    return laws
    return laws


def _quotas(counts):
    """Return {project: maximum number of instances in a trial}.

    :param counts: {project: number of its instances}
    """
    amounts = shares.limited(list(counts.values()))
    fraction = min(1.0, MOST_INSTANCES / max(amounts.sum(), 1.0))
    return {project: math.ceil(amount * fraction)
            for project, amount in zip(counts, amounts.tolist())}


def _number(secret, salt, uuid):
    """Return a number that sorts instances in a random order.

    Without the secret of the store, the order cannot be predicted.
    """
    return hmac.digest(secret, f'{salt} {uuid}'.encode(), 'sha256')


class _Traffic:
    """The traffic of the instances of some trials.

    :param driver: telemetry Driver
    :param followed: list of (StoredTrial, time up to which to evaluate it)
    :param measured: set of the uuids of instances in telemetry
    :param progress: None, or callable(done, total)
    """

    def __init__(self, driver, followed, measured, progress):
        self._known = measured
        in_trials = {uuid for trial, _ in followed for uuid in trial.instances}
        self._series = {}
        if followed:
            series_read = (series.at_least() for series in driver.series(
                min(trial.until for trial, _ in followed),
                max(end for _, end in followed), in_trials, progress))
            self._series = {
                series.instance_uuid: series
                for series in series_read if len(series)
            }
        # One slot length for all instances, so long that each has a sample in
        # a slot.
        self._seconds = max((series.period_seconds
                             for series in self._series.values()), default=1.0)

    def outcome(self, trial, policy, end):
        """Return the Outcome of a StoredTrial since its last evaluation.

        :param trial: StoredTrial
        :param policy: HostPolicy of its kind
        :param end: end of the evaluation, seconds UTC
        """
        first, last = (math.ceil(time / self._seconds)
                       for time in (trial.until, end))
        rates, times = {}, np.zeros((len(trial.instances), last - first), bool)
        for row, uuid in enumerate(trial.instances):
            series = self._series.get(uuid)
            if series is None:
                continue
            slots = np.floor(series.times / self._seconds).astype(int) - first
            inside = (slots >= 0) & (slots < last - first)
            slots = slots[inside]
            counts = np.bincount(slots, minlength=last - first)
            times[row] = counts > 0
            rates[uuid] = np.array([
                np.bincount(slots, column, last - first)
                for column in series.rates[inside].T]).T / np.maximum(
                    counts, 1)[:, None]
        is_measured = np.array(
            [uuid in self._known for uuid in trial.instances])
        enough = times.sum(axis=0) >= max(
            _MEASURED * times.any(axis=1).sum(), _KNOWN * is_measured.sum(), 1)
        return limit_feedback.Trial(
            trial.instances, np.array(trial.hosts, dtype=np.int64)).followed(
                policy, {
                    uuid: values[enough]
                    for uuid, values in rates.items()
                }, self._seconds / _DAY_SECONDS)
