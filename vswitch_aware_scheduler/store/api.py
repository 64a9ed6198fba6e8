# SPDX-License-Identifier: Apache-2.0
"""The store as other packages use it: the functions of all kinds of things."""

import typing

from vswitch_aware_scheduler.store import budgets
from vswitch_aware_scheduler.store import claims
from vswitch_aware_scheduler.store import damage
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import decisions
from vswitch_aware_scheduler.store import engines
from vswitch_aware_scheduler.store import facts
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import instances
from vswitch_aware_scheduler.store import models
from vswitch_aware_scheduler.store import plans
from vswitch_aware_scheduler.store import priors
from vswitch_aware_scheduler.store import profiles
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import stays

__all__ = ['Store']


class Store(database.Database):
    """The store behind an SQLAlchemy URL.

    Each method is a function of a module for a kind of thing, which documents
    it. A damaged row is omitted and named in the log.
    """

    generation = generations.read
    secret = generations.secret
    basis = generations.basis
    model = models.read
    has_models = models.exist
    model_times = models.times
    measured_seconds = models.measured_seconds
    unreadable_models = models.unreadable
    chains = models.chains
    laws = models.laws
    learned = models.learned
    resume_points = models.resume_points
    host_profiles = profiles.read
    placements = instances.read
    projects = instances.projects
    inventory = instances.inventory
    former_instances = instances.former
    read_claims = claims.read
    claiming = claims.claiming
    purge_claims = claims.purge
    modelers = facts.modelers
    workers = facts.workers
    fleet = facts.read
    report_modeler = facts.report_modeler
    report_worker = facts.report_worker
    write_fleet = facts.write
    count_decisions = decisions.count
    write_decisions = decisions.write
    purge_decisions = decisions.purge
    error_budgets = budgets.read
    budget_state = budgets.state
    debts = budgets.debts
    charges = budgets.charges
    vm_times = budgets.vm_times
    silent_instances = budgets.silent
    measured_rates = budgets.measured
    sum_history = budgets.sums
    write_measured_rates = budgets.write_measured
    settle_budgets = budgets.settle
    moves = plans.read_moves
    # These hide the modules of the same names.
    models = models.summaries
    priors = priors.read
    stays = stays.read
    decisions = decisions.read
    plans = plans.read_plans

    def read_changes(self, since: sql.Generation | None = None
                     ) -> generations.Changes:
        """As :func:`.generations.changes`; log recovered rows."""
        changes = generations.changes(self, since)
        self._log_recovered(changes)
        return changes

    def write(self, *records: typing.Any, **more: typing.Any
              ) -> sql.Generation:
        """Publish a :class:`.Write` of these arguments.

        See :func:`.generations.write`.
        """
        return generations.write(self, generations.Write(*records, **more))

    def server_time(self) -> float | None:
        """Return the time of the database's clock, in seconds UTC.

        It is None for SQLite, which uses the clock of this machine.
        """
        return None if engines.sqlite_path(self._url) is not None \
            else self.read(sql.now)

    def damaged(self) -> damage.Reasons:
        """Return {(kind, name): reason in words} of the damaged rows.

        The method reads all rows that :meth:`read_changes` and
        :meth:`read_claims` read, and the rows of counts.
        """
        return {**self.read(_damaged), **self.read_claims().damaged}


def _damaged(connection):
    for function in (
            generations.changes, priors.read, instances.read, facts.workers,
            facts.modelers, decisions.read, plans.read_plans,
            plans.read_moves, budgets.read, budgets.measured):
        function(connection)
    for kind in facts.FLEET_KINDS:
        facts.read(connection, kind)
    return {**damage.of(connection), **models.damaged_counts(connection)}
