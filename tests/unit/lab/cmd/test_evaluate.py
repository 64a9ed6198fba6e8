# SPDX-License-Identifier: Apache-2.0

import csv
import os
from unittest import mock

import numpy as np

from tests.unit.cmd import command_case
from vswitch_aware_scheduler.lab.evaluate import methods
from vswitch_aware_scheduler.lab.evaluate import protocols


class EvaluateTestCase(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.trace = self._write_trace(
            'trace.csv', np.random.default_rng(0).exponential(9.0, (8, 600)))

    def _write(self, name, header, rows):
        path = os.path.join(self.directory, name)
        with open(path, 'w', newline='') as stream:
            csv.writer(stream).writerows([header, *rows])
        return path

    def _write_trace(self, name, rates):
        return self._write(
            name, ['instance', 'time', 'egress_kbps', 'ingress_kbps'],
            ([instance, 300 * bin, rate, 0]
             for instance, row in enumerate(rates)
             for bin, rate in enumerate(row)))

    def _evaluate(self, *words):
        return self.ask('evaluate', '--trace', self.trace,
                        '--saturation-kbps', '100', *words)

    def _names(self, answer):
        return [line['method'] for line in answer['methods']]

    def test_every_method_is_in_the_answer(self):
        answer = self._evaluate('--overload-probability', '0.02')
        self.assertEqual(list(methods.NAMES), self._names(answer))
        self.assertEqual((0.02, 3, 8), (answer['overload_probability'],
                                        answer['seeds'],
                                        answer['fleets'][0]['instances']))

    def test_the_agnostic_count_is_that_of_cores_and_memory(self):
        times = 1.375e9 + 300.0 * np.arange(600)
        path = os.path.join(self.directory, 'month.npz')
        np.savez(path, vm=np.arange(6), t0=times[0], dt=300.0,
                 rx_KBps=np.ones((6, 600), np.float32),
                 tx_KBps=np.ones((6, 600), np.float32))
        self._write('vms_month.csv', ['vm', 'cpu_cores', 'mem_kb'],
                    ([row, 2, 4194304] for row in range(6)))
        for options, hosts in ((['--host-cores', '4'], 3),
                               (['--host-memory-mb', '16384'], 2),
                               (['--host-cores', '12', '--host-memory-mb',
                                 '8192'], 3), ([], 1)):
            answer = self.ask('evaluate', '--trace', path,
                              '--saturation-kbps', '1e6', '--seeds', '1',
                              *options)
            line = answer['methods'][0]
            self.assert_holds(line, method='agnostic', hosts=hosts, refused=0)

    def test_rolling_after_another_trace(self):
        answer = self._evaluate('--protocol', 'rolling', '--train-trace',
                                self.trace, '--seeds', '1',
                                '--methods', 'ours')
        self.assertEqual('trace', answer['history'])

    def test_rebalance_reports_moves_beside_no_moves(self):
        for words, names in (
                ((), ['ours', 'none', 'workload_balance', 'sandpiper',
                      'clairvoyant']),
                (('--methods', 'none,peak'), ['none', 'peak', 'clairvoyant'])):
            answer = self._evaluate('--protocol', 'rolling', '--rebalance',
                                    '--seeds', '1', *words)
            self.assertEqual(names, self._names(answer))
            self.assertTrue(answer['rebalance'])
            self.assertEqual(900.0, answer['conditions']['period_seconds'])

    def test_conditions_of_rebalancing_are_in_the_answer(self):
        answer = self._evaluate(
            '--protocol', 'rolling', '--rebalance', '--seeds', '1',
            '--methods', 'ours', '--rebalance-period', '300',
            '--telemetry-delay', '60', '--missing-samples', '.1',
            '--failing-migrations', '.2', '--migration-memory-mib', '64',
            '--migration-switch-share', '.3')
        self.assertEqual({
            'period_seconds': 300.0, 'delay_seconds': 60.0,
            'missing_share': .1, 'failing_share': .2, 'memory_mib': 64.0,
            'switch_share': .3}, answer['conditions'])

    def test_groups_are_what_priors_are_learned_by(self):
        # Half are of a flavor that carries much.
        self._write_trace('trace.csv', np.outer(
            [1, 40] * 40, 1 + np.arange(600) % 3))
        path = self._write('groups.csv', ['instance', 'flavor'],
                           enumerate(['small', 'large'] * 40))

        def predicted(*words):
            answer = self._evaluate(
                '--protocol', 'rolling', '--history', 'arrival', '--seeds',
                '1', '--methods', 'prior', *words)
            return answer['methods'][0]['predicted_mean']

        self.assertNotEqual(predicted(), predicted('--groups', path))

    def test_a_table_of_long_names_fits_the_width(self):
        output = self.text(
            'evaluate', '--trace', self.trace, '--saturation-kbps', '60',
            '--protocol', 'rolling', '--rebalance', '--seeds', '1')
        self.assertLessEqual(max(map(len, output.splitlines())), 100)
        for part in ('workload_balance', 'MOVES', '\nLast 10 days\n'):
            self.assertIn(part, output)

    def test_several_fleets_are_evaluated_each_alone(self):
        other = os.path.join(self.directory, 'other.csv')
        with open(self.trace) as stream, open(other, 'w') as copy:
            copy.writelines(line for line in stream
                            if not line.startswith('7,'))
        words = ['--methods', 'peak', '--seeds', '2']
        together = self.ask('evaluate', '--trace', self.trace, other,
                            '--saturation-kbps', '100', '60', *words)
        self.assertEqual([('trace', 8, 100.0), ('other', 7, 60.0)], [
            (fleet['fleet'], fleet['instances'], fleet['saturation_kbps'])
            for fleet in together['fleets']])
        alone = [self.ask('evaluate', '--trace', path, '--saturation-kbps',
                          capacity, *words)['methods']
                 for path, capacity in ((self.trace, '100'), (other, '60'))]
        self.assertEqual(alone[0] + alone[1], together['methods'])

    def test_settings_are_those_of_the_configuration(self):
        self._configure('prediction_margin = 3',
                        'error_budgets = false',
                        'rebalance_most_moves = 7',
                        'admission_policy = average',
                        'overload_probability = 0.07')
        answer = self._evaluate('--methods', 'ours', '--seeds', '1',
                                '--protocol', 'rolling')
        self.assertEqual(0.07, answer['overload_probability'])
        self.assertEqual(['ours', 'clairvoyant'], self._names(answer))
        self.assert_holds(answer['settings'], prediction_margin=3.0,
                          error_budgets=False, rebalance_most_moves=7,
                          admission_policy='average')
        average = self._evaluate('--methods', 'average', '--seeds', '1',
                                 '--protocol', 'rolling')
        self.assertEqual(average['methods'][0]['hosts'],
                         answer['methods'][0]['hosts'])

    def test_instances_can_leave(self):
        hours = [self._evaluate('--methods', 'peak', '--seeds', '1', *words)[
            'methods'][0]['host_hours'] for words in (
                (), ('--lifetime-days', '.1'), ('--lifetime-days', '.1'))]
        self.assertEqual(hours[1], hours[2])
        self.assertLess(hours[1], hours[0])

    def test_pictures_are_written_where_wanted(self):
        where = os.path.join(self.directory, 'pictures')
        answer = self._evaluate('--plot-dir', where, '--seeds', '1')
        self.assertEqual(2, len(answer['pictures']))
        self.assertTrue(all(map(os.path.exists, answer['pictures'])))

    def test_an_impossible_place_for_pictures_is_told_before_the_work(self):
        os.mkdir(os.path.join(self.directory, 'taken'))
        os.mkdir(os.path.join(self.directory, 'taken', 'frontier.png'))
        for where, message in (
                (self.trace, 'directory for pictures: .*; expected'),
                (os.path.join(self.trace, 'sub'), 'expected a directory that'),
                ('a\0b', 'expected a directory that'),
                (os.path.join(self.directory, 'taken'), 'frontier.png')):
            with mock.patch.object(protocols, 'evaluate',
                                   autospec=True) as work:
                self.assert_fails(
                    message, 'evaluate', '--trace', self.trace,
                    '--saturation-kbps', '9', '--plot-dir', where)
            work.assert_not_called()

    def test_a_wrong_question_is_told_in_one_line(self):
        base = ('evaluate', '--trace', self.trace, '--saturation-kbps', '9')
        for options, text in (
                (('--host-cores', '8'), "cpu_cores: None; expected a"),
                (('--host-cores', '0'), 'host-cores: 0.0; expected'),
                (('--seeds', '0'), 'seeds: 0'),
                (('--lifetime-days', '0'), 'lifetime in days: 0.0; expected'),
                (('--saturation-kbps', '9', '8'),
                 '2 values for 1 traces; expected one value'),
                (('--trace', self.trace, self.trace, '--train-trace',
                  self.trace), 'train-trace: given with 2 traces'),
                (('--methods', 'best'), "'best'; expected one of agnostic"),
                (('--train-days', '1', '--protocol', 'rolling'),
                 'train-days'),
                (('--rebalance',), 'rebalance: given with the protocol '
                                   'static; expected --protocol rolling'),
                (('--protocol', 'rolling', '--telemetry-delay', '60'),
                 'telemetry-delay: given without --rebalance'),
                (('--protocol', 'rolling', '--rebalance',
                  '--failing-migrations', '2'), 'failing share: 2'),
                (('--protocol', 'rolling', '--methods', 'none'),
                 "'none'; expected one of"),
                (('--train-days', 'inf'), 'train-days: inf; expected'),
                (('--train-trace', ''), 'telemetry file : does not exist'),
                (('--groups', ''), 'groups'),
                (('--overload-probability', '2'), 'between 0 and 1')):
            with self.subTest(options):
                self.assert_fails(text, *base, *options)
        self.assert_fails('does not exist', 'evaluate', '--trace', 'nowhere',
                          '--saturation-kbps', '9')
