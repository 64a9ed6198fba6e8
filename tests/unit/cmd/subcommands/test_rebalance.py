# SPDX-License-Identifier: Apache-2.0

import json
from unittest import mock

from tests.unit.budgets import relief_case
from tests.unit.cmd import commands
from vswitch_aware_scheduler.cmd.subcommands import rebalance
from vswitch_aware_scheduler.store import plans as records


class RebalanceTestCase(relief_case.ReliefTestCase):

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(rebalance, 'time', self.time))

    def test_a_dry_run_prints_the_plan_and_changes_nothing(self):
        answer = self.ask_loud('rebalance')
        move, = answer['moves']
        self.assert_holds(move, source='host1', destination='host2',
                          budget_before=-600.0)
        for key in ('instance_uuid', 'name', 'reason', 'budget_after',
                    'seconds', 'transferred_mib', 'downtime_seconds'):
            self.assertIn(key, move)
        self.assertTrue(answer['executable'])
        self.assertEqual('host1', answer['in_debt'][0]['host'])
        self.assertEqual([], self.fleet.cloud.asked)
        self.assertEqual([], self.store.plans())
        status, output, _ = self.run_command('rebalance')
        self.assertEqual(0, status)
        header, row = commands.table(output)
        self.assertEqual(['INSTANCE', 'FROM', 'TO', 'BUDGET'], header[:4])
        self.assertEqual(['host1', 'host2', '-600s'], row[1:4])
        self.assertIn('1 migration: 1 host is in debt', output)

    def test_an_empty_plan_says_why(self):
        self.fleet.balance['host1'] = 0.0
        self.configure('rebalance_network = separate')
        self.assertEqual('no host is in debt', self.ask('rebalance')['reason'])
        self.assertIn('0 migrations: no host is in debt',
                      self.text('rebalance'))

    def test_no_data_is_an_error(self):
        self.fleet.balance.clear()
        self.fleet.write(self.store)
        for options in ((), ('--execute',)):
            self.assert_fails('error budgets in the store .*: none; expected',
                              'rebalance', *options)

    def test_a_slow_network_is_said_and_refused(self):
        self.configure('rebalance_link_kbps = 500000')
        status, output, errors = self.run_command('rebalance')
        self.assertEqual(0, status)
        self.assertIn('cannot be executed: network of migrations: 500000 '
                      'kbit/s', errors)
        self.assertEqual(1, self.run_command('rebalance', '--execute')[0])
        self.assertEqual([], self.fleet.cloud.asked)

    def test_execute_does_it_and_history_tells_of_it(self):
        status, output, errors = self.run_command('rebalance', '--execute')
        self.assertEqual(0, status, errors)
        self.assertEqual(['done'], self.states())
        self.assertIn('from host1 to host2: begun', errors)
        self.assertIn('1 migration, of which 1 are done', output)
        self.assertEqual(1, len(self.fleet.cloud.asked))
        history = self.ask('rebalance', '--history')
        self.assertEqual(['done'], [row['state'] for row in history['moves']])
        self.assertEqual(['done'], [row['state'] for row in history['plans']])
        self.assertEqual(-600.0, history['moves'][0]['budget_before'])

    def test_a_surprise_is_the_exit_status(self):
        self.fleet.cloud.on_migrate = lambda server, host: \
            self.fleet.cloud.complete(server, host, 'error')
        answer = self.ask_loud('rebalance', '--execute', status=1)
        self.assertIn('No valid host', answer['problem'])
        self.assertEqual(['failed'], [row['state']
                                      for row in answer['moves']])

    def test_an_interrupt_loses_nothing(self):
        def runs(server, host):
            server['OS-EXT-STS:task_state'] = 'migrating'
            self.fleet.cloud.migration(server['name'], 'host1', host,
                                       'running')

        def interrupt():
            raise KeyboardInterrupt

        self.fleet.cloud.on_migrate, self.on_sleep = runs, interrupt
        status, _, errors = self.run_command('rebalance', '--execute')
        self.assertEqual(1, status)
        self.assertIn('Run the same command again', errors)
        self.assertEqual(['begun'], self.states())

        def arrive():
            server = self.fleet.cloud.servers[self.store.moves()[
                0].instance_uuid]
            server.update({'OS-EXT-STS:task_state': None,
                           'OS-EXT-SRV-ATTR:host': 'host2'})
            self.fleet.cloud.migrations[-1]['status'] = 'completed'

        self.on_sleep = arrive
        answer = self.ask_loud('rebalance', '--execute')
        self.assertTrue(answer['resumed'])
        self.assertEqual(['done'], self.states())
        self.assertEqual(1, len(self.fleet.cloud.asked))

    def ask_loud(self, *words, status=0):
        """Return the answer of a command that also writes to stderr."""
        exit_status, output, errors = self.run_command(*words, '--json')
        self.assertEqual(status, exit_status, errors)
        return json.loads(output)

    def test_another_process_is_respected(self):
        records.take_lock(self.store, 'vswitch-modeler', 't', 60.0)
        self.assert_fails('held by vswitch-modeler', 'rebalance', '--execute')
        self.assertEqual(1, len(self.ask('rebalance')['moves']))

    def test_wrong_arguments(self):
        self.assert_fails('--parallel: 0; expected', 'rebalance',
                          '--parallel', '0')
        self.assert_fails('--execute and --history', 'rebalance',
                          '--execute', '--history')
        self._configure()
        self.assert_fails('auth_type in the group', 'rebalance')
