# SPDX-License-Identifier: Apache-2.0
"""What to expect of instances without a model, learned from the others.

:func:`update` pools the laws of instances by flavor and project, as the
inventory has them, and writes what differs from what the store holds. Where
the store has an inventory, only instances of Nova count: those that Nova has,
and those that Nova had and has deleted, which fade. No configuration, and no
clock but the one handed in.

Derivation: reference/priors.rst.
"""

import dataclasses

from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law

__all__ = ['FADING_SECONDS', 'MEMBER_SECONDS', 'Outcome', 'plan', 'update']

#: Time after which a deleted instance counts half as much as before.
FADING_SECONDS = 7 * 86400.0

#: An instance counts once it has been measured for so long.
MEMBER_SECONDS = 7200.0

_DAY_SECONDS = 86400.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What an update did.

    :ivar groups: number of groups that have a prior
    :ivar instances: number of instances with a short history that have one
    :ivar written: number of priors that were written
    :ivar removed: number of those that were removed
    :ivar ignored: number of measured instances that Nova does not have
    """

    groups: int
    instances: int
    written: int
    removed: int
    ignored: int = 0


def update(store, clock, min_samples=estimate.MIN_SAMPLES,
           member_seconds=MEMBER_SECONDS, needs_inventory=False):
    """Bring the priors of a store up to date with its models.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param clock: returns the time, seconds UTC
    :param min_samples: fewest samples that a model is fitted to
    :param member_seconds: an instance counts in the priors of groups once
        its first and its last sample are so far apart
    :param needs_inventory: whether no instance counts before the store has
        an inventory; False: without one all instances count
    :returns: :class:`Outcome`
    :raises StoreError: when the store cannot be read or written
    """
    now = float(clock())
    found, changed, gone = plan(store, now, min_samples, member_seconds,
                                needs_inventory)
    if changed or gone:
        store.write(priors=changed, remove_priors=gone, now=now)
    return found


def plan(store, now, min_samples=estimate.MIN_SAMPLES,
         member_seconds=MEMBER_SECONDS, needs_inventory=False, models=(),
         unmodelled=()):
    """Return what :func:`update` would do after a write of some models.

    :param now: seconds UTC
    :param models: StoredModels with their counts that are to be written
    :param unmodelled: Unmodelled that are to be written
    :returns: (:class:`Outcome`, list of Priors to write, list of those to
        remove)
    :raises StoreError: when the store cannot be read
    """
    laws = dict(store.read_changes().laws())
    seconds = store.measured_seconds()
    counts = {uuid: learned.counts for uuid, learned in store.learned(
        [uuid for uuid, point in store.resume_points().items()
         if not point.modelled]).items() if learned.counts is not None}
    counts.update((one.instance_uuid, one.counts) for one in unmodelled)
    for one in models:
        laws[one.instance_uuid] = one.model.law
        seconds[one.instance_uuid] = one.window_end - one.window_start
        counts.pop(one.instance_uuid, None)
    for uuid, one in counts.items():
        if one.total_samples >= min_samples and not one.peaks[:, 0].any():
            laws[uuid] = rate_law.SILENT
        seconds[uuid] = one.last_time + one.period_seconds - one.first_time
    groups, weights = _instances(store, {*laws, *counts}, now,
                                 needs_inventory)
    # Rounded: a packed time is no exact multiple of a period.
    members = [uuid for uuid in laws if uuid in weights
               and (seconds.get(uuid) is None
                    or seconds[uuid] >= member_seconds - 1)]
    pools = prior.group_pools(
        *([groups[uuid][at] for uuid in members] for at in (0, 1)),
        [laws[uuid] for uuid in members],
        [weights[uuid] for uuid in members])
    wanted = {}
    for key, pool in pools.items():
        expected = pool.expected
        wanted[key] = model_store.Prior(
            *key, expected.law, float(pool.members),
            high_shares=expected.high_shares)
    for uuid, one in counts.items() if pools else ():
        if uuid not in weights:
            continue
        wider = next(pools[key] for key in prior.levels_of(*groups[uuid])
                     if key in pools)
        samples = one.total_samples
        pool = prior.Pool.of_counts([one]).mixed(
            wider, samples / (samples + min_samples))
        wanted[uuid] = model_store.Prior(
            None, None, _with_bits(pool, one, uuid), samples, uuid)
    known = store.priors()
    changed = [one for key, one in wanted.items()
               if _content(known.get(key)) != _content(one)]
    gone = [one for key, one in known.items() if key not in wanted]
    return Outcome(len(pools), len(wanted) - len(pools), len(changed),
                   len(gone), len({*laws, *counts}) - len(weights)
                   ), changed, gone


def _instances(store, uuids, now, needs_inventory):
    """Return the groups of measured instances, and how much each counts.

    :param uuids: of all that are measured
    :returns: ({uuid: (flavor, project)}, {uuid: number in (0, 1]}): those
        that Nova never had are in neither where there is an inventory
    """
    placements = store.placements()
    groups = {uuid: (placements[uuid].flavor, placements[uuid].project)
              for uuid in uuids if uuid in placements}
    weights = dict.fromkeys(groups, 1.0)
    if store.inventory() is None and not needs_inventory:
        others = uuids - groups.keys()
        groups.update(dict.fromkeys(others, (None, None)))
        weights.update(dict.fromkeys(others, 1.0))
        return groups, weights
    for uuid, one in store.former_instances().items():
        if uuid in uuids and uuid not in groups:
            groups[uuid] = one.flavor, one.project
            # By the day: else all priors would change in every pass.
            days = max(now // _DAY_SECONDS - one.removed_at // _DAY_SECONDS,
                       0.0)
            weights[uuid] = 0.5 ** (days * _DAY_SECONDS / FADING_SECONDS)
    return groups, weights


def _with_bits(pool, counts, uuid):
    """Return the law of an instance with a short history.

    Its bits are those that it has shown; others are drawn.
    """
    [low_bins] = estimate.classes([counts])
    return prior.with_high(pool.law, estimate.high_slots(
        counts, low_bins, pool.high, uuid))


def _content(one):
    return one and (one.law, one.members, one.high_shares)
