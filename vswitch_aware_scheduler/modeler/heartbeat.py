# SPDX-License-Identifier: Apache-2.0
"""The heartbeat of a modeler: what it reports to the store, and in words.

A modeler that waits looks like one that works: its process runs without
errors. The heartbeat in the store shows the difference. No configuration, no
clock except those that are passed.
"""

from collections.abc import Callable
import dataclasses
import os
import secrets
import socket

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.common import self_check
from vswitch_aware_scheduler import store as model_store

__all__ = ['BEAT_SECONDS', 'Heartbeat', 'describe', 'is_replaced',
           'is_silent']

LOG = logs.get_logger(__name__)

_time = plain_text.iso_time

#: Seconds between two heartbeats. The end of the first pass and the start and
#: end of waiting are reported immediately.
BEAT_SECONDS = 60.0

is_silent = self_check.is_silent
is_replaced = self_check.is_replaced

#: Maximum length of a stored text.
_MOST_CHARACTERS = 2000


def _shortened(text):
    return text if len(text) <= _MOST_CHARACTERS \
        else text[:_MOST_CHARACTERS - 4] + ' ...'


class Heartbeat:
    """The heartbeat of this process. Errors of the store are ignored."""

    def __init__(self, clock: Callable[[], float],
                 monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        host, now = socket.gethostname(), clock()
        self._state = model_store.Modeler(
            f'{host}-{os.getpid()}-{secrets.token_hex(4)}', host, now, now)
        self._store: model_store.Store | None = None
        self._next = 0.0
        self._failed = False

    def report_to(self, store: model_store.Store,
                  interval_seconds: float | None,
                  options: dict | None = None) -> None:
        """Set the store to which heartbeats are written.

        :param interval_seconds: as in :class:`~.store.Modeler`
        :param options: as in :class:`~.store.Modeler`
        """
        self._store = store
        self._state = dataclasses.replace(
            self._state, interval_seconds=interval_seconds,
            options=options or {})
        self._next = self._monotonic()

    def passed(self, result: str) -> None:
        """Record a successful pass."""
        if not self._state.passes:
            self._next = self._monotonic()
        self._state = dataclasses.replace(
            self._state, passes=self._state.passes + 1,
            passed_at=self._clock(), outcome=_shortened(result))
        self.waits(None)

    def waits(self, reason: str | None) -> None:
        """Record what the modeler waits for."""
        before = self._state
        if bool(reason) != bool(before.waiting_for):
            self._next = self._monotonic()
        self._state = dataclasses.replace(
            before, waiting_for=reason and _shortened(reason),
            waiting_since=(before.waiting_since or self._clock())
            if reason else None)

    def beat(self) -> None:
        """Write the heartbeat, if it is due."""
        if self._store is None or self._monotonic() < self._next:
            return
        self._next = self._monotonic() + BEAT_SECONDS
        self._write()

    def end(self) -> None:
        """Report the end of the process, unless the store has just failed."""
        self._state = dataclasses.replace(self._state, ended=True)
        if self._store is not None and not self._failed:
            self._write()

    def _write(self):
        try:
            self._store.report_modeler(dataclasses.replace(
                self._state, seen_at=self._clock()))
            self._failed = False
        except exceptions.StoreError as error:
            # The next pass also needs the store and logs the problem.
            self._failed = True
            LOG.debug('vswitch-modeler: no heartbeat: %s', error)


def describe(modeler: model_store.Modeler, now: float) -> str:
    """Return one sentence about the state of a modeler."""
    sentence = f'vswitch-modeler on {modeler.host}'
    if modeler.interval_seconds is None:
        sentence += ' made a single pass'
    elif modeler.ended:
        sentence += f' ended at {_time(modeler.seen_at)}'
    elif is_silent(modeler, now):
        sentence += (f' has not reported since {_time(modeler.seen_at)}, '
                     f'{now - modeler.seen_at:.0f} s ago')
    elif modeler.waiting_for:
        sentence += (
            f' has been waiting since {_time(modeler.waiting_since)}: '
            f'{modeler.waiting_for}')
    else:
        sentence += f' runs every {modeler.interval_seconds:g} s'
    if modeler.passed_at is None:
        return f'{sentence}; it has not completed a pass'
    return (f'{sentence}; pass {modeler.passes} ended at '
            f'{_time(modeler.passed_at)}, '
            f'{max(now - modeler.passed_at, 0):.0f} s ago: {modeler.outcome}')
