# SPDX-License-Identifier: Apache-2.0
"""Checks the modeler, the schedulers and their options, with text results.

``vswitch-status`` prints the results, and the processes log them. Pure: the
caller passes the current time.
"""

from collections import abc
import typing

__all__ = ['RECORD_SECONDS', 'SILENT_SECONDS', 'WORKER_SECONDS',
           'enabled_problem', 'is_overdue',
           'is_replaced', 'is_silent', 'modeler_problem', 'options_problems',
           'plugins_problem', 'record_problems', 'reporting_workers',
           'results_problem', 'workers_problem']

#: A modeler that has not reported for this time is silent. It does not report
#: while it writes, or while it waits for one answer of a telemetry service
#: including all retries.
SILENT_SECONDS = 900.0

#: A modeler is overdue if its last pass ended longer ago than this number of
#: intervals plus the time above.
_INTERVALS = 3

#: A worker reports once a minute. After this time without a report it is
#: silent.
WORKER_SECONDS = 300.0

#: The record of a cell is old if no reading has ended for this time.
RECORD_SECONDS = 60.0

_DAY_SECONDS = 86400.0

#: Name, option and effect of each plugin, by its role.
_PLUGINS = {
    'filter': ('VSwitchFilter', 'enabled_filters', 'no host is refused'),
    'weigher': ('VSwitchWeigher', 'weight_classes',
                'hosts are not ranked by their traffic')}


def is_silent(modeler: typing.Any, now: float) -> bool:
    """Return whether a modeler should have reported but has not."""
    return not modeler.ended and now - modeler.seen_at > SILENT_SECONDS


def is_replaced(modeler: typing.Any,
                modelers: abc.Iterable[typing.Any]) -> bool:
    """Return whether another process was started later on the same host."""
    return any(other.host == modeler.host and other.name != modeler.name
               and other.started_at > modeler.seen_at for other in modelers)


def reporting_workers(workers: abc.Iterable[typing.Any],
                      now: float) -> list[typing.Any]:
    """Return the workers that report now.

    After a restart of nova-scheduler, the store still has the last reports of
    the former workers. As soon as a worker that was started later on the same
    host reports, the options and problems of a former worker are outdated, and
    it is not returned.
    """
    return [worker for worker in workers
            if now - worker.seen_at <= WORKER_SECONDS
            and not is_replaced(worker, workers)]


def is_overdue(modeler: typing.Any, now: float) -> bool:
    """Return whether a modeler has completed no pass for too long."""
    if modeler.ended or modeler.interval_seconds is None \
            or modeler.waiting_for or is_silent(modeler, now):
        return False
    # The first pass may read the history of several months.
    return modeler.passed_at is not None and now - modeler.passed_at \
        > SILENT_SECONDS + _INTERVALS * modeler.interval_seconds


def modeler_problem(modelers: abc.Collection[typing.Any], now: float,
                    learned: object) -> str | None:
    """Return why nothing is learned at the moment, or None."""
    running = [modeler for modeler in modelers if not modeler.ended
               and modeler.interval_seconds is not None
               and not is_silent(modeler, now)]
    if any(not modeler.waiting_for and not is_overdue(modeler, now)
           for modeler in running):
        return None
    waiting = [modeler for modeler in running if modeler.waiting_for]
    if waiting:
        return (f'vswitch-modeler on {waiting[0].host} waits: '
                f'{waiting[0].waiting_for}')
    if running:
        return (f'vswitch-modeler on {running[0].host} has completed no pass '
                f'for longer than its cycle; see its log')
    lasting = [modeler for modeler in modelers
               if modeler.interval_seconds is not None]
    if lasting:
        last = max(lasting, key=lambda modeler: modeler.seen_at)
        return (f'vswitch-modeler on {last.host} '
                + ('has ended' if last.ended else 'is silent')
                + '; start it, or see its log')
    # Models of "vswitch-manage fit" or "vswitch-modeler --once" are
    # sufficient.
    return None if learned else (
        'vswitch-modeler has never run with this store; start it')


def options_problems(ours: dict[str, typing.Any],
                     workers: abc.Collection[typing.Any],
                     modelers: abc.Collection[typing.Any],
                     now: float) -> list[str]:
    """Return which options of running services differ that must be equal.

    :param ours: {option: value}
    """
    reported = [(f'nova.conf of {worker.host}',
                 worker.state.get('options') or {})
                for worker in reporting_workers(workers, now)]
    reported += [(f'vswitch.conf of vswitch-modeler on {modeler.host}',
                  modeler.options) for modeler in modelers
                 if not modeler.ended and not is_silent(modeler, now)
                 and not is_replaced(modeler, modelers)]
    problems = (_options_problem(ours, theirs, other_file)
                for other_file, theirs in reported)
    return list(dict.fromkeys(filter(None, problems)))


def _options_problem(ours, theirs, other_file):
    different = {name: (value, theirs[name]) for name, value in ours.items()
                 if name in theirs and theirs[name] != value}
    if not different:
        return None
    return ('options that have to be alike differ: ' + ', '.join(
        f'{name} is {our_value!r} here and {their_value!r} in {other_file}'
        for name, (our_value, their_value) in sorted(different.items()))
        + '; set them alike in nova.conf and vswitch.conf')


def workers_problem(workers: abc.Collection[typing.Any],
                    modelers: abc.Collection[typing.Any],
                    now: float) -> str | None:
    """Return why no worker of a scheduler has reported, or None.

    The store keeps the reports of workers for one day. The result is therefore
    None until a modeler has run for one day.
    """
    if workers or not any(
            not modeler.ended and modeler.interval_seconds is not None
            and now - modeler.started_at >= _DAY_SECONDS
            for modeler in modelers):
        return None
    return ('no worker of nova-scheduler has reported in the last day: '
            'VSwitchFilter and VSwitchWeigher are not enabled, no request '
            'came, or store_url of nova.conf is another one')


def plugins_problem(plugins: abc.Container[str]) -> str | None:
    """Return which plugin of a worker is not enabled, or None."""
    missing = [text for role, text in _PLUGINS.items()
               if role not in plugins]
    if not missing or not plugins:
        return None
    name, option, effect = missing[0]
    return (f'{name} is not enabled, so that {effect}; add it to '
            f'[filter_scheduler]/{option} of nova.conf')


def enabled_problem(plugins: abc.Collection[str]) -> str | None:
    """Return which plugin Nova's configuration does not enable, or None."""
    if plugins:
        return plugins_problem(plugins)
    return ('neither VSwitchFilter nor VSwitchWeigher is enabled; add them to '
            'enabled_filters and weight_classes of [filter_scheduler] in '
            'nova.conf')


def results_problem(most_results: int, hosts: int) -> str | None:
    """Return that Placement leaves out some hosts of a request, or None."""
    if hosts <= most_results:
        return None
    return (f'[scheduler]/max_placement_results of nova.conf is '
            f'{most_results}, and Nova has {hosts} hosts: a filter receives '
            f'at most {most_results} of them, and finds no valid host if '
            f'it refuses these; set max_placement_results to {hosts} or more')


def record_problems(worker: typing.Any, now: float) -> list[str]:
    """Return a list of the problems of a worker's record, in words."""
    problems = []
    for cell, age in sorted((worker.state.get('cells') or {}).items()):
        if age is None:
            problems.append(f'it could not read cell {cell} yet')
        elif age > RECORD_SECONDS:
            problems.append(
                f'its record of who is where in cell {cell} is '
                f'{age + max(now - worker.seen_at, 0.0):.0f} s old')
    return problems
