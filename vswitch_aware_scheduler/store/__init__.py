# SPDX-License-Identifier: Apache-2.0
"""Persistent state: traffic models, host profiles and more in an SQL database.

A module for each kind of thing has its records, which are plain values, its
tables, and functions on a connection. Other packages use the records and
:class:`Store`, whose methods are these functions.
:mod:`vswitch_aware_scheduler.store.migration` creates and updates the schema.
The package never reads configuration: the caller passes a URL and a timeout.
"""

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

__all__ = ['BudgetState', 'CLAIMED', 'CONTRADICTED', 'Changes', 'Charge',
           'ClaimChanges', 'ClaimsSeen', 'Debt', 'Decision', 'ErrorBudget',
           'FRESH_SECONDS', 'FleetFacts', 'FormerInstance', 'Generation',
           'HELD_SECONDS', 'HOST', 'HostProfile', 'InstanceRecord',
           'InventoryState', 'KEPT_DAYS', 'Measured', 'ModelSummary',
           'Modeler', 'MoveRecord', 'NOT_PLACED', 'NO_HOST', 'PLACED',
           'PlanRecord', 'Prediction', 'Prior', 'RECOVERY_SECONDS',
           'ResumePoint', 'Store', 'StoredClaim', 'StoredModel', 'StoredSums',
           'UPLINK', 'Unmodelled', 'VMTime', 'WITHDRAWN', 'Worker', 'Write',
           'of_projects']

BudgetState = budgets.BudgetState
CLAIMED = claims.CLAIMED
CONTRADICTED = budgets.CONTRADICTED
Changes = generations.Changes
Charge = budgets.Charge
ClaimChanges = claims.ClaimChanges
ClaimsSeen = claims.ClaimsSeen
Debt = budgets.Debt
Decision = decisions.Decision
ErrorBudget = budgets.ErrorBudget
FRESH_SECONDS = budgets.FRESH_SECONDS
FleetFacts = facts.FleetFacts
FormerInstance = instances.FormerInstance
Generation = sql.Generation
HELD_SECONDS = claims.HELD_SECONDS
HOST = budgets.HOST
HostProfile = profiles.HostProfile
InstanceRecord = instances.InstanceRecord
InventoryState = instances.InventoryState
KEPT_DAYS = budgets.KEPT_DAYS
Measured = budgets.Measured
ModelSummary = models.ModelSummary
Modeler = facts.Modeler
MoveRecord = plans.MoveRecord
NOT_PLACED = decisions.NOT_PLACED
NO_HOST = decisions.NO_HOST
PLACED = decisions.PLACED
PlanRecord = plans.PlanRecord
Prediction = budgets.Prediction
Prior = priors.Prior
RECOVERY_SECONDS = budgets.RECOVERY_SECONDS
ResumePoint = models.ResumePoint
StoredClaim = claims.StoredClaim
StoredModel = models.StoredModel
StoredSums = budgets.StoredSums
UPLINK = budgets.UPLINK
Unmodelled = models.Unmodelled
VMTime = budgets.VMTime
WITHDRAWN = claims.WITHDRAWN
Worker = facts.Worker
Write = generations.Write
of_projects = budgets.of_projects


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
    names = instances.names
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
        """Publish a :class:`.Write` of these: :func:`.generations.write`."""
        return generations.write(self, generations.Write(*records, **more))

    def server_time(self) -> float | None:
        """Return the database's time, seconds UTC; None: as this machine's."""
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
