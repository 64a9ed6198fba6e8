# SPDX-License-Identifier: Apache-2.0
"""What a group of modelers is with any backend."""

import os
import subprocess
import sys
from unittest import mock

from tests.unit.store import base
from vswitch_aware_scheduler.modeler import membership

EVERYONE = [base.instance_uuid(number * 7919) for number in range(4000)]

_MEMBER = '''
import sys
from vswitch_aware_scheduler.modeler import membership as coordination
group = coordination.ModelerGroup(sys.argv[1])
print(group.share('store').members, flush=True)
sys.stdin.read()
group.leave()
'''


class GroupContract:
    """What a group is with any backend; ``group_url`` names it."""

    def group(self):
        group = membership.ModelerGroup(self.group_url)
        self.addCleanup(group.leave)
        return group

    def two(self):
        """Return two groups of one store."""
        groups = self.group(), self.group()
        for group in groups:
            group.share('store')
        return groups

    def _assert_shared(self, *groups, store_id='store'):
        shares = [group.share(store_id) for group in groups]
        for share in shares:
            self.assertEqual(len(groups), share.members)
        for uuid in EVERYONE[:500]:
            self.assertEqual(1, sum(share(uuid) for share in shares))

    def test_shares_follow_modelers_that_join_and_leave(self):
        first, second = self.group(), self.group()
        first.share('store')
        self._assert_shared(first)
        second.share('store')
        self._assert_shared(first, second)
        first.leave()
        self._assert_shared(second)
        first.share('store')
        self._assert_shared(second, first)

    def test_counting_modelers_does_not_join_the_group(self):
        member, observer = self.group(), self.group()
        self.assertEqual(0, observer.count('store'))
        member.share('store')
        self.assertEqual(1, observer.count('store'))
        self.assertEqual(1, observer.count('store'))
        self._assert_shared(member)

    def test_modelers_of_another_store_form_another_group(self):
        first, second = self.group(), self.group()
        first.share('store')
        second.share('other')
        self._assert_shared(first)
        # Its store was replaced by another one.
        first.share('other')
        self._assert_shared(first, second, store_id='other')

    def test_two_modelers_on_hosts_of_the_same_name_share(self):
        with mock.patch('socket.gethostname', return_value='controller'), \
                mock.patch('os.getpid', return_value=1):
            first, second = self.group(), self.group()
        first.share('store'), second.share('store')
        self._assert_shared(first, second)

    def member(self):
        """Return the process of one more member, which has joined."""
        process = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-c', _MEMBER, self.group_url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, 'PYTHONPATH': os.getcwd()})
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual('1', process.stdout.readline().strip())
        return process
