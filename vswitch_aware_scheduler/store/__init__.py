# SPDX-License-Identifier: Apache-2.0
"""Persistent state: traffic models, host profiles and more in an SQL database.

A module for each kind of thing has its records, which are plain values, its
tables, and functions on a connection. Other packages use the records and
:class:`Store`, whose methods are these functions.
:mod:`vswitch_aware_scheduler.store.migration` creates and updates the schema.
The package never reads configuration: the caller passes a URL and a timeout.
"""

from vswitch_aware_scheduler.store import api
from vswitch_aware_scheduler.store import budgets
from vswitch_aware_scheduler.store import claims
from vswitch_aware_scheduler.store import decisions
from vswitch_aware_scheduler.store import facts
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import instances
from vswitch_aware_scheduler.store import models
from vswitch_aware_scheduler.store import plans
from vswitch_aware_scheduler.store import priors
from vswitch_aware_scheduler.store import profiles
from vswitch_aware_scheduler.store import sql

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
Store = api.Store
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
