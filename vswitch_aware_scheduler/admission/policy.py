# SPDX-License-Identifier: Apache-2.0
"""What a host can carry and the rule by which it admits instances. Pure."""

from __future__ import annotations

from collections import abc
import dataclasses
import functools
import typing

import numpy as np

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.traffic import model
from vswitch_aware_scheduler.traffic import prior
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['AVERAGE', 'PROBABILITY', 'TOLERANCE', 'HostPolicy', 'Uplink',
           'most_cautious']

#: Weights of egress, ingress and packets, capacity, limit of one instance.
Limit: typing.TypeAlias = tuple[tuple[float, ...], float, float]

#: Admission policies. AVERAGE compares the sum of the mean rates with the
#: saturation (Figure 9 of "Towards a Method Integrating Virtual Switch
#: Performance Into Data Centre Design"). PROBABILITY compares the probability
#: of overload with the operator's limit.
AVERAGE = 'average'
PROBABILITY = 'probability'

#: Relative tolerance for comparing probabilities that may be equal.
TOLERANCE = 1e-9

_KINDS = {'policy': checks.one_of((AVERAGE, PROBABILITY)),
          'overload_probability': checks.number(0, 1),
          'prediction_margin': checks.number(above=True)}


def most_cautious(policies: abc.Collection[str]) -> str:
    """Return the admission policy that admits least."""
    return PROBABILITY if PROBABILITY in policies else AVERAGE


@dataclasses.dataclass(frozen=True, eq=False)
class HostPolicy:
    """The capacity of a host and how the host is judged.

    Two policies are equal only if they are the same object. Hosts that share a
    policy share everything that is derived from it.

    :ivar overload_probability: limit of PROBABILITY, 0..1
    :ivar judged: False if the host passes with any load, for example bare
        metal; then ``profile`` is None and ``pass_unknown`` is True
    :ivar enforced: False if a refusal is only recorded
    :ivar prediction_margin: number above 0 by which a predicted probability
        of overload is multiplied before it is compared with the limit
    """

    profile: vswitch_profile.SwitchProfile | None
    policy: str = PROBABILITY
    overload_probability: float = 0.01
    pass_unknown: bool = True
    uplinks: tuple[Uplink, ...] = ()
    tunnel_key: str = 'max_tunnels'
    judged: bool = True
    enforced: bool = True
    prediction_margin: float = 1.0

    def __post_init__(self) -> None:
        checks.fields('host policy', self, _KINDS)

    @property
    def limit_in_force(self) -> float:
        """Limit of a predicted probability of overload."""
        return self.overload_probability / self.prediction_margin

    @functools.cached_property
    def limits(self) -> list[Limit]:
        """List of (weights, capacity, limit of one instance)."""
        return [] if self.profile is None else _limits_of(self.profile)

    @functools.cached_property
    def limits_on_one(self) -> list[prior.Limit]:
        """List of (weights, packet_bytes, limit on one instance).

        The host or an uplink refuses an instance above a limit with ``PEAK``.
        """
        return [(weights, size, most)
                for size, (weights, _, most) in self._all_limits]

    @property
    def _all_limits(self):
        """Pairs of a packet size and a limit, also of the uplinks."""
        return [(rule.profile.typical_packet_bytes, limit)
                for rule in (self, *(uplink.policy for uplink in self.uplinks))
                if rule.profile is not None for limit in rule.limits]

    def fitting(self, law: rate_law.RateLaw,
                group: rate_law.RateLaw | None = None) -> rate_law.RateLaw:
        """Return a prior, cut to what one instance on this host may have."""
        return prior.cut(law, self.limits_on_one, self.capacities, group)

    @functools.cached_property
    def capacities(self) -> list[prior.Limit]:
        """List of (weights, packet_bytes, limit on the sum of instances).

        An instance above such a limit overloads the host or an uplink alone.
        """
        return [(weights, size, capacity)
                for size, (weights, capacity, _) in self._all_limits]

    @functools.cached_property
    def counts(self) -> dict[str, int]:
        """{one of :data:`.COUNTED`: maximum number}, by the profile."""
        return {} if self.profile is None else self.profile.counts


@dataclasses.dataclass(frozen=True, eq=False)
class Uplink:
    """A link or gateway that several hosts share, such as a ToR's uplink.

    :ivar policy: of the uplink as if it were one host with the residents of
        all its hosts; every network counts as tunnelled, because a gateway
        maps it
    """

    name: str
    policy: HostPolicy


def _limits_of(profile: vswitch_profile.SwitchProfile) -> list[Limit]:
    """Return [(weights, capacity, limit of one instance)] of a profile."""
    most = np.inf if profile.vm_peak_kbps is None else profile.vm_peak_kbps
    saturation = tuple(
        model.dimension_weights(profile.saturation_dimension).tolist())
    limits: list[typing.Any] = [
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
