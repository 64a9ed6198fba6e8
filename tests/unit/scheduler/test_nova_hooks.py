# SPDX-License-Identifier: Apache-2.0

import logging
import tempfile
from unittest import mock

from nova.scheduler import host_manager
from nova.scheduler import manager
from nova.scheduler import utils
from oslo_config import cfg

from tests.unit.scheduler import base
from vswitch_aware_scheduler.conf import opts
from vswitch_aware_scheduler.scheduler import nova_hooks

#: What is wrapped.
HOOKS = [(manager.SchedulerManager, 'select_destinations'),
         (utils, 'claim_resources'),
         (host_manager.HostState, 'consume_from_request')]


class HooksTestCase(base.SchedulerTestCase):

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(nova_hooks, '_current', None))
        for owner, name in HOOKS:
            self.addCleanup(setattr, owner, name, getattr(owner, name))

    def wrap(self, owner, name, function):
        """Let a function take the place of Nova's, and wrap it.

        :returns: the wrapped function
        """
        setattr(owner, name, function)
        self.state = nova_hooks.join('filter')
        return getattr(owner, name)


class TestJoin(HooksTestCase):

    def test_all_plugins_of_a_process_share_one_state(self):
        first = nova_hooks.join('filter')
        for role in ('weigher', 'weigher', 'filter', 'weigher'):
            self.assertIs(first, nova_hooks.join(role))
        self.assertIs(first, nova_hooks.current())
        self.assertEqual({'filter', 'weigher'}, first.plugins)

    def test_after_a_reset_the_next_plugin_starts_a_new_state(self):
        first = nova_hooks.join('filter')
        nova_hooks.reset()
        self.assertIsNone(nova_hooks.current())
        self.assertIsNot(first, nova_hooks.join('filter'))

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


class TestHooks(HooksTestCase):

    def test_nova_notifies_which_host_it_selects(self):
        self.wrap(host_manager.HostState, 'consume_from_request',
                  lambda self, spec_obj: 'answer')
        host, spec = base.host_state('a'), base.request(1)
        with mock.patch.object(self.state, 'host_consumed',
                               autospec=True) as placed:
            self.assertEqual('answer', host.consume_from_request(spec))
        placed.assert_called_once_with(host, spec)

    def test_nova_notifies_when_a_request_starts_and_ends(self):
        outcomes = iter([lambda: 'hosts', mock.Mock(
            side_effect=RuntimeError('no valid host'))])
        select = self.wrap(manager.SchedulerManager, 'select_destinations',
                           lambda self, context: next(outcomes)())
        one = mock.Mock(spec=manager.SchedulerManager)
        one.host_manager = mock.Mock(aggs_by_id={1: 'rack'})
        with mock.patch.object(self.state, 'request_started',
                               autospec=True) as started, mock.patch.object(
                                   self.state, 'request_finished',
                                   autospec=True) as finished:
            self.assertEqual('hosts', select(one, 'context'))
            with self.assertRaises(RuntimeError):
                select(one, 'context')
        started.assert_called_with(['rack'])
        self.assertEqual([mock.call(False), mock.call(True)],
                         finished.mock_calls)


class TestClaimResources(HooksTestCase):

    def claim(self, answer, has_room=True, **more):
        """Call the wrapped function as Nova does; return the result.

        :param answer: that of Nova's function, or an error
        :param has_room: the answer of the state, or an error
        """
        claim = self.wrap(utils, 'claim_resources', self.answering(answer))
        calls = mock.Mock()
        calls.claim_host.side_effect = [has_room]
        try:
            with mock.patch.multiple(
                    self.state, claim_host=calls.claim_host,
                    claim_failed=calls.claim_failed):
                return claim(
                    'context', 'client', 'spec', 'uuid',
                    {'allocations': {'provider': {}}},
                    allocation_request_version='1.36', **more)
        finally:
            self.calls = calls.mock_calls

    @staticmethod
    def answering(answer):
        def claim_resources(ctx, client, spec_obj, instance_uuid, alloc_req,
                            allocation_request_version=None, *, later=None):
            if isinstance(answer, Exception):
                raise answer
            return later or answer

        return claim_resources

    def test_a_host_is_claimed_before_nova_claims_it(self):
        claimed = mock.call.claim_host({'provider': {}}, 'spec')
        withdrawn = mock.call.claim_failed('uuid')
        for answer, has_room, expected, calls in (
                (True, True, True, [claimed]),
                (AssertionError('called'), False, False, [claimed]),
                # One that Placement refuses, or fails to answer.
                (False, True, False, [claimed, withdrawn]),
                (OSError('conflict'), True, OSError, [claimed, withdrawn]),
                # An error of ours refuses nothing.
                (True, ValueError('no'), True, [claimed])):
            with self.subTest(answer=answer, has_room=has_room):
                if expected is OSError:
                    self.assertRaises(OSError, self.claim, answer, has_room)
                else:
                    self.assertIs(expected, self.claim(answer, has_room))
                self.assertEqual(calls, self.calls)
        self.assertIn('hook claim_host: ValueError: no', self.warnings[0])

    def test_an_argument_that_a_later_nova_adds_is_passed_on(self):
        self.assertEqual('passed', self.claim(True, later='passed'))
        self.assertEqual([mock.call.claim_host({'provider': {}}, 'spec')],
                         self.calls)

    def test_arguments_in_another_order_are_found_by_name(self):
        claim = self.wrap(utils, 'claim_resources',
                          lambda alloc_req, instance_uuid, spec_obj: True)
        with mock.patch.object(self.state, 'claim_host',
                               autospec=True) as claimed:
            self.assertTrue(claim({'allocations': {}}, 'uuid',
                                  spec_obj='spec'))
        claimed.assert_called_once_with({}, 'spec')

    def test_a_call_that_nova_itself_rejects_fails_as_without_us(self):
        claim = self.wrap(utils, 'claim_resources', self.answering(True))
        with self.assertRaisesRegex(TypeError, 'claim_resources'):
            claim('context')


class TestSignatures(HooksTestCase):

    def test_each_function_is_wrapped_once(self):
        # A release of Nova without one of them fails here by its name.
        wrapped = []
        for role in ('filter', 'weigher'):
            nova_hooks.join(role)
            wrapped.append([getattr(owner, name) for owner, name in HOOKS])
            for function in wrapped[-1]:
                self.assertTrue(hasattr(function, 'vswitch_wrapped'),
                                function)
        self.assertEqual(*wrapped)
        self.assertEqual([], self.log.texts(logging.ERROR))

    def test_a_function_that_does_not_fit_is_logged_once_and_not_wrapped(self):
        def without_spec(ctx, client, instance_uuid, alloc_req):
            return 'answer'

        for function, words in ((without_spec, 'no parameter spec_obj'),
                                (None, 'no such function')):
            with self.subTest(words):
                self.log.clear()
                claim = self.wrap(utils, 'claim_resources', function)
                text, = self.log.texts(logging.ERROR)
                self.assertIn(f'claim_resources of this Nova: {words}', text)
                self.assertIs(function, claim)
                self.assertTrue(hasattr(
                    manager.SchedulerManager.select_destinations,
                    'vswitch_wrapped'))
