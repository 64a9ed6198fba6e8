# SPDX-License-Identifier: Apache-2.0
"""Hosts whose limits are tried."""

from vswitch_aware_scheduler.admission import host_policies as policies
from vswitch_aware_scheduler.vswitch import profile

LIMIT = .01

KIND = '0.01: 1 1 0 <= 20'


def host_policies(limit=LIMIT):
    return policies.HostPolicies(
        {name: profile.SwitchProfile(name=name, saturation_kbps=kbps)
         for name, kbps in (('own', 20.0), ('other', 30.0))},
        'own', 'probability', limit, True, lambda topic, problem: None)
