# SPDX-License-Identifier: Apache-2.0

import fractions
import math
import unittest

import numpy as np

from tests.unit.traffic import exact
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import sizing
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import profile


F = fractions.Fraction


def _policy(limit=0.0, **numbers):
    return admission.HostPolicy(
        profile.SwitchProfile(name='own', **numbers),
        overload_probability=limit)


def _constant(kbps, kpps=0.0):
    return model.TrafficModel.constant(kbps, kpps=kpps).law


class HostSizeTestCase(unittest.TestCase):

    def test_constant_rates_are_divided(self):
        for capacity, rate, expected in ((1000, 100, 10), (1000, 300, 3),
                                         (1000, 1000, 1), (999, 1000, 0)):
            size = sizing.host_size(_policy(saturation_kbps=capacity),
                                    _constant(rate))
            self.assertEqual(expected, size.instances)
            self.assertAlmostEqual(expected * rate, size.rate_kbps)
            self.assertAlmostEqual(expected * rate / capacity,
                                   size.utilisation)
            self.assertEqual(0.0, size.overload_probability)
            self.assertIsNotNone(size.reason)

    def test_instances_of_a_learned_kind_count_as_independent(self):
        law = model.TrafficModel.on_off(100.0, on_seconds=1,
                                        off_seconds=9).law
        learned = rate_law.RateLaw.from_arrays(
            law.probabilities, law.rates, np.arange(504) % 10 == 0)
        policy = _policy(.01, saturation_kbps=1200)
        self.assertEqual(sizing.host_size(policy, law),
                         sizing.host_size(policy, learned))

    def test_on_off_instances_are_as_many_as_the_binomial_law_says(self):
        # On for a tenth of the time; twelve may be on at once.
        law = model.TrafficModel.on_off(100.0, on_seconds=1,
                                        off_seconds=9).law
        for limit in (0.3, 0.01, 1e-5):
            expected = next(n for n in range(1, 1000) if exact.binomial_tail(
                n + 1, F(1, 10), 12) > limit)
            size = sizing.host_size(_policy(limit, saturation_kbps=1200), law)
            self.assertEqual(expected, size.instances)
            tail = float(exact.binomial_tail(expected, F(1, 10), 12))
            self.assertAlmostEqual(1, size.overload_probability / tail)
            lost = math.fsum(
                (k - 12) * math.comb(expected, k) * .1 ** k
                * .9 ** (expected - k)
                for k in range(13, expected + 1)) / (expected * .1)
            self.assertAlmostEqual(1, size.loss_fraction / lost)
            self.assertIn('overload probability would be', size.reason)

    def test_without_a_limit_in_sight_it_ends(self):
        size = sizing.host_size(_policy(saturation_kbps=1e12), _constant(1))
        self.assertEqual((sizing.MOST, None), (size.instances, size.reason))

    def test_switching_takes_what_the_profile_says_of_rate_and_packets(self):
        policy = _policy(saturation_kbps=10_000, cpu_idle_mhz=5.0,
                         cpu_mhz_per_kpps=2.0, cpu_mhz_per_mbps=1.0,
                         typical_packet_bytes=250)
        # Ten of 1 Mbit/s: 5 kilo-packets/s of 250 bytes, or as they say.
        for law, expected in ((_constant(1000), 5 + 2 * 5 + 10),
                              (_constant(1000, .25), 5 + 2 * 2.5 + 10)):
            self.assertAlmostEqual(
                expected, sizing.host_size(policy, law).cpu_mhz)
        self.assertIsNone(sizing.host_size(
            _policy(saturation_kbps=10_000), _constant(1000)).cpu_mhz)

    def test_it_is_what_a_host_admits_one_after_the_other(self):
        generator = np.random.default_rng(5)
        for number in range(12):
            shares = generator.dirichlet([1.0, .3, .1])
            law = rate_law.RateLaw.from_arrays(shares, np.stack([
                [0.0, 10.0, 100.0] * generator.uniform(.5, 1, 3),
                generator.uniform(0, 30, 3), [0.0, 0.0, 0.0]], axis=1))
            counted = {} if number % 3 else {'max_virtual_functions': 9}
            for policy in (
                    _policy(10.0 ** -generator.integers(0, 9),
                            saturation_kbps=generator.uniform(100, 3000),
                            **counted),
                    admission.HostPolicy(
                        profile.SwitchProfile(
                            'own', saturation_kbps=800, **counted),
                        policy=admission.AVERAGE),
                    _policy(0.0, saturation_kbps=700, **counted)):
                table = admission.LoadTable()
                residents = {}
                row = table.describe('host', policy, residents)
                while len(residents) < sizing.MOST and \
                        table.assess([row], law).admitted[0]:
                    residents[len(residents)] = law
                    row = table.describe('host', policy, residents)
                self.assertEqual(len(residents),
                                 sizing.host_size(policy, law).instances)
                if policy.policy == admission.AVERAGE:
                    self.assertEqual(len(residents),
                                     sizing.most_by_average(policy, law))
                elif not policy.overload_probability:
                    self.assertEqual(len(residents),
                                     sizing.most_by_peak(policy, law))


class FleetSizeTestCase(unittest.TestCase):

    def test_each_is_on_the_first_host_that_has_room(self):
        rates = np.random.default_rng(7).integers(1, 120, 200)
        hosts, refused = [], 0
        for rate in rates.tolist():
            if rate > 100:
                refused += 1
                continue
            for number, used in enumerate(hosts):
                if used + rate <= 100:
                    hosts[number] += rate
                    break
            else:
                hosts.append(rate)
        size = sizing.fleet_size(
            _policy(saturation_kbps=100, cpu_mhz_per_mbps=10.0),
            [_constant(rate) for rate in rates])
        self.assertEqual((len(hosts), refused), (size.hosts, size.refused))
        np.testing.assert_allclose(hosts, size.rate_kbps)
        np.testing.assert_allclose(np.array(hosts) / 100, size.cpu_mhz)
        np.testing.assert_array_equal(0, size.overload_probability)

    def test_no_host_is_above_its_limit(self):
        laws = [model.TrafficModel.on_off(
            rate, on_seconds=1, off_seconds=4).law
            for rate in np.random.default_rng(3).integers(1, 9, 60) * 100.]
        size = sizing.fleet_size(_policy(.02, saturation_kbps=1600), laws)
        self.assertTrue((size.overload_probability <= .02).all())
        self.assertGreater(size.overload_probability.max(), .001)
        self.assertIsNone(size.cpu_mhz)
        self.assertAlmostEqual(sum(law.mean[0] for law in laws),
                               size.rate_kbps.sum())
