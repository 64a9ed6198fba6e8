# SPDX-License-Identifier: Apache-2.0
"""A process whose threads are eventlet's, as nova-scheduler's before 33."""

import pathlib
import subprocess
import sys
import textwrap

_ROOT = pathlib.Path(__file__).resolve().parents[2]

#: Many modules are imported before eventlet changes the standard library.
_PRELUDE = '''
import logging.config
import socketserver
import eventlet
eventlet.monkey_patch()
'''

#: Longest time of a script. One that waits for itself never ends.
_SECONDS = 120


def run(script, *arguments):
    """Return what a script prints; its arguments are in sys.argv[1:].

    :param script: Python source, may be indented
    :raises subprocess.SubprocessError: if it fails, or does not end
    """
    done = subprocess.run(
        [sys.executable, '-c', _PRELUDE + textwrap.dedent(script),
         *map(str, arguments)], cwd=_ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, timeout=_SECONDS)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout
