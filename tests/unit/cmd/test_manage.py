# SPDX-License-Identifier: Apache-2.0

import contextlib
import csv
import dataclasses
import getpass
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import time
import unittest
from unittest import mock

import numpy as np

from tests.contract import telemetry_counters
from tests.contract import telemetry_driver
from tests.contract import telemetry_stand_ins
from tests.unit.cmd import commands
from tests.unit.store import base
from vswitch_aware_scheduler.cmd import manage
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import migration
from vswitch_aware_scheduler.telemetry import file as telemetry_file
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.traffic import series
from vswitch_aware_scheduler.vswitch import attachments
from vswitch_aware_scheduler.vswitch import profile

SECRET = 'open-sesame'


class ManageTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        # What is in /etc of this machine is of no concern here.
        self.config = os.path.join(self.directory, 'vswitch.conf')
        self._configure()

    def _configure(self, *lines):
        pathlib.Path(self.config).write_text('\n'.join([
            '[vswitch_scheduler]', f'store_url = {self.url}', *lines]))

    def run_command(self, *words, config=True, terminal=False):
        """Return (status, stdout, stderr) of the command."""
        return commands.run(
            manage.main, [*(['--config-file', self.config] if config else []),
                          *words], terminal)

    def ask(self, *words):
        """Return what a command that must succeed prints as JSON."""
        status, output, errors = self.run_command(*words, '--json')
        self.assertEqual((0, ''), (status, errors))
        return json.loads(output)

    def assert_fails(self, words, *command, status=1, **how):
        found, output, errors = self.run_command(*command, **how)
        self.assertEqual((status, ''), (found, output), errors)
        self.assertRegex(errors, words)
        if status == 1:
            self.assertEqual(1, errors.count('\n'), errors)
            self.assertTrue(errors.startswith('vswitch-manage: '), errors)
        self.assertNotIn('Traceback', errors)
        return errors


class ClaimCommandTestCase(ManageTestCase):

    def test_list_prints_the_newest_word_on_each_instance(self):
        law = traffic_model.TrafficModel.constant(7.0).law
        told = store.StoredClaim(
            base.instance_uuid(1), 'one-1', store.ASSUMED, 'h1', None, law,
            True, 60.0, 'ctl:7')
        target = self.make_store()
        target.write_claims([told, dataclasses.replace(
            told, instance_uuid=base.instance_uuid(2), source='h2',
            attachments=attachments.Attachments(('red', None)))])
        target.write_claims([dataclasses.replace(
            told, state=store.FORGOTTEN, host=None)])
        status, output, _ = self.run_command('claim', 'list')
        self.assertEqual(0, status)
        _, first, second = commands.table(output)
        self.assertEqual([base.instance_uuid(2), 'assumed', 'h1', 'h2',
                          'ctl:7'], first[:5])
        self.assertEqual([base.instance_uuid(1), 'forgotten', '-', '-',
                          'ctl:7'], second[:5])
        for host in ('h1', 'h2'):
            self.assertEqual([base.instance_uuid(2)], [
                one['instance'] for one in self.ask(
                    'claim', 'list', '--host', host)['claims']])
        self.assertIn('2 claims', output.splitlines()[-1])
        first, second = self.ask('claim', 'list')['claims']
        self.assertEqual(('h1', 'h2', 7.0), (
            first['host'], first['source'], first['mean']['egress_kbps']))
        self.assertAlmostEqual(60.0, first['seconds_left'], delta=30.0)
        self.assertEqual((['red', None], None),
                         (first['networks'], second['networks']))


class FeedbackCommandTestCase(ManageTestCase):

    KIND = '0.01: 1 1 0 <= 20000'

    def setUp(self):
        super().setUp()
        # 90 host-days beside the belief's ten, a tenth of what is expected:
        # 100 / 19, which 1.1 ** 17 is next to.
        self.make_store().write(outcomes=[
            store.TrialOutcome(self.KIND, time.time() - 7200.0, tuple(
                (percent, .1 * 90.0 * .0001 * percent, 90.0)
                for percent in (50, 100, 200, 400, 800))),
            store.TrialOutcome('0.3: 1 1 0 <= 20000', 86400.0, (
                (100, 0.0, 0.0),))])

    def test_the_limit_in_force_is_shown_with_what_it_follows_from(self):
        answer = self.ask('feedback', 'show')
        self.assertTrue(answer['feedback'])
        first, second = answer['kinds']
        self.assertEqual((self.KIND, .01), (first['hosts'], first['asked']))
        self.assertAlmostEqual(1.1 ** 17, first['multiple'])
        self.assertAlmostEqual(.01 * 1.1 ** 17, first['in_force'])
        self.assertEqual([.5, 1, 2, 4, 8],
                         [one['multiple'] for one in first['trials']])
        self.assertAlmostEqual(.001, first['trials'][1]['overload'])
        self.assertEqual((1.0, .3), (second['multiple'],
                                     second['in_force']))
        self.assertIsNone(second['trials'][0]['overload'])

    def test_as_a_table(self):
        status, output, _ = self.run_command('feedback', 'show')
        self.assertEqual(0, status)
        _, first, second = commands.table(output)
        self.assertEqual([self.KIND, '0.0505', '5.05', '90.0',
                          '0.0005', '0.001', '0.002', '0.004', '0.008'],
                         first[:-1])
        self.assertEqual(['0.3', '1', '0.0', *'-----',
                          '1970-01-02T00:00:00Z'], second[1:])
        self.assertEqual('2 kinds of hosts', output.splitlines()[-1])

    def test_that_it_is_off_is_told(self):
        self._configure('feedback = false')
        self.assertEqual([1.0, 1.0], [
            one['multiple'] for one in self.ask('feedback', 'show')['kinds']])
        _, output, _ = self.run_command('feedback', 'show')
        self.assertIn('feedback is off', output)


class PriorCommandTestCase(ManageTestCase):

    def setUp(self):
        super().setUp()
        self.law = rate_law.RateLaw.from_arrays(
            [.275, .725], [[4., 2., 0.], [40., 20., 1.]])
        other = traffic_model.TrafficModel.constant(7.0).law
        self.make_store().write(
            [base.constant(1, name='web')],
            now=base.NOW,
            priors=[
                store.Prior('small', 'p', self.law, 3),
                store.Prior('small', None, other, 8),
                store.Prior(None, None, other, 20),
                store.Prior(None, None, other, 9, base.instance_uuid(2)),
            ],
            placements=[
                store.InstanceRecord(
                    base.instance_uuid(number), 'h1', 'small', 'p'
                )
                for number in (1, 3)
            ],
        )

    def test_list_prints_the_groups(self):
        status, output, _ = self.run_command('prior', 'list')
        self.assertEqual(0, status)
        _, *rows = commands.table(output)
        self.assertEqual(['small', 'p', '3', '30.1', '15.05', '60',
                          '2023-11-14T22:13:20Z'], rows[0])
        self.assertEqual(['small', 'any', '8'], rows[1][:3])
        self.assertEqual(['any', 'any', '20'], rows[2][:3])
        self.assertIn('3 priors; rates in kbit/s', output.splitlines()[-1])
        first = self.ask('prior', 'list')['priors'][0]
        self.assertEqual(('small', 'p', 3.0, base.NOW), (
            first['flavor'], first['project'], first['members'],
            first['updated_at']))
        self.assertAlmostEqual(30.1, first['mean']['egress_kbps'])
        self.assertEqual(60.0, first['p99_kbps'])

    def test_the_99th_percentile_is_the_least_rate_that_holds_so_long(self):
        for shares, expected in (([.989, .011], 2.0), ([.99, .01], 1.0),
                                 ([.01, .99], 2.0), ([1.0, 0.0], 1.0)):
            law = rate_law.RateLaw.from_arrays(
                shares, [[.5, .5, 0], [1.5, .5, 0]])
            self.assertEqual(expected, manage._p99_kbps(law))

    def test_show_prints_what_the_scheduler_would_take(self):
        for words, expected in (
                (['--flavor', 'small', '--project', 'p'],
                 'flavor and project'),
                (['--flavor', 'small'], 'flavor'),
                (['--flavor', 'other'], 'fleet'), ([], 'fleet'),
                ([base.instance_uuid(2)], 'instance'),
                ([base.instance_uuid(3)], 'flavor and project')):
            with self.subTest(words):
                self.assertEqual(expected, self.ask(
                    'prior', 'show', *words)['prior_of'])
        answer = self.ask('prior', 'show', base.instance_uuid(3))
        self.assertEqual(
            [{'egress_kbps': 4, 'ingress_kbps': 2, 'kpps': 0,
              'probability': .275, 'calm': .275, 'busy': .275},
             {'egress_kbps': 40, 'ingress_kbps': 20, 'kpps': 1,
              'probability': .725, 'calm': .725, 'busy': .725}],
            answer['states'])
        _, output, _ = self.run_command('prior', 'show',
                                        base.instance_uuid(3))
        self.assertRegex(output, r'Prior of: +flavor and project\n')
        self.assertEqual({}, answer['above_capacity'])
        target = store.Store(self.url)
        for kbps, share in ((100, 0.0), (30, .725), (.5, 1.0)):
            target.write(host_profiles=[store.HostProfile(
                'h1', None, {'saturation_kbps': kbps})])
            kinds = self.ask('prior', 'show',
                             base.instance_uuid(3))['above_capacity']
            self.assertAlmostEqual(share, *kinds.values())
        self.assertRegex(output, r'\n +40 +20 +1 +0.725000\n')

    def test_show_takes_the_name_of_an_instance_and_refuses_other_words(self):
        self.assertEqual('flavor and project', self.ask(
            'prior', 'show', 'web')['prior_of'])
        for text in ('not-a-uuid', '', base.instance_uuid(3) + '0'):
            self.assert_fails('instance: .*; expected a uuid, or the name',
                              'prior', 'show', text)

    def test_show_says_what_no_instance_has(self):
        output = self.run_command('prior', 'show', '--flavor', 'smal')[1]
        self.assertIn("No instance has flavor 'smal': that is how a new one "
                      "counts.", output.splitlines())
        self.assertEqual(1, len(self.ask(
            'prior', 'show', '--flavor', 'smal')['remarks']))
        self.assertEqual([], self.ask(
            'prior', 'show', '--flavor', 'small', '--project', 'p')[
                'remarks'])

    def test_unknown_packets_are_no_zero(self):
        rates = self.ask('prior', 'list')['priors']
        self.assertEqual([False, True, True],
                         [one['mean']['kpps'] is None for one in rates])
        self.assertEqual([1.0, None, None],
                         [one['peak']['kpps'] for one in rates])

    def test_a_store_without_priors_says_what_it_takes(self):
        url = f'sqlite:///{self.directory}/other.sqlite'
        migration.sync(url)
        self.assert_fails('models of 20 instances', 'prior', 'show',
                          '--store', url)

    def test_models_are_listed_with_the_host_and_the_project(self):
        [model] = self.ask('model', 'list')['models']
        self.assertEqual(('h1', 'small', 'p'), tuple(
            model[name] for name in ('host', 'flavor', 'project')))
        header, row = commands.table(self.run_command('model', 'list')[1])
        self.assertEqual(['HOST', 'PROJECT'], header[-2:])
        self.assertEqual(['h1', 'p'], row[-2:])


class DatabaseCommandTestCase(ManageTestCase):

    def test_sync_makes_the_store_and_version_tells_it(self):
        newest = migration.revisions()[-1]
        status, output, _ = self.run_command('db', 'sync')
        self.assertEqual(0, status)
        self.assertIn(f'version {newest} now', output)
        self.assertIn('nothing to do', self.run_command('db', 'sync')[1])
        self.assertEqual({'before': newest, 'after': newest},
                         self.ask('db', 'sync'))
        self.assertEqual({'version': newest, 'newest': newest,
                          'generation': 0, 'published_at': 0,
                          'published_at_iso': None},
                         self.ask('db', 'version'))
        self.assertIn('nothing yet', self.run_command('db', 'version')[1])

    def test_sync_makes_the_directory_and_says_whose_it_is(self):
        self.url = f'sqlite:///{self.directory}/new/vswitch.sqlite'
        status, output, errors = self.run_command(
            '--store', self.url, '--json', 'db', 'sync')
        self.assertEqual((0, None), (status, json.loads(output)['before']))
        self.assertEqual(
            f'vswitch-manage: made the directory {self.directory}/new, mode '
            f'0750, owner {getpass.getuser()}: nova-scheduler and '
            f'vswitch-modeler have to run as that user\n', errors)

    def test_sync_stops_at_the_version_that_is_asked_for(self):
        first = migration.revisions()[0]
        self.assertEqual({'before': None, 'after': first},
                         self.ask('db', 'sync', '--version', first))
        self.assert_fails('version nine is not known', 'db', 'sync',
                          '--version', 'nine')

    def test_version_of_an_empty_file_is_none(self):
        pathlib.Path(self.path).touch()
        self.assertIsNone(self.ask('db', 'version')['version'])
        self.assertIn('none: run "vswitch-manage db sync"',
                      self.run_command('db', 'version')[1])

    def test_version_of_a_missing_store_is_an_error(self):
        self.assert_fails('no such file', 'db', 'version')
        self.assertFalse(os.path.exists(self.path))

    def test_version_prints_the_generation(self):
        self.make_store().write([base.constant(1)], now=base.NOW)
        status, output, _ = self.run_command('db', 'version')
        self.assertRegex(output, r'Generation: +1\n')
        self.assertIn('2023-11-14T22:13:20Z', output)


class CommonOptionsTestCase(ManageTestCase):

    def test_options_may_stand_before_and_after_the_command(self):
        self._configure()
        elsewhere = f'sqlite:///{self.directory}/other.sqlite'
        for words in (('--store', elsewhere, '--json', 'db', 'sync'),
                      ('db', '--store', elsewhere, '--json', 'sync'),
                      ('db', 'sync', '--store', elsewhere, '--json'),
                      ('--json', 'db', 'sync', '--store', elsewhere)):
            status, output, _ = self.run_command(*words)
            self.assertEqual(0, status)
            self.assertIn('after', json.loads(output))
        self.assertFalse(os.path.exists(self.path))

    def test_the_last_of_several_configuration_files_counts(self):
        second = os.path.join(self.directory, 'second.conf')
        pathlib.Path(second).write_text(
            f'[vswitch_scheduler]\n'
            f'store_url = sqlite:///{self.directory}/second.sqlite\n')
        self.assertEqual(0, self.run_command(
            'db', 'sync', '--config-file', second)[0])
        self.assertTrue(os.path.exists(
            os.path.join(self.directory, 'second.sqlite')))

    def test_a_missing_configuration_file_is_named(self):
        self.assert_fails('/nowhere.conf', 'model', 'list', '--config-file',
                          '/nowhere.conf')

    def test_a_bad_value_in_the_configuration_is_named(self):
        self._configure('min_samples = few')
        self.assert_fails('min_samples', 'model', 'list')

    def test_a_wrong_command_line_exits_with_two(self):
        for words in ((), ('db',), ('frobnicate',), ('model', 'show'),
                      ('fit', '--path'),
                      ('fit', '--path', 'x', '--start', 'soon')):
            self.assert_fails('usage: vswitch-manage', *words, status=2)

    def test_help_tells_every_command(self):
        status, output, _ = self.run_command('--help')
        self.assertEqual(0, status)
        for word in ('db', 'fit', 'model', 'profile', '--store', '--json',
                     '--config-file'):
            self.assertIn(word, output)

    def test_help_of_a_command_spells_names_as_they_are(self):
        for words, text in ((('gateway',), 'mappings of VXLAN gateways.'),
                            (('host', 'discover'), 'agents of Neutron tell.'),
                            (('db', 'sync'), '\n\nMake ')):
            status, output, _ = self.run_command(*words, '--help')
            self.assertEqual(0, status)
            self.assertIn(text, output)

    def test_no_message_shows_the_password_of_the_store(self):
        for url in (f'mysql+nosuch://u:{SECRET}@host/x',
                    f'sqlite:///:memory:?password={SECRET}',
                    f'postgresql+psycopg2://u:{SECRET}@127.0.0.1:1/x',
                    f'{SECRET}'):
            for command in (('model', 'list'), ('db', 'sync'),
                            ('db', 'version'), ('fit', '--path', '/x')):
                errors = self.assert_fails('store', *command, '--store', url)
                self.assertNotIn(SECRET, errors)

    def test_debug_shows_where_an_error_comes_from(self):
        with mock.patch.object(manage.logging, 'basicConfig', autospec=True):
            status, _, errors = self.run_command('model', 'list', '--debug')
        self.assertEqual(1, status)
        self.assertIn('Traceback', errors)
        self.assertIn('StoreMissing', errors)

    def test_an_interruption_is_told_in_one_line(self):
        with mock.patch.object(store.Store, 'models', autospec=True,
                               side_effect=KeyboardInterrupt):
            self.make_store()
            self.assert_fails('interrupted', 'model', 'list')

    def test_a_reader_that_goes_away_is_no_traceback(self):
        self.make_store().write([base.constant(n) for n in range(5000)])
        process = subprocess.Popen(
            [sys.executable, '-m', 'vswitch_aware_scheduler.cmd.manage',
             'model', 'list', '--store', self.url],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        process.stdout.readline()
        process.stdout.close()
        with process.stderr:
            self.assertEqual(b'', process.stderr.read())
        process.wait()


class FitTestCase(ManageTestCase):

    COUNT = 30

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(5)
        self.trace = os.path.join(self.directory, 'trace.csv')
        self.rates = rng.lognormal(3, 2, (self.COUNT, 2))
        with open(self.trace, 'w', newline='') as file:
            writer = csv.writer(file)
            writer.writerow(['instance', 'time', 'egress_kbps',
                             'ingress_kbps'])
            for i in range(self.COUNT):
                time = int(base.NOW) + 300 * i
                for name, rates in (('10', self.rates[i]),
                                    ('9', self.rates[i] * 2),
                                    ('quiet', (0, 0)),
                                    ('broken', ('', ''))):
                    writer.writerow([name, time, *rates])
                if i < 5:
                    writer.writerow(['young', time, 1, 1])

    def test_a_trace_becomes_models_in_a_new_store(self):
        status, output, errors = self.run_command(
            'fit', '--telemetry', 'file', '--path', self.trace)
        self.assertEqual(0, status)
        self.assertEqual(
            f'vswitch-manage: made a new store: {self.url}\n', errors)
        self.assertRegex(output, 'Fitted: +2 instances')
        self.assertRegex(output, r'Refused: +3 instances \(')
        self.assertIn('1 no traffic', output)
        self.assertIn('1 no usable sample', output)
        self.assertIn('1 fewer than 24 samples', output)
        self.assertRegex(output, r'Samples refused: +30 \(30 missing\)')
        record = store.Store(self.url).model(
            telemetry_file.instance_uuid('10'))
        self.assertEqual(('10', 'file', self.COUNT),
                         (record.name, record.source, record.samples))
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
                    f'[vswitch_{name}]', f'url = {server.url}',
                    'period_seconds = 300', 'requests_per_second = 1000')
                found = self.ask('fit', '--telemetry', name)
                self.assertEqual(
                    (f'{name} {server.url}', 3),
                    (found['source'], found['fitted']))
                self.assertLess(0, found['refused_samples']['absurd'])
                server.faults[:] = [telemetry_stand_ins.status(403)]
                self.assert_fails('HTTP 403', 'fit', '--telemetry', name)

    def test_a_path_is_for_files_and_a_url_for_services(self):
        self.assert_fails('no file|path', 'fit', '--telemetry', 'file')
        self.assert_fails('wanted none', 'fit', '--telemetry', 'gnocchi',
                          '--path', self.trace)
        self.assert_fails('url .*vswitch_prometheus', 'fit',
                          '--telemetry', 'prometheus')
        self._configure('[vswitch_gnocchi]', 'retries = many')
        self.assert_fails('retries', 'fit', '--telemetry', 'gnocchi')

    def test_the_answer_for_a_machine_tells_every_refusal(self):
        self.make_store()
        found = self.ask('fit', '--path', self.trace)
        self.assertEqual((5, 2, 3, 1), (
            found['instances'], found['fitted'], found['refused'],
            found['generation']))
        self.assertEqual({'no traffic': 1, 'no usable sample': 1,
                          'fewer than 24 samples': 1}, found['reasons'])
        self.assertEqual(
            {('quiet', 'no traffic'), ('broken', 'no usable sample'),
             ('young', 'fewer than 24 samples')},
            {(item['name'], item['reason'])
             for item in found['refused_instances']})
        self.assertEqual(30, found['refused_samples']['missing'])

    def test_only_the_wanted_time_is_used(self):
        first = '2023-11-14T22:43:20'     # after six samples
        found = self.ask('fit', '--store', self._made(), '--path', self.trace,
                         '--start', first, '--end',
                         str(base.NOW + 300 * 30 - 1))
        self.assertEqual(2, found['fitted'])
        record = store.Store(self.url).model(
            telemetry_file.instance_uuid('9'))
        self.assertEqual(24, record.samples)
        self.assertEqual(base.NOW + 1800, record.window_start)

    def _made(self):
        self.make_store()
        return self.url

    def test_the_least_number_of_samples_is_an_option(self):
        self.make_store()
        self._configure('min_samples = 5')
        self.assertEqual(3, self.ask('fit', '--path', self.trace)['fitted'])

    def test_fitting_again_replaces_and_keeps_the_others(self):
        self.make_store().write([base.constant(1)])
        for generation in (2, 3):
            self.assertEqual(generation, self.ask(
                'fit', '--path', self.trace)['generation'])
        self.assertEqual(3, len(store.Store(self.url).models()))

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

    def test_a_missing_trace_is_named(self):
        self.make_store()
        self.assert_fails('/nowhere.npz', 'fit', '--path', '/nowhere.npz')

    def test_an_old_or_foreign_database_is_not_made_into_a_store(self):
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            connection.execute('CREATE TABLE mine (id INTEGER)')
        self.assert_fails('db sync', 'fit', '--path', self.trace)
        os.unlink(self.path)
        self.make_store()
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            with connection:
                connection.execute(
                    "UPDATE alembic_version SET version_num = '0000'")
        self.assert_fails('db sync', 'fit', '--path', self.trace)

    def test_priors_come_with_twenty_instances(self):
        # 18 with traffic and 2 that are silent all the time; one is too
        # young to say anything.
        trace = os.path.join(self.directory, 'fleet.csv')
        with open(trace, 'w', newline='') as file:
            writer = csv.writer(file)
            writer.writerow(['instance', 'time', 'egress_kbps',
                             'ingress_kbps'])
            for number in range(20):
                for i in range(300):
                    writer.writerow([number, 300 * i,
                                     100 if number < 18 else 0, 0])
            writer.writerow(['young', 0, 7000, 0])
        answer = self.ask('fit', '--path', trace, '--store', self._made())
        self.assertEqual((18, 1), (answer['fitted'], answer['priors']))
        [one] = self.ask('prior', 'list')['priors']
        self.assertEqual((None, None, 20.0), (
            one['flavor'], one['project'], one['members']))
        self.assertAlmostEqual(90.0, one['mean']['egress_kbps'], delta=1.0)
        self.assertEqual('fleet', self.ask('prior', 'show')['prior_of'])
        # The models and the priors are one generation.
        self.assertEqual(answer['generation'],
                         self.ask('db', 'version')['generation'])
        self.assertIn('Priors:', self.run_command(
            'fit', '--path', trace)[1])

    def test_fewer_make_no_prior(self):
        self.assertEqual(0, self.ask('fit', '--store', self._made(),
                                     '--path', self.trace)['priors'])

    def test_a_fit_again_replaces_what_was_counted(self):
        for _ in range(2):
            self.assertEqual(2, self.ask('fit', '--path', self.trace,
                                         '--store', self._made())['fitted'])

    def test_a_model_stays_whose_instance_is_refused(self):
        target = self.make_store()
        uuid = telemetry_file.instance_uuid('quiet')
        target.write([store.StoredModel(
            uuid, traffic_model.TrafficModel.constant(5.0))])
        self.ask('fit', '--path', self.trace)
        self.assertEqual(5.0, target.model(uuid).model.mean[0])

    def test_a_start_after_the_end_is_told(self):
        for start, end in (('20', '10'), ('10', '10'),
                           ('2013-08-12', '2013-08-01')):
            self.assert_fails('start: .*; expected a time before the end',
                              'fit', '--path', self.trace, '--start', start,
                              '--end', end)

    def test_the_period_of_a_file_may_be_stated(self):
        self.ask('fit', '--path', self.trace, '--store', self._made(),
                 '--period-seconds', '400')
        uuid = telemetry_file.instance_uuid('10')
        found = store.Store(self.url).learned([uuid])[uuid]
        self.assertEqual(400.0, found.counts.period_seconds)
        self.assert_fails('period_seconds is 0', 'fit', '--path', self.trace,
                          '--period-seconds', '0')
        self.assert_fails('--period-seconds is 60', 'fit', '--telemetry',
                          'gnocchi', '--period-seconds', '60')

    def test_what_telemetry_lacks_is_told_by_name(self):
        self.assert_fails('path: not given; expected a file .* --path',
                          'fit')
        for driver in ('gnocchi', 'prometheus', 'ceilometer'):
            self.assert_fails(rf'{driver}.*url.*\[vswitch_{driver}\]',
                              'fit', '--telemetry', driver)

    def test_a_terminal_gets_a_progress_bar_and_a_file_does_not(self):
        self.make_store()
        self.assertIn('fitting', self.run_command(
            'fit', '--path', self.trace, terminal=True)[2])
        self.assertEqual('', self.run_command(
            'fit', '--path', self.trace)[2])


class ModelCommandTestCase(ManageTestCase):

    def setUp(self):
        super().setUp()
        self.record = base.fitted(7, name='10', source='file')
        self.make_store().write(
            [self.record, base.constant(8, name='9'),
             base.constant(9), base.constant(10, name='twin'),
             base.constant(11, name='twin')], now=base.NOW)

    def test_show_prints_the_whole_model_as_json(self):
        found = self.ask('model', 'show', base.instance_uuid(7))
        model = self.record.model
        for name in ('rates', 'jump', 'sojourn_seconds'):
            self.assertEqual(getattr(model, name).tolist(), found[name])
        np.testing.assert_allclose(model.stationary, found['stationary'],
                                   rtol=1e-12)
        np.testing.assert_allclose(
            model.mean[:2], list(found['mean'].values())[:2], rtol=1e-12)
        self.assertIsNone(found['mean']['kpps'])
        self.assertIsInstance(found['samples'], int)
        self.assertEqual({'egress_kbps', 'ingress_kbps', 'kpps'},
                         set(found['peak']))
        self.assertEqual(
            ('10', 'file', 500, base.NOW, base.NOW + 150000, base.NOW, 1),
            tuple(found[name] for name in (
                'name', 'source', 'samples', 'window_start', 'window_end',
                'updated_at', 'format_version')))

    def test_show_prints_which_states_are_high(self):
        uuid = base.instance_uuid(12)
        one = traffic_model.TrafficModel(
            [[0, 0, 0], [9, 0, 0]], [[0, 1], [1, 0]], [3, 1],
            np.arange(504) < 126, 1)
        self.make_store().write([store.StoredModel(uuid, one)])
        found = self.ask('model', 'show', uuid)
        self.assertEqual((1, 126), (found['low_states'],
                                    found['high_slots']))
        self.assertAlmostEqual(.25, found['high_share'])
        # There are no regimes any more.
        self.assertIsNone(found['regime_law'])
        output = self.run_command('model', 'show', uuid)[1]
        self.assertRegex(output, 'STATIONARY +CLASS')
        self.assertRegex(output, '0.750000 +low\n')
        self.assertRegex(output, '0.250000 +high\n')
        self.assertRegex(output, r'High: +25 % of the time, 126 of 504 '
                                 r'sampled slots')
        # Packets that are not known are not 0.
        self.assertRegex(output, r'\n +1 +9 +0 +- +1 ')

    def test_show_prints_a_table_of_states_and_the_jump_matrix(self):
        status, output, _ = self.run_command('model', 'show',
                                             base.instance_uuid(7))
        self.assertEqual(0, status)
        for words in ('Instance: ', 'Window: ', 'Samples: ', 'Mean: ',
                      'Peak: ', 'SOJOURN_SECONDS', 'STATIONARY',
                      'Jump matrix', 'packets unknown'):
            self.assertIn(words, output)
        states = len(self.record.model.rates)
        rows = [line.split() for line in output.splitlines()
                if line.split() and line.split()[0].isdecimal()]
        self.assertEqual(2 * states, len(rows))
        np.testing.assert_allclose(
            [float(row[-2]) for row in rows[:states]],
            self.record.model.stationary, atol=5e-7)
        np.testing.assert_allclose(
            [[float(cell) for cell in row[1:]] for row in rows[states:]],
            self.record.model.jump, atol=5e-5)

    def test_show_remarks_on_rates_that_change_within_a_period(self):
        # Samples that follow by chance, and runs of 20 samples.
        for number, samples, remarks in (
                (20, np.random.default_rng(5).permutation([5.0, 500.0] * 250),
                 True),
                (21, np.tile(np.repeat([5.0, 500.0], 20), 12), False)):
            counts = estimate.count_transitions(
                series.RateSeries.from_samples(
                    base.instance_uuid(number), 300.0,
                    base.NOW + 300.0 * np.arange(samples.size), samples,
                    0 * samples))
            self.make_store().write([store.StoredModel.from_counts(
                base.instance_uuid(number), estimate.fit_model(counts),
                counts)])
            found = self.ask('model', 'show', base.instance_uuid(number))
            self.assertEqual(300, found['period_seconds'])
            pairs = np.corrcoef(samples[:-1], samples[1:])[0, 1]
            self.assertAlmostEqual(pairs, found['sample_correlation'])
            output = self.run_command('model', 'show',
                                      base.instance_uuid(number))[1]
            self.assertIn(f'means over 300 s, correlation of successive '
                          f'samples {pairs:.2f}', output)
            self.assertEqual(remarks, 'rates change within 300 s' in output)

    def test_show_says_nothing_of_samples_that_it_does_not_have(self):
        found = self.ask('model', 'show', base.instance_uuid(8))
        self.assertEqual((None, None), (found['period_seconds'],
                                        found['sample_correlation']))
        output = self.run_command('model', 'show', base.instance_uuid(8))[1]
        self.assertRegex(output, r'(?m)^Sampling: +-$')

    def test_show_takes_a_name_and_an_uppercase_uuid(self):
        self.assertEqual(base.instance_uuid(7),
                         self.ask('model', 'show', '10')['instance_uuid'])
        self.assertEqual('10', self.ask(
            'model', 'show', base.instance_uuid(7).upper())['name'])

    def test_show_refuses_a_name_that_several_have(self):
        self.assert_fails('2 instances have the name twin', 'model', 'show',
                          'twin')

    def test_show_of_an_unknown_instance_points_to_the_list(self):
        self.assert_fails('no traffic model of instance none; .*model list',
                          'model', 'show', 'none')

    def test_list_is_sorted_by_name_as_people_count(self):
        found = self.ask('model', 'list')['models']
        self.assertEqual(['9', '10', 'twin', 'twin', None],
                         [item['name'] for item in found])
        np.testing.assert_allclose(
            list(found[1]['mean'].values())[:2], self.record.model.mean[:2])
        self.assertIsNone(found[1]['peak']['kpps'])
        self.assertIsInstance(found[1]['samples'], int)
        output = self.run_command('model', 'list')[1]
        self.assertIn('5 models; rates in kbit/s', output)
        self.assertLess(output.index(base.instance_uuid(8)),
                        output.index(base.instance_uuid(7)))

    def test_list_of_an_empty_store_is_empty(self):
        os.unlink(self.path)
        self.make_store()
        self.assertEqual({'models': []}, self.ask('model', 'list'))
        self.assertIn('0 models', self.run_command('model', 'list')[1])

    def test_a_damaged_store_is_one_line(self):
        pathlib.Path(self.path).write_bytes(b'x' * 5000)
        self.assert_fails('not a database', 'model', 'list')


class ProfileCommandTestCase(ManageTestCase):

    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.directory, 'own.yaml')
        pathlib.Path(self.file).write_text(
            'rack:\n  saturation_kbps: 123456\n  max_tunnels: 5\n')

    def test_list_has_every_built_in_profile(self):
        names = list(profile.catalogue())
        found = self.ask('profile', 'list')['profiles']
        self.assertEqual(names, [item['name'] for item in found])
        self.assertEqual({'built-in'}, {item['origin'] for item in found})
        output = self.run_command('profile', 'list')[1]
        for name in names:
            self.assertIn(name, output)

    def test_list_adds_the_profiles_of_the_configured_file(self):
        self._configure(f'switch_profiles_file = {self.file}')
        found = {item['name']: item
                 for item in self.ask('profile', 'list')['profiles']}
        self.assertEqual(self.file, found['rack']['origin'])
        self.assertIn('123456', self.run_command('profile', 'list')[1])

    def test_show_prints_numbers_sources_and_limits(self):
        name, built_in = next(iter(profile.catalogue().items()))
        found = self.ask('profile', 'show', name)
        self.assertEqual(built_in.saturation_kbps, found['saturation_kbps'])
        self.assertEqual([limit.capacity for limit in built_in.limits()],
                         [limit['capacity'] for limit in found['limits']])
        output = self.run_command('profile', 'show', name)[1]
        self.assertIn(f'name: {name}', output)
        self.assertIn('source: ', output)

    def test_show_prints_every_built_in_profile(self):
        for name in profile.catalogue():
            self.assertEqual(0, self.run_command('profile', 'show', name)[0])

    def test_show_of_an_unknown_profile_tells_the_known_ones(self):
        self.assert_fails("'rack', wanted one of .*ovs-flat", 'profile',
                          'show', 'rack')

    def test_validate_tells_good_from_bad(self):
        self.assertEqual({'file': self.file, 'profiles': ['rack']},
                         self.ask('profile', 'validate', self.file))
        self.assertIn('is valid: 1 profiles: rack', self.run_command(
            'profile', 'validate', self.file)[1])
        pathlib.Path(self.file).write_text('rack: {saturation_kbps: -1}')
        self.assert_fails(f'{self.file}.*rack.*saturation_kbps.*-1.*wanted',
                          'profile', 'validate', self.file)
        self.assert_fails('/nowhere', 'profile', 'validate', '/nowhere')

    def test_no_store_is_needed_for_profiles(self):
        self.run_command('profile', 'list')
        self.assertFalse(os.path.exists(self.path))


class GatewayCommandTestCase(ManageTestCase):

    SITE = (
        'gateways: {g: {interfaces: 48, mapping_entries: 96}}\n'
        'silos: {s: {interface_groups: {all: {g: 48}}}}\n'
        'tenants: {t: {networks: {web: {silos: [s]}, db: {silos: [s]}}}}\n')

    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.directory, 'site.yaml')
        pathlib.Path(self.file).write_text(self.SITE)

    def test_a_plan_is_printed(self):
        answer = self.ask('gateway', 'plan', self.file)
        self.assertEqual([('web', 1, {'all': 1}), ('db', 2, {'all': 2})], [
            (one['network'], one['vni'], one['vlans'])
            for one in answer['networks']])
        self.assertEqual((96, 96, False), tuple(
            answer['gateways']['g'][key] for key in (
                'entries', 'mapping_entries', 'switch_back')))
        text = self.run_command('gateway', 'plan', self.file)[1]
        self.assertRegex(text, r'(?m)^t +db +2 +all +2$')
        self.assertRegex(text, r'(?m)^g +no +2 +96 +96$')
        # No store is needed for it.
        self.assertFalse(os.path.exists(self.path))

    def test_a_table_that_is_full_is_an_error(self):
        pathlib.Path(self.file).write_text(self.SITE.replace(': 96', ': 95'))
        self.assert_fails('gateway g: 2 mappings need 96 entries, wanted at '
                          'most 95', 'gateway', 'plan', self.file)
        self.assert_fails('/nowhere', 'gateway', 'plan', '/nowhere')


class PlacesTestCase(unittest.TestCase):

    def test_seconds_are_read_from_numbers_and_dates(self):
        self.assertEqual(86400.0, manage._seconds('86400'))
        self.assertEqual(86400.0, manage._seconds('1970-01-02'))
        self.assertEqual(82800.0, manage._seconds('1970-01-02T00:00+01:00'))
