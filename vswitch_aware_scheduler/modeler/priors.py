# SPDX-License-Identifier: Apache-2.0
"""Learns priors for instances without a model from the other instances.

:func:`update` combines the laws of instances by flavor and project, according
to the inventory, and writes the differences to the store. If the store has an
inventory, only instances of Nova count: existing ones, and deleted ones with a
weight that decreases. No configuration, no clock except the one that is
passed. Derivation: reference/priors.rst.
"""

from collections.abc import Callable, Iterable
import dataclasses
import typing

from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['FADING_SECONDS', 'MEMBER_SECONDS', 'PriorUpdate', 'plan', 'update']

#: Time after which the weight of a deleted instance is halved.
FADING_SECONDS = 7 * 86400.0

#: An instance counts after it has been measured for this time.
MEMBER_SECONDS = 7200.0

_DAY_SECONDS = 86400.0


@dataclasses.dataclass(frozen=True)
class PriorUpdate:
    """The result of an update.

    :ivar groups: number of groups with a prior
    :ivar instances: number of instances with a short history and a prior
    :ivar ignored: number of measured instances that Nova does not have
    """

    groups: int
    instances: int
    written: int
    removed: int
    ignored: int = 0


def update(store: model_store.Store, clock: Callable[[], float],
           min_samples: int = estimate.MIN_SAMPLES,
           member_seconds: float = MEMBER_SECONDS,
           needs_inventory: bool = False) -> PriorUpdate:
    """Update the priors of a store from its models.

    :param member_seconds: an instance counts in the priors of groups if its
        first and last sample are this many seconds apart
    :param needs_inventory: whether instances only count if the store has an
        inventory; False: without an inventory, all instances count
    """
    now = float(clock())
    outcome, changed, removed = plan(store, now, min_samples, member_seconds,
                                     needs_inventory)
    if changed or removed:
        store.write(priors=changed, remove_priors=removed, now=now)
    return outcome


def plan(
        store: model_store.Store, now: float,
        min_samples: int = estimate.MIN_SAMPLES,
        member_seconds: float = MEMBER_SECONDS, needs_inventory: bool = False,
        models: Iterable[model_store.StoredModel] = (),
        unmodelled: Iterable[model_store.Unmodelled] = ()
) -> tuple[PriorUpdate, list[model_store.Prior], list[model_store.Prior]]:
    """Return what :func:`update` would do after a write of some models.

    :returns: (PriorUpdate, priors to write, priors to remove)
    """
    laws = dict(store.read_changes().laws())
    seconds = store.measured_seconds()
    counts = {uuid: learned.counts for uuid, learned in store.learned(
        [uuid for uuid, point in store.resume_points().items()
         if not point.modelled]).items()
        if learned.counts is not None and not learned.is_hidden}
    counts.update(
        (record.instance_uuid, record.counts) for record in unmodelled)
    for stored_model in models:
        laws[stored_model.instance_uuid] = stored_model.model.law
        seconds[stored_model.instance_uuid] = (
            stored_model.window_end - stored_model.window_start)
        counts.pop(stored_model.instance_uuid, None)
    for uuid, its_counts in counts.items():
        if its_counts.total_samples >= min_samples \
                and not its_counts.peaks[:, 0].any():
            laws[uuid] = rate_law.SILENT
        seconds[uuid] = (its_counts.last_time + its_counts.period_seconds
                         - its_counts.first_time)
    groups, weights = _instances(store, {*laws, *counts}, now,
                                 needs_inventory)
    # Tolerance for rounding: a packed time is not an exact multiple of a
    # period.
    members = [uuid for uuid in laws if uuid in weights
               and (seconds.get(uuid) is None
                    or seconds[uuid] >= member_seconds - 1)]
    pools = prior.group_pools(
        [groups[uuid][0] for uuid in members],
        [groups[uuid][1] for uuid in members],
        [laws[uuid] for uuid in members],
        [weights[uuid] for uuid in members])
    expected_priors: dict[typing.Any, model_store.Prior] = {}
    for key, pool in pools.items():
        expected_priors[key] = model_store.Prior(
            *key, pool.law, float(pool.members))
    for uuid, its_counts in counts.items() if pools else ():
        if uuid not in weights:
            continue
        wider = next(pools[key] for key in prior.levels_of(*groups[uuid])
                     if key in pools)
        samples = its_counts.total_samples
        pool = prior.Pool.of_counts([its_counts]).mixed(
            wider, samples / (samples + min_samples))
        expected_priors[uuid] = model_store.Prior(
            None, None, pool.law, samples, uuid)
    stored = store.priors()
    changed = [its_prior for key, its_prior in expected_priors.items()
               if _content(stored.get(key)) != _content(its_prior)]
    removed = [its_prior for key, its_prior in stored.items()
               if key not in expected_priors]
    return PriorUpdate(
        len(pools), len(expected_priors) - len(pools), len(changed),
        len(removed), len({*laws, *counts}) - len(weights)), changed, removed


def _instances(store, uuids, now, needs_inventory):
    """Return the groups and the weights of measured instances.

    :returns: ({uuid: (flavor, project)}, {uuid: number in (0, 1]}). If there
        is an inventory, instances that Nova never had are in neither.
    """
    placements = store.placements()
    groups = {uuid: (placements[uuid].flavor, placements[uuid].project)
              for uuid in uuids if uuid in placements}
    weights = dict.fromkeys(groups, 1.0)
    if store.inventory() is None and not needs_inventory:
        unlisted = uuids - groups.keys()
        groups.update(dict.fromkeys(unlisted, (None, None)))
        weights.update(dict.fromkeys(unlisted, 1.0))
        return groups, weights
    for uuid, former in store.former_instances().items():
        if uuid in uuids and uuid not in groups:
            groups[uuid] = former.flavor, former.project
            # In whole days, so that priors do not all change in every pass.
            days = max(now // _DAY_SECONDS - former.removed_at // _DAY_SECONDS,
                       0.0)
            weights[uuid] = 0.5 ** (days * _DAY_SECONDS / FADING_SECONDS)
    return groups, weights


def _content(stored):
    return stored and (stored.law, stored.members)
