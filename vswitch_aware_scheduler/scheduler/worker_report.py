# SPDX-License-Identifier: Apache-2.0
"""Reports the state of a nova-scheduler worker to the store, once a minute.

The background thread also checks the other services and logs what is wrong.
"""

from collections import abc
import os
import socket
import time
import typing

import nova.conf

from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.common import self_check
from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.scheduler import worker_thread
from vswitch_aware_scheduler import store

__all__ = ['CHECK_SECONDS', 'FIRST_SECONDS', 'REPORT_SECONDS',
           'WorkerReport', 'name']

CONF = nova.conf.CONF
LOG = logs.get_logger(__name__)

#: Seconds between two reports of a worker. Until the worker has read the store
#: and the list of Nova's cells, the first report waits up to this time and
#: retries every FIRST_SECONDS.
REPORT_SECONDS = 60.0
FIRST_SECONDS = 0.5

#: Seconds until the next attempt after a failed report.
AGAIN_SECONDS = 5.0

#: Seconds from the start of a worker to its first check of other services,
#: because a modeler may start at the same time.
CHECK_SECONDS = 300.0

#: Maximum number of problems in a report, and their maximum length.
_MOST_PROBLEMS, _MOST_CHARACTERS = 20, 500


def name() -> str:
    """Return the name of this process in the store: host name and pid."""
    return f'{socket.gethostname()}:{os.getpid()}'[:255]


class WorkerReport(worker_thread.WorkerThread):
    """Reports the state of this process. The constructor opens nothing.

    :param facts: returns (set of plugins, number of models that the worker has
        read or None, {cell: age of its record in seconds or None}, options
        that have to be the same for all services, :attr:`.Claims.counts`)
    """

    def __init__(self, writes_to: typing.Any, report: typing.Any,
                 facts: abc.Callable[[], tuple[typing.Any, ...]],
                 clock: abc.Callable[[], float],
                 monotonic: abc.Callable[[], float] = time.monotonic
                 ) -> None:
        super().__init__('vswitch-report', self.step, self._forget)
        self._store = writes_to
        self._report = report
        self._facts = facts
        self._clock = clock
        self._monotonic = monotonic
        self._forget()

    def _forget(self):
        self._started_at = self._clock()
        self._began = self._monotonic()

    def step(self) -> float:
        """Report and check once."""
        try:
            facts = _, models, cells, _, _ = self._facts()
            if (models is None or not cells) \
                    and self._monotonic() < self._began + REPORT_SECONDS:
                return FIRST_SECONDS
            self._write(*facts)
        except Exception:
            # The snapshot and the claims use the same store and report its
            # problems.
            LOG.debug('vswitch: reporting of this worker failed',
                      exc_info=True)
            return AGAIN_SECONDS
        return REPORT_SECONDS

    def _write(self, plugins, models, cells, options, claims):
        now = self._clock()
        if self._monotonic() >= self._began + CHECK_SECONDS:
            self._check(plugins, models, options, now)
        self._store.report_worker(store.Worker(
            name(), socket.gethostname()[:255], self._started_at, now, {
                'plugins': sorted(plugins), 'models': models, 'cells': cells,
                'claims': claims, 'options': options,
                'max_placement_results':
                CONF.scheduler.max_placement_results, 'problems': {
                    topic: problem[:_MOST_CHARACTERS] for topic, problem in
                    list(self._report.problems().items())[:_MOST_PROBLEMS]}}))

    def _check(self, plugins, models, options, now):
        self._report('plugins', self_check.plugins_problem(plugins))
        modelers = self._store.modelers()
        self._report('modeler', self_check.modeler_problem(
            modelers, now, models))
        self._report('traffic models', (
            'no instance has a traffic model yet, so that every instance '
            'counts by its flavor, a prior or the default')
            if models == 0 else None)
        self._report('unknown options', plain_text.first_of(
            opts.unknown_names(CONF), '; ') or None)
        self._report('options', next(iter(self_check.options_problems(
            options, (), modelers, now)), None))
