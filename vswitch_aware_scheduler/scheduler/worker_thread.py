# SPDX-License-Identifier: Apache-2.0
"""A daemon thread that repeats one step, in each process that uses it."""

from collections import abc
import os
import threading
import time

__all__ = ['WorkerThread']

#: Default of ``least_seconds``.
_LEAST_SECONDS = 0.02


class WorkerThread:
    """Repeats a step until it is stopped.

    The thread starts with the first :meth:`start` in a process, because a
    thread does not survive a fork.

    :param step: returns the seconds until the next step; it handles its own
        errors
    :param forget: run when the thread starts in a process; it discards state
        of the parent process
    :param least_seconds: shortest time between two steps that :meth:`wake`
        causes
    """

    def __init__(self, name: str, step: abc.Callable[[], float],
                 forget: abc.Callable[[], None] | None = None,
                 least_seconds: float = _LEAST_SECONDS) -> None:
        self._name = name
        self._step = step
        self._forget = forget
        self._least_seconds = least_seconds
        self._lock = threading.Lock()
        self._pid: int | None = None

    def start(self) -> None:
        """Start the thread, unless it runs in this process."""
        if self._pid == os.getpid():
            return
        with self._lock:
            if self._pid == os.getpid():
                return
            if self._forget is not None:
                self._forget()
            self._began_at = float('-inf')
            self._wake = threading.Event()
            self._stopped = threading.Event()
            self._thread = threading.Thread(
                target=self._run, name=self._name, daemon=True)
            self._thread.start()
            # Not earlier: if no thread can be started, the next call retries.
            self._pid = os.getpid()

    def wake(self, older_than_seconds: float = 0.0) -> None:
        """Run the step now, unless one began less than these seconds ago."""
        if self._pid == os.getpid() and \
                time.monotonic() - self._began_at >= older_than_seconds:
            self._wake.set()

    def stop(self, wait_seconds: float | None = None) -> None:
        """End the thread after its current step; None waits for ever."""
        if self._pid == os.getpid():
            self._stopped.set()
            self._wake.set()
            if self._thread is not threading.current_thread():
                self._thread.join(wait_seconds)

    def _run(self):
        while True:
            # In this order, so that a wake-up by stop() is never cleared.
            self._wake.clear()
            if self._stopped.is_set():
                return
            self._began_at = time.monotonic()
            seconds = self._step()
            # Frequent calls of wake() cause a limited number of steps.
            self._stopped.wait(self._least_seconds)
            self._wake.wait(max(0.0, seconds - self._least_seconds))
