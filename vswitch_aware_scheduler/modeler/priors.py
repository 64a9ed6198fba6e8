# SPDX-License-Identifier: Apache-2.0
"""What to expect of instances without a model, learned from the others.

:func:`update` pools the laws of all instances by flavor and project, as the
inventory has them, and writes what differs from what the store holds. No
configuration, and no clock but the one handed in.

Derivation: reference/priors.rst.
"""

import dataclasses

from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior

__all__ = ['Outcome', 'update']

_SILENT = model.TrafficModel.constant().law


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What an update did.

    :ivar groups: number of groups that have a prior
    :ivar instances: number of instances with a short history that have one
    :ivar written: number of priors that were written
    :ivar removed: number of those that went
    """

    groups: int
    instances: int
    written: int
    removed: int


def update(store, clock, min_samples=estimate.MIN_SAMPLES):
    """Bring the priors of a store up to date with its models.

    :param store: :class:`~vswitch_aware_scheduler.store.Store`
    :param clock: returns the time, seconds UTC
    :param min_samples: fewest samples that a model is fitted to
    :returns: :class:`Outcome`
    :raises StoreError: when the store cannot be read or written
    """
    placements = store.placements()
    laws = dict(store.read_changes().laws())
    counts = {uuid: learned.counts for uuid, learned in store.learned(
        [uuid for uuid, point in store.resume_points().items()
         if not point.modelled]).items() if learned.counts is not None}
    silent = {uuid for uuid, one in counts.items()
              if one.total_samples >= min_samples
              and not one.peaks[:, 0].any()}
    laws.update(dict.fromkeys(silent, _SILENT))
    groups = {uuid: _group(placements.get(uuid)) for uuid in (
        *laws, *counts)}
    pools = prior.group_pools(
        *([groups[uuid][at] for uuid in laws] for at in (0, 1)),
        list(laws.values()))
    wanted = {key: model_store.Prior(*key, pool.law, pool.members)
              for key, pool in pools.items()}
    for uuid, one in counts.items() if pools else ():
        wider = next(pools[key] for key in prior.levels_of(*groups[uuid])
                     if key in pools)
        samples = one.total_samples
        pool = prior.Pool.of_counts([one]).mixed(
            wider, samples / (samples + min_samples))
        wanted[uuid] = model_store.Prior(None, None, pool.law, samples, uuid)
    known = store.priors()
    changed = [one for key, one in wanted.items()
               if _content(known.get(key)) != _content(one)]
    gone = [one for key, one in known.items() if key not in wanted]
    if changed or gone:
        store.write(priors=changed, remove_priors=gone, now=clock())
    return Outcome(len(pools), len(wanted) - len(pools), len(changed),
                   len(gone))


def _group(placement):
    """Return (flavor, project) of a Placement or of None."""
    if placement is None:
        return None, None
    return placement.flavor, placement.project


def _content(one):
    return one and (one.law, one.members)
