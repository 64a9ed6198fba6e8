# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from nova.scheduler import host_manager
from nova.scheduler import manager

from tests.unit.scheduler import base
from vswitch_aware_scheduler.scheduler import watch


class TestJoin(base.SchedulerTestCase):

    def setUp(self):
        super().setUp()
        for name, value in (('_current', None), ('_roles', set())):
            patch = mock.patch.object(watch, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        for owner, name in ((host_manager.HostState, 'consume_from_request'),
                            (manager.SchedulerManager,
                             'select_destinations')):
            self.addCleanup(setattr, owner, name, getattr(owner, name))

    def test_the_filter_and_the_weigher_share_one_state(self):
        first = watch.join('filter')
        self.assertIs(first, watch.join('weigher'))
        self.assertIs(first, watch.current())

    def test_the_plugins_of_another_manager_share_another(self):
        first = watch.join('filter')
        watch.join('weigher')
        second = watch.join('filter')
        self.assertIsNot(first, second)
        self.assertIs(second, watch.join('weigher'))
        self.assertIs(second, watch.current())

    def test_a_filter_does_not_join_a_weigher_that_had_none(self):
        # One HostManager with only the weigher, then one with both.
        alone = watch.join('weigher')
        both = watch.join('filter')
        self.assertIsNot(alone, both)
        self.assertIs(both, watch.join('weigher'))
        self.assertIsNot(both, watch.join('weigher'))

    def test_nova_tells_which_host_it_chose(self):
        def consume(host, spec):
            return 'answer'

        host_manager.HostState.consume_from_request = consume
        state = watch.join('filter')
        watch.join('weigher')
        host, spec = base.host_state('a'), base.request(1)
        with mock.patch.object(state, 'placed', autospec=True) as placed:
            self.assertEqual('answer', host.consume_from_request(spec))
        placed.assert_called_once_with(host, spec)

    def test_a_failure_of_ours_does_not_fail_the_choice(self):
        host_manager.HostState.consume_from_request = (
            lambda host, spec: 'answer')
        state = watch.join('filter')
        with mock.patch.object(state, 'placed', autospec=True,
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
        state = watch.join('filter')
        one = mock.Mock(spec=manager.SchedulerManager)
        select = manager.SchedulerManager.select_destinations
        with mock.patch.object(state, 'finished',
                               autospec=True) as finished:
            self.assertEqual('hosts', select(one, 'context'))
            with self.assertRaises(RuntimeError):
                select(one, 'context')
        self.assertEqual([mock.call(False), mock.call(True)],
                         finished.mock_calls)
