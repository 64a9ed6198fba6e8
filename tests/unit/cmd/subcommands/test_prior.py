# SPDX-License-Identifier: Apache-2.0

from tests.fakes import store as fake_store
from tests.unit.cmd import command_case
from tests.unit.store import base
from vswitch_aware_scheduler.cmd.subcommands import prior
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import rate_law


class PriorCommandTestCase(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.law = rate_law.RateLaw.from_arrays(
            [.275, .725], [[4., 2., 0.], [40., 20., 1.]])
        wider = traffic_model.TrafficModel.constant(7.0).law
        self.make_store().write(
            [base.constant(1, name='web')], now=base.NOW,
            priors=[store.Prior('small', 'p', self.law, 3),
                    store.Prior('small', None, wider, 8),
                    store.Prior(None, None, wider, 20),
                    store.Prior(None, None, wider, 9, base.instance_uuid(2))],
            placements=[store.InstanceRecord(base.instance_uuid(number),
                                             'h1', 'small', 'p')
                        for number in (1, 3)])

    def test_list_prints_the_groups(self):
        priors = self.ask('prior', 'list')['priors']
        self.assertEqual(
            [('small', 'p', 3.0), ('small', None, 8.0), (None, None, 20.0)],
            [(group['flavor'], group['project'], group['members'])
             for group in priors])
        self.assertAlmostEqual(30.1, priors[0]['mean']['egress_kbps'])
        self.assert_holds(priors[0], p99_kbps=60.0, updated_at=base.NOW)
        # What is not known of packets is no zero.
        self.assertEqual([False, True, True], [
            group['mean']['kpps'] is None for group in priors])
        self.assertEqual([1.0, None, None],
                         [group['peak']['kpps'] for group in priors])

    def test_the_99th_percentile_is_the_least_rate_that_holds_so_long(self):
        for shares, expected in (([.989, .011], 2.0), ([.99, .01], 1.0),
                                 ([.01, .99], 2.0), ([1.0, 0.0], 1.0)):
            law = rate_law.RateLaw.from_arrays(
                shares, [[.5, .5, 0], [1.5, .5, 0]])
            self.assertEqual(expected, prior._p99_kbps(law))

    def test_show_prints_what_the_scheduler_would_take(self):
        for options, expected in (
                (['--flavor', 'small', '--project', 'p'],
                 'flavor and project'),
                (['--flavor', 'small'], 'flavor'),
                (['--flavor', 'other'], 'fleet'), ([], 'fleet'),
                ([base.instance_uuid(2)], 'instance'),
                ([base.instance_uuid(3)], 'flavor and project')):
            with self.subTest(options):
                self.assertEqual(expected, self.ask(
                    'prior', 'show', *options)['prior_of'])
        answer = self.ask('prior', 'show', base.instance_uuid(3))
        self.assertEqual(
            [{'egress_kbps': 4, 'ingress_kbps': 2, 'kpps': 0,
              'probability': .275},
             {'egress_kbps': 40, 'ingress_kbps': 20, 'kpps': 1,
              'probability': .725}],
            answer['states'])
        self.assertEqual({}, answer['above_capacity'])
        target = store.Store(self.url)
        for kbps, share in ((100, 0.0), (30, .725), (.5, 1.0)):
            target.write(host_profiles=[store.HostProfile(
                'h1', None, {'saturation_kbps': kbps})])
            kinds = self.ask('prior', 'show',
                             base.instance_uuid(3))['above_capacity']
            self.assertAlmostEqual(share, *kinds.values())

    def test_show_takes_the_name_of_an_instance_and_refuses_other_words(self):
        self.assertEqual('flavor and project', self.ask(
            'prior', 'show', 'web')['prior_of'])
        for text in ('not-a-uuid', '', base.instance_uuid(3) + '0'):
            self.assert_fails('instance: .*; expected a uuid, or the name',
                              'prior', 'show', text)

    def test_show_says_what_no_instance_has(self):
        self.assertEqual(
            ["No instance has flavor 'smal': that is how a new one counts."],
            self.ask('prior', 'show', '--flavor', 'smal')['remarks'])
        self.assertEqual([], self.ask(
            'prior', 'show', '--flavor', 'small', '--project', 'p')[
                'remarks'])

    def test_a_store_without_priors_says_what_it_takes(self):
        url = f'sqlite:///{self.directory}/other.sqlite'
        fake_store.make_empty(url)
        self.assert_fails('models of 20 instances', 'prior', 'show',
                          '--store', url)
