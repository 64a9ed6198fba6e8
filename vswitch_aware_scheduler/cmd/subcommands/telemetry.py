# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage telemetry: says what telemetry has and what is wrong."""

import argparse
import time

from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler.telemetry import check

__all__ = ['Check']


class Check(base.Command):
    """Print what telemetry has and what is wrong."""

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the findings; problems are the exit status 1."""
        self._findings = check.examine(
            wiring.configured_driver(self.all_options), time.time(),
            wiring.instances_of_nova(self.store))
        self.status = int(bool(self._findings.problems))
        return self._findings.to_dict()

    def describe(self, answer: dict) -> None:
        """Print the findings as sentences."""
        for line in self._findings.lines():
            terminal.print_line(line)
