# SPDX-License-Identifier: Apache-2.0
"""Watcher's planner for the migrations of the strategy."""

from watcher.decision_engine.planner import weight

from vswitch_aware_scheduler.budgets.watcher import action

__all__ = ['NAME', 'RebalancePlanner']

#: Name of the planner, as its entry point has it.
NAME = 'vswitch_rebalance'


class RebalancePlanner(weight.WeightPlanner):
    """Watcher's weight planner, with a weight for this package's action.

    Migrations run one after another, because each needs the rebalancing lock.
    """

    action_weights = {**weight.WeightPlanner.action_weights, action.NAME: 30,
                      'migrate': 29}
    parallelization = {**weight.WeightPlanner.parallelization, action.NAME: 1}
