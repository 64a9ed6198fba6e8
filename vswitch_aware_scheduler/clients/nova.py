# SPDX-License-Identifier: Apache-2.0
"""Reads Nova, and requests live migrations. The results are plain values.

The only place that knows the API of Nova. No configuration, no store and no
rule.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import math
import typing

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import openstack
from vswitch_aware_scheduler.clients import placement
from vswitch_aware_scheduler.common import plain_text

__all__ = ['CloudApi', 'ComputeService', 'DELETED', 'InventoryServer',
           'NovaClient', 'NovaMigration', 'NovaServer', 'RUNNING',
           'ServerGroup', 'UNKNOWN', 'read_aggregates', 'read_cloud']

# Microversion of Stein: Nova reports instances in a cell that does not answer,
# the name of an instance's flavor, the uuid of a hypervisor, and the extra
# specs of flavors. A requested host of a migration is never forced: Nova's
# scheduler verifies it.
_VERSION: dict[str, typing.Any] = {'microversion': '2.69'}

#: Events of an instance action have their error since 2.84 (Ussuri).
_EVENTS = {'microversion': '2.84'}

#: Statuses of a migration that has not ended.
RUNNING = frozenset({'accepted', 'queued', 'preparing', 'pre-migrating',
                     'migrating', 'running', 'running (post-copy)',
                     'post-migrating'})

_LIVE = 'live-migration'

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
_TERMINATED = 'OS-SRV-USG:terminated_at'
_MAC = 'OS-EXT-IPS-MAC:mac_addr'


class InventoryServer(typing.NamedTuple):
    """An instance, as the API shows it to an administrator.

    An UNKNOWN instance has only uuid, status and changed_at. Times are seconds
    UTC. There is a MAC for each interface, None for an interface without
    address.
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
    name: str | None = None
    created_at: float | None = None
    ended_at: float | None = None
    vcpus: int = 0
    memory_mib: int = 0


class ComputeService(typing.NamedTuple):
    """The nova-compute service of a host.

    :ivar problem: why no instance leaves or joins the host, or None
    :ivar zone: availability zone
    """

    problem: str | None
    zone: str


class NovaServer(typing.NamedTuple):
    """An instance, with what determines whether it can be migrated.

    :ivar state: Nova's vm_state
    :ivar task: Nova's task_state, or None if no task is running
    :ivar extra_specs: extra specs of its flavor
    """

    uuid: str
    name: str
    host: str | None
    state: str
    task: str | None
    locked: bool
    metadata: dict[str, str]
    extra_specs: dict[str, str]
    shape: placement.Shape


class ServerGroup(typing.NamedTuple):
    """A server group with a policy that the scheduler enforces.

    :ivar policy: affinity or anti-affinity
    :ivar most_members: maximum number of members on a host, for anti-affinity
    :ivar members: uuids of instances
    """

    policy: str
    most_members: int
    members: frozenset[str]


class NovaMigration(typing.NamedTuple):
    """A migration in Nova's record.

    :ivar number: id in Nova, which increases
    :ivar kind: live-migration, migration, resize or evacuation
    :ivar status: in lower case
    :ivar changed_at: time of the last change, seconds UTC
    :ivar began_at: time of the request, seconds UTC
    """

    number: int
    instance_uuid: str
    kind: str
    status: str
    source: str | None
    destination: str | None
    changed_at: float | None
    began_at: float | None = None

    @property
    def is_running(self) -> bool:
        """Whether the migration has not ended."""
        return self.status in RUNNING


class NovaClient(openstack.SdkClient):
    """A connection to Nova, as a context manager.

    :param name: name of the service for messages; None: by its address
    """

    def __init__(self, access: http.Access, name: str | None = None,
                 **sleep: typing.Any):
        super().__init__(access, name or f'nova {access.where()}', 'compute',
                         **sleep)

    def servers(self, query: Mapping[str, object]
                ) -> Iterator[list[InventoryServer]]:
        """Yield the instances of all projects, page by page.

        :param query: more parameters of the request
        """
        for page in self._pages('servers', _server, {
                'all_tenants': 'True', **query}, connect_retries=0):
            yield list(page.values())

    def server(self, uuid: str) -> InventoryServer | None:
        """Return an instance, or None if Nova does not have it."""
        return _or_none(lambda: self.json(
            'a server', 'GET', f'/servers/{uuid}', 'the server, or HTTP 404',
            lambda answer: _server(answer['server']), **_VERSION)[0])

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

    """
    with NovaClient(access, **sleep) as client:
        return client.aggregates()


def read_cloud(access: http.Access, prefix: str, **sleep: typing.Any
               ) -> dict[str, dict[str, typing.Any]]:
    """Return the data in Nova that determine policies and demands.

    :param prefix: prefix of the keys of extra specs to return
    :returns: {'aggregate': {id: dictionary with name, metadata, hosts},
        'node': {id: (host, whether it is bare metal)}, 'flavor': {name: extra
        specs}}, without kinds that this user may not read
    :raises TelemetryError: if Nova does not answer
    """
    cloud = {}
    with NovaClient(access, **sleep) as client:
        for kind, read in (
                ('aggregate', client.aggregates), ('node', client.nodes),
                ('flavor', lambda: {
                    name: {key: value for key, value in specs.items()
                           if key.startswith(prefix)}
                    for name, specs in client.flavors().items()})):
            try:
                cloud[kind] = read()
            except http.Refusal as refusal:
                # A user with permission to read instances may have none to
                # read aggregates, hypervisors or flavors.
                if refusal.status != 403:
                    raise
    return cloud


def _seconds(text: str | None) -> float | None:
    """Return a time of Nova, UTC with or without offset, in seconds UTC."""
    if not text:
        return None
    time = datetime.datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.timezone.utc)
    return time.timestamp()


def _server(item):
    status, changed_at = item['status'], _seconds(item.get('updated'))
    if status == UNKNOWN:
        return InventoryServer(item['id'], status, changed_at)
    host = _host(item)
    # For an interface without an address, Nova lists a network without
    # addresses.
    listed = {(network, address and address[_MAC])
              for network, addresses in (item.get('addresses') or {}).items()
              for address in addresses or [None]}
    flavor = item['flavor']
    return InventoryServer(
        item['id'], status, changed_at, host,
        flavor.get('original_name'), item['tenant_id'],
        False if status == _UNBUILT else _RUNS.get(item.get(_POWER)),
        _seconds(item.get(_LAUNCHED) or item.get('created')),
        [mac for _, mac in sorted(listed, key=str)], item.get('name'),
        _seconds(item.get('created')), _seconds(item.get(_TERMINATED)),
        flavor.get('vcpus', 0), flavor.get('ram', 0))


def _host(item):
    """Return the host of an instance, or None."""
    if _HOST not in item:
        raise ValueError(
            f'no {_HOST}: the configured user is not an administrator')
    return item[_HOST] or None


def _flavor(item):
    """Return (name, extra specs)."""
    return item['name'], dict(item.get('extra_specs') or {})


def _node(item):
    """Return (host, whether the node is bare metal)."""
    return (item['service']['host'],
            item.get('hypervisor_type') == _IRONIC)


class CloudApi:
    """Reads Nova and Placement for rebalancing, and starts migrations.

    Each live migration is requested once: a request whose answer was lost is
    never repeated, because Nova's record of migrations shows the result.

    """

    def __init__(self, access: http.Access, placement_access: http.Access,
                 **sleep: typing.Any):
        self._access = access
        self._placement = placement_access
        self._sleep = sleep

    @property
    def source(self) -> str:
        """Address of Nova, for messages."""
        return self._access.where('nova')

    def _one(self, subject, path, check, version=_VERSION, **query):
        """Return the checked answer of Nova to one GET request.

        :param subject: what is read, for messages
        :param check: callable(answer), returns the result
        """
        with NovaClient(self._access, **self._sleep) as client:
            return client.json(subject, 'GET', path, subject, check,
                               params=query, **version)[0]

    def _all(self, kind, path, read, query, key='id'):
        """Return the list of the results of ``read`` for a list."""
        with NovaClient(self._access, **self._sleep) as client:
            return [item for page in openstack.pages(
                client, kind, path, read, {'limit': PAGE, **query}, key=key,
                **_VERSION) for item in page.values()]

    def services(self) -> dict[str, ComputeService]:
        """Return the nova-compute services by host."""
        return self._one(
            'compute services', '/os-services', lambda answer: {
                service['host']: ComputeService(
                    _problem(service), service['zone'])
                for service in answer['services']
                if service['binary'] == 'nova-compute'}, binary='nova-compute')

    def aggregates(self) -> list[dict[str, typing.Any]]:
        """Return dictionaries with name, metadata and hosts."""
        return list(read_aggregates(self._access, **self._sleep).values())

    def room(self, shape: placement.Shape) -> dict[str, tuple[float, ...]]:
        """Return the result of :func:`.free_amounts`."""
        return placement.free_amounts(self._placement, shape, **self._sleep)

    def servers(self, host: str) -> list[NovaServer]:
        """Return the instances on a host."""
        return list(filter(None, self._all(
            'servers', '/servers/detail', _detailed,
            {'all_tenants': 'True', 'host': host})))

    def server(self, uuid: str) -> NovaServer | None:
        """Return an instance, or None if it was deleted.

        :raises TelemetryError: if its cell does not answer
        """
        return _or_none(lambda: self._one(
            'a server', f'/servers/{uuid}', _one_server))

    def groups(self) -> list[ServerGroup]:
        """Return the server groups with an enforced policy."""
        group_of, offset = {}, 0
        while True:
            page = self._one(
                'server groups', '/os-server-groups',
                lambda answer: [(item['id'], _group(item))
                                for item in answer['server_groups']],
                all_projects='True', limit=PAGE, offset=offset)
            if dict(page).keys() <= group_of.keys():
                return list(filter(None, group_of.values()))
            group_of.update(page)
            offset += len(page)

    def migrations(self, since: float | None = None,
                   instance_uuid: str | None = None) -> list[NovaMigration]:
        """Return migrations, the newest first.

        :param since: only those that changed at this time or later
        """
        query = {
            'changes-since': plain_text.iso_time(since),
            'instance_uuid': instance_uuid}
        return sorted(
            self._all('migrations', '/os-migrations', _migration, {
                key: value for key, value in query.items() if value}, 'uuid'),
            key=lambda migration: -migration.number)

    def live_migrations(self, instance_uuid: str) -> list[NovaMigration]:
        """Return the live migrations of an instance, the newest first."""
        return [migration for migration in self.migrations(
            instance_uuid=instance_uuid) if migration.kind == _LIVE]

    def live_migrate(self, uuid: str, host: str, copies_disks: bool) -> None:
        """Request, once, the live migration of an instance to a host.

        :param copies_disks: whether local disks may be copied
        :raises Refusal: if Nova refuses
        :raises TelemetryError: if it is unknown whether Nova has accepted the
            request
        """
        with NovaClient(dataclasses.replace(
                self._access, retries=0, connect_retries=0),
                        **self._sleep) as client:
            client.json(
                'live migration', 'POST', f'/servers/{uuid}/action',
                'to be accepted', json={'os-migrateLive': {
                    'host': host, 'block_migration':
                        'auto' if copies_disks else False}}, **_VERSION)

    def failure(self, uuid: str) -> tuple[str | None, str | None]:
        """Return the last live migration of a server in Nova's record.

        :returns: (id of the request or None, why it failed or None)
        """
        path = f'/servers/{uuid}/os-instance-actions'
        requests = self._one(
            'instance actions', path, lambda answer: [
                action['request_id'] for action in answer['instanceActions']
                if action['action'] == _LIVE])
        return (requests[0], _or_none(lambda: self._one(
            'an instance action', f'{path}/{requests[0]}',
            lambda answer: _why(answer['instanceAction']), _EVENTS), 406)) \
            if requests else (None, None)


def _or_none(read, status=404):
    """Return the result of ``read``, None if Nova answers this status."""
    try:
        return read()
    except http.Refusal as refusal:
        if refusal.status != status:
            raise
        return None


def _problem(service):
    if service.get('forced_down'):
        return 'forced down'
    if service['status'] != 'enabled':
        reason = service.get('disabled_reason')
        return 'disabled' + (f': {reason}' if reason else '')
    return None if service['state'] == 'up' else 'down'


def _detailed(item):
    """Return a NovaServer, or None if its cell does not answer."""
    if item['status'] == UNKNOWN:
        return None
    host, flavor = _host(item), item['flavor']
    if 'extra_specs' not in flavor:
        # The client cuts messages of more than 80 characters.
        raise ValueError('no extra_specs: see the policy '
                         'servers:show:flavor-extra-specs')
    specs = dict(flavor['extra_specs'])
    # An instance without an image boots from a volume.
    root = flavor['disk'] if item.get('image') else 0
    return NovaServer(
        item['id'], item['name'], host, item['OS-EXT-STS:vm_state'],
        item['OS-EXT-STS:task_state'], bool(item.get('locked')),
        dict(item['metadata']), specs, placement.Shape(
            flavor['vcpus'], flavor['ram'], root + flavor['ephemeral']
            + math.ceil((flavor['swap'] or 0) / 1024), _traits(specs)))


def _one_server(answer):
    """Return the NovaServer of an answer, or None if it is deleted."""
    server = _detailed(answer['server'])
    if server is None:
        raise ValueError('status UNKNOWN: its cell does not answer')
    # Nova shows this state for a moment, without a task, before it removes
    # the instance.
    return None if server.state == 'deleted' else server


def _traits(specs):
    signs = {'required': '', 'forbidden': '!'}
    return tuple(sorted(
        signs[value] + key.removeprefix('trait:')
        for key, value in specs.items()
        if key.startswith('trait:') and value in signs))


def _group(item):
    if item['policy'] not in ('affinity', 'anti-affinity'):
        return None
    most_members = (item.get('rules') or {}).get('max_server_per_host', 1)
    return ServerGroup(item['policy'], int(most_members),
                       frozenset(item['members']))


def _migration(item):
    changed = item['updated_at'] or item['created_at']
    return NovaMigration(
        item['id'], item['instance_uuid'], item['migration_type'],
        item['status'].lower(), item['source_compute'],
        item['dest_compute'], _seconds(changed), _seconds(item['created_at']))


def _why(action):
    """Return the last message of an instance action that failed."""
    for event in action.get('events') or ():
        if (event.get('result') or '').lower() == 'error' \
                and event.get('details'):
            return http.shown(event['details'])
    message = action.get('message')
    return http.shown(message) if message else None
