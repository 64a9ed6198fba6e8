# SPDX-License-Identifier: Apache-2.0
"""Predicts the overload of the hosts of a store, as a scheduler does."""

from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.report import stored_fleet

__all__ = ['predicted']


def predicted(store, default_law, ignores_unknown, progress=None):
    """Return {host: predicted share of overload} of the hosts of a store.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param default_law: as in :class:`.StoredFleet`
    :param ignores_unknown: as in :class:`.StoredFleet`
    :param progress: None, or callable(done, total)
    :raises StoreError: if the store cannot be read
    """
    hosts, uplinks, problems = policy_in_force.unpack(
        store.fleet('host').facts, store.fleet('uplink').facts)
    fleet = stored_fleet.StoredFleet(
        store, lambda names: policy_in_force.Policies(hosts, uplinks, {},
                                                      problems),
        default_law, ignores_unknown=ignores_unknown)
    names = list(hosts)
    return {name: load.overload_probability for name, load in zip(
        names, fleet.loads(names, progress))}
