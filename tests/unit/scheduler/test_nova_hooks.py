# SPDX-License-Identifier: Apache-2.0

import logging
import tempfile
from unittest import mock

from nova.scheduler import host_manager
from nova.scheduler import manager
from oslo_config import cfg

from tests.unit.scheduler import base
from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.scheduler import nova_hooks

#: What is wrapped.
HOOKS = [(manager.SchedulerManager, 'select_destinations'),
         (manager.SchedulerManager, '_get_sorted_hosts'),
         (host_manager.HostState, 'consume_from_request')]


class TestJoin(base.SchedulerTestCase):

    def setUp(self):
        super().setUp()
        for name, value in (('_current', None), ('_roles', set())):
            patch = mock.patch.object(nova_hooks, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        for owner, name in HOOKS:
            self.addCleanup(setattr, owner, name, getattr(owner, name))

    def test_the_filter_and_the_weigher_share_one_state(self):
        first = nova_hooks.join('filter')
        self.assertIs(first, nova_hooks.join('weigher'))
        self.assertIs(first, nova_hooks.current())

    def test_an_invalid_option_is_refused_when_nova_makes_the_plugins(self):
        for line in ('vswitch_weight_multiplier = much', 'enforcement = no',
                     'overload_probability = nan'):
            with self.subTest(line), tempfile.NamedTemporaryFile(
                    'w', suffix='.conf') as file:
                file.write(f'[vswitch_scheduler]\n{line}\n')
                file.flush()
                conf = cfg.ConfigOpts()
                opts.register_opts(conf)
                conf(['--config-file', file.name])
                with mock.patch.object(nova_hooks, 'CONF', conf):
                    self.assertRaisesRegex(
                        cfg.ConfigFileValueError, line.split()[0],
                        nova_hooks.join, 'weigher')

    def test_the_plugins_of_another_manager_share_another(self):
        first = nova_hooks.join('filter')
        nova_hooks.join('weigher')
        second = nova_hooks.join('filter')
        self.assertIsNot(first, second)
        self.assertIs(second, nova_hooks.join('weigher'))
        self.assertIs(second, nova_hooks.current())

    def test_a_filter_does_not_join_a_weigher_that_had_none(self):
        # One HostManager with only the weigher, then one with both.
        alone = nova_hooks.join('weigher')
        both = nova_hooks.join('filter')
        self.assertIsNot(alone, both)
        self.assertIs(both, nova_hooks.join('weigher'))
        self.assertIsNot(both, nova_hooks.join('weigher'))

    def test_nova_tells_which_host_it_chose(self):
        def consume(host, spec):
            return 'answer'

        host_manager.HostState.consume_from_request = consume
        state = nova_hooks.join('filter')
        nova_hooks.join('weigher')
        host, spec = base.host_state('a'), base.request(1)
        with mock.patch.object(state, 'host_consumed',
                               autospec=True) as placed:
            self.assertEqual('answer', host.consume_from_request(spec))
        placed.assert_called_once_with(host, spec)

    def test_a_failure_of_ours_does_not_fail_the_choice(self):
        host_manager.HostState.consume_from_request = (
            lambda host, spec: 'answer')
        state = nova_hooks.join('filter')
        with mock.patch.object(state, 'host_consumed', autospec=True,
                               side_effect=ValueError('no')):
            self.assertEqual('answer', base.host_state(
                'a').consume_from_request(base.request(1)))
        self.assertIn('ValueError: no', self.warnings[0])

    def test_nova_tells_when_a_request_has_ended(self):
        outcomes = iter([lambda: 'hosts', mock.Mock(
            side_effect=RuntimeError('no valid host'))])
        host_manager.HostState.consume_from_request = (
            lambda host, spec: None)
        manager.SchedulerManager.select_destinations = (
            lambda self, context: next(outcomes)())
        state = nova_hooks.join('filter')
        one = mock.Mock(spec=manager.SchedulerManager)
        select = manager.SchedulerManager.select_destinations
        with mock.patch.object(state, 'request_finished',
                               autospec=True) as finished:
            self.assertEqual('hosts', select(one, 'context'))
            with self.assertRaises(RuntimeError):
                select(one, 'context')
        self.assertEqual([mock.call(False), mock.call(True)],
                         finished.mock_calls)

    def test_the_hosts_that_still_fit_take_the_place_of_those_sorted(self):
        manager.SchedulerManager._get_sorted_hosts = (
            lambda self, spec, hosts, index: list(hosts))
        state = nova_hooks.join('filter')
        sort = manager.SchedulerManager._get_sorted_hosts
        one = mock.Mock(spec=manager.SchedulerManager)
        with mock.patch.object(state, 'hosts_sorted', autospec=True,
                               side_effect=[['b'], [], OSError('no')]):
            self.assertEqual(['b'], sort(one, 'spec', ['a', 'b'], 0))
            self.assertEqual([], sort(one, 'spec', ['a', 'b'], 0))
            self.assertEqual(['a', 'b'], sort(one, 'spec', ['a', 'b'], 0))

    def test_each_method_that_is_wrapped_is_there(self):
        # A release of Nova without one of them fails here by its name.
        nova_hooks.join('filter')
        for owner, name in HOOKS:
            with self.subTest(name):
                self.assertTrue(hasattr(getattr(owner, name),
                                        'vswitch_wrapped'))
        self.assertEqual([], self.log.texts(logging.ERROR))

    def test_one_that_has_vanished_is_logged_and_the_rest_work(self):
        class Manager:
            """One of another release."""

        nova_hooks._wrap(Manager, manager.SchedulerManager.reset)
        texts = self.log.texts(logging.ERROR)
        self.assertEqual(1, len(texts))
        self.assertIn('this Nova has no Manager.', texts[0])
