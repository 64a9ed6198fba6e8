# SPDX-License-Identifier: Apache-2.0
"""Which hosts can take one more instance, and what it would cost each.

This is the one package that decides, for the scheduler and for the evaluation
alike. It knows no Nova, no store and no clock; callers serialise access.

Derivation: reference/admission.rst.
"""

from vswitch_aware_scheduler.admission import assessment
from vswitch_aware_scheduler.admission import load_table
from vswitch_aware_scheduler.admission import policy

__all__ = ['ADMITTED', 'AVERAGE', 'MEAN', 'NO_PROFILE', 'OVERLOAD', 'PEAK',
           'PROBABILITY', 'TOO_MANY', 'UPLINK', 'Assessment', 'HostPolicy',
           'LoadTable', 'Uplink', 'most_cautious']

AVERAGE, PROBABILITY = policy.AVERAGE, policy.PROBABILITY
HostPolicy, Uplink = policy.HostPolicy, policy.Uplink
most_cautious = policy.most_cautious
LoadTable = load_table.LoadTable
Assessment = assessment.Assessment
(ADMITTED, NO_PROFILE, TOO_MANY, PEAK, MEAN, OVERLOAD, UPLINK) = (
    assessment.ADMITTED, assessment.NO_PROFILE, assessment.TOO_MANY,
    assessment.PEAK, assessment.MEAN, assessment.OVERLOAD,
    assessment.UPLINK)
