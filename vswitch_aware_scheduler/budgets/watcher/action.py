# SPDX-License-Identifier: Apache-2.0
"""Watcher's action: one migration, as vswitch-manage rebalance makes it."""

import dataclasses
import math
import time

from watcher.applier.actions import base
from watcher.common import exception

from vswitch_aware_scheduler.budgets import executor
from vswitch_aware_scheduler.budgets import proposal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.store import plans as records

__all__ = ['BaseRebalanceMigration', 'NAME', 'parameters']

#: Name of the action, as its entry point has it.
NAME = 'vswitch_migrate'

LOG = logs.get_logger(__name__)


def parameters(plan: proposal.RebalanceProposal, name: str,
               move: proposal.ProposedMove) -> dict:
    """Return the input parameters of the action for a proposed move.

    :param name: name of the plan, the same for all of its actions
    """
    capacity = plan.capacity_kbps
    return {
        'plan': name, 'reason': plan.reason,
        'capacity_kbps': capacity if math.isfinite(capacity) else None,
        'measured_until': plan.measured_until,
        'move': {key: value for key, value in dataclasses.asdict(move).items()
                 if key != 'instance_uuid'}}


class BaseRebalanceMigration(base.BaseAction):
    """Migrates an instance with the lock of rebalancing held.

    The migration is checked again just before it begins, and recorded in the
    store. After a failure, only those actions of the plan are skipped that
    avoid overload only together with it. A subclass has ``connect``, see
    :class:`~vswitch_aware_scheduler.cmd.watcher.RebalanceMigration`.
    """

    @property
    def schema(self) -> dict:
        """JSON schema of the input parameters."""
        return {
            'type': 'object',
            'properties': {
                'resource_id': {'type': 'string', 'minLength': 1},
                'plan': {'type': 'string', 'minLength': 1},
                'reason': {'type': 'string'},
                'capacity_kbps': {'type': ['number', 'null']},
                'measured_until': {'type': 'number'},
                'move': {
                    'type': 'object',
                    'required': [
                        field.name for field
                        in dataclasses.fields(proposal.ProposedMove)
                        if field.name != 'instance_uuid'],
                },
            },
            'required': ['resource_id', 'plan', 'move', 'measured_until'],
            'additionalProperties': False,
        }

    def get_description(self) -> str:
        """Return what Watcher's list of actions says."""
        return ('Live migrate an instance to keep virtual switches within '
                'their error budgets')

    @property
    def _plan(self):
        return f'Watcher plan {self.input_parameters["plan"]}'

    def pre_condition(self) -> None:
        """Skip the action if a migration that it needs has failed."""
        store, *_ = self.connect()
        for plan in store.plans(records.INCOMPLETE):
            if not plan.made_by.startswith(self._plan):
                continue
            for move in store.moves(plan.plan_id):
                if move.body.get('group') \
                        == self.input_parameters['move']['group']:
                    raise exception.ActionSkipped(
                        f'it helps only together with another migration, '
                        f'which failed: {plan.reason}')

    def execute(self) -> bool:
        """Carry the migration out and wait for its end.

        :raises WatcherException: when the migration failed, with the reason
        """
        store, rebalancer, _ = self.connect()
        plan_executor = executor.Executor(
            store, rebalancer.cloud, rebalancer.settings,
            executor.holder_name(self._plan), time.time, time.monotonic,
            LOG.info)
        try:
            with plan_executor:
                if plan_executor.resume():
                    plan_executor.run(time.sleep)
                plan_executor.begin(self._proposal())
                plan_executor.run(time.sleep)
        except exceptions.VSwitchError as error:
            raise exception.WatcherException(str(error)) from error
        if plan_executor.problem is not None:
            raise exception.WatcherException(plan_executor.problem)
        return True

    def _proposal(self):
        parameters = self.input_parameters
        capacity = parameters.get('capacity_kbps')
        move = proposal.ProposedMove(
            instance_uuid=self.resource_id, **parameters['move'])
        return proposal.RebalanceProposal(
            time.time(), parameters['measured_until'], 0, (), (move,), 0,
            parameters.get('reason', ''),
            math.inf if capacity is None else capacity)

    def revert(self) -> bool:
        """Leave the instance where it is: its migration has ended."""
        LOG.info('instance %s stays on its host', self.resource_id)
        return True

    def post_condition(self) -> None:
        """Check nothing: :meth:`execute` waits for the end."""
