# SPDX-License-Identifier: Apache-2.0
"""What Nova's database says of instances.

For the few of which what hosts list and what was placed do not tell where
they are, for those whose flavor nobody has told, and for a worker that begins.
"""

import dataclasses

from nova.compute import vm_states
from nova import context as nova_context
from nova import exception
from nova import objects

__all__ = ['Found', 'flavors_of', 'look_up', 'uuids_on']


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


def flavors_of(instance_uuids):
    """Return {uuid: nova Flavor} of those instances that there are.

    Whatever the database raises is raised.

    :param instance_uuids: list, read with one query for each cell
    """
    context = nova_context.get_admin_context()
    cells = {}
    for mapping in objects.InstanceMappingList.get_by_instance_uuids(
            context, instance_uuids):
        if mapping.cell_mapping is not None:
            cells.setdefault(mapping.cell_mapping.uuid, (
                mapping.cell_mapping, []))[1].append(mapping.instance_uuid)
    flavors = {}
    for cell_mapping, uuids in cells.values():
        with nova_context.target_cell(context, cell_mapping) as cell:
            found = objects.InstanceList.get_by_filters(
                cell, {'uuid': uuids, 'deleted': False},
                expected_attrs=['flavor'])
        flavors.update((one.uuid, one.flavor) for one in found)
    return flavors


def uuids_on(hosts):
    """Return {host: set of uuids} of the instances on some hosts.

    Whatever the database raises is raised.

    :param hosts: list of names, read with one query for each cell
    """
    context = nova_context.get_admin_context()
    found = {host: set() for host in hosts}
    for cell_mapping in objects.CellMappingList.get_all(context):
        with nova_context.target_cell(context, cell_mapping) as cell:
            by_host = objects.InstanceList.get_uuids_by_hosts(cell, hosts)
        for host, uuids in by_host.items():
            found[host].update(uuids)
    return found
