# SPDX-License-Identifier: Apache-2.0
"""The command vswitch-calibrate, and what it needs of a machine."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from tests.integration import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import machine

COMMAND = [sys.executable, '-m', 'vswitch_aware_scheduler.lab.cmd.calibrate']


def namespaces():
    return set(subprocess.run(
        [machine.find_program('ip'), 'netns', 'list'], capture_output=True,
        text=True).stdout.split())


def interfaces():
    return sorted(os.listdir('/sys/class/net'))


def run(state, *words):
    """Return the CompletedProcess of the command.

    :param state: path of the folder where it writes down what it makes
    """
    return subprocess.run(
        [*COMMAND, *words, '--state-dir', str(state)],
        capture_output=True, text=True, timeout=240)


class Programs(base.SubTests):
    """Mixin of a test case that is skipped where a program is not there.

    In continuous integration, which sets the environment variable CI, that is
    a failure.
    """

    def need(self, *programs):
        if os.geteuid() != 0:
            self.skipTest('not root: no network namespaces')
        for program in programs:
            try:
                machine.need_program(program)
            except exceptions.VSwitchError as error:
                if os.environ.get('CI'):
                    raise
                self.skipTest(str(error))


class Calibrator(Programs):
    """Mixin of a test case that measures switches of this machine."""

    def prepare(self):
        """Find what a measurement needs and remember what there is."""
        self.need('ip', 'iperf3')
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.root = pathlib.Path(directory)
        self.state = self.root / 'state'
        self.before = namespaces(), interfaces()
        # By then nova's test cases have no attributes any more.
        self.addCleanup(run, self.state, 'clean')

    def command(self, *words):
        return run(self.state, *words)

    def _possible(self, switch, encapsulation):
        if switch.startswith('ovs'):
            self.need('ovs-vsctl', 'ovs-vswitchd')
        for line in json.loads(self.command('check', '--json').stdout)[
                'topologies']:
            if (line['switch'], line['encapsulation']) == (
                    switch, encapsulation) and not line['possible']:
                self.skipTest(line['reason'])

    def measure(self, switch, encapsulation, *words):
        """Return the JSON of ``local``; it leaves nothing behind."""
        self._possible(switch, encapsulation)
        done = self.command(
            'local', '--switch', switch, '--encapsulation', encapsulation,
            '--json', *words)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assert_nothing_left()
        return json.loads(done.stdout)

    def assert_nothing_left(self):
        self.assertEqual(self.before, (namespaces(), interfaces()))
        self.assertEqual([], list(self.state.iterdir()))
