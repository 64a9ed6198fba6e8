# SPDX-License-Identifier: Apache-2.0
"""The policy that each host of a fleet is judged by.

Aggregates and stored profiles give a host its policy, aggregates the uplinks
that it is behind, and feedback the limit in force: in this one order. Policies
become dictionaries that the store can hold, and policies again. Pure; no clock
but that of the corrections.
"""

import dataclasses
import json

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import uplink_policies as uplink_rules
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['Policies', 'find', 'pack', 'unpack', 'with_uplinks']

#: Texts of profiles for people, which policies need not carry.
_FOR_PEOPLE = ('description', 'sources')

#: Fields of a HostPolicy that are not packed as they are.
_NOT_PLAIN = ('profile', 'uplinks')


@dataclasses.dataclass(frozen=True)
class Policies:
    """The policies of a fleet.

    :ivar hosts: {host: HostPolicy}; hosts alike have the same object
    :ivar uplinks: {name: Uplink}
    :ivar origins: {host: {value: where it comes from}}, as of
        :meth:`.HostPolicies.origins`
    :ivar problems: {host: why it is not judged}
    """

    hosts: dict
    uplinks: dict
    origins: dict
    problems: dict


def with_uplinks(policy, shared):
    """Return the HostPolicy of a host behind some uplinks.

    :param policy: HostPolicy of the host alone
    :param shared: tuple of Uplink, in the order of their names
    """
    if not shared or not policy.judged:
        return policy
    return dataclasses.replace(policy, uplinks=shared)


def find(hosts, aggregates, host_profiles, host_policies, uplink_policies,
         corrections, outcomes, bare_metal=frozenset()):
    """Return the :class:`Policies` of a fleet.

    :param hosts: names
    :param aggregates: iterable of dictionaries with ``name``, ``metadata``
        and ``hosts``
    :param host_profiles: {host: HostProfile of the store}
    :param host_policies: :class:`.HostPolicies`
    :param uplink_policies: :class:`.UplinkPolicies`
    :param corrections: :class:`.Corrections`
    :param outcomes: {kind of host: TrialOutcome}
    :param bare_metal: names of hosts whose instances are machines of their
        own
    """
    of_host = {}
    for one in aggregates:
        for host in one['hosts']:
            of_host.setdefault(host, []).append((one['name'],
                                                 one['metadata']))
    uplinks = uplink_policies.find(
        [(one['name'], one['metadata']) for one in aggregates])
    found, origins, problems, behind = {}, {}, {}, {}
    for host in hosts:
        metadata = of_host.get(host, [])
        try:
            policy = host_policies.find(metadata, host_profiles.get(host),
                                        host in bare_metal)
            names = {uplink_rules.name_in(data) for _, data in metadata}
            shared = tuple(uplinks[name] for name
                           in sorted(names.intersection(uplinks)))
            key = policy, shared
            if key not in behind:
                behind[key] = with_uplinks(policy, shared)
            found[host] = corrections.of(behind[key], outcomes)
            origins[host] = host_policies.origins(metadata,
                                                  host_profiles.get(host))
        except Exception as error:
            # Of one host: the others are judged.
            found[host] = admission.HostPolicy(None, judged=False)
            origins[host] = {}
            problems[host] = f'{type(error).__name__}: {error}'
    return Policies(found, uplinks, origins, problems)


def pack(policy):
    """Return a HostPolicy as a dictionary that JSON can hold."""
    profile = policy.profile and {
        key: value for key, value in policy.profile.to_dict().items()
        if key not in _FOR_PEOPLE}
    plain = {field.name: getattr(policy, field.name)
             for field in dataclasses.fields(policy)
             if field.name not in _NOT_PLAIN}
    return {'profile': profile, **plain,
            'uplinks': [one.name for one in policy.uplinks]}


def unpack(hosts, uplinks):
    """Return policies of the dictionaries that :func:`pack` returned.

    Policies alike become the same object. Keys that this release does not
    know are ignored.

    :param hosts: {host: dictionary}
    :param uplinks: {name: dictionary}
    :returns: ({host: HostPolicy}, {name: Uplink}, {name of either: why it
        cannot be used})
    """
    found_uplinks, policies, problems, known = {}, {}, {}, {}
    for name, data in uplinks.items():
        try:
            found_uplinks[name] = admission.Uplink(name, _policy(data, {}))
        except Exception as error:
            problems[name] = f'{type(error).__name__}: {error}'
    for host, data in hosts.items():
        key = json.dumps({name: value for name, value in data.items()
                          if name != 'origins'}, sort_keys=True)
        try:
            if key not in known:
                known[key] = _policy(data, found_uplinks)
            policies[host] = known[key]
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
    """Return a mapping by numbers, whose keys JSON has made texts."""
    if not isinstance(value, dict):
        return value
    return {_number(key): one for key, one in value.items()}


def _number(text):
    try:
        return float(text)
    except ValueError:
        return text
