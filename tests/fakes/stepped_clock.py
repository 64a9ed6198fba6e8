# SPDX-License-Identifier: Apache-2.0
"""A clock of the day that a test steps while processes run.

A library that these processes load before the C library changes what they
read as the clock of the day. The monotonic clock, and every wait by it, stay
those of the system, as they do when somebody sets the clock of a machine.
(libfaketime 0.9.10 changes waits as well: a condition of Python does not end
after the clock was set back, and its mutex can be held for ever in a process
that forks.)
"""

import os
import pathlib
import shutil
import struct
import subprocess

_SOURCE = pathlib.Path(__file__).with_suffix('.c')
_COMPILE_SECONDS = 60

#: Without it there is no SteppedClock. Its package is build-essential.
COMPILER = shutil.which('cc')


class SteppedClock:
    """Compiles the library; no step is made yet.

    :param folder: for the library and the step; the processes need it as long
        as they run
    :ivar environment: variables of a process with this clock
    """

    def __init__(self, folder):
        library = os.path.join(folder, 'stepped_clock.so')
        subprocess.run([COMPILER, '-shared', '-fPIC', '-O2', '-Wall', '-o',
                        library, _SOURCE], check=True,
                       timeout=_COMPILE_SECONDS)
        self._step = os.path.join(folder, 'step')
        self.environment = {'LD_PRELOAD': library,
                            'VSWITCH_CLOCK_STEP': self._step}
        with open(self._step, 'wb') as stream:
            stream.write(struct.pack('=q', 0))

    def step(self, seconds):
        """Put the clock ahead of the system's, or back if negative."""
        # Never shortened: the processes have the file in their memory.
        with open(self._step, 'r+b') as stream:
            write(stream, seconds)


def write(stream, seconds):
    """Write a step to the file of a clock, also from one of its processes."""
    stream.write(struct.pack('=q', seconds))
