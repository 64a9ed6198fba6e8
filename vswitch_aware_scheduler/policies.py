# SPDX-License-Identifier: Apache-2.0
"""What host aggregates say about their hosts' switches.

``vswitch:profile`` names the switch profile; ``vswitch:<number>`` overrides
one number of it; ``vswitch:admission_policy`` and
``vswitch:overload_probability`` set how the host is judged, and
``vswitch:judge`` whether it is judged; ``vswitch:enforcement`` says whether
the host is refused, or observed only. Where several aggregates of a host
differ, the most cautious wins. A value that cannot be used is reported and
ignored, alone: the other keys of the host and the other hosts are judged as
if the value were absent. What hosts share is another matter: :mod:`.uplinks`.
"""

import dataclasses

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['ENFORCE', 'HostPolicies', 'Keys', 'OBSERVE', 'Stated', 'UPLINK',
           'refusing', 'usable_profile']

PREFIX = 'vswitch:'

#: Keys that begin so are those of uplinks.
UPLINK = 'vswitch:uplink'

#: Name of the key that says whether hosts are judged.
_JUDGE = 'judge'

#: Name of the key that says whether hosts are refused, and its values.
_ENFORCEMENT = 'enforcement'
ENFORCE, OBSERVE = 'enforce', 'observe'

#: Different policies that are remembered; beyond, all are found anew.
_MOST_KNOWN = 10_000


def refusing(wanted, fits):
    """Return a check of the texts that a metadata key may have.

    :param wanted: what fits, in words
    :param fits: callable, text -> whether it fits; a ValueError: it does not
    :returns: callable(where, key, text) that raises InvalidOverride
    """
    def check(where, key, text):
        try:
            good = fits(text)
        except (TypeError, ValueError, OverflowError):
            good = False
        if not good:
            raise exceptions.InvalidOverride(
                f'{where}: {key} is {text!r}, wanted {wanted}')
    return check


@dataclasses.dataclass(frozen=True)
class Stated:
    """What metadata says, as far as it can be used.

    :ivar values: {key: {value: name of an aggregate that has it}}
    :ivar profiles: names of profiles
    :ivar numbers: {name of a number of a profile: list of texts}
    :ivar policy: the most cautious admission policy
    :ivar limit: the lowest overload probability
    """

    values: dict
    profiles: list
    numbers: dict
    policy: str
    limit: float


class Keys:
    """Reads the metadata keys with one prefix.

    :param prefix: string
    :param profiles: {name: SwitchProfile}
    :param policy: admission policy where no aggregate sets one
    :param overload_probability: limit where no aggregate sets one
    :param numbers: names of the numbers of a profile that can be overridden
    :param report: callable(topic, problem or None)
    :param others: {name: check} of other keys with this prefix
    """

    def __init__(self, prefix, profiles, policy, overload_probability,
                 numbers, report, others=None):
        self._profile = prefix + 'profile'
        self._numbers = {prefix + name: name for name in numbers}
        self._policy = prefix + 'admission_policy'
        self._limit = prefix + 'overload_probability'
        self._defaults = {self._policy: {policy: None},
                          self._limit: {overload_probability: None}}
        self._report = report
        self._checks = {
            self._profile: refusing(
                f'one of {", ".join(sorted(profiles))}',
                profiles.__contains__),
            self._policy: refusing(
                f'{admission.AVERAGE} or {admission.PROBABILITY}',
                (admission.AVERAGE, admission.PROBABILITY).__contains__),
            self._limit: refusing('a number 0..1',
                                  lambda text: 0 <= float(text) <= 1),
            **{prefix + name: check for name, check in (others or {}).items()},
            **dict.fromkeys(self._numbers, self._check_number)}
        self._unknown = refusing(f'no key but {", ".join(self._checks)}',
                                 lambda text: False)

    def read(self, items):
        """Return what is Stated; what cannot be used is reported.

        :param items: sorted [(aggregate name, key, value)]
        """
        values = {}
        for name, key, value in items:
            where = f'aggregate {name}'
            try:
                self._checks.get(key, self._unknown)(where, key, value)
                self._report(f'{where} {key}', None)
            except exceptions.InvalidInput as error:
                self._report(f'{where} {key}', f'{error}; it is ignored')
                continue
            values.setdefault(key, {})[value] = name
        found = {**self._defaults, **values}
        return Stated(
            values, sorted(values.get(self._profile, ())),
            {self._numbers[key]: list(texts)
             for key, texts in values.items() if key in self._numbers},
            admission.most_cautious(found[self._policy]),
            min(map(float, found[self._limit])))

    def _check_number(self, where, key, text):
        vswitch_profile.override_number(self._numbers[key], text, where)


def usable_profile(found, numbers, where, report, **others):
    """Return a profile with those numbers that can be used.

    Numbers that are usable alone may contradict the profile or one another:
    the first of them, by name, that does is reported and left out.

    :param found: SwitchProfile or None
    :param numbers: {name of a number: values}, of which the smallest counts
    :param where: who says so, for messages
    :param report: callable(topic, problem or None)
    :param others: other keys that change with the numbers
    :returns: SwitchProfile, or None when there is nothing to go by
    """
    try:
        usable = vswitch_profile.with_numbers(found, numbers, where, **others)
        for key in numbers:
            report(f'{where} {key}', None)
        return usable
    except exceptions.InvalidInput:
        pass
    usable, kept = found, {}
    for key in sorted(numbers):
        try:
            usable = vswitch_profile.with_numbers(
                found, {**kept, key: numbers[key]}, where, **others)
            kept[key] = numbers[key]
            report(f'{where} {key}', None)
        except exceptions.InvalidInput as error:
            report(f'{where} {key}', f'{error}; it is ignored')
    return usable


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
        self._keys = Keys(PREFIX, profiles, policy, overload_probability,
                          vswitch_profile.OVERRIDABLE_KEYS, report, {
                              _JUDGE: refusing(
                                  'true or false',
                                  ('true', 'false').__contains__),
                              _ENFORCEMENT: refusing(
                                  f'{ENFORCE} or {OBSERVE}',
                                  (ENFORCE, OBSERVE).__contains__)})
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
            names = sorted(set(said.values.get(PREFIX + key, {}).values()))
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
        asked = said.values.get(PREFIX + _JUDGE, ())
        if 'true' not in asked and (bare_metal or 'false' in asked):
            return admission.HostPolicy(None, said.policy, said.limit,
                                        judged=False)
        enforcements = said.values.get(PREFIX + _ENFORCEMENT) or (
            self._enforcement,)
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
            found = usable_profile(
                found, {key: [value] for key, value in stored.items()},
                f'host {host_profile.host}', self._report)
        if not said.numbers:
            return found
        return usable_profile(
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
    return tuple(sorted(
        (name, key, value) for name, data in metadata
        for key, value in data.items() if key.startswith(PREFIX)
        and not key.startswith(UPLINK)))
