# SPDX-License-Identifier: Apache-2.0
"""The decisions of VSwitchFilter on the requests of a scheduler process.

A request that leaves no host is one line in the log. Each decision goes to
the store, written by a thread: the thread of a request puts what it knows
into a bounded queue and never waits. What the queue or the store cannot take
is dropped, and the log says so.
"""

import collections
import math
import os
import threading
import time

from vswitch_aware_scheduler.admission import explanation
from vswitch_aware_scheduler import logs
from vswitch_aware_scheduler.scheduler import request_demand
from vswitch_aware_scheduler.scheduler import worker_thread
from vswitch_aware_scheduler import store

__all__ = ['Decisions']

LOG = logs.get_logger(__name__)

#: How often decisions are written, and removed where there are too many.
WRITE_SECONDS = 1.0
PURGE_SECONDS = 60.0

#: After a failure the thread writes again so much later.
AGAIN_SECONDS = 10.0

#: How long it is reported that decisions were dropped.
DROPPED_SECONDS = 60.0

#: Decisions that wait for the thread, and those that wait for the store. The
#: former hold arrays of all hosts, so that the thread is woken by some.
MOST_JUDGED = 128
_WAKE_AT = 16
MOST_UNWRITTEN = 2000

#: Refused hosts that a decision names.
MOST_NEAREST = 20


class Decisions:
    """The decisions of one process. Making one opens nothing.

    The methods that a request calls do not wait.

    :param lock: lock of the tables that hosts are judged by
    :param clock: callable, seconds UTC
    :param report: callable(topic, problem or None)
    """

    def __init__(self, lock, clock, report):
        self._lock = lock
        self._clock = clock
        self._report = report
        self._request = _Request()
        self._thread = None
        self._forget()

    def _forget(self):
        self._judged = collections.deque()
        self._unwritten = collections.deque()
        self._dropped_at = self._purge_at = -math.inf

    def open(self, writes_to, kept, age_seconds, decided_by):
        """Record decisions from now on.

        :param writes_to: Store, or anything with its methods on decisions
        :param kept: how many decisions the store keeps, > 0
        :param age_seconds: how old they get there
        :param decided_by: name of this process
        """
        self._store = writes_to
        self._kept, self._age_seconds = kept, age_seconds
        self._decided_by = decided_by
        self._thread = worker_thread.WorkerThread(
            'vswitch-decisions', self.step, self._forget)

    def stop(self):
        """End the thread, if there is one."""
        if self._thread is not None:
            self._thread.stop()

    # What a request does, in its own thread.

    def request_started(self):
        """Forget the request before."""
        self._request.begin(True)

    def judged(self, assessment, demand, spec_obj, without_room, any_passes):
        """Take in how the hosts of a request are judged.

        :param assessment: Assessment of them
        :param demand: Demand of the request
        :param spec_obj: nova RequestSpec
        :param without_room: {host: (amount, free)} of those admitted that
            Placement has no room on
        :param any_passes: whether the filter passes any host
        """
        uuid = demand.instance_uuid
        known = self._request.judged.get(uuid)
        if known is not None and known.host is not None:
            # Nova asks again, for alternates.
            return
        if not any_passes:
            self._log_refused(assessment, demand, without_room)
        judged = _Judged(self._clock(), assessment, demand, spec_obj,
                         without_room, any_passes)
        if self._request.requesting:
            self._request.judged[uuid] = judged
        else:
            self._add([judged])

    def placed(self, instance_uuid, host):
        """Take note that Nova has taken a host for an instance."""
        judged = self._request.judged.get(instance_uuid)
        if judged is not None:
            judged.host = host

    def request_finished(self, failed):
        """End the request of this thread.

        :param failed: whether what it has placed does not stay
        """
        judged = list(self._request.judged.values())
        self._request.begin(False)
        if failed:
            for one in judged:
                one.host = None
        self._add(judged)

    def _add(self, judged):
        if self._thread is None or not judged:
            return
        self._thread.start()
        for one in judged:
            if len(self._judged) >= MOST_JUDGED:
                self._dropped_at = time.monotonic()
            else:
                self._judged.append(one)
        if len(self._judged) >= _WAKE_AT:
            self._thread.wake()

    def _log_refused(self, assessment, demand, without_room):
        with self._lock:
            closest, = explanation.nearest(assessment, without_room)
        LOG.info(
            'vswitch: no host passes for instance %s (demand by %s): %s',
            demand.instance_uuid, demand.rule, explanation.line(
                len(assessment.slots),
                explanation.counts(assessment, without_room), closest))

    # What the thread does.

    def step(self):
        """Write what waits; return the seconds until the next time."""
        problem = None
        try:
            self._describe_all()
            self._write()
            if time.monotonic() >= self._purge_at:
                self._purge_at = time.monotonic() + PURGE_SECONDS
                self._store.purge_decisions(self._kept, self._age_seconds)
        except Exception as error:
            # A thread that ends would leave this process alone.
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
                # One decision is no reason to drop others.
                problem = error
                continue
            self._unwritten.append(described)
            if len(self._unwritten) > MOST_UNWRITTEN:
                self._unwritten.popleft()
                self._dropped_at = time.monotonic()
        if problem is not None:
            raise problem

    def _describe(self, judged):
        """Return the store's Decision."""
        assessment, without_room = judged.assessment, judged.without_room
        with self._lock:
            nearest = explanation.nearest(assessment, without_room,
                                          MOST_NEAREST)
            chosen = None if judged.host is None else _chosen(judged)
        admitted = int(assessment.admitted.sum()) - len(without_room)
        return store.Decision(
            os.urandom(16).hex(), judged.decided_at, self._decided_by,
            judged.request_id, judged.instance_uuid, judged.project,
            judged.flavor, judged.rule, judged.outcome, judged.host,
            len(assessment.slots), admitted,
            explanation.counts(assessment, without_room),
            explanation.observed(assessment, without_room), chosen, [
                {'host': one.host, 'check': one.check,
                 'value': _number(one.value), 'limit': _number(one.limit),
                 'enforced': one.enforced, 'text': one.text}
                for one in nearest])

    def _write(self):
        decisions = list(self._unwritten)
        if decisions:
            self._store.write_decisions(decisions)
            for _ in decisions:
                self._unwritten.popleft()


class _Judged:
    """How hosts were judged for an instance, and the host it came to.

    Reads no field of the RequestSpec that would have to be loaded.
    """

    __slots__ = ('decided_at', 'assessment', 'rule', 'instance_uuid',
                 'request_id', 'project', 'flavor', 'without_room',
                 'any_passes', 'host')

    def __init__(self, decided_at, assessment, demand, spec_obj,
                 without_room, any_passes):
        self.decided_at = decided_at
        self.assessment = assessment
        self.rule = demand.rule
        self.instance_uuid = demand.instance_uuid
        self.request_id = getattr(getattr(spec_obj, '_context', None),
                                  'request_id', None)
        self.project = request_demand.read(spec_obj, 'project_id')
        flavor = request_demand.read(spec_obj, 'flavor')
        self.flavor = flavor and request_demand.read(flavor, 'name')
        self.without_room = without_room
        self.any_passes = any_passes
        self.host = None

    @property
    def outcome(self):
        if self.host is not None:
            return store.PLACED
        return store.NOT_PLACED if self.any_passes else store.NO_HOST


class _Request(threading.local):
    """The request of a thread.

    :ivar requesting: whether there is one
    :ivar judged: {instance uuid: _Judged}
    """

    def __init__(self):
        self.begin(False)

    def begin(self, requesting):
        """Forget the request before."""
        self.requesting = requesting
        self.judged = {}


def _chosen(judged):
    """Return what a Decision has of the host that Nova took, or None."""
    assessment = judged.assessment
    i = assessment.position(judged.host)
    if i is None:
        # Forced by an administrator: no filter was asked.
        return None
    check = None
    if judged.host in judged.without_room:
        check = explanation.ROOM
    elif not assessment.admitted[i]:
        check = assessment.check(i)
    return {'check': check, 'limit': assessment.limit(i), **{
        name: _number(getattr(assessment, name)[i]) for name in (
            'overload_probability', 'loss_fraction', 'utilisation')}}


def _number(value):
    """Return a number as JSON has it, None for one that is not finite."""
    return float(value) if value is not None and math.isfinite(value) \
        else None
