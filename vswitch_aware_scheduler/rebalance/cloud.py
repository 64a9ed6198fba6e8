# SPDX-License-Identifier: Apache-2.0
"""What rebalancing reads from Nova and Placement, and how it migrates.

Answers become plain values here. A live migration is asked for once: a request
whose answer was lost is never repeated, for Nova's own record of migrations
says what became of it.

Knows no configuration, no store and no rule.
"""

import dataclasses
import datetime
import math

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import openstack
from vswitch_aware_scheduler.telemetry import service as telemetry_service

__all__ = ['Cloud', 'Group', 'Migration', 'RUNNING', 'Server', 'Service',
           'Shape', 'why_fixed']

#: Since 2.68 a host that is named is never forced: Nova's scheduler confirms
#: it. Nova has known 2.69 since Stein.
MICROVERSION = '2.69'
_COMPUTE = {'microversion': MICROVERSION}

#: Forbidden traits since 1.22, all that a summary needs since 1.29.
_PLACEMENT = {'microversion': '1.29'}

#: Items of one answer.
PAGE = 1000

#: Of a migration that has not ended.
RUNNING = frozenset({'accepted', 'queued', 'preparing', 'pre-migrating',
                     'migrating', 'running', 'running (post-copy)',
                     'post-migrating'})

_LIVE = 'live-migration'

#: States of an instance that can be live migrated.
_STATES = ('active', 'paused')

#: Extra specs of instances that are bound to parts of their host.
_BINDING = ('pci_passthrough:', 'accel:', 'hw:numa', 'hw:mem_page_size',
            'hw:pmem', 'hw:cpu_realtime', 'hw:mem_encryption',
            'hw:tpm_version', 'resources')
_SHARED_POLICY = 'shared'


@dataclasses.dataclass(frozen=True)
class Service:
    """The nova-compute of a host.

    :ivar problem: why the host neither gives nor takes instances, or None
    :ivar zone: availability zone
    """

    problem: str | None
    zone: str


@dataclasses.dataclass(frozen=True)
class Shape:
    """What Placement is asked for to place an instance.

    :ivar vcpus: of VCPU
    :ivar memory_mib: of MEMORY_MB
    :ivar disk_gib: of DISK_GB
    :ivar traits: sorted tuple of terms such as HW_CPU_X86_AVX, or !X
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
CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')


@dataclasses.dataclass(frozen=True)
class Server:
    """An instance as Nova shows it.

    :ivar uuid: of the instance
    :ivar name: its name
    :ivar host: where it is, or None
    :ivar state: Nova's vm_state
    :ivar task: Nova's task_state, None: nothing is being done to it
    :ivar locked: whether it is locked
    :ivar metadata: dictionary
    :ivar extra_specs: of its flavor
    :ivar shape: Shape
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
class Group:
    """A server group whose policy the scheduler enforces.

    :ivar policy: affinity or anti-affinity
    :ivar most: most members on a host, of anti-affinity
    :ivar members: frozenset of uuids
    """

    policy: str
    most: int
    members: frozenset


@dataclasses.dataclass(frozen=True)
class Migration:
    """A migration in Nova's record.

    :ivar number: Nova's id, which grows
    :ivar instance_uuid: the instance
    :ivar kind: live-migration, migration, resize or evacuation
    :ivar status: as Nova states it, in lower case
    :ivar source: host
    :ivar destination: host, or None
    :ivar changed_at: seconds UTC
    """

    number: int
    instance_uuid: str
    kind: str
    status: str
    source: str | None
    destination: str | None
    changed_at: float

    @property
    def is_running(self):
        """Whether it has not ended."""
        return self.status in RUNNING


def why_fixed(server):
    """Return why Nova does not move a Server to where it may, or None."""
    if server.state not in _STATES:
        return f'its state is {server.state}'
    if server.task is not None:
        return f'its task is {server.task}'
    if server.locked:
        return 'it is locked'
    for key, value in server.extra_specs.items():
        if key == 'hw:cpu_policy':
            if value.lower() != _SHARED_POLICY:
                return f'its flavor has {key}={value}'
        elif key.startswith(_BINDING):
            return f'its flavor has {key}={value}'
    return None


class Cloud:
    """Reads Nova and Placement, and asks for live migrations.

    :param access: :class:`.Access` of Nova
    :param placement: Access of Placement
    :param sleep: waits seconds, None: as :class:`.Client` does
    """

    def __init__(self, access, placement, **sleep):
        self._access = access
        self._once = dataclasses.replace(access, retries=0)
        self._placement = placement
        self._sleep = sleep

    @property
    def source(self):
        """Where Nova is, for messages."""
        return self._access.where('nova')

    def _nova(self, access=None):
        access = access or self._access
        return openstack.SdkClient(access, f'nova {access.where()}',
                                   'compute', **self._sleep)

    def _one(self, what, path, check, **query):
        """Return the checked answer of Nova to one GET."""
        with self._nova() as client:
            return client.json(what, 'GET', path, what, check, params=query,
                               **_COMPUTE)[0]

    def _all(self, kind, path, read, query, key='id', repeats=False):
        """Return a list of what ``read`` makes of the items of a list."""
        found = []
        with self._nova() as client:
            for page in openstack.pages(
                    client, kind, path, read, {'limit': PAGE, **query},
                    repeats, key, **_COMPUTE):
                found += page.values()
        return found

    # Hosts

    def services(self):
        """Return {host: Service} of all nova-computes."""
        return self._one(
            'compute services', '/os-services', lambda answer: {
                one['host']: Service(_problem(one), one['zone'])
                for one in answer['services']
                if one['binary'] == 'nova-compute'}, binary='nova-compute')

    def aggregates(self):
        """Return [(metadata, set of hosts)] of all host aggregates."""
        return self._one(
            'aggregates', '/os-aggregates', lambda answer: [
                (dict(one['metadata']), set(one['hosts']))
                for one in answer['aggregates']])

    def nodes(self):
        """Return {uuid of a compute node: host}."""
        return dict(self._all(
            'hypervisors', '/os-hypervisors/detail',
            lambda item: (item['id'], item['service']['host']), {},
            repeats=True))

    def room(self, shape):
        """Return what is left where a Shape fits.

        :returns: {uuid of a compute node: (VCPU, MEMORY_MB, DISK_GB) left};
            compute nodes that it does not fit on are absent
        """
        resources = ','.join(
            f'{name}:{amount}' for name, amount
            in zip(CLASSES, shape.amounts) if amount)
        required = ','.join([*shape.traits, '!COMPUTE_STATUS_DISABLED'])
        with openstack.SdkClient(
                self._placement, f'placement {self._placement.where()}',
                'placement', **self._sleep) as client:
            return client.json(
                'allocation candidates', 'GET', '/allocation_candidates',
                'allocation candidates', _room,
                params={'resources': resources, 'required': required},
                **_PLACEMENT)[0]

    # Instances

    def servers(self, host):
        """Return a list of the Servers on a host."""
        found = self._all('servers', '/servers/detail', _server,
                          {'all_tenants': 'True', 'host': host})
        return [one for one in found if one is not None]

    def server(self, uuid):
        """Return a Server, or None where Nova does not know it."""
        try:
            return self._one('a server', f'/servers/{uuid}',
                             lambda answer: _server(answer['server']))
        except http.Refusal as refusal:
            if refusal.status != 404:
                raise
            return None

    def groups(self):
        """Return a list of the Groups with a policy that is enforced."""
        found, offset = {}, 0
        while True:
            page = self._one(
                'server groups', '/os-server-groups',
                lambda answer: [(one['id'], _group(one))
                                for one in answer['server_groups']],
                all_projects='True', limit=PAGE, offset=offset)
            new = dict(page).keys() - found.keys()
            if not new:
                return [one for one in found.values() if one is not None]
            found.update(page)
            offset += len(page)

    # Migrations

    def migrations(self, since=None, instance_uuid=None):
        """Return a list of Migrations, the newest first.

        :param since: only those that changed at this time or later
        :param instance_uuid: only of this instance
        """
        query = {}
        if since is not None:
            query['changes-since'] = telemetry_service.iso_time(since) + 'Z'
        if instance_uuid is not None:
            query['instance_uuid'] = instance_uuid
        return sorted(
            self._all('migrations', '/os-migrations', _migration, query,
                      'uuid'), key=lambda one: -one.number)

    def live_migrations(self, instance_uuid):
        """Return the live Migrations of an instance, the newest first."""
        return [one for one in self.migrations(instance_uuid=instance_uuid)
                if one.kind == _LIVE]

    def live_migrate(self, uuid, host, copies_disks):
        """Ask Nova, once, to live migrate an instance to a host.

        :param copies_disks: whether local disks may be copied
        :raises Refusal: when Nova refuses
        :raises TelemetryError: when it is not known whether Nova does it
        """
        body = {'os-migrateLive': {
            'host': host, 'block_migration':
                'auto' if copies_disks else False}}
        with self._nova(self._once) as client:
            client.json('live migration', 'POST', f'/servers/{uuid}/action',
                        'to be accepted', json=body, **_COMPUTE)

    def failure(self, uuid):
        """Return why the last live migration of a server failed, or None."""
        path = f'/servers/{uuid}/os-instance-actions'
        requests = self._one(
            'instance actions', path, lambda answer: [
                one['request_id'] for one in answer['instanceActions']
                if one['action'] == _LIVE])
        if not requests:
            return None
        return self._one('an instance action', f'{path}/{requests[0]}',
                         lambda answer: _why(answer['instanceAction']))


# Answers

def _problem(service):
    if service.get('forced_down'):
        return 'forced down'
    if service['status'] != 'enabled':
        reason = service.get('disabled_reason')
        return 'disabled' + (f': {reason}' if reason else '')
    return None if service['state'] == 'up' else 'down'


def _server(item):
    """Return a Server, None of a cell that does not answer."""
    if item['status'] == 'UNKNOWN':
        return None
    if 'OS-EXT-SRV-ATTR:host' not in item:
        raise ValueError('no OS-EXT-SRV-ATTR:host: who asks is no '
                         'administrator')
    flavor = item['flavor']
    if 'extra_specs' not in flavor:
        raise ValueError('no extra_specs of the flavor: the policy '
                         'os_compute_api:servers:show:flavor-extra-specs '
                         'does not allow it')
    specs = dict(flavor['extra_specs'])
    # Without an image it boots from a volume.
    root = flavor['disk'] if item.get('image') else 0
    return Server(
        item['id'], item['name'], item['OS-EXT-SRV-ATTR:host'] or None,
        item['OS-EXT-STS:vm_state'], item['OS-EXT-STS:task_state'],
        bool(item.get('locked')), dict(item['metadata']), specs, Shape(
            flavor['vcpus'], flavor['ram'], root + flavor['ephemeral']
            + math.ceil((flavor['swap'] or 0) / 1024), _traits(specs)))


def _traits(specs):
    terms = []
    for key, value in specs.items():
        prefix, _, trait = key.partition(':')
        if prefix == 'trait' and value in ('required', 'forbidden'):
            terms.append(('!' if value == 'forbidden' else '') + trait)
    return tuple(sorted(terms))


def _group(item):
    if item['policy'] not in ('affinity', 'anti-affinity'):
        return None
    most = (item.get('rules') or {}).get('max_server_per_host', 1)
    return Group(item['policy'], int(most), frozenset(item['members']))


def _migration(item):
    changed = item['updated_at'] or item['created_at']
    return Migration(
        item['id'], item['instance_uuid'], item['migration_type'],
        item['status'].lower(), item['source_compute'],
        item['dest_compute'], _seconds(changed))


def _seconds(text):
    """Return seconds UTC of a time of Nova, which has no offset."""
    moment = datetime.datetime.fromisoformat(text.removesuffix('Z'))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return moment.timestamp()


def _room(answer):
    left = {}
    for uuid, summary in answer['provider_summaries'].items():
        resources = summary['resources']
        left[uuid] = tuple(
            resources[name]['capacity'] - resources[name]['used']
            if name in resources else math.inf for name in CLASSES)
    candidates = set()
    for request in answer['allocation_requests']:
        candidates.update(request['allocations'])
    return {uuid: amounts for uuid, amounts in left.items()
            if uuid in candidates}


def _why(action):
    """Return the last words of an instance action that failed."""
    for event in action.get('events') or ():
        if (event.get('result') or '').lower() == 'error':
            lines = [line for line in (event.get('traceback') or ''
                                       ).splitlines() if line.strip()]
            text = event.get('details') or (lines[-1] if lines else '')
            return http.shown(text) or None
    message = action.get('message')
    return http.shown(message) if message else None
