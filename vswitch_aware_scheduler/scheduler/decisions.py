# SPDX-License-Identifier: Apache-2.0
"""Records the decisions of VSwitchFilter in a scheduler process.

A request that leaves no host is logged in one line. A background thread writes
each decision to the store: the thread of a request only puts it into a bounded
queue and never waits. A decision that waits for too long is dropped, and the
log says so.
"""

from __future__ import annotations

import collections
from collections import abc
import math
import os
import time
import typing

from nova import objects

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import demand as demand_rules
from vswitch_aware_scheduler.admission import explanation
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.scheduler import request_demand
from vswitch_aware_scheduler.scheduler import worker_thread
from vswitch_aware_scheduler import store

__all__ = ['Decisions']

LOG = logs.get_logger(__name__)

#: Seconds between two writings of decisions, and between two removals of
#: decisions that are too many or too old.
WRITE_SECONDS = 1.0
PURGE_SECONDS = 60.0

#: Seconds until the next attempt after a failure.
AGAIN_SECONDS = 10.0

#: How long, in seconds, the worker reports that decisions were dropped.
DROPPED_SECONDS = 60.0

#: Maximum numbers of decisions that wait for the thread and for the store. The
#: former refer to arrays of all hosts, so that _WAKE_AT of them wake the
#: thread.
MOST_JUDGED = 128
_WAKE_AT = 16
MOST_UNWRITTEN = 2000

#: Maximum number of refused hosts in a decision.
MOST_NEAREST = 20


class Decisions:
    """The decisions of one process. The constructor opens nothing."""

    def __init__(self, request: typing.Any, lock: typing.Any,
                 clock: abc.Callable[[], float], report: typing.Any) -> None:
        self._request = request
        self._lock = lock
        self._clock = clock
        self._report = report
        self._thread: worker_thread.WorkerThread | None = None
        self._forget()

    def _forget(self):
        self._judged = collections.deque()
        self._unwritten = collections.deque()
        self._dropped_at = self._purge_at = -math.inf

    def open(self, writes_to: store.Store, kept: int, age_seconds: float,
             decided_by: str) -> None:
        """Start to record decisions."""
        self._store = writes_to
        self._kept, self._age_seconds = kept, age_seconds
        self._decided_by = decided_by
        self._thread = worker_thread.WorkerThread(
            'vswitch-decisions', self.step, self._forget)

    def stop(self) -> None:
        """End the thread, if it runs."""
        if self._thread is not None:
            self._thread.stop()

    # What a request does, in its own thread.

    def judged(self, assessment: admission.Assessment,
               demand: demand_rules.Demand, spec_obj: objects.RequestSpec,
               any_passes: bool) -> None:
        """Store how the hosts of a request were judged."""
        uuid = demand.instance_uuid
        before = self._request.decisions.get(uuid)
        if before is not None and before.host is not None:
            # Nova filters again to find alternates.
            return
        if not any_passes and (before is None or before.any_passes):
            self._log_refused(assessment, demand)
        judged = _Judged(self._clock(), assessment, demand, spec_obj,
                         any_passes)
        if self._request.requesting:
            self._request.decisions[uuid] = judged
        else:
            self._add([judged])

    def placed(self, instance_uuid: str | None, host: str) -> None:
        """Store which host Nova has selected for an instance."""
        judged = self._request.decisions.get(instance_uuid)
        if judged is not None:
            judged.host = host

    def request_finished(self, failed: bool) -> None:
        """End the request of this thread."""
        judged = list(self._request.decisions.values())
        if failed:
            for decision in judged:
                decision.host = None
        self._add(judged)

    def _add(self, judged):
        if self._thread is None or not judged:
            return
        self._thread.start()
        for decision in judged:
            if len(self._judged) >= MOST_JUDGED:
                self._dropped_at = time.monotonic()
            else:
                self._judged.append(decision)
        if len(self._judged) >= _WAKE_AT:
            self._thread.wake()

    def _log_refused(self, assessment, demand):
        with self._lock:
            closest, = explanation.nearest(assessment)
        LOG.info(
            'vswitch: no host passes for instance %s (demand by %s): %s',
            demand.instance_uuid, demand.rule, explanation.line(
                len(assessment.rows), explanation.counts(assessment),
                closest))

    # What the thread does.

    def step(self) -> float:
        """Write the waiting decisions."""
        problem = None
        try:
            self._describe_all()
            self._write()
            if time.monotonic() >= self._purge_at:
                # If this fails, the next step tries again, and does not
                # report that the store is well.
                self._store.purge_decisions(self._kept, self._age_seconds)
                self._purge_at = time.monotonic() + PURGE_SECONDS
        except Exception as error:
            # If the thread ended, this process would record no decisions.
            LOG.debug('vswitch: writing decisions failed', exc_info=True)
            problem = f'{type(error).__name__}: {error}'
        failed = problem is not None
        if not failed and time.monotonic() \
                < self._dropped_at + DROPPED_SECONDS:
            problem = 'more decisions than this worker can write'
        self._report('recording of decisions', problem and (
            f'{problem}; scheduling goes on, and decisions that wait for too '
            f'long are dropped'))
        return AGAIN_SECONDS if failed else WRITE_SECONDS

    def _describe_all(self):
        problem = None
        while self._judged:
            try:
                described = self._describe(self._judged.popleft())
            except Exception as error:
                # An error in one decision does not drop the others.
                problem = error
                continue
            self._unwritten.append(described)
            if len(self._unwritten) > MOST_UNWRITTEN:
                self._unwritten.popleft()
                self._dropped_at = time.monotonic()
        if problem is not None:
            raise problem

    def _describe(self, judged):
        assessment = judged.assessment
        with self._lock:
            nearest = explanation.nearest(assessment, MOST_NEAREST)
            chosen = None if judged.host is None else _chosen(judged)
        return store.Decision(
            os.urandom(16).hex(), judged.decided_at, self._decided_by,
            judged.request_id, judged.instance_uuid, judged.project,
            judged.flavor, judged.rule, judged.outcome, judged.host,
            len(assessment.rows), int(assessment.admitted.sum()),
            explanation.counts(assessment),
            explanation.observed(assessment), chosen, [
                {**vars(refused), 'value': _number(refused.value),
                 'limit': _number(refused.limit)} for refused in nearest])

    def _write(self):
        decisions = list(self._unwritten)
        if decisions:
            self._store.write_decisions(decisions)
            for _ in decisions:
                self._unwritten.popleft()


class _Judged:
    """The judged hosts and the selected one. No field is loaded for it."""

    __slots__ = ('decided_at', 'assessment', 'rule', 'instance_uuid',
                 'request_id', 'project', 'flavor', 'any_passes', 'host')

    def __init__(self, decided_at, assessment, demand, spec_obj,
                 any_passes):
        self.decided_at = decided_at
        self.assessment = assessment
        self.rule = demand.rule
        self.instance_uuid = demand.instance_uuid
        self.request_id = getattr(getattr(spec_obj, '_context', None),
                                  'request_id', None)
        self.project = request_demand.read(spec_obj, 'project_id')
        flavor = request_demand.read(spec_obj, 'flavor')
        self.flavor = flavor and request_demand.read(flavor, 'name')
        self.any_passes = any_passes
        self.host = None

    @property
    def outcome(self):
        if self.host is not None:
            return store.PLACED
        return store.NOT_PLACED if self.any_passes else store.NO_HOST


def _chosen(judged):
    """Return the entry of a Decision for the selected host, or None."""
    assessment = judged.assessment
    i = assessment.position(judged.host)
    if i is None:
        # An administrator forced the host: no filter judged it.
        return None
    check = None if assessment.admitted[i] else assessment.check(i)
    return {'check': check, 'limit': assessment.limit(i), **{
        name: _number(getattr(assessment, name)[i]) for name in (
            'overload_probability', 'loss_fraction', 'utilisation')}}


def _number(value):
    """Return a number as JSON has it, or None if it is not finite."""
    return float(value) if value is not None and math.isfinite(value) \
        else None
