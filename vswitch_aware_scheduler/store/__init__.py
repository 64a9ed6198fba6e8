# SPDX-License-Identifier: Apache-2.0
"""Persistent state: traffic models, host profiles and more in an SQL database.

Other packages only use :class:`Store` and the records, which are plain values.
:mod:`vswitch_aware_scheduler.store.migration` creates and updates the schema.
The package never reads configuration: the caller passes a URL and a timeout.
"""

from vswitch_aware_scheduler.store import budgets
from vswitch_aware_scheduler.store import claim_records
from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import decisions
from vswitch_aware_scheduler.store import generations
from vswitch_aware_scheduler.store import instance_records
from vswitch_aware_scheduler.store import model_records
from vswitch_aware_scheduler.store import prior_records
from vswitch_aware_scheduler.store import profile_records
from vswitch_aware_scheduler.store import rebalance_records
from vswitch_aware_scheduler.store import service_records

__all__ = ['BudgetState', 'CLAIMED', 'CONTRADICTED', 'Changes', 'Charge',
           'ClaimChanges', 'ClaimsSeen', 'Debt', 'Decision', 'ErrorBudget',
           'FRESH_SECONDS', 'FleetFacts', 'FormerInstance', 'Generation',
           'HELD_SECONDS', 'HOST', 'HostProfile', 'InstanceRecord',
           'InventoryState', 'KEPT_DAYS', 'Measured', 'ModelSummary',
           'Modeler', 'MoveRecord', 'NOT_PLACED', 'NO_HOST', 'PLACED',
           'PlanRecord', 'Prediction', 'Prior', 'RECOVERY_SECONDS',
           'ResumePoint', 'Store', 'StoredClaim', 'StoredModel', 'StoredSums',
           'UPLINK', 'Unmodelled', 'VMTime', 'WITHDRAWN', 'Worker']

BudgetState = budgets.BudgetState
CLAIMED = claim_records.CLAIMED
CONTRADICTED = budgets.CONTRADICTED
Charge = budgets.Charge
Changes = generations.Changes
ClaimChanges = claim_records.ClaimChanges
ClaimsSeen = claim_records.ClaimsSeen
Debt = budgets.Debt
Decision = decisions.Decision
ErrorBudget = budgets.ErrorBudget
FRESH_SECONDS = budgets.FRESH_SECONDS
FleetFacts = service_records.FleetFacts
FormerInstance = instance_records.FormerInstance
Generation = generations.Generation
HELD_SECONDS = claim_records.HELD_SECONDS
HOST = budgets.HOST
HostProfile = profile_records.HostProfile
InventoryState = instance_records.InventoryState
KEPT_DAYS = budgets.KEPT_DAYS
Measured = budgets.Measured
ModelSummary = model_records.ModelSummary
Modeler = service_records.Modeler
MoveRecord = rebalance_records.MoveRecord
NOT_PLACED = decisions.NOT_PLACED
NO_HOST = decisions.NO_HOST
PLACED = decisions.PLACED
InstanceRecord = instance_records.InstanceRecord
PlanRecord = rebalance_records.PlanRecord
Prediction = budgets.Prediction
Prior = prior_records.Prior
RECOVERY_SECONDS = budgets.RECOVERY_SECONDS
ResumePoint = model_records.ResumePoint
Store = database.Store
StoredClaim = claim_records.StoredClaim
StoredModel = model_records.StoredModel
StoredSums = budgets.StoredSums
UPLINK = budgets.UPLINK
Unmodelled = model_records.Unmodelled
VMTime = budgets.VMTime
of_projects = budgets.of_projects
WITHDRAWN = claim_records.WITHDRAWN
Worker = service_records.Worker
