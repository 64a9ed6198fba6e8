# SPDX-License-Identifier: Apache-2.0
"""Determines the HostPolicy of a host from metadata, profile and defaults.

If several values apply, the most cautious is used.
"""

import typing

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import aggregate_metadata
from vswitch_aware_scheduler.admission import flavor_specs
from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['ENFORCE', 'HostPolicies', 'OBSERVE']

#: Name of the key that determines whether hosts are judged.
_JUDGE = 'judge'

#: Name of the key that determines whether hosts are refused, and its values.
_ENFORCEMENT = 'enforcement'
ENFORCE, OBSERVE = 'enforce', 'observe'

#: Name of the key that rebalancing reads, which is no part of a policy.
_MIGRATE = flavor_specs.MIGRATE_EXTRA_SPEC.removeprefix(
    aggregate_metadata.PREFIX)

#: Maximum number of cached policies. If there are more, all are dropped.
_MOST_KNOWN = 10_000


class HostPolicies:
    """Determines the HostPolicy of hosts. Equal policies are one object."""

    def __init__(self, profiles: aggregate_metadata.Profiles,
                 default_profile: str | None, policy: str,
                 overload_probability: float, pass_unknown: bool,
                 report: aggregate_metadata.Report, enforcement: str = ENFORCE,
                 prediction_margin: float = 1.0) -> None:
        self._profiles = profiles
        self._default_profile = default_profile
        self._pass_unknown = pass_unknown
        self._reports = {}       # topic -> problem or None, of one policy
        self._report = lambda *reported: self._reports.update([reported])
        self._pass_on = report
        self._enforcement = enforcement
        self._keys = aggregate_metadata.Keys(
            aggregate_metadata.PREFIX, profiles, policy, overload_probability,
            prediction_margin, vswitch_profile.OVERRIDABLE_KEYS, self._report,
            {key: checks.one_of(words) for key, words in (
                (_JUDGE, ('true', 'false')),
                (_ENFORCEMENT, (ENFORCE, OBSERVE)),
                (_MIGRATE, flavor_specs.MIGRATE_VALUES))})
        self._known = {}         # arguments -> (HostPolicy, its reports)

    def find(self, metadata: aggregate_metadata.Metadata,
             host_profile: typing.Any,
             bare_metal: bool = False) -> admission.HostPolicy:
        """Return the HostPolicy of a host.

        :param bare_metal: whether its instances are physical machines without
            a virtual switch: it is only judged if an aggregate requests that
        """
        items = _items(metadata)
        stored = None
        if host_profile is not None:
            stored = (host_profile.host, host_profile.profile,
                      repr(sorted(host_profile.overrides.items())))
        key = (items, stored, bare_metal)
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._reports.clear()
            policy = self._make(items, host_profile, bare_metal)
            self._known[key] = policy, dict(self._reports)
        policy, reports = self._known[key]
        # Other metadata may have been reported since the policy was made.
        for topic, problem in reports.items():
            self._pass_on(topic, problem)
        return policy

    def origins(self, metadata: aggregate_metadata.Metadata,
                host_profile: typing.Any) -> dict[str, str | None]:
        """Return where the values of the policy of a host come from.

        :returns: {'profile': text or None, 'admission_policy': text,
            'overload_probability': text, 'prediction_margin': text, name of a
            number that differs from the profile: text}
        """
        settings = self._keys.read(_items(metadata))

        def stated(key: str) -> str | None:
            names = sorted(set(settings.values.get(
                aggregate_metadata.PREFIX + key, {}).values()))
            return f'aggregate {", ".join(names)}' if names else None

        names, stored, origin = self._profile_names(settings, host_profile)
        return {
            'profile': names and (stated('profile') or origin) or None,
            **{key: stated(key) or 'option' for key in (
                'admission_policy', 'overload_probability',
                'prediction_margin')},
            **{key: _stored_by(host_profile) for key in stored},
            **{key: stated(key) for key in settings.numbers}}

    def _make(self, items, host_profile, bare_metal):
        settings = self._keys.read(items)
        asked = settings.values.get(aggregate_metadata.PREFIX + _JUDGE, ())
        if 'true' not in asked and (bare_metal or 'false' in asked):
            return admission.HostPolicy(None, settings.policy, settings.limit,
                                        judged=False)
        enforcements = settings.values.get(
            aggregate_metadata.PREFIX + _ENFORCEMENT, (self._enforcement,))
        return admission.HostPolicy(
            self._profile(settings, host_profile), settings.policy,
            settings.limit,
            self._pass_unknown, enforced=OBSERVE not in enforcements,
            prediction_margin=settings.margin)

    def _profile_names(self, settings, host_profile):
        """Return (names of profiles, numbers stored with the host, origin)."""
        names, stored, origin = settings.profiles, {}, None
        if not names and host_profile is not None:
            names, stored = self._stored_profile(host_profile)
            origin = ('default_switch_profile' if host_profile.profile is None
                      else _stored_by(host_profile))
        if not names and self._default_profile is not None:
            names, origin = [self._default_profile], 'default_switch_profile'
        return names, stored, origin

    def _profile(self, settings, host_profile):
        names, stored, _ = self._profile_names(settings, host_profile)
        profile = vswitch_profile.smallest(
            self._profiles[name] for name in names)
        if stored:
            profile = aggregate_metadata.usable_profile(
                profile, {key: [value] for key, value in stored.items()},
                f'host {host_profile.host}', self._report)
        if not settings.numbers:
            return profile
        return aggregate_metadata.usable_profile(
            profile, settings.numbers, 'aggregate ' + ', '.join(sorted({
                name for texts in settings.values.values()
                for name in texts.values()})), self._report)

    def _stored_profile(self, host_profile):
        name = host_profile.profile or self._default_profile
        if name is None or name in self._profiles:
            self._report(f'host {host_profile.host} profile', None)
            return ([] if name is None else [name]), host_profile.overrides
        self._report(
            f'host {host_profile.host} profile',
            f'host {host_profile.host}: its stored profile: {name!r}; '
            f'expected one of {", ".join(sorted(self._profiles))}; it is '
            f'ignored')
        return [], {}


def _stored_by(host_profile: typing.Any) -> str:
    return f'store ({host_profile.source})'


def _items(metadata):
    """Return the sorted (aggregate, key, value) of the keys of hosts."""
    return tuple(sorted(
        (name, key, value) for name, data in metadata
        for key, value in data.items()
        if key.startswith(aggregate_metadata.PREFIX)
        and not key.startswith(aggregate_metadata.UPLINK)))
