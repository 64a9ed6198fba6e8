# SPDX-License-Identifier: Apache-2.0

import logging
import types

from tests.unit.scheduler import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.scheduler import lookup


class TestDoubts(base.StateTestCase):

    def setUp(self):
        super().setUp()
        self.store.answers = [base.changes(1, {1: 60.0, 2: 50.0})]
        self.state = self.make_state()

    def _found(self, host, settled=True, confirmed=True):
        return types.SimpleNamespace(host=host, settled=settled,
                                     confirmed=confirmed, flavor=None)

    def test_a_placement_that_keeps_others_out_is_looked_up(self):
        self.ask(base.request(1), a=[])
        self.place(base.request(1), 'a')
        self.database[1] = None
        self.assertEqual({'a': .5}, self.ask(base.request(2)))
        self.assertEqual({'a': admission.ADMITTED}, self.reasons)
        self.assertEqual([1], self.looked_up)

    def test_one_that_keeps_nobody_out_is_not(self):
        self.ask(base.request(1), a=[], b=[])
        self.place(base.request(1), 'a')
        self.ask(base.request(7, egress_kbps=5))
        self.assertEqual([], self.looked_up)

    def test_one_still_under_way_counts_and_is_not_asked_for_again_soon(
            self):
        self.ask(base.request(1), a=[])
        self.place(base.request(1), 'a')
        self.database[1] = self._found(None, settled=False)
        for _ in range(3):
            self.assertEqual({'a': 1.1}, self.ask(base.request(2)))
        self.assertEqual([1], self.looked_up)
        self.clock.now += 1
        self.ask(base.request(2))
        self.assertEqual([1, 1], self.looked_up)

    def test_one_that_went_elsewhere_counts_there(self):
        self.ask(base.request(1), a=[], b=[])
        self.place(base.request(1), 'a')
        self.database[1] = self._found('b')
        self.assertEqual({'a': .5, 'b': 1.1}, self.ask(base.request(2)))

    def test_a_database_that_fails_is_told_and_nothing_changes(self):
        self.ask(base.request(1), a=[])
        self.place(base.request(1), 'a')
        self.database[1] = RuntimeError('database is down')
        self.assertEqual({'a': 1.1}, self.ask(base.request(2)))
        self.assertIn('database is down', self.warnings[0])

    def test_what_the_request_itself_has_placed_is_not_doubted(self):
        spec = base.request(1)
        self.ask(spec, a=[])
        self.place(spec, 'a')
        spec.instance_uuid = base.instance_uuid(2)
        self.assertEqual({'a': 1.1}, self.ask(spec))
        self.assertEqual([], self.looked_up)


class TestBeginning(base.StateTestCase):
    """A worker whose Nova lists what was long ago, or nothing yet."""

    def setUp(self):
        super().setUp()
        self.store.answers = [base.changes(1, {1: 10.0, 2: 20.0, 3: 40.0})]
        self.state = self.make_state()

    def test_who_is_there_counts_though_nobody_lists_it(self):
        self.on_hosts = {'a': {base.instance_uuid(2)},
                         'b': {base.instance_uuid(40)}}
        self.flavors = {base.instance_uuid(40): base.flavor(30)}
        for _ in range(2):
            self.assertEqual({'a': .3, 'b': .4}, self.ask(
                base.request(1), a=[], b=[]))
        self.assertEqual([['a', 'b']], self.asked_hosts)
        # A host that comes later is one to ask for too.
        self.ask(base.request(1), c=[])
        self.assertEqual([['a', 'b'], ['c']], self.asked_hosts)

    def test_one_that_is_elsewhere_counts_there_alone(self):
        self.on_hosts = {'b': {base.instance_uuid(2)}}
        self.assertEqual({'a': .1, 'b': .3}, self.ask(
            base.request(1), a=[2], b=[]))

    def test_one_that_its_host_lists_counts_once_and_goes_with_the_list(self):
        self.on_hosts = {'a': {base.instance_uuid(2)}}
        self.assertEqual({'a': .3}, self.ask(base.request(1), a=[]))
        self.assertEqual({'a': .3}, self.ask(base.request(1), a=[2]))
        self.assertEqual({'a': .1}, self.ask(base.request(1), a=[]))

    def test_one_nobody_ever_lists_expires(self):
        self.on_hosts = {'a': {base.instance_uuid(2)}}
        self.ask(base.request(1), a=[])
        self.clock.now += 10_000
        self.assertEqual({'a': .1}, self.ask(base.request(1)))

    def test_a_database_that_fails_is_asked_again_later(self):
        self.on_hosts = OSError('no route')
        for _ in range(2):
            self.assertEqual({'a': .1}, self.ask(base.request(1), a=[]))
        self.assertEqual(1, len(self.asked_hosts))
        self.assertIn('OSError: no route', self.log.texts(
            logging.WARNING)[-1])
        self.on_hosts = {'a': {base.instance_uuid(2)}}
        self.clock.now += 31
        self.assertEqual({'a': .3}, self.ask(base.request(1)))


class TestFullHosts(base.StateTestCase):
    """Hosts of 100 kbit/s whose lists are late."""

    def setUp(self):
        super().setUp()
        self.store.answers = [base.changes(1, {
            1: 60.0, **{number: 50.0 for number in range(2, 40)}})]
        self.state = self.make_state()

    def _gone(self, number):
        self.database[number] = None

    def _listed(self, **hosts):
        """Ask once, so that only full hosts are asked for afterwards."""
        self.ask(base.request(9, egress_kbps=1), **hosts)
        del self.asked_hosts[:], self.looked_up[:]

    def test_one_that_is_listed_and_no_more_keeps_nobody_out(self):
        self._listed(a=[2])
        self._gone(2)
        self.assertEqual({'a': .6}, self.ask(base.request(1)))
        self.assertEqual({'a': admission.ADMITTED}, self.reasons)
        self.assertEqual(([['a']], [2]), (self.asked_hosts, self.looked_up))
        # Whoever lists it for a while.
        del self.hosts['a'].instances[base.instance_uuid(2)]
        self.ask(base.request(1))
        self.hosts['a'].instances[base.instance_uuid(2)] = None
        self.assertEqual({'a': .6}, self.ask(base.request(1)))

    def test_one_that_is_elsewhere_counts_there(self):
        self._listed(a=[2], b=[3])
        self.on_hosts = {'b': {base.instance_uuid(number)
                               for number in (2, 3)}}
        self.database[2] = lookup.Found('b', True, True, None)
        self.ask(base.request(1))
        self.assertEqual({'a': admission.ADMITTED,
                          'b': admission.OVERLOAD}, self.reasons)

    def test_nobody_is_asked_while_any_host_passes(self):
        self._listed(a=[2], b=[])
        self.ask(base.request(1))
        self.assertEqual([], self.asked_hosts)

    def test_nobody_is_asked_where_residents_do_not_matter(self):
        self._listed(a=[])
        self.ask(base.request(80, egress_kbps=101))
        self.assertEqual({'a': admission.PEAK}, self.reasons)
        self.assertEqual([], self.asked_hosts)

    def test_who_is_there_stays_and_is_not_asked_for_again_soon(self):
        self._listed(a=[2])
        self.on_hosts = {'a': {base.instance_uuid(2)}}
        for _ in range(3):
            self.assertEqual({'a': 1.1}, self.ask(base.request(1)))
        self.assertEqual(([['a']], []), (self.asked_hosts, self.looked_up))
        self.clock.now += 6
        self.ask(base.request(1))
        self.assertEqual([['a'], ['a']], self.asked_hosts)

    def test_who_is_just_being_placed_is_not_missed(self):
        self._listed(a=[])
        self.place(base.request(2), 'a')
        self.assertEqual({'a': 1.1}, self.ask(base.request(1)))
        self.assertEqual([2], self.looked_up)    # as doubtful, and once
        self.assertEqual({'a': admission.OVERLOAD}, self.reasons)

    def test_those_that_lack_least_are_asked_for_first(self):
        names = [f'h{number:02}' for number in range(20)]
        self._listed(**{name: [10 + number]
                        for number, name in enumerate(names)})
        self.on_hosts = {name: {base.instance_uuid(10 + number)}
                         for number, name in enumerate(names)}
        self.ask(base.request(1))
        self.ask(base.request(1))
        self.assertEqual([names[:16], names[16:]], self.asked_hosts)

    def test_a_database_that_fails_is_told_and_left_alone(self):
        self._listed(a=[2])
        self.on_hosts = OSError('no route')
        for _ in range(2):
            self.assertEqual({'a': 1.1}, self.ask(base.request(1)))
        self.assertEqual(1, len(self.asked_hosts))
        self.assertIn('OSError: no route', self.warnings[-1])


class TestFlavors(base.StateTestCase):

    def setUp(self):
        super().setUp()
        self.store.answers = [base.changes(1, {1: 10.0, 2: 20.0, 3: 40.0})]
        self.state = self.make_state()

    def test_flavors_nobody_told_are_looked_up_once(self):
        self.flavors = {base.instance_uuid(40): base.flavor(30)}
        for _ in range(2):
            seen = self.ask(base.request(1, egress_kbps=10), a=[40, 41])
            unknown = self.state._default_law.mean[:2].sum() / 100
            self.assertAlmostEqual(.4 + unknown, seen['a'], 6)
        self.assertEqual([[base.instance_uuid(40), base.instance_uuid(41)]],
                         self.asked_flavors)

    def test_a_database_that_fails_is_not_asked_for_flavors_again_soon(self):
        self.flavors = OSError('no route')
        self.ask(base.request(1, egress_kbps=10), a=[40])
        self.ask(base.request(1, egress_kbps=10), a=[40, 41])
        self.assertEqual(1, len(self.asked_flavors))
        self.assertIn('OSError: no route', self.log.texts(
            logging.WARNING)[-1])
        self.clock.now += 31
        self.flavors = {base.instance_uuid(40): base.flavor(30),
                        base.instance_uuid(41): base.flavor(20)}
        self.assertEqual({'a': .6}, self.ask(base.request(
            1, egress_kbps=10), a=[40, 41]))
