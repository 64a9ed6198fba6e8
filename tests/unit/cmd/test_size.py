# SPDX-License-Identifier: Apache-2.0

import os
import re

from tests.unit.cmd import test_manage
from tests.unit.store import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.vswitch import profile


class TestSize(test_manage.ManageTestCase):

    def setUp(self):
        super().setUp()
        path = os.path.join(self.directory, 'profiles.yaml')
        with open(path, 'w') as file:
            file.write('ours:\n  saturation_kbps: 1000\n'
                       '  cpu_mhz_per_mbps: 40\n')
        self._configure(f'switch_profiles_file = {path}',
                        'overload_probability = 0.0')
        self.make_store().write(
            [base.constant(number, rate) for number, rate in
             ((1, 100.0), (2, 400.0), (3, 700.0), (4, 5000.0))],
            now=base.NOW, priors=[store.Prior(
                'small', None, traffic_model.TrafficModel.constant(
                    200.0).law, 20)])

    def ask_ours(self, *words):
        answer = self.ask('size', '--profile', 'ours', *words)
        one, = answer.pop('profiles')
        return answer, one

    def test_numbers_tell_the_traffic_of_each_instance(self):
        answer, one = self.ask_ours('--egress-kbps', '60', '--ingress-kbps',
                                    '40', '--count', '95')
        self.assertEqual((100, 100), (answer['mean_kbps'],
                                      answer['peak_kbps']))
        self.assertEqual((10, 10, 10, 10), (
            one['instances'], one['instances_by_peak'],
            one['instances_by_average'], one['hosts']))
        self.assertAlmostEqual(40, one['cpu_mhz'])
        # On for half of the time: average and peak are not the same.
        _, one = self.ask_ours(
            '--egress-kbps', '100', '--on-seconds', '1', '--off-seconds', '1',
            '--overload-probability', '0.5')
        self.assertEqual((10, 20), (one['instances_by_peak'],
                                    one['instances_by_average']))
        # P(Bin(21, 1/2) > 10) is 1/2.
        self.assertEqual(21, one['instances'])

    def test_a_model_or_a_prior_tells_it(self):
        for words, what, instances in (
                (['--instance', base.instance_uuid(2)], 'model of', 2),
                (['--flavor', 'small'], 'prior of flavor', 5)):
            answer, one = self.ask_ours(*words)
            self.assertIn(what, answer['traffic'])
            self.assertEqual(instances, one['instances'])

    def test_a_prior_is_cut_to_the_host_as_in_the_scheduler(self):
        # Of 20,000 a host that carries 1,000 takes one; 0 without the cut.
        law = traffic_model.RateLaw.from_arrays(
            [.999, .001], [[100.0, 0, 0], [20000.0, 0, 0]])
        self.make_store().write(priors=[
            store.Prior('large', None, law, 20),
            store.Prior(None, None, law, 40)])
        words = ['--overload-probability', '0.01']
        for more in (['--flavor', 'large'], ['--fleet-prior']):
            _, one = self.ask_ours(*more, *words)
            policy = admission.HostPolicy(
                profile.SwitchProfile('ours', saturation_kbps=1000),
                overload_probability=.01)
            table = admission.LoadTable()
            taken = 0
            while True:
                slot = table.describe('h', policy, dict.fromkeys(
                    range(taken), policy.fitting(law)))
                if not table.assess([slot],
                                    policy.fitting(law)).admitted[0]:
                    break
                taken += 1
            self.assertEqual(taken, one['instances'])
            # Of n one is at 1000 for n / 1000 of the time: at most 9 or 10.
            self.assertIn(taken, (9, 10))
        # What an instance has shown is not cut.
        _, one = self.ask_ours('--instance', base.instance_uuid(4), *words)
        self.assertEqual(0, one['instances'])

    def test_rates_may_be_as_small_or_large_as_a_float(self):
        for words, instances in ((['--egress-kbps', '1e-320'], 1000),
                                 (['--egress-kbps', '1e300'], 0),
                                 (['--egress-kbps', '5', '--on-seconds',
                                   '1e-320', '--off-seconds', '9'], 1000)):
            _, one = self.ask_ours(*words, '--overload-probability', '0.01')
            self.assertEqual(instances, one['instances'])

    def test_an_instance_may_be_given_by_its_name(self):
        self.make_store().write([base.constant(5, 250.0, name='13')])
        _, one = self.ask_ours('--instance', '13')
        self.assertEqual(4, one['instances'])

    def test_a_terminal_gets_a_bar(self):
        self.assertIn('sizing', self.run_command('size', terminal=True)[2])

    def test_the_reason_tells_two_numbers_apart(self):
        # Two of nine: 36 q^2 and less for q = .0167, near the limit.
        answer = self.ask('size', '--egress-kbps', '501', '--on-seconds',
                          '1', '--off-seconds', '58.9999', '--profile',
                          'ours', '--overload-probability', '0.0099')
        reason = answer['profiles'][0]['reason']
        found, limit = re.search('would be (.*), above the limit of (.*) [(]',
                                 reason).groups()
        self.assertGreater(float(found), float(limit))

    def test_without_a_word_it_is_the_default_demand(self):
        answer, one = self.ask_ours()
        self.assertEqual('default of the options', answer['traffic'])
        self.assertEqual(0, one['instances'])
        self.assertIsNone(one['hosts'])

    def test_a_fleet_is_put_on_hosts(self):
        answer, one = self.ask_ours('--fleet')
        self.assertEqual(4, answer['instances'])
        # 700 and 100, or 400 and 100, share a host; 5000 fits none.
        self.assertEqual((2, 1, 1.5), (one['hosts'], one['refused'],
                                       one['instances_per_host']))
        self.assertAlmostEqual(600, one['rate_kbps_mean'])
        self.assertAlmostEqual(24, one['cpu_mhz_mean'])

    def test_profiles_are_compared_for_a_person(self):
        status, output, _ = self.run_command(
            'size', '--egress-kbps', '500', '--profile', 'ours',
            '--profile', 'mellanox-eswitch')
        self.assertEqual(0, status)
        self.assertRegex(output, r'\nours +2 +2 +2 +- ')
        self.assertRegex(output, r'\nmellanox-eswitch +63 ')
        self.assertIn('Why not one more:', output)
        status, output, _ = self.run_command('size', '--fleet')
        self.assertEqual(0, status)
        self.assertRegex(output, r'\nours +2 +1 +1.5 ')

    def test_what_makes_no_sense_is_told(self):
        for words, wanted in (
                (['--profile', 'none'], "no profile 'none'"),
                (['--count', '0'], 'count is 0, wanted'),
                (['--overload-probability', '2'], 'is 2, wanted a number'),
                (['--fleet', '--count', '3'], 'wanted none with --fleet'),
                (['--fleet', '--kpps', '3'], 'told by numbers and --fleet'),
                (['--egress-kbps', '-3'], 'egress_kbps is -3, wanted'),
                (['--instance', 'x'], 'no traffic model of instance x'),
                (['--off-seconds', '60', '--kpps', '1'],
                 'on_seconds: not given; expected'),
                (['--on-seconds', '0', '--kpps', '1'],
                 'on_seconds: 0; expected'),
                (['--overload-probability', '1.0000001'],
                 'is 1.0000001, wanted'),
                (['--flavor', 'none'], "flavor: 'none'; expected .* small"),
                (['--flavor', 'small', '--project', 'none'],
                 "project: 'none'; expected ")):
            with self.subTest(words):
                self.assert_fails(wanted, 'size', *words)

    def test_a_store_without_models_or_priors_says_so(self):
        self.url = f'sqlite:///{self.directory}/other.sqlite'
        self._configure()
        self.run_command('db', 'sync')
        self.assert_fails('has no models', 'size', '--fleet')
        self.assert_fails('has no prior', 'size', '--flavor', 'small')
