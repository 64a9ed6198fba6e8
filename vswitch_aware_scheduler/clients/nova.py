# SPDX-License-Identifier: Apache-2.0
"""Reads servers, aggregates, compute nodes and flavors from Nova.

The only place of the inventory that knows the API of Nova. The results are
plain values.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import typing

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import openstack

__all__ = ['Client', 'DELETED', 'Server', 'UNKNOWN', 'read_aggregates',
           'read_cloud', 'seconds']

# Microversion of Stein: Nova reports instances in a cell that does not answer,
# the name of an instance's flavor, the uuid of a hypervisor, and the extra
# specs of flavors.
_VERSION: dict[str, typing.Any] = {'microversion': '2.69'}

#: Hypervisor type of bare metal nodes.
_IRONIC = 'ironic'

#: Number of items in one answer; by default Nova returns at most this number.
PAGE = 1000

#: Status of an instance whose cell does not answer, and of a deleted one.
UNKNOWN, DELETED = 'UNKNOWN', 'DELETED'

#: Whether an instance runs, by Nova's power state: running, paused, shut
#: down, crashed, suspended. It sends nothing before it is built.
_RUNS = {1: True, 3: False, 4: False, 6: False, 7: False}
_UNBUILT = 'BUILD'

_HOST = 'OS-EXT-SRV-ATTR:host'
_POWER = 'OS-EXT-STS:power_state'
_LAUNCHED = 'OS-SRV-USG:launched_at'
_MAC = 'OS-EXT-IPS-MAC:mac_addr'


class Server(typing.NamedTuple):
    """An instance, as the API shows it to an administrator.

    An UNKNOWN or DELETED instance has only uuid, status and changed_at. Times
    are seconds UTC. There is a MAC for each interface, None for an interface
    without address.
    """

    uuid: str
    status: str
    changed_at: float | None
    host: str | None = None
    flavor: str | None = None
    project: str | None = None
    running: bool | None = None
    began_at: float | None = None
    macs: Sequence[str | None] = ()


class Client(openstack.SdkClient):
    """A connection to Nova, as a context manager.

    :param name: name of the service for messages; None: by its address
    """

    def __init__(self, access: http.Access, name: str | None = None,
                 **sleep: typing.Any):
        super().__init__(access, name or f'nova {access.where()}', 'compute',
                         **sleep)

    def servers(self, query: Mapping[str, object]
                ) -> Iterator[list[Server]]:
        """Yield the instances of all projects, page by page.

        :param query: more parameters of the request
        """
        for page in self._pages('servers', _server, {
                'all_tenants': 'True', **query}, connect_retries=0):
            yield list(page.values())

    def server(self, uuid: str) -> Server | None:
        """Return an instance, or None if Nova does not have it."""
        try:
            return self.json(
                'a server', 'GET', f'/servers/{uuid}',
                'the server, or HTTP 404', lambda answer:
                _server(answer['server']), **_VERSION)[0]
        except http.Refusal as refusal:
            if refusal.status != 404:
                raise
            return None

    def aggregates(self) -> dict[str, dict[str, typing.Any]]:
        """Return {id: dictionary with name, metadata, hosts}."""
        return self.json(
            'aggregates', 'GET', '/os-aggregates', 'a list of aggregates',
            lambda answer: {
                str(aggregate.get('uuid') or aggregate['name']): {
                    'name': aggregate['name'],
                    'metadata': dict(aggregate['metadata']),
                    'hosts': list(aggregate['hosts'])}
                for aggregate in answer['aggregates']}, **_VERSION)[0]

    def nodes(self) -> dict[str, tuple[str, bool]]:
        """Return {uuid of a compute node: (host, whether bare metal)}."""
        return self._all('hypervisors', _node, path='/os-hypervisors/detail')

    def flavors(self) -> dict[str, dict[str, str]]:
        """Return {name: extra specs}."""
        return dict(self._all('flavors', _flavor,
                              is_public='None').values())

    def _all(self, kind, read, path=None, **query):
        """Return {id: result of ``read``} of all items of a list."""
        items = {}
        for page in self._pages(kind, read, query, path, repeats=True):
            items.update(page)
        return items

    def _pages(self, kind, read, query, path=None, **arguments):
        return openstack.pages(
            self, kind, path or f'/{kind}/detail', read,
            {**query, 'limit': PAGE}, **arguments, **_VERSION)


def read_aggregates(access: http.Access, **sleep: typing.Any
                    ) -> dict[str, dict[str, typing.Any]]:
    """Return {id: dictionary with name, metadata, hosts} of all aggregates.

    :raises TelemetryError: if the aggregates cannot be read
    """
    with Client(access, **sleep) as client:
        return client.aggregates()


def read_cloud(access: http.Access, prefix: str, **sleep: typing.Any
               ) -> dict[str, dict[str, typing.Any]]:
    """Return the data in Nova that determine policies and demands.

    :param prefix: prefix of the keys of metadata and extra specs to return
    :returns: {'aggregate': {id: dictionary with name, metadata, hosts},
        'node': {id: (host, whether it is bare metal)}, 'flavor': {name: extra
        specs}}, without kinds that this user may not read
    :raises TelemetryError: if Nova does not answer
    """
    def with_prefix(mapping):
        return {key: value for key, value in mapping.items()
                if key.startswith(prefix)}

    cloud = {}
    with Client(access, **sleep) as client:
        for kind, read in (
                ('aggregate', lambda: {
                    id: {**aggregate, 'metadata': with_prefix(
                        aggregate['metadata'])}
                    for id, aggregate in client.aggregates().items()}),
                ('node', client.nodes),
                ('flavor', lambda: {
                    name: with_prefix(specs)
                    for name, specs in client.flavors().items()})):
            try:
                cloud[kind] = read()
            except http.Refusal as refusal:
                # A user with permission to read instances may have none to
                # read aggregates, hypervisors or flavors.
                if refusal.status != 403:
                    raise
    return cloud


def seconds(text: str | None) -> float | None:
    """Return a time of Nova, UTC with or without offset, in seconds UTC."""
    if not text:
        return None
    time = datetime.datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.timezone.utc)
    return time.timestamp()


def _server(item):
    status, changed_at = item['status'], seconds(item.get('updated'))
    if status in (UNKNOWN, DELETED):
        return Server(item['id'], status, changed_at)
    if _HOST not in item:
        raise ValueError(
            f'no {_HOST}: the configured user is not an administrator')
    # For an interface without an address, Nova lists a network without
    # addresses.
    listed = {(network, address and address[_MAC])
              for network, addresses in (item.get('addresses') or {}).items()
              for address in addresses or [None]}
    return Server(
        item['id'], status, changed_at, item[_HOST] or None,
        item['flavor'].get('original_name'), item['tenant_id'],
        False if status == _UNBUILT else _RUNS.get(item.get(_POWER)),
        seconds(item.get(_LAUNCHED) or item.get('created')),
        [mac for _, mac in sorted(listed, key=str)])


def _flavor(item):
    """Return (name, extra specs)."""
    return item['name'], dict(item.get('extra_specs') or {})


def _node(item):
    """Return (host, whether the node is bare metal)."""
    return (item['service']['host'],
            item.get('hypervisor_type') == _IRONIC)
