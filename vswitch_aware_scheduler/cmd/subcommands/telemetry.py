# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage telemetry: says what telemetry has and what is wrong."""

import time

from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler.telemetry import check

__all__ = ['SUMMARY', 'add_arguments']

#: What it does.
SUMMARY = 'print what telemetry has, and what is wrong with it'


def add_arguments(parser):
    """Add the sub-commands of ``telemetry``.

    :param parser: :class:`~vswitch_aware_scheduler.cmd.deferred.Parser`
    """
    parser.add_command('check', 'print what telemetry has and what is wrong',
                       _check)


def _check(arguments, conf):
    driver = wiring.configured_driver(arguments.all_options)
    findings = check.examine(
        driver, time.time(), wiring.instances_of_nova(
            context.open_store(conf)))
    if arguments.output_format in (None, 'table'):
        for line in findings.lines():
            terminal.print_line(line)
    else:
        output.print_answer(arguments, findings.to_dict())
    return 1 if findings.problems else 0
