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
from vswitch_aware_scheduler.store import trial_records

__all__ = ['ASSUMED', 'BudgetState', 'CONFIRMED', 'Changes', 'ClaimChanges',
           'ClaimsSeen', 'Decision', 'EXPIRED', 'ErrorBudget', 'FORGOTTEN',
           'FleetFacts', 'FormerInstance', 'Generation', 'HOST', 'HostProfile',
           'InstanceRecord', 'InventoryState', 'KEPT_DAYS', 'MOVED',
           'ModelSummary', 'Modeler', 'MoveRecord', 'NOT_PLACED', 'NO_HOST',
           'PLACED', 'PlanRecord', 'Prior', 'RECOVERY_SECONDS', 'ResumePoint',
           'Share', 'Store', 'StoredClaim', 'StoredModel', 'StoredSums',
           'StoredTrial', 'TrialOutcome', 'UPLINK', 'Unmodelled', 'Worker']

ASSUMED = claim_records.ASSUMED
BudgetState = budgets.BudgetState
CONFIRMED = claim_records.CONFIRMED
Changes = generations.Changes
ClaimChanges = claim_records.ClaimChanges
ClaimsSeen = claim_records.ClaimsSeen
Decision = decisions.Decision
EXPIRED = claim_records.EXPIRED
ErrorBudget = budgets.ErrorBudget
FORGOTTEN = claim_records.FORGOTTEN
FleetFacts = service_records.FleetFacts
FormerInstance = instance_records.FormerInstance
Generation = generations.Generation
HOST = budgets.HOST
HostProfile = profile_records.HostProfile
InventoryState = instance_records.InventoryState
KEPT_DAYS = budgets.KEPT_DAYS
MOVED = claim_records.MOVED
ModelSummary = model_records.ModelSummary
Modeler = service_records.Modeler
MoveRecord = rebalance_records.MoveRecord
NOT_PLACED = decisions.NOT_PLACED
NO_HOST = decisions.NO_HOST
PLACED = decisions.PLACED
InstanceRecord = instance_records.InstanceRecord
PlanRecord = rebalance_records.PlanRecord
Prior = prior_records.Prior
RECOVERY_SECONDS = budgets.RECOVERY_SECONDS
ResumePoint = model_records.ResumePoint
Share = budgets.Share
Store = database.Store
StoredClaim = claim_records.StoredClaim
StoredModel = model_records.StoredModel
StoredSums = budgets.StoredSums
StoredTrial = trial_records.StoredTrial
TrialOutcome = trial_records.TrialOutcome
UPLINK = budgets.UPLINK
Unmodelled = model_records.Unmodelled
Worker = service_records.Worker
