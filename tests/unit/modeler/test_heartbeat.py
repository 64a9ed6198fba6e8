# SPDX-License-Identifier: Apache-2.0

import contextlib
import dataclasses
import unittest
from unittest import mock

from tests.fakes import clock as fake_clock
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.modeler import heartbeat
from vswitch_aware_scheduler import store

#: 2023-11-14T22:13:20Z
NOW = fake_clock.NOW


def modeler(**more):
    return store.Modeler(**{
        'name': 'host1-7', 'host': 'host1', 'started_at': NOW - 5000,
        'seen_at': NOW - 10, 'interval_seconds': 300.0, **more})


class HeartbeatTestCase(unittest.TestCase):

    def beat(self, target=None):
        """Return a heartbeat that reports to a store, or to this test."""
        beat = heartbeat.Heartbeat(lambda: NOW, lambda: 0.0)
        beat.report_to(target or self, None)
        return beat

    def test_no_two_processes_have_the_same_name(self):
        names = set()
        for _ in range(3):
            self.beat().end()
            names.add(self.reported.name)
        self.assertEqual(3, len(names))

    def report_modeler(self, reported):
        self.reported = reported

    def test_an_end_is_reported_unless_the_store_has_failed_last(self):
        class Interrupted(BaseException):
            pass

        for error, reports in ((None, 2), (Interrupted, 2),
                               (exceptions.StoreError('away'), 1)):
            target = mock.Mock()
            target.report_modeler.side_effect = [error, None]
            beat = self.beat(target)
            with contextlib.suppress(Interrupted):
                beat.beat()
            beat.end()
            self.assertEqual(reports, target.report_modeler.call_count)

    def test_long_texts_are_shortened(self):
        beat = self.beat()
        beat.waits('x' * 3000)
        beat.beat()
        self.assertEqual('x' * 1996 + ' ...', self.reported.waiting_for)


class ReadingTestCase(unittest.TestCase):

    def test_only_a_modeler_that_has_not_ended_can_be_silent(self):
        for seen_at, ended, silent in (
                (NOW - 900, False, False), (NOW - 901, False, True),
                (NOW - 901, True, False), (NOW + 60, False, False)):
            self.assertIs(silent, heartbeat.is_silent(
                modeler(seen_at=seen_at, ended=ended), NOW))

    def test_the_next_modeler_of_a_host_replaces_a_killed_one(self):
        killed = modeler(seen_at=NOW - 4000)
        for host, started_at, replaced in (
                ('host1', NOW - 3990, True), ('host2', NOW - 3990, False),
                # Two ran beside each other.
                ('host1', NOW - 4500, False)):
            successor = modeler(name='x', host=host, started_at=started_at)
            self.assertIs(replaced, heartbeat.is_replaced(
                killed, [killed, successor]))

    def test_each_state_is_described(self):
        passed = {'passes': 3, 'passed_at': NOW - 40, 'outcome': 'all'}
        last_pass = '; pass 3 ended at 2023-11-14T22:12:40Z, 40 s ago: all'
        for fields, expected in (
                ({}, 'runs every 300 s; it has not completed a pass'),
                (passed, 'runs every 300 s' + last_pass),
                ({**passed, 'seen_at': NOW - 1000},
                 'has not reported since 2023-11-14T21:56:40Z, 1000 s ago'
                 + last_pass),
                ({'waiting_for': 'a url', 'waiting_since': NOW - 100},
                 'has been waiting since 2023-11-14T22:11:40Z: a url; it has '
                 'not completed a pass'),
                ({**passed, 'ended': True},
                 'ended at 2023-11-14T22:13:10Z' + last_pass),
                ({**passed, 'ended': True, 'interval_seconds': None},
                 'made a single pass' + last_pass)):
            self.assertEqual(
                'vswitch-modeler on host1 ' + expected,
                heartbeat.describe(modeler(**fields), NOW))

    def test_a_clock_that_is_behind_makes_no_negative_ages(self):
        self.assertIn(' 0 s ago: all', heartbeat.describe(dataclasses.replace(
            modeler(), passes=1, passed_at=NOW + 5, outcome='all'), NOW))
