# SPDX-License-Identifier: Apache-2.0

import time

from tests.unit.cmd import command_case
from tests.unit.cmd import commands
from vswitch_aware_scheduler import store


class FeedbackCommandTestCase(command_case.ManageTestCase):

    KIND = '0.01: 1 1 0 <= 20000'

    def setUp(self):
        super().setUp()
        # 90 host-days beside the belief's ten, a tenth of what is expected:
        # 100 / 19, which 1.1 ** 17 is next to.
        self.make_store().write(outcomes=[
            store.TrialOutcome(self.KIND, time.time() - 7200.0, tuple(
                (percent, .1 * 90.0 * .0001 * percent, 90.0)
                for percent in (50, 100, 200, 400, 800))),
            store.TrialOutcome('0.3: 1 1 0 <= 20000', 86400.0, (
                (100, 0.0, 0.0),))])

    def test_the_limit_in_force_is_shown_with_what_it_follows_from(self):
        answer = self.ask('feedback', 'show')
        self.assertTrue(answer['feedback'])
        tried, untried = answer['kinds']
        self.assertEqual((self.KIND, .01), (tried['hosts'], tried['asked']))
        self.assertAlmostEqual(1.1 ** 17, tried['multiple'])
        self.assertAlmostEqual(.01 * 1.1 ** 17, tried['in_force'])
        self.assertEqual([.5, 1, 2, 4, 8],
                         [day['multiple'] for day in tried['trials']])
        self.assertAlmostEqual(.001, tried['trials'][1]['overload'])
        self.assertEqual((1.0, .3), (untried['multiple'],
                                     untried['in_force']))
        self.assertIsNone(untried['trials'][0]['overload'])

    def test_as_a_table(self):
        status, output, _ = self.run_command('feedback', 'show')
        self.assertEqual(0, status)
        _, first, second = commands.table(output)
        self.assertEqual([self.KIND, '0.0505', '5.05', '90.0',
                          '0.0005', '0.001', '0.002', '0.004', '0.008'],
                         first[:-1])
        self.assertEqual(['0.3', '1', '0.0', *'-----',
                          '1970-01-02T00:00:00Z'], second[1:])
        self.assertEqual('2 kinds of hosts', output.splitlines()[-1])

    def test_that_it_is_off_is_told(self):
        self._configure('feedback = false')
        self.assertEqual([1.0, 1.0], [
            kind['multiple'] for kind in self.ask('feedback',
                                                  'show')['kinds']])
        _, output, _ = self.run_command('feedback', 'show')
        self.assertIn('feedback is off', output)
