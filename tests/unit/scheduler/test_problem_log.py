# SPDX-License-Identifier: Apache-2.0

import contextlib
import threading

from tests.unit.scheduler import base
from vswitch_aware_scheduler.scheduler import problem_log


class TestHealthLog(base.SchedulerTestCase):

    def test_a_problem_is_logged_when_it_appears_changes_and_goes(self):
        report = problem_log.ProblemLog()
        for problem in (None, 'no store', 'no store', None, None,
                        'no store', 'no schema of 5', 'no schema of 6', None):
            report('store', problem)
        # Other figures are no news.
        self.assertEqual(
            ['vswitch: store: no store', 'vswitch: store: no store',
             'vswitch: store: no schema of 5'], self.warnings)
        self.assertEqual(['vswitch: store is well again'] * 2, self.infos)

    def test_what_is_gone_is_neither_well_nor_a_problem(self):
        report = problem_log.ProblemLog()
        report('host a', 'wrong')
        for _ in range(2):
            report.forget('host a')
        self.assertEqual({}, report.problems())
        self.assertEqual([], self.infos)

    def test_every_topic_is_logged_by_itself(self):
        report = problem_log.ProblemLog()
        for topic, problem in (('one', 'bad'), ('two', 'bad'), ('one', None)):
            report(topic, problem)
        self.assertEqual(2, len(self.warnings))
        self.assertEqual(['vswitch: one is well again'], self.infos)

    def test_what_several_threads_tell_at_once_is_logged_once(self):
        report = problem_log.ProblemLog()
        both = threading.Barrier(2)

        class Slow(dict):
            """Lets the other thread look before this one goes on."""

            def get(self, key, default=None):
                found = super().get(key, default)
                with contextlib.suppress(threading.BrokenBarrierError):
                    both.wait(.2)
                return found

        report._problems = Slow()
        for problem in ('gone', None):
            base.start_all([threading.Thread(
                target=report, args=['store', problem]) for _ in range(2)])()
            both.reset()
        self.assertEqual(['vswitch: store: gone'], self.warnings)
        self.assertEqual(['vswitch: store is well again'], self.infos)
