# SPDX-License-Identifier: Apache-2.0

import unittest
from unittest import mock

import numpy as np

from tests.unit.admission import base
from vswitch_aware_scheduler.admission import sources

_policy = base.policy
_on_off = base.on_off
_egress = base.egress
_named = base.named
_judged = base.judged
_random_laws = base.random_laws


class TestKnownLaws(unittest.TestCase):

    def test_each_law_has_its_value_however_many_are_kept(self):
        laws = [_on_off(number).law for number in range(300)]
        peaks_of_laws, computed = sources.KnownLaws(200), []

        def peaks(law_group):
            largest = law_group.values((2.0, 1.0, 0.0), None).max(axis=0)
            computed.extend(largest.tolist())
            return largest

        for numbers in (range(100), range(99, -1, -1), range(100, 200),
                        range(200, 300), range(50, 150)):
            self.assertEqual([2.0 * i for i in numbers], peaks_of_laws.of(
                [laws[i] for i in numbers], 'key', peaks).tolist())
            self.assertLessEqual(len(peaks_of_laws), 200)
        # The first ones only once, although they were asked for twice.
        self.assertEqual(list(range(0, 600, 2)), computed[:300])

    def test_another_key_is_another_value(self):
        values, law = sources.KnownLaws(9), _on_off(100).law
        for key in (1, 2, 1):
            self.assertEqual([key], values.of(
                [law], key, lambda law_group, key=key: np.array([key])))


class TestParts(base.AdmissionTestCase):

    def test_many_residents_are_summed_in_parts(self):
        rng = np.random.default_rng(111)
        busy = rng.random((600, 504)) < .02
        for count, capacity, sampled in (
                (129, 1900.0, False), (600, 7500.0, False),
                (600, 7500.0, True)):
            laws = [_egress(rng.dirichlet([9, 2, 1]),
                            [0, *rng.uniform(5, 80, 2)],
                            *([2 * busy[i]] if sampled else ()))
                    for i in range(count)]
            policy = _policy(saturation_kbps=capacity, limit=.5)
            with self.subTest(count=count, sampled=sampled):
                with mock.patch.object(sources, 'MOST_IN_PART', 1000):
                    whole = _judged(policy, laws, laws[0])
                self.assertTrue(1e-6 < whole.overload_probability[0] < 1)
                self.assertAlike(whole, _judged(policy, laws, laws[0]))

    def test_a_change_of_one_of_many_computes_one_part(self):
        rng = np.random.default_rng(112)
        laws = _random_laws(rng, 601)
        policy = _policy(saturation_kbps=9000.0)
        row = self.table.describe('host', policy, _named(laws[:600]))
        self.table.assess([row], laws[0])
        with mock.patch.object(
                sources.HostPart, '__init__', autospec=True,
                side_effect=sources.HostPart.__init__) as part:
            for change in (({'new': laws[600]}, ()), ({}, ['new', 'vm-7'])):
                self.table.change({'host': change})
                self.table.assess([row], laws[0])
        # The part of 'new', and that of 'vm-7'; the part without 'new' is
        # known.
        self.assertEqual(2, part.call_count)
        del laws[600], laws[7]
        self.assertAlike(_judged(policy, laws, laws[0]),
                         self.table.assess([row], laws[0]))
