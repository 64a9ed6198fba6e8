# SPDX-License-Identifier: Apache-2.0
"""Connects Nova to the SchedulerState of a scheduler process.

Nova creates plugins without arguments. The filter and the weigher of one
HostManager therefore call :func:`join` to share one
:class:`.state.SchedulerState`. The first plugin wraps methods of Nova, so that
the state is notified of what Nova does with a request. This module opens no
file, socket or thread, because Nova creates plugins before it forks its
workers.
"""

import functools
import threading

import nova.conf
from nova.scheduler import host_manager
from nova.scheduler import manager

from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler import logs
from vswitch_aware_scheduler.scheduler import gmr
from vswitch_aware_scheduler.scheduler import state as scheduler_state

__all__ = ['current', 'join']

CONF = nova.conf.CONF
LOG = logs.get_logger(__name__)

opts.register_opts(CONF)

# The newest state of this process, and the roles of the plugins that share it.
# Both are module variables because Nova passes nothing to its plugins.
_current = None
_roles = set()
_lock = threading.Lock()


def join(role):
    """Return the SchedulerState for one more plugin.

    A HostManager creates its filters before its weighers, and each HostManager
    gets a state of its own. A filter therefore starts a new state. A second
    weigher also does, because it belongs to a HostManager without our filter.

    :param role: 'filter' or 'weigher'
    :returns: SchedulerState
    :raises oslo_config.cfg.Error: for an invalid option
    """
    global _current
    # In a request it would be too late to find an invalid value: Nova catches
    # no error of weight_multiplier().
    opts.read_all(CONF)
    with _lock:
        if _current is None or role == 'filter' or role in _roles:
            _current = scheduler_state.SchedulerState(CONF)
            _roles.clear()
        _roles.add(role)
        _current.plugins.add(role)
        _wrap_nova()
        gmr.register(current)
        return _current


def current():
    """Return the SchedulerState of this process, or None."""
    return _current


def _wrap_nova():
    """Wrap the methods of Nova for which there is no public hook.

    ``SchedulerManager.select_destinations``: a request starts and ends.

    ``SchedulerManager._get_sorted_hosts``: Nova selects the first host that
    this method returns. The wrapper judges this host again and claims it,
    before Nova sends the claim to Placement, which takes longer than all other
    steps.

    ``HostState.consume_from_request``: Nova has selected a host. This includes
    a forced host, which no filter judges.
    """
    def select_destinations(original, self, *args, **kwargs):
        _call('request_started')
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            _call('request_finished', True)
            raise
        _call('request_finished', False)
        return result

    def get_sorted_hosts(original, self, spec_obj, *args, **kwargs):
        hosts = original(self, spec_obj, *args, **kwargs)
        still_fitting = _call('hosts_sorted', hosts, spec_obj)
        return hosts if still_fitting is None else still_fitting

    def consume_from_request(original, self, spec_obj):
        result = original(self, spec_obj)
        _call('host_consumed', self, spec_obj)
        return result

    for owner, wrapper in (
            (manager.SchedulerManager, select_destinations),
            (manager.SchedulerManager, get_sorted_hosts),
            (host_manager.HostState, consume_from_request)):
        _wrap(owner, wrapper)


def _wrap(owner, wrapper):
    name = wrapper.__name__
    if not hasattr(owner, name):
        name = f'_{name}'
    original = getattr(owner, name, None)
    if original is None:
        LOG.error('vswitch: this Nova has no %s.%s; expected a supported '
                  'release. A placement counts only when Nova\'s database '
                  'shows it', owner.__name__, name)
    elif not hasattr(original, 'vswitch_wrapped'):
        @functools.wraps(original)
        def wrapped(*args, **kwargs):
            return wrapper(original, *args, **kwargs)

        wrapped.vswitch_wrapped = True
        setattr(owner, name, wrapped)


def _call(event, *args):
    """Notify the current state of an event. Errors are logged, not raised."""
    state = _current
    if state is None:
        return None
    topic = f'hook {event}'
    try:
        result = getattr(state, event)(*args)
        state.report(topic, None)
        return result
    except Exception as error:
        LOG.debug('vswitch: %s failed', topic, exc_info=True)
        state.report(topic, f'{type(error).__name__}: {error}; placements '
                     f"count once Nova's record shows them")
        return None
