# SPDX-License-Identifier: Apache-2.0

import json
import os
import time

import fixtures
import testtools

from tests.contract import telemetry_counters
from tests.contract import telemetry_stand_ins as stand_ins
from tests.unit.cmd import commands
from vswitch_aware_scheduler.cmd import manage
from vswitch_aware_scheduler.cmd import modeler


class TelemetryCheckTest(testtools.TestCase):

    def configure(self, series, **names):
        folder = self.useFixture(fixtures.TempDir()).path
        server = self.useFixture(stand_ins.Prometheus(series))
        self.path = os.path.join(folder, 'vswitch.conf')
        options = ''.join(f'{name} = {value}\n'
                          for name, value in names.items())
        with open(self.path, 'w') as stream:
            stream.write(
                f'[vswitch_scheduler]\ntelemetry_driver = prometheus\n'
                f'store_url = sqlite:///{folder}/store\n'
                f'[vswitch_prometheus]\nendpoint_override = {server.url}\n'
                'connect_retries = 0\nstatus_code_retries = 0\n'
                f'max_age_seconds = 31536000\n{options}')

    def run_check(self, status, *words):
        exit_status, output, errors = commands.run(manage.main, [
            '--config-file', self.path, 'telemetry', 'check', *words])
        self.assertEqual(status, exit_status, errors)
        return output

    def test_a_wrong_exporter_fails_with_the_right_one(self):
        self.configure(stand_ins.SHAPES['libvirt-kumina'](
            telemetry_counters.steady_interfaces(time.time())),
            exporter='ceilometer')
        answer = json.loads(self.run_check(1, '-f', 'json'))
        self.assertEqual({'libvirt-kumina': 5}, answer['facts']['exporters'])
        self.assertIn('exporter = libvirt-kumina', answer['problems'][1])
        text = self.run_check(1)
        self.assertTrue(text.startswith(answer['problems'][0]), text)
        # The pass that learns nothing says the same, and is no success.
        status, _, errors = commands.run(
            modeler.main, ['--config-file', self.path, '--once'])
        self.assertEqual(1, status)
        self.assertIn(answer['problems'][0], errors)
        self.assertIn('exporter = libvirt-kumina', errors)

    def test_what_is_right_is_printed_with_success(self):
        self.configure(stand_ins.SHAPES['libvirt-kumina'](
            telemetry_counters.steady_interfaces(time.time())))
        output = self.run_check(0)
        self.assertIn('exporters: libvirt-kumina (5 instances)', output)
        self.assertIn('egress 1 kbit/s', output)
