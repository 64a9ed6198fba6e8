# SPDX-License-Identifier: Apache-2.0
"""Who counts where, in any order of what arrives."""

import itertools
import random
import unittest

from tests.fakes import store as fake_store
from vswitch_aware_scheduler.scheduler import residency

A, B = 'cell-a', 'cell-b'
SMALL, LARGE = ('small', {'size': '1'}), ('large', {'size': '2'})


def stored(uuid, host, source=None):
    return fake_store.claim(instance_uuid=uuid, host=host, source=source)


def row(host, vm_state='active', task_state=None, flavors=(SMALL, None, None)):
    return residency.Row(host, vm_state, task_state, flavors)


class ResidencyTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.known = residency.Residency()
        self.read()

    def read(self, rows=None, moves=None, cell=A, deleted=(), after=1.0):
        """Let a reading that begins now be taken in."""
        self.now += after
        return self.known.take(residency.CellReading(
            cell, self.now, dict(rows or {}), frozenset(deleted),
            {number: move and residency.OngoingMove('x', *move)
             for number, move in (moves or {}).items()}))

    def observe(self, host, cell, uuids):
        self.known.observe([host], [cell], [uuids])

    def claim(self, host, uuid='x', source=None, foreign=False):
        self.now += 1.0
        self.known.claim(stored(uuid, host, source), self.now, foreign)

    def requests(self, *uuids, after=1.0):
        """Read which claimed instances have a build request: these ones."""
        self.now += after
        self.known.lack_build_requests(
            self.known.unseen().difference(uuids), self.now)

    def leave_over(self, dest):
        """Read a migration that a service left over when it died."""
        self.known.take(residency.CellReading(A, self.now, moves={
            1: residency.OngoingMove('x', 'a', dest, left_over=True)}))

    def check(self, *hosts):
        self.assertEqual(set(hosts), set(self.known.hosts_of('x')))
        on = {host for host in 'abcdh' if 'x' in self.known.residents(host)}
        self.assertEqual(set(hosts), on)

    def follow(self, *readings, **how):
        """Take readings in turn: (row of x or '', moves, its hosts then)."""
        for row_of_x, moves, hosts in readings:
            self.read({} if row_of_x == '' else {'x': row_of_x}, moves, **how)
            self.check(*hosts)

    @property
    def open(self):
        return len(self.known.claims)


class TestRecord(ResidencyTestCase):

    def test_an_instance_counts_on_the_host_that_keeps_it(self):
        self.follow(
            (row('a'), {}, 'a'), (row('b', 'stopped'), {}, 'b'),
            (row('b', 'shelved'), {}, 'b'),
            (row('b', 'soft-delete'), {}, 'b'), (row('b', 'error'), {}, 'b'),
            (row('b', 'building'), {}, 'b'),
            (row('b', 'shelved_offloaded'), {}, ''),
            (row(None, 'shelved'), {}, ''),
            (row('a', 'shelved_offloaded', 'unshelving'), {}, ''),
            # Nova's compute has claimed its resources for the instance.
            (row('a', 'shelved_offloaded', 'spawning'), {}, 'a'),
            (None, {}, ''))

    def test_a_migration_counts_at_both_ends_until_it_ends(self):
        self.follow(
            (row('a'), {1: ('a', None)}, 'a'), ('', {1: ('a', 'b')}, 'ab'),
            (row('b', 'resized'), {}, 'ab'), ('', {1: None}, 'b'),
            # Of what is no more it counts nowhere.
            ('', {2: ('b', 'c')}, 'bc'), (None, {}, ''), after=1e6)

    def test_one_that_was_left_over_ends_with_the_operation(self):
        # By a service that died: its status stays for ever.
        self.read({'x': row('a', task_state='migrating')})
        self.leave_over('b')
        self.check('a', 'b')
        self.follow((row('a', 'resized'), {}, 'ab'))
        for state in ('active', 'stopped', 'error', 'shelved'):
            self.follow((row('a', state), {}, 'a'))
            self.assertEqual(([SMALL], None), self.known.flavors('x', 'a'))
        # Another one that was not.
        self.follow(('', {2: ('a', 'c')}, 'ac'),
                    (row('a', task_state='migrating'), {}, 'abc'))

    def test_two_cells_that_have_it_both_count(self):
        # While a resize to another cell is not confirmed.
        self.read({'x': row('a')}, {1: ('a', 'b')})
        self.read({'x': row('b')}, {1: ('a', 'b')}, cell=B)
        self.check('a', 'b')
        self.read({'x': None}, {1: None})
        self.read(moves={1: None}, cell=B)
        self.check('b')

    def test_lists_count_until_the_cell_is_read(self):
        self.observe('h', B, ['x', 'y'])
        self.check('h')
        self.observe('h', B, ['y'])
        self.check()
        self.observe('h', B, ['x'])
        self.read({'x': row('a')}, cell=B)
        self.check('a')
        self.observe('h', B, ['x'])
        self.check('a')

    def test_a_list_says_nothing_about_what_its_cell_has(self):
        for host, uuids in (('a', ['x', 'y']), ('b', ['x', 'z'])):
            self.observe(host, B, uuids)
        self.check('a', 'b')
        # Rows that a reading of the cell has found so far: z has none.
        self.known.take(residency.CellReading(
            B, float('-inf'), {'x': row('b'), 'y': row('a')},
            complete=False))
        self.check('b')
        self.assertEqual({'b'}, self.known.hosts_of('z'))
        # The reading ends. A host changes only if its list was wrong.
        self.known.take_changed()
        self.read(cell=B)
        self.assertEqual({'b'}, self.known.take_changed())
        self.assertEqual(set(), self.known.hosts_of('z'))

    def test_of_a_cell_that_is_removed_unread_nothing_is_left(self):
        self.observe('h', B, ['x'])
        self.claim('h', 'y')
        self.known.forget_cells({A, B})
        self.assertEqual({'x', 'y'}, set(self.known.residents('h')))
        self.known.forget_cells({A})
        self.assertEqual([], self.known.residents('h'))

    def test_a_host_whose_cell_changes_lists_for_the_new_one(self):
        self.observe('h', B, ['x', 'y'])
        self.observe('h', 'cell-c', ['x'])
        self.check('h')
        self.assertEqual(set(), self.known.hosts_of('y'))
        self.read(cell=B)
        self.check('h')
        self.known.forget_host('h')
        self.check()
        self.assertEqual([], self.known.residents('h'))

    def test_flavors_are_those_that_the_host_keeps_room_for(self):
        self.read({'x': row('a', 'active', 'resize_prep',
                            (SMALL, None, LARGE))}, {1: ('a', 'b')})
        for flavors, at_a, at_b in (
                ((SMALL, None, LARGE), [SMALL], [LARGE]),
                ((LARGE, SMALL, LARGE), [SMALL], [LARGE])):
            self.read({'x': row('b', flavors=flavors)})
            self.assertEqual((at_a, None), self.known.flavors('x', 'a'))
            self.assertEqual((at_b, None), self.known.flavors('x', 'b'))
        self.read(moves={1: ('b', 'b')})
        self.assertEqual([SMALL, LARGE], self.known.flavors('x', 'b')[0])
        self.read({'x': row('b', flavors=(LARGE, None, None))}, {1: None})
        self.assertEqual([LARGE], self.known.flavors('x', 'b')[0])
        self.assertEqual(([], None), self.known.flavors('y', 'b'))

    def test_hosts_that_changed_are_named_once(self):
        self.known.take_changed()
        for place, changed in (
                (row('a'), {'a'}), (row('a'), set()),
                (row('a', flavors=(LARGE, None, None)), {'a'})):
            self.read({'x': place})
            self.assertEqual(changed, self.known.take_changed())
            self.assertEqual(set(), self.known.take_changed())
        self.claim('b')
        self.assertEqual({'a', 'b'}, self.known.take_changed())

    def test_what_is_under_way_is_looked_at_in_each_reading(self):
        self.read({'x': row('a'), 'y': row('a', 'building'),
                   'z': row('a', task_state='deleting')})
        self.claim('b', 'w')
        self.assertEqual({'w', 'y', 'z'}, self.known.unsettled(A))
        self.read({'y': row('a'), 'z': None}, {1: ('a', 'b')})
        self.assertEqual({'w', 'x'}, self.known.unsettled(A))
        self.assertEqual({'w'}, self.known.unsettled(B))


class TestClaims(ResidencyTestCase):

    def test_a_boot_is_bridged_until_a_later_reading_shows_it(self):
        self.claim('a')
        self.check('a')
        began = self.now - .5
        # A reading that began before the claim says nothing of it.
        self.known.take(residency.CellReading(A, began, {'x': row('b')}))
        self.assertEqual(1, self.open)
        self.check('a', 'b')
        self.follow((row(None, 'building', 'scheduling'), {}, 'a'), after=1e5)
        self.follow((row('a', 'building'), {}, 'a'))
        self.assertEqual(0, self.open)

    def test_the_source_of_a_move_does_not_end_its_claim(self):
        self.read({'x': row('a')})
        self.claim('b')
        self.check('a', 'b')
        self.follow((row('a', task_state='migrating'), {}, 'ab'),
                    ('', {1: ('a', None)}, 'ab'), after=1e5)
        self.follow(('', {1: ('a', 'b')}, 'ab'))
        self.assertEqual(0, self.open)
        # An abort.
        self.follow((row('a'), {1: None}, 'a'))

    def test_a_source_that_the_record_does_not_have_yet_is_none(self):
        self.claim('b')
        self.follow((row('a', task_state='resize_prep'), {}, 'ab'),
                    (row('b', task_state='resize_finish'), {}, 'b'))

    def test_a_claim_of_an_instance_at_rest_has_come_to_nothing(self):
        self.read({'x': row('a', task_state='migrating')})
        for moves_on in ('', row('a', task_state='migrating')):
            self.claim('b')
            self.follow((moves_on, {}, 'ab'), after=1e5)
            # Nova sets the task before it calls the scheduler.
            self.follow((row('a'), {}, 'a'))

    def test_a_resize_that_went_to_its_own_host_instead_frees_the_other(self):
        # As an alternate, for which Nova asks no filter.
        self.read({'x': row('a')})
        self.claim('b')
        self.follow(
            (row('a', task_state='resize_prep'), {1: ('a', None)}, 'ab'),
            (row('a', 'resized'), {1: ('a', 'a')}, 'a'))
        self.assertEqual(0, self.open)

    def test_a_migration_left_over_keeps_no_claim(self):
        self.read({'x': row('a')})
        self.leave_over('c')
        self.claim('b')
        self.follow((row('a', task_state='migrating'), {}, 'abc'),
                    (row('a'), {}, 'a'), after=61)

    def test_what_is_deleted_frees_its_host_at_once(self):
        self.claim('a')
        self.read({'x': None}, deleted=['x'])
        self.check()
        # But not while another cell has it.
        self.read({'x': row('a')}, cell=B)
        self.claim('b')
        self.read({'x': None}, deleted=['x'])
        self.check('a', 'b')

    def test_a_claim_of_what_is_nowhere_ends(self):
        self.observe('a', A, [])
        self.claim('a')
        for _ in range(2):
            self.requests('x')
            self.read()
            self.read(cell=residency.CELL0)
            self.check('a')
        self.assertEqual({'x'}, self.known.unseen())
        self.requests()
        self.assertEqual(set(), self.known.unseen())
        # Both cells have to be read later than the build requests.
        self.check('a')
        self.read()
        self.check('a')
        self.read(cell=residency.CELL0)
        self.check()

    def test_an_unshelved_instance_is_not_its_own_source(self):
        self.read({'x': row(None, 'shelved_offloaded', 'unshelving')})
        self.claim('a')
        self.follow((row('a', 'shelved_offloaded', 'spawning'), {}, 'a'))
        self.assertEqual(0, self.open)
        self.follow((row('a', 'shelved_offloaded'), {}, ''))

    def test_build_requests_are_read_again_for_a_second_claim(self):
        self.observe('a', A, [])
        self.claim('a')
        self.requests()
        self.claim('a')
        self.read()
        self.read(cell=residency.CELL0)
        self.check('a')

    def test_a_cell_that_is_dead_keeps_no_claim_of_another(self):
        self.read({'y': row('b')}, cell=B)
        self.observe('a', A, [])
        self.observe('b', B, [])
        self.claim('a')
        self.claim('b', 'z')
        self.requests(after=100)
        self.read()
        self.read(cell=residency.CELL0)
        self.check()
        self.assertEqual(['y', 'z'], self.known.residents('b'))

    def test_withdrawn_claims_leave_what_was_there(self):
        self.read({'x': row('a')})
        self.claim('b', foreign=True)
        for host, foreign, hosts in (
                ('b', False, 'ab'), ('a', True, 'ab'), ('b', True, 'a')):
            self.known.withdraw('x', host, foreign)
            self.check(*hosts)
        self.claim('b', foreign=True)
        self.claim('c')
        for host, foreign, hosts in (
                ('b', True, 'ac'), ('a', False, 'ac'), ('c', False, 'a'),
                ('c', False, 'a')):
            self.known.withdraw('x', host, foreign)
            self.check(*hosts)

    def test_a_second_try_counts_beside_the_first_until_one_is_shown(self):
        # The checks of a live migration refused b, or the compute b failed and
        # the alternate c has the resize.
        self.read({'x': row('a', task_state='migrating')}, {1: ('a', None)})
        self.claim('b')
        self.claim('c')
        self.follow(('', {}, 'abc'), ('', {1: ('a', 'c')}, 'ac'))
        self.assertEqual(0, self.open)
        # A migration from before the claim is not the claimed one.
        self.claim('b')
        self.follow(('', {}, 'abc'), (row('c'), {1: None}, 'c'))

    def test_a_migration_that_may_be_from_before_a_claim_keeps_it(self):
        self.claim('b', foreign=True)
        self.follow(
            (row('a', task_state='migrating'), {1: ('a', 'c')}, 'abc'))

    def test_what_another_cells_list_says_takes_nothing_from_a_host(self):
        # A compute that lists what is on another host.
        self.read({'x': row('a')})
        self.observe('b', A, ['x'])
        self.check('a')
        self.observe('b', B, ['x'])
        self.check('a', 'b')

    def test_the_last_word_of_other_workers_counts(self):
        self.claim('a', foreign=True)
        self.claim('b', foreign=True)
        self.check('b')
        # But for where it is moved from, and for claims of this worker.
        self.claim('c', foreign=True, source='b')
        self.check('b', 'c')
        self.claim('d')
        self.claim('c', foreign=True, source='d')
        self.check('c', 'd')
        self.claim('a', foreign=True)
        self.check('a', 'd')


class TestAnyOrder(unittest.TestCase):
    """Readings and claims of one cloud, in random order.

    The model is Nova itself: instances that boot, are rescheduled, move,
    resize, are reverted and deleted, in steps of a database. A worker reads
    at any time, hears of claims at any time, twice or never, and its claims
    are of its own requests or not.
    """

    HOSTS = 'abcd'

    def _run(self, seed):
        choose = random.Random(seed)
        now = 0.0
        rows, moves, deleted = {}, {}, set()
        numbers = itertools.count(1)
        requests = set()         # build requests
        operations = {}          # uuid -> steps that are left
        words = []               # claims that may be heard of
        worker = residency.Residency()
        for host in self.HOSTS:
            worker.observe([host], [A], [()])

        def read(cell=A):
            polled = worker.unsettled(cell)
            here = rows if cell == A else {}
            gone = (set(worker.rows.get(cell, ())) | polled) - here.keys()
            return residency.CellReading(
                cell, now, {**dict.fromkeys(gone), **here},
                frozenset(deleted & gone) if cell == A else frozenset(),
                {**dict.fromkeys(worker.moves.get(cell, ())), **(
                    moves if cell == A else {})})

        def claim(uuid, host):
            if choose.random() < .7:
                worker.claim(stored(uuid, host), now)
            else:
                words.append((uuid, host))

        def boot(uuid):
            host, other = choose.sample(self.HOSTS, 2)
            requests.add(uuid)
            claim(uuid, host)
            yield
            rows[uuid] = row(None, 'building', 'scheduling')
            requests.discard(uuid)
            yield
            rows[uuid] = row(host, 'building', 'spawning')
            if choose.random() < .3:
                yield
                rows[uuid] = row(None, 'building', 'scheduling')
                yield
                rows[uuid] = row(other, 'building', 'spawning')
                host = other
            yield
            rows[uuid] = row(host)

        def vanish(uuid):
            requests.add(uuid)
            claim(uuid, choose.choice(self.HOSTS))
            yield
            requests.discard(uuid)

        def move(uuid):
            source, dest = rows[uuid].host, choose.choice(self.HOSTS)
            number = next(numbers)
            rows[uuid] = row(source, task_state='prep')
            claim(uuid, dest)
            yield
            moves[number] = residency.OngoingMove(uuid, source, None)
            if choose.random() < .8:
                yield
                moves[number] = residency.OngoingMove(uuid, source, dest)
                yield
                rows[uuid] = row(dest, task_state='finish')
                yield
                rows[uuid] = row(dest, 'resized')
                if choose.random() < .4:
                    yield
                    rows[uuid] = row(source, task_state='revert')
                    dest = source
            yield
            del moves[number]
            yield
            rows[uuid] = row(dest)

        def delete(uuid):
            rows[uuid] = rows[uuid]._replace(task_state='deleting')
            yield
            del rows[uuid]
            deleted.add(uuid)

        def begin(operation, uuid):
            operations[uuid] = operation(uuid)
            next(operations[uuid])

        pending = []             # readings that are taken in later
        for _ in range(choose.randrange(40, 120)):
            now += choose.choice((.01, .5, 2, 70))
            idle = [uuid for uuid in rows if uuid not in operations]
            what = choose.random()
            if what < .2:
                begin(choose.choice((boot, boot, vanish)),
                      f'i{next(numbers)}')
            elif what < .35 and idle:
                begin(move, choose.choice(idle))
            elif what < .4 and idle:
                begin(delete, choose.choice(idle))
            elif what < .7 and operations:
                uuid = choose.choice(list(operations))
                if next(operations[uuid], 'ended') == 'ended':
                    del operations[uuid]
            elif what < .8 and words:
                uuid, host = choose.choice(words)
                worker.claim(stored(uuid, host), now, foreign=True)
                if choose.random() < .5:
                    words.remove((uuid, host))
            elif what < .95:
                if choose.random() < .3:
                    pending.append(read())
                elif pending:
                    # In their order: one thread reads a cell.
                    worker.take(pending.pop(0))
                else:
                    worker.take(read())
                self._check_recorded(worker, seed)
            else:
                worker.take(read(residency.CELL0))
                worker.lack_build_requests(
                    worker.unseen() - requests, now)
        # All has come to rest, and then all has been read twice.
        for steps in operations.values():
            for _ in steps:
                pass
        for reading in pending:
            worker.take(reading)
        for _ in range(2):
            now += .01
            worker.lack_build_requests(worker.unseen() - requests, now)
            now += .01
            worker.take(read())
            worker.take(read(residency.CELL0))
        self.assertEqual([], worker.claims, seed)
        for host in self.HOSTS:
            self.assertEqual(
                {uuid for uuid, one in rows.items() if one.host == host},
                set(worker.residents(host)), (seed, host))

    def _check_recorded(self, worker, seed):
        """At any time each instance counts at least where it was read."""
        claimed = {(claim.instance_uuid, claim.host)
                   for claim in worker.claims}
        expected = set(claimed)
        for uuid, one in worker.rows.get(A, {}).items():
            expected.add((uuid, one.host))
        for one in worker.moves.get(A, {}).values():
            if one.instance_uuid in worker.rows.get(A, {}):
                expected.update((one.instance_uuid, host)
                                for host in (one.source, one.dest))
        counted = {(uuid, host) for host in self.HOSTS
                   for uuid in worker.residents(host)}
        self.assertEqual({pair for pair in expected if pair[1]}, counted,
                         seed)

    def test_in_the_end_all_count_where_they_are_and_nowhere_else(self):
        for seed in range(600):
            self._run(seed)
