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
        self.whole = self.flavor('whole', egress_kbps=1000)
        self.part = self.flavor('part', egress_kbps=600)
        self.server = self.boot(self.part, 'host1')
        self.learn(self.server['id'], egress_kbps=500)
        self.boot_refused(self.whole)
        self.log.clear()

    def degraded(self, words):
        """Assert what is documented, and one warning with these words."""
        self.plugin.refresh()
        for _ in range(2):
            if self.PASSES:
                server = self.boot(self.whole)
                self.delete(server)
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

    def recovered(self, words='store is well again'):
        """Assert that all is well again, without a restart.

        :param words: of the one message that says so
        """
        self.plugin.refresh()
        for _ in range(2):
            self.boot_refused(self.whole)
        self.learn(self.server['id'], egress_kbps=400)
        self.delete(self.boot(self.part, 'host1'))
        self.learn(self.server['id'], egress_kbps=500)
        self.assertEqual([], self.log.warnings)
        self.assertEqual(1, len([
            line for line in self.log.messages()
            if words in line]), self.log.messages())
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

    def test_a_store_that_is_removed_or_spoilt_is_survived(self):
        self.half = self.flavor('half', egress_kbps=500)
        self._set_aside()
        self.degraded('store')
        self._put_back()
        self.recovered()
        # Garbage in its place.
        self._set_aside()
        with open(self.store_path, 'wb') as spoilt:
            spoilt.write(b'garbage, and much of it. ' * 1000)
        self.degraded('store')
        self._put_back()
        self.recovered()
        # Some other database.
        self._set_aside()
        connection = sqlite3.connect(self.store_path)
        connection.execute('CREATE TABLE other (one INTEGER)')
        connection.close()
        self.degraded('db sync')
        self._put_back()
        self.recovered()

    def test_a_damaged_row_costs_its_own_instance_only(self):
        self.half = self.flavor('half', egress_kbps=500)
        # A law of a format that is not known.
        connection = sqlite3.connect(self.store_path, timeout=0,
                                     isolation_level=None)
        with connection:
            self._begin(connection)
            law = connection.execute(
                'SELECT law FROM traffic_model').fetchone()[0]
            connection.execute("UPDATE traffic_model SET law = x'6666', "
                               'generation = generation + 1')
            connection.execute('UPDATE generation SET number = number + 1')
        self.plugin.refresh()
        # The instance counts with the 600 of its flavor, as without a model.
        self.boot_refused(self.half)
        self.delete(self.boot(self.flavor('rest', egress_kbps=400), 'host1'))
        warning, = self.log.warnings
        self.assertIn(self.server['id'], warning)
        self.assertIn('law', warning)
        self.log.clear()
        with connection:
            self._begin(connection)
            connection.execute(
                'UPDATE traffic_model SET law = ?, '
                'generation = generation + 1', (law,))
            connection.execute('UPDATE generation SET number = number + 1')
        connection.close()
        self.recovered('can be read again')

    def _begin(self, connection):
        """Begin to write as soon as no thread of the plugin does.

        With eventlet, SQLite's own wait would stop that thread, too.
        """
        def begins():
            try:
                return connection.execute('BEGIN IMMEDIATE')
            except sqlite3.OperationalError:
                return None

        self.wait_for(begins, 'the lock of the store')

    def test_a_store_that_is_locked_is_survived(self):
        self.half = self.flavor('half', egress_kbps=500)
        # One that nobody else may read.
        other = sqlite3.connect(self.store_path, isolation_level=None)
        self.wait_for(lambda: self._lock(other), 'the lock of the store')
        self.degraded('store')
        other.execute('COMMIT')
        other.close()
        self.recovered()

    def _lock(self, other):
        # Other connections, which threads of the plugin open, prevent it.
        try:
            other.execute('PRAGMA journal_mode=DELETE').fetchall()
            other.execute('BEGIN EXCLUSIVE')
        except sqlite3.OperationalError:
            return False
        mode, = other.execute('PRAGMA journal_mode').fetchone()
        if mode != 'delete':
            other.execute('ROLLBACK')
        return mode == 'delete'

    def test_a_store_that_nobody_renews_is_stale(self):
        self.half = self.flavor('half', egress_kbps=500)
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
        plain = self.flavor('plain')
        self.boot_many(plain, 4)
        server = self.boot(self.flavor('most', egress_kbps=8000), 'host1')
        too_large = self.flavor('more', egress_kbps=2001)
        self.boot_refused(too_large)
        warning, = self.log.warnings
        self.assertIn('db sync', warning)
        self.log.clear()
        self.make_store()
        # Nobody tells the scheduler.
        self.wait_for(
            lambda: self.plugin._source.current()[0].generation is not None,
            'the scheduler to look at the store')
        # Now the four of which nothing is known count by the default.
        self.boot_refused(self.flavor('less', egress_kbps=1000))
        self.assertEqual([], self.log.warnings)
        self.assertTrue(any('store is well again' in line
                            for line in self.log.messages()))
        self.delete(server)


class UnusableUrlTestCase(base.VSwitchTestCase):
    HOSTS = ('host1',)
    WITH_STORE = False
    OPTIONS = {'store_url': 'nonesuch://user:secret@nowhere/store'}

    def test_a_url_that_cannot_be_used_is_survived(self):
        self.describe_hosts(1000)
        whole = self.flavor('whole', egress_kbps=1000)
        self.boot(whole)
        self.boot_refused(whole)
        self.assertEqual(1, len(self.log.warnings), self.log.warnings)
        self.assertNotIn('secret', ''.join(self.log.messages()))
