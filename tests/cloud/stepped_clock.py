# SPDX-License-Identifier: Apache-2.0
"""Importing it lets a process run under libfaketime, and changes no other.

time.sleep() of Python 3.11 calls clock_nanosleep() with an absolute time of
the monotonic clock, which libfaketime 0.9.10 answers with EINVAL.

An adapter of keystoneauth1 5 sends nothing before the time of its making, by
the clock of the day: a nova-compute or nova-scheduler whose clock is set back
to a time before its start asks placement for nothing until that time has come
again, with or without this project. Here the services have run for minutes,
so their adapters go by the monotonic clock.

libfaketimeMT holds a mutex while a thread asks for the time, also in poll(),
and does not release it in a process that is forked meanwhile: the new process
waits for ever when it asks for the time. A process that forked beside threads
that poll met it within 100 s (``gdb -p PID -ex bt`` shows time_time() in
pthread_mutex_lock()). A scheduler forks its workers when it starts; if one of
them answers nothing from its start on, look for this first.
"""

import os
import threading
import time
import types

from keystoneauth1 import _fair_semaphore


def _sleep(seconds):
    if seconds < 0:
        raise ValueError('sleep length must be non-negative')
    if seconds:
        threading.Event().wait(seconds)
    else:
        os.sched_yield()


if 'FAKETIME_TIMESTAMP_FILE' in os.environ:
    time.sleep = _sleep
    _fair_semaphore.time = types.SimpleNamespace(
        time=time.monotonic, sleep=_sleep)
