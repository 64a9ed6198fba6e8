# SPDX-License-Identifier: Apache-2.0

import contextlib
import os
import pathlib
import socket
import sqlite3
from unittest import mock

from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.scheduler import problem_log
from vswitch_aware_scheduler.scheduler import snapshot_source
from vswitch_aware_scheduler.scheduler import worker_report
from vswitch_aware_scheduler import store


class WorkerReportTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.now = base.NOW
        self.store = self.make_store()
        self.log = problem_log.ProblemLog()
        self.plugins = {'filter', 'weigher'}
        self.models, self.cells = 3, {'cell1': 2.5}
        self.report = self.make(self.store)

    def make(self, target, elapsed=300.0):
        self.elapsed = 0.0
        report = worker_report.WorkerReport(
            target, self.log, lambda: (self.plugins, self.models,
                                       self.cells, {'enforcement': 'enforce'},
                                       {'claims_made': 4}),
            lambda: self.now, lambda: self.elapsed)
        self.elapsed = elapsed
        return report

    def test_nothing_is_checked_while_others_may_be_starting(self):
        self.models = 0
        report = self.make(self.store, 299.0)
        with self.assertNoLogs(level='WARNING'):
            report.step()
        self.assertEqual(1, len(self.store.workers()))
        self.elapsed = 300.0
        with self.assertLogs(level='WARNING') as logs:
            report.step()
        self.assertEqual(2, len(logs.output))

    def modeler(self, **more):
        self.store.report_modeler(store.Modeler(**{
            'name': 'm', 'host': 'ctl1', 'started_at': base.NOW - 5000,
            'seen_at': self.now, 'interval_seconds': 300.0,
            'passed_at': self.now, 'passes': 1, **more}))

    def test_the_state_is_in_the_store_once_a_minute(self):
        self.modeler()
        for seconds in (0, 60):
            self.now = base.NOW + seconds
            self.assertEqual(60.0, self.report.step())
        [worker] = self.store.workers()
        self.assertEqual(
            (f'{socket.gethostname()}:{os.getpid()}', socket.gethostname(),
             base.NOW, base.NOW + 60),
            (worker.name, worker.host, worker.started_at, worker.seen_at))
        self.assertEqual({'plugins': ['filter', 'weigher'], 'models': 3,
                          'cells': {'cell1': 2.5}, 'problems': {},
                          'options': {'enforcement': 'enforce'},
                          'claims': {'claims_made': 4},
                          'max_placement_results': 1000}, worker.state)

    def test_problems_go_with_it(self):
        self.modeler()
        with self.assertLogs(level='WARNING'):
            self.log('store', 'no answer ' + 'x' * 1000)
        self.report.step()
        [worker] = self.store.workers()
        self.assertEqual(500, len(worker.state['problems']['store']))

    def test_a_store_that_fails_raises_nothing(self):
        report = self.make(store.Store(f'sqlite:///{self.directory}/none'))
        with self.assertNoLogs(level='WARNING'):
            self.assertEqual(5.0, report.step())

    def test_a_report_that_failed_is_tried_again_within_seconds(self):
        self.modeler()
        with mock.patch.object(self.store, 'report_worker',
                               side_effect=exceptions.StoreError('locked')):
            self.assertEqual(5.0, self.report.step())
        self.assertEqual(60.0, self.report.step())
        self.assertEqual(1, len(self.store.workers()))

    def test_the_first_report_waits_until_cells_and_models_are_known(self):
        self.modeler()
        self.elapsed = 59.0
        for self.cells, self.models in (
                ({}, None), ({}, 0), ({'cell1': None}, None)):
            self.assertLess(self.report.step(), 1.0)
            self.assertEqual([], self.store.workers())
        self.models = 0
        self.assertEqual(60.0, self.report.step())
        [worker] = self.store.workers()
        self.assertEqual(({'cell1': None}, 0), (
            worker.state['cells'], worker.state['models']))

    def test_the_first_report_waits_for_at_most_a_minute(self):
        self.modeler()
        self.cells, self.models = {}, None
        self.elapsed = 60.0
        self.assertEqual(60.0, self.report.step())
        self.assertEqual(1, len(self.store.workers()))

    def assert_logged(self, words, times=3):
        with self.assertLogs(level='WARNING') as logs:
            for _ in range(times):
                self.report.step()
                self.now += 60
        self.assertEqual(1, len(logs.output), logs.output)
        self.assertIn(words, logs.output[0])

    def test_a_plugin_that_is_not_enabled_is_logged_once(self):
        self.modeler()
        self.plugins = {'filter'}
        self.assert_logged('VSwitchWeigher is not enabled')

    def test_no_model_yet_is_logged_once(self):
        self.modeler()
        self.models = 0
        self.assert_logged('no instance has a traffic model yet')

    def test_a_modeler_that_never_ran_is_logged_unless_there_are_models(self):
        self.report.step()
        self.assertEqual({}, self.log.problems())
        self.models = 0
        with self.assertLogs(level='WARNING') as logs:
            for _ in range(3):
                self.now += 60
                self.report.step()
        self.assertEqual(2, len(logs.output))
        self.assertIn('vswitch-modeler has never run', logs.output[0])

    def test_a_silent_modeler_and_one_without_passes_are_logged(self):
        for more, words in (
                ({'seen_at': base.NOW - 901}, 'on ctl1 is silent'),
                ({'ended': True}, 'on ctl1 has ended'),
                ({'passed_at': base.NOW - 1900}, 'no pass for longer than'),
                ({'waiting_for': 'telemetry',
                  'waiting_since': base.NOW}, 'waits: telemetry')):
            with self.subTest(words):
                self.modeler(**more)
                self.assert_logged(words, times=1)
                self.now = base.NOW
                self.log = problem_log.ProblemLog()
                self.report = self.make(self.store)

    def test_options_that_differ_from_the_modelers_are_logged_once(self):
        self.modeler(options={'enforcement': 'observe'})
        self.assert_logged("enforcement is 'enforce' here and 'observe' in "
                           'vswitch.conf of vswitch-modeler on ctl1')

    def test_an_option_that_does_not_exist_is_logged_once(self):
        self.modeler()
        path = os.path.join(self.directory, 'nova.conf')
        pathlib.Path(path).write_text('[vswitch_scheduler]\nenforcment = x\n')
        worker_report.CONF([], default_config_files=[path])
        self.addCleanup(worker_report.CONF.clear)
        self.assert_logged('enforcment; expected enforcement, or another')


class VersionTestCase(base.StoreTestCase):

    def test_a_store_of_another_version_is_a_problem_in_words(self):
        target = self.make_store()
        source = snapshot_source.SnapshotSource(
            target, 3600.0, 5.0, 0.0, lambda: base.NOW)
        self.addCleanup(source.stop)
        for version, words in (('0001', 'run "vswitch-manage db sync"'),
                               ('9999', 'written by a newer release')):
            with contextlib.closing(sqlite3.connect(self.path)) as there, \
                    there:
                there.execute('UPDATE alembic_version SET version_num = ?',
                              (version,))
            source.refresh()
            problem = source.current()[1]
            self.assertIn(f'its schema has version {version}', problem)
            self.assertIn(words, problem)
