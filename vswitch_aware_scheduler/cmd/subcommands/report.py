# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage report: writes the fleet as an HTML page.

``vswitch-report`` serves the same page: cmd/report.py.
"""

import argparse
from collections.abc import Callable
import dataclasses
import os
import tempfile
import time
import typing

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd.subcommands import fleet
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.report import contents as report_contents
from vswitch_aware_scheduler.report import page
from vswitch_aware_scheduler import store

__all__ = ['DETAILS', 'Report', 'STALE_HOURS', 'limits', 'make_report',
           'read_contents', 'write_file']

#: Decisions of schedulers that are older are not shown; and the maximum number
#: of decisions.
_DECISION_SECONDS = 7 * 86400.0
_MOST_DECISIONS = 50_000

#: Hosts in detail, and hours without a sample that make a model stale.
DETAILS, STALE_HOURS = 10, 24.0

#: Maximum number of instances whose model is drawn on the page of a host.
_HOST_DIAGRAMS = 100


class Report(base.Command):
    """Write an HTML page with the load and the risk of each host."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument('--html', metavar='FILE', required=True,
                            help='write the page to this file, which only '
                                 'its owner can read; - for standard output'
                            ).complete = terminal.FILE
        parser.add_argument('--details', metavar='N', type=int,
                            default=DETAILS,
                            help='number of hosts that are shown in detail: '
                                 'the hosts with the largest risk (default: '
                                 f'{DETAILS})')
        parser.add_argument('--stale-hours', metavar='H', type=float,
                            default=STALE_HOURS,
                            help='age of the last sample, in hours, above '
                                 'which a model is shown as stale (default: '
                                 f'{STALE_HOURS:g})')

    def take_action(self, arguments: argparse.Namespace) -> typing.Any:
        """Write the page; print the summary unless the page is printed."""
        if arguments.html == '-':
            self.answer(arguments)
        else:
            super().take_action(arguments)

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Write the page. Return the summary as plain data."""
        checks.check('--details', arguments.details, checks.whole(0, 1000))
        checks.check('--stale-hours', arguments.stale_hours, checks.number())
        page.require()
        with terminal.progress('reading hosts') as progress:
            report = make_report(
                read_contents(self.conf, self.store, progress), self.store,
                limits(arguments.details, arguments.stale_hours))
        text = page.Page().render(report)
        if arguments.html == '-':
            terminal.print_text(text)
        else:
            write_file(arguments.html, text)
        return {'file': arguments.html, 'bytes': len(text.encode()),
                'summary': report['summary']}

    def describe(self, answer: dict) -> None:
        """Print what was written."""
        summary = answer['summary']
        terminal.print_line(
            f'Wrote {answer["file"]}: {summary["hosts"]} hosts, '
            f'{summary["above"]} of them above their limit, '
            f'{summary["instances"]} instances.')


def write_file(path: str, text: str) -> None:
    """Write a file atomically: a reader sees the old or the new page."""
    directory = os.path.dirname(path) or '.'
    # Mode 0600, because the page contains names of tenants.
    handle, temporary = tempfile.mkstemp(dir=directory, prefix='.report-')
    try:
        with open(handle, 'w', encoding='utf-8',
                  errors='replace') as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def limits(details: int, stale_hours: float) -> report_contents.Limits:
    """Return the Limits of two options."""
    return report_contents.Limits(details=details,
                                  stale_seconds=3600.0 * stale_hours)


def read_contents(group, target: store.Store, progress: Callable | None = None
                  ) -> report_contents.Contents:
    """Return what a report shows of a store.

    :param group: the options of [vswitch_scheduler]
    :param progress: callable(done, total)
    """
    view, head = fleet.open_view(target, group)
    return report_contents.Contents(view, progress, head['remarks'])


def make_report(contents: report_contents.Contents, target: store.Store,
                limits: report_contents.Limits,
                host: str | None = None) -> dict:
    """Return the report of a fleet or of one host, as plain data.

    :param target: for the last decisions
    """
    now = time.time()
    if host is not None:
        # The page of one host has enough room for all its models.
        limits = dataclasses.replace(limits, diagrams=_HOST_DIAGRAMS)
    return contents.report(now, limits, () if host is not None else
                           target.decisions(since=now - _DECISION_SECONDS,
                                            limit=_MOST_DECISIONS), host)
