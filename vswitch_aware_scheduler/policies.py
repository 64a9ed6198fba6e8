# SPDX-License-Identifier: Apache-2.0
"""What host aggregates say about their hosts' switches.

``vswitch:profile`` names the switch profile; ``vswitch:<number>`` overrides
one number of it; ``vswitch:admission_policy`` and
``vswitch:overload_probability`` set how the host is judged. Where several
aggregates of a host differ, the most cautious wins. A value that cannot be
used is reported and ignored. What hosts share is another matter:
:mod:`.uplinks`.
"""

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import uplinks
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['HostPolicies', 'KEYS']

PREFIX = 'vswitch:'
PROFILE = 'vswitch:profile'
POLICY = 'vswitch:admission_policy'
LIMIT = 'vswitch:overload_probability'

#: Every metadata key that is read.
KEYS = (PROFILE, POLICY, LIMIT) + tuple(
    PREFIX + key for key in vswitch_profile.OVERRIDABLE_KEYS)

#: Different policies that are remembered; beyond, all are found anew.
_MOST_KNOWN = 10_000


class HostPolicies:
    """Finds the HostPolicy of a host; hosts alike get the same object.

    :param profiles: {name: SwitchProfile}
    :param default_profile: name of the profile of hosts with no other, or
        None
    :param policy: admission policy where no aggregate sets one
    :param overload_probability: limit where no aggregate sets one
    :param pass_unknown: whether a host without profile passes
    :param report: callable(topic, problem or None)
    """

    def __init__(self, profiles, default_profile, policy,
                 overload_probability, pass_unknown, report):
        self._profiles = profiles
        self._default_profile = default_profile
        self._policy = policy
        self._overload_probability = overload_probability
        self._pass_unknown = pass_unknown
        self._report = report
        self._known = {}         # what decides -> HostPolicy

    def find(self, metadata, host_profile):
        """Return the HostPolicy of a host.

        :param metadata: [(aggregate name, its metadata)] of the aggregates
            of the host
        :param host_profile: the store's HostProfile of the host, or None
        """
        items = tuple(sorted(
            (name, key, value) for name, data in metadata
            for key, value in data.items() if key.startswith(PREFIX)
            and not key.startswith(uplinks.PREFIX)))
        stored = None
        if host_profile is not None:
            stored = (host_profile.host, host_profile.profile,
                      repr(sorted(host_profile.overrides.items())))
        key = (items, stored)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = self._make(items, host_profile)
        return found

    def _make(self, items, host_profile):
        values = {}              # key -> {value: aggregate name}
        for name, key, value in items:
            if key not in KEYS:
                self._report(
                    f'aggregate {name} {key}',
                    f'aggregate {name}: metadata key {key} is not known and '
                    f'ignored, wanted one of {", ".join(KEYS)}')
                continue
            try:
                self._check(name, key, value)
                self._report(f'aggregate {name} {key}', None)
            except exceptions.InvalidInput as error:
                self._report(f'aggregate {name} {key}',
                             f'{error}; it is ignored')
                continue
            values.setdefault(key, {})[value] = name
        policy = self._policy
        if POLICY in values:
            policy = admission.most_cautious(values[POLICY])
        limit = self._overload_probability
        if LIMIT in values:
            limit = min(float(text) for text in values[LIMIT])
        return admission.HostPolicy(
            self._profile(values, host_profile), policy, limit,
            self._pass_unknown)

    def _check(self, name, key, value):
        where = f'aggregate {name}'
        if key == PROFILE:
            if value not in self._profiles:
                raise exceptions.InvalidOverride(
                    f'{where}: {key} is {value!r}, wanted one of '
                    f'{", ".join(sorted(self._profiles))}')
        elif key == POLICY:
            if value not in (admission.AVERAGE, admission.PROBABILITY):
                raise exceptions.InvalidOverride(
                    f'{where}: {key} is {value!r}, wanted '
                    f'{admission.AVERAGE} or {admission.PROBABILITY}')
        elif key == LIMIT:
            try:
                number = float(value)
            except ValueError:
                number = -1.0
            if not 0 <= number <= 1:
                raise exceptions.InvalidOverride(
                    f'{where}: {key} is {value!r}, wanted a number 0..1')
        else:
            vswitch_profile.override_number(
                key[len(PREFIX):], value, where)

    def _profile(self, values, host_profile):
        names = sorted(values.get(PROFILE, ()))
        stored = {}
        if not names and host_profile is not None:
            names, stored = self._stored_profile(host_profile)
        if not names and self._default_profile is not None:
            names = [self._default_profile]
        found = vswitch_profile.smallest(
            self._profiles[name] for name in names)
        if stored:
            try:
                found = vswitch_profile.with_numbers(
                    found, {key: [value] for key, value in stored.items()},
                    f'host {host_profile.host}')
            except exceptions.InvalidInput as error:
                self._report(f'host {host_profile.host} overrides',
                             f'{error}; they are ignored')
        numbers = {key[len(PREFIX):]: list(texts)
                   for key, texts in values.items()
                   if key not in (PROFILE, POLICY, LIMIT)}
        return vswitch_profile.with_numbers(
            found, numbers, 'aggregate ' + ', '.join(sorted({
                name for texts in values.values()
                for name in texts.values()})))

    def _stored_profile(self, host_profile):
        name = host_profile.profile or self._default_profile
        if name is None or name in self._profiles:
            self._report(f'host {host_profile.host} profile', None)
            return ([] if name is None else [name]), host_profile.overrides
        self._report(
            f'host {host_profile.host} profile',
            f'host {host_profile.host}: its stored profile is {name!r}, '
            f'wanted one of {", ".join(sorted(self._profiles))}; it is '
            f'ignored')
        return [], {}
