# SPDX-License-Identifier: Apache-2.0

import dataclasses
import math

from tests.unit.report import fleets
from tests.unit.store import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.fleet import view
from vswitch_aware_scheduler.report import contents
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile


def _binomial(n, k, p=.1):
    return math.comb(n, k) * p ** k * (1 - p) ** (n - k)


def _above(n, k):
    return math.fsum(_binomial(n, i) for i in range(k + 1, n + 1))


class ContentsTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.store = self.make_store()
        fleets.fill(self.store, base.NOW)
        self.contents = fleets.report_of(self.store)

    def test_hosts_have_the_risk_of_the_binomial_law(self):
        self.assertEqual(
            {'model': 10, 'flavor': 0, 'prior': 0, 'default': 1},
            self.contents.report(base.NOW)['summary']['rules'])
        rows = {row['host']: row for row in self.contents.hosts}
        self.assertEqual({'h1', 'h2', fleets.HOSTILE}, set(rows))
        self.assertEqual((10, 10), (rows['h1']['instances'],
                                    rows['h1']['with_model']))
        self.assertAlmostEqual(
            _above(10, 3), rows['h1']['overload_probability'], places=9)
        self.assertAlmostEqual(100 / 350, rows['h1']['utilisation'])
        self.assertFalse(rows['h1']['above'])
        self.assertEqual((1, 0, 0.0), tuple(
            rows['h2'][key] for key in ('instances', 'with_model',
                                        'overload_probability')))
        self.assertAlmostEqual(5 / 350, rows['h2']['utilisation'])

    def test_a_host_above_its_limit_is_told_and_comes_first(self):
        strict = dataclasses.replace(fleets.POLICY, overload_probability=.01)
        report = fleets.report_of(self.store, h1=strict)
        self.assertEqual([True, False], [
            row['above'] for row in report.hosts if row['instances']])
        self.assertEqual(['h1', 'h2'], report.worst(5))

    def test_a_host_without_a_profile_is_not_judged(self):
        report = fleets.report_of(self.store, admission.HostPolicy(
            None, judged=False))
        for row in report.hosts:
            self.assertEqual((None, None, False), (
                row['overload_probability'], row['utilisation'], row['above']))
        self.assertEqual([], report.worst(5))
        detail = report.detail('h1')
        self.assertEqual((None, [], 10), (
            detail['distribution'], detail['limits'], len(detail['vms'])))

    def test_the_distribution_is_that_of_the_sum(self):
        distribution = self.contents.detail('h1')['distribution']
        self.assertEqual((350.0, 100.0, 'kbit/s'), (
            distribution['capacity'], round(distribution['mean'], 6),
            distribution['unit']))
        self.assertIn(350.0, distribution['rates'])
        for rate, above in zip(distribution['rates'], distribution['above']):
            # The scheduler's tables smooth within a cell of the capacity.
            if 5 < rate % 100 < 95:
                self.assertAlmostEqual(_above(10, int(rate // 100)), above,
                                       places=6)

    def test_episodes_a_day_are_those_of_the_closed_form(self):
        rate = _binomial(10, 3) * 7 / fleets.OFF
        episodes = self.contents.detail('h1')['episodes']
        self.assertAlmostEqual(1, episodes['per_day'] / (rate * 86400))
        self.assertAlmostEqual(
            1, episodes['mean_seconds'] * rate / _above(10, 3))
        # An instance without a model counts with its mean rate.
        self.assertEqual({'per_day': 0.0, 'mean_seconds': None},
                         self.contents.detail('h2')['episodes'])

    def test_each_kind_of_limit_has_a_distribution(self):
        law = model.TrafficModel.on_off(100.0, 10.0, 2.0, on_seconds=1.0,
                                        off_seconds=1.0)
        self.store.write([store.StoredModel(base.instance_uuid(11), law)],
                         now=base.NOW)
        for limits, mean, capacity in (
                ({'line_rate_kbps': 150.0}, 50, 150),
                ({'packet_rate_kpps': 3.0}, 1, 3),
                ({'packet_cost_us': 250.0, 'byte_cost_ns': 16.0}, .25011,
                 1),
                ({'saturation_kbps': 150.0, 'saturation_dimension': 'egress'},
                 50, 150)):
            with self.subTest(limits=limits):
                policy = admission.HostPolicy(
                    profile.SwitchProfile('own', **limits))
                report = fleets.report_of(self.store, policy)
                distribution = report.detail('h2')['distribution']
                self.assertAlmostEqual(mean, distribution['mean'])
                self.assertEqual(capacity, distribution['capacity'])
                half = [above for rate, above in zip(
                    distribution['rates'], distribution['above'])
                        if .1 * mean < rate < 1.8 * mean]
                for above in half:
                    self.assertAlmostEqual(.5, above, places=6)

    def test_what_hosts_share_counts_the_instances_of_all(self):
        uplink = admission.Uplink('tor', admission.HostPolicy(
            profile.SwitchProfile('up', line_rate_kbps=250.0),
            overload_probability=.01))
        policy = dataclasses.replace(fleets.POLICY, uplinks=(uplink,))
        report = fleets.report_of(self.store, policy)
        shared, = report.uplinks()
        self.assertEqual(('tor', 3, 11, True), tuple(
            shared[key] for key in ('uplink', 'hosts', 'instances', 'above')))
        # Beside the 5 of the one without a model.
        self.assertAlmostEqual(_above(10, 2), shared['overload_probability'],
                               places=6)
        self.assertAlmostEqual(_above(10, 3), next(
            row['overload_probability'] for row in report.hosts
            if row['host'] == 'h1'))

    def test_a_model_without_new_samples_is_stale(self):
        models = self.contents.report(base.NOW)['models']
        self.assertEqual((10, 1, [base.instance_uuid(2)]), (
            models['total'], models['stale'],
            [row['instance'] for row in models['listed']]))
        self.assertEqual([9, 0, 0, 1, 0, 0],
                         [count for _, count in models['ages']])
        later = self.contents.report(base.NOW + 86400,
                                     contents.Limits(listed=3))
        self.assertEqual((10, 3), (later['models']['stale'],
                                   len(later['models']['listed'])))

    def test_refusals_add_up_in_intervals_of_time(self):
        report = self.contents.report(
            base.NOW, contents.Limits(refusal_buckets=3),
            self.store.decisions())
        refusals = report['refusals']
        self.assertRegex(' '.join(report['outcomes']), (
            '^Of 6 requests since .*, 0 would have failed and 0 would be .* 3 '
            'did fail. 1 hosts are left out: no filter checked the host.$'))
        self.assertEqual((6, 3, {'overload': 12}), (
            refusals['requests'], refusals['no_host'], refusals['reasons']))
        self.assertEqual([2, 2, 2], [interval['requests']
                                     for interval in refusals['buckets']])
        report = self.contents.report(base.NOW)
        self.assertEqual((None, []), (report['refusals'], report['outcomes']))

    def test_workers_are_shown_whatever_they_have_written(self):
        for number, state in enumerate((
                {'models': 7, 'cells': {'a': 3.0, 'b': None, 'c': 9.5},
                 'problems': {'record': 'it is old'}},
                {'models': 'many', 'cells': [1], 'problems': 'some'}, {})):
            self.store.report_worker(store.Worker(
                f'w{number}', 'ctl', base.NOW + number, base.NOW, state))
        self.assertEqual([(7, 9.5, ['it is old']), (None, None, []),
                          (None, None, [])], [
            (worker['models'], worker['record_age_seconds'],
             worker['problems'])
            for worker in self.contents.report(base.NOW)['workers']
            if worker['host'] == 'ctl'])

    def test_the_report_of_one_host_has_only_that(self):
        report = self.contents.report(base.NOW, host='h2')
        self.assertEqual((['h2'], ['h2']), (
            [row['host'] for row in report['hosts']],
            [detail['host'] for detail in report['details']]))

    def test_an_empty_store_has_an_empty_report(self):
        fleets.clear(self.store)
        report = contents.Contents(view.FleetView(self.store)).report(
            base.NOW)
        self.assertEqual(([], [], None), (
            report['hosts'], report['details'],
            report['summary']['mean_utilisation']))
