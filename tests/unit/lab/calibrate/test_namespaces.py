# SPDX-License-Identifier: Apache-2.0

import json
import os
import subprocess

from tests.unit.lab.calibrate import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.calibrate import namespaces


class TestRun(base.NamespacesTestCase):

    def test_what_a_run_makes_is_written_down_before_and_gone_after(self):
        (self.there / 'of-somebody-else').touch()
        with namespaces.NamespaceRun(['h1', 'h2'], self.state) as run:
            state = json.loads(run.state_file.read_text())
            self.assertEqual([f'vswcal-{run.id}-h1', f'vswcal-{run.id}-h2'],
                             state['namespaces'])
            self.assertEqual(os.getpid(), state['pid'])
            self.assertEqual(['of-somebody-else'], self.namespaces())
            run.add('h1')
            self.assertIn(f'vswcal-{run.id}-h1', self.namespaces())
        self.assertEqual(['of-somebody-else'], self.namespaces())
        self.assertEqual([], list(self.state.iterdir()))

    def test_a_run_is_removed_after_an_error(self):
        with self.assertRaisesRegex(RuntimeError, 'x'):
            with namespaces.NamespaceRun(['h1'], self.state) as run:
                run.add('h1')
                sleeper = run.start('h1', 'sleep', '60')
                raise RuntimeError('x')
        self.assertEqual([], self.namespaces())
        self.assertIsNotNone(sleeper.returncode)

    def test_two_runs_have_names_of_their_own(self):
        names = {namespaces.NamespaceRun(['h1'], self.state).name('h1')
                 for _ in range(50)}
        self.assertEqual(50, len(names))

    def test_a_state_directory_that_cannot_be_is_told(self):
        blocked = self.root / 'file'
        blocked.touch()
        with self.assertRaisesRegex(exceptions.CalibrationError,
                                    f'state directory {blocked}/x: cannot'):
            with namespaces.NamespaceRun(['h1'], blocked / 'x'):
                self.fail('it has no state file')


class TestLeftovers(base.NamespacesTestCase):

    def _left(self, run='0a1b2c', pid=None, started=1, names=None, **others):
        self.state.mkdir(exist_ok=True)
        if pid is None:
            # A process that has ended.
            with subprocess.Popen(['true']) as ended:
                pid = ended.pid
        names = [f'vswcal-{run}-h1'] if names is None else names
        for name in names:
            (self.there / name).touch()
        (self.state / f'vswcal-{run}').mkdir(exist_ok=True)
        (self.state / f'vswcal-{run}' / 'h1.db').touch()
        path = self.state / f'vswcal-{run}.json'
        path.write_text(json.dumps({
            'run': run, 'pid': pid, 'started': started,
            'namespaces': names, **others}))
        return path

    def test_what_a_killed_run_left_is_removed(self):
        self._left()
        with subprocess.Popen(['sleep', '60']) as inside:
            (self.there / 'vswcal-0a1b2c-h1').write_text(f'{inside.pid}\n')
            self.assertEqual(['0a1b2c'],
                             namespaces.remove_leftovers(self.state))
            self.assertIsNotNone(inside.wait(50))
        self.assertEqual([], self.namespaces())
        self.assertEqual([], list(self.state.iterdir()))
        self.assertEqual([], namespaces.remove_leftovers(self.state))

    def test_only_names_of_that_run_are_removed(self):
        foreign = ['qrouter-1', 'vswcal-ffffff-h1', 'vswcal-0a1b2c',
                   'x-vswcal-0a1b2c-h1']
        self._left(names=['vswcal-0a1b2c-h1', *foreign])
        (self.there / 'vswcal-0a1b2c-h9').touch()
        namespaces.remove_leftovers(self.state)
        # Neither what has another name nor what no file names.
        self.assertEqual(sorted([*foreign, 'vswcal-0a1b2c-h9']),
                         self.namespaces())

    def test_a_run_that_is_going_on_is_left_alone(self):
        started = namespaces._started(os.getpid())
        path = self._left(pid=os.getpid(), started=started)
        with self.assertRaisesRegex(
                exceptions.CalibrationError,
                f'run 0a1b2c: still running as process {os.getpid()}; '):
            namespaces.remove_leftovers(self.state)
        self.assertTrue(path.exists())
        self.assertEqual(['vswcal-0a1b2c-h1'], self.namespaces())

    def test_another_process_with_the_same_number_is_not_the_run(self):
        self._left(pid=os.getpid(), started=1)
        self.assertEqual(['0a1b2c'], namespaces.remove_leftovers(self.state))
        self.assertEqual([], self.namespaces())

    def test_a_run_that_was_killed_at_its_very_start_leaves_no_trace(self):
        self.state.mkdir()
        (self.state / 'vswcal-aabbcc.draft').write_text('{"run"')
        self.assertEqual([], namespaces.remove_leftovers(self.state))
        self.assertEqual([], list(self.state.iterdir()))

    def test_what_else_is_in_the_directory_stays(self):
        self._left()
        for name in ('aabbcc', 'vswcal-aabbcc'):
            (self.state / name).mkdir()
        (self.state / 'other.json').write_text('{}')
        namespaces.remove_leftovers(self.state)
        self.assertEqual(['aabbcc', 'other.json', 'vswcal-aabbcc'], sorted(
            path.name for path in self.state.iterdir()))

    def test_a_state_file_that_is_none_is_told_and_stays(self):
        self.state.mkdir()
        for text in ('{}', 'x', '[1]'):
            path = self.state / 'vswcal-other.json'
            path.write_text(text)
            with self.assertRaisesRegex(exceptions.CalibrationError,
                                        'other.json: cannot be parsed'):
                namespaces.remove_leftovers(self.state)
            self.assertTrue(path.exists())
