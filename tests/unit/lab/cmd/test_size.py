# SPDX-License-Identifier: Apache-2.0

import os
import re

from tests.unit.cmd import command_case
from tests.unit.store import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import profile


class TestSize(command_case.ManageTestCase):

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
        entry, = answer.pop('profiles')
        return answer, entry

    def test_numbers_tell_the_traffic_of_each_instance(self):
        answer, entry = self.ask_ours('--egress-kbps', '60', '--ingress-kbps',
                                      '40', '--count', '95')
        self.assertEqual((100, 100), (answer['mean_kbps'],
                                      answer['peak_kbps']))
        self.assertEqual((10, 10, 10, 10), (
            entry['instances'], entry['instances_by_peak'],
            entry['instances_by_average'], entry['hosts']))
        self.assertAlmostEqual(40, entry['cpu_mhz'])
        # On for half of the time: average and peak are not the same.
        _, entry = self.ask_ours(
            '--egress-kbps', '100', '--on-seconds', '1', '--off-seconds', '1',
            '--overload-probability', '0.5')
        self.assertEqual((10, 20), (entry['instances_by_peak'],
                                    entry['instances_by_average']))
        # The margin is 2. P(Bin(18, 1/2) > 10) is .24, P(Bin(19, 1/2) > 10) is
        # .32.
        self.assertEqual(18, entry['instances'])

    def test_a_model_or_a_prior_tells_it(self):
        for options, origin, instances in (
                (['--instance', base.instance_uuid(2)], 'model of', 2),
                (['--flavor', 'small'], 'prior of flavor', 5)):
            answer, entry = self.ask_ours(*options)
            self.assertIn(origin, answer['traffic'])
            self.assertEqual(instances, entry['instances'])

    def test_a_prior_is_cut_to_the_host_as_in_the_scheduler(self):
        # Of 20,000 a host that carries 1,000 takes one; 0 without the cut.
        law = rate_law.RateLaw.from_arrays(
            [.999, .001], [[100.0, 0, 0], [20000.0, 0, 0]])
        self.make_store().write(priors=[
            store.Prior('large', None, law, 20),
            store.Prior(None, None, law, 40)])
        options = ['--overload-probability', '0.01']
        for source in (['--flavor', 'large'], ['--fleet-prior']):
            _, entry = self.ask_ours(*source, *options)
            policy = admission.HostPolicy(
                profile.SwitchProfile('ours', saturation_kbps=1000),
                overload_probability=.01)
            table = admission.LoadTable()
            assessment = 0
            while True:
                slot = table.describe('h', policy, dict.fromkeys(
                    range(assessment), policy.fitting(law)))
                if not table.assess([slot],
                                    policy.fitting(law)).admitted[0]:
                    break
                assessment += 1
            self.assertEqual(assessment, entry['instances'])
            # Of n one is at 1000 for n / 1000 of the time: at most 9 or 10.
            self.assertIn(assessment, (9, 10))
        # What an instance has shown is not cut.
        _, entry = self.ask_ours('--instance', base.instance_uuid(4), *options)
        self.assertEqual(0, entry['instances'])

    def test_rates_may_be_as_small_or_large_as_a_float(self):
        for options, instances in ((['--egress-kbps', '1e-320'], 1000),
                                   (['--egress-kbps', '1e300'], 0),
                                   (['--egress-kbps', '5', '--on-seconds',
                                     '1e-320', '--off-seconds', '9'], 1000)):
            _, entry = self.ask_ours(*options, '--overload-probability',
                                     '0.01')
            self.assertEqual(instances, entry['instances'])

    def test_a_count_may_be_larger_than_a_float(self):
        _, entry = self.ask_ours('--egress-kbps', '1', '--count',
                                 '9' * 400)
        self.assertEqual(10 ** 400 // entry['instances'], entry['hosts'])

    def test_tiny_probabilities_have_no_digits_for_people(self):
        command = ('size', '--profile', 'ietf-e5-2430', '--egress-kbps',
                   '20000', '--on-seconds', '600', '--off-seconds', '5400',
                   '--overload-probability', '0.01')
        entry, = self.ask(*command)['profiles']
        self.assertLess(0, entry['overload_probability'])
        self.assertLess(entry['overload_probability'], 1e-9)
        text = self.run_command(*command)[1]
        self.assertIn(' <1e-9 ', text)
        self.assertNotRegex(text, r'e-\d\d')

    def test_an_instance_may_be_given_by_its_name(self):
        self.make_store().write([base.constant(5, 250.0, name='13')])
        _, entry = self.ask_ours('--instance', '13')
        self.assertEqual(4, entry['instances'])

    def test_a_terminal_gets_a_bar(self):
        self.assertIn('sizing', self.run_command('size', terminal=True)[2])

    def test_the_reason_tells_two_numbers_apart(self):
        # Two of nine: 36 q^2 and less for q = .0167, near the limit.
        answer = self.ask('size', '--egress-kbps', '501', '--on-seconds',
                          '1', '--off-seconds', '58.9999', '--profile',
                          'ours', '--overload-probability', '0.0099')
        reason = answer['profiles'][0]['reason']
        above, limit = re.search(
            'would be (.*), above the limit of ([0-9.]*), .* [(]',
            reason).groups()
        self.assertGreater(float(above), float(limit))

    def test_without_a_word_it_is_the_default_demand(self):
        answer, entry = self.ask_ours()
        self.assertEqual('default of the options', answer['traffic'])
        self.assertEqual(0, entry['instances'])
        self.assertIsNone(entry['hosts'])

    def test_a_fleet_is_put_on_hosts(self):
        answer, entry = self.ask_ours('--fleet')
        self.assertEqual(4, answer['instances'])
        # 700 and 100, or 400 and 100, share a host; 5000 fits none.
        self.assertEqual((2, 1, 1.5), (entry['hosts'], entry['refused'],
                                       entry['instances_per_host']))
        self.assertAlmostEqual(600, entry['rate_kbps_mean'])
        self.assertAlmostEqual(24, entry['cpu_mhz_mean'])

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
        for options, message in (
                (['--profile', 'none'], "profile: 'none'"),
                (['--count', '0'], 'count: 0; expected'),
                (['--overload-probability', '2'], ': 2.0; expected a number'),
                (['--fleet', '--count', '3'], 'expected no --count'),
                (['--fleet', '--kpps', '3'], 'stated by numbers and --fleet'),
                (['--egress-kbps', '-3'], 'egress_kbps: -3.0; expected'),
                (['--instance', 'x'], 'traffic model in the store .*: .x.'),
                (['--off-seconds', '60', '--kpps', '1'],
                 'on_seconds: not given; expected'),
                (['--on-seconds', '0', '--kpps', '1'],
                 'on_seconds: 0.0; expected'),
                (['--overload-probability', '1.0000001'],
                 ': 1.0000001; expected'),
                (['--flavor', 'none'], "flavor: 'none'; expected .* small"),
                (['--flavor', 'small', '--project', 'none'],
                 "project: 'none'; expected ")):
            with self.subTest(options):
                self.assert_fails(message, 'size', *options)

    def test_a_store_without_models_or_priors_says_so(self):
        self.url = f'sqlite:///{self.directory}/other.sqlite'
        self._configure()
        self.run_command('db', 'sync')
        self.assert_fails('models in the store: none', 'size', '--fleet')
        self.assert_fails('has no prior', 'size', '--flavor', 'small')


class TestServerTypes(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.profiles = self._write('profiles.yaml', '''
            ours: {saturation_kbps: 1000}
            fast: {saturation_kbps: 100000}
            ''')
        self._configure(f'switch_profiles_file = {self.profiles}',
                        'overload_probability = 0.01')
        self.types = self._write('types.yaml', '''
            currency: EUR
            servers:
              big: {cores: 64, memory_mb: 65536, price: 5000,
                    switch_profiles: [ours, fast]}
              small: {cores: 4, memory_mb: 65536, switch_profiles: fast}
            ''')
        self.mix = self._write('mix.yaml', '''
            flavors:
              web: {cores: 1, memory_mb: 1024, count: 30, egress_kbps: 50}
              db: {cores: 2, memory_mb: 2048, count: 10, egress_kbps: 100}
            ''')

    def _write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, 'w') as file:
            file.write(text)
        return path

    def _size(self, *words):
        return self.ask('size', '--server-types', self.types, *words)

    def _vms(self, answer, method):
        return [server[method]['vms'] for server in answer['server_types']]

    def test_one_vm_is_stated_by_options(self):
        answer = self._size('--vm-cores', '2', '--vm-memory-mb', '1024',
                            '--egress-kbps', '100', '--count', '95')
        self.assertEqual([32, 32, 2], self._vms(answer, 'agnostic'))
        self.assertEqual([10, 32, 2], self._vms(answer, 'figure9'))
        self.assertEqual([10, 32, 2], self._vms(answer, 'overlay'))
        cheapest, _, dearest = answer['server_types']
        self.assertEqual(('big', 'ours', 10, 50000.0, 'saturation'), (
            cheapest['server'], cheapest['profile'],
            cheapest['overlay']['servers'], cheapest['overlay']['cost'],
            cheapest['overlay']['first_to_run_out']))
        self.assertEqual(48, dearest['overlay']['servers'])
        self.assertIsNone(dearest['overlay']['cost'])
        self.assertEqual(('EUR', 95, 0.01), (
            answer['currency'], answer['count'],
            answer['overload_probability']))
        self.assertEqual([('fast', 3)], [
            (server['profile'], server['servers'])
            for server in answer['technologies']])

    def test_the_margin_counts_as_in_the_scheduler(self):
        self._configure(f'switch_profiles_file = {self.profiles}',
                        'prediction_margin = 1.5')
        # P(Bin(21, 1/2) > 10) is 1/2.
        words = ['--egress-kbps', '100', '--on-seconds', '1',
                 '--off-seconds', '1', '--overload-probability', '.75']
        self.assertEqual(21, self.ask(
            'size', '--profile', 'ours', *words)['profiles'][0]['instances'])
        self.assertEqual([21, 32, 2], self._vms(self._size(
            '--vm-cores', '2', '--vm-memory-mb', '1024', *words), 'overlay'))

    def test_a_mix_states_flavors_and_counts(self):
        answer = self._size('--mix', self.mix)
        self.assertEqual(40, answer['count'])
        # Three of the first for one of the second: 5 cores, 250 kbit/s.
        self.assertEqual([16, 51, 3], self._vms(answer, 'overlay'))
        self.assertEqual([('web', 30, 50), ('db', 10, 100)], [
            (flavor['flavor'], flavor['count'], flavor['mean_kbps'])
            for flavor in answer['flavors']])

    def test_the_profiles_asked_for_take_the_place_of_those_in_the_file(self):
        answer = self._size('--mix', self.mix, '--profile', 'ours')
        self.assertEqual([('big', 'ours'), ('small', 'ours')], [
            (server['server'], server['profile'])
            for server in answer['server_types']])

    def test_a_flavor_without_traffic_counts_by_its_prior(self):
        mix = self._write('mix.yaml', '''
            flavors: {quiet: {cores: 1, memory_mb: 1, count: 5}}
            ''')
        command = ['size', '--server-types', self.types, '--mix', mix]
        self.make_store().write([base.constant(1, 100.0)], now=base.NOW)
        self.assert_fails("flavor 'quiet': traffic: not given",
                          *command)
        self.make_store().write(priors=[store.Prior(
            'quiet', None, traffic_model.TrafficModel.constant(250.0).law,
            20)])
        answer = self.ask(*command)
        self.assertEqual([4, 64, 4], self._vms(answer, 'overlay'))
        self.assertIsNone(
            answer['server_types'][0]['overlay']['episodes_per_day'])

    def test_a_fleet_is_that_of_the_inventory(self):
        numbers = range(1, 9)
        self.make_store().write(
            [base.constant(number, 100.0) for number in numbers[:6]],
            now=base.NOW, priors=[store.Prior(
                'db', None, traffic_model.TrafficModel.constant(500.0).law,
                20)],
            placements=[store.InstanceRecord(
                base.instance_uuid(number), 'h', 'db') for number in numbers],
            inventory=store.InventoryState('nova', base.NOW, base.NOW))
        answer = self._size('--mix', self.mix, '--fleet')
        self.assertEqual((8, '8 instances of the store'),
                         (answer['count'], answer['traffic']))
        # Six of 100 and two of 500 on servers of 1000 take two, or three
        # when the larger ones come late and together.
        self.assertIn(answer['server_types'][0]['overlay']['servers'],
                      (2, 3))
        # Of 2 cores each.
        self.assertEqual(4, answer['server_types'][2]['agnostic']['servers'])

    def test_an_instance_of_a_fleet_counts_as_in_the_scheduler(self):
        # What the flavor states comes before the prior of a group.
        target = self.make_store()
        target.write(
            now=base.NOW, priors=[store.Prior(
                'db', None, traffic_model.TrafficModel.constant(500.0).law,
                20)],
            placements=[store.InstanceRecord(base.instance_uuid(number), 'h',
                                             'db') for number in range(8)],
            inventory=store.InventoryState('nova', base.NOW, base.NOW))
        most = [self._size('--mix', self.mix, '--fleet')[
            'server_types'][0]['overlay']['servers']]
        target.write_fleet({'flavor': {'db': {'vswitch:egress_kbps': '50'}}},
                           base.NOW)
        most.append(self._size('--mix', self.mix, '--fleet')[
            'server_types'][0]['overlay']['servers'])
        # Eight of 500, or of 50, on servers of 1000.
        self.assertEqual([4, 1], most)

    def test_an_instance_without_a_flavor_is_left_out_and_counted(self):
        target = self.make_store()
        inventory = store.InventoryState('nova', base.NOW, base.NOW)
        target.write(placements=[store.InstanceRecord(
            base.instance_uuid(1), 'h')], now=base.NOW, inventory=inventory)
        options = ['--mix', self.mix, '--fleet']
        self.assert_fails('flavors of 1 instances: all missing', 'size',
                          '--server-types', self.types, *options)
        target.write([base.constant(2, 100.0)], placements=[
            store.InstanceRecord(base.instance_uuid(2), 'h', 'web')],
            now=base.NOW, inventory=inventory)
        answer = self._size(*options)
        self.assertEqual(
            (1, '1 instances of the store; 1 without a known flavor are left '
             'out'), (answer['count'], answer['traffic']))

    def test_a_flavor_of_the_fleet_that_the_mix_lacks_is_named(self):
        self.make_store().write(placements=[store.InstanceRecord(
            base.instance_uuid(1), 'h', 'huge')], now=base.NOW,
            inventory=store.InventoryState('nova', base.NOW, base.NOW))
        self.assert_fails("'huge' is missing, which 1 instances have; exp",
                          'size', '--server-types', self.types, '--mix',
                          self.mix, '--fleet')

    def test_wrong_combinations_are_refused(self):
        for options, text in (
                (['--mix', self.mix], '--mix: .*; expected only together'),
                (['--plot', 'p.png'], "--plot: 'p.png'; expected only"),
                (['--server-types', self.types], '--vm-cores: not given'),
                (['--server-types', self.types, '--vm-cores', '1'],
                 '--vm-memory-mb: not given; expected a number'),
                (['--server-types', self.types, '--vm-cores', 'nan',
                  '--vm-memory-mb', '1'], '--vm-cores: nan; expected'),
                (['--server-types', self.types, '--mix', self.mix,
                  '--vm-cores', '1'],
                 '--vm-cores: 1.0; expected no --vm-cores'),
                (['--server-types', self.types, '--fleet'],
                 '--mix: not given; expected a file'),
                (['--server-types', self.types, '--mix', self.mix,
                  '--egress-kbps', '5'], 'together with --mix; expected only'),
                (['--server-types', self.types, '--mix', self.mix,
                  '--profile', 'none'], "profile: 'none'"),
                (['--server-types', self.types, '--mix', self.mix,
                  '--plot', 'x.gif'], "plot: 'x.gif'; expected")):
            with self.subTest(words=options):
                self.assert_fails(text, 'size', *options)

    def test_a_person_gets_tables_and_a_picture(self):
        path = os.path.join(self.directory, 'p.png')
        status, output, errors = self.run_command(
            'size', '--server-types', self.types, '--mix', self.mix,
            '--plot', path)
        self.assertEqual((0, ''), (status, errors))
        for word in ('AGNOSTIC', 'FIGURE9', 'OVERLAY', 'EPISODES_A_DAY',
                     'saturation', 'x1.25'):
            self.assertIn(word, output)
        self.assertTrue(os.path.getsize(path))
