# SPDX-License-Identifier: Apache-2.0
"""Keeps a Snapshot of the store up to date, in a background thread.

No request waits for a database. The age of a generation is measured with a
monotonic clock from the reading that found it. Only the first reading of a
process compares the time that the modeler has written with the clock of this
machine. Hence a clock that is set makes no generation stale.
"""

from collections import abc
import math
import threading
import time
import typing

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.scheduler import worker_thread
from vswitch_aware_scheduler.store import snapshot

__all__ = ['SnapshotSource']


class SnapshotSource(worker_thread.WorkerThread):
    """The latest snapshot of a store, refreshed in the background.

    :param store: Store, or anything with ``read_changes(since)``
    :param max_age_seconds: an older generation is reported as stale; 0: never
    :param prepare: run in the thread before a snapshot becomes the current one
    :param tidy: run in the thread after each reading of the store
    """

    def __init__(self, store: typing.Any, refresh_seconds: float,
                 first_wait_seconds: float, max_age_seconds: float,
                 clock: abc.Callable[[], float],
                 prepare: abc.Callable[[snapshot.Snapshot], None]
                 = lambda new: None,
                 tidy: abc.Callable[[], None] = lambda: None,
                 monotonic: abc.Callable[[], float] = time.monotonic
                 ) -> None:
        super().__init__('vswitch-snapshot', self._refresh_and_wait,
                         self._begin_wait)
        self._store = store
        self._refresh_seconds = refresh_seconds
        self._first_wait_seconds = first_wait_seconds
        self._max_age_seconds = max_age_seconds
        self._clock = clock
        self._monotonic = monotonic
        self._prepare = prepare
        self._tidy = tidy
        # One refresh at a time, because each builds on the previous snapshot.
        self._refreshing = threading.Lock()
        self._wait_until = 0.0
        self._tried = threading.Event()
        self._snapshot: typing.Any = snapshot.Snapshot()
        self._published_at = 0.0     # of its generation, monotonic
        self._read_at = -math.inf    # start of the last reading, monotonic
        self._error: str | None = None

    def current(self) -> tuple[snapshot.Snapshot, str | None]:
        """Return the latest snapshot, maybe empty, and the store's problem."""
        self.start()
        # Callers that arrive while the first caller waits also wait.
        tried = self._tried.wait(self._wait_until - time.monotonic())
        snapshot, error = self._snapshot, self._error
        if error is None and not tried:
            error = (f'it has not answered in the '
                     f'{self._first_wait_seconds:g} s that a first request '
                     f'waits')
        # Generation 0 is a new store: nothing in it can be stale.
        if (error is None and self._max_age_seconds
                and snapshot.generation.number):
            age = self._monotonic() - self._published_at
            if age > self._max_age_seconds:
                error = (f'its last generation is {math.ceil(age)} s old; '
                         f'expected at most {self._max_age_seconds:g} s: is '
                         f'the modeler running?')
        return snapshot, error

    def refresh(self) -> None:
        """Read the store now. After a failure, `current` returns the error."""
        with self._refreshing:
            self._refresh()
        self._tried.set()

    def _refresh(self):
        try:
            since, began = self._snapshot.generation, self._monotonic()
            changes = self._store.read_changes(since)
            if since is None or changes.generation != since:
                published_at = began - max(
                    0.0, self._clock() - changes.generation.published_at)
                if since is not None \
                        and changes.generation.number > since.number:
                    # The previous reading did not find this generation.
                    published_at = max(published_at, self._read_at)
                snapshot = self._snapshot.updated(changes)
                self._prepare(snapshot)
                self._published_at, self._snapshot = published_at, snapshot
            self._read_at = began
            self._tidy()
            self._error = None
        except exceptions.VSwitchError as error:
            self._error = str(error)
        except Exception as error:
            # If the thread ended, the scheduler would use old models without a
            # message.
            self._error = f'unexpected {type(error).__name__}: {error}'

    def _begin_wait(self):
        self._wait_until = time.monotonic() + self._first_wait_seconds

    def _refresh_and_wait(self):
        self.refresh()
        return self._refresh_seconds
