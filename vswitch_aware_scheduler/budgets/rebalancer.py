# SPDX-License-Identifier: Apache-2.0
"""Rebalancing by vswitch-modeler, like ``vswitch-manage rebalance``.

The modeler makes a plan every 15 minutes. In the mode ``execute`` it checks
the migrations of the plan while it waits for its next pass, so that no pass
waits for a migration. No configuration, no clock except those that are passed.
"""

from collections.abc import Callable
import contextlib
import typing

from vswitch_aware_scheduler.budgets import executor
from vswitch_aware_scheduler.budgets import proposal
from vswitch_aware_scheduler.budgets import rebalance_settings
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler import store as model_store

__all__ = ['Rebalancer']

LOG = logs.get_logger(__name__)


class Rebalancer:
    """Proposes migrations, and executes them in the mode ``execute``."""

    def __init__(self, cloud: nova.CloudApi,
                 settings: rebalance_settings.RebalanceSettings,
                 read_fleet: Callable) -> None:
        self.cloud = cloud
        self.settings = settings
        self.read_fleet = read_fleet
        self._planned_at: float | None = None
        self._looked_at: float | None = None
        self._executor = None
        self._reason = None

    def propose(
            self, store: model_store.Store, driver: typing.Any, now: float,
            progress: Callable | None = None,
            settings: rebalance_settings.RebalanceSettings | None = None
    ) -> proposal.RebalanceProposal:
        """Return the result of :func:`.propose` for now."""
        return proposal.propose(store, self.read_fleet, self.cloud, driver,
                                settings or self.settings, now, progress)

    def plan(self, store: model_store.Store, driver: typing.Any,
             clock: Callable[[], float], monotonic: Callable[[], float],
             progress: Callable | None = None) -> None:
        """Make a plan if one is due, and start it if that is permitted."""
        if self._executor is not None or self._planned_at is not None \
                and monotonic() - self._planned_at \
                < rebalance_settings.CHECK_SECONDS:
            return
        if self.settings.mode == rebalance_settings.ADVISE:
            self._log(self.propose(store, driver, clock(), progress))
        else:
            self._begin(store, driver, clock, monotonic, progress)
        # After an error, this line is not reached: the next pass tries again.
        self._planned_at = monotonic()

    def _begin(self, store, driver, clock, monotonic, progress):
        new_executor = executor.Executor(
            store, self.cloud, self.settings,
            executor.holder_name('vswitch-modeler'), clock, monotonic,
            lambda text: LOG.info('vswitch-modeler: rebalancing: %s', text))
        with contextlib.ExitStack() as stack:
            stack.enter_context(new_executor)
            if not new_executor.resume():
                plan = self.propose(store, driver, clock(),
                                    new_executor.keeping(progress))
                self._log(plan)
                if not plan.moves:
                    return
                new_executor.begin(plan)
            self._executor = new_executor
            # The lock is kept until the plan ends.
            stack.pop_all()

    def _log(self, plan):
        """Log a proposal, unless it is as the last one."""
        moves = '; '.join(f'{move.name} ({move.instance_uuid}) from '
                          f'{move.source} to {move.destination}'
                          for move in plan.moves)
        text = f'{plan.reason}{": " if moves else ""}{moves}'
        if text != self._reason:
            self._reason = text
            LOG.info('vswitch-modeler: rebalancing: %s', text)

    def step(self, monotonic: Callable[[], float]) -> str | None:
        """Check running migrations, if a check is due."""
        if self._executor is None or self._looked_at is not None and \
                monotonic() - self._looked_at < executor.POLL_SECONDS:
            return None
        self._looked_at = monotonic()
        try:
            if self._executor.step():
                return None
            problem = self._executor.problem
        except exceptions.VSwitchError as error:
            problem = str(error)
        self.end()
        return problem

    def end(self) -> None:
        """Release the lock. Running migrations continue without it."""
        running, self._executor = self._executor, None
        if running is not None:
            try:
                running.__exit__(None, None, None)
            except exceptions.StoreError as error:
                LOG.warning('vswitch-modeler: rebalancing: the lock cannot be '
                            'released; it expires at the end of its lease: '
                            '%s', error)
