# SPDX-License-Identifier: Apache-2.0

import csv
import json
import os
import time

import numpy as np

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_stand_ins
from tests.unit.cmd import command_case
from tests.unit.store import base
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.telemetry import file as telemetry_file
from vswitch_aware_scheduler.traffic import model as traffic_model


class FitTestCase(command_case.ManageTestCase):

    COUNT = 30

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(5)
        self.rates = rng.lognormal(3, 2, (self.COUNT, 2))
        self.trace = self.write('trace.csv', (
            [name, int(base.NOW) + 300 * i, *rates]
            for i in range(self.COUNT)
            for name, rates in (('10', self.rates[i]),
                                ('9', self.rates[i] * 2),
                                ('quiet', (0, 0)), ('broken', ('', '')),
                                ('young', (1, 1)))
            if i < 5 or name != 'young'))

    def write(self, name, rows):
        path = os.path.join(self.directory, name)
        with open(path, 'w', newline='') as file:
            csv.writer(file).writerows([
                ['instance', 'time', 'egress_kbps', 'ingress_kbps'], *rows])
        return path

    def model(self, name):
        return store.Store(self.url).model(telemetry_file.instance_uuid(name))

    def test_a_trace_becomes_models_in_a_new_store(self):
        status, output, errors = self.run_command(
            'fit', '--telemetry', 'file', '--path', self.trace, '--json')
        self.assertEqual(0, status)
        self.assertEqual(
            f'vswitch-manage: made a new store: {self.url}\n', errors)
        answer = json.loads(output)
        self.assert_holds(answer, instances=5, fitted=2, refused=3,
                          generation=1)
        self.assertEqual({'no traffic': 1, 'no usable sample': 1,
                          'fewer than 24 samples': 1}, answer['reasons'])
        self.assertEqual(
            {('quiet', 'no traffic'), ('broken', 'no usable sample'),
             ('young', 'fewer than 24 samples')},
            {(item['name'], item['reason'])
             for item in answer['refused_instances']})
        self.assertEqual(30, answer['refused_samples']['missing'])
        record = self.model('10')
        self.assert_holds(record, name='10', source='file', samples=self.COUNT)
        self.assertEqual(self.COUNT, record.counts.total_samples)
        self.assertAlmostEqual(self.rates.sum(axis=1).max(),
                               record.model.rates[:, :2].sum(axis=1).max())

    def test_services_are_asked_as_their_group_of_options_says(self):
        traffic = telemetry_driver.sample_traffic()
        # Two days that end this hour.
        traffic.t0 = int(time.time()) // 3600 * 3600 - 48 * 3600
        links = telemetry_counters.interfaces(traffic, before=1)
        self.run_command('db', 'sync')
        for name, server in (
                ('gnocchi', telemetry_stand_ins.Gnocchi(links)),
                ('prometheus', telemetry_stand_ins.Prometheus(
                    telemetry_stand_ins.ceilometer_series(links))),
                ('ceilometer', telemetry_stand_ins.Ceilometer(links))):
            with self.subTest(name), server:
                self._configure(
                    f'[vswitch_{name}]', f'endpoint_override = {server.url}',
                    'period_seconds = 300', 'requests_per_second = 1000')
                answer = self.ask('fit', '--telemetry', name)
                self.assert_holds(answer, source=f'{name} {server.url}',
                                  fitted=3)
                self.assertLess(0, answer['refused_samples']['absurd'])
                server.faults[:] = [telemetry_stand_ins.status(403)]
                self.assert_fails('HTTP 403', 'fit', '--telemetry', name)

    def test_a_path_is_for_files_and_a_url_for_services(self):
        self.assert_fails('path: not given; expected a file .* --path',
                          'fit')
        self.assert_fails('expected no --path', 'fit',
                          '--telemetry', 'gnocchi', '--path', self.trace)
        self.assert_fails('endpoint_override .*vswitch_prometheus', 'fit',
                          '--telemetry', 'prometheus')
        self._configure('[vswitch_gnocchi]', 'connect_retries = many')
        self.assert_fails('retries', 'fit', '--telemetry', 'gnocchi')

    def test_only_the_wanted_time_is_used(self):
        begin = '2023-11-14T22:43:20'     # after six samples
        self.make_store()
        answer = self.ask('fit', '--path', self.trace, '--start', begin,
                          '--end', str(base.NOW + 300 * 30 - 1))
        self.assertEqual(2, answer['fitted'])
        record = self.model('9')
        self.assertEqual(24, record.samples)
        self.assertEqual(base.NOW + 1800, record.window_start)

    def test_nothing_to_fit_writes_nothing_and_says_so(self):
        self.make_store()
        status, _, errors = self.run_command(
            'fit', '--path', self.trace, '--end', '0')
        self.assertEqual(1, status)
        self.assertIn('nothing was written', errors)
        self.assertEqual(0, store.Store(self.url).generation().number)

    def test_telemetry_that_cannot_be_read_makes_no_store(self):
        self.assert_fails('no-such-driver', 'fit', '--telemetry',
                          'no-such-driver', '--path', self.trace)
        self.assertFalse(os.path.exists(self.path))

    def test_an_old_or_foreign_database_is_not_made_into_a_store(self):
        self.execute('CREATE TABLE mine (id INTEGER)')
        self.assert_fails('db sync', 'fit', '--path', self.trace)
        os.unlink(self.path)
        self.make_store()
        self.execute("UPDATE alembic_version SET version_num = '0000'")
        self.assert_fails('db sync', 'fit', '--path', self.trace)

    def test_priors_come_with_twenty_instances(self):
        # 18 with traffic and 2 that are silent all the time; one is too
        # young to say anything.
        self.make_store()
        answer = self.ask('fit', '--path', self.write('fleet.csv', [
            *([number, 300 * i, 100 if number < 18 else 0, 0]
              for number in range(20) for i in range(300)),
            ['young', 0, 7000, 0]]))
        self.assertEqual((18, 1), (answer['fitted'], answer['priors']))
        [prior] = self.ask('prior', 'list')['priors']
        self.assert_holds(prior, flavor=None, project=None, members=20.0)
        self.assertAlmostEqual(90.0, prior['mean']['egress_kbps'], delta=1.0)
        self.assertEqual('fleet', self.ask('prior', 'show')['prior_of'])
        # The models and the priors are one generation.
        self.assertEqual(answer['generation'],
                         self.ask('db', 'version')['generation'])

    def test_models_of_refused_and_other_instances_stay(self):
        self.make_store().write([base.constant(1), store.StoredModel(
            telemetry_file.instance_uuid('quiet'),
            traffic_model.TrafficModel.constant(5.0))])
        # A second time replaces the models of the first.
        for generation in (2, 3):
            answer = self.ask('fit', '--path', self.trace)
            self.assert_holds(answer, fitted=2, generation=generation)
        self.assertEqual(5.0, self.model('quiet').model.mean[0])
        self.assertEqual(4, len(store.Store(self.url).models()))
        self._configure('min_samples = 5')
        self.assertEqual(3, self.ask('fit', '--path', self.trace)['fitted'])

    def test_a_start_after_the_end_is_told(self):
        for start, end in (('20', '10'), ('10', '10'),
                           ('2013-08-12', '2013-08-01')):
            self.assert_fails('start: .*; expected a time before the end',
                              'fit', '--path', self.trace, '--start', start,
                              '--end', end)

    def test_the_period_of_a_file_may_be_stated(self):
        self.make_store()
        self.ask('fit', '--path', self.trace, '--period-seconds', '400')
        uuid = telemetry_file.instance_uuid('10')
        learned = store.Store(self.url).learned([uuid])[uuid]
        self.assertEqual(400.0, learned.counts.period_seconds)
        self.assert_fails('period_seconds: 0', 'fit', '--path', self.trace,
                          '--period-seconds', '0')
        self.assert_fails('--period-seconds: 60', 'fit', '--telemetry',
                          'gnocchi', '--period-seconds', '60')

    def test_a_terminal_gets_a_progress_bar_and_a_file_does_not(self):
        self.make_store()
        self.assertIn('fitting', self.run_command(
            'fit', '--path', self.trace, terminal=True)[2])
        self.assertEqual('', self.run_command(
            'fit', '--path', self.trace)[2])
