# SPDX-License-Identifier: Apache-2.0
"""Importing it lets a process run under libfaketime, and changes no other.

time.sleep() of Python 3.11 calls clock_nanosleep() with an absolute time of
the monotonic clock, which libfaketime 0.9.10 answers with EINVAL.
"""

import os
import threading
import time


def _sleep(seconds):
    if seconds < 0:
        raise ValueError('sleep length must be non-negative')
    if seconds:
        threading.Event().wait(seconds)
    else:
        os.sched_yield()


if 'FAKETIME_TIMESTAMP_FILE' in os.environ:
    time.sleep = _sleep
