# SPDX-License-Identifier: Apache-2.0
"""Where an instance is for certain, from Nova's database.

For the few instances of which what hosts list and what was placed do not tell.
"""

import dataclasses

from nova.compute import vm_states
from nova import context as nova_context
from nova import exception
from nova import objects

__all__ = ['Found', 'look_up']


@dataclasses.dataclass(frozen=True)
class Found:
    """What the database says of an instance.

    :ivar host: host it is on, or None
    :ivar settled: False while an operation on it is under way
    :ivar confirmed: False while a resize waits to be confirmed or reverted
    :ivar flavor: nova Flavor, or None
    """

    host: object
    settled: bool
    confirmed: bool
    flavor: object


def look_up(instance_uuid):
    """Return what is Found of an instance, or None when it is no more.

    Whatever the database raises is raised.
    """
    context = nova_context.get_admin_context()
    try:
        mapping = objects.InstanceMapping.get_by_instance_uuid(
            context, instance_uuid)
        if mapping.cell_mapping is None:
            # It is being created.
            return Found(None, False, False, None)
        with nova_context.target_cell(context, mapping.cell_mapping) as cell:
            instance = objects.Instance.get_by_uuid(
                cell, instance_uuid, expected_attrs=['flavor'])
    except (exception.InstanceMappingNotFound, exception.InstanceNotFound):
        return None
    return Found(
        instance.host,
        settled=(instance.task_state is None
                 and instance.vm_state != vm_states.BUILDING),
        confirmed=instance.vm_state != vm_states.RESIZED,
        flavor=instance.flavor)
