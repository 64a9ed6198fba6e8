# SPDX-License-Identifier: Apache-2.0
"""Keeps a Snapshot of the store fresh, in a thread of its own.

No request waits for a database. Problems of the store are returned with the
snapshot.
"""

import math
import os
import threading
import time

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.store import snapshot

__all__ = ['SnapshotSource']


class SnapshotSource:
    """The latest snapshot of a store, refreshed in the background.

    Making one starts nothing; the thread starts with the first
    :meth:`current` in a process, so that it is not lost by a fork.

    :param store: Store, or anything with ``read_changes(since)``
    :param refresh_seconds: how often the store is looked at, > 0
    :param first_wait_seconds: longest the first callers wait for a snapshot
    :param max_age_seconds: an older generation is reported as stale; 0: never
    :param clock: callable, seconds UTC
    :param prepare: callable(Snapshot), run in the thread before a snapshot
        becomes the current one
    :param tidy: callable(), run in the thread each time the store was looked
        at
    """

    def __init__(self, store, refresh_seconds, first_wait_seconds,
                 max_age_seconds, clock, prepare=None, tidy=None):
        self._store = store
        self._refresh_seconds = refresh_seconds
        self._first_wait_seconds = first_wait_seconds
        self._max_age_seconds = max_age_seconds
        self._clock = clock
        self._prepare = prepare
        self._tidy = tidy
        self._lock = threading.Lock()
        # One at a time: each prepares what follows from the last one.
        self._refreshing = threading.Lock()
        self._thread = None
        self._pid = None
        self._wait_until = None
        self._tried = threading.Event()
        self._stop = threading.Event()
        self._snapshot = snapshot.Snapshot()
        self._error = None

    def current(self):
        """Return (snapshot, problem).

        :returns: the latest Snapshot that could be read, an empty one when
            none ever could, and None or what is wrong with the store in words
        """
        if self._pid != os.getpid():
            self._start()
        # Those that come together with the first one wait with it.
        if not self._tried.is_set():
            self._tried.wait(self._wait_until - time.monotonic())
        snapshot, error = self._snapshot, self._error
        if error is None and not self._tried.is_set():
            error = (f'it has not answered in the '
                     f'{self._first_wait_seconds:g} s that a first request '
                     f'waits')
        # Generation 0 is a new store, in which nothing can be old.
        if (error is None and self._max_age_seconds
                and snapshot.generation.number):
            age = self._clock() - snapshot.generation.published_at
            if age > self._max_age_seconds:
                error = (f'its last generation is {math.ceil(age)} s old, '
                         f'wanted at most {self._max_age_seconds:g} s: is '
                         f'the modeler running?')
        return snapshot, error

    def refresh(self):
        """Look at the store now; what goes wrong is told by `current`."""
        with self._refreshing:
            self._refresh()
        self._tried.set()

    def _refresh(self):
        try:
            since = self._snapshot.generation
            changes = self._store.read_changes(since)
            if since is None or changes.generation != since:
                snapshot = self._snapshot.updated(changes)
                if self._prepare is not None:
                    self._prepare(snapshot)
                self._snapshot = snapshot
            if self._tidy is not None:
                self._tidy()
            self._error = None
        except exceptions.VSwitchError as error:
            self._error = str(error)
        except Exception as error:
            # A thread that dies would leave the scheduler on old models
            # without a word.
            self._error = f'unexpected {type(error).__name__}: {error}'

    def stop(self):
        """End the thread, if there is one."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self):
        with self._lock:
            # A thread does not survive a fork.
            if self._pid != os.getpid():
                self._wait_until = (time.monotonic()
                                    + self._first_wait_seconds)
                self._thread = threading.Thread(
                    target=self._run, name='vswitch-snapshot', daemon=True)
                self._thread.start()
                self._pid = os.getpid()

    def _run(self):
        while True:
            self.refresh()
            if self._stop.wait(self._refresh_seconds):
                return
