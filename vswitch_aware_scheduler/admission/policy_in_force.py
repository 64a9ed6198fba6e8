# SPDX-License-Identifier: Apache-2.0
"""Determines the policy that each host of a fleet is judged by.

The steps are always the same: aggregates and stored profiles give the policy
of a host, and aggregates add its uplinks. The module also converts policies to
dictionaries for the store and back. Pure.
"""

import dataclasses
import json

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import uplink_policies as uplink_rules
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['Policies', 'find', 'pack', 'unpack', 'with_uplinks']

#: Descriptive texts of profiles, which are not stored.
_FOR_PEOPLE = ('description', 'sources')

#: Stored facts of a host beside its policy.
_NOT_POLICY = ('origins', 'in_nova', 'nodes')

#: Fields of a HostPolicy that need a conversion.
_NOT_PLAIN = ('profile', 'uplinks')


@dataclasses.dataclass(frozen=True)
class Policies:
    """The policies of a fleet.

    :ivar uplinks: {name: Uplink}
    :ivar hosts: {host: HostPolicy}; hosts with equal policies have the same
        object
    :ivar origins: {host: {value: where it comes from}}, as in
        :meth:`.HostPolicies.origins`
    :ivar problems: {host: why it cannot be judged}
    """

    hosts: dict
    uplinks: dict
    origins: dict
    problems: dict


def with_uplinks(policy, shared):
    """Return the HostPolicy of a host behind some uplinks.

    :param policy: HostPolicy of the host alone
    :param shared: tuple of Uplink, in the order of their names
    :returns: HostPolicy
    """
    if not shared or not policy.judged:
        return policy
    return dataclasses.replace(policy, uplinks=shared)


def find(hosts, aggregates, host_profiles, host_policies, uplink_policies,
         bare_metal=frozenset()):
    """Return the :class:`Policies` of a fleet.

    :param hosts: names of the hosts
    :param aggregates: iterable of dictionaries with ``name``, ``metadata``
        and ``hosts``
    :param host_profiles: {host: HostProfile of the store}
    :param host_policies: :class:`.HostPolicies`
    :param uplink_policies: :class:`.UplinkPolicies`
    :param bare_metal: names of hosts whose instances are physical machines
    """
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
            shared = tuple(uplinks[name] for name
                           in sorted(names.intersection(uplinks)))
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


def pack(policy):
    """Return a HostPolicy as a dictionary that JSON can represent.

    :param policy: HostPolicy
    """
    profile = policy.profile and {
        key: value for key, value in policy.profile.to_dict().items()
        if key not in _FOR_PEOPLE}
    plain = {field.name: getattr(policy, field.name)
             for field in dataclasses.fields(policy)
             if field.name not in _NOT_PLAIN}
    return {'profile': profile, **plain,
            'uplinks': [uplink.name for uplink in policy.uplinks]}


def unpack(hosts, uplinks):
    """Return the policies of dictionaries that :func:`pack` returned.

    Equal policies become the same object. Keys of a newer release are ignored.

    :param hosts: {host: dictionary}
    :param uplinks: {name: dictionary}
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
    profile = data['profile']
    if profile is not None:
        profile = vswitch_profile.SwitchProfile.from_dict({
            key: _with_numbers(value) for key, value in profile.items()})
    fields = {field.name: data[field.name]
              for field in dataclasses.fields(admission.HostPolicy)
              if field.name not in _NOT_PLAIN and field.name in data}
    return admission.HostPolicy(profile, **fields, uplinks=tuple(
        uplinks[name] for name in data['uplinks'] if name in uplinks))


def _with_numbers(value):
    """Return a mapping whose keys are numbers again, not strings of JSON."""
    if not isinstance(value, dict):
        return value
    return {_number(key): item for key, item in value.items()}


def _number(text):
    try:
        return float(text)
    except ValueError:
        return text
