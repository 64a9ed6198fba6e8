# SPDX-License-Identifier: Apache-2.0
"""Rows of hosts, uplinks and projects, as commands and the report show them.

A row is a dictionary that JSON can represent.
"""

import collections
import math

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import demand
from vswitch_aware_scheduler.fleet import view as fleet_view
from vswitch_aware_scheduler import store as model_store

__all__ = ['BURN_SECONDS', 'CLAIM_COUNTS', 'COUNTS', 'budget_in_words',
           'claims', 'host', 'projects', 'spenders', 'uplink']

#: Key of a row with the number of instances whose demand is by a rule.
COUNTS = {demand.MODEL: 'with_model', demand.FLAVOR: 'with_flavor',
          demand.PRIOR: 'with_prior', demand.DEFAULT: 'unknown'}

#: Counts of a worker that are 0 before it has claimed a host.
CLAIM_COUNTS = {'claims_made': 0, 'claim_conflicts': 0, 'claim_misses': 0}

#: Window of the burn rate of a row, a key of ``burn`` of an ErrorBudget.
BURN_SECONDS = '21600'


def host(view: fleet_view.FleetView, name: str,
         load: fleet_view.Load) -> dict:
    """Return the row of a host."""
    policy, origins = view.policies[name], view.origins.get(name, {})
    rules = collections.Counter(
        rule for _, rule in view.demands(name).values())
    return {
        'host': name, 'profile': policy.profile and policy.profile.name,
        'origin': origins.get('profile'), 'origins': origins,
        'judged': policy.judged, 'enforced': policy.enforced,
        'instances': rules.total(),
        **{key: rules[kind] for kind, key in COUNTS.items()},
        **_numbers(policy, load), **_budget(view, model_store.HOST, name),
        'uplinks': [uplink.name for uplink in policy.uplinks]}


def uplink(view: fleet_view.FleetView, name: str,
           load: fleet_view.Load) -> dict:
    """Return the row of an uplink."""
    return {
        'uplink': name, 'hosts': len(view.hosts_behind.get(name, ())),
        'instances': len(view.uplink_table.residents(name)),
        **_numbers(view.uplinks[name].policy, load),
        **_budget(view, model_store.UPLINK, name)}


def projects(view: fleet_view.FleetView) -> list[dict]:
    """Return a row for each project, those that spent most first.

    Rates are those of its instances now, both directions together. The other
    numbers are those of the last seven days.
    """
    spent = spenders(view)
    times = model_store.of_projects(view.store.vm_times())
    instances, rates = collections.Counter(), collections.defaultdict(float)
    for host in view.policies:
        demands = view.demands(host)
        for uuid, (_, project) in view.instances(host).items():
            instances[project] += 1
            rates[project] += float(demands[uuid][0].mean[:2].sum())
    return [{
        'project': project, 'instances': instances[project],
        'mean_kbps': rates[project],
        'vm_hours': times[project].seconds / 3600
        if project in times else 0.0,
        'vm_overload': times[project].vm_overload_share
        if project in times else None,
        'spent_seconds': spent.get(project, 0.0)}
        for project in sorted(
            (times.keys() | spent.keys() | instances.keys()) - {None},
            key=lambda name: (-spent.get(name, 0.0), -rates[name], name))]


def spenders(view: fleet_view.FleetView, host: str | None = None) -> dict:
    """Return {project or None: seconds of overload}, the most first.

    The numbers are those of the last seven days.

    :param host: None: of all hosts and uplinks
    """
    spent: dict = collections.defaultdict(float)
    for charge in view.charges:
        if host is None or (charge.kind, charge.name) == (
                model_store.HOST, host):
            spent[charge.project] += charge.seconds
    return dict(sorted(spent.items(), key=lambda item: -item[1]))


def claims(view: fleet_view.FleetView) -> dict:
    """Return how claims of hosts have ended, of all workers that report.

    :returns: {'workers': their number, 'longest_wait_seconds': of the claims
        in the store, or None, name of a count of a worker: its sum}
    """
    counts, workers = collections.Counter(CLAIM_COUNTS), 0
    for worker in view.workers:
        its_counts = worker.state.get('claims') or {}
        workers += bool(its_counts)
        counts.update({name: count for name, count in its_counts.items()
                       if isinstance(count, int)})
    return {'workers': workers, 'longest_wait_seconds': max(
        (claim.waited_seconds for claim in view.store.read_claims().claims),
        default=None), **counts}


def _numbers(policy, load):
    has_profile = policy.profile is not None
    limited = has_profile and policy.policy == admission.PROBABILITY
    return {
        'admission_policy': policy.policy,
        'capacity_kbps': _finite(policy.profile.bandwidth_kbps())
        if has_profile else None,
        'utilisation': load.utilisation if has_profile else None,
        'overload_probability': (load.overload_probability
                                 if has_profile else None),
        'loss_fraction': load.loss_fraction if has_profile else None,
        'limit': load.limit, 'prediction_margin': policy.prediction_margin,
        'asked_limit': policy.overload_probability if limited else None}


def _finite(value):
    return value if math.isfinite(value) else None


def _budget(view, kind, name):
    """Return what a row has of an ErrorBudget."""
    budget = view.error_budgets.get((kind, name))
    if budget is None:
        return {'budget_left': None, 'burn_rate': None, 'error_budget': None}
    return {
        'budget_left': budget.left, 'burn_rate': budget.burn.get(BURN_SECONDS),
        'error_budget': {
            'left_seconds': budget.balance, 'left_days': budget.days,
            'in_debt': budget.in_debt, 'accepts': budget.accepts,
            'asked_limit': budget.overload_probability,
            'earned_share': budget.earned_share, 'limits': budget.limits,
            'since_at': budget.since, 'why': budget.why,
            'settled_until': budget.until,
            'measured_seconds': budget.measured_seconds,
            'overload_seconds': budget.overload_seconds,
            'unknown_seconds': budget.unknown_seconds,
            'unknown_why': budget.unknown_why,
            'vm_seconds': budget.vm_seconds,
            'vm_overload_seconds': budget.vm_overload_seconds,
            'prediction': _prediction(budget.prediction),
            'burn_rates': {f'{int(window) // 3600}h': budget.burn[window]
                           for window in sorted(budget.burn, key=int)}}}


def budget_in_words(budget: dict) -> str:
    """Return what an ``error_budget`` of a row has left."""
    seconds, days = budget['left_seconds'], budget['left_days']
    if not budget['in_debt']:
        return (f'{seconds:.0f} s of overload left, as much as {days:.3g} '
                f'days in use earn')
    return (f'{-seconds:.0f} s of overload too much: paid back by {-days:.3g} '
            f'days in use without overload'
            + ('; it accepts instances again' if budget['accepts'] else ''))


def _prediction(prediction):
    """Return how the predicted overload compares with measurements."""
    seconds = prediction.seconds
    return None if not seconds else {
        'predicted_share': prediction.expected_seconds / seconds,
        'measured_share': prediction.overload_seconds / seconds,
        'measured_seconds': seconds, 'deviations': prediction.deviations,
        'contradicted': prediction.contradicted}
