# SPDX-License-Identifier: Apache-2.0
"""One request after the other, from judging the hosts to placing."""

import threading
import time

__all__ = ['Turn']


class Turn:
    """Lets threads go one by one; never for longer than it is worth.

    A thread that does not give its turn back loses it after a while.

    :param seconds: longest time that one thread keeps others waiting
    """

    def __init__(self, seconds):
        self._seconds = seconds
        self._changed = threading.Condition()
        self._owner = None
        self._ends = 0.0

    def take(self):
        """Wait for this thread's turn, which lasts from when it has it."""
        thread = threading.get_ident()
        with self._changed:
            while self._owner not in (None, thread):
                left = self._ends - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._owner = thread
            self._ends = time.monotonic() + self._seconds

    def give(self):
        """Let another thread go, if it was this one's turn."""
        with self._changed:
            if self._owner == threading.get_ident():
                self._owner = None
                self._changed.notify()
