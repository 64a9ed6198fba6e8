# SPDX-License-Identifier: Apache-2.0

import numpy as np

from tests.unit.budgets import fleet
from tests.unit.store import base
from vswitch_aware_scheduler.budgets import proposal
from vswitch_aware_scheduler.budgets import rebalance_settings as settings
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.store import plans as records
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import attachments

BUSY = fleet.BUSY


class ProposalTestCase(base.StoreTestCase):
    """host1 is overloaded in a tenth of the day by either of two VMs."""

    def setUp(self):
        super().setUp()
        self.fleet = fleet.Fleet('host1', 'host2', 'host3')
        self.fleet.cloud.setUp()
        self.addCleanup(self.fleet.cloud.cleanUp)
        self.fleet.boot('vm1', 'host1', np.where(BUSY, 600, 100))
        self.fleet.boot('vm2', 'host1', np.where(BUSY, 600, 100))
        self.fleet.boot('vm3', 'host2', 500)
        self.fleet.boot('vm4', 'host3', 100)
        self.fleet.balance['host1'] = -600.0
        self.settings = settings.RebalanceSettings(network=settings.SEPARATE)
        self.store = self.make_store()

    def propose(self, now=fleet.NOW, after=lambda: None, **more):
        self.fleet.write(self.store)
        after()
        for name, value in more.items():
            self.settings = settings.dataclasses.replace(
                self.settings, **{name: value})
        return proposal.propose(
            self.store, fleet.read_fleet, self.fleet.cloud.client(),
            self.fleet.driver, self.settings, now)

    def boot_idle(self, count):
        """Boot instances on host3 that send nothing."""
        for number in range(count):
            self.fleet.boot(f'more{number}', 'host3', 0)

    def moves(self, **more):
        return [(move.name, move.source, move.destination)
                for move in self.propose(**more).moves]

    def test_a_host_in_debt_is_relieved_where_there_is_room(self):
        # With vm1 or vm2, host2 would carry 1100 of 1000, host3 700.
        plan = self.propose()
        move, = plan.moves
        self.assertIn(move.name, ('vm1', 'vm2'))
        self.assertEqual(('host1', 'host3'), (move.source, move.destination))
        slots = np.count_nonzero(BUSY)
        self.assertEqual(slots * 300.0, move.gain_seconds)
        self.assertAlmostEqual(slots / 288, move.overload_before)
        self.assertEqual(0.0, move.overload_after)
        self.assertEqual(-600.0, move.budget_before)
        # A day like this one earns .6 E of 86400 s.
        self.assertAlmostEqual(-600 + .006 * 86400, move.budget_after)
        self.assertAlmostEqual(100 + .006 * 86400,
                               move.destination_budget_after)
        self.assertEqual([('host1', -600.0, 2)], [
            (account.host, account.balance, account.checks)
            for account in plan.in_debt])
        self.assertIn('overspent its error budget by 600 s', move.reason)
        # Samples of other hosts' instances are not read.
        self.assertEqual({'vm1', 'vm2'}, set(self.fleet.driver.read))

    def test_without_debt_no_service_is_queried(self):
        self.fleet.balance['host1'] = 0.0
        plan = self.propose()
        self.assertEqual((), plan.moves)
        self.assertEqual('no host is in debt', plan.reason)
        self.assertEqual([], self.fleet.cloud.requests)

    def test_no_data_is_an_error(self):
        with self.assertRaisesRegex(exceptions.NothingMeasured,
                                    'expected at most 3600 s'):
            self.propose(fleet.NOW + 2 * 3600)
        for kind, noun in (('aggregate', 'aggregates'),
                           ('node', 'hypervisors')):
            with self.assertRaisesRegex(exceptions.NothingMeasured,
                                        f'{noun} of Nova .* none were read'):
                self.propose(after=lambda: self.execute(
                    f"DELETE FROM fleet_reading WHERE kind = '{kind}'"))
        for name in ('vm1', 'vm2'):
            del self.fleet.driver.rates[name]
        self.fleet.balance['host1'] = -5000.0
        self.fleet.totals = lambda host: np.full(fleet.SLOTS, 1100.0)
        with self.assertRaisesRegex(exceptions.NothingMeasured,
                                    'no samples of the 2 instances'):
            self.propose()
        self.fleet.totals = lambda host: np.full(fleet.SLOTS, np.nan)
        with self.assertRaisesRegex(exceptions.NothingMeasured,
                                    'none in the last 7 days'):
            self.propose()
        self.fleet.balance.clear()
        with self.assertRaisesRegex(exceptions.NothingMeasured, 'none; '):
            self.propose()

    def test_a_host_is_relieved_after_several_checks_in_debt(self):
        # In debt by the last slot alone: 15 minutes ago it was not.
        for name in ('vm1', 'vm2'):
            self.fleet.driver.rates[name][:-1] = 100
            self.fleet.driver.rates[name][-1] = 600
        self.fleet.balance['host1'] = -10.0
        plan = self.propose()
        self.assertEqual(1, plan.in_debt[0].checks)
        self.assertIn('none at 2 checks in a row', plan.reason)
        self.assertEqual([], self.fleet.cloud.requests)
        # Of a day with one slot of overload: .35 %, below E.
        self.assertEqual([], self.moves(checks=1))

    def test_fixed_instances_stay_and_the_plan_states_the_reasons(self):
        for options in ({'extra_specs': {'vswitch:migrate': 'never'}},
                        {'OS-EXT-STS:task_state': 'rebuilding'},
                        {'extra_specs': {'hw:cpu_policy': 'dedicated'}}):
            with self.subTest(options):
                self.fleet.boot('vm1', 'host1', np.where(BUSY, 600, 100),
                                **options)
                self.assertEqual([('vm2', 'host1', 'host3')], self.moves())
                self.fleet.boot('vm2', 'host1', np.where(BUSY, 600, 100),
                                **options)
                plan = self.propose()
                self.assertEqual((), plan.moves)
                self.assertIn('2 of their 2 instances', plan.reason)
                self.assertRegex(plan.reason, '2 instances stay: it')
                self.fleet.boot('vm2', 'host1', np.where(BUSY, 600, 100))

    def test_an_instance_with_a_virtual_function_stays(self):
        self.fleet.attachments['vm1'] = attachments.Attachments((), (), 1)
        self.fleet.attachments['vm2'] = attachments.Attachments(('net',))
        self.assertEqual([('vm2', 'host1', 'host3')], self.moves())

    def test_hosts_that_are_down_or_in_another_zone_are_no_destination(self):
        for change in ({'status': 'disabled'}, {'state': 'down'},
                       {'forced_down': True}, {'zone': 'other'}):
            with self.subTest(change):
                service = dict(self.fleet.cloud.services['host3'])
                self.fleet.cloud.services['host3'].update(change)
                plan = self.propose()
                self.assertEqual((), plan.moves)
                if 'zone' not in change:
                    self.assertRegex(
                        plan.reason, '1 hosts accept no instances: '
                        '(disabled|down|forced down)')
                self.fleet.cloud.services['host3'] = service
        self.assertEqual(1, len(self.moves()))

    def test_a_host_in_maintenance_is_not_relieved(self):
        self.fleet.cloud.services['host1']['status'] = 'disabled'
        plan = self.propose()
        self.assertEqual((), plan.moves)
        self.assertIn('host1 is not relieved: disabled', plan.reason)

    def test_only_aggregates_that_filters_read_restrict_moves(self):
        own_keys = [({'vswitch:profile': 'x', 'cpu_weight_multiplier': '2'},
                     ['host3'])]
        for aggregates, count in (
                (own_keys, 1), ([({'ssd': 'true'}, ['host1'])], 0),
                ([({'ssd': 'true'}, ['host1', 'host3'])], 1),
                ([({'filter_tenant_id': 'p'}, ['host3'])], 0)):
            with self.subTest(aggregates):
                self.fleet.cloud.aggregates = aggregates
                self.assertEqual(count, len(self.moves()))

    def test_free_cores_and_memory_in_placement_restrict_moves(self):
        for vcpus, memory, count in (
                (15, 1024, 0), (1, 65536 - 2048 + 1, 0), (1, 65536 - 2048, 1)):
            self.fleet.boot('large', 'host3', 0, vcpus=vcpus, memory=memory)
            self.assertEqual(count, len(self.moves()))

    def test_server_groups_restrict_moves(self):
        for policy, names, rules, count in (
                ('anti-affinity', ('vm1', 'vm4'), {}, 1),
                ('anti-affinity', ('vm1', 'vm2', 'vm4'), {}, 0),
                ('anti-affinity', ('vm1', 'vm2', 'vm4'),
                 {'max_server_per_host': 2}, 1),
                ('affinity', ('vm1', 'vm2'), {}, 0),
                ('soft-affinity', ('vm1', 'vm2'), {}, 1)):
            self.fleet.cloud.groups = [
                {'id': 'g', 'policy': policy, 'rules': rules,
                 'members': list(map(fleet.uuid_of, names))}]
            with self.subTest(policy, names=names, **rules):
                moves = self.moves()
                self.assertEqual(count, len(moves))
                if names == ('vm1', 'vm4'):
                    self.assertEqual([('vm2', 'host1', 'host3')], moves)

    def begun(self, *names, ago=3600.0, state=records.DONE, rests=None,
              destination='host1', source='host9'):
        """Write moves of an earlier plan to the store."""
        plan = f'p{len(self.store.plans())}'
        records.write_plan(
            self.store, store.PlanRecord(plan, fleet.NOW - ago, 't'),
            [store.MoveRecord(
                plan, number, fleet.uuid_of(name), source, destination,
                state, None if state == records.DROPPED
                else fleet.NOW - ago, fleet.NOW - ago,
                {'rests': rests} if rests else {})
             for number, name in enumerate(names)])

    def test_the_cool_down_counts_moves_of_earlier_plans(self):
        self.boot_idle(8)
        # Migrations of somebody else do not count.
        self.fleet.cloud.migration('vm1', 'host9', 'host1',
                                   at=fleet.NOW - 3600)
        self.begun('vm1', state=records.DROPPED)
        self.begun('vm1', state=records.FAILED, rests=records.DESTINATION)
        self.assertEqual(1, len(self.moves()))
        self.begun('vm1', state=records.FAILED, rests=records.MIGRATION)
        self.assertEqual([('vm2', 'host1', 'host3')], self.moves())
        self.begun('vm2')
        self.assertEqual([], self.moves())
        self.assertEqual(1, len(self.moves(cool_down_hours=.9)))

    def test_only_a_failed_move_rests_for_an_hour(self):
        self.boot_idle(8)
        self.fleet.driver.rates['vm3'][:] = 0
        both, other = {'vm1', 'vm2'}, {'vm2'}
        for state, rests, destination, names, hosts in (
                (records.DROPPED, records.INSTANCE, 'host3', other, None),
                (records.FAILED, records.INSTANCE, 'host3', other, None),
                (records.DROPPED, records.DESTINATION, 'host3', both, None),
                (records.FAILED, records.DESTINATION, 'host3', both, None),
                (records.FAILED, records.MIGRATION, 'host3', other,
                 {'host2'}), (records.DROPPED, None, 'host3', both, None)):
            self.begun('vm1', state=state, rests=rests, ago=3599.0,
                       destination=destination)
            with self.subTest(state=state, rests=rests):
                move, = self.moves()
                self.assertIn(move[0], names)
                self.assertIn(move[2], hosts or {'host2', 'host3'})
                self.assertNotEqual(('vm1', 'host3') if rests else None,
                                    (move[0], move[2]))
            self.execute('DELETE FROM rebalance_move')
            self.begun('vm1', state=state, rests=rests, ago=3601.0,
                       destination=destination)
            self.assertEqual(1, len(self.moves(cool_down_hours=1.0)))
            self.execute('DELETE FROM rebalance_move')

    def test_tenants_have_a_veto_only_by_the_option(self):
        for name in ('vm1', 'vm2'):
            self.fleet.boot(name, 'host1', np.where(BUSY, 600, 100),
                            metadata={'vswitch:migrate': 'never'})
        self.assertEqual(1, len(self.moves()))
        plan = self.propose(tenant_veto=True)
        self.assertEqual((), plan.moves)
        self.assertIn('2 instances stay: its metadata has '
                      'vswitch:migrate=never', plan.reason)
        self.fleet.cloud.aggregates = [
            ({'vswitch:migrate': 'allowed'}, ['host1'])]
        self.assertEqual(1, len(self.moves()))

    def test_a_quarter_of_the_instances_is_moved_in_a_week(self):
        self.boot_idle(4)
        # Two of eight.
        self.begun('more1', ago=6 * 86400.0)
        self.assertEqual(1, len(self.moves()))
        self.begun('more2', ago=5 * 86400.0)
        plan = self.propose()
        self.assertEqual(((), 1), (plan.moves, plan.held_back))
        self.assertIn('of which 2 were moved', plan.reason)

    def test_a_small_fleet_may_move_one_instance(self):
        for name in ('vm3', 'vm4'):
            del self.fleet.cloud.servers[fleet.uuid_of(name)]
        self.fleet.boot('vm4', 'host3', 10)
        self.assertEqual(1, len(self.moves()))

    def test_a_running_migration_closes_both_hosts(self):
        self.fleet.cloud.migration('vm9', 'host3', 'host2', 'running')
        self.assertEqual([], self.moves())

    def test_present_instances_count_at_their_host_all_the_time(self):
        # vm4 came from host2 six hours ago; it was busy before that.
        self.fleet.driver.rates['vm4'] = np.where(
            np.arange(fleet.SLOTS) < 144, np.where(BUSY, 500.0, 0.0), 0.0)
        since = fleet.NOW - 6 * 3600
        was = self.fleet.totals('host3').copy()
        was[:-72] = 0
        history = self.fleet.history
        self.fleet.history = lambda: {
            **history(), 'host3': fleet.sums('host3', was)}
        self.assertEqual(1, len(self.moves()))
        self.fleet.cloud.migration('vm4', 'host2', 'host3', at=since)
        self.boot_idle(8)
        self.assertEqual([], self.moves())
        # And what left host2 does not count there any more.
        self.fleet.driver.rates['vm3'][:] = 100
        moved = self.fleet.driver.rates['vm4']
        self.fleet.history = lambda: {
            **history(), 'host3': fleet.sums('host3', was),
            'host2': fleet.sums('host2', 100 + moved)}
        self.assertEqual(['host2'], [move[2] for move in self.moves()])

    def test_a_cloud_younger_than_the_window_is_planned_for(self):
        # Two hours of measurements.
        history, recent = self.fleet.history, np.arange(fleet.SLOTS) >= 264
        self.fleet.history = lambda: {
            host: fleet.sums(host, np.where(recent, packed.sums[0], np.nan))
            for host, packed in history().items()}
        for rates in self.fleet.driver.rates.values():
            rates[~recent] = 0.0
        self.assertEqual(1, len(self.moves()))

    def test_a_host_with_few_measurements_is_no_destination(self):
        history = self.fleet.history
        measured = np.arange(fleet.SLOTS) < 100

        def with_gaps():
            return {**history(), 'host3': fleet.sums('host3', np.where(
                measured, 100.0, np.nan))}
        self.fleet.history = with_gaps
        self.assertEqual([], self.moves())
        measured |= np.arange(fleet.SLOTS) < 200
        self.assertEqual(1, len(self.moves()))

    def model(self, name, peak, share=1.0):
        self.fleet.models[name] = (
            model.TrafficModel.constant(peak) if share == 1.0
            else model.TrafficModel.on_off(
                peak, 0.0, on_seconds=600.0 * share,
                off_seconds=600.0 * (1 - share)))

    def test_no_destination_that_the_filter_refuses_is_proposed(self):
        # By telemetry host3 has room; the filter expects other traffic.
        for limits, peak, share, count in (
                ({}, 600.0, .1, 1), ({}, 1001.0, .005, 0),
                ({'vm_peak_kbps': 599.0}, 600.0, .1, 0),
                ({'vm_peak_kbps': 600.0}, 600.0, .1, 1),
                ({}, 901.0, .02, 0), ({}, 901.0, .009, 1),
                ({'max_tunnels': 1}, 600.0, .1, 0),
                ({'max_tunnels': 2}, 600.0, .1, 1)):
            self.model('vm4', 100.0)
            for name in ('vm1', 'vm2'):
                self.model(name, peak, share)
            self.fleet.limits = limits
            with self.subTest(limits=limits, peak=peak, share=share):
                self.assertEqual(count, len(self.moves()))

    def test_every_move_ends_overload(self):
        # host1 is at twice its capacity by instances that must stay.
        for name in ('vm1', 'vm2'):
            self.fleet.boot(name, 'host1', np.where(BUSY, 1000, 100),
                            locked=True)
        for number in range(3):
            self.fleet.boot(f'small{number}', 'host1', 10)
        plan = self.propose()
        self.assertEqual((), plan.moves)
        self.assertIn('none was overloaded beyond its limit lately and has '
                      'an instance whose move helps', plan.reason)
        # Two of four have to leave, so that any overload ends.
        for number in (1, 2, 3, 4):
            self.fleet.boot(f'vm{number}', 'host1', np.where(BUSY, 450, 100))
        for number in range(6):
            self.fleet.boot(f'small{number}', f'host{2 + number % 2}', 0)
        plan = self.propose()
        self.assertEqual(2, len(plan.moves))
        slots = np.count_nonzero(BUSY)
        for move in plan.moves:
            self.assertEqual(slots * 150.0, move.gain_seconds)
            self.assertEqual(slots * 4 * 150.0, move.vm_gain_seconds)
            self.assertAlmostEqual(slots / 288, move.overload_before)
            self.assertEqual(0.0, move.overload_after)

    def start_giant(self, **limits):
        """Let vm1 exceed host1 alone; no host is in debt."""
        self.fleet.balance['host1'] = 100.0
        self.fleet.driver.rates['vm1'][:] = np.where(BUSY, 1100, 100)
        self.fleet.alone['host1'] = BUSY
        for number in range(8):
            self.fleet.boot(f'more{number}', 'host2', 0)

    def test_an_instance_above_the_capacity_goes_where_it_is_carried(self):
        self.start_giant()
        self.fleet.capacity['host3'] = 2000.0
        move, = self.propose().moves
        self.assertEqual(('vm1', 'host1', 'host3'), (
            move.name, move.source, move.destination))
        slots = np.count_nonzero(BUSY)
        # vm2 alone suffered; vm1 does so nowhere.
        self.assertEqual((0.0, slots * 300.0),
                         (move.gain_seconds, move.vm_gain_seconds))
        self.assertIn('one instance overloads host1 alone', move.reason)
        self.model('vm1', 2001.0, .001)
        plan = self.propose()
        self.assertEqual([('vm2', 'host3')], [
            (move.name, move.destination) for move in plan.moves])

    def test_no_instance_is_moved_beside_one_above_the_capacity(self):
        self.fleet.boot('vm5', 'host3', np.where(BUSY, 1100, 0), locked=True)
        self.fleet.alone['host3'] = BUSY
        self.fleet.boot('vm4', 'host3', 100, locked=True)
        self.fleet.driver.rates['vm3'][:] = 950
        self.assertEqual([], self.moves())

    def test_uplinks_of_destinations_are_respected(self):
        # With vm1 or vm2 the uplink of host2 and host3 has 1200 when busy.
        self.model('vm3', 500.0)
        self.model('vm4', 100.0)
        for name in ('vm1', 'vm2'):
            self.model(name, 600.0, .1)
        for hosts, capacity, balance, count in (
                (('host2', 'host3'), 1201.0, 10.0, 1),
                (('host2', 'host3'), 1199.0, 10.0, 0),
                # Its debt is not theirs, and they fit.
                (('host2', 'host3'), 1201.0, -10.0, 1),
                (('host1', 'host3'), 1301.0, -10.0, 1)):
            with self.subTest((hosts, capacity, balance)):
                self.fleet.uplinks = {'tor': (hosts, capacity, balance)}
                self.assertEqual(count, len(self.moves()))

    def test_an_empty_host_is_used_when_no_other_helps(self):
        self.fleet.boot('vm4', 'host3', 700)
        self.fleet.balance['host4'] = 10.0
        self.fleet.capacity['host4'] = 1000.0
        self.fleet.cloud.services['host4'] = {
            **self.fleet.cloud.services['host3'], 'host': 'host4'}
        self.assertEqual(['host4'], [move[2] for move in self.moves()])

    def test_a_destination_has_to_keep_its_own_limit(self):
        # E of host3 is too strict for what it would have.
        self.fleet.driver.rates['vm4'][:] = np.where(
            np.arange(fleet.SLOTS) == 9, 500, 100)
        accounts = self.fleet.accounts()
        self.fleet.accounts = lambda: accounts
        self.assertEqual(1, len(self.moves()))
        accounts['host', 'host3'] = fleet.account('host3', 1.0, limit=.003)
        self.assertEqual([], self.moves())

    def test_a_migration_through_the_switch_costs_overload(self):
        self.assertEqual(1, len(self.moves(network=settings.SWITCH,
                                           link_kbps=200000.0,
                                           dirty_kbps=0.0)))
        # 1 GiB at 900 kbit/s overloads host1 for 2.7 hours: 31.8 slots, of
        # which nine of ten were not overloaded before. The move saves 28.
        self.assertEqual([], self.moves(
            network=settings.SWITCH, link_kbps=900.0, dirty_kbps=0.0))
        # What writes as fast as the link never ends.
        plan = self.propose(network=settings.SEPARATE, link_kbps=1000.0,
                            dirty_kbps=1000.0)
        self.assertEqual((), plan.moves)
        self.assertIn('its migration would not end', plan.reason)

    def test_slow_networks_are_refused_with_the_hours(self):
        slow = settings.RebalanceSettings()
        # 8 GiB are 68.7 Gbit: 4.34 h by a fifth of 22 Mbit/s.
        with self.assertRaisesRegex(exceptions.InvalidInput, '4.3 hours'):
            slow.check_network(22000.0, 8192)
        slow.check_network(5e6, 8192)
        settings.RebalanceSettings(link_kbps=1e6).check_network(22000.0, 8192)
        settings.RebalanceSettings(
            network=settings.SEPARATE).check_network(22e3, 8192)
