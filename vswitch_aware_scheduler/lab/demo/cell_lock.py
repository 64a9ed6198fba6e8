# SPDX-License-Identifier: Apache-2.0
"""A lock that lets nova's functional fixtures run on native threads."""

import collections
import contextlib
import sys
import threading

import fixtures

__all__ = ['ReaderFirstLock', 'fixture']


class ReaderFirstLock:
    """A lock for many readers or one writer; readers do not wait for writers.

    In the fixture of Nova's cells readers wait for writers. With native
    threads, this sometimes causes a deadlock: a thread with the lock of the
    database waits to read behind a writer, the writer waits for a reader, and
    the reader waits for the database.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = collections.Counter()    # by thread
        self._writing = False

    @contextlib.contextmanager
    def read_lock(self):
        thread = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: not self._writing)
            self._readers[thread] += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers[thread] -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def write_lock(self):
        with self._changed:
            if self._readers[threading.get_ident()]:
                raise RuntimeError('a reader wants to write')
            self._changed.wait_for(
                lambda: not self._writing and not self._readers.total())
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


def fixture():
    """Return a fixture that replaces the lock of nova's fixture of cells.

    Use it before nova's fixtures are set up, after they are imported.
    """
    # The dotted name cannot be used: a variable in the package hides the
    # module.
    return fixtures.MockPatchObject(
        sys.modules['nova.tests.fixtures.nova'], 'ReaderWriterLock',
        ReaderFirstLock)
