# SPDX-License-Identifier: Apache-2.0

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

    def test_threads_that_tell_the_same_do_not_fail(self):
        report = problem_log.ProblemLog()

        class Slow(dict):
            """Lets two threads see the same problem before it is gone."""

            def get(self, key, default=None):
                found = super().get(key, default)
                barrier.wait(PATIENCE_SECONDS)
                return found

        barrier = threading.Barrier(2)
        report._problems = Slow(store='gone')
        failed = []

        def tell():
            try:
                report('store', None)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=tell) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        self.assertEqual([], failed)
