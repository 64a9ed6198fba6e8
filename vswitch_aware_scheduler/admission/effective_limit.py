# SPDX-License-Identifier: Apache-2.0
"""Expresses the limits of a host as one number that Placement can add up.

Placement adds whole numbers and has no concept of traffic.
:class:`EffectiveLimit` therefore gives each instance an amount and each host a
total. If the amounts on a host do not exceed its total, the host is within all
limits of its policy. Scheduler and modeler derive the same numbers from the
same HostPolicy. Pure; no Nova, no Placement, no configuration. Derivation:
reference/strict.rst.
"""

import dataclasses
import math
import weakref

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.traffic import effective

__all__ = ['HEADROOM', 'LARGEST', 'RESOURCE_CLASS', 'EffectiveLimit',
           'EffectiveLimits']

#: Resource class in Placement: kbit/s of the host's saturation bandwidth.
RESOURCE_CLASS = 'CUSTOM_VSWITCH_KBPS'

#: Share of a host that stays free for traffic above effective bandwidths.
HEADROOM = 0.25

#: Largest number that Placement can store.
LARGEST = 2 ** 31 - 1

#: Relative tolerance before rounding up to a whole number.
_TOLERANCE = 1e-9

#: Maximum number of cached amounts and of cached numbers that are held back.
_MOST_KNOWN = 65536
_MOST_HELD_BACK = 16384


class EffectiveLimit:
    """The limits of a host as one limit for a sum of effective bandwidths.

    :param policy: HostPolicy
    :param headroom: share of the limit that stays free, between 0 and 1,
        exclusive
    :ivar fitting: see :meth:`.admission.HostPolicy.fitting`
    :ivar total: largest sum of the amounts on a host in kbit/s, including what
        is held back
    """

    def __init__(self, policy, headroom=HEADROOM):
        profile = policy.profile
        self.fitting = policy.fitting
        self._packet_bytes = profile.typical_packet_bytes
        self._limits = [(weights, capacity) for weights, capacity, _
                        in policy.limits if capacity < math.inf]
        self._kbps = _kbps_of(profile)
        total = self._kbps
        self._exponent = None
        if policy.policy == admission.PROBABILITY:
            risk = policy.overload_probability
            if risk > 0:
                total *= 1 - headroom
            # Per unit of the limit. Without accepted risk, all peaks have to
            # fit.
            self._exponent = math.inf if risk == 0 \
                else -math.log(risk) / headroom
        self.total = int(min(total * (1 + _TOLERANCE), LARGEST))
        self._policy = dataclasses.replace(policy, uplinks=())
        self._known = {}
        self._held_back = {}

    @classmethod
    def of(cls, policy, headroom=HEADROOM):
        """Return the EffectiveLimit of a HostPolicy, or None without a limit.

        There is none if the policy limits no rate, or if a host may be
        overloaded all the time.

        :param policy: HostPolicy
        :param headroom: as in the constructor
        """
        if policy.profile is None or _kbps_of(policy.profile) is None or (
                policy.policy == admission.PROBABILITY
                and policy.overload_probability >= 1):
            return None
        return cls(policy, headroom)

    def amount(self, law):
        """Return the amount to book for an instance.

        :param law: RateLaw of the instance
        :returns: int, kbit/s, at least 1
        """
        amount = self._known.get(law)
        if amount is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            exact = self._amount(law) * (1 - _TOLERANCE)
            amount = self._known[law] = max(
                1, math.ceil(min(exact, LARGEST)))
        return amount

    def held_back(self, laws):
        """Return what instances on a host need in addition to their amounts.

        :param laws: iterable of the RateLaw of each instance
        :returns: kbit/s, between 0 and :attr:`total`
        """
        laws = tuple(laws)
        # Without accepted risk, all peaks fit.
        if self._exponent in (None, math.inf) or not any(
                law.has_classes for law in laws):
            return 0
        held_back_kbps = self._held_back.get(laws)
        if held_back_kbps is None:
            if len(self._held_back) >= _MOST_HELD_BACK:
                self._held_back.clear()
            table = admission.LoadTable()
            stretch = table.stretch(table.describe(
                'host', self._policy, dict(enumerate(laws))))
            held_back_kbps = self._held_back[laws] = min(
                math.ceil(self._kbps * (1 - 1 / stretch)), self.total)
        return held_back_kbps

    def _amount(self, law):
        shares = np.array([law.values(weights, self._packet_bytes) / capacity
                           for weights, capacity in self._limits])
        if self._exponent is None:
            # The policy of averages keeps each limit separately.
            return self._kbps * float((shares @ law.probabilities).max())
        return self._kbps * effective.effective_bandwidth(
            shares.max(axis=0), law.probabilities, self._exponent)


class EffectiveLimits:
    """The EffectiveLimit of each HostPolicy, computed once.

    :param headroom: as in :class:`EffectiveLimit`
    """

    def __init__(self, headroom=HEADROOM):
        self._headroom = headroom
        self._known = weakref.WeakKeyDictionary()

    def of(self, policy):
        """Return the EffectiveLimit of a HostPolicy, or None without a limit.

        :param policy: HostPolicy
        """
        if policy not in self._known:
            self._known[policy] = EffectiveLimit.of(policy, self._headroom)
        return self._known[policy]


def _kbps_of(profile):
    """Return the capacity of a host in kbit/s, or None without one."""
    most = profile.bandwidth_kbps()
    # If only one direction is limited, the sum of both is not limited.
    return most if most < math.inf else profile.saturation_kbps_at()
