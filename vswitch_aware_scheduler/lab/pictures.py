# SPDX-License-Identifier: Apache-2.0
"""Pictures. matplotlib is optional and imported when a picture is drawn."""

from vswitch_aware_scheduler.common import exceptions

__all__ = ['new']


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
