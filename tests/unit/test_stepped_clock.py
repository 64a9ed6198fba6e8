# SPDX-License-Identifier: Apache-2.0
"""The clock of the tests that step it while services run."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

from tests.fakes import stepped_clock

#: For each line that it reads, it prints what its clocks say, how long waits
#: of .2 s took, and what the clock of a process that it forks says.
_PROCESS = '''
import datetime, json, os, sys, threading, time
for _ in sys.stdin:
    began = time.monotonic()
    threading.Event().wait(.2)
    time.sleep(.2)
    readings = [time.time(), datetime.datetime.now().timestamp(), began,
                time.monotonic() - began]
    if not os.fork():
        print(json.dumps([*readings, time.time()]), flush=True)
        os._exit(0)
    os.wait()
'''


@unittest.skipUnless(stepped_clock.COMPILER, 'no compiler for C is installed')
class SteppedClockTestCase(unittest.TestCase):

    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.clock = stepped_clock.SteppedClock(folder)
        self.process = subprocess.Popen(
            [sys.executable, '-c', _PROCESS], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
            env={**os.environ, **self.clock.environment})
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(self.process.stdin.close)

    def test_a_step_moves_the_clock_of_the_day_alone(self):
        for step in (0, 3600, -3600, 10 ** 9, 0):
            self.clock.step(step)
            began, now = time.monotonic(), time.time()
            self.process.stdin.write('\n')
            self.process.stdin.flush()
            day, date, monotonic, waited, forked = json.loads(
                self.process.stdout.readline())
            elapsed = time.monotonic() - began
            for reading in (day, date, forked):
                # The C library's clock of date.now() may be a tick behind.
                self.assertLessEqual(now + step - .1, reading)
                self.assertLessEqual(reading, now + step + elapsed + .1)
            self.assertLessEqual(began, monotonic)
            self.assertLessEqual(monotonic, began + elapsed)
            self.assertLessEqual(.4, waited)
            self.assertLessEqual(waited, elapsed)
