# SPDX-License-Identifier: Apache-2.0
"""What the tool that makes faults counts as survived."""

import contextlib
import io
import unittest

from tests.faults import __main__ as tool
from tests.faults import registry


class FaultCasesTestCase(unittest.TestCase):

    def play(self, *functions):
        """Return (whether all was good, what was printed) of some cases."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), \
                contextlib.redirect_stderr(printed):
            good = tool.play({
                function.__name__: ('kind', function)
                for function in functions})
        return good, printed.getvalue()

    def test_faults_that_were_survived_are_counted(self):
        good, printed = self.play(lambda: 3)
        self.assertTrue(good)
        self.assertIn('<lambda>: survived 3\n', printed)
        self.assertIn('3 faults survived, 0 cases failed, 0 skipped', printed)

    def test_a_case_that_made_no_fault_has_failed(self):
        good, printed = self.play(lambda: 0)
        self.assertFalse(good)
        self.assertIn('<lambda>: FAILED\n', printed)
        self.assertIn('0 faults survived, 1 cases failed', printed)

    def test_a_case_without_its_server_is_skipped(self):
        def case():
            raise registry.Skipped('no server is installed')

        good, printed = self.play(case)
        self.assertTrue(good)
        self.assertIn('case: skipped: no server is installed\n', printed)
        self.assertIn('0 faults survived, 0 cases failed, 1 skipped', printed)

    def test_without_a_case_nothing_is_good(self):
        self.assertFalse(self.play()[0])
