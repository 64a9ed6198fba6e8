# SPDX-License-Identifier: Apache-2.0

import json
import math
import unittest

import hypothesis
from hypothesis import strategies
import numpy as np

from tests.unit.lab.capacity import costs
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.lab.capacity import cost_fit
from vswitch_aware_scheduler.lab.capacity import cost_model

row = costs.row
table = costs.table
SIZES = costs.SIZES


class TestFit(unittest.TestCase):

    @hypothesis.settings(deadline=None, max_examples=25)
    @hypothesis.given(strategies.tuples(
        strategies.floats(.5, 20), strategies.floats(0, 3)))
    def test_any_cost_of_one_sender_is_found(self, cost):
        model = cost_fit.fit_capacity(
            [row(size, cost[0] + cost[1] * size / 1e3) for size in SIZES])
        self.assertAlmostEqual(cost[0], model.switch.packet_us['none'],
                               places=5)
        self.assertAlmostEqual(cost[1], model.switch.byte_ns, places=5)

    def test_growth_is_linear_in_pairs_until_the_switch_is_full(self):
        # 6 us of each sender, 1 us of the switch: six pairs fill it.
        model = cost_fit.fit_capacity(
            table((6, 0), (1, 0), pairs=(1, 2, 4, 8, 10)))
        rates = [model.rate_kbps(1500, pairs) for pairs in range(1, 11)]
        np.testing.assert_allclose(
            np.array(rates) / rates[0], [1, 2, 3, 4, 5, 6, 6, 6, 6, 6],
            rtol=1e-6)
        self.assertEqual('sender', model.limiting(1500, 5))
        self.assertEqual('switch', model.limiting(1500, 7))

    def test_flows_senders_and_the_switch_are_told_apart(self):
        rows = [row(size, max((8 + size / 1e3) / (pairs * flows),
                              (5 + .5 * size / 1e3) / pairs,
                              2 + .1 * size / 1e3), pairs, flows)
                for pairs in (1, 2, 4) for flows in (1, 2, 4)
                for size in SIZES[:6]]
        for rows, costs_of in (
                (rows, {'flow': (8, 1), 'sender': (5, .5),
                        'switch': (2, .1)}),
                (table((4.8, .2), (1.1, .7)),
                 {'flow': None, 'sender': (4.8, .2), 'switch': (1.1, .7)})):
            model = cost_fit.fit_capacity(rows)
            for level, cost in costs_of.items():
                found = getattr(model, level)
                self.assertEqual(cost is None, found is None)
                if cost is not None:
                    self.assertAlmostEqual(cost[0], found.packet_us['none'], 5)
                    self.assertAlmostEqual(cost[1], found.byte_ns, 5)

    def test_the_line_ends_the_growth_and_is_not_taken_for_a_cost(self):
        rows = []
        for size in SIZES:
            line = cost_model.line_rate_kbps(10e6, size)
            rows.append(cost_model.Measurement(
                size, min(8e3 * size / 3.0, line)))
        model = cost_fit.fit_capacity(rows, line_kbps=10e6)
        self.assertAlmostEqual(3.0, model.switch.packet_us['none'], places=6)
        self.assertAlmostEqual(0.0, model.switch.byte_ns, places=6)
        self.assertEqual('line', model.limiting(8000))
        self.assertAlmostEqual(cost_model.line_rate_kbps(10e6, 8000),
                               model.rate_kbps(8000))

    def test_what_an_encapsulation_costs_is_found(self):
        rows = [row(size, cost + .3 * size / 1e3, encapsulation=name)
                for name, cost in (('none', 1.0), ('vxlan', 9.3),
                                   ('gre', 7.5)) for size in SIZES]
        cost = cost_fit.fit_capacity(rows).switch
        for name, added in (('vxlan', 8.3), ('gre', 6.5)):
            self.assertAlmostEqual(
                added, cost.packet_us[name] - cost.packet_us['none'], places=6)

    def test_offload_makes_small_packets_as_cheap_as_the_unit(self):
        # 10 us for 2000 bytes at once, or for a packet that is larger.
        rows = [row(size, 10 * size / max(size, 2000) + .1 * size / 1e3)
                for size in SIZES]
        model = cost_fit.fit_capacity(rows, unit_bytes=2000)
        self.assertAlmostEqual(10, model.switch.packet_us['none'], places=5)
        self.assertAlmostEqual(model.rate_kbps(88), model.rate_kbps(2000))

    def test_costs_that_cannot_be_told_apart_have_no_limits(self):
        # Every packet is smaller than the unit: all costs are by the byte.
        rows = [row(size, 10 * size / 64000 * (1 + .01 * (size % 3)))
                for size in SIZES]
        model = cost_fit.fit_capacity(rows, unit_bytes=64000)
        self.assertEqual((0.0, math.inf), model.switch.limits()['byte_ns'])

    def test_a_cost_is_never_negative(self):
        # Larger packets are faster here: the best that is possible is b = 0.
        model = cost_fit.fit_capacity([row(128, 3.0), row(1500, 2.0)])
        self.assertEqual(0.0, model.switch.byte_ns)
        self.assertGreater(model.switch.packet_us['none'], 2.0)
        self.assertLess(model.switch.packet_us['none'], 3.0)

    def test_one_row_gives_a_packet_cost_without_limits(self):
        model = cost_fit.fit_capacity([row(1450, 9.347)])
        self.assertAlmostEqual(9.347, model.switch.packet_us['none'])
        limits = model.switch.limits()
        self.assertEqual((0.0, math.inf), limits['packet_us']['none'])
        self.assertEqual((0.0, math.inf), limits['byte_ns'])
        json.dumps(model.to_dict(), allow_nan=False)

    def test_no_row_and_options_out_of_range_are_refused(self):
        single = [row(100, 1.0)]
        for rows, options, message in (
                ([], {}, 'no row; expected 1 or more'),
                (single, {'line_kbps': 0}, 'line_kbps: 0; expected'),
                (single, {'framing_bytes': -1}, 'framing_bytes: -1; expected'),
                (single, {'unit_bytes': math.inf}, 'unit_bytes: inf')):
            with self.assertRaisesRegex(exceptions.InvalidModel, message):
                cost_fit.fit_capacity(rows, **options)

    def test_a_question_that_makes_no_sense_is_refused(self):
        model = cost_fit.fit_capacity([row(100, 1.0)])
        for changes, message in (
                ({'packet_bytes': 0}, 'packet_bytes: 0'),
                ({'pairs': 0}, 'pairs: 0'),
                ({'encapsulation': 'x'}, "'x'; expected one"),
                # It was not measured.
                ({'encapsulation': 'vxlan'}, "'vxlan'; expected one that")):
            with self.assertRaisesRegex(exceptions.InvalidModel, message):
                model.rate_kbps(**{'packet_bytes': 100, **changes})


class TestConfidence(unittest.TestCase):

    def _coverage(self, rounds, make, hits):
        noise = np.random.default_rng(20)
        counts = np.zeros(len(hits))
        for _ in range(rounds):
            model = cost_fit.fit_capacity(make(noise))
            counts += [hit(model, noise) for hit in hits]
        return counts / rounds

    def test_limits_hold_the_true_costs_as_often_as_they_say(self):
        # 95 % limits, 800 tables: the share of tables whose limits hold the
        # truth is binomial, standard deviation 0.77 %; four of them either
        # way, and a percent for the linearisation.
        def hit(value):
            def judge(model, noise):
                limits = model.switch.limits()
                interval = (limits['packet_us']['none'] if value == 2.0
                            else limits['byte_ns'])
                return interval[0] <= value <= interval[1]
            return judge

        def future(model, noise):
            low, high = model.interval_kbps(1200)
            wider = model.interval_kbps(1200, confidence=.99)
            self.assertTrue(wider[0] < low < model.rate_kbps(1200)
                            < high < wider[1])
            measured = 8e3 * 1200 / ((2.0 + .9 * 1.2)
                                     * math.exp(noise.normal(0, .05)))
            return low <= measured <= high

        shares = self._coverage(800, lambda noise: table(
            (0, 0), (2.0, .9), (1,), noise=noise),
            [hit(2.0), hit(.9), future])
        for share in shares:
            self.assertLess(abs(share - .95), .041, shares)

    def test_limits_hold_too_where_two_levels_were_told_apart(self):
        def hit(level, value):
            def judge(model, noise):
                cost = getattr(model, level)
                if cost is None:
                    return False
                low, high = cost.limits()['packet_us']['none']
                return low <= value <= high
            return judge

        shares = self._coverage(
            120, lambda noise: table((6.0, .1), (1.0, .1), (1, 2, 8, 10),
                                     SIZES[::2], noise),
            [hit('sender', 6.0), hit('switch', 1.0)])
        # Binomial, standard deviation 2 %.
        for share in shares:
            self.assertGreater(share, .95 - .08, shares)


class TestLeaveOneOut(unittest.TestCase):

    def test_an_exact_table_predicts_and_does_not_contradict_itself(self):
        rows = table((4.8, .2), (1.1, .7))
        self.assertEqual([], cost_fit.contradictions(rows))
        predictions = cost_fit.leave_one_out(rows)
        self.assertEqual(rows, [prediction.measurement
                                for prediction in predictions])
        self.assertLess(cost_fit.median_error(predictions), 1e-9)

    def test_a_row_is_not_predicted_from_itself(self):
        rows = [row(size, 2.0) for size in SIZES[:5]] + [row(1500, 8.0)]
        prediction = cost_fit.leave_one_out(rows)[-1]
        # All others say 2 us, so four times the rate is predicted.
        self.assertAlmostEqual(3.0, prediction.error, places=6)

    def test_what_the_rest_does_not_know_is_not_predicted(self):
        rows = [row(100, 1.0), row(200, 1.0),
                row(100, 9.0, encapsulation='vxlan')]
        predictions = cost_fit.leave_one_out(rows, 'encapsulation')
        self.assertIsNone(predictions[2].predicted)
        self.assertIsNone(predictions[2].error)
        self.assertIsNone(cost_fit.median_error(predictions[2:]))
        self.assertIsNone(cost_fit.leave_one_out(rows[:1])[0].predicted)


class TestContradictions(unittest.TestCase):

    def test_a_larger_packet_in_less_time_is_told(self):
        contradictions = cost_fit.contradictions([row(128, 3.0),
                                                  row(1500, 2.0)])
        self.assertEqual(
            ['128 bytes, 1 pairs, 1 flows each, encapsulation none: 3 us a '
             'packet, but 2 us at 1500 bytes'], contradictions)

    def test_more_pairs_or_flows_that_carry_less_are_told(self):
        rows = [cost_model.Measurement(512, 3680000, 2, 2),
                cost_model.Measurement(512, 3080000, 2, 4)]
        self.assertEqual(
            ['512 bytes, 2 pairs, 2 flows each, encapsulation none: 3680000 '
             'kbit/s, but 3080000 kbit/s with 2 pairs, 4 flows each'],
            cost_fit.contradictions(rows))
        self.assertEqual([], cost_fit.contradictions(rows, tolerance=.2))


class TestCpu(unittest.TestCase):

    def _row(self, size, rate, pairs=1, sender=0.0):
        return cost_model.Measurement(
            size, rate, pairs, cpu_mhz=100 + sender * pairs
            + .9 * rate / (8 * size) + .05 * rate / 1e3)

    def test_known_costs_are_found(self):
        rows = [self._row(size, 1e6 * i) for i, size in enumerate(SIZES, 1)]
        cost = cost_fit.fit_cpu(rows, idle_mhz=100)
        self.assertAlmostEqual(.9, cost.mhz_per_kpps)
        self.assertAlmostEqual(.05, cost.mhz_per_mbps)
        self.assertEqual(0.0, cost.sender_mhz)
        self.assertAlmostEqual(rows[3].cpu_mhz,
                               cost.mhz(rows[3].rate_kbps, SIZES[3]))

    def test_what_a_busy_sender_takes_is_told_apart(self):
        rows = [self._row(size, 1e6 * i, pairs, 2000.0)
                for i, size in enumerate(SIZES, 1) for pairs in (1, 3)]
        cost = cost_fit.fit_cpu(rows, 100, senders=True)
        self.assertAlmostEqual(2000, cost.sender_mhz, places=5)
        self.assertAlmostEqual(.9, cost.mhz_per_kpps)

    def test_a_table_without_cpu_is_refused(self):
        with self.assertRaisesRegex(exceptions.InvalidModel,
                                    'no row with cpu_mhz; expected 1'):
            cost_fit.fit_cpu([row(100, 1.0)])
        with self.assertRaisesRegex(exceptions.InvalidModel,
                                    'at most 5; expected more than the 5 of'):
            cost_fit.fit_cpu([row(100, 1.0, cpu_mhz=5)], idle_mhz=5)


class TestCovering(unittest.TestCase):

    def _rows(self, times_by_size):
        return [cost_model.Measurement(size, 8e3 * size / us)
                for size, us in times_by_size]

    def test_an_exact_cost_is_returned(self):
        a, b = cost_fit.covering_cost(self._rows(
            [(size, 4 + .5 * size / 1e3) for size in (88, 1500, 9000, 64000)]))
        self.assertAlmostEqual(4, a)
        self.assertAlmostEqual(.5, b)

    def test_no_measured_rate_is_exceeded_and_no_lower_cost_does_it(self):
        generator = np.random.default_rng(7)
        for _ in range(50):
            sizes = generator.uniform(60, 65000, 8)
            times = generator.uniform(1, 50, 8)
            a, b = cost_fit.covering_cost(
                self._rows(zip(sizes, times, strict=True)))
            # A smaller packet takes at most the time of a larger one.
            bounds = np.array([times[sizes >= size].min() for size in sizes])
            self.assertTrue((a + b * sizes / 1e3
                             >= bounds * (1 - 1e-9)).all())
            total = ((a + b * sizes / 1e3) / bounds).sum()
            for slope in np.linspace(0, 3 * b + 1e-3, 60):
                least = max((bounds - slope * sizes / 1e3).max(), 0)
                other = ((least + slope * sizes / 1e3) / bounds).sum()
                self.assertGreaterEqual(other, total * (1 - 1e-9))

    def test_the_fastest_row_of_a_size_counts(self):
        self.assertEqual((5.0, 0.0), tuple(round(value, 9) for value in (
            cost_fit.covering_cost(self._rows(
                [(1000, 9), (1000, 5), (2000, 5)])))))
