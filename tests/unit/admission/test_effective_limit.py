# SPDX-License-Identifier: Apache-2.0

import dataclasses
import itertools
import math
import unittest
from unittest import mock

import numpy as np

from tests.unit.traffic import exact
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import effective_limit
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import profile


def policy_of(limit=.01, policy=admission.PROBABILITY, **numbers):
    return admission.HostPolicy(
        profile.SwitchProfile('test', **numbers), policy, limit)


def on_off(kbps, share, **more):
    return model.TrafficModel.on_off(
        kbps, on_seconds=100 * share, off_seconds=100 * (1 - share),
        **more).law


def overload(laws, capacities):
    """Return P(any limit is exceeded), by listing all joint states.

    :param capacities: [(weights, capacity)]
    """
    probability = 0.0
    for states in itertools.product(*[
            range(len(law.rates)) for law in laws]):
        rates = sum((law.rates[s] for law, s in zip(laws, states)),
                    np.zeros(3))
        if any(rates @ weights > capacity * (1 + 1e-12)
               for weights, capacity in capacities):
            probability += math.prod(law.probabilities[s]
                                     for law, s in zip(laws, states))
    return probability


def limit_of(*args, **numbers):
    """Return the EffectiveLimit of policy_of()."""
    return effective_limit.EffectiveLimit.of(policy_of(*args, **numbers))


class AmountTestCase(unittest.TestCase):

    def test_like_on_off_instances_are_within_the_limit_by_the_binomial(self):
        for limit in (.2, .01, 1e-4):
            for share, fit in ((.05, 20), (.3, 10), (.3, 100), (.8, 30)):
                host = limit_of(limit, saturation_kbps=1000 * fit)
                count = host.total // host.amount(on_off(1000, share))
                with self.subTest(limit=limit, share=share, fit=fit):
                    self.assertLess(0, count)
                    self.assertLessEqual(
                        float(exact.binomial_tail(count, share, fit)), limit)

    def test_random_fleets_within_the_total_are_within_the_limit(self):
        generator = np.random.default_rng(5)
        closest = 0.0
        for _ in range(300):
            limit = float(generator.choice([.3, .1, .01]))
            numbers = {'saturation_kbps': 1000.0,
                       'line_rate_kbps': float(generator.choice([400, 800])),
                       'packet_rate_kpps': float(generator.choice([90, 300]))}
            policy = policy_of(limit, **numbers)
            host = effective_limit.EffectiveLimit.of(
                policy, float(generator.choice([.25, .4, .6])))
            laws, used = [], 0
            while len(laws) < 6:
                size = int(generator.integers(1, 4))
                law = rate_law.RateLaw.from_arrays(
                    generator.dirichlet(np.full(size, .2)),
                    generator.random((size, 3)) ** 2 * (700, 300, 60))
                used += host.amount(law)
                if used > host.total:
                    break
                laws.append(law)
            probability = overload(laws, [
                ((1, 1, 0), 1000), ((1, 0, 0), numbers['line_rate_kbps']),
                ((0, 1, 0), numbers['line_rate_kbps']),
                ((0, 0, 1), numbers['packet_rate_kpps'])])
            self.assertLessEqual(probability, limit)
            closest = max(closest, probability / limit)
        # The fleets are such that there is something to be safe from.
        self.assertGreater(closest, .03)

    def test_an_amount_is_the_effective_bandwidth(self):
        host = limit_of(0.01, saturation_kbps=1e4)
        exponent = -math.log(.01) / (.25 * 1e4)
        self.assertEqual(
            math.ceil(math.log(.75 + .25 * math.exp(100 * exponent))
                      / exponent), host.amount(on_off(100, .25)))

    def test_who_is_busy_together_has_more_kept_free(self):
        rng = np.random.default_rng(6)
        busy = rng.random(504) < .05
        for limit in (.03, .01):
            policy = policy_of(limit, saturation_kbps=10_000)
            host = effective_limit.EffectiveLimit.of(policy)
            for together in (True, False):
                laws, full = [], False
                while not full:
                    high = busy & (rng.random(504) < .9) | (
                        rng.random(504) < .01) if together \
                        else rng.random(504) < .06
                    share = high.mean()
                    laws.append(rate_law.RateLaw.from_arrays(
                        [1 - share, share], [[5, 0, 0], [500, 0, 0]], high,
                        1))
                    held_back = host.held_back(laws)
                    full = sum(map(host.amount, laws)) \
                        + held_back > host.total
                # The last one is what placement refuses.
                table = admission.LoadTable()
                slot = table.describe('host', policy, dict(enumerate(
                    laws[:-1])))
                self.assertLessEqual(float(table.assess(
                    [slot], model.TrafficModel.constant().law
                ).overload_probability[0]), limit)
                if together:
                    self.assertGreater(held_back, 1000)
                    count = len(laws)
            # Of those that have nothing in common more fit.
            self.assertGreater(len(laws), 1.3 * count)

    def test_nothing_is_kept_free_without_classes_or_risk(self):
        host = limit_of(saturation_kbps=10_000)
        self.assertEqual(0, host.held_back([]))
        self.assertEqual(0, host.held_back([on_off(1000, .3)] * 20))
        law = rate_law.RateLaw.from_arrays(
            [.9, .1], [[0, 0, 0], [100, 0, 0]], np.arange(504) < 50, 1)
        # All peaks fit.
        self.assertEqual(0, host.held_back([law] * 9))
        self.assertLessEqual(host.held_back([law] * 3000), host.total)
        for policy in ({'limit': 0}, {'policy': admission.AVERAGE}):
            self.assertEqual(0, limit_of(
                saturation_kbps=1000, **policy).held_back([law] * 20))

    def test_without_a_risk_the_peaks_have_to_fit(self):
        host = limit_of(0, saturation_kbps=10_000)
        self.assertEqual(10_000, host.total)
        for kbps in (1000, 999.5, 1000 + 1e-8):
            self.assertEqual(1000, host.amount(on_off(kbps, .001)))

    def test_error_budgets_change_no_amount(self):
        policy = policy_of(.01, saturation_kbps=10_000)
        law = on_off(1000, .1)
        amounts = [
            (host.total, host.amount(law)) for host in map(
                effective_limit.EffectiveLimit.of,
                (policy, dataclasses.replace(
                    policy, budget_limit_factor=8.0), policy_of(
                        .08, saturation_kbps=10_000)))]
        self.assertEqual(amounts[0], amounts[1])
        self.assertNotEqual(amounts[0], amounts[2])

    def test_averages_are_kept_within_each_limit(self):
        host = limit_of(policy=admission.AVERAGE, saturation_kbps=10_000,
                        line_rate_kbps=5_000)
        self.assertEqual(10_000, host.total)
        # 100 of both directions, but 90 of 5000 in one of them.
        law = model.TrafficModel.on_off(
            180, 20, on_seconds=1, off_seconds=1).law
        self.assertEqual(180, host.amount(law))

    def test_constant_traffic_costs_its_share_of_the_host(self):
        sized = {'saturation_kbps': 8_000, 'packet_rate_kpps': 100}
        one_way = {'saturation_kbps': 5_000, 'saturation_dimension': 'egress'}
        for limit, numbers, total, rates, amount in (
                (.01, {'saturation_kbps': 10_000}, 7_500, (600, 400), 1000),
                # Placement knows no allocation of nothing.
                (.01, {'saturation_kbps': 10_000}, 7_500, (), 1),
                (0, sized, 8_000, (100, 0, 50), 4_000),
                # Packets that are not known are of the typical size.
                (0, sized, 8_000, (4_000,), 4_000),
                (0, one_way, 5_000, (100, 9_000), 100)):
            with self.subTest(numbers, rates=rates):
                host = limit_of(limit, **numbers)
                self.assertEqual(total, host.total)
                self.assertEqual(amount, host.amount(
                    model.TrafficModel.constant(*rates).law))

    def test_hosts_without_a_limit_have_none(self):
        for policy in (admission.HostPolicy(None),
                       policy_of(max_tunnels=10), policy_of(vm_peak_kbps=7),
                       policy_of(1, saturation_kbps=10)):
            self.assertIsNone(effective_limit.EffectiveLimit.of(policy))

    def test_numbers_are_those_that_placement_can_keep(self):
        host = limit_of(0, saturation_kbps=1e12)
        self.assertEqual(2147483647, host.total)
        self.assertEqual(2147483647, host.amount(on_off(1e11, .5)))

    def test_what_is_known_does_not_grow_for_ever(self):
        host = limit_of(saturation_kbps=1000)
        with mock.patch.object(effective_limit, '_MOST_KNOWN', 3):
            for kbps in range(1, 9):
                self.assertEqual(kbps, host.amount(
                    model.TrafficModel.constant(kbps).law))
        self.assertLessEqual(len(host._known), 3)
