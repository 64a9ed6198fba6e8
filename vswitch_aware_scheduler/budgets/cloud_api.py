# SPDX-License-Identifier: Apache-2.0
"""Reads Nova and Placement for rebalancing, and starts migrations.

Answers are converted to plain values here. Each live migration is requested
once: a request whose answer was lost is never repeated, because Nova's record
of migrations shows the result. No configuration, no store and no rule.
"""

import dataclasses
import math

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.clients import openstack
from vswitch_aware_scheduler.clients import placement
from vswitch_aware_scheduler.common import plain_text

__all__ = ['CLASSES', 'CloudApi', 'ComputeService', 'NovaMigration',
           'NovaServer', 'RUNNING', 'ServerGroup', 'Shape']

#: Since 2.68 a requested host is never forced: Nova's scheduler verifies it.
#: Nova supports 2.69 since Stein.
MICROVERSION = '2.69'
_COMPUTE = {'microversion': MICROVERSION}

#: Events of an instance action have their error since 2.84 (Ussuri).
_EVENTS = {'microversion': '2.84'}

#: Items of one answer.
PAGE = 1000

#: Statuses of a migration that has not ended.
RUNNING = frozenset({'accepted', 'queued', 'preparing', 'pre-migrating',
                     'migrating', 'running', 'running (post-copy)',
                     'post-migrating'})

_LIVE = 'live-migration'

_DELETED = 'deleted'


@dataclasses.dataclass(frozen=True)
class ComputeService:
    """The nova-compute service of a host.

    :ivar zone: availability zone
    :ivar problem: why no instance leaves or joins the host, or None
    """

    problem: str | None
    zone: str


@dataclasses.dataclass(frozen=True)
class Shape:
    """The resources and traits of an instance in Placement.

    :ivar vcpus: amount of VCPU
    :ivar memory_mib: amount of MEMORY_MB
    :ivar disk_gib: amount of DISK_GB
    :ivar traits: sorted tuple of required traits such as HW_CPU_X86_AVX, or !X
        for forbidden ones
    """

    vcpus: int
    memory_mib: int
    disk_gib: int
    traits: tuple = ()

    @property
    def amounts(self):
        """(VCPU, MEMORY_MB, DISK_GB)."""
        return self.vcpus, self.memory_mib, self.disk_gib


#: Resource classes in the order of :attr:`Shape.amounts`.
CLASSES = placement.CLASSES


@dataclasses.dataclass(frozen=True)
class NovaServer:
    """An instance in Nova.

    :ivar state: Nova's vm_state
    :ivar locked: whether it is locked
    :ivar metadata: dictionary
    :ivar shape: Shape
    :ivar uuid: uuid of the instance
    :ivar name: name of the instance
    :ivar host: host of the instance, or None
    :ivar task: Nova's task_state, or None if no task is running
    :ivar extra_specs: extra specs of its flavor
    """

    uuid: str
    name: str
    host: str | None
    state: str
    task: str | None
    locked: bool
    metadata: dict
    extra_specs: dict
    shape: Shape


@dataclasses.dataclass(frozen=True)
class ServerGroup:
    """A server group with a policy that the scheduler enforces.

    :ivar policy: affinity or anti-affinity
    :ivar members: frozenset of uuids
    :ivar most_members: maximum number of members on a host, for anti-affinity
    """

    policy: str
    most_members: int
    members: frozenset


@dataclasses.dataclass(frozen=True)
class NovaMigration:
    """A migration in Nova's record.

    :ivar kind: live-migration, migration, resize or evacuation
    :ivar number: id in Nova, which increases
    :ivar instance_uuid: uuid of the instance
    :ivar status: status in Nova, in lower case
    :ivar source: source host
    :ivar destination: destination host, or None
    :ivar changed_at: time of the last change, seconds UTC
    :ivar began_at: time of the request, seconds UTC
    """

    number: int
    instance_uuid: str
    kind: str
    status: str
    source: str | None
    destination: str | None
    changed_at: float
    began_at: float | None = None

    @property
    def is_running(self):
        """Whether the migration has not ended."""
        return self.status in RUNNING


class CloudApi:
    """Reads Nova and Placement, and requests live migrations.

    :param sleep: keyword ``sleep`` of :class:`.Client`
    """

    def __init__(self, access, placement, **sleep):
        self._access = access
        self._once = dataclasses.replace(access, retries=0)
        self._placement = placement
        self._sleep = sleep

    @property
    def source(self):
        """Address of Nova, for messages."""
        return self._access.where('nova')

    def _nova(self, access=None):
        return nova.Client(access or self._access, **self._sleep)

    def _one(self, subject, path, check, version=_COMPUTE, **query):
        """Return the checked answer of Nova to one GET request.

        :param subject: what is read, for messages
        :param check: callable(answer), returns the result
        :param version: keyword ``microversion`` of the request
        :param query: parameters of the request
        """
        with self._nova() as client:
            return client.json(subject, 'GET', path, subject, check,
                               params=query, **version)[0]

    def _all(self, kind, path, read, query, key='id'):
        """Return the list of the results of ``read`` for a list."""
        items = []
        with self._nova() as client:
            for page in openstack.pages(
                    client, kind, path, read, {'limit': PAGE, **query},
                    key=key, **_COMPUTE):
                items += page.values()
        return items

    # Hosts

    def services(self) -> dict[str, ComputeService]:
        """Return {host: Service} of all nova-compute services."""
        return self._one(
            'compute services', '/os-services', lambda answer: {
                service['host']: ComputeService(
                    _problem(service), service['zone'])
                for service in answer['services']
                if service['binary'] == 'nova-compute'}, binary='nova-compute')

    def aggregates(self) -> list:
        """Return [(metadata, set of hosts)] of all host aggregates."""
        return [(aggregate['metadata'], set(aggregate['hosts'])) for aggregate
                in nova.read_aggregates(self._access, **self._sleep).values()]

    def nodes(self) -> dict[str, str]:
        """Return {uuid of a compute node: host}."""
        with self._nova() as client:
            return {uuid: host for uuid, (host, _) in client.nodes().items()}

    def room(self, shape: Shape) -> dict[str, tuple]:
        """Return the free resources where a Shape fits.

        :returns: {uuid of a compute node: free (VCPU, MEMORY_MB, DISK_GB)},
            without compute nodes on which it does not fit
        """
        return placement.free_amounts(self._placement, shape.amounts,
                                      shape.traits, **self._sleep)

    # Instances

    def servers(self, host: str) -> list[NovaServer]:
        """Return a list of the Servers on a host."""
        return list(filter(None, self._all(
            'servers', '/servers/detail', _server,
            {'all_tenants': 'True', 'host': host})))

    def server(self, uuid: str) -> NovaServer | None:
        """Return a Server, or None if it was deleted.

        :raises TelemetryError: if its cell does not answer
        """
        try:
            return self._one('a server', f'/servers/{uuid}', _one_server)
        except http.Refusal as refusal:
            if refusal.status != 404:
                raise
            return None

    def groups(self) -> list[ServerGroup]:
        """Return a Group for each server group with an enforced policy."""
        group_of, offset = {}, 0
        while True:
            page = self._one(
                'server groups', '/os-server-groups',
                lambda answer: [(item['id'], _group(item))
                                for item in answer['server_groups']],
                all_projects='True', limit=PAGE, offset=offset)
            new = dict(page).keys() - group_of.keys()
            if not new:
                return [
                    group for group in group_of.values() if group is not None]
            group_of.update(page)
            offset += len(page)

    # Migrations

    def migrations(self, since: float | None = None,
                   instance_uuid: str | None = None) -> list[NovaMigration]:
        """Return a list of Migrations, the newest first.

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
        """Return the live NovaMigrations of an instance, the newest first."""
        return [migration for migration in self.migrations(
            instance_uuid=instance_uuid) if migration.kind == _LIVE]

    def live_migrate(self, uuid: str, host: str, copies_disks: bool) -> None:
        """Request, once, the live migration of an instance to a host.

        :param copies_disks: whether local disks may be copied
        :raises Refusal: if Nova refuses
        :raises TelemetryError: if it is unknown whether Nova has accepted the
            request
        """
        body = {'os-migrateLive': {
            'host': host, 'block_migration':
                'auto' if copies_disks else False}}
        with self._nova(self._once) as client:
            client.json('live migration', 'POST', f'/servers/{uuid}/action',
                        'to be accepted', json=body, **_COMPUTE)

    def failure(self, uuid: str) -> tuple[str | None, str | None]:
        """Return the last live migration of a server in Nova's record.

        :returns: (id of the request or None, why it failed or None)
        """
        path = f'/servers/{uuid}/os-instance-actions'
        requests = self._one(
            'instance actions', path, lambda answer: [
                action['request_id'] for action in answer['instanceActions']
                if action['action'] == _LIVE])
        if not requests:
            return None, None
        try:
            return requests[0], self._one(
                'an instance action', f'{path}/{requests[0]}',
                lambda answer: _why(answer['instanceAction']), _EVENTS)
        except http.Refusal as refusal:
            if refusal.status != 406:
                raise
            return requests[0], None


# Answers

def _problem(service):
    if service.get('forced_down'):
        return 'forced down'
    if service['status'] != 'enabled':
        reason = service.get('disabled_reason')
        return 'disabled' + (f': {reason}' if reason else '')
    return None if service['state'] == 'up' else 'down'


def _server(item):
    """Return a Server, or None if its cell does not answer."""
    if item['status'] == 'UNKNOWN':
        return None
    if 'OS-EXT-SRV-ATTR:host' not in item:
        raise ValueError('no OS-EXT-SRV-ATTR:host: the configured user is '
                         'not an administrator')
    flavor = item['flavor']
    if 'extra_specs' not in flavor:
        # The client cuts messages of more than 80 characters.
        raise ValueError('no extra_specs: see the policy '
                         'servers:show:flavor-extra-specs')
    specs = dict(flavor['extra_specs'])
    # An instance without an image boots from a volume.
    root = flavor['disk'] if item.get('image') else 0
    return NovaServer(
        item['id'], item['name'], item['OS-EXT-SRV-ATTR:host'] or None,
        item['OS-EXT-STS:vm_state'], item['OS-EXT-STS:task_state'],
        bool(item.get('locked')), dict(item['metadata']), specs, Shape(
            flavor['vcpus'], flavor['ram'], root + flavor['ephemeral']
            + math.ceil((flavor['swap'] or 0) / 1024), _traits(specs)))


def _one_server(answer):
    """Return the Server of an answer, or None if it is deleted."""
    server = _server(answer['server'])
    if server is None:
        raise ValueError('status UNKNOWN: its cell does not answer')
    # Nova shows this state for a moment, without a task, before it removes
    # the instance.
    return None if server.state == _DELETED else server


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
        item['dest_compute'], nova.seconds(changed),
        nova.seconds(item['created_at']))


def _why(action):
    """Return the last message of an instance action that failed."""
    for event in action.get('events') or ():
        if (event.get('result') or '').lower() == 'error' \
                and event.get('details'):
            return http.shown(event['details'])
    message = action.get('message')
    return http.shown(message) if message else None
