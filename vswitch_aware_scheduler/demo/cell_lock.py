# SPDX-License-Identifier: Apache-2.0
"""A lock with which nova's functional fixtures run on native threads."""

import collections
import contextlib
import sys
import threading

import fixtures

__all__ = ['ReaderFirstLock', 'fixture']


class ReaderFirstLock:
    """A lock of many readers or one writer; readers do not wait for a writer.

    The fixture of Nova's cells lets them. With native threads that is a
    deadlock now and then: a thread that holds the database's lock waits to
    read behind a writer, who waits for a reader, who waits for the database.
    """

    def __init__(self):
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
    """Return a fixture that gives nova's own fixture of cells this lock.

    To be used before nova's fixtures are set up, with them imported.
    """
    # Not by its dotted name, which a variable in the package hides.
    return fixtures.MockPatchObject(
        sys.modules['nova.tests.fixtures.nova'], 'ReaderWriterLock',
        ReaderFirstLock)
