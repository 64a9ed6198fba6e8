# SPDX-License-Identifier: Apache-2.0
"""Decides which hosts can carry one more instance, and predicts their load.

The scheduler and the evaluation both use this package. It does not use Nova,
the store or a clock. Callers serialise access. Derivation:
reference/admission.rst.
"""

from vswitch_aware_scheduler.admission import assessment
from vswitch_aware_scheduler.admission import load_table
from vswitch_aware_scheduler.admission import policy

__all__ = ['ADMITTED', 'AVERAGE', 'DEBT', 'GIANT', 'MEAN', 'NO_PROFILE',
           'OVERLOAD', 'PEAK', 'PROBABILITY', 'TOO_MANY', 'UPLINK',
           'Assessment', 'HostPolicy', 'LoadTable', 'Uplink', 'most_cautious']

AVERAGE, PROBABILITY = policy.AVERAGE, policy.PROBABILITY
HostPolicy = policy.HostPolicy
Uplink = policy.Uplink
most_cautious = policy.most_cautious
LoadTable = load_table.LoadTable
Assessment = assessment.Assessment
(ADMITTED, NO_PROFILE, TOO_MANY, PEAK, MEAN, OVERLOAD, UPLINK, DEBT, GIANT) = (
    assessment.ADMITTED, assessment.NO_PROFILE, assessment.TOO_MANY,
    assessment.PEAK, assessment.MEAN, assessment.OVERLOAD,
    assessment.UPLINK, assessment.DEBT, assessment.GIANT)
