# SPDX-License-Identifier: Apache-2.0
"""nova-scheduler that writes down how long threads spend in our hooks.

A line for each call, to a file by the number of the process in the folder
that VSWITCH_TIMES names: hook, seconds of processor of the thread, seconds.
Calls that began before the first one had ended have ",first" at their name.

If the variable REFUSE_EVERY is a number N, Placement refuses each N-th claim
of a worker, as if another process had used the resources meanwhile.
"""

import functools
import itertools
import os
import sys
import time

from tests.cloud import monotonic_adapters  # noqa: F401

# Before the rest of nova: it decides about threads.
from nova.cmd import scheduler
from nova.scheduler.client import report

from vswitch_aware_scheduler.scheduler import filters
from vswitch_aware_scheduler.scheduler import nova_hooks
from vswitch_aware_scheduler.scheduler import weights

FOLDER = os.environ['VSWITCH_TIMES']


def timed(function, name=None):
    ended = set()

    @functools.wraps(function)
    def measured(*args, **kwargs):
        hook = name or args[0]
        label = hook if hook in ended else f'{hook},first'
        began, cpu = time.monotonic(), time.thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            ended.add(hook)
            line = (f'{label} {time.thread_time() - cpu:.6f} '
                    f'{time.monotonic() - began:.6f}\n')
            with open(os.path.join(FOLDER, str(os.getpid())), 'a') as stream:
                stream.write(line)
    return measured


def watch():
    os.makedirs(FOLDER, exist_ok=True)
    nova_hooks._call = timed(nova_hooks._call)
    for owner, name in ((filters.VSwitchFilter, 'filter_all'),
                        (weights.VSwitchWeigher, 'weigh_objects')):
        setattr(owner, name, timed(getattr(owner, name), name))


def refuse(every):
    original = report.SchedulerReportClient.claim_resources
    numbers = itertools.count(1)

    @functools.wraps(original)
    def claim_resources(*args, **kwargs):
        return next(numbers) % every != 0 and original(*args, **kwargs)

    report.SchedulerReportClient.claim_resources = claim_resources


if __name__ == '__main__':
    watch()
    if 'REFUSE_EVERY' in os.environ:
        refuse(int(os.environ['REFUSE_EVERY']))
    sys.exit(scheduler.main())
