# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from tests.fakes import store as fake_store
from tests.unit.cmd import command_case
from tests.unit.cmd import commands
from tests.unit.store import base
from vswitch_aware_scheduler import store

decision = fake_store.decision


class DecisionCommandTestCase(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.target = self.make_store()
        self.target.write_decisions([
            decision(1, 20), decision(
                2, 10, outcome=store.NO_HOST, host=None, chosen=None,
                hosts=12, admitted=0, observed=0, project='q',
                refused={'overload probability': 7, 'peak': 3, 'tunnels': 2},
                nearest=[{'host': 'compute7', 'check': 'overload probability',
                          'value': .0131, 'limit': .01, 'enforced': True,
                          'text': 'with it the overload probability would be '
                                  '0.0131'},
                         {'host': 'compute8', 'check': 'no profile',
                          'value': None, 'limit': None, 'enforced': False,
                          'text': 'no switch profile'}])])

    def text(self, *words):
        return super().text('decision', *words)

    def test_the_list_has_the_newest_first_and_counts_that_add_up(self):
        first, second = self.ask('decision', 'list')['decisions']
        self.assertEqual([base.instance_uuid(2), base.instance_uuid(1)],
                         [first['instance_uuid'], second['instance_uuid']])
        for decision in (first, second):
            self.assertEqual(decision['hosts'],
                             decision['admitted']
                             + sum(decision['refused'].values()))
        # The same words as in the log of the scheduler.
        self.assertEqual(
            '12 hosts: 7 overload probability, 3 peak, 2 tunnels; closest '
            'compute7 (0.0131 > 0.01)', first['summary'])
        self.assertEqual('compute7', first['closest'])
        self.assertEqual('2023-11-14T22:13:10Z', first['decided_at_iso'])
        header, *rows = commands.table(self.text('list'))
        self.assertEqual(['-', 'm1', 'no host', '-', '12', '0'],
                         rows[0][2:8])
        self.assertEqual('7 overload probability, 3 peak, 2 tunnels',
                         rows[0][header.index('REFUSED')])

    def test_the_list_is_restricted_by_host_and_project(self):
        for options, number in ((('--host', 'host1'), 1),
                                (('--project', 'q'), 2)):
            decision, = self.ask('decision', 'list', *options)['decisions']
            self.assertEqual(base.instance_uuid(number),
                             decision['instance_uuid'])

    def test_one_is_shown_by_instance_by_request_and_by_id(self):
        for key in (base.instance_uuid(2), 'req-2', f'{2:032x}'):
            decision, = self.ask('decision', 'show', key)['decisions']
            self.assertEqual(12, decision['hosts'])
            self.assertIn('closest compute7 (0.0131 > 0.01)',
                          self.text('show', key))

    def test_json_has_all_of_an_instance_and_people_see_the_newest(self):
        self.target.write_decisions([decision(
            3, 5, instance_uuid=base.instance_uuid(1))])
        self.assertEqual(['req-3', 'req-1'], [
            shown['request_id'] for shown in self.ask(
                'decision', 'show', base.instance_uuid(1))['decisions']])
        text = self.text('show', base.instance_uuid(1))
        self.assertIn('req-3', text)
        self.assertNotIn('req-1', text)

    def test_a_request_without_a_decision_is_named(self):
        self.assert_fails("decision: 'req-9'; expected .*decision list",
                          'decision', 'show', 'req-9')

    def test_a_name_is_that_of_an_instance(self):
        # By telemetry, or by Nova.
        self.target.write([base.constant(1, name='web')], placements=[
            store.InstanceRecord(base.instance_uuid(2), None, name='db'),
            *(store.InstanceRecord(base.instance_uuid(number), 'h', name='two')
              for number in (3, 4))])
        for name, request in (('web', 'req-1'), ('db', 'req-2')):
            decision, = self.ask('decision', 'show', name)['decisions']
            self.assertEqual(request, decision['request_id'])
            self.assertRegex(self.text('list'), rf'\| {name} +\|')
        self.assert_fails('name two: 2 instances have this name; expected one '
                          'of their uuids', 'explain', '--server', 'two')

    def test_no_more_are_read_than_are_printed(self):
        read = []
        with mock.patch.object(store.Decision, '__init__', autospec=True,
                               side_effect=store.Decision.__init__) as created:
            for command, number in (
                    (('list', '--limit', '1'), 1),
                    (('list', '--limit', '1', '--host', 'host1'), 1),
                    (('show', f'{2:032x}'), 1)):
                created.reset_mock()
                self.text(*command)
                read.append((created.call_count, number))
        self.assertEqual([(number, number) for _, number in read], read)

    def test_the_number_of_all_stands_below_those_that_are_printed(self):
        self.target.write_decisions([decision(number, number) for number
                                     in range(3, 8)])
        for options, below in ((('--limit', '2'), '2 of 7 decisions'),
                               (('--limit', '7'), '7 decisions'),
                               (('--limit', '2', '--host', 'host1'),
                                '2 of 6 decisions'),
                               (('--limit', '9', '--project', 'q'),
                                '1 decision')):
            self.assertIn(f'\n{below}, the newest first',
                          self.text('list', *options))

    def test_the_limit_counts_after_another_order(self):
        decisions = self.ask('decision', 'list', '--sort-column', 'hosts',
                             '--limit', '1')['decisions']
        self.assertEqual([3], [decision['hosts'] for decision in decisions])

    def test_the_summary_is_of_the_decisions_in_a_time(self):
        self.assertIn('Of 2 requests since 2023-11-14T22:13:00Z, 1 would have '
                      'failed and 0 would be on another host',
                      self.text('summary'))
        for options, failed in ((('--start', '2023-11-14T22:13:05'), 1),
                                (('--end', '2023-11-14T22:13:10'), 0)):
            summary = self.ask('decision', 'summary', *options)
            self.assert_holds(summary, requests=1, would_fail=failed)
