# SPDX-License-Identifier: Apache-2.0
"""Claims in the store: serialised, repeatable, in the order of numbers."""

import concurrent.futures
import dataclasses
import threading
from unittest import mock

import sqlalchemy as sa

from tests.fakes import store as fake_store
from tests.unit.store import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import claims
from vswitch_aware_scheduler.store import sql
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.vswitch import attachments

claim = fake_store.claim


class ClaimsTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        # Threads of some tests open it by its URL.
        self.store = self.make_store()

    def write(self, *claims, withdrawn=(), since=None):
        """Write claims; return the changes that the transaction has read."""
        return fake_store.write_claims(
            self.store, *claims, withdrawn=withdrawn, since=since)

    def read(self, since=None):
        """Return {number of the instance: (state, host, token)}."""
        self.changes = self.store.read_claims(since)
        self.seen = self.changes.seen
        return {int(claimed.instance_uuid[-12:], 16): (
            claimed.state, claimed.host, claimed.token)
                for claimed in self.changes.claims}

    def purge(self, last=10**9):
        return self.store.purge_claims(last)

    def age(self, seconds):
        """Let all claims be older."""
        self.execute('UPDATE claim SET expires_at = expires_at - :seconds',
                     seconds=seconds)

    def test_a_claim_comes_back_as_it_was(self):
        attached = [None, attachments.Attachments(), attachments.Attachments(
            ('red', None, 'red')), attachments.Attachments(
                ('blue',), ('flat',), 2)]
        written = [claim(
            number, source='h2', guaranteed=(1000.0, 2.5, .1),
            age_seconds=100.0, waited_seconds=.25, conflicts=3, missed=True,
            rule='prior of flavor ü', attachments=each)
            for number, each in enumerate(attached)]
        self.write(*written)
        stored = self.store.read_claims().claims
        self.assertEqual({1}, {each.number for each in stored})
        for each in stored:
            self.assertAlmostEqual(100.0, each.age_seconds, delta=30.0)
        self.assertCountEqual(written, [dataclasses.replace(
            each, age_seconds=100.0, number=None, claimed_at=None)
            for each in stored])
        # A withdrawal keeps them.
        self.write(withdrawn=[claim(1)])
        self.assertEqual(dict(enumerate(attached)), {
            int(each.instance_uuid[-12:], 16): each.attachments
            for each in self.store.read_claims().claims})

    def test_damaged_networks_are_unknown(self):
        self.write(claim())
        for text in ('{', '7', '{"nets": []}', '[' * 100_000):
            self.execute('UPDATE claim SET networks = :text', text=text)
            stored, = self.store.read_claims().claims
            self.assertIsNone(stored.attachments)

    def test_a_reader_gets_what_is_new_oldest_first(self):
        self.assertEqual({}, self.read())
        self.assertTrue(self.changes.complete)
        self.write(claim(3))
        self.write(claim(1, host='h2'), claim(2))
        self.write(claim(3, host='h3', token='t-2'))
        self.assertEqual([1, 2, 3], sorted(self.read(self.seen)))
        self.assertFalse(self.changes.complete)
        self.assertEqual([2, 2, 3], [
            claimed.number for claimed in self.changes.claims])
        self.assertEqual({}, self.read(self.seen))
        self.write(withdrawn=[claim(2)])
        self.assertEqual({2: (store.WITHDRAWN, 'h1', 't-1')},
                         self.read(self.seen))

    def test_a_writer_reads_what_others_have_written_before_it_decides(self):
        own = self.write(claim(1))
        self.assertTrue(own.complete)
        self.assertEqual([], own.claims)
        # Nobody else has written.
        own = self.write(claim(2), since=own.seen)
        self.assertEqual((2, False, []),
                         (own.seen.number, own.complete, own.claims))
        self.write(claim(3), since=own.seen)
        self.write(claim(4, token='u-1'))
        later = self.write(claim(5), since=own.seen)
        self.assertEqual([3, 4], [int(claimed.instance_uuid[-12:], 16)
                                  for claimed in later.claims])
        self.assertFalse(later.complete)
        self.assertEqual({}, self.read(later.seen))

    def test_a_claim_takes_five_statements(self):
        statements = []
        seen = self.write(claim(1)).seen
        self.write(claim(2, token='u-1'))
        engine = self.store._engine()

        def count(connection, cursor, statement, *_):
            statements.append(statement)

        sa.event.listen(engine, 'before_cursor_execute', count)
        self.addCleanup(sa.event.remove, engine, 'before_cursor_execute',
                        count)
        with self.store.claiming(seen) as (changes, write):
            write([claim(3), claim(4)])
        self.assertEqual(1, len(changes.claims))
        statements = [text for text in statements
                      if not text.upper().startswith(('BEGIN', 'SELECT 1'))]
        self.assertEqual(5, len(statements), statements)
        self.assertTrue(statements[0].startswith('UPDATE claim_counter'))
        statements.clear()
        self.store.read_claims(changes.seen)
        self.assertEqual(1, len([text for text in statements if not
                                 text.upper().startswith('BEGIN')]))

    def test_what_fails_writes_nothing_and_can_be_repeated(self):
        for _ in range(2):
            with self.assertRaises(ValueError):
                with self.store.claiming() as (_, write):
                    write([claim(1)])
                    raise ValueError('before the end')
            self.assertEqual({}, self.read())
        for _ in range(2):
            self.write(claim(1))
            self.assertEqual([1], list(self.read()))
        for _ in range(2):
            self.write(withdrawn=[claim(1)])
            self.assertEqual(store.WITHDRAWN, self.read()[1][0])

    def test_a_withdrawal_concerns_its_own_claim_only(self):
        self.write(claim(1), claim(2))
        self.write(claim(1, host='h2', token='u-1'))
        self.read()
        self.write(withdrawn=[claim(1), claim(3)])
        self.assertEqual({}, self.read(self.seen))
        self.assertEqual((store.CLAIMED, 'h2', 'u-1'), self.read()[1])

    def test_a_reader_of_another_store_or_of_later_reads_everything(self):
        self.write(claim())
        self.read()
        for since in (dataclasses.replace(self.seen, store_id='other'),
                      dataclasses.replace(self.seen, number=9)):
            self.assertEqual([1], list(self.read(since)))
            self.assertTrue(self.changes.complete)

    def test_a_restored_store_is_read_from_the_start(self):
        self.write(claim(1))
        backup = self.content()
        self.write(claim(2))
        self.read()
        position = self.seen
        self.restore(backup)
        for number in (3, 4):
            self.write(claim(number))
            self.assertEqual([1, *range(3, number + 1)],
                             list(self.read(position)))
            self.assertTrue(self.changes.complete)
        self.write(claim(5))
        self.assertEqual([5], list(self.read(self.seen)))
        # A writer notices, too.
        changes = self.write(claim(6), since=position)
        self.assertEqual(4, len(changes.claims))

    def test_many_are_written_at_once(self):
        self.write(*map(claim, range(2000)))
        self.assertEqual(2000, len(self.read()))
        self.write(withdrawn=list(map(claim, range(2000))))
        self.assertEqual({store.WITHDRAWN}, {
            state for state, *_ in self.read().values()})

    def test_what_has_expired_is_purged_and_readers_do_not_miss_it(self):
        self.write(claim(1), claim(2), claim(3))
        self.assertEqual(0, self.purge())
        self.read()
        early = self.seen
        self.write(withdrawn=[claim(2)])
        self.read()
        late = self.seen
        self.age(599.0)
        self.write(claim(4))
        self.age(2.0)
        self.assertEqual(3, self.purge())
        self.assertEqual([4], list(self.read(late)))
        self.assertFalse(self.changes.complete)
        # One that has not read the withdrawal has to read all.
        self.assertEqual([4], list(self.read(early)))
        self.assertTrue(self.changes.complete)
        self.assertEqual(0, self.purge())

    def test_a_clock_set_ahead_deletes_no_claim_that_is_new(self):
        seen = self.store.read_claims().seen
        self.write(claim(1))
        a_day_ahead = {name: sa.literal_column(f'{clock} + 86400')
                       for name, clock in sql.NOW.items()}
        with mock.patch.dict(sql.NOW, a_day_ahead):
            self.write(claim(2))
            self.assertEqual(0, self.purge(seen.number))
            # A worker that has not read since before the step.
            self.assertEqual([1, 2], sorted(self.read(seen)))
            self.assertEqual(1, self.purge())

    def test_a_withdrawal_stays_for_readers_for_a_while(self):
        self.write(claim(age_seconds=599.0))
        self.write(withdrawn=[claim()])
        self.age(claims.KEPT_SECONDS - 60)
        self.assertEqual(0, self.purge())
        self.assertEqual(store.WITHDRAWN, self.read()[1][0])

    def test_each_of_many_writers_reads_all_claims_before_its_own(self):
        # The room is for 10 claims; whoever reads 10 does not claim.
        writers, room = 4, 10
        numbers = iter(range(1000))

        def write(author):
            storage, since, counted, own = store.Store(self.url), None, 0, 0
            for _ in range(8):
                number = next(numbers)
                while True:
                    try:
                        with storage.claiming(since) as (changes, write):
                            others = len([
                                claimed for claimed in changes.claims
                                if not claimed.token.startswith(author)])
                            fits = counted + others + own < room
                            write([claim(number, token=f'{author}-1')] * fits)
                        break
                    except exceptions.StoreError:
                        # SQLite and a busy machine: the lock timed out.
                        pass
                since = changes.seen
                counted += others
                own += fits
            return own

        with concurrent.futures.ThreadPoolExecutor(writers) as pool:
            self.assertEqual(room, sum(pool.map(write, 'abcd')))
        self.assertEqual(room, len(self.read()))

    def test_every_reader_sees_every_claim_in_order(self):
        # Numbers are visible in their order, or a reader would miss some.
        writers, count = 4, 12
        over = threading.Event()

        def write(author):
            storage = store.Store(self.url)
            for number in range(count):
                while True:
                    try:
                        with storage.claiming() as (_, write):
                            write([claim(100 * author + number)])
                        break
                    except exceptions.StoreError:
                        pass

        def read():
            storage, position, received = store.Store(self.url), None, []
            while True:
                latest = over.is_set()
                changes = storage.read_claims(position)
                received.extend(changes.claims)
                position = changes.seen
                if latest:
                    return received

        with concurrent.futures.ThreadPoolExecutor(writers + 2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            for finished in [pool.submit(write, author)
                             for author in range(writers)]:
                finished.result()
            over.set()
            for reader in readers:
                received = reader.result()
                self.assertEqual(writers * count, len(received))
                numbers = [storage.number for storage in received]
                self.assertEqual(sorted(set(numbers)), numbers)

    def test_a_schema_of_another_version_or_none_is_named(self):
        actions = (self.store.read_claims, self.purge,
                   lambda: self.write(claim()))
        self.execute("UPDATE alembic_version SET version_num = '0003'")
        for action in actions:
            with self.assertRaisesRegex(exceptions.StoreVersionError,
                                        'db sync'):
                action()
        self.execute("UPDATE alembic_version SET version_num = :it",
                     it=tables.SCHEMA_VERSION)
        self.assertEqual({}, self.read())
        self.remove_store()
        for action in actions:
            with self.assertRaises(exceptions.StoreMissing):
                action()

    def test_a_damaged_claim_is_left_out_and_named(self):
        uuid = base.instance_uuid(1)
        for column, value in (('law', b'\x02abc'), ('state', 'odd')):
            self.write(claim(1), claim(2))
            self.execute(
                f'UPDATE claim SET {column} = :value WHERE instance_uuid = '
                f':uuid', value=value, uuid=uuid)
            with self.assertLogs('vswitch_aware_scheduler',
                                 'WARNING') as logged:
                self.assertEqual([2], list(self.read()))
                self.assertEqual([2], list(self.read()))
            self.assertIn(uuid, *logged.output)
            # The next claim of the instance replaces it.
            self.write(claim(1, token='t-2'))
            self.assertEqual({1, 2}, self.read().keys())

    def test_a_claim_that_cannot_be_stored_stops_no_other(self):
        refused = [claim(2, host='h\ud800'), claim(4, source='\udfff'),
                   claim(6, host='h' * 256),
                   claim(7, instance_uuid='u' * 37)]
        with self.assertLogs('vswitch_aware_scheduler', 'WARNING') as logged:
            self.write(claim(1), *refused, claim(3), withdrawn=refused)
        self.assertEqual([1, 3], list(self.read()))
        self.assertIn(base.instance_uuid(2), *logged.output)
        self.write(claim(5))
        self.assertEqual([1, 3, 5], list(self.read()))
