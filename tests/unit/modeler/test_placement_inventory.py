# SPDX-License-Identifier: Apache-2.0

import json
import time
from unittest import mock
import uuid as uuids

from tests.fakes import placement_api
from tests.unit.store import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import host_policies
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.modeler import placement_inventory
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile

CLASS = placement_api.CLASS
Provider = placement_api.Provider
Cloud = placement_api.PlacementApi
access = placement_api.access
Outcome = placement_inventory.Outcome


def constant(kbps):
    return model.TrafficModel.constant(kbps)


class PlacementTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.store = self.make_store()
        self.cloud = self.enterContext(Cloud())
        self.keeper = self.make_keeper()

    def make_keeper(self, **more):
        return placement_inventory.PlacementInventories(
            access(self.cloud, '/v2.1'), access(self.cloud, '/placement'),
            host_policies.HostPolicies(
                {'small': profile.SwitchProfile(
                    'small', saturation_kbps=500.0)}, None,
                admission.PROBABILITY, 0, True,
                lambda topic, problem: None), **more)

    def keep(self):
        return self.keeper.update(self.store)

    def keep_host(self, **metadata):
        """Add host h1, and keep its inventory; return the node's uuid."""
        node = self.cloud.host('h1', **{'saturation_kbps': '1000',
                                        **metadata})
        self.keep()
        return node

    def provide(self, node):
        """Add the provider of our resources of host h1."""
        self.cloud.providers.setdefault(
            placement_inventory.provider_uuid(node),
            Provider('node-h1:vswitch', node))

    def made(self, node):
        """Return the provider of our resources beside that of a node."""
        return self.cloud.providers[placement_inventory.provider_uuid(node)]

    def refuse(self, status, is_refused):
        """Patch the cloud: some requests are answered by a status alone."""
        answer = self.cloud.answer

        def answer_or_refuse(method, path, parameters, body):
            if is_refused(method, path):
                return status, {}
            return answer(method, path, parameters, body)

        return mock.patch.object(self.cloud, 'answer', answer_or_refuse)

    def learn(self, kbps):
        """Store constant rates: {number of an instance: kbit/s}."""
        self.store.write(models=[
            store.StoredModel(base.instance_uuid(number), constant(kbps_of))
            for number, kbps_of in kbps.items()])


class KeeperTestCase(PlacementTestCase):

    def test_each_host_with_a_limit_gets_an_inventory_beside_its_own(self):
        node_1 = self.cloud.host('h1', saturation_kbps='1000')
        node_2 = self.cloud.host('h2', saturation_kbps='2000',
                                 overload_probability='0.01')
        without = self.cloud.host('h3')
        self.store.write(host_profiles=[store.HostProfile('h4', 'small')])
        stored = self.cloud.host('h4')
        with mock.patch.object(placement_inventory, 'PAGE', 2):
            outcome = self.keep()
        self.assertEqual(Outcome(3, 3, {}, {}), outcome)
        self.assertEqual((1000, 0), self.cloud.inventory(node_1))
        self.assertEqual((1500, 0), self.cloud.inventory(node_2))
        self.assertEqual((500, 0), self.cloud.inventory(stored))
        self.assertIsNone(self.cloud.inventory(without))
        provider = self.made(node_1)
        self.assertEqual(
            ('node-h1:vswitch', node_1), (provider.name, provider.parent))
        self.assertEqual(
            {'total': 1000, 'reserved': 0, 'min_unit': 1, 'step_size': 1,
             'max_unit': 2147483647, 'allocation_ratio': 1.0},
            provider.inventories[CLASS])
        self.assertEqual({}, self.cloud.providers[node_1].inventories)
        self.assertEqual({CLASS}, self.cloud.classes)

    def test_a_correct_inventory_is_not_written_nor_read_again(self):
        for number in range(5):
            self.cloud.host(f'h{number}', saturation_kbps='1000')
        self.keep()
        self.cloud.requests.clear()
        self.assertEqual(Outcome(5, 0, {}, {}), self.keep())
        self.assertEqual([], self.cloud.writes())
        self.assertGreaterEqual(
            2, sum('/placement/resource_providers' in path
                   for _, path, *_ in self.cloud.requests))
        # A modeler that starts reads it all and writes nothing.
        self.keeper = self.make_keeper()
        self.assertEqual(Outcome(5, 0, {}, {}), self.keep())
        self.assertEqual([], self.cloud.writes())

    def test_inventories_follow_aggregates(self):
        node = self.keep_host()
        self.cloud.aggregates[0][1]['vswitch:saturation_kbps'] = '700'
        self.keep()
        self.assertEqual((700, 0), self.cloud.inventory(node))

    def test_a_host_without_a_limit_refuses_no_instance_any_more(self):
        node = self.keep_host()
        del self.cloud.aggregates[0][1]['vswitch:saturation_kbps']
        self.assertEqual(Outcome(0, 1, {}, {}), self.keep())
        self.assertEqual((2147483647, 0), self.cloud.inventory(node))

    def test_what_instances_need_beyond_their_allocation_is_reserved(self):
        node = self.keep_host()
        self.learn({1: 300, 2: 50, 3: 80})
        self.cloud.allocate(base.instance_uuid(1), node, 100)
        # It needs less: what it does not need stays with it.
        self.cloud.allocate(base.instance_uuid(2), node, 90)
        # It has none: it was there before, or its host was forced.
        self.cloud.allocate(base.instance_uuid(3), node)
        self.keep()
        self.assertEqual((1000, 200 + 80), self.cloud.inventory(node))
        # Models that grow are followed.
        self.learn({2: 95})
        self.keep()
        self.assertEqual((1000, 205 + 80), self.cloud.inventory(node))
        # It also detects deleted instances, which change no generation.
        self.cloud.leave(base.instance_uuid(1))
        self.keep()
        self.assertEqual((1000, 5 + 80), self.cloud.inventory(node))

    def test_more_than_there_is_is_told_and_reserves_all(self):
        node = self.keep_host()
        self.learn({1: 1500})
        self.cloud.allocate(base.instance_uuid(1), node, 400)
        self.assertEqual({'h1': (400, 0)}, self.keep().short)
        self.assertEqual((1000, 1000), self.cloud.inventory(node))

    def test_a_host_is_short_until_its_instances_leave(self):
        node = self.keep_host()
        self.cloud.allocate(base.instance_uuid(1), node, 900)
        self.cloud.aggregates[0][1]['vswitch:saturation_kbps'] = '700'
        self.assertEqual({'h1': (900, 700)}, self.keep().short)
        self.cloud.leave(base.instance_uuid(1))
        self.assertEqual({}, self.keep().short)

    def test_a_host_that_can_carry_nothing_has_nothing_free(self):
        # Placement wants a total of at least 1, which is reserved.
        for kbps in ('0', '0.5'):
            node = self.cloud.host(f'h{kbps}', saturation_kbps=kbps)
            self.assertEqual({}, self.keep().left_out)
            self.assertEqual((1, 1), self.cloud.inventory(node))

    def test_instances_without_a_model_count_as_in_the_scheduler(self):
        node = self.cloud.host('h1', saturation_kbps='1000')
        numbers = dict(prior=1, unknown=2, booked=3, migration=4)
        self.store.write(
            placements=[store.InstanceRecord(base.instance_uuid(number), 'h1',
                                             flavor)
                        for number, flavor in ((1, 'f'), (2, 'g'), (3, 'f'))],
            priors=[store.Prior('f', None, constant(5000).law, 3.0)])
        for number in numbers.values():
            self.provide(node)
            self.cloud.allocate(base.instance_uuid(number), node,
                                10 if number == 3 else None)
        self.keeper = self.make_keeper(unknown=constant(30).law)
        self.keep()
        # A prior loads the switch at most fully; what was booked by it is
        # what there is to go by.
        self.assertEqual((1000, 1000), self.cloud.inventory(node))
        self.cloud.leave(base.instance_uuid(1))
        self.keep()
        self.assertEqual((1000, 30), self.cloud.inventory(node))

    def test_what_a_flavor_states_counts_as_in_the_scheduler(self):
        node = self.cloud.host('h1', saturation_kbps='10000')
        self.provide(node)
        self.cloud.flavors.update(
            stated={'vswitch:egress_kbps': '40', 'hw:x': 'y'},
            named={'vswitch:model': base.instance_uuid(9)},
            wrong={'vswitch:egress_kbps': 'fast'}, silent={})
        self.learn({9: 300})
        flavors = ['stated', 'stated', 'named', 'wrong', 'silent', 'gone',
                   None]
        self.store.write(
            placements=[
                store.InstanceRecord(base.instance_uuid(number), 'h1', flavor)
                for number, flavor in enumerate(flavors)],
            # Before the flavor comes what an instance has shown by itself,
            # after it what others have shown.
            priors=[store.Prior(None, None, constant(7).law, 20.0),
                    store.Prior(None, None, constant(2000).law, 5.0,
                                base.instance_uuid(1))])
        for number in range(len(flavors)):
            self.cloud.allocate(base.instance_uuid(number), node)
        with mock.patch.object(placement_inventory, 'PAGE', 2):
            self.keep()
        self.assertEqual((10000, 40 + 2000 + 300 + 4 * 7),
                         self.cloud.inventory(node))
        # A flavor that changes is followed.
        self.cloud.flavors['stated']['vswitch:egress_kbps'] = '50'
        self.keep()
        self.assertEqual((10000, 50 + 2000 + 300 + 4 * 7),
                         self.cloud.inventory(node))

    def test_a_write_meanwhile_is_no_obstacle(self):
        node = self.keep_host()
        self.learn({1: 300})
        self.cloud.allocate(base.instance_uuid(1), node, 100)

        def boot():
            self.cloud.before_write = lambda: None
            self.cloud.allocate(base.instance_uuid(1), node, 250)

        self.cloud.before_write = boot
        self.keep()
        self.assertEqual((1000, 50), self.cloud.inventory(node))

    def test_a_claim_while_it_reads_is_not_missed(self):
        node = self.keep_host()
        self.learn({1: 300})
        self.cloud.allocate(base.instance_uuid(1), node, 100)
        answer = self.cloud.answer

        def claim(method, path, *rest):
            reply = answer(method, path, *rest)
            if path.endswith('/inventories') and method == 'GET':
                reply = json.loads(json.dumps(reply))
                self.cloud.allocate(base.instance_uuid(1), node, 250)
            return reply

        with mock.patch.object(self.cloud, 'answer', claim):
            self.keep()
        self.assertEqual((1000, 50), self.cloud.inventory(node))

    def test_a_list_that_goes_round_in_circles_ends(self):
        self.cloud.host('h1', saturation_kbps='1000')
        answer = self.cloud.answer

        def circle(method, path, *more):
            status, body = answer(method, path, *more)
            if 'hypervisors' in path:
                body['hypervisors_links'] = [{'rel': 'next', 'href': 'x'}]
                body['hypervisors'] = body['hypervisors'] or begun
                begun[:] = body['hypervisors']
            return status, body

        begun = []
        with mock.patch.object(self.cloud, 'answer', circle):
            self.assertEqual(1, self.keep().hosts)

    def test_writes_without_end_are_given_up(self):
        node = self.cloud.host('h1', saturation_kbps='1000')
        self.provide(node)
        self.cloud.before_write = lambda: self.cloud.allocate('x', node, 1)
        self.assertRegex(self.keep().left_out['h1'], 'HTTP 409')
        self.assertEqual(5, len(self.cloud.writes()))

    def test_a_provider_that_another_modeler_made_will_do(self):
        node = self.cloud.host('h1', saturation_kbps='1000')

        def make():
            self.cloud.before_write = lambda: None
            self.provide(node)

        self.cloud.before_write = make
        self.assertEqual(1, self.keep().written)
        self.assertEqual((1000, 0), self.cloud.inventory(node))

    def test_hosts_that_can_have_none_are_told(self):
        node = self.cloud.host('h1', saturation_kbps='1000')
        self.cloud.hosts[str(uuids.uuid4())] = ('other', 'h1')
        without = self.cloud.host('h2', saturation_kbps='1000')
        del self.cloud.providers[without]
        outcome = self.keep()
        self.assertEqual((0, {'h1', 'h2'}), (
            outcome.hosts, set(outcome.left_out)))
        self.assertIn('2 compute nodes', outcome.left_out['h1'])
        self.assertIn('no provider', outcome.left_out['h2'])
        self.assertIsNone(self.cloud.inventory(node))

    def test_bare_metal_has_none_unless_an_aggregate_asks_to_judge_it(self):
        node = self.cloud.host('h1', saturation_kbps='1000')
        self.cloud.types['h1'] = 'ironic'
        self.assertEqual((0, {}), (self.keep().hosts, self.keep().left_out))
        self.assertIsNone(self.cloud.inventory(node))
        # Of several nodes nobody is told either.
        self.cloud.hosts[str(uuids.uuid4())] = ('other', 'h1')
        self.assertEqual({}, self.keep().left_out)
        self.cloud.hosts.popitem()
        self.cloud.aggregates[0][1]['vswitch:judge'] = 'true'
        self.assertEqual(1, self.keep().hosts)
        self.assertEqual((1000, 0), self.cloud.inventory(node))

    def test_an_inventory_that_somebody_changed_is_put_right(self):
        node = self.keep_host()
        provider = self.made(node)
        provider.inventories[CLASS]['allocation_ratio'] = 16.0
        provider.generation += 1
        self.assertEqual(1, self.keep().written)
        self.assertEqual(1.0, provider.inventories[CLASS]['allocation_ratio'])

    def test_progress_is_told(self):
        for number in range(3):
            self.cloud.host(f'h{number}', saturation_kbps='1000')
        reports = []
        self.keeper.update(self.store, lambda *numbers: reports.append(
            numbers))
        self.assertEqual([(0, 3), (1, 3), (2, 3)], reports)

    def test_a_host_that_is_refused_keeps_no_other_from_its_own(self):
        node_1, node_2 = (self.cloud.host(f'h{n}', saturation_kbps='1000')
                          for n in range(2))
        answer = self.cloud.answer

        def refuse(method, path, parameters, body):
            of_first = placement_inventory.provider_uuid(node_1) in (
                path.split('/') + [(body or {}).get('uuid')])
            if method == kind and of_first:
                return 403, {}
            return answer(method, path, parameters, body)

        for kind in ('POST', 'PUT'):
            with mock.patch.object(self.cloud, 'answer', refuse):
                outcome = self.keep()
            self.assertEqual((1, ['h0']), (
                outcome.hosts, list(outcome.left_out)))
            self.assertIn('HTTP 403', outcome.left_out['h0'])
            self.assertIsNone(self.cloud.inventory(node_1))
            self.assertEqual((1000, 0), self.cloud.inventory(node_2))
        self.assertEqual({}, self.keep().left_out)

    def test_a_name_that_somebody_has_is_told(self):
        # A compute node that was made anew has another uuid.
        node = self.cloud.host('h1', saturation_kbps='1000')
        own_provider = placement_inventory.provider_uuid(node)
        with self.refuse(404, lambda _, path: own_provider in path), \
                self.refuse(409, lambda method, _: method == 'POST'):
            self.assertIn('HTTP 404', self.keep().left_out['h1'])

    def test_a_placement_that_is_not_there_is_told(self):
        self.cloud.host('h1', saturation_kbps='1000')
        with self.refuse(503, lambda _, path: 'placement' in path), \
                self.assertRaisesRegex(exceptions.TelemetryError,
                                       'HTTP 503'):
            self.keep()


class ReviewTestCase(PlacementTestCase):

    def test_a_review_of_correct_inventories_reports_nothing(self):
        node = self.cloud.host('h1', saturation_kbps='1000')
        self.cloud.host('h2', saturation_kbps='0.5')
        self.cloud.host('h3')
        self.keep()
        # What is reserved belongs to a moment.
        self.made(node).inventories[CLASS]['reserved'] = 70
        self.cloud.requests.clear()
        self.assertEqual(placement_inventory.Review(2, {}, []),
                         self.make_keeper().review(self.store))
        self.assertEqual([], self.cloud.writes())

    def test_what_is_missing_or_outdated_is_told_host_by_host(self):
        for number in range(1, 4):
            self.cloud.host(f'h{number}', saturation_kbps='1000')
        # It is not asked about: nothing limits it.
        self.cloud.hosts[str(uuids.uuid4())] = ('other', 'h5')
        self.cloud.host('h5')
        self.keep()
        self.cloud.host('h4', saturation_kbps='1000')
        self.cloud.hosts[str(uuids.uuid4())] = ('other', 'h3')
        self.cloud.aggregates[1][1]['vswitch:saturation_kbps'] = '700'
        review = self.make_keeper().review(self.store)
        self.assertEqual(
            (4, {'h2': 'it is of 1000 kbit/s; expected 700',
                 'h3': review.wrong['h3'], 'h4': 'it has none'}),
            (review.hosts, review.wrong))
        self.assertIn('2 compute nodes', review.wrong['h3'])

    def test_a_provider_without_an_inventory_is_none(self):
        node = self.cloud.host('h1', saturation_kbps='1000')
        self.provide(node)
        self.assertEqual({'h1': 'it has none'},
                         self.keeper.review(self.store).wrong)

    def test_uplinks_are_named(self):
        for number, name in enumerate(('tor2', 'tor1', 'tor1')):
            self.cloud.host(f'h{number}', saturation_kbps='1000',
                            uplink=name)
        self.assertEqual(['tor1', 'tor2'],
                         self.keeper.review(self.store).uplinks)


class RemovalTestCase(PlacementTestCase):

    def test_all_of_ours_goes_and_nothing_else(self):
        nodes = [self.cloud.host(f'h{n}', saturation_kbps='1000')
                 for n in range(2)]
        self.keep()
        self.cloud.allocate('a', nodes[0], 100)
        self.cloud.allocate('b', nodes[0], 200)
        self.cloud.allocate('c', nodes[1])
        child = str(uuids.uuid4())
        self.cloud.providers[child] = Provider('other', nodes[0])
        self.cloud.allocations['a'][child] = {'NET_BW_EGR_KILOBIT_PER_SEC': 7}
        self.assertEqual([('node-h0:vswitch', 1000, 0, 300),
                          ('node-h1:vswitch', 1000, 0, 0)],
                         self.keeper.inventories())
        # In two steps: nova-compute has seen them, and asks for them.
        self.assertEqual((2, 2, 0, 2), self.keeper.remove(providers=True))
        self.assertEqual((0, 0, 0, 2), self.keeper.remove(providers=True))
        self.assertEqual({None}, {self.made(node).parent for node in nodes})
        self.assertEqual((0, 0, 0, 0), self.keeper.remove())
        later = time.time() + placement_inventory.DETACHED_SECONDS + 1
        with mock.patch.object(placement_inventory.time, 'time',
                               lambda: later):
            self.assertEqual((0, 0, 2, 0),
                             self.keeper.remove(providers=True))
        self.assertEqual({*nodes, child}, set(self.cloud.providers))
        self.assertEqual(set(), self.cloud.classes)
        self.assertEqual(
            {'a': {nodes[0]: {'VCPU': 1},
                   child: {'NET_BW_EGR_KILOBIT_PER_SEC': 7}},
             'b': {nodes[0]: {'VCPU': 1}}, 'c': {nodes[1]: {'VCPU': 1}}},
            self.cloud.allocations)
        self.assertEqual([], self.keeper.inventories())
        # It can be switched on again, at any time.
        self.assertEqual(2, self.keep().written)
        self.keeper.remove(providers=True)
        self.assertEqual(2, self.keep().written)
        for node in nodes:
            provider = self.made(node)
            self.assertEqual(node, provider.parent)
            self.assertEqual(f'{self.cloud.hosts[node][0]}:vswitch',
                             provider.name)

    def test_providers_stay_empty_for_those_who_know_them(self):
        node = self.keep_host()
        self.cloud.allocate('a', node, 100)
        self.assertEqual((1, 1, 0, 0), self.keeper.remove())
        self.assertEqual({}, self.made(node).inventories)
        self.assertEqual(set(), self.cloud.classes)
        self.assertEqual([], self.keeper.inventories())
        self.assertEqual(1, self.keep().written)
        self.assertEqual((1000, 0), self.cloud.inventory(node))

    def test_an_instance_that_moves_meanwhile_is_asked_again(self):
        node = self.keep_host()
        self.cloud.allocate('a', node, 100)

        def change():
            self.cloud.before_write = lambda: None
            self.cloud.generations['a'] += 1

        self.cloud.before_write = change
        self.assertEqual((1, 1, 0, 0), self.keeper.remove())

    def test_a_consumer_that_left_meanwhile_is_left_alone(self):
        node = self.keep_host()
        self.cloud.allocate('a', node, 100)
        answer = self.cloud.answer

        def gone(method, path, *more):
            if path.endswith('/allocations/a'):
                self.cloud.allocations.pop('a', None)
            return answer(method, path, *more)

        with mock.patch.object(self.cloud, 'answer', gone):
            self.assertEqual((1, 0, 0, 0), self.keeper.remove())

    def test_changes_without_end_are_given_up(self):
        node = self.keep_host()
        self.cloud.allocate('a', node, 100)

        def change():
            self.cloud.generations['a'] += 1

        self.cloud.before_write = change
        with self.assertRaisesRegex(exceptions.TelemetryError, 'HTTP 409'):
            self.keeper.remove()

    def test_a_class_that_others_use_or_nobody_has_may_stay(self):
        node = self.cloud.host('h1')
        self.cloud.providers[node].inventories[CLASS] = {}
        self.cloud.classes.add(CLASS)
        self.assertEqual((0, 0, 0, 0), self.keeper.remove())
        self.assertEqual({CLASS}, self.cloud.classes)
        with self.refuse(403, lambda method, _: method == 'DELETE'), \
                self.assertRaisesRegex(exceptions.TelemetryError,
                                       'HTTP 403'):
            self.keeper.remove()

    def test_a_provider_without_an_inventory_is_not_shown(self):
        node = self.cloud.host('h1')
        self.provide(node)
        self.assertEqual([], self.keeper.inventories())
        self.assertEqual((0, 0, 0, 0), self.keeper.remove())
        self.assertEqual((0, 0, 0, 1), self.keeper.remove(providers=True))
