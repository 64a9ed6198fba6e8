# SPDX-License-Identifier: Apache-2.0
"""What a scheduler worker counts where, in nova's Guru Meditation Report.

Nova's services print such a report to their log when they get SIGUSR2, or as
their [oslo_reports] options say. Ours is one section of it: a line of JSON
for the worker and one for each host that it knows.
"""

import functools
import json
import os

from oslo_reports import guru_meditation_report as gmr

__all__ = ['TITLE', 'register', 'text']

TITLE = 'vSwitch loads'


@functools.cache
def register(current):
    """Add the section, in this process and in those that it forks.

    Once for each ``current``: the report has no way to take it out.

    :param current: callable, returns the SchedulerState or None
    """
    gmr.TextGuruMeditation.register_section(TITLE, lambda: text(current()))


def text(state):
    """Return the section as text; it may not raise."""
    try:
        counted = {} if state is None else state.counted()
        generation = None if state is None else state.generation
    except Exception as error:
        return f'{type(error).__name__}: {error}'
    lines = [{'pid': os.getpid(), 'generation': generation}]
    lines.extend({'host': host, **found}
                 for host, found in sorted(counted.items()))
    return '\n'.join(map(json.dumps, lines))
