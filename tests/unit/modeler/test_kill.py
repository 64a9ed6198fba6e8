# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at every statement of a pass."""

import os
import signal
import sys

import numpy as np
import sqlalchemy as sa

from tests.unit.modeler import base

BEGIN, PERIOD = base.BEGIN, base.PERIOD

#: More statements than a pass has.
MOST = 200


class KillTestCase(base.ModelerTestCase):

    def _killed_at(self, number):
        """Run a pass in a child that kills itself at a statement or commit.

        :returns: whether it came to that
        """
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status):
                self.assertEqual(signal.SIGKILL, os.WTERMSIG(status))
                return True
            self.assertEqual(0, os.waitstatus_to_exitcode(status))
            return False
        code = 1
        try:
            steps_left = iter(range(number))

            def count(*_):
                if next(steps_left, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)

            for event in ('before_cursor_execute', 'commit'):
                sa.event.listen(sa.Engine, event, count)
            self.run_pass()
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)

    def test_the_store_is_the_last_good_generation_and_recovers(self):
        rng = np.random.default_rng(8)
        for number in range(4):
            self.driver.put(number, base.BEGIN + PERIOD * np.arange(150),
                            np.floor(rng.lognormal(4, 2, 150)))
        # One of them gets its first model, one stays without.
        self.driver.put(4, BEGIN + PERIOD * np.arange(60, 150), np.ones(90))
        self.driver.put(5, BEGIN + PERIOD * np.arange(90, 150), np.zeros(60))
        self.run_pass(now=BEGIN + 75 * PERIOD)
        before = self.store.generation(), self.learned()
        for number in range(MOST):
            if not self._killed_at(number):
                break
            self.assertEqual(
                before, (self.store.generation(), self.learned()), number)
        # Half of them read, half of them write.
        self.assertGreater(number, 20)
        self.assertLess(number, MOST - 1)
        # The child that was not killed has finished the pass.
        self.assertEqual(before[0].number + 1, self.store.generation().number)
        self.assert_learned_as_at_once()
