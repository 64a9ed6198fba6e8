# SPDX-License-Identifier: Apache-2.0
"""The commands.

If a user interrupts a command while it is still being imported, Python ends
the process as an interrupted one, without a traceback.
"""

import sys


def _hide_interrupts(show_error):
    def show(kind, error, trace):
        if not issubclass(kind, KeyboardInterrupt):
            show_error(kind, error, trace)
    return show


sys.excepthook = _hide_interrupts(sys.excepthook)
