# SPDX-License-Identifier: Apache-2.0

import json
import os
import pathlib

from tests.fakes import store as fake_store
from tests.unit.cmd.survey import base
from vswitch_aware_scheduler import store

AFTERWARDS = 'hosts_not_admitted_afterwards', 'hosts_admitted_afterwards'


class SurveyTestCase(base.SurveyTestCase):
    """Hosts carry 1000 kbit/s; a new instance counts with 450."""

    def setUp(self):
        super().setUp()
        self.cloud.flavors = {'small': {'vswitch:egress_kbps': '450'}}
        for host in ('h1', 'h2', 'h3'):
            self.host(host)
        for number in (1, 2):
            self.instance(number, 'h1', 450)
        self.instance(3, 'h2', 100)
        self.instance(6, 'h3', 900)

    def ask(self, *words):
        status, output, errors = self.survey('--json', *words)
        self.assertEqual((0, ''), (status, errors))
        return json.loads(output)

    @staticmethod
    def outcomes(answer):
        return {(row['instance']['name'], row['kind']): (
            row['host'], row['outcome'], row['overload_afterwards'])
            for row in answer['decisions']['list']}

    def test_decisions_are_compared_with_what_followed(self):
        self.instance(4, 'h1', 300, hours=-24)
        # It sends less than its flavor states.
        self.instance(7, 'h3', 20, hours=-20)
        self.instance(8, 'h2', 50)
        self.move(8, 'h3', 'h2', -18)
        # Moves that did not happen.
        self.move(1, 'h1', 'h2', -16, status='error')
        self.move(2, 'h1', 'h3', -16, kind='resize', status='reverted')
        # Too early to judge, and too late to know what followed: a limit of
        # 0.01 needs a hundred periods of 300 s.
        self.instance(10, 'h2', 10, hours=-40)
        self.instance(9, 'h2', 150, hours=-4)
        self.instance(11, 'h2', 10, hours=-.5)
        answer = self.ask()
        self.assertEqual({
            ('vm 4', 'boot'): ('h1', 'elsewhere', 1.0),
            ('vm 7', 'boot'): ('h3', 'elsewhere', 0.0),
            ('vm 8', 'live-migration'): ('h2', 'same', 0.0),
            ('vm 9', 'boot'): ('h2', 'same', None),
            ('vm 11', 'boot'): ('h2', 'same', None)}, self.outcomes(answer))
        decided = answer['decisions']
        self.assertEqual(
            ({'overloaded': 1, 'fine': 1, 'unknown': 0},
             {'overloaded': 0, 'fine': 1, 'unknown': 2}, 1),
            (*(decided[key] for key in AFTERWARDS),
             decided['wrong_refusals']))

    def test_the_verdict_states_what_was_measured(self):
        self.instance(4, 'h1', 300, hours=-24)
        answer = self.ask()
        rows = {row['host']: row for row in answer['hosts']}
        self.assertEqual([('h1', True, True), ('h2', False, False),
                          ('h3', False, False)], [
            (host, row['overloaded'], row['above'])
            for host, row in sorted(rows.items())])
        # Overloaded in the later half of two days.
        self.assertAlmostEqual(
            .5, rows['h1']['measured_overload'], delta=.01)
        self.assertAlmostEqual(1.2, rows['h1']['utilisation'])
        # The two that send more than a third of 1000, with equal shares.
        self.assertEqual(
            {fake_store.instance_uuid(number) for number in (1, 2)},
            {row['instance'] for row in answer['culprits']})
        self.assertEqual([('p', 'shop')], [
            (row['project'], row['name']) for row in answer['projects']])
        self.assertAlmostEqual(86400, answer['projects'][0]['spent_seconds'],
                               delta=900)
        # Of 16 cores 4 are in use, an instance has 2; by the switch, an
        # instance of 450 fits beside 100 kbit/s.
        self.assertEqual([{
            'flavor': 'small', 'instances': 5, 'by_cores_and_memory': 18,
            'by_switch': 2, 'by_both': 2}], answer['room'])
        summary = answer['summary']
        self.assertEqual((.25, .125), (summary['cores_used'],
                                       summary['memory_used']))
        self.assertAlmostEqual((1.2 + .1 + .9) / 3, summary['switch_used'])
        profile, = answer['profiles']
        self.assertTrue(profile['measured_elsewhere'])
        self.assertIn('vswitch-calibrate', profile['measure'])
        self.assertEqual(.01, answer['parameters']['overload_probability'])

    def test_only_what_was_known_before_a_decision_counts(self):
        # From twelve hours ago on, the host is almost full.
        uuid = self.instance(5, 'h2')
        self.traffic(uuid, 10, until=-12)
        self.traffic(uuid, 800, hours=-12)
        self.instance(7, 'h2', 200, hours=-20)
        self.instance(8, 'h2', 1, hours=-3)
        outcomes = self.outcomes(self.ask())
        self.assertEqual(['same', 'refused'], [
            outcomes[name, 'boot'][1] for name in ('vm 7', 'vm 8')])
        # Until its end, it was above for twelve of 20 hours.
        self.assertAlmostEqual(12 / 20, outcomes['vm 7', 'boot'][2],
                               delta=.02)

    def test_no_host_is_admitted_without_cores(self):
        for host in ('h2', 'h3'):
            # Nothing is free, or too little.
            self.host(host, cores=None if host == 'h2' else (5, 4))
        self.instance(4, 'h1', 300, hours=-24)
        answer = self.ask()
        self.assertEqual('refused', self.outcomes(answer)['vm 4', 'boot'][1])
        self.assertEqual(1.0, answer['hosts'][1]['cores_used'])

    def test_deleted_instances_count_while_they_were_there(self):
        self.instance(4, 'h1', 300, hours=-24, until=-12)
        answer = self.ask()
        self.assertEqual(('h1', 'elsewhere', 1.0),
                         self.outcomes(answer)['vm 4', 'boot'])
        self.assertAlmostEqual(
            .25, answer['hosts'][0]['measured_overload'], delta=.01)
        self.assertFalse(answer['hosts'][0]['above'])

    def test_people_read_the_verdict_first(self):
        self.instance(4, 'h1', 300, hours=-24)
        status, output, errors = self.survey()
        self.assertEqual((0, ''), (status, errors))
        self.assertRegex(output, r'(?s)3 of 3 hosts, 5 instances.*Verdict:\n'
                         r'- 1 of 3 measured hosts had an overloaded switch')
        # A slot more or less than half of two days, by the time of day.
        self.assertRegex(
            output, r'\nh1 +ovs-vxlan +3 +25% +12% +120% +(49\.9|50\.)')
        self.assertIn('overload_probability = 0.01', output)

    def test_a_page_and_a_store_are_left_if_requested(self):
        self.instance(4, 'h1', 300, hours=-24)
        page = os.path.join(self.directory, 'page.html')
        path = os.path.join(self.directory, 'survey.sqlite')
        answer = self.ask('--html', page, '--store', path)
        text = pathlib.Path(page).read_text(encoding='utf-8')
        self.assertIn(answer['verdict'][0], text)
        self.assertIn('h1', text)
        self.assertEqual(5, len(
            store.Store(f'sqlite:///{path}').placements()))
        status, _, errors = self.survey('--store', path)
        self.assertEqual(1, status)
        self.assertRegex(errors, 'does not exist yet')

    def test_pseudonyms_replace_all_names(self):
        self.instance(4, 'h1', 300, hours=-24)
        page = os.path.join(self.directory, 'page.html')
        answer = self.ask('--html', page, '--anonymous')
        texts = json.dumps(answer), pathlib.Path(page).read_text(
            encoding='utf-8')
        for text in texts:
            for name in ('"h1"', 'vm 4', '"small"', 'shop', 'of h1',
                         fake_store.instance_uuid(4), self.cloud.url,
                         self.prometheus.url, self.directory):
                self.assertNotIn(name, text)
        self.assertEqual(
            {row['host'] for row in answer['hosts']} & {
                row['host'] for row in answer['decisions']['list']},
            {row['host'] for row in answer['decisions']['list']})
        self.assertEqual(3, answer['summary']['hosts'])

    def test_values_that_are_not_legal_are_refused(self):
        for words, status in ((('--days', '8'), 2), (('--days', 'x'), 2),
                              (('--hosts', '-1'), 1),
                              (('--profile', 'nothing'), 1)):
            with self.subTest(words):
                self.assertEqual(status, self.survey(*words)[0])
