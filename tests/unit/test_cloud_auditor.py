# SPDX-License-Identifier: Apache-2.0
"""The auditor of tests/cloud finds what is wrong."""

import json
import math
import unittest

from tests.cloud import auditor
from vswitch_aware_scheduler.traffic import model

ON_OFF = {'vswitch:egress_kbps': '400', 'vswitch:ingress_kbps': '100',
          'vswitch:on_seconds': '10', 'vswitch:off_seconds': '90'}


class FakeCloud:
    """Rows of the databases.

    :param instances: [(uuid, host, extra specs)]
    :param allocations: [(uuid, host)], those of the instances by default
    :param models: {uuid: TrafficModel}
    :param states: {uuid: (vm_state, task_state)}, active by default
    :param moves: [(uuid, source, destination)] in progress
    :param old: {uuid: extra specs} of the flavors before resizes
    """

    def __init__(self, instances, allocations=None, models=None, states=(),
                 moves=(), old=()):
        states, old = dict(states), dict(old)
        self.database = self.store = self.openstack = self
        self._rows = {
            'nova': [{'uuid': uuid, 'host': host, 'flavor': json.dumps({
                'cur': {'nova_object.data': {'extra_specs': specs}},
                'old': uuid in old and {
                    'nova_object.data': {'extra_specs': old[uuid]}} or None,
                'new': None}), **dict(zip(
                    ('vm_state', 'task_state'),
                    states.get(uuid, ('active', None))))}
                for uuid, host, specs in instances],
            'migrations': [dict(zip(
                ('instance_uuid', 'source_compute', 'dest_compute'), move))
                for move in moves],
            'placement': [{'consumer_id': uuid, 'name': host}
                          for uuid, host in (
                              [one[:2] for one in instances]
                              if allocations is None else allocations)],
            'vswitch': [{'instance_uuid': uuid,
                         'model': json.dumps(one.to_dict())}
                        for uuid, one in (models or {}).items()]}

    def rows(self, name, statement):
        return self._rows[name]

    def cell_rows(self, statement):
        return self._rows['migrations' if 'FROM migrations' in statement
                          else 'nova']


class AuditorTest(unittest.TestCase):

    def auditor(self, *args, limit=.01, **kwargs):
        return auditor.Auditor(FakeCloud(*args, **kwargs), 1000, limit)

    def many(self, count):
        return [(f'vm-{number}', 'a', ON_OFF) for number in range(count)]

    def test_the_overload_of_like_instances_is_binomial(self):
        for count in (2, 3, 8):
            judge = self.auditor(self.many(count))
            laws = judge.laws(judge.instances()).values()
            tail = sum(math.comb(count, on) * .1 ** on * .9 ** (count - on)
                       for on in range(3, count + 1))
            self.assertAlmostEqual(tail, judge.overload(list(laws)), 12)

    def test_a_host_above_the_limit_is_found(self):
        # P(more than 2 of 4) is .0037, of 5 it is .0086, of 6 .0159.
        self.assertEqual([], self.auditor(self.many(5)).overloads())
        overload, = self.auditor(self.many(6)).overloads()
        self.assertIn('a with 6 instances', overload)
        self.assertIn('0.0159', overload)

    def test_a_learned_model_counts_in_place_of_the_flavor(self):
        quiet = model.TrafficModel.constant()
        judge = self.auditor(self.many(6), models={'vm-0': quiet})
        self.assertEqual([], judge.overloads())
        steady = model.TrafficModel.on_off(600, on_seconds=1, off_seconds=1)
        judge = self.auditor(self.many(3), models={'vm-0': steady})
        # It is on, and one of the two others at least.
        self.assertIn(f'{.5 * .19:.3g}', judge.overloads()[0])

    def test_allocations_elsewhere_are_found(self):
        for hosts, message in ((['b'], "['b']"), (['a', 'b'], "['a', 'b']"),
                               ([], 'no host')):
            misallocated, = self.auditor(self.many(1), allocations=[
                ('vm-0', host) for host in hosts]).misallocated()
            self.assertIn(message, misallocated)

    def test_counts_that_are_wrong_are_found(self):
        judge = self.auditor(self.many(2))
        self.assertEqual([], judge.miscounted(
            {1: {'a': ['vm-0', 'vm-1']}, 2: {'a': ['vm-1', 'vm-0']}}))
        for counted, message in (
                ({'a': ['vm-0', 'vm-1'], 'b': ['vm-1']}, '1 instances twice'),
                ({'a': ['vm-0'], 'b': ['vm-1']}, '1 not where'),
                ({'a': ['vm-0']}, '1 not where'),
                ({'a': ['vm-0', 'vm-1', 'vm-7']}, '1 that are no more')):
            miscounted, = judge.miscounted({1: counted})
            self.assertIn(message, miscounted)


class ResidencyTest(unittest.TestCase):
    """Where an instance has to count, by the databases alone."""

    SPECS = {'vswitch:egress_kbps': '400'}

    def auditor(self, states=(), moves=(), old=()):
        return auditor.Auditor(FakeCloud(
            [('x', 'a', self.SPECS), ('y', 'b', self.SPECS),
             ('z', None, self.SPECS)], states=states, moves=moves, old=old),
            1000, .01)

    def test_both_hosts_of_a_migration_have_the_instance(self):
        judge = self.auditor(
            moves=[('x', 'b', 'a')], old={'x': {'vswitch:egress_kbps': '70'}},
            states={'x': ('resized', None)})
        self.assertEqual({'x': ({'a': 400.0, 'b': 70.0}, True),
                          'y': ({'b': 400.0}, True), 'z': ({}, True)},
                         judge.residency())
        self.assertEqual({'a': 400.0, 'b': 470.0}, dict(judge.loads()))

    def test_the_larger_flavor_counts_on_the_same_host(self):
        judge = self.auditor(moves=[('x', 'a', 'a')],
                             old={'x': {'vswitch:egress_kbps': '700'}})
        self.assertEqual({'a': 700.0}, judge.residency()['x'][0])

    def test_an_offloaded_instance_is_nowhere(self):
        judge = self.auditor(states={'x': ('shelved_offloaded', None)})
        self.assertEqual({}, judge.residency()['x'][0])

    def test_a_worker_that_counts_otherwise_is_named(self):
        judge = self.auditor()
        counted = {'a': ['x'], 'b': ['y']}
        self.assertEqual([], judge.differences({1: counted}))
        for wrong, uuid in (({'a': ['x']}, 'y'),
                            ({'a': ['x', 'z'], 'b': ['y']}, 'z'),
                            ({'a': ['x', 'y'], 'b': ['y']}, 'y'),
                            ({'a': ['x', 'gone'], 'b': ['y']}, 'gone')):
            difference, = judge.differences({1: counted, 2: wrong})
            self.assertIn('worker 2', difference)
            self.assertIn(uuid, difference)

    def test_what_is_under_way_is_not_judged(self):
        judge = self.auditor(states={'x': ('active', 'migrating'),
                                     'z': ('building', None)})
        self.assertEqual(['x', 'z'], judge.unsettled())
        self.assertEqual([], judge.differences(
            {1: {'b': ['x', 'y'], 'a': ['z']}}))
