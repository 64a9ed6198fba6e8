# SPDX-License-Identifier: Apache-2.0

import unittest
from unittest import mock

from nova.network import model as network_model
from nova import objects

from vswitch_aware_scheduler.scheduler import request_demand
from vswitch_aware_scheduler.store import snapshot as snapshots
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments

objects.register_all()

UUID = 'fdb6c7b5-7b0f-4e4e-8d4e-0f4e7f4b1a11'
LEARNED = model.TrafficModel.constant(1).law
OTHER = model.TrafficModel.constant(2).law
DEFAULT = model.TrafficModel.constant(3).law


def _spec(extra_specs=None, resources=(), uuid=UUID):
    """Return a RequestSpec with what is stated set, and nothing else."""
    flavor = objects.Flavor(name='m1.test')
    if extra_specs is not None:
        flavor.extra_specs = extra_specs
    spec = objects.RequestSpec(flavor=flavor)
    if uuid:
        spec.instance_uuid = uuid
    if resources is not None:
        spec.requested_resources = [
            objects.RequestGroup(resources=one) for one in resources]
    return spec


class TestDemand(unittest.TestCase):
    """The facts of a request; admission's tests have what follows of them."""

    def setUp(self):
        super().setUp()
        self.reports = []

    def demand(self, spec, default=DEFAULT, laws=None, **priors):
        snapshot = snapshots.Snapshot(laws=laws, priors={
            tuple(key.split('_')): law for key, law in priors.items()})
        return request_demand.demand_of(
            spec, snapshot, default,
            lambda topic, problem: self.reports.append((topic, problem)))

    def assertDemand(self, rule, law, spec, **kwargs):
        demand = self.demand(spec, **kwargs)
        self.assertEqual(rule, demand.rule)
        self.assertEqual(law, demand.law)
        return demand

    def test_flavor_project_and_instance_are_those_of_the_request(self):
        spec = _spec({'vswitch:egress_kbps': '700'})
        demand = self.assertDemand(
            'flavor', model.TrafficModel.constant(700).law, spec)
        self.assertEqual(UUID, demand.instance_uuid)
        self.assertDemand('model', LEARNED, spec, laws={UUID: LEARNED})
        spec = _spec({})
        spec.project_id = 'p'
        self.assertDemand('prior of flavor and project', OTHER, spec,
                          **{'m1.test_p': OTHER, 'm1.test_q': LEARNED})
        self.assertDemand('unknown', rate_law.SILENT, spec, default=None)

    def test_fields_that_are_not_set_are_not_loaded(self):
        # Reading them would go to the database, or raise.
        for spec in (_spec(resources=None), objects.RequestSpec()):
            demand = self.assertDemand('default', DEFAULT, spec,
                                       laws={None: LEARNED})
            self.assertIsNone(demand.guaranteed)
        self.assertIsNone(demand.instance_uuid)

    def test_guaranteed_rates_of_all_ports_add_up(self):
        demand = self.demand(_spec({}, [
            {'NET_BW_EGR_KILOBIT_PER_SEC': 100, 'VCPU': 4},
            {'NET_BW_EGR_KILOBIT_PER_SEC': 20,
             'NET_BW_IGR_KILOBIT_PER_SEC': 30}]), default=None)
        self.assertEqual((120, 30, 0), demand.guaranteed)
        self.assertEqual(model.TrafficModel.constant(120, 30).law,
                         demand.law_on(None))

    def test_the_flavor_is_reported(self):
        self.demand(_spec({'vswitch:egress_kbps': '5'}))
        self.assertEqual([('flavor m1.test', None)], self.reports)
        self.assertDemand('default', DEFAULT,
                          _spec({'vswitch:egress_kbps': 'fast'}))
        topic, problem = self.reports[1]
        self.assertEqual('flavor m1.test', topic)
        self.assertIn('its vswitch: extra specs are ignored', problem)


class TestStatements(unittest.TestCase):

    def test_the_latest_that_is_said_is_remembered(self):
        said = request_demand.Statements()
        self.assertTrue(said.add('x', (1, 0, 0), None))
        self.assertTrue(said.add('x', None, 'attached'))
        self.assertFalse(said.add('x', (1, 0, 0), 'attached'))
        self.assertEqual({'x': (1, 0, 0)}, said.guarantees)
        self.assertEqual('attached', said.attachments('x'))
        self.assertIsNone(said.attachments('y'))
        # A move says that the guarantee has gone.
        self.assertTrue(said.add('x', (0, 0, 0), None))
        self.assertEqual({}, said.guarantees)

    def test_those_of_whom_nothing_was_said_for_longest_are_forgotten(self):
        said = request_demand.Statements()
        with mock.patch.object(request_demand, '_MOST_STATEMENTS', 2):
            for uuid in 'xyxz':
                said.add(uuid, (1, 0, 0), None)
        self.assertEqual(set('xz'), said.guarantees.keys())


class TestAttachments(unittest.TestCase):

    def spec(self, *networks, tunneled=None, functions=None, known=None):
        """Return the Attachments of a request.

        :param networks: id, or (id, port id)
        :param functions: of ports; a passthrough device stands beside them
        """
        spec = _spec()
        if networks:
            spec.requested_networks = objects.NetworkRequestList(objects=[
                objects.NetworkRequest(network_id=one[0], port_id=one[1])
                if isinstance(one, tuple) else
                objects.NetworkRequest(network_id=one) for one in networks])
        if tunneled is not None:
            spec.network_metadata = objects.NetworkMetadata(
                physnets=set(), tunneled=tunneled)
        if functions is not None:
            spec.pci_requests = objects.InstancePCIRequests(requests=[
                objects.InstancePCIRequest(count=2, alias_name='gpu',
                                           spec=[]),
                *(objects.InstancePCIRequest(
                    count=1, requester_id=UUID,
                    spec=[{'physical_network': 'net'}])
                  for _ in range(functions))])
        return request_demand.attachments_of(spec, known)

    def test_networks_that_are_asked_for_are_those(self):
        # With a tunnel, and without one.
        for networks, tunneled, tunnels, others in (
                (('red',), None, ('red',), ()),
                (('red', 'blue'), None, ('red', 'blue'), ()),
                # As for a move, of an interface that is there.
                ((('red', UUID),), None, ('red',), ()),
                # Of a port, or of none in particular, nobody can know.
                (((None, UUID), 'red'), None, (None, 'red'), ()),
                (('auto',), None, (None,), ()),
                (((None, None),), None, (None,), ()),
                (('none',), None, (), ()), ((), None, (None,), ()),
                (('grey', 'red'), True, ('grey', 'red'), ()),
                # Networks that need no tunnel open none.
                (('grey', 'red'), False, (), ('grey', 'red')),
                (((None, UUID),), False, (), (None,)),
                # Nova has not looked it up.
                (('auto',), False, (None,), ())):
            self.assertEqual(
                attachments.Attachments(tunnels, others, 0), self.spec(
                    *networks, tunneled=tunneled, functions=0), networks)

    def test_ports_with_a_function_of_the_nic_count(self):
        for functions in (0, 1, 3):
            self.assertEqual(functions, self.spec(
                'red', functions=functions).virtual_functions)
        # Of a request that does not tell, one.
        self.assertEqual(1, self.spec('red').virtual_functions)
        self.assertEqual(attachments.UNKNOWN, self.spec())
        self.assertEqual(5, self.spec('red', known=attachments.Attachments(
            ('red',), (), 5)).virtual_functions)

    def test_what_is_known_of_one_that_moves_fills_the_gaps(self):
        known = attachments.Attachments(('red',), ('grey',), 2)
        self.assertEqual(known, self.spec(known=known))
        self.assertEqual(known, self.spec(functions=0, known=known))
        # Nova says of every move that there are tunnels.
        self.assertEqual(
            attachments.Attachments(('red', 'blue'), ('grey',), 2),
            self.spec('red', 'grey', 'blue', tunneled=True, functions=2,
                      known=known))


class TestAttachmentsOfInstance(unittest.TestCase):

    def test_interfaces_that_an_instance_has_are_counted(self):
        def interface(network, vnic='normal', **meta):
            return {'network': {'id': network, 'meta': meta},
                    'vnic_type': vnic}

        instance = objects.Instance(uuid=UUID)
        self.assertIsNone(request_demand.attachments_of_instance(None))
        self.assertIsNone(request_demand.attachments_of_instance(instance))
        for interfaces, expected in (
                ([], None),
                ([interface('red', tunneled=True), interface('blue')],
                 attachments.Attachments(('red', 'blue'))),
                ([interface('grey', 'direct', tunneled=False,
                            physical_network='net'),
                  interface('red', 'macvtap')],
                 attachments.Attachments(('red',), ('grey',), 2)),
                ([interface('red'), {**interface('blue'), 'network': None}],
                 attachments.Attachments(('red', None)))):
            instance.info_cache = objects.InstanceInfoCache(
                network_info=network_model.NetworkInfo(interfaces))
            self.assertEqual(expected,
                             request_demand.attachments_of_instance(instance))
        instance.info_cache = objects.InstanceInfoCache()
        self.assertIsNone(request_demand.attachments_of_instance(instance))
