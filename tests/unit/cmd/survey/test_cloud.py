# SPDX-License-Identifier: Apache-2.0

import json
import pathlib

from tests.contract import telemetry_stand_ins as stand_ins
from tests.unit.cmd.survey import base
from tests.unit.vswitch import agents
from vswitch_aware_scheduler.cmd.survey import cloud


class CloudTestCase(base.SurveyTestCase):

    def setUp(self):
        super().setUp()
        self.host('h1')
        self.instance(1, 'h1', 100)

    def assert_fails(self, status, words, *arguments, **environment):
        exit_status, output, errors = self.survey(*arguments, **environment)
        self.assertEqual((status, '', 1),
                         (exit_status, output, errors.count('\n')), errors)
        self.assertRegex(errors, words)
        self.assertNotIn('secret', errors)

    def test_no_credentials(self):
        self.assert_fails(cloud.NO_CREDENTIALS, 'auth_url.*OS_CLOUD',
                          OS_AUTH_URL='')
        self.assert_fails(cloud.NO_CREDENTIALS, 'nowhere.*OS_CLOUD',
                          '--os-cloud', 'nowhere')

    def test_wrong_credentials(self):
        self.assert_fails(cloud.NO_CREDENTIALS, 'refuses the credentials',
                          OS_PASSWORD='wrong')

    def test_certificates_are_verified(self):
        self.assert_fails(cloud.NO_CREDENTIALS, 'OS_CACERT',
                          OS_INSECURE='true')

    def test_wrong_url(self):
        self.assert_fails(cloud.NO_ANSWER, ':9/v3 does not answer',
                          OS_AUTH_URL='http://127.0.0.1:9/v3')

    def test_credentials_of_a_member(self):
        for path in ('/v2.1/os-hypervisors/detail', '/v2.1/servers/detail'):
            self.cloud.forbidden = {path}
            self.assert_fails(cloud.NO_RIGHTS, 'administrator, or of a reader')

    def test_no_telemetry(self):
        self.assert_fails(cloud.NO_TELEMETRY, 'prometheus http://127.0.0.1:9',
                          '--prometheus', 'http://127.0.0.1:9')
        self.prometheus.series.clear()
        self.assert_fails(cloud.NO_TELEMETRY, 'no series of a known exporter')
        # Gnocchi is the default, and not in the catalog.
        status, _, errors = self.survey(prometheus=False)
        self.assertEqual(cloud.NO_TELEMETRY, status)
        self.assertRegex(errors, 'gnocchi')

    def test_gnocchi_of_the_catalog_with_resources_of_ceilometer(self):
        gnocchi = self.enterContext(stand_ins.Gnocchi(
            self.interfaces, granularity=600))
        self.cloud.urls['metric'] = gnocchi.url
        status, output, errors = self.survey('--json', prometheus=False)
        self.assertEqual((0, ''), (status, errors))
        answer = json.loads(output)
        self.assertEqual((600.0, 1, 1), (
            answer['parameters']['period_seconds'],
            answer['summary']['hosts_measured'],
            answer['summary']['instances_with_model']))

    def test_the_cloud_of_clouds_yaml(self):
        folder = pathlib.Path(self.directory)
        (folder / 'clouds.yaml').write_text(json.dumps({'clouds': {'mine': {
            'auth': {name[3:].lower(): value for name, value
                     in self.cloud.environment().items()}}}}))
        self.environment = {'OS_CLIENT_CONFIG_FILE': str(
            folder / 'clouds.yaml')}
        for words, environment in ((('--os-cloud', 'mine'), {}),
                                   ((), {'OS_CLOUD': 'mine'})):
            status, output, errors = self.survey('--json', *words,
                                                 **environment)
            self.assertEqual((0, ''), (status, errors))
            self.assertEqual('mine', json.loads(output)['cloud'])

    def test_what_may_not_be_read_is_a_remark(self):
        self.cloud.forbidden = {
            '/v2.1/os-migrations', '/v3/projects', '/v2.0/agents',
            '/placement/allocation_candidates'}
        self.cloud.nova.down = {self.instance(2, 'h1')}
        status, output, errors = self.survey('--json')
        self.assertEqual((0, ''), (status, errors))
        answer = json.loads(output)
        for words in ('migrations', 'Neutron', 'cores and memory',
                      '1 instances are in a cell'):
            self.assertTrue(any(words in remark
                                for remark in answer['remarks']), words)
        self.assertIsNone(answer['summary']['cores_used'])
        self.assertIsNone(answer['room'][0]['by_both'])

    def test_neutron_and_an_option_determine_profiles(self):
        self.cloud.aggregates.clear()
        for name in ('h2', 'h3'):
            self.host(name)
            self.cloud.aggregates.clear()
        self.cloud.agents = [agents.open_vswitch('h2', ['geneve'])]
        status, output, errors = self.survey('--json', '--profile',
                                             'linux-bridge')
        self.assertEqual((0, ''), (status, errors))
        self.assertEqual(
            ['linux-bridge', 'ovs-geneve', 'linux-bridge'],
            [row['profile'] for row in json.loads(output)['hosts']])

    def test_password_of_prometheus_is_not_shown(self):
        url = self.prometheus.url.replace('://', '://me:hidden@')
        status, output, errors = self.survey('--json', '--prometheus', url)
        self.assertEqual((0, ''), (status, errors))
        self.assertNotIn('hidden', output)

    def test_a_long_update_interval_is_the_period(self):
        self.prometheus.series[:] = [
            (name, labels, times[::2], values[::2])
            for name, labels, times, values in self.prometheus.series]
        status, output, errors = self.survey('--json')
        self.assertEqual((0, ''), (status, errors))
        self.assertEqual(
            600.0, json.loads(output)['parameters']['period_seconds'])


class LargeCloudTestCase(base.SurveyTestCase):

    def test_requests_do_not_depend_on_hosts_that_are_not_chosen(self):
        hosts = 10_000
        for number in range(hosts):
            self.host(f'h{number}')
        self.cloud.aggregates = [('all', {
            'vswitch:profile': 'ovs-vxlan'}, [])]
        for number in range(2 * hosts):
            self.instance(number + 1, f'h{number // 2}')
        chosen = cloud._chosen({f'h{number}' for number in range(hosts)}, 20)
        for number in range(2 * hosts):
            if f'h{number // 2}' in chosen:
                self.traffic(self.cloud.nova.put(
                    number + 1, f'h{number // 2}'), 10)
        self.cloud.nova.servers = {
            uuid: {**server, 'name': 'vm'} for uuid, server
            in self.cloud.nova.servers.items()}
        status, output, errors = self.survey('--json', '--hosts', '20')
        self.assertEqual((0, ''), (status, errors))
        answer = json.loads(output)
        self.assertEqual((20, 40, hosts), (
            answer['summary']['hosts'], answer['summary']['instances'],
            answer['hosts_of_cloud']))
        # A page has a thousand: hosts twice, 20 and one of servers.
        self.assertLessEqual(len(self.cloud.requests), 2 * 11 + 22 + 10)
        self.assertLessEqual(len(self.prometheus.requests), 120)
