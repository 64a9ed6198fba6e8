# SPDX-License-Identifier: Apache-2.0

import threading
import time
import unittest

from vswitch_aware_scheduler.scheduler import turn

#: Longest wait for a thread.
PATIENCE_SECONDS = 30.0


class TestTurn(unittest.TestCase):

    def start(self, *functions):
        threads = [threading.Thread(target=one) for one in functions]
        for thread in threads:
            thread.start()
            self.addCleanup(thread.join, PATIENCE_SECONDS)
        return threads

    def test_one_goes_after_the_other(self):
        one, inside, most = turn.Turn(PATIENCE_SECONDS), [], []

        def work():
            one.take()
            inside.append(1)
            most.append(len(inside))
            time.sleep(.002)
            inside.pop()
            one.give()

        for thread in self.start(*[work] * 12):
            thread.join(PATIENCE_SECONDS)
        self.assertEqual([1] * 12, most)

    def test_a_thread_may_take_it_again(self):
        one = turn.Turn(PATIENCE_SECONDS)
        started = time.monotonic()
        for _ in range(3):
            one.take()
        self.assertLess(time.monotonic() - started, PATIENCE_SECONDS / 2)

    def test_one_that_does_not_give_it_back_loses_it(self):
        one, waited = turn.Turn(.2), []
        one.take()
        started = time.monotonic()

        def work():
            one.take()
            waited.append(time.monotonic() - started)

        self.start(work)[0].join(PATIENCE_SECONDS)
        self.assertGreater(waited[0], .15)
        # It is another's now: giving it back late takes nothing from it.
        one.give()
        self.assertIsNotNone(one._owner)

    def test_those_who_wait_for_a_lost_one_go_one_by_one_too(self):
        one, at = turn.Turn(.2), []
        one.take()

        def work():
            one.take()
            at.append(time.monotonic())

        for thread in self.start(work, work):
            thread.join(PATIENCE_SECONDS)
        self.assertGreater(abs(at[1] - at[0]), .15)

    def test_giving_what_one_does_not_have_is_nothing(self):
        one = turn.Turn(PATIENCE_SECONDS)
        one.give()
        one.take()
        self.start(one.give)[0].join(PATIENCE_SECONDS)
        self.assertEqual(threading.get_ident(), one._owner)
