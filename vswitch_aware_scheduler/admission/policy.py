# SPDX-License-Identifier: Apache-2.0
"""What a host can carry and the rule by which it admits instances. Pure."""

import dataclasses
import functools

import numpy as np

from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior

__all__ = ['AVERAGE', 'PROBABILITY', 'TOLERANCE', 'HostPolicy', 'Uplink',
           'most_cautious']

#: Admission policies. AVERAGE compares the sum of the mean rates with the
#: saturation (Figure 9 of "Towards a Method Integrating Virtual Switch
#: Performance Into Data Centre Design"). PROBABILITY compares the probability
#: of overload with the operator's limit.
AVERAGE = 'average'
PROBABILITY = 'probability'

#: Relative tolerance for comparing probabilities that may be equal.
TOLERANCE = 1e-9


def most_cautious(policies):
    """Return the admission policy that admits least.

    :param policies: one or more of AVERAGE and PROBABILITY
    """
    return PROBABILITY if PROBABILITY in policies else AVERAGE


@dataclasses.dataclass(frozen=True, eq=False)
class HostPolicy:
    """The capacity of a host and how the host is judged.

    Two policies are equal only if they are the same object. Hosts that share a
    policy share everything that is derived from it.

    :ivar policy: AVERAGE or PROBABILITY
    :ivar overload_probability: limit of PROBABILITY, 0..1
    :ivar profile: SwitchProfile, or None if the switch is unknown
    :ivar pass_unknown: whether a host without a profile passes
    :ivar uplinks: tuple of the :class:`Uplink` that also carry all its traffic
    :ivar tunnel_key: name of the key that limits the tunnels, for messages
    :ivar judged: False if the host passes with any load, for example bare
        metal; then ``profile`` is None and ``pass_unknown`` is True
    :ivar enforced: False if a host that would be refused passes and the
        refusal is only recorded
    :ivar prediction_margin: number above 0 by which a predicted probability
        of overload is multiplied before it is compared with the limit
    """

    profile: object
    policy: str = PROBABILITY
    overload_probability: float = 0.01
    pass_unknown: bool = True
    uplinks: tuple = ()
    tunnel_key: str = 'max_tunnels'
    judged: bool = True
    enforced: bool = True
    prediction_margin: float = 1.0

    def __post_init__(self):
        if self.policy not in (AVERAGE, PROBABILITY):
            raise exceptions.InvalidOverride(
                f'admission policy: {self.policy!r}; expected {AVERAGE!r} or '
                f'{PROBABILITY!r}')
        if not 0 <= self.overload_probability <= 1:
            raise exceptions.InvalidOverride(
                f'overload probability: {self.overload_probability!r}; '
                f'expected 0..1')
        if not 0 < self.prediction_margin < np.inf:
            raise exceptions.InvalidOverride(
                f'prediction margin: {self.prediction_margin!r}; expected a '
                f'number above 0')

    @property
    def limit_in_force(self):
        """Limit of a predicted probability of overload."""
        return self.overload_probability / self.prediction_margin

    @functools.cached_property
    def limits(self):
        """List of (weights, capacity, limit of one instance)."""
        return [] if self.profile is None else _limits_of(self.profile)

    @functools.cached_property
    def limits_on_one(self):
        """List of (weights, packet_bytes, limit on one instance).

        An instance above such a limit is refused by the host with ``PEAK``, or
        by one of its uplinks.
        """
        return [(weights, rule.profile.typical_packet_bytes, most)
                for rule in (self, *(uplink.policy for uplink in self.uplinks))
                for weights, _, most in rule.limits]

    def fitting(self, law, group=None):
        """Return a prior, cut to what one instance on this host may have.

        An instance of which only the prior is known is therefore never refused
        for the peak of another instance.

        :param law: RateLaw of the prior
        :param group: as in :func:`.prior.cut`
        :returns: RateLaw
        """
        return prior.cut(law, self.limits_on_one, self.capacities, group)

    @functools.cached_property
    def capacities(self):
        """List of (weights, packet_bytes, limit on the sum of instances).

        An instance above one of these capacities overloads the host, or one of
        its uplinks, alone.
        """
        return [(weights, rule.profile.typical_packet_bytes, capacity)
                for rule in (self, *(uplink.policy for uplink in self.uplinks))
                for weights, capacity, _ in rule.limits]

    @functools.cached_property
    def counts(self):
        """{one of :data:`.COUNTED`: maximum number}, by the profile."""
        return {} if self.profile is None else self.profile.counts


@dataclasses.dataclass(frozen=True, eq=False)
class Uplink:
    """A link or gateway that several hosts share, such as a ToR's uplink.

    :ivar name: name of the uplink; hosts with the same name share it
    :ivar policy: HostPolicy of the uplink as if it were one host with the
        residents of all its hosts; every network counts as tunnelled, because
        a gateway maps it
    """

    name: str
    policy: HostPolicy


def _limits_of(profile):
    """Return [(weights, capacity, limit of one instance)] of a profile."""
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
        # The profile limits one instance but not all instances together.
        limits.append([saturation, np.inf, most])
    return limits
