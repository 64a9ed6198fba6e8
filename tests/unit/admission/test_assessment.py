# SPDX-License-Identifier: Apache-2.0

import dataclasses

import numpy as np

from tests.unit.admission import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.vswitch import profile

F = base.F
_policy = base.policy
_on_off = base.on_off
_constant = base.constant


class TestUtilisation(base.AdmissionTestCase):

    def test_it_is_that_of_the_tightest_limit_with_the_instance(self):
        assessment = self.judge(
            _policy(saturation_kbps=1000.0, line_rate_kbps=400.0),
            [model.TrafficModel.constant(100, 50)],
            model.TrafficModel.constant(60, 10))
        self.assertAlmostEqual(160 / 400, assessment.utilisation[0], 12)


class TestExplain(base.AdmissionTestCase):

    def assertWords(self, words, assessment):
        text = assessment.explain(0)
        for word in words:
            self.assertIn(word, text)

    def test_the_numbers_that_decided_are_named(self):
        for words, policy, residents, candidate in (
                (('5 instances', 'max_tunnels', 'own', '5'),
                 _policy(max_tunnels=5), [_on_off(1)] * 5, _on_off(1)),
                (('peak of 600', '500', 'kbit/s', 'own'),
                 _policy(vm_peak_kbps=500.0), (), _on_off(600)),
                (('peak of 600', '500', 'kbit/s of ingress'),
                 _policy(line_rate_kbps=500.0), (),
                 _on_off(0, ingress=600)),
                (('peak of 7', '5', 'kilo-packets/s'),
                 _policy(packet_rate_kpps=5.0), (), _on_off(1, kpps=7)),
                (('average', '1200', '1000', 'own'),
                 _policy(admission.AVERAGE),
                 [model.TrafficModel.constant(400)] * 2,
                 model.TrafficModel.constant(400)),
                (('average', '700', '600', 'of egress'),
                 _policy(admission.AVERAGE, line_rate_kbps=600.0),
                 [model.TrafficModel.constant(400)],
                 model.TrafficModel.constant(300)),
                (('probability', '0.028', 'above', '0.01', '2 instances'),
                 _policy(), [_on_off(600)] * 2, _on_off(600)),
                (('probability', '0.001', 'within', '0.01'),
                 _policy(saturation_kbps=2500.0), [_on_off(1000)] * 2,
                 _on_off(1000))):
            with self.subTest(words=words):
                self.assertWords(
                    words, self.judge(policy, residents, candidate))

    def test_without_a_profile_it_says_so(self):
        for pass_unknown, word in ((True, 'pass'), (False, 'refused')):
            self.assertWords(('no switch profile', word), self.judge(
                admission.HostPolicy(None, pass_unknown=pass_unknown)))

    def test_numbers_of_a_host_it_moves_on_are_those_without_it(self):
        assessment = self.judge(
            _policy(admission.AVERAGE),
            [model.TrafficModel.constant(400)] * 3,
            model.TrafficModel.constant(400), 'vm-1')
        self.assertWords(('1200', '1000'), assessment)


class TestErrorBudgets(base.AdmissionTestCase):
    """Host a is in debt, and project spender spends; b and c are not."""

    SMALL = _constant(10.0)
    DEBT = store.Debt(.25, frozenset(['spender']))

    def assess(self, law=SMALL, debts=None, exclude=None, uplinks=(),
               residents=(), hosts='abc', project='spender', **policy):
        table = admission.LoadTable(
            debts={('host', 'a'): self.DEBT} if debts is None else debts)
        rows = [table.describe(
            host, dataclasses.replace(
                _policy(), uplinks=uplinks, **policy),
            {uuid: self.SMALL for uuid in residents}) for host in hosts]
        return table.assess(rows, law, exclude, project=project)

    def test_a_host_in_debt_refuses_who_spends_and_says_so(self):
        assessment = self.assess()
        self.assertEqual([False, True, True], assessment.admitted.tolist())
        self.assertEqual('error budget', assessment.check(0))
        self.assertIsNone(assessment.decisive(0))
        self.assertIn('its error budget is overspent by the amount that '
                      '0.25 days in use earn', assessment.explain(0))
        # A quarter of a day above nothing.
        np.testing.assert_allclose([1.25], assessment.multiples(np.array([0])))

    def test_it_accepts_others_and_comes_last(self):
        for project in ('other', None):
            assessment = self.assess(project=project)
            self.assertTrue(assessment.admitted.all())
            self.assertEqual([True, False, False], assessment.last.tolist())
            self.assertFalse(assessment.only_last)
        # An instance that is there is not new, and averages have no limit.
        for values, admitted in (
                ({'exclude': 'x', 'residents': ['x']}, True),
                ({'exclude': 'x'}, False),
                ({'policy': admission.AVERAGE}, True)):
            self.assertEqual(admitted, self.assess(**values).admitted[0])

    def test_a_bolder_margin_does_not_apply_to_a_host_in_debt(self):
        # Overloaded for a tenth of the time with the new instance.
        for margin, admitted in ((.05, [False, True, True]),
                                 (2.0, [False] * 3)):
            assessment = self.assess(
                _on_off(995.0).law, residents=['x'], project='other',
                overload_probability=.01, prediction_margin=margin)
            self.assertEqual(admitted, assessment.admitted.tolist(), margin)
        # Within the limit, the margin does not matter.
        self.assertTrue(self.assess(
            _on_off(995.0).law, residents=['x'], project='other',
            overload_probability=.11, prediction_margin=.05).admitted[0])

    def test_debt_leaves_no_request_without_a_host(self):
        debts = {('host', host): self.DEBT for host in 'abc'}
        assessment = self.assess(debts=debts)
        self.assertTrue(assessment.admitted.all())
        self.assertTrue(assessment.only_last)
        # The other host does not pass for another reason.
        del debts['host', 'c']
        table = admission.LoadTable(debts=debts)
        rows = [table.describe(host, _policy(), {
            'full': _constant(999.0 if host == 'c' else 0.0)})
            for host in 'abc']
        assessment = table.assess(rows, self.SMALL, project='spender')
        self.assertEqual([True, True, False], assessment.admitted.tolist())
        self.assertTrue(assessment.only_last)

    def test_all_hosts_are_judged_together_whatever_their_laws(self):
        table = admission.LoadTable(debts={('host', 'a'): self.DEBT})
        rows = [table.describe(host, _policy(), {}) for host in 'ab']
        self.assertEqual([False, True], table.assess_each(
            rows, [_constant(1.0), _constant(2.0)],
            project='spender').admitted.tolist())

    def test_debts_can_change(self):
        table = admission.LoadTable()
        rows = [table.describe(host, _policy(), {}) for host in 'ab']
        for debts, admitted in (({('host', 'a'): self.DEBT}, [False, True]),
                                ({}, [True, True])):
            version = table.version
            table.set_debts(debts)
            self.assertNotEqual(version, table.version)
            self.assertEqual(admitted, table.assess(
                rows, self.SMALL, project='spender').admitted.tolist())

    def test_what_load_refuses_is_said_before_debt(self):
        assessment = self.assess(_constant(2000.0))
        self.assertEqual(['peak'] * 3, [assessment.check(i) for i in range(3)])
        self.assertFalse(assessment.only_last)

    def test_an_uplink_in_debt_refuses_hosts_behind_it(self):
        uplink = admission.Uplink('a', _policy())
        table = admission.LoadTable(debts={('uplink', 'a'): self.DEBT})
        rows = [table.describe(host, dataclasses.replace(
            _policy(), uplinks=(uplink,) if host != 'c' else ()), {})
            for host in 'abc']
        assessment = table.assess(rows, self.SMALL, project='spender')
        self.assertEqual(['uplink', 'uplink', 'admitted'],
                         [assessment.check(i) for i in range(3)])
        self.assertEqual([True, True, False], assessment.last.tolist())
        self.assertIn('its uplink a: its error budget is overspent',
                      assessment.explain(1))
        self.assertIsNone(assessment.decisive(1))
        # If all hosts are behind it, they pass.
        self.assertTrue(self.assess(
            uplinks=(uplink,), debts={('uplink', 'a'): self.DEBT}
        ).admitted.all())
        # A host of the same name is another thing.
        assessment = self.assess(uplinks=(uplink,))
        self.assertEqual([False, True, True], assessment.admitted.tolist())


class TestGiants(base.AdmissionTestCase):
    """Host a has an instance that exceeds the capacity of 1000 alone."""

    #: In a thousandth of the time.
    GIANT = _on_off(1500.0, F(1, 1000)).law
    SMALL = _constant(1.0)

    def assess(self, giants='a', hosts='ab', exclude=None, law=SMALL,
               **policy):
        table = admission.LoadTable()
        rows = [table.describe(host, _policy(**policy), {
                f'on {host}': self.GIANT if host in giants else self.SMALL})
                for host in hosts]
        return table.assess(rows, law, exclude)

    def test_no_instance_is_placed_beside_it_while_another_host_passes(self):
        assessment = self.assess()
        self.assertEqual([False, True], assessment.admitted.tolist())
        self.assertEqual('large neighbour', assessment.check(0))
        self.assertIn('one of its 1 instances exceeds the capacity of profile',
                      assessment.explain(0))
        self.assertIsNone(assessment.decisive(0))

    def test_if_there_is_no_other_host_it_passes_and_comes_last(self):
        assessment = self.assess('ab')
        self.assertEqual([True, True], assessment.admitted.tolist())
        self.assertTrue(assessment.only_last)
        self.assertEqual([True, True], assessment.last.tolist())

    def test_an_instance_on_its_host_may_stay(self):
        for values, admitted in (
                ({'exclude': 'on a'}, True), ({'exclude': 'on b'}, False),
                # Averages have no such instances.
                ({'policy': admission.AVERAGE}, True)):
            self.assertEqual(admitted, self.assess(**values).admitted[0])

    def test_a_giant_that_leaves_is_forgotten(self):
        table = admission.LoadTable()
        rows = [table.describe(host, _policy(), {
            'x': self.SMALL}) for host in 'ab']
        for change, admitted in ((({'g': self.GIANT}, []), False),
                                 (({}, ['g']), True)):
            table.change({'a': change})
            self.assertEqual([admitted, True], table.assess(
                rows, self.SMALL).admitted.tolist())


class TestPredictionMargin(base.AdmissionTestCase):

    CAPACITY = 2.5
    LAW = _on_off(1.0).law
    #: Instances on the host, with the new one, each on in a tenth of the time.
    COUNT = 8
    #: P(more than two of them are on).
    OVERLOAD = 1 - .9 ** 8 - 8 * .1 * .9 ** 7 - 28 * .1 ** 2 * .9 ** 6

    def assess(self, limit, margin, exclude=None, uplinks=(), **policy):
        table = admission.LoadTable()
        row = table.describe('a', admission.HostPolicy(
            profile.SwitchProfile(
                'p', saturation_kbps=1e6 if uplinks else self.CAPACITY),
            overload_probability=limit, prediction_margin=margin,
            uplinks=uplinks, **policy), {
                f'a{n}': self.LAW
                for n in range(self.COUNT - (exclude is None))})
        return table.assess([row], self.LAW, exclude)

    def test_the_prediction_times_the_margin_may_equal_the_limit(self):
        for margin in (2.0, .5, 1 / 3):
            # Also for an instance that moves.
            for exclude in (None, 'a0'):
                for share, admitted in ((1.0, True), (.999, False)):
                    assessment = self.assess(
                        share * margin * self.OVERLOAD, margin, exclude)
                    self.assertEqual(admitted, assessment.admitted[0])
                    self.assertEqual(admitted, not assessment.above[0])
                    self.assertAlmostEqual(share * self.OVERLOAD,
                                           assessment.limit(0))
            self.assertAlmostEqual(.999 * self.OVERLOAD,
                                   assessment.decisive(0)[1])

    def test_the_message_has_prediction_margin_and_limit(self):
        text = self.assess(.05, 2.0).explain(0)
        self.assertIn(f'would be {self.OVERLOAD:.3g}, above the limit of '
                      f'0.025, 0.05 divided by the prediction margin 2 (',
                      text)
        self.assertNotIn('margin', self.assess(.05, 1.0).explain(0))

    def test_a_limit_of_nothing_stays_nothing(self):
        for margin in (.001, 2.0):
            assessment = self.assess(0.0, margin)
            self.assertEqual(0.0, assessment.limit(0))
            self.assertFalse(assessment.admitted[0])

    def test_an_uplink_has_the_margin_of_its_own_policy(self):
        for exclude in (None, 'a0'):
            for margin, admitted in ((1.9, True), (2.1, False)):
                assessment = self.assess(
                    2 * self.OVERLOAD, 4.0, exclude, (admission.Uplink(
                        'a', admission.HostPolicy(
                            profile.SwitchProfile(
                                'u', saturation_kbps=self.CAPACITY),
                            overload_probability=2 * self.OVERLOAD,
                            prediction_margin=margin)),))
                self.assertEqual(admitted, assessment.admitted[0])
        self.assertIn('divided by the prediction margin 2.1',
                      assessment.explain(0))
