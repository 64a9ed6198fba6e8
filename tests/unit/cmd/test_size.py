# SPDX-License-Identifier: Apache-2.0

import os

from tests.unit.cmd import test_manage
from tests.unit.store import base
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model as traffic_model


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
                (['--instance', 'x'], 'instance x has no model')):
            with self.subTest(words):
                self.assert_fails(wanted, 'size', *words)

    def test_a_store_without_models_or_priors_says_so(self):
        self.url = f'sqlite:///{self.directory}/other.sqlite'
        self._configure()
        self.run_command('db', 'sync')
        self.assert_fails('has no models', 'size', '--fleet')
        self.assert_fails('has no prior', 'size', '--flavor', 'small')
