# SPDX-License-Identifier: Apache-2.0
"""What a modeler reports of itself to the store, and how to read it.

A modeler that waits looks like one that works: its process runs and nothing
fails. The heartbeat in the store says which of both it is, to whoever can
read the store. No configuration, no clock but those handed in.
"""

import dataclasses
import os
import secrets
import socket

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import logs
from vswitch_aware_scheduler import plain_text
from vswitch_aware_scheduler import self_check
from vswitch_aware_scheduler import store as model_store

__all__ = ['BEAT_SECONDS', 'SILENT_SECONDS', 'Heartbeat', 'describe',
           'is_replaced', 'is_silent']

LOG = logs.get_logger(__name__)

_time = plain_text.iso_time

#: Time between two heartbeats. The end of the first pass is reported at once,
#: and so is that the modeler begins or ends to wait.
BEAT_SECONDS = 60.0

SILENT_SECONDS = self_check.SILENT_SECONDS
is_silent = self_check.is_silent
is_replaced = self_check.is_replaced

#: Longest text that is stored.
_MOST_CHARACTERS = 2000


def _shortened(words):
    return words if len(words) <= _MOST_CHARACTERS \
        else words[:_MOST_CHARACTERS - 4] + ' ...'


class Heartbeat:
    """The heartbeat of this process. A store that fails is no problem here.

    :param clock: returns the time, seconds UTC
    :param monotonic: returns seconds that only grow
    """

    def __init__(self, clock, monotonic):
        self._clock = clock
        self._monotonic = monotonic
        host, now = socket.gethostname(), clock()
        self._state = model_store.Modeler(
            f'{host}-{os.getpid()}-{secrets.token_hex(4)}', host, now, now)
        self._store = None
        self._next = 0.0
        self._failed = False

    def report_to(self, store, interval_seconds):
        """Write to a store from now on.

        :param interval_seconds: as of :class:`~.store.Modeler`
        """
        self._store = store
        self._state = dataclasses.replace(
            self._state, interval_seconds=interval_seconds)
        self._next = self._monotonic()

    def passed(self, words):
        """Note a pass that succeeded.

        :param words: what it did
        """
        if not self._state.passes:
            self._next = self._monotonic()
        self._state = dataclasses.replace(
            self._state, passes=self._state.passes + 1,
            passed_at=self._clock(), outcome=_shortened(words))
        self.waits(None)

    def waits(self, words):
        """Note what the modeler waits for, None: for nothing."""
        before = self._state
        if bool(words) != bool(before.waiting_for):
            self._next = self._monotonic()
        self._state = dataclasses.replace(
            before, waiting_for=words and _shortened(words),
            waiting_since=words and (before.waiting_since or self._clock()))

    def beat(self):
        """Write to the store, if it is time to."""
        if self._store is None or self._monotonic() < self._next:
            return
        self._next = self._monotonic() + BEAT_SECONDS
        self._write()

    def end(self):
        """Report that the process ends, unless the store has just failed."""
        self._state = dataclasses.replace(self._state, ended=True)
        if self._store is not None and not self._failed:
            self._write()

    def _write(self):
        try:
            self._store.report_modeler(dataclasses.replace(
                self._state, seen_at=self._clock()))
            self._failed = False
        except exceptions.StoreError as error:
            # The next pass needs the store as well, and logs it.
            self._failed = True
            LOG.debug('vswitch-modeler: no heartbeat: %s', error)


def describe(modeler, now):
    """Return one sentence on how a modeler is.

    :param modeler: :class:`~.store.Modeler`
    :param now: seconds UTC
    """
    words = f'vswitch-modeler on {modeler.host}'
    if modeler.interval_seconds is None:
        words += ' made a single pass'
    elif modeler.ended:
        words += f' ended at {_time(modeler.seen_at)}'
    elif is_silent(modeler, now):
        words += (f' has not reported since {_time(modeler.seen_at)}, '
                  f'{now - modeler.seen_at:.0f} s ago')
    elif modeler.waiting_for:
        words += (f' has been waiting since {_time(modeler.waiting_since)}: '
                  f'{modeler.waiting_for}')
    else:
        words += f' runs every {modeler.interval_seconds:g} s'
    if modeler.passed_at is None:
        return f'{words}; it has not completed a pass'
    return (f'{words}; pass {modeler.passes} ended at '
            f'{_time(modeler.passed_at)}, '
            f'{max(now - modeler.passed_at, 0):.0f} s ago: {modeler.outcome}')
