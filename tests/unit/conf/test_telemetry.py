# SPDX-License-Identifier: Apache-2.0

import dataclasses
import tempfile
import unittest

from oslo_config import cfg

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler import telemetry
from vswitch_aware_scheduler.telemetry import ceilometer
from vswitch_aware_scheduler.telemetry import gnocchi
from vswitch_aware_scheduler.telemetry import prometheus

DRIVERS = {'gnocchi': gnocchi.GnocchiDriver,
           'prometheus': prometheus.PrometheusDriver,
           'ceilometer': ceilometer.CeilometerDriver}


class DriverOptionsTest(unittest.TestCase):

    def _read(self, driver, text='endpoint_override = https://metrics:1'):
        """Return the options of a driver from the text of its section."""
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as file:
            file.write(f'[vswitch_{driver}]\n{text}\n')
            file.flush()
            conf = cfg.ConfigOpts()
            options.register_opts(conf)
            conf(['--config-file', file.name])
            return options.telemetry_options(conf, driver)

    def test_every_driver_is_made_of_its_defaults_and_a_url(self):
        for name, factory in DRIVERS.items():
            arguments = self._read(name)
            self.assertEqual(f'{name} https://metrics:1',
                             factory(**arguments).source)
            for field in dataclasses.fields(factory.SETTINGS):
                # Without the option, the exporter is detected.
                if field.name not in arguments or field.name in (
                        'exporter', 'names'):
                    continue
                with self.subTest(name, option=field.name):
                    self.assertIn(arguments[field.name], (
                        2592000 if field.default is None else field.default,
                        field.default))

    def test_names_that_are_not_set_are_those_of_the_exporter(self):
        driver = prometheus.PrometheusDriver(**self._read('prometheus', '''
endpoint_override = http://prometheus:9090
exporter = libvirt-tinkoff
egress_query = tx{job="x"}
egress_packets_query =
ingress_packets_query =
host_labels = instance, pod
'''))
        self.assertEqual(
            ('tx{job="x"}',
             'libvirt_domain_interface_stats_receive_bytes_total'),
            driver._names.queries)
        self.assertEqual(('instance', 'pod'), driver._names.host_labels)
        self.assertEqual('uuid', driver._names.instance_label)

    def test_credentials_are_options_of_keystoneauth(self):
        auth = {'auth_type': 'password', 'username': 'vswitch',
                'auth_url': 'https://keystone:5000/v3',
                'password': 'open sesame', 'project_name': 'service',
                'user_domain_name': 'Default',
                'project_domain_name': 'Default'}
        arguments = self._read('gnocchi', '\n'.join(
            f'{name} = {value}' for name, value in auth.items()))
        self.assertEqual(auth, arguments['access']['auth'])
        self.assertNotIn('sesame', repr(telemetry.load_driver(
            'gnocchi', **arguments)._access))

    def test_another_section_can_have_the_credentials(self):
        arguments = self._read('prometheus', '''
auth_section = keystone_authtoken
[keystone_authtoken]
auth_type = v3token
auth_url = https://keystone:5000/v3
token = abc
''')
        self.assertEqual({'auth_type': 'v3token', 'token': 'abc',
                          'auth_url': 'https://keystone:5000/v3'},
                         arguments['access']['auth'])

    def test_headers_and_the_file_of_a_token_are_those_of_requests(self):
        access = self._read(
            'prometheus',
            'endpoint_override = http://a\ntoken_file = /t\n'
            'headers = X-Scope-OrgID:cloud,Authorization:Bearer a:b=')[
                'access']
        self.assertEqual('/t', access['token_file'])
        self.assertEqual({'X-Scope-OrgID': 'cloud',
                          'Authorization': 'Bearer a:b='}, access['headers'])

    def test_an_invalid_value_is_refused(self):
        for text, message in (
                ('auth_type = magic', "'magic'.*expected"),
                *((f'auth_type = none\n{name} = -1', name) for name in (
                    'requests_per_second', 'timeout', 'connect_retries'))):
            with self.subTest(text), self.assertRaisesRegex(
                    (cfg.Error, exceptions.InvalidInput), message):
                prometheus.PrometheusDriver(**self._read('prometheus', text))

    def test_the_access_has_the_options_of_keystoneauth(self):
        access = self._read('gnocchi', '''
endpoint_override = http://a
valid_interfaces = internal,public
region_name = north
cafile = /ca
certfile = /cert
keyfile = /key
timeout = 7
connect_retries = 1
status_code_retries = 2
''')['access']
        self.assertEqual({
            'url': 'http://a', 'interface': ['internal', 'public'],
            'region_name': 'north', 'cafile': '/ca', 'certfile': '/cert',
            'keyfile': '/key', 'timeout_seconds': 7.0, 'connect_retries': 1,
            'retries': 2, 'max_answer_mib': 32.0,
            'requests_per_second': 10.0, 'auth': None}, access)
