# SPDX-License-Identifier: Apache-2.0
"""The scheduler goes by what came of trials."""

import logging
import time

from tests.functional import base
from vswitch_aware_scheduler.admission import limit_feedback
from vswitch_aware_scheduler import store

LIMIT = .01
SHARE_ON = .1
#: So many may be on at once on a host.
FIT = 2
KBPS = 10000
KIND = f'{LIMIT}: 1 1 0 <= {FIT * KBPS}'
HOST_DAYS = 90.0


class FeedbackTestCase(base.VSwitchTestCase):
    HOSTS = ('host1',)

    def setUp(self):
        super().setUp()
        self.describe_host('host1', saturation_kbps=FIT * KBPS)
        self.small = self.on_off_flavor('small', KBPS, SHARE_ON)

    def expect(self, share):
        """Let trials have been overloaded for a share of what laws say.

        :returns: by what the limit is multiplied then
        """
        self.store.write(forget_outcomes_before=1e9)
        outcome = store.TrialOutcome(KIND, time.time(), tuple(
            (percent, share * LIMIT * percent / 100 * HOST_DAYS, HOST_DAYS)
            for percent in limit_feedback.PERCENT))
        self.store.write(outcomes=[outcome])
        self.plugin.refresh()
        # Beside the belief's ten days: in steps of 10 %.
        exact = (HOST_DAYS + 10) / (share * HOST_DAYS + 10)
        multiple = limit_feedback.multiple(outcome, time.time())
        self.assertAlmostEqual(exact, multiple, delta=.06 * exact)
        return multiple

    def fill(self, limit):
        """Boot what keeps a limit, see one more refused; return how many."""
        room = base.most_instances(SHARE_ON, FIT, limit)
        running = len(self.admin_api.get_servers())
        for _ in range(room - running):
            self.boot(self.small, 'host1')
        self.boot_refused(self.small)
        return room

    def test_a_host_takes_what_it_refused_where_laws_expect_too_much(self):
        room = self.fill(LIMIT)
        times = self.expect(.2)
        logger = logging.getLogger('vswitch_aware_scheduler')
        self.addCleanup(logger.setLevel, logger.level)
        logger.setLevel(logging.DEBUG)
        self.log.clear()
        self.assertGreater(self.fill(LIMIT * times), room)
        self.assertTrue(any(
            f'above the limit of {LIMIT * times:g}, the requested 0.01 '
            f'corrected by trials' in text
            for text in self.log.messages()), self.log.messages())

    def test_a_host_refuses_earlier_where_laws_expect_too_little(self):
        times = self.expect(1.6)
        self.assertLess(self.fill(LIMIT * times),
                        base.most_instances(SHARE_ON, FIT, LIMIT))

    def test_an_outcome_of_trials_that_is_not_renewed_expires(self):
        self.expect(.2)
        self.clock.ahead = 4 * 86400.0
        self.plugin.refresh()
        self.fill(LIMIT)
