# SPDX-License-Identifier: Apache-2.0

import os
import threading
import unittest
from unittest import mock

from vswitch_aware_scheduler.scheduler import worker_thread

PATIENCE_SECONDS = 60.0


class TestWorkerThread(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.steps = []
        self.stepped = threading.Condition()
        self.seconds = 3600.0

    def _step(self):
        with self.stepped:
            self.steps.append(os.getpid())
            self.stepped.notify_all()
        return self.seconds

    def _make(self, **more):
        thread = worker_thread.WorkerThread('test', self._step, **more)
        self.addCleanup(thread.stop)
        return thread

    def _await(self, count):
        with self.stepped:
            self.assertTrue(self.stepped.wait_for(
                lambda: len(self.steps) >= count, PATIENCE_SECONDS))

    def test_making_one_starts_nothing(self):
        before = threading.active_count()
        thread = self._make()
        thread.wake()
        thread.stop()
        self.assertEqual(before, threading.active_count())

    def test_it_steps_at_once_and_when_it_is_woken_until_it_is_stopped(self):
        thread = self._make()
        thread.start()
        thread.start()
        self._await(1)
        thread.wake()
        self._await(2)
        # One that began just now is enough for who says so.
        thread.wake(older_than_seconds=3000)
        for _ in range(2):
            thread.stop()
        thread.wake()
        self.assertEqual(2, len(self.steps))
        self.assertNotIn('test', [
            running.name for running in threading.enumerate()])

    def test_it_steps_again_after_the_time_that_a_step_says(self):
        self.seconds = 0.0
        thread = self._make()
        thread.start()
        self._await(3)

    def test_a_stop_just_before_a_step_is_not_missed(self):
        class Event(threading.Event):

            def clear(self):
                # Another thread stops it now.
                thread._stopped.set()
                thread._wake.set()
                super().clear()

        thread = self._make()
        with mock.patch.object(worker_thread.threading, 'Event', Event):
            thread.start()
        thread._thread.join(PATIENCE_SECONDS)
        self.assertFalse(thread._thread.is_alive())
        self.assertEqual([], self.steps)

    def test_a_start_that_failed_is_tried_again(self):
        thread = self._make()
        with mock.patch.object(threading.Thread, 'start', autospec=True,
                               side_effect=RuntimeError('no more threads')):
            self.assertRaises(RuntimeError, thread.start)
        thread.wake()
        thread.stop()
        thread.start()
        self._await(1)

    def test_after_a_fork_it_starts_anew_and_forgets(self):
        forgotten = []
        thread = self._make(forget=lambda: forgotten.append(os.getpid()))
        thread.start()
        self._await(1)
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                thread.wake()
                thread.start()
                self._await(2)
                os.write(writing, b'%d %d' % (
                    self.steps[-1] == os.getpid(), len(forgotten)))
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as stream:
            self.assertEqual('1 2', stream.read())
        os.waitpid(pid, 0)
