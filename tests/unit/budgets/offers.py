# SPDX-License-Identifier: Apache-2.0
"""Moves that cost nothing."""

import numpy as np

from vswitch_aware_scheduler.budgets import relief


def free(loads, **words):
    """Return Constraints that keep nothing from anywhere."""
    return relief.Constraints(np.zeros((len(loads.hosts), 0)),
                              np.zeros((loads.most.shape[1], 0)), **words)


def plan(loads, balance, terms, rule, recent, constraints, empty=(),
         costs=None, accepting=None, **words):
    """Return the moves of a plan for a Case with these values."""
    return relief.plan(relief.ReliefCase(
        loads, balance, terms, recent, constraints, empty, costs, accepting),
        rule, **words)
