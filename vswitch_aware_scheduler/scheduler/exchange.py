# SPDX-License-Identifier: Apache-2.0
"""Brings claims of this process to others, and theirs here, by the store.

It happens in a thread of its own: no request waits for a database. Knows no
Nova object and not what a claim means.
"""

import dataclasses
import os
import threading
import time

__all__ = ['ClaimExchange']

#: After something went wrong it is tried again so much later; and so often it
#: is looked whether claims have run out.
_AGAIN_SECONDS = 1.0
_PURGE_SECONDS = 30.0

#: Claims that are kept while the store does not take them, the latest.
MAX_KEPT = 10_000


class ClaimExchange:
    """Tells the other processes at one store of claims, and learns of theirs.

    Making one starts nothing; the thread starts with the first
    :meth:`begin` in a process, so that it is not lost by a fork.

    :param store: Store, or anything with ``write_claims``, ``read_claims``
        and ``purge_claims``
    :param refresh_seconds: how often others' claims are read, > 0
    :param first_wait_seconds: longest the first callers wait for them
    :param collect: callable(), returns the StoredClaims to tell, oldest first
    :param take: callable(words, late, changes): those that have been told,
        {uuid: StoredClaim} that were newer, and ClaimChanges, or None where
        nothing could be read
    :param report: callable(topic, problem in words or None)
    """

    def __init__(self, store, refresh_seconds, first_wait_seconds, collect,
                 take, report):
        self._store = store
        self._refresh_seconds = refresh_seconds
        self._first_wait_seconds = first_wait_seconds
        self._collect = collect
        self._take = take
        self._report = report
        self._start = threading.Lock()
        self._forget()

    def _forget(self):
        """Know nothing of what another process does with the store."""
        self._pid = None
        self._thread = None
        self._wait_until = None
        self._kept = []          # [(StoredClaim, until when it holds)]
        self._seen = None
        self._purge_at = 0.0
        self._wake = threading.Event()
        self._stopped = threading.Event()
        # Rounds that have begun, and that are over.
        self._begun = self._done = 0
        self._began_at = 0.0
        self._changed = threading.Condition()

    def begin(self):
        """Be at work from now on; the first callers wait for claims."""
        if self._pid != os.getpid():
            with self._start:
                if self._pid != os.getpid():
                    self._forget()
                    self._wait_until = (time.monotonic()
                                        + self._first_wait_seconds)
                    self._thread = threading.Thread(
                        target=self._run, name='vswitch-claims', daemon=True)
                    self._thread.start()
                    self._pid = os.getpid()
        if not self._done:
            self._await(1, self._wait_until - time.monotonic())

    def wake(self, older_than_seconds=0.0):
        """Exchange now, unless that began not long ago."""
        if time.monotonic() - self._began_at >= older_than_seconds:
            self._wake.set()

    def freshen(self, seconds):
        """Wait until all was read that was told before this call.

        :param seconds: longest wait
        """
        wanted = self._begun + 1
        self._wake.set()
        self._await(wanted, seconds)

    def _await(self, number, seconds):
        with self._changed:
            self._changed.wait_for(lambda: self._done >= number,
                                   max(0.0, seconds))

    def stop(self):
        """End the thread, if there is one."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self):
        while not self._stopped.is_set():
            # Before the round: what is told meanwhile is for the next one.
            self._wake.clear()
            if self.exchange():
                self._wake.wait(self._refresh_seconds)
            else:
                self._stopped.wait(_AGAIN_SECONDS)

    def exchange(self):
        """Write and read once; return whether all went well."""
        self._begun += 1
        self._began_at = time.monotonic()
        problems = []
        words, late, changes = [], {}, None
        try:
            self._keep(self._collect())
            words, late = self._write()
        except Exception as error:
            # Whatever it is: a thread that ends would leave this process
            # alone without a word.
            problems.append(_words(error))
        try:
            changes = self._store.read_claims(self._seen)
            self._purge()
        except Exception as error:
            problems.append(_words(error))
        try:
            self._take(words, late, changes)
            if changes is not None:
                self._seen = changes.seen
        except Exception as error:
            problems.append(_words(error))
        self._report('claims of other workers', problems and (
            f'{problems[0]}; what they place counts once hosts report it')
            or None)
        with self._changed:
            self._done = self._begun
            self._changed.notify_all()
        return not problems

    def _keep(self, words):
        now = time.monotonic()
        self._kept.extend((word, now + word.seconds) for word in words)
        self._kept = [(word, until) for word, until in self._kept
                      if until > now][-MAX_KEPT:]

    def _write(self):
        if not self._kept:
            return [], {}
        now = time.monotonic()
        words = [dataclasses.replace(word, seconds=until - now)
                 for word, until in self._kept]
        late = self._store.write_claims(words)
        self._kept = []
        return words, late

    def _purge(self):
        if self._began_at >= self._purge_at:
            self._store.purge_claims()
            self._purge_at = self._began_at + _PURGE_SECONDS


def _words(error):
    return f'{type(error).__name__}: {error}'
