# SPDX-License-Identifier: Apache-2.0
"""Finds the instance that a command-line argument identifies."""

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.telemetry import base

__all__ = ['find_model', 'find_uuid', 'names', 'unseen_groups',
           'unseen_remarks']


def find_model(store, text):
    """Return the StoredModel of an instance.

    :param store: Store
    :param text: uuid or name of the instance
    :raises InvalidInput: if the store has no model of it, or several instances
        have this name
    """
    uuid = _find(store, text)
    model = uuid and store.model(uuid)
    if not model:
        raise exceptions.NotInList(
            thing=f'traffic model in the store {store.url}', value=text,
            expected='the uuid or the name of an instance',
            command='vswitch-manage model list')
    return model


def find_uuid(store, text):
    """Return the uuid of an instance.

    An instance that is identified by its uuid need not be in the store.

    :param store: Store
    :param text: uuid or name of the instance
    :raises InvalidInput: if the text is neither a uuid nor a name in the
        store, or several instances have this name
    """
    uuid = _find(store, text)
    if uuid is None:
        raise exceptions.NotInList(
            thing='instance', value=text, expected='a uuid, or the name of an '
            'instance of Nova or', command='vswitch-manage model list')
    return uuid


def names(store) -> dict:
    """Return {uuid: name} by the models, and by Nova where it has a name."""
    return {**{uuid: name for uuid, name, *_ in store.model_times() if name},
            **store.names()}


def _find(store, text):
    canonical = base.normalised_uuid(text)
    for uuid in dict.fromkeys((text, text.lower(), canonical)):
        if uuid and store.model(uuid):
            return uuid
    named = [uuid for uuid, name in names(store).items() if name == text]
    if len(named) > 1:
        raise exceptions.InvalidInput(
            thing=f'name {text}',
            seen=f'{len(named)} instances have this name',
            expected=f'one of their uuids: {", ".join(named)}')
    return named[0] if named else canonical


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


def unseen_remarks(store, flavor, project) -> list[str]:
    """Return a remark on each group without instances."""
    return [f'No instance has {kind} {value!r}: that is how a new one counts.'
            for kind, value, _ in unseen_groups(store, flavor, project)]
