# SPDX-License-Identifier: Apache-2.0
"""What came of trials changes the limit that hosts are judged by."""

import dataclasses
import math
from unittest import mock

import numpy as np

from tests.unit.scheduler import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import limit_feedback
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import snapshot
from vswitch_aware_scheduler.traffic import model

LIMIT = .01
KIND = '0.01: 1 1 0 <= 20000'
LAW = model.TrafficModel.on_off(1e4, 0.0, on_seconds=1, off_seconds=9).law
COUNT = 20


def most(limit):
    """Return how many instances a host can have: two may be on at once."""
    return max(n for n in range(COUNT) if sum(
        math.comb(n, on) * .1 ** on * .9 ** (n - on)
        for on in range(3, n + 1)) <= limit)


def outcome(share, until=base.NOW, kind=KIND):
    """Return the TrialOutcome of hosts of which that share is overloaded.

    :param share: of what was expected
    """
    return store.TrialOutcome(kind, until, tuple(
        (percent, share * LIMIT * percent, 100.0)
        for percent in limit_feedback.PERCENT))


def changes(number, *outcomes):
    """Return Changes that give all instances the same law."""
    return dataclasses.replace(
        base.changes(number), complete=True,
        instance_uuids=[base.instance_uuid(n) for n in range(COUNT)],
        states=np.full(COUNT, LAW.probabilities.size),
        packed_laws=COUNT * LAW,
        outcomes={one.kind: one for one in outcomes})


class CorrectionsTestCase(base.SchedulerTestCase):

    def setUp(self):
        super().setUp()
        self.aggregates = [base.aggregate(saturation_kbps='20000',
                                          overload_probability='0.01')]
        self.state = self.make_state()
        self.number = 0
        self.expect()

    def expect(self, *outcomes):
        self.number += 1
        self.store.answers = [changes(self.number, *outcomes)]
        self.state.refresh()

    def ask(self, residents):
        """Return the Assessment of one more instance on a host."""
        host = base.host_state('h', range(residents), self.aggregates)
        return self.state.assess([host], base.request(COUNT - 1))[0]

    def room(self):
        """Return how many instances a host can have."""
        return next(n for n in range(COUNT) if not self.ask(n).admitted[0])

    def test_a_host_takes_what_keeps_the_limit(self):
        self.assertEqual(most(LIMIT), self.room())
        # By 100 host-days beside the belief's ten.
        for share in (.1, 1.5):
            self.expect(outcome(share))
            times = limit_feedback.multiple(outcome(share), base.NOW)
            self.assertAlmostEqual(110 / (100 * share + 10), times,
                                   delta=.05 * times)
            self.assertEqual(most(LIMIT * times), self.room())
            self.assertNotEqual(most(LIMIT), self.room())

    def test_no_request_describes_the_hosts_whose_limits_change_with_time(
            self):
        self.expect(outcome(.1))
        self.ask(1)
        self.clock.now += 30 * 86400
        self.state.refresh()
        with mock.patch.object(self.state, '_describe',
                               autospec=True) as describe:
            self.ask(1)
        describe.assert_not_called()

    def test_hosts_of_another_kind_are_left_alone(self):
        for kind in ('0.01: 1 1 0 <= 20001', '0.02: 1 1 0 <= 20000'):
            self.expect(outcome(.1, kind=kind))
            self.assertEqual(most(LIMIT), self.room())

    def test_both_limits_are_told(self):
        self.expect(outcome(.1))
        times = limit_feedback.multiple(outcome(.1), base.NOW)
        found = self.ask(most(LIMIT * times))
        self.assertEqual(admission.OVERLOAD, found.reason[0])
        self.assertIn(f'above the limit of {LIMIT * times:g}, the requested '
                      f'0.01 corrected by trials',
                      found.explain(0))
        self.expect()
        self.assertIn('above the limit of 0.01 (profile',
                      self.ask(most(LIMIT)).explain(0))

    def test_what_has_become_old_corrects_no_more(self):
        self.expect(outcome(.1))
        self.assertGreater(self.room(), most(LIMIT))
        host = base.host_state('h', range(most(LIMIT)), self.aggregates)
        spec = base.request(COUNT - 1)
        self.assertTrue(self.state.assess([host], spec)[0].admitted[0])
        self.clock.now += 4 * 86400
        # The store has nothing new, and so has the host.
        self.state.refresh()
        self.assertFalse(self.state.assess([host], spec)[0].admitted[0])

    def test_the_options_bound_it_or_switch_it_off(self):
        for options, times in (({'feedback': False}, 1.0),
                               ({'feedback_max': 1.0}, 1.0),
                               ({'feedback_max': 2.0}, 2.0)):
            with self.subTest(options):
                self.state = self.make_state(**options)
                self.expect(outcome(.1))
                self.assertEqual(most(times * LIMIT), self.room())

    def test_bad_numbers_are_told_once_and_change_nothing(self):
        bad = store.TrialOutcome(KIND, base.NOW, ((100, math.nan, 5.0),))
        for _ in range(3):
            self.expect(bad)
            self.assertEqual(most(LIMIT), self.room())
        self.assertEqual(1, len(self.warnings), self.warnings)
        self.assertIn(f'hosts {KIND}: outcomes of trials:',
                      self.warnings[0])

    def test_a_new_generation_alone_describes_no_host_by_another_policy(
            self):
        self.expect(outcome(.1))
        self.ask(3)
        before = self.state._policies['h']
        self.expect(outcome(.101))
        self.ask(3)
        self.assertIs(before, self.state._policies['h'])
        with mock.patch.object(self.state, '_describe',
                               wraps=self.state._describe) as described:
            self.state.refresh()
            self.ask(3)
        described.assert_not_called()


class SnapshotTestCase(base.SchedulerTestCase):

    def test_outcomes_stay_where_nothing_new_is_told(self):
        one = snapshot.Snapshot()
        self.assertEqual({}, one.outcomes)
        one = one.updated(changes(1, outcome(.1)))
        self.assertEqual({KIND: outcome(.1)}, one.outcomes)
        one = one.updated(base.changes(2))
        self.assertEqual({KIND: outcome(.1)}, one.outcomes)
        self.assertEqual({}, one.updated(changes(3)).outcomes)
