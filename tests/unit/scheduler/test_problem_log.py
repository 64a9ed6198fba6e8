# SPDX-License-Identifier: Apache-2.0

import contextlib
import threading

from tests.unit.scheduler import base
from vswitch_aware_scheduler.scheduler import problem_log

#: Longest wait for a thread.
PATIENCE_SECONDS = 30.0


class TestHealthLog(base.SchedulerTestCase):

    def test_a_problem_is_told_when_it_appears_changes_and_goes(self):
        report = problem_log.ProblemLog()
        for problem in (None, 'no store', 'no store', None, None,
                        'no store', 'no schema', None):
            report('store', problem)
        self.assertEqual(
            ['vswitch: store: no store', 'vswitch: store: no store',
             'vswitch: store: no schema'], self.warnings)
        self.assertEqual(['vswitch: store is well again'] * 2, self.infos)

    def test_what_is_gone_is_neither_well_nor_a_problem(self):
        report = problem_log.ProblemLog()
        report('host a', 'wrong')
        for _ in range(2):
            report.forget('host a')
        self.assertEqual({}, report.problems())
        self.assertEqual([], self.infos)

    def test_other_figures_are_no_news(self):
        report = problem_log.ProblemLog()
        for age in (100, 101, 99.5):
            report('store', f'it is {age} s old')
        self.assertEqual(1, len(self.warnings))

    def test_every_topic_is_told_by_itself(self):
        report = problem_log.ProblemLog()
        report('one', 'bad')
        report('two', 'bad')
        report('one', None)
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
            threads = [threading.Thread(target=report, args=['store', problem])
                       for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_SECONDS)
            both.reset()
        self.assertEqual(['vswitch: store: gone'], self.warnings)
        self.assertEqual(['vswitch: store is well again'], self.infos)
