# SPDX-License-Identifier: Apache-2.0
"""Importing it lets keystoneauth1's adapters go by the monotonic clock.

An adapter of keystoneauth1 5 sends nothing before the time of its making, by
the clock of the day: a nova-compute or nova-scheduler whose clock is set back
to a time before its start asks placement for nothing until that time has come
again, with or without this project. Here the services have run for minutes.
Processes whose clock is not stepped are left as they are.
"""

import os
import time
import types

from keystoneauth1 import _fair_semaphore

if 'VSWITCH_CLOCK_STEP' in os.environ:
    _fair_semaphore.time = types.SimpleNamespace(
        time=time.monotonic, sleep=time.sleep)
