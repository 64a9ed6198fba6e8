# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage decision compare: decisions and measured traffic."""

import argparse
import collections
import time

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler.fleet import facts
from vswitch_aware_scheduler.fleet import outcomes
from vswitch_aware_scheduler.fleet import realised
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler import store as model_store

__all__ = ['Compare', 'print_answer', 'run']


def run(arguments, conf, store, driver, progress=None, clock=None):
    """Return the result of the command as plain data.

    :param clock: callable, returns seconds UTC; None uses ``time.time``
    """
    end = (clock or time.time)() if arguments.end is None else arguments.end
    counted, left_out = outcomes.by_host(
        decision for decision in store.decisions(
            since=arguments.start, outcome=model_store.PLACED)
        if decision.decided_at <= end)
    policies = facts.policies(
        store, *wiring.make_policies(conf[options.GROUP])).hosts
    for host in list(counted):
        if host not in policies or policies[host].profile is None:
            left_out['no profile now'] += 1
            del counted[host]
    instances = collections.defaultdict(list)
    for uuid, placement in store.placements().items():
        if placement.host in counted:
            instances[placement.host].append(uuid)
    start = min((decision.decided_at for _, decision in counted.values()),
                default=end)
    series = {} if not counted else {
        one.instance_uuid: one.at_least() for one in driver.series(
            start, end, {uuid for uuids in instances.values()
                         for uuid in uuids}, progress)}
    return {
        'telemetry': driver.source, 'until': end, 'since_at': start,
        **outcomes.compared(counted, left_out, lambda host, decision: (
            realised.overload(policies[host], series, instances[host],
                              decision.decided_at, end)))}


def print_answer(answer: dict) -> None:
    """Print the answer as text."""
    terminal.print_line(
        f'Hosts that received an instance, measured since by '
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

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('--telemetry', metavar='DRIVER',
                            help='name of a telemetry driver (default: the '
                                 'options of vswitch-modeler)')
        context.add_file_arguments(parser)
        context.add_times(parser, 'decisions', 'all, until now')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the result of :func:`run`."""
        conf = self.all_options
        driver = (wiring.configured_driver(conf)
                  if arguments.telemetry is None
                  else context.telemetry_driver(arguments, conf))
        with terminal.progress('reading traffic') as progress:
            return run(arguments, conf, self.store, driver, progress)

    def describe(self, answer: dict) -> None:
        """Print the groups and the remarks."""
        print_answer(answer)
