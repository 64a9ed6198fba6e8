# SPDX-License-Identifier: Apache-2.0
"""Exchanges claims between the workers of all schedulers.

A worker writes its claims and withdrawals to the store and reads those of
other workers. A background thread does this and never waits for an answer.
This module uses no Nova object and does not interpret claims
(reference/claims.rst).
"""

import collections
import dataclasses
import itertools
import secrets
import threading
import time

from vswitch_aware_scheduler.scheduler import worker_thread
from vswitch_aware_scheduler import store

__all__ = ['ClaimsBroadcast']

#: How long, in seconds, a new worker can still read a claim.
HELD_SECONDS = 600.0

#: Seconds until the next attempt after a failure.
_AGAIN_SECONDS = 1.0

#: Longest time to wait for the first attempt to read claims, in seconds.
_FIRST_SECONDS = 2.0
_PURGE_SECONDS = 30.0

#: Maximum number of claims that wait while the store cannot be written. The
#: oldest are dropped.
_MOST_KEPT = 10_000


class ClaimsBroadcast(worker_thread.WorkerThread):
    """Publishes the claims of one worker and receives those of others.

    The constructor opens nothing.

    :param store: Store, or an object with its methods for claims
    :param seconds: seconds between two readings of the claims of others, > 0
    :param receive: callable(list of (StoredClaim, its age in seconds)),
        receives the claims of other workers
    :param claimed_by: name of this process for operators
    :param report: callable(topic, problem or None), receives problems
    """

    def __init__(self, store, seconds, receive, claimed_by, report):
        super().__init__('vswitch-claims', self.step, self._forget)
        self._store = store
        self._seconds = seconds
        self._receive = receive
        self._claimed_by = claimed_by
        self._report = report
        self._forget()

    def _forget(self):
        self._tried = threading.Event()
        self._author = secrets.token_hex(8)
        self._tokens = itertools.count(1)
        # (StoredClaim, monotonic time of its expiry), the oldest first.
        self._unwritten = collections.deque(maxlen=_MOST_KEPT)
        self._last_read = None   # ClaimsSeen
        self._purge_at = float('-inf')

    def wait_until_read(self):
        """Start, and wait for the claims of others, for a limited time."""
        self.start()
        self._tried.wait(_FIRST_SECONDS)

    def placed(self, instance_uuid, host, source, law, stated, attachments):
        """Publish the claim of an instance on a host.

        :param instance_uuid: uuid of the instance
        :param host: name of the host
        :param source: name of the host that had the instance before, or None
        :param law: RateLaw that the instance was admitted with
        :param stated: whether a model, prior or flavor gave the law, not the
            default
        :param attachments: Attachments of the instance
        :returns: StoredClaim, the argument of :meth:`withdrawn`
        """
        return self._publish(store.StoredClaim(
            instance_uuid, f'{self._author}-{next(self._tokens)}',
            store.ASSUMED, host, source, law, stated, HELD_SECONDS,
            self._claimed_by, self._last_read.number if self._last_read else 0,
            attachments=attachments))

    def withdrawn(self, claim):
        """Publish that a claim is void.

        :param claim: StoredClaim that :meth:`placed` returned
        """
        self._publish(dataclasses.replace(claim, state=store.FORGOTTEN))

    def _publish(self, claim):
        self._unwritten.append((claim, time.monotonic() + claim.seconds))
        self.wake()
        return claim

    def step(self):
        """Write the own new claims to the store, and read those of others.

        :returns: seconds until the next step
        """
        problems = []
        for action in (self._write, self._read):
            try:
                action()
            except Exception as error:
                # If the thread ended, this process would exchange no claims.
                problems.append(f'{type(error).__name__}: {error}')
        self._report('claims of other workers', problems and (
            f"{problems[0]}; what they place counts once Nova's record shows "
            f'it') or None)
        self._tried.set()
        return _AGAIN_SECONDS if problems else self._seconds

    def _write(self):
        now = time.monotonic()
        claims = list(self._unwritten)
        unexpired = [dataclasses.replace(claim, seconds=expires_at - now)
                     for claim, expires_at in claims if expires_at > now]
        if unexpired:
            self._store.write_claims(unexpired)
        for claim_and_expiry in claims:
            # Other threads append meanwhile, which can push out the oldest
            # claim.
            if self._unwritten and self._unwritten[0] is claim_and_expiry:
                self._unwritten.popleft()

    def _read(self):
        changes = self._store.read_claims(self._last_read)
        self._receive([
            (claim, max(0.0, HELD_SECONDS - claim.seconds))
            for claim in changes.claims
            if not claim.token.startswith(f'{self._author}-')])
        self._last_read = changes.seen
        if time.monotonic() >= self._purge_at:
            self._store.purge_claims()
            self._purge_at = time.monotonic() + _PURGE_SECONDS
