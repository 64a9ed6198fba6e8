# SPDX-License-Identifier: Apache-2.0
"""Maintains the inventories of hosts in Placement, for the strict mode.

:class:`PlacementInventories` creates, for each host with a limit, a resource
provider with an inventory of :data:`.RESOURCE_CLASS`. It updates the inventory
when profiles, aggregates and models change. The provider is a child of the
compute node's provider: nova-compute replaces the complete inventory of the
latter, but does not change child providers that it has not created.

The need of an instance is what the scheduler judges it by: its model, the
prior of its own traffic, its flavor, the prior of its group, or the default.
Allocations are never written while the mode is on, because a concurrent change
by Nova would fail. If the need of an instance grows beyond its allocation, the
difference is subtracted from the host as ``reserved``. If the need shrinks,
the allocation remains, so that a host keeps its limit whichever instance
leaves. Derivation: reference/strict.rst.
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

# Microversion of Train, which Nova uses for claims.
_PLACEMENT = {'microversion': '1.36'}

# Microversion of Wallaby, which can change or remove the parent of a provider.
_MOVING = {'microversion': '1.37'}

# Microversion of Stein, as for the inventory: the id of a hypervisor is the id
# of its resource provider, and flavors include their extra specs.
_COMPUTE = {'microversion': '2.69'}

#: Hypervisor type of bare metal nodes.
_IRONIC = 'ironic'

#: Number of hypervisors or flavors in one answer.
PAGE = 1000

#: Number of attempts of a write if another client writes at the same time.
_ATTEMPTS = 5

#: nova-compute requests removed child providers until it reads the tree again,
#: every five minutes by default.
DETACHED_SECONDS = 900.0

_CLASS = effective_limit.RESOURCE_CLASS
_DETACHED = re.compile(r':vswitch detached at (\d+)$')


def provider_uuid(node_uuid):
    """Return the uuid of the child provider of a compute node.

    :param node_uuid: uuid of the compute node
    """
    return str(uuids.uuid5(uuids.UUID(node_uuid), 'vswitch'))


def read_aggregates(access, **sleep):
    """Return {host: [(name of an aggregate, its metadata)]} of Nova.

    :param access: :class:`.Access` of Nova
    :param sleep: keyword ``sleep`` of :class:`.Client`
    :raises TelemetryError: if the aggregates cannot be read
    """
    with _nova(access, sleep) as client:
        return _by_host(client)


def read_cloud(access, **sleep):
    """Return the data in Nova that determine policies and demands.

    :param access: :class:`.Access` of Nova
    :param sleep: keyword ``sleep`` of :class:`.Client`
    :returns: {'aggregate': {id: dictionary with name, metadata, hosts},
        'node': {id: (host, whether it is bare metal)}, 'flavor': {name: extra
        specs}}, without kinds that this user may not read. Metadata and extra
        specs contain only keys of this package.
    :raises TelemetryError: if Nova does not answer
    """
    cloud = {}
    with _nova(access, sleep) as client:
        for kind, read in (
                ('aggregate', lambda: client.json(
                    'aggregates', 'GET', '/os-aggregates',
                    'a list of aggregates', _aggregates_by_id,
                    **_COMPUTE)[0]),
                ('node', lambda: {
                    uuid: (node.host, node.bare_metal) for uuid, node in _all(
                        client, 'hypervisors', '/os-hypervisors/detail',
                        _node).items()}),
                ('flavor', lambda: {
                    name: _ours_of(specs) for name, specs in _all(
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


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of an update.

    :ivar written: number of inventories that were written
    :ivar hosts: number of hosts that have an inventory
    :ivar short: {host: (kbit/s in use, kbit/s available)} of hosts with more
        allocated than available
    :ivar left_out: {host: why} of hosts whose inventory is not maintained
    """

    hosts: int
    written: int
    short: dict
    left_out: dict


@dataclasses.dataclass(frozen=True)
class Review:
    """The differences between Placement and the expected inventories.

    :ivar hosts: number of hosts with a limit
    :ivar wrong: {host: problem of its inventory, in words}
    :ivar uplinks: names of uplinks, whose limits Placement does not enforce
    """

    hosts: int
    wrong: dict
    uplinks: list


@dataclasses.dataclass
class _Node:
    """A compute node.

    :ivar inventory: (total, reserved) as written, or None
    :ivar bare_metal: whether its instances are physical machines
    :ivar allocations: {consumer: allocated kbit/s, or 0}, or None if not read
        yet
    :ivar generations: generations of its provider and of the child provider
        when this was read
    """

    uuid: str
    name: str
    host: str
    bare_metal: bool = False
    allocations: dict | None = None
    generations: tuple = ()
    inventory: tuple | None = None


class PlacementInventories:
    """Maintains the inventories in Placement. Opens nothing itself.

    :param access: :class:`.Access` of Nova
    :param placement: Access of Placement
    :param policies: :class:`.HostPolicies`
    :param headroom: as in :class:`.EffectiveLimit`
    :param unknown: RateLaw of an instance about which nothing is known, or
        None
    :param corrections: :class:`.Corrections` of the policies, or
        None
    :param sleep: keyword ``sleep`` of :class:`.Client`
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
        """Update the inventories.

        :param store: :class:`~vswitch_aware_scheduler.store.Store`
        :param progress: None, or callable(done, total)
        :returns: :class:`Outcome`
        :raises TelemetryError: if Nova or Placement does not answer
        :raises StoreError: if the store cannot be read
        """
        aggregates, left_out = self._look(store)
        hosts = written = 0
        short = {}
        with self._client() as client:
            client.json('resource class', 'PUT',
                        f'/resource_classes/{_CLASS}', 'to have the class',
                        **_PLACEMENT)
            generations = _generations(client)
            for number, node in enumerate(self._nodes.values()):
                if progress is not None:
                    progress(number, len(self._nodes))
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
                    # An error in one host does not affect the other hosts.
                    node.allocations = None
                    left_out[node.host] = ' '.join(str(refusal).split())
                    continue
                hosts += limit is not None
                allocated = sum(node.allocations.values())
                available = node.inventory[0] - node.inventory[1]
                if allocated > available:
                    short[node.host] = allocated, available
        return Outcome(hosts, written, short, left_out)

    def review(self, store):
        """Compare Placement with the expected inventories. Writes nothing.

        The reserved amount changes with each instance and is not compared.

        :param store: :class:`~vswitch_aware_scheduler.store.Store`
        :returns: :class:`Review`
        :raises TelemetryError: if Nova or Placement does not answer
        :raises StoreError: if the store cannot be read
        """
        aggregates, left_out = self._look(store)
        problems = dict(left_out)
        hosts = len(problems)
        with self._client() as client:
            generations = _generations(client)
            for node in self._nodes.values():
                limit = self._limit(node, aggregates)
                if limit is None:
                    continue
                hosts += 1
                provider = provider_uuid(node.uuid)
                inventory = provider in generations and _inventory_of(
                    client, provider, f'host {node.host}')[0]
                total = max(limit.total, 1)
                if not inventory:
                    problems[node.host] = 'it has none'
                elif inventory[0] != total:
                    problems[node.host] = (f'it is of {inventory[0]} kbit/s; '
                                           f'expected {total}')
        shared = {
            uplink_policies.name_in(metadata)
            for of_host in aggregates.values()
            for _, metadata in of_host
        }
        return Review(hosts, problems, sorted(filter(None, shared)))

    # Hosts and their limits

    def _look(self, store):
        """Read what determines the inventories from the store and from Nova.

        :returns: ({host: [(aggregate, metadata)]}, {host: why} of the hosts
            that have a limit but cannot have an inventory)
        """
        self._snapshot = self._snapshot.updated(
            store.read_changes(self._snapshot.generation))
        nodes, aggregates = self._hosts()
        several = _several(nodes)
        left_out = {node.host: several[node.host] for node in nodes
                    if node.host in several
                    and self._limit(node, aggregates) is not None}
        self._nodes = {node.uuid: self._nodes.get(node.uuid, node)
                       for node in nodes if node.host not in several}
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
        """Update the inventory of one host.

        :returns: whether it was written
        :raises Refusal: if Placement rejects it
        """
        provider = provider_uuid(node.uuid)
        generations_seen = generations[node.uuid], generations.get(provider)
        for attempt in range(_ATTEMPTS):
            # The end of an allocation does not change a generation.
            if node.allocations is None \
                    or generations_seen != node.generations \
                    or node.inventory[1] or sum(
                        node.allocations.values()) > node.inventory[0]:
                self._read(client, node, generations_seen[1] is None)
            expected = self._wanted(node, limit)
            if node.inventory == expected:
                return False
            try:
                (_, generation), _ = client.json(
                    f'inventory of host {node.host}', 'PUT',
                    f'/resource_providers/{provider}/inventories',
                    'to keep the inventory', _inventory, json={
                        'resource_provider_generation': node.generations[1],
                        'inventories': {_CLASS: _record(*expected)}},
                    **_PLACEMENT)
            except http.Refusal as refusal:
                if refusal.status != 409 or attempt == _ATTEMPTS - 1:
                    raise
                # Another client was faster.
                node.allocations = None
                generations_seen = node.generations
                continue
            node.inventory = expected
            node.generations = node.generations[0], generation
            return True

    def _read(self, client, node, new):
        """Read the state of a host in Placement. Create a missing provider."""
        provider = provider_uuid(node.uuid)
        if new:
            self._make(client, node, provider)
        inventory, generation = _inventory_of(client, provider,
                                              f'host {node.host}')
        allocated, of_node = _allocations(client, node.uuid, node.host)
        amounts, of_ours = _allocations(client, provider, node.host)
        if of_ours != generation:
            inventory = None
        node.inventory = inventory
        node.generations = of_node, of_ours
        node.allocations = {consumer: 0 for consumer in allocated} | amounts

    def _make(self, client, node, provider):
        try:
            client.json(
                f'provider of host {node.host}', 'POST',
                '/resource_providers', 'to have the provider',
                json={'name': f'{node.name}:vswitch', 'uuid': provider,
                      'parent_provider_uuid': node.uuid}, **_PLACEMENT)
        except http.Refusal as refusal:
            if refusal.status != 409:
                raise
            # It exists: another modeler has created it, or it was detached.
            _place(client, provider, f'{node.name}:vswitch', node.uuid)

    def _wanted(self, node, limit):
        """Return the expected (total, reserved) of a host."""
        if limit is None:
            # An instance that moves may still add an allocation.
            return effective_limit.LARGEST, 0
        lacking, laws = 0, []
        for consumer, amount in node.allocations.items():
            law = self._law(consumer, amount, limit)
            if law is not None:
                lacking += max(0, limit.amount(law) - amount)
                laws.append(law)
        lacking += limit.held_back(laws)
        # Placement does not accept an inventory with total 0.
        total = max(limit.total, 1)
        return total, min(lacking, total) if limit.total else total

    def _law(self, consumer, amount, limit):
        """Return the RateLaw of a consumer, or None to use its allocation."""
        law = self._snapshot.law(consumer)
        if law is not None or amount:
            return law
        placement = self._snapshot.placement(consumer)
        if placement is None:
            # Not an instance but, for example, a migration whose source it is.
            return None
        return resident_demand.unmodelled_law(
            self._snapshot, consumer, self._flavors.get(placement[1], {}),
            self._unknown, limit.fitting)[0]

    # Listing and removing inventories

    def inventories(self):
        """Return the inventories that Placement has now.

        :returns: list of (name of the provider, total, reserved, used), by
            name
        :raises TelemetryError: if Placement does not answer
        """
        inventories = []
        with self._client() as client:
            for uuid, name in _ours(client):
                inventory, _ = _inventory_of(client, uuid, name)
                amounts, _ = _allocations(client, uuid, name)
                if inventory is not None:
                    inventories.append(
                        (name, *inventory, sum(amounts.values())))
        return inventories

    def remove(self, providers=False):
        """Remove all inventories and their allocations from Placement.

        By default, the empty providers remain. nova-compute remembers the
        child providers and asks Placement for each of them. If one is missing,
        it fails, and deletions of servers fail too, until it reads the tree
        again (``[compute]/resource_provider_association_refresh``). Therefore
        a provider that has to be removed is first detached from the provider
        of the compute node. It is removed :data:`DETACHED_SECONDS` later.

        :param providers: whether to remove the providers as well
        :returns: (number of removed inventories, of removed allocations, of
            removed providers, of detached providers that remain)
        :raises TelemetryError: if Placement does not answer or refuses
        """
        inventories = allocations = removed = detached = 0
        with self._client() as client:
            providers_of_ours = _ours(client)
            for uuid, name in providers_of_ours:
                for consumer in _allocations(client, uuid, name)[0]:
                    allocations += _release(client, consumer, uuid)
                path = f'/resource_providers/{uuid}'
                inventories += _delete(client, f'inventory of {name}',
                                       f'{path}/inventories/{_CLASS}')
                if providers:
                    _place(client, uuid,
                           f'{name} detached at {time.time():.0f}', None)
            for uuid, name, *_ in _providers(client) if providers else ():
                detached_at = _DETACHED.search(name)
                if detached_at is None:
                    continue
                if time.time() - int(detached_at[1]) >= DETACHED_SECONDS:
                    removed += _delete(client, f'provider {name}',
                                       f'/resource_providers/{uuid}')
                else:
                    detached += 1
            # Another application may use the class.
            _delete(client, 'resource class', f'/resource_classes/{_CLASS}',
                    409)
        self._nodes.clear()
        return inventories, allocations, removed, detached


def _place(client, uuid, name, parent):
    """Set the name and the parent of a provider. None makes it a root."""
    client.json(f'provider {name}', 'PUT', f'/resource_providers/{uuid}',
                'to have the parent',
                json={'name': name, 'parent_provider_uuid': parent},
                **_MOVING)


def _delete(client, name, path, *allowed):
    """Delete something in Placement.

    :param allowed: statuses of answers for which it remains
    :returns: whether it existed and was deleted
    """
    try:
        client.json(name, 'DELETE', path, 'it to go', **_PLACEMENT)
    except http.Refusal as refusal:
        if refusal.status not in (404, *allowed):
            raise
        return False
    return True


def _release(client, consumer, provider):
    """Remove the allocations of one provider from those of a consumer.

    :returns: whether there were any
    """
    path = f'/allocations/{consumer}'
    for attempt in range(_ATTEMPTS):
        (allocations, record), _ = client.json(
            f'allocations of {consumer}', 'GET', path, 'allocations',
            lambda answer: (answer['allocations'], answer), **_PLACEMENT)
        if provider not in allocations:
            return False
        record['allocations'] = {
            uuid: {'resources': allocation['resources']}
            for uuid, allocation in allocations.items() if uuid != provider}
        try:
            client.json(f'allocations of {consumer}', 'PUT', path,
                        'to keep the allocations', json=record,
                        **_PLACEMENT)
            return True
        except http.Refusal as refusal:
            if refusal.status != 409 or attempt == _ATTEMPTS - 1:
                raise


def _record(total, reserved):
    """Return an inventory in the format of Placement."""
    return {'total': total, 'reserved': reserved, 'min_unit': 1,
            'max_unit': effective_limit.LARGEST, 'step_size': 1,
            'allocation_ratio': 1.0}


def _several(nodes):
    """Return {host: why} of the hosts with several compute nodes."""
    counts = {}
    for node in nodes:
        counts[node.host] = counts.get(node.host, 0) + 1
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
    answer, _ = client.json(
        'aggregates', 'GET', '/os-aggregates', 'a list of aggregates',
        _aggregates, **_COMPUTE)
    aggregates = {}
    for aggregate, metadata, hosts in answer:
        for host in hosts:
            aggregates.setdefault(host, []).append((aggregate, metadata))
    return aggregates


def _aggregates(answer):
    return [(aggregate['name'], dict(aggregate['metadata']),
             list(aggregate['hosts']))
            for aggregate in answer['aggregates']]


def _aggregates_by_id(answer):
    return {str(aggregate.get('uuid') or aggregate['name']): {
        'name': aggregate['name'], 'metadata': _ours_of(aggregate['metadata']),
        'hosts': list(aggregate['hosts'])}
        for aggregate in answer['aggregates']}


def _ours_of(mapping):
    return {key: value for key, value in mapping.items()
            if key.startswith(aggregate_metadata.PREFIX)}


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
    return _Node(str(uuids.UUID(item['id'])), item['hypervisor_hostname'],
                 item['service']['host'],
                 item.get('hypervisor_type') == _IRONIC)


def _inventory_of(client, provider, name):
    """Return the result of :func:`_inventory` for a provider."""
    return client.json(
        f'inventory of {name}', 'GET',
        f'/resource_providers/{provider}/inventories',
        'an inventory', _inventory, **_PLACEMENT)[0]


def _inventory(answer):
    """Return ((total, reserved) or None, generation of the provider)."""
    record = answer['inventories'].get(_CLASS)
    inventory = record and (int(record['total']), int(record['reserved']))
    if inventory and record['allocation_ratio'] != 1:
        # This module writes the ratio 1: write the inventory again.
        inventory = None
    return inventory, answer['resource_provider_generation']


def _providers(client):
    """Return [(uuid, name, uuid of the parent or None, generation)]."""
    return client.json(
        'resource providers', 'GET', '/resource_providers',
        'a list of providers',
        lambda answer: [
            (provider['uuid'], provider['name'],
             provider['parent_provider_uuid'], provider['generation'])
            for provider in answer['resource_providers']],
        **_PLACEMENT)[0]


def _generations(client):
    """Return {uuid: generation} of all providers that are not detached."""
    return {uuid: generation for uuid, name, _, generation
            in _providers(client) if not _DETACHED.search(name)}


def _ours(client):
    """Return [(uuid, name)] of the providers that this module created."""
    return sorted(((uuid, name) for uuid, name, parent, _
                   in _providers(client)
                   if parent and provider_uuid(parent) == uuid),
                  key=lambda provider: provider[1])


def _allocations(client, provider, host):
    """Return ({consumer: kbit/s of our class}, generation of the provider)."""
    return client.json(
        f'allocations on {host}', 'GET',
        f'/resource_providers/{provider}/allocations', 'allocations',
        lambda answer: ({
            consumer: allocation['resources'].get(_CLASS, 0)
            for consumer, allocation in answer['allocations'].items()
        }, answer['resource_provider_generation']), **_PLACEMENT)[0]
