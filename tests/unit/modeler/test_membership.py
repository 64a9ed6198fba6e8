# SPDX-License-Identifier: Apache-2.0

import logging
import os
import signal
import sys
import threading
from unittest import mock

from tooz import coordination as tooz_coordination

from tests.contract import modeler_groups
from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.modeler import membership

EVERYONE = modeler_groups.EVERYONE
GroupContract = modeler_groups.GroupContract


class ShareTestCase(base.StoreTestCase):

    def test_each_instance_has_one_modeler_and_shares_are_similar(self):
        for count in (1, 2, 4):
            members = {b'modeler-%d' % number for number in range(count)}
            shares = [{uuid for uuid in EVERYONE if share(uuid)} for share in
                      (membership.Share(name, members)
                       for name in members)]
            self.assertEqual(sorted(EVERYONE), sorted(
                uuid for share in shares for uuid in share))
            for share in shares:
                # Four standard deviations: of 1024 points of each on the
                # ring, of 4096 parts laid there, and of these instances.
                self.assertLess(
                    abs(len(share) * count / len(EVERYONE) - 1),
                    4 * (1 / 1024 + count / 4096
                         + count / len(EVERYONE)) ** .5)

    def test_the_others_take_over_the_share_of_a_leaving_member(self):
        members = {b'a', b'b', b'c'}
        before = {name: membership.Share(name, members)
                  for name in members}
        after = {name: membership.Share(name, members - {b'c'})
                 for name in (b'a', b'b')}
        for uuid in EVERYONE:
            for name, share in after.items():
                if before[name](uuid):
                    self.assertTrue(share(uuid))
                elif share(uuid):
                    self.assertTrue(before[b'c'](uuid))


class GroupTestCase(GroupContract, base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.group_url = f'file://{self.directory}/group'
        # A busy machine takes ten seconds to load a driver of tooz.
        self.enterContext(mock.patch.object(membership, 'PATIENCE_SECONDS',
                                            120))

    def test_only_a_killed_modeler_loses_its_share(self):
        # The backend knows no time-out: whoever lives holds a lock.
        process = self.member()
        first, second = self.two()
        process.send_signal(signal.SIGSTOP)
        self.assertEqual(3, first.share('store').members)
        process.kill()
        process.wait()
        self._assert_shared(first, second)
        self.assertEqual(2, len([
            name for _, _, names in os.walk(f'{self.directory}/group/groups')
            for name in names if name.endswith('.raw')]))

    def test_a_backend_that_lost_its_data_is_joined_again(self):
        first, second = self.two()
        for folder, _, names in os.walk(f'{self.directory}/group/groups'):
            for name in names:
                os.unlink(os.path.join(folder, name))
        first.share('store'), second.share('store')
        self._assert_shared(first, second)

    def test_messages_about_the_backend_contain_no_password(self):
        for url in ('redis://:open-sesame@127.0.0.1:1',
                    'nosuch://:open-sesame@h', 'open-sesame'):
            group = membership.ModelerGroup(url)
            for _ in range(2):
                with mock.patch.object(membership, 'PATIENCE_SECONDS', 1), \
                        self.assertRaisesRegex(
                            exceptions.CoordinationError,
                            'modeler_coordination_url.*expected') as caught:
                    group.share('store')
                self.assertNotIn('open-sesame', str(caught.exception))

    def test_waiting_for_the_backend_is_limited(self):
        group = self.group()
        goes_on = threading.Event()
        create = tooz_coordination.get_coordinator

        def slow(*arguments):
            goes_on.wait(60)
            return create(*arguments)

        with mock.patch.object(membership, 'PATIENCE_SECONDS', .1), \
                mock.patch.object(tooz_coordination, 'get_coordinator',
                                  slow):
            for _ in range(2):
                with self.assertRaisesRegex(exceptions.CoordinationError,
                                            'no response within 0.1 s'):
                    group.share('store')
        goes_on.set()
        self._assert_shared(group)

    def test_a_failure_to_leave_is_ignored(self):
        group = self.group()
        group.share('store')
        with mock.patch.object(group._coordinator, 'stop',
                               side_effect=OSError('gone')):
            group.leave()
        group.leave()

    def test_a_thread_that_never_started_is_replaced(self):
        first, second = self.two()
        with mock.patch.object(threading.Thread, 'start',
                               side_effect=KeyboardInterrupt), \
                self.assertRaises(KeyboardInterrupt):
            first.share('store')
        first.leave()
        self._assert_shared(second)
        first.share('store')
        self._assert_shared(second, first)

    def test_retries_of_the_heartbeat_are_logged_at_level_debug(self):
        self.group()
        for level in ('INFO', 'DEBUG'):
            with self.assertLogs(level=level) as logs:
                logging.info('the only line, if there is no other')
                logging.getLogger('tooz.coordination').warning('Retrying')
            self.assertEqual(level == 'DEBUG', any(
                record.getMessage() == 'Retrying' for record in logs.records))

    def test_without_tooz_the_error_names_the_package(self):
        with mock.patch.dict(sys.modules, {'tooz.coordination': None}), \
                self.assertRaisesRegex(exceptions.CoordinationError,
                                       'tooz.*install vswitch_aware'):
            membership.ModelerGroup('file:///x')
