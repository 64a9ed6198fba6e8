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
        report.step()
        self.assertEqual({}, self.log.problems())
        self.assertEqual(1, len(self.store.workers()))
        self.elapsed = 300.0
        report.step()
        self.assertEqual({'modeler', 'traffic models'},
                         self.log.problems().keys())

    def modeler(self, **more):
        self.store.report_modeler(store.Modeler(**{
            'name': 'm', 'host': 'ctl1', 'started_at': base.NOW - 5000,
            'seen_at': self.now, 'interval_seconds': 300.0,
            'passed_at': self.now, 'passes': 1, **more}))

    def test_the_state_is_in_the_store_once_a_minute(self):
        self.modeler()
        self.log('store', 'no answer ' + 'x' * 1000)
        for seconds in (0, 60):
            self.now = base.NOW + seconds
            self.assertEqual(60.0, self.report.step())
        [worker] = self.store.workers()
        self.assertEqual(
            (f'{socket.gethostname()}:{os.getpid()}', socket.gethostname(),
             base.NOW, base.NOW + 60),
            (worker.name, worker.host, worker.started_at, worker.seen_at))
        self.assertEqual({'plugins': ['filter', 'weigher'], 'models': 3,
                          'cells': {'cell1': 2.5}, 'problems': {
                              'store': 'no answer ' + 'x' * 490},
                          'options': {'enforcement': 'enforce'},
                          'claims': {'claims_made': 4},
                          'max_placement_results': 1000}, worker.state)

    def test_a_report_that_failed_is_tried_again_within_seconds(self):
        self.modeler()
        with mock.patch.object(self.store, 'report_worker',
                               side_effect=exceptions.StoreError('locked')):
            self.assertEqual(5.0, self.report.step())
        self.assertEqual({}, self.log.problems())
        self.assertEqual(60.0, self.report.step())
        self.assertEqual(1, len(self.store.workers()))

    def test_the_first_report_waits_until_cells_and_models_are_known(self):
        self.modeler()
        self.elapsed = 59.0
        for self.cells, self.models in (
                ({}, None), ({}, 0), ({'cell1': None}, None)):
            self.assertLess(self.report.step(), 1.0)
            self.assertEqual([], self.store.workers())
        # At most for a minute.
        for self.cells, self.models, self.elapsed in (
                ({'cell1': None}, 0, 59.0), ({}, None, 60.0)):
            self.assertEqual(60.0, self.report.step())
            [worker] = self.store.workers()
            self.assertEqual((self.cells, self.models), (
                worker.state['cells'], worker.state['models']))

    def assert_logged(self, *words):
        """Expect as many warnings of three steps, each once."""
        with self.assertLogs(level='WARNING') as logs:
            for _ in range(3):
                self.report.step()
                self.now += 20
        self.assertEqual(len(words), len(logs.output), logs.output)
        for expected, text in zip(words, logs.output):
            self.assertIn(expected, text)

    def test_what_is_wrong_is_logged_once(self):
        for attribute, value, modeler, words in (
                ('plugins', {'filter'}, {},
                 'VSwitchWeigher is not enabled'),
                ('models', 0, {}, 'no instance has a traffic model yet'),
                ('models', 3, {'options': {'enforcement': 'observe'}},
                 "enforcement is 'enforce' here and 'observe' in "
                 'vswitch.conf of vswitch-modeler on ctl1'),
                ('models', 3, {'seen_at': base.NOW - 901},
                 'on ctl1 is silent'),
                ('models', 3, {'ended': True}, 'on ctl1 has ended'),
                ('models', 3, {'passed_at': base.NOW - 1900},
                 'no pass for longer than'),
                ('models', 3, {'waiting_for': 'telemetry',
                               'waiting_since': base.NOW},
                 'waits: telemetry')):
            with self.subTest(words):
                self.now = base.NOW
                self.modeler(**modeler)
                self.log = problem_log.ProblemLog()
                self.report = self.make(self.store)
                before = getattr(self, attribute)
                setattr(self, attribute, value)
                self.assert_logged(words)
                setattr(self, attribute, before)

    def test_a_modeler_that_never_ran_is_logged_unless_there_are_models(self):
        self.report.step()
        self.assertEqual({}, self.log.problems())
        self.models = 0
        self.assert_logged('vswitch-modeler has never run',
                           'no instance has a traffic model yet')

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
