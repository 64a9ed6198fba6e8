# SPDX-License-Identifier: Apache-2.0
"""The API of Nova, as far as hosts, aggregates and flavors are read."""

import uuid as uuids

from tests.contract import telemetry_stand_ins as stand_ins
from vswitch_aware_scheduler.clients import http


class NovaHosts(stand_ins.OpenStack):
    """Nova, as far as its hosts are read.

    In the form that Nova 34 was seen to answer in.

    :ivar hosts: {uuid of a compute node: (name, host)}
    :ivar types: {host: type of its hypervisor}, QEMU by default
    :ivar aggregates: [(name, metadata, hosts)]
    :ivar flavors: {name: extra specs}
    """

    def __init__(self):
        super().__init__()
        self.hosts = {}
        self.types = {}
        self.aggregates = []
        self.flavors = {}

    def host(self, name, **metadata):
        """Add a host with a compute node and metadata of ours."""
        uuid = str(uuids.uuid5(uuids.NAMESPACE_DNS, name))
        self.hosts[uuid] = (f'node-{name}', name)
        self.aggregates.append((f'of {name}', {
            'availability_zone': 'nova', **{
                f'vswitch:{key}': value for key, value in metadata.items()},
        }, [name]))

    def access(self):
        """Return the Access to this API."""
        return http.Access(
            url=f'{self.url}/v2.1', retries=0,
            auth={'auth_type': 'none', 'endpoint': self.url},
            requests_per_second=1000.0, timeout_seconds=5.0)

    def answer(self, method, path, parameters, body):
        if path == '/v2.1/os-aggregates':
            return 200, {'aggregates': [
                {'name': name, 'metadata': metadata, 'hosts': hosts}
                for name, metadata, hosts in self.aggregates]}
        if path == '/v2.1/os-hypervisors/detail':
            return self._page('hypervisors', parameters, [
                {'id': uuid, 'hypervisor_hostname': name,
                 'hypervisor_type': self.types.get(host, 'QEMU'),
                 'service': {'host': host, 'id': '1'}}
                for uuid, (name, host) in sorted(self.hosts.items())])
        assert path == '/v2.1/flavors/detail', path
        if parameters['is_public'] != ['None']:
            return 200, {'flavors': []}
        return self._page('flavors', parameters, [
            {'id': f'id-of-{name}', 'name': name, 'extra_specs': specs}
            for name, specs in sorted(self.flavors.items())])
