# SPDX-License-Identifier: Apache-2.0
"""Plugins for OpenStack Watcher: rebalancing by audits and action plans.

Watcher finds them by the entry points in setup.cfg: a goal, a strategy that
proposes what ``vswitch-manage rebalance`` proposes, a planner, and an action
that carries out one migration with the lock, the checks and the record of that
command. Only Watcher's services import these modules. ``cmd.watcher`` adds the
configuration to the strategy and the action.
"""
