# SPDX-License-Identifier: Apache-2.0
"""The APIs of Nova and Neutron, as far as instances are read from them."""

import datetime

from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import clock
from tests.fakes import store

NOW = clock.NOW


def iso(seconds):
    return datetime.datetime.fromtimestamp(
        seconds, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')


class NovaApi(stand_ins.OpenStack):
    """Nova and Neutron, as far as the inventory asks them.

    In the form that Nova 34 was seen to answer in; tests/functional runs the
    same against the real one.

    :ivar servers: {uuid: dictionary}, deleted ones too
    :ivar down: uuids in a cell that does not answer
    :ivar trunks: list of dictionaries, or None if Neutron has no trunks
    """

    def __init__(self):
        super().__init__()
        self.servers = {}
        self.down = set()
        self.ports, self.networks = [], []
        self.trunks = None

    def put(self, number, host='h1', flavor='f', project='p', at=0.0,
            status='ACTIVE'):
        uuid = store.instance_uuid(number)
        self.servers[uuid] = {
            'id': uuid, 'status': status, 'tenant_id': project,
            'updated': iso(NOW + at), 'OS-EXT-SRV-ATTR:host': host,
            'name': f'server {number}',
            'flavor': {'original_name': flavor, 'vcpus': 1}}
        return uuid

    def attach(self, uuid, network, vnic='normal', host='h1', project='p',
               mac=None, listed=True):
        """Add a port.

        :param uuid: its device_id
        :param listed: whether Nova lists its address for that instance
        """
        mac = mac or f'fa:16:3e:00:00:{len(self.ports):02x}'
        self.ports.append({
            'id': f'port{len(self.ports)}', 'device_id': uuid,
            'network_id': network, 'mac_address': mac, 'project_id': project,
            'binding:host_id': host, 'binding:vnic_type': vnic})
        if listed:
            self.servers[uuid].setdefault('addresses', {}).setdefault(
                f'net {network}', []).append({
                    'addr': '192.0.2.1', 'version': 4,
                    'OS-EXT-IPS:type': 'fixed',
                    'OS-EXT-IPS-MAC:mac_addr': mac})
        return self.ports[-1]

    def trunk(self, parent, *sub_ports):
        """Add a trunk; it is as Neutron shows it.

        :param parent: port of :meth:`attach`
        :param sub_ports: (id of a port, network or None if no such port is)
        """
        for number, network in sub_ports:
            if network is not None:
                self.ports.append({
                    'id': number, 'device_id': '', 'network_id': network,
                    'device_owner': 'trunk:subport',
                    'mac_address': parent['mac_address'],
                    'project_id': parent['project_id'],
                    'binding:host_id': parent['binding:host_id'],
                    'binding:vnic_type': 'normal'})
        self.trunks = self.trunks or []
        self.trunks.append({
            'id': f'trunk{len(self.trunks)}', 'port_id': parent['id'],
            'sub_ports': [{
                'port_id': number, 'segmentation_type': 'vlan',
                'segmentation_id': at}
                for at, (number, _) in enumerate(sub_ports, 100)]})
        return self.trunks[-1]

    def delete(self, uuid, at):
        self.servers[uuid].update(status='DELETED', updated=iso(NOW + at))

    def answer(self, method, path, parameters, body):
        if path == '/v2.0/ports':
            return self._page('ports', parameters, self.ports)
        if path == '/v2.0/trunks' and self.trunks is not None:
            return self._page('trunks', parameters, self.trunks)
        if path == '/v2.0/networks':
            ids = parameters.get('id')
            return self._page('networks', parameters, [
                network for network in self.networks
                if ids is None or network['id'] in ids])
        if path == '/v2.1/servers/detail':
            since = parameters.get('changes-since', [''])[0]
            return self._page('servers', parameters, [
                self._shown(server) for uuid, server in self.servers.items()
                if (server['updated'] >= since if since
                    else server['status'] != 'DELETED')])
        uuid = path.rpartition('/')[2]
        if self.servers.get(uuid, {}).get('status', 'DELETED') == 'DELETED':
            return 404, {'itemNotFound': {'code': 404}}
        return 200, {'server': self._shown(self.servers[uuid])}

    def _shown(self, server):
        if server['id'] in self.down:
            return {'id': server['id'], 'status': 'UNKNOWN',
                    'tenant_id': server['tenant_id'], 'created': iso(NOW)}
        return server

    def asked(self, path='/v2.1/servers/detail'):
        return [parameters for _, requested, parameters, _ in self.requests
                if requested == path]
