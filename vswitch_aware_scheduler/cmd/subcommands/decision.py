# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage decision: prints how schedulers judged the last requests."""

import argparse
import contextlib
import math
import time

from vswitch_aware_scheduler.admission import explanation
from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import instances
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.fleet import outcomes

__all__ = ['List', 'Show', 'Summary', 'find', 'row']

_column = base.Column


def row(decision) -> dict:
    """Return a Decision as a row of JSON."""
    nearest = decision.nearest[0] if decision.nearest else None
    return {**vars(decision), 'closest': nearest and nearest['host'],
            'summary': explanation.line(
                decision.hosts, decision.refused,
                nearest and explanation.HostRefusal(**nearest))}


def find(store, text: str) -> list:
    """Return the Decisions on an instance or a request, the newest first.

    :param text: uuid or name of an instance, id of a request, or id of a
        decision
    :raises InvalidInput: if there are none
    """
    decisions = store.decisions(request_id=text) \
        or store.decisions(instance_uuid=text.lower()) \
        or store.decisions(decision_id=text.lower())
    if not decisions:
        with contextlib.suppress(exceptions.InvalidInput):
            decisions = store.decisions(
                instance_uuid=instances.find_uuid(store, text))
    if not decisions:
        raise exceptions.NotInList(
            thing='decision', value=text, expected='the uuid of an instance '
            'or the id of a request', command='vswitch-manage decision list')
    return decisions


class List(base.List):
    """Print the last decisions of all schedulers."""

    rows_key = 'decisions'
    below = 'decisions, the newest first'
    filters = ('host', 'project')
    columns = [
        _column('DECIDED', 'decided_at_iso'),
        _column('INSTANCE', 'instance_uuid'), _column('FLAVOR', 'flavor'),
        _column('OUTCOME', 'outcome'), _column('HOST', 'host'),
        _column('HOSTS', 'hosts'), _column('ADMITTED', 'admitted'),
        _column('OBSERVED', 'observed'),
        _column('REFUSED', 'refused', lambda refused: ', '.join(
            f'{count} {check}' for check, count in refused.items()) or '-')]

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the decisions, the newest first."""
        query = {'host': arguments.host, 'project': arguments.project}
        # If the list is in order of time, only the printed rows are read.
        limit = None if arguments.sort_columns else arguments.limit
        decisions = self.store.decisions(limit=limit, **query)
        if len(decisions) == limit:
            self.total = self.store.count_decisions(**query)
        return {'decisions': list(map(row, decisions))}


class Show(base.Show):
    """Print which hosts were accepted and refused for an instance.

    JSON has all decisions on the instance or request, the newest first. Other
    formats have the newest one.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument(
            'what', metavar='SERVER|REQUEST',
            help='uuid or name of an instance, or id of a request of Nova')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the decisions on an instance or a request."""
        return {'decisions': [
            row(decision) for decision in find(self.store, arguments.what)]}

    def shown(self, answer: dict) -> dict:
        """Return the newest decision."""
        return answer['decisions'][0]


class Summary(base.Command):
    """Print what enforcement would have changed, and whether rightly."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        context.add_times(parser, 'decisions', 'all, until now')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the result of :func:`.outcomes.summary`."""
        end = math.inf if arguments.end is None else arguments.end
        return outcomes.summary(self.store, (
            decision for decision in self.store.decisions(
                since=arguments.start) if decision.decided_at < end),
            time.time())

    def describe(self, answer: dict) -> None:
        """Print the summary in sentences, and the remarks."""
        for sentence in outcomes.sentences(answer):
            terminal.print_line(sentence)
        terminal.print_remarks('Remarks', answer['remarks'])
