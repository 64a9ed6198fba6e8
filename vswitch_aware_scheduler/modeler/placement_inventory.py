# SPDX-License-Identifier: Apache-2.0
"""What placement keeps of the hosts' switches, for the strict mode.

:class:`PlacementInventories` gives each host that has a limit a resource
provider with an inventory of :data:`.RESOURCE_CLASS`, and keeps that up to
date with profiles, aggregates and models. It is a child of the
compute node's own provider: of that one nova-compute replaces the inventory
as a whole, and what is not its own would be gone, or in its way once it is in
use. Children that nova-compute has not made it leaves alone.

What an instance needs is what the scheduler takes it to need: by its model,
the prior of its own, its flavor, the prior of its group, the default.

Allocations are never written while the mode is on, for a change of Nova's that
happens at the same time would fail. What an instance has come to need beyond
its allocation is taken off the host as ``reserved``; what it does not need is
left to it, so that a host keeps its limit whoever leaves.

Derivation: reference/strict.rst.
"""

import dataclasses
import re
import time
import uuid as uuids

from vswitch_aware_scheduler.admission import aggregate_metadata
from vswitch_aware_scheduler.admission import effective_limit
from vswitch_aware_scheduler.admission import resident_demand
from vswitch_aware_scheduler.admission import uplink_policies
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import openstack
from vswitch_aware_scheduler.store import snapshot as snapshots

__all__ = [
    'PlacementInventories',
    'Outcome',
    'Review',
    'provider_uuid',
    'read_aggregates',
    'read_cloud',
]

# That of Train, as Nova claims with.
_PLACEMENT = {'microversion': '1.36'}

# That of Wallaby, which lets a provider have another parent or none.
_MOVING = {'microversion': '1.37'}

# That of Stein, as the inventory asks with: the id of a hypervisor is that of
# its resource provider, and flavors come with their extra specs.
_COMPUTE = {'microversion': '2.69'}

#: Type of the hypervisor of bare metal.
_IRONIC = 'ironic'

#: Hypervisors or flavors of one answer.
PAGE = 1000

#: A write is tried so often again when something else has written meanwhile.
_ATTEMPTS = 5

#: nova-compute asks for providers that it has seen below its own until it
#: reads the tree again, every five minutes by default.
DETACHED_SECONDS = 900.0

_CLASS = effective_limit.RESOURCE_CLASS
_DETACHED = re.compile(r':vswitch detached at (\d+)$')


def provider_uuid(node_uuid):
    """Return the uuid of the provider that is made for a compute node."""
    return str(uuids.uuid5(uuids.UUID(node_uuid), 'vswitch'))


def read_aggregates(access, **sleep):
    """Return {host: [(name of an aggregate, its metadata)]} of Nova.

    :param access: :class:`.Access` of Nova
    :param sleep: waits seconds, None: as :class:`.Client` does
    :raises TelemetryError: when they cannot be read
    """
    with _nova(access, sleep) as client:
        return _by_host(client)


def read_cloud(access, **sleep):
    """Return what Nova has that decides on policies and demands.

    :param access: :class:`.Access` of Nova
    :param sleep: waits seconds, None: as :class:`.Client` does
    :returns: {'aggregate': {id: dictionary with name, metadata, hosts},
        'node': {id: (host, whether it is bare metal)}, 'flavor': {name:
        extra specs}}, without those that may not be read; of metadata and
        extra specs the keys of this package alone
    :raises TelemetryError: when Nova cannot be asked
    """
    found = {}
    with _nova(access, sleep) as client:
        for kind, read in (
                ('aggregate', lambda: client.json(
                    'aggregates', 'GET', '/os-aggregates',
                    'a list of aggregates', _aggregates_by_id,
                    **_COMPUTE)[0]),
                ('node', lambda: {
                    uuid: (one.host, one.bare_metal) for uuid, one in _all(
                        client, 'hypervisors', '/os-hypervisors/detail',
                        _node).items()}),
                ('flavor', lambda: {
                    name: _ours_of(specs) for name, specs in _all(
                        client, 'flavors', '/flavors/detail', _flavor,
                        is_public='None').values()})):
            try:
                found[kind] = read()
            except http.Refusal as refusal:
                # Who may read instances need not be allowed to read these.
                if refusal.status != 403:
                    raise
    return found


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What was done.

    :ivar hosts: number of hosts that have an inventory
    :ivar written: number of inventories that were written
    :ivar short: {host: (kbit/s in use, kbit/s there are)} of those that have
        more allocated than there is
    :ivar left_out: {host: why} of those whose inventory is not kept
    """

    hosts: int
    written: int
    short: dict
    left_out: dict


@dataclasses.dataclass(frozen=True)
class Review:
    """What there is, compared with what there is to be.

    :ivar hosts: number of hosts that have a limit
    :ivar wrong: {host: what is wrong with its inventory, in words}
    :ivar uplinks: names of what hosts share, whose limits placement does not
        keep
    """

    hosts: int
    wrong: dict
    uplinks: list


@dataclasses.dataclass
class _Node:
    """A compute node.

    :ivar bare_metal: whether its instances are machines of their own
    :ivar known: {consumer: kbit/s allocated, 0 for none}, or None
    :ivar generations: of its provider and of ours, that this is of
    :ivar inventory: (total, reserved) as written, or None
    """

    uuid: str
    name: str
    host: str
    bare_metal: bool = False
    known: dict | None = None
    generations: tuple = ()
    inventory: tuple | None = None


class PlacementInventories:
    """Keeps inventories in placement. Opens nothing itself.

    :param access: :class:`.Access` of Nova
    :param placement: Access of placement
    :param policies: :class:`.HostPolicies`
    :param headroom: see :class:`.EffectiveLimit`
    :param unknown: RateLaw of an instance of which nothing is known, or None
    :param corrections: :class:`.Corrections` of the policies, or
        None
    :param sleep: waits seconds, None: as :class:`.Client` does
    """

    def __init__(
        self,
        access,
        placement,
        policies,
        headroom=effective_limit.HEADROOM,
        unknown=None,
        corrections=None,
        **sleep,
    ):
        self._access = access
        self._placement = placement
        self._policies = policies
        self._unknown = unknown
        self._corrections = corrections
        self._sleep = sleep
        self._snapshot = snapshots.Snapshot()
        self._nodes = {}         # uuid -> _Node
        self._flavors = {}       # name -> extra specs
        self._limits = effective_limit.EffectiveLimits(headroom)

    def update(self, store, progress=None):
        """Bring the inventories up to date.

        :param store: :class:`~vswitch_aware_scheduler.store.Store`
        :param progress: None, or called as ``progress(done, total)``
        :returns: :class:`Outcome`
        :raises TelemetryError: when Nova or placement cannot be asked
        :raises StoreError: when the store cannot be read
        """
        aggregates, left_out = self._look(store)
        hosts = written = 0
        short = {}
        with self._client() as client:
            client.json('resource class', 'PUT',
                        f'/resource_classes/{_CLASS}', 'to have the class',
                        **_PLACEMENT)
            generations = _generations(client)
            for done, node in enumerate(self._nodes.values()):
                if progress is not None:
                    progress(done, len(self._nodes))
                if node.uuid not in generations:
                    left_out[node.host] = (
                        'placement has no provider of its compute node')
                    continue
                limit = self._limit(node, aggregates)
                if limit is None and provider_uuid(
                        node.uuid) not in generations:
                    continue
                try:
                    written += self._bring(client, node, limit, generations)
                except http.Refusal as refusal:
                    # Of one host it is no reason to leave the others.
                    node.known = None
                    left_out[node.host] = ' '.join(str(refusal).split())
                    continue
                hosts += limit is not None
                used = sum(node.known.values())
                there = node.inventory[0] - node.inventory[1]
                if used > there:
                    short[node.host] = used, there
        return Outcome(hosts, written, short, left_out)

    def review(self, store):
        """Compare what placement has with what it is to have; write nothing.

        What is reserved changes with each instance, and is not looked at.

        :param store: :class:`~vswitch_aware_scheduler.store.Store`
        :returns: :class:`Review`
        :raises TelemetryError: when Nova or placement cannot be asked
        :raises StoreError: when the store cannot be read
        """
        aggregates, left_out = self._look(store)
        wrong = dict(left_out)
        hosts = len(wrong)
        with self._client() as client:
            there = _generations(client)
            for node in self._nodes.values():
                limit = self._limit(node, aggregates)
                if limit is None:
                    continue
                hosts += 1
                ours = provider_uuid(node.uuid)
                inventory = ours in there and _inventory_of(
                    client, ours, f'host {node.host}')[0]
                total = max(limit.total, 1)
                if not inventory:
                    wrong[node.host] = 'it has none'
                elif inventory[0] != total:
                    wrong[node.host] = (f'it is of {inventory[0]} kbit/s, '
                                        f'wanted {total}')
        shared = {
            uplink_policies.name_in(metadata)
            for found in aggregates.values()
            for _, metadata in found
        }
        return Review(hosts, wrong, sorted(filter(None, shared)))

    # Hosts and their limits

    def _look(self, store):
        """Read what decides on inventories, of the store and of Nova.

        :returns: ({host: [(aggregate, metadata)]}, {host: why} of those that
            have a limit and can have no inventory)
        """
        self._snapshot = self._snapshot.updated(
            store.read_changes(self._snapshot.generation))
        nodes, aggregates = self._hosts()
        several = _several(nodes)
        left_out = {one.host: several[one.host] for one in nodes
                    if one.host in several
                    and self._limit(one, aggregates) is not None}
        self._nodes = {one.uuid: self._nodes.get(one.uuid, one)
                       for one in nodes if one.host not in several}
        return aggregates, left_out

    def _hosts(self):
        """Return (list of _Node, {host: [(aggregate, metadata)]})."""
        with _nova(self._access, self._sleep) as client:
            aggregates = _by_host(client)
            nodes = _all(client, 'hypervisors', '/os-hypervisors/detail',
                         _node)
            self._flavors = dict(_all(
                client, 'flavors', '/flavors/detail', _flavor,
                is_public='None').values())
        return list(nodes.values()), aggregates

    def _limit(self, node, aggregates):
        """Return the EffectiveLimit of the host of a node, or None."""
        policy = self._policies.find(
            aggregates.get(node.host, []),
            self._snapshot.host_profile(node.host), node.bare_metal)
        if self._corrections is not None:
            policy = self._corrections.of(policy, self._snapshot.outcomes)
        return self._limits.of(policy)

    # Inventories

    def _client(self):
        name = f'placement {self._placement.where()}'
        return openstack.SdkClient(
            self._placement, name, 'placement', **self._sleep
        )

    def _bring(self, client, node, limit, generations):
        """Bring the inventory of one host up to date.

        :returns: whether it was written
        :raises Refusal: when placement does not take it
        """
        ours = provider_uuid(node.uuid)
        told = generations[node.uuid], generations.get(ours)
        for attempt in range(_ATTEMPTS):
            # Where an allocation ends no generation tells of it.
            if node.known is None or told != node.generations \
                    or node.inventory[1]:
                self._read(client, node, told[1] is None)
            wanted = self._wanted(node, limit)
            if node.inventory == wanted:
                return False
            try:
                (_, generation), _ = client.json(
                    f'inventory of host {node.host}', 'PUT',
                    f'/resource_providers/{ours}/inventories',
                    'to keep the inventory', _inventory, json={
                        'resource_provider_generation': node.generations[1],
                        'inventories': {_CLASS: _record(*wanted)}},
                    **_PLACEMENT)
            except http.Refusal as refusal:
                if refusal.status != 409 or attempt == _ATTEMPTS - 1:
                    raise
                # Somebody was faster.
                node.known = None
                told = node.generations
                continue
            node.inventory = wanted
            node.generations = node.generations[0], generation
            return True

    def _read(self, client, node, new):
        """Read what placement has of a host; make the provider if need be."""
        ours = provider_uuid(node.uuid)
        if new:
            self._make(client, node, ours)
        inventory, generation = _inventory_of(client, ours,
                                              f'host {node.host}')
        allocated, of_node = _allocations(client, node.uuid, node.host)
        amounts, of_ours = _allocations(client, ours, node.host)
        if of_ours != generation:
            inventory = None
        node.inventory = inventory
        node.generations = of_node, of_ours
        node.known = {consumer: 0 for consumer in allocated} | amounts

    def _make(self, client, node, ours):
        try:
            client.json(
                f'provider of host {node.host}', 'POST',
                '/resource_providers', 'to have the provider',
                json={'name': f'{node.name}:vswitch', 'uuid': ours,
                      'parent_provider_uuid': node.uuid}, **_PLACEMENT)
        except http.Refusal as refusal:
            if refusal.status != 409:
                raise
            # It exists: another modeler has made it, or it was detached.
            _place(client, ours, f'{node.name}:vswitch', node.uuid)

    def _wanted(self, node, limit):
        """Return (total, reserved) that a host is to have."""
        if limit is None:
            # Who moves may still bring an allocation with it.
            return effective_limit.LARGEST, 0
        lacking, laws = 0, []
        for consumer, amount in node.known.items():
            law = self._law(consumer, amount, limit)
            if law is not None:
                lacking += max(0, limit.amount(law) - amount)
                laws.append(law)
        lacking += limit.held_back(laws)
        # Placement knows no inventory of nothing.
        total = max(limit.total, 1)
        return total, min(lacking, total) if limit.total else total

    def _law(self, consumer, amount, limit):
        """Return the RateLaw of a consumer, None: its allocation says all."""
        law = self._snapshot.law(consumer)
        if law is not None or amount:
            return law
        found = self._snapshot.placement(consumer)
        if found is None:
            # No instance, but for example a migration, whose source it is.
            return None
        return resident_demand.unmodelled_law(
            self._snapshot, consumer, self._flavors.get(found[1], {}),
            self._unknown, limit.fitting)[0]

    # Looking and clearing up

    def inventories(self):
        """Return what placement has now.

        :returns: list of (provider's name, total, reserved, used), by name
        :raises TelemetryError: when placement cannot be asked
        """
        found = []
        with self._client() as client:
            for uuid, name in _ours(client):
                inventory, _ = _inventory_of(client, uuid, name)
                amounts, _ = _allocations(client, uuid, name)
                if inventory is not None:
                    found.append((name, *inventory, sum(amounts.values())))
        return found

    def remove(self, providers=False):
        """Take all of it out of placement, allocations too.

        What stays, unless it is to go as well, is the providers, empty.
        nova-compute remembers those below its own, and asks placement for
        each: where one has gone it fails, and deletions of servers with it,
        until it reads the tree again
        (``[compute]/resource_provider_association_refresh``). So a provider
        that is to go is detached from the compute node's, and removed
        :data:`DETACHED_SECONDS` later, when nobody asks for it any more.

        :param providers: whether the providers are to go as well
        :returns: (number of inventories, of allocations, of providers
            removed, of providers detached that are still there)
        :raises TelemetryError: when placement cannot be asked or refuses
        """
        inventories = allocations = removed = detached = 0
        with self._client() as client:
            ours = _ours(client)
            for uuid, name in ours:
                for consumer in _allocations(client, uuid, name)[0]:
                    allocations += _release(client, consumer, uuid)
                path = f'/resource_providers/{uuid}'
                inventories += _delete(client, f'inventory of {name}',
                                       f'{path}/inventories/{_CLASS}')
                if providers:
                    _place(client, uuid,
                           f'{name} detached at {time.time():.0f}', None)
            for uuid, name, *_ in _providers(client) if providers else ():
                found = _DETACHED.search(name)
                if found is None:
                    continue
                if time.time() - int(found[1]) >= DETACHED_SECONDS:
                    removed += _delete(client, f'provider {name}',
                                       f'/resource_providers/{uuid}')
                else:
                    detached += 1
            # Somebody else may use it.
            _delete(client, 'resource class', f'/resource_classes/{_CLASS}',
                    409)
        self._nodes.clear()
        return inventories, allocations, removed, detached


def _place(client, uuid, name, parent):
    """Give a provider a name and a parent, None: it is a root."""
    client.json(f'provider {name}', 'PUT', f'/resource_providers/{uuid}',
                'to have the parent',
                json={'name': name, 'parent_provider_uuid': parent},
                **_MOVING)


def _delete(client, what, path, *allowed):
    """Delete something of placement.

    :param allowed: statuses of answers that leave it there
    :returns: whether it was there, and is no more
    """
    try:
        client.json(what, 'DELETE', path, 'it to go', **_PLACEMENT)
    except http.Refusal as refusal:
        if refusal.status not in (404, *allowed):
            raise
        return False
    return True


def _release(client, consumer, provider):
    """Take what is of one provider out of the allocations of a consumer.

    :returns: whether there was any
    """
    path = f'/allocations/{consumer}'
    for attempt in range(_ATTEMPTS):
        found, _ = client.json(
            f'allocations of {consumer}', 'GET', path, 'allocations',
            lambda answer: (answer['allocations'], answer), **_PLACEMENT)
        allocations, record = found
        if provider not in allocations:
            return False
        record['allocations'] = {
            uuid: {'resources': one['resources']}
            for uuid, one in allocations.items() if uuid != provider}
        try:
            client.json(f'allocations of {consumer}', 'PUT', path,
                        'to keep the allocations', json=record,
                        **_PLACEMENT)
            return True
        except http.Refusal as refusal:
            if refusal.status != 409 or attempt == _ATTEMPTS - 1:
                raise


def _record(total, reserved):
    """Return an inventory as placement has it."""
    return {'total': total, 'reserved': reserved, 'min_unit': 1,
            'max_unit': effective_limit.LARGEST, 'step_size': 1,
            'allocation_ratio': 1.0}


def _several(nodes):
    """Return {host: why} of the hosts that have several compute nodes."""
    counts = {}
    for one in nodes:
        counts[one.host] = counts.get(one.host, 0) + 1
    return {host: f'it has {count} compute nodes, which share no switch that '
                  f'one of them could have' for host, count in counts.items()
            if count > 1}


# Answers

def _nova(access, sleep):
    return openstack.SdkClient(
        access, f'nova {access.where()}', 'compute', **sleep
    )


def _by_host(client):
    """Return {host: [(name of an aggregate, its metadata)]}."""
    found, _ = client.json(
        'aggregates', 'GET', '/os-aggregates', 'a list of aggregates',
        _aggregates, **_COMPUTE)
    aggregates = {}
    for aggregate, metadata, hosts in found:
        for host in hosts:
            aggregates.setdefault(host, []).append((aggregate, metadata))
    return aggregates


def _aggregates(answer):
    return [(one['name'], dict(one['metadata']), list(one['hosts']))
            for one in answer['aggregates']]


def _aggregates_by_id(answer):
    return {str(one.get('uuid') or one['name']): {
        'name': one['name'], 'metadata': _ours_of(one['metadata']),
        'hosts': list(one['hosts'])} for one in answer['aggregates']}


def _ours_of(mapping):
    return {key: value for key, value in mapping.items()
            if key.startswith(aggregate_metadata.PREFIX)}


def _all(client, kind, path, read, **query):
    """Return {id: what ``read`` makes of it} of all that Nova lists."""
    found = {}
    for page in openstack.pages(
        client,
        kind,
        path,
        read,
        {'limit': PAGE, **query},
        repeats=True,
        **_COMPUTE,
    ):
        found.update(page)
    return found


def _flavor(item):
    """Return (name, extra specs)."""
    return item['name'], dict(item.get('extra_specs') or {})


def _node(item):
    return _Node(str(uuids.UUID(item['id'])), item['hypervisor_hostname'],
                 item['service']['host'],
                 item.get('hypervisor_type') == _IRONIC)


def _inventory_of(client, provider, name):
    """Return what :func:`_inventory` does of a provider."""
    return client.json(
        f'inventory of {name}', 'GET',
        f'/resource_providers/{provider}/inventories',
        'an inventory', _inventory, **_PLACEMENT)[0]


def _inventory(answer):
    """Return ((total, reserved) or None, generation of the provider)."""
    one = answer['inventories'].get(_CLASS)
    found = one and (int(one['total']), int(one['reserved']))
    if found and one['allocation_ratio'] != 1:
        # Not as it is written.
        found = None
    return found, answer['resource_provider_generation']


def _providers(client):
    """Return [(uuid, name, uuid of the parent or None, generation)]."""
    return client.json(
        'resource providers', 'GET', '/resource_providers',
        'a list of providers', lambda answer: [
            (one['uuid'], one['name'], one['parent_provider_uuid'],
             one['generation']) for one in answer['resource_providers']],
        **_PLACEMENT)[0]


def _generations(client):
    """Return {uuid: generation} of all providers that are not detached."""
    return {uuid: generation for uuid, name, _, generation
            in _providers(client) if not _DETACHED.search(name)}


def _ours(client):
    """Return [(uuid, name)] of the providers that were made here."""
    return sorted(((uuid, name) for uuid, name, parent, _
                   in _providers(client)
                   if parent and provider_uuid(parent) == uuid),
                  key=lambda one: one[1])


def _allocations(client, provider, host):
    """Return ({consumer: kbit/s of ours}, generation of the provider)."""
    return client.json(
        f'allocations on {host}', 'GET',
        f'/resource_providers/{provider}/allocations', 'allocations',
        lambda answer: ({consumer: one['resources'].get(_CLASS, 0)
                         for consumer, one in answer['allocations'].items()},
                        answer['resource_provider_generation']),
        **_PLACEMENT)[0]
