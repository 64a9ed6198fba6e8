# SPDX-License-Identifier: Apache-2.0
"""Where Nova and the state of a scheduler process meet.

Nova makes its plugins without arguments, so what they share has to be found:
the filter and the weigher of one HostManager :func:`join` one
:class:`.state.SchedulerState`. The first plugin has Nova tell that state what
it does with a request. Nothing is opened; Nova makes plugins before it forks
its workers.
"""

import functools
import threading

import nova.conf
from nova.scheduler.client import report as report_client
from nova.scheduler import host_manager
from nova.scheduler import manager

from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.scheduler import meditation
from vswitch_aware_scheduler.scheduler import state as scheduler_state

__all__ = ['current', 'join']

CONF = nova.conf.CONF

opts.register_opts(CONF)

# The state that the plugins of this process made last, and which of them
# have joined it. Module-level, for Nova gives its plugins no place to share.
_current = None
_roles = set()
_lock = threading.Lock()


def join(role):
    """Return the SchedulerState for one more plugin.

    A HostManager makes its filters before its weighers, and each HostManager
    gets a state of its own: with every filter one begins, and with a second
    weigher, which is of a HostManager that has no filter of ours.

    :param role: 'filter' or 'weigher'
    """
    global _current
    with _lock:
        if _current is None or role == 'filter' or role in _roles:
            _current = scheduler_state.SchedulerState(CONF)
            _roles.clear()
        _roles.add(role)
        _watch_nova()
        meditation.register(current)
        return _current


def current():
    """Return the SchedulerState of this process, or None."""
    return _current


def _watch_nova():
    """Let Nova tell which host it chose and when a request has ended.

    Nova calls HostState.consume_from_request on the chosen host, of forced
    hosts too, which no filter sees; it offers no other hook. By then it has
    asked placement for the resources, which takes longer than all the rest:
    the host that it will take is the first of those it has sorted.
    """
    original = host_manager.HostState.consume_from_request
    if hasattr(original, 'vswitch_watched'):
        return

    @functools.wraps(original)
    def consume_from_request(self, spec_obj):
        result = original(self, spec_obj)
        _tell('placed', self, spec_obj)
        return result

    ask = report_client.SchedulerReportClient.get_allocation_candidates

    @functools.wraps(ask)
    def get_allocation_candidates(self, *args, **kwargs):
        answer = ask(self, *args, **kwargs)
        _tell('offered', answer)
        return answer

    select = manager.SchedulerManager.select_destinations
    sort = manager.SchedulerManager._get_sorted_hosts

    @functools.wraps(sort)
    def get_sorted_hosts(self, spec_obj, *args, **kwargs):
        hosts = sort(self, spec_obj, *args, **kwargs)
        _tell('chosen', hosts, spec_obj)
        return hosts

    @functools.wraps(select)
    def select_destinations(self, *args, **kwargs):
        _tell('began')
        try:
            result = select(self, *args, **kwargs)
        except BaseException:
            _tell('finished', True)
            raise
        _tell('finished', False)
        return result

    consume_from_request.vswitch_watched = True
    host_manager.HostState.consume_from_request = consume_from_request
    manager.SchedulerManager.select_destinations = select_destinations
    manager.SchedulerManager._get_sorted_hosts = get_sorted_hosts
    report_client.SchedulerReportClient.get_allocation_candidates = \
        get_allocation_candidates


def _tell(event, *args):
    state = _current
    if state is None:
        return
    topic = f'what is {event}'
    try:
        getattr(state, event)(*args)
        state.report(topic, None)
    except Exception as error:
        state.report(topic, f'{type(error).__name__}: {error}; placements '
                     f'count once hosts report them')
