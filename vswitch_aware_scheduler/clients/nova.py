# SPDX-License-Identifier: Apache-2.0
"""Reads aggregates, compute nodes and flavors from Nova, as plain values."""

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import openstack

__all__ = ['read_aggregates', 'read_cloud']

# Microversion of Stein, as for the inventory: the id of a hypervisor is a
# uuid, and flavors include their extra specs.
_COMPUTE = {'microversion': '2.69'}

#: Hypervisor type of bare metal nodes.
_IRONIC = 'ironic'

#: Number of hypervisors or flavors in one answer.
PAGE = 1000


def read_aggregates(access, **sleep):
    """Return {id: dictionary with name, metadata, hosts} of all aggregates.

    :param access: :class:`.Access` of Nova
    :param sleep: keyword ``sleep`` of :class:`.Client`
    :raises TelemetryError: if the aggregates cannot be read
    """
    with _nova(access, sleep) as client:
        return _aggregates(client)


def read_cloud(access, prefix, **sleep):
    """Return the data in Nova that determine policies and demands.

    :param access: :class:`.Access` of Nova
    :param prefix: prefix of the keys of metadata and extra specs to return
    :param sleep: keyword ``sleep`` of :class:`.Client`
    :returns: {'aggregate': {id: dictionary with name, metadata, hosts},
        'node': {id: (host, whether it is bare metal)}, 'flavor': {name: extra
        specs}}, without kinds that this user may not read
    :raises TelemetryError: if Nova does not answer
    """
    def with_prefix(mapping):
        return {key: value for key, value in mapping.items()
                if key.startswith(prefix)}

    cloud = {}
    with _nova(access, sleep) as client:
        for kind, read in (
                ('aggregate', lambda: {
                    id: {**aggregate, 'metadata': with_prefix(
                        aggregate['metadata'])}
                    for id, aggregate in _aggregates(client).items()}),
                ('node', lambda: _all(
                    client, 'hypervisors', '/os-hypervisors/detail', _node)),
                ('flavor', lambda: {
                    name: with_prefix(specs) for name, specs in _all(
                        client, 'flavors', '/flavors/detail', _flavor,
                        is_public='None').values()})):
            try:
                cloud[kind] = read()
            except http.Refusal as refusal:
                # A user with permission to read instances may have none to
                # read aggregates, hypervisors or flavors.
                if refusal.status != 403:
                    raise
    return cloud


def _nova(access, sleep):
    return openstack.SdkClient(
        access, f'nova {access.where()}', 'compute', **sleep
    )


def _aggregates(client):
    return client.json(
        'aggregates', 'GET', '/os-aggregates', 'a list of aggregates',
        lambda answer: {
            str(aggregate.get('uuid') or aggregate['name']): {
                'name': aggregate['name'],
                'metadata': dict(aggregate['metadata']),
                'hosts': list(aggregate['hosts'])}
            for aggregate in answer['aggregates']}, **_COMPUTE)[0]


def _all(client, kind, path, read, **query):
    """Return {id: result of ``read``} of all items of a list of Nova."""
    items = {}
    for page in openstack.pages(
        client,
        kind,
        path,
        read,
        {'limit': PAGE, **query},
        repeats=True,
        **_COMPUTE,
    ):
        items.update(page)
    return items


def _flavor(item):
    """Return (name, extra specs)."""
    return item['name'], dict(item.get('extra_specs') or {})


def _node(item):
    """Return (host, whether the node is bare metal)."""
    return (item['service']['host'],
            item.get('hypervisor_type') == _IRONIC)
