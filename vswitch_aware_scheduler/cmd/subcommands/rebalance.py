# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage rebalance: propose or execute migrations by error budgets.

Without ``--execute`` the command only prints a plan. With ``--execute`` it
executes the plan through Nova; an interrupted plan is completed first.
"""

import argparse
import dataclasses
import time

from vswitch_aware_scheduler.budgets import effects
from vswitch_aware_scheduler.budgets import executor
from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.modeler import wiring
from vswitch_aware_scheduler.store import plans as records

__all__ = ['Rebalance', 'Run']

_column = base.Column


def _changed_settings(arguments, settings):
    """Return the Settings, changed by the options of the command line.

    :raises InvalidInput: when a number is below 1
    """
    if arguments.execute and arguments.history:
        raise exceptions.InvalidInput(
            thing='--execute and --history', seen='both given',
            expected='one of them')
    return dataclasses.replace(settings, **{
        name: checks.check(f'--{name}', getattr(arguments, name),
                           checks.whole(default=getattr(settings, name)))
        for name in ('parallel', 'checks')})


# A plan

def _seconds(value):
    return f'{value:.0f}s'


#: Columns of a plan.
_PLAN_COLUMNS = [
    _column('INSTANCE', 'name'), _column('FROM', 'source'),
    _column('TO', 'destination'),
    _column('BUDGET', 'budget_before', _seconds),
    _column('IN_7_DAYS', 'budget_after', _seconds),
    _column('TO_BUDGET', 'destination_budget_before', _seconds),
    _column('TO_IN_7_DAYS', 'destination_budget_after', _seconds),
    _column('TAKES', 'seconds', _seconds),
    _column('MIB', 'transferred_mib', '{:.0f}'.format),
    _column('REASON', 'reason')]


def _plan_rows(plan):
    """Return a Proposal as rows of JSON."""
    return [dataclasses.asdict(move) for move in plan.moves]


def _plan_facts(plan, settings):
    """Return the JSON of a Proposal without its moves."""
    refusal = None
    try:
        settings.check_network(plan.capacity_kbps, plan.largest_mib)
    except exceptions.InvalidInput as error:
        refusal = str(error)
    return {'made_at': plan.made_at, 'until': plan.measured_until,
            'hosts': plan.hosts, 'held_back': plan.held_back,
            'reason': plan.reason, 'executable': refusal is None,
            'not_executable': refusal if plan.moves else None,
            'in_debt': [dataclasses.asdict(budget) for budget in plan.in_debt]}


class Run:
    """One run of the command.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param rebalancer: :class:`~..budgets.rebalancer.Rebalancer`
    :param settings: :class:`~..budgets.rebalance_settings.RebalanceSettings`
    :param make_driver: returns the telemetry driver
    """

    def __init__(self, store, rebalancer, settings, make_driver):
        self._store = store
        self._rebalancer = rebalancer
        self._settings = settings
        self._make_driver = make_driver

    def propose(self, keeping=None):
        """Return the :class:`.RebalanceProposal` for the current state.

        :param keeping: None, or callable(progress) that returns the callback
            for the progress
        """
        with terminal.progress('reading traffic') as progress:
            return self._rebalancer.propose(
                self._store, self._make_driver(), time.time(),
                progress if keeping is None else keeping(progress),
                self._settings)

    def execute(self, say, show):
        """Execute a plan, or continue an interrupted plan.

        :param say: called with each message about the progress
        :param show: called with the Proposal before its execution starts
        :returns: dictionary with the result
        :raises InvalidInput: when migrations would be too slow
        :raises StoreError: when another process has the lock
        """
        plan_executor = executor.Executor(
            self._store, self._rebalancer.cloud, self._settings,
            executor.holder_name('vswitch-manage rebalance'), time.time,
            time.monotonic, say)
        began = time.time()
        reason = None
        try:
            with plan_executor:
                is_resumed = plan_executor.resume() > 0
                if not is_resumed:
                    plan = self.propose(plan_executor.keeping)
                    show(plan)
                    reason = plan.reason
                    if plan.moves:
                        plan_executor.begin(plan)
                plan_executor.run(time.sleep)
        except KeyboardInterrupt:
            say('Running migrations continue in Nova. Run the same command '
                'again to continue the plan.')
            raise
        moves = [move for move in self._store.moves() if move.ended_at is None
                 or move.ended_at >= began]
        return {'resumed': is_resumed, 'reason': reason,
                'problem': plan_executor.problem,
                'done': sum(move.state == records.DONE for move in moves),
                'moves': _history_rows(moves)}

    def history(self) -> dict:
        """Return the migrations that were started, as rows of JSON."""
        effects.update(self._store, time.time())
        return _history_rows(move for move in self._store.moves()
                             if move.begun_at is not None)

    def plans(self) -> list:
        """Return the plans as rows of JSON, the newest first."""
        return [dataclasses.asdict(plan) for plan in self._store.plans()]


# The record

#: Columns of the migrations that were begun.
_HISTORY_COLUMNS = [
    _column('BEGUN', 'begun_at_iso'), _column('INSTANCE', 'name'),
    _column('FROM', 'source'), _column('TO', 'destination'),
    _column('STATE', 'state'),
    _column('TOOK', 'took_seconds', _seconds),
    _column('EXPECTED', 'seconds', _seconds),
    _column('OVERLOAD_BEFORE', 'overload_day_before', '{:.2%}'.format),
    _column('OVERLOAD_AFTER', 'overload_day_after', '{:.2%}'.format),
    _column('DETAIL', 'detail')]


def _history_rows(moves):
    """Return MoveRecords as rows of JSON."""
    return [{**move.body, 'plan_id': move.plan_id, 'position': move.position,
             'instance_uuid': move.instance_uuid, 'source': move.source,
             'destination': move.destination, 'state': move.state,
             'begun_at': move.begun_at, 'ended_at': move.ended_at}
            for move in moves]


class Rebalance(base.List):
    """Propose or execute migrations away from hosts in debt."""

    rows_key = 'moves'

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument(
            '--execute', action='store_true',
            help='execute the plan, or continue an interrupted plan; without '
                 'this option nothing is changed')
        parser.add_argument(
            '--parallel', type=int, metavar='K',
            help='number of migrations that run at the same time (default: 1)')
        parser.add_argument(
            '--checks', type=int, metavar='N',
            help='relieve hosts that were in debt at N checks in a row '
                 '(default: the option rebalance_checks)')
        parser.add_argument(
            '--history', action='store_true',
            help='print the migrations that were started, and their effect')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return a plan, the result of its execution, or the history."""
        conf = self.all_options
        rebalancer = wiring.make_rebalancer(conf)
        settings = _changed_settings(arguments, rebalancer.settings)
        run = Run(self.store, rebalancer, settings,
                  lambda: wiring.configured_driver(conf))
        self.columns, self.below = _HISTORY_COLUMNS, 'migrations'
        if arguments.history:
            return {'plans': run.plans(), 'moves': run.history()}

        def show(plan):
            if arguments.formatter == 'table':
                terminal.print_line(plan.reason)
                terminal.print_table(*base.table_of(_plan_rows(plan),
                                                    _PLAN_COLUMNS))

        if arguments.execute:
            answer = run.execute(context.say, show)
            self.status = int(answer['problem'] is not None)
            self.below = f'migrations, of which {answer["done"]} are done' + (
                '; they were of an earlier plan, the same command makes a new '
                'one' if answer['resumed'] else '')
            return answer
        self.columns = _PLAN_COLUMNS
        plan = run.propose()
        self.below = f'migrations: {plan.reason}'
        facts = _plan_facts(plan, settings)
        if facts['not_executable']:
            context.say(
                f'the plan cannot be executed: {facts["not_executable"]}')
        return {**facts, 'moves': _plan_rows(plan)}
