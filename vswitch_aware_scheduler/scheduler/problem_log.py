# SPDX-License-Identifier: Apache-2.0
"""Logs the problems of a process, once each."""

from collections import abc
import contextlib
import threading

from vswitch_aware_scheduler.common import logs

__all__ = ['ProblemLog']

LOG = logs.get_logger(__name__)


class ProblemLog:
    """Logs when a problem appears, changes or disappears."""

    def __init__(self) -> None:
        self._problems = {}
        self._lock = threading.Lock()

    def problems(self) -> dict[str, str]:
        """Return {topic: current problem in words}."""
        return dict(self._problems)

    def forget(self, topic: str) -> None:
        """Clear the problem of something that is gone. Nothing is logged."""
        with self._lock:
            self._problems.pop(topic, None)

    @contextlib.contextmanager
    def errors(self, topic: str, consequence: str) -> abc.Iterator[None]:
        """Report an error of a block with its consequence; do not raise it."""
        try:
            yield
        except Exception as error:
            LOG.debug('vswitch: %s failed', topic, exc_info=True)
            self(topic, f'{type(error).__name__}: {error}; {consequence}')
        else:
            self(topic, None)

    def __call__(self, topic: str, problem: str | None) -> None:
        """Set or clear the problem of one topic."""
        if problem is None and topic not in self._problems:
            return
        with self._lock:
            before = self._problems.get(topic)
            if before == problem:
                return
            if problem is None:
                del self._problems[topic]
            else:
                self._problems[topic] = problem
        if problem is None:
            LOG.info('vswitch: %s is well again', topic)
            return
        # A problem that differs only in its numbers (an age) is not logged
        # again.
        if before is None or _words(before) != _words(problem):
            LOG.warning('vswitch: %s: %s', topic, problem)


def _words(text):
    return [word for word in text.split()
            if not any(letter.isdigit() for letter in word)]
