# SPDX-License-Identifier: Apache-2.0
"""The filter VSwitchFilter, which Nova loads."""

from __future__ import annotations

from collections import abc
import itertools
import time
import typing

from nova import objects
from nova.scheduler import filters
from nova.scheduler import host_manager
from nova.scheduler import utils as scheduler_utils
from oslo_log import log as logging

from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.scheduler import metrics
from vswitch_aware_scheduler.scheduler import nova_hooks
from vswitch_aware_scheduler.scheduler import request_demand

LOG = logs.get_logger(__name__)

_HostState: typing.TypeAlias = host_manager.HostState


class VSwitchFilter(filters.BaseHostFilter):
    """Passes the hosts whose virtual switch can carry one more instance.

    A host passes if its switch can carry the peak rate of the instance, if it
    has enough free tunnels, and if the policy in
    [vswitch_scheduler]/admission_policy accepts the traffic. That policy
    limits either the sum of the mean rates or the probability of overload. An
    error in the filter never fails a request: every host passes then.
    """

    # A rebuilt instance stays on its host, which already counts its traffic.
    RUN_ON_REBUILD = False

    def __init__(self) -> None:
        super().__init__()
        self._state = nova_hooks.join('filter')

    def filter_all(self, filter_obj_list: abc.Iterable[_HostState],
                   spec_obj: objects.RequestSpec) -> list[_HostState]:
        """Return the hosts that pass. All hosts are judged together."""
        host_states = list(filter_obj_list)
        if not host_states or self._are_rebuilt_on(host_states, spec_obj):
            return host_states
        began = time.perf_counter()
        with self._state.report.errors('VSwitchFilter', 'every host passes'):
            passing = self._passing(host_states, spec_obj)
            self._state.metrics.took(metrics.DECISION,
                                     time.perf_counter() - began)
            return passing
        self._state.metrics.unjudged('error')
        return host_states

    def _are_rebuilt_on(self, host_states, spec_obj):
        """Return whether the request rebuilds an instance on all the hosts.

        For a rebuild, Nova forces the host of the instance.
        """
        if not scheduler_utils.request_is_rebuild(spec_obj):
            return False
        forced = request_demand.read(spec_obj, 'force_hosts') or ()
        with self._state.report.errors('rebuild', 'rebuilds pass'):
            return all(host_state.host in forced
                       or self._state.is_rebuild(host_state, spec_obj)
                       for host_state in host_states)
        return True

    def _passing(self, host_states, spec_obj):
        judged = self._state.assess(host_states, spec_obj)
        if judged is None:
            self._state.metrics.unjudged('store')
            return host_states
        assessment, demand = judged
        if LOG.isEnabledFor(logging.DEBUG):
            self._explain(host_states, assessment, demand)
        passing = list(itertools.compress(
            host_states, assessment.passing.tolist()))
        self._state.hosts_filtered(passing)
        self._state.metrics.judged(
            assessment, bool(passing) or request_demand.is_pinned(spec_obj))
        with self._state.report.errors('decisions',
                                       'decisions are not recorded'):
            self._state.decisions.judged(
                assessment, demand, spec_obj, bool(passing))
        return passing

    def host_passes(self, host_state: _HostState,
                    spec_obj: objects.RequestSpec) -> bool:
        """Return whether one host passes."""
        return bool(self.filter_all([host_state], spec_obj))

    def _explain(self, host_states, assessment, demand):
        for i, host_state in enumerate(host_states):
            if not assessment.admitted[i]:
                LOG.debug(
                    '%(host_state)s fails the virtual switch check for '
                    'instance %(uuid)s (demand by %(rule)s): %(why)s'
                    '%(observed)s',
                    {'host_state': host_state, 'uuid': demand.instance_uuid,
                     'rule': demand.rule, 'why': assessment.explain(i),
                     'observed': '' if assessment.enforced[i] else
                     '; the host is only observed and passes'})
