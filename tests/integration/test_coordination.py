# SPDX-License-Identifier: Apache-2.0
"""Modelers share their instances through each backend that is documented."""

import time

from tests.contract import modeler_groups
from tests.integration import base
from tests.integration import servers
from tests.unit.store import base as store_base

#: After which a backend forgets who does not tell that it lives, seconds.
_TIMEOUT = 4


class GroupsOfServer(base.WithServer, modeler_groups.GroupContract):

    def setUp(self):
        super().setUp()
        self.group_url = f'{self.server.url}?timeout={_TIMEOUT}'

    def test_the_share_of_a_killed_modeler_is_taken_over(self):
        process = self.member()
        first, second = self.group(), self.group()
        first.share('store'), second.share('store')
        self.assertEqual(3, first.share('store').members)
        process.kill()
        process.wait()
        end = time.monotonic() + 10 * _TIMEOUT
        while first.share('store').members > 2:
            self.assertLess(time.monotonic(), end)
            time.sleep(.2)
        self._assert_shared(first, second)

    def test_a_live_modeler_stays_longer_than_the_timeout(self):
        first, second = self.group(), self.group()
        first.share('store'), second.share('store')
        end = time.monotonic() + 2 * _TIMEOUT
        while time.monotonic() < end:
            self.assertEqual(2, first.share('store').members)
            time.sleep(.5)
        self._assert_shared(first, second)


class RedisTestCase(GroupsOfServer, store_base.StoreTestCase):

    make_server = servers.Redis


class EtcdTestCase(GroupsOfServer, store_base.StoreTestCase):

    make_server = servers.Etcd


class ZooKeeperTestCase(GroupsOfServer, store_base.StoreTestCase):

    make_server = servers.ZooKeeper
