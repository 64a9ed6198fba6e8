# SPDX-License-Identifier: Apache-2.0
"""Whatever becomes of the store, requests go on as is documented."""

import os
import shutil
import sqlite3

from tests.functional import base


class StoreFaultsTestCase(base.VSwitchTestCase):
    """With degraded_policy last: what is known goes on to count."""

    HOSTS = ('host1', 'host2')
    OPTIONS = {'store_timeout_seconds': 1,
               'max_generation_age_seconds': 1000}
    PASSES = False

    def setUp(self):
        super().setUp()
        self.describe_hosts(1000, 10)
        self.whole, self.part, self.half = map(self.of, (1000, 600, 500))
        self.server = self.boot(self.part, 'host1')
        self.learn(self.server['id'], egress_kbps=500)
        self.boot_refused(self.whole)
        self.log.clear()

    def degraded(self, words):
        """Assert what is documented, and one warning with these words."""
        self.plugin.refresh()
        for _ in range(2):
            if self.PASSES:
                self.delete(self.boot(self.whole))
            else:
                self.boot_refused(self.whole)
                # Its learned 500, not the 600 of its flavor.
                self.boot_refused(self.part)
                self.delete(self.boot(self.half, 'host1'))
        self.plugin.refresh()
        warning, = self.log.warnings
        self.assertIn(words, warning)
        self.assertIn('every host passes' if self.PASSES
                      else 'what is known', warning)
        self.log.clear()

    def recovered(self):
        """Assert that all is well again, without a restart."""
        self.plugin.refresh()
        for _ in range(2):
            self.boot_refused(self.whole)
        self.learn(self.server['id'], egress_kbps=400)
        self.delete(self.boot(self.part, 'host1'))
        self.learn(self.server['id'], egress_kbps=500)
        self.assertEqual([], self.log.warnings)
        self.assertEqual(1, len(self.log.lines('store is well again')))
        self.log.clear()

    def _move_store(self, source, target):
        for end in ('', '-wal', '-shm'):
            if os.path.exists(source + end):
                shutil.move(source + end, target + end)

    def _set_aside(self):
        # In one file, so that what is moved is whole.
        connection = sqlite3.connect(self.store_path)
        connection.execute('PRAGMA wal_checkpoint(TRUNCATE)')
        connection.close()
        self._move_store(self.store_path, self.store_path + '.aside')

    def _put_back(self):
        for end in ('', '-wal', '-shm'):
            if os.path.exists(self.store_path + end):
                os.unlink(self.store_path + end)
        self._move_store(self.store_path + '.aside', self.store_path)

    def test_a_store_that_is_removed_spoilt_or_locked_is_survived(self):
        for make, words in (
                (lambda path: None, 'store'), (self._write_garbage, 'store'),
                (self._make_other_database, 'db sync'),
                (self._lock, 'store')):
            self._set_aside()
            make(self.store_path)
            self.degraded(words)
            self._put_back()
            self.recovered()

    def _write_garbage(self, path):
        with open(path, 'wb') as spoilt:
            spoilt.write(b'garbage, and much of it. ' * 1000)

    def _make_other_database(self, path):
        connection = sqlite3.connect(path)
        connection.execute('CREATE TABLE other (one INTEGER)')
        connection.close()

    def _lock(self, path):
        connection = sqlite3.connect(path, isolation_level=None)
        self.addCleanup(connection.close)
        connection.execute('BEGIN EXCLUSIVE')

    def test_a_store_that_nobody_renews_is_stale(self):
        self.clock.ahead = 1100
        # The figure grows, the warning is the same one.
        self.degraded('is the modeler running')
        self.clock.ahead = 0
        self.recovered()


class StoreFaultsPassTestCase(StoreFaultsTestCase):
    """With degraded_policy pass: every host passes."""

    OPTIONS = {**StoreFaultsTestCase.OPTIONS, 'degraded_policy': 'pass'}
    PASSES = True


class NoStoreTestCase(base.VSwitchTestCase):
    HOSTS = ('host1', 'host2')
    WITH_STORE = False
    OPTIONS = {'snapshot_refresh_seconds': 1}

    def test_a_store_that_comes_later_is_taken_up(self):
        self.describe_hosts(10000, 10)
        # What flavors say counts without a store; the default does not.
        self.boot_many(self.flavor('plain'), 4)
        self.boot(self.of(8000), 'host1')
        self.boot_refused(self.of(2001))
        warning, = self.log.warnings
        self.assertIn('db sync', warning)
        self.log.clear()
        self.make_store()
        # Nobody tells the scheduler.
        self.wait_for(
            lambda: self.plugin._source.current()[0].generation is not None,
            'the scheduler to look at the store')
        # Now the four of which nothing is known count by the default.
        self.boot_refused(self.of(1000))
        self.assertEqual([], self.log.warnings)
        self.assertTrue(self.log.lines('store is well again'))


class UnusableUrlTestCase(base.VSwitchTestCase):
    HOSTS = ('host1',)
    WITH_STORE = False
    OPTIONS = {'store_url': 'nonesuch://user:secret@nowhere/store'}

    def test_a_url_that_cannot_be_used_is_survived(self):
        self.describe_hosts(1000)
        self.boot(self.of(1000))
        self.boot_refused(self.of(1000))
        self.assertEqual(1, len(self.log.warnings), self.log.warnings)
        self.assertNotIn('secret', ''.join(self.log.messages()))
