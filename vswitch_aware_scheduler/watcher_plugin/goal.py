# SPDX-License-Identifier: Apache-2.0
"""Watcher's goal of error budgets, and the efficacy of a solution."""

from watcher.decision_engine.goal import base
from watcher.decision_engine.goal.efficacy import base as efficacy_base
from watcher.decision_engine.goal.efficacy import indicators
from watcher.decision_engine.solution import efficacy

__all__ = ['ErrorBudgetEfficacy', 'ErrorBudgetGoal', 'NAME']

#: Name of the goal, as its entry point has it.
NAME = 'vswitch_error_budget'


class HostsInDebt(indicators.IndicatorSpecification):
    """Number of hosts that have overspent their error budget."""

    schema = {'type': 'integer', 'minimum': 0}

    def __init__(self):
        super().__init__(
            name='hosts_in_debt',
            description='Hosts whose virtual switch was overloaded for longer '
                        'than its error budget allows.')


class HostsRelieved(indicators.IndicatorSpecification):
    """Number of hosts in debt that an instance leaves."""

    schema = {'type': 'integer', 'minimum': 0}

    def __init__(self):
        super().__init__(
            name='hosts_relieved',
            description='Hosts in debt that the solution takes an instance '
                        'from.')


class OverloadBefore(indicators.IndicatorSpecification):
    """Seconds of overload in a week without the solution."""

    schema = {'type': 'number', 'minimum': 0}

    def __init__(self):
        super().__init__(
            name='overload_seconds_before',
            description='Expected overload of the relieved hosts in a week '
                        'without the solution.', unit='s')


class OverloadAfter(indicators.IndicatorSpecification):
    """Seconds of overload in a week with the solution."""

    schema = {'type': 'number', 'minimum': 0}

    def __init__(self):
        super().__init__(
            name='overload_seconds_after',
            description='Expected overload of the relieved hosts in a week '
                        'with the solution.', unit='s')


class ErrorBudgetEfficacy(efficacy_base.EfficacySpecification):
    """What Watcher shows of a solution: hosts in debt, overload, moves."""

    def get_indicators_specifications(self):
        """Return the list of indicators that the strategy sets."""
        return [HostsInDebt(), HostsRelieved(), OverloadBefore(),
                OverloadAfter(), indicators.InstanceMigrationsCount()]

    def get_global_efficacy_indicator(self, indicators_map=None):
        """Return the share of the expected overload that is avoided.

        :param indicators_map: the values of the indicators by name, or None
        :returns: list of one Indicator, in per cent
        """
        before = getattr(indicators_map, 'overload_seconds_before', 0)
        after = getattr(indicators_map, 'overload_seconds_after', 0)
        return [efficacy.Indicator(
            name='overload_avoided',
            description='Share of the expected overload of the relieved '
                        'hosts that the solution avoids.',
            unit='%', value=100 * (before - after) / before if before else 0)]


class ErrorBudgetGoal(base.Goal):
    """Keep the virtual switch of each host within its error budget."""

    @classmethod
    def get_name(cls):
        """Return the name of the goal."""
        return NAME

    @classmethod
    def get_display_name(cls):
        """Return the name that people see."""
        return 'Error budgets of virtual switches'

    @classmethod
    def get_translatable_display_name(cls):
        """Return the name that people see, as a key of translations."""
        return 'Error budgets of virtual switches'

    @classmethod
    def get_efficacy_specification(cls):
        """Return the :class:`ErrorBudgetEfficacy`."""
        return ErrorBudgetEfficacy()
