# SPDX-License-Identifier: Apache-2.0
"""What a report page shows, as plain data.

Draws nothing and uses no HTML. Numbers are floats. Names are strings as in the
store: the caller has to escape them.
"""

import collections
from collections.abc import Callable, Iterable
import dataclasses
import math

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import assessment
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.fleet import episodes
from vswitch_aware_scheduler.fleet import outcomes
from vswitch_aware_scheduler.fleet import rows
from vswitch_aware_scheduler.fleet import view as fleet_view
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['Contents', 'Limits', 'refusals']

#: Number of points of the distribution of a sum.
_POINTS = 48

_time = plain_text.iso_time

_SHARE = 'of the time of the switch'


@dataclasses.dataclass(frozen=True)
class Limits:
    """The size of a report.

    :ivar details: number of hosts that are shown in detail, those with the
        largest risk
    :ivar diagrams: number of instances of such a host whose model is drawn
    :ivar stale_seconds: age of the last sample after which a model is stale
    """

    details: int = 10
    diagrams: int = 4
    listed: int = 1000
    stale_seconds: float = 86400.0
    refusal_buckets: int = 48


class Contents:
    """The hosts of one state of the store, as data of a report.

    :param remarks: what is wrong with the data of the view, in words
    """

    def __init__(self, view: fleet_view.FleetView,
                 progress: Callable | None = None, remarks: tuple = ()):
        self._store, self._view, self._remarks = view.store, view, remarks
        hosts = sorted(view.policies)
        self._rows = [self._row(host, load) for host, load
                      in zip(hosts, view.loads(hosts, progress))]

    def _row(self, host, load):
        policy = self._view.policies[host]
        has_profile = policy.profile is not None
        return {
            **rows.host(self._view, host, load),
            'measure': policy.profile.calibration_command
            if has_profile and policy.profile.is_measured_elsewhere else None,
            'limit': policy.limit_in_force if has_profile else None,
            'above': has_profile and load.above}

    @property
    def hosts(self) -> list[dict]:
        """Rows of the hosts, sorted by name."""
        return self._rows

    def worst(self, count: int) -> list[str]:
        """Return the names of the hosts with the largest risk."""
        judged = [row for row in self._rows
                  if row['overload_probability'] is not None
                  and row['instances']]
        judged.sort(key=lambda row: (
            -row['overload_probability'] / max(row['limit'], 1e-12),
            -row['utilisation'], row['host']))
        return [row['host'] for row in judged[:count]]

    def __contains__(self, host: object) -> bool:
        return host in self._view.policies

    # The whole report.

    def report(self, now: float, limits: Limits = Limits(),
               decisions: Iterable = (), host: str | None = None) -> dict:
        """Return all data of a report.

        :param now: current time, seconds UTC
        :param host: None, or the only host of the report
        """
        store = self._store
        names = self.worst(limits.details) if host is None else [host]
        inventory = self._view.inventory
        generation = self._view.snapshot.generation
        return {
            'generated_at': _time(now), 'store': store.url,
            'generation': generation.number,
            'published_at': _time(generation.published_at or None),
            'inventory_at': inventory and _time(inventory.seen_at),
            'host': host, 'remarks': list(self._remarks),
            'summary': self._summary(),
            'hosts': self._rows if host is None else [
                row for row in self._rows if row['host'] == host],
            'details': [self.detail(name, limits) for name in names],
            'uplinks': self.uplinks() if host is None else [],
            'projects': rows.projects(self._view) if host is None else [],
            'claims': rows.claims(self._view) if host is None else None,
            'refusals': refusals(decisions, limits.refusal_buckets)
            if host is None else None,
            'outcomes': self._outcomes(decisions, now)
            if host is None else [],
            'models': self._models(now, limits) if host is None else None,
            'modelers': [] if host is not None else [{
                'name': modeler.name, 'host': modeler.host,
                'seen_at': _time(modeler.seen_at), 'ended': modeler.ended,
                'passes': modeler.passes, 'outcome': modeler.outcome,
                'waiting_for': modeler.waiting_for}
                for modeler in store.modelers()],
            'workers': [] if host is not None else [
                _worker(worker) for worker in self._view.workers]}

    def _summary(self):
        judged = [row for row in self._rows
                  if row['overload_probability'] is not None]
        return {
            'hosts': len(self._rows), 'judged': len(judged),
            'above': sum(row['above'] for row in judged),
            'overspent': sum(budget.in_debt for budget
                             in self._view.error_budgets.values()),
            'instances': sum(row['instances'] for row in self._rows),
            'rules': {kind: sum(row[key] for row in self._rows)
                      for kind, key in rows.COUNTS.items()},
            'mean_utilisation': _mean(
                [row['utilisation'] for row in judged]),
            'mean_risk': _mean(
                [row['overload_probability'] for row in judged])}

    def _outcomes(self, decisions, now):
        """Return what enforcement would have changed, in sentences."""
        answer = outcomes.summary(self._store, decisions, now)
        return [*outcomes.sentences(answer), *(
            f'{remark[:1].upper()}{remark[1:]}.'
            for remark in answer['remarks'])] if answer['requests'] else []

    def _models(self, now, limits):
        """Return the ages of the models, and the stale ones."""
        ages, stale, total = [], [], 0
        for uuid, name, window_end, updated_at in self._store.model_times():
            total += 1
            age = now - window_end
            ages.append(age)
            if age > limits.stale_seconds:
                stale.append((window_end, uuid, name, updated_at))
        stale.sort()
        edges = [3600.0 * hours for hours in (1, 6, 24, 72, 168)]
        counts = np.bincount(np.searchsorted(edges, ages),
                             minlength=len(edges) + 1).tolist()
        rows = []
        for window_end, uuid, name, updated_at in stale[:limits.listed]:
            placement = self._view.snapshot.placement(uuid)
            rows.append({
                'instance': uuid, 'name': name,
                'host': placement and placement[0],
                'last_sample': _time(window_end),
                'updated': _time(updated_at)})
        return {'total': total, 'stale': len(stale), 'listed': rows,
                'stale_hours': limits.stale_seconds / 3600,
                'ages': list(zip(('1 hour', '6 hours', '1 day', '3 days',
                                  '1 week', 'older'), counts))}

    def uplinks(self) -> list[dict]:
        """Return a row for each uplink."""
        names = sorted(self._view.uplinks)
        return [{**rows.uplink(self._view, name, load), 'above': load.above,
                 'limit': self._view.uplinks[name].policy.limit_in_force}
                for name, load in zip(names, self._view.uplink_loads(names))]

    # One host.

    def detail(self, host: str, limits: Limits = Limits()) -> dict:
        """Return the details of one host."""
        row = next(row for row in self._rows if row['host'] == host)
        policy, laws = self._view.policies[host], self._view.laws(host)
        host_limits = [self._limit(policy, number, laws)
                       for number in range(len(policy.limits))]
        host_limits = [limit for limit in host_limits if limit]
        tightest = max(host_limits, default=None,
                       key=lambda limit: (limit['risk'], limit['utilisation']))
        instances = self._instances(host, policy, laws, tightest)
        models = {instance['instance']: instance.pop('model')
                  for instance in instances}
        return {
            **row, 'limits': [
                {key: value for key, value in limit.items()
                 if key != 'weights'} for limit in host_limits],
            'tightest': tightest and tightest['name'],
            'distribution': tightest and self._distribution(
                policy, laws, tightest),
            'episodes': tightest and dict(zip(
                ('per_day', 'mean_seconds'), episodes.expected(
                    self._view, host, row['overload_probability']))),
            'vms': instances,
            'spent_by': rows.spenders(self._view, host),
            'diagrams': [
                {'instance': uuid, 'name': instance['name'],
                 'states': _states(models[uuid])}
                for uuid, instance in zip(models, instances)
                if models[uuid] is not None][:limits.diagrams]}

    def _limit(self, policy, number, laws):
        """Return one limit of a host, its load and its risk."""
        weights, capacity, _ = policy.limits[number]
        if not math.isfinite(capacity):
            return None
        weights = tuple(map(float, weights))
        unit = assessment.UNITS.get(weights)
        mean = sum(float(law.probabilities @ law.values(
            weights, policy.profile.typical_packet_bytes))
            for law in laws.values())
        name = policy.profile.limits()[number].name.replace('_', ' ')
        return {
            'name': name, 'unit': unit or _SHARE, 'capacity': capacity,
            'mean': mean, 'utilisation': mean / capacity,
            'weights': weights,
            'risk': float(_tail(weights, policy, laws, [capacity])[0])}

    def _distribution(self, policy, laws, limit):
        """Return the probability that the sum exceeds some rates."""
        top = 1.5 * max(limit['capacity'], limit['mean'])
        rates = np.unique(np.append(
            np.linspace(0.0, top, _POINTS)[1:], limit['capacity']))
        return {'unit': limit['unit'], 'capacity': limit['capacity'],
                'mean': limit['mean'], 'rates': rates.tolist(),
                'above': _tail(limit['weights'], policy, laws,
                               rates).tolist()}

    def _instances(self, host, policy, laws, tightest):
        """Return the instances of a host, the largest ones first."""
        instances, names = [], self._store.names(laws)
        for uuid, law in laws.items():
            record = self._store.model(uuid)
            flavor, project = self._view.instances(host)[uuid]
            weights = tightest['weights'] if tightest else (1.0, 1.0, 0.0)
            values = law.values(weights, policy.profile
                                and policy.profile.typical_packet_bytes)
            instances.append({
                'instance': uuid,
                'name': names.get(uuid, record and record.name),
                'flavor': flavor, 'project': project,
                'counts_by': self._view.demands(host)[uuid][1],
                'mean_kbps': float(law.mean[:2].sum()),
                'peak_kbps': float(law.rates[:, :2].sum(axis=1).max()),
                'share': float(law.probabilities @ values)
                / tightest['capacity'] if tightest else None,
                'last_sample': record and _time(record.window_end),
                'model': record and record.model})
        instances.sort(key=lambda instance: (-(instance['share'] or 0.0),
                                             instance['instance']))
        return instances


def _tail(weights, policy, laws, capacities):
    """Return P(sum > capacity) for some capacities, as the scheduler does."""
    table = admission.LoadTable()
    table_rows = [table.describe(number, admission.HostPolicy(
        _one_limit(weights, float(capacity), policy.profile)), laws)
        for number, capacity in enumerate(capacities)]
    return table.assess(table_rows, rate_law.SILENT).overload_probability


def _one_limit(weights, capacity, profile):
    """Return a profile with one limit with these weights."""
    dimension = next(
        (name for name, dimension_weights in traffic_model.DIMENSIONS.items()
         if tuple(map(float, dimension_weights)) == weights), None)
    common = {'name': 'limit',
              'typical_packet_bytes': profile.typical_packet_bytes}
    if dimension == 'packets':
        return switch_profile.SwitchProfile(
            packet_rate_kpps=capacity, **common)
    if dimension is not None:
        return switch_profile.SwitchProfile(
            saturation_kbps=capacity, saturation_dimension=dimension,
            **common)
    # A profile with costs has the capacity 1: scale the costs instead.
    return switch_profile.SwitchProfile(
        packet_cost_us=profile.packet_cost_us
        and profile.packet_cost_us / capacity,
        byte_cost_ns=profile.byte_cost_ns
        and profile.byte_cost_ns / capacity, **common)


def _states(model):
    """Return the states of a model, and the transition probabilities."""
    return {
        'rates': model.rates.tolist(),
        'share': model.stationary.tolist(),
        'sojourn_seconds': model.sojourn_seconds.tolist(),
        'jump': model.jump.tolist()}


def _worker(worker):
    """Return the state of a scheduler's worker."""
    ages = [age for age in worker.state.get('cells', {}).values()
            if age is not None]
    return {
        'name': worker.name, 'host': worker.host,
        'seen_at': _time(worker.seen_at),
        'models': worker.state.get('models'),
        'record_age_seconds': max(ages, default=None),
        'problems': list(worker.state.get('problems', {}).values())}


def _mean(values):
    return float(np.mean(values)) if values else None


def refusals(decisions: Iterable, buckets: int) -> dict | None:
    """Return refusals by reason over time."""
    decisions = sorted(decisions, key=lambda decision: decision.decided_at)
    if not decisions:
        return None
    first, last = decisions[0].decided_at, decisions[-1].decided_at
    # Each interval has at least one minute.
    length = max((last - first) / buckets * (1 + 1e-9), 60.0)
    numbered_buckets, reasons = {}, collections.Counter()
    for decision in decisions:
        number = int((decision.decided_at - first) // length)
        bucket = numbered_buckets.setdefault(number, {
            'requests': 0, 'no_host': 0, 'hosts': 0,
            'refused': collections.Counter()})
        bucket['requests'] += 1
        bucket['no_host'] += decision.outcome == 'no host'
        bucket['hosts'] += decision.hosts
        bucket['refused'].update(decision.refused)
        reasons.update(decision.refused)
    return {
        'requests': len(decisions), 'since': _time(first),
        'since_seconds': first,
        'no_host': sum(bucket['no_host']
                       for bucket in numbered_buckets.values()),
        'seconds': length, 'reasons': dict(reasons.most_common()),
        'buckets': [{
            'start': _time(first + number * length),
            'after_seconds': number * length,
            **{**bucket, 'refused': dict(bucket['refused'])}}
            for number, bucket in sorted(numbered_buckets.items())]}
