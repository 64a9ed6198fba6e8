# SPDX-License-Identifier: Apache-2.0
"""No bug of ours may fail a request."""

import itertools
from unittest import mock

from tests.functional import base

from vswitch_aware_scheduler.scheduler import state as scheduler_state


class FaultsTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')

    def setUp(self):
        super().setUp()
        self.bugs_expected = True
        self.describe_hosts(1000, 10)
        self.whole = self.of(1000)

    def test_an_error_in_the_assessment_lets_every_host_pass(self):
        with self.weighed() as answers, \
                mock.patch.object(scheduler_state.SchedulerState, 'assess',
                                  autospec=True,
                                  side_effect=ZeroDivisionError('bug')):
            self.boot_many(self.whole, 4)
            self.boot(self.whole)
        self.assertTrue(answers)
        self.assertEqual({0.5}, set(itertools.chain(*answers)))
        for plugin in ('VSwitchFilter', 'VSwitchWeigher'):
            lines = [line for line in self.log.warnings if plugin in line]
            self.assertEqual(1, len(lines), self.log.warnings)
            self.assertIn('ZeroDivisionError: bug', lines[0])
        # Afterwards it counts again, and the log says so.
        self.log.clear()
        self.boot_refused(self.whole)
        self.assertTrue(self.log.lines('VSwitchFilter is well again'))

    def test_an_error_in_what_is_placed_fails_no_request(self):
        with mock.patch.object(scheduler_state.SchedulerState,
                               'host_consumed',
                               autospec=True,
                               side_effect=KeyError('bug')):
            server = self.boot(self.whole, 'host1')
        self.assertEqual(1, len(self.log.warnings), self.log.warnings)
        # The host has reported it: it counts, by the default model.
        self.boot_refused(self.whole)
        self.delete(server)
        self.boot(self.whole, 'host1')
