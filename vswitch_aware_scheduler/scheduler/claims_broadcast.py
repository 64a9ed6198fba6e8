# SPDX-License-Identifier: Apache-2.0
"""Tells the workers of all schedulers what was placed and what withdrawn.

A plain broadcast through the store: a worker writes its own words and reads
those of the others, in a thread of its own, and never waits for an answer.
Knows no Nova object and not what a claim means (reference/claims.rst).
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

#: How long a word can be read by a worker that begins.
HELD_SECONDS = 600.0

#: After a failure it is tried again so much later.
_AGAIN_SECONDS = 1.0
_PURGE_SECONDS = 30.0

#: Words that are kept while the store cannot be written, the latest.
_MOST_KEPT = 10_000


class ClaimsBroadcast:
    """One worker's part in the broadcast.

    Making one opens nothing.

    :param store: Store, or anything with its methods on claims
    :param seconds: how often others' words are read, > 0
    :param hear: callable(list of (StoredClaim, its age in seconds) of others)
    :param claimed_by: name of this process for people
    :param report: callable(topic, problem or None)
    """

    def __init__(self, store, seconds, hear, claimed_by, report):
        self._store = store
        self._seconds = seconds
        self._hear = hear
        self._claimed_by = claimed_by
        self._report = report
        self._thread = worker_thread.WorkerThread(
            'vswitch-claims', self.step, self._forget)
        self._forget()

    def _forget(self):
        self._tried = threading.Event()
        self._author = secrets.token_hex(8)
        self._tokens = itertools.count(1)
        # (StoredClaim, until when it holds), the oldest first.
        self._words = collections.deque(maxlen=_MOST_KEPT)
        self._seen = None
        self._purge_at = float('-inf')

    def start(self):
        """Be at work from now on, in this process."""
        self._thread.start()

    def wake(self, older_than_seconds=0.0):
        """Exchange words now, unless that was done so lately."""
        self._thread.wake(older_than_seconds)

    def wait_until_read(self, seconds):
        """Wait until others' words were read once, or that has failed."""
        self._tried.wait(seconds)

    def stop(self):
        """End the thread."""
        self._thread.stop()

    def placed(self, instance_uuid, host, source, law, stated, attachments):
        """Publish a placement; return its StoredClaim."""
        word = store.StoredClaim(
            instance_uuid, f'{self._author}-{next(self._tokens)}',
            store.ASSUMED, host, source, law, stated, HELD_SECONDS,
            self._claimed_by, 0 if self._seen is None else self._seen.number,
            attachments=attachments)
        self._tell(word)
        return word

    def withdrawn(self, word):
        """Publish that a placement has come to nothing.

        :param word: what :meth:`placed` returned
        """
        self._tell(dataclasses.replace(word, state=store.FORGOTTEN))

    def _tell(self, word):
        self._words.append((word, time.monotonic() + word.seconds))
        self._thread.wake()

    def step(self):
        """Write and read once; return the seconds until the next time."""
        problems = []
        for do in (self._write, self._read):
            try:
                do()
            except Exception as error:
                # A thread that ends would leave this process alone.
                problems.append(f'{type(error).__name__}: {error}')
        self._report('claims of other workers', problems and (
            f"{problems[0]}; what they place counts once Nova's record shows "
            f'it') or None)
        self._tried.set()
        return _AGAIN_SECONDS if problems else self._seconds

    def _write(self):
        now = time.monotonic()
        words = list(self._words)
        holding = [dataclasses.replace(word, seconds=until - now)
                   for word, until in words if until > now]
        if holding:
            self._store.write_claims(holding)
        for written in words:
            # Others are added meanwhile, and push out the oldest.
            if self._words and self._words[0] is written:
                self._words.popleft()

    def _read(self):
        changes = self._store.read_claims(self._seen)
        first = self._seen is None or changes.complete
        self._hear([
            (word, max(0.0, HELD_SECONDS - word.seconds) if first else 0.0)
            for word in changes.claims
            if not word.token.startswith(f'{self._author}-')])
        self._seen = changes.seen
        if time.monotonic() >= self._purge_at:
            self._store.purge_claims()
            self._purge_at = time.monotonic() + _PURGE_SECONDS
