# SPDX-License-Identifier: Apache-2.0

import unittest

import numpy as np

from tests.unit.lab.evaluate import traces
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.evaluate import methods
from vswitch_aware_scheduler.lab.evaluate import packing
from vswitch_aware_scheduler.lab.evaluate import protocols

DAY = 288


class Recorder(methods.Method):
    """Puts all on one host and remembers what it was told."""

    def _start(self, saturation_kbps, overload_probability):
        outer = self

        class Packer(packing.FirstFit):
            def learn(self, known):
                outer.calls.append(('learn', known.rates.copy()))

            def admitted(self, instance):
                outer.calls.append(('place', instance))
                return np.ones(len(self.residents), dtype=bool)

            def changed(self, host):
                if len(self.residents[host]) == 1:
                    outer.calls.append(('place', self.residents[host][0]))

            def predicted(self):
                return np.full(len(self.residents), 0.25)

        return Packer()

    def __init__(self):
        super().__init__('recorder', self._start)
        self.calls = []

    def told(self, kind):
        return [value for of_kind, value in self.calls if of_kind == kind]


def case(trace, saturation_kbps=10.0, overload_probability=0.01, **keywords):
    return protocols.ReplayCase(trace, saturation_kbps, overload_probability,
                                **keywords)


class StaticTestCase(unittest.TestCase):

    def _figures(self, rows, method=None, seeds=1, **keywords):
        method = method or Recorder()
        results = protocols.evaluate(case(traces.make_trace(rows),
                                          **keywords), [method], seeds)
        return results[method.name].figures(
            keywords.get('overload_probability', 0.01),
            results['clairvoyant'])

    def test_all_figures_by_hand(self):
        # Learned from the first half; instance 2 peaks above 10 there.
        figures = self._figures([[1, 1, 1, 6, 12, 0],
                                 [1, 1, 1, 5, 1, 0],
                                 [1, 11, 1, 1, 1, 1]])
        for name, expected in {
                'method': 'recorder', 'hosts': 1.0, 'refused': 1.0,
                'overload_mean': 2 / 3, 'overload_avoidable_mean': 1 / 3,
                'overload_over_limit_weighted': 100 / 3, 'loss': 4 / 24,
                'predicted_mean': 0.25, 'hosts_relative': 0.5,
                'hosts_mean': 1.0, 'hosts_mean_relative': 0.5,
                # In the bin of 11, two hosts: no overload may be.
                'fluid_within_limit': 4 / 12, 'fluid_relative': 3 / 4,
                'fluid_without_overload': 5 / 12,
                'vm_over_limit': 50.0}.items():
            if isinstance(expected, str):
                self.assertEqual(expected, figures[name])
            else:
                self.assertAlmostEqual(expected, figures[name], msg=name)
        # The trace is shorter than ten days.
        self.assertEqual(figures, {**figures, **figures['last_days']})

    def test_the_last_ten_days_are_also_measured_apart(self):
        rows = np.ones((2, 24 * DAY))
        # Learned in twelve days; then overload in 4 of 12 days' bins, one of
        # them in the last ten days.
        rows[:, [12 * DAY, 12 * DAY + 1, 13 * DAY, 20 * DAY]] = 6.0
        figures = self._figures(rows)
        for of, share in ((figures, 4 / (12 * DAY)),
                          (figures['last_days'], 1 / (10 * DAY))):
            self.assertAlmostEqual(100 * share,
                                   of['overload_over_limit_weighted'])
            self.assertEqual(1, of['week_hosts'])

    def test_instances_leave_after_exponential_lifetimes(self):
        count, days = 400, 40
        trace = traces.trace.Trace.from_series(traces.make_series(
            np.ones((count, 24 * days)), period=3600.0))
        for protocol in protocols.PROTOCOLS:
            results = [protocols.evaluate(case(
                trace, 1e6, protocol=protocol, lifetime_days=mean),
                [Recorder()], 1)['recorder'].judgements[0]
                for mean in (2.0, 2.0, None)]
            for left, again in zip(*(judged.vm_bins for judged in results[:2]),
                                   strict=True):
                self.assertEqual(left, again)
            seconds = results[0].vm_bins * 3600.0
            # The few that the end of the trace cuts short; five deviations.
            self.assertAlmostEqual(2.0, seconds.mean() / 86400, delta=.5)
            self.assertGreater(results[2].vm_bins.mean(),
                               4 * results[0].vm_bins.mean())

    def test_every_method_places_instances_that_leave(self):
        generator = np.random.default_rng(1)
        trace = traces.make_trace(generator.exponential(1.0, (30, 4 * DAY)))
        for protocol in protocols.PROTOCOLS:
            for history in protocols.HISTORIES:
                results = protocols.evaluate(
                    case(trace, 20.0, protocol=protocol, history=history,
                         lifetime_days=1.0),
                    methods.make_methods(traces.SETTINGS), 1)
                self.assertEqual(list(methods.NAMES), list(results))
                presence = {tuple(result.judgements[0].vm_bins)
                            for result in results.values()}
                self.assertEqual(1, len(presence))
                for result in results.values():
                    self.assertGreaterEqual(
                        result.judgements[0].bins.sum() / 12,
                        0 if result.judgements[0].avoidable.any()
                        else result.bounds[0].within_limit)

    def test_cores_and_memory_end_what_a_host_takes(self):
        # Of 4 cores and 8 GB: by cores two of the first kind, and by memory
        # one of the second; the last kind is refused by every method.
        needs = np.array([[2, 1], [2, 1], [2, 1], [1, 8], [1, 8], [5, 1],
                          [1, 9]]) * [1, 1024]
        trace = traces.make_trace(np.ones((7, 2 * DAY)))
        for protocol in protocols.PROTOCOLS:
            results = protocols.evaluate(
                case(trace, 1000.0, protocol=protocol, needs=needs,
                     room=(4.0, 8192.0)),
                methods.make_methods(traces.SETTINGS), 2)
            for name, result in results.items():
                with self.subTest(name, protocol=protocol):
                    self.assertEqual(([2, 2], [4, 4]), (
                        result.refused, [judged.peak_hosts for judged
                                         in result.judgements]))

    def test_a_resource_without_end_refuses_nothing(self):
        trace = traces.make_trace(np.ones((6, 10)))
        needs = np.column_stack([np.ones(6), np.full(6, 4096.0)])
        for room, hosts in (((np.inf, 8192.0), 3.0), ((2.0, np.inf), 3.0),
                            ((4.0, np.inf), 2.0), ((np.inf, np.inf), 1.0)):
            results = protocols.evaluate(
                case(trace, 1000.0, needs=needs, room=room),
                [methods.make_methods(traces.SETTINGS)[0]], 1)
            self.assertEqual(
                hosts, results['agnostic'].judgements[0].peak_hosts)

    def test_no_sample_is_no_traffic_when_judged(self):
        nan = float('nan')
        figures = self._figures([[1, 1, 6, nan], [1, 1, 6, 6]])
        self.assertEqual(0.5, figures['overload_mean'])

    def test_the_first_days_or_another_trace_are_learned_from(self):
        rows = np.arange(2.0 * 4 * DAY).reshape(2, -1) % 7
        past = [[1, 2, 3], [4, 5, 6]]
        for keywords, learned in (
                ({'train_days': 1}, rows[:, :DAY]), ({}, rows[:, :2 * DAY]),
                ({'past': traces.make_trace(past, traces.START - 1e6)}, past)):
            recorder = Recorder()
            self._figures(rows, recorder, **keywords)
            np.testing.assert_array_equal(learned, recorder.calls[0][1])

    def test_days_to_learn_from_leave_something_to_judge(self):
        for days in (0, 1, 5):
            with self.assertRaisesRegex(exceptions.InvalidInput,
                                        f'training days: {days}; expected'):
                self._figures(np.ones((1, DAY)), train_days=days)

    def test_all_methods_pack_in_the_same_order(self):
        method, second_method = Recorder(), Recorder()
        second_method.name = 'other'
        trace = traces.make_trace(np.ones((20, 8)))
        protocols.evaluate(case(trace), [method, second_method], 3)
        self.assertEqual(method.told('place'), second_method.told('place'))
        orders = [method.told('place')[i:i + 20] for i in (0, 20, 40)]
        self.assertEqual([list(range(20))] * 3, [sorted(x) for x in orders])
        self.assertNotEqual(orders[0], orders[1])

    def test_where_all_are_refused_there_is_nothing_to_compare(self):
        figures = self._figures([[11, 11, 1, 1]])
        self.assertEqual((0.0, 1.0, 0.0, None), (
            figures['hosts'], figures['refused'], figures['overload_mean'],
            figures['hosts_relative']))


class RollingTestCase(unittest.TestCase):

    def setUp(self):
        generator = np.random.default_rng(1)
        self.rows = generator.exponential(1.0, (30, 4 * DAY))
        self.trace = traces.make_trace(self.rows)
        self.arrivals = np.random.default_rng(1).integers(0, 4 * DAY, 30)

    def _run(self, **keywords):
        recorder = Recorder()
        results = protocols.evaluate(
            case(self.trace, 100.0, protocol='rolling', **keywords),
            [recorder], 1)
        return recorder, results['recorder']

    def test_models_are_refitted_daily_on_what_is_known_by_then(self):
        recorder, _ = self._run()
        learned = recorder.told('learn')
        self.assertEqual([0, DAY, 2 * DAY, 3 * DAY],
                         [rates.shape[1] for rates in learned])
        np.testing.assert_array_equal(self.rows[:, :3 * DAY], learned[3])

    def test_history_can_start_with_the_arrival(self):
        recorder, _ = self._run(history='arrival')
        learned = recorder.told('learn')[3]
        for row, arrival in enumerate(self.arrivals):
            self.assertTrue(np.isnan(learned[row, :arrival]).all())
            np.testing.assert_array_equal(
                self.rows[row, arrival:3 * DAY], learned[row, arrival:])

    def test_with_a_past_the_first_day_knows_it(self):
        past = traces.make_trace(2 * np.ones((30, 10)), traces.START - 1e6)
        recorder, _ = self._run(past=past, history='arrival')
        np.testing.assert_array_equal(2 * np.ones((30, 10)),
                                      recorder.calls[0][1])

    def test_instances_come_in_order_of_arrival(self):
        recorder, _ = self._run()
        self.assertEqual(np.argsort(self.arrivals, kind='stable').tolist(),
                         recorder.told('place'))

    def test_a_host_is_judged_from_its_first_instance_on(self):
        _, result = self._run()
        present = np.arange(4 * DAY) >= self.arrivals[:, None]
        total = (self.rows * present).sum(axis=0)
        self.assertEqual(np.count_nonzero(total > 100.0),
                         result.judgements[0].overload[0])
        self.assertEqual(4 * DAY - self.arrivals.min(),
                         result.judgements[0].bins[0])

    def test_one_whose_known_peak_is_too_high_is_refused(self):
        self.rows[:, :DAY] = 101.0
        self.trace = traces.make_trace(self.rows)
        recorder, result = self._run()
        # On the first day nothing is known yet.
        placed = int((self.arrivals < DAY).sum())
        self.assertEqual(([30 - placed], placed),
                         (result.refused, len(recorder.told('place'))))


class LimitsTestCase(unittest.TestCase):

    def test_limits_that_share_what_is_learned_come_to_the_same(self):
        generator = np.random.default_rng(1)
        trace = traces.make_trace(generator.exponential(1.0, (12, 2 * DAY)))
        limits = [(8.0, 0.01), (20.0, 0.1)]
        for keywords in ({}, {'protocol': 'rolling'},
                         {'protocol': 'rolling', 'history': 'arrival'}):
            together = protocols.evaluate_limits(
                case(trace, **keywords), limits,
                methods.make_methods(traces.SETTINGS), 2)
            for (capacity, limit), results in zip(limits, together):
                alone = protocols.evaluate(
                    case(trace, capacity, limit, **keywords),
                    methods.make_methods(traces.SETTINGS), 2)
                for name, result in alone.items():
                    self.assertEqual(
                        result.figures(limit, alone['clairvoyant']),
                        results[name].figures(limit, results['clairvoyant']))


class CaseTestCase(unittest.TestCase):

    def test_values_that_cannot_be_used_are_refused(self):
        trace = traces.make_trace([[1, 2]])
        for keywords in ({'protocol': 'other'}, {'history': 'other'},
                         {'saturation_kbps': 0}, {'saturation_kbps': NAN},
                         {'overload_probability': 0},
                         {'overload_probability': 1}, {'lifetime_days': 0},
                         {'lifetime_days': NAN}):
            with self.subTest(keywords), \
                    self.assertRaises(exceptions.InvalidInput):
                case(trace, **keywords)


NAN = float('nan')
