# SPDX-License-Identifier: Apache-2.0
"""The answer of a survey: what is, what is expected, what would have happened.

All numbers come from the store after the last pass and from the decisions.
"""

import collections
import dataclasses
import hashlib
import hmac
import re

import numpy as np

from vswitch_aware_scheduler.cmd.survey import record as records
from vswitch_aware_scheduler.cmd.survey import replay
from vswitch_aware_scheduler.fleet import realised
from vswitch_aware_scheduler.fleet import room as rooms
from vswitch_aware_scheduler.fleet import rows
from vswitch_aware_scheduler.fleet import view as fleet_view

__all__ = ['anonymous', 'pseudonyms', 'sentences', 'verdict']

#: Number of flavors for which room is computed, those most used.
_FLAVORS = 3

#: Names of amounts of Placement in the answer.
_CORES, _MEMORY = 'cores_used', 'memory_used'


def verdict(view: fleet_view.FleetView, record: records.Record,
            decisions: list[replay.JudgedDecision], measured: dict,
            resources: dict, projects: dict, progress=None) -> dict:
    """Return the answer as plain data.

    :param measured: {host: share of time in overload, or None}
    :param resources: {host: ((VCPU capacity, used) or None, the same of
        MEMORY_MB)}; None: nothing is free, or the host is unknown to Placement
    :param projects: {id: name} of the projects whose name is known
    :param progress: callable(done, total)
    """
    names = sorted(view.policies)
    hosts = [_host(view, name, load, measured[name], resources.get(name))
             for name, load in zip(names, view.loads(names, progress))]
    judged = [row for row in hosts if row['overload_probability'] is not None]
    return {
        'hosts': hosts,
        'summary': {
            'hosts': len(hosts), 'hosts_judged': len(judged),
            'hosts_measured': sum(row['measured_overload'] is not None
                                  for row in hosts),
            'hosts_overloaded': sum(row['overloaded'] for row in hosts),
            'hosts_expected_above': sum(row['above'] for row in hosts),
            'instances': sum(row['instances'] for row in hosts),
            'instances_with_model': sum(row['with_model'] for row in hosts),
            _CORES: _mean(hosts, _CORES), _MEMORY: _mean(hosts, _MEMORY),
            'switch_used': _mean(judged, 'utilisation')},
        'projects': [{**row, 'name': projects.get(row['project'])}
                     for row in rows.projects(view)],
        'culprits': _culprits(view, record),
        'room': _room(view, record, resources, [
            row['host'] for row in judged]),
        'profiles': _profiles(view),
        'decisions': _decisions(decisions)}


def _host(view, name, load, share, of_placement):
    row = rows.host(view, name, load)
    shares = [None if amounts is None else amounts[1] / amounts[0]
              for amounts in of_placement or (None, None)]
    if shares != [None, None]:
        # Placement lists no host on which nothing is free.
        shares = [1.0 if share_used is None else share_used
                  for share_used in shares]
    limit = view.policies[name].overload_probability
    return {**row, 'measured_overload': share,
            'overloaded': share is not None and realised.exceeds(share, limit),
            'above': row['overload_probability'] is not None and load.above,
            _CORES: shares[0], _MEMORY: shares[1]}


def _mean(its_rows, key):
    values = [row[key] for row in its_rows if row[key] is not None]
    return float(np.mean(values)) if values else None


def _culprits(view, record):
    """Return the instances that were charged for overload, the most first."""
    seconds = collections.Counter()
    for charge in view.charges:
        seconds[charge.instance_uuid, charge.name, charge.project] += \
            charge.seconds
    return [{'instance': uuid, 'name': getattr(
        record.instances.get(uuid), 'name', None), 'host': host,
        'project': project, 'spent_seconds': spent}
        for (uuid, host, project), spent in seconds.most_common()]


def _room(view, record, resources, hosts):
    """Return how many more instances of the flavors most used fit."""
    flavors = collections.Counter(
        (instance.flavor, instance.vcpus, instance.memory_mib)
        for instance in record.instances.values() if instance.host)
    answer = []
    for (flavor, *need), count in flavors.most_common(_FLAVORS):
        by_switch = rooms.room(view, hosts, view.demand(None, flavor, None))
        by_resources = [
            0 if None in resources.get(host, (None,)) else int(min(
                (capacity - used) // max(amount, 1e-9) for (capacity, used),
                amount in zip(resources[host], need) if amount))
            for host in hosts]
        answer.append({
            'flavor': flavor, 'instances': count, 'by_cores_and_memory':
                sum(by_resources) if resources else None,
            'by_switch': sum(map(int, filter(None, by_switch))),
            'by_both': sum(
                min(pair) for pair in zip(by_resources, (
                    number or 0 for number in by_switch)))
            if resources else None})
    return answer


def _profiles(view):
    """Return a row for each profile in use, foreign measurements marked."""
    hosts = collections.Counter(
        policy.profile for policy in view.policies.values()
        if policy.profile is not None)
    return [{'profile': profile.name, 'hosts': count,
             'capacity_kbps': profile.bandwidth_kbps(),
             'measured_elsewhere': profile.is_measured_elsewhere,
             'measure': profile.calibration_command
             if profile.is_measured_elsewhere else None}
            for profile, count in hosts.most_common()]


def _decisions(decisions):
    """Return what would have happened, and the decisions themselves."""
    outcomes = collections.Counter(
        decision.outcome for decision in decisions)
    after = {refused: collections.Counter(
        'unknown' if decision.overload_afterwards is None else
        'overloaded' if realised.exceeds(decision.overload_afterwards,
                                         decision.limit)
        else 'fine'
        for decision in decisions
        if (decision.outcome != replay.SAME) == refused)
        for refused in (True, False)}
    return {
        'number': len(decisions),
        'kinds': dict(collections.Counter(
            decision.kind for decision in decisions)),
        **{outcome: outcomes[outcome] for outcome in (
            replay.SAME, replay.ELSEWHERE, replay.REFUSED)},
        **{f'hosts_{name}_afterwards': {
            key: after[refused][key]
            for key in ('overloaded', 'fine', 'unknown')}
            for name, refused in (('not_admitted', True),
                                  ('admitted', False))},
        'wrong_refusals': after[True]['fine'],
        'list': [dataclasses.asdict(decision) for decision in decisions]}


def sentences(answer: dict) -> list[str]:
    """Return the verdict in sentences."""
    summary, decided = answer['summary'], answer['decisions']
    foreign = [row for row in answer['profiles'] if row['measured_elsewhere']]
    after = decided['hosts_not_admitted_afterwards']
    others = decided['hosts_admitted_afterwards']
    lines = [
        f'{summary["hosts_overloaded"]} of {summary["hosts_measured"]} '
        f'measured hosts had an overloaded switch for longer than their '
        f'limit; {summary["hosts_expected_above"]} of '
        f'{summary["hosts_judged"]} hosts are expected to, by the model of '
        f'the present instances.',
        f'Hosts are on average {_percent(summary[_CORES])} full of cores and '
        f'{_percent(summary[_MEMORY])} full of memory; their switches are '
        f'{_percent(summary["switch_used"])} full on average.']
    for row in answer['room']:
        lines.append(
            f'Of flavor {row["flavor"]}, '
            + ('' if row['by_cores_and_memory'] is None else
               f'{row["by_cores_and_memory"]} more instances fit by cores '
               f'and memory, ')
            + f'{row["by_switch"]} by the switch'
            + ('.' if row['by_both'] is None
               else f', {row["by_both"]} by both.'))
    lines.append(
        f'Of {decided["number"]} decisions of Nova, the plugin would have '
        f'placed {decided[replay.ELSEWHERE]} elsewhere and refused '
        f'{decided[replay.REFUSED]}. Of the hosts that Nova chose for these, '
        f'{after["overloaded"]} were overloaded afterwards, {after["fine"]} '
        f'were not (wrong refusals), {after["unknown"]} are unknown. '
        f'Of the hosts of the other decisions, {others["overloaded"]} were '
        f'overloaded afterwards, {others["fine"]} were not, '
        f'{others["unknown"]} are unknown.')
    if foreign:
        lines.append(
            'The capacity of '
            f'{sum(row["hosts"] for row in foreign)} hosts rests on '
            'measurements of other machines (profiles '
            + ', '.join(row['profile'] for row in foreign)
            + '): measure yours with vswitch-calibrate.')
    return lines


def _percent(share):
    return 'an unknown share' if share is None else f'{share:.0%}'


# Without names

def pseudonyms(view: fleet_view.FleetView, record: records.Record,
               secret: bytes, others: dict) -> dict:
    """Return {name: pseudonym} of all names in an answer.

    :param others: {kind: iterable of further names}
    """
    kinds = collections.defaultdict(set, {
        kind: set(names) for kind, names in others.items()})
    kinds['host'].update(view.policies)
    kinds['uplink'].update(view.uplinks)
    kinds['flavor'].update(view.flavors)
    kinds['aggregate'].update(
        aggregate['name'] for aggregate
        in view.store.fleet('aggregate').facts.values())
    for uuid, instance in record.instances.items():
        kinds['instance'].add(uuid)
        kinds['name'].add(instance.name)
        kinds['project'].add(instance.project)
        kinds['flavor'].add(instance.flavor)
    for model in view.store.models():
        kinds['name'].add(model.name)
    return {
        name: f'{kind}-' + hmac.new(
            secret, f'{kind} {name}'.encode(), hashlib.sha256
        ).hexdigest()[:10]
        for kind, names in kinds.items() for name in names if name}


def anonymous(data, names: dict):
    """Return plain data with pseudonyms instead of names.

    :param data: dictionaries, lists, texts and numbers
    :param names: as returned by :func:`pseudonyms`
    """
    spaced = sorted((name for name in names if not _WORD.fullmatch(name)),
                    key=len, reverse=True)

    def text(value):
        if value in names:
            return names[value]
        for name in spaced:
            value = value.replace(name, names[name])
        return _WORD.sub(lambda word: names.get(word[0], word[0]), value)

    def changed(value):
        if isinstance(value, str):
            return text(value)
        if isinstance(value, dict):
            # Names are keys of dictionaries of numbers only.
            return {names.get(key, key) if isinstance(item, float)
                    else key: changed(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [changed(item) for item in value]
        return value

    return changed(data)


#: A name in a text, without a colon or a full stop at its end.
_WORD = re.compile(r'[\w-](?:[\w.:@/-]*[\w-])?')
