# SPDX-License-Identifier: Apache-2.0

import unittest
from unittest import mock

from vswitch_aware_scheduler.admission import resident_demand
from vswitch_aware_scheduler.traffic import model

LAW, STATED, UNKNOWN, GROUP = (
    model.TrafficModel.constant(kbps).law for kbps in (1, 2, 3, 4))
SPECS = {'vswitch:egress_kbps': '2', 'vswitch:ingress_kbps': '0'}


def _law_of(specs, model_law=None, prior=None, fitting=lambda law, _: law):
    snapshot = mock.Mock(
        law=lambda uuid: model_law, prior=lambda uuid: prior,
        group_prior=lambda uuid: (GROUP, 'flavor'))
    return resident_demand.law_of(snapshot, 'uuid', specs, UNKNOWN, fitting)


class PrecedenceTestCase(unittest.TestCase):

    def test_a_learned_model_comes_first(self):
        self.assertEqual(
            (LAW, resident_demand.MODEL),
            _law_of(SPECS, model_law=LAW, prior=(GROUP, 'instance')))

    def test_a_prior_of_the_instance_comes_before_its_flavor(self):
        self.assertEqual((LAW, resident_demand.PRIOR),
                         _law_of(SPECS, prior=(LAW, 'instance')))

    def test_a_flavor_comes_before_the_prior_of_a_group(self):
        law, rule = _law_of(SPECS, prior=(LAW, 'flavor'))
        self.assertEqual(resident_demand.FLAVOR, rule)
        self.assertEqual(STATED.mean.tolist()[:2], law.mean.tolist()[:2])

    def test_a_prior_of_a_group_comes_before_the_default(self):
        self.assertEqual((LAW, resident_demand.PRIOR),
                         _law_of({}, prior=(LAW, 'flavor')))
        self.assertEqual((UNKNOWN, resident_demand.DEFAULT), _law_of({}))

    def test_a_prior_is_cut_with_the_group_of_an_instance_with_its_own(self):
        cuts = []
        for prior_of in ('instance', 'flavor'):
            _law_of({}, prior=(LAW, prior_of),
                    fitting=lambda law, group: cuts.append((law, group)))
        self.assertEqual([(LAW, GROUP), (LAW, None)], cuts)

    def test_invalid_extra_specs_state_nothing(self):
        self.assertEqual((UNKNOWN, resident_demand.DEFAULT),
                         _law_of({'vswitch:egress_kbps': 'many'}))
