# SPDX-License-Identifier: Apache-2.0

import math
import types
import unittest
from unittest import mock

from nova.scheduler import weights as nova_weights
import numpy as np

from tests.unit.scheduler import base
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.scheduler import nova_hooks
from vswitch_aware_scheduler.scheduler import weights


def _assessment(loss, used=None, known=None, last=None):
    """Return what weights are computed from, of hosts in a row."""
    loss = np.asarray(loss, dtype=float)
    return types.SimpleNamespace(
        loss_fraction=loss,
        utilisation=np.zeros(loss.shape) if used is None else np.array(used),
        known=np.ones(loss.shape, dtype=bool) if known is None
        else np.array(known),
        last=np.zeros(loss.shape, dtype=bool) if last is None
        else np.array(last))


def _weights(*args, packs=False, **kwargs):
    one = _assessment(*args, **kwargs)
    return weights._weights(one, list(range(one.loss_fraction.size)), packs)


class TestScale(unittest.TestCase):

    def test_a_host_of_which_nothing_is_known_is_no_better_than_its_uplink(
            self):
        for loss, of_known, of_unknown in (
                (0.0, 1.0, weights.NEUTRAL), (1e-5, .6, .5), (1e-3, .4, .4),
                (1.0, .1, .1)):
            np.testing.assert_allclose(
                _weights([loss] * 2, known=[True, False]),
                [of_known, of_unknown])

    def test_hosts_in_debt_come_after_all_others(self):
        loss = [0.0, 1e-3, 1.0]
        for packs in (False, True):
            # Three hosts, and the same in debt.
            given = np.array(_weights(loss * 2, last=[False] * 3 + [True] * 3,
                                      packs=packs))
            others, last = given.reshape(2, 3) * (-1 if packs else 1)
            self.assertGreaterEqual(others.min(), last.max())
            # In the same order as without debt.
            plain = np.array(_weights(loss)) * (-1 if packs else 1)
            for part in (others, last):
                self.assertEqual(np.argsort(plain).tolist(),
                                 np.argsort(part).tolist())
            self.assertTrue(((given >= 0) & (given <= 1)).all())

    def test_each_decade_of_loss_and_utilisation_take_a_tenth(self):
        rng = np.random.default_rng(91)
        loss = np.append([0, 1e-300, 1e-9, 1e-5, 1],
                         10.0 ** rng.uniform(-12, 0, 99))
        used = np.append([0, 1, .5, 7, 1], rng.uniform(0, 2, 99))
        seen = _weights(loss, used)
        for weight, lost, share in zip(seen, loss, used):
            self.assertIs(float, type(weight))
            self.assertAlmostEqual(
                1 - (9 + math.log10(max(lost, 1e-9)) + min(share, 1)) / 10,
                weight, 12)

    def test_hosts_are_picked_by_their_place(self):
        one = _assessment([0.0, 1e-5, 1.0])
        np.testing.assert_allclose(weights._weights(one, [2, 0, 2]),
                                   [.1, 1, .1])


class WeigherTestCase(base.SchedulerTestCase):

    def setUp(self):
        super().setUp()
        self.store.answers = [base.changes(1, {
            1: 10.0, 2: 50.0, 3: 150.0, 4: 1500.0})]
        self.make_weigher()
        self.aggregate = base.aggregate(saturation_kbps='100')

    def make_weigher(self, **options):
        self.state = self.make_state(**options)
        with mock.patch.object(nova_hooks, 'join', autospec=True,
                               return_value=self.state) as join:
            self.weigher = weights.VSwitchWeigher()
        join.assert_called_once_with('weigher')

    def host(self, *instances, aggregates=None):
        return base.host_state(
            'host-' + '-'.join(map(str, instances)), instances,
            [self.aggregate] if aggregates is None else aggregates)

    def weigh(self, hosts, spec=None):
        return self.weigher.weigh_objects(
            [nova_weights.WeighedHost(host, 0) for host in hosts],
            spec or base.request(1))


class TestWeigher(WeigherTestCase):

    def test_the_host_that_loses_least_weighs_most(self):
        # With 10 more: a tenth used; 0.6; 60 of 160 lost; 1410 of 1510.
        seen = self.weigh([self.host(), self.host(2), self.host(3),
                           self.host(4)])
        # One instance alone exceeds the capacity of the last two.
        np.testing.assert_allclose(seen, [
            .1 + .9 * .99, .1 + .9 * .94,
            .1 - (9 + np.log10(60 / 160) + 1) / 100,
            .1 - (9 + np.log10(1410 / 1510) + 1) / 100], rtol=1e-9)

    def test_after_the_filter_hosts_are_not_judged_again(self):
        hosts = [self.host(), self.host(2)]
        spec = base.request(1)
        self.state.assess(hosts, spec)
        with mock.patch.object(self.state, 'assess',
                               autospec=True) as assess:
            np.testing.assert_allclose(self.weigh(hosts[::-1], spec),
                                       [.94, .99])
        assess.assert_not_called()

    def test_no_host_has_no_weight(self):
        self.assertEqual([], self.weigh([]))

    def test_one_host_is_weighed_alike(self):
        self.assertAlmostEqual(.94, self.weigher._weigh_object(
            self.host(2), base.request(1)), 12)

    def test_nova_stretches_nothing_and_packs_by_a_negative_multiplier(self):
        # With both ends of the scale stated nova normalises by them.
        self.assertEqual((0.0, 1.0), (self.weigher.minval,
                                      self.weigher.maxval))
        handler = nova_weights.HostWeightHandler()
        hosts = [self.host(), self.host(2)]
        for multiplier in (1.0, -2.0):
            weighed = handler.get_weighed_objects([self.weigher], hosts,
                                                  base.request(1))
            np.testing.assert_allclose(
                [one.weight for one in weighed],
                sorted([multiplier * .99, multiplier * .94], reverse=True))
            self.assertEqual(multiplier,
                             self.weigher.weight_multiplier(hosts[0]))
            self.aggregate.metadata['vswitch_weight_multiplier'] = '-2'

    def test_one_that_is_not_finite_changes_the_order_of_no_hosts(self):
        odd = base.aggregate(saturation_kbps='100')
        hosts = [self.host(3), self.host(2, aggregates=[odd]), self.host()]
        handler = nova_weights.HostWeightHandler()

        def order():
            return [one.obj.host for one in handler.get_weighed_objects(
                [self.weigher], hosts, base.request(1))]

        self.assertEqual(['host-', 'host-2', 'host-3'], order())
        for value in ('nan', 'inf', '1e999', '-inf'):
            odd.metadata['vswitch_weight_multiplier'] = value
            self.assertEqual(['host-', 'host-2', 'host-3'], order(), value)
        warning, *others = self.warnings
        self.assertEqual(2, len(others))     # 1e999 is inf
        for part in ('host-2', 'vswitch_weight_multiplier', 'nan', '1.0'):
            self.assertIn(part, warning)
        del odd.metadata['vswitch_weight_multiplier']
        order()
        self.assertIn('well again', self.infos[-1])


class TestFailOpen(WeigherTestCase):

    def test_hosts_weigh_alike_when_it_cannot_judge(self):
        with mock.patch.object(self.state, 'recall', autospec=True,
                               side_effect=KeyError('what')):
            for _ in range(3):
                self.assertEqual([weights.NEUTRAL] * 2,
                                 self.weigh([self.host(), self.host(2)]))
        self.assertEqual(1, len(self.warnings))
        for part in ('VSwitchWeigher', 'KeyError', 'alike'):
            self.assertIn(part, self.warnings[0])
        self.weigh([self.host()])
        self.assertEqual(['vswitch: VSwitchWeigher is well again'],
                         self.infos)

    def test_hosts_weigh_alike_without_a_store_by_an_option(self):
        self.make_weigher(degraded_policy='pass')
        self.store.answers = [exceptions.StoreError('gone')]
        self.assertEqual([weights.NEUTRAL] * 2,
                         self.weigh([self.host(), self.host(2)]))
        self.assertEqual(weights.NEUTRAL, self.weigher._weigh_object(
            self.host(), base.request(1)))
