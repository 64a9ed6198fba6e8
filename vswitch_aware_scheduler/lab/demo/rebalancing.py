# SPDX-License-Identifier: Apache-2.0
"""Replays traffic over a cloud and relieves its hosts by live migrations.

Every 15 minutes of the replay, the error budgets of the hosts are settled. If
a host has to be relieved, the budgets and the measured sums are written to the
store, and a plan is made and executed as by ``vswitch-manage rebalance
--execute``. All times are times of the replay. Uses the cloud only
through its API; does not import nova.
"""

import dataclasses
import json
import time

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.budgets import accounts
from vswitch_aware_scheduler.budgets import executor
from vswitch_aware_scheduler.budgets import packed
from vswitch_aware_scheduler.budgets import proposal
from vswitch_aware_scheduler.budgets import rebalance_settings as settings
from vswitch_aware_scheduler.budgets import relief
from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler.fleet import view
from vswitch_aware_scheduler.lab.demo import fleet
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import plans as records
from vswitch_aware_scheduler.telemetry import base as telemetry
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import series
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['MigrationReplay', 'ReplayedCloud', 'SampledTraffic',
           'read_traffic', 'write_rates']

#: Migrations use a separate network. A host is relieved after one check in
#: which its budget is negative.
SETTINGS = settings.RebalanceSettings(
    mode=settings.EXECUTE, network=settings.SEPARATE, checks=1)

#: Seconds between two requests for the state of a running migration.
_POLL_SECONDS = 0.05

#: Longest time in which a plan is made and executed.
_MOST_SECONDS = 600.0


@dataclasses.dataclass(frozen=True, eq=False)
class SampledTraffic:
    """The rates of some instances, sample by sample.

    :ivar rates: (n, t, 2) egress_kbps, ingress_kbps
    :ivar first: number of the first sample; sample k starts k periods after
        1970
    """

    uuids: list
    rates: np.ndarray
    period_seconds: float
    first: int

    def time(self, sample: int) -> float:
        """Return the start of a sample, seconds UTC."""
        return (self.first + sample) * self.period_seconds

    def values(self, weights, packet_bytes: float) -> np.ndarray:
        """Return (n, t) rates of the instances in the unit of a limit."""
        egress_ingress = self.rates.reshape(-1, 2)
        rates = np.pad(egress_ingress, ((0, 0), (0, 1)))
        return rate_law.values_of(rates, weights, packet_bytes, False).reshape(
            self.rates.shape[:2])


class _Driver(telemetry.Driver):
    """Telemetry driver that returns the samples replayed so far."""

    source = 'replayed traffic'

    def __init__(self, traffic):
        super().__init__()
        self._traffic = traffic

    def instances(self):
        """Return all instances."""
        return [telemetry.Instance(uuid, uuid) for uuid in self._traffic.uuids]

    def _series(self, start, end, instances, progress):
        traffic = self._traffic
        samples = traffic.rates.shape[1]
        times = traffic.time(np.arange(samples))
        inside = (times >= start) & (times < end)
        for uuid, rates in zip(traffic.uuids, traffic.rates):
            if instances is None or uuid in instances:
                yield series.RateSeries.from_samples(
                    uuid, traffic.period_seconds, times[inside],
                    *rates[inside].T)


class ReplayedCloud(nova.CloudApi):
    """A cloud whose record of migrations has times of the replay.

    :ivar facts: what Nova has at the beginning, as :func:`.read_cloud`
    :ivar now: time of the replay, seconds UTC
    """

    def __init__(self, access, placement) -> None:
        super().__init__(access, placement)
        self.facts = nova.read_cloud(access, 'vswitch:')
        self.now = 0.0
        self._seen = {}          # number of a migration -> time

    def migrations(self, since=None, instance_uuid=None) -> list:
        """Return Migrations; each changed when it was first seen."""
        migrations = super().migrations(None, instance_uuid)
        return [migration._replace(
            changed_at=self._seen.setdefault(
                migration.number, self.now)) for migration in migrations]


class MigrationReplay:
    """One replay, during which instances are migrated.

    :param placements: {uuid in Nova: host}, at the beginning
    :param hosts: [(host, profile name)]
    :param overload_probability: limit of all hosts, above 0 and below 1
    :ivar moves: [(sample, uuid, host)] of the live migrations
    """

    def __init__(self, target, cloud, traffic, placements: dict, hosts: list,
                 overload_probability: float) -> None:
        self.moves, self.problems = [], []
        self._store, self._cloud, self._traffic = target, cloud, traffic
        self._driver = _Driver(traffic)
        self._row_of = {uuid: row for row, uuid in enumerate(traffic.uuids)}
        self._host_of = dict(placements)
        self._terms = rules.Terms(overload_probability)
        self._rule = relief.Rule()
        nodes = facts.by_host(cloud.facts['node'])
        target.write_fleet({'host': {
            host: {**policy, **facts.of_nova(nodes, host)}
            for host, policy in fleet.packed_policies(
                hosts, switch_profile.profiles(), admission.PROBABILITY,
                overload_probability).items()}, 'uplink': {}, 'node': {},
            'aggregate': cloud.facts['aggregate']}, traffic.time(0))
        host_targets, _ = accounts.targets(target)
        samples = traffic.rates.shape[1]
        self._hosts = {
            name: _Host(name, host_target, traffic, samples, self._terms)
            for (_, name), host_target in host_targets.items()}
        self._written = 0        # samples of which the store has the sums

    def run(self, progress=None) -> None:
        """Replay all samples."""
        samples = self._traffic.rates.shape[1]
        length = max(1, round(settings.CHECK_SECONDS
                              / self._traffic.period_seconds))
        for begin in range(0, samples, length):
            end = min(begin + length, samples)
            residents = self._residents()
            for name, host in self._hosts.items():
                if residents[name]:
                    host.settle(residents[name], begin, end)
            if any(self._is_due(host, residents[name], end)
                   for name, host in self._hosts.items()):
                self._relieve(end)
            if progress is not None:
                progress(end, samples)

    def _residents(self):
        rows = {name: [] for name in self._hosts}
        for uuid, host in self._host_of.items():
            rows[host].append(self._row_of[uuid])
        return rows

    def _is_due(self, host, rows, end):
        """Return whether :func:`.relief.plan` would search for moves.

        Most rounds end here, without a request to Nova.
        """
        if host.account.balance >= 0 or not rows:
            return False
        period, rule = self._traffic.period_seconds, self._rule
        first = max(0, end - round(rule.window_seconds / period))
        slots = host.overload(rows, first, end)
        enough = (self._terms.rate
                  if host.account.balance < -rule.repay_days * self._terms.day
                  else self._terms.overload_probability)
        recent = max(1, round(rule.recent_seconds / period))
        return slots[-recent:].any() \
            and np.count_nonzero(slots) > enough * slots.size

    def _relieve(self, end):
        """Make a plan and execute it."""
        now = self._cloud.now = self._traffic.time(end)
        self._write(end, now)
        limit = time.monotonic() + _MOST_SECONDS
        with executor.Executor(
                self._store, self._cloud, SETTINGS,
                executor.holder_name('the demo'), lambda: now) as runner:
            plan = proposal.propose(
                self._store, view.FleetView, self._cloud, self._driver,
                SETTINGS, now)
            if not plan.moves:
                return
            plan_id = runner.begin(plan)
            while runner.step():
                if time.monotonic() > limit:
                    raise exceptions.VSwitchError(
                        f'plan {plan_id}: not executed after '
                        f'{_MOST_SECONDS:g} s')
                time.sleep(_POLL_SECONDS)
        if runner.problem is not None:
            self.problems.append(runner.problem)
        for move in self._store.moves(plan_id, records.DONE):
            self._host_of[move.instance_uuid] = move.destination
            self.moves.append((end, move.instance_uuid, move.destination))

    def _write(self, end, now):
        """Write what a modeler would have written until now."""
        stored_budgets = self._store.error_budgets()
        self._store.settle_budgets(
            store.BudgetState(self._traffic.period_seconds, now),
            [(stored_budgets[new.key].until if new.key in stored_budgets
              else None, dataclasses.replace(new, until=now))
             for new in (host.account for host in self._hosts.values())],
            [days for host in self._hosts.values()
             for days in host.days(self._written)])
        self._store.write(placements=[
            store.InstanceRecord(uuid, host)
            for uuid, host in self._host_of.items()], now=now)
        self._written = end

    def summary(self) -> dict:
        """Return what the demo shows of the replay, as plain data."""
        return {'moves': self.moves, 'problems': self.problems, 'budgets': {
            name: [host.account.overload_seconds,
                   host.account.measured_seconds]
            for name, host in self._hosts.items()}}


class _Host:
    """The measured sums of a host, and its error budget."""

    def __init__(self, name, target, traffic, samples, terms):
        self._target, self._traffic, self._terms = target, traffic, terms
        self._values = [traffic.values(weights, packet_bytes)
                        for weights, packet_bytes, _ in target.limits]
        # Arrays of whole days, from the first to the last sample.
        day, last = (int(traffic.time(sample) // rules.DAY_SECONDS)
                     for sample in (0, samples - 1))
        self._days = {number: packed.slots_of_day(number,
                                                  traffic.period_seconds)
                      for number in range(day, last + 1)}
        self._first = self._days[day][0]
        self._sums = np.full((len(target.limits), self._days[last][1]
                              - self._first), np.nan)
        self._alone = np.zeros(self._sums.shape, dtype=bool)
        self.account = store.ErrorBudget(
            store.HOST, name, *dataclasses.astuple(terms), target.text,
            traffic.time(0), None, traffic.time(0), terms.first)

    def _loads(self, rows, first, end):
        """Return the loads of the given instances, slot by slot.

        :param end: end of the slots, exclusive
        :returns: (l, t) sums, and (l, t) bool, whether one instance alone
            exceeds the capacity
        """
        loads = [load[rows, first:end] for load in self._values]
        return np.stack([load.sum(axis=0) for load in loads]), np.stack([
            rules.exceeds(load, np.full(len(rows), capacity)).any(axis=0)
            for load, capacity in zip(loads, self._target.capacities)])

    def overload(self, rows, first, end):
        """Return (t,) bool: avoidable overload by some instances."""
        return rules.overloaded(*self._loads(rows, first, end),
                                self._target.capacities)

    def settle(self, rows, first, end):
        """Add the loads and the overload of the given samples to the budget.

        :param end: end of the samples, exclusive
        """
        begin, period = self._traffic.first - self._first, \
            self._traffic.period_seconds
        part = slice(begin + first, begin + end)
        self._sums[:, part], self._alone[:, part] = self._loads(
            rows, first, end)
        measured = period * (end - first)
        overload = period * np.count_nonzero(self.overload(rows, first, end))
        self.account = dataclasses.replace(
            self.account, balance=float(self._terms.after(
                self.account.balance, measured, overload)),
            measured_seconds=self.account.measured_seconds + measured,
            overload_seconds=self.account.overload_seconds + overload)

    def days(self, since):
        """Yield the StoredSums of the days that end after a sample."""
        for day, (begin, end) in self._days.items():
            part = slice(begin - self._first, end - self._first)
            if end > self._traffic.first + since \
                    and not np.isnan(self._sums[:, part]).all():
                yield store.StoredSums(
                    *self.account.key, day, self._traffic.period_seconds,
                    self._target.limits, packed.pack_day(
                        self._sums[:, part], self._alone[:, part],
                        self._target.capacities))


def read_traffic(job: dict, servers: dict) -> SampledTraffic:
    """Return the Traffic of a job of the cloud.

    :param job: dictionary: ``rates``, path of a file that :func:`write_rates`
        wrote, ``period_seconds`` and ``start``
    :param servers: {uuid in Nova: uuid in the trace}
    """
    with np.load(job['rates']) as stored:
        row_of = {uuid: row for row, uuid
                  in enumerate(json.loads(str(stored['uuids'])))}
        rates = stored['rates'][[
            row_of[trace_uuid] for trace_uuid in servers.values()]]
    return SampledTraffic(list(servers), rates, job['period_seconds'],
                          round(job['start'] / job['period_seconds']))


def write_rates(path: str, rates: dict) -> None:
    """Write rates for :func:`read_traffic`.

    :param rates: {uuid: (t, 2) egress_kbps, ingress_kbps}
    """
    np.savez(path, uuids=json.dumps(list(rates)),
             rates=np.stack(list(rates.values())))
