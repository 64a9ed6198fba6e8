# SPDX-License-Identifier: Apache-2.0
"""Adds a section to nova's Guru Meditation Report.

The section has one line of JSON for the worker, and one line for each host,
with the instances that the worker counts on it.
"""

from collections import abc
import functools
import json
import os
import typing

from oslo_reports import guru_meditation_report as gmr

__all__ = ['TITLE', 'register', 'text']

TITLE = 'vSwitch loads'


@functools.cache
def register(current: abc.Callable[[], typing.Any]) -> None:
    """Add the section once, in this process and in those that it forks."""
    gmr.TextGuruMeditation.register_section(TITLE, lambda: text(current()))


def text(state: typing.Any) -> str:
    """Return the section as text. This function never raises."""
    try:
        counted = {} if state is None else state.counted()
        generation = None if state is None else state.generation
    except Exception as error:
        return f'{type(error).__name__}: {error}'
    lines = [{'pid': os.getpid(), 'generation': generation}]
    lines.extend({'host': host, **counted_there}
                 for host, counted_there in sorted(counted.items()))
    return '\n'.join(map(json.dumps, lines))
