# SPDX-License-Identifier: Apache-2.0
"""What schedulers tell each other, in the store."""

import concurrent.futures
import dataclasses
import itertools
import threading

from tests.fakes import store as fake_store
from tests.unit.store import base
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import claim_rows as claim_table
from vswitch_aware_scheduler.store import tables
from vswitch_aware_scheduler.vswitch import attachments

claim = fake_store.claim

STATES = (store.ASSUMED, store.MOVED, store.CONFIRMED, store.FORGOTTEN,
          store.EXPIRED)


class ClaimsTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.store = self.make_store()

    def read(self, since=None):
        """Return {number of the instance: (state, host, token)}."""
        self.changes = self.store.read_claims(since)
        self.seen = self.changes.seen
        return {int(claimed.instance_uuid[-12:], 16): (
            claimed.state, claimed.host, claimed.token)
                for claimed in self.changes.claims}

    def age(self, seconds):
        """Let all that is there be older."""
        self.execute('UPDATE claim SET expires_at = expires_at - :seconds',
                     seconds=seconds)

    def test_a_claim_comes_back_as_it_was(self):
        written = claim(source='h2', stated=False)
        self.assertEqual({}, self.store.write_claims([written]))
        stored, = self.store.read_claims().claims
        self.assertAlmostEqual(600.0, stored.seconds, delta=30.0)
        self.assertEqual(written, dataclasses.replace(
            stored, seconds=600.0, number=None, claimed_at=None))
        self.assertEqual(1, stored.number)
        self.assertIs(False, stored.stated)

    def test_what_it_is_attached_to_comes_back_as_it_was(self):
        attached = [None, attachments.Attachments(), attachments.Attachments(
            ('red', None, 'red')), attachments.Attachments(
                ('blue',), ('flat',), 2)]
        self.store.write_claims([
            claim(number, attachments=networks)
            for number, networks in enumerate(attached)])
        self.store.write_claims([claim(
            1, store.CONFIRMED, attachments=attached[1])])
        self.assertEqual(dict(enumerate(attached)), {
            int(networks.instance_uuid[-12:], 16): networks.attachments
            for networks in self.store.read_claims().claims})

    def test_damaged_networks_are_not_known(self):
        self.store.write_claims([claim()])
        for text in ('{', '7', '{"nets": []}'):
            self.execute('UPDATE claim SET networks = :text', text=text)
            stored, = self.store.read_claims().claims
            self.assertIsNone(stored.attachments)

    def test_a_reader_gets_what_is_new_oldest_first(self):
        self.assertEqual({}, self.read())
        self.assertTrue(self.changes.complete)
        self.store.write_claims([claim(3)])
        self.store.write_claims([claim(1, host='h2'), claim(2)])
        self.store.write_claims([claim(3, store.CONFIRMED)])
        self.assertEqual([1, 2, 3], sorted(self.read(self.seen)))
        self.assertFalse(self.changes.complete)
        self.assertEqual([2, 2, 3], [
            claimed.number for claimed in self.changes.claims])
        self.assertEqual({}, self.read(self.seen))
        # That it is over is told as well.
        self.store.write_claims([claim(2, store.FORGOTTEN, None)])
        self.assertEqual({2: (store.FORGOTTEN, None, 't-1')},
                         self.read(self.seen))

    def test_one_of_another_store_or_of_later_reads_everything(self):
        self.store.write_claims([claim()])
        self.read()
        for since in (dataclasses.replace(self.seen, store_id='other'),
                      dataclasses.replace(self.seen, number=9)):
            self.assertEqual([1], list(self.read(since)))
            self.assertTrue(self.changes.complete)

    def test_a_restored_store_is_read_from_the_start(self):
        self.store.write_claims([claim(1)])
        backup = self.content()
        self.store.write_claims([claim(2)])
        self.read()
        position = self.seen
        self.restore(backup)
        for number in (3, 4):
            self.store.write_claims([claim(number)])
            self.assertEqual([1, *range(3, number + 1)],
                             list(self.read(position)))
            self.assertTrue(self.changes.complete)
        self.store.write_claims([claim(5)])
        self.assertEqual([5], list(self.read(self.seen)))

    def test_every_pair_of_states_is_as_the_manual_says(self):
        # reference/claims.rst, "States".
        allowed = {
            ('assumed', 'moved'), ('assumed', 'confirmed'),
            ('assumed', 'forgotten'), ('assumed', 'expired'),
            ('moved', 'confirmed'), ('moved', 'forgotten'),
            ('confirmed', 'forgotten')}
        for number, (before, after) in enumerate(itertools.product(
                STATES, STATES)):
            with self.subTest(before=before, after=after):
                self.store.write_claims([claim(number)])
                self.store.write_claims([claim(number, before)])
                self.store.write_claims([claim(number, after, 'h2')])
                expected = (after, 'h2') if (before, after) in allowed \
                    else (before, 'h1')
                self.assertEqual(expected, self.read()[number][:2])

    def test_nothing_becomes_of_a_placement_nobody_told(self):
        self.store.write_claims([claim(1, store.CONFIRMED)])
        self.store.write_claims([claim(2)])
        self.store.write_claims([claim(2, store.CONFIRMED, token='t-0')])
        self.assertEqual({2: (store.ASSUMED, 'h1', 't-1')}, self.read())

    def test_another_placement_is_newer_whatever_was_before(self):
        for number, before in enumerate(STATES):
            self.store.write_claims([claim(number)])
            self.store.write_claims([claim(number, before)])
        self.read()
        later = [claim(number, token='u-1', host='h2',
                       based_on=self.seen.number)
                 for number in range(len(STATES))]
        self.assertEqual({}, self.store.write_claims(later))
        self.assertEqual({(store.ASSUMED, 'h2', 'u-1')},
                         set(self.read().values()))

    def test_a_claim_that_is_written_late_is_not_newer(self):
        # Its author could not write for a while and knew nothing of u-1.
        self.store.write_claims([claim(token='u-1', host='h2')])
        late = self.store.write_claims([claim(), claim(2)])
        self.assertEqual(['u-1'], [claimed.token for claimed in late.values()])
        self.assertEqual([base.instance_uuid(1)], list(late))
        self.assertEqual('u-1', self.read()[1][-1])
        self.assertEqual('t-1', self.read()[2][-1])
        # It knew where that one had put the instance.
        self.assertEqual({}, self.store.write_claims([
            claim(token='w-1', host='h3', source='h2')]))
        # What came of that one says nothing of when it was.
        self.store.write_claims([claim(2, store.CONFIRMED)])
        self.assertEqual({}, self.store.write_claims([
            claim(2, token='v-1')]))

    def test_of_one_author_the_later_placement_is_newer(self):
        # Which has not read yet what it has told itself.
        self.store.write_claims([claim()])
        self.assertEqual({}, self.store.write_claims([
            claim(token='t-2', host='h2')]))
        self.assertEqual(('assumed', 'h2', 't-2'), self.read()[1])
        # Told again since the answer was lost.
        self.store.write_claims([claim(), claim(token='t-2', host='h2')])
        self.assertEqual({}, self.read(self.seen))

    def test_telling_the_same_again_changes_nothing(self):
        # Whether a write whose answer was lost has happened is not known.
        written = [claim(), claim(2), claim(2, store.CONFIRMED)]
        self.store.write_claims(written)
        self.read()
        self.assertEqual({}, self.store.write_claims(written))
        self.assertEqual({}, self.read(self.seen))

    def test_many_are_told_at_once(self):
        self.store.write_claims([claim(number) for number in range(2000)])
        self.assertEqual(2000, len(self.read()))

    def test_what_has_run_out_is_purged_and_readers_do_not_miss_it(self):
        self.store.write_claims([claim(1), claim(2), claim(3)])
        self.assertEqual(0, self.store.purge_claims())
        self.read()
        early = self.seen
        self.store.write_claims([claim(2, store.CONFIRMED)])
        self.read()
        late = self.seen
        self.age(599.0)
        self.store.write_claims([claim(4)])
        self.age(2.0)
        self.assertEqual(3, self.store.purge_claims())
        self.assertEqual([4], list(self.read(late)))
        self.assertFalse(self.changes.complete)
        # One that has not heard of the confirmation has to read all.
        self.assertEqual([4], list(self.read(early)))
        self.assertTrue(self.changes.complete)
        self.assertEqual(0, self.store.purge_claims())

    def test_what_is_over_stays_for_readers_for_a_while(self):
        self.store.write_claims([claim(seconds=5.0)])
        self.store.write_claims([claim(1, store.EXPIRED, seconds=-5.0)])
        self.age(claim_table.KEPT_SECONDS - 60)
        self.assertEqual(0, self.store.purge_claims())
        self.assertEqual(store.EXPIRED, self.read()[1][0])

    def test_of_many_writers_every_reader_sees_every_word_in_order(self):
        # Numbers are visible in their order, or a reader would miss some.
        writers, count = 4, 12
        over = threading.Event()

        def write(author):
            storage = store.Store(self.url)
            for number in range(count):
                while True:
                    try:
                        storage.write_claims([claim(100 * author + number)])
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

    def test_a_schema_of_another_version_is_told_as_such(self):
        self.execute("UPDATE alembic_version SET version_num = '0003'")
        for action in (self.store.read_claims, self.store.purge_claims,
                       lambda: self.store.write_claims([claim()])):
            with self.assertRaisesRegex(exceptions.StoreVersionError,
                                        'db sync'):
                action()
        self.execute("UPDATE alembic_version SET version_num = :it",
                     it=tables.SCHEMA_VERSION)
        self.assertEqual({}, self.read())

    def test_a_store_without_a_schema_is_told_as_such(self):
        self.remove_store()
        for action in (self.store.read_claims,
                       lambda: self.store.write_claims([claim()])):
            with self.assertRaises(exceptions.StoreMissing):
                action()

    def test_a_claim_with_a_damaged_law_is_left_out_and_named(self):
        self.store.write_claims([claim(1), claim(2)])
        uuid = base.instance_uuid(1)
        self.execute('UPDATE claim SET law = :law WHERE instance_uuid = :uuid',
                     law=b'\x02abc', uuid=uuid)
        with self.assertLogs('vswitch_aware_scheduler', 'WARNING') as logged:
            self.assertEqual([2], list(self.read()))
            self.assertEqual([2], list(self.read()))
        self.assertIn(uuid, *logged.output)
        # The next word on the instance replaces it.
        self.store.write_claims([claim(1, token='t-2')])
        self.assertEqual([2, 1], list(self.read()))

    def test_a_row_that_makes_no_sense_stops_no_claim(self):
        for column in ('token', 'state'):
            self.store.write_claims([claim(1)])
            self.execute(f"UPDATE claim SET {column} = 'odd'")
            self.store.write_claims([claim(1, store.FORGOTTEN),
                                     claim(1, token='other-1'),
                                     claim(2, token='other-2')])
            self.assertIn(2, self.read())
            self.execute('DELETE FROM claim')

    def test_one_claim_that_cannot_be_stored_does_not_stop_others(self):
        refused = [claim(2, host='h\ud800'), claim(4, source='\udfff')]
        with self.assertLogs('vswitch_aware_scheduler', 'WARNING') as logged:
            self.store.write_claims([claim(1), *refused, claim(3)])
        self.assertEqual([1, 3], list(self.read()))
        self.assertIn(base.instance_uuid(2), *logged.output)
        self.store.write_claims([claim(5)])
        self.assertEqual([1, 3, 5], list(self.read()))
