# SPDX-License-Identifier: Apache-2.0
"""What Watcher's decision engine loads: a goal, a strategy and a planner.

The strategy proposes, as actions, what ``vswitch-manage rebalance`` proposes.
"""

import dataclasses
import time
import typing
import uuid

from watcher.common import exception
from watcher.decision_engine.goal import base as goal_base
from watcher.decision_engine.goal.efficacy import base as efficacy_base
from watcher.decision_engine.goal.efficacy import indicators
from watcher.decision_engine.planner import weight
from watcher.decision_engine.solution import efficacy
from watcher.decision_engine.strategy.strategies import base

from vswitch_aware_scheduler.budgets import proposal
from vswitch_aware_scheduler.budgets import rules
from vswitch_aware_scheduler.budgets.watcher import action
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs

__all__ = ['BaseErrorBudgetStrategy', 'ErrorBudgetEfficacy', 'ErrorBudgetGoal',
           'GOAL', 'NAME', 'RebalancePlanner']

#: Names of the goal, and of the strategy and the planner, as their entry
#: points have them.
GOAL, NAME = 'vswitch_error_budget', 'vswitch_rebalance'

LOG = logs.get_logger(__name__)


#: Indicators that the strategy sets: {name: (type of JSON, unit, what the
#: number, which is at least 0, states)}.
_INDICATORS = {
    'hosts_in_debt': ('integer', None, 'Hosts that have spent more overload '
                      'than their error budget allows.'),
    'hosts_relieved': ('integer', None, 'Hosts in debt that the solution '
                       'takes an instance from.'),
    'overload_seconds_before': (
        'number', 's', 'Expected overload of the relieved hosts in a week '
        'without the solution.'),
    'overload_seconds_after': (
        'number', 's', 'Expected overload of the relieved hosts in a week '
        'with the solution.'),
    'vm_overload_seconds_avoided': (
        'number', 's', 'Expected time in a week that instances are on '
        'overloaded hosts, and that the solution avoids.')}


class _Indicator(indicators.IndicatorSpecification):

    schema = None

    def __init__(self, name, number_type, unit, description):
        super().__init__(name=name, description=description, unit=unit)
        self.schema = {'type': number_type, 'minimum': 0}


class ErrorBudgetEfficacy(efficacy_base.EfficacySpecification):
    """What Watcher shows of a solution: hosts in debt, overload, moves."""

    def get_indicators_specifications(self) -> list:
        """Return the list of indicators that the strategy sets."""
        return [*(_Indicator(name, *values)
                  for name, values in _INDICATORS.items()),
                indicators.InstanceMigrationsCount()]

    def get_global_efficacy_indicator(
            self, indicators_map: typing.Any = None
    ) -> list:
        """Return the share of the expected overload that is avoided.

        :returns: list of one Indicator, in per cent
        """
        before = getattr(indicators_map, 'overload_seconds_before', 0)
        after = getattr(indicators_map, 'overload_seconds_after', 0)
        return [efficacy.Indicator(
            name='overload_avoided',
            description='Share of the expected overload of the relieved '
                        'hosts that the solution avoids.',
            unit='%', value=100 * (before - after) / before if before else 0)]


class ErrorBudgetGoal(goal_base.Goal):
    """Keep the virtual switch of each host within its error budget."""

    @classmethod
    def get_name(cls) -> str:
        """Return the name of the goal."""
        return GOAL

    @classmethod
    def get_display_name(cls) -> str:
        """Return the name that people see."""
        return 'Error budgets of virtual switches'

    get_translatable_display_name = get_display_name

    @classmethod
    def get_efficacy_specification(cls) -> ErrorBudgetEfficacy:
        """Return the :class:`ErrorBudgetEfficacy`."""
        return ErrorBudgetEfficacy()


class RebalancePlanner(weight.WeightPlanner):
    """Watcher's weight planner, with a weight for this package's action.

    Migrations run one after another, because each needs the rebalancing lock.
    """

    action_weights = {**weight.WeightPlanner.action_weights, action.NAME: 30,
                      'migrate': 29}
    parallelization = {**weight.WeightPlanner.parallelization, action.NAME: 1}


class BaseErrorBudgetStrategy(base.BaseStrategy):
    """Relieves hosts whose virtual switch has overspent its error budget.

    It reads error budgets and measured traffic from the store of
    vswitch_aware_scheduler and asks Nova; it uses none of Watcher's data
    sources and no cluster model. Without measured traffic the audit fails and
    says why. A subclass has ``connect``, see
    :class:`~vswitch_aware_scheduler.cmd.watcher.ErrorBudgetStrategy`.
    """

    def __init__(self, config: typing.Any, osc: typing.Any = None) -> None:
        super().__init__(config, osc)
        self._planner = NAME

    @classmethod
    def get_name(cls) -> str:
        """Return the name of the strategy."""
        return NAME

    @classmethod
    def get_display_name(cls) -> str:
        """Return the name that people see."""
        return 'Relieve virtual switches in debt'

    get_translatable_display_name = get_display_name

    @classmethod
    def get_goal_name(cls) -> str:
        """Return the name of the goal."""
        return GOAL

    @classmethod
    def get_schema(cls) -> dict:
        """Return the JSON schema of the parameters of an audit."""
        return {
            'type': 'object',
            'properties': {
                'checks': {
                    'description': 'relieve hosts that were in debt at so '
                                   'many checks in a row, in place of the '
                                   'option rebalance_checks',
                    'type': 'integer', 'minimum': 1},
                'most_moves': {
                    'description': 'most migrations of an action plan, in '
                                   'place of the option rebalance_most_moves',
                    'type': 'integer', 'minimum': 1},
            },
            'additionalProperties': False,
        }

    def pre_execute(self) -> None:
        """Do nothing: Watcher's cluster model is not used."""

    def do_execute(self, audit: typing.Any = None) -> None:
        """Add one action for each proposed migration to the solution.

        :raises WatcherException: in words, when nothing can be proposed
        """
        if self.audit_scope:
            raise exception.WatcherException(
                f'scope of the audit: {self.audit_scope}; expected no scope, '
                f'because the strategy plans for all hosts together')
        try:
            store, rebalancer, make_driver = self.connect()
            settings = rebalancer.settings
            plan = rebalancer.propose(store, make_driver(), time.time(),
                                      settings=self._changed(settings))
            if plan.moves:
                settings.check_network(plan.capacity_kbps, plan.largest_mib)
        except exceptions.VSwitchError as error:
            raise exception.WatcherException(str(error)) from error
        LOG.info('rebalancing: %d migrations: %s', len(plan.moves),
                 plan.reason)
        name = str(uuid.uuid4())
        for move in plan.moves:
            self.solution.add_action(
                action.NAME, action.parameters(plan, name, move),
                move.instance_uuid)
        if plan.in_debt and not plan.moves:
            # An empty plan would not say why.
            self.solution.add_action('nop', {'message': plan.reason})
        self.solution.set_efficacy_indicators(**_indicators(plan))

    def post_execute(self) -> None:
        """Do nothing: the efficacy is known by then."""

    def _changed(self, settings):
        """Return Settings with the parameters of the audit."""
        return dataclasses.replace(settings, **{
            name: value for name, value in self.input_parameters.items()
            if name in ('checks', 'most_moves') and value is not None})


def _indicators(plan):
    """Return the values of the goal's indicators by name."""
    week = proposal.WINDOW_DAYS * rules.DAY_SECONDS
    before = {}
    for move in plan.moves:
        before.setdefault(move.source, move.overload_before)
    seconds = week * sum(before.values())
    return {
        'hosts_in_debt': len(plan.in_debt),
        'hosts_relieved': len(before),
        'overload_seconds_before': seconds,
        'overload_seconds_after': max(0.0, seconds - sum(
            move.gain_seconds for move in plan.moves)),
        'vm_overload_seconds_avoided': sum(
            move.vm_gain_seconds for move in plan.moves),
        'instance_migrations_count': len(plan.moves)}
