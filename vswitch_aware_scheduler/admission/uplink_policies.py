# SPDX-License-Identifier: Apache-2.0
"""What host aggregates say about the uplinks that hosts share.

``vswitch:uplink`` names what all traffic of the aggregate's hosts takes: a
ToR's uplink, a gateway, that of a silo. Aggregates that name the same one
describe it together; ``vswitch:uplink_profile`` and
``vswitch:uplink_<number>`` say what it carries. Of several values the most
cautious wins. One that cannot be used is reported and ignored.
"""

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import aggregate_metadata
from vswitch_aware_scheduler.vswitch import gateway
from vswitch_aware_scheduler.vswitch import profile as vswitch_profile

__all__ = ['UplinkPolicies', 'is_in', 'name_in']

PREFIX = aggregate_metadata.UPLINK
ENTRIES = 'vswitch:uplink_mapping_entries'
INTERFACES = 'vswitch:uplink_mapping_interfaces'
SHARE = 'vswitch:uplink_same_host_share'

#: The largest count that a profile can state.
_MOST_ENTRIES = 10 ** 15

_NUMBERS = ('saturation_kbps', 'packet_rate_kpps', 'line_rate_kbps',
            'typical_packet_bytes')

#: What says what an uplink carries.
_CAPACITIES = (f'{PREFIX}_profile', ENTRIES,
               *(f'{PREFIX}_{name}' for name in _NUMBERS))

#: What stays on a host takes nothing of its uplink.
_NOTHING_TAKEN_KBPS = 1e15


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
        self._report = report
        self._keys = aggregate_metadata.Keys(
            f'{PREFIX}_', profiles, policy, overload_probability, _NUMBERS,
            report, {
                'mapping_entries': aggregate_metadata.refusing(
                    f'a whole number, 0 <= number <= {_MOST_ENTRIES}',
                    lambda text: 0 <= int(text) <= _MOST_ENTRIES),
                'mapping_interfaces': aggregate_metadata.refusing(
                    f'a whole number, 1 <= number <= {_MOST_ENTRIES}',
                    lambda text: 1 <= int(text) <= _MOST_ENTRIES),
                'same_host_share': aggregate_metadata.refusing(
                    'a number 0 <= share < 1',
                    lambda text: 0 <= float(text) < 1)})
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
        try:
            return self._uplink(name, items)
        except Exception as error:
            # Of one uplink: what is behind others is judged.
            self._report(f'uplink {name}', (
                f'uplink {name}: {type(error).__name__}: {error}; it limits '
                f'nothing'))
            return None

    def _uplink(self, name, items):
        said = self._keys.read(sorted(
            item for item in items if item[1] != PREFIX))
        found = self._profile(name, said)
        self._report(f'uplink {name}', None if found is not None else (
            f'uplink {name}: no aggregate says what it carries, wanted one '
            f'of {", ".join(_CAPACITIES)}; it limits nothing'))
        return found and admission.Uplink(name, admission.HostPolicy(
            found, said.policy, said.limit,
            tunnel_key='the room of the mapping table'))

    def _profile(self, name, said):
        """Return the SwitchProfile of an uplink, None when it has no limit."""
        values, numbers = said.values, dict(said.numbers)
        if ENTRIES in values:
            numbers['max_tunnels'] = [gateway.most_networks(
                min(map(int, values[ENTRIES])),
                max(map(int, values.get(INTERFACES, ['1']))))]
        others = {'tunnel_unit': 'networks'} if ENTRIES in values else {}
        if SHARE in values:
            others.update(same_host_share=min(map(float, values[SHARE])),
                          same_host_saturation_kbps=_NOTHING_TAKEN_KBPS)
        return aggregate_metadata.usable_profile(
            vswitch_profile.smallest(
                self._profiles[one] for one in said.profiles),
            numbers, f'uplink {name}', self._report, **others)
