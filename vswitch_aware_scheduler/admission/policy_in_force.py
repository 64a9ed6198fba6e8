# SPDX-License-Identifier: Apache-2.0
"""Determines the policy that each host of a fleet is judged by.

It also converts policies to dictionaries for the store and back. Pure.
"""

from collections import abc
import dataclasses
import json
import typing

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import host_policies as host_rules
from vswitch_aware_scheduler.admission import uplink_policies as uplink_rules
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['Policies', 'find', 'pack', 'unpack', 'with_uplinks']

#: Descriptive texts of profiles, which are not stored.
_FOR_PEOPLE = ('description', 'sources')

#: Stored facts of a host beside its policy.
_NOT_POLICY = ('origins', 'in_nova', 'nodes')

#: Fields of a HostPolicy that need a conversion.
_NOT_PLAIN = ('profile', 'uplinks')


#: Policies by name, as :func:`pack` returns them.
_Packed: typing.TypeAlias = dict[str, dict[str, typing.Any]]


@dataclasses.dataclass(frozen=True)
class Policies:
    """The policies of a fleet; equal ones are the same object.

    :ivar origins: {host: {value: where it comes from}}
    :ivar problems: {host: why it cannot be judged}
    """

    hosts: dict[str, admission.HostPolicy]
    uplinks: dict[str, admission.Uplink]
    origins: dict[str, dict[str, str | None]]
    problems: dict[str, str]


def with_uplinks(policy: admission.HostPolicy,
                 shared: tuple[admission.Uplink, ...]) -> admission.HostPolicy:
    """Return the HostPolicy of a host behind some uplinks, in order."""
    if not shared or not policy.judged:
        return policy
    return dataclasses.replace(policy, uplinks=shared)


def find(hosts: abc.Iterable[str],
         aggregates: abc.Collection[dict[str, typing.Any]],
         host_profiles: abc.Mapping[str, typing.Any],
         host_policies: host_rules.HostPolicies,
         uplink_policies: uplink_rules.UplinkPolicies,
         bare_metal: abc.Collection[str] = frozenset()) -> Policies:
    """Return the :class:`Policies` of a fleet with its aggregates."""
    metadata_of = {}
    for aggregate in aggregates:
        for host in aggregate['hosts']:
            metadata_of.setdefault(host, []).append((aggregate['name'],
                                                     aggregate['metadata']))
    uplinks = uplink_policies.find(
        [(aggregate['name'], aggregate['metadata'])
         for aggregate in aggregates])
    policies, origins, problems, behind = {}, {}, {}, {}
    for host in hosts:
        metadata = metadata_of.get(host, [])
        try:
            policy = host_policies.find(metadata, host_profiles.get(host),
                                        host in bare_metal)
            names = {uplink_rules.name_in(data) for _, data in metadata}
            shared = tuple(uplinks[name] for name in sorted(uplinks)
                           if name in names)
            key = policy, shared
            if key not in behind:
                behind[key] = with_uplinks(policy, shared)
            policies[host] = behind[key]
            origins[host] = host_policies.origins(metadata,
                                                  host_profiles.get(host))
        except Exception as error:
            # An error in one host does not affect the other hosts.
            policies[host] = admission.HostPolicy(None, judged=False)
            origins[host] = {}
            problems[host] = f'{type(error).__name__}: {error}'
    return Policies(policies, uplinks, origins, problems)


def pack(policy: admission.HostPolicy) -> dict[str, typing.Any]:
    """Return a HostPolicy as a dictionary that JSON can represent."""
    profile = policy.profile and {
        key: value for key, value in policy.profile.to_dict().items()
        if key not in _FOR_PEOPLE}
    plain = {field.name: getattr(policy, field.name)
             for field in dataclasses.fields(policy)
             if field.name not in _NOT_PLAIN}
    return {'profile': profile, **plain,
            'uplinks': [uplink.name for uplink in policy.uplinks]}


def unpack(
        hosts: _Packed, uplinks: _Packed
) -> tuple[dict[str, admission.HostPolicy], dict[str, admission.Uplink],
           dict[str, str]]:
    """Return the policies of dictionaries that :func:`pack` returned.

    Equal policies become the same object.

    :returns: ({host: HostPolicy}, {name of an uplink: Uplink}, {name of a host
        or an uplink: why its policy cannot be used})
    """
    found_uplinks, policies, problems, policy_of_key = {}, {}, {}, {}
    for name, data in uplinks.items():
        try:
            found_uplinks[name] = admission.Uplink(name, _policy(data, {}))
        except Exception as error:
            problems[name] = f'{type(error).__name__}: {error}'
    for host, data in hosts.items():
        key = json.dumps({name: value for name, value in data.items()
                          if name not in _NOT_POLICY}, sort_keys=True)
        try:
            if key not in policy_of_key:
                policy_of_key[key] = _policy(data, found_uplinks)
            policies[host] = policy_of_key[key]
        except Exception as error:
            problems[host] = f'{type(error).__name__}: {error}'
    return policies, found_uplinks, problems


def _policy(data, uplinks):
    profile = data['profile'] and vswitch_profile.SwitchProfile.from_dict(
        data['profile'])
    fields = {field.name: data[field.name]
              for field in dataclasses.fields(admission.HostPolicy)
              if field.name not in _NOT_PLAIN and field.name in data}
    return admission.HostPolicy(profile, **fields, uplinks=tuple(
        uplinks[name] for name in data['uplinks'] if name in uplinks))
