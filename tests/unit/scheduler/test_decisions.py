# SPDX-License-Identifier: Apache-2.0

import os
import sqlite3
import tempfile
import threading
import time
from unittest import mock

from nova import context as nova_context

from tests.fakes import store as fake_store
from tests.unit.scheduler import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.scheduler import decisions
from vswitch_aware_scheduler import store


class DecisionsTestCase(base.FilterTestCase):

    OPTIONS = {**base.FilterTestCase.OPTIONS, 'decisions_kept': 100,
               'decisions_age_seconds': 3600}

    def setUp(self):
        super().setUp()
        self.start = self.let_no_thread_start()
        self.written, self.purged, self.errors = [], [], []
        self.store.write_decisions = self._write
        self.store.purge_decisions = lambda *kept: self.purged.append(kept)

    def _write(self, many):
        if self.errors:
            raise self.errors.pop(0)
        self.written.extend(many)

    def request(self, number=7, hosts=None, takes='first', spec=None):
        """Judge hosts as Nova does and take one of them; return its name."""
        spec = spec or base.request(number, egress_kbps=30)
        self.state.request_started()
        passing = self.filter.filter_all(
            self.hosts if hosts is None else hosts, spec)
        taken = next((one for one in passing
                      if takes in ('first', one.host)), None)
        if taken is not None:
            self.state.host_consumed(taken, spec)
        self.state.request_finished(taken is None)
        return taken and taken.host

    def recorded(self, *arguments, **more):
        """Return the decisions of a request that is written at once."""
        self.request(*arguments, **more)
        return self.step()

    def step(self):
        self.state.decisions.step()
        written, self.written = self.written, []
        return written

    def others_place(self, *hosts):
        with self.state._lock:
            for number, host in enumerate(hosts, 4):
                self.state._count(fake_store.claim(
                    number, host, law=base.constant(80)))


class TestDecisions(DecisionsTestCase):

    def test_a_decision_has_what_the_debug_log_has(self):
        one, = self.recorded()
        self.assertEqual(
            (base.instance_uuid(7), 'm1.test', 'flavor', store.PLACED,
             'free', 3, 2, {'overload probability': 1}, 0),
            (one.instance_uuid, one.flavor, one.rule, one.outcome, one.host,
             one.hosts, one.admitted, one.refused, one.observed))
        nearest, = one.nearest
        self.assertEqual(('full', 'overload probability', 1.0, 0.0, True),
                         tuple(nearest[name] for name in (
                             'host', 'check', 'value', 'limit', 'enforced')))
        line, = self.refusals
        self.assertTrue(line.endswith(nearest['text']), line)
        # 30 of 100 kbit/s.
        self.assertEqual({'check': None, 'limit': 0.0,
                          'overload_probability': 0.0, 'loss_fraction': 0.0,
                          'utilisation': .3}, one.chosen)

    def test_the_request_and_the_project_are_those_of_nova(self):
        spec = base.request(7, egress_kbps=30)
        spec.project_id = 'project'
        spec._context = nova_context.RequestContext(
            request_id='req-1', is_admin=False)
        one, = self.recorded(spec=spec)
        self.assertEqual(('req-1', 'project'), (one.request_id, one.project))
        self.assertAlmostEqual(self.clock(), one.decided_at, delta=1)

    def test_what_became_of_a_request_is_kept(self):
        for hosts, takes, outcome in (
                (self.hosts, 'unknown', store.PLACED),
                (self.hosts, None, store.NOT_PLACED),
                ([self.full], None, store.NO_HOST)):
            one, = self.recorded(hosts=hosts, takes=takes)
            self.assertEqual((outcome, takes, len(hosts)),
                             (one.outcome, one.host, one.hosts))
            self.assertEqual(one.hosts,
                             one.admitted + sum(one.refused.values()))
        # Outside a request, and of a request that fails at the end.
        spec = base.request(7, egress_kbps=30)
        self.filter.filter_all(self.hosts, spec)
        self.assertEqual([store.NOT_PLACED],
                         [one.outcome for one in self.step()])
        self.state.request_started()
        self.filter.filter_all(self.hosts, spec)
        self.state.host_consumed(self.free, spec)
        self.state.request_finished(True)
        self.assertEqual([(store.NOT_PLACED, None)], [
            (one.outcome, one.host) for one in self.step()])

    def test_an_observed_host_that_is_taken_has_the_check_that_it_fails(self):
        self.make_filter(enforcement='observe')
        self.request(takes='full')
        # The thread describes a decision when the instance is on its host.
        self.state.assess(self.hosts, base.request(8, egress_kbps=30))
        one, = self.step()
        self.assertEqual(('full', 1, 1), (one.host, one.observed,
                                          sum(one.refused.values())))
        self.assertEqual(('overload probability', 1.0, 0.0), tuple(
            one.chosen[name] for name in (
                'check', 'overload_probability', 'limit')))
        self.assertFalse(one.nearest[0]['enforced'])
        line, = self.refusals
        self.assertIn('1 instances', line)
        self.assertIn(one.nearest[0]['text'], line)

    def test_each_instance_of_a_request_is_a_decision_alternates_are_none(
            self):
        spec = base.request(7, egress_kbps=30)
        self.state.request_started()
        for number in (7, 8):
            spec.instance_uuid = base.instance_uuid(number)
            self.filter.filter_all(self.hosts, spec)
            self.state.host_consumed(self.free, spec)
        # Nova asks once more, for alternates to the last one.
        self.filter.filter_all([self.full], spec)
        self.assertEqual([], self.no_host())
        self.state.request_finished(False)
        self.assertEqual(
            [(base.instance_uuid(7), 'free', 3),
             (base.instance_uuid(8), 'free', 3)],
            [(one.instance_uuid, one.host, one.hosts)
             for one in self.step()])

    def no_host(self):
        return [text for text in self.infos if 'no host' in text]

    def test_hosts_that_fill_up_before_nova_takes_one_leave_one_line(self):
        other = base.host_state('other', [], self.free.aggregates)
        for hosts, words in (
                ([self.free], '1 host: 1 overload probability; closest free '
                              '(1 > 0)'),
                ([self.free, other], '2 hosts: 2 overload probability')):
            self.make_filter()
            self.log.clear()
            self.state.request_started()
            spec = base.request(7, egress_kbps=30)
            passing = self.filter.filter_all(hosts, spec)
            self.others_place(*[host.host for host in hosts])
            self.assertIsNone(base.choose(self.state, passing, spec))
            self.state.request_finished(True)
            line, = self.no_host()
            self.assertIn(words, line)
            self.assertEqual([store.NO_HOST],
                             [one.outcome for one in self.step()])

    def test_at_most_so_many_hosts_are_named(self):
        one, = self.recorded(hosts=[base.host_state(f'h{i}', [], [
            base.aggregate(saturation_kbps=str(29 - i / 10))])
            for i in range(30)])
        self.assertEqual({'peak': 30}, one.refused)
        self.assertEqual([f'h{i}' for i in range(decisions.MOST_NEAREST)],
                         [item['host'] for item in one.nearest])

    def test_the_store_is_asked_to_remove_now_and_then(self):
        for _ in range(3):
            self.recorded()
        self.assertEqual([(100, 3600)], self.purged)

    def test_none_is_recorded_where_none_is_kept(self):
        self.make_filter(decisions_kept=0)
        self.request()
        self.assertNotIn('vswitch-decisions', [
            call.args[0]._name for call in self.start.call_args_list])
        self.assertIsNone(self.state.decisions._thread)


class TestNothingWaits(DecisionsTestCase):

    def test_the_thread_of_a_request_never_calls_the_store(self):
        self.store.write_decisions = mock.Mock(side_effect=AssertionError)
        for _ in range(200):
            self.request()
        self.store.write_decisions.assert_not_called()

    def test_a_queue_that_is_full_drops_and_the_log_says_so_once(self):
        for number in range(100, decisions.MOST_JUDGED + 105):
            self.assertEqual('free', self.request(number))
            self.state._residency.withdraw(base.instance_uuid(number), 'free')
            self.state._outdated.add('free')
        for _ in range(2):
            self.state.decisions.step()
        self.assertEqual(decisions.MOST_JUDGED, len(self.written))
        warning, = self.warnings
        self.assertIn('more decisions than this worker can write', warning)

    def test_a_store_that_is_gone_is_named_once_and_written_later(self):
        self.errors = [exceptions.StoreError('gone')] * 3
        for number in range(3):
            self.assertEqual('unknown', self.request(number, takes='unknown'))
            self.assertEqual(decisions.AGAIN_SECONDS,
                             self.state.decisions.step())
        self.assert_gone_and_well_again('StoreError: gone',
                                        'scheduling goes on')
        self.assertEqual([base.instance_uuid(number) for number in range(3)],
                         [one.instance_uuid for one in self.written])

    def assert_gone_and_well_again(self, *parts):
        warning, = self.warnings
        for part in ('recording of decisions', *parts):
            self.assertIn(part, warning)
        well = 'vswitch: recording of decisions is well again'
        self.assertNotIn(well, self.infos)
        self.assertEqual(decisions.WRITE_SECONDS, self.state.decisions.step())
        self.assertIn(well, self.infos)

    def test_a_store_that_is_gone_is_not_well_while_nothing_is_written(self):
        gone = mock.Mock(side_effect=exceptions.StoreError('gone'))
        self.request()
        with mock.patch.object(self.store, 'purge_decisions', gone):
            for _ in range(3):
                self.assertEqual(decisions.AGAIN_SECONDS,
                                 self.state.decisions.step())
        self.assert_gone_and_well_again()

    def test_what_waits_for_a_store_is_bounded_and_the_newest(self):
        self.errors = [exceptions.StoreError('gone')] * 9
        with mock.patch.object(decisions, 'MOST_UNWRITTEN', 4):
            for number in range(6):
                self.recorded(number, takes='unknown')
            self.errors = []
            self.assertEqual(
                [base.instance_uuid(number) for number in range(2, 6)],
                [one.instance_uuid for one in self.step()])

    def test_one_that_cannot_be_described_is_no_reason_to_drop_others(self):
        for number in (7, 8):
            self.request(number, takes='unknown')
        self.state.decisions._judged[0].assessment = None
        self.state.decisions.step()
        self.state.decisions.step()
        self.assertEqual([base.instance_uuid(8)],
                         [one.instance_uuid for one in self.written])

    def test_a_locked_store_delays_no_request(self):
        directory = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(directory, 'vswitch.sqlite')
        fake_store.make_empty(f'sqlite:///{path}')
        real = base.RealStore(f'sqlite:///{path}', .2)
        self.store.write_decisions = real.write_decisions
        other = sqlite3.connect(path)
        self.addCleanup(other.close)
        other.execute('BEGIN EXCLUSIVE')
        writer = threading.Thread(target=self._write_all)
        self.request(takes='unknown')
        writer.start()
        # While the thread waits for the lock of the database.
        for number in range(50, 60):
            self.assertEqual('unknown', self.request(number, takes='unknown'))
        writer.join()
        self.assertEqual(1, len(self.warnings), self.warnings)
        other.rollback()
        self.state.decisions.step()
        self.assertEqual(11, len(real.decisions()))

    def _write_all(self):
        end = time.monotonic() + 60
        while not self.warnings and time.monotonic() < end:
            self.state.decisions.step()

    def test_a_url_that_cannot_be_used_is_reported(self):
        self.make_store.side_effect = exceptions.StoreError('bad url')
        self.make_filter()
        self.assertEqual('unknown', self.request(takes='unknown'))
        self.state.decisions.step()
        self.assertTrue(any('recording of decisions: StoreError: bad url'
                            in text for text in self.warnings))
