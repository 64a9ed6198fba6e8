# SPDX-License-Identifier: Apache-2.0
"""What a host can carry and by which rule it admits instances. Pure."""

import dataclasses
import functools

import numpy as np

from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior

__all__ = ['AVERAGE', 'PROBABILITY', 'TOLERANCE', 'HostPolicy', 'Uplink',
           'most_cautious']

#: Admission policies: the sum of averages against saturation (Figure 9 of
#: "Towards a Method Integrating Virtual Switch Performance Into Data Centre
#: Design"), or the probability of overload against the operator's limit.
AVERAGE = 'average'
PROBABILITY = 'probability'

#: Probabilities are compared with this relative tolerance: equality happens.
TOLERANCE = 1e-9


def most_cautious(policies):
    """Return the admission policy that admits least, of one or more."""
    return PROBABILITY if PROBABILITY in policies else AVERAGE


@dataclasses.dataclass(frozen=True, eq=False)
class HostPolicy:
    """What a host can carry and how it is judged.

    Compared by identity: hosts that share one share all that is derived.

    :ivar profile: SwitchProfile, or None when nothing is known of the switch
    :ivar policy: AVERAGE or PROBABILITY
    :ivar overload_probability: limit of PROBABILITY, 0..1
    :ivar pass_unknown: whether a host without profile passes
    :ivar uplinks: tuple of the :class:`Uplink` that all its traffic takes too
    :ivar tunnel_key: what says how many tunnels there can be, for people
    :ivar asked_probability: the limit that was asked for, for people, where
        another one is decided with; else None
    :ivar judged: False where the host passes whatever it carries, as bare
        metal does; then ``profile`` is None and ``pass_unknown`` is True
    :ivar enforced: False where the host is judged and passes all the same:
        what would refuse an instance is recorded only
    """

    profile: object
    policy: str = PROBABILITY
    overload_probability: float = 0.01
    pass_unknown: bool = True
    uplinks: tuple = ()
    tunnel_key: str = 'max_tunnels'
    asked_probability: float | None = None
    judged: bool = True
    enforced: bool = True

    def __post_init__(self):
        if self.policy not in (AVERAGE, PROBABILITY):
            raise exceptions.InvalidOverride(
                f'admission policy is {self.policy!r}, wanted {AVERAGE!r} or '
                f'{PROBABILITY!r}')
        if not 0 <= self.overload_probability <= 1:
            raise exceptions.InvalidOverride(
                f'overload probability is {self.overload_probability!r}, '
                f'wanted 0..1')

    @functools.cached_property
    def limits(self):
        """[(weights, capacity, most of one instance)] of the profile."""
        return [] if self.profile is None else _limits_of(self.profile)

    @functools.cached_property
    def limits_on_one(self):
        """[(weights, packet_bytes, most)]: what one instance may have.

        Above it no such host takes an instance, as ``PEAK`` tells, nor does
        any of its uplinks.
        """
        return [(weights, one.profile.typical_packet_bytes, most)
                for one in (self, *(uplink.policy for uplink in self.uplinks))
                for weights, _, most in one.limits]

    def fitting(self, law, group=None):
        """Return a prior as an instance on such a host can have it.

        An instance of which only the prior is known is never refused for the
        peak of another one.

        :param law: RateLaw
        :param group: as of :func:`.prior.cut`
        """
        return prior.cut(law, self.limits_on_one, self.capacities, group)

    @functools.cached_property
    def capacities(self):
        """[(weights, packet_bytes, capacity)]: what all instances may have.

        What is above one of these overloads each such host, or one of its
        uplinks, alone.
        """
        return [(weights, one.profile.typical_packet_bytes, capacity)
                for one in (self, *(uplink.policy for uplink in self.uplinks))
                for weights, capacity, _ in one.limits]

    def is_exceeded(self, overload_probability):
        """Return whether a probability of overload is above the limit."""
        return bool(overload_probability
                    > self.overload_probability * (1 + TOLERANCE))

    @functools.cached_property
    def counts(self):
        """{one of :data:`.COUNTED`: the most} of the profile."""
        return {} if self.profile is None else self.profile.counts


@dataclasses.dataclass(frozen=True, eq=False)
class Uplink:
    """What several hosts share: a ToR's uplink, a gateway, that of a silo.

    :ivar name: hosts whose uplinks have one name share it
    :ivar policy: HostPolicy of it, as if it were one host with the residents
        of all; every network counts as tunnelled, for a gateway maps it
    """

    name: str
    policy: HostPolicy


def _limits_of(profile):
    """Return [(weights, capacity, most of one instance)] of a profile."""
    most = np.inf if profile.vm_peak_kbps is None else profile.vm_peak_kbps
    saturation = tuple(
        model.dimension_weights(profile.saturation_dimension).tolist())
    limits = [
        [tuple(limit.weights), limit.capacity, limit.capacity]
        for limit in profile.limits()]
    for limit in limits:
        if limit[0] == saturation:
            limit[2] = min(limit[2], most)
            return limits
    if most < np.inf:
        # A limit on one instance where there is none on all together.
        limits.append([saturation, np.inf, most])
    return limits
