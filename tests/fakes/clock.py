# SPDX-License-Identifier: Apache-2.0
"""Clocks that a test sets."""

import time

NOW = 1_700_000_000.0


class Clock:
    """A clock that stands still, and can be pickled."""

    def __init__(self, now=NOW):
        self.now = now

    def __call__(self):
        return self.now


class RunningClock:
    """The clock of the system, which a test can put forward."""

    def __init__(self):
        self.ahead = 0.0

    def __call__(self):
        return time.time() + self.ahead

    def monotonic(self):
        return time.monotonic() + self.ahead
