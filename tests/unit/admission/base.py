# SPDX-License-Identifier: Apache-2.0
"""Policies, laws and tables for the tests of admission."""

import fractions
import unittest

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import profile

F = fractions.Fraction


def switch_profile(saturation_kbps=1000.0, **stated):
    return profile.SwitchProfile(name='own', saturation_kbps=saturation_kbps,
                                 **stated)


def policy(policy=admission.PROBABILITY, limit=.01, pass_unknown=True,
           enforced=True, **stated):
    return admission.HostPolicy(switch_profile(**stated), policy, limit,
                                pass_unknown, enforced=enforced)


def on_off(kbps, share=F(1, 10), ingress=0.0, kpps=0.0):
    return model.TrafficModel.on_off(
        kbps, ingress, kpps, on_seconds=float(share),
        off_seconds=float(1 - F(share)))


def constant(*rates):
    return model.TrafficModel.constant(*rates).law


def egress(shares, kbps, *at_instants):
    """Return a law of egress only."""
    return rate_law.RateLaw.from_arrays(
        shares, np.outer(kbps, [1.0, 0, 0]), *at_instants)


def named(laws):
    return {f'vm-{i}': law for i, law in enumerate(laws)}


def judged(policy, residents, law=constant(), exclude=None, **table):
    """Return the Assessment of a host described anew."""
    table = admission.LoadTable(**table)
    if not isinstance(residents, dict):
        residents = named(residents)
    return table.assess([table.describe('host', policy, residents)], law,
                        exclude)


def random_models(rng, count, largest=200.0):
    """Return models of any rates, in both directions and packets."""
    models = []
    for _ in range(count):
        n = int(rng.integers(1, 5))
        rates = rng.uniform(0, largest, (n, 3))
        rates[:, 2] *= .05
        jump = rng.random((n, n)) * (1 - np.eye(n))
        if n > 1:
            jump /= jump.sum(axis=1, keepdims=True)
        models.append(model.TrafficModel(rates, jump, rng.uniform(1, 9, n)))
    return models


def random_laws(*arguments):
    return [source.law for source in random_models(*arguments)]


class AdmissionTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.table = admission.LoadTable()

    def judge(self, policy, residents=(), candidate=None, exclude=None):
        """Return the Assessment of one host."""
        if not isinstance(residents, dict):
            residents = named(resident.law for resident in residents)
        row = self.table.describe('host', policy, residents)
        candidate = candidate or model.TrafficModel.constant()
        return self.table.assess([row], candidate.law, exclude)

    def assertAdmitted(self, admitted, *case, msg=None):
        """Want judge() to admit or to refuse, and return its answer."""
        assessment = self.judge(*case)
        self.assertEqual([admitted], assessment.admitted.tolist(), msg)
        return assessment

    def assertAlike(self, expected, actual, atol=1e-14, rtol=1e-9,
                    at=slice(None)):
        """Want two Assessments to agree but for rounding.

        :param at: number of the host of ``seen`` that ``wanted`` is of
        """
        for name in ('overload_probability', 'loss_fraction', 'utilisation',
                     'reason'):
            np.testing.assert_allclose(
                np.ravel(getattr(actual, name)[at]), getattr(expected, name),
                rtol=rtol, atol=atol, err_msg=name)
