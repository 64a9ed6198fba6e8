# SPDX-License-Identifier: Apache-2.0

import unittest
from unittest import mock

from tests.fakes import nova_hosts
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.common import exceptions


class NovaTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.cloud = self.enterContext(nova_hosts.NovaHosts())
        self.access = self.cloud.access()

    def read(self):
        return nova.read_cloud(self.access, 'vswitch:')

    def test_aggregates_have_all_their_metadata(self):
        self.cloud.host('h1', profile='slow')
        self.cloud.aggregates.append(('all', {'other': '1'}, ['h1', 'h2']))
        self.assertEqual([
            {'name': 'of h1', 'hosts': ['h1'], 'metadata': {
                'availability_zone': 'nova', 'vswitch:profile': 'slow'}},
            {'name': 'all', 'hosts': ['h1', 'h2'], 'metadata': {'other': '1'}},
        ], list(nova.read_aggregates(self.access).values()))

    def test_only_keys_with_the_prefix_are_returned(self):
        self.cloud.host('h1', profile='slow')
        self.cloud.flavors = {'small': {'vswitch:egress_kbps': '7',
                                        'hw:secret': '1'}, 'other': {}}
        cloud = self.read()
        self.assertEqual(
            {'of h1': {'name': 'of h1', 'hosts': ['h1'],
                       'metadata': {'vswitch:profile': 'slow'}}},
            cloud['aggregate'])
        self.assertEqual({'small': {'vswitch:egress_kbps': '7'},
                          'other': {}}, cloud['flavor'])

    def test_all_pages_are_read(self):
        for number in range(5):
            self.cloud.host(f'h{number}')
            self.cloud.flavors[f'f{number}'] = {}
        self.cloud.types['h3'] = 'ironic'
        with mock.patch.object(nova, 'PAGE', 2):
            cloud = self.read()
        self.assertEqual({f'h{number}': number == 3 for number in range(5)},
                         dict(cloud['node'].values()))
        self.assertEqual({f'f{number}' for number in range(5)},
                         cloud['flavor'].keys())

    def test_a_list_without_end_ends_at_a_page_without_new_items(self):
        self.cloud.host('h1')
        answer = self.cloud.answer

        def circle(method, path, *more):
            status, body = answer(method, path, *more)
            if 'hypervisors' in path:
                body['hypervisors_links'] = [{'rel': 'next', 'href': 'x'}]
                body['hypervisors'] = body['hypervisors'] or begun
                begun[:] = body['hypervisors']
            return status, body

        begun = []
        with mock.patch.object(self.cloud, 'answer', circle):
            self.assertEqual([('h1', False)],
                             list(self.read()['node'].values()))

    def test_what_this_user_may_not_read_is_left_out(self):
        self.cloud.host('h1')
        answer = self.cloud.answer

        def refuse(method, path, *more):
            if path == '/v2.1/os-hypervisors/detail':
                return status, {}
            return answer(method, path, *more)

        with mock.patch.object(self.cloud, 'answer', refuse):
            status = 403
            self.assertEqual({'aggregate', 'flavor'}, self.read().keys())
            status = 404
            with self.assertRaises(exceptions.TelemetryError):
                self.read()
