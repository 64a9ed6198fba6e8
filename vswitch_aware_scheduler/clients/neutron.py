# SPDX-License-Identifier: Apache-2.0
"""Reads ports, trunks, types of networks and agents from Neutron.

The only place that knows the API of Neutron. The results are plain values.
"""

from collections.abc import Collection
from collections.abc import Iterator
import typing

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import openstack
from vswitch_aware_scheduler.vswitch import guarantee

__all__ = ['NeutronClient', 'Port', 'read_agents']

#: Number of items in one answer.
PAGE = 1000

#: Number of networks in one query, because a URL is limited, and of networks
#: above which all are read instead.
_NETWORKS = 50
_MANY_NETWORKS = 1000

_BOUND_TO = 'binding:host_id'
_GUARANTEED = 'resource_request'
_TYPE = 'provider:network_type'


class Port(typing.NamedTuple):
    """A port of Neutron, as the API shows it to an administrator.

    ``guaranteed`` has the rates that its QoS policy guarantees, None if they
    may not be read.
    """

    id: str
    device: str
    network: str | None
    mac: str
    project: str | None
    host: str | None
    vnic_type: str | None
    guaranteed: tuple[float, ...] | None = None


class NeutronClient(openstack.SdkClient):
    """A connection to Neutron, as a context manager.

    :param name: name of the service for messages; None: by its address
    """

    def __init__(self, access: http.Access, name: str | None = None,
                 **sleep: typing.Any):
        super().__init__(access, name or f'neutron {access.where()}',
                         'network', **sleep)

    def ports(self) -> Iterator[Port]:
        """Yield all ports."""
        for page in self._pages('ports', _port, {'fields': [
                'id', 'device_id', 'network_id', 'mac_address', 'project_id',
                _BOUND_TO, 'binding:vnic_type', _GUARANTEED]}):
            yield from page.values()

    def sub_ports(self) -> dict[str, list[str]]:
        """Return {id of a parent port: list of the ids of its sub-ports}."""
        sub_ports = {}
        try:
            for page in self._pages('trunks', _trunk, {
                    'fields': ['id', 'port_id', 'sub_ports']}):
                sub_ports.update(page.values())
        except http.Refusal as refusal:
            # Neutron has no trunks.
            if refusal.status != 404:
                raise
        return sub_ports

    def network_types(self, networks: Collection[str]
                      ) -> dict[str, str | None]:
        """Return {id of a network: its type, None if it is not shown}.

        :param networks: ids; others may be in the result
        """
        types, ids = dict.fromkeys(networks), sorted(networks)
        for query in [{}] if len(ids) > _MANY_NETWORKS else [
                {'id': ids[start:start + _NETWORKS]}
                for start in range(0, len(ids), _NETWORKS)]:
            for page in self._pages('networks', lambda item: item.get(_TYPE), {
                    **query, 'fields': ['id', _TYPE]}):
                types.update(page)
        return types

    def _pages(self, kind, read, query):
        return openstack.pages(self, kind, f'/{kind}', read,
                               {**query, 'limit': PAGE}, connect_retries=0)


def read_agents(access: http.Access, **sleep: typing.Any
                ) -> list[dict[str, typing.Any]]:
    """Return the agents of Neutron, as dictionaries.

    All agents are requested at once: ML2/OVN adds its agents to each page of
    an answer, and a link to a next page as well.

    :raises TelemetryError: if the agents cannot be read completely
    """
    agents = {}
    with NeutronClient(access, **sleep) as client:
        for page in openstack.pages(client, 'agents', '/agents', _agent,
                                    repeats=True, connect_retries=0):
            agents.update(page)
    return list(agents.values())


def _agent(agent):
    """Return an agent unchanged, if it is valid."""
    for key, kind in (('id', str), ('host', str), ('agent_type', str),
                      ('alive', bool), ('configurations', dict)):
        if not isinstance(agent[key], kind):
            raise ValueError(f'{key} of an agent: '
                             f'{http.shown(agent[key])}; expected '
                             f'{kind.__name__}')
    return agent


def _port(item):
    if _BOUND_TO not in item:
        raise ValueError(
            f'no {_BOUND_TO}: the configured user is not an administrator')
    return Port(item['id'], item['device_id'], item['network_id'],
                item['mac_address'], item['project_id'],
                item[_BOUND_TO] or None, item.get('binding:vnic_type'),
                _requested(item[_GUARANTEED]) if _GUARANTEED in item
                else None)


def _requested(request):
    """Return the guaranteed rates of a port's request for resources.

    Neutron groups the resources from Yoga on.

    :param request: mapping, or None
    """
    request = request or {}
    return guarantee.of_resources(
        group.get('resources') or {}
        for group in request.get('request_groups') or [request])


def _trunk(item):
    return item['port_id'], [sub_port['port_id']
                             for sub_port in item['sub_ports']]
