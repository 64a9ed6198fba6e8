# SPDX-License-Identifier: Apache-2.0
"""Plays the last days in passes of the modeler, and judges Nova's decisions.

Each pass learns, measures and updates priors as a modeler would have done at
that time. The decisions until the next pass are judged by what was known
then. No configuration; the clock is that of the record.
"""

import collections
from collections.abc import Callable
import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.budgets import accounts
from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.cmd.survey import record as records
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler.fleet import realised
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler.modeler import priors
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.telemetry import base
from vswitch_aware_scheduler.traffic import series

__all__ = ['AFTER_SECONDS', 'ELSEWHERE', 'JudgedDecision', 'MOST_DECISIONS',
           'PASSES', 'REFUSED', 'SAME', 'WARM_PASSES', 'overload_share',
           'play']

#: Number of passes, and of those whose decisions are not judged, because too
#: little was learned before.
PASSES, WARM_PASSES = 28, 7

#: Of more decisions, as many are judged, evenly spread.
MOST_DECISIONS = 2000

#: Time after a decision in which the overload of the host is measured.
AFTER_SECONDS = 86400.0

#: What the plugin would have done: the host that Nova chose passes; it does
#: not, and another one does; none passes.
SAME, ELSEWHERE, REFUSED = 'same', 'elsewhere', 'refused'

#: Number of passes whose samples are read at once.
_PASSES_READ = 4

#: Older samples than these before the present day are not in memory.
_KEPT_SECONDS = 2 * learning.LATE_SECONDS


@dataclasses.dataclass(frozen=True)
class JudgedDecision:
    """A decision of Nova's scheduler, as the plugin would have judged it.

    :ivar decided_at: seconds UTC
    :ivar left_at: when the instance left the host, or the end of the record
    :ivar outcome: :data:`SAME`, :data:`ELSEWHERE` or :data:`REFUSED`
    :ivar reason: why the host does not pass, in words, or None
    :ivar rule: rule by which the demand of the instance was known
    :ivar limit: limit of the share of time in overload
    :ivar overload_afterwards: measured share of time in overload, or None
    """

    decided_at: float
    left_at: float
    kind: str
    instance: records.RecordedInstance
    host: str
    outcome: str
    reason: str | None
    rule: str
    limit: float
    overload_afterwards: float | None = None


class _Telemetry(base.Driver):
    """Reads each day of a driver once, and answers from memory.

    :param times: times of the passes, seconds UTC
    """

    def __init__(self, driver: base.Driver, record: records.Record,
                 times: np.ndarray):
        super().__init__(driver.period_seconds)
        self._driver = driver
        self._events = record.events
        self._edges = times[::_PASSES_READ].tolist()
        self._instances = [instance for instance in driver.instances()
                           if instance.uuid in record.instances]
        self._kept = collections.defaultdict(list)

    source = property(lambda self: self._driver.source)
    variant = property(lambda self: self._driver.variant)
    ignored = property(lambda self: self._driver.ignored)

    def instances(self):
        """Return the instances that were on surveyed hosts."""
        return self._instances

    def _read(self, progress):
        """Read the next day."""
        begin, end = self._edges[:2]
        del self._edges[0]
        # As a modeler at the end of the day.
        self._driver.hosts = {
            event.instance.uuid: event.host for event in self._events
            if event.host is not None and event.time <= end}
        for uuid, parts in list(self._kept.items()):
            parts[:] = [part for part in parts
                        if part.times[-1] >= begin - _KEPT_SECONDS]
        for one in self._driver.series(
                begin, end, [instance.uuid for instance in self._instances],
                progress):
            if len(one):
                self._kept[one.instance_uuid].append(one)

    def _series(self, start, end, instances, progress):
        while len(self._edges) > 1 and self._edges[0] < end - 1:
            self._read(progress)
        # What was rejected counts once, with the last samples of the day.
        is_complete = end > self._edges[0] - 1
        for instance in self._instances:
            parts = self._kept.get(instance.uuid)
            if not parts or instances is not None \
                    and instance.uuid not in instances:
                continue
            times = np.concatenate([part.times for part in parts])
            at = np.flatnonzero((times >= start) & (times < end))
            yield dataclasses.replace(
                parts[-1], times=times[at],
                rates=np.concatenate([part.rates for part in parts])[at],
                partial=~np.concatenate([part.whole for part in parts])[at],
                refused=parts[-1].refused if is_complete
                else series.Refused())
            if is_complete:
                parts[-1] = dataclasses.replace(parts[-1],
                                                refused=series.Refused())


def play(store: model_store.Store, driver: base.Driver,
         record: records.Record, times: np.ndarray,
         settings: learning.LearningSettings, read_fleet: Callable,
         capacities: dict, progress: Callable | None = None
         ) -> tuple[list[JudgedDecision], dict[str, packed.Sums]]:
    """Play the record, pass by pass; return the decisions and measured sums.

    :param store: empty but for the facts and profiles of hosts
    :param times: (n + 1,) the begin, and times of the passes, seconds UTC
    :param read_fleet: callable(store), returns a FleetView
    :param capacities: {host: (VCPU, MEMORY_MB)}
    :param progress: callable(done, total)
    :raises TelemetryError: if telemetry cannot be read
    """
    source = _Telemetry(driver, record, times)
    begin = float(times[0])
    placer = _Placer(store, record, times, capacities)
    placer.move(begin)
    accounts.update(store, source, lambda: begin, begin,
                    accounts.ModelerPart(stays_until=begin))
    for number, end in enumerate(times[1:].tolist()):
        def report(done, total, number=number):
            if progress is not None:
                progress(number + done / max(total, 1), len(times) - 1)

        placer.judge(end, read_fleet if number >= WARM_PASSES else None)
        placer.move(end)
        most_kbps = facts.most_kbps(store)
        outcome = learning.run(store, source, lambda: end, settings, report,
                               most_kbps=most_kbps)
        accounts.update(store, source, lambda: end, outcome.last_time,
                        accounts.ModelerPart(stays_until=end,
                                             most_kbps=most_kbps))
        priors.update(store, lambda: end, settings.min_samples,
                      needs_inventory=True)
        placer.remove_ended(end)
    sums = packed.history(store, model_store.HOST, times[-1])
    return _with_overload(placer.decisions, sums), sums


class _Placer:
    """Follows where instances are, and judges why.

    :ivar decisions: list of JudgedDecision
    """

    def __init__(self, store, record, times, capacities):
        self._store = store
        self._end = times[-1]
        self._capacities = capacities
        self._events = record.events
        self._written = self._judged = 0     # numbers of events
        self._ended = []
        self.decisions = []
        self._used = collections.defaultdict(lambda: np.zeros(2))
        # When the instance leaves the host that it comes to by an event.
        self._until, latest, judged_from = {}, {}, times[WARM_PASSES]
        for number, event in enumerate(self._events):
            if event.source != event.host:
                self._until[latest.get(event.instance.uuid)] = event.time
                latest[event.instance.uuid] = number
        self._every = math.ceil(sum(
            event.kind is not None and event.host is not None
            and event.time > judged_from
            for event in self._events) / MOST_DECISIONS) or 1

    def move(self, end):
        """Write where instances are at a time, with the time of each move."""
        batch = {}

        def flush():
            self._store.write(
                placements=batch.values(), now=end,
                inventory=model_store.InventoryState('survey', end, end, end))
            batch.clear()

        while self._written < len(self._events) \
                and self._events[self._written].time <= end:
            event = self._events[self._written]
            instance = event.instance
            if instance.uuid in batch:
                flush()
            batch[instance.uuid] = model_store.InstanceRecord(
                instance.uuid, event.host, instance.flavor, instance.project,
                running=event.running, began_at=event.time,
                changed_at=event.time)
            if event.host is None and instance.host is None:
                self._ended.append(instance.uuid)
            self._written += 1
        flush()

    def remove_ended(self, now):
        """Remove instances that are on no host; what they sent has counted."""
        placed = self._store.placements(self._ended)
        self._store.write(now=now, remove_placements={
            uuid for uuid, record in placed.items() if record.host is None})
        self._ended = []

    def judge(self, end, read_fleet=None):
        """Judge the decisions until a time by what the store has.

        :param read_fleet: as in :func:`play`; None: judge nothing
        """
        view, table = None, admission.LoadTable()
        if read_fleet is not None:
            view = read_fleet(self._store)
            table = admission.LoadTable(
                attachments=view.snapshot.attachments, debts=view.debts)
            for host, policy in view.policies.items():
                if policy.judged and (policy.profile or policy.uplinks):
                    table.describe(host, policy, view.laws(host))
        while self._judged < len(self._events) \
                and self._events[self._judged].time <= end:
            event = self._events[self._judged]
            if event.kind is not None and table.row(event.host) is not None \
                    and self._judged % self._every == 0:
                self._decide(view, table, event)
            if event.host != event.source:
                need = _need(event.instance)
                self._used[event.source] -= need
                self._used[event.host] += need
                _change(view, table, event)
            self._judged += 1

    def _decide(self, view, table, event):
        """Judge one decision."""
        need, demand = _need(event.instance), _demand(view, event.instance)
        hosts = [event.host, *(
            host for host in view.policies if table.row(host) is not None
            and host not in (event.host, event.source) and (
                self._used[host] + need
                <= self._capacities.get(host, np.inf)).all())]
        assessed = table.assess_each(
            table.rows_of(hosts),
            [demand.law_on(view.policies[host]) for host in hosts],
            event.instance.uuid, None, event.instance.project)
        passes = assessed.admitted
        self.decisions.append(JudgedDecision(
            event.time, self._until.get(self._judged, self._end), event.kind,
            event.instance, event.host,
            SAME if passes[0] else ELSEWHERE if passes.any() else REFUSED,
            None if passes[0] else assessed.explain(0), demand.rule,
            view.policies[event.host].overload_probability))


def _need(instance):
    return np.array([instance.vcpus, instance.memory_mib])


def _demand(view, instance):
    return view.demand(instance.uuid, instance.flavor, instance.project)


def _change(view, table, event):
    """Apply an event to a LoadTable."""
    uuid = event.instance.uuid
    if table.row(event.source) is not None \
            and uuid in table.residents(event.source):
        table.change({event.source: ({}, (uuid,))})
    if table.row(event.host) is not None \
            and uuid not in table.residents(event.host):
        law = _demand(view, event.instance).law_on(view.policies[event.host])
        table.change({event.host: ({uuid: law}, ())})


def overload_share(sums: packed.Sums | None, limit: float, begin: float,
                   end: float) -> float | None:
    """Return the share of the measured time of a host in overload.

    The result is None if the host was not measured for long enough.

    :param limit: largest share that is permitted
    :param begin: seconds UTC, as ``end``
    """
    if sums is None:
        return None
    outcome = realised.Realised(0.0, limit, *sums.measured(begin, end))
    return outcome.share if outcome.is_measured else None


def _with_overload(decisions, sums):
    """Return decisions with the overload of their hosts afterwards.

    A host counts until the instance has left, at most for AFTER_SECONDS.
    """
    return [
        dataclasses.replace(decision, overload_afterwards=overload_share(
            sums.get(decision.host), decision.limit, decision.decided_at,
            min(decision.left_at, decision.decided_at + AFTER_SECONDS)))
        for decision in decisions]
