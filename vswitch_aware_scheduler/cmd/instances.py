# SPDX-License-Identifier: Apache-2.0
"""Finds the instance that a command-line argument identifies."""

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import base

__all__ = ['find_model', 'find_uuid', 'unseen_groups']


def find_model(store, text):
    """Return the StoredModel of an instance.

    :param store: Store
    :param text: uuid or name of the instance
    :raises InvalidInput: if the store has no model of it, or several instances
        have this name
    """
    model = _model(store, text)
    if model is None:
        raise exceptions.InvalidInput(
            f'store {store.url} has no traffic model of instance {text}; '
            f'expected the uuid or the name of an instance in the list that '
            f'"vswitch-manage model list" prints')
    return model


def find_uuid(store, text):
    """Return the uuid of an instance.

    An instance that is identified by its uuid need not be in the store.

    :param store: Store
    :param text: uuid or name of the instance
    :raises InvalidInput: if the text is neither a uuid nor a name in the store
    """
    model = _model(store, text)
    if model is not None:
        return model.instance_uuid
    uuid = base.normalised_uuid(text)
    if uuid is None:
        raise exceptions.InvalidInput(
            f'instance: {text!r}; expected a uuid, or the name of an '
            f'instance in the list that "vswitch-manage model list" prints')
    return uuid


def _model(store, text):
    canonical = base.normalised_uuid(text)
    for uuid in dict.fromkeys((text, text.lower(), canonical)):
        record = uuid and store.model(uuid)
        if record:
            return record
    models = store.models(name=text)
    if len(models) > 1:
        raise exceptions.InvalidInput(
            f'name {text}: {len(models)} instances have this name; expected '
            f'one of their uuids: '
            + ', '.join(item.instance_uuid for item in models))
    return store.model(models[0].instance_uuid) if models else None


def unseen_groups(store, flavor, project):
    """Yield (kind, value, existing values) for a group without instances.

    :param store: Store
    :param flavor: name of a flavor, or None
    :param project: id of a project, or None
    """
    if flavor is None and project is None:
        return
    groups = [*store.placements().values(), *store.priors().values()]
    for kind, value in (('flavor', flavor), ('project', project)):
        existing = {getattr(group, kind) for group in groups} - {None}
        if value is not None and value not in existing:
            yield kind, value, sorted(existing)
