# SPDX-License-Identifier: Apache-2.0
"""A cloud behind one URL: keystone, Nova, Placement and Neutron.

In the form that they were seen to answer in; tests/cloud asks the real ones.
"""

import json

from tests.contract import telemetry_stand_ins as stand_ins
from tests.fakes import nova_api
from tests.fakes import nova_hosts

_PATHS = {'compute': '/v2.1', 'placement': '/placement', 'network': '',
          'identity': '/v3'}


class WholeCloud(nova_hosts.NovaHosts):
    """What a survey asks.

    :ivar nova: :class:`~.nova_api.NovaApi` with the servers
    :ivar migrations: list of dictionaries
    :ivar agents: list of agents of Neutron
    :ivar amounts: {host: {class: (capacity, used)}}
    :ivar forbidden: paths that this user may not read
    :ivar password: of the user
    :ivar urls: {type of a service: URL} of other services in the catalog
    """

    def __init__(self):
        super().__init__()
        self.nova = nova_api.NovaApi()
        self.migrations, self.agents, self.amounts = [], [], {}
        self.forbidden = set()
        self.password = 'secret'
        self.urls = {}

    def environment(self, **more):
        """Return the variables OS_* of the administrator."""
        return {'OS_AUTH_URL': f'{self.url}/v3', 'OS_USERNAME': 'admin',
                'OS_PASSWORD': 'secret', 'OS_PROJECT_NAME': 'admin',
                'OS_USER_DOMAIN_NAME': 'Default',
                'OS_PROJECT_DOMAIN_NAME': 'Default', **more}

    def move(self, uuid, source, destination, at, kind='live-migration',
             status='completed'):
        """Add a migration to Nova's record."""
        number = len(self.migrations) + 1
        self.migrations.append({
            'id': number, 'uuid': f'move-{number}', 'instance_uuid': uuid,
            'migration_type': kind, 'status': status,
            'source_compute': source, 'dest_compute': destination,
            'created_at': nova_api.iso(nova_api.NOW + at)[:-1],
            'updated_at': nova_api.iso(nova_api.NOW + at)[:-1]})

    def _handle(self, handler):
        path = handler.path.partition('?')[0].rstrip('/')
        if path == '/v3' and handler.command == 'GET':
            stand_ins.send(handler, 200, json.dumps({'version': {
                'id': 'v3.14', 'status': 'stable', 'links': [
                    {'rel': 'self', 'href': f'{self.url}/v3/'}]}}).encode())
        elif path == '/v3/auth/tokens':
            self._give_token(handler)
        else:
            super()._handle(handler)

    def _give_token(self, handler):
        length = int(handler.headers.get('Content-Length') or 0)
        user = json.loads(handler.rfile.read(length))['auth']['identity'][
            'password']['user']
        if user['password'] != self.password:
            stand_ins.send(handler, 401, json.dumps({'error': {
                'code': 401, 'message': 'no', 'title': 'Unauthorized'}
                }).encode())
            return
        stand_ins.send(handler, 201, json.dumps({'token': {
            'methods': ['password'], 'expires_at': '2099-01-01T00:00:00Z',
            'issued_at': '2020-01-01T00:00:00Z', 'roles': [],
            'user': {'id': 'u', 'name': 'admin', 'domain': {'id': 'd'}},
            'project': {'id': 'p', 'name': 'admin', 'domain': {'id': 'd'}},
            'catalog': [{'type': kind, 'name': kind, 'id': kind,
                         'endpoints': [{
                             'interface': 'public', 'region_id': 'one',
                             'region': 'one', 'id': kind,
                             'url': url}]}
                        for kind, url in {
                            **{kind: self.url + path
                               for kind, path in _PATHS.items()},
                            **self.urls}.items()]}}).encode(),
            [('X-Subject-Token', 'token')])

    def answer(self, method, path, parameters, body):
        if path in self.forbidden:
            return 403, {'forbidden': {'code': 403, 'message': 'policy'}}
        if path == '/v3/projects':
            return 200, {'projects': [{'id': 'p', 'name': 'shop'}]}
        if path == '/v2.0/agents':
            return 200, {'agents': self.agents}
        if path == '/v2.1/os-migrations':
            return 200, {'migrations': self.migrations}
        if path == '/placement/allocation_candidates':
            name = parameters['resources'][0].partition(':')[0]
            return 200, {'allocation_requests': [], 'provider_summaries': {
                uuid: {'resources': {name: dict(zip(
                    ('capacity', 'used'), self.amounts[host][name]))}}
                for uuid, (_, host) in self.hosts.items()
                if name in self.amounts.get(host, ())}}
        if path.startswith('/v2.1/servers'):
            return self.nova.answer(method, path, parameters, body)
        return super().answer(method, path, parameters, body)
