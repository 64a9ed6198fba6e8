# SPDX-License-Identifier: Apache-2.0
"""The APIs of Nova and placement, as far as inventories need them."""

import dataclasses
import uuid as uuids

from tests.contract import telemetry_stand_ins as stand_ins
from vswitch_aware_scheduler.admission import effective_limit
from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.modeler import placement_inventory

CLASS = effective_limit.RESOURCE_CLASS


@dataclasses.dataclass
class Provider:
    name: str
    parent: str | None
    generation: int = 0
    inventories: dict = dataclasses.field(default_factory=dict)


class PlacementApi(stand_ins.OpenStack):
    """Nova and placement, as far as the inventories need them.

    In the form that Nova 34 and placement 16 were seen to answer in;
    tests/functional runs the same against the real ones.

    :ivar hosts: {uuid of a compute node: (name, host)}
    :ivar aggregates: [(name, metadata, hosts)]
    :ivar providers: {uuid: Provider}
    :ivar allocations: {consumer: {provider: {class: amount}}}
    :ivar flavors: {name: extra specs}
    :ivar before_write: called before each write to a provider
    """

    def __init__(self):
        super().__init__()
        self.hosts = {}
        self.types = {}          # host -> type of its hypervisor
        self.aggregates = []
        self.providers = {}
        self.allocations = {}
        self.flavors = {}
        self.classes = set()
        self.generations = {}
        self.before_write = lambda: None

    def host(self, name, **metadata):
        """Add a host with a compute node and metadata of ours."""
        uuid = str(uuids.uuid5(uuids.NAMESPACE_DNS, name))
        self.hosts[uuid] = (f'node-{name}', name)
        self.providers[uuid] = Provider(f'node-{name}', None)
        self.aggregates.append((f'of {name}', {
            'availability_zone': 'nova', **{
                f'vswitch:{key}': value for key, value in metadata.items()},
        }, [name]))
        return uuid

    def allocate(self, consumer, node, kbps=None):
        """Put a consumer on a node, with so much of ours."""
        resources = {node: {'VCPU': 1}}
        if kbps is not None:
            resources[placement_inventory.provider_uuid(node)] = {CLASS: kbps}
        self.allocations[consumer] = resources
        for uuid in resources:
            self.providers[uuid].generation += 1

    def leave(self, consumer):
        # Placement does not raise a generation for this.
        del self.allocations[consumer]

    def inventory(self, node):
        """Return (total, reserved) that a node has of ours, or None."""
        provider = self.providers.get(
            placement_inventory.provider_uuid(node))
        inventory = provider and provider.inventories.get(CLASS)
        return inventory and (inventory['total'], inventory['reserved'])

    def writes(self):
        return [(method, path) for method, path, *_ in self.requests
                if method != 'GET' and 'resource_classes' not in path]

    def answer(self, method, path, parameters, body):
        if path == '/v2.1/os-aggregates':
            return 200, {'aggregates': [
                {'name': name, 'metadata': metadata, 'hosts': hosts}
                for name, metadata, hosts in self.aggregates]}
        if path == '/v2.1/os-hypervisors/detail':
            return 200, self._page(parameters, 'hypervisors', [
                {'id': uuid, 'hypervisor_hostname': name,
                 'hypervisor_type': self.types.get(host, 'QEMU'),
                 'service': {'host': host, 'id': '1'}}
                for uuid, (name, host) in sorted(self.hosts.items())])
        if path == '/v2.1/flavors/detail':
            if parameters['is_public'] != ['None']:
                return 200, {'flavors': []}
            return 200, self._page(parameters, 'flavors', [
                {'id': f'id-of-{name}', 'name': name, 'extra_specs': specs}
                for name, specs in sorted(self.flavors.items())])
        _, _, kind, *rest = path.split('/')
        if kind == 'resource_classes':
            if method == 'PUT':
                self.classes.add(rest[0])
                return 201, None
            if any(CLASS in provider.inventories
                   for provider in self.providers.values()):
                return 409, {}
            self.classes.discard(rest[0])
            return 204, None
        if kind == 'allocations':
            return self._consumer(method, rest[0], body)
        return self._provider(method, rest, body)

    def _page(self, parameters, kind, items):
        limit = int(parameters['limit'][0])
        first = 0
        if 'marker' in parameters:
            first = 1 + [item['id'] for item in items].index(
                parameters['marker'][0])
        page = {kind: items[first:first + limit]}
        if first + limit < len(items):
            page[f'{kind}_links'] = [{'rel': 'next', 'href': 'there'}]
        return page

    def _provider(self, method, rest, body):
        if not rest:
            if method == 'GET':
                return 200, {'resource_providers': [
                    {'uuid': uuid, 'name': provider.name,
                     'parent_provider_uuid': provider.parent,
                     'generation': provider.generation}
                    for uuid, provider in self.providers.items()]}
            self.before_write()
            if body['uuid'] in self.providers:
                return 409, {}
            self.providers[body['uuid']] = Provider(
                body['name'], body['parent_provider_uuid'])
            return 200, {'uuid': body['uuid']}
        provider = self.providers[rest[0]]
        if method == 'PUT' and not rest[1:]:
            provider.name = body['name']
            provider.parent = body['parent_provider_uuid']
            return 200, {'uuid': rest[0]}
        if method == 'DELETE':
            if any(rest[0] in allocation
                   for allocation in self.allocations.values()):
                return 409, {}
            if rest[1:]:
                return (404, {}) if provider.inventories.pop(
                    rest[2], None) is None else (204, None)
            del self.providers[rest[0]]
            return 204, None
        if rest[1] == 'allocations':
            return 200, {'resource_provider_generation': provider.generation,
                         'allocations': {
                             consumer: {'resources': allocation[rest[0]]}
                             for consumer, allocation
                             in self.allocations.items()
                             if rest[0] in allocation}}
        if method == 'PUT':
            self.before_write()
            if body['resource_provider_generation'] != provider.generation:
                return 409, {'errors': [{'code': 'concurrent_update'}]}
            provider.inventories = body['inventories']
            provider.generation += 1
        return 200, {'resource_provider_generation': provider.generation,
                     'inventories': provider.inventories}

    def _consumer(self, method, consumer, body):
        generation = self.generations.setdefault(consumer, 7)
        allocation = self.allocations.get(consumer, {})
        if method == 'GET':
            return 200, {
                'allocations': {uuid: {'resources': resources,
                                       'generation': 3}
                                for uuid, resources in allocation.items()},
                'consumer_generation': generation, 'project_id': 'p',
                'user_id': 'u'}
        self.before_write()
        if body['consumer_generation'] != self.generations[consumer]:
            return 409, {'errors': [{'code': 'concurrent_update'}]}
        if (body['project_id'], body['user_id']) != ('p', 'u'):
            return 400, {}
        self.generations[consumer] += 1
        self.allocations[consumer] = {
            uuid: allocated['resources']
            for uuid, allocated in body['allocations'].items()}
        return 204, None


def access(cloud, path):
    """Return what reaches one of the services of a PlacementApi."""
    return http.Access(
        url=cloud.url + path, retries=0,
        auth={'auth_type': 'none', 'endpoint': cloud.url},
        requests_per_second=1000.0, timeout_seconds=5.0)
