# SPDX-License-Identifier: Apache-2.0

import json
from unittest import mock

import numpy

from tests.fakes import store as fake_store
from tests.unit.cmd import commands
from tests.unit.cmd import fleet_case
from tests.unit.store import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import policy_in_force
from vswitch_aware_scheduler.cmd.subcommands import fleet
from vswitch_aware_scheduler.fleet import room
from vswitch_aware_scheduler.fleet import view as fleet_view
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.vswitch import profile

packed = fleet_case.packed
carrying = fleet_case.carrying
FleetTestCase = fleet_case.FleetTestCase

#: On a tenth of the time.
ON_OFF = traffic_model.TrafficModel.on_off(
    egress_kbps=100.0, on_seconds=600.0, off_seconds=5400.0)


class HostsTestCase(FleetTestCase):

    def test_a_host_carries_what_theory_says(self):
        # Three that are on a tenth of the time, of which two fit.
        self.put({'h1': (1, 2, 3), 'h2': (4,)},
                 dict.fromkeys((1, 2, 3, 4), ON_OFF))
        self.modeled(
            h1=carrying(250.0, overload_probability=.02,
                        prediction_margin=4.0), h2=carrying(250.0))
        answer = self.ask('fleet')
        self.assertEqual([], answer['remarks'])
        loaded, empty = answer['hosts']
        self.assert_holds(loaded, host='h1', profile='p',
                          origin='aggregate rack', instances=3, with_model=3,
                          with_flavor=0, with_prior=0, unknown=0, limit=.005,
                          prediction_margin=4.0, asked_limit=.02, uplinks=[])
        for key, exact in (('overload_probability', .001),
                           ('loss_fraction', 50 * .001 / 30),
                           ('utilisation', 30 / 250)):
            self.assertAlmostEqual(exact, loaded[key], delta=.01 * exact)
        # The third goes on while the two others are on.
        exact = 3 * .9 / 5400 * .01 * 86400
        self.assertAlmostEqual(exact, loaded['episodes_per_day'],
                               delta=.01 * exact)
        # It lasts until the first of three goes off.
        self.assertAlmostEqual(200.0, loaded['mean_episode_seconds'])
        self.assertLess(empty['overload_probability'], 1e-9)
        self.assert_holds(empty, episodes_per_day=0, mean_episode_seconds=None)

    def test_by_which_rule_instances_count_is_shown(self):
        self.put({'h1': (1, 2, 3)}, {1: ON_OFF},
                 priors=[store.Prior('small', None, ON_OFF.law, 20)])
        self.put({'h1': (4,)}, flavor='steady')
        self.put({'h2': (5,)}, flavor='large')
        self.modeled(h1=packed(None), h2=packed(None))
        self.assertEqual(
            [(1, 1, 2, 0), (0, 0, 0, 1)],
            [tuple(host[key] for key in (
                'with_model', 'with_flavor', 'with_prior', 'unknown'))
             for host in self.hosts()])

    def test_what_is_not_known_is_null(self):
        self.put({'h1': (1,)}, {1: ON_OFF})
        self.modeled(h1=packed(None, None), h3={},
                     h2=carrying(250.0, policy=admission.AVERAGE))
        first, second, third = self.hosts()
        for key in ('profile', 'origin', 'utilisation', 'limit', 'room',
                    'overload_probability', 'loss_fraction',
                    'episodes_per_day'):
            self.assertIsNone(first[key], key)
        self.assert_holds(second, limit=None, utilisation=0.0)
        # One whose stored policy cannot be used hinders no other.
        self.assertFalse(third['judged'])
        self.assertIn('h3 among them', self.ask('fleet')['remarks'][0])

    def test_hosts_are_sorted_by_risk(self):
        small = carrying(150.0)
        self.put({'h1': (1,), 'h2': (2, 3), 'h10': (4, 5, 6)},
                 dict.fromkeys(range(1, 7), ON_OFF))
        self.modeled(h1=small, h2=small, h10=small, h0=packed(None))
        for words, names in (
                ((), ['h0', 'h1', 'h2', 'h10']),
                (('--sort', 'risk'), ['h10', 'h2', 'h1', 'h0']),
                (('--sort', 'risk', '--limit', '1'), ['h10']),
                (('--host', 'h1'), ['h1'])):
            self.assertEqual(names, [host['host']
                                     for host in self.hosts(*words)])
        self.assert_fails("host: 'nope'; expected a host", 'fleet', '--host',
                          'nope')

    def test_error_budgets_are_shown_and_sorted_by(self):
        self.put({'h1': (1,), 'h2': (2,), 'h3': (3,)})
        uplink = admission.Uplink('u', admission.HostPolicy(
            profile.SwitchProfile('p', saturation_kbps=250.0)))
        self.modeled(uplinks={'u': policy_in_force.pack(uplink.policy)},
                     **dict.fromkeys(('h1', 'h2', 'h3'),
                                     carrying(250.0, uplinks=(uplink,))))
        limits = json.dumps(['p', [[[1.0, 1.0, 0.0], 800.0, 250.0]]])
        # A day of use earns 518.4 s, and 30 days are kept.
        budgets = [fake_store.budget(
            name, balance=balance, limits=limits, since=self.now - 3600,
            until=self.now - age, burn={'3600': 3.0, '21600': 1.5}, kind=kind)
            for kind, name, balance, age in (
                ('host', 'h1', 1555.2, 0), ('host', 'h2', -51.84, 9000),
                ('uplink', 'u', 518.4, 9000))]
        today = int(self.now // 86400)
        self.store.settle_budgets(
            store.BudgetState(300.0, self.now),
            [(None, shown) for shown in budgets], charges=[
                store.Charge('host', host, fake_store.instance_uuid(number),
                             today - 1, project, seconds)
                for number, (host, project, seconds) in enumerate((
                    ('h2', 'p', 60.0), ('h2', 'q', 20.0), ('h1', 'q', 90.0)))],
            vm_times=[store.VMTime('q', today, 7200.0, 72.0)])
        self.assertEqual(
            [('q', 0, 2.0, .01, 110.0), ('p', 3, 0.0, None, 60.0)],
            [tuple(row[key] for key in ('project', 'instances', 'vm_hours',
                                        'vm_overload', 'spent_seconds'))
             for row in self.ask('fleet', '--projects')['projects']])
        self.assertIn('110s', self.text('fleet', '--projects'))
        rows = self.hosts('--sort', 'budget')
        self.assertEqual(['h2', 'h1', 'h3'], [row['host'] for row in rows])
        self.assertAlmostEqual(.1, rows[1]['budget_left'])
        by_name = rows[0]['error_budget']
        self.assertAlmostEqual(-.1, by_name['left_days'])
        self.assertTrue(by_name['in_debt'])
        self.assertEqual({'1h': 3.0, '6h': 1.5}, by_name['burn_rates'])
        self.assert_holds(rows[2], budget_left=None, error_budget=None)
        header, *rows = commands.table(self.text('fleet'))
        self.assertEqual(
            [('0.25', '3 d', '1.5'), ('0.25', '-0.1 d', '1.5'),
             ('0.25', '-', '-')],
            [tuple(row[header.index(name)] for name in (
                'CAPACITY Mbit/s', 'BUDGET', 'BURN')) for row in rows])
        text = self.text('fleet', '--host', 'h2')
        for part in ('s of overload too much: paid back by 0.1 days in use '
                     'without overload', 'profile p, 250 kbit/s',
                     '3 in 1h, 1.5 in 6h', 'p 75.0%, q 25.0%'):
            self.assertIn(part, text)
        [row] = self.ask('fleet', '--uplinks')['uplinks']
        self.assertAlmostEqual(1.0, row['error_budget']['left_days'])
        self.assertEqual([], self.ask('fleet')['remarks'])
        # The room of a host does not depend on other hosts.
        self.store.write()
        self._configure('default_egress_kbps = 0', 'default_ingress_kbps = 0')
        self.assertEqual([7, 7, 7], [min(row['room'], 7) for row
                                     in self.hosts('--flavor', 'small')])
        self.store.settle_budgets(
            store.BudgetState(300.0, self.now), remove=[('host', 'h1')])
        [remark] = self.ask('fleet')['remarks']
        self.assertRegex(
            remark, r'error budgets were computed up to 9\d\d\d s ago')

    def test_predictions_and_claims_are_shown(self):
        self.put({'h1': (1,)})
        self.modeled(h1=carrying(250.0))
        answer = self.ask('fleet')
        self.assertEqual((0, None), (answer['claims']['workers'],
                                     answer['claims']['longest_wait_seconds']))
        self.store.settle_budgets(store.BudgetState(300.0, self.now), [
            (None, fake_store.budget(
                'h1', until=self.now, prediction=store.Prediction(
                    .01, seconds=4000.0, expected_seconds=40.0,
                    overload_seconds=20.0)))])
        self.store.report_worker(store.Worker(
            'w', 'ctl', self.now, self.now, {'claims': {
                'claims_made': 50, 'claim_conflicts': 2, 'claim_misses': 1,
                'claims_elsewhere': 4}}))
        with self.store.claiming() as (_, write):
            write([store.StoredClaim(
                fake_store.instance_uuid(9), 'token', 'h1', None, ON_OFF.law,
                'default', 'w', waited_seconds=.012)])
        answer = self.ask('fleet')
        self.assertEqual({
            'workers': 1, 'longest_wait_seconds': .012, 'claims_made': 50,
            'claim_conflicts': 2, 'claim_misses': 1, 'claims_elsewhere': 4},
            answer['claims'])
        self.assertEqual({
            'predicted_share': .01, 'measured_share': .005,
            'measured_seconds': 4000.0, 'deviations': 0.0,
            'contradicted': False},
            answer['hosts'][0]['error_budget']['prediction'])
        text = self.text('fleet', '--host', 'h1')
        for part in ('predicted in 0.01 and measured in 0.005 of 4000 s',
                     '1 workers of nova-scheduler: 50, of which 2 conflicts '
                     'and 1 without waiting for the store; longest wait '
                     'lately: 12 ms'):
            self.assertIn(part, text)

    def test_too_many_hosts_have_no_episodes_and_that_is_said(self):
        self.put({'h1': (1,), 'h2': (2,)}, {1: ON_OFF, 2: ON_OFF})
        self.modeled(h1=carrying(50.0), h2=carrying(50.0))
        with mock.patch.object(fleet, 'MOST_EPISODES', 1):
            answer = self.ask('fleet')
            self.assertEqual([None, None], [
                row['episodes_per_day'] for row in answer['hosts']])
            self.assertIn('--limit', answer['remarks'][0])
            self.assertLess(0, self.hosts('--limit', '1')[0][
                'episodes_per_day'])


class InstancesTestCase(FleetTestCase):

    def test_instances_are_in_the_order_of_what_they_add(self):
        # Above 250 where the large one is on with two small ones, or all
        # three small ones are: only the large one matters much.
        large = traffic_model.TrafficModel.on_off(
            egress_kbps=200.0, on_seconds=600.0, off_seconds=5400.0)
        self.put({'h1': (1, 2)}, {1: ON_OFF, 2: large})
        self.modeled(h1=carrying(250.0))
        first, second = self.ask('fleet', '--host', 'h1')['instances']
        self.assertEqual(('vm2', 'vm1', 'model', 'small', 'p'), (
            first['name'], second['name'], first['rule'], first['flavor'],
            first['project']))
        # Without either of them nothing is above.
        for instance, mean in ((first, 20.0), (second, 10.0)):
            self.assertAlmostEqual(.01, instance['adds_overload_probability'],
                                   delta=1e-4)
            self.assertAlmostEqual(mean / 250, instance['adds_utilisation'])
            self.assertAlmostEqual(mean, instance['mean']['egress_kbps'])
            self.assertIsNone(instance['mean']['kpps'])
        self.assertRegex(self.text('fleet', '--host', 'h1'), (
            '(?s)Instances, by the load that they add.*vm2.*vm1'))


class RoomTestCase(FleetTestCase):

    def setUp(self):
        super().setUp()
        steady = traffic_model.TrafficModel.constant(100.0)
        self.put({'h1': (1, 2, 3), 'h2': (4, 5, 6), 'h3': ()},
                 dict.fromkeys(range(1, 7), steady))
        self.modeled(h1=carrying(1000.0), h2=carrying(1000.0),
                     h3=packed(None))

    def write_prior(self, project, kbps):
        self.store.write(priors=[store.Prior(
            'small', project, traffic_model.TrafficModel.constant(kbps).law,
            20)])

    def assert_room(self, demand_by, room, *words):
        answer = self.ask('fleet', *words)
        self.assertEqual((demand_by, room), (
            answer['demand_by'], [host['room'] for host in answer['hosts']]))
        # Looking for room leaves everything as it was.
        self.assertAlmostEqual(.3, answer['hosts'][0]['utilisation'])

    def test_the_room_is_how_many_more_fit(self):
        self.assert_room('flavor', [7, 7, None], '--flavor', 'steady')

    def test_new_instances_are_not_busy_at_the_same_times(self):
        # On in the same 25 of 504 instants. Of independent ones, two of three
        # are on in .0072 of the time, two of four in .0141.
        together = traffic_model.TrafficModel(
            [[0.0, 0, 0], [600.0, 0, 0]], [[0, 1], [1, 0]], [479.0, 25.0],
            (numpy.arange(504) < 25).astype(int))
        self.put({'gone': (9,)}, {9: together})
        facts = self.store.fleet('flavor').facts
        facts['steady'] = {'vswitch:model': base.instance_uuid(9)}
        self.store.write_fleet({'flavor': facts, 'uplink': {},
                                'host': {'h3': carrying(1000.0)}}, self.now)
        [row] = self.hosts('--flavor', 'steady', '--host', 'h3')
        self.assertEqual(3, row['room'])
        # Whoever asks, "survey" among them.
        view = fleet_view.FleetView(self.store)
        view.loads(['h3'])
        self.assertEqual([3], room.room(
            view, ['h3'], view.demand(None, 'steady', None)))

    def test_an_uplink_that_is_shared_counts(self):
        shared = policy_in_force.pack(admission.HostPolicy(
            profile.SwitchProfile('u', saturation_kbps=900.0)))
        facts = self.store.fleet('host').facts
        for host in ('h1', 'h2'):
            facts[host]['uplinks'] = ['tor']
        self.store.write_fleet({'uplink': {'tor': shared}, 'host': facts},
                               self.now)
        self.assert_room('flavor', [3, 3, None], '--flavor', 'steady')
        [row] = self.ask('fleet', '--uplinks')['uplinks']
        self.assert_holds(row, uplink='tor', hosts=2, instances=6)
        self.assertAlmostEqual(600 / 900, row['utilisation'])

    def test_the_least_room_comes_first(self):
        self.put({'h2': (7,)}, {7: traffic_model.TrafficModel.constant(1.0)})
        self.assertEqual(
            ['h2', 'h1', 'h3'], [host['host'] for host in self.hosts(
                '--flavor', 'steady', '--sort', 'room')])

    def test_a_flavor_that_states_nothing_counts_by_its_prior(self):
        self.write_prior(None, 350.0)
        self.assert_room('prior of flavor', [2, 2, None], '--flavor', 'small')
        # The project chooses the prior, not the hosts.
        self.write_prior('q', 700.0)
        words = '--flavor', 'small', '--project', 'q'
        self.assert_room('prior of flavor and project', [1, 1, None], *words)
        self.assertIn('whose demand is by prior of flavor and project',
                      self.text('fleet', *words))
        self.assert_fails("flavor: 'smal'; expected one of small, steady",
                          'fleet', '--flavor', 'smal')

    def test_a_new_instance_counts_where_unknown_residents_are_ignored(self):
        # Two that are on for half of the time at 600 exceed 1000.
        self._configure(
            'unknown_instance_policy = ignore', 'default_egress_kbps = 600',
            'default_ingress_kbps = 0', 'default_on_seconds = 1',
            'default_off_seconds = 1')
        self.put({'h1': (11, 12), 'h2': (13,)})
        self.assert_room('default', [1, 1, None], '--flavor', 'small')
        judged = self.ask('explain', '--flavor', 'small')
        self.assertEqual(('default', 600.0), (
            judged['rule'], judged['peak']['egress_kbps']))
        # A new one has the prior of its group; for residents nothing is
        # assumed, as in the scheduler.
        self.write_prior(None, 350.0)
        self.assert_room('prior of flavor', [2, 2, None], '--flavor', 'small')


class AgesTestCase(FleetTestCase):

    def remarks(self):
        return ' / '.join(self.ask('fleet')['remarks'])

    def test_a_store_without_policies_says_so_and_finds_them(self):
        self.put({'h1': (1,), 'h2': (2,)}, {1: ON_OFF, 2: ON_OFF},
                 host_profiles=[store.HostProfile('h1', 'ovs-vxlan', {},
                                                  'discovered')])
        answer = self.ask('fleet')
        self.assertIsNone(answer['policies_read_at_iso'])
        self.assertIn('no modeler has stored the policies',
                      answer['remarks'][0])
        self.assertEqual(
            [('h1', 'ovs-vxlan', 'store (discovered)'), ('h2', None, None)],
            [(host['host'], host['profile'], host['origin'])
             for host in answer['hosts']])

    def test_old_policies_and_an_old_inventory_are_said(self):
        self.modeled(3601.0, h1=packed(None))
        self.assertRegex(self.remarks(), r'policies of hosts are 360\d s old')
        self.store.write(inventory=store.InventoryState(
            'nova', self.now - 90000, self.now - 90000))
        self.assertRegex(self.remarks(), r'inventory is 9\d{4} s old')

    def test_aggregates_that_may_not_be_read_are_said(self):
        self.modeled(0.0, False, h1=packed(None))
        self.assertIn('aggregates of Nova are not known', self.remarks())

    def test_what_may_not_be_read_any_more_is_named_with_its_age(self):
        self.modeled(700.0, h1=packed(None))
        self.store.write_fleet({'node': {}}, self.now - 800.0)
        self.store.write_fleet({
            kind: self.store.fleet(kind).facts
            for kind in ('host', 'uplink', 'aggregate')}, self.now)
        remarks = self.remarks()
        for what, age in (('flavors', r'70\d'), ('compute nodes', r'80\d')):
            self.assertRegex(remarks, rf'{what} of Nova are {age} s old')
        self.assertNotIn('aggregates of Nova', remarks)

    def test_an_empty_store_says_what_is_missing(self):
        self.assertEqual([], self.hosts())
        for message in ('no inventory', 'nothing has been learned yet'):
            self.assertIn(message, self.remarks())
        self.assertIn('\nRemarks:\n', self.text('fleet'))
