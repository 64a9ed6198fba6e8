# SPDX-License-Identifier: Apache-2.0
"""Determines the traffic that an instance is expected to send and receive.

:func:`decide` is the only place with the precedence of rules: for a request
and for a resident, in a scheduler, a command and a report. :func:`of_instance`
collects the facts of the store and calls it. Pure.
"""

from collections import abc
import dataclasses
import functools
import typing

import numpy as np

from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler.admission import policy as admission_policy
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['CLAIM', 'DEFAULT', 'Demand', 'FLAVOR', 'FLAVOR_MODEL', 'KINDS',
           'Known', 'MODEL', 'OWN_TRAFFIC', 'PRIOR', 'PRIOR_OF', 'RAISED',
           'UNKNOWN', 'decide', 'of_instance', 'raised']

#: Egress and ingress in kbit/s, and kilo-packets/s.
Rates: typing.TypeAlias = tuple[float, float, float]

#: Receives the name of a flavor, and the problem in words or None.
_Report: typing.TypeAlias = abc.Callable[[str | None, str | None], object]

#: Rules that give the law of an instance. The rule of a prior is ``PRIOR_OF``
#: and what the prior was learned from.
MODEL, FLAVOR, FLAVOR_MODEL, CLAIM, DEFAULT, UNKNOWN = (
    'model', 'flavor', 'flavor model', 'claim', 'default', 'unknown')
PRIOR_OF = 'prior of '

#: What a prior of the instance's own traffic was learned from.
OWN_TRAFFIC = 'instance'

#: Suffix of the rule of a demand that a guarantee raises.
RAISED = ', raised to the QoS guarantee of its ports'

#: Kinds of rules by which instances are counted.
PRIOR = 'prior'
KINDS = (MODEL, FLAVOR, PRIOR, DEFAULT)
_KIND_OF = {FLAVOR_MODEL: FLAVOR, CLAIM: FLAVOR, UNKNOWN: DEFAULT}

#: Maximum number of cached priors that were cut for a policy.
_MOST_FITTED = 65_536


@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """What is known about the traffic of one instance.

    :ivar stated: what flavors state; several while a resize is not confirmed
    :ivar guaranteed: (egress_kbps, ingress_kbps, kpps) that the ports of the
        instance guarantee, or None if unknown
    :ivar default: law of an instance about which nothing is known. None
        assumes nothing: the prior of a group does not count either. A resident
        has None with the option ``unknown_instance_policy`` = ignore, and
        every instance while no state of the store has been read
    """

    learned: rate_law.RateLaw | None = None
    prior: tuple[rate_law.RateLaw, str] | None = None
    group: rate_law.RateLaw | None = None
    stated: tuple[flavor_specs.Statement, ...] = ()
    claimed: rate_law.RateLaw | None = None
    guaranteed: Rates | None = None
    default: rate_law.RateLaw | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Demand:
    """The traffic that one instance is expected to send and receive.

    :ivar law: without the properties of a host: :meth:`law_on` cuts a prior to
        the host and adds the guarantee
    :ivar rule: MODEL, FLAVOR, FLAVOR_MODEL, CLAIM, 'prior of ' and what it was
        learned from, DEFAULT, or UNKNOWN if no rule applies; followed by
        RAISED if there is a guarantee
    """

    law: rate_law.RateLaw
    rule: str
    guaranteed: Rates | None = None
    group: rate_law.RateLaw | None = None
    instance_uuid: str | None = None
    project: str | None = None

    @property
    def is_prior(self) -> bool:
        """Whether the law is a prior, which does not state a peak rate."""
        return self.rule.startswith(PRIOR_OF)

    @property
    def kind(self) -> str:
        """The kind of the rule, one of KINDS."""
        if self.is_prior:
            return PRIOR
        rule = self.rule.removesuffix(RAISED)
        return _KIND_OF.get(rule, rule)

    @property
    def same_on_all_hosts(self) -> bool:
        """Whether the law of the instance is the same on every host."""
        return not self.is_prior and not any(self.guaranteed or ())

    def law_on(self,
               policy: admission_policy.HostPolicy | None) -> rate_law.RateLaw:
        """Return the RateLaw that the instance would have on a host.

        A prior is cut to what one instance may have there, see
        :meth:`.HostPolicy.fitting`. Then each rate is raised to the guarantee.
        """
        law = self.law
        if policy is not None and self.is_prior and policy.limits_on_one:
            law = _fitted(policy, law, self.group)
        if not any(self.guaranteed or ()):
            return law
        sizes = [] if policy is None else [
            switch.profile.typical_packet_bytes for switch in (
                policy, *(uplink.policy for uplink in policy.uplinks))
            if switch.profile is not None]
        return raised(law, self.guaranteed, min(
            sizes, default=vswitch_profile.DEFAULT_PACKET_BYTES))


def decide(facts: Known, instance_uuid: str | None = None,
           project: str | None = None) -> Demand:
    """Return the Demand of an instance.

    The first of these gives the law:

    1. the learned model of the instance;
    2. the prior of its own traffic;
    3. the largest of what its flavors and its open claim state;
    4. the prior of its group;
    5. the default.

    A guarantee of its ports then raises each rate: the instance may use the
    guarantee at any time. A guarantee never lowers a rate, because a tenant
    chooses the guarantee.
    """
    law, rule, group = _law(facts)
    if any(facts.guaranteed or ()):
        rule += RAISED
    return Demand(law, rule, facts.guaranteed, group, instance_uuid, project)


def _law(facts):
    """Return (RateLaw, rule, RateLaw of the group or None)."""
    if facts.learned is not None:
        return facts.learned, MODEL, None
    law, prior_of = facts.prior or (None, None)
    if prior_of == OWN_TRAFFIC:
        return law, PRIOR_OF + prior_of, facts.group
    stated = facts.stated
    if facts.claimed is not None:
        stated = (*stated, (facts.claimed, CLAIM))
    if stated:
        return *max(stated, key=lambda pair: _size(pair[0])), None
    if facts.default is None:
        return rate_law.SILENT, UNKNOWN, None
    if prior_of is not None:
        return law, PRIOR_OF + prior_of, None
    return facts.default, DEFAULT, None


def of_instance(
        snapshot: typing.Any, instance_uuid: str | None,
        flavors: abc.Sequence[tuple[str | None, abc.Mapping[str, str]]],
        project: str | None, default: rate_law.RateLaw | None,
        guaranteed: Rates | None = None,
        claimed: rate_law.RateLaw | None = None,
        report: _Report | None = None) -> Demand:
    """Return the Demand of an instance, with the facts of the store.

    :param flavors: (name or None, extra specs) that may apply; the last one
        also determines the group of the instance
    :param guaranteed: None uses the guarantee in the store
    :param report: receives what is wrong with the ``vswitch:`` extra specs of
        a flavor, by its name
    """
    if guaranteed is None:
        guaranteed = snapshot.guaranteed(instance_uuid)
    learned = snapshot.law(instance_uuid) if instance_uuid else None
    if learned is not None:
        return decide(Known(learned, guaranteed=guaranteed), instance_uuid,
                      project)
    flavor = flavors[-1][0] if flavors else None
    prior = snapshot.prior(instance_uuid, flavor, project)
    group = None
    if prior is not None and prior[1] == OWN_TRAFFIC:
        group = snapshot.group_prior(instance_uuid, flavor, project)
    stated = [_stated(name, extra_specs, snapshot.law, report)
              for name, extra_specs in flavors]
    return decide(Known(
        None, prior, group and group[0], tuple(filter(None, stated)), claimed,
        guaranteed, default), instance_uuid, project)


def _stated(flavor, extra_specs, laws, report):
    stated, problem = flavor_specs.read(extra_specs, laws)
    if report is not None:
        report(flavor, problem)
    return stated


@functools.lru_cache(maxsize=_MOST_FITTED)
def _fitted(policy, law, group):
    return policy.fitting(law, group)


@functools.lru_cache(maxsize=flavor_specs.MOST_LAWS)
def raised(law: rate_law.RateLaw, guaranteed: Rates,
           packet_bytes: float) -> rate_law.RateLaw:
    """Return a law without any rate below the guaranteed rates.

    :param packet_bytes: converts bit rates to packet rates if the law has no
        packet rate and the guarantee has one
    """
    rates = np.array(law.rates)
    if guaranteed[2] and not law.packets_known:
        rates[:, 2] = (rates[:, 0] + rates[:, 1]) / (8.0 * packet_bytes)
    return rate_law.RateLaw.from_arrays(
        law.probabilities, np.maximum(rates, guaranteed), law.at_instants)


@functools.lru_cache(maxsize=flavor_specs.MOST_LAWS)
def _size(law: rate_law.RateLaw) -> tuple[float, ...]:
    """Return the sort key of a law: (mean + peak, peak)."""
    mean, peak = law.mean, law.peak
    return tuple(float(rate[:2].sum() + rate[2])
                 for rate in (mean + peak, peak))
