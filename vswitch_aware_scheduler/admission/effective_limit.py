# SPDX-License-Identifier: Apache-2.0
"""What placement is to keep of a host's switch: a total, and amounts of it.

Placement adds up whole numbers and knows no traffic. An
:class:`EffectiveLimit` has for each instance an amount such that a host is
within all limits of its policy whenever the amounts on it are within its
total. The scheduler and the modeler make the same of the same HostPolicy.
Pure; no Nova, no placement, no configuration.

Derivation: reference/strict.rst.
"""

import dataclasses
import math
import weakref

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.traffic import effective

__all__ = ['HEADROOM', 'LARGEST', 'RESOURCE_CLASS', 'EffectiveLimit',
           'EffectiveLimits']

#: The resource class: kbit/s of the host's saturation.
RESOURCE_CLASS = 'CUSTOM_VSWITCH_KBPS'

#: Share of a host that is kept free for what is above effective bandwidths.
HEADROOM = 0.25

#: The largest number that placement can keep.
LARGEST = 2 ** 31 - 1

#: Whole numbers are compared with this relative tolerance.
_TOLERANCE = 1e-9

#: Amounts that are remembered, and numbers of what is held back.
_MOST_KNOWN = 65536
_MOST_HELD_BACK = 16384


class EffectiveLimit:
    """All limits of a host as one that effective bandwidths add up to.

    :param policy: HostPolicy
    :param headroom: share of the limit that is kept free, 0..1, neither
    :ivar total: what the amounts of a host may sum up to, kbit/s, with what
        is held back
    :ivar fitting: see :meth:`.admission.HostPolicy.fitting`
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
            # Per unit of the limit: without a risk all peaks have to fit.
            self._exponent = math.inf if risk == 0 \
                else -math.log(risk) / headroom
        self.total = int(min(total * (1 + _TOLERANCE), LARGEST))
        self._policy = dataclasses.replace(policy, uplinks=())
        self._known = {}
        self._held_back = {}

    @classmethod
    def of(cls, policy, headroom=HEADROOM):
        """Return the EffectiveLimit of a HostPolicy, None: there is none.

        There is none where no rate is limited, nor where a host may be
        overloaded all the time.
        """
        if policy.profile is None or _kbps_of(policy.profile) is None or (
                policy.policy == admission.PROBABILITY
                and policy.overload_probability >= 1):
            return None
        return cls(policy, headroom)

    def amount(self, law):
        """Return what to book for an instance, in kbit/s, at least 1.

        :param law: RateLaw
        """
        found = self._known.get(law)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            exact = self._amount(law) * (1 - _TOLERANCE)
            found = self._known[law] = max(
                1, math.ceil(min(exact, LARGEST)))
        return found

    def held_back(self, laws):
        """Return what instances on a host need beside their amounts.

        Amounts are those of independent instances. Where instances are busy
        together, what is kept free for them is that much more.

        :param laws: iterable of the RateLaw of each of them
        :returns: kbit/s, 0..:attr:`total`
        """
        laws = tuple(laws)
        # Without a risk all peaks fit.
        if self._exponent in (None, math.inf) or not any(
                law.has_classes for law in laws):
            return 0
        found = self._held_back.get(laws)
        if found is None:
            if len(self._held_back) >= _MOST_HELD_BACK:
                self._held_back.clear()
            table = admission.LoadTable()
            stretch = table.stretch(table.describe(
                'host', self._policy, dict(enumerate(laws))))
            found = self._held_back[laws] = min(
                math.ceil(self._kbps * (1 - 1 / stretch)), self.total)
        return found

    def _amount(self, law):
        shares = np.array([law.values(weights, self._packet_bytes) / capacity
                           for weights, capacity in self._limits])
        if self._exponent is None:
            # Averages are kept within each limit by themselves.
            return self._kbps * float((shares @ law.probabilities).max())
        return self._kbps * effective.effective_bandwidth(
            shares.max(axis=0), law.probabilities, self._exponent)


class EffectiveLimits:
    """The EffectiveLimit of each HostPolicy, made once.

    :param headroom: as of :class:`EffectiveLimit`
    """

    def __init__(self, headroom=HEADROOM):
        self._headroom = headroom
        self._known = weakref.WeakKeyDictionary()

    def of(self, policy):
        """Return the EffectiveLimit of a HostPolicy, None: there is none."""
        if policy not in self._known:
            self._known[policy] = EffectiveLimit.of(policy, self._headroom)
        return self._known[policy]


def _kbps_of(profile):
    """Return the kbit/s that stand for a full host, or None."""
    most = profile.bandwidth_kbps()
    # Where one direction alone is limited both together are not.
    return most if most < math.inf else profile.saturation_kbps_at()
