# SPDX-License-Identifier: Apache-2.0

import collections
import gc
import logging
import threading
import time
from unittest import mock
import weakref

from nova import objects

from tests.fakes import store as fake_store
from tests.unit.scheduler import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.scheduler import residency
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import snapshot as snapshots
from vswitch_aware_scheduler.traffic import fourier_sum


class TestStart(base.StateTestCase):

    def test_making_one_opens_nothing(self):
        before = threading.active_count()
        self.make_state()
        self.assertEqual(before, threading.active_count())
        self.state.request_finished(True)
        self.make_store.assert_not_called()

    def test_the_first_request_reads_the_store(self):
        self.store.answers = [base.changes(1, {7: 40.0})]
        self.assertEqual({'a': .5}, self.ask(
            base.request(9, egress_kbps=10), a=[7]))
        self.assertEqual([], self.warnings)

    def test_a_default_profile_holds_for_hosts_without_one(self):
        self.state = self.make_state(default_switch_profile='ovs-flat')
        assessment, _ = self.state.assess([base.host_state('a')],
                                          base.request(9))
        self.assertEqual([True], assessment.known.tolist())

    def test_a_store_url_that_cannot_be_used_is_logged(self):
        self.make_store.side_effect = exceptions.StoreError('bad URL')
        self.ask(a=[])
        text, = [text for text in self.warnings if 'store: ' in text]
        self.assertIn('bad URL; deciding on what is known', text)


class TestUnlimited(base.StateTestCase):
    """No host has a profile."""

    def setUp(self):
        super().setUp()
        self.aggregate = base.aggregate()

    def assert_logged(self, times):
        logged = [text for text in self.warnings if 'no host that requests '
                  'have been for has a switch profile' in text]
        self.assertEqual(times, len(logged))
        for text in logged:
            self.assertIn('lets every instance pass; set [vswitch_scheduler]/'
                          'default_switch_profile', text)

    def test_it_is_logged_once_with_and_without_a_store(self):
        for answer in (base.changes(1), exceptions.StoreMissing('gone')):
            self.store.answers = [answer] * 9
            self.state = self.make_state()
            self.log.clear()
            for number in range(5):
                self.ask(base.request(9, egress_kbps=1e9), a=[], b=[number])
            self.refresh()
            self.ask()
            self.assert_logged(1)

    def test_one_host_with_a_limit_is_enough(self):
        self.ask(a=[])
        self.aggregate = base.aggregate(**base.HUNDRED)
        self.ask(b=[])
        self.assertEqual(['vswitch: switch profiles of hosts is well again'],
                         [text for text in self.infos if 'profiles' in text])
        self.ask()
        self.assert_logged(1)

    def test_an_uplink_is_a_limit(self):
        self.aggregate = base.aggregate(uplink='tor',
                                        uplink_saturation_kbps='100')
        self.ask(a=[])
        self.assert_logged(0)

    def test_the_last_limit_that_goes_is_noticed(self):
        self.aggregate = base.aggregate(**base.HUNDRED)
        self.ask(a=[])
        self.aggregate = base.aggregate()
        self.ask(a=[])
        self.assert_logged(0)
        self.refresh()
        self.ask()
        self.assert_logged(1)

    def test_bare_metal_needs_none(self):
        metal = base.host_state('a')
        metal.hypervisor_type = 'ironic'
        self.state.assess([metal], base.request(9))
        self.assert_logged(0)
        self.state.assess([metal, base.host_state('b')], base.request(9))
        self.assert_logged(1)


class TestDemands(base.StateTestCase):

    LAWS = {1: 10.0, 2: 20.0}

    def test_learned_models_count_and_unknown_ones_by_the_default(self):
        # 10 kbit/s a quarter of the time.
        self.state = self.make_state(
            default_egress_kbps=6, default_ingress_kbps=4,
            default_on_seconds=10, default_off_seconds=30)
        self.assertEqual({'a': .175, 'b': .125}, self.ask(a=[7, 8, 9], b=[5]))
        self.assertEqual('model', self.demand.rule)

    def test_unknown_ones_may_be_ignored(self):
        self.state = self.make_state(unknown_instance_policy='ignore')
        self.assertEqual({'a': .3}, self.ask(a=[7, 8, 2]))

    def test_without_any_snapshot_nothing_counts_but_what_is_stated(self):
        self.store.answers = [exceptions.StoreError('gone')]
        for spec, load, rule in (
                (base.request(1), 0.0, 'unknown'),
                (base.request(1, egress_kbps=50), .5, 'flavor')):
            self.assertEqual({'a': load}, self.ask(spec, a=[7, 8]))
            self.assertEqual(rule, self.demand.rule)

    def test_one_that_moves_is_not_counted_on_its_own_host(self):
        self.assertEqual({'a': .3, 'b': .1}, self.ask(a=[1, 2], b=[]))

    def test_a_host_listed_twice_in_a_request_is_judged_twice(self):
        host = base.host_state('a', [], [self.aggregate])
        assessment, _ = self.state.assess([host, host], base.request(1))
        self.assertEqual(2, len(assessment.admitted))


class TestGuarantees(base.StateTestCase):
    """What ports guarantee is chosen by the tenant."""

    LAWS = {7: 90.0}

    def test_a_large_guarantee_is_reserved_and_a_small_one_lowers_nothing(
            self):
        def utilisation(spec, kbps, **listed):
            spec.requested_resources = [objects.RequestGroup(
                resources={'NET_BW_EGR_KILOBIT_PER_SEC': kbps})]
            return self.ask(spec, **listed)['a']

        self.assertEqual(.9, utilisation(base.request(7), 1, a=[]))
        spec = base.request(1, egress_kbps=20)
        self.assertEqual(.95, utilisation(spec, 95))
        self.place(spec, 'a')
        self.assertEqual(1.85, utilisation(base.request(7), 1))
        utilisation(base.request(3), 101, a=[])
        self.assertEqual(admission.PEAK, self.reasons['a'])


class TestPlacements(base.StateTestCase):

    LAWS = {1: 10.0, 2: 20.0, 3: 40.0}

    def test_what_was_placed_counts_at_once_and_once(self):
        self.ask(a=[], b=[])
        self.place(base.request(1), 'a')
        self.assertEqual({'a': .3, 'b': .2}, self.ask(base.request(2)))
        # The host reports it.
        self.assertEqual({'a': .3, 'b': .2}, self.ask(base.request(2), a=[1]))

    def test_a_multi_create_request_fills_a_host_as_it_goes(self):
        spec = base.request(11, egress_kbps=30)
        placed = []
        for number in range(11, 16):
            spec.instance_uuid = base.instance_uuid(number)
            self.ask(spec, a=[])
            if self.reasons['a'] == admission.ADMITTED:
                placed.append(number)
                self.place(spec, 'a')
        self.assertEqual([11, 12, 13], placed)

    def test_one_that_never_arrives_counts_until_the_record_is_at_rest(self):
        self.ask(a=[])
        self.place(base.request(1), 'a')
        self.clock.now += 5000
        self.assertEqual({'a': .3}, self.ask(base.request(2)))
        self.take_rows({1: residency.Row(None, 'error', None)})
        self.assertEqual({'a': .2}, self.ask(base.request(2)))
        self.assertIn(base.instance_uuid(1), '\n'.join(
            self.log.texts(logging.DEBUG)))

    def test_a_rebuild_and_a_request_without_an_instance_place_nothing(self):
        for spec in (base.request(3, check_type='rebuild'), base.request()):
            self.assertEqual({'a': .5}, self.ask(a=[3]))
            self.place(spec, 'a')
            self.assertEqual({'a': .5}, self.ask())
            self.assertEqual([], self.state.counted()['a']['claimed'])

    def test_the_demand_that_its_flavor_states_counts_until_it_has_a_model(
            self):
        self.ask(base.request(9), a=[])
        self.place(base.request(9, egress_kbps=30), 'a')
        self.recorded_flavors = {9: {'vswitch:egress_kbps': '30'}}
        self.ask(a=[9])
        self.assertEqual([], self.state._residency.claims)
        self.clock.now += 5000
        self.assertEqual({'a': .4}, self.ask())
        self.refresh(base.changes(2, {9: 70.0}))
        self.assertEqual({'a': .8}, self.ask())

    def test_a_default_demand_is_not_remembered(self):
        self.store.answers = [exceptions.StoreError('gone'),
                              base.changes(1, {1: 10.0})]
        self.ask(base.request(9), a=[])
        self.place(base.request(9), 'a')
        self.ask(a=[9])
        self.refresh()
        default = self.state._default_law.mean[:2].sum() / 100
        self.assertAlmostEqual(.1 + default, self.ask()['a'], 6)

    def test_a_request_that_succeeds_leaves_what_it_placed(self):
        self.ask(a=[])
        self.place(base.request(1), 'a')
        self.state.request_finished(False)
        self.state.request_finished(True)
        self.assertEqual({'a': .3}, self.ask(base.request(2)))

    def test_a_move_that_fails_leaves_the_instance_where_it_is(self):
        self.busy = {3}
        self.ask(base.request(3), a=[3], b=[])
        self.place(base.request(3), 'b')
        self.assertEqual({'a': .5, 'b': .5}, self.ask())
        self.state.request_finished(True)
        self.assertEqual({'a': .5, 'b': .1}, self.ask())


class TestRecall(base.StateTestCase):

    LAWS = {1: 10.0, 2: 20.0, 3: 1e6}

    def setUp(self):
        super().setUp()
        self.spec = base.request(1)

    def _recall(self, hosts, spec=None):
        with mock.patch.object(self.state, 'assess',
                               wraps=self.state.assess) as asked:
            assessment, where = self.state.recall(
                [self.hosts[host] for host in hosts], spec or self.spec)
        self.asked = asked.call_count
        return [round(value, 9) for value in
                assessment.utilisation[list(where)].tolist()]

    def test_after_the_filter_nothing_is_computed_again(self):
        self.ask(self.spec, a=[], b=[2], c=[5])
        self.assertEqual([.3, .1], self._recall('ba'))
        self.assertEqual(0, self.asked)

    def test_the_hosts_that_passed_are_found_in_any_request(self):
        self.ask(self.spec, a=[3], b=[2], c=[])
        passing = [self.hosts['b'], self.hosts['c']]
        self.state.hosts_filtered(passing)
        self.assertEqual([.3, .1], self._recall('bc'))
        self.assertEqual(0, self.asked)
        # Of the same hosts in another order, which no filter has passed.
        self.state.hosts_filtered(passing)
        self.state.assess([*passing[::-1], self.hosts['a']], self.spec)
        self.assertEqual([.3, .1], self._recall('bc'))
        self.assertEqual(0, self.asked)

    def test_another_request_instance_host_or_load_is_computed(self):
        def other_host():
            self.hosts['b'] = base.host_state('b', [2], [self.aggregate])

        for spec, change in (
                (base.request(1), None),
                (self.spec, lambda: setattr(
                    self.spec, 'instance_uuid', base.instance_uuid(2))),
                (self.spec, other_host),
                (self.spec, lambda: self.state._table.describe(
                    'a', admission.HostPolicy(None), {}))):
            self.spec.instance_uuid = base.instance_uuid(1)
            self.ask(self.spec, a=[], b=[2])
            if change:
                change()
            self._recall('ab', spec)
            self.assertEqual(1, self.asked)

    def test_a_new_snapshot_in_between_is_used(self):
        self.ask(self.spec, a=[], b=[2])
        self.refresh(base.changes(2, {2: 40.0}))
        self.assertEqual([.1, .5], self._recall('ab'))

    def test_a_request_without_an_instance_is_answered_too(self):
        spec = base.request(egress_kbps=10)
        self.ask(spec, a=[], b=[2])
        self.assertEqual([.1, .3], self._recall('ab', spec))

    def test_of_a_request_that_has_ended_nothing_is_kept(self):
        self.ask(a=[])
        host = weakref.ref(self.hosts.pop('a'))
        self.state.request_finished(True)
        gc.collect()
        self.assertIsNone(host())

    def test_without_a_filter_it_judges_by_itself(self):
        self.hosts['a'] = base.host_state('a', [], [self.aggregate])
        self.record(a=[2])
        self.assertEqual([.3], self._recall('a'))


class TestUnreadCells(base.StateTestCase):
    """Where a cell was never read, Nova's lists stand in for it."""

    LAWS = {number: float(number) for number in range(1, 30)}

    def setUp(self):
        super().setUp()
        for host, numbers in {'a': [10], 'b': [20]}.items():
            self.hosts[host] = base.host_state(host, numbers, [self.aggregate])
            self.hosts[host].cell_uuid = 'unread'

    def _read(self, *numbers, host='a', **more):
        self.take_rows({number: residency.Row(host, 'active', None)
                        for number in numbers}, 'unread', **more)

    def _list(self, *numbers):
        self.hosts['a'].instances = {
            base.instance_uuid(number): None for number in numbers}

    def test_what_nova_lists_counts_and_it_is_logged_once(self):
        for _ in range(2):
            self.assertEqual({'a': .11, 'b': .21}, self.ask())
        self.assertEqual(1, len(self.warnings))
        self.assertIn("Nova's lists", self.warnings[0])

    def test_what_a_list_loses_and_gains_is_seen_in_any_place(self):
        for listed, load in (
                ([10, 11, 12], .34), ([], .01), ([10, 11, 12], .34),
                ([14, 12, 13], .40), ([15, 12, 13], .41),
                ([14, 12, 13], .40)):
            self._list(*listed)
            self.assertEqual({'a': load, 'b': .21}, self.ask())
        # In the dictionary that Nova had before.
        instances = self.hosts['a'].instances
        del instances[base.instance_uuid(14)]
        instances[base.instance_uuid(10)] = None
        self.assertEqual({'a': .36, 'b': .21}, self.ask())

    def test_another_order_of_hosts_is_no_change(self):
        for read in (False, True):
            if read:
                self._read(10)
            self.ask()
            version = self.state._table.version
            self.state._described.clear()
            for _ in range(2):
                self.hosts = dict(reversed(self.hosts.items()))
                for host in self.hosts.values():
                    host.instances = dict(host.instances)
                self.ask()
            self.assertEqual(version, self.state._table.version)
            self.assertEqual(set(), self.state._described)

    def test_once_the_cell_is_read_the_lists_say_nothing(self):
        self.ask()
        self._read(5, complete=False)
        self.assertEqual({'a': .16, 'b': .21}, self.ask())
        self._read(7)
        self.assertEqual({'a': .13, 'b': .01}, self.ask())
        self.assertEqual(['vswitch: hosts of unread cells is well again'],
                         self.infos)
        # They do not describe a host either.
        self.state._described.clear()
        self.clock.now += 2
        self.hosts['a'].instances[base.instance_uuid(20)] = None
        self.assertEqual({'a': .13, 'b': .01}, self.ask())
        self.assertEqual(set(), self.state._described)

    def test_hosts_that_change_all_the_time_are_described_now_and_then(self):
        # During the first reading of another cell, for example.
        self.ask()
        describe = admission.LoadTable.describe

        def slow(*arguments):
            self.clock.now += 1.0
            return describe(*arguments)

        with mock.patch.object(admission.LoadTable, 'describe', autospec=True,
                               side_effect=slow) as described:
            for piece in range(100):
                # A tenth of a second each.
                self._read(piece % 20 + 1, host='ab'[piece // 20 % 2],
                           complete=piece % 2)
                self.clock.now += .1
            # A quarter of the time, after the first.
            self.assertIn(described.call_count, range(3, 9))
            self._read(21)
        # The one that asks is among them.
        self.assertEqual({'a': sum(range(1, 22)) / 100, 'b': .01}, self.ask())


class TestHosts(base.StateTestCase):

    LAWS = {number: float(number) for number in range(1, 30)}

    def test_hosts_may_come_in_another_order_and_with_others(self):
        self.ask(a=[10], b=[20])
        self.hosts = dict(reversed(self.hosts.items()))
        self.assertEqual({'b': .21, 'a': .11}, self.ask())
        self.assertEqual({'b': .21, 'a': .11, 'c': .06}, self.ask(c=[5]))

    def test_a_host_that_is_not_asked_for_is_up_to_date_when_it_is(self):
        self.ask(a=[10], b=[])
        other = self.hosts.pop('b')
        self.ask(a=[])
        self.place(base.request(20), 'a')
        self.state.host_consumed(other, base.request(5))
        self.ask()
        self.hosts['b'] = other
        self.assertEqual({'a': .21, 'b': .06}, self.ask())

    def _node(self, host, name, number, cell=base.CELL):
        """Return a compute node of a host, of a name of its own."""
        node = base.host_state(host, [], [self.aggregate])
        node.nodename, node.uuid = name, base.instance_uuid(number)
        node.cell_uuid = cell
        return node

    def _ask_each_minute(self, minutes, **listed):
        for _ in range(minutes):
            self.clock.now += 60
            self.ask(**listed)
            self.state.refresh()

    def _adopt(self, kind=snapshots.Snapshot):
        """Adopt a snapshot that has the same models."""
        earlier = self.state._snapshot
        snapshot = kind(earlier.generation, earlier._laws)
        self.state._adopt(snapshot)
        self.assertIs(snapshot, self.state._snapshot)

    def test_a_renamed_hypervisor_keeps_what_is_on_its_host(self):
        self.ask(a=[10])
        self.hosts['a'] = self._node('a', 'renamed', 99)
        self.assertEqual({'a': .11}, self.ask())
        spec = base.request(20)
        self.state.request_started()
        self.ask(spec)
        self.assertEqual('a', base.choose(self.state, [self.hosts['a']], spec))
        self.assertEqual({'a': .31}, self.ask())

    def test_hypervisors_of_one_name_in_two_cells_are_two_hosts(self):
        self.ask(a=[10], b=[20])
        self.hosts = {'a': self._node('a', 'n', 98),
                      'b': self._node('b', 'n', 99, base.instance_uuid(97))}
        self.assertEqual({'a': .11, 'b': .21}, self.ask())

    def test_hosts_of_one_name_in_two_cells_count_together(self):
        # Nova maps a name to one cell only: whatever it has placed there.
        self.ask(a=[10])
        cell = base.instance_uuid(97)
        self.take_rows({20: residency.Row('a', 'active', None)}, cell)
        for _ in range(2):
            assessment, _ = self.state.assess(
                [self._node('a', 'a', 98), self._node('a', 'b', 99, cell)],
                base.request(1))
            self.assertEqual([.31, .31], [
                round(one, 9) for one in assessment.utilisation.tolist()])

    def test_names_of_hosts_that_are_gone_are_dropped(self):
        kept = base.host_state('kept', [], [self.aggregate])
        for minute in range(40):
            self.hosts = {'kept': kept}
            self._ask_each_minute(1, **{
                f'h{minute}-{number}': [] for number in range(20)})
        for names in (self.state.counted(), self.state._listings,
                      self.state._counts, self.state._had_at,
                      self.state._aggregates._aggregates_of,
                      self.state._residency._cell_of):
            self.assertLess(len(names), 100)
            self.assertIn('kept', names)
        self.assertLess(len(self.state._table), 100)

    def test_a_wrong_value_that_is_removed_is_no_problem_any_more(self):
        for wrong in ({'max_tunnels': 'few'},
                      {'uplink': 'tor', 'uplink_saturation_kbps': 'nan'}):
            self.aggregate = base.aggregate(**wrong)
            self.ask(a=[])
            self.assertIn('expected', str(self.state.report.problems()))
            self.aggregate = base.aggregate(**base.HUNDRED)
            self.ask(a=[])
            self.assertEqual({}, self.state.report.problems())

    def test_problems_of_hosts_that_are_gone_are_dropped(self):
        self.ask(kept=[])
        topics = 'host gone', 'host gone vswitch_weight_multiplier'
        with mock.patch.object(self.state._aggregates, 'policy', autospec=True,
                               side_effect=ValueError('wrong')):
            self.ask(kept=[], gone=[])
        self.state.report(topics[1], 'wrong')
        self.assertLessEqual({*topics}, self.state.report.problems().keys())
        del self.hosts['gone']
        self._ask_each_minute(3, kept=[])
        self.assertNotIn('gone', self.state.counted())
        self.assertEqual({}, self.state.report.problems())
        self.assertEqual([], [text for text in self.infos if 'well' in text])

    def test_names_that_an_uplink_no_longer_lists_are_dropped(self):
        for minute in range(40):
            self.aggregate = base.aggregate(
                uplink='tor', uplink_saturation_kbps='100')
            self.aggregate.id = 1
            self.aggregate.hosts = ['kept'] + [
                f'h{minute}-{number}' for number in range(20)]
            self._ask_each_minute(1, kept=[])
        for names in (self.state.counted(),
                      self.state._aggregates._aggregates_of):
            self.assertEqual({'kept', *self.aggregate.hosts}, set(names))

    def test_what_changes_while_a_snapshot_is_adopted_waits_for_no_request(
            self):
        hosts = [f'host{number}' for number in range(40)]
        self.ask(**{host: [] for host in hosts})
        test = self

        class Adopted(snapshots.Snapshot):
            left = 2

            def host_profile(self, host):
                if self.left:
                    # Many hosts each time, the same ones with others.
                    self.left -= 1
                    test.record(**{
                        name: [number + 10 * self.left] for number, name
                        in enumerate(hosts[:9], 2)})
                    test.state._outdated.update(hosts)
                    test.state._describe_due()
                return None

        self._adopt(Adopted)
        self.assertLessEqual(len(self.state._outdated), 16)
        self.assertEqual({
            host: round(.01 * (number + 3 if number < 9 else 1), 9)
            for number, host in enumerate(hosts)}, self.ask())

    def test_the_first_request_after_an_adoption_makes_no_table(self):
        self.state = self.make_state(
            default_egress_kbps=1, default_ingress_kbps=1)
        self.ask(**{f'host{number}': [number + 2] for number in range(12)})
        large = base.request(40, egress_kbps=99)
        before = self.ask(large)
        table, made = fourier_sum.Grid.table, []

        def counted(grid, spectra, means):
            made.extend(spectra)
            return table(grid, spectra, means)

        with mock.patch.object(fourier_sum.Grid, 'table', counted):
            self._adopt()
            self.assertEqual(12, len(made))
            made.clear()
            self.assertEqual(before, self.ask(large))
        self.assertEqual([], made)

    def test_an_adoption_lets_others_run_after_every_few_hosts(self):
        # It holds the lock for one host, and pauses after four.
        self.ask(**{f'host{number}': [2] for number in range(30)})
        described, held, pauses = [], [], [0]

        class Counted(snapshots.Snapshot):
            def host_profile(self, host):
                described.append(host)
                return None

        class Lock:
            def __enter__(self):
                lock.acquire()
                self.before = len(described)

            def __exit__(self, *error):
                held.append(len(described) - self.before)
                lock.release()

        lock, self.state._lock = self.state._lock, Lock()
        self.addCleanup(setattr, self.state, '_lock', lock)
        with mock.patch.object(
                time, 'sleep',
                lambda seconds: pauses.append(len(described))):
            self._adopt(Counted)
        self.assertEqual((30, 1), (sum(held), max(held)))
        self.assertEqual(30, max(pauses))
        self.assertLessEqual(max(
            after - before for before, after in zip(pauses, pauses[1:])), 4)

    def test_what_was_judged_before_an_adoption_explains_itself(self):
        self.ask(a=[29], b=[])
        request = base.request(40, egress_kbps=72)
        judged, _ = self.state.assess([self.hosts['a']], request)
        words, before = judged.explain(0), self.state._table
        self._adopt()
        self.assertEqual({}, before.residents('a'))
        self.assertEqual(words, judged.explain(0))

    def test_hosts_are_kept_while_there_is_no_request(self):
        self.ask(a=[], b=[2])
        self.clock.now += 100000
        self.state.refresh()
        self.assertEqual({'a', 'b'}, self.state.counted().keys())
        self.assertEqual({'a': .01, 'b': .03}, self.ask())

    def test_a_host_with_instances_is_kept(self):
        self.ask(a=[2], b=[])
        del self.hosts['a'], self.hosts['b']
        self._ask_each_minute(5, c=[])
        self.assertEqual({'a', 'c'}, self.state.counted().keys())

    def test_a_host_that_cannot_be_described_harms_no_other(self):
        describe = admission.LoadTable.describe

        def fail(table, host, policy, residents):
            if host == 'b' and residents:
                raise OverflowError('too large')
            return describe(table, host, policy, residents)

        with mock.patch.object(admission.LoadTable, 'describe', fail):
            self.assertEqual({'a': .11, 'b': 0.0}, self.ask(a=[10], b=[20]))
        self.assertEqual({'a': 0, 'b': 0}, self.reasons)
        self.assertIn('host b: OverflowError: too large', self.warnings[0])


class TestClaims(base.StateTestCase):
    """A host is judged again, and claimed, before Placement claims it."""

    def setUp(self):
        super().setUp()
        self.spec = base.request(1, egress_kbps=60)
        self.ask(self.spec, a=[], b=[], c=[])
        self.state.request_started()

    def _filter(self):
        states = list(self.hosts.values())
        assessment, _ = self.state.assess(states, self.spec)
        passing = [one for one, fits in zip(
            states, assessment.admitted.tolist()) if fits]
        self.state.hosts_filtered(passing)
        return passing

    def _choose(self, hosts):
        """Return the first host that can be claimed, as Nova tries them."""
        return base.choose(self.state, hosts, self.spec)

    @staticmethod
    def _in_another_thread(request):
        base.start_all([threading.Thread(target=request)])()

    def _others_place(self, *hosts):
        with self.state._lock:
            for number, host in enumerate(hosts, 50):
                self.state._count(fake_store.claim(
                    number, host, law=base.constant(60)), foreign=True)

    def _claims(self):
        return {claim.host for claim in self.state._residency.claims
                if claim.instance_uuid == self.spec.instance_uuid}

    def test_hosts_that_were_dropped_while_the_request_waited_are_judged(self):
        passing, self.hosts = self._filter(), {}
        for _ in range(3):
            self.clock.now += 60
            self._in_another_thread(
                lambda: self.ask(base.request(2), other=[]))
            self.state.refresh()
        self.assertEqual({'other'}, set(self.state.counted()))
        self._others_place('a')
        self.assertEqual('b', self._choose(passing))
        self.assertEqual({'b'}, self._claims())

    def test_the_first_that_fits_is_claimed_until_the_request_fails(self):
        # A tenant may mark a boot as a rebuild.
        for check_type in (None, 'rebuild'):
            self.spec = base.request(1, check_type=check_type, egress_kbps=60)
            self.assertEqual('a', self._choose(self._filter()))
            self.assertEqual({'a'}, self._claims())
            self.state.request_finished(True)
            self.assertEqual(set(), self._claims())
            self.state.request_started()

    def test_each_host_that_nova_tries_is_judged_again(self):
        hosts = self._filter()
        self._others_place('a', 'b')
        self.assertEqual('c', self._choose(hosts))
        self.assertEqual({'c'}, self._claims())
        # Nova offers no host as an alternate that has no candidate.
        self.assertEqual([[], [], ['candidate']], [
            host.allocation_candidates for host in hosts])
        self.assertEqual((3, 2), (
            self.state.claims.counts['claims_made'],
            self.state.claims.counts['claim_conflicts']))

    def test_a_host_that_fills_up_after_placement_refused_the_first(self):
        hosts = self._filter()
        self.assertTrue(self.state.claim_host({hosts[0].uuid}, self.spec))
        self.assertEqual({'a'}, self._claims())
        self.state.claim_failed(self.spec.instance_uuid)
        self.assertEqual(set(), self._claims())
        self._others_place('b')
        self.assertEqual('c', self._choose(hosts[1:]))

    def test_a_judgement_by_the_weigher_lets_no_host_stay(self):
        # Others place between the filter and the weigher, which judges again
        # and keeps each host.
        hosts = self._filter()
        self._others_place('a')
        self._in_another_thread(
            lambda: self.state.assess(hosts, base.request(2)))
        self.state.recall(hosts, self.spec)
        self.assertEqual('b', self._choose(hosts))
        self.assertEqual({'b'}, self._claims())

    def test_hosts_that_no_filter_has_judged_are_not_refused(self):
        # Forced hosts, or a scheduler without the filter.
        hosts = list(self.hosts.values())
        self._others_place('a')
        self.assertEqual('a', self._choose(hosts))
        self.assertEqual({'a'}, self._claims())

    def test_outside_a_request_nothing_is_claimed(self):
        # nova-conductor calls the same function for an alternate.
        hosts = self._filter()
        self.state.request_finished(False)
        self.assertTrue(self.state.claim_host({hosts[0].uuid}, self.spec))
        self.assertEqual(set(), self._claims())

    def test_refusals_by_a_claim_that_is_withdrawn_are_counted(self):
        # Before the request fails, or later; three hosts were refused to it.
        for counted, early in enumerate((True, False), 1):
            hosts = self._filter()
            self._others_place('a', 'b', 'c')
            self.assertIsNone(self._choose(hosts))
            self.assertEqual(set(), self._claims())
            for step in (early, not early):
                if step:
                    for number, host in ((50, 'a'), (51, 'b'), (52, 'c')):
                        self.state._receive_claims([fake_store.claim(
                            number, host, state=store.WITHDRAWN)])
                else:
                    self.state.request_finished(True)
            self.assertEqual(counted, self.state.claims.counts[
                'requests_refused_by_withdrawn_claims'])
            self.state.request_started()

    def test_a_request_that_is_placed_was_refused_by_no_claim(self):
        hosts = self._filter()
        self._others_place('a')
        self.assertIsNotNone(self._choose(hosts))
        self.state._receive_claims([fake_store.claim(
            50, 'a', state=store.WITHDRAWN)])
        self.state.request_finished(False)
        self.assertEqual(0, self.state.claims.counts[
            'requests_refused_by_withdrawn_claims'])

    def test_placements_on_an_alternate_are_counted(self):
        self._choose(self._filter())
        self.record(b=[1])
        self.assertEqual(1, self.state.claims.counts['claims_elsewhere'])


class TestSnapshots(base.StateTestCase):

    LAWS = {1: 10.0, 2: 20.0}

    def test_a_new_one_is_used_from_then_on(self):
        self.assertEqual({'a': .3}, self.ask(a=[2]))
        self.refresh(base.changes(2, {2: 60.0}))
        self.assertEqual({'a': .7}, self.ask())
        self.refresh(base.changes(3, removed=[base.instance_uuid(2)]))
        default = self.state._default_law.mean[:2].sum() / 100
        self.assertAlmostEqual(.1 + default, self.ask()['a'], 6)

    def test_a_stored_profile_of_a_host_is_used(self):
        self.aggregate = base.aggregate()
        self.assertEqual({'a': 0.0}, self.ask(a=[]))
        changed = base.changes(2)
        changed.host_profiles.append(store.HostProfile(
            'a', None, {'saturation_kbps': 50.0}))
        self.refresh(changed)
        self.assertEqual({'a': .2}, self.ask())
        self.refresh(base.changes(3, removed_hosts=['a']))
        self.assertEqual({'a': 0.0}, self.ask())

    def _during_adoption(self, event, *answers, after='a'):
        """Let something happen once one host of a new snapshot is ready."""
        describe = admission.LoadTable.describe
        seen = []

        def interrupt(table, host, *args):
            describe(table, host, *args)
            if host == after and table is not self.state._table and not seen:
                seen.append(host)
                event()

        with mock.patch.object(admission.LoadTable, 'describe', interrupt):
            self.refresh(*answers)
        self.assertEqual([after], seen)

    def test_a_placement_while_one_is_being_prepared_is_not_lost(self):
        self.ask(a=[], b=[])

        def event():
            self.place(base.request(2), 'a')
            # And a request that sees it before the new one is in use.
            self.assertEqual({'a': .3, 'b': .1}, self.ask())

        self._during_adoption(event, base.changes(2, {2: 20.0}))
        self.assertEqual({'a': .3, 'b': .1}, self.ask())

    def test_a_new_host_while_one_is_being_prepared_is_not_lost(self):
        self.ask(a=[], b=[])
        self._during_adoption(lambda: self.ask(c=[2]),
                              base.changes(2, {2: 30.0}))
        self.assertEqual({'a': .1, 'b': .1, 'c': .4}, self.ask())

    def test_an_aggregate_changed_while_one_is_being_prepared_holds(self):
        self.ask(a=[], b=[])

        def event():
            self.aggregate.metadata['vswitch:saturation_kbps'] = '50'
            self.ask()

        self._during_adoption(event, base.changes(2))
        self.assertEqual({'a': .2, 'b': .2}, self.ask())

    def test_a_profile_that_comes_with_one_holds_whatever_happens(self):
        self.aggregate = base.aggregate()
        self.ask(a=[], b=[])
        changed = base.changes(2)
        changed.host_profiles.extend(
            store.HostProfile(host, None, {'saturation_kbps': 50.0})
            for host in 'ab')
        # A report of the host that has its turn next: it is judged by the
        # old snapshot then, and by the new one afterwards.
        self._during_adoption(
            lambda: self.assertEqual({'a': 0.0, 'b': 0.0},
                                     self.ask(a=[], b=[2])), changed)
        self.assertEqual({'a': .2, 'b': .6}, self.ask())
        self.assertEqual({'a': .6, 'b': .2}, self.ask(a=[2], b=[]))

    def test_one_that_cannot_be_adopted_leaves_the_last(self):
        self.ask(a=[2])
        with mock.patch.object(admission.LoadTable, 'describe',
                               autospec=True, side_effect=ValueError('no')):
            self.refresh(base.changes(2, {2: 60.0}))
        self.assertEqual({'a': .3}, self.ask())
        self.assertIn('ValueError', self.warnings[0])


class TestDegraded(base.StateTestCase):

    LAWS = {1: 10.0, 2: 20.0}

    def lose_store(self, **options):
        self.state = self.make_state(**options)
        self.ask(a=[2])
        self.refresh(exceptions.StoreError('disk is gone'))

    def test_by_default_the_last_snapshot_goes_on_deciding(self):
        self.lose_store()
        for _ in range(3):
            self.assertEqual({'a': .3}, self.ask())
        warning, = self.warnings
        for part in ('disk is gone', 'deciding on what is known'):
            self.assertIn(part, warning)
        self.refresh(base.changes(1))
        self.ask()
        self.assertEqual(['vswitch: store is well again'], self.infos)

    def test_every_host_may_pass_instead(self):
        self.lose_store(degraded_policy='pass')
        for judge in (self.state.assess, self.state.recall):
            self.assertIsNone(judge(list(self.hosts.values()),
                                    base.request(1)))
        self.assertIn('every host passes', self.warnings[0])

    def test_a_stale_store_is_logged_once_however_it_ages(self):
        self.state = self.make_state(max_generation_age_seconds=1000)
        self.ask(a=[2])
        for _ in range(3):
            self.clock.now += 2000
            self.assertEqual({'a': .3}, self.ask())
        self.assertEqual(1, len(self.warnings))
        self.assertIn('s old', self.warnings[0])


class TestThreads(base.StateTestCase):

    def test_many_at_once_fill_a_host_to_the_last_and_no_further(self):
        hosts = [base.host_state(host, [], [self.aggregate])
                 for host in 'abc']
        placed, failed = [], []
        stop = threading.Event()

        def boot(numbers):
            try:
                placed.extend(self.boot(
                    self.state, number, hosts, egress_kbps=10)
                    for number in numbers)
            except Exception as error:
                failed.append(error)

        def renew():
            number = 1
            while not stop.is_set():
                number += 1
                self.refresh(base.changes(number))

        join_renewing = base.start_all([threading.Thread(target=renew)])
        base.start_all([threading.Thread(target=boot, args=(
            range(100 * k, 100 * k + 6),)) for k in range(1, 9)])()
        stop.set()
        join_renewing()
        self.assertEqual([], failed)
        self.assertEqual([], self.warnings)
        self.assertEqual({'a': 10, 'b': 10, 'c': 10, None: 18},
                         collections.Counter(placed))
