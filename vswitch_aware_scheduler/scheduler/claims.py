# SPDX-License-Identifier: Apache-2.0
"""Claims hosts for requests, serialised with the workers of all schedulers.

A background thread writes the claims of a worker to the store, in transactions
that exclude those of other workers: it first reads their newer claims and then
decides on its own. A request waits for this, for a limited time. If the store
does not answer, the worker decides alone, and the thread writes the claims
later. This module uses no Nova object and judges no host
(reference/claims.rst).
"""

import collections
from collections import abc
import dataclasses
import itertools
import math
import random
import secrets
import threading
import time
import typing

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.scheduler import worker_thread
from vswitch_aware_scheduler import store

__all__ = ['Claims', 'Pending']

LOG = logs.get_logger(__name__)

#: Seconds until the next attempt after a failure.
_AGAIN_SECONDS = 1.0

#: Pause in seconds before a transaction that was interrupted is repeated.
_REPEAT_SECONDS = 0.002, 0.02

#: Longest time to wait for the first attempt to read claims, in seconds.
_FIRST_SECONDS = 2.0
_PURGE_SECONDS = 30.0

#: Maximum number of claims and of withdrawals that wait while the store cannot
#: be written. The oldest are dropped. Number of claims in a transaction.
_MOST_KEPT = 10_000
_MOST_WRITTEN = 200


@dataclasses.dataclass(eq=False)
class Pending:
    """A claim of this worker that may not be in the store yet.

    :ivar judge: returns, with the lock, whether the host has room; None if the
        host must not be refused
    :ivar settled: whether the store has the claim, or the host is refused
    :ivar missed: whether the worker has decided without the store
    :ivar attempted: whether a transaction has contained the claim
    """

    stored: store.StoredClaim
    judge: abc.Callable[[], bool] | None = None
    made_at: float = dataclasses.field(default_factory=time.monotonic)
    admitted: bool | None = None
    settled: bool = False
    missed: bool = False
    attempted: bool = False
    withdrawn: bool = False
    done: threading.Event = dataclasses.field(default_factory=threading.Event)

    def age(self) -> float:
        """Return the seconds since the claim was made."""
        return time.monotonic() - self.made_at

    def current(self) -> store.StoredClaim:
        """Return the StoredClaim as it is written now."""
        return dataclasses.replace(
            self.stored, age_seconds=self.age(), missed=self.missed,
            waited_seconds=0.0 if self.missed else self.age())


class Claims(worker_thread.WorkerThread):
    """The claims of one worker. The constructor opens nothing.

    :param seconds: seconds between two readings of the claims of others, > 0
    :param patience_seconds: longest time that a request waits for the store;
        0: requests do not wait
    :param receive: receives the claims and withdrawals of other workers
    :param count: counts an admitted StoredClaim, or no longer counts it;
        called with the lock
    :ivar counts: numbers of events since the start of the process, as
        :mod:`.metrics` describes them
    """

    def __init__(self, store: typing.Any, seconds: float,
                 patience_seconds: float, lock: typing.Any,
                 receive: abc.Callable[[list[typing.Any]], None],
                 count: abc.Callable[[typing.Any, bool], None],
                 claimed_by: str,
                 report: typing.Any) -> None:
        super().__init__('vswitch-claims', self.step, self._forget,
                         least_seconds=0.0)
        self._store = store
        self._seconds = seconds
        self._patience_seconds = patience_seconds
        self._lock = lock
        self._receive = receive
        self._count = count
        self._claimed_by = claimed_by
        self._report = report
        self._forget()

    def _forget(self):
        self.counts = dict.fromkeys(
            ('claims_made', 'claim_conflicts', 'claim_misses',
             'claims_over_limit', 'claims_elsewhere',
             'requests_refused_by_withdrawn_claims'), 0)
        self._tried = threading.Event()
        self._author = secrets.token_hex(8)
        self._tokens = itertools.count(1)
        self._unwritten = collections.deque(maxlen=_MOST_KEPT)
        self._withdrawn = collections.deque(maxlen=_MOST_KEPT)
        self._last_read = None   # ClaimsSeen
        self._purge_at, self._purge_to = -math.inf, 0
        # Whether the store has answered since a request waited in vain.
        self._answers = True

    def wait_until_read(self) -> None:
        """Start, and wait for the claims of others, for a limited time."""
        self.start()
        self._tried.wait(_FIRST_SECONDS)

    # Called in the thread of a request, without the lock.

    def claim(self, judge: abc.Callable[[], bool] | None, waits: bool,
              **values: typing.Any) -> Pending:
        """Claim a host for an instance, or find that it has no room."""
        pending = Pending(store.StoredClaim(
            token=f'{self._author}-{next(self._tokens)}',
            claimed_by=self._claimed_by, **values), judge)
        self._unwritten.append(pending)
        # The first request may be for a forced host, which no plugin sees.
        self.start()
        self.wake()
        if waits and self._answers and self._patience_seconds:
            if not pending.done.wait(self._patience_seconds):
                self._answers = False
                self._report('claims', (
                    f'the store has not accepted a claim within '
                    f'{self._patience_seconds:g} s; this worker claims hosts '
                    f'without waiting until the store answers'))
        with self._lock:
            if not pending.settled:
                # The thread may have decided, but not committed yet.
                pending.missed = True
                self.counts['claim_misses'] += 1
                if pending.admitted is None:
                    self._decide(pending)
            self.counts['claims_made'] += 1
            self.counts['claim_conflicts'] += not pending.admitted
        return pending

    def withdraw(self, pending: Pending) -> None:
        """Withdraw a claim, which the caller no longer counts."""
        with self._lock:
            pending.withdrawn = True
            # A transaction whose answer was lost may have committed.
            if pending.attempted:
                self._withdrawn.append(pending)
        self.wake()

    def _decide(self, pending):
        admitted = self._has_room(pending)
        if admitted or pending.admitted:
            self._count(pending.stored, admitted)
        pending.admitted = admitted

    def _has_room(self, pending):
        try:
            has_room = pending.judge is None or pending.judge()
            self._report('judging of claims', None)
        except Exception as error:
            # An error in one claim does not affect the others.
            LOG.debug('vswitch: judging a claim failed', exc_info=True)
            self._report('judging of claims', (
                f'{type(error).__name__}: {error}; hosts are claimed unjudged'
            ))
            return True
        return has_room

    # Called in the thread.

    def step(self) -> float:
        """Write the own claims and withdrawals, or read those of others."""
        problem = None
        if self._unwritten or self._withdrawn:
            try:
                self._write()
            except Exception as error:
                # If the thread ended, this process would exchange no claims.
                problem = self._problem(error)
                self._answers = False
                for pending in list(self._unwritten):
                    # Its request decides alone.
                    pending.done.set()
        if problem is not None or not self._tried.is_set() \
                or not self._unwritten:
            try:
                # A store that cannot be written may still be read.
                self._read()
            except Exception as error:
                problem = self._problem(error)
        self._report('claims of other workers', problem)
        self._tried.set()
        if problem is not None:
            return _AGAIN_SECONDS
        return 0.0 if self._unwritten or self._withdrawn else self._seconds

    @staticmethod
    def _problem(error):
        return (f'{type(error).__name__}: {error}; this worker claims hosts '
                f'without asking the other workers')

    def _write(self):
        """Make one transaction, repeated while its requests may wait."""
        limit = time.monotonic() + max(self._patience_seconds, _AGAIN_SECONDS)
        while True:
            try:
                return self._write_once()
            except exceptions.StoreInterrupted:
                # Nodes of a Galera cluster end all but one of the transactions
                # that they get at the same time, and a server may fail over.
                if time.monotonic() > limit:
                    raise
            time.sleep(random.uniform(*_REPEAT_SECONDS))

    def _write_once(self):
        began, over_limit = time.monotonic(), 0
        queued = list(itertools.islice(self._unwritten, _MOST_WRITTEN))
        withdrawn = list(self._withdrawn)
        with self._store.claiming(self._last_read) as (changes, write):
            outdated, claims = self._take(changes), {}
            for pending in queued:
                with self._lock:
                    if pending.withdrawn or pending in outdated:
                        continue
                    if pending.missed:
                        over_limit += bool(pending.admitted) \
                            and not self._has_room(pending)
                    elif not pending.settled:
                        self._decide(pending)
                        if not pending.admitted and pending.attempted:
                            # The store may have it from an attempt before.
                            self._withdrawn.append(pending)
                    pending.attempted = True
                    pending.settled = not pending.admitted
                if pending.settled:
                    pending.done.set()
                else:
                    claims[pending.stored.instance_uuid] = pending.current()
            write(list(claims.values()),
                  [pending.stored for pending in withdrawn])
        self._last_read = changes.seen
        for queue, finished in ((self._unwritten, queued),
                                (self._withdrawn, withdrawn)):
            for pending in finished:
                pending.settled = True
                pending.done.set()
                # A full queue may have dropped it.
                if queue and queue[0] is pending:
                    queue.popleft()
        self.counts['claims_over_limit'] += over_limit
        if over_limit:
            LOG.warning('vswitch: hosts of %d claims that did not wait for '
                        'the store are above their limit', over_limit)
        self._answers = True
        # Not while the store is slow: the log would repeat it.
        if time.monotonic() - began <= max(self._patience_seconds, .01):
            self._report('claims', None)

    def _read(self):
        changes = self._store.read_claims(self._last_read)
        self._take(changes)
        self._last_read = changes.seen
        if time.monotonic() >= self._purge_at:
            # All workers have read what was there at the previous purge, also
            # if a step of the database's clock lets new claims expire.
            self._store.purge_claims(self._purge_to)
            self._purge_to = self._last_read.number
            self._purge_at = time.monotonic() + _PURGE_SECONDS

    def _take(self, changes):
        """Pass on others' claims; return own late ones that they replace."""
        foreign = {claim.instance_uuid: claim for claim in changes.claims
                   if not claim.token.startswith(f'{self._author}-')}
        if foreign:
            self._receive(list(foreign.values()))
        return [pending for pending in list(self._unwritten)
                if pending.missed and (newer := foreign.get(
                    pending.stored.instance_uuid)) is not None
                and newer.state == store.CLAIMED
                and newer.age_seconds < pending.age()]
