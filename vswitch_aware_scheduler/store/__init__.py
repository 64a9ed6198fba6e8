# SPDX-License-Identifier: Apache-2.0
"""Durable state: traffic models and host profiles in an SQL database.

:class:`Store` is the only door to it; the records it takes and gives are
plain values. :mod:`vswitch_aware_scheduler.store.migration` makes and updates
the schema. Never reads configuration: a URL and a timeout are handed in.
"""

from vswitch_aware_scheduler.store import database
from vswitch_aware_scheduler.store import records

__all__ = ['Basis', 'Changes', 'Generation', 'HostProfile', 'Inventory',
           'Learned', 'ModelSummary', 'Placement', 'Prior', 'ResumePoint',
           'Store', 'StoredModel', 'Unmodelled']

Basis = records.Basis
Changes = records.Changes
Generation = records.Generation
HostProfile = records.HostProfile
Inventory = records.Inventory
Learned = records.Learned
ModelSummary = records.ModelSummary
Placement = records.Placement
Prior = records.Prior
ResumePoint = records.ResumePoint
Store = database.Store
StoredModel = records.StoredModel
Unmodelled = records.Unmodelled
