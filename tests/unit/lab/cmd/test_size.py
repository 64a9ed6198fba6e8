# SPDX-License-Identifier: Apache-2.0

import os

from tests.unit.cmd import command_case
from tests.unit.store import base
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import rate_law


INVENTORY = store.InventoryState('nova', base.NOW, base.NOW)


def placed(number, flavor=None):
    return store.InstanceRecord(base.instance_uuid(number), 'h', flavor)


def prior(flavor, kbps):
    return store.Prior(
        flavor, None, traffic_model.TrafficModel.constant(kbps).law, 20)


class TestSize(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.configure_profiles(
            'ours: {saturation_kbps: 1000, cpu_mhz_per_mbps: 40}\n',
            'overload_probability = 0.0')
        self.make_store().write(
            [base.constant(number, rate) for number, rate in
             ((1, 100.0), (2, 400.0), (3, 700.0), (4, 5000.0))],
            now=base.NOW, priors=[prior('small', 200.0)])

    def ask_ours(self, *words):
        answer = self.ask('size', '--profile', 'ours', *words)
        entry, = answer.pop('profiles')
        return answer, entry

    def test_numbers_tell_the_traffic_of_each_instance(self):
        answer, entry = self.ask_ours('--egress-kbps', '60', '--ingress-kbps',
                                      '40', '--count', '95')
        self.assert_holds(answer, mean_kbps=100, peak_kbps=100)
        self.assert_holds(entry, instances=10, instances_by_peak=10,
                          instances_by_average=10, hosts=10)
        self.assertAlmostEqual(40, entry['cpu_mhz'])
        # On for half of the time: average and peak are not the same.
        _, entry = self.ask_ours(
            '--egress-kbps', '100', '--on-seconds', '1', '--off-seconds', '1',
            '--overload-probability', '0.5')
        self.assert_holds(entry, instances_by_peak=10, instances_by_average=20)
        # The margin is 2. P(Bin(18, 1/2) > 10) is .24, P(Bin(19, 1/2) > 10) is
        # .32.
        self.assertEqual(18, entry['instances'])

    def test_the_traffic_of_an_instance_is_stated_learned_or_assumed(self):
        self.make_store().write([base.constant(5, 250.0, name='13')])
        numbers = 'numbers that were given'
        for words, origin, instances in (
                (f'--instance {base.instance_uuid(2)}', 'model of', 2),
                ('--instance 13', 'model of', 4),
                ('--flavor small', 'prior of flavor', 5),
                ('', 'default of the options', 0),
                # Rates may be as small or large as a float.
                ('--egress-kbps 1e-320', numbers, 1000),
                ('--egress-kbps 1e300', numbers, 0),
                ('--egress-kbps 5 --on-seconds 1e-320 --off-seconds 9',
                 numbers, 1000)):
            with self.subTest(words):
                answer, entry = self.ask_ours(
                    *words.split(), '--overload-probability', '0.01')
                self.assertIn(origin, answer['traffic'])
                self.assert_holds(entry, instances=instances, hosts=None)

    def test_a_prior_is_cut_to_the_host_as_in_the_scheduler(self):
        # Of 20,000 a host that carries 1,000 takes one; 0 without the cut.
        law = rate_law.RateLaw.from_arrays(
            [.999, .001], [[100.0, 0, 0], [20000.0, 0, 0]])
        self.make_store().write(priors=[
            store.Prior('large', None, law, 20),
            store.Prior(None, None, law, 40)])
        options = ['--overload-probability', '0.01']
        for source in (['--flavor', 'large'], ['--fleet-prior']):
            # Of n one is at 1000 for n / 1000 of the time: at most 9 or 10.
            _, entry = self.ask_ours(*source, *options)
            self.assertIn(entry['instances'], (9, 10))
        # What an instance has shown is not cut.
        _, entry = self.ask_ours('--instance', base.instance_uuid(4), *options)
        self.assertEqual(0, entry['instances'])

    def test_a_count_may_be_larger_than_a_float(self):
        _, entry = self.ask_ours('--egress-kbps', '1', '--count',
                                 '9' * 400)
        self.assertEqual(10 ** 400 // entry['instances'], entry['hosts'])

    def test_a_terminal_gets_a_bar(self):
        self.assertIn('sizing', self.run_command('size', terminal=True)[2])

    def test_a_fleet_is_put_on_hosts(self):
        answer, entry = self.ask_ours('--fleet')
        self.assertRegex(self.text('size', '--fleet'),
                         r'\nours +2 +1 +1.5 ')
        self.assertEqual(4, answer['instances'])
        # 700 and 100, or 400 and 100, share a host; 5000 fits none.
        self.assert_holds(entry, hosts=2, refused=1, instances_per_host=1.5)
        self.assertAlmostEqual(600, entry['rate_kbps_mean'])
        self.assertAlmostEqual(24, entry['cpu_mhz_mean'])

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


PROFILES = ('ours: {saturation_kbps: 1000}\n'
            'fast: {saturation_kbps: 100000}\n')


class TestServerTypes(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.configure_profiles(PROFILES, 'overload_probability = 0.01')
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
        self.assert_holds(dearest['overlay'], servers=48, cost=None)
        self.assert_holds(answer, currency='EUR', count=95,
                          overload_probability=0.01)
        self.assertEqual([('fast', 3)], [
            (server['profile'], server['servers'])
            for server in answer['technologies']])

    def test_the_margin_counts_as_in_the_scheduler(self):
        self.configure_profiles(PROFILES, 'prediction_margin = 1.5')
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
        self.make_store().write(priors=[prior('quiet', 250.0)])
        answer = self.ask(*command)
        self.assertEqual([4, 64, 4], self._vms(answer, 'overlay'))
        self.assertIsNone(
            answer['server_types'][0]['overlay']['episodes_per_day'])

    def test_a_fleet_is_that_of_the_inventory(self):
        numbers = range(1, 9)
        self.make_store().write(
            [base.constant(number, 100.0) for number in numbers[:6]],
            now=base.NOW, priors=[prior('db', 500.0)],
            placements=[placed(number, 'db') for number in numbers],
            inventory=INVENTORY)
        answer = self._size('--mix', self.mix, '--fleet')
        self.assert_holds(answer, count=8, traffic='8 instances of the store')
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
            now=base.NOW, priors=[prior('db', 500.0)],
            placements=[placed(number, 'db') for number in range(8)],
            inventory=INVENTORY)
        # Eight of 500, or of 50, on servers of 1000.
        for specs, servers in (({}, 4), ({'vswitch:egress_kbps': '50'}, 1)):
            target.write_fleet({'flavor': {'db': specs}}, base.NOW)
            self.assertEqual(servers, self._size(
                '--mix', self.mix, '--fleet')['server_types'][0]['overlay'][
                    'servers'])

    def test_an_instance_without_a_flavor_is_left_out_and_counted(self):
        target = self.make_store()
        target.write(placements=[placed(1)], now=base.NOW, inventory=INVENTORY)
        options = ['--mix', self.mix, '--fleet']
        self.assert_fails('flavors of 1 instances: all missing', 'size',
                          '--server-types', self.types, *options)
        target.write([base.constant(2, 100.0)], placements=[placed(2, 'web')],
                     now=base.NOW, inventory=INVENTORY)
        answer = self._size(*options)
        self.assertEqual(
            (1, '1 instances of the store; 1 without a known flavor are left '
             'out'), (answer['count'], answer['traffic']))

    def test_a_flavor_of_the_fleet_that_the_mix_lacks_is_named(self):
        self.make_store().write(placements=[placed(1, 'huge')], now=base.NOW,
                                inventory=INVENTORY)
        self.assert_fails("'huge' is missing, which 1 instances have; exp",
                          'size', '--server-types', self.types, '--mix',
                          self.mix, '--fleet')

    def test_wrong_combinations_are_refused(self):
        types = ['--server-types', self.types]
        mix = ['--mix', self.mix]
        for options, text in (
                (mix, '--mix: .*; expected only together'),
                (['--plot', 'p.png'], "--plot: 'p.png'; expected only"),
                (types, '--vm-cores: not given'),
                ([*types, '--vm-cores', '1'],
                 '--vm-memory-mb: not given; expected a number'),
                ([*types, '--vm-cores', 'nan', '--vm-memory-mb', '1'],
                 '--vm-cores: nan; expected'),
                ([*types, *mix, '--vm-cores', '1'],
                 '--vm-cores: 1.0; expected no --vm-cores'),
                ([*types, '--fleet'], '--mix: not given; expected a file'),
                ([*types, *mix, '--egress-kbps', '5'],
                 'together with --mix; expected only'),
                ([*types, *mix, '--profile', 'none'], "profile: 'none'"),
                ([*types, *mix, '--plot', 'x.gif'],
                 "plot: 'x.gif'; expected")):
            with self.subTest(words=options):
                self.assert_fails(text, 'size', *options)

    def test_a_picture_is_written(self):
        path = os.path.join(self.directory, 'p.png')
        self._size('--mix', self.mix, '--plot', path)
        self.assertTrue(os.path.getsize(path))
