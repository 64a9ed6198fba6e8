# SPDX-License-Identifier: Apache-2.0
"""The API of Neutron, as far as hosts are discovered by it."""

from tests.fakes import nova_api
from vswitch_aware_scheduler.clients import http


class NeutronApi(nova_api.NovaApi):
    """Neutron, as far as its agents are asked for.

    Pages are those that a real Neutron was seen to give: agents in its
    database follow the marker, those of ML2/OVN are on each page.

    :ivar agents: in the database
    :ivar chassis: agents of ML2/OVN
    """

    def __init__(self):
        super().__init__()
        self.agents = []
        self.chassis = []

    def answer(self, method, path, parameters, body):
        if path != '/v2.0/agents':
            return 404, {}
        ids = [agent['id'] for agent in self.agents]
        marker = parameters.get('marker', [None])[0]
        first = ids.index(marker) + 1 if marker in ids else 0
        page = self.agents[first:first + self.most] + self.chassis
        answer = {'agents': page}
        if len(page) >= self.most:
            answer['agents_links'] = [{'rel': 'next', 'href': 'anywhere'},
                                      {'rel': 'previous', 'href': 'there'}]
        return 200, answer

    def access(self, **more):
        return http.Access(**{
            'url': self.url, 'retries': 1, 'backoff_seconds': 0.0,
            'auth': {'auth_type': 'none', 'endpoint': self.url},
            'requests_per_second': 1000.0, 'timeout_seconds': 5.0, **more})
