# SPDX-License-Identifier: Apache-2.0
"""What host aggregates say about the uplinks that hosts share.

``vswitch:uplink`` names what all traffic of the aggregate's hosts takes: a
ToR's uplink, a gateway, that of a silo. Aggregates that name the same one
describe it together; ``vswitch:uplink_profile`` and
``vswitch:uplink_<number>`` say what it carries. Of several values the most
cautious wins. One that cannot be used is reported and ignored.
"""

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler.vswitch import gateway
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['KEYS', 'PREFIX', 'UplinkPolicies', 'is_in', 'name_in']

PREFIX = 'vswitch:uplink'
PROFILE = 'vswitch:uplink_profile'
POLICY = 'vswitch:uplink_admission_policy'
LIMIT = 'vswitch:uplink_overload_probability'
ENTRIES = 'vswitch:uplink_mapping_entries'
INTERFACES = 'vswitch:uplink_mapping_interfaces'
SHARE = 'vswitch:uplink_same_host_share'

_NUMBERS = {f'{PREFIX}_{key}': key for key in (
    'saturation_kbps', 'packet_rate_kpps', 'line_rate_kbps',
    'typical_packet_bytes')}

#: What stays on a host takes nothing of its uplink.
_NOTHING_TAKEN_KBPS = 1e15

#: Every metadata key that is read.
KEYS = (PREFIX, PROFILE, POLICY, LIMIT, ENTRIES, INTERFACES, SHARE,
        *_NUMBERS)


def is_in(metadata):
    """Return whether an aggregate's metadata says anything of an uplink."""
    return any(key.startswith(PREFIX) for key in metadata)


def name_in(metadata):
    """Return the name of the uplink that an aggregate's hosts share, or None.

    :param metadata: mapping of strings
    """
    return metadata.get(PREFIX, '').strip() or None


class UplinkPolicies:
    """Finds what uplinks there are; one that stays is the same object.

    :param profiles: {name: SwitchProfile}
    :param policy: admission policy where no aggregate sets one
    :param overload_probability: limit where no aggregate sets one
    :param report: callable(topic, problem or None)
    """

    def __init__(self, profiles, policy, overload_probability, report):
        self._profiles = profiles
        self._policy = policy
        self._overload_probability = overload_probability
        self._report = report
        self._known = {}         # name -> (what decides, Uplink or None)

    def find(self, metadata):
        """Return {name: Uplink}.

        :param metadata: [(aggregate name, its metadata)] of all aggregates
        """
        items = {}               # name -> {(aggregate, key, value)}
        for where, data in metadata:
            stated = {key: value for key, value in data.items()
                      if key.startswith(PREFIX)}
            name = name_in(stated)
            if stated:
                self._report(f'aggregate {where} {PREFIX}', None if name else (
                    f'aggregate {where}: there is '
                    f'{", ".join(sorted(stated))} and {PREFIX} is '
                    f'{stated.get(PREFIX)!r}, wanted the name of an uplink; '
                    f'they are ignored'))
            if name:
                items.setdefault(name, set()).update(
                    (where, key, value) for key, value in stated.items())
        self._known = {
            name: known if (known := self._known.get(name)) is not None
            and known[0] == stated else (stated, self._make(name, stated))
            for name, stated in items.items()}
        return {name: uplink for name, (_, uplink) in self._known.items()
                if uplink is not None}

    def _make(self, name, items):
        values = {}              # key -> [values]
        for where, key, value in sorted(items):
            if key == PREFIX:
                continue
            try:
                self._check(f'aggregate {where}', key, value)
                self._report(f'aggregate {where} {key}', None)
            except exceptions.InvalidInput as error:
                self._report(f'aggregate {where} {key}',
                             f'{error}; it is ignored')
                continue
            values.setdefault(key, []).append(value)
        policy = self._policy
        if POLICY in values:
            policy = admission.most_cautious(values[POLICY])
        limit = min(map(float, values.get(
            LIMIT, [self._overload_probability])))
        found = self._profile(name, values)
        self._report(f'uplink {name}', None if found is not None else (
            f'uplink {name}: no aggregate says what it carries, wanted one '
            f'of {", ".join((PROFILE, ENTRIES, *_NUMBERS))}; it limits '
            f'nothing'))
        return found and admission.Uplink(name, admission.HostPolicy(
            found, policy, limit, tunnel_key='the room of the mapping table'))

    def _check(self, where, key, value):
        wanted = None
        if key == PROFILE:
            if value not in self._profiles:
                wanted = f'one of {", ".join(sorted(self._profiles))}'
        elif key == POLICY:
            if value not in (admission.AVERAGE, admission.PROBABILITY):
                wanted = f'{admission.AVERAGE} or {admission.PROBABILITY}'
        elif key == LIMIT:
            if not 0 <= _number(float, value) <= 1:
                wanted = 'a number 0..1'
        elif key == SHARE:
            if not 0 <= _number(float, value) < 1:
                wanted = 'a number 0 <= share < 1'
        elif key in (ENTRIES, INTERFACES):
            least = int(key == INTERFACES)
            if _number(int, value) < least:
                wanted = f'a whole number >= {least}'
        elif key in _NUMBERS:
            vswitch_profile.override_number(_NUMBERS[key], value, where)
        else:
            wanted = f'no key but {", ".join(KEYS)}'
        if wanted is not None:
            raise exceptions.InvalidOverride(
                f'{where}: {key} is {value!r}, wanted {wanted}')

    def _profile(self, name, values):
        """Return the SwitchProfile of an uplink, None when it has no limit."""
        where = f'uplink {name}'
        numbers = {_NUMBERS[key]: texts for key, texts in values.items()
                   if key in _NUMBERS}
        if ENTRIES in values:
            numbers['max_tunnels'] = [gateway.most_networks(
                min(map(int, values[ENTRIES])),
                max(map(int, values.get(INTERFACES, ['1']))))]
        others = {'tunnel_unit': 'networks'} if ENTRIES in values else {}
        if SHARE in values:
            others.update(same_host_share=min(map(float, values[SHARE])),
                          same_host_saturation_kbps=_NOTHING_TAKEN_KBPS)
        return vswitch_profile.with_numbers(
            vswitch_profile.smallest(
                self._profiles[one] for one in values.get(PROFILE, ())),
            numbers, where, **others)


def _number(kind, text):
    """Return the number in a text, -1 when there is none."""
    try:
        return kind(text)
    except ValueError:
        return -1
