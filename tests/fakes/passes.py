# SPDX-License-Identifier: Apache-2.0
"""Single steps of a pass of the modeler."""

import time

from vswitch_aware_scheduler.modeler import passes


def run_step(name, set_up, clock, **values):
    """Run one step; return None or the problem in words.

    :param name: name of the step
    :param set_up: :class:`~.wiring.SetUp`
    :param clock: callable, returns seconds UTC
    :param values: other values of the :class:`~.passes.Pass`
    """
    step, = [step for step in passes.STEPS if step.name == name]
    return step.run(passes.Pass(set_up, clock, time.monotonic, **values))
