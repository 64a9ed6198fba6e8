# SPDX-License-Identifier: Apache-2.0

import numpy as np

from tests.unit.cmd import command_case
from tests.unit.store import base
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import model as traffic_model
from vswitch_aware_scheduler.traffic import series


class ModelCommandTestCase(command_case.ManageTestCase):

    def setUp(self):
        super().setUp()
        self.record = base.fitted(7, name='10', source='file')
        self.make_store().write(
            [self.record, base.constant(8, name='9'),
             base.constant(9), base.constant(10, name='twin'),
             base.constant(11, name='twin')], now=base.NOW)

    def write_samples(self, number, egress):
        """Write the model that samples have; return the instance's uuid."""
        uuid = base.instance_uuid(number)
        counts = estimate.count_transitions(series.RateSeries.from_samples(
            uuid, 300.0, base.NOW + 300.0 * np.arange(egress.size), egress,
            0 * egress))
        self.make_store().write([store.StoredModel.from_counts(
            uuid, estimate.fit_model(counts), counts)])
        return uuid

    def test_show_prints_the_whole_model_as_json(self):
        shown = self.ask('model', 'show', base.instance_uuid(7))
        model = self.record.model
        for name in ('rates', 'jump', 'sojourn_seconds'):
            self.assertEqual(getattr(model, name).tolist(), shown[name])
        np.testing.assert_allclose(model.stationary, shown['stationary'],
                                   rtol=1e-12)
        np.testing.assert_allclose(
            model.mean[:2], list(shown['mean'].values())[:2], rtol=1e-12)
        self.assertIsNone(shown['mean']['kpps'])
        self.assertIsInstance(shown['samples'], int)
        self.assertEqual({'egress_kbps', 'ingress_kbps', 'kpps'},
                         set(shown['peak']))
        self.assert_holds(shown, name='10', source='file', samples=500,
                          window_start=base.NOW, window_end=base.NOW + 150000,
                          updated_at=base.NOW, format_version=2)

    def test_show_prints_at_how_many_instants_it_was_sampled(self):
        uuid = base.instance_uuid(12)
        rows = [[0, 0, 0], [9, 0, 0]], [[0, 1], [1, 0]], [3, 1]
        # 378 of the states were drawn.
        states = np.arange(504) % 2 + 128 * (np.arange(504) >= 126)
        for at_instants, sampled in ((states, 126), (None, 0)):
            self.make_store().write([store.StoredModel(
                uuid, traffic_model.TrafficModel(*rows, at_instants))])
            self.assertEqual(sampled, self.ask('model', 'show', uuid)[
                'sampled_instants'])

    def test_show_remarks_on_rates_that_change_within_a_period(self):
        # Samples that follow by chance, and runs of 20 samples.
        for number, samples, remarks in (
                (20, np.random.default_rng(5).permutation([5.0, 500.0] * 250),
                 True),
                (21, np.tile(np.repeat([5.0, 500.0], 20), 12), False)):
            uuid = self.write_samples(number, samples)
            shown = self.ask('model', 'show', uuid)
            self.assertEqual(300, shown['period_seconds'])
            pairs = np.corrcoef(samples[:-1], samples[1:])[0, 1]
            self.assertAlmostEqual(pairs, shown['sample_correlation'])
            self.assertEqual(remarks, 'rates change within 300 s'
                             in self.text('model', 'show', uuid))

    def test_show_tells_what_was_left_out(self):
        rates = np.full(10 * 288, 100.0)
        rates[900:905] = 5e6
        self.assertEqual(5, self.ask(
            'model', 'show', self.write_samples(22, rates))[
                'left_out_samples'])

    def test_show_says_nothing_of_samples_that_it_does_not_have(self):
        shown = self.ask('model', 'show', base.instance_uuid(8))
        self.assert_holds(shown, period_seconds=None, sample_correlation=None)

    def test_show_takes_a_name_and_an_uppercase_uuid(self):
        self.assertEqual(base.instance_uuid(7),
                         self.ask('model', 'show', '10')['instance_uuid'])
        self.assertEqual('10', self.ask(
            'model', 'show', base.instance_uuid(7).upper())['name'])

    def test_show_of_an_unknown_instance_points_to_the_list(self):
        self.assert_fails('traffic model in the store .*: .none.; .*list',
                          'model', 'show', 'none')

    def test_list_is_sorted_by_name_as_people_count(self):
        models = self.ask('model', 'list')['models']
        self.assertEqual(['9', '10', 'twin', 'twin', None],
                         [item['name'] for item in models])
        np.testing.assert_allclose(
            list(models[1]['mean'].values())[:2], self.record.model.mean[:2])
        self.assertIsNone(models[1]['peak']['kpps'])
        self.assertIsInstance(models[1]['samples'], int)
        self.assertIn('\n5 models\n', self.text('model', 'list'))
