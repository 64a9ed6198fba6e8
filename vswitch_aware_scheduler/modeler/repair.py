# SPDX-License-Identifier: Apache-2.0
"""Replaces models in the store that cannot be read."""

from collections.abc import Callable

from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler.modeler import learning
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import estimate

__all__ = ['learn_again']

LOG = logs.get_logger(__name__)


def learn_again(store: model_store.Store, clock: Callable[[], float],
                settings: learning.LearningSettings,
                share: Callable | None = None) -> int:
    """Replace damaged models, before a pass.

    A model is fitted again to the counts of its instance. If the counts are
    also missing or damaged, both are removed, and the next pass reads all
    telemetry of the instance again.
    """
    uuids = sorted(uuid for uuid in store.unreadable_models()
                   if share is None or share(uuid))
    if not uuids:
        return 0
    basis = store.basis()
    with_counts = {
        uuid: learned
        for uuid, learned in store.learned(uuids).items()
        if learned.counts is not None
    }
    fits = estimate.fit_models(
        [learned.counts for learned in with_counts.values()],
        min_samples=settings.min_samples,
        keys=list(with_counts)) if with_counts else []
    models = [
        model_store.StoredModel.from_counts(
            uuid, model, learned.counts, refused=learned.refused,
            source=learned.source, name=learned.name)
        for (uuid, learned), model in zip(with_counts.items(), fits)
        if not isinstance(model, Exception)]
    replaced = {model.instance_uuid for model in models}
    removed = [uuid for uuid in uuids if uuid not in replaced]
    store.write(models, remove=removed, now=clock(), based_on=basis)
    LOG.warning('vswitch-modeler: damaged models: %d were computed again from '
                'stored counts, %d were removed and will be learned again '
                'from telemetry: %s', len(models), len(removed),
                plain_text.first_of(uuids))
    return len(uuids)
