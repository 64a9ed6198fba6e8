# SPDX-License-Identifier: Apache-2.0
"""What a worker of a real nova-scheduler reports of itself."""

from tests.functional import base


class WorkerReportTestCase(base.VSwitchTestCase):

    def test_a_worker_reports_with_its_first_request(self):
        self.describe_hosts(1000, 1000, 1000)
        self.assertEqual([], self.store.workers())
        self.boot(self.flavor('any', egress_kbps=10))
        [worker] = self.wait_for(self.store.workers, 'a report')
        self.assertEqual(['filter', 'weigher'], worker.state['plugins'])
        self.assertEqual(0, worker.state['models'])
        self.assertLessEqual({'cell1'}, worker.state['cells'].keys())
        self.assertEqual('probability',
                         worker.state['options']['admission_policy'])
