# SPDX-License-Identifier: Apache-2.0
"""The decisions of VSwitchFilter on the requests of a scheduler process.

A request that leaves no host is one line in the log.
"""

import threading

from vswitch_aware_scheduler.admission import explanation
from vswitch_aware_scheduler import logs

__all__ = ['Decisions']

LOG = logs.get_logger(__name__)


class Decisions:
    """Takes in what a request is decided, in the thread of the request.

    :param lock: lock of the tables that hosts are judged by
    """

    def __init__(self, lock):
        self._lock = lock
        self._request = _Request()

    def request_started(self):
        """Forget the request before."""
        self._request.placed = set()

    def judged(self, host_states, assessment, demand, without_room,
               any_passes):
        """Take in how the hosts of a request are judged.

        :param host_states: list of nova HostState
        :param assessment: Assessment of them
        :param demand: Demand of the request
        :param without_room: {host: (amount, free)} of those admitted that
            Placement has no room on
        :param any_passes: whether the filter passes any host
        """
        uuid = demand.instance_uuid
        if uuid in self._request.placed:
            # Nova asks again, for alternates.
            return
        if not any_passes:
            self._log_refused([one.host for one in host_states], assessment,
                              demand, without_room)

    def placed(self, instance_uuid):
        """Take note that Nova has taken a host for an instance."""
        self._request.placed.add(instance_uuid)

    def _log_refused(self, hosts, assessment, demand, without_room):
        with self._lock:
            closest = explanation.nearest(assessment, hosts, without_room)
        LOG.info(
            'vswitch: no host passes for instance %s (demand by %s): %s',
            demand.instance_uuid, demand.rule, explanation.line(
                len(hosts), explanation.counts(assessment, without_room),
                *closest))


class _Request(threading.local):
    """The request of a thread.

    :ivar placed: set of the uuids of instances that have a host
    """

    def __init__(self):
        self.placed = set()
