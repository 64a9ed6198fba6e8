# SPDX-License-Identifier: Apache-2.0
"""Pictures. matplotlib is optional and imported when a picture is drawn."""

import os

from vswitch_aware_scheduler.common import exceptions

__all__ = ['new', 'prepare']


def new(**arguments):
    """Return an empty Figure of matplotlib.

    :raises InvalidInput: if matplotlib is not installed
    """
    try:
        from matplotlib import figure
    except ImportError:
        raise exceptions.InvalidInput(
            'pictures need matplotlib, which is not installed; install '
            'vswitch_aware_scheduler[plot]') from None
    return figure.Figure(layout='constrained', **arguments)


def prepare(*paths: str) -> None:
    """Check that pictures can be written.

    :raises InvalidInput: as :func:`new`, or if a file cannot be written
    """
    new()
    for path in paths:
        directory = os.path.dirname(path) or '.'
        if os.path.isdir(path) or not os.path.isdir(directory) \
                or not os.access(directory, os.W_OK):
            raise exceptions.InvalidInput(
                f'plot: {path!r}; expected a file in a directory that can be '
                f'written')
