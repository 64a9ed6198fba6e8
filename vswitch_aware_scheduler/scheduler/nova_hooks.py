# SPDX-License-Identifier: Apache-2.0
"""Connects Nova to the SchedulerState of a scheduler process.

Nova creates plugins without arguments: they call :func:`join` to share the
:class:`.state.SchedulerState` of the process. The first plugin wraps functions
of Nova that notify the state. This module opens no file, socket or thread,
because Nova creates plugins before it forks its workers.
"""

import functools
import inspect
import threading
import typing

import nova.conf
from nova.scheduler import host_manager
from nova.scheduler import manager
from nova.scheduler import utils as scheduler_utils

from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.scheduler import gmr
from vswitch_aware_scheduler.scheduler import state as scheduler_state

__all__ = ['current', 'join', 'reset']

CONF = nova.conf.CONF
LOG = logs.get_logger(__name__)

opts.register_opts(CONF)

#: Attribute of a function that is wrapped.
_WRAPPED = 'vswitch_wrapped'

# The state of this process. A module variable because Nova passes nothing to
# its plugins.
_current = None
_lock = threading.Lock()


def join(role: str) -> scheduler_state.SchedulerState:
    """Return the SchedulerState of this process for one more plugin.

    :raises oslo_config.cfg.Error: for an invalid option
    """
    global _current
    # In a request it would be too late to find an invalid value: Nova catches
    # no error of weight_multiplier().
    opts.read_all(CONF)
    with _lock:
        if _current is None:
            _current = scheduler_state.SchedulerState(CONF)
        _current.plugins.add(role)
        _wrap_nova()
        gmr.register(current)
        return _current


def reset() -> None:
    """Let the next plugin start a new state, in another scheduler."""
    global _current
    _current = None


def current() -> scheduler_state.SchedulerState | None:
    """Return the SchedulerState of this process, or None."""
    return _current


def _wrap_nova():
    """Wrap the functions of Nova for which there is no public hook.

    ``SchedulerManager.select_destinations``: a request starts and ends.

    ``claim_resources``: Nova is going to claim a host in Placement. If the
    function returns False, Nova tries the next host. Outside a request, as in
    nova-conductor, the wrapper does nothing.

    ``HostState.consume_from_request``: Nova has selected a host, maybe a
    forced one, which no filter judges.
    """
    def select_destinations(original, arguments, self, *args, **kwargs):
        aggregates = getattr(getattr(self, 'host_manager', None),
                             'aggs_by_id', None)
        _call('request_started', aggregates and list(aggregates.values()))
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            _call('request_finished', True)
            raise
        _call('request_finished', False)
        return result

    def claim_resources(original, arguments, *args, **kwargs):
        spec_obj, uuid, alloc_req = arguments
        if _call('claim_host', alloc_req['allocations'], spec_obj) is False:
            return False
        try:
            is_claimed = original(*args, **kwargs)
        except BaseException:
            _call('claim_failed', uuid)
            raise
        if not is_claimed:
            _call('claim_failed', uuid)
        return is_claimed

    def consume_from_request(original, arguments, self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        _call('host_consumed', self, *arguments)
        return result

    _wrap(manager.SchedulerManager, select_destinations)
    _wrap(scheduler_utils, claim_resources, 'spec_obj', 'instance_uuid',
          'alloc_req')
    _wrap(host_manager.HostState, consume_from_request, 'spec_obj')


def _wrap(owner, wrapper, *names):
    """Wrap a function of Nova, or log why that cannot be.

    :param wrapper: callable(original function, list of the arguments with the
        given names, and all arguments); has the name of the function
    """
    name = f'{owner.__name__}.{wrapper.__name__}'
    original: typing.Any = getattr(owner, wrapper.__name__, None)
    if hasattr(original, _WRAPPED):
        return
    problem = 'no such function'
    if original is not None:
        signature = inspect.signature(original)
        problem = ', '.join(f'no parameter {needed}' for needed in names
                            if needed not in signature.parameters)
    if original is None or problem:
        LOG.error('vswitch: %s of this Nova: %s; expected a supported release '
                  'of Nova. A placement counts only when Nova\'s database '
                  'shows it', name, problem)
        return

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        try:
            given = signature.bind(*args, **kwargs).arguments
            arguments = [given[name] for name in names]
        except (KeyError, TypeError):
            # Nova's own error, or an argument that was left out.
            return original(*args, **kwargs)
        return wrapper(original, arguments, *args, **kwargs)

    setattr(wrapped, _WRAPPED, True)
    setattr(owner, wrapper.__name__, wrapped)


def _call(event, *args):
    """Notify the state of an event. Errors are logged, not raised."""
    state = _current
    if state is None:
        return None
    with state.report.errors(f'hook {event}', 'placements count once '
                             "Nova's record shows them"):
        return getattr(state, event)(*args)
    return None
