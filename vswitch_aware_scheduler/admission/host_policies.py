# SPDX-License-Identifier: Apache-2.0
"""The HostPolicy of a host: aggregate metadata, stored profile, default.

Of several values the most cautious wins.
"""

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import aggregate_metadata
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['ENFORCE', 'HostPolicies', 'OBSERVE']

#: Name of the key that says whether hosts are judged.
_JUDGE = 'judge'

#: Name of the key that says whether hosts are refused, and its values.
_ENFORCEMENT = 'enforcement'
ENFORCE, OBSERVE = 'enforce', 'observe'

#: Different policies that are kept; when there are more, all are dropped.
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
    :param enforcement: ENFORCE or OBSERVE where no aggregate sets one
    """

    def __init__(self, profiles, default_profile, policy,
                 overload_probability, pass_unknown, report,
                 enforcement=ENFORCE):
        self._profiles = profiles
        self._default_profile = default_profile
        self._pass_unknown = pass_unknown
        self._report = report
        self._enforcement = enforcement
        self._keys = aggregate_metadata.Keys(
            aggregate_metadata.PREFIX,
            profiles,
            policy,
            overload_probability,
            vswitch_profile.OVERRIDABLE_KEYS,
            report,
            {
                _JUDGE: aggregate_metadata.refusing(
                    'true or false', ('true', 'false').__contains__
                ),
                _ENFORCEMENT: aggregate_metadata.refusing(
                    f'{ENFORCE} or {OBSERVE}', (ENFORCE, OBSERVE).__contains__
                ),
            },
        )
        self._known = {}         # what decides -> HostPolicy

    def find(self, metadata, host_profile, bare_metal=False):
        """Return the HostPolicy of a host.

        :param metadata: [(aggregate name, its metadata)] of the aggregates
            of the host
        :param host_profile: the store's HostProfile of the host, or None
        :param bare_metal: whether its instances are machines of their own,
            which are not behind a virtual switch: such a host is judged only
            where an aggregate asks for it
        """
        items = _items(metadata)
        stored = None
        if host_profile is not None:
            stored = (host_profile.host, host_profile.profile,
                      repr(sorted(host_profile.overrides.items())))
        key = (items, stored, bare_metal)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = self._make(items, host_profile,
                                                  bare_metal)
        return found

    def origins(self, metadata, host_profile):
        """Return where the values of the policy of a host come from.

        Arguments as of :meth:`find`.

        :returns: {'profile': text or None, 'admission_policy': text,
            'overload_probability': text, name of a number: text}: the
            numbers that differ from those of the profile
        """
        said = self._keys.read(_items(metadata))

        def stated(key):
            names = sorted(
                set(
                    said.values.get(
                        aggregate_metadata.PREFIX + key, {}
                    ).values()
                )
            )
            return f'aggregate {", ".join(names)}' if names else None

        names, stored, origin = self._profile_names(said, host_profile)
        return {
            'profile': names and (stated('profile') or origin) or None,
            'admission_policy': stated('admission_policy') or 'option',
            'overload_probability':
                stated('overload_probability') or 'option',
            **{key: _stored_by(host_profile) for key in stored},
            **{key: stated(key) for key in said.numbers}}

    def _make(self, items, host_profile, bare_metal):
        said = self._keys.read(items)
        asked = said.values.get(aggregate_metadata.PREFIX + _JUDGE, ())
        if 'true' not in asked and (bare_metal or 'false' in asked):
            return admission.HostPolicy(None, said.policy, said.limit,
                                        judged=False)
        enforcements = said.values.get(
            aggregate_metadata.PREFIX + _ENFORCEMENT
        ) or (self._enforcement,)
        return admission.HostPolicy(
            self._profile(said, host_profile), said.policy, said.limit,
            self._pass_unknown, enforced=OBSERVE not in enforcements)

    def _profile_names(self, said, host_profile):
        """Return (names of profiles, numbers stored beside, origin)."""
        names, stored, origin = said.profiles, {}, None
        if not names and host_profile is not None:
            names, stored = self._stored_profile(host_profile)
            origin = ('default_switch_profile' if host_profile.profile is None
                      else _stored_by(host_profile))
        if not names and self._default_profile is not None:
            names, origin = [self._default_profile], 'default_switch_profile'
        return names, stored, origin

    def _profile(self, said, host_profile):
        names, stored, _ = self._profile_names(said, host_profile)
        found = vswitch_profile.smallest(
            self._profiles[name] for name in names)
        if stored:
            found = aggregate_metadata.usable_profile(
                found, {key: [value] for key, value in stored.items()},
                f'host {host_profile.host}', self._report)
        if not said.numbers:
            return found
        return aggregate_metadata.usable_profile(
            found, said.numbers, 'aggregate ' + ', '.join(sorted({
                name for texts in said.values.values()
                for name in texts.values()})), self._report)

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


def _stored_by(host_profile):
    return f'store ({host_profile.source})'


def _items(metadata):
    """Return the sorted (aggregate, key, value) of what is ours of hosts."""
    return tuple(
        sorted(
            (name, key, value)
            for name, data in metadata
            for key, value in data.items()
            if key.startswith(aggregate_metadata.PREFIX)
            and not key.startswith(aggregate_metadata.UPLINK)
        )
    )
