# SPDX-License-Identifier: Apache-2.0
"""Watcher's goal of error budgets, and the efficacy of a solution."""

from watcher.decision_engine.goal import base
from watcher.decision_engine.goal.efficacy import base as efficacy_base
from watcher.decision_engine.goal.efficacy import indicators
from watcher.decision_engine.solution import efficacy

__all__ = ['ErrorBudgetEfficacy', 'ErrorBudgetGoal', 'NAME']

#: Name of the goal, as its entry point has it.
NAME = 'vswitch_error_budget'


class _Indicator(indicators.IndicatorSpecification):
    """A number of at least 0 that the strategy sets.

    :param name: name of the indicator
    :param description: what the number states
    :param number_type: type of JSON, ``integer`` or ``number``
    :param unit: unit of the number, or None
    """

    schema = None

    def __init__(self, name, description, number_type='number', unit=None):
        super().__init__(name=name, description=description, unit=unit)
        self.schema = {'type': number_type, 'minimum': 0}


class ErrorBudgetEfficacy(efficacy_base.EfficacySpecification):
    """What Watcher shows of a solution: hosts in debt, overload, moves."""

    def get_indicators_specifications(self):
        """Return the list of indicators that the strategy sets."""
        return [
            _Indicator('hosts_in_debt', 'Hosts that have spent more overload '
                                        'than their error budget allows.',
                       'integer'),
            _Indicator('hosts_relieved', 'Hosts in debt that the solution '
                                         'takes an instance from.', 'integer'),
            _Indicator('overload_seconds_before',
                       'Expected overload of the relieved hosts in a week '
                       'without the solution.', unit='s'),
            _Indicator('overload_seconds_after',
                       'Expected overload of the relieved hosts in a week '
                       'with the solution.', unit='s'),
            _Indicator('vm_overload_seconds_avoided',
                       'Expected time in a week that instances are on '
                       'overloaded hosts, and that the solution avoids.',
                       unit='s'),
            indicators.InstanceMigrationsCount()]

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
