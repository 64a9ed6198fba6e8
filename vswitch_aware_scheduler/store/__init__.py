# SPDX-License-Identifier: Apache-2.0
"""Durable state: traffic models and host profiles in an SQL database.

:class:`Store` is the only door to it; the records it takes and gives are
plain values. :mod:`vswitch_aware_scheduler.store.migration` makes and updates
the schema. Never reads configuration: a URL and a timeout are handed in.
"""

from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import decisions
from vswitch_aware_scheduler.store import records

__all__ = ['ASSUMED', 'Basis', 'CONFIRMED', 'Changes', 'ClaimChanges',
           'ClaimsSeen', 'Decision', 'EXPIRED', 'FORGOTTEN', 'FleetFacts',
           'FormerInstance', 'Generation', 'HostProfile', 'Inventory',
           'Learned', 'MOVED', 'ModelSummary', 'Modeler', 'NOT_PLACED',
           'NO_HOST', 'PLACED', 'Placement',
           'Prior', 'ResumePoint', 'Store', 'StoredClaim', 'StoredModel',
           'StoredTrial', 'TrialOutcome', 'Unmodelled', 'Worker',
           'may_replace']

ASSUMED = records.ASSUMED
Basis = records.Basis
CONFIRMED = records.CONFIRMED
Changes = records.Changes
ClaimChanges = records.ClaimChanges
ClaimsSeen = records.ClaimsSeen
Decision = decisions.Decision
EXPIRED = records.EXPIRED
FORGOTTEN = records.FORGOTTEN
FleetFacts = records.FleetFacts
FormerInstance = records.FormerInstance
Generation = records.Generation
HostProfile = records.HostProfile
Inventory = records.Inventory
Learned = records.Learned
MOVED = records.MOVED
ModelSummary = records.ModelSummary
Modeler = records.Modeler
NOT_PLACED = decisions.NOT_PLACED
NO_HOST = decisions.NO_HOST
PLACED = decisions.PLACED
Placement = records.Placement
Prior = records.Prior
ResumePoint = records.ResumePoint
Store = database.Store
StoredClaim = records.StoredClaim
StoredModel = records.StoredModel
StoredTrial = records.StoredTrial
TrialOutcome = records.TrialOutcome
Unmodelled = records.Unmodelled
Worker = records.Worker
may_replace = records.may_replace
