# SPDX-License-Identifier: Apache-2.0

import dataclasses
import unittest

from tests.unit.admission import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import explanation
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments


_policy = base.policy
_constant = base.constant


def _on_off(kbps, share=base.F(1, 10)):
    return base.on_off(kbps, share).law


class ExplanationTestCase(unittest.TestCase):

    def assess(self, hosts, law, attachments=vswitch_attachments.UNKNOWN):
        """Return (Assessment, names) of {host: (HostPolicy, laws)}."""
        table = admission.LoadTable()
        rows = [table.describe(host, policy, {
            f'{host}-{i}': resident for i, resident in enumerate(laws)})
            for host, (policy, laws) in hosts.items()]
        return table.assess(rows, law, attachments=attachments), list(hosts)


class TestRefusals(ExplanationTestCase):

    def test_each_host_counts_once_by_the_first_check_and_all_add_up(self):
        uplink = admission.Uplink('tor', _policy(saturation_kbps=100.0))
        hosts = {
            'free': (_policy(saturation_kbps=9e9), []),
            'nothing': (admission.HostPolicy(None, pass_unknown=False), []),
            # Too many and too large: the count is checked first.
            'many': (_policy(max_tunnels=1, vm_peak_kbps=1.0),
                     [_constant(1)]),
            'functions': (_policy(max_virtual_functions=0), []),
            # Too large, and overloaded with it.
            'peak': (_policy(vm_peak_kbps=500.0), [_constant(990)]),
            'mean': (_policy(admission.AVERAGE), [_constant(990)]),
            **{f'load{i}': (_policy(), [_constant(990)]) for i in range(3)},
            'behind': (dataclasses.replace(
                _policy(saturation_kbps=9e9), uplinks=(uplink,)), [])}
        assessment, names = self.assess(
            hosts, _on_off(600), vswitch_attachments.Attachments(
                ('net',), virtual_functions=1))
        counted = explanation.counts(assessment)
        self.assertEqual({
            'overload probability': 3, 'no profile': 1, 'tunnels': 1,
            'virtual functions': 1, 'peak': 1, 'average': 1, 'uplink': 1},
            counted)
        self.assertEqual('overload probability', next(iter(counted)))
        self.assertEqual(len(hosts), sum(counted.values())
                         + int(assessment.admitted.sum()))

    def test_the_nearest_host_is_that_with_the_smallest_excess(self):
        # Two of .1 are on at once for .01, and two of .2 for .04.
        for limits, closest in (((.009, .03), 'one'), ((.005, .03), 'two')):
            assessment, names = self.assess({
                'one': (_policy(limit=limits[0]), [_on_off(600)]),
                'two': (_policy(limit=limits[1]),
                        [_on_off(600, base.F(2, 5))])}, _on_off(600))
            nearest, next_host = explanation.nearest(assessment, most=5)
            self.assertEqual(closest, nearest.host)
            by_host = {
                refusal.host: refusal for refusal in (nearest, next_host)}
            for host, value, limit in (('one', .01, limits[0]),
                                       ('two', .04, limits[1])):
                self.assertAlmostEqual(value, by_host[host].value, 9)
                self.assertEqual(limit, by_host[host].limit)
                self.assertEqual('overload probability', by_host[host].check)

    def test_a_full_host_is_nearer_than_one_on_which_it_never_fits(self):
        hosts = {'unknown': (admission.HostPolicy(None, pass_unknown=False),
                             []),
                 'peak': (_policy(vm_peak_kbps=599.0), []),
                 'tunnels': (_policy(max_tunnels=4), [_constant(1)] * 4),
                 'full': (_policy(), [_constant(990)])}
        assessment, names = self.assess(hosts, _on_off(600))
        nearest = explanation.nearest(assessment, most=9)
        # 600 of 599, 5 of 4.
        self.assertEqual(['full', 'peak', 'tunnels', 'unknown'],
                         [host.host for host in nearest])
        self.assertEqual([(600.0, 599.0), (5, 4), (None, None)],
                         [(host.value, host.limit) for host in nearest[1:]])
        for host in nearest:
            self.assertEqual(assessment.explain(names.index(host.host)),
                             host.text)

    def test_an_uplink_is_compared_by_its_own_numbers(self):
        uplink = admission.Uplink('tor', _policy(saturation_kbps=599.0))
        assessment, names = self.assess({
            'behind': (dataclasses.replace(
                _policy(saturation_kbps=9e9), uplinks=(uplink,)), []),
            'full': (_policy(limit=.05), [_constant(990)])}, _on_off(600))
        # The peak of 600 is above the 599 of the uplink; .1 is above .05.
        behind, full = explanation.nearest(assessment, most=2)
        self.assertEqual(('behind', 'uplink', 600.0, 599.0),
                         (behind.host, behind.check, behind.value,
                          behind.limit))
        self.assertEqual('full', full.host)
        self.assertAlmostEqual(.1, full.value, 9)

    def test_of_equals_the_less_used_host_is_nearer(self):
        for kbps in ((500, 900), (900, 500)):
            assessment, names = self.assess({
                f'h{rate}': (_policy(), [_constant(rate)]) for rate in kbps},
                _constant(600))
            self.assertEqual(['h500', 'h900'], [
                rate.host for rate in explanation.nearest(assessment, most=2)])

    def test_the_words_are_of_the_time_of_the_question(self):
        uplink = admission.Uplink('tor', _policy(saturation_kbps=700.0))
        for uplinks in ((), (uplink,)):
            table = admission.LoadTable()
            row = table.describe('h', dataclasses.replace(
                _policy(saturation_kbps=1000.0 if not uplinks else 9e9),
                uplinks=uplinks), {'a': _constant(500)})
            assessment = table.assess([row], _constant(600))
            words = assessment.explain(0)
            self.assertIn('1 instances', words)
            table.change({'h': ({'b': _constant(1)}, ())})
            self.assertEqual(words, assessment.explain(0))
            self.assertIn('2 instances', table.assess(
                [row], _constant(600)).explain(0))
            table.change({'h': ({}, ('b',))})
            self.assertIn('1 instances', table.assess(
                [row], _constant(600)).explain(0))

    def test_the_line_is_the_counts_and_the_closest(self):
        closest = explanation.HostRefusal(
            'compute7', 'overload probability', .01312, .01, True, 'text')
        self.assertEqual(
            '12 hosts: 7 overload probability, 3 peak, 2 tunnels; closest '
            'compute7 (0.0131 > 0.01)', explanation.line(12, {
                'overload probability': 7, 'peak': 3, 'tunnels': 2}, closest))
        # A value that is above its limit looks so.
        self.assertIn('closest h (0.01001 > 0.01)', explanation.line(
            1, {}, dataclasses.replace(closest, host='h', value=.01001)))
        self.assertEqual('1 host: 1 no profile; closest h (no profile)',
                         explanation.line(1, {'no profile': 1},
                                          explanation.HostRefusal(
                             'h', 'no profile', None, None, True, '')))

    def test_numbers_without_a_limit_above_zero_rank_last(self):
        assessment, names = self.assess({
            'zero': (_policy(limit=0.0), [_constant(990)]),
            'full': (_policy(), [_constant(990)])}, _on_off(600))
        self.assertEqual(['full', 'zero'], [
            host.host for host in explanation.nearest(assessment, most=2)])


class TestObserve(ExplanationTestCase):

    def test_a_host_that_is_observed_passes_and_is_not_admitted(self):
        uplink = admission.Uplink('tor', _policy(saturation_kbps=599.0))
        table = admission.LoadTable()
        rows = [table.describe(host, dataclasses.replace(
            _policy(saturation_kbps=9e9, enforced=enforced),
            uplinks=(uplink,)), {}) for host, enforced in (
                ('a', True), ('b', False))]
        for assessment in (
                table.assess(rows, _on_off(600)),
                table.assess_each(rows, [_on_off(600), _on_off(700)])):
            self.assertEqual([admission.UPLINK] * 2,
                             assessment.reason.tolist())
            self.assertEqual([False, True], assessment.passing.tolist())
