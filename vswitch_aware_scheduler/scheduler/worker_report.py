# SPDX-License-Identifier: Apache-2.0
"""What a worker of nova-scheduler reports of itself to the store.

Once a minute at most, from a thread of its own: no request waits for it. The
worker also checks there what it can see of the others, and
logs what is wrong.
"""

import os
import socket
import time

from vswitch_aware_scheduler import logs
from vswitch_aware_scheduler.scheduler import worker_thread
from vswitch_aware_scheduler import self_check
from vswitch_aware_scheduler import store

__all__ = ['CHECK_SECONDS', 'FIRST_SECONDS', 'REPORT_SECONDS',
           'WorkerReport', 'name']

LOG = logs.get_logger(__name__)

#: Time between two reports of a worker. The first one waits for so long at
#: most until the cells of Nova are known, which is tried so often.
REPORT_SECONDS = 60.0
FIRST_SECONDS = 0.5

#: After a report that failed, another one is tried so much later.
AGAIN_SECONDS = 5.0

#: What a worker sees of the others is checked so long after its start: a
#: modeler may be started at the same time.
CHECK_SECONDS = 300.0

#: Problems of a worker that it reports, and their longest text.
_MOST_PROBLEMS, _MOST_CHARACTERS = 20, 500


def name():
    """Return the name of this process, as others see it in the store."""
    return f'{socket.gethostname()}:{os.getpid()}'[:255]


class WorkerReport:
    """Reports the state of this process. Making one opens nothing.

    :param writes_to: Store, or anything with its methods
    :param report: :class:`.ProblemLog`
    :param facts: callable(), returns (set of plugins, number of models that
        the worker knows or None, {cell: age of its record in seconds or
        None}, options that have to be alike)
    :param clock: callable, seconds UTC
    :param monotonic: callable, seconds
    """

    def __init__(self, writes_to, report, facts, clock,
                 monotonic=time.monotonic):
        self._store = writes_to
        self._report = report
        self._facts = facts
        self._clock = clock
        self._monotonic = monotonic
        self._thread = worker_thread.WorkerThread(
            'vswitch-report', self.step, self._forget)
        self._forget()

    def _forget(self):
        self._started_at = self._clock()
        self._began = self._monotonic()

    def start(self):
        """Be at work from now on, in this process."""
        self._thread.start()

    def stop(self):
        """End the thread, if there is one."""
        self._thread.stop()

    def step(self):
        """Report and check; return the seconds until the next time."""
        try:
            facts = self._facts()
            if not facts[2] \
                    and self._monotonic() < self._began + REPORT_SECONDS:
                return FIRST_SECONDS
            self._step(*facts)
        except Exception:
            # The snapshot and the claims need the store as well, and say
            # what is wrong with it.
            LOG.debug('vswitch: reporting of this worker failed',
                      exc_info=True)
            return AGAIN_SECONDS
        return REPORT_SECONDS

    def _step(self, plugins, models, cells, options):
        now = self._clock()
        if self._monotonic() >= self._began + CHECK_SECONDS:
            self._check(plugins, models, options, now)
        self._store.report_worker(store.Worker(
            name(), socket.gethostname()[:255], self._started_at, now, {
                'plugins': sorted(plugins), 'models': models, 'cells': cells,
                'options': options, 'problems': {
                    topic: problem[:_MOST_CHARACTERS] for topic, problem in
                    list(self._report.problems().items())[:_MOST_PROBLEMS]}}))

    def _check(self, plugins, models, options, now):
        """Log what is wrong with the others, and with what Nova loads."""
        self._report('plugins', self_check.plugins_problem(plugins))
        self._report('modeler', self_check.modeler_problem(
            self._store.modelers(), now, models))
        self._report('traffic models', (
            'no instance has a traffic model yet, so that every instance '
            'counts by its flavor, a prior or the default')
            if models == 0 else None)
        theirs = self._store.fleet('options').facts.get('modeler', {})
        self._report('options', self_check.options_problem(
            options, theirs, 'vswitch.conf of vswitch-modeler'))
