# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage decision compare: decisions and measured traffic."""

import collections
import dataclasses
import time

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler.lab.evaluate import realised
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store as model_store

__all__ = ['Compare', 'print_answer', 'run']

REFUSED, ADMITTED = 'refused', 'admitted'

#: Checks that measured traffic can neither confirm nor disprove.
_OTHER_CHECKS = {'no profile', 'tunnels', 'virtual functions', 'uplink',
                 'error budget', 'large neighbour'}


def run(arguments, conf, store, driver, progress=None, clock=None):
    """Return the result of the command as plain data.

    :param arguments: argparse Namespace
    :param conf: ConfigOpts with the options of this package
    :param store: Store
    :param driver: telemetry Driver
    :param progress: None, or callable(done, total)
    :param clock: callable, returns seconds UTC; None uses ``time.time``
    """
    end = (clock or time.time)() if arguments.end is None else arguments.end
    last, left_out = _last_decisions(store, arguments.start, end)
    policies = facts.policies(
        store, *wiring.make_policies(conf[options.GROUP])).hosts
    instances = collections.defaultdict(list)
    for uuid, placement in store.placements().items():
        if placement.host in last:
            instances[placement.host].append(uuid)
    start = min((decision.decided_at for decision in last.values()),
                default=end)
    series = {}
    if last:
        for instance_series in driver.series(start, end, {
                uuid for uuids in instances.values() for uuid in uuids},
                progress):
            series[instance_series.instance_uuid] = instance_series.at_least()
    rows, groups = [], {REFUSED: [], ADMITTED: []}
    for host, decision in sorted(last.items()):
        policy = policies.get(host)
        if policy is None or policy.profile is None:
            left_out['no profile now'] += 1
            continue
        outcome = realised.Realised(
            decision.chosen['overload_probability'], decision.chosen['limit'],
            *realised.overload(policy, series, instances[host],
                               decision.decided_at, end))
        group = ADMITTED if decision.chosen['check'] is None else REFUSED
        groups[group].append(outcome)
        rows.append({
            'host': host, 'group': group, 'check': decision.chosen['check'],
            'decided_at': decision.decided_at,
            'instances': len(instances[host]),
            'predicted': outcome.predicted, 'limit': outcome.limit,
            'slots': outcome.slots, 'slots_wanted': realised.slots_wanted(
                outcome.limit), 'overloaded_slots': outcome.overloaded,
            'realised': outcome.share if outcome.slots else None,
            'overloaded': outcome.is_overloaded if outcome.is_measured
            else None})
    groups_measured = {name: realised.group_of(outcomes)
                       for name, outcomes in groups.items()}
    return {
        'telemetry': driver.source, 'until': end, 'since_at': start,
        'confidence': realised.CONFIDENCE, 'groups': [
            {'group': name, 'hosts_decided': len(groups[name]),
             **dataclasses.asdict(measured), 'enough': measured.is_enough}
            for name, measured in groups_measured.items()],
        'left_out': dict(left_out),
        'remarks': list(_remarks(groups_measured, groups, left_out)),
        'hosts': rows}


def _last_decisions(store, start, end):
    """Return the last decision of each host, and how many are left out.

    Only decisions count that placed an instance on a host with a limit on
    traffic.

    :returns: ({host: Decision}, {reason for leaving out: number})
    """
    last, left_out = {}, collections.Counter()
    for decision in store.decisions(since=start, outcome=model_store.PLACED):
        if decision.decided_at <= end:
            last.setdefault(decision.host, decision)
    for host, decision in list(last.items()):
        if decision.chosen is None \
                or decision.chosen['overload_probability'] is None:
            reason = 'no filter checked the host'
        elif decision.chosen['check'] in _OTHER_CHECKS:
            reason = f'refused for {decision.chosen["check"]}'
        elif decision.chosen['limit'] is None:
            reason = 'no overload probability limits them'
        else:
            continue
        left_out[reason] += 1
        del last[host]
    return last, left_out


def _remarks(groups_measured, groups, left_out):
    for name, group in groups_measured.items():
        if not group.is_enough:
            yield (f'{name}: too few for a conclusion: {group.hosts} hosts '
                   f'with enough measured traffic; expected '
                   f'{realised.MIN_HOSTS}'
                   + _waiting(groups[name]))
    refused, admitted = groups_measured[REFUSED], groups_measured[ADMITTED]
    if refused.is_enough and admitted.is_enough:
        if refused.share_low > admitted.share_high:
            yield ('refused hosts were overloaded more often than admitted '
                   'ones')
        elif refused.share_high < admitted.share_low:
            yield ('refused hosts were overloaded less often than admitted '
                   'ones')
        else:
            yield ('the intervals overlap: whether refused hosts are '
                   'overloaded more often is still unknown')
    for name, group in groups_measured.items():
        if not group.is_enough:
            continue
        if group.predicted > group.realised_high:
            yield f'{name}: more overload was predicted than measured'
        elif group.predicted < group.realised_low:
            yield f'{name}: less overload was predicted than measured'
    for reason, number in left_out.items():
        yield f'{number} hosts are left out: {reason}'


def _waiting(hosts):
    """Return how many hosts were measured for too short a time, as text."""
    waiting = [outcome for outcome in hosts if not outcome.is_measured]
    if not waiting:
        return ''
    last = max(waiting,
               key=lambda outcome: realised.slots_wanted(outcome.limit)
               - outcome.slots)
    return (f'; {len(waiting)} more hosts wait for traffic to be measured: '
            f'{last.slots} slots of time since the decision; expected '
            f'{realised.slots_wanted(last.limit)}')


def print_answer(answer):
    """Print the answer as text.

    :param answer: result of :func:`run`
    """
    terminal.print_line(
        f'Hosts by the last instance that was placed on them, measured by '
        f'{answer["telemetry"]}; intervals of '
        f'{100 * answer["confidence"]:g} %')
    terminal.print_table(
        ['GROUP', 'HOSTS', 'MEASURED', 'OVERLOADED', 'SHARE', 'LOW', 'HIGH',
         'PREDICTED', 'REALISED', 'LOW', 'HIGH'],
        [[group['group'], group['hosts_decided'], group['hosts'],
          group['overloaded_hosts'],
          *(plain_text.chance(group[name]) for name in (
              'share', 'share_low', 'share_high', 'predicted', 'realised',
              'realised_low', 'realised_high'))]
         for group in answer['groups']])
    if answer['remarks']:
        terminal.print_line()
        for remark in answer['remarks']:
            terminal.print_line(f'- {remark}')


class Compare(base.Command):
    """Compare decisions with the traffic that was measured since."""

    def add_arguments(self, parser):
        """Add the arguments of the command."""
        parser.add_argument('--telemetry', metavar='DRIVER',
                            help='name of a telemetry driver (default: the '
                                 'options of vswitch-modeler)')
        context.add_file_arguments(parser)
        context.add_times(parser, 'decisions', 'all, until now')

    def answer(self, arguments):
        """Return the result of :func:`run`."""
        conf = self.all_options
        driver = (wiring.configured_driver(conf)
                  if arguments.telemetry is None
                  else context.telemetry_driver(arguments, conf))
        with terminal.progress('reading traffic') as progress:
            return run(arguments, conf, self.store, driver, progress)

    def describe(self, answer):
        """Print the groups and the remarks."""
        print_answer(answer)
